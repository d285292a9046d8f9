//! Matrix factorisations that are not on a hot path, in double precision. Work is divided among threads by matrix
//! sizes only, so results do not depend on the number of threads.

use crate::pool::Pool;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt;
use faer::linalg::evd::{ComputeEigenvectors, self_adjoint_evd, self_adjoint_evd_scratch};
use faer::linalg::householder;
use faer::linalg::matmul::matmul;
use faer::linalg::qr::no_pivoting::factor as qr;
use faer::linalg::triangular_solve::solve_lower_triangular_in_place;
use faer::{Accum, Conj, Mat, MatMut, MatRef, Par};

/// Q of the thin QR factorisation of a matrix with at least as many rows as columns. Signs are chosen so that
/// the diagonal of R is positive: column i of Q has a positive product with column i of `a`.
pub(crate) fn thin_q(mut a: Mat<f64>) -> Mat<f64> {
    let (n, r) = (a.nrows(), a.ncols());
    let mut q = Mat::from_fn(n, r, |i, j| f64::from(u8::from(i == j)));
    if r == 0 {
        return q;
    }
    let block = qr::recommended_block_size::<f64>(n, r);
    let mut factor = Mat::zeros(block, r);
    let par = Par::Seq;
    let mut memory =
        MemBuffer::new(qr::qr_in_place_scratch::<f64>(n, r, block, par, Default::default()).or(
            householder::apply_block_householder_sequence_on_the_left_in_place_scratch::<f64>(
                n, block, r,
            ),
        ));
    let stack = MemStack::new(&mut memory);
    qr::qr_in_place(a.as_mut(), factor.as_mut(), par, stack, Default::default());
    householder::apply_block_householder_sequence_on_the_left_in_place_with_conj(
        a.as_ref(),
        factor.as_ref(),
        Conj::No,
        q.as_mut(),
        par,
        stack,
    );
    for j in 0..r {
        if a[(j, j)] < 0.0 {
            q.col_mut(j).iter_mut().for_each(|x| *x = -*x);
        }
    }
    q
}

/// The product, on one thread.
pub(crate) fn product<T: faer::traits::ComplexField>(a: MatRef<'_, T>, b: MatRef<'_, T>) -> Mat<T> {
    let mut out = Mat::zeros(a.nrows(), b.ncols());
    matmul(out.as_mut(), Accum::Replace, a, b, faer::traits::math_utils::one(), Par::Seq);
    out
}

/// The product of tall matrices in double precision: columns of the result are computed in pieces, whose size does not
/// depend on the number of threads.
pub(crate) fn tall_product(pool: &Pool, a: MatRef<'_, f64>, b: MatRef<'_, f64>) -> Mat<f64> {
    const PIECE: usize = 32;
    let mut out = Mat::<f64>::zeros(a.nrows(), b.ncols());
    let pieces = row_pieces(out.as_mut().transpose_mut(), PIECE);
    pool.each(pieces, |(from, to)| {
        let b = b.subcols(from, to.nrows());
        matmul(to.transpose_mut(), Accum::Replace, a, b, 1.0, Par::Seq);
    });
    out
}

/// The matrix in single precision.
pub(crate) fn single(a: MatRef<'_, f64>) -> Mat<f32> {
    Mat::from_fn(a.nrows(), a.ncols(), |i, j| a[(i, j)] as f32)
}

/// Splits a matrix into pieces of `size` rows (the last may have fewer), each with the number of its first row.
pub(crate) fn row_pieces<T>(to: MatMut<'_, T>, size: usize) -> Vec<(usize, MatMut<'_, T>)> {
    let (n, mut pieces, mut rest) = (to.nrows(), Vec::new(), to);
    for from in (0..n).step_by(size) {
        let (piece, below) = rest.split_at_row_mut(size.min(n - from));
        pieces.push((from, piece));
        rest = below;
    }
    pieces
}

/// Adds the lower triangle of `a a'`, and parts of the upper one, to `to`. The pieces of rows depend on the size only.
pub(crate) fn add_gram(pool: &Pool, to: MatMut<'_, f64>, a: MatRef<'_, f64>) {
    const PIECE: usize = 64;
    let n = a.nrows();
    let pool = if n * n * a.ncols() < 1 << 22 { &Pool::ONE } else { pool };
    pool.each(row_pieces(to, PIECE), |(from, piece)| {
        let (own, before) = (a.subrows(from, piece.nrows()), a.subrows(0, from + piece.nrows()));
        let to = piece.subcols_mut(0, before.nrows());
        matmul(to, Accum::Add, own, before.transpose(), 1.0, Par::Seq);
    });
}

/// [`thin_q`] of a matrix whose columns are orthonormal up to rounding, by Cholesky QR: half the operations, most of
/// them in matrix products. Falls back to `thin_q` if the columns are not that close to orthonormal.
pub(crate) fn reorthonormalized(pool: &Pool, a: Mat<f64>) -> Mat<f64> {
    // For small matrices Householder QR is fast enough, and avoids the packing buffers of a large product.
    match a.nrows() * a.ncols() {
        0..SMALL_MATRIX => thin_q(a),
        _ => cholesky_q(pool, a).unwrap_or_else(thin_q),
    }
}

/// Q by Cholesky QR; `Err` with the unchanged matrix if its columns are not nearly orthonormal.
fn cholesky_q(pool: &Pool, mut a: Mat<f64>) -> Result<Mat<f64>, Mat<f64>> {
    let r = a.ncols();
    let mut gram = Mat::zeros(r, r);
    add_gram(pool, gram.as_mut(), a.transpose());
    let off = |i: usize, j: usize| f64::abs(gram[(i, j)] - f64::from(u8::from(i == j)));
    // Then the condition number of the factor is near 1, and the result is orthonormal up to rounding.
    let near = (0..r).all(|j| (j..r).all(|i| off(i, j) <= MAX_DEVIATION));
    // On this thread: the matrix is small, and other threads would allocate buffers of their own.
    let scratch = llt::factor::cholesky_in_place_scratch::<f64>(r, Par::Seq, Default::default());
    let mut memory = MemBuffer::new(scratch);
    let (stack, regular) = (MemStack::new(&mut memory), Default::default());
    let to = gram.as_mut();
    match llt::factor::cholesky_in_place(to, regular, Par::Seq, stack, Default::default()) {
        Ok(_) if near => {
            // A = Q R with R = L', so Q' = L^-1 A', computed for 1,024 columns of A' at a time.
            pool.each(row_pieces(a.as_mut(), 1024), |(_, part)| {
                solve_lower_triangular_in_place(gram.as_ref(), part.transpose_mut(), Par::Seq);
            });
            Ok(a)
        }
        _ => Err(a),
    }
}

/// Largest entry of |A'A - I| for which Cholesky QR is used. Summed over all pairs of columns it is far below 1.
const MAX_DEVIATION: f64 = 1e-6;
/// Matrices with fewer entries use Householder QR.
const SMALL_MATRIX: usize = 1 << 17;

/// Eigenvalues (descending) and eigenvectors (columns, in that order) of a symmetric matrix. Only the
/// lower triangle is read.
pub(crate) fn eigen(a: MatRef<'_, f64>) -> (Vec<f64>, Mat<f64>) {
    let n = a.nrows();
    let mut values = faer::diag::Diag::<f64>::zeros(n);
    let mut vectors = Mat::<f64>::zeros(n, n);
    let yes = ComputeEigenvectors::Yes;
    let scratch = self_adjoint_evd_scratch::<f64>(n, yes, Par::Seq, Default::default());
    let mut memory = MemBuffer::new(scratch);
    let stack = MemStack::new(&mut memory);
    let u = Some(vectors.as_mut());
    if self_adjoint_evd(a, values.as_mut(), u, Par::Seq, stack, Default::default()).is_err() {
        // Only a matrix with NaN or infinity fails to converge, and input rows were checked for these.
        return (vec![0.0; n], Mat::identity(n, n));
    }
    let descending = (0..n).map(|i| values[n - 1 - i]).collect();
    (descending, vectors.as_ref().reverse_cols().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cholesky_q_is_orthonormal_and_equals_householder_q() {
        let entry = |i: usize, j: usize| ((i * 37 + j * j * 11) % 101) as f64 - 50.0;
        let exact = thin_q(Mat::from_fn(300, 20, entry));
        for error in [0.0, 1e-12, 1e-8, 1e-3, 1.0] {
            let a = Mat::from_fn(300, 20, |i, j| exact[(i, j)] + error * entry(j, i) * 1e-2);
            let got = cholesky_q(&Pool::ONE, a.clone());
            assert_eq!(got.is_ok(), error <= 1e-8);
            let (got, want) = (got.unwrap_or_else(thin_q), thin_q(a));
            let gram = got.transpose() * &got;
            for i in 0..20 {
                for j in 0..20 {
                    let unit = f64::from(u8::from(i == j));
                    assert!((gram[(i, j)] - unit).abs() < 1e-13, "{error} {i} {j}");
                }
            }
            assert!((got - want).norm_max() < 1e-12, "{error}");
        }
    }
}
