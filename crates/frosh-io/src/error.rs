//! What can go wrong with a file of vectors: always with the file, and the row where there is one.

use std::path::{Path, PathBuf};

/// The result of reading or writing vectors.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, and where.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file is not what it should be.
    #[error("{}: {why}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was expected, what was found, what to do.
        why: String,
    },
    /// One row is not what it should be. Rows count from 0.
    #[error("{}, row {row}: {why}", .path.display())]
    Row {
        /// The file.
        path: PathBuf,
        /// The row in that file, from 0.
        row: u64,
        /// What was expected, what was found, what to do.
        why: String,
    },
    /// Files of one stream that do not fit together.
    #[error(
        "{} has rows of {expected} dimensions, but {} has {got}; all files of a stream must agree",
        .first.display(), .other.display()
    )]
    Dimension {
        /// A file.
        first: PathBuf,
        /// Its dimension.
        expected: usize,
        /// The file that differs.
        other: PathBuf,
        /// Its dimension.
        got: usize,
    },
    /// The call cannot be carried out as it is.
    #[error("{0}")]
    Usage(String),
    /// The library refused.
    #[error(transparent)]
    Engine(#[from] frosh::Error),
}

impl Error {
    /// The same message, for a job that cannot leave rows out because their numbers matter.
    pub fn without_skipping(mut self) -> Self {
        if let Error::Row { why, .. } = &mut self
            && let Some(cut) = why.find("pass --skip-bad")
        {
            why.truncate(cut);
            let kept = why.trim_end_matches([' ', ',', ';']).trim_end_matches(" or").len();
            why.truncate(kept.min(why.len()));
            let rest = why.trim_end_matches([' ', ',', ';']).len();
            why.truncate(rest);
        }
        self
    }
}

/// Text from a file for people to read: characters that would steer a terminal, or hide what is there, become escapes.
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        // Besides control characters: those without width, and those that turn the direction of writing.
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
    /// The system refused.
    Io(std::io::Error),
    /// The file is not what it should be: what was expected, what was found, what to do.
    File(String),
    /// A row is not what it should be.
    Row { row: u64, why: String },
}

impl Fault {
    pub(crate) fn at(self, path: &Path) -> Error {
        let path = path.to_owned();
        match self {
            // A file that ends too early is a file's fault, not the system's.
            Fault::Io(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
                Error::File { path, why: "ends too early: it is cut short or damaged".into() }
            }
            Fault::Io(source) => Error::Io { path, source },
            Fault::File(why) => Error::File { path, why: visible(&why) },
            Fault::Row { row, why } => Error::Row { path, row, why: visible(&why) },
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
        Fault::File(why)
    }
}

impl From<&str> for Fault {
    fn from(why: &str) -> Self {
        Fault::File(why.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_steer_a_terminal_is_escaped() {
        assert_eq!(visible("größe 10 \"a\""), "größe 10 \"a\"");
        assert_eq!(visible("a\x1b[2J\n\t\u{9b}\u{7f}"), "a\\u{1b}[2J\\n\\t\\u{9b}\\u{7f}");
        assert_eq!(visible("\u{202e}gpj"), "\\u{202e}gpj");
        let error = Fault::File("has the column \x1b]0;x\x07".into()).at(Path::new("f"));
        assert_eq!(error.to_string(), "f: has the column \\u{1b}]0;x\\u{7}");
    }
}
