//! Learning and merging: one pass over rows, in memory that does not grow with their number.
//!
//! | type | purpose |
//! |---|---|
//! | [`Config`] | settings: dimension, [`Method`], sketch rows, metric, seed, worker number |
//! | [`Method`] | the algorithm: FROSH, FROSH with a sparse embedding, OSH or LSH |
//! | [`Sketcher`] | the learner: takes batches of any size; can be saved and resumed bit for bit |
//! | [`Sketch`] | the result: merges with other sketches, saves, makes [`Hasher`](crate::Hasher)s |
//! | [`Certificate`] | a bound on the error of a sketch |
//! | [`ShrinkIndex`] | which singular value a shrink subtracts |
//!
//! | file | stage | paper |
//! |---|---|---|
//! | `run.rs`, `run/intake.rs` | the loop over blocks | Algorithm 1 |
//! | `sketcher.rs`, `runs.rs` | the stream in runs, which threads learn from in parallel | |
//! | `centering.rs` | centring by the running mean | Algorithm 1 |
//! | `compression/` | SRHT (`srht.rs`) or sparse embedding (`sparse_embedding.rs`) of a block; block sizes | Algorithm 2, section 3.3 |
//! | `frequent_directions/` | the buffer B and its shrink | Algorithm 2 |
//! | `blocks.rs` | two blocks compressed in parallel | |
//! | `decay.rs` | weights that fall with the age of a row | |
//! | `reservoir.rs` | a sample of rows, uniform unless there is decay | |
//! | `mod.rs` | [`Sketch`], merging, principal directions | Algorithm 3 |
//! | `serialization.rs` | file contents | |
//!
//! # Definitions
//!
//! A are the n rows of d values, mu is their mean, and the *scatter* is (A - mu)'(A - mu). The sketch B has at
//! most l rows, and B'B approximates the scatter. For each block of m rows:
//!
//! ```text
//! centre      g_i = y_i - c sum(y),   y_i = x_i - phi,   c = (1 - sqrt(tau / (tau + m))) / m
//! compress    F = Phi G               Phi is q x m with q = l/2 and E[Phi'Phi] = I
//! append      F to B
//! shrink      B <- sqrt(max(S^2 - delta I, 0)) V',   B = U S V',   delta = s_{l/2+1}^2     when B is full
//! ```
//!
//! Here tau is the number of rows before the block and phi is their mean. OSH leaves out the compression. LSH
//! learns only the mean.
//!
//! # Merging (DFROSH)
//!
//! [`Sketch::merge`] is Algorithm 3. Worker i provides its rows B_i, mean mu_i and row count n_i. The merge inserts all
//! B_i into one buffer of frequent directions. For each worker after the first it also inserts the row
//!
//! ```text
//! sqrt(tau n_i / (tau + n_i)) (mu_i - phi)
//! ```
//!
//! with tau and phi the row count and mean of the workers before it. The scatters of the parts and of these rows
//! add up to the scatter of all rows, exactly.
//!
//! # Guarantee
//!
//! Frequent directions removes at most Delta, the sum of all deltas, from the squared length along any direction.
//! [`Sketch::certificate`] returns Delta. Merging adds the Deltas of the parts. The error of compression is
//! bounded in probability only.
//!
//! # Differences from the paper
//!
//! - A block of h rows is centred without the paper's extra row; the Gram matrix is the same.
//! - Blocks start at fixed row numbers. So the cut into batches does not change the result.
//! - Blocks grow with the stream up to m rows, unless the caller sets m. So short streams are not compressed in one
//!   or two large blocks.
//! - A shrink subtracts the (l/2 + 1)-th squared singular value; the paper prints the (l/2)-th, which leaves one
//!   direction too few.
//! - Workers flush rows that wait in an unfinished block. Sketches are merged in the order of their worker numbers,
//!   then of their content, so the order of arguments does not matter. Sketches of different l merge to the smallest l.
//!
//! `docs/algorithms.md` in the repository has the derivations (sections 2 to 7) and an errata list (section 14).
//!
//! # Cost
//!
//! Learning takes O(n d log l + n d l^2 / m) time for FROSH and O(n d l) for OSH, and at most 3 l d floats plus the
//! sample. A merge takes O(d l^2) for each sketch after the first.

mod blocks;
pub(crate) mod centering;
pub(crate) mod compression;
pub(crate) mod config;
pub(crate) mod decay;
pub(crate) mod frequent_directions;
mod merge;
pub(crate) mod reservoir;
pub(crate) mod rounding;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod sketcher;

pub use config::{Config, Method};
pub use frequent_directions::ShrinkIndex;
pub use runs::{Finished, RangeRows};
pub use sketcher::Sketcher;

use crate::linalg;
use crate::pool::Pool;
use crate::random::{Purpose, Stream};
use crate::rows::Metric;
use crate::sketch::decay::Decay;
use crate::sketch::frequent_directions::{FrequentDirections, square_norm};
use crate::sketch::reservoir::{PART_ROWS, Reservoir};
use faer::linalg::matmul::matmul;
use faer::{Accum, ColMut, Mat, MatMut, MatRef, Par};
use std::ops::Range;

/// Largest row count of a sketch. Larger counts are rejected so that sums of row counts cannot overflow.
pub(crate) const MAX_ROWS: u64 = 1 << 62;

/// The result of learning from one stream, or from several that were merged (DFROSH).
///
/// A sketch holds the sketched rows B, the mean, the row count and a sample of rows. It makes
/// [`Hasher`](crate::Hasher)s, saves, merges with other sketches, and bounds its error
/// ([`certificate`](Sketch::certificate)).
///
/// Memory: l d floats for B, 12 d bytes for the mean and the origin of the sample, s (2 d + 28) bytes for s sampled
/// rows.
///
/// ```
/// use frosh::{Config, Rows, Sketch, Sketcher};
/// # let data: Vec<f32> = (0..16 * 500).map(|i| ((i * i) % 97) as f32).collect();
/// let mut sketcher = Sketcher::new(Config::new(16))?;
/// sketcher.push(Rows::new(&data, 16)?)?;
/// let sketch = sketcher.finish();
/// assert_eq!((sketch.rows(), sketch.dim()), (500, 16));
///
/// let bytes = sketch.to_bytes(); // or sketch.save("x.sketch")?
/// assert_eq!(Sketch::from_bytes(&bytes)?.mean(), sketch.mean());
/// let hasher = sketch.hasher(8)?;
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Sketch {
    pub(crate) dim: usize,
    pub(crate) method: Method,
    pub(crate) metric: Metric,
    pub(crate) seed: u64,
    /// Numbers of the workers whose rows it holds, ascending.
    pub(crate) workers: Vec<u64>,
    pub(crate) block_rows: usize,
    pub(crate) rows: u64,
    /// Rows that the caller left out.
    pub(crate) left_out: u64,
    /// Whether any rows went through the compression stage.
    pub(crate) compressed: bool,
    /// Half-life, clock and weight, if older rows count less.
    pub(crate) decay: Option<Decay>,
    pub(crate) mean: Vec<f64>,
    pub(crate) directions: FrequentDirections,
    pub(crate) reservoir: Reservoir,
}

/// A bound on the error of a sketch, which holds for every input.
///
/// Let A be the rows that were inserted into frequent directions, after centring and compression, and B the sketch.
/// Then 0 <= A'A - B'B <= `removed` * I. With a half-life, A are the rows times the roots of their weights. This holds
/// up to rounding of about 1e-7 times the root of the number of shrinks.
///
/// ```
/// use frosh::{Config, Method, Rows, Sketcher};
/// # let data: Vec<f32> = (0..16 * 500).map(|i| ((i * i) % 97) as f32).collect();
/// let mut sketcher = Sketcher::new(Config::new(16).sketch_rows(16).method(Method::Osh))?;
/// sketcher.push(Rows::new(&data, 16)?)?;
/// let certificate = sketcher.finish().certificate();
/// let relative = certificate.removed / certificate.mass;
/// assert!(relative <= 1.0 / 9.0); // at most 1 / (l/2 + 1)
/// assert!(!certificate.compressed); // OSH does not compress
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Certificate {
    /// Delta: the largest possible loss along any unit direction, in squared length.
    pub removed: f64,
    /// Squared Frobenius norm of the rows that were inserted into frequent directions.
    pub mass: f64,
    /// Whether rows were compressed before they were inserted. The error of the compression is bounded in probability
    /// only, and is not part of `removed`.
    pub compressed: bool,
}

/// The leading principal directions.
pub(crate) struct Principal {
    /// Orthonormal columns, dim x r.
    pub(crate) vectors: Mat<f64>,
    /// Scatter along each column, descending.
    pub(crate) values: Vec<f64>,
    /// Number of learned columns. The remaining columns are random and orthogonal to them.
    pub(crate) rank: usize,
}

impl Sketch {
    /// Number of rows that were learned from.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Number of rows that the caller left out because they could not be used: see
    /// [`with_left_out`](Sketch::with_left_out).
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Notes the number of rows that were left out. It is saved with the sketch, and merging adds the numbers up.
    pub fn with_left_out(mut self, rows: u64) -> Self {
        self.left_out = rows;
        self
    }

    /// Values per row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// How rows are compared.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// The algorithm that learned it.
    pub fn method(&self) -> Method {
        self.method
    }

    /// Capacity of the sketch in rows: l of the paper.
    pub fn sketch_rows(&self) -> usize {
        self.directions.capacity()
    }

    /// Rows of the largest compressed block: m of the paper.
    pub fn block_rows(&self) -> usize {
        self.block_rows
    }

    /// Seed of all randomness.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Numbers of the workers whose rows it holds, ascending.
    pub fn workers(&self) -> &[u64] {
        &self.workers
    }

    /// Mean of all rows.
    pub fn mean(&self) -> &[f64] {
        &self.mean
    }

    /// Number of sampled rows.
    pub fn reservoir_rows(&self) -> usize {
        self.reservoir.len()
    }

    /// The sketched rows B that are in use, row after row, `dim` values each.
    pub fn sketched(&self) -> &[f32] {
        self.directions.live()
    }

    /// Heap bytes in use.
    pub fn bytes(&self) -> usize {
        self.directions.bytes() + self.reservoir.bytes() + self.dim * 12
    }

    /// The bound on the error of the sketch.
    pub fn certificate(&self) -> Certificate {
        Certificate {
            removed: self.directions.removed(),
            mass: self.directions.inserted(),
            compressed: self.compressed,
        }
    }

    /// Estimated scatter along the principal directions, descending: the squared singular values of B.
    /// Frequent directions underestimates each value by at most [`Certificate::removed`]. O(d l^2 + l^3) time.
    pub fn spectrum(&self) -> Vec<f64> {
        linalg::eigen(self.gram(&Pool::current()).as_ref())
            .0
            .into_iter()
            .map(|v| v.max(0.0))
            .collect()
    }

    /// For each k of `ks`: the share of the sampled rows' scatter that lies along the k leading directions.
    ///
    /// `None` if `ks` is empty, without a sample, and for LSH. The share is measured on the sampled rows, because the
    /// shrinks make [`spectrum`](Sketch::spectrum) too small. O(d l^2 + s d k) time for s sampled rows.
    ///
    /// ```
    /// use frosh::{Config, Rows, Sketcher};
    /// // Nearly all variance lies in the first of four columns.
    /// let data: Vec<f32> = (0..400).map(|i| ((i * 37) % 101) as f32 / [1.0, 50.0, 50.0, 50.0][i % 4]).collect();
    /// let mut sketcher = Sketcher::new(Config::new(4))?;
    /// sketcher.push(Rows::new(&data, 4)?)?;
    /// let shares = sketcher.finish().captured_energy(&[1, 4]).unwrap();
    /// assert!(shares[0] > 0.99 && shares[1] > 0.9999);
    /// # Ok::<(), frosh::Error>(())
    /// ```
    pub fn captured_energy(&self, ks: &[usize]) -> Option<Vec<f64>> {
        let most = ks.iter().copied().max()?.min(self.dim);
        if self.reservoir.len() == 0 || self.method == Method::Lsh {
            return None;
        }
        let pool = &Pool::current();
        let vectors = self.principal(pool, most).vectors;
        let vectors = linalg::single(vectors.as_ref());
        let (mut total, mut shares) = (0f64, vec![0f64; most]);
        let squares = |along: &[f32]| along.iter().map(|x| x * x).collect::<Vec<f32>>();
        let work = |row: &[f32], along: &[f32]| (square_norm(row), squares(along));
        for (square, along) in self.project_sample(pool, usize::MAX, vectors.as_ref(), work) {
            total += square;
            shares.iter_mut().zip(along).for_each(|(s, x)| *s += f64::from(x));
        }
        let share = |k: usize| shares[..k.min(most)].iter().sum::<f64>() / total;
        Some(ks.iter().map(|k| if total > 0.0 { share(*k) } else { 0.0 }).collect())
    }

    /// Sampled rows that are held out of every fit, to measure what was fitted. They come first in the sample.
    pub(crate) fn held_out(&self) -> usize {
        let sampled = self.reservoir.len();
        if sampled < MIN_HELD_OUT_SAMPLE { 0 } else { MAX_HELD_OUT.min(sampled / 8) }
    }

    /// The first `most` sampled rows that fits use, at most [`MAX_FIT_ROWS`].
    pub(crate) fn fit_rows(&self, most: usize) -> Range<usize> {
        let first = self.held_out();
        let count = (self.reservoir.len() - first).min(most).min(MAX_FIT_ROWS);
        first..first + count
    }

    /// Calls `work` on each of the first `most` rows that fits use: with the row minus the mean, and its products with the
    /// columns of `w`. Returns the results in the order of the sample.
    pub(crate) fn project_sample<T: Send>(
        &self,
        pool: &Pool,
        most: usize,
        w: MatRef<'_, f32>,
        work: impl Fn(&[f32], &[f32]) -> T + Sync,
    ) -> Vec<T> {
        let range = self.fit_rows(most);
        let parts = self.reservoir.map_parts(pool, &self.mean, range, |rows| {
            let products = products(w, rows);
            let pairs = rows.chunks_exact(w.nrows()).zip(products.chunks_exact(w.ncols()));
            pairs.map(|(row, products)| work(row, products)).collect::<Vec<T>>()
        });
        parts.into_iter().flatten().collect()
    }

    /// The products of the first `most` rows that fits use, minus the mean, with the columns of `w`: one row for each
    /// sampled row.
    pub(crate) fn sample_along(&self, pool: &Pool, most: usize, w: MatRef<'_, f32>) -> Mat<f32> {
        let part = self.reservoir.part(&self.mean, self.fit_rows(most));
        let mut along = Mat::zeros(part.len(), w.ncols());
        pool.each(linalg::row_pieces(along.as_mut(), PART_ROWS), |(from, to)| {
            let count = to.nrows();
            let mut rows = vec![0f32; count * self.dim];
            let rows = part.read(from..from + count, 0..self.dim, &mut rows);
            let rows = MatRef::from_row_major_slice(rows, count, self.dim);
            matmul(to, Accum::Replace, rows, w, 1.0, Par::Seq);
        });
        along
    }

    /// The lower triangle of B B', in double precision.
    fn gram(&self, pool: &Pool) -> Mat<f64> {
        let n = self.directions.filled();
        let mut gram = Mat::zeros(n, n);
        let mut chunk = vec![0f64; n * WIDTH];
        for from in (0..self.dim).step_by(WIDTH) {
            linalg::add_gram(pool, gram.as_mut(), self.columns(from, &mut chunk));
        }
        gram
    }

    /// At most [`WIDTH`] columns of B from column `from` on, in double precision.
    fn columns<'a>(&self, from: usize, chunk: &'a mut [f64]) -> MatRef<'a, f64> {
        let (n, d) = (self.directions.filled(), self.dim);
        let w = WIDTH.min(d - from);
        let rows = self.directions.live().chunks_exact(d);
        for (to, row) in chunk.chunks_exact_mut(w).zip(rows) {
            for (t, x) in to.iter_mut().zip(&row[from..from + w]) {
                *t = f64::from(*x);
            }
        }
        MatRef::from_row_major_slice(&chunk[..n * w], n, w)
    }

    /// The r leading right singular vectors of B, without a shrink first, which would change neither the vectors nor
    /// their order. If B has a lower rank, the remaining vectors are random and orthogonal to them.
    pub(crate) fn principal(&self, pool: &Pool, r: usize) -> Principal {
        let (eigenvalues, u) = linalg::eigen(self.gram(pool).as_ref());
        let largest = eigenvalues.first().copied().unwrap_or(0.0);
        // Entries are single precision: a direction with a smaller value is rounding error.
        let noise = largest * 1e-12;
        let rank = eigenvalues.iter().take(r).filter(|v| **v > noise).count();
        let mut vectors = Mat::<f64>::zeros(self.dim, r);
        if rank > 0 {
            let mut map = u.subcols(0, rank).to_owned();
            for (j, value) in eigenvalues[..rank].iter().enumerate() {
                map.col_mut(j).iter_mut().for_each(|x| *x /= value.sqrt());
            }
            let parts = linalg::row_pieces(vectors.as_mut().subcols_mut(0, rank), WIDTH);
            pool.each(parts, |(from, to)| {
                let mut chunk = vec![0f64; self.directions.filled() * WIDTH];
                let chunk = self.columns(from, &mut chunk);
                matmul(to, Accum::Replace, chunk.transpose(), map.as_ref(), 1.0, Par::Seq);
            });
        }
        if rank < r {
            let mut stream = Stream::new(self.seed, Purpose::Rotation, 0, 1);
            for j in rank..r {
                vectors.col_mut(j).iter_mut().for_each(|x| *x = stream.normal());
            }
        }
        let mut vectors = linalg::reorthonormalized(pool, vectors);
        for j in 0..r {
            fix_sign(vectors.as_mut().col_mut(j));
        }
        let mut values: Vec<f64> = eigenvalues.into_iter().take(rank).collect();
        values.resize(r, 0.0);
        Principal { vectors, values, rank }
    }
}

/// The products of rows with the columns of `w`, row after row.
pub(crate) fn products(w: MatRef<'_, f32>, rows: &[f32]) -> Vec<f32> {
    let (dim, r) = w.shape();
    let n = rows.len() / dim;
    let mut products = vec![0f32; n * r];
    let to = MatMut::from_column_major_slice_mut(&mut products, r, n);
    let columns = MatRef::from_column_major_slice(rows, dim, n);
    matmul(to, Accum::Replace, w.transpose(), columns, 1.0, Par::Seq);
    products
}

/// Columns that are converted to double precision at a time.
const WIDTH: usize = 512;
/// Sampled rows that a fit uses at most. More rows would cost time and improve little.
const MAX_FIT_ROWS: usize = 4096;
/// Sampled rows that are held out at most; none of a sample smaller than [`MIN_HELD_OUT_SAMPLE`].
const MAX_HELD_OUT: usize = 512;
const MIN_HELD_OUT_SAMPLE: usize = 1024;

/// Fixes the arbitrary sign of an eigenvector: its largest entry becomes positive.
fn fix_sign(column: ColMut<'_, f64>) {
    let column: &mut [f64] = column.try_as_col_major_mut().map_or(&mut [], |c| c.as_slice_mut());
    let largest = column.iter().fold(0f64, |m, x| if x.abs() > m.abs() { *x } else { m });
    if largest < 0.0 {
        column.iter_mut().for_each(|x| *x = -*x);
    }
}

// At the end, so that the documentation lists `save` and `load` after the other methods.
mod serialization;

#[cfg(test)]
mod tests {
    use super::MAX_ROWS;
    use crate::{Config, Method, Pool, Rows, Sketch, Sketcher};

    #[test]
    fn row_counts_above_the_limit_are_rejected() {
        let mut sketcher = Sketcher::new(Config::new(3)).unwrap();
        sketcher.push(Rows::new(&[1f32, 2.0, 3.0, 4.0, 5.0, 7.0], 3).unwrap()).unwrap();
        let mut sketch = sketcher.finish();
        sketch.rows = MAX_ROWS / 4;
        let merged = Sketch::merge([&sketch; 4]).unwrap();
        assert_eq!(merged.rows(), MAX_ROWS);
        for many in [5, 40] {
            let error = Sketch::merge(vec![&sketch; many]).unwrap_err().to_string();
            assert!(error.contains(&MAX_ROWS.to_string()), "{error}");
        }
    }

    fn data(seed: usize, n: usize, dim: usize) -> Vec<f32> {
        (0..n * dim).map(|e| (((e + seed) * (e + 31 * seed)) % 1009) as f32 / 64.0).collect()
    }

    #[test]
    fn worker_numbers_from_rows_do_not_depend_on_batches_types_or_saving() {
        let (n, dim) = (700, 12);
        let rows = data(1, n, dim);
        let config = Config::new(dim).sketch_rows(8).worker_from_rows();
        let mut whole = Sketcher::new(config.clone()).unwrap();
        whole.push(Rows::new(&rows, dim).unwrap()).unwrap();
        let whole = whole.finish();
        assert_ne!(whole.workers(), [0]);
        // Saved before the first row, in small batches, as doubles, after a first row that was refused.
        let empty = Sketcher::new(config.clone()).unwrap().to_bytes();
        let mut parts = Sketcher::from_bytes(&empty).unwrap();
        assert!(parts.push(Rows::new(&vec![f32::NAN; dim], dim).unwrap()).is_err());
        for batch in rows.chunks(5 * dim) {
            let batch: Vec<f64> = batch.iter().map(|x| f64::from(*x)).collect();
            parts.push(Rows::new(&batch, dim).unwrap()).unwrap();
            parts = Sketcher::from_bytes(&parts.to_bytes()).unwrap();
        }
        assert_eq!(parts.finish().to_bytes(), whole.to_bytes());
        // The number is the only thing that is taken from the rows.
        let mut given = Sketcher::new(config.worker(whole.workers()[0])).unwrap();
        given.push(Rows::new(&rows, dim).unwrap()).unwrap();
        assert_eq!(given.finish().to_bytes(), whole.to_bytes());
    }

    #[test]
    fn the_order_of_arguments_does_not_matter_for_sketches_of_the_same_worker() {
        let dim = 10;
        let part = |seed: usize| {
            // The first rows are equal, and so are the row counts.
            let mut rows = vec![1.0; dim];
            rows.extend(data(seed, 300, dim));
            let mut sketcher =
                Sketcher::new(Config::new(dim).sketch_rows(6).worker_from_rows()).unwrap();
            sketcher.push(Rows::new(&rows, dim).unwrap()).unwrap();
            sketcher.finish().with_left_out(seed as u64)
        };
        let (a, b, c) = (part(1), part(2), part(3));
        assert_eq!(a.workers(), b.workers());
        let merged = Sketch::merge([&a, &b, &c]).unwrap();
        assert_eq!((merged.rows(), merged.left_out()), (903, 6));
        for order in [[&b, &a, &c], [&c, &b, &a], [&b, &c, &a]] {
            assert_eq!(Sketch::merge(order).unwrap().to_bytes(), merged.to_bytes());
        }
        assert_eq!(Sketch::from_bytes(&merged.to_bytes()).unwrap().left_out(), 6);
    }

    #[test]
    fn directions_are_orthonormal_before_they_are_rounded() {
        let dim = 40;
        // A steep spectrum, and fewer independent rows than directions in the second case.
        for (n, method) in [(500, Method::Frosh), (7, Method::Frosh), (500, Method::Osh)] {
            let data: Vec<f32> = (0..n * dim)
                .map(|e| ((e * e) % 1009) as f32 / (1.0 + (e % dim) as f32).powi(4))
                .collect();
            let config = Config::new(dim).sketch_rows(48).block_rows(64).method(method);
            let mut sketcher = Sketcher::new(config).unwrap();
            sketcher.push(Rows::new(&data, dim).unwrap()).unwrap();
            let w = sketcher.finish().principal(&Pool::ONE, 24).vectors;
            let gram = w.transpose() * &w;
            for i in 0..24 {
                for j in 0..24 {
                    let want = f64::from(u8::from(i == j));
                    assert!((gram[(i, j)] - want).abs() <= 1e-10, "{method:?} n={n} {i} {j}");
                }
            }
        }
    }
}
