//! The leading eigenvector of a symmetric matrix by Lanczos's method.
//!
//! A full decomposition of 300 x 300 numbers costs more than all else that SGH does for a bit. Krylov vectors are
//! orthogonalised against all earlier ones, twice, so at n steps the answer is that of a full decomposition; it is
//! accepted as soon as its residual is small.
//!
//! **Cost.** n^2 for each step, of which some tens are needed.

use crate::random::Random;
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, Par};

/// Residual, relative to the eigenvalue, that is small enough: what follows takes signs in single precision.
const TOLERANCE: f64 = 1e-7;
/// Steps between looks at the residual.
const STRIDE: usize = 8;

/// The eigenvector of the largest eigenvalue, of length 1.
pub(super) fn leading(a: MatRef<'_, f64>, random: &mut Random) -> Vec<f64> {
    let n = a.nrows();
    let mut basis = Mat::<f64>::zeros(n, n + 1);
    let mut first = vec![0f32; n];
    random.normals(&mut first);
    let length = first.iter().map(|x| f64::from(x * x)).sum::<f64>().sqrt();
    for (i, x) in first.iter().enumerate() {
        basis[(i, 0)] = f64::from(*x) / length;
    }
    let (mut diagonal, mut beside) = (Vec::new(), Vec::new());
    let mut next = Mat::<f64>::zeros(n, 1);
    for k in 0..n {
        matmul(next.as_mut(), Accum::Replace, a, basis.subcols(k, 1), 1.0, Par::Seq);
        let mut alpha = 0.0;
        for _ in 0..2 {
            let known = basis.subcols(0, k + 1);
            let along = known.transpose() * &next;
            matmul(next.as_mut(), Accum::Add, known, along.as_ref(), -1.0, Par::Seq);
            alpha += along[(k, 0)];
        }
        diagonal.push(alpha);
        let beta = next.norm_l2();
        let look = (k + 1) % STRIDE == 0 || k + 1 == n;
        let scale = diagonal.iter().fold(0f64, |m: f64, x: &f64| m.max(x.abs()));
        let ended = beta <= 1e-14 * scale;
        if look || ended {
            let (value, y) = top_of_tridiagonal(&diagonal, &beside);
            let residual = beta * y[k].abs();
            if ended || k + 1 == n || residual <= TOLERANCE * value.abs().max(1e-3 * scale) {
                let mut out = vec![0f64; n];
                for (j, y) in y.iter().enumerate() {
                    out.iter_mut().zip(basis.col(j).iter()).for_each(|(o, b)| *o += y * b);
                }
                let length = out.iter().map(|x| x * x).sum::<f64>().sqrt();
                out.iter_mut().for_each(|x| *x /= length);
                return out;
            }
        }
        beside.push(beta);
        for i in 0..n {
            basis[(i, k + 1)] = next[(i, 0)] / beta;
        }
    }
    // Only a matrix without rows comes here: the last step always returns.
    Vec::new()
}

/// Largest eigenvalue of a tridiagonal matrix and its eigenvector.
fn top_of_tridiagonal(diagonal: &[f64], beside: &[f64]) -> (f64, Vec<f64>) {
    let k = diagonal.len();
    let around = |i: usize| {
        let before = if i > 0 { beside[i - 1] } else { 0.0 };
        before + beside.get(i).copied().filter(|_| i + 1 < k).unwrap_or(0.0)
    };
    let bound = |sign: f64| (0..k).map(|i| sign * diagonal[i] + around(i)).fold(f64::MIN, f64::max);
    let (mut high, mut low) = (bound(1.0), -bound(-1.0));
    // Is sigma I - T positive definite, that is, sigma above all eigenvalues?
    let above = |sigma: f64| {
        let mut pivot = sigma - diagonal[0];
        for i in 1..k {
            if pivot <= 0.0 {
                return false;
            }
            pivot = sigma - diagonal[i] - beside[i - 1] * beside[i - 1] / pivot;
        }
        pivot > 0.0
    };
    let size = high.abs().max(low.abs()).max(f64::MIN_POSITIVE);
    high += 1e-15 * size;
    while high - low > 4e-16 * size {
        let middle = 0.5 * (high + low);
        if middle <= low || middle >= high {
            break;
        }
        if above(middle) { high = middle } else { low = middle }
    }
    // Inverse iteration with a shift just above, where elimination needs no pivoting.
    let sigma = high + 1e-14 * size;
    let mut y = vec![1.0; k];
    let mut pivots = vec![0f64; k];
    for _ in 0..3 {
        pivots[0] = sigma - diagonal[0];
        for i in 1..k {
            let factor = -beside[i - 1] / pivots[i - 1];
            pivots[i] = sigma - diagonal[i] + factor * beside[i - 1];
            if pivots[i] <= 0.0 {
                pivots[i] = 1e-15 * size;
            }
            y[i] -= factor * y[i - 1];
        }
        y[k - 1] /= pivots[k - 1];
        for i in (0..k - 1).rev() {
            y[i] = (y[i] + beside[i] * y[i + 1]) / pivots[i];
        }
        let length = y.iter().map(|x| x * x).sum::<f64>().sqrt();
        y.iter_mut().for_each(|x| *x /= length);
    }
    (high, y)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg;

    #[test]
    fn it_is_the_first_of_a_full_decomposition() {
        for (n, seed) in [(1usize, 1), (2, 2), (7, 3), (60, 4), (150, 5)] {
            let random = &mut Random::new(seed, 0);
            let g = linalg::gaussian(random, n, n);
            // Indefinite, and with the largest eigenvalue smaller in size than the smallest.
            let a = &g + g.transpose() - Mat::<f64>::identity(n, n) * faer::Scale(5.0);
            let (values, vectors) = linalg::eigen(a.as_ref()).unwrap();
            let found = leading(a.as_ref(), random);
            let cosine: f64 = found.iter().zip(vectors.col(0).iter()).map(|(a, b)| a * b).sum();
            assert!(cosine.abs() > 1.0 - 1e-9, "n = {n}: {cosine}, values {:?}", &values[..1]);
        }
    }
}
