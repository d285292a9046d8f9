//! What can go wrong in the lab.

use std::path::{Path, PathBuf};

/// A result of the lab.
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong in the lab.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The library refused something.
    #[error(transparent)]
    Frosh(#[from] frosh::Error),
    /// Data could not be read.
    #[error(transparent)]
    Read(#[from] frosh_io::Error),
    /// The system refused something.
    #[error("{}: {source}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// A file is there but not as it should be.
    #[error("{}: {why}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// What was asked for cannot be done.
    #[error("{0}")]
    Usage(String),
    /// A factorisation failed, which only numbers that are not finite can bring about.
    #[error("{0} did not converge: are there numbers in the data that are not finite?")]
    Numbers(&'static str),
}

impl Error {
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}
