//! The file operations of a writer. Each operation is one function here, so that tests can make it fail, or stop the writer
//! after it as if the process was killed.

use crate::error::{Error, Result};
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

fn failed(path: &Path) -> impl FnOnce(io::Error) -> Error + '_ {
    move |source| Error::Io { path: path.to_owned(), source }
}

/// Creates a new file. Fails if the file exists, so an existing file is never changed.
pub(super) fn create(path: &Path) -> Result<File> {
    let make = || File::options().read(true).write(true).create_new(true).open(path);
    step(path).and_then(|()| make()).map_err(failed(path))
}

/// Creates a new file with these bytes and syncs it.
pub(super) fn write_new(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = create(path)?;
    write(&mut file, path, bytes)?;
    sync_file(&file, path)
}

/// Writes at the current position of the file.
pub(super) fn write(file: &mut File, path: &Path, bytes: &[u8]) -> Result<()> {
    step(path).and_then(|()| file.write_all(bytes)).map_err(failed(path))
}

pub(super) fn sync_file(file: &File, path: &Path) -> Result<()> {
    step(path).and_then(|()| file.sync_all()).map_err(failed(path))
}

/// Renames a file and replaces the file that has the new name: an atomic replace.
pub(super) fn rename(from: &Path, to: &Path) -> Result<()> {
    step(to).and_then(|()| std::fs::rename(from, to)).map_err(failed(to))
}

/// Removes a file if it exists.
pub(super) fn remove(path: &Path) -> Result<()> {
    match step(path).and_then(|()| std::fs::remove_file(path)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done.map_err(failed(path)),
    }
}

/// Syncs a folder, so that its file names survive a power failure. Does nothing on systems without folder sync.
pub(super) fn sync(folder: &Path) -> Result<()> {
    step(folder).map_err(failed(folder))?;
    #[cfg(unix)]
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed(folder))?;
    Ok(())
}

/// Creates a folder and its missing parents, and syncs the folders that contain them.
pub(super) fn make_folder(folder: &Path) -> Result<()> {
    let mut missing: Vec<&Path> = folder.ancestors().take_while(|path| !path.exists()).collect();
    // The empty path is the current folder.
    missing.retain(|path| !path.as_os_str().is_empty());
    step(folder).and_then(|()| std::fs::create_dir_all(folder)).map_err(failed(folder))?;
    for new in missing {
        let parent = new.parent().filter(|parent| !parent.as_os_str().is_empty());
        sync(parent.unwrap_or(Path::new(".")))?;
    }
    Ok(())
}

/// The file names in a folder.
pub(super) fn names(folder: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(folder).map_err(failed(folder))?;
    let name = |entry: io::Result<std::fs::DirEntry>| {
        Ok(entry.map_err(failed(folder))?.file_name().to_string_lossy().into_owned())
    };
    entries.map(name).collect()
}

/// Locks the lock file of a folder; creates it if it is missing. Fails if another process holds the lock.
pub(super) fn lock(folder: &Path, name: &str) -> Result<File> {
    let path: PathBuf = folder.join(name);
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(failed(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(Error::File {
            path: Some(folder.to_owned()),
            why: "another process is changing this index: try again when it has ended".into(),
        }),
        Err(std::fs::TryLockError::Error(source)) => Err(failed(&path)(source)),
    }
}

#[cfg(not(test))]
fn step(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
use faults::step;

/// Injects failures, for tests. Each thread has its own plan.
#[cfg(test)]
pub(in crate::index) mod faults {
    use std::cell::RefCell;
    use std::io;
    use std::path::{Path, PathBuf};

    #[derive(Default)]
    struct Plan {
        /// Number of operations before the one that fails.
        left: Option<usize>,
        /// Whether all later operations fail too, as if the process was killed.
        killed: bool,
        failed: bool,
        /// The path of each operation.
        steps: Vec<PathBuf>,
    }

    thread_local! {
        static PLAN: RefCell<Plan> = RefCell::default();
    }

    pub(in crate::index) fn step(path: &Path) -> io::Result<()> {
        PLAN.with_borrow_mut(|plan| {
            plan.steps.push(path.to_owned());
            let now = match &mut plan.left {
                Some(0) => !plan.failed || plan.killed,
                Some(left) => {
                    *left -= 1;
                    false
                }
                None => false,
            };
            plan.failed |= now;
            if now { Err(io::Error::other("an injected failure")) } else { Ok(()) }
        })
    }

    /// Runs `work`. The operation after `before` others fails and, if `killed`, all later ones. Returns the result of
    /// `work`, and whether that operation was reached.
    pub(in crate::index) fn with<R>(
        before: usize,
        killed: bool,
        work: impl FnOnce() -> R,
    ) -> (R, bool) {
        PLAN.set(Plan { left: Some(before), killed, ..Plan::default() });
        let result = work();
        (result, PLAN.take().failed)
    }

    /// The paths of the operations of `work`.
    pub(in crate::index) fn steps(work: impl FnOnce()) -> Vec<PathBuf> {
        PLAN.take();
        work();
        PLAN.take().steps
    }
}
