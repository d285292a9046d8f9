//! The features of SGH: K_j(x) = exp(-|x - a_j|^2 / (2 delta)) less its mean, for rows x and anchors a_j that are centred
//! and of length 1. Distances come from one product of rows and anchors.

use super::encoder::Features;
use crate::linalg;
use faer::linalg::matmul::matmul;
use faer::{Accum, Par};
use std::sync::Arc;

/// What makes features of rows.
#[derive(Default)]
pub(super) struct Kernel {
    pub(super) mean: Vec<f32>,
    /// Anchors, centred and of length 1, and their squared lengths (0 if the anchor was the mean itself).
    pub(super) anchors: Vec<f32>,
    pub(super) squares: Vec<f32>,
    /// 1 / (2 delta).
    pub(super) sharpness: f32,
    /// Means of the features.
    pub(super) middle: Vec<f32>,
}

impl Kernel {
    /// Centres rows and scales them to length 1; their squared lengths after that, 1 or 0.
    pub(super) fn normalise(&self, rows: &mut [f32]) -> Vec<f32> {
        rows.chunks_exact_mut(self.mean.len())
            .map(|row| {
                pulp::Arch::new().dispatch(
                    #[inline(always)]
                    || {
                        let mut lanes = [0f32; 16];
                        for (part, mean) in row.chunks_mut(16).zip(self.mean.chunks(16)) {
                            for ((x, m), sum) in part.iter_mut().zip(mean).zip(&mut lanes) {
                                *x -= m;
                                *sum += *x * *x;
                            }
                        }
                        let square: f32 = lanes.iter().sum();
                        if square > 0.0 {
                            let scale = 1.0 / square.sqrt();
                            for x in row {
                                *x *= scale;
                            }
                            1.0
                        } else {
                            0.0
                        }
                    },
                )
            })
            .collect()
    }

    /// Products of rows with anchors.
    pub(super) fn products(&self, rows: &[f32], to: &mut [f32], par: Par) {
        let (dim, count) = (self.mean.len(), self.squares.len());
        let (rows, anchors) = (linalg::rows(rows, dim), linalg::rows(&self.anchors, dim));
        matmul(linalg::rows_mut(to, count), Accum::Replace, rows, anchors.transpose(), 1.0, par);
    }

    /// From products to exp(-|x - a|^2 / (2 delta)).
    pub(super) fn bend(&self, products: &mut [f32], squares: &[f32]) {
        pulp::Arch::new().dispatch(
            #[inline(always)]
            || {
                for (row, square) in products.chunks_exact_mut(self.squares.len()).zip(squares) {
                    for (g, a) in row.iter_mut().zip(&self.squares) {
                        *g = exp(-(square + a - 2.0 * *g).max(0.0) * self.sharpness);
                    }
                }
            },
        );
    }
}

/// e^x for x from -87 to 0, to the last digit or two, in a form that compiles to vector instructions.
#[inline(always)]
fn exp(x: f32) -> f32 {
    /// Adding and subtracting it rounds to a whole number, which then stands in its last bits.
    const ROUND: f32 = 12_582_912.0;
    let x = x.max(-87.0);
    // 2^k e^rest with |rest| below ln 2 / 2.
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let k = shifted - ROUND;
    let rest = (x - k * 0.693_145_75) - k * 1.428_606_8e-6;
    let mut series = 1.0 / 5040.0;
    for inverse in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        series = series * rest + inverse;
    }
    f32::from_bits(shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23) * series
}

/// The kernel, shared by the functions of all code lengths.
pub(super) struct Shared(pub(super) Arc<Kernel>);

impl Features for Shared {
    fn features(&self, rows: &[f32], par: Par) -> Vec<f32> {
        let kernel = &self.0;
        let mut x = rows.to_vec();
        let squares = kernel.normalise(&mut x);
        let mut k = vec![0f32; squares.len() * kernel.squares.len()];
        kernel.products(&x, &mut k, par);
        kernel.bend(&mut k, &squares);
        for row in k.chunks_exact_mut(kernel.middle.len()) {
            row.iter_mut().zip(&kernel.middle).for_each(|(k, m)| *k -= m);
        }
        k
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_exponential_is_that_of_the_system() {
        for i in 0..8600 {
            let x = -(i as f32) * 0.01;
            let want = f64::from(x).exp();
            assert!((f64::from(super::exp(x)) / want - 1.0).abs() < 5e-7, "{x}");
        }
        assert!(super::exp(0.0) == 1.0 && super::exp(-1e9) < 1e-37);
    }
}
