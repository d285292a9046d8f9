//! Atomic file replacement: temporary sibling, fsync, rename.
//!
//! A replaced file keeps its permissions. If the target is a symbolic link, the file that it points to is replaced or
//! created. A target that is not a regular file (a device, a pipe) is rejected, because a rename would replace it by a
//! file.

use crate::error::{Error, Result};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Paths of uncommitted temporary files, so that an interrupted program can remove them.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A temporary file that replaces its target on [`AtomicFile::commit`]. If it is dropped before, it is removed.
#[derive(Debug)]
pub struct AtomicFile {
    temporary: Option<tempfile::NamedTempFile>,
    /// The path that the caller gave, for error messages.
    target: PathBuf,
    /// The path with all links followed.
    place: PathBuf,
}

impl AtomicFile {
    /// Creates a temporary file in the folder of `target`.
    ///
    /// # Errors
    ///
    /// [`Error::File`] if `target` is a folder or not a regular file, [`Error::Io`] if the file cannot be created.
    pub fn begin(target: &Path) -> Result<Self> {
        let refuse = |why: &str| Error::File { path: Some(target.to_owned()), why: why.into() };
        let place =
            place(target).map_err(|source| Error::Io { path: target.to_owned(), source })?;
        let before = place.metadata().ok();
        match &before {
            Some(there) if there.is_dir() => {
                return Err(refuse("is a folder, not a file: give the name of a file"));
            }
            Some(there) if !there.is_file() => {
                return Err(refuse("is not a regular file, so it cannot be replaced"));
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
            // The usual mode of new files, which the umask restricts.
            use std::os::unix::fs::PermissionsExt as _;
            builder.permissions(std::fs::Permissions::from_mode(0o666));
        }
        let io = |source| Error::Io { path: target.to_owned(), source: plain(source) };
        let temporary = builder.tempfile_in(folder).map_err(io)?;
        if let Some(before) = before {
            // Keep the permissions of the replaced file, so that no one else can read the new one. If this fails,
            // the umask applies.
            let _ = temporary.as_file().set_permissions(before.permissions());
        }
        unfinished(|all| all.push(temporary.path().to_owned()));
        // The lock is held until the file is closed, so that `remove_leftovers` skips it. On systems without locks,
        // leftovers are not removed.
        #[cfg(unix)]
        let _ = temporary.as_file().try_lock();
        Ok(Self { temporary: Some(temporary), target: target.to_owned(), place })
    }

    /// The open file.
    ///
    /// # Panics
    /// Never: the file exists until `commit`, which consumes `self`.
    pub fn file(&self) -> &File {
        self.temporary.as_ref().expect("not committed yet").as_file()
    }

    /// Syncs the file to disk and renames it to the target.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if syncing or renaming fails. Then the temporary file is removed, and the target is unchanged.
    pub fn commit(mut self) -> Result<()> {
        let io = |source| Error::Io { path: self.target.clone(), source };
        if let Some(temporary) = self.temporary.take() {
            let path = temporary.path().to_owned();
            let done = temporary.as_file().sync_all();
            let done = done.and_then(|()| temporary.persist(&self.place).map_err(|e| e.error));
            unfinished(|all| all.retain(|other| *other != path));
            done.map_err(io)?;
            // The rename is durable once the folder is synced. Some systems cannot sync folders, and do it later.
            #[cfg(unix)]
            if let Some(folder) = self.place.parent() {
                let here = Path::new(".");
                let folder = if folder.as_os_str().is_empty() { here } else { folder };
                let _ = File::open(folder).and_then(|folder| folder.sync_all());
            }
        }
        Ok(())
    }

    /// Removes temporary files for `target` that killed programs left behind. Files that are still being written are
    /// locked, and are kept.
    pub fn remove_leftovers(target: &Path) {
        // On other systems files are not locked, so leftovers cannot be recognised.
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
                // A program that is still writing holds a lock.
                let file = File::open(entry.path());
                if file.is_ok_and(|file| file.try_lock().is_ok()) {
                    let _ = std::fs::remove_file(entry.path());
                }
            }
        }
    }

    /// Removes all uncommitted temporary files of this process. For signal handlers.
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

/// Largest number of links that are followed, as in Linux.
const MAX_LINKS: usize = 40;

/// The path of a file, or of the file to create, with all links followed.
fn place(target: &Path) -> io::Result<PathBuf> {
    let mut place = target.to_owned();
    for _ in 0..MAX_LINKS {
        match place.canonicalize() {
            Ok(place) => return Ok(place),
            Err(error) => match place.read_link() {
                // The target of the link does not exist yet. A relative target starts from the folder of the link.
                Ok(next) if error.kind() == io::ErrorKind::NotFound => {
                    place = place.parent().unwrap_or(Path::new("")).join(next);
                }
                Ok(_) => return Err(error),
                // Not a link. If the file cannot be created, that step reports the reason.
                Err(_) => return Ok(place),
            },
        }
    }
    Err(io::Error::other("too many levels of symbolic links"))
}

/// Suffix of the names of temporary files.
const SUFFIX: &str = ".tmp";

/// Prefix of the names of temporary files for a target. It has a hash of the target's name, which may be too long
/// to include.
fn prefix(place: &Path) -> String {
    let name = place.file_name().unwrap_or_default().as_encoded_bytes();
    format!(".frosh-{:016x}-", xxhash_rust::xxh3::xxh3_64(name))
}

fn unfinished(change: impl FnOnce(&mut Vec<PathBuf>)) {
    // The list stays valid if a thread panics while it holds the lock.
    change(&mut UNFINISHED.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
}

/// The error of the system without the name of the temporary file, which the user did not choose.
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
        let file = AtomicFile::begin(target)?;
        file.file().write_all(text.as_bytes()).unwrap();
        file.commit()
    }

    #[test]
    fn a_replaced_file_keeps_its_permissions_and_links_stay_links() {
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
    fn the_missing_target_of_a_link_is_created() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("store")).unwrap();
        // Two links, the second relative to its own folder.
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
        // If the folder of the target is missing, or links form a cycle, nothing is created or replaced.
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
        let path = |file: &AtomicFile| file.temporary.as_ref().unwrap().path().to_owned();
        let mine = path(&begun);
        let foreign = [".frosh-abcdef.tmp", ".frosh-state.tmp", "state.tmp", "state"];
        foreign.iter().for_each(|name| std::fs::write(dir.path().join(name), "mine").unwrap());
        let close = mine.with_file_name(format!("{}x", mine.file_name().unwrap().display()));
        std::fs::write(&close, "mine").unwrap();
        AtomicFile::remove_leftovers(&target);
        assert!(mine.exists(), "it is being written");
        // As a killed program leaves it: it exists and is not locked.
        let content = std::fs::read(&mine).unwrap();
        drop(begun);
        std::fs::write(&mine, content).unwrap();
        AtomicFile::remove_leftovers(&target);
        assert!(!mine.exists());
        assert!(close.exists() && path(&other).exists());
        foreign.iter().for_each(|name| assert!(dir.path().join(name).exists(), "{name}"));
    }

    #[test]
    fn devices_and_folders_are_rejected_and_no_file_remains() {
        let dir = tempfile::tempdir().unwrap();
        assert!(AtomicFile::begin(Path::new("/dev/null")).is_err());
        assert!(AtomicFile::begin(dir.path()).is_err());
        assert!(AtomicFile::begin(&dir.path().join("missing/file")).is_err());
        let file = dir.path().join("file");
        drop(AtomicFile::begin(&file).unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
