//! Batch PCA: the exact principal directions, turned or not.
//!
//! **Not in the paper**; it is what OSH and FROSH approximate, so it says what is lost by sketching. PCA takes the
//! directions as they are, PCA-RR turns them at random, PCA-ITQ by iterative quantisation (Gong and Lazebnik 2011):
//! 50 rounds of B = sign(V R), R = polar(V'B), on the centred projections V of at most 10,000 random rows.
//!
//! **Cost.** n d^2 for the scatter matrix, in one pass, and d^3 for its eigenvectors; d^2 numbers in memory. Products
//! are in single precision, sums over blocks of rows in double.

use super::encoder::Centred;
use super::{Encoder, Learner, Method, Task};
use crate::error::Result;
use crate::linalg;
use crate::random::Random;
use faer::linalg::matmul::triangular::{self, BlockStructure};
use faer::{Accum, Mat, MatRef, Par};
use std::collections::HashSet;

/// Rows that ITQ looks at, and its rounds.
const SAMPLE: u64 = 10_000;
const ROUNDS: usize = 50;
/// Rows whose products are added up in single precision.
const BLOCK: usize = 1024;

/// The scatter of all rows about their mean, and a sample of them.
pub(super) struct Pca {
    gives: Vec<(Method, usize)>,
    seed: u64,
    dim: usize,
    rows: u64,
    /// What is subtracted before products, so that a large mean costs no digits: the first row.
    shift: Vec<f32>,
    sum: Vec<f64>,
    scatter: Mat<f64>,
    wanted: HashSet<u64>,
    sample: Vec<f32>,
    /// Directions and mean, once the pass is over.
    directions: Mat<f64>,
}

impl Pca {
    pub(super) fn new(task: &Task, gives: Vec<(Method, usize)>) -> Self {
        let sampled = gives.iter().any(|(method, _)| *method == Method::PcaItq);
        let count = if sampled { SAMPLE } else { 0 };
        let wanted = Random::new(task.seed, 0x0069_7471).choose(count, task.rows);
        Self {
            gives,
            seed: task.seed,
            dim: task.dim,
            rows: 0,
            shift: Vec::new(),
            sum: vec![0.0; task.dim],
            scatter: Mat::zeros(task.dim, task.dim),
            wanted: wanted.into_iter().collect(),
            sample: Vec::new(),
            directions: Mat::new(),
        }
    }

    fn mean(&self) -> Vec<f32> {
        let n = self.rows as f64;
        self.sum.iter().zip(&self.shift).map(|(s, o)| (s / n + f64::from(*o)) as f32).collect()
    }
}

/// Adds X'X to the lower half of `to`, for rows X that were shifted.
pub(crate) fn add_scatter(to: &mut Mat<f64>, rows: MatRef<'_, f32>, par: Par) {
    let dim = rows.ncols();
    let mut product = Mat::<f32>::zeros(dim, dim);
    triangular::matmul(
        product.as_mut(),
        BlockStructure::TriangularLower,
        Accum::Replace,
        rows.transpose(),
        BlockStructure::Rectangular,
        rows,
        BlockStructure::Rectangular,
        1.0,
        par,
    );
    for j in 0..dim {
        for (to, x) in to.col_mut(j).iter_mut().zip(product.col(j).iter()).skip(j) {
            *to += f64::from(*x);
        }
    }
}

impl Learner for Pca {
    fn gives(&self) -> Vec<(Method, usize)> {
        self.gives.clone()
    }

    fn push(&mut self, rows: &[f32]) -> Result<()> {
        if self.shift.is_empty() {
            self.shift = rows[..self.dim].to_vec();
        }
        let mut block = Vec::with_capacity(BLOCK * self.dim);
        for part in rows.chunks(BLOCK * self.dim) {
            block.clear();
            for row in part.chunks_exact(self.dim) {
                if self.wanted.contains(&self.rows) {
                    self.sample.extend_from_slice(row);
                }
                block.extend(row.iter().zip(&self.shift).map(|(x, o)| x - o));
                self.rows += 1;
            }
            for row in block.chunks_exact(self.dim) {
                self.sum.iter_mut().zip(row).for_each(|(s, x)| *s += f64::from(*x));
            }
            add_scatter(&mut self.scatter, linalg::rows(&block, self.dim), Par::Seq);
        }
        Ok(())
    }

    fn end_pass(&mut self) -> Result<()> {
        let n = self.rows as f64;
        for j in 0..self.dim {
            for i in j..self.dim {
                self.scatter[(i, j)] -= self.sum[i] * self.sum[j] / n;
            }
        }
        self.directions = linalg::eigen(self.scatter.as_ref())?.1;
        Ok(())
    }

    fn fit(&mut self, method: Method, bits: usize) -> Result<Encoder> {
        let mean = self.mean();
        let v = self.directions.subcols(0, bits);
        let random = &mut Random::new(self.seed, 0x726f_7461);
        let w = match method {
            Method::PcaRr => {
                linalg::product(v, linalg::random_orthonormal(random, bits, bits).as_ref())
            }
            Method::PcaItq => {
                let mut sample = self.sample.clone();
                for row in sample.chunks_exact_mut(self.dim) {
                    row.iter_mut().zip(&mean).for_each(|(x, m)| *x -= m);
                }
                let narrow = Mat::from_fn(self.dim, bits, |i, j| v[(i, j)] as f32);
                let projected = linalg::product(linalg::rows(&sample, self.dim), narrow.as_ref());
                linalg::product(v, itq(projected.as_ref(), random)?.as_ref())
            }
            _ => v.to_owned(),
        };
        Ok(Encoder::linear(self.dim, Box::new(Centred(mean)), w.as_ref()))
    }
}

/// The rotation that brings the rows of V nearest to the corners of the cube.
fn itq(v: MatRef<'_, f32>, random: &mut Random) -> Result<Mat<f64>> {
    let r = v.ncols();
    let mut rotation = linalg::random_orthonormal(random, r, r);
    for _ in 0..ROUNDS {
        let narrow = Mat::from_fn(r, r, |i, j| rotation[(i, j)] as f32);
        let mut turned = linalg::product(v, narrow.as_ref());
        for column in turned.col_iter_mut() {
            column.iter_mut().for_each(|x| *x = if *x >= 0.0 { 1.0 } else { -1.0 });
        }
        let cross = linalg::product(v.transpose(), turned.as_ref());
        let cross = Mat::from_fn(r, r, |i, j| f64::from(cross[(i, j)]));
        rotation = linalg::polar(cross.as_ref())?;
    }
    Ok(rotation)
}
