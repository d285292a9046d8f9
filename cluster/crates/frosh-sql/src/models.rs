//! Models as bytes: fitting them, and reading them once for all batches of a query.

use crate::options::ModelOptions;
use datafusion::common::{Result, exec_datafusion_err};
use frosh::{Method, Model, Sketch};
use std::sync::{Arc, Mutex, PoisonError};
use xxhash_rust::xxh3::xxh3_128;

/// What `frosh_model` and `frosh_quantizer` make.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// Sign bits; the number is that of bits.
    Hasher,
    /// A quantiser; the number is that of bytes.
    Quantizer,
}

impl Kind {
    pub(crate) fn function(self) -> &'static str {
        match self {
            Self::Hasher => "frosh_model",
            Self::Quantizer => "frosh_quantizer",
        }
    }
}

/// Fits a model of `length` bits or bytes. Errors are for a message that names the row.
pub(crate) fn fit(
    kind: Kind,
    sketch: &Sketch,
    length: i64,
    options: &ModelOptions,
) -> Result<Model, String> {
    let unit = match kind {
        Kind::Hasher => "bits",
        Kind::Quantizer => "bytes",
    };
    let length = usize::try_from(length).map_err(|_| format!("{length} {unit}"))?;
    let model = match (kind, options.rotation) {
        (Kind::Hasher, Some(rotation)) => sketch.hasher_with(length, rotation).map(Model::from),
        (Kind::Hasher, None) => sketch.hasher(length).map(Model::from),
        (Kind::Quantizer, _) => sketch.quantizer(length).map(Model::from),
    };
    let model = model.map_err(|error| error.to_string())?;
    let varies = match model.hasher() {
        Some(hasher) => hasher.rank() > 0 || hasher.method() == Method::Lsh,
        None => sketch.certificate().mass > 0.0,
    };
    if varies || options.allow_constant {
        return Ok(model);
    }
    Err(format!(
        "nothing can be learned from {} rows that are all equal: check the data, or give the option allow_constant",
        sketch.rows()
    ))
}

/// A model that was read: the hash of its bytes, its effort, and the model.
type Kept = (u128, usize, Arc<Model>);

/// Models that were read lately. A query passes the same model with every batch.
static MODELS: Mutex<Vec<Kept>> = Mutex::new(Vec::new());
const KEPT_MODELS: usize = 8;

/// The effort of a quantiser's encoding, if no option sets it.
pub(crate) const DEFAULT_EFFORT: usize = 8;

/// Reads a model, which encodes with this effort if it is a quantiser.
pub(crate) fn read(function: &str, bytes: &[u8], effort: usize) -> Result<Arc<Model>> {
    let key = xxh3_128(bytes);
    let find = |models: &[Kept]| {
        let mut all = models.iter();
        all.find(|(k, e, _)| (*k, *e) == (key, effort)).map(|(.., model)| Arc::clone(model))
    };
    if let Some(model) = find(&MODELS.lock().unwrap_or_else(PoisonError::into_inner)) {
        return Ok(model);
    }
    let model = Model::from_bytes(bytes);
    let model = model.map_err(|e| exec_datafusion_err!("{function}: the model: {e}"))?;
    let model = Arc::new(model.effort(effort));
    let mut models = MODELS.lock().unwrap_or_else(PoisonError::into_inner);
    if models.len() == KEPT_MODELS {
        models.remove(0);
    }
    models.push((key, effort, Arc::clone(&model)));
    Ok(model)
}
