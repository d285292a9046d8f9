//! Checkpoints: the learning state, with a note of the arguments and the data it belongs to.
//!
//! The state is a [`Sketcher`] file; the note is JSON. A checkpoint is taken up only if settings and files are
//! what they were: the same number of files, of the same sizes, with the same beginnings and ends.

use anyhow::{Context as _, Result, bail};
use frosh::Sketcher;
use frosh_io::Vectors;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::Xxh3;

/// Bytes of each file's beginning and end that stand for its content.
const SAMPLE: u64 = 1 << 16;

/// Saves the state every so often.
pub(crate) struct Checkpoint {
    path: PathBuf,
    note: Value,
    every: Duration,
    last: Option<Instant>,
}

impl Checkpoint {
    /// A checkpoint at `path` of a run with these settings over these files.
    pub(crate) fn new(path: &Path, every: f64, settings: Value, vectors: &Vectors) -> Result<Self> {
        let every = Duration::try_from_secs_f64(every)
            .context("--checkpoint-every is not a number of seconds")?;
        let files = vectors.files().iter().map(|file| {
            if !file.again {
                let name = if file.path.as_os_str() == "-" { "standard input" } else { "a pipe" };
                bail!("{name} cannot be read again after a crash: leave out --checkpoint");
            }
            let print = fingerprint(&file.path).with_context(|| file.path.display().to_string())?;
            let path = file.path.to_string_lossy();
            Ok(json!({ "path": path, "bytes": file.bytes, "content": print }))
        });
        let files: Vec<Value> = files.collect::<Result<_>>()?;
        let note = json!({ "settings": settings, "files": files });
        Ok(Self { path: path.to_owned(), note, every, last: None })
    }

    /// The state to go on from, if there is one.
    pub(crate) fn load(&self) -> Result<Option<Sketcher>> {
        if !self.path.exists() {
            return Ok(None);
        }
        let sketcher = Sketcher::load(&self.path).context("cannot go on from the checkpoint")?;
        let then: Value = serde_json::from_str(sketcher.note()).unwrap_or_default();
        if let Some(difference) = difference(&then, &self.note) {
            bail!(
                "{}: is a checkpoint of another run: {difference}. Give the arguments and data of that \
                 run, or remove the file to begin anew",
                self.path.display()
            );
        }
        Ok(Some(sketcher))
    }

    /// Saves the state if it is time.
    pub(crate) fn save_if_due(&mut self, sketcher: &mut Sketcher) -> Result<()> {
        if self.last.is_some_and(|last| last.elapsed() < self.every) {
            return Ok(());
        }
        if sketcher.note().is_empty() {
            sketcher.set_note(self.note.to_string());
        }
        sketcher.save(&self.path).context("cannot save the checkpoint")?;
        self.last = Some(Instant::now());
        Ok(())
    }

    /// The job is done and its result written: nothing to go on from.
    pub(crate) fn remove(&self) {
        // If it stays, the next run finds it complete and ends at once.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A hash of a file's beginning and end.
fn fingerprint(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let mut bytes = Vec::new();
    (&file).take(SAMPLE).read_to_end(&mut bytes)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(SAMPLE)))?;
    (&file).take(SAMPLE).read_to_end(&mut bytes)?;
    let mut hash = Xxh3::new();
    hash.update(&bytes);
    Ok(format!("{:016x}", hash.digest()))
}

/// What differs between two notes, in words.
fn difference(then: &Value, now: &Value) -> Option<String> {
    let empty = serde_json::Map::new();
    let settings = |note: &Value| note["settings"].as_object().unwrap_or(&empty).clone();
    for (name, value) in settings(now) {
        let before = &then["settings"][&name];
        if *before != value {
            return Some(format!(
                "{} was {before} then, and is {value} now",
                name.replace('_', "-")
            ));
        }
    }
    let files = |note: &Value| note["files"].as_array().cloned().unwrap_or_default();
    let (before, after) = (files(then), files(now));
    if before.len() != after.len() {
        return Some(format!(
            "it read {} files then, and there are {} now",
            before.len(),
            after.len()
        ));
    }
    for (before, after) in before.iter().zip(&after) {
        let path = after["path"].as_str().unwrap_or_default();
        if before["bytes"] != after["bytes"] {
            let (b, a) = (&before["bytes"], &after["bytes"]);
            return Some(format!("{path} had {b} bytes then, and has {a} now"));
        }
        if before["content"] != after["content"] {
            return Some(format!("the content of {path} has changed"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_named() {
        let note = |seed: u64, bytes: u64, content: &str| json!({"settings": {"seed": seed}, "files": [{"path": "a", "bytes": bytes, "content": content}]});
        assert_eq!(difference(&note(1, 2, "x"), &note(1, 2, "x")), None);
        let says = |other: Value| difference(&other, &note(1, 2, "x")).unwrap_or_default();
        assert_eq!(says(note(7, 2, "x")), "seed was 7 then, and is 1 now");
        assert_eq!(says(note(1, 3, "x")), "a had 3 bytes then, and has 2 now");
        assert_eq!(says(note(1, 2, "y")), "the content of a has changed");
        assert!(says(Value::Null).starts_with("seed was null"));
    }
}
