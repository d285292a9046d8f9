//! Atomic file replacement: a temporary sibling is written, synced, and renamed when it is complete.
//!
//! A file that is replaced keeps its permissions; through a link, the file that it names is replaced, or made where
//! there is none yet. What is no regular file (a device, a pipe) is refused: renaming would put a file in its place.

use crate::error::{Error, Result};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Temporary files that are being written, so that an interrupted program can remove them.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A file in the making. Dropped before [`AtomicFile::commit`], it leaves nothing behind.
#[derive(Debug)]
pub struct AtomicFile {
    temporary: Option<tempfile::NamedTempFile>,
    /// As the caller calls it.
    target: PathBuf,
    /// Where it really is, links followed.
    place: PathBuf,
}

impl AtomicFile {
    /// Begins a file that shall be `target`.
    pub fn begin(target: &Path) -> Result<Self> {
        let refuse = |why: &str| Error::File { path: Some(target.to_owned()), why: why.into() };
        let place =
            place(target).map_err(|source| Error::Io { path: target.to_owned(), source })?;
        let before = place.metadata().ok();
        match &before {
            Some(there) if there.is_dir() => {
                return Err(refuse("is a folder, and a file is to be written: give a file's name"));
            }
            Some(there) if !there.is_file() => {
                return Err(refuse(
                    "is no regular file, and only such can be replaced by a whole one",
                ));
            }
            _ => {}
        }
        let folder = match place.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let mut builder = tempfile::Builder::new();
        let prefix = prefix(&place);
        builder.prefix(&prefix).suffix(SUFFIX);
        #[cfg(unix)]
        {
            // As any file that a program writes: the umask decides who may read it.
            use std::os::unix::fs::PermissionsExt as _;
            builder.permissions(std::fs::Permissions::from_mode(0o666));
        }
        let io = |source| Error::Io { path: target.to_owned(), source: plain(source) };
        let temporary = builder.tempfile_in(folder).map_err(io)?;
        if let Some(before) = before {
            // Nobody shall read what could not be read before. Where that fails, the umask's choice stays.
            let _ = temporary.as_file().set_permissions(before.permissions());
        }
        unfinished(|all| all.push(temporary.path().to_owned()));
        // Held as long as somebody writes it, so that nobody takes it for a leftover. Where files cannot be locked,
        // leftovers are not removed either.
        #[cfg(unix)]
        let _ = temporary.as_file().try_lock();
        Ok(Self { temporary: Some(temporary), target: target.to_owned(), place })
    }

    /// The open file.
    ///
    /// # Panics
    /// Never: the file is there until it is committed, and committing takes it.
    pub fn file(&self) -> &File {
        self.temporary.as_ref().expect("not committed yet").as_file()
    }

    /// Syncs the file and gives it its name.
    pub fn commit(mut self) -> Result<()> {
        let io = |source| Error::Io { path: self.target.clone(), source };
        if let Some(temporary) = self.temporary.take() {
            let path = temporary.path().to_owned();
            let done = temporary.as_file().sync_all();
            let done = done.and_then(|()| temporary.persist(&self.place).map_err(|e| e.error));
            unfinished(|all| all.retain(|other| *other != path));
            done.map_err(io)?;
            // The new name is on disk only with its folder. Where folders cannot be synced, the system does it.
            #[cfg(unix)]
            if let Some(folder) = self.place.parent() {
                let here = Path::new(".");
                let folder = if folder.as_os_str().is_empty() { here } else { folder };
                let _ = File::open(folder).and_then(|folder| folder.sync_all());
            }
        }
        Ok(())
    }

    /// Removes what programs that were killed left of their temporary files for `target`, and nothing else.
    pub fn remove_leftovers(target: &Path) {
        // Elsewhere files are not locked, so nobody knows which are leftovers.
        if !cfg!(unix) {
            return;
        }
        let place = target.canonicalize().unwrap_or_else(|_| target.to_owned());
        let here = Path::new(".");
        let folder = place.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(here);
        let prefix = prefix(&place);
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let random = name.to_str().and_then(|name| name.strip_prefix(&prefix));
            let random = random.and_then(|rest| rest.strip_suffix(SUFFIX));
            let ours = random
                .is_some_and(|r| r.len() == 6 && r.bytes().all(|b| b.is_ascii_alphanumeric()));
            if ours && entry.file_type().is_ok_and(|kind| kind.is_file()) {
                // Whoever writes it holds a lock.
                let file = File::open(entry.path());
                if file.is_ok_and(|file| file.try_lock().is_ok()) {
                    let _ = std::fs::remove_file(entry.path());
                }
            }
        }
    }

    /// Removes the temporary files of all unfinished files: for a program that is told to stop.
    pub fn remove_unfinished() {
        unfinished(|all| {
            for path in all.drain(..) {
                let _ = std::fs::remove_file(path);
            }
        });
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            unfinished(|all| all.retain(|other| other != temporary.path()));
        }
    }
}

/// Links that lead to links are followed so often, as the system does.
const MOST_LINKS: usize = 40;

/// Where a file is, or would be made, links followed.
fn place(target: &Path) -> io::Result<PathBuf> {
    let mut place = target.to_owned();
    for _ in 0..MOST_LINKS {
        match place.canonicalize() {
            Ok(place) => return Ok(place),
            Err(error) => match place.read_link() {
                // The link's target is not there yet: it is meant from where the link is.
                Ok(next) if error.kind() == io::ErrorKind::NotFound => {
                    place = place.parent().unwrap_or(Path::new("")).join(next);
                }
                Ok(_) => return Err(error),
                // No link; if it cannot be made, making it tells why.
                Err(_) => return Ok(place),
            },
        }
    }
    Err(io::Error::other("too many links lead from one to the next"))
}

/// How names of temporary files end.
const SUFFIX: &str = ".tmp";

/// How names of temporary files for a target begin. Names may be too long to be taken up whole.
fn prefix(place: &Path) -> String {
    let name = place.file_name().unwrap_or_default().as_encoded_bytes();
    format!(".frosh-{:016x}-", xxhash_rust::xxh3::xxh3_64(name))
}

fn unfinished(change: impl FnOnce(&mut Vec<PathBuf>)) {
    // A thread that died while it held the list leaves it usable.
    change(&mut UNFINISHED.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
}

/// The system's error without the temporary file's name, which nobody knows.
fn plain(error: io::Error) -> io::Error {
    #[cfg(unix)]
    let code = match error.kind() {
        io::ErrorKind::NotFound => Some(2),
        io::ErrorKind::PermissionDenied => Some(13),
        io::ErrorKind::StorageFull => Some(28),
        io::ErrorKind::ReadOnlyFilesystem => Some(30),
        _ => None,
    };
    #[cfg(not(unix))]
    let code = None;
    code.map_or(error, io::Error::from_raw_os_error)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;

    fn write(target: &Path, text: &str) -> Result<()> {
        let whole = AtomicFile::begin(target)?;
        whole.file().write_all(text.as_bytes()).unwrap();
        whole.commit()
    }

    #[test]
    fn what_is_replaced_keeps_its_permissions_and_links_stay_links() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        write(&file, "one").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write(&link, "two").unwrap();
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "two");
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn through_links_to_what_is_not_there_yet_it_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("store")).unwrap();
        // Two links, of which the second is relative to where it is.
        std::os::unix::fs::symlink("store/link", at("first")).unwrap();
        std::os::unix::fs::symlink("file", at("store/link")).unwrap();
        write(&at("first"), "one").unwrap();
        for link in ["first", "store/link"] {
            assert!(at(link).symlink_metadata().unwrap().is_symlink(), "{link}");
        }
        assert!(at("store/file").symlink_metadata().unwrap().is_file());
        assert_eq!(std::fs::read_to_string(at("store/file")).unwrap(), "one");
        write(&at("first"), "two").unwrap();
        assert_eq!(std::fs::read_to_string(at("store/file")).unwrap(), "two");
        // Where the target's folder is missing, or links lead in a circle, nothing is made and nothing replaced.
        std::os::unix::fs::symlink("missing/file", at("nowhere")).unwrap();
        std::os::unix::fs::symlink("circle", at("circle")).unwrap();
        for link in ["nowhere", "circle"] {
            assert!(write(&at(link), "x").is_err(), "{link}");
            assert!(at(link).symlink_metadata().unwrap().is_symlink(), "{link}");
        }
    }

    #[test]
    fn leftovers_are_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("state");
        let begun = AtomicFile::begin(&target).unwrap();
        let other = AtomicFile::begin(&dir.path().join("other")).unwrap();
        let path = |whole: &AtomicFile| whole.temporary.as_ref().unwrap().path().to_owned();
        let mine = path(&begun);
        let foreign = [".frosh-abcdef.tmp", ".frosh-state.tmp", "state.tmp", "state"];
        foreign.iter().for_each(|name| std::fs::write(dir.path().join(name), "mine").unwrap());
        let close = mine.with_file_name(format!("{}x", mine.file_name().unwrap().display()));
        std::fs::write(&close, "mine").unwrap();
        AtomicFile::remove_leftovers(&target);
        assert!(mine.exists(), "it is being written");
        // As a killed program leaves it: there, and not locked any more.
        let content = std::fs::read(&mine).unwrap();
        drop(begun);
        std::fs::write(&mine, content).unwrap();
        AtomicFile::remove_leftovers(&target);
        assert!(!mine.exists());
        assert!(close.exists() && path(&other).exists());
        foreign.iter().for_each(|name| assert!(dir.path().join(name).exists(), "{name}"));
    }

    #[test]
    fn devices_and_folders_are_refused_and_nothing_is_left() {
        let dir = tempfile::tempdir().unwrap();
        assert!(AtomicFile::begin(Path::new("/dev/null")).is_err());
        assert!(AtomicFile::begin(dir.path()).is_err());
        assert!(AtomicFile::begin(&dir.path().join("missing/file")).is_err());
        let file = dir.path().join("file");
        drop(AtomicFile::begin(&file).unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
