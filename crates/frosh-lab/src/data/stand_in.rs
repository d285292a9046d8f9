//! Made-up data of the shape of a set that cannot be had: descriptors with a power-law spectrum and clusters.
//!
//! A row is x = M (s * (g + centre of its cluster)): g of independent normal numbers, s_j = (1 + j)^(-decay/2), so
//! that eigenvalues fall like j^-decay; M is orthogonal: signs, Hadamard transforms of blocks, a permutation, and
//! both again, so that no axis is special. Clusters are of unequal sizes. Rows may be scaled to length 1, as those
//! of FLICKR-25600 are.
//!
//! What is measured on such data says something about time and memory, which depend on the shape, and little about
//! the accuracy that the real set would give; hence names that end in `-stand-in`.
//!
//! **Cost.** 2 to 4 ns a value, no matter how many rows; a row is a function of (seed, row).

use super::Source;
use crate::error::Result;
use crate::random::Random;

/// Clusters, and how far their centres lie apart compared to the spread inside.
const CLUSTERS: usize = 64;
const SPREAD: f32 = 1.0;

/// A generator of rows.
pub(crate) struct StandIn {
    rows: u64,
    dim: usize,
    seed: u64,
    unit: bool,
    /// Number of the first row: queries are rows after the base.
    first: u64,
    deviations: Vec<f32>,
    centres: Vec<f32>,
    /// Signs before the first and the second transform.
    signs: [Vec<f32>; 2],
    order: Vec<u32>,
}

impl StandIn {
    pub(crate) fn new(rows: u64, dim: usize, decay: f64, unit: bool, seed: u64) -> Self {
        let mut random = Random::new(seed, u64::MAX);
        let deviations: Vec<f32> =
            (1..=dim).map(|j| (j as f64).powf(-decay / 2.0) as f32).collect();
        let mut centres = vec![0f32; CLUSTERS * dim];
        random.normals(&mut centres);
        centres.iter_mut().for_each(|x| *x *= SPREAD);
        let mut sign = || if random.word() >> 63 == 0 { 1.0 } else { -1.0 };
        let signs = [(0..dim).map(|_| sign()).collect(), (0..dim).map(|_| sign()).collect()];
        let order = random.permutation(dim);
        Self { rows, dim, seed, unit, first: 0, deviations, centres, signs, order }
    }

    /// Rows of the same law after those of this one.
    pub(crate) fn queries(&self, rows: u64) -> Self {
        Self {
            rows,
            first: self.first + self.rows,
            deviations: self.deviations.clone(),
            centres: self.centres.clone(),
            signs: self.signs.clone(),
            order: self.order.clone(),
            ..*self
        }
    }

    fn row(&self, number: u64, scratch: &mut [f32], to: &mut [f32]) {
        let mut random = Random::new(self.seed, self.first + number);
        // A uniform number squared: early clusters are large, late ones small.
        let uniform = (random.word() >> 40) as f32 / (1u32 << 24) as f32;
        let cluster = ((uniform * uniform * CLUSTERS as f32) as usize).min(CLUSTERS - 1);
        let centre = &self.centres[cluster * self.dim..][..self.dim];
        random.normals(scratch);
        let block = 1usize << self.dim.trailing_zeros();
        pulp::Arch::new().dispatch(
            #[inline(always)]
            || {
                let first = self.deviations.iter().zip(&self.signs[0]);
                for ((x, c), (s, sign)) in scratch.iter_mut().zip(centre).zip(first) {
                    *x = (*x + c) * s * sign;
                }
                for part in scratch.chunks_exact_mut(block) {
                    hadamard(part);
                }
                for ((x, from), sign) in to.iter_mut().zip(&self.order).zip(&self.signs[1]) {
                    *x = scratch[*from as usize] * sign;
                }
                for part in to.chunks_exact_mut(block) {
                    hadamard(part);
                }
                let mut scale = 1.0 / block as f32;
                if self.unit {
                    let mut lanes = [0f32; 16];
                    for part in to.chunks(16) {
                        for (x, sum) in part.iter().zip(&mut lanes) {
                            *sum += x * x;
                        }
                    }
                    scale = 1.0 / lanes.iter().sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
                }
                for x in to {
                    *x *= scale;
                }
            },
        );
    }
}

impl Source for StandIn {
    fn rows(&self) -> u64 {
        self.rows
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn first(&self, end: u64, take: &mut dyn FnMut(&[f32]) -> Result<()>) -> Result<()> {
        let mut scratch = vec![0f32; self.dim];
        generate(self, end, take, |number, to| self.row(number, &mut scratch, to))
    }
}

/// Makes the first rows of a source, batch by batch.
pub(super) fn generate(
    source: &dyn Source,
    end: u64,
    take: &mut dyn FnMut(&[f32]) -> Result<()>,
    mut make: impl FnMut(u64, &mut [f32]),
) -> Result<()> {
    let (dim, rows, height) = (source.dim(), end.min(source.rows()), source.batch_rows());
    let mut batch = vec![0f32; height * dim];
    for from in (0..rows).step_by(height) {
        let count = (height as u64).min(rows - from) as usize;
        for (i, to) in batch[..count * dim].chunks_exact_mut(dim).enumerate() {
            make(from + i as u64, to);
        }
        take(&batch[..count * dim])?;
    }
    Ok(())
}

/// The unscaled Hadamard transform of a power of two of values.
#[inline(always)]
fn hadamard(x: &mut [f32]) {
    let mut half = 1;
    // Pairs and fours within one register's reach first, in a form that compiles to shuffles.
    while half < x.len() && half < 4 {
        for group in x.chunks_exact_mut(2 * half) {
            let (a, b) = group.split_at_mut(half);
            for (a, b) in a.iter_mut().zip(b) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
    while half < x.len() {
        for group in x.chunks_exact_mut(2 * half) {
            let (a, b) = group.split_at_mut(half);
            for (a, b) in a.chunks_exact_mut(4).zip(b.chunks_exact_mut(4)) {
                for (a, b) in a.iter_mut().zip(b) {
                    (*a, *b) = (*a + *b, *a - *b);
                }
            }
        }
        half *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(source: &dyn Source) -> Vec<f32> {
        let mut rows = Vec::new();
        source
            .each(&mut |batch| {
                rows.extend_from_slice(batch);
                Ok(())
            })
            .unwrap();
        rows
    }

    #[test]
    fn the_transform_is_the_definition() {
        for n in [1usize, 2, 4, 8, 64] {
            let x: Vec<f32> = (0..n).map(|i| ((i * 7 + 3) % 11) as f32).collect();
            let mut y = x.clone();
            hadamard(&mut y);
            for (i, y) in y.iter().enumerate() {
                let sign =
                    |j: usize| if (i & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
                assert_eq!(*y, (0..n).map(|j| sign(j) * x[j]).sum::<f32>());
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_rows_and_queries_come_after_them() {
        let (long, short) =
            (StandIn::new(300, 96, 1.0, false, 5), StandIn::new(200, 96, 1.0, false, 5));
        let (long, later) = (all(&long), all(&short.queries(100)));
        assert_eq!(long[..200 * 96], all(&short));
        assert_eq!(long[200 * 96..], later);
        assert_ne!(long, all(&StandIn::new(300, 96, 1.0, false, 6)));
    }

    #[test]
    fn rows_have_length_one_or_the_scatter_of_the_power_law() {
        let unit = all(&StandIn::new(50, 100, 1.0, true, 5));
        for row in unit.chunks_exact(100) {
            assert!((row.iter().map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-4);
        }
        // M is orthogonal, so the mean square is that of s (g + centre): twice the sum of s^2, about.
        let plain = all(&StandIn::new(4000, 64, 1.0, false, 5));
        let mean = plain.iter().map(|x| f64::from(x * x)).sum::<f64>() / 4000.0;
        let want: f64 = (1..=64).map(|j| 2.0 / j as f64).sum();
        assert!((mean / want - 1.0).abs() < 0.5, "{mean} {want}");
    }
}
