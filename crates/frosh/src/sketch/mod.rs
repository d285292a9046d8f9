//! Learning: one pass over rows, in memory that does not grow with their number.
//!
//! | type | is |
//! |---|---|
//! | [`Config`] | how to learn: dimension, [`Method`], rows of the sketch, seed, worker, threads |
//! | [`Sketcher`] | the learner: takes batches of any size; its state can be saved and goes on bit for bit |
//! | [`Sketch`] | what was learned: merges with others, saves, makes [`Hasher`](crate::Hasher)s |
//! | [`Certificate`] | what is certain about the error of a sketch |
//!
//! The stages of the paper are files of this folder: centring, compression (SRHT or sparse embedding), frequent directions, and,
//! not in the paper, a reservoir of sampled rows.
//!
//! **Algorithm 3 (DFROSH)** is [`Sketch::merge`]: every worker sends its rows B_i, mean mu_i and count
//! n_i; the centre inserts all B_i into one sketch of frequent directions, with one row more for each
//! step between means, `sqrt(tau n_i / (tau + n_i)) (mu_i - phi)`. The scatter of the parts and these
//! rows add up to the scatter of the whole, exactly.
//!
//! **Where we differ.** Workers flush what waits before they send. Inputs are taken in the order of
//! their worker numbers, so that the order of arguments does not matter. Sketches of different sizes
//! merge to the smallest of them.
//!
//! **Guarantee.** [`Sketch::certificate`]: frequent directions lost at most the mass removed, in any
//! direction; merging adds up the parts. Compression before it is bounded in probability only.
//!
//! **Cost.** A merge is O(d l^2) for each sketch after the first.

mod blocks;
pub(crate) mod centering;
pub(crate) mod compression;
pub(crate) mod config;
pub(crate) mod frequent_directions;
pub(crate) mod reservoir;
mod serialization;
pub(crate) mod sketcher;

pub use config::{Config, Method};
pub use frequent_directions::ShrinkIndex;
pub use sketcher::Sketcher;

use crate::error::{Error, Result};
use crate::linalg;
use crate::pool::Pool;
use crate::random::{Purpose, Stream};
use crate::rows::Metric;
use crate::sketch::frequent_directions::{FrequentDirections, square_norm};
use crate::sketch::reservoir::Reservoir;
use faer::linalg::matmul::matmul;
use faer::{Accum, ColMut, Mat, MatMut, MatRef, Par};

/// Most rows that a sketch may say it has seen, so that sums of row counts cannot overflow.
pub(crate) const MAX_ROWS: u64 = 1 << 62;

/// A finished sketch: what was learned from a stream, or from several. It merges (this is DFROSH), saves,
/// makes hashers, and says how far it can be from the data.
#[derive(Clone, Debug)]
pub struct Sketch {
    pub(crate) dim: usize,
    pub(crate) method: Method,
    pub(crate) metric: Metric,
    pub(crate) seed: u64,
    /// Workers whose rows are in it, ascending.
    pub(crate) workers: Vec<u64>,
    pub(crate) block_rows: usize,
    pub(crate) rows: u64,
    /// Whether any rows went through the compression stage.
    pub(crate) compressed: bool,
    pub(crate) mean: Vec<f64>,
    pub(crate) directions: FrequentDirections,
    pub(crate) reservoir: Reservoir,
}

/// How far a sketch can be from the data, as far as that is known for certain.
///
/// With A the (centred, compressed) rows that frequent directions took in and B the sketch,
/// 0 <= A'A - B'B <= `removed` * I.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Certificate {
    /// Most that any direction has lost, in squared length.
    pub removed: f64,
    /// Squared Frobenius norm of what frequent directions took in.
    pub mass: f64,
    /// Whether rows were compressed before: that part's error is bounded in probability only.
    pub compressed: bool,
}

/// The leading principal directions.
pub(crate) struct Principal {
    /// Orthonormal columns, dim x r.
    pub(crate) vectors: Mat<f64>,
    /// Scatter along each, descending.
    pub(crate) values: Vec<f64>,
    /// How many of the columns were learned; the others are random, orthogonal to them.
    pub(crate) rank: usize,
}

impl Sketch {
    /// Rows seen.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Values per row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// How rows are compared.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// Which algorithm learned.
    pub fn method(&self) -> Method {
        self.method
    }

    /// Most rows that the sketch keeps: l of the paper.
    pub fn sketch_rows(&self) -> usize {
        self.directions.capacity()
    }

    /// Rows of a compressed block: m of the paper.
    pub fn block_rows(&self) -> usize {
        self.block_rows
    }

    /// Seed of all randomness.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The workers whose rows are in it, ascending.
    pub fn workers(&self) -> &[u64] {
        &self.workers
    }

    /// Mean of the rows seen.
    pub fn mean(&self) -> &[f64] {
        &self.mean
    }

    /// Rows in the reservoir.
    pub fn reservoir_rows(&self) -> usize {
        self.reservoir.len()
    }

    /// B, the sketch itself: `dim` values for each row in use.
    pub fn sketched(&self) -> &[f32] {
        self.directions.live()
    }

    /// Heap bytes in use.
    pub fn bytes(&self) -> usize {
        self.directions.bytes() + self.reservoir.bytes() + self.dim * 12
    }

    /// What is certain about the error.
    pub fn certificate(&self) -> Certificate {
        Certificate {
            removed: self.directions.removed(),
            mass: self.directions.inserted(),
            compressed: self.compressed,
        }
    }

    /// Estimated scatter along the principal directions, descending: the squared singular values of
    /// the sketch. Frequent directions only ever underestimates, by at most the certificate.
    pub fn spectrum(&self) -> Vec<f64> {
        linalg::eigen(self.gram(&Pool::current()).as_ref())
            .0
            .into_iter()
            .map(|v| v.max(0.0))
            .collect()
    }

    /// For each of `ks`: which share of the sampled rows' scatter about the mean the k leading directions hold;
    /// `None` without a sample. Measured, not estimated from the spectrum, which shrinking makes too small.
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

    /// What `work` makes of each of the first `most` sampled rows less the mean, and of its products with the columns
    /// of `w`.
    pub(crate) fn project_sample<T: Send>(
        &self,
        pool: &Pool,
        most: usize,
        w: MatRef<'_, f32>,
        work: impl Fn(&[f32], &[f32]) -> T + Sync,
    ) -> Vec<T> {
        let parts = self.reservoir.map_parts(pool, &self.mean, most, |rows| {
            let products = products(w, rows);
            let pairs = rows.chunks_exact(w.nrows()).zip(products.chunks_exact(w.ncols()));
            pairs.map(|(row, products)| work(row, products)).collect::<Vec<T>>()
        });
        parts.into_iter().flatten().collect()
    }

    /// The products of the first `most` sampled rows, less the mean, with the columns of `w`: a row for each.
    pub(crate) fn sample_along(&self, pool: &Pool, most: usize, w: MatRef<'_, f32>) -> Mat<f32> {
        let parts = self.reservoir.map_parts(pool, &self.mean, most, |rows| products(w, rows));
        let (all, rows) = (parts.concat(), self.reservoir.len().min(most));
        MatRef::from_row_major_slice(&all, rows, w.ncols()).to_owned()
    }

    /// One sketch of all the rows that the given sketches have seen (DFROSH).
    pub fn merge<'a>(sketches: impl IntoIterator<Item = &'a Sketch>) -> Result<Sketch> {
        let pool = &Pool::current();
        let mut parts: Vec<&Sketch> = sketches.into_iter().collect();
        parts.sort_by(|a, b| a.workers.cmp(&b.workers));
        let Some((first, others)) = parts.split_first() else { return Err(Error::Empty) };
        for other in others {
            first.check_mergeable(other)?;
        }
        let rows = parts.iter().try_fold(0u64, |sum, part| sum.checked_add(part.rows));
        if rows.is_none_or(|rows| rows > MAX_ROWS) {
            let why = format!("together the sketches have seen more than {MAX_ROWS} rows");
            return Err(Error::setting("sketches", parts.len(), why));
        }
        let capacity = parts.iter().map(|p| p.sketch_rows()).min().unwrap_or(2);
        let mut merged = (*first).clone();
        if capacity < first.sketch_rows() {
            merged.directions =
                FrequentDirections::new(first.dim, capacity, first.directions.index());
            merged.insert(pool, first);
        }
        for other in others {
            if merged.rows > 0 && other.rows > 0 {
                merged.step_between_means(pool, other);
            }
            merged.insert(pool, other);
            let share = other.rows as f64 / (merged.rows + other.rows).max(1) as f64;
            for (phi, mu) in merged.mean.iter_mut().zip(&other.mean) {
                *phi += share * (mu - *phi);
            }
            merged.rows += other.rows;
            merged.compressed |= other.compressed;
            merged.workers.extend(&other.workers);
            merged.workers.sort_unstable();
            merged.reservoir.merge(&other.reservoir);
        }
        Ok(merged)
    }

    /// Inserts the sketched rows of another sketch, and takes over what it lost.
    fn insert(&mut self, pool: &Pool, other: &Sketch) {
        let live = other.directions.live();
        self.directions.append(pool, live);
        let kept: f64 = live.chunks_exact(self.dim).map(square_norm).sum();
        let lost = (other.directions.inserted() - kept).max(0.0);
        self.directions.inherit(other.directions.removed(), lost);
    }

    fn step_between_means(&mut self, pool: &Pool, other: &Sketch) {
        let (tau, n) = (self.rows as f64, other.rows as f64);
        let scale = (tau * n / (tau + n)).sqrt();
        let pairs = other.mean.iter().zip(&self.mean);
        let step: Vec<f32> = pairs.map(|(mu, phi)| (scale * (mu - phi)) as f32).collect();
        if self.method != Method::Lsh {
            self.directions.append(pool, &step);
        }
    }

    /// Checks that two sketches can be merged; the error names what differs.
    pub fn check_mergeable(&self, other: &Sketch) -> Result<()> {
        let differ = |what, left: &dyn ToString, right: &dyn ToString| {
            let (left, right) = (left.to_string(), right.to_string());
            if left == right { Ok(()) } else { Err(Error::Merge { what, left, right }) }
        };
        differ("the dimension", &self.dim, &other.dim)?;
        differ("the metric", &self.metric, &other.metric)?;
        differ("the shrink index", &self.directions.index(), &other.directions.index())?;
        // FROSH and OSH learn the same thing; LSH learns no directions at all.
        let learns = |s: &Sketch| if s.method == Method::Lsh { "lsh" } else { "frosh or osh" };
        differ("the method", &learns(self), &learns(other))
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

    /// At most [`WIDTH`] of the sketch's columns, in double precision.
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

    /// The r leading right singular vectors of B, from B as it is (shrinking would change neither
    /// vectors nor order). Where B has fewer, random directions orthogonal to them.
    pub(crate) fn principal(&self, pool: &Pool, r: usize) -> Principal {
        let (eigenvalues, u) = linalg::eigen(self.gram(pool).as_ref());
        let largest = eigenvalues.first().copied().unwrap_or(0.0);
        // Entries are single precision: below this a direction is rounding.
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
        let mut vectors = linalg::mended_q(pool, vectors);
        for j in 0..r {
            fix_sign(vectors.as_mut().col_mut(j));
        }
        let mut values: Vec<f64> = eigenvalues.into_iter().take(rank).collect();
        values.resize(r, 0.0);
        Principal { vectors, values, rank }
    }
}

/// The products of rows with the columns of `w`, row by row.
fn products(w: MatRef<'_, f32>, rows: &[f32]) -> Vec<f32> {
    let (dim, r) = w.shape();
    let n = rows.len() / dim;
    let mut products = vec![0f32; n * r];
    let to = MatMut::from_column_major_slice_mut(&mut products, r, n);
    let columns = MatRef::from_column_major_slice(rows, dim, n);
    matmul(to, Accum::Replace, w.transpose(), columns, 1.0, Par::Seq);
    products
}

/// Columns that are made double precision together.
const WIDTH: usize = 512;

/// The sign of an eigenvector is arbitrary: its largest entry becomes positive.
fn fix_sign(column: ColMut<'_, f64>) {
    let column: &mut [f64] = column.try_as_col_major_mut().map_or(&mut [], |c| c.as_slice_mut());
    let largest = column.iter().fold(0f64, |m, x| if x.abs() > m.abs() { *x } else { m });
    if largest < 0.0 {
        column.iter_mut().for_each(|x| *x = -*x);
    }
}

#[cfg(test)]
mod tests {
    use super::MAX_ROWS;
    use crate::{Config, Method, Pool, Rows, Sketch, Sketcher};

    #[test]
    fn more_rows_than_can_be_counted_are_refused() {
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
