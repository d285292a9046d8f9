//! Fitting and encoding: the hash function that is fitted to a sketch.
//!
//! | type | purpose |
//! |---|---|
//! | [`Hasher`] | the model: mean, projection W and distance estimator; encodes rows to [`Codes`], prepares [`Queries`](crate::Queries), saves |
//! | [`Rotation`] | how the directions are rotated before their signs are taken |
//! | [`Choice`], [`Measured`], [`Forecast`] | what the fit measured on the sample, and what recall to expect |
//!
//! [`Sketch::hasher`] and [`Sketch::hasher_with`] fit a hasher.
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | [`Hasher`]: fitting, encoding |
//! | `rotation.rs`, `polar.rs` | rotations; the polar factor that ITQ needs |
//! | `refine.rs` | directions refined by the sample |
//! | `estimator.rs` | the factors of a row, and the distance estimate |
//! | `choice.rs` | chooses rotation, ranking and factors on the sample; forecasts recall |
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
//! Fitting: O(d l^2 + l^3 + s d r) for l sketch rows and s sampled rows, and O(s r^2 + r^3) for each of at most 50
//! rounds of ITQ. Memory: a few matrices of d r doubles and of s r floats. Encoding: 2 d r operations a row; the kernel of
//! the product writes bits, so projections are not stored.

pub(crate) mod choice;
pub(crate) mod estimator;
mod polar;
mod refine;
mod residual;
pub(crate) mod rotation;
mod serialization;
mod trial;

pub use choice::{Choice, Forecast, Measured};
pub use rotation::Rotation;

use crate::arch::{Isa, project};
use crate::error::{Error, Result};
use crate::linalg;
use crate::pool::Pool;
use crate::random::{Purpose, Stream};
use crate::rows::{self, Element, Metric, Rows};
use crate::search::codes::{Codes, HasherId};
use crate::search::ranking::Ranking;
use crate::sketch::config::{Config, Method};
use crate::sketch::{Principal, Sketch};
use crate::storage::container;
use estimator::{FactorColumn, Factors, Scales};
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatMut, MatRef, Par};
use xxhash_rust::xxh3::Xxh3;

/// Candidates to re-rank for each wanted neighbour, if the fit measured nothing.
const DEFAULT_OVERSAMPLE: usize = 4;
/// Number of ITQ rounds.
const ITQ_ROUNDS: usize = 50;
/// Sampled rows for each bit that the refined rotation needs by default.
const ROWS_PER_BIT: usize = 8;
/// Rows that are encoded at a time: a multiple of the kernel's tile, and few enough to stay in cache.
const ENCODE_ROWS: usize = 192;
/// A mean that is longer than this many standard deviations is subtracted from every value. For a shorter one, single
/// precision still resolves a 60,000th of a standard deviation.
const LARGE_MEAN: f64 = 256.0;

/// The model: a hash function that was fitted to a [`Sketch`]. It cannot be changed.
///
/// Bit k of the code of a row x is 1 if (x - [`mean`](Hasher::mean)) . [`direction(k)`](Hasher::direction) is above zero. Its
/// [`id`](Hasher::id) is a hash of its content, and codes keep the id of their hasher.
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

/// The factor of the gain: 1 for orthonormal directions, 1 / bits for the Gaussian directions of LSH.
fn share(method: Method, bits: usize) -> f64 {
    if method == Method::Lsh { 1.0 / bits as f64 } else { 1.0 }
}

/// Rejects a number of bits or a rotation that is impossible for such a sketch.
fn check_request(
    method: Method,
    dim: usize,
    sketch_rows: usize,
    sampled: bool,
    bits: usize,
    rotation: Rotation,
) -> Result<()> {
    if bits == 0 {
        return Err(Error::setting("bits", 0, "a code has at least 1 bit"));
    }
    let reject = |limit, limit_name, advice| Err(Error::Bits { bits, limit, limit_name, advice });
    if method == Method::Lsh {
        let most = 1 << 16;
        if bits > most {
            return reject(most, "LSH", "ask for fewer bits");
        }
        if rotation != Rotation::None {
            return Err(Error::Rotation {
                rotation: rotation.as_str(),
                needs: "learned directions, and LSH has none".into(),
                advice: "use none",
            });
        }
        return Ok(());
    }
    if bits > dim {
        return reject(dim, "the dimension of the rows", "ask for fewer bits");
    }
    if bits > sketch_rows / 2 {
        let advice = "sketch again with at least twice as many sketch rows as bits";
        return reject(sketch_rows / 2, "half the sketch rows", advice);
    }
    if matches!(rotation, Rotation::Itq | Rotation::Refined | Rotation::RefinedRandom) && !sampled {
        return Err(Error::Rotation {
            rotation: rotation.as_str(),
            needs: "a reservoir of rows, and this sketch has none".into(),
            advice: "use random or isotropic, or sketch again with a reservoir",
        });
    }
    Ok(())
}

impl Config {
    /// Checks, before any row is read, whether a hasher of `bits` bits can be fitted. `None` means the default
    /// rotation.
    ///
    /// # Errors
    ///
    /// The errors of [`Sketch::hasher_with`]: [`Error::Setting`], [`Error::Bits`] or [`Error::Rotation`].
    ///
    /// ```
    /// use frosh::Config;
    /// assert!(Config::new(384).sketch_rows(128).check_hasher(64, None).is_ok());
    /// let error = Config::new(384).sketch_rows(128).check_hasher(100, None).unwrap_err();
    /// assert!(error.to_string().contains("half the sketch rows allows 64"));
    /// ```
    pub fn check_hasher(&self, bits: usize, rotation: Option<Rotation>) -> Result<()> {
        let sampled = self.reservoir_rows > 0;
        // The default rotation is always possible, so one that needs no sample stands for it.
        let default = if self.method == Method::Lsh { Rotation::None } else { Rotation::Random };
        let rotation = rotation.unwrap_or(default);
        check_request(self.method, self.dim, self.sketch_rows, sampled, bits, rotation)
    }
}

impl Sketch {
    /// Fits a hasher of `bits` bits. Rotation, ranking and bytes of factors are chosen by measuring them on the sample
    /// ([`Hasher::choice`]).
    ///
    /// # Errors
    ///
    /// [`Error::Empty`] if the sketch has no rows. [`Error::Setting`] for 0 bits. [`Error::Bits`] if there are more bits
    /// than dimensions or than half the sketch rows.
    ///
    /// ```
    /// use frosh::{Config, Rows, Sketcher};
    /// # let data: Vec<f32> = (0..6400).map(|i| ((i * 31) % 101) as f32).collect();
    /// let mut sketcher = Sketcher::new(Config::new(32))?;
    /// sketcher.push(Rows::new(&data, 32)?)?;
    /// let sketch = sketcher.finish();
    /// let [short, long] = [sketch.hasher(8)?, sketch.hasher(32)?]; // several models from one sketch
    /// assert_eq!((short.bits(), long.bits()), (8, 32));
    /// assert!(sketch.hasher(33).is_err()); // more bits than dimensions
    /// # Ok::<(), frosh::Error>(())
    /// ```
    pub fn hasher(&self, bits: usize) -> Result<Hasher> {
        if self.method == Method::Lsh {
            return self.hasher_with(bits, Rotation::None);
        }
        let few = self.reservoir.len() < ROWS_PER_BIT * bits;
        self.check_bits(bits, Rotation::Random)?;
        if few {
            return self.hasher_with(bits, Rotation::Random);
        }
        choice::chosen(self, &Pool::current(), bits)
    }

    /// Fits a hasher of `bits` bits with the given rotation. For LSH, whose directions are already
    /// random, the rotation must be [`Rotation::None`].
    ///
    /// # Errors
    ///
    /// Those of [`Sketch::hasher`], and [`Error::Rotation`] if ITQ or refined is requested and the sketch has no sample,
    /// or any rotation for LSH.
    ///
    /// ```
    /// # use frosh::{Config, Rotation, Rows, Sketcher};
    /// # let data: Vec<f32> = (0..6400).map(|i| ((i * 31) % 101) as f32).collect();
    /// let mut sketcher = Sketcher::new(Config::new(32).reservoir_rows(0))?;
    /// sketcher.push(Rows::new(&data, 32)?)?;
    /// let sketch = sketcher.finish();
    /// assert!(sketch.hasher_with(16, Rotation::Itq).is_err()); // needs a sample
    /// let hasher = sketch.hasher_with(16, Rotation::Isotropic)?;
    /// # Ok::<(), frosh::Error>(())
    /// ```
    pub fn hasher_with(&self, bits: usize, rotation: Rotation) -> Result<Hasher> {
        self.check_bits(bits, rotation)?;
        let pool = &Pool::current();
        let (w, values, rank) = if self.method == Method::Lsh {
            (self.gaussian(bits), Vec::new(), 0)
        } else {
            let Principal { vectors, values, rank } = self.principal(pool, bits);
            (self.rotated(pool, vectors, &values, rotation), values, rank)
        };
        Ok(self.fitted(pool, w, &values, rank, rotation, 1))
    }

    /// The hasher of the directions in the columns of `w`, with this many bytes of factors.
    fn fitted(
        &self,
        pool: &Pool,
        w: Mat<f64>,
        values: &[f64],
        rank: usize,
        rotation: Rotation,
        factor_bytes: usize,
    ) -> Hasher {
        let bits = w.ncols();
        let deviation = (values.iter().sum::<f64>() / (bits as f64 * self.rows as f64)).sqrt();
        let length = self.mean.iter().map(|m| m * m).sum::<f64>().sqrt();
        let facts = Facts {
            dim: self.dim,
            bits,
            metric: self.metric,
            method: self.method,
            rotation,
            seed: self.seed,
            rows: self.rows,
            rank,
            exact_centre: length > LARGE_MEAN * deviation,
        };
        let directions: Vec<f32> =
            (0..bits).flat_map(|k| w.col(k).iter().map(|x| *x as f32)).collect();
        drop(w);
        let columns = MatRef::from_column_major_slice(&directions, self.dim, bits);
        let scales = self.scales(pool, columns, share(self.method, bits))[factor_bytes - 1];
        Hasher::assemble(facts, self.mean.clone(), directions, scales)
    }

    fn check_bits(&self, bits: usize, rotation: Rotation) -> Result<()> {
        if self.rows == 0 && bits > 0 {
            return Err(Error::Empty);
        }
        let sampled = self.reservoir.len() > 0;
        check_request(self.method, self.dim, self.sketch_rows(), sampled, bits, rotation)
    }

    /// W of LSH: independent standard normal entries.
    fn gaussian(&self, bits: usize) -> Mat<f64> {
        let mut w = Mat::zeros(self.dim, bits);
        for k in 0..bits {
            let mut stream = Stream::new(self.seed, Purpose::Lsh, 0, k as u64);
            w.col_mut(k).iter_mut().for_each(|x| *x = stream.normal());
        }
        w
    }

    /// W = V R.
    fn rotated(
        &self,
        pool: &Pool,
        mut v: Mat<f64>,
        values: &[f64],
        rotation: Rotation,
    ) -> Mat<f64> {
        let r = v.ncols();
        let stream = &mut Stream::new(self.seed, Purpose::Rotation, 0, 0);
        let rotation = match rotation {
            Rotation::None => return v,
            Rotation::Random => rotation::random(r, stream),
            Rotation::Isotropic => rotation::isotropic(values, stream),
            Rotation::RefinedRandom => {
                v = self.refined(pool, v.as_ref(), values).0;
                rotation::random(r, stream)
            }
            Rotation::Itq | Rotation::Refined => {
                let sample;
                if rotation == Rotation::Refined {
                    (v, sample) = self.refined(pool, v.as_ref(), values);
                } else {
                    let v = linalg::single(v.as_ref());
                    sample = self.sample_along(pool, usize::MAX, v.as_ref());
                }
                pool.in_rayon(|| rotation::itq(sample.as_ref(), stream, ITQ_ROUNDS))
            }
        };
        let mut w = Mat::zeros(v.nrows(), r);
        matmul(w.as_mut(), Accum::Replace, v.as_ref(), rotation.as_ref(), 1.0, Par::Seq);
        w
    }
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

    /// Encodes rows. The code of a row does not depend on the other rows of the batch. 2 d r operations and ceil(r / 8) bytes for each row of d values, with r bits.
    ///
    /// # Errors
    ///
    /// [`Error::Dimension`] if the rows have another dimension. [`Error::NotFinite`] or [`Error::TooLarge`] for the first
    /// row with a bad value.
    ///
    /// ```
    /// # use frosh::{Config, Rows, Sketcher};
    /// # let data: Vec<f32> = (0..6400).map(|i| ((i * 31) % 101) as f32).collect();
    /// # let mut sketcher = Sketcher::new(Config::new(32))?;
    /// # sketcher.push(Rows::new(&data, 32)?)?;
    /// let hasher = sketcher.finish().hasher(16)?;
    /// let codes = hasher.encode(Rows::new(&data, 32)?)?;
    /// assert_eq!((codes.len(), codes.bytes_per_row()), (200, 2));
    /// // Bit k is the sign of the centred projection on direction k.
    /// let centred = data[..32].iter().zip(hasher.mean()).map(|(x, m)| f64::from(*x) - m);
    /// let projection: f64 = centred.zip(hasher.direction(3)).map(|(x, w)| x * f64::from(*w)).sum();
    /// assert_eq!(codes.bit(0, 3), projection > 0.0);
    /// # Ok::<(), frosh::Error>(())
    /// ```
    pub fn encode<T: Element>(&self, rows: Rows<'_, T>) -> Result<Codes> {
        let mut data = vec![0u8; rows.len() * self.facts.bits.div_ceil(8)];
        self.each_block(&Pool::current(), rows, &mut data, &mut [], &mut [], |_, _, _| {})?;
        Ok(Codes::new(self.facts.bits, self.id, data))
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

    /// Encodes rows, with one or two bytes of factors for each row, which
    /// [`Ranking::Estimated`] needs. Costs one more pass over each row.
    ///
    /// # Errors
    ///
    /// Those of [`Hasher::encode`], and [`Error::Factors`] if the model has no factors.
    ///
    /// ```
    /// use frosh::{Config, Ranking, Rows, Search, Sketcher};
    /// # let data: Vec<f32> = (0..6400).map(|i| ((i * 31) % 101) as f32).collect();
    /// # let mut sketcher = Sketcher::new(Config::new(32))?;
    /// # sketcher.push(Rows::new(&data, 32)?)?;
    /// let hasher = sketcher.finish().hasher(16)?;
    /// let codes = hasher.encode_with_factors(Rows::new(&data, 32)?)?;
    /// assert_eq!(codes.stored_bytes_per_row(), 3); // 16 bits and the factors
    /// let queries = hasher.queries(Rows::new(&data[..32], 32)?)?;
    /// let hits = codes.search(&queries, &Search::nearest(5).ranking(Ranking::Estimated))?;
    /// # Ok::<(), frosh::Error>(())
    /// ```
    pub fn encode_with_factors<T: Element>(&self, rows: Rows<'_, T>) -> Result<Codes> {
        let advice = "fit the model from a sketch with a reservoir of rows";
        let scales = self.scales.ok_or_else(|| estimator::missing("the model", advice))?;
        let mut data = vec![0u8; rows.len() * self.facts.bits.div_ceil(8)];
        let width = scales.bytes();
        let mut factors = vec![0u8; rows.len() * width];
        let (share, residual) = (share(self.facts.method, self.facts.bits), scales.residual());
        let work = |norm, projections: &[f32], out: &mut [u8]| {
            scales.encode(Factors::new(norm, projections, share, residual), out);
        };
        self.each_block(&Pool::current(), rows, &mut data, &mut factors, &mut [], work)?;
        let mut codes = Codes::new(self.facts.bits, self.id, data);
        codes.factors = Some(FactorColumn { bytes: width, data: factors.into() });
        Ok(codes)
    }

    /// Codes, projections and lengths of rows.
    pub(crate) fn project<T: Element>(&self, pool: &Pool, rows: Rows<'_, T>) -> Result<Projected> {
        let bits = self.facts.bits;
        let mut data = vec![0u8; rows.len() * bits.div_ceil(8)];
        let mut values = vec![0f32; rows.len() * (bits + 1)];
        self.each_block(pool, rows, &mut data, &mut [], &mut values, |_, _, _| {})?;
        let square_norms = values.chunks_exact(bits + 1).map(|v| f64::from(v[bits])).collect();
        let values = values.chunks_exact(bits + 1).flat_map(|v| &v[..bits]).copied().collect();
        Ok(Projected { codes: Codes::new(bits, self.id, data), values, square_norms })
    }

    /// Encodes rows in blocks on the threads of `pool`. If `factors` is not empty, `work` is called with each row's
    /// squared length and projections, and writes its factor bytes. If `values` is not empty, it receives the
    /// projections of each row, followed by the squared length.
    fn each_block<T: Element>(
        &self,
        pool: &Pool,
        rows: Rows<'_, T>,
        data: &mut [u8],
        factors: &mut [u8],
        values: &mut [f32],
        work: impl Fn(f64, &[f32], &mut [u8]) + Sync,
    ) -> Result<()> {
        let (dim, bytes) = (self.facts.dim, self.facts.bits.div_ceil(8));
        if rows.dim() != dim {
            return Err(Error::Dimension { expected: dim, got: rows.dim() });
        }
        let blocks = rows.len().div_ceil(ENCODE_ROWS);
        // A few tasks for each thread, so that few buffers are allocated.
        let per_task = blocks.div_ceil(4 * pool.threads()).max(1) * ENCODE_ROWS;
        let tasks = rows.len().div_ceil(per_task);
        let mut results: Vec<Result<()>> = (0..tasks).map(|_| Ok(())).collect();
        let width = self.factor_bytes().max(1);
        let mut factors = factors.chunks_mut(per_task * width);
        let mut values = values.chunks_mut(per_task * (self.facts.bits + 1));
        let jobs = results
            .iter_mut()
            .zip(data.chunks_mut(per_task * bytes))
            .map(|job| (job, factors.next().unwrap_or_default(), values.next().unwrap_or_default()))
            .enumerate()
            .collect();
        pool.each(jobs, |(task, ((result, out), factors, values))| {
            let first = task * per_task;
            let rows = rows.slice(first..first + out.len() / bytes);
            let done = self.encode_rows(&rows, out, factors, values, &work);
            *result = done.map_err(|e| e.shift_row(first));
        });
        results.into_iter().collect()
    }

    fn encode_rows<T: Element>(
        &self,
        rows: &Rows<'_, T>,
        out: &mut [u8],
        factors: &mut [u8],
        values: &mut [f32],
        work: &impl Fn(f64, &[f32], &mut [u8]),
    ) -> Result<()> {
        let (dim, bits) = (self.facts.dim, self.facts.bits);
        let bytes = bits.div_ceil(8);
        let isa = Isa::detect();
        let zero = vec![0f32; dim];
        let offset = if self.offset.is_empty() { &zero } else { &self.offset };
        let unchanged = self.facts.metric == Metric::L2 && self.offset.is_empty();
        let plain = factors.is_empty() && values.is_empty();
        let width = self.factor_bytes().max(1);
        let (mut buffer, mut projections) = (Vec::new(), Vec::new());
        for (b, out) in out.chunks_mut(ENCODE_ROWS * bytes).enumerate() {
            let first = b * ENCODE_ROWS;
            let block = rows.slice(first..first + out.len() / bytes);
            let loaded = match T::as_f32(block.as_slice()) {
                Some(values) if unchanged => {
                    rows::check(&block).map_err(|e| e.shift_row(first))?;
                    values
                }
                _ => {
                    buffer.resize(block.len() * dim, 0f32);
                    for (i, to) in buffer.chunks_exact_mut(dim).enumerate() {
                        rows::load(block.row(i), first + i, self.facts.metric, offset, to)?;
                    }
                    &buffer
                }
            };
            if plain {
                project::sign_bits(isa, &self.packed, loaded, out);
                continue;
            }
            let padded = self.packed.padded();
            projections.resize(block.len() * padded, 0f32);
            project::projections(isa, &self.packed, loaded, out, &mut projections);
            for (i, (row, u)) in
                loaded.chunks_exact(dim).zip(projections.chunks_exact(padded)).enumerate()
            {
                let norm = estimator::square_norm(row, &self.rest);
                if let Some(bytes) = factors.chunks_exact_mut(width).nth(first + i) {
                    work(norm, &u[..bits], bytes);
                }
                if let Some(kept) = values.chunks_exact_mut(bits + 1).nth(first + i) {
                    kept[..bits].copy_from_slice(&u[..bits]);
                    kept[bits] = norm as f32;
                }
            }
        }
        Ok(())
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
