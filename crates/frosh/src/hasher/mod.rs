//! Fitting and encoding: the hash function that is fitted to a sketch.
//!
//! | type | purpose |
//! |---|---|
//! | [`Hasher`] | the model: mean, projection W and distance estimator; encodes rows to [`Codes`], prepares [`Queries`](crate::Queries), saves |
//! | [`Rotation`] | how the directions are rotated before their signs are taken |
//! | [`Choice`], [`Measured`], [`Forecast`] | what the fit measured on the sample, and what recall to expect |
//!
//! [`Sketch::hasher`](crate::Sketch::hasher) and [`Sketch::hasher_with`](crate::Sketch::hasher_with) fit a hasher.
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | [`Hasher`] |
//! | `fit.rs`, `encode.rs` | fitting to a sketch; rows to codes |
//! | `rotation.rs`, `polar.rs` | rotations; the polar factor that ITQ needs |
//! | `refine.rs` | directions refined by the sample |
//! | `estimator.rs` | the factors of a row, and the distance estimate |
//! | `choice.rs` | chooses rotation, ranking and factors on the sample |
//! | `like.rs` | a hasher whose codes differ little from those of an old one |
//! | `held_out.rs`, `positions.rs` | measures a ranking on held-out sampled rows; forecasts recall |
//! | `residual.rs`, `trial.rs` | fits the estimator to the sample; measures recall on the sample |
//! | `serialization.rs` | file contents |
//!
//! # Definitions
//!
//! ```text
//! bit_k(x) = 1  if  (x - phi) . w_k > 0          W = V R, columns w_k
//! ```
//!
//! phi is the mean, V the r leading right singular vectors of the sketch (line 11 of Algorithm 1), and R an
//! orthogonal r x r matrix. LSH has a Gaussian W instead.
//!
//! Codes with factors keep one byte more for each row x, which estimates its distance to a query y that stays
//! floats. With u = W'(x - phi), v = W'(y - phi), S = sum_k sign(u_k) v_k, and x' the part of x - phi outside the
//! directions:
//!
//! ```text
//! |x - y|^2  ~  |x - phi|^2 + |y - phi|^2 - 2 g S,      g = |u|^2 / |u|_1 * (1 + beta |x'| / |u|)
//! ```
//!
//! The byte holds |x - phi| and g, quantised. The fit chooses the quantiser ranges and beta.
//!
//! # Differences from the paper
//!
//! - Algorithm 1 has no rotation. Signs of unrotated principal coordinates are worse than random projections, since
//!   bits of small variance count as much as those of large variance. So there is a rotation by default:
//!   [`Rotation::Refined`] or [`Rotation::RefinedRandom`], whichever measures better on the sample ([`Choice`]);
//!   [`Rotation::Random`] if the sample has fewer than eight rows for each bit.
//! - Both refined rotations also replace V by better directions; all other rotations keep those of the sketch.
//! - phi . w_k is subtracted after the product, and not phi from every row. If the mean is so long that digits
//!   would be lost, it is subtracted from every row.
//! - The distance estimate is not in the paper. It follows RaBitQ (Gao and Long, 2024).
//!
//! `docs/algorithms.md` in the repository has the details (sections 8 to 10).
//!
//! # Cost
//!
//! Fitting: O(d l^2 + l^3 + s d r) for l sketch rows and s sampled rows, and O(s r^2 + r^3) for each of at most 16
//! rounds of ITQ. Memory: a few matrices of d r doubles and of s r floats. Encoding: 2 d r operations a row; the kernel of
//! the product writes bits, so projections are not stored.

pub(crate) mod choice;
mod encode;
pub(crate) mod estimator;
mod fit;
pub(crate) mod held_out;
mod like;
mod polar;
mod positions;
mod refine;
mod residual;
pub(crate) mod rotation;
mod serialization;
mod trial;

pub use choice::{Choice, Measured};
pub use held_out::Forecast;
pub use rotation::Rotation;

use crate::arch::project;
use crate::rows::Metric;
use crate::search::codes::{Codes, HasherId};
use crate::search::ranking::Ranking;
use crate::sketch::config::Method;
use crate::storage::container;
use estimator::Scales;
use faer::{MatMut, MatRef};
use xxhash_rust::xxh3::Xxh3;

/// Candidates to re-rank for each wanted neighbour, if the fit measured nothing.
const DEFAULT_OVERSAMPLE: usize = 4;
/// Number of ITQ rounds.
const ITQ_ROUNDS: usize = 16;

/// The model: a hash function that was fitted to a [`Sketch`](crate::Sketch). It cannot be changed.
///
/// Bit k of the code of a row x is 1 if (x - [`mean`](Hasher::mean)) . [`direction(k)`](Hasher::direction) is above
/// zero. Its [`id`](Hasher::id) is a hash of its content, and codes keep the id of their hasher.
///
/// Memory: 8 d r bytes for d dimensions and r bits.
///
/// ```
/// use frosh::{Config, Hasher, Rows, Sketcher};
/// # let data: Vec<f32> = (0..6400).map(|i| ((i * 31) % 101) as f32).collect();
/// # let mut sketcher = Sketcher::new(Config::new(32))?;
/// # sketcher.push(Rows::new(&data, 32)?)?;
/// # let sketch = sketcher.finish();
/// let hasher = sketch.hasher(16)?;
/// let codes = hasher.encode(Rows::new(&data, 32)?)?;
/// let hits = codes.nearest(&codes, 3)?;
/// assert_eq!(hits[5][0].distance, 0.0); // a row is its own nearest neighbour
///
/// let loaded = Hasher::from_bytes(&hasher.to_bytes())?; // or save and load
/// assert_eq!(loaded.id(), hasher.id());
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Hasher {
    pub(crate) facts: Facts,
    pub(crate) mean: Vec<f64>,
    /// The columns of W, one after the other.
    pub(crate) directions: Vec<f32>,
    packed: project::Packed,
    /// The vector that is subtracted from every row before the product; empty if none is.
    offset: Vec<f32>,
    /// The mean minus `offset`.
    rest: Vec<f32>,
    /// The quantiser of the factors; `None` without a sample of rows.
    scales: Option<Scales>,
    id: HasherId,
    /// What the fit measured, if it chose by itself. It is not part of the id.
    choice: Option<Box<Choice>>,
}

/// Codes, projections and lengths of rows.
pub(crate) struct Projected {
    pub(crate) codes: Codes,
    /// Projections, `bits` values for each row.
    pub(crate) values: Vec<f32>,
    /// Squared lengths of the centred rows.
    pub(crate) square_norms: Vec<f64>,
}

/// Settings and scalar properties of a hasher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) dim: usize,
    pub(crate) bits: usize,
    pub(crate) metric: Metric,
    pub(crate) method: Method,
    pub(crate) rotation: Rotation,
    pub(crate) seed: u64,
    pub(crate) rows: u64,
    pub(crate) rank: usize,
    /// Whether the mean is subtracted from every value.
    pub(crate) exact_centre: bool,
}

impl Hasher {
    /// Builds a hasher from the parts of a file or of a fit, and computes everything else from them.
    pub(crate) fn assemble(
        facts: Facts,
        mean: Vec<f64>,
        directions: Vec<f32>,
        scales: Option<Scales>,
    ) -> Self {
        let dim = facts.dim;
        let offset: Vec<f32> =
            if facts.exact_centre { mean.iter().map(|m| *m as f32).collect() } else { Vec::new() };
        let rest: Vec<f64> = match offset.is_empty() {
            true => mean.clone(),
            false => mean.iter().zip(&offset).map(|(m, o)| m - f64::from(*o)).collect(),
        };
        let thresholds: Vec<f32> = directions
            .chunks_exact(dim)
            .map(|w| w.iter().zip(&rest).map(|(w, m)| f64::from(*w) * m).sum::<f64>() as f32)
            .collect();
        let packed = project::Packed::new(&directions, dim, &thresholds);
        let mut hash = Xxh3::new();
        hash.update(facts.metric.as_str().as_bytes());
        hash.update(&[u8::from(facts.exact_centre)]);
        hash.update(&(dim as u64).to_le_bytes());
        hash.update(&(facts.bits as u64).to_le_bytes());
        hash.update(&container::little_endian(&mean));
        hash.update(&container::little_endian(&directions));
        if let Some(scales) = scales {
            let (norm, other) = match scales {
                Scales::Joint { norm, ratio, residual } => {
                    hash.update(b"joint");
                    if residual > 0.0 {
                        hash.update(&residual.to_le_bytes());
                    }
                    (norm, ratio)
                }
                Scales::Apart { norm, gain, residual } => {
                    if residual > 0.0 {
                        hash.update(&residual.to_le_bytes());
                    }
                    (norm, gain)
                }
            };
            for end in [norm.low, norm.high, other.low, other.high] {
                hash.update(&end.to_le_bytes());
            }
        }
        let id = HasherId(hash.digest128());
        let rest = rest.iter().map(|m| *m as f32).collect();
        Self { facts, mean, directions, packed, offset, rest, scales, id, choice: None }
    }

    /// Values per row.
    pub fn dim(&self) -> usize {
        self.facts.dim
    }

    /// Bits of a code.
    pub fn bits(&self) -> usize {
        self.facts.bits
    }

    /// How rows are compared.
    pub fn metric(&self) -> Metric {
        self.facts.metric
    }

    /// The algorithm that learned it.
    pub fn method(&self) -> Method {
        self.facts.method
    }

    /// The rotation it was fitted with.
    pub fn rotation(&self) -> Rotation {
        self.facts.rotation
    }

    /// Seed of all randomness.
    pub fn seed(&self) -> u64 {
        self.facts.seed
    }

    /// Number of rows it was learned from.
    pub fn rows(&self) -> u64 {
        self.facts.rows
    }

    /// Number of learned directions. If the data had a lower rank than the number of bits, the remaining directions are
    /// random. 0 for LSH, whose directions are all random.
    pub fn rank(&self) -> usize {
        self.facts.rank
    }

    /// The mean that is subtracted.
    pub fn mean(&self) -> &[f64] {
        &self.mean
    }

    /// Direction `k`: column k of W.
    ///
    /// # Panics
    ///
    /// If `k` is not below the number of bits.
    pub fn direction(&self, k: usize) -> &[f32] {
        assert!(k < self.facts.bits, "direction {k} of {}", self.facts.bits);
        &self.directions[k * self.facts.dim..(k + 1) * self.facts.dim]
    }

    /// The id of this hasher, a hash of its content. Equal models have equal ids.
    pub fn id(&self) -> HasherId {
        self.id
    }

    /// Whether the model can make codes with factors: it can if the sketch had a sample of rows.
    pub fn has_factors(&self) -> bool {
        self.scales.is_some()
    }

    /// Bytes of the factors of a row: 1, 2 for models of earlier releases, 0 for models without factors.
    pub fn factor_bytes(&self) -> usize {
        self.scales.map_or(0, |scales| scales.bytes())
    }

    /// What the fit measured and chose; `None` if the rotation was given, for LSH, and for a small sample.
    pub fn choice(&self) -> Option<&Choice> {
        self.choice.as_deref()
    }

    /// The ranking to search by: the one that the fit chose. Without a choice, the estimated distance if there are factors,
    /// else the asymmetric one; for LSH, which is the paper's baseline, Hamming.
    pub fn ranking(&self) -> Ranking {
        match (&self.choice, self.facts.method, self.scales) {
            (Some(choice), ..) => choice.ranking,
            (None, Method::Lsh, _) => Ranking::Hamming,
            (None, _, Some(_)) => Ranking::Estimated,
            (None, _, None) => Ranking::Asymmetric,
        }
    }

    /// Candidates to re-rank for each wanted neighbour: what the fit expects to reach a recall of .9, else 4.
    pub fn oversample(&self) -> usize {
        self.choice.as_ref().map_or(DEFAULT_OVERSAMPLE, |choice| choice.forecast.oversample)
    }

    pub(crate) fn scales(&self) -> Option<Scales> {
        self.scales
    }

    /// W with `dim` rows and `bits` columns, row after row, as files store it.
    pub(crate) fn projection(&self) -> Vec<f32> {
        let (dim, bits) = (self.facts.dim, self.facts.bits);
        let mut w = vec![0f32; dim * bits];
        MatMut::from_row_major_slice_mut(&mut w, dim, bits)
            .copy_from(MatRef::from_column_major_slice(&self.directions, dim, bits));
        w
    }
}
