//! Codes beyond one bit a direction: an additive quantiser that is fitted to a sketch.
//!
//! | type | purpose |
//! |---|---|
//! | [`Quantizer`] | the model: mean, directions, codebooks and scalar; encodes rows to [`Codes`](crate::Codes), prepares [`Queries`](crate::Queries), saves |
//! | [`QuantizerChoice`] | what the fit measured on the sample |
//!
//! [`Sketch::quantizer`](crate::Sketch::quantizer) fits a quantiser. It needs nothing but the sketch: the mean, the
//! directions and the sampled rows. So training takes one pass over a stream, and sketches of several machines can be
//! merged before.
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | [`Quantizer`] |
//! | `fit.rs`, `slopes.rs` | fitting to a sketch: directions and scales; slopes |
//! | `codebooks.rs`, `train.rs` | cells and words; fitting them to sampled rows |
//! | `means.rs`, `growth.rs`, `least_squares.rs` | the steps of it: k-means, codebook after codebook, and the best words for given codes |
//! | `stored_rows.rs` | the rows that codebooks are fitted to, in half precision or as bytes |
//! | `beam.rs`, `rounded.rs`, `encode.rs` | the code of a row |
//! | `decoder.rs` | where a decoded row lies, for bounds |
//! | `scalar.rs` | what the distance needs beside the decoded row |
//! | `serialization.rs` | file contents |
//!
//! # Definitions
//!
//! A row x has the projections u = W'(x - phi) on k orthonormal directions, and z_j = s_j u_j with a scale for each
//! direction. The code of B bytes is
//!
//! ```text
//! the first byte        a cell a, one of 256 vectors
//! the next bytes        b_1 .. b_M, each one of the 256 words of its codebook
//! the last byte         the level of the scalar
//!
//! z  ~  cell[a] + word_1[b_1] + ... + word_M[b_M]        M = B - 2
//! ```
//!
//! With c the decoded projections (the sum, divided by the scales) and a query y with v = W'(y - phi), the estimate of the
//! squared distance is
//!
//! ```text
//! |x - y|^2  ~  |y - phi|^2 + tau(x) - 2 v.c
//! ```
//!
//! tau is a prediction from the code plus the level of the scalar (`scalar.rs`). So the estimate is a sum of table
//! entries, one for each part of the code, and a search looks them up in registers (`search/ranking/cells.rs`).
//!
//! # Why not one bit a direction
//!
//! At equal bytes the estimate is closer: at 8 bytes recall@10 is 1.1 to 1.7 times that of sign bits on the five sets of
//! `docs/quality.md`. Sign bits are faster to encode, and their Hamming distances work in other tools.
//!
//! # Differences from the paper
//!
//! The paper has sign bits only. Codebooks begin as those of a residual quantiser and are improved as in LSQ (Martinez
//! et al., 2016).

mod beam;
mod codebooks;
mod coordinates;
mod decoder;
mod encode;
mod fit;
mod growth;
mod least_squares;
mod means;
mod rounded;
mod scalar;
mod serialization;
mod slopes;
mod stored_rows;
#[cfg(test)]
mod tests;
mod train;

pub(crate) use decoder::{Decoder, Place};
pub use fit::QuantizerChoice;

use crate::arch::project;
use crate::hasher::Forecast;
use crate::rows::Metric;
use crate::search::codes::HasherId;
use crate::storage::container;
use codebooks::{Codebooks, Products, Tables};
use scalar::ScalarCode;
use std::sync::{Arc, OnceLock};
use xxhash_rust::xxh3::Xxh3;

/// Candidates to re-rank for each wanted neighbour, if the fit measured nothing.
const DEFAULT_OVERSAMPLE: usize = 4;
/// Candidates that encoding keeps by default.
pub(crate) const DEFAULT_BEAM: usize = 8;

/// The model of an additive quantiser. It cannot be changed.
///
/// Its [`id`](Quantizer::id) is a hash of its content, and codes keep the id of their model. The
/// [module page](crate::quantizer) has the definitions.
///
/// Memory: 8 k d bytes for k directions and d dimensions, and at most 1,024 k (1 + M) bytes of codebooks. Encoding adds
/// tables of products between words: 3, 11 and 39 MB at 8, 16 and 32 bytes.
///
/// ```
/// use frosh::{Config, Rows, Sketcher};
/// # let mut state = 1u32;
/// # let mut next = move || { state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223); (state >> 8) as f32 / 16_777_216.0 };
/// # let data: Vec<f32> = (0..16 * 2000).map(|i| next() / (1 + i % 16) as f32).collect();
/// let mut sketcher = Sketcher::new(Config::new(16))?;
/// sketcher.push(Rows::new(&data, 16)?)?;
/// let quantizer = sketcher.finish().quantizer(4)?; // 4 bytes a row
///
/// let codes = quantizer.encode(Rows::new(&data, 16)?)?;
/// assert_eq!((codes.len(), codes.bytes_per_row()), (2000, 4));
/// let queries = quantizer.queries(Rows::new(&data[..32], 16)?)?;
/// let hits = codes.nearest(&queries, 10)?;
/// assert!(hits[1].iter().any(|hit| hit.id == 1)); // a row is among its own nearest neighbours
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Quantizer {
    facts: Facts,
    mean: Vec<f64>,
    /// The mean in single precision, which is subtracted from rows.
    offset: Vec<f32>,
    /// k directions, one after the other, each times its scale.
    directions: Vec<f32>,
    packed: project::Packed,
    /// The scale of each direction.
    scales: Vec<f32>,
    books: Codebooks,
    scalar: ScalarCode,
    id: HasherId,
    /// What the fit measured. It is not part of the id.
    choice: Option<Box<QuantizerChoice>>,
    /// Candidates that encoding keeps. It is not part of the id.
    beam: usize,
    /// Products between codebook entries, made by the first encoding.
    tables: Arc<OnceLock<Tables>>,
    /// Products of queries with codebook entries, made by the first queries.
    products: Arc<OnceLock<Products>>,
    /// Codebooks for bounds of distances, made by the first queries.
    decoder: Arc<OnceLock<Arc<Decoder>>>,
}

/// Settings and scalar properties of a quantiser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) dim: usize,
    /// Bytes of a code.
    pub(crate) bytes: usize,
    pub(crate) metric: Metric,
    pub(crate) seed: u64,
    pub(crate) rows: u64,
}

impl Quantizer {
    /// Builds a quantiser from the parts of a file or of a fit, and computes everything else from them.
    fn assemble(
        facts: Facts,
        mean: Vec<f64>,
        directions: Vec<f32>,
        scales: Vec<f32>,
        books: Codebooks,
        scalar: ScalarCode,
    ) -> Self {
        let mut hash = Xxh3::new();
        hash.update(b"additive");
        hash.update(facts.metric.as_str().as_bytes());
        for number in [facts.dim, facts.bytes, books.k, books.books, books.segments.len()] {
            hash.update(&(number as u64).to_le_bytes());
        }
        hash.update(&container::little_endian(&mean));
        for values in [
            &directions,
            &scales,
            &books.cells,
            &books.words,
            &scalar.slopes.to_vec(),
            &scalar.prediction,
            &scalar.levels,
        ] {
            hash.update(&container::little_endian(values));
        }
        Self {
            facts,
            offset: mean.iter().map(|m| *m as f32).collect(),
            mean,
            packed: project::Packed::new(&directions, facts.dim, &vec![0.0; scales.len()]),
            directions,
            scales,
            books,
            scalar,
            id: HasherId(hash.digest128()),
            choice: None,
            beam: DEFAULT_BEAM,
            tables: Arc::default(),
            products: Arc::default(),
            decoder: Arc::default(),
        }
    }

    /// Values per row.
    pub fn dim(&self) -> usize {
        self.facts.dim
    }

    /// Bytes of a code.
    pub fn bytes(&self) -> usize {
        self.facts.bytes
    }

    /// How rows are compared.
    pub fn metric(&self) -> Metric {
        self.facts.metric
    }

    /// Seed of all randomness.
    pub fn seed(&self) -> u64 {
        self.facts.seed
    }

    /// Number of rows it was learned from.
    pub fn rows(&self) -> u64 {
        self.facts.rows
    }

    /// Number of directions that rows are projected on.
    pub fn directions(&self) -> usize {
        self.books.k
    }

    /// The mean that is subtracted.
    pub fn mean(&self) -> &[f64] {
        &self.mean
    }

    /// The id of this quantiser, a hash of its content. Equal models have equal ids.
    pub fn id(&self) -> HasherId {
        self.id
    }

    /// What the fit measured and chose; `None` for models from files without it.
    pub fn choice(&self) -> Option<&QuantizerChoice> {
        self.choice.as_deref()
    }

    /// What recall to expect of a search.
    pub fn forecast(&self) -> Option<&Forecast> {
        self.choice().map(|choice| &choice.forecast)
    }

    /// Candidates to re-rank for each wanted neighbour: what the fit expects to reach a recall of .9, else 4.
    pub fn oversample(&self) -> usize {
        self.forecast().map_or(DEFAULT_OVERSAMPLE, |forecast| forecast.oversample)
    }

    /// Sets how hard encoding searches for the best code: the number of candidates that it keeps, from 1 (fastest) to 32.
    /// The default is 8. Codes of any effort can be searched together.
    pub fn effort(mut self, beam: usize) -> Self {
        self.beam = beam.clamp(1, beam::MAX_BEAM);
        self
    }

    fn tables(&self) -> &Tables {
        self.tables.get_or_init(|| self.books.tables(&crate::Pool::current()))
    }
}
