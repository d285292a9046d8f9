//! Errors, with the values that a user needs to correct the input.

use std::path::PathBuf;

/// The result of a frosh call.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a call failed.
///
/// Row numbers count from 0 at the start of the batch of the call. After a rejected row
/// ([`Error::NotFinite`], [`Error::TooLarge`]) a stream has the state that it would have had if the batch had ended
/// just before that row. After any other error the state is unchanged.
///
/// ```
/// use frosh::{Config, Error, Rows, Sketcher};
/// let mut sketcher = Sketcher::new(Config::new(2))?;
/// let error = sketcher.push(Rows::new(&[1.0f32, 2.0, f32::NAN, 3.0], 2)?).unwrap_err();
/// assert!(matches!(error, Error::NotFinite { row: 1, column: 0, .. }));
/// assert_eq!(
///     error.to_string(),
///     "row 1, column 0: NaN is not a finite number; remove or correct the row"
/// );
/// assert_eq!(sketcher.rows(), 1); // the row before it counts
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value is NaN or infinite.
    #[error(
        "row {row}, column {column}: {value} is not a finite number; remove or correct the row"
    )]
    NotFinite {
        /// Row within the batch.
        row: usize,
        /// Column of the value.
        column: usize,
        /// The value.
        value: f64,
    },
    /// A value is finite, but its square could overflow single precision.
    #[error(
        "row {row}, column {column}: magnitude {value:e} is above {limit:e}; scale the data down"
    )]
    TooLarge {
        /// Row within the batch.
        row: usize,
        /// Column of the value.
        column: usize,
        /// The value.
        value: f64,
        /// The largest accepted magnitude.
        limit: f64,
    },
    /// The rows have another dimension than expected.
    #[error("expected rows of {expected} dimensions, got {got}")]
    Dimension {
        /// The expected dimension.
        expected: usize,
        /// The dimension of the rows.
        got: usize,
    },
    /// The length of a slice is not a multiple of the dimension.
    #[error("{length} values are not a whole number of rows of {dim} dimensions")]
    Ragged {
        /// Values in the slice.
        length: usize,
        /// The given dimension.
        dim: usize,
    },
    /// A setting is outside its range.
    #[error("{name} = {got} is not possible: {why}")]
    Setting {
        /// Name of the setting.
        name: &'static str,
        /// Its value.
        got: u64,
        /// The accepted values.
        why: String,
    },
    /// A name is not among the known ones.
    #[error("{got:?} is not a {what}; use one of {}", .known.join(", "))]
    Name {
        /// The kind of name, for example "rotation".
        what: &'static str,
        /// The given name.
        got: String,
        /// All valid names.
        known: &'static [&'static str],
    },
    /// A code cannot have this many bits.
    #[error("{bits} bits need {bits} directions, but {limit_name} allows {limit}; {advice}")]
    Bits {
        /// The requested number of bits.
        bits: usize,
        /// The largest possible number.
        limit: usize,
        /// What sets the limit.
        limit_name: &'static str,
        /// What to do instead.
        advice: &'static str,
    },
    /// There are no rows, so nothing was learned.
    #[error("no rows were seen: push rows before fitting a hasher")]
    Empty,
    /// Two sketches cannot be merged.
    #[error("cannot merge: {what} is {left} in one sketch and {right} in another")]
    Merge {
        /// The property that differs.
        what: &'static str,
        /// Its value in the first.
        left: String,
        /// Its value in the other.
        right: String,
    },
    /// A model and a sketch are not of the same kind of rows.
    #[error(
        "model and sketch do not fit: {what} is {model} in the model and {sketch} in the sketch"
    )]
    Mismatch {
        /// The property that differs.
        what: &'static str,
        /// Its value in the model.
        model: String,
        /// Its value in the sketch.
        sketch: String,
    },
    /// A rotation needs something that the sketch does not have.
    #[error("the {rotation} rotation needs {needs}; {advice}")]
    Rotation {
        /// Name of the rotation.
        rotation: &'static str,
        /// What is missing.
        needs: String,
        /// What to do instead.
        advice: &'static str,
    },
    /// A ranking needs something that the queries do not have.
    #[error("the {ranking} ranking needs {needs}; {advice}")]
    Ranking {
        /// Name of the ranking.
        ranking: &'static str,
        /// What is missing.
        needs: &'static str,
        /// What to do instead.
        advice: &'static str,
    },
    /// Codes of different hashers were compared.
    #[error(
        "codes of different hashers cannot be compared: {left} and {right}; encode both with one model"
    )]
    OtherHasher {
        /// Id of the first.
        left: String,
        /// Id of the other.
        right: String,
    },
    /// Codes, or the model, have no factors.
    #[error("{what} has no factors, which the estimated distance needs; {advice}")]
    Factors {
        /// "the model", or which codes.
        what: &'static str,
        /// What to do instead.
        advice: &'static str,
    },
    /// An id is already in the index, or was given twice.
    #[error("id {id} is there already, and ids are unique; remove it first, or replace it")]
    DuplicateId {
        /// The id.
        id: u64,
    },
    /// A name is already in the index, or was given twice.
    #[error("name {name:?} is there already, and names are unique; remove it first, or replace it")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// The content of a file is invalid, damaged, or of another kind.
    #[error("{}{why}", .path.as_ref().map(|p| format!("{}: ", p.display())).unwrap_or_default())]
    File {
        /// The file; `None` if bytes were read from memory.
        path: Option<PathBuf>,
        /// What is wrong with it, and what to do.
        why: String,
    },
    /// Reading or writing a file failed.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The threads of a pool could not be started.
    #[error("cannot start {threads} threads: {why}")]
    Threads {
        /// The requested number of threads.
        threads: usize,
        /// The error of the operating system.
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

    /// Adds `rows` to the row number of a rejected row, for callers that split a batch.
    pub(crate) fn shift_row(mut self, rows: usize) -> Self {
        if let Error::NotFinite { row, .. } | Error::TooLarge { row, .. } = &mut self {
            *row += rows;
        }
        self
    }
}
