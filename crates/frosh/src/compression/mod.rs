//! The compression stage: m rows of a block become q rows with nearly the same Gram matrix.
//!
//! Two ways with one interface, [`srht`] and
//! [`sparse_embedding`]. Both are linear maps Phi, fed one sub-block of p rows
//! at a time; what is kept is the accumulator Phi Y and the small vector Phi 1, which the
//! [centring](crate::centering) needs when the block is complete. Columns never mix, so threads split
//! columns and the result is the same bytes for any number of them.

use crate::centering::Centering;
use crate::kernels::{self, Isa, Panel};
use crate::pool::Pool;
use crate::{sparse_embedding, srht};

/// How rows of a block are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Srht,
    Sparse,
}

/// The block that is being compressed.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    kind: Kind,
    dim: usize,
    /// Rows out.
    pub(crate) q: usize,
    /// Rows of a sub-block.
    pub(crate) p: usize,
    /// Rows in.
    pub(crate) m: usize,
    seed: u64,
    worker: u64,
    /// Number of this block in the stream: the trial t of the paper.
    pub(crate) trial: u64,
    /// Sub-blocks absorbed.
    pub(crate) done: usize,
    /// Phi Y, unscaled: q rows once the first sub-block has come.
    pub(crate) acc: Vec<f32>,
    /// Phi 1, unscaled.
    pub(crate) tally: Vec<i64>,
}

/// The randomness of one sub-block, made ready for the kernel.
enum Plan {
    Srht { signs: Vec<f32>, picks: Vec<(u32, f32)> },
    Sparse { buckets: Vec<(u32, f32)> },
}

impl Block {
    pub(crate) fn new(kind: Kind, dim: usize, q: usize, m: usize, seed: u64, worker: u64) -> Self {
        let p = srht::height(q, m);
        let (acc, tally) = (Vec::new(), vec![0; q]);
        Self { kind, dim, q, p, m, seed, worker, trial: 0, done: 0, acc, tally }
    }

    /// Sub-blocks that are still to come.
    pub(crate) fn remaining(&self) -> usize {
        self.m / self.p - self.done
    }

    /// Absorbs whole sub-blocks of rows; the rows of the last one from `live` on are padding of
    /// zeros. Raw rows have the centring's reference still to be subtracted. Returns the largest
    /// magnitude seen, as bits.
    pub(crate) fn absorb(
        &mut self,
        pool: &Pool,
        rows: &[f32],
        live: usize,
        raw: bool,
        centering: &mut Centering,
    ) -> u32 {
        let (dim, p) = (self.dim, self.p);
        let zero = if raw { Vec::new() } else { vec![0f32; dim] };
        let Centering { reference, sum, rows: absorbed, .. } = centering;
        let reference = if raw { &reference[..] } else { &zero };
        let count = rows.len() / (p * dim);
        let plans = self.plan(count, live);
        self.acc.resize(self.q * dim, 0.0);
        // The sparse embedding only adds: on rows of moderate width one thread keeps up with memory, and two
        // that read half of every row each were slower. The shrink still runs beside it.
        let narrow = self.kind == Kind::Sparse && dim < 4096;
        let width = panel_width(dim, p, if narrow { 1 } else { pool.threads() });
        let mut panels = columns(&mut self.acc, dim, width, sum);
        let largest = std::sync::atomic::AtomicU32::new(0);
        let isa = Isa::detect();
        let jobs: Vec<_> = panels.iter_mut().enumerate().collect();
        pool.each(jobs, |(n, (acc, sum))| {
            let from = n * width;
            let reference = &reference[from..from + sum.len()];
            let mut scratch = vec![0f32; p * kernels::hadamard::STRIP];
            let mut seen = 0;
            for (rows, plan) in rows.chunks_exact(p * dim).zip(&plans) {
                let rows = Panel::new(rows, dim, from, sum.len());
                seen = seen.max(match plan {
                    Plan::Srht { signs, picks } => {
                        let job = kernels::hadamard::SubBlock { rows, reference, signs, picks };
                        kernels::hadamard::sub_block(isa, job, acc, sum, &mut scratch)
                    }
                    Plan::Sparse { buckets } => {
                        let job = kernels::scatter::SubBlock { rows, reference, buckets };
                        kernels::scatter::sub_block(isa, job, acc, sum)
                    }
                });
            }
            largest.fetch_max(seen, std::sync::atomic::Ordering::Relaxed);
        });
        *absorbed += ((count - 1) * p + live) as u64;
        self.done += count;
        largest.into_inner()
    }

    /// Draws the randomness of the next `count` sub-blocks and adds to Phi 1.
    fn plan(&mut self, count: usize, live: usize) -> Vec<Plan> {
        let (p, seed, worker) = (self.p, self.seed, self.worker);
        let sample = match self.kind {
            Kind::Srht => srht::sample(seed, worker, self.trial, self.q, self.m),
            Kind::Sparse => Vec::new(),
        };
        let mut plans = Vec::with_capacity(count);
        for b in self.done..self.done + count {
            let live = if b + 1 == self.done + count { live } else { p };
            let index = self.trial * (self.m / p) as u64 + b as u64;
            plans.push(match self.kind {
                Kind::Srht => {
                    let signs = srht::signs(seed, worker, index, p);
                    let picks = srht::picks(&sample, b as u32, p);
                    srht::tally(&mut self.tally, &signs, &picks, live);
                    Plan::Srht { signs, picks }
                }
                Kind::Sparse => {
                    let buckets = sparse_embedding::buckets(seed, worker, index, p, self.q);
                    for &(h, s) in &buckets[..live] {
                        self.tally[h as usize] += s as i64;
                    }
                    Plan::Sparse { buckets }
                }
            });
        }
        plans
    }

    /// Ends the block: scales and centres the q compressed rows, hands them to `take`, and starts the
    /// next block.
    pub(crate) fn close(&mut self, shift: &[f32], take: impl FnOnce(&[f32])) {
        let scale = match self.kind {
            Kind::Srht => 1.0 / (self.q as f32).sqrt(),
            Kind::Sparse => 1.0,
        };
        for (row, &t) in self.acc.chunks_exact_mut(self.dim).zip(&self.tally) {
            let t = t as f32;
            for (x, s) in row.iter_mut().zip(shift) {
                *x = (*x - t * s) * scale;
            }
        }
        take(&self.acc);
        self.acc.fill(0.0);
        self.tally.fill(0);
        self.done = 0;
        self.trial += 1;
    }
}

/// Columns that one task works on: wide enough to read memory in long runs (a megabyte of a sub-block;
/// narrower panels of wide rows were up to 1.5 times slower), and at least one panel for each thread.
fn panel_width(dim: usize, p: usize, threads: usize) -> usize {
    let cached = (262_144 / p).max(64);
    let shared = if threads > 1 { dim.div_ceil(threads) } else { dim };
    cached.min(shared.next_multiple_of(64))
}

/// Rows of the accumulator and the sums, cut into panels of `width` columns.
fn columns<'a>(
    acc: &'a mut [f32],
    dim: usize,
    width: usize,
    sum: &'a mut [f64],
) -> Vec<(Vec<&'a mut [f32]>, &'a mut [f64])> {
    let mut panels: Vec<(Vec<_>, _)> = sum.chunks_mut(width).map(|sum| (Vec::new(), sum)).collect();
    for row in acc.chunks_exact_mut(dim) {
        for (panel, part) in panels.iter_mut().zip(row.chunks_mut(width)) {
            panel.0.push(part);
        }
    }
    panels
}

#[cfg(test)]
mod tests;
