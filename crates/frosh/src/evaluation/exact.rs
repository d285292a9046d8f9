//! Exact neighbours of queries in a stream of rows: the ground truth for evaluations.
//!
//! **Equation** (section 12.1 of `docs/algorithms.md`). The k rows x with the smallest |x - q|^2, ties by row
//! number. Every distance is summed from differences in double precision; for cosine, rows are first multiplied by
//! 1 / length.
//!
//! **Where we differ.** By definition, every pair needs d subtractions in double precision. Here a matrix product in
//! single precision first prunes the pairs that cannot be among the k nearest. With r the
//! mean of the queries, x' and q' the rounded x - r and q - r, p the computed x'.q', X = |x'|, Q = |q'|,
//! u = 2^-24 and g = (d + 4) u / (1 - (d + 4) u):
//!
//! ```text
//! |x'.q' - p|          <= g X Q                      any order of summation, with or without FMA
//! ||x-q|^2 - |x'-q'|^2| <= 2.1 u (X + Q)^2            each value was rounded once
//! |x-q|^2  >=  X^2 + Q^2 - 2p - 2 g X Q - 8 u (X + Q)^2 - 2^-100
//! ```
//!
//! The last line includes the rounding of its own evaluation, and underflow. A pair is pruned if the right-hand
//! side is above the current k-th smallest distance. For all other pairs the distance is computed by definition.
//! So rounding of the product cannot change the result, which is that of a double loop over all pairs. Distances are
//! summed in eight interleaved parts.
//!
//! **Cost.** The product takes 2 d operations a pair. If rows come in random order, the definition is evaluated for about
//! k (1 + 1.1 ln(n / k)) of n rows. In the worst case, where each row is nearer than all before, it is evaluated for
//! all rows. Memory: 12 d + 20 k bytes a query, and blocks of 2 MB.

use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::rows::{self, Element, Metric, Rows};
use crate::search::options::Hit;
use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};

/// Number of queries in a group, which share a matrix product: the bits of the word that marks their candidates.
const GROUP: usize = 64;
/// Number of values in a block of rows, so that it stays in cache while all queries are compared with it.
const BLOCK_VALUES: usize = 1 << 19;
/// Smallest and largest number of rows in a block.
const BLOCK_ROWS: (usize, usize) = (64, 2048);
/// Unit roundoff of single precision.
const UNIT: f64 = 1.0 / (1u64 << 24) as f64;
/// Bound on rounding errors other than the product's, relative to (X + Q)^2.
const ROUNDING: f64 = 8.0 * UNIT;
/// Bound on the error of a product by underflow, 2^-100.
const UNDERFLOW: f64 = 1.0 / (1u128 << 100) as f64;

/// Finds the exact nearest rows of queries in a stream of rows.
///
/// Time: 2 d operations for each pair of query and row. Memory: 12 d + 20 k bytes a query; it does not grow with the
/// stream.
///
/// The first j rows of a result with a larger k are the result for k = j. So if k shall be a share of a stream of unknown
/// length, use a k that is large enough and truncate the lists.
///
/// ```
/// use frosh::{ExactSearch, Metric, Rows};
/// let queries = [0.0f32, 0.0, 5.0, 5.0];
/// let mut search = ExactSearch::new(Rows::new(&queries, 2)?, 2, Metric::L2)?;
/// search.push(Rows::new(&[5.0f32, 4.0, 1.0, 0.0], 2)?)?;
/// search.push(Rows::new(&[0u8, 1, 9, 9], 2)?)?;
/// let hits = search.finish();
/// assert_eq!((hits[0][0].id, hits[0][0].distance), (1, 1.0));
/// assert_eq!((hits[0][1].id, hits[0][1].distance), (2, 1.0));
/// assert_eq!((hits[1][0].id, hits[1][1].id), (0, 3));
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Debug)]
pub struct ExactSearch {
    k: usize,
    dim: usize,
    metric: Metric,
    pool: Pool,
    /// The vector that is subtracted from every row before the product.
    reference: Vec<f32>,
    groups: Vec<Group>,
    block: Block,
    rows: u64,
}

impl ExactSearch {
    /// A search for the `k` nearest rows of each query. It keeps the [current pool](Pool::current).
    ///
    /// # Errors
    ///
    /// [`Error::NotFinite`] or [`Error::TooLarge`] for the first query with a bad value.
    pub fn new<T: Element>(queries: Rows<'_, T>, k: usize, metric: Metric) -> Result<Self> {
        let pool = Pool::current();
        rows::check(&queries)?;
        let (dim, n) = (queries.dim(), queries.len());
        let mut exact = vec![0f64; n * dim];
        let mut mean = vec![0f64; dim];
        for (i, to) in exact.chunks_exact_mut(dim).enumerate() {
            rows::widen(queries.row(i), metric, to);
            mean.iter_mut().zip(to).for_each(|(m, x)| *m += *x / n as f64);
        }
        let reference: Vec<f32> = mean.iter().map(|m| *m as f32).collect();
        // The same number of groups for each thread, of nearly equal size.
        let groups = n.div_ceil(GROUP).next_multiple_of(pool.threads()).max(1);
        let size = n.div_ceil(groups).max(1);
        let mut made = Vec::new();
        for (g, exact) in exact.chunks(size * dim).enumerate() {
            let mut centred = vec![0f32; exact.len()];
            for (i, to) in centred.chunks_exact_mut(dim).enumerate() {
                rows::load(queries.row(g * size + i), 0, metric, &reference, to)?;
            }
            made.push(Group::new(exact.to_vec(), centred, dim, k));
        }
        let (groups, block) = (made, Block::default());
        Ok(Self { k, dim, metric, pool, reference, groups, block, rows: 0 })
    }

    /// Compares the next rows of the stream with the queries. Ids are row numbers in the stream, from 0.
    ///
    /// # Errors
    ///
    /// [`Error::Dimension`] if the rows have another dimension. [`Error::NotFinite`] or [`Error::TooLarge`] if a row has a
    /// bad value; then the rows before it count.
    pub fn push<T: Element>(&mut self, base: Rows<'_, T>) -> Result<()> {
        if base.dim() != self.dim {
            return Err(Error::Dimension { expected: self.dim, got: base.dim() });
        }
        let height = (BLOCK_VALUES / self.dim).clamp(BLOCK_ROWS.0, BLOCK_ROWS.1);
        for first in (0..base.len()).step_by(height) {
            let rows = base.slice(first..(first + height).min(base.len()));
            let (usable, refused) = self.load(&rows);
            let rows = rows.slice(0..usable);
            let (id, metric, block) = (self.rows, self.metric, &self.block);
            self.pool.each(self.groups.iter_mut().collect(), |g| g.meet(&rows, id, metric, block));
            self.rows += usable as u64;
            if let Some(refused) = refused {
                return Err(refused.shift_row(first));
            }
        }
        Ok(())
    }

    /// Loads a block. Returns the number of rows before the first bad one, and the error for that row.
    fn load<T: Element>(&mut self, rows: &Rows<'_, T>) -> (usize, Option<Error>) {
        let (dim, metric, reference) = (self.dim, self.metric, &self.reference);
        let Block { values, lengths, squares } = &mut self.block;
        values.resize(rows.len() * dim, 0.0);
        lengths.resize(rows.len(), 0.0);
        squares.resize(rows.len(), 0.0);
        let size = rows.len().div_ceil(2 * self.pool.threads()).max(1);
        let mut refused: Vec<Option<Error>> = lengths.chunks(size).map(|_| None).collect();
        let parts = values.chunks_mut(size * dim).zip(lengths.chunks_mut(size));
        let jobs = parts.zip(squares.chunks_mut(size)).zip(&mut refused).enumerate().collect();
        self.pool.each(jobs, |(job, (((values, lengths), squares), refused))| {
            for (i, to) in values.chunks_exact_mut(dim).enumerate() {
                let number = job * size + i;
                if let Err(error) = rows::load(rows.row(number), number, metric, reference, to) {
                    *refused = Some(error);
                    return;
                }
                let square = rows::square_norm(to);
                lengths[i] = square.sqrt() as f32;
                squares[i] = ((square * (1.0 - ROUNDING) - UNDERFLOW) as f32).next_down();
            }
        });
        let first = refused.into_iter().flatten().next();
        match &first {
            Some(Error::NotFinite { row, .. } | Error::TooLarge { row, .. }) => (*row, first),
            _ => (rows.len(), first),
        }
    }

    /// Number of rows so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The nearest rows of each query in the order of (distance, id); fewer than k if the stream had fewer
    /// rows. Distances are squared Euclidean distances; for cosine, of the rows scaled to length 1, which is 2 - 2 cos.
    pub fn finish(mut self) -> Vec<Vec<Hit>> {
        let best = self.groups.iter_mut().flat_map(|g| &mut g.best).collect();
        self.pool.each(best, |best: &mut Best| {
            best.prune(self.k);
            best.found.sort_unstable();
        });
        self.groups.into_iter().flat_map(|g| g.best).map(|best| best.found).collect()
    }
}

/// A block of base rows, prepared for the product.
#[derive(Debug, Default)]
struct Block {
    /// The centred rows x'.
    values: Vec<f32>,
    /// X of each row.
    lengths: Vec<f32>,
    /// The part of the lower bound that depends on the row only, rounded down.
    squares: Vec<f32>,
}

/// The nearest rows of one query so far.
#[derive(Debug)]
struct Best {
    /// Candidates, which include the k nearest rows.
    found: Vec<Hit>,
    /// Rows at this distance or farther cannot be among the k nearest.
    limit: f64,
}

impl Best {
    fn offer(&mut self, distance: f64, id: u64, k: usize) {
        // A row at the limit is after k candidates, which are at most as far and have smaller ids.
        if distance < self.limit {
            self.found.push(Hit { distance, id });
            // A larger margin would prune less often but keep the limit too high for longer.
            if self.found.len() >= k.saturating_add(k / 4 + 32) {
                self.prune(k);
            }
        }
    }

    fn prune(&mut self, k: usize) {
        if k > 0 && self.found.len() > k {
            let (_, last, _) = self.found.select_nth_unstable(k - 1);
            self.limit = last.distance;
            self.found.truncate(k);
        }
    }
}

/// A group of at most [`GROUP`] queries, which are compared with each block together.
#[derive(Debug)]
struct Group {
    k: usize,
    dim: usize,
    /// The queries in double precision.
    exact: Vec<f64>,
    /// The centred queries q' for the product.
    centred: Vec<f32>,
    /// Q of each query.
    lengths: Vec<f64>,
    best: Vec<Best>,
    product: Vec<f32>,
    /// For each row of the block: a bit for each query whose pair is not pruned.
    near: Vec<u64>,
    /// One row in double precision.
    row: Vec<f64>,
}

impl Group {
    fn new(exact: Vec<f64>, centred: Vec<f32>, dim: usize, k: usize) -> Self {
        let lengths: Vec<f64> =
            centred.chunks_exact(dim).map(|q| rows::square_norm(q).sqrt()).collect();
        let limit = if k == 0 { f64::NEG_INFINITY } else { f64::INFINITY };
        let best = lengths.iter().map(|_| Best { found: Vec::new(), limit }).collect();
        let (product, near, row) = (Vec::new(), Vec::new(), vec![0.0; dim]);
        Self { k, dim, exact, centred, lengths, best, product, near, row }
    }

    /// Compares a block of rows with the queries; `id` is the number of its first row.
    fn meet<T: Element>(&mut self, rows: &Rows<'_, T>, id: u64, metric: Metric, block: &Block) {
        let dim = self.dim;
        self.rule_out(rows.len(), block);
        for (i, near) in self.near.iter().enumerate().filter(|(_, near)| **near != 0) {
            rows::widen(rows.row(i), metric, &mut self.row);
            let mut near = *near;
            while near != 0 {
                let q = near.trailing_zeros() as usize;
                near &= near - 1;
                let distance = square_distance(&self.row, &self.exact[q * dim..(q + 1) * dim]);
                self.best[q].offer(distance, id + i as u64, self.k);
            }
        }
    }

    /// Marks the pairs of the first `n` rows of the block that cannot be pruned.
    fn rule_out(&mut self, n: usize, block: &Block) {
        let (dim, queries) = (self.dim, self.best.len());
        self.product.resize(n * queries, 0.0);
        self.near.clear();
        self.near.resize(n, 0);
        matmul(
            MatMut::from_column_major_slice_mut(&mut self.product, n, queries),
            Accum::Replace,
            MatRef::from_row_major_slice(&block.values[..n * dim], n, dim),
            MatRef::from_column_major_slice(&self.centred, dim, queries),
            1.0,
            Par::Seq,
        );
        let rounded = (dim + 4) as f64 * UNIT;
        let gamma = if rounded < 0.5 { rounded / (1.0 - rounded) } else { f64::INFINITY };
        for (q, product) in self.product.chunks_exact(n.max(1)).enumerate() {
            let length = self.lengths[q];
            let slope = ((2.0 * (gamma + ROUNDING) * length) as f32).next_up();
            let limit = self.best[q].limit - length * length * (1.0 - ROUNDING);
            let limit = (limit as f32).next_up();
            let rows = product.iter().zip(&block.lengths).zip(&block.squares);
            for (near, ((p, length), square)) in self.near.iter_mut().zip(rows) {
                // NaN compares false, so such a pair is not pruned.
                let far = square - slope * length - 2.0 * p > limit;
                *near |= u64::from(!far) << q;
            }
        }
    }
}

/// |x - q|^2, by definition.
pub(crate) fn square_distance(x: &[f64], q: &[f64]) -> f64 {
    let (x, x_rest) = x.as_chunks::<8>();
    let (q, q_rest) = q.as_chunks::<8>();
    let mut parts = [0f64; 8];
    for (x, q) in x.iter().zip(q) {
        for i in 0..8 {
            parts[i] += (x[i] - q[i]) * (x[i] - q[i]);
        }
    }
    let rest: f64 = x_rest.iter().zip(q_rest).map(|(x, q)| (x - q) * (x - q)).sum();
    parts.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests;
