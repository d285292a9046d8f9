//! The orthogonal polar factor: the orthogonal matrix nearest to a square matrix.
//!
//! For M = U S V' it is U V'. Weighted Halley steps, on X = M / ||M||_F at first,
//!
//! ```text
//! X <- (b/c) X + (a - b/c) (I + c X X')^-1 X
//! ```
//!
//! keep the singular vectors and move all singular values towards 1. The weights a, b, c
//! are optimal for the smallest singular value l: Nakatsukasa, Bai and Gygi, "Optimizing
//! Halley's iteration for computing the matrix polar decomposition" (2010).
//!
//! **Where we differ.** l is one of two constants, not an estimate. A wrong l costs more steps
//! but no accuracy, because the residual X X' - I, which is computed anyway, decides when
//! to stop. The larger constant is used until it took more steps than it should have: the matrices
//! of one fit are alike. We always use the Cholesky form. It perturbs M by about c times the rounding error,
//! 4e-11 here, far below the single precision of the sums that M consists of. Nearly
//! singular matrices fall back to the SVD.
//!
//! **Cost.** Four steps of 3.3 r^3 operations, five if a singular value is below a 1,000th of the norm, and more if M
//! is nearly singular. Five are about half the time of an SVD. Scaled Newton steps with explicit inverses took nearly
//! as long as the SVD.

use crate::linalg;
use faer::diag::Diag;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::matmul::matmul;
use faer::linalg::triangular_solve::{
    solve_lower_triangular_in_place, solve_upper_triangular_in_place,
};
use faer::linalg::{cholesky::llt, svd};
use faer::{Accum, Mat, Par, unzip, zip};
use rayon::prelude::*;

/// Scratch memory for polar factors of matrices of one size.
pub(crate) struct Polar {
    x: Mat<f64>,
    y: Mat<f64>,
    gram: Mat<f64>,
    values: Diag<f64>,
    memory: MemBuffer,
    /// The smallest singular value to assume.
    smallest: f64,
}

impl Polar {
    /// Assumed smallest singular values, relative to the Frobenius norm: at first, and after a matrix for which that
    /// took more than [`Self::STEPS`]. If there are smaller ones, more steps are needed.
    const SMALLEST: [f64; 2] = [1e-3, 1e-4];
    /// Steps that the first of them takes, if it is right.
    const STEPS: usize = 4;
    /// Largest number of steps before the SVD is used instead.
    const MAX_STEPS: usize = 9;

    /// Scratch memory for r x r matrices.
    pub(crate) fn new(r: usize) -> Self {
        let vectors = svd::ComputeSvdVectors::Full;
        let par = Par::Seq;
        let memory = MemBuffer::new(
            svd::svd_scratch::<f64>(r, r, vectors, vectors, par, Default::default())
                .or(llt::factor::cholesky_in_place_scratch::<f64>(r, par, Default::default())),
        );
        Self {
            x: Mat::zeros(r, r),
            y: Mat::zeros(r, r),
            gram: Mat::zeros(r, r),
            values: Diag::zeros(r),
            memory,
            smallest: Self::SMALLEST[0],
        }
    }

    /// Sets `out` to the orthogonal matrix nearest to `m`. Returns false, and leaves `out`
    /// unchanged, if `m` is zero or not finite.
    pub(crate) fn factor(&mut self, m: &Mat<f64>, out: &mut Mat<f64>) -> bool {
        let norm = m.norm_l2();
        if !(norm > 0.0 && norm.is_finite()) {
            return false;
        }
        self.halley(m, norm, out) || self.svd(m, out)
    }

    /// The polar factor by weighted Halley steps; false if they did not converge.
    fn halley(&mut self, m: &Mat<f64>, norm: f64, out: &mut Mat<f64>) -> bool {
        let (r, par) = (m.nrows(), Par::Seq);
        let stack = MemStack::new(&mut self.memory);
        let (x, y, gram) = (&mut self.x, &mut self.y, &mut self.gram);
        // The transpose, so that the right-hand sides of the solve below are columns.
        for j in 0..r {
            for i in 0..r {
                x[(i, j)] = m[(j, i)] / norm;
            }
        }
        let mut low = self.smallest;
        for step in 0..Self::MAX_STEPS {
            if step == Self::STEPS {
                self.smallest = Self::SMALLEST[1];
            }
            {
                let x = &*x;
                each(r, linalg::row_pieces(gram.as_mut(), GRAM_ROWS), |(from, piece)| {
                    let end = from + piece.nrows();
                    let (own, before) = (x.subrows(from, end - from), x.subrows(0, end));
                    let to = piece.subcols_mut(0, end);
                    matmul(to, Accum::Replace, own, before.transpose(), 1.0, par);
                });
            }
            let mut error = 0.0;
            for j in 0..r {
                error += (gram[(j, j)] - 1.0).powi(2);
                for i in j + 1..r {
                    error += 2.0 * gram[(i, j)].powi(2);
                }
            }
            // Convergence is cubic: one step from 1e-5 is exact to rounding.
            let done = error < 1e-10;
            let (a, b, c) = if done { (3.0, 1.0, 3.0) } else { weights(low) };
            low = (low * (a + b * low * low) / (1.0 + c * low * low)).min(1.0);
            for j in 0..r {
                for i in j..r {
                    gram[(i, j)] *= c;
                }
                gram[(j, j)] += 1.0;
            }
            let factor = llt::factor::cholesky_in_place(
                gram.as_mut(),
                Default::default(),
                par,
                stack,
                Default::default(),
            );
            if factor.is_err() {
                return false;
            }
            let (lower, keep, add) = (gram.as_ref(), b / c, a - b / c);
            let columns = linalg::row_pieces(x.as_mut().transpose_mut(), COLUMNS).into_iter();
            let own = linalg::row_pieces(y.as_mut().transpose_mut(), COLUMNS);
            each(r, columns.zip(own).collect(), |((_, x), (_, y))| {
                let (mut x, mut y) = (x.transpose_mut(), y.transpose_mut());
                y.copy_from(&x);
                solve_lower_triangular_in_place(lower, y.as_mut(), par);
                solve_upper_triangular_in_place(lower.transpose(), y.as_mut(), par);
                zip!(&mut x, &y).for_each(|unzip!(x, y)| *x = keep * *x + add * *y);
            });
            if done {
                out.copy_from(x.transpose());
                return true;
            }
        }
        false
    }

    /// The polar factor U V' by the SVD m = U S V'. Also correct for singular `m`.
    fn svd(&mut self, m: &Mat<f64>, out: &mut Mat<f64>) -> bool {
        let stack = MemStack::new(&mut self.memory);
        let (u, v) = (&mut self.x, &mut self.y);
        let found = svd::svd(
            m.as_ref(),
            self.values.as_mut(),
            Some(u.as_mut()),
            Some(v.as_mut()),
            Par::Seq,
            stack,
            Default::default(),
        );
        if found.is_ok() {
            matmul(out, Accum::Replace, &*u, v.transpose(), 1.0, Par::Seq);
        }
        found.is_ok()
    }
}

/// Rows of the Gram matrix, and columns of the solution, that one task computes.
const GRAM_ROWS: usize = 64;
const COLUMNS: usize = 32;
/// Size from which tasks are worth waking threads for.
const MIN_PARALLEL: usize = 128;

/// Runs `work` on every item, on the threads of the current rayon pool if the matrix is large enough.
fn each<T: Send>(size: usize, items: Vec<T>, work: impl Fn(T) + Sync + Send) {
    if size < MIN_PARALLEL {
        items.into_iter().for_each(work);
    } else {
        items.into_par_iter().for_each(work);
    }
}

/// The weights that increase the smallest singular value `l` the most.
fn weights(l: f64) -> (f64, f64, f64) {
    let l2 = l * l;
    let d = (4.0 * (1.0 - l2) / (l2 * l2)).cbrt();
    let root = (1.0 + d).sqrt();
    let a = root + 0.5 * (8.0 - 4.0 * d + 8.0 * (2.0 - l2) / (l2 * root)).max(0.0).sqrt();
    let b = (a - 1.0).powi(2) / 4.0;
    (a, b, a + b - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hasher::rotation::random;
    use crate::random::{Purpose, Stream};

    /// `U diag(values) V'` and its polar factor `U V'`.
    fn example(values: &[f64], index: u64) -> (Mat<f64>, Mat<f64>) {
        let mut stream = Stream::new(1, Purpose::Rotation, 0, index);
        let u = random(values.len(), &mut stream);
        let v = random(values.len(), &mut stream);
        let us = Mat::from_fn(u.nrows(), u.ncols(), |i, j| u[(i, j)] * values[j]);
        (us * v.transpose(), u * v.transpose())
    }

    fn distance(a: &Mat<f64>, b: &Mat<f64>) -> f64 {
        (a - b).norm_l2()
    }

    fn assert_orthogonal(q: &Mat<f64>) {
        let gram = q.transpose() * q;
        assert!(distance(&gram, &Mat::identity(q.nrows(), q.nrows())) < 1e-10);
    }

    #[test]
    fn finds_the_known_factor() {
        for (r, small) in [(1, 1.0), (2, 0.1), (7, 1e-2), (33, 1e-3), (64, 1e-5)] {
            let values: Vec<f64> =
                (0..r).map(|i| 1e3 * f64::powf(small, i as f64 / r as f64)).collect();
            let (m, expected) = example(&values, r as u64);
            let mut polar = Polar::new(r);
            let mut q = Mat::zeros(r, r);
            assert!(polar.halley(&m, m.norm_l2(), &mut q), "{r}");
            assert_orthogonal(&q);
            assert!(distance(&q, &expected) < 1e-8, "{r}");
            assert!(polar.svd(&m, &mut q));
            assert_orthogonal(&q);
            assert!(distance(&q, &expected) < 1e-8, "{r}");
        }
    }

    #[test]
    fn singular_matrices_fall_back() {
        for small in [0.0, 1e-300, 1e-17, 1e-12, 1e-8] {
            let mut values = [1.0; 20];
            values[15..].fill(small);
            let (m, _) = example(&values, 0);
            let mut q = Mat::zeros(20, 20);
            assert!(Polar::new(20).factor(&m, &mut q));
            assert_orthogonal(&q);
            // Not unique where m is singular, but the trace of q'm must equal the nuclear norm.
            let trace: f64 = (q.transpose() * &m).diagonal().column_vector().sum();
            assert!((trace - 15.0 - 5.0 * small).abs() < 1e-9);
        }
    }

    #[test]
    fn nothing_to_fit() {
        let mut q = Mat::identity(3, 3);
        let mut polar = Polar::new(3);
        for x in [0.0, f64::NAN, f64::INFINITY] {
            assert!(!polar.factor(&Mat::full(3, 3, x), &mut q));
        }
        assert_eq!(q, Mat::<f64>::identity(3, 3));
        assert!(!Polar::new(0).factor(&Mat::zeros(0, 0), &mut Mat::zeros(0, 0)));
    }
}
