//! The finished hash function: mean, projection W, rotation. It encodes and never changes.
//!
//! | type | is |
//! |---|---|
//! | [`Hasher`] | the model: encodes rows to [`Codes`], makes [`Queries`](crate::Queries) ready, saves |
//! | [`Rotation`] | how directions are rotated before their signs are taken |
//!
//! A hasher is made by [`Sketch::hasher`](crate::Sketch::hasher).
//!
//! **Equation.** bit_k = 1 if (x - phi) . w_k > 0, with phi the mean and w_k the columns of W = V_r R:
//! the r leading right singular vectors of the sketch (line 11 of Algorithm 1), rotated.
//!
//! **Where we differ.** Algorithm 1 shows no rotation; signs of raw principal coordinates then lose to
//! random projections, so a rotation is on by default ([`Rotation::Refined`] where the reservoir has at
//! least eight rows for each bit, else [`Rotation::Random`]). The first also moves the directions a little, see
//! `refine.rs`; every other keeps those of the sketch. phi . w_k is subtracted after the product,
//! not from every value, unless the mean is so large that digits would suffer. LSH is the same function
//! with a Gaussian W.
//!
//! **Cost.** 2 d r operations a row; codes leave the product as bits.
//!
//! ```
//! use frosh::{Config, Rotation, Rows, Sketcher};
//! let data: Vec<f32> = (0..6400).map(|i| ((i * 31) % 101) as f32).collect();
//! let mut sketcher = Sketcher::new(Config::new(32))?;
//! sketcher.push(Rows::new(&data, 32)?)?;
//! let sketch = sketcher.finish();
//! let hasher = sketch.hasher_with(16, Rotation::Random)?;
//! let codes = hasher.encode(Rows::new(&data, 32)?)?;
//! let hits = codes.nearest(&codes, 3)?;
//! assert_eq!(hits[5][0].distance, 0.0);
//! # Ok::<(), frosh::Error>(())
//! ```

pub(crate) mod estimator;
mod polar;
mod refine;
mod residual;
pub(crate) mod rotation;
mod serialization;
mod trial;

pub use rotation::Rotation;

use crate::arch::{Isa, project};
use crate::error::{Error, Result};
use crate::linalg;
use crate::pool::Pool;
use crate::random::{Purpose, Stream};
use crate::rows::{self, Element, Metric, Rows};
use crate::search::codes::{Codes, HasherId};
use crate::sketch::config::{Config, Method};
use crate::sketch::{Principal, Sketch};
use crate::storage::container;
use estimator::{FactorColumn, Factors, Scales};
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatMut, MatRef, Par};
use xxhash_rust::xxh3::Xxh3;

/// Rounds of ITQ.
const ITQ_ROUNDS: usize = 50;
/// Reservoir rows for each bit that it takes to fit directions and rotation to them.
const ROWS_PER_BIT: usize = 8;
/// Rows encoded by one task: a multiple of the kernel's tile, small enough for cache.
const ENCODE_ROWS: usize = 192;
/// A mean may be this many deviations long before it is subtracted from every value: single precision
/// then still resolves a 60,000th of a deviation.
const LARGE_MEAN: f64 = 256.0;

/// A finished hash function: bit k of a row x is 1 if (x - mean) . direction(k) is above zero. It never
/// changes, and its id names it by its content.
#[derive(Clone, Debug)]
pub struct Hasher {
    pub(crate) facts: Facts,
    pub(crate) mean: Vec<f64>,
    /// The columns of W, one after the other.
    pub(crate) directions: Vec<f32>,
    packed: project::Packed,
    /// What is subtracted from every value before the product; empty if nothing is.
    offset: Vec<f32>,
    /// What is left of the mean after that.
    rest: Vec<f32>,
    /// The scales of the factors; none without a sample of rows.
    scales: Option<Scales>,
    id: HasherId,
}

/// Rows as the hasher sees them: their codes, projections and lengths.
pub(crate) struct Projected {
    pub(crate) codes: Codes,
    /// `bits` values for each row.
    pub(crate) values: Vec<f32>,
    /// Of the centred rows.
    pub(crate) square_norms: Vec<f64>,
}

/// The small facts of a hasher.
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

/// What the gain is multiplied by: LSH's directions are not orthonormal.
fn share(method: Method, bits: usize) -> f64 {
    if method == Method::Lsh { 1.0 / bits as f64 } else { 1.0 }
}

/// Refuses a number of bits or a rotation that such a sketch cannot give.
fn possible(
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
    let refuse = |limit, limit_name, advice| Err(Error::Bits { bits, limit, limit_name, advice });
    if method == Method::Lsh {
        let most = 1 << 16;
        if bits > most {
            return refuse(most, "LSH", "ask for fewer bits");
        }
        if rotation != Rotation::None {
            return Err(Error::Rotation {
                rotation: rotation.as_str(),
                needs: "learned directions, which LSH has not".into(),
                advice: "use none",
            });
        }
        return Ok(());
    }
    if bits > dim {
        return refuse(dim, "the dimension of the rows", "ask for fewer bits");
    }
    if bits > sketch_rows / 2 {
        let advice = "sketch again with at least twice as many sketch rows as bits";
        return refuse(sketch_rows / 2, "half the sketch rows", advice);
    }
    if matches!(rotation, Rotation::Itq | Rotation::Refined) && !sampled {
        return Err(Error::Rotation {
            rotation: rotation.as_str(),
            needs: "a reservoir of rows, and this sketch has none".into(),
            advice: "use random or isotropic, or sketch again with a reservoir",
        });
    }
    Ok(())
}

impl Config {
    /// Refuses, before any row was read, what [`Sketch::hasher_with`] would refuse after the last; `None` is
    /// the default rotation.
    pub fn check_hasher(&self, bits: usize, rotation: Option<Rotation>) -> Result<()> {
        let sampled = self.reservoir_rows > 0;
        // The default is always a possible one.
        let default = if self.method == Method::Lsh { Rotation::None } else { Rotation::Random };
        let rotation = rotation.unwrap_or(default);
        possible(self.method, self.dim, self.sketch_rows, sampled, bits, rotation)
    }
}

impl Sketch {
    /// A hasher of `bits` bits with the default rotation.
    pub fn hasher(&self, bits: usize) -> Result<Hasher> {
        self.hasher_with(bits, self.default_rotation(bits))
    }

    /// The rotation that [`Sketch::hasher`] uses: refined where the reservoir is large enough.
    pub fn default_rotation(&self, bits: usize) -> Rotation {
        if self.method == Method::Lsh {
            Rotation::None
        } else if self.reservoir.len() >= ROWS_PER_BIT * bits {
            Rotation::Refined
        } else {
            Rotation::Random
        }
    }

    /// A hasher of `bits` bits. For LSH, whose directions are random already, the rotation must be
    /// [`Rotation::None`].
    pub fn hasher_with(&self, bits: usize, rotation: Rotation) -> Result<Hasher> {
        self.check_bits(bits, rotation)?;
        let pool = &Pool::current();
        let (w, values, rank) = if self.method == Method::Lsh {
            (self.gaussian(bits), Vec::new(), 0)
        } else {
            let Principal { vectors, values, rank } = self.principal(pool, bits);
            (self.rotated(pool, vectors, &values, rotation), values, rank)
        };
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
        let scales = self.scales(pool, columns, share(self.method, bits));
        Ok(Hasher::assemble(facts, self.mean.clone(), directions, scales))
    }

    fn check_bits(&self, bits: usize, rotation: Rotation) -> Result<()> {
        if self.rows == 0 && bits > 0 {
            return Err(Error::Empty);
        }
        let sampled = self.reservoir.len() > 0;
        possible(self.method, self.dim, self.sketch_rows(), sampled, bits, rotation)
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
    /// Puts a hasher together; everything else follows from these parts.
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
                Scales::Apart { norm, gain } => (norm, gain),
            };
            for end in [norm.low, norm.high, other.low, other.high] {
                hash.update(&end.to_le_bytes());
            }
        }
        let id = HasherId(hash.digest128());
        let rest = rest.iter().map(|m| *m as f32).collect();
        Self { facts, mean, directions, packed, offset, rest, scales, id }
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

    /// Which algorithm learned it.
    pub fn method(&self) -> Method {
        self.facts.method
    }

    /// The rotation that was used.
    pub fn rotation(&self) -> Rotation {
        self.facts.rotation
    }

    /// Seed of all randomness.
    pub fn seed(&self) -> u64 {
        self.facts.seed
    }

    /// Rows it was learned from.
    pub fn rows(&self) -> u64 {
        self.facts.rows
    }

    /// How many directions were learned. Fewer than the bits where the data had fewer: the others are
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

    /// Names this hasher by its content.
    pub fn id(&self) -> HasherId {
        self.id
    }

    /// Codes of rows; none for no rows. A row's code does not depend on the rows beside it. Rows of another dimension are
    /// refused, and so is a row with a value that is not finite or too large.
    pub fn encode<T: Element>(&self, rows: Rows<'_, T>) -> Result<Codes> {
        let mut data = vec![0u8; rows.len() * self.facts.bits.div_ceil(8)];
        self.each_block(&Pool::current(), rows, &mut data, &mut [], &mut [], |_, _, _| {})?;
        Ok(Codes::new(self.facts.bits, self.id, data))
    }

    /// Whether codes with factors can be made: the model was fitted with a sample of rows.
    pub fn has_factors(&self) -> bool {
        self.scales.is_some()
    }

    /// Bytes of the factors of a code: one, two for models of an earlier time, 0 where there are none.
    pub fn factor_bytes(&self) -> usize {
        self.scales.map_or(0, |scales| scales.bytes())
    }

    pub(crate) fn scales(&self) -> Option<Scales> {
        self.scales
    }

    /// Codes with a byte of factors beside each (two for models of an earlier time), for [`Ranking::Estimated`](crate::Ranking::Estimated).
    pub fn encode_with_factors<T: Element>(&self, rows: Rows<'_, T>) -> Result<Codes> {
        let advice = "fit the model from a sketch with a reservoir of rows";
        let scales = self.scales.ok_or_else(|| estimator::missing("the model", advice))?;
        let mut data = vec![0u8; rows.len() * self.facts.bits.div_ceil(8)];
        let width = scales.bytes();
        let mut beside = vec![0u8; rows.len() * width];
        let (share, residual) = (share(self.facts.method, self.facts.bits), scales.residual());
        let work = |norm, projections: &[f32], out: &mut [u8]| {
            scales.encode(Factors::new(norm, projections, share, residual), out);
        };
        self.each_block(&Pool::current(), rows, &mut data, &mut beside, &mut [], work)?;
        let mut codes = Codes::new(self.facts.bits, self.id, data);
        codes.factors = Some(FactorColumn { bytes: width, data: beside.into() });
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

    /// Encodes rows block by block, on the threads of `pool`. Where `factors` has room, `work` gets each
    /// row's squared length and projections and fills its bytes; where `values` has, they are kept, the
    /// squared length last.
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
        // A few tasks for each thread, so that buffers are made seldom.
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
        let as_they_are = self.facts.metric == Metric::L2 && self.offset.is_empty();
        let plain = factors.is_empty() && values.is_empty();
        let width = self.factor_bytes().max(1);
        let (mut buffer, mut projections) = (Vec::new(), Vec::new());
        for (b, out) in out.chunks_mut(ENCODE_ROWS * bytes).enumerate() {
            let first = b * ENCODE_ROWS;
            let block = rows.slice(first..first + out.len() / bytes);
            let loaded = match T::as_f32(block.as_slice()) {
                Some(values) if as_they_are => {
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

    /// W with `dim` rows and `bits` columns, row after row: how files hold it.
    pub(crate) fn projection(&self) -> Vec<f32> {
        let (dim, bits) = (self.facts.dim, self.facts.bits);
        let mut w = vec![0f32; dim * bits];
        MatMut::from_row_major_slice_mut(&mut w, dim, bits)
            .copy_from(MatRef::from_column_major_slice(&self.directions, dim, bits));
        w
    }
}
