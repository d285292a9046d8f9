//! Files that are there whole or not at all: written beside their target under a hidden name, synced, and
//! renamed when they are complete.

use crate::error::{Error, Result};
use std::fs::File;
use std::path::{Path, PathBuf};

/// A file in the making. Dropped before [`Whole::commit`], it leaves nothing behind.
pub struct Whole {
    temporary: tempfile::NamedTempFile,
    target: PathBuf,
}

impl Whole {
    /// Begins a file that shall be `target`.
    pub fn begin(target: &Path) -> Result<Self> {
        let io = |source| Error::Io { path: target.to_owned(), source };
        if target.is_dir() {
            let why = "is a folder, and a file is to be written: give a file's name".into();
            return Err(Error::File { path: target.to_owned(), why });
        }
        let folder = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let mut builder = tempfile::Builder::new();
        builder.prefix(".frosh-").suffix(".tmp");
        #[cfg(unix)]
        {
            // As any file that a program writes: the umask decides who may read it.
            use std::os::unix::fs::PermissionsExt;
            builder.permissions(std::fs::Permissions::from_mode(0o666));
        }
        let temporary = builder.tempfile_in(folder).map_err(io)?;
        Ok(Self { temporary, target: target.to_owned() })
    }

    /// The open file.
    pub fn file(&self) -> &File {
        self.temporary.as_file()
    }

    /// Syncs the file and gives it its name.
    pub fn commit(self) -> Result<()> {
        let io = |source| Error::Io { path: self.target.clone(), source };
        self.temporary.as_file().sync_all().map_err(io)?;
        self.temporary.persist(&self.target).map_err(|e| io(e.error))?;
        Ok(())
    }

    /// The name it will have.
    pub fn target(&self) -> &Path {
        &self.target
    }
}
