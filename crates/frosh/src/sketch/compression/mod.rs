//! The compression stage: reduces the m rows of a block to q rows with nearly the same Gram matrix.
//!
//! There are two linear maps Phi with one interface, [`srht`] and [`sparse_embedding`]. Both are applied to one
//! sub-block of p rows at a time. The state is the accumulator Phi Y and the vector Phi 1, which the
//! [centring](crate::sketch::centering) needs when the block is complete. Columns are independent, so threads divide the
//! columns, and the result is the same bytes for any number of threads.
//!
//! **Block sizes.** A compressed block has a relative error of about 1 / sqrt(q), and the errors of blocks are
//! independent. So a stream of n rows in blocks of m has a relative error of about sqrt(m / (n q)), which is large if the
//! stream has few blocks. Unless the caller sets m, blocks therefore grow with the stream: the size of a block that
//! starts after `before` rows is the largest power of two that is at most `before / g` (g is [`GROWTH`]), but at most m.
//! Then the relative error is at most about 1 / sqrt(2 g q) for every n. With g = 16 this is the error of 32
//! equal blocks. Blocks of less than two sub-blocks are not compressed. Sizes depend on the row number only: that in the
//! whole stream, also in a later [run](crate::sketch::runs) of it.

pub(crate) mod sparse_embedding;
pub(crate) mod srht;

use crate::arch::{Isa, Panel, hadamard, scatter};
use crate::pool::Pool;
use crate::random::Address;
use crate::sketch::centering::Centering;

/// The linear map that compresses a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Srht,
    Sparse,
}

/// A growing block has at most the number of rows before it divided by this number.
const GROWTH: u64 = 16;

/// The current block of the stream.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    kind: Kind,
    dim: usize,
    /// Output rows of a block.
    pub(crate) q: usize,
    /// Rows of a sub-block.
    pub(crate) p: usize,
    /// Input rows of this block.
    pub(crate) m: usize,
    /// Input rows of the largest block.
    pub(crate) largest: usize,
    /// Whether block sizes grow with the row number, up to the largest.
    pub(crate) grows: bool,
    /// Whether this block is too short to compress: its rows are appended to the sketch unchanged, q at a time.
    pub(crate) uncompressed: bool,
    /// Whose randomness it has.
    pub(crate) at: Address,
    /// Number of the run's first row in the stream.
    pub(crate) start: u64,
    /// Number of this block in the run: the trial t of the paper.
    pub(crate) trial: u64,
    /// Number of absorbed sub-blocks.
    pub(crate) done: usize,
    /// Phi Y, unscaled: q rows; empty before the first sub-block.
    pub(crate) acc: Vec<f32>,
    /// Phi 1, unscaled.
    pub(crate) tally: Vec<i64>,
    /// Sampled rows of the Hadamard transform, drawn once for each block.
    sample: Vec<u32>,
}

/// The random signs, picks or buckets of one sub-block, in the form that the kernels take.
enum Plan {
    Srht { signs: Vec<f32>, picks: Vec<(u32, f32)> },
    Sparse { buckets: Vec<(u32, f32)> },
}

impl Block {
    /// The first block of a stream in which every block has m rows.
    pub(crate) fn new(kind: Kind, dim: usize, q: usize, m: usize, seed: u64, worker: u64) -> Self {
        Self {
            kind,
            dim,
            q,
            p: srht::height(q, m),
            m,
            largest: m,
            grows: false,
            uncompressed: false,
            at: Address { seed, worker, run: 0 },
            start: 0,
            trial: 0,
            done: 0,
            acc: Vec::new(),
            tally: vec![0; q],
            sample: Vec::new(),
        }
    }

    /// The first block of a stream in which blocks grow up to m rows.
    pub(crate) fn growing(self) -> Self {
        let mut block = Self { grows: true, ..self };
        block.begin(0);
        block
    }

    /// Makes this the first block of run number `run`, which begins with row number `start` of the stream.
    pub(crate) fn restart(&mut self, run: u64, start: u64) {
        (self.at.run, self.start, self.trial) = (run, start, 0);
        self.clear();
        self.begin(0);
    }

    /// Sets the size of the block that starts after `before` rows of the run.
    pub(crate) fn begin(&mut self, before: u64) {
        self.m = self.rows_at(before).unwrap_or(0);
        self.uncompressed = self.m == 0;
    }

    /// Rows of the block that starts after `before` rows of the run; `None` if it is too short to be compressed.
    fn rows_at(&self, before: u64) -> Option<usize> {
        if !self.grows {
            return Some(self.largest);
        }
        let most = ((self.start + before) / GROWTH).min(self.largest as u64) as usize;
        (most >= 2 * self.p).then(|| 1 << most.ilog2())
    }

    /// Number of consecutive blocks of this block's size, from the one that starts after `before` rows, up to `most`.
    pub(crate) fn equal_blocks(&self, before: u64, most: usize) -> usize {
        let same = |i: &usize| self.rows_at(before + (i * self.m) as u64) == Some(self.m);
        (0..most).take_while(same).count()
    }

    /// Number of sub-blocks that this block still needs.
    pub(crate) fn remaining(&self) -> usize {
        self.m / self.p - self.done
    }

    /// Absorbs complete sub-blocks, divided among `threads` threads of the pool. In the last one, rows from `live` on
    /// are zero padding. If `raw`, the reference of the centring is subtracted from the rows. Returns the bits of the
    /// largest magnitude.
    pub(crate) fn absorb(
        &mut self,
        (pool, threads): (&Pool, usize),
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
        *absorbed += ((count - 1) * p + live) as u64;
        let plans = self.plan(count, live);
        self.acc.resize(self.q * dim, 0.0);
        let width = panel_width(self.kind, dim, p, threads);
        let panels = columns(&mut self.acc, dim, width, sum);
        let largest = std::sync::atomic::AtomicU32::new(0);
        let isa = Isa::detect();
        pool.each(panels.into_iter().enumerate().collect(), |(n, (mut acc, sum))| {
            let from = n * width;
            let reference = &reference[from..from + sum.len()];
            let mut scratch = vec![0f32; p * hadamard::STRIP];
            let mut seen = 0;
            for (rows, plan) in rows.chunks_exact(p * dim).zip(&plans) {
                let rows = Panel::new(rows, dim, from, sum.len());
                seen = seen.max(match plan {
                    Plan::Srht { signs, picks } => {
                        let job = hadamard::SubBlock { rows, reference, signs, picks };
                        hadamard::sub_block(isa, job, &mut acc, sum, &mut scratch)
                    }
                    Plan::Sparse { buckets } => {
                        let job = scatter::SubBlock { rows, reference, buckets };
                        scatter::sub_block(isa, job, &mut acc, sum)
                    }
                });
            }
            largest.fetch_max(seen, std::sync::atomic::Ordering::Relaxed);
        });
        self.done += count;
        largest.into_inner()
    }

    /// Draws the randomness of the next `count` sub-blocks, and updates Phi 1.
    fn plan(&mut self, count: usize, live: usize) -> Vec<Plan> {
        let (p, at) = (self.p, self.at);
        if self.kind == Kind::Srht && (self.done == 0 || self.sample.is_empty()) {
            self.sample = srht::sample(at, self.trial, self.q, self.m);
        }
        let mut plans = Vec::with_capacity(count);
        for b in self.done..self.done + count {
            let live = if b + 1 == self.done + count { live } else { p };
            // Unique in the run, because no block has more sub-blocks than the largest.
            let index = self.trial * (self.largest / p) as u64 + b as u64;
            plans.push(match self.kind {
                Kind::Srht => {
                    let signs = srht::signs(at, index, p);
                    let picks = srht::picks(&self.sample, b as u32, p);
                    srht::tally(&mut self.tally, &signs, &picks, live);
                    Plan::Srht { signs, picks }
                }
                Kind::Sparse => {
                    let buckets = sparse_embedding::buckets(at, index, p, self.q);
                    for &(h, s) in &buckets[..live] {
                        self.tally[h as usize] += s as i64;
                    }
                    Plan::Sparse { buckets }
                }
            });
        }
        plans
    }

    /// Ends the block: scales and centres the q compressed rows, passes them to `take`, and starts the next block.
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
        self.clear();
        self.trial += 1;
    }

    /// Resets the accumulator.
    pub(crate) fn clear(&mut self) {
        self.acc.fill(0.0);
        self.tally.fill(0);
        self.done = 0;
    }

    /// An empty block of the same stream, with `acc` as its accumulator: empty, or all zeros.
    pub(crate) fn another(&self, acc: Vec<f32>) -> Self {
        Self { done: 0, acc, tally: vec![0; self.q], sample: Vec::new(), ..*self }
    }
}

/// Number of columns in a panel, which one task works on. For the SRHT, a panel of a sub-block should stay in cache,
/// but narrow panels of wide rows use memory bandwidth badly; 1 MB was best. The sparse embedding reads entire rows
/// below 4,096 dimensions: one thread reaches memory bandwidth, and two threads with half of each row were slower.
fn panel_width(kind: Kind, dim: usize, p: usize, threads: usize) -> usize {
    let threads = if kind == Kind::Sparse && dim < 4096 { 1 } else { threads };
    let cached = match kind {
        Kind::Srht => (262_144 / p).max(64),
        Kind::Sparse => dim,
    };
    let panels = dim.div_ceil(cached).next_multiple_of(threads);
    dim.div_ceil(panels).next_multiple_of(64)
}

/// Splits the rows of the accumulator and the sums into panels of `width` columns.
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
