//! Everything that can go wrong, with the facts a person needs to mend it.

use std::path::PathBuf;

/// The result of a frosh call.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong.
///
/// Row numbers count from 0 at the start of the call's batch. After a refused row
/// ([`Error::NotFinite`], [`Error::TooLarge`]) a stream stands as if it had ended just before that
/// row; after any other refusal nothing has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value is NaN or infinite.
    #[error("row {row}, column {column}: {value} is not a finite number; remove or mend the row")]
    NotFinite {
        /// Row within the batch.
        row: usize,
        /// Column of the value.
        column: usize,
        /// The value as it was found.
        value: f64,
    },
    /// A value is finite, but its square would leave the range of single precision.
    #[error(
        "row {row}, column {column}: magnitude {value:e} is above {limit:e}; scale the data down"
    )]
    TooLarge {
        /// Row within the batch.
        row: usize,
        /// Column of the value.
        column: usize,
        /// The value as it was found.
        value: f64,
        /// The largest magnitude taken.
        limit: f64,
    },
    /// Rows of another dimension than expected.
    #[error("expected rows of {expected} dimensions, got {got}")]
    Dimension {
        /// Dimension that was set up.
        expected: usize,
        /// Dimension of what came.
        got: usize,
    },
    /// A slice that does not hold whole rows.
    #[error("{length} values are not a whole number of rows of {dim} dimensions")]
    Ragged {
        /// Values in the slice.
        length: usize,
        /// Dimension asked for.
        dim: usize,
    },
    /// A setting outside its range.
    #[error("{name} = {got} is not possible: {why}")]
    Setting {
        /// Name of the setting.
        name: &'static str,
        /// Its value.
        got: u64,
        /// What it must be.
        why: String,
    },
    /// A name that is none of the known ones.
    #[error("{got:?} is no {what}; use one of {}", .known.join(", "))]
    Name {
        /// What was to be named.
        what: &'static str,
        /// The name that was given.
        got: String,
        /// The names there are.
        known: &'static [&'static str],
    },
    /// More bits than the sketch can give directions for.
    #[error("{bits} bits need {bits} directions, but {limit_name} allows {limit}; {advice}")]
    Bits {
        /// Bits asked for.
        bits: usize,
        /// The largest possible number.
        limit: usize,
        /// Where the limit comes from.
        limit_name: &'static str,
        /// The next step.
        advice: &'static str,
    },
    /// No rows were seen, so nothing was learned.
    #[error("no rows were seen: push some before asking for a hasher")]
    Empty,
    /// Two sketches that cannot be merged.
    #[error("cannot merge: {what} is {left} in one sketch and {right} in another")]
    Merge {
        /// The property that differs.
        what: &'static str,
        /// Its value in the first.
        left: String,
        /// Its value in the other.
        right: String,
    },
    /// A rotation that needs something the sketch does not have.
    #[error("the {rotation} rotation needs {needs}; {advice}")]
    Rotation {
        /// Name of the rotation.
        rotation: &'static str,
        /// What is missing.
        needs: String,
        /// The next step.
        advice: &'static str,
    },
    /// A ranking that needs something the queries do not have.
    #[error("the {ranking} ranking needs {needs}; {advice}")]
    Ranking {
        /// Name of the ranking.
        ranking: &'static str,
        /// What is missing.
        needs: &'static str,
        /// The next step.
        advice: &'static str,
    },
    /// Codes made by different hashers were compared.
    #[error(
        "codes of different hashers cannot be compared: {left} and {right}; encode both with one model"
    )]
    OtherHasher {
        /// Id of the first.
        left: String,
        /// Id of the other.
        right: String,
    },
    /// Factors that are needed are not there.
    #[error("{what} has no factors, which the estimated distance needs; {advice}")]
    Factors {
        /// What lacks them.
        what: &'static str,
        /// The next step.
        advice: &'static str,
    },
    /// An id that an index has already, or that was given twice.
    #[error("id {id} is there already, and ids are unique; remove it first, or replace it")]
    DuplicateId {
        /// The id.
        id: u64,
    },
    /// A file (or its bytes) that is not what it should be.
    #[error("{}{why}", .path.as_ref().map(|p| format!("{}: ", p.display())).unwrap_or_default())]
    File {
        /// The file, when it is known.
        path: Option<PathBuf>,
        /// What is wrong with it, and the next step.
        why: String,
    },
    /// Reading or writing failed.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The thread pool could not be made.
    #[error("cannot start {threads} threads: {why}")]
    Threads {
        /// Threads asked for.
        threads: usize,
        /// The system's reason.
        why: String,
    },
}

impl Error {
    pub(crate) fn file(why: impl Into<String>) -> Self {
        Error::File { path: None, why: why.into() }
    }

    pub(crate) fn setting(name: &'static str, got: usize, why: impl Into<String>) -> Self {
        Error::Setting { name, got: got as u64, why: why.into() }
    }

    /// Moves the row number of a refused row by `rows`, for callers that cut a batch in pieces.
    pub(crate) fn shift_row(mut self, rows: usize) -> Self {
        if let Error::NotFinite { row, .. } | Error::TooLarge { row, .. } = &mut self {
            *row += rows;
        }
        self
    }
}
