//! Checkpoints: the learning state, with a note of the arguments and the data it belongs to.
//!
//! The state is a [`Sketcher`] file; the note is JSON. A checkpoint is taken up only if settings and files are
//! what they were: the same number of files, read as the same format and type, of the same sizes and times of
//! modification, with the same bytes at their beginnings, at their ends, and at some places between. What the note of an
//! earlier frosh lacks is not compared.

use anyhow::{Context as _, Result, bail};
use frosh::Sketcher;
use frosh_io::Vectors;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};
use xxhash_rust::xxh3::Xxh3;

/// Bytes of each file's beginning and end that stand for its content.
const SAMPLE: u64 = 1 << 16;
/// Places between, at equal distances, and bytes that are looked at there.
const PLACES: u64 = 64;
const PLACE: u64 = 1 << 12;

/// Saves the state every so often.
pub(crate) struct Checkpoint {
    path: PathBuf,
    note: Value,
    every: Duration,
    last: Option<Instant>,
    /// The bits, where they determine the rows of the sketch.
    bits: Option<usize>,
}

impl Checkpoint {
    /// A checkpoint at `path` of a run with these settings over these files. `bits` are the bits of the model, where they
    /// determine the rows of the sketch.
    pub(crate) fn new(
        path: &Path,
        every: f64,
        settings: Value,
        vectors: &Vectors,
        bits: Option<usize>,
    ) -> Result<Self> {
        let every = Duration::try_from_secs_f64(every)
            .context("--checkpoint-every is not a number of seconds")?;
        let files = vectors.files().iter().map(|file| {
            if !file.rereadable {
                let name = if file.path.as_os_str() == "-" { "standard input" } else { "a pipe" };
                bail!("{name} cannot be read again after a crash: leave out --checkpoint");
            }
            let prints = Prints::of(&file.path).with_context(|| file.path.display().to_string())?;
            Ok(json!({
                "path": file.path.to_string_lossy(),
                "format": file.format.name(),
                "type": file.kind.name(),
                "bytes": file.bytes,
                "modified": prints.modified,
                "content": prints.ends,
                "samples": prints.between,
            }))
        });
        let files: Vec<Value> = files.collect::<Result<_>>()?;
        let note = json!({ "settings": settings, "files": files });
        Ok(Self { path: path.to_owned(), note, every, last: None, bits })
    }

    /// The state to go on from, if there is one.
    pub(crate) fn load(&self) -> Result<Option<Sketcher>> {
        if !self.path.exists() {
            return Ok(None);
        }
        let sketcher = Sketcher::load(&self.path).context("cannot go on from the checkpoint")?;
        let then: Value = serde_json::from_str(sketcher.note()).unwrap_or_default();
        if let Some(difference) = difference(&then, &self.note, self.bits) {
            bail!(
                "{}: is a checkpoint of another run: {difference}. Give the arguments and data of that \
                 run, or remove the file to begin anew",
                self.path.display()
            );
        }
        Ok(Some(sketcher))
    }

    /// Whether it is time to save the state.
    pub(crate) fn is_due(&self) -> bool {
        self.last.is_none_or(|last| last.elapsed() >= self.every)
    }

    /// Saves the state.
    pub(crate) fn save(&mut self, sketcher: &mut Sketcher) -> Result<()> {
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

/// What a file is known by.
struct Prints {
    /// When it was modified, in seconds and nanoseconds.
    modified: Option<String>,
    /// A hash of its beginning and end.
    ends: String,
    /// A hash of places between.
    between: String,
}

impl Prints {
    fn of(path: &Path) -> std::io::Result<Self> {
        let mut file = File::open(path)?;
        let facts = file.metadata()?;
        let size = facts.len();
        let mut piece = |at: u64, length: u64, hash: &mut Xxh3| -> std::io::Result<()> {
            let mut bytes = Vec::new();
            file.seek(SeekFrom::Start(at))?;
            (&file).take(length).read_to_end(&mut bytes)?;
            hash.update(&bytes);
            Ok(())
        };
        let (mut ends, mut between) = (Xxh3::new(), Xxh3::new());
        piece(0, SAMPLE, &mut ends)?;
        piece(size.saturating_sub(SAMPLE), SAMPLE, &mut ends)?;
        for place in 1..=PLACES {
            piece(size / (PLACES + 1) * place, PLACE, &mut between)?;
        }
        let since = facts.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let modified =
            since.map(|since| format!("{}.{:09}", since.as_secs(), since.subsec_nanos()));
        let text = |hash: Xxh3| format!("{:016x}", hash.digest());
        Ok(Self { modified, ends: text(ends), between: text(between) })
    }
}

/// What differs between two notes, in words.
fn difference(then: &Value, now: &Value, bits: Option<usize>) -> Option<String> {
    let empty = serde_json::Map::new();
    let settings = |note: &Value| note["settings"].as_object().unwrap_or(&empty).clone();
    if !then["settings"].is_object() {
        return Some("it does not tell of which".into());
    }
    for (name, value) in settings(now) {
        // A setting that is not there was not noted at that time.
        let Some(before) = then["settings"].get(&name) else { continue };
        if *before != value {
            // The rows of the sketch were not given: they follow from the bits.
            if let (Some(bits), "sketch_rows", Some(rows)) = (bits, &*name, before.as_u64()) {
                return Some(format!(
                    "it was made with --bits {} (or --sketch-rows {rows}), and this run has --bits {bits}",
                    rows / 2
                ));
            }
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
    let differs = |(before, after): (&Value, &Value)| {
        let path = after["path"].as_str().unwrap_or_default();
        let (b, a) = (|name| &before[name], |name| &after[name]);
        let changed = |name: &str| before.get(name).is_some_and(|before| *before != after[name]);
        if changed("format") {
            return Some(format!(
                "{path} was read as {} then, and is read as {} now",
                b("format"),
                a("format")
            ));
        }
        if changed("type") {
            return Some(format!(
                "{path} held values of type {} then, and {} now",
                b("type"),
                a("type")
            ));
        }
        if changed("bytes") {
            return Some(format!(
                "{path} had {} bytes then, and has {} now",
                b("bytes"),
                a("bytes")
            ));
        }
        if changed("content") || changed("samples") {
            return Some(format!("the content of {path} has changed"));
        }
        if changed("modified") {
            let time = b("modified").as_str().unwrap_or("0");
            return Some(format!(
                "{path} has been modified since; if you know that its content is the same, give it its time back \
                 (touch -d @{time} {path})"
            ));
        }
        None
    };
    before.iter().zip(&after).find_map(differs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_named() {
        let note = |seed: u64, bytes: u64, content: &str| json!({"settings": {"seed": seed}, "files": [{"path": "a", "bytes": bytes, "content": content}]});
        assert_eq!(difference(&note(1, 2, "x"), &note(1, 2, "x"), None), None);
        let says = |other: Value| difference(&other, &note(1, 2, "x"), None).unwrap_or_default();
        assert_eq!(says(note(7, 2, "x")), "seed was 7 then, and is 1 now");
        assert_eq!(says(note(1, 3, "x")), "a had 3 bytes then, and has 2 now");
        assert_eq!(says(note(1, 2, "y")), "the content of a has changed");
        assert_eq!(says(Value::Null), "it does not tell of which");
    }

    #[test]
    fn bits_are_named_where_they_were_given() {
        let note = |rows: u64| json!({"settings": {"sketch_rows": rows}, "files": []});
        let said = difference(&note(128), &note(32), Some(16)).unwrap();
        assert_eq!(
            said,
            "it was made with --bits 64 (or --sketch-rows 128), and this run has --bits 16"
        );
        assert!(
            difference(&note(128), &note(32), None).unwrap().starts_with("sketch-rows was 128")
        );
    }

    #[test]
    fn what_an_earlier_note_lacks_is_not_compared() {
        let earlier =
            json!({"settings": {"seed": 1}, "files": [{"path": "a", "bytes": 2, "content": "x"}]});
        let file = json!({"path": "a", "bytes": 2, "content": "x", "format": "raw", "type": "f32", "modified": "5.000000001", "samples": "z"});
        let now = json!({"settings": {"seed": 1, "more": 3}, "files": [file]});
        assert_eq!(difference(&earlier, &now, None), None);
        for (name, said) in [
            ("format", "a was read as \"other\" then, and is read as \"raw\" now"),
            ("type", "a held values of type \"other\" then, and \"f32\" now"),
            ("samples", "the content of a has changed"),
            ("modified", "a has been modified since"),
        ] {
            let mut then = now.clone();
            then["files"][0][name] = json!("other");
            assert!(
                difference(&then, &now, None).is_some_and(|text| text.starts_with(said)),
                "{name}"
            );
        }
    }

    #[test]
    fn a_change_in_the_middle_is_noticed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut bytes = vec![1u8; 2 << 20];
        std::fs::write(file.path(), &bytes).unwrap();
        let before = Prints::of(file.path()).unwrap();
        // Nowhere near a place that is looked at: only the time tells.
        bytes[1_120_000] = 2;
        std::thread::sleep(Duration::from_millis(20));
        std::fs::write(file.path(), &bytes).unwrap();
        let after = Prints::of(file.path()).unwrap();
        assert_eq!((&before.ends, &before.between), (&after.ends, &after.between));
        assert_ne!(before.modified, after.modified);
        bytes[(2 << 20) / (PLACES as usize + 1) * 32 + 5] = 2;
        std::fs::write(file.path(), &bytes).unwrap();
        let after = Prints::of(file.path()).unwrap();
        assert_eq!(before.ends, after.ends);
        assert_ne!(before.between, after.between);
    }
}
