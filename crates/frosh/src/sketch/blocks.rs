//! Two blocks in parallel: while one thread appends its compressed block to the sketch, another thread compresses the
//! next block.
//!
//! A compressed block depends on its rows, its block number and the reference that is subtracted from its rows. The
//! [reference](crate::sketch::centering) is the mean before the previous block. So a block and its successor can be
//! compressed at the same time. They are appended to the sketch in stream order, and the result is the same bytes as
//! with one thread. A thread that waits for its turn helps with the shrink of the other thread.
//!
//! The alternative is that threads share a block and each reads a range of columns. Such short reads use memory
//! bandwidth badly: two threads were 1.0 to 1.4 times as fast as one. Batches of less than two blocks still use it.
//!
//! **Cost.** A second accumulator of l/2 rows, if batches have at least two blocks.

use crate::arch;
use crate::pool::Pool;
use crate::rows::LIMIT;
use crate::sketch::centering::Centering;
use crate::sketch::compression::Block;
use crate::sketch::frequent_directions::FrequentDirections;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Number of blocks that are compressed at the same time.
const PARALLEL_BLOCKS: usize = 2;

/// Whether there are enough threads and blocks to compress blocks in parallel.
pub(crate) fn can_run(pool: &Pool, blocks: usize) -> bool {
    pool.threads() >= PARALLEL_BLOCKS && blocks >= PARALLEL_BLOCKS
}

/// Absorbs complete blocks from the front of `values`, up to the first that has a bad row or is followed by one.
/// `values` must have a row after the last block, unless the run ends with that block. Returns the number of absorbed
/// blocks; 0 if the pool already runs such a call.
pub(crate) fn take(
    pool: &Pool,
    values: &[f32],
    blocks: usize,
    block: &mut Block,
    centering: &mut Centering,
    directions: &mut FrequentDirections,
) -> usize {
    // The first thread uses the existing accumulator.
    let acc = std::mem::take(&mut block.acc);
    let slots = [
        (block.another(acc), centering.reference.clone()),
        (block.another(Vec::new()), centering.next_reference()),
    ]
    .map(|(block, reference)| Mutex::new((block, Centering::of_block(reference))));
    let shared = Shared {
        pool,
        values,
        blocks,
        state: Mutex::new(State { centering, directions }),
        joined: AtomicUsize::new(0),
        stopped: AtomicBool::new(false),
    };
    pool.on_every(|thread| {
        if let Some(slot) = slots.get(thread) {
            // Only this thread locks it.
            let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
            let (block, part) = &mut *slot;
            shared.work(thread, block, part);
        }
    });
    let joined = shared.joined.into_inner();
    block.trial += joined as u64;
    let [slot, _] = slots;
    block.acc = slot.into_inner().unwrap_or_else(PoisonError::into_inner).0.acc;
    block.clear();
    block.begin(centering.before);
    joined
}

/// The state that the threads share.
struct Shared<'a> {
    pool: &'a Pool,
    values: &'a [f32],
    blocks: usize,
    state: Mutex<State<'a>>,
    /// Number of blocks that were appended to the sketch.
    joined: AtomicUsize,
    /// Set if a block has a bad row: neither it nor a later block may be appended.
    stopped: AtomicBool,
}

impl Shared<'_> {
    /// Compresses and appends every second block, starting with block `at`.
    fn work(&self, mut at: usize, block: &mut Block, part: &mut Centering) {
        let _guard = StopOnPanic(self);
        let (first, dim) = (block.trial, part.reference.len());
        let (size, threads) = (block.m * dim, self.pool.threads() / PARALLEL_BLOCKS);
        while at < self.blocks {
            let rows = &self.values[at * size..][..size];
            let end = (at + 1) * size;
            // Empty at the end of the run.
            let follower = &self.values[end..self.values.len().min(end + dim)];
            block.trial = first + at as u64;
            let largest = block.absorb((self.pool, threads), rows, block.p, true, part);
            let fine = largest <= LIMIT.to_bits() && arch::usable(follower);
            // While this thread waits for its turn, it helps with the shrink of the other thread.
            self.pool.help_until(|| {
                self.joined.load(Ordering::Acquire) == at || self.stopped.load(Ordering::Acquire)
            });
            if self.stopped.load(Ordering::Acquire) || !fine {
                self.stopped.store(true, Ordering::Release);
                return;
            }
            // The lock is free: the other thread waits for `joined`.
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.join(self.pool, block, part);
            drop(state);
            at += PARALLEL_BLOCKS;
            self.joined.fetch_add(1, Ordering::Release);
        }
    }
}

/// The mean and the sketch, to which blocks are appended in order.
struct State<'a> {
    centering: &'a mut Centering,
    directions: &'a mut FrequentDirections,
}

impl State<'_> {
    /// Appends a compressed block, and prepares `part` for the next block of the same thread.
    fn join(&mut self, pool: &Pool, block: &mut Block, part: &mut Centering) {
        self.centering.take_block(part);
        let shift = self.centering.shift();
        if self.directions.lacks_room_for(block.q) {
            self.directions.shrink(pool);
        }
        if let Some(factor) = self.centering.factor() {
            self.directions.decay(factor);
        }
        block.close(&shift, |rows| self.directions.append(pool, rows));
        self.centering.close();
        part.reference = self.centering.next_reference();
    }
}

/// Stops the other thread if this one panics, so that it does not wait forever.
struct StopOnPanic<'a, 'b>(&'a Shared<'b>);

impl Drop for StopOnPanic<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stopped.store(true, Ordering::Release);
        }
    }
}
