//! OCH-style: a baseline after Ordinal Constraint Hashing (Liu, Ji, Wu, Huang, AAAI 2017).
//!
//! The original code was never released, and the authors' later re-implementation differs from their text; so this is no
//! reproduction, and is called OCH-style wherever it appears. It keeps the idea: the order of similarities between
//! landmarks is to be the order of the products of their relaxed codes (`ordinal.rs`).
//!
//! 1. Train on 10,000 random rows, centred. 300 landmarks by k-means, 10 rounds of Lloyd's.
//! 2. PCA to max(r, 64) dimensions, scaled to unit variance on average, so that tanh neither saturates nor is linear.
//! 3. Affinities of landmarks: Gaussian densities whose width is 0.35 times the mean distance to the 16 nearest.
//! 4. 300 steps of descent over W with W'W = I, each on 30 landmarks in turn, with Armijo's rule on the same loss.
//! 5. Bits: signs of (x - mean) PCA W.
//!
//! **Cost.** Does not depend on n: 10 * 10,000 * 300 * d for k-means, 10,000 d^2 + d^3 for the PCA (by subspace iteration
//! where d is large), and some milliseconds a step. One pass over the data takes the sample, which is kept.

use super::encoder::Centred;
use super::ordinal::Ordinal;
use super::{Encoder, Learner, Method, Task, add_scatter};
use crate::error::Result;
use crate::linalg;
use crate::random::Random;
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, Par};
use std::collections::HashSet;

/// Rows trained on, landmarks among them, and rounds of k-means.
const SAMPLE: u64 = 10_000;
const LANDMARKS: usize = 300;
const KMEANS_ROUNDS: usize = 10;
/// Least dimensions that PCA keeps.
const LEAST_DIMS: usize = 64;
/// Steps of descent, and landmarks that each looks from.
const STEPS: usize = 300;
const ANCHORS: usize = 30;
/// Dimension above which PCA does not form d x d numbers.
const MOST_SCATTER: usize = 2048;
/// Rows that are worked on at once.
const BLOCK: usize = 1024;

/// OCH-style in the making.
pub(super) struct Och {
    bits: Vec<usize>,
    dim: usize,
    seed: u64,
    seen: u64,
    wanted: HashSet<u64>,
    sample: Vec<f32>,
    mean: Vec<f32>,
    landmarks: Vec<f32>,
}

impl Och {
    pub(super) fn new(task: &Task, bits: Vec<usize>) -> Self {
        let wanted = Random::new(task.seed, 0x006f_6368).choose(SAMPLE, task.rows);
        Self {
            bits,
            dim: task.dim,
            seed: task.seed,
            seen: 0,
            sample: Vec::with_capacity(wanted.len() * task.dim),
            wanted: wanted.into_iter().collect(),
            mean: Vec::new(),
            landmarks: Vec::new(),
        }
    }
}

impl Learner for Och {
    fn gives(&self) -> Vec<(Method, usize)> {
        self.bits.iter().map(|b| (Method::Och, *b)).collect()
    }

    fn push(&mut self, rows: &[f32]) -> Result<()> {
        for row in rows.chunks_exact(self.dim) {
            if self.wanted.contains(&self.seen) {
                self.sample.extend_from_slice(row);
            }
            self.seen += 1;
        }
        Ok(())
    }

    fn end_pass(&mut self) -> Result<()> {
        let n = (self.sample.len() / self.dim) as f64;
        let mut sum = vec![0f64; self.dim];
        for row in self.sample.chunks_exact(self.dim) {
            sum.iter_mut().zip(row).for_each(|(s, x)| *s += f64::from(*x));
        }
        self.mean = sum.iter().map(|s| (s / n) as f32).collect();
        for row in self.sample.chunks_exact_mut(self.dim) {
            row.iter_mut().zip(&self.mean).for_each(|(x, m)| *x -= m);
        }
        self.landmarks = kmeans(&self.sample, self.dim, &mut Random::new(self.seed, 0x6b6d));
        Ok(())
    }

    fn fit(&mut self, _: Method, bits: usize) -> Result<Encoder> {
        let random = &mut Random::new(self.seed, 0x006f_6369);
        let dims = bits.max(LEAST_DIMS).min(self.dim);
        let (mut v, variance) = principal(linalg::rows(&self.sample, self.dim), dims, random)?;
        let scale = 1.0 / (variance / dims as f64).sqrt().max(f64::MIN_POSITIVE);
        v *= faer::Scale(scale);
        let wide =
            |x: MatRef<'_, f32>| Mat::from_fn(x.nrows(), x.ncols(), |i, j| f64::from(x[(i, j)]));
        let landmarks = wide(linalg::rows(&self.landmarks, self.dim));
        let projected = linalg::product(landmarks.as_ref(), v.as_ref());
        let ordinal = Ordinal::new(projected, &distances(&self.landmarks, self.dim));
        let start = linalg::random_orthonormal(random, dims, bits);
        let w = ordinal.descend(start, STEPS, ANCHORS)?;
        let w = linalg::product(v.as_ref(), w.as_ref());
        Ok(Encoder::linear(self.dim, Box::new(Centred(self.mean.clone())), w.as_ref()))
    }
}

/// Distances between all pairs of rows.
fn distances(rows: &[f32], dim: usize) -> Mat<f64> {
    let x = linalg::rows(rows, dim);
    let gram = linalg::product(x, x.transpose());
    Mat::from_fn(x.nrows(), x.nrows(), |i, j| {
        let square = gram[(i, i)] + gram[(j, j)] - 2.0 * gram[(i, j)];
        if i == j { 0.0 } else { f64::from(square.max(0.0)).sqrt() }
    })
}

/// Centres of k-means, begun at random rows; a centre that no row is nearest to stays.
fn kmeans(rows: &[f32], dim: usize, random: &mut Random) -> Vec<f32> {
    let n = rows.len() / dim;
    let k = LANDMARKS.min(n);
    let row = |i: usize| &rows[i * dim..][..dim];
    let chosen = random.choose(k as u64, n as u64);
    let mut centres: Vec<f32> = chosen.iter().flat_map(|i| row(*i as usize).to_vec()).collect();
    let mut products = vec![0f32; BLOCK * k];
    for _ in 0..KMEANS_ROUNDS {
        let squares: Vec<f32> =
            centres.chunks_exact(dim).map(|c| c.iter().map(|x| x * x).sum()).collect();
        let mut sums = vec![0f32; k * dim];
        let mut counts = vec![0u32; k];
        for block in rows.chunks(BLOCK * dim) {
            let products = &mut products[..block.len() / dim * k];
            let to = linalg::rows_mut(products, k);
            let turned = linalg::rows(&centres, dim).transpose();
            matmul(to, Accum::Replace, linalg::rows(block, dim), turned, 1.0, Par::Seq);
            for (near, row) in products.chunks_exact(k).zip(block.chunks_exact(dim)) {
                let far = |j: usize| squares[j] - 2.0 * near[j];
                let best = (0..k).min_by(|a, b| far(*a).total_cmp(&far(*b))).unwrap_or(0);
                counts[best] += 1;
                let sum = &mut sums[best * dim..][..dim];
                sum.iter_mut().zip(row).for_each(|(s, x)| *s += x);
            }
        }
        for ((centre, sum), count) in
            centres.chunks_exact_mut(dim).zip(sums.chunks_exact(dim)).zip(&counts)
        {
            if *count > 0 {
                centre.iter_mut().zip(sum).for_each(|(c, s)| *c = s / *count as f32);
            }
        }
    }
    centres
}

/// The leading principal directions of centred rows, and the variance along all of them together.
fn principal(x: MatRef<'_, f32>, dims: usize, random: &mut Random) -> Result<(Mat<f64>, f64)> {
    let (n, d) = (x.nrows(), x.ncols());
    if d <= MOST_SCATTER {
        let mut scatter = Mat::zeros(d, d);
        for from in (0..n).step_by(BLOCK) {
            add_scatter(&mut scatter, x.subrows(from, BLOCK.min(n - from)), Par::Seq);
        }
        let (values, vectors) = linalg::eigen(scatter.as_ref())?;
        let variance = values[..dims].iter().sum::<f64>() / n as f64;
        return Ok((vectors.subcols(0, dims).to_owned(), variance));
    }
    // Subspace iteration (Halko, Martinsson, Tropp 2011): two rounds, some directions more than wanted.
    let width = (dims + 16).min(d).min(n);
    let narrow = |m: MatRef<'_, f64>| Mat::from_fn(m.nrows(), m.ncols(), |i, j| m[(i, j)] as f32);
    let wide = |m: Mat<f32>| Mat::from_fn(m.nrows(), m.ncols(), |i, j| f64::from(m[(i, j)]));
    let mut q = linalg::gaussian(random, d, width);
    for _ in 0..3 {
        let y = linalg::product(x, narrow(q.as_ref()).as_ref());
        let y = narrow(linalg::orthonormal(wide(y).as_ref()).as_ref());
        q = linalg::orthonormal(wide(linalg::product(x.transpose(), y.as_ref())).as_ref());
    }
    let y = wide(linalg::product(x, narrow(q.as_ref()).as_ref()));
    let (values, vectors) = linalg::eigen(linalg::product(y.transpose(), y.as_ref()).as_ref())?;
    let dims = dims.min(width);
    let variance = values[..dims].iter().sum::<f64>() / n as f64;
    Ok((linalg::product(q.as_ref(), vectors.subcols(0, dims)), variance))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subspace_iteration_finds_the_principal_directions() {
        let (n, d, k) = (300, 2100, 4);
        let random = &mut Random::new(2, 9);
        let mut x = vec![0f32; n * d];
        random.normals(&mut x);
        for row in x.chunks_exact_mut(d) {
            (0..k).for_each(|j| row[j] *= 60.0 / (1.0 + j as f32));
        }
        let (v, variance) = principal(linalg::rows(&x, d), k, random).unwrap();
        // Nearly the first k axes.
        let inside: f64 = (0..k).map(|j| (0..k).map(|i| v[(i, j)].powi(2)).sum::<f64>()).sum();
        assert!(inside > 0.9 * k as f64, "{inside}");
        let want: f64 = (1..=k).map(|j| (60.0 / j as f64).powi(2)).sum();
        assert!((variance / want - 1.0).abs() < 0.2);
    }

    #[test]
    fn k_means_finds_well_separated_clusters() {
        let (n, dim) = (1200, 3);
        let rows: Vec<f32> = (0..n)
            .flat_map(|i| {
                [(i % 4) as f32 * 100.0 + (i % 7) as f32 * 0.01, 0.0, (i % 5) as f32 * 0.01]
            })
            .collect();
        let centres = kmeans(&rows, dim, &mut Random::new(1, 1));
        assert!(
            centres.chunks_exact(dim).all(|c| (c[0] / 100.0 - (c[0] / 100.0).round()).abs() < 0.01)
        );
        assert_eq!(centres.len(), LANDMARKS * dim);
    }
}
