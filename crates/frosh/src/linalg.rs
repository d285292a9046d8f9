//! The few factorisations that are not on a hot path, in double precision and on one thread, so that
//! results do not depend on the number of threads.

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::evd::{ComputeEigenvectors, self_adjoint_evd, self_adjoint_evd_scratch};
use faer::linalg::householder;
use faer::linalg::qr::no_pivoting::factor as qr;
use faer::{Conj, Mat, MatRef, Par};

/// Q of the thin QR of a matrix with at least as many rows as columns, with the signs that make the
/// diagonal of R positive: column i of the result leans towards column i of `a`.
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

/// Eigenvalues (descending) and eigenvectors (columns, in that order) of a symmetric matrix, of which
/// the lower triangle is read.
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
        // Only a matrix that is not finite fails to converge; input is checked long before.
        return (vec![0.0; n], Mat::identity(n, n));
    }
    let descending = (0..n).map(|i| values[n - 1 - i]).collect();
    (descending, vectors.as_ref().reverse_cols().to_owned())
}
