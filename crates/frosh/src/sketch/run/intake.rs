//! How batches become blocks: rows are absorbed where they lie if whole sub-blocks of them are there, and wait in a buffer
//! otherwise.

use super::{MIN_PARALLEL_VALUES, Run};
use crate::arch;
use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::rows::{self, Element, LIMIT, Metric, Rows};
use crate::sketch::blocks;
use crate::sketch::compression::Block;
use crate::sketch::config::Method;

impl Run {
    /// Absorbs complete blocks in parallel, without copying rows, if there are enough blocks. `ends` says that the run ends
    /// with these rows. Returns the number of rows absorbed.
    pub(super) fn take_blocks(&mut self, values: &[f32], ends: bool) -> usize {
        let Self { block: Some(block), directions, centering, pool, .. } = self else { return 0 };
        if block.uncompressed || block.done > 0 {
            return 0;
        }
        // A block is absorbed only if a row or the end of the run follows it.
        let (m, rows) = (block.m, values.len() / self.config.dim);
        let blocks = block.equal_blocks(centering.before, (rows - usize::from(!ends)) / m);
        if !blocks::can_run(pool, blocks) {
            return 0;
        }
        let taken = blocks::take(pool, values, blocks, block, centering, directions) * m;
        self.rows += taken as u64;
        taken
    }

    /// Absorbs all complete sub-blocks without copying rows. `ends` says that the run ends with these rows. Returns the
    /// number of rows absorbed.
    pub(super) fn take_directly(&mut self, values: &[f32], ends: bool) -> Result<usize> {
        let dim = self.config.dim;
        // The end of the run allows what a row after these would allow.
        let available = values.len() / dim + usize::from(ends);
        let limit = self.limit();
        if available <= limit {
            return Ok(0);
        }
        let unit = self.compression().map_or(limit, |block| block.p);
        // The first sub-block of a block needs a longer look-ahead than those after it.
        let mut count = 1 + (available - unit).saturating_sub(1) / unit;
        count = count.min(self.compression().map_or(1, Block::remaining));
        // A block starts when enough rows have arrived, and a sub-block is used when a row follows it. Those rows
        // are checked before anything changes, because a shrink cannot be undone. On one thread the shrink runs after
        // the compression, which has checked the rows by then.
        let mut begins =
            if self.compression().is_some_and(|b| b.done == 0) { limit + 1 } else { 0 };
        if self.pool.threads() == 1 && begins <= count * unit {
            begins = 0;
        }
        let used = &values[..count * unit * dim];
        let to = |rows: usize| &values[..values.len().min(rows * dim)];
        let next = &to(count * unit + 1)[count * unit * dim..];
        let fine = arch::usable(next) && arch::usable(to(begins));
        if fine && self.use_rows(used) {
            self.rows += (count * unit) as u64;
            return Ok(count * unit);
        }
        // Nothing has changed. Absorb the rows before the first bad one, then report that row.
        let suspects = Rows::new(to((count * unit + 1).max(begins)), dim)?;
        match rows::check(&suspects) {
            Err(error @ (Error::NotFinite { row, .. } | Error::TooLarge { row, .. })) => {
                self.take(&suspects.slice(0..row), false)?;
                Err(error)
            }
            other => other.map(|()| 0),
        }
    }

    /// Passes complete sub-blocks of uncentred rows to the next stage. Returns false, and changes nothing, if one has
    /// a bad value.
    pub(super) fn use_rows(&mut self, values: &[f32]) -> bool {
        let Some(block) = self.block.as_mut().filter(|block| !block.uncompressed) else {
            if !arch::usable(values) {
                return false;
            }
            self.use_uncompressed(values, true);
            return true;
        };
        // No rows are pending, so the buffer can hold a copy of the accumulator. A new block's accumulator is zero.
        let (done, saved) = (block.done, block.acc.len());
        if done > 0 {
            self.buffer[..saved].copy_from_slice(&block.acc);
        }
        let before = (block.tally.clone(), self.centering.sum.clone(), self.centering.rows);
        if self.compress(values, usize::MAX, true) <= LIMIT.to_bits() {
            self.end_block_if_full();
            return true;
        }
        if let Some(block) = &mut self.block {
            match done {
                0 => block.acc.fill(0.0),
                _ => block.acc.copy_from_slice(&self.buffer[..saved]),
            }
            (block.tally, self.centering.sum, self.centering.rows) = before;
            block.done = done;
        }
        false
    }

    /// Compresses complete sub-blocks. At the start of a block it also shrinks the sketch if there is no room for the
    /// block: in parallel, or afterwards on one thread. Returns the bits of the largest magnitude.
    pub(super) fn compress(&mut self, values: &[f32], live: usize, raw: bool) -> u32 {
        let Self { block, directions, centering, pool, .. } = self;
        let Some(block) = block else { return 0 };
        let live = live.min(block.p);
        let shrinks = block.done == 0 && directions.lacks_room_for(block.q);
        let mut absorb = || block.absorb((&*pool, pool.threads()), values, live, raw, centering);
        if shrinks && pool.threads() > 1 {
            return pool.join(|| directions.shrink(pool), absorb).1;
        }
        let largest = absorb();
        if shrinks && largest <= LIMIT.to_bits() {
            directions.shrink(pool);
        }
        largest
    }

    pub(super) fn end_block_if_full(&mut self) {
        if self.compression().is_some_and(|block| block.remaining() == 0) {
            self.end_block();
        }
    }

    /// Appends the compressed rows to the sketch, and starts the next block.
    pub(super) fn end_block(&mut self) {
        let shift = self.centering.shift();
        self.decay();
        let Self { block, directions, pool, .. } = self;
        if let Some(block) = block {
            block.close(&shift, |rows| directions.append(pool, rows));
        }
        self.begin_block();
    }

    /// Reduces the weights of the rows before the current block.
    pub(super) fn decay(&mut self) {
        if let Some(factor) = self.centering.factor() {
            self.directions.decay(factor);
        }
    }

    /// Adds the rows of the block to the mean, and starts the next block.
    pub(super) fn begin_block(&mut self) {
        self.centering.close();
        if let Some(block) = &mut self.block {
            block.begin(self.centering.before);
        }
    }

    /// Absorbs a block that is not compressed: of OSH, of LSH (only the mean is kept), or one that is too short.
    pub(super) fn use_uncompressed(&mut self, values: &[f32], raw: bool) {
        let dim = self.config.dim;
        let zero = vec![0f32; dim];
        let reference = if raw { self.centering.reference.clone() } else { zero };
        column_sums(&self.pool, values, &reference, &mut self.centering.sum);
        self.centering.rows += (values.len() / dim) as u64;
        if self.config.method != Method::Lsh {
            let shift = self.centering.shift();
            self.decay();
            self.directions.append_minus(&self.pool, values, &[&reference, &shift]);
        }
        self.begin_block();
    }

    /// Copies rows to the buffer of pending rows, and first uses the pending rows if it is full. Returns the number of
    /// rows copied.
    pub(super) fn take_pending<T: Element>(&mut self, rest: &Rows<'_, T>) -> Result<usize> {
        let dim = self.config.dim;
        if self.pending == self.limit() {
            // Pending rows are used only if an accepted row follows them.
            rows::check(&rest.slice(0..1))?;
            self.use_pending();
        }
        let count = (self.limit() - self.pending).min(rest.len());
        let batch = rest.slice(0..count);
        let room = &mut self.buffer[self.pending * dim..][..count * dim];
        let (metric, reference) = (self.config.metric, &self.centering.reference[..]);
        let loaded = load_all(&self.pool, &batch, metric, reference, room);
        let good = match &loaded {
            Ok(()) => count,
            Err(Error::NotFinite { row, .. } | Error::TooLarge { row, .. }) => *row,
            Err(_) => 0,
        };
        self.pending += good;
        self.rows += good as u64;
        loaded.map(|()| count)
    }

    /// Uses the first pending sub-block, or all pending rows if the block is not compressed.
    pub(super) fn use_pending(&mut self) {
        let dim = self.config.dim;
        let unit = self.compression().map_or(self.pending, |block| block.p);
        let buffer = std::mem::take(&mut self.buffer);
        if self.compression().is_some() {
            self.compress(&buffer[..unit * dim], usize::MAX, false);
            self.end_block_if_full();
        } else {
            self.use_uncompressed(&buffer[..unit * dim], false);
        }
        self.buffer = buffer;
        // The remaining rows have the same reference: it changes only at the end of a block, and a block cannot
        // end while more than one sub-block is pending.
        self.buffer.copy_within(unit * dim..self.pending * dim, 0);
        self.pending -= unit;
    }

    /// Absorbs the pending rows, and ends the block.
    pub(super) fn flush(&mut self) {
        let dim = self.config.dim;
        let mut buffer = std::mem::take(&mut self.buffer);
        if self.block.as_ref().is_none_or(|block| block.done == 0) {
            if self.pending > 0 {
                self.use_uncompressed(&buffer[..self.pending * dim], false);
            }
        } else {
            let p = self.block.as_ref().map_or(0, |block| block.p);
            if self.pending > 0 {
                buffer.resize(p * dim, 0.0);
                buffer[self.pending * dim..].fill(0.0);
                self.compress(&buffer[..p * dim], self.pending, false);
            }
            self.end_block();
        }
        self.pending = 0;
        self.buffer = buffer;
    }
}

/// Converts rows to `out`, on all threads if there are enough values. Fails for the first bad row.
pub(super) fn load_all<T: Element>(
    pool: &Pool,
    batch: &Rows<'_, T>,
    metric: Metric,
    reference: &[f32],
    out: &mut [f32],
) -> Result<()> {
    let dim = batch.dim();
    let parts = if out.len() < MIN_PARALLEL_VALUES { 1 } else { pool.threads() };
    let rows_each = batch.len().div_ceil(parts).max(1);
    let mut results: Vec<Result<()>> = (0..parts).map(|_| Ok(())).collect();
    let jobs = results.iter_mut().zip(out.chunks_mut(rows_each * dim)).enumerate().collect();
    pool.each(jobs, |(part, (result, out))| {
        let first = part * rows_each;
        *result = out.chunks_exact_mut(dim).enumerate().try_for_each(|(i, to)| {
            rows::load(batch.row(first + i), first + i, metric, reference, to)
        });
    });
    results.into_iter().collect()
}

/// Adds the column sums of `values - reference` to `sum`.
fn column_sums(pool: &Pool, values: &[f32], reference: &[f32], sum: &mut [f64]) {
    const WIDTH: usize = 512;
    let dim = sum.len();
    let strips: Vec<_> = sum.chunks_mut(WIDTH).enumerate().collect();
    let work = |(n, sum): (usize, &mut [f64])| {
        let columns = n * WIDTH..n * WIDTH + sum.len();
        let reference = &reference[columns.clone()];
        let mut sums = [0f32; WIDTH];
        for row in values.chunks_exact(dim) {
            for ((s, x), r) in sums.iter_mut().zip(&row[columns.clone()]).zip(reference) {
                *s += x - r;
            }
        }
        for (total, s) in sum.iter_mut().zip(&sums) {
            *total += f64::from(*s);
        }
    };
    if values.len() < MIN_PARALLEL_VALUES {
        strips.into_iter().for_each(work);
    } else {
        pool.each(strips, work);
    }
}
