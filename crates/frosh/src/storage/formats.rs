//! The kinds of files. The container is [`container`](crate::storage::container); what a type writes stands beside it in `serialization.rs`.
//!
//! | format | content |
//! |---|---|
//! | `frosh-sketcher` | a learner in the middle of its stream: goes on bit for bit |
//! | `frosh-sketch` | a finished sketch |
//! | `frosh-hasher` | a model: `mean` (F64, dim) and `projection` (F32, dim x bits) |
//! | `frosh-codes` | `codes` (U8, rows x bytes), the id of their hasher, and maybe `factors` (U8, rows x 1; x 2 by earlier models) |

use crate::error::Result;
use crate::hasher::Hasher;
use crate::search::Codes;
use crate::sketch::config::MAX_DIM;
use crate::sketch::{MAX_ROWS, Sketch, Sketcher};
use crate::storage::container::{Reader, Saved, contradiction, format_of};

/// A file of any of the four kinds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AnyFile {
    /// A learner in the middle of its stream.
    Sketcher(Box<Sketcher>),
    /// What was learned.
    Sketch(Box<Sketch>),
    /// A model.
    Hasher(Box<Hasher>),
    /// Packed codes.
    Codes(Codes),
}

impl AnyFile {
    /// Reads a file of whichever kind it is; `None` if it is none of frosh's.
    pub fn load(path: impl AsRef<std::path::Path>) -> Result<Option<Self>> {
        let path = path.as_ref();
        Ok(match format_of(path)?.as_deref() {
            Some(Sketcher::FORMAT) => Some(Self::Sketcher(Box::new(Sketcher::load(path)?))),
            Some(Sketch::FORMAT) => Some(Self::Sketch(Box::new(Sketch::load(path)?))),
            Some(Hasher::FORMAT) => Some(Self::Hasher(Box::new(Hasher::load(path)?))),
            Some(Codes::FORMAT) => Some(Self::Codes(Codes::load(path)?)),
            _ => None,
        })
    }
}

pub(crate) fn read_dim(file: &Reader<'_>) -> Result<usize> {
    let dim: usize = file.fact("dim")?;
    if dim == 0 || dim > MAX_DIM {
        return Err(contradiction(&format!("rows of {dim} dimensions")));
    }
    // A tensor of this length is in every file with rows: no size is believed that is not there.
    file.f64s("mean", &[Some(dim)])?;
    Ok(dim)
}

/// Rows seen; more than [`MAX_ROWS`] are rejected so that sums cannot overflow.
pub(crate) fn read_rows(file: &Reader<'_>) -> Result<u64> {
    let rows: u64 = file.fact("rows")?;
    if rows > MAX_ROWS { Err(contradiction(&format!("{rows} rows"))) } else { Ok(rows) }
}
