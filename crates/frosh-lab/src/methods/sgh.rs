//! SGH, Scalable Graph Hashing (Jiang and Li, IJCAI 2015): a batch method that the paper compares with.
//!
//! Rows are centred and scaled to length 1. The graph of similarities S~_ij = 2 exp(-|x_i - x_j|^2 / rho) - 1, rho = 2,
//! is never formed: with e^t on [-1, 1] replaced by its chord, S~_ij = P(x_i).Q(x_j),
//!
//! ```text
//! P(x) = [ sqrt(2 (e^2 - 1) / (e rho)) u x ;  sqrt((e^2 + 1) / e) u ;  1 ],   u = exp(-|x|^2 / rho),
//! ```
//!
//! and Q(x) the same with -1 at its end. Bits are signs of K(x).w, K_j(x) = exp(-|x - a_j|^2 / (2 delta)) less its mean
//! over the rows, for 300 random rows a_j; delta is the mean squared distance of rows to them. With
//! A = r (K'P)(K'Q)' and Z = K'K + 1e-6 I, each w in turn is the leading generalised eigenvector of (A, Z), after which
//! A <- A - v v', v = K' sign(K w); a second sweep does each bit again, in random order.
//!
//! **Where we differ** from the released code: delta comes from 2,000 random rows, so that two passes over the data
//! suffice, in place of four. The eigenproblems are solved in the coordinates in which Z is the identity, where an
//! update of A is one of rank one.
//!
//! **Cost.** 4 n 300 d flops for the features and K'P, then one pass over K for each bit and sweep; K is kept, n x 300
//! single-precision numbers. The data is not.

use super::kernel::{Kernel, Shared};
use super::lanczos;
use super::{Encoder, Learner, Method, Task, add_scatter};
use crate::error::{Error, Result};
use crate::linalg;
use crate::random::Random;
use faer::linalg::matmul::matmul;
use faer::linalg::triangular_solve;
use faer::reborrow::{Reborrow as _, ReborrowMut as _};
use faer::{Accum, Mat, MatRef, Par, Side};
use std::collections::HashSet;
use std::sync::Arc;

/// Rows that features are distances to.
pub(super) const ANCHORS: u64 = 300;
/// Rows that the width of the kernel is taken from.
const WIDTH_ROWS: u64 = 2000;
/// Rows that are worked on at once.
const BLOCK: usize = 1024;
const RHO: f64 = 2.0;

/// SGH in the making.
pub(super) struct Sgh {
    bits: Vec<usize>,
    dim: usize,
    seed: u64,
    rows: u64,
    /// Rows seen in this pass.
    seen: u64,
    first_pass: bool,
    sum: Vec<f64>,
    wanted: [HashSet<u64>; 2],
    /// The anchors and the rows for the width, as they came.
    kept: [Vec<f32>; 2],
    kernel: Arc<Kernel>,
    /// K, row by row.
    k: Vec<f32>,
    moments: Moments,
    /// L^-1 (K'P)(K'Q)' L^-T, without the factor r, and L, where Z = L L'.
    graph: Mat<f64>,
    factor: Mat<f64>,
}

/// Sums over rows that K'P and K'Q are made of.
struct Moments {
    /// Sum of K u x'.
    kx: Mat<f64>,
    /// Sums of K u, of K, of u x, and of u.
    ku: Vec<f64>,
    k: Vec<f64>,
    x: Vec<f64>,
    u: f64,
}

/// Factors of u x and of u in P and Q.
fn weights() -> (f64, f64) {
    let e = std::f64::consts::E;
    ((2.0 * (e * e - 1.0) / (e * RHO)).sqrt(), ((e * e + 1.0) / e).sqrt())
}

impl Moments {
    fn new(count: usize, dim: usize) -> Self {
        Self {
            kx: Mat::zeros(count, dim),
            ku: vec![0.0; count],
            k: vec![0.0; count],
            x: vec![0.0; dim],
            u: 0.0,
        }
    }
}

impl Sgh {
    pub(super) fn new(task: &Task, bits: Vec<usize>) -> Self {
        let mut random = Random::new(task.seed, 0x7367_6800);
        let mut choose = |count| random.choose(count, task.rows).into_iter().collect();
        let wanted = [choose(ANCHORS), choose(WIDTH_ROWS)];
        Self {
            bits,
            dim: task.dim,
            seed: task.seed,
            rows: task.rows,
            seen: 0,
            first_pass: true,
            sum: vec![0.0; task.dim],
            wanted,
            kept: Default::default(),
            kernel: Arc::default(),
            k: Vec::new(),
            moments: Moments::new(0, 0),
            graph: Mat::new(),
            factor: Mat::new(),
        }
    }

    /// After the first pass: mean, anchors and width.
    fn prepare(&mut self) {
        let n = self.seen.max(1) as f64;
        let mut kernel =
            Kernel { mean: self.sum.iter().map(|s| (s / n) as f32).collect(), ..Kernel::default() };
        let mut anchors = std::mem::take(&mut self.kept[0]);
        kernel.squares = kernel.normalise(&mut anchors);
        kernel.anchors = anchors;
        let mut some = std::mem::take(&mut self.kept[1]);
        let squares = kernel.normalise(&mut some);
        let count = kernel.squares.len();
        let mut near = vec![0f32; squares.len() * count];
        kernel.products(&some, &mut near, Par::Seq);
        let mut total = 0.0;
        for (row, square) in near.chunks_exact(count).zip(&squares) {
            for (g, a) in row.iter().zip(&kernel.squares) {
                total += f64::from(square + a - 2.0 * g);
            }
        }
        let delta = total / near.len().max(1) as f64;
        kernel.sharpness = (1.0 / (2.0 * delta.max(1e-12))) as f32;
        kernel.middle = vec![0.0; count];
        self.kernel = Arc::new(kernel);
        self.k.reserve_exact(self.rows as usize * count);
        self.moments = Moments::new(count, self.dim);
    }

    /// One block of rows of the second pass.
    fn take(&mut self, block: &[f32]) {
        let kernel = &self.kernel;
        let (dim, count) = (self.dim, kernel.squares.len());
        let mut x = block.to_vec();
        let squares = kernel.normalise(&mut x);
        let from = self.k.len();
        self.k.resize(from + squares.len() * count, 0.0);
        let k = &mut self.k[from..];
        kernel.products(&x, k, Par::Seq);
        kernel.bend(k, &squares);
        // From here on x is u x.
        let us: Vec<f32> = squares.iter().map(|s| (-s / RHO as f32).exp()).collect();
        for (row, u) in x.chunks_exact_mut(dim).zip(&us) {
            row.iter_mut().for_each(|x| *x *= u);
        }
        let sums = &mut self.moments;
        let kx = linalg::product(linalg::rows(k, count).transpose(), linalg::rows(&x, dim));
        for j in 0..dim {
            sums.kx
                .col_mut(j)
                .iter_mut()
                .zip(kx.col(j).iter())
                .for_each(|(s, x)| *s += f64::from(*x));
        }
        // Short sums in single precision, which vector units do fast, long ones in double.
        let sum = |to: &mut [f64], rows: &[f32], weights: Option<&[f32]>| {
            let mut short = vec![0f32; to.len()];
            pulp::Arch::new().dispatch(
                #[inline(always)]
                || {
                    for (i, row) in rows.chunks_exact(short.len()).enumerate() {
                        let weight = weights.map_or(1.0, |w| w[i]);
                        for (s, x) in short.iter_mut().zip(row) {
                            *s += weight * x;
                        }
                    }
                },
            );
            to.iter_mut().zip(&short).for_each(|(to, s)| *to += f64::from(*s));
        };
        sum(&mut sums.k, k, None);
        sum(&mut sums.ku, k, Some(&us));
        sum(&mut sums.x, &x, None);
        sums.u += us.iter().map(|u| f64::from(*u)).sum::<f64>();
    }

    /// After the second pass: K centred, A and Z.
    fn assemble(&mut self) -> Result<()> {
        let n = self.seen.max(1) as f64;
        let sums = std::mem::replace(&mut self.moments, Moments::new(0, 0));
        let count = sums.k.len();
        let middle: Vec<f64> = sums.k.iter().map(|s| s / n).collect();
        let (alpha, beta) = weights();
        // Columns of K'P: those of x, that of u; that of 1 is 0, since K is centred.
        let side = Mat::from_fn(count, self.dim + 1, |i, j| {
            if j < self.dim {
                alpha * (sums.kx[(i, j)] - middle[i] * sums.x[j])
            } else {
                beta * (sums.ku[i] - middle[i] * sums.u)
            }
        });
        let a = linalg::product(side.as_ref(), side.transpose());
        let narrow: Vec<f32> = middle.iter().map(|m| *m as f32).collect();
        let mut z = Mat::zeros(count, count);
        for block in self.k.chunks_mut(BLOCK * count) {
            pulp::Arch::new().dispatch(
                #[inline(always)]
                || {
                    for row in block.chunks_exact_mut(count) {
                        for (k, m) in row.iter_mut().zip(&narrow) {
                            *k -= m;
                        }
                    }
                },
            );
            add_scatter(&mut z, linalg::rows(block, count), Par::Seq);
        }
        if let Some(kernel) = Arc::get_mut(&mut self.kernel) {
            kernel.middle = narrow;
        }
        // The 1e-6 of the released code; more, where features depend on each other and sums in single precision are
        // not exact enough for that.
        let largest = (0..count).map(|i| z[(i, i)]).fold(0.0, f64::max);
        let more = [0.0, 1e-7, 1e-6, 1e-5, 1e-4].map(|share| 1e-6f64.max(share * largest));
        let factored = more.into_iter().find_map(|more| {
            (0..count).for_each(|i| z[(i, i)] += more);
            z.llt(Side::Lower).ok()
        });
        let found = factored.ok_or(Error::Numbers("a factorisation"))?;
        self.factor = found.L().to_owned();
        let mut half = a;
        self.solve(&mut half);
        let mut graph = half.transpose().to_owned();
        self.solve(&mut graph);
        self.graph = graph;
        Ok(())
    }

    /// X <- L^-1 X.
    fn solve(&self, x: &mut Mat<f64>) {
        triangular_solve::solve_lower_triangular_in_place(
            self.factor.as_ref(),
            x.as_mut(),
            Par::Seq,
        );
    }

    /// The next bit: its w, of length 1, and L^-1 v.
    fn bit(&self, graph: &Mat<f64>, random: &mut Random) -> (Mat<f64>, Mat<f64>) {
        let y = lanczos::leading(graph.as_ref(), random);
        let count = y.len();
        let mut w = Mat::from_fn(count, 1, |i, _| y[i]);
        triangular_solve::solve_upper_triangular_in_place(
            self.factor.transpose(),
            w.as_mut(),
            Par::Seq,
        );
        let length = w.norm_l2();
        w.col_mut(0).iter_mut().for_each(|x| *x /= length);
        let mut v = self.votes(w.as_ref());
        self.solve(&mut v);
        (w, v)
    }

    /// v = K' sign(K w), in one pass over K.
    fn votes(&self, w: MatRef<'_, f64>) -> Mat<f64> {
        let count = w.nrows();
        let narrow = Mat::from_fn(count, 1, |i, _| w[(i, 0)] as f32);
        let mut votes = Mat::zeros(count, 1);
        let (mut side, mut sum) = (Mat::<f32>::zeros(BLOCK, 1), Mat::<f32>::zeros(count, 1));
        for block in self.k.chunks(BLOCK * count) {
            let block = linalg::rows(block, count);
            let mut side = side.as_mut().subrows_mut(0, block.nrows());
            matmul(side.rb_mut(), Accum::Replace, block, narrow.as_ref(), 1.0, Par::Seq);
            side.rb_mut().col_mut(0).iter_mut().for_each(|x| {
                *x = if *x > 0.0 { 1.0 } else { -1.0 };
            });
            let side = side.rb();
            matmul(sum.as_mut(), Accum::Replace, block.transpose(), side, 1.0, Par::Seq);
            for i in 0..count {
                votes[(i, 0)] += f64::from(sum[(i, 0)]);
            }
        }
        votes
    }
}

impl Learner for Sgh {
    fn gives(&self) -> Vec<(Method, usize)> {
        self.bits.iter().map(|b| (Method::Sgh, *b)).collect()
    }

    fn passes(&self) -> usize {
        2
    }

    fn push(&mut self, rows: &[f32]) -> Result<()> {
        if !self.first_pass {
            rows.chunks(BLOCK * self.dim).for_each(|block| self.take(block));
            self.seen += (rows.len() / self.dim) as u64;
            return Ok(());
        }
        for row in rows.chunks_exact(self.dim) {
            for (wanted, kept) in self.wanted.iter().zip(&mut self.kept) {
                if wanted.contains(&self.seen) {
                    kept.extend_from_slice(row);
                }
            }
            self.sum.iter_mut().zip(row).for_each(|(s, x)| *s += f64::from(*x));
            self.seen += 1;
        }
        Ok(())
    }

    fn end_pass(&mut self) -> Result<()> {
        if !self.first_pass {
            return self.assemble();
        }
        self.prepare();
        (self.first_pass, self.seen) = (false, 0);
        Ok(())
    }

    fn fit(&mut self, _: Method, bits: usize) -> Result<Encoder> {
        let count = self.graph.nrows();
        let mut random = Random::new(self.seed, 0x7367_6801);
        let mut graph = &self.graph * faer::Scale(bits as f64);
        let update = |graph: &mut Mat<f64>, v: &Mat<f64>, sign: f64| {
            matmul(graph.as_mut(), Accum::Add, v.as_ref(), v.transpose(), sign, Par::Seq);
        };
        let mut found: Vec<(Mat<f64>, Mat<f64>)> = Vec::with_capacity(bits);
        for _ in 0..bits {
            let next = self.bit(&graph, &mut random);
            update(&mut graph, &next.1, -1.0);
            found.push(next);
        }
        for t in random.permutation(bits) {
            let old = &mut found[t as usize];
            update(&mut graph, &old.1, 1.0);
            *old = self.bit(&graph, &mut random);
            update(&mut graph, &old.1, -1.0);
        }
        let w = Mat::from_fn(count, bits, |i, t| found[t].0[(i, 0)]);
        Ok(Encoder::linear(self.dim, Box::new(Shared(self.kernel.clone())), w.as_ref()))
    }
}

#[cfg(test)]
mod tests;
