//! The file formats. All use the [`container`](crate::storage::container). Each type reads and writes its content in
//! `serialization.rs` of its module; `docs/file-format.md` describes all of it.
//!
//! | format | content |
//! |---|---|
//! | `frosh-sketcher` | the state of a learner, which resumes bit for bit |
//! | `frosh-sketch` | a sketch |
//! | `frosh-hasher` | a model: `mean` (F64, dim) and `projection` (F32, dim x bits) |
//! | `frosh-quantizer` | a model: `mean`, `directions`, `scales`, `cells`, `words`, and the tables of the scalar |
//! | `frosh-codes` | `codes` (U8, rows x bytes), the id of their hasher, optionally `factors` (U8, rows x 1; rows x 2 by models of earlier releases) |

use crate::error::Result;
use crate::hasher::Hasher;
use crate::quantizer::Quantizer;
use crate::search::Codes;
use crate::sketch::config::MAX_DIM;
use crate::sketch::{MAX_ROWS, Sketch, Sketcher};
use crate::storage::container::{Reader, Saved, contradiction, format_of};

/// The content of a file of any of the formats.
///
/// ```
/// use frosh::{AnyFile, Config, Rows, Sketcher};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("state.frosh");
/// let mut sketcher = Sketcher::new(Config::new(2))?;
/// sketcher.push(Rows::new(&[1.0f32, 2.0, 3.0, 5.0], 2)?)?;
/// sketcher.save(&path)?;
/// match AnyFile::load(&path)? {
///     Some(AnyFile::Sketcher(sketcher)) => assert_eq!(sketcher.rows(), 2),
///     Some(AnyFile::Hasher(hasher)) => println!("a model of {} bits", hasher.bits()),
///     Some(_) => println!("a sketch or codes"),
///     None => println!("not a file of frosh"),
/// }
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AnyFile {
    /// The state of a learner.
    Sketcher(Box<Sketcher>),
    /// A sketch.
    Sketch(Box<Sketch>),
    /// A model of sign bits.
    Hasher(Box<Hasher>),
    /// A model of a quantiser.
    Quantizer(Box<Quantizer>),
    /// Packed codes.
    Codes(Codes),
}

impl AnyFile {
    /// Reads a file of any format; `None` if it is not a file of frosh. Reads the entire file into memory.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io) if reading fails, [`Error::File`](crate::Error::File) if it is a file of frosh but
    /// damaged or of a newer version.
    pub fn load(path: impl AsRef<std::path::Path>) -> Result<Option<Self>> {
        let path = path.as_ref();
        Ok(match format_of(path)?.as_deref() {
            Some(Sketcher::FORMAT) => Some(Self::Sketcher(Box::new(Sketcher::load(path)?))),
            Some(Sketch::FORMAT) => Some(Self::Sketch(Box::new(Sketch::load(path)?))),
            Some(Hasher::FORMAT) => Some(Self::Hasher(Box::new(Hasher::load(path)?))),
            Some(Quantizer::FORMAT) => Some(Self::Quantizer(Box::new(Quantizer::load(path)?))),
            Some(Codes::FORMAT) => Some(Self::Codes(Codes::load(path)?)),
            _ => None,
        })
    }
}

/// The dimension, between 1 and [`MAX_DIM`].
pub(crate) fn read_dim(file: &Reader<'_>) -> Result<usize> {
    let dim: usize = file.fact("dim")?;
    if dim == 0 || dim > MAX_DIM {
        return Err(contradiction(&format!("rows of {dim} dimensions")));
    }
    // Every file with a dimension has a tensor `mean` of that length. So no memory is allocated for a dimension that
    // the file only claims.
    file.f64s("mean", &[Some(dim)])?;
    Ok(dim)
}

/// The row count. More than [`MAX_ROWS`] is rejected, so that sums cannot overflow.
pub(crate) fn read_rows(file: &Reader<'_>) -> Result<u64> {
    let rows: u64 = file.fact("rows")?;
    if rows > MAX_ROWS { Err(contradiction(&format!("{rows} rows"))) } else { Ok(rows) }
}
