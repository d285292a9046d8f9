//! Frequent directions: a buffer B of l rows whose Gram matrix approximates that of all inserted rows A.
//!
//! **Equation** (lines 8 to 12 of Algorithm 2). When the buffer B = U S V' is full, a shrink replaces it, with
//! delta = s_c^2, by
//!
//! ```text
//! B <- sqrt(max(S^2 - delta I, 0)) V'
//! ```
//!
//! At most c - 1 rows remain. With Delta the sum of all deltas,
//! 0 <= A'A - B'B <= Delta I, and c Delta <= |A|_F^2 - |B|_F^2.
//!
//! **Where we differ.** c = l/2 + 1 instead of l/2: with c = l/2 only l/2 - 1 directions remain, one less
//! than the r bits for which l = 2r. ([`ShrinkIndex::Half`] is the printed rule.) A shrink runs only when room is
//! needed, so B loses as little as possible. A row count says which rows are in use, since a row of zeros is a
//! valid row.
//!
//! **How.** The l x l Gram matrix B B' is decomposed instead of B. The rows that remain after a shrink are
//! orthogonal with known lengths, so the next shrink computes products with new rows only, and only the l/2 leading
//! eigenvectors. The new rows diag(sqrt((s^2 - delta) / s^2)) U' B are computed in place, one strip of columns at a
//! time.
//!
//! **Rounding.** Rows and products are single precision, so a shrink changes the direction and the length of every row
//! by about 2^-24. The exact lengths are kept in double precision, and the next shrink scales the rows to them.
//! So lengths do not drift. Changes of direction are not corrected. They accumulate like a random walk, since
//! [`mod@rotate`] rounds at random where it matters. After T shrinks the bounds above hold up to about
//! (20 + sqrt(T)) 2^-23 of |A|_F^2: 2e-6 for a few, 4e-5 for 100,000.
//! Rows whose squares overflow or underflow single precision are multiplied by a power of two for the products.
//!
//! **Cost.** 1.5 l^2 d + O(l^3) for each shrink, one shrink every l/2 rows. Memory: l d floats and a few l x l matrices.

pub(crate) mod eigen;
mod rotate;

use crate::linalg;
use crate::names::names;
use crate::pool::Pool;
use crate::sketch::frequent_directions::eigen::Eigen;
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, Par};
use rotate::rotate;

/// Which squared singular value a shrink subtracts from all others.
///
/// ```
/// use frosh::{Config, ShrinkIndex};
/// let config = Config::new(64).shrink_index(ShrinkIndex::Half); // as the paper prints it
/// assert_eq!(ShrinkIndex::default().as_str(), "half-plus-one");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ShrinkIndex {
    /// The (l/2 + 1)-th, as in the released code of OSH. l/2 rows remain.
    #[default]
    HalfPlusOne,
    /// The (l/2)-th, as printed in Algorithm 2. l/2 - 1 rows remain.
    Half,
}

names!(ShrinkIndex, "shrink index", HalfPlusOne => "half-plus-one", Half => "half");

impl ShrinkIndex {
    /// c, counted from 1.
    fn position(self, l: usize) -> usize {
        match self {
            ShrinkIndex::HalfPlusOne => l / 2 + 1,
            ShrinkIndex::Half => l / 2,
        }
    }
}

/// The buffer of frequent directions.
#[derive(Clone, Debug)]
pub(crate) struct FrequentDirections {
    dim: usize,
    capacity: usize,
    index: ShrinkIndex,
    /// The rows in use. Memory for all `capacity` rows is allocated with the first row.
    rows: Vec<f32>,
    /// Exact squared lengths of the first rows, which are the orthogonal rows of the last shrink.
    lengths: Vec<f64>,
    /// Squared lengths of the rows after those.
    norms: Vec<f64>,
    removed: f64,
    inserted: f64,
    /// Work space of the shrink, allocated at the first one.
    eigen: Option<Box<Eigen>>,
}

impl FrequentDirections {
    pub(crate) fn new(dim: usize, capacity: usize, index: ShrinkIndex) -> Self {
        debug_assert!(capacity >= 2 && capacity.is_multiple_of(2));
        Self {
            dim,
            capacity,
            index,
            rows: Vec::new(),
            lengths: Vec::new(),
            norms: Vec::new(),
            removed: 0.0,
            inserted: 0.0,
            eigen: None,
        }
    }

    /// Restores a buffer from the parts of a file.
    pub(crate) fn resume(
        dim: usize,
        capacity: usize,
        index: ShrinkIndex,
        rows: Vec<f32>,
        lengths: Vec<f64>,
        (removed, inserted): (f64, f64),
    ) -> Self {
        let norms = rows.chunks_exact(dim).skip(lengths.len()).map(square_norm).collect();
        Self { rows, lengths, norms, removed, inserted, ..Self::new(dim, capacity, index) }
    }

    /// The rows in use.
    pub(crate) fn live(&self) -> &[f32] {
        &self.rows
    }

    /// Number of rows in use.
    pub(crate) fn filled(&self) -> usize {
        self.rows.len() / self.dim
    }

    /// Capacity in rows, l.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Which squared singular value a shrink subtracts.
    pub(crate) fn index(&self) -> ShrinkIndex {
        self.index
    }

    /// Squared lengths of the rows that remained after the last shrink.
    pub(crate) fn lengths(&self) -> &[f64] {
        &self.lengths
    }

    /// Delta, the sum of all subtracted squared singular values.
    pub(crate) fn removed(&self) -> f64 {
        self.removed
    }

    /// Squared Frobenius norm of all inserted rows.
    pub(crate) fn inserted(&self) -> f64 {
        self.inserted
    }

    /// Whether there is no room for `count` more rows without a shrink.
    pub(crate) fn lacks_room_for(&self, count: usize) -> bool {
        self.filled() + count > self.capacity
    }

    /// Inserts rows, with a shrink whenever the buffer is full.
    pub(crate) fn append(&mut self, pool: &Pool, rows: &[f32]) {
        self.append_minus(pool, rows, &[]);
    }

    /// Inserts rows minus the vectors of `minus`.
    pub(crate) fn append_minus(&mut self, pool: &Pool, rows: &[f32], minus: &[&[f32]]) {
        let dim = self.dim;
        let mut rest = rows;
        while !rest.is_empty() {
            if self.filled() == self.capacity {
                self.shrink(pool);
            }
            let room = (self.capacity - self.filled()) * dim;
            let (now, later) = rest.split_at(room.min(rest.len()));
            let from = self.rows.len();
            self.rows.reserve_exact(self.capacity * dim - from);
            self.rows.resize(from + now.len(), 0.0);
            let known = self.norms.len();
            self.norms.resize(known + now.len() / dim, 0.0);
            let jobs = self.rows[from..].chunks_exact_mut(dim).zip(now.chunks_exact(dim));
            let jobs: Vec<_> = jobs.zip(&mut self.norms[known..]).collect();
            let work = |((to, row), norm): ((&mut [f32], &[f32]), &mut f64)| {
                to.copy_from_slice(row);
                for vector in minus {
                    for (x, v) in to.iter_mut().zip(*vector) {
                        *x -= v;
                    }
                }
                *norm = square_norm(to);
            };
            if now.len() < 1 << 18 {
                jobs.into_iter().for_each(work);
            } else {
                pool.each(jobs, work);
            }
            self.inserted += self.norms[known..].iter().sum::<f64>();
            rest = later;
        }
    }

    /// Adds the certificate of a sketch whose rows were inserted: its Delta, and the mass that its shrinks removed.
    pub(crate) fn inherit(&mut self, removed: f64, lost: f64) {
        self.removed += removed;
        self.inserted += lost;
    }

    /// Multiplies B'B and the certificate by `factor`, which is at most 1. Rows are rounded; their exact lengths are not,
    /// so that the rounding errors of many small factors do not add up.
    pub(crate) fn decay(&mut self, factor: f64) {
        let root = factor.sqrt();
        self.rows.iter_mut().for_each(|x| *x = (f64::from(*x) * root) as f32);
        self.lengths.iter_mut().chain(&mut self.norms).for_each(|x| *x *= factor);
        self.removed *= factor;
        self.inserted *= factor;
    }

    /// Shrinks the buffer if more than three quarters of it are in use, so that it can be kept in less memory.
    pub(crate) fn compact(&mut self, pool: &Pool) {
        if 4 * self.filled() > 3 * self.capacity {
            self.shrink(pool);
        }
    }

    /// A copy that has only as much memory as its rows need.
    pub(crate) fn copy(&self) -> Self {
        let (rows, lengths, norms) = (self.rows.clone(), self.lengths.clone(), self.norms.clone());
        let (removed, inserted) = (self.removed, self.inserted);
        let empty = Self::new(self.dim, self.capacity, self.index);
        Self { rows, lengths, norms, removed, inserted, ..empty }
    }

    /// Gives up the memory that its rows do not need.
    pub(crate) fn fit_memory(&mut self) {
        self.rows.shrink_to_fit();
    }

    /// Removes all rows and forgets them. Memory is kept.
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.lengths.clear();
        self.norms.clear();
        (self.removed, self.inserted) = (0.0, 0.0);
    }

    /// Takes the work space of another buffer of the same capacity, or gives it back.
    pub(crate) fn swap_work_space(&mut self, other: &mut Self) {
        std::mem::swap(&mut self.eigen, &mut other.eigen);
    }

    /// Shrinks the buffer. Afterwards at least half of it is free.
    pub(crate) fn shrink(&mut self, pool: &Pool) {
        let (l, n) = (self.capacity, self.filled());
        let kept = self.index.position(l) - 1;
        let mut eigen = self.eigen.take().unwrap_or_else(|| Box::new(Eigen::new(l)));
        let corrections = self.correct_lengths();
        let unit = self.set_gram(pool, &mut eigen, &corrections);
        let squares: Vec<f64> = self.lengths.iter().chain(&self.norms).copied().collect();
        let (values, _) = eigen.solve(pool);
        if !values[0].is_finite() {
            // Cannot happen, since finite rows have a finite Gram matrix. If it does, the certificate covers the loss.
            self.removed += squares.iter().sum::<f64>();
            self.rows.clear();
            self.lengths.clear();
            self.norms.clear();
            return;
        }

        // Rows are single precision: values below their rounding error count as zero, and their rows are dropped.
        let noise = values[0] * f64::from(f32::EPSILON).powi(2) * l as f64;
        let delta = if kept < n { values[kept].max(0.0) } else { 0.0 };
        let rows = values[..kept].iter().filter(|v| **v > delta && **v > noise).count();
        let square = unit.recip().powi(2);
        self.lengths = values[..rows].iter().map(|v| (v - delta) * square).collect();
        let scales: Vec<f64> = values[..rows].iter().map(|v| ((v - delta) / v).sqrt()).collect();
        let salt = values[0].to_bits();
        let map = eigen.scaled_vectors(&scales, &corrections).subrows(0, n).transpose();
        rotate(pool, map, &squares, &mut self.rows, self.dim, salt);
        self.removed += delta * square;
        self.rows.truncate(rows * self.dim);
        self.norms.clear();
        self.eigen = Some(eigen);
    }

    /// The factor that scales each row of the last shrink to its exact length. If row and length differ by more
    /// than rounding, the row is weak compared with the strongest, and its eigenvalue was inaccurate. Then the row is
    /// kept and the length is corrected.
    fn correct_lengths(&mut self) -> Vec<f64> {
        let rows = self.rows.chunks_exact(self.dim);
        let correct = |(length, row): (&mut f64, &[f32])| {
            let actual = square_norm(row);
            if (*length - actual).abs() <= MAX_ROUNDING * actual && actual > 0.0 {
                (*length / actual).sqrt()
            } else {
                *length = actual;
                1.0
            }
        };
        self.lengths.iter_mut().zip(rows).map(correct).collect()
    }

    /// Passes B B', with the rows of the last shrink corrected, to the solver, a few columns at a time. Unused rows count
    /// as zeros. Returns the power of two that the rows were multiplied by.
    fn set_gram(&self, pool: &Pool, eigen: &mut Eigen, corrections: &[f64]) -> f64 {
        const WIDTH: usize = PIECE;
        let (l, n, d, old) = (self.capacity, self.filled(), self.dim, self.lengths.len());
        let largest = self.lengths.iter().chain(&self.norms).fold(0f64, |m, x| m.max(*x));
        let unit = unit(largest);
        let square = f64::from(unit).powi(2);
        eigen.begin(largest * square);
        let all = MatRef::from_row_major_slice(&self.rows, n, d);
        let mut column = vec![0f64; l];
        let mut from = 0;
        while from < n {
            // Old rows are orthogonal to each other, so only their products with new rows are computed.
            let end = if from < old { old } else { n };
            let width = WIDTH.min(end - from);
            let top = if from < old { old } else { from };
            let product = product(pool, all.subrows(top, n - top), all.subrows(from, width), unit);
            for j in 0..width {
                column.fill(0.0);
                let correction = corrections.get(from + j).copied().unwrap_or(1.0);
                if from + j < old {
                    column[from + j] = self.lengths[from + j] * square;
                }
                for (to, x) in column[top..n].iter_mut().zip(product.col(j).iter()) {
                    *to = f64::from(*x) * correction;
                }
                eigen.set_column(from + j, &column[from + j..]);
            }
            from += width;
        }
        column.fill(0.0);
        (n..l).for_each(|j| eigen.set_column(j, &column[j..]));
        f64::from(unit)
    }

    /// Heap bytes in use.
    pub(crate) fn bytes(&self) -> usize {
        self.rows.capacity() * 4 + self.eigen.as_ref().map_or(0, |e| e.bytes())
    }
}

/// Largest relative difference that rounding can cause between the exact and the actual length of a row: the product sums
/// at most 2^14 terms.
const MAX_ROUNDING: f64 = 64.0 * f32::EPSILON as f64;

/// The power of two by which rows with this largest squared length are multiplied, so that their products do not
/// overflow or underflow single precision; 1 for rows of usual size.
fn unit(largest: f64) -> f32 {
    if largest == 0.0 || (1e-18..1e30).contains(&largest) {
        return 1.0;
    }
    let power = (-largest.log2() / 2.0).round().clamp(-126.0, 126.0);
    2f32.powi(power as i32)
}

/// `a b'` of rows that are first multiplied by `unit`, in pieces of [`PIECE`] rows of `a` and, for wide rows, in groups
/// of columns. Both depend on the sizes only, so the order of the sums does not depend on the number of threads.
fn product(pool: &Pool, a: MatRef<'_, f32>, b: MatRef<'_, f32>, unit: f32) -> Mat<f32> {
    let d = a.ncols();
    let groups = (d / 2048).clamp(1, 8);
    let width = d.div_ceil(groups);
    let mut parts: Vec<Mat<f32>> = (0..groups).map(|_| Mat::zeros(a.nrows(), b.nrows())).collect();
    let mut jobs = Vec::new();
    for (group, part) in parts.iter_mut().enumerate() {
        let pieces = linalg::row_pieces(part.as_mut(), PIECE).into_iter();
        jobs.extend(pieces.map(|(row, piece)| (group * width, row, piece)));
    }
    let small = a.nrows() * b.nrows() * d < 1 << 22;
    let pool = if small { &Pool::ONE } else { pool };
    pool.each(jobs, |(column, row, part)| {
        let columns = width.min(d - column);
        let a = a.submatrix(row, column, part.nrows(), columns);
        let b = b.subcols(column, columns);
        if unit == 1.0 {
            matmul(part, Accum::Replace, a, b.transpose(), 1.0, Par::Seq);
        } else {
            let scaled =
                |m: MatRef<'_, f32>| Mat::from_fn(m.nrows(), columns, |i, j| m[(i, j)] * unit);
            matmul(part, Accum::Replace, scaled(a), scaled(b).transpose(), 1.0, Par::Seq);
        }
    });
    let (first, others) = parts.split_at_mut(1);
    for other in others {
        first[0] += &*other;
    }
    parts.swap_remove(0)
}

/// Rows of a product that one task computes.
const PIECE: usize = 64;

/// Sum of squares in double precision.
pub(crate) fn square_norm(row: &[f32]) -> f64 {
    <f32 as crate::rows::sealed::Sealed>::square_norm(row)
}

#[cfg(test)]
mod tests;
