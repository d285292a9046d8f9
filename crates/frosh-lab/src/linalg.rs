//! The little linear algebra that the lab's own methods need: products of row-major blocks, orthonormal
//! directions, eigenvectors. On one thread unless told otherwise, since training is timed on one.

use crate::error::{Error, Result};
use crate::random::Random;
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatMut, MatRef, Par, Side};

/// A block of rows, as it lies in memory.
pub(crate) fn rows(values: &[f32], dim: usize) -> MatRef<'_, f32> {
    MatRef::from_row_major_slice(values, values.len() / dim, dim)
}

/// A block of rows to write to.
pub(crate) fn rows_mut(values: &mut [f32], dim: usize) -> MatMut<'_, f32> {
    let n = values.len() / dim;
    MatMut::from_row_major_slice_mut(values, n, dim)
}

/// The product of two matrices, on the calling thread.
pub(crate) fn product<T: faer::traits::ComplexField>(a: MatRef<'_, T>, b: MatRef<'_, T>) -> Mat<T> {
    let mut out = Mat::zeros(a.nrows(), b.ncols());
    matmul(out.as_mut(), Accum::Replace, a, b, faer::traits::math_utils::one(), Par::Seq);
    out
}

/// `count` random orthonormal columns of `dim` values.
pub(crate) fn random_orthonormal(random: &mut Random, dim: usize, count: usize) -> Mat<f64> {
    orthonormal(gaussian(random, dim, count).as_ref())
}

/// A matrix of independent standard normal numbers.
pub(crate) fn gaussian(random: &mut Random, rows: usize, columns: usize) -> Mat<f64> {
    let mut column = vec![0f32; rows];
    let mut out = Mat::zeros(rows, columns);
    for j in 0..columns {
        random.normals(&mut column);
        for (i, x) in column.iter().enumerate() {
            out[(i, j)] = f64::from(*x);
        }
    }
    out
}

/// Q of the thin QR.
pub(crate) fn orthonormal(a: MatRef<'_, f64>) -> Mat<f64> {
    serial(|| a.qr().compute_thin_Q())
}

/// Eigenvalues (descending) and eigenvectors of a symmetric matrix.
pub(crate) fn eigen(a: MatRef<'_, f64>) -> Result<(Vec<f64>, Mat<f64>)> {
    let found = serial(|| a.self_adjoint_eigen(Side::Lower));
    let found = found.map_err(|_| Error::Numbers("an eigenproblem"))?;
    let values = found.S().column_vector().iter().rev().copied().collect();
    Ok((values, found.U().reverse_cols().to_owned()))
}

/// The matrix with orthonormal columns nearest to `a`: U V' of its singular value decomposition.
pub(crate) fn polar(a: MatRef<'_, f64>) -> Result<Mat<f64>> {
    let found = serial(|| a.thin_svd()).map_err(|_| Error::Numbers("a decomposition"))?;
    Ok(product(found.U(), found.V().transpose()))
}

/// Runs faer's convenient functions, whose parallelism is a process-wide setting, on one thread.
fn serial<R>(work: impl FnOnce() -> R) -> R {
    faer::set_global_parallelism(Par::Seq);
    work()
}
