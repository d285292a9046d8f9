//! A model of either kind: sign bits or a quantiser.

use crate::error::Result;
use crate::hasher::{Forecast, Hasher};
use crate::quantizer::Quantizer;
use crate::rows::{Element, Metric, Rows};
use crate::search::codes::{Codes, HasherId};
use crate::search::ranking::{Queries, Ranking};
use crate::storage::container::{Saved, format_in, format_of};
use std::path::Path;

/// A model that encodes rows: a [`Hasher`] or a [`Quantizer`].
///
/// Files, indexes and the program work with both through this type.
///
/// ```
/// use frosh::{Config, Model, Rows, Sketcher};
/// # let data: Vec<f32> = (0..6400).map(|i| ((i * 31) % 101) as f32).collect();
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("model.frosh");
/// let mut sketcher = Sketcher::new(Config::new(32))?;
/// sketcher.push(Rows::new(&data, 32)?)?;
/// sketcher.finish().hasher(16)?.save(&path)?;
///
/// let model = Model::load(&path)?; // of whichever kind
/// assert_eq!(model.bytes_per_row(), 2);
/// let codes = model.encode(Rows::new(&data, 32)?)?;
/// let hits = codes.nearest(&model.queries(Rows::new(&data[..32], 32)?)?, 5)?;
/// assert_eq!(hits[0].len(), 5);
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Model {
    /// Sign bits: one bit for each direction.
    Hasher(Hasher),
    /// An additive quantiser: a cell, and a word of each codebook.
    Quantizer(Quantizer),
}

/// Calls the same method of either kind.
macro_rules! either {
    ($self:expr, $model:ident => $call:expr) => {
        match $self {
            Model::Hasher($model) => $call,
            Model::Quantizer($model) => $call,
        }
    };
}

impl Model {
    /// Reads a model file of either kind.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io) if reading fails, [`Error::File`](crate::Error::File) if the file is damaged, is
    /// no model, or is of a newer version.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        match format_of(path)?.as_deref() {
            Some(Quantizer::FORMAT) => Quantizer::load(path).map(Model::Quantizer),
            _ => Hasher::load(path).map(Model::Hasher),
        }
    }

    /// Reads the bytes of a model file of either kind.
    ///
    /// # Errors
    ///
    /// [`Error::File`](crate::Error::File) if they are damaged, are no model, or are of a newer version.
    ///
    /// ```
    /// # use frosh::{Config, Model, Rows, Sketcher};
    /// # let data: Vec<f32> = (0..6400).map(|i| ((i * 31) % 101) as f32).collect();
    /// # let mut sketcher = Sketcher::new(Config::new(32))?;
    /// # sketcher.push(Rows::new(&data, 32)?)?;
    /// # let sent = sketcher.finish().hasher(16)?.to_bytes();
    /// let model = Model::from_bytes(&sent)?;
    /// assert_eq!(model.to_bytes(), sent);
    /// # Ok::<(), frosh::Error>(())
    /// ```
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        // Reading from a slice does not fail.
        match format_in(bytes).ok().flatten().as_deref() {
            Some(Quantizer::FORMAT) => Quantizer::from_bytes(bytes).map(Model::Quantizer),
            _ => Hasher::from_bytes(bytes).map(Model::Hasher),
        }
    }

    /// Writes a model file. An existing file is replaced atomically.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io) if writing fails, [`Error::File`](crate::Error::File) if the path is a folder or
    /// a device.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        either!(self, model => model.save(path))
    }

    /// The bytes of a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        either!(self, model => model.to_bytes())
    }

    /// The id of the model, a hash of its content.
    pub fn id(&self) -> HasherId {
        either!(self, model => model.id())
    }

    /// Values per row.
    pub fn dim(&self) -> usize {
        either!(self, model => model.dim())
    }

    /// How rows are compared.
    pub fn metric(&self) -> Metric {
        either!(self, model => model.metric())
    }

    /// Number of rows it was learned from.
    pub fn rows(&self) -> u64 {
        either!(self, model => model.rows())
    }

    /// Seed of all randomness.
    pub fn seed(&self) -> u64 {
        either!(self, model => model.seed())
    }

    /// Bits of a code, without factors.
    pub fn bits(&self) -> usize {
        match self {
            Model::Hasher(hasher) => hasher.bits(),
            Model::Quantizer(quantizer) => 8 * quantizer.bytes(),
        }
    }

    /// Bytes of a code, without factors.
    pub fn bytes_per_row(&self) -> usize {
        self.bits().div_ceil(8)
    }

    /// Whether it can make codes with factors. The codes of a quantiser have none: they hold all that a distance needs.
    pub fn has_factors(&self) -> bool {
        matches!(self, Model::Hasher(hasher) if hasher.has_factors())
    }

    /// Bytes of the factors of a row.
    pub fn factor_bytes(&self) -> usize {
        match self {
            Model::Hasher(hasher) => hasher.factor_bytes(),
            Model::Quantizer(_) => 0,
        }
    }

    /// The ranking to search by.
    pub fn ranking(&self) -> Ranking {
        match self {
            Model::Hasher(hasher) => hasher.ranking(),
            Model::Quantizer(_) => Ranking::Estimated,
        }
    }

    /// Candidates to re-rank for each wanted neighbour.
    pub fn oversample(&self) -> usize {
        either!(self, model => model.oversample())
    }

    /// What recall to expect; `None` if the fit measured nothing.
    pub fn forecast(&self) -> Option<&Forecast> {
        match self {
            Model::Hasher(hasher) => hasher.choice().map(|choice| &choice.forecast),
            Model::Quantizer(quantizer) => quantizer.forecast(),
        }
    }

    /// Sets how hard a quantiser searches for the best code ([`Quantizer::effort`]). Sign bits need no search.
    pub fn effort(self, beam: usize) -> Self {
        match self {
            Model::Quantizer(quantizer) => Model::Quantizer(quantizer.effort(beam)),
            hasher => hasher,
        }
    }

    /// Encodes rows, without factors.
    ///
    /// # Errors
    ///
    /// [`Error::Dimension`](crate::Error::Dimension) if the rows have another dimension.
    /// [`Error::NotFinite`](crate::Error::NotFinite) or [`Error::TooLarge`](crate::Error::TooLarge) for the first row
    /// with a bad value.
    pub fn encode<T: Element>(&self, rows: Rows<'_, T>) -> Result<Codes> {
        either!(self, model => model.encode(rows))
    }

    /// Encodes rows with factors, if the model is a [`Hasher`]; the codes of a [`Quantizer`] need none.
    ///
    /// # Errors
    ///
    /// Those of [`Model::encode`], and [`Error::Factors`](crate::Error::Factors) if the model is a hasher without factors.
    pub fn encode_with_factors<T: Element>(&self, rows: Rows<'_, T>) -> Result<Codes> {
        match self {
            Model::Hasher(hasher) => hasher.encode_with_factors(rows),
            Model::Quantizer(quantizer) => quantizer.encode(rows),
        }
    }

    /// Wraps codes that this model made, and that were stored elsewhere without their model: packed bytes, row after row,
    /// without factors.
    ///
    /// # Errors
    ///
    /// Fails if `data` is not a whole number of rows, or if a bit past the last one is set.
    ///
    /// ```
    /// # use frosh::{Config, Model, Rows, Sketcher};
    /// # let data: Vec<f32> = (0..6400).map(|i| ((i * 31) % 101) as f32).collect();
    /// # let mut sketcher = Sketcher::new(Config::new(32))?;
    /// # sketcher.push(Rows::new(&data, 32)?)?;
    /// # let model = Model::from(sketcher.finish().hasher(16)?);
    /// let codes = model.encode(Rows::new(&data, 32)?)?;
    /// assert_eq!(model.codes_from_packed(codes.as_bytes().to_vec())?, codes);
    /// # Ok::<(), frosh::Error>(())
    /// ```
    pub fn codes_from_packed(&self, data: Vec<u8>) -> Result<Codes> {
        let codes = Codes::from_packed(self.id(), self.bits(), data)?;
        Ok(Codes { quantized: matches!(self, Model::Quantizer(_)), ..codes })
    }

    /// Prepares queries for every ranking that the model has.
    ///
    /// # Errors
    ///
    /// As [`Model::encode`].
    pub fn queries<T: Element>(&self, rows: Rows<'_, T>) -> Result<Queries> {
        either!(self, model => model.queries(rows))
    }

    /// The mean that is subtracted.
    pub fn mean(&self) -> &[f64] {
        either!(self, model => model.mean())
    }

    /// The directions that rows are projected on, one after the other. Those of a quantiser are times their scales.
    pub(crate) fn directions(&self) -> Vec<f32> {
        match self {
            Model::Hasher(hasher) => hasher.directions.clone(),
            Model::Quantizer(quantizer) => {
                // The file has them, and nothing else of the library needs them.
                let bytes = quantizer.to_bytes();
                let tensors = safetensors::SafeTensors::deserialize(&bytes);
                let values = tensors.and_then(|all| Ok(all.tensor("directions")?.data().to_vec()));
                let values = values.unwrap_or_default();
                let value = |bytes: &[u8; 4]| f32::from_le_bytes(*bytes);
                values.as_chunks().0.iter().map(value).collect()
            }
        }
    }

    /// The hasher, if the model is one.
    pub fn hasher(&self) -> Option<&Hasher> {
        match self {
            Model::Hasher(hasher) => Some(hasher),
            Model::Quantizer(_) => None,
        }
    }

    /// Codes of this model, without rows.
    pub(crate) fn no_codes(&self) -> Codes {
        match self {
            Model::Hasher(hasher) => Codes::new(hasher.bits(), hasher.id(), Vec::new()),
            Model::Quantizer(quantizer) => {
                Codes::of_quantizer(quantizer.bytes(), quantizer.id(), Vec::new())
            }
        }
    }
}

impl From<Hasher> for Model {
    fn from(hasher: Hasher) -> Self {
        Model::Hasher(hasher)
    }
}

impl From<&Hasher> for Model {
    fn from(hasher: &Hasher) -> Self {
        Model::Hasher(hasher.clone())
    }
}

impl From<Quantizer> for Model {
    fn from(quantizer: Quantizer) -> Self {
        Model::Quantizer(quantizer)
    }
}

impl From<&Quantizer> for Model {
    fn from(quantizer: &Quantizer) -> Self {
        Model::Quantizer(quantizer.clone())
    }
}

impl From<&Model> for Model {
    fn from(model: &Model) -> Self {
        model.clone()
    }
}
