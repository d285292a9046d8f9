//! `journal`: lists the files that a writer will create or remove. It is written before the writer does so.
//!
//! A writer may be killed between any two operations. The journal then shows which files in the folder are its own. A file
//! is never removed because of its name alone. The next writer removes the files that the journal lists and `index.json`
//! does not. When all of them are removed, it removes the journal.
//!
//! The journal is a text file. Each line has a checksum and a file name. Lines are appended and synced before the first of
//! the files is created. So an incomplete last line belongs to a file that does not exist, and is ignored.

use super::disk;
use crate::error::{Error, Result};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

/// Name of the file.
pub(super) const NAME: &str = "journal";
const FIRST_LINE: &str = "frosh-index-journal 1\n";
/// Largest size of a journal that is read. No change involves so many files that its journal is longer.
const MAX_BYTES: u64 = 1 << 28;

/// The listed names, and the state of the journal file.
#[derive(Debug)]
pub(super) struct Journal {
    folder: PathBuf,
    names: BTreeSet<String>,
    state: State,
}

#[derive(Debug)]
enum State {
    Missing,
    /// The file exists, but its first line is incomplete. It lists no names.
    Begun,
    There,
    Open(File),
}

impl Journal {
    /// Reads the journal of a folder. A missing journal lists no names. Fails if a file of this name is not a journal,
    /// because a writer would overwrite it.
    pub(super) fn load(folder: &Path) -> Result<Self> {
        let path = folder.join(NAME);
        let io = |source| Error::Io { path: path.clone(), source };
        let journal = |names, state| Self { folder: folder.to_owned(), names, state };
        let file = match File::open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(journal(BTreeSet::new(), State::Missing));
            }
            opened => opened.map_err(io)?,
        };
        let mut bytes = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut bytes).map_err(io)?;
        // After a power failure a file may have its length but zeros as content.
        let zeros = bytes.len() <= FIRST_LINE.len() && bytes.iter().all(|byte| *byte == 0);
        if zeros || (FIRST_LINE.as_bytes().starts_with(&bytes) && bytes.len() < FIRST_LINE.len()) {
            return Ok(journal(BTreeSet::new(), State::Begun));
        }
        match bytes.strip_prefix(FIRST_LINE.as_bytes()) {
            Some(lines) => Ok(journal(parse(lines), State::There)),
            None => Err(Error::File {
                path: Some(path.clone()),
                why: "is not the journal of an index, or is damaged: move it away, and remove by hand what \
                      `index info` then calls other files"
                    .into(),
            }),
        }
    }

    pub(super) fn names(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Whether there is no journal file.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self.state, State::Missing)
    }

    /// Appends names and syncs. The caller then creates or removes the files.
    pub(super) fn add(&mut self, names: impl IntoIterator<Item = String>) -> Result<()> {
        let path = self.folder.join(NAME);
        let new: Vec<String> =
            names.into_iter().filter(|name| !self.names.contains(name)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let lines: String = new.iter().map(|name| line(name)).collect();
        let io = |source| Error::Io { path: path.clone(), source };
        let begin = |mut file: File| {
            disk::write(&mut file, &path, FIRST_LINE.as_bytes())?;
            disk::sync_file(&file, &path)?;
            disk::sync(&self.folder)?;
            Ok(file)
        };
        let mut file = match &self.state {
            State::Open(file) => file.try_clone().map_err(io)?,
            State::There => File::options().append(true).open(&path).map_err(io)?,
            State::Missing => {
                let file = disk::create(&path)?;
                self.state = State::Begun;
                begin(file)?
            }
            State::Begun => {
                begin(File::options().write(true).truncate(true).open(&path).map_err(io)?)?
            }
        };
        self.state = State::There;
        disk::write(&mut file, &path, lines.as_bytes())?;
        disk::sync_file(&file, &path)?;
        self.state = State::Open(file);
        self.names.extend(new);
        Ok(())
    }

    /// Removes the listed files except those for which `keep` is true. Then removes the journal, unless `stay` is true. If
    /// this fails, the next writer does it; no change depends on it.
    pub(super) fn clean(&mut self, keep: impl Fn(&str) -> bool, stay: bool) {
        if !self.is_empty() {
            let _ = self.try_to_clean(keep, stay);
        }
    }

    fn try_to_clean(&mut self, keep: impl Fn(&str) -> bool, stay: bool) -> Result<()> {
        // The new manifest, which does not list these files, must be durable before the files are removed.
        disk::sync(&self.folder)?;
        let mut gone = Ok(());
        for name in self.names.iter().filter(|name| !keep(name)) {
            // On some systems a mapped file cannot be removed. Go on with the other files.
            gone = disk::remove(&self.folder.join(name)).and(gone);
        }
        gone?;
        if !stay {
            disk::sync(&self.folder)?;
            disk::remove(&self.folder.join(NAME))?;
            self.state = State::Missing;
            self.names.clear();
        }
        Ok(())
    }
}

/// A line of the journal. It starts with a line break, in case the previous line is incomplete.
fn line(name: &str) -> String {
    format!("\n{:016x} {name}\n", xxh3_64(name.as_bytes()))
}

/// The names in the lines of a journal. Names that a writer would not use are ignored, so such files are never removed.
fn parse(lines: &[u8]) -> BTreeSet<String> {
    let name_of = |line: &[u8]| {
        let (sum, name) = std::str::from_utf8(line).ok()?.split_once(' ')?;
        let valid = super::is_ours(name) && sum == format!("{:016x}", xxh3_64(name.as_bytes()));
        valid.then(|| name.to_owned())
    };
    lines.split(|byte| *byte == b'\n').filter_map(name_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "000001.codes.npy";
    const B: &str = "000002.removed";

    #[test]
    fn names_are_read_back_and_only_they_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        for name in [A, B, "000003.codes.npy"] {
            std::fs::write(dir.path().join(name), "x").unwrap();
        }
        let mut journal = Journal::load(dir.path()).unwrap();
        journal.add([A.to_owned()]).unwrap();
        journal.add([A.to_owned(), B.to_owned()]).unwrap();
        let mut again = Journal::load(dir.path()).unwrap();
        assert!(again.names(A) && again.names(B) && again.names.len() == 2);
        again.clean(|name| name == B, false);
        let mut left = disk::names(dir.path()).unwrap();
        left.sort();
        assert_eq!(left, [B, "000003.codes.npy"]);
    }

    #[test]
    fn a_journal_that_was_cut_short_names_what_its_whole_lines_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        let mut journal = Journal::load(dir.path()).unwrap();
        journal.add([A.to_owned()]).unwrap();
        let one = std::fs::read(&path).unwrap().len();
        journal.add([B.to_owned()]).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let mut cut = Journal::load(dir.path()).unwrap();
            assert_eq!(cut.names(A), length >= one - 1, "{length}");
            assert_eq!(cut.names(B), length >= whole.len() - 1, "{length}");
            // Lines that are appended after the incomplete line are read.
            cut.add(["000009.removed".to_owned()]).unwrap();
            let again = Journal::load(dir.path()).unwrap();
            assert!(again.names("000009.removed") && again.names(A) == (length >= one - 1));
        }
    }

    #[test]
    fn what_is_no_journal_is_left_alone_and_foreign_names_are_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        std::fs::write(&path, "Dear diary").unwrap();
        let said = Journal::load(dir.path()).unwrap_err().to_string();
        assert!(said.contains("journal") && said.contains("move it away"), "{said}");
        let mut text = FIRST_LINE.to_owned();
        for name in ["../a.npy", "index.json", "lock", "a.npy", "/etc/passwd", "000001.codes.npy/x"]
        {
            text += &line(name);
        }
        text += &line(A).replace("codes", "ids");
        std::fs::write(&path, text).unwrap();
        assert!(Journal::load(dir.path()).unwrap().names.is_empty());
    }
}
