//! Two blocks side by side: while one thread brings its block into the sketch, another compresses the next.
//!
//! What a block becomes depends on its rows, its number and the reference that is subtracted from its rows, and the
//! [reference](crate::sketch::centering) is the mean of one block earlier than the last. So a block and its successor can be
//! compressed at the same time; they join the sketch in their order. Nothing depends on which thread did what, and the
//! result is that of one block after the other.
//!
//! Threads that share a block instead each read a part of every row, which memory is slow to deliver: two of them were
//! hardly faster than one. Where rows come in batches of less than two blocks, that is still what happens.
//!
//! **Cost.** A second accumulator, l/2 rows, while rows come in such numbers.

use crate::arch;
use crate::pool::Pool;
use crate::rows::LIMIT;
use crate::sketch::centering::Centering;
use crate::sketch::compression::Block;
use crate::sketch::frequent_directions::FrequentDirections;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Blocks that are compressed at the same time.
const SIDE_BY_SIDE: usize = 2;

/// Whether it is worth it.
pub(crate) fn pays(pool: &Pool, blocks: usize) -> bool {
    pool.threads() >= SIDE_BY_SIDE && blocks >= SIDE_BY_SIDE
}

/// Takes whole blocks from the front of `values`, up to the first that has a bad row or is followed by one. A row
/// follows the last. Returns how many were taken; none if the threads are at such work already.
pub(crate) fn take(
    pool: &Pool,
    values: &[f32],
    blocks: usize,
    block: &mut Block,
    centering: &mut Centering,
    directions: &mut FrequentDirections,
) -> usize {
    // The first thread works in the memory that is there.
    let acc = std::mem::take(&mut block.acc);
    let places = [
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
        if let Some(place) = places.get(thread) {
            // Each is locked once.
            let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
            let (block, part) = &mut *place;
            shared.work(thread, block, part);
        }
    });
    let joined = shared.joined.into_inner();
    block.trial += joined as u64;
    let [place, _] = places;
    block.acc = place.into_inner().unwrap_or_else(PoisonError::into_inner).0.acc;
    block.clear();
    block.begin(centering.before);
    joined
}

/// What the threads share.
struct Shared<'a> {
    pool: &'a Pool,
    values: &'a [f32],
    blocks: usize,
    state: Mutex<State<'a>>,
    /// Blocks that have joined the state.
    joined: AtomicUsize,
    /// A block has a bad row, so neither it nor a later one may join.
    stopped: AtomicBool,
}

impl Shared<'_> {
    /// Takes every second block, from number `at` on.
    fn work(&self, mut at: usize, block: &mut Block, part: &mut Centering) {
        let _guard = StopOnPanic(self);
        let (first, dim) = (block.trial, part.reference.len());
        let (size, threads) = (block.m * dim, self.pool.threads() / SIDE_BY_SIDE);
        while at < self.blocks {
            let rows = &self.values[at * size..][..size];
            let follower = &self.values[(at + 1) * size..][..dim];
            block.trial = first + at as u64;
            let largest = block.absorb((self.pool, threads), rows, block.p, true, part);
            let fine = largest <= LIMIT.to_bits() && arch::usable(follower);
            // Meanwhile this thread helps with what the other one shares of its work.
            self.pool.help_until(|| {
                self.joined.load(Ordering::Acquire) == at || self.stopped.load(Ordering::Acquire)
            });
            if self.stopped.load(Ordering::Acquire) || !fine {
                self.stopped.store(true, Ordering::Release);
                return;
            }
            // It is this thread's turn, so nobody else wants the lock.
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.join(self.pool, block, part);
            drop(state);
            at += SIDE_BY_SIDE;
            self.joined.fetch_add(1, Ordering::Release);
        }
    }
}

/// What the blocks become a part of, one after the other.
struct State<'a> {
    centering: &'a mut Centering,
    directions: &'a mut FrequentDirections,
}

impl State<'_> {
    /// The block joins; its sums are then those of the block after the next.
    fn join(&mut self, pool: &Pool, block: &mut Block, part: &mut Centering) {
        self.centering.take_block(part);
        let shift = self.centering.shift();
        if self.directions.is_short_of(block.q) {
            self.directions.shrink(pool);
        }
        block.close(&shift, |rows| self.directions.append(pool, rows));
        self.centering.close();
        part.reference = self.centering.next_reference();
    }
}

/// Stops the other thread if one panics, so that it does not wait for ever.
struct StopOnPanic<'a, 'b>(&'a Shared<'b>);

impl Drop for StopOnPanic<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stopped.store(true, Ordering::Release);
        }
    }
}
