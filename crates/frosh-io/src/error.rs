//! Errors: each names the file, the row where there is one, what was expected and what was found.
//!
//! An error's text says nothing of how a program is called. Where an option of this library would help,
//! [`Error::hint`] names it as a value, and a program words it with its own flags.

use std::path::{Path, PathBuf};

/// The result of reading or writing vectors.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, and in which file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system reported an error.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system reported.
        source: std::io::Error,
    },
    /// The content of a file is not as expected, or a file cannot be read or written as asked.
    #[error("{}: {why}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was expected and what was found.
        why: String,
        /// The option that would help.
        hint: Option<Hint>,
    },
    /// One row is not as expected.
    #[error("{}, row {row}: {why}", .path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// Number of the row in that file, from 0.
        row: u64,
        /// What was expected and what was found.
        why: String,
        /// The option that would help.
        hint: Option<Hint>,
    },
    /// Two files of one stream have different dimensions.
    #[error(
        "{} has rows of {expected} dimensions, but {} has {got}; all files of a stream must agree",
        .first.display(), .other.display()
    )]
    Dimension {
        /// The first file of the stream.
        first: PathBuf,
        /// Its dimension.
        expected: usize,
        /// The file that differs.
        other: PathBuf,
        /// Its dimension.
        got: usize,
    },
    /// The inputs or options of a call are wrong, whatever the files hold.
    #[error("{why}")]
    Usage {
        /// What is wrong.
        why: String,
        /// The option that would help.
        hint: Option<Hint>,
    },
    /// An error of the `frosh` library.
    #[error(transparent)]
    Engine(#[from] frosh::Error),
}

impl Error {
    /// The option that would help, if one would.
    ///
    /// ```
    /// use frosh_io::{Hint, Options, Vectors};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("a.raw");
    /// # std::fs::write(&path, [0; 64]).unwrap();
    /// // Raw values have no header, so that the dimension must be set.
    /// let Err(error) = Vectors::open(&[&path], &Options::default()) else { panic!("opened") };
    /// assert_eq!(error.hint(), Some(Hint::SetDimensionOrFormat));
    ///
    /// let options = Options { dim: Some(4), ..Options::default() };
    /// assert_eq!(Vectors::open(&[&path], &options)?.rows(), Some(4));
    /// # Ok::<(), frosh_io::Error>(())
    /// ```
    pub fn hint(&self) -> Option<Hint> {
        match self {
            Error::File { hint, .. } | Error::Row { hint, .. } | Error::Usage { hint, .. } => *hint,
            Error::Io { .. } | Error::Dimension { .. } | Error::Engine(_) => None,
        }
    }

    pub(crate) fn usage(why: impl Into<String>) -> Self {
        Error::Usage { why: why.into(), hint: None }
    }
}

/// The next step after an [`Error`]: the option that would help.
///
/// Its `Display` text names the option of this library; a program has other names for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Hint {
    /// The file does not tell its dimension: set [`Options::dim`](crate::Options::dim).
    SetDimension,
    /// The file is taken as raw values: set [`Options::dim`](crate::Options::dim), or another
    /// [`Options::format`](crate::Options::format).
    SetDimensionOrFormat,
    /// The file does not agree with [`Options::dim`](crate::Options::dim).
    CheckDimension,
    /// The format cannot be told, or was told wrongly: set [`Options::format`](crate::Options::format).
    ChooseFormat,
    /// Set [`Options::column`](crate::Options::column) to one of the columns that the error names.
    ChooseColumn,
    /// Set [`Options::columns`](crate::Options::columns) to the columns of the dimensions.
    ChooseColumns,
    /// No file is a table: leave out [`Options::columns`](crate::Options::columns).
    OmitColumns,
    /// No file has columns: leave out [`Options::column`](crate::Options::column).
    OmitColumn,
    /// Set [`Options::dataset`](crate::Options::dataset) to one of the data sets that the error names.
    ChooseDataset,
    /// No file has data sets: leave out [`Options::dataset`](crate::Options::dataset).
    OmitDataset,
    /// The row can be left out: set [`Options::skip_bad`](crate::Options::skip_bad).
    SkipBadRows,
    /// Set [`Options::id_column`](crate::Options::id_column) to one of the columns that the error names.
    ChooseIdColumn,
    /// Some ids are numbers and some are text: set [`IdRule::convert`](crate::IdRule::convert) to text.
    TextIds,
    /// Write another [`Target::format`](crate::Target::format).
    ChooseOutputFormat,
    /// Write another [`Target::kind`](crate::Target::kind), or another format.
    ChooseOutputType,
}

impl std::fmt::Display for Hint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Hint::SetDimension => "set Options::dim",
            Hint::SetDimensionOrFormat => "set Options::dim or Options::format",
            Hint::CheckDimension => "check Options::dim",
            Hint::ChooseFormat => "set Options::format",
            Hint::ChooseColumn => "set Options::column",
            Hint::ChooseColumns => "set Options::columns to the columns of the dimensions",
            Hint::OmitColumns => "leave out Options::columns",
            Hint::OmitColumn => "leave out Options::column",
            Hint::ChooseDataset => "set Options::dataset",
            Hint::OmitDataset => "leave out Options::dataset",
            Hint::SkipBadRows => "set Options::skip_bad to leave such rows out",
            Hint::ChooseIdColumn => "set Options::id_column",
            Hint::TextIds => "set IdRule::convert to text",
            Hint::ChooseOutputFormat => "set another Target::format",
            Hint::ChooseOutputType => "set another Target::kind or Target::format",
        })
    }
}

/// Escapes characters of text from a file that would control a terminal, or that cannot be seen.
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        // Besides control characters: zero-width characters and those that change the writing direction.
        let hidden = matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
        if c.is_control() || hidden {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// An error before its file is known: what the formats' readers and writers return.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The operating system reported an error.
    Io(std::io::Error),
    /// The file is not as expected.
    File(Reason),
    /// A row is not as expected; rows count from 0.
    Row(u64, Reason),
}

/// What was expected and what was found, and the option that would help.
#[derive(Debug)]
pub(crate) struct Reason {
    pub(crate) text: String,
    hint: Option<Hint>,
}

impl Reason {
    pub(crate) fn with_hint(text: impl Into<String>, hint: Hint) -> Self {
        Self { text: text.into(), hint: Some(hint) }
    }
}

impl<T: Into<String>> From<T> for Reason {
    fn from(text: T) -> Self {
        Self { text: text.into(), hint: None }
    }
}

impl Fault {
    pub(crate) fn file(reason: impl Into<Reason>) -> Self {
        Fault::File(reason.into())
    }

    pub(crate) fn row(row: u64, reason: impl Into<Reason>) -> Self {
        Fault::Row(row, reason.into())
    }

    /// Adds the option that would help.
    pub(crate) fn hint(mut self, hint: Hint) -> Self {
        if let Fault::File(reason) | Fault::Row(_, reason) = &mut self {
            reason.hint = Some(hint);
        }
        self
    }

    /// Removes the hint, where the caller has no such option.
    pub(crate) fn without_hint(mut self) -> Self {
        if let Fault::File(reason) | Fault::Row(_, reason) = &mut self {
            reason.hint = None;
        }
        self
    }

    /// Adds the file.
    pub(crate) fn at(self, path: &Path) -> Error {
        let path = path.to_owned();
        match self {
            // The system reports nothing wrong here: it is the file that is too short.
            Fault::Io(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
                let why = "ends too early: it is cut short or damaged".into();
                Error::File { path, why, hint: None }
            }
            Fault::Io(source) => Error::Io { path, source },
            Fault::File(Reason { text, hint }) => Error::File { path, why: visible(&text), hint },
            Fault::Row(row, Reason { text, hint }) => {
                Error::Row { path, row, why: visible(&text), hint }
            }
        }
    }
}

impl From<std::io::Error> for Fault {
    fn from(e: std::io::Error) -> Self {
        Fault::Io(e)
    }
}

impl From<String> for Fault {
    fn from(why: String) -> Self {
        Fault::file(why)
    }
}

impl From<&str> for Fault {
    fn from(why: &str) -> Self {
        Fault::file(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_control_a_terminal_are_escaped() {
        assert_eq!(visible("größe 10 \"a\""), "größe 10 \"a\"");
        assert_eq!(visible("a\x1b[2J\n\t\u{9b}\u{7f}"), "a\\u{1b}[2J\\n\\t\\u{9b}\\u{7f}");
        assert_eq!(visible("\u{202e}gpj"), "\\u{202e}gpj");
        let error = Fault::file("has the column \x1b]0;x\x07").at(Path::new("f"));
        assert_eq!(error.to_string(), "f: has the column \\u{1b}]0;x\\u{7}");
    }

    #[test]
    fn hints_go_from_fault_to_error() {
        let path = Path::new("f");
        let hint = |fault: Fault| fault.at(path).hint();
        assert_eq!(hint(Fault::file("is odd")), None);
        assert_eq!(hint(Fault::file("is odd").hint(Hint::ChooseFormat)), Some(Hint::ChooseFormat));
        assert_eq!(hint(Fault::row(3, "is null").hint(Hint::SkipBadRows)), Some(Hint::SkipBadRows));
        assert_eq!(hint(Fault::row(3, "is null").hint(Hint::SkipBadRows).without_hint()), None);
        let reason = Reason::with_hint("index 5, but the dimension is 4", Hint::CheckDimension);
        let error = Fault::row(3, reason).at(path);
        assert_eq!(error.to_string(), "f, row 3: index 5, but the dimension is 4");
        assert_eq!(error.hint(), Some(Hint::CheckDimension));
    }
}
