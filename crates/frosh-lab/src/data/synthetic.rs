//! The paper's made-up matrix, A = P Lambda U + Z / gamma.
//!
//! **Section 5.1 of the paper** (after Liberty 2013): P is n x k, Z is n x d, both of independent standard normal
//! numbers; Lambda_ii = 1 - (i - 1)/k; the k rows of U are orthonormal (the paper prints U U' = I_d, which k rows
//! cannot satisfy: I_k is meant); k = gamma = 10.
//!
//! **Cost.** About 2 ns a value; a row is a function of (seed, row).

use super::Source;
use crate::error::Result;
use crate::linalg;
use crate::random::Random;

/// Directions of the signal, k, and the ratio of signal to noise, gamma.
const SIGNAL: usize = 10;
const GAMMA: f32 = 10.0;

/// The matrix.
pub(crate) struct Synthetic {
    rows: u64,
    dim: usize,
    seed: u64,
    /// Lambda U, row by row.
    signal: Vec<f32>,
}

impl Synthetic {
    pub(crate) fn new(rows: u64, dim: usize, seed: u64) -> Self {
        let k = SIGNAL.min(dim);
        let mut random = Random::new(seed, u64::MAX);
        let u = linalg::random_orthonormal(&mut random, dim, k);
        let lambda = |i: usize| 1.0 - i as f64 / SIGNAL as f64;
        let signal =
            (0..k).flat_map(|i| u.col(i).iter().map(move |x| (lambda(i) * x) as f32)).collect();
        Self { rows, dim, seed, signal }
    }

    fn row(&self, number: u64, to: &mut [f32]) {
        let mut random = Random::new(self.seed, number);
        let mut coefficients = [0f32; SIGNAL];
        random.normals(&mut coefficients);
        random.normals(to);
        pulp::Arch::new().dispatch(
            #[inline(always)]
            || {
                for x in to.iter_mut() {
                    *x *= 1.0 / GAMMA;
                }
                for (direction, c) in self.signal.chunks_exact(self.dim).zip(coefficients) {
                    for (x, u) in to.iter_mut().zip(direction) {
                        *x += c * u;
                    }
                }
            },
        );
    }
}

impl Source for Synthetic {
    fn rows(&self) -> u64 {
        self.rows
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn first(&self, end: u64, take: &mut dyn FnMut(&[f32]) -> Result<()>) -> Result<()> {
        super::stand_in::generate(self, end, take, |number, to| self.row(number, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_covariance_is_the_papers() {
        let (n, d) = (20_000, 32);
        let made = Synthetic::new(n, d, 7);
        let mut scatter = vec![0f64; d * d];
        made.each(&mut |rows| {
            for row in rows.chunks_exact(d) {
                for i in 0..d {
                    for j in 0..d {
                        scatter[i * d + j] += f64::from(row[i] * row[j]);
                    }
                }
            }
            Ok(())
        })
        .unwrap();
        // Along direction i of the signal the variance is Lambda_ii^2 + 1/gamma^2.
        for (i, direction) in made.signal.chunks_exact(d).enumerate() {
            let lambda = 1.0 - i as f64 / 10.0;
            let u: Vec<f64> = direction.iter().map(|x| f64::from(*x) / lambda).collect();
            let mut variance = 0.0;
            for a in 0..d {
                for b in 0..d {
                    variance += u[a] * scatter[a * d + b] * u[b] / n as f64;
                }
            }
            assert!((variance / (lambda * lambda + 0.01) - 1.0).abs() < 0.05, "{i}: {variance}");
        }
        let total: f64 = (0..d).map(|i| scatter[i * d + i] / n as f64).sum();
        assert!((total / (3.85 + 0.32) - 1.0).abs() < 0.02, "{total}");
    }
}
