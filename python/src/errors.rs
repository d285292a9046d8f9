//! Errors of the library as exceptions of Python's own kinds, with the library's message.

use pyo3::PyErr;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use std::io;
use std::path::Path;

/// The exception for an error of the library.
pub(crate) fn of_library(error: frosh::Error) -> PyErr {
    match error {
        frosh::Error::Io { path, source } => of_system(&path, &source),
        error @ frosh::Error::Threads { .. } => PyRuntimeError::new_err(error.to_string()),
        error => PyValueError::new_err(error.to_string()),
    }
}

/// The exception for an error of the crate that reads files.
pub(crate) fn of_files(error: frosh_io::Error) -> PyErr {
    match error {
        frosh_io::Error::Io { path, source } => of_system(&path, &source),
        frosh_io::Error::Engine(error) => of_library(error),
        error => {
            let advice = error.hint().and_then(keyword).map(|name| format!(" (see `{name}=`)"));
            PyValueError::new_err(format!("{error}{}", advice.unwrap_or_default()))
        }
    }
}

/// The argument of `frosh.read` that a hint is about.
fn keyword(hint: frosh_io::Hint) -> Option<&'static str> {
    use frosh_io::Hint;
    Some(match hint {
        Hint::SetDimension | Hint::SetDimensionOrFormat | Hint::CheckDimension => "dim",
        Hint::ChooseFormat => "format",
        Hint::ChooseColumn | Hint::OmitColumn => "column",
        Hint::ChooseColumns | Hint::OmitColumns => "columns",
        Hint::ChooseDataset | Hint::OmitDataset => "dataset",
        Hint::SkipBadRows => "skip_bad",
        _ => return None,
    })
}

/// The subclass of `OSError` that Python chooses by the error number, such as `FileNotFoundError`.
fn of_system(path: &Path, source: &io::Error) -> PyErr {
    let number = source.raw_os_error().or(match source.kind() {
        io::ErrorKind::NotFound => Some(2),
        io::ErrorKind::PermissionDenied => Some(13),
        io::ErrorKind::AlreadyExists => Some(17),
        _ => None,
    });
    match number {
        Some(number) => {
            // The text without " (os error 2)", which Python adds as "[Errno 2]".
            let text = source.to_string();
            let text = text.split(" (os error").next().unwrap_or_default().to_owned();
            PyOSError::new_err((number, text, path.as_os_str().to_owned()))
        }
        None => PyOSError::new_err(format!("{}: {source}", path.display())),
    }
}
