//! Work on pieces of the input on several threads, with results in the order of the rows.
//!
//! The input is cut into pieces ([`Vectors::pieces`]). Each thread takes the next piece, reads it with a reader of its own
//! and works on it. The calling thread takes the results in order. The pieces are a function of the files alone, so
//! that the results are the same for any number of threads. Of several errors, the one of the first piece is reported.
//!
//! Memory is bounded: a thread takes no piece that is too far ahead of the one whose results are being taken, and waits
//! when a few of its results were not taken yet.

use anyhow::{Result, anyhow, bail};
use frosh::Pool;
use frosh_io::{Batch, RangeReader, Vectors};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes of values in a piece. A piece costs a few lock operations, and in Parquet the decoding of a page that two pieces share.
const PIECE_BYTES: usize = 8 << 20;
/// Pieces that may be begun ahead of the one whose results are being taken, beside one for each thread.
const AHEAD: usize = 2;
/// Results of one piece that wait to be taken.
const WAITING: usize = 8;

/// Whether [`in_order`] can work on these files.
pub(crate) fn can(vectors: &Vectors) -> bool {
    vectors.cuttable()
}

/// Runs `work` for every piece, on the threads of the current pool. `work` reads the piece and gives any number of results;
/// `take` gets all results in order, on the calling thread. On one thread, a result is taken as soon as it is given.
pub(crate) fn in_order<T: Send>(
    vectors: &Vectors,
    work: impl Fn(&mut RangeReader, &mut dyn FnMut(T) -> Result<()>) -> Result<()> + Sync,
    mut take: impl FnMut(T) -> Result<()>,
) -> Result<()> {
    let threads = Pool::current().threads();
    let mut pieces = vectors.pieces(PIECE_BYTES);
    if threads == 1 {
        let mut reader = vectors.ranges()?;
        return pieces.try_for_each(|piece| {
            reader.start(piece);
            work(&mut reader, &mut take)
        });
    }
    let queue = Queue::new(&mut pieces, threads + AHEAD);
    std::thread::scope(|scope| {
        // However this function is left, the threads end: the scope waits for them.
        let _stop = StopOnDrop(&queue);
        for i in 0..threads {
            let thread = std::thread::Builder::new().name(format!("frosh-piece-{i}"));
            let run = || {
                // Each thread works on a piece of its own, so that calls of the library need no threads.
                Pool::ONE.install(|| queue.work(vectors, &work));
            };
            if let Err(error) = thread.spawn_scoped(scope, run)
                && i == 0
            {
                bail!("no thread can be started: {error}");
            }
        }
        while let Some(results) = queue.next()? {
            results.into_iter().try_for_each(&mut take)?;
        }
        Ok(())
    })
}

/// Reads all batches and takes them in order, with the numbers of the rows that were left out in or before each. After the last
/// batch of a piece there may be such numbers alone.
pub(crate) fn batches_in_order(
    vectors: &Vectors,
    mut take: impl FnMut(Option<&Batch>, Vec<Range<u64>>) -> Result<()>,
) -> Result<()> {
    // Batches that were taken, whose memory is filled again.
    let spare: Mutex<Vec<Batch>> = Mutex::new(Vec::new());
    let one = Pool::current().threads() == 1;
    let work = |reader: &mut RangeReader, give: &mut dyn FnMut(_) -> Result<()>| {
        while reader.next()?.is_some() {
            let left_out = reader.take_left_out();
            let other = lock(&spare).pop();
            give((Some(reader.exchange(other)), left_out))?;
        }
        let left_out = reader.take_left_out();
        if left_out.is_empty() { Ok(()) } else { give((None, left_out)) }
    };
    let most = if one { 1 } else { AHEAD * WAITING };
    in_order(vectors, work, |(batch, left_out): (Option<Batch>, Vec<Range<u64>>)| {
        take(batch.as_ref(), left_out)?;
        let mut spare = lock(&spare);
        if spare.len() < most {
            spare.extend(batch);
        }
        Ok(())
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The pieces, and the results that were not taken yet.
struct Queue<'a, T> {
    state: Mutex<State<'a, T>>,
    /// Pieces that may be in work at once.
    window: usize,
    /// Signalled when there is something to take.
    filled: Condvar,
    /// Signalled when there is room for more.
    room: Condvar,
}

struct State<'a, T> {
    /// The pieces that nobody has begun.
    pieces: &'a mut (dyn Iterator<Item = Range<u64>> + Send),
    /// Whether there are no more of them.
    exhausted: bool,
    /// Number of the piece whose results are taken next, and those of it and of all begun after it.
    first: u64,
    begun: VecDeque<Results<T>>,
    /// Whether nothing more is wanted.
    stopped: bool,
}

/// The results of a piece.
struct Results<T> {
    waiting: VecDeque<T>,
    /// How the work on the piece ended.
    end: Option<Result<()>>,
}

impl<'a, T> Queue<'a, T> {
    fn new(pieces: &'a mut (dyn Iterator<Item = Range<u64>> + Send), window: usize) -> Self {
        let begun = VecDeque::new();
        let state = State { pieces, exhausted: false, first: 0, begun, stopped: false };
        Self { state: Mutex::new(state), window, filled: Condvar::new(), room: Condvar::new() }
    }

    /// What each thread does: takes piece after piece.
    fn work(
        &self,
        vectors: &Vectors,
        work: &impl Fn(&mut RangeReader, &mut dyn FnMut(T) -> Result<()>) -> Result<()>,
    ) {
        let mut reader = None;
        while let Some((number, piece)) = self.begin() {
            let mut running = Running { queue: self, number, end: None };
            let run = || {
                let reader = match &mut reader {
                    Some(reader) => reader,
                    none => none.insert(vectors.ranges()?),
                };
                reader.start(piece);
                work(reader, &mut |result| self.give(number, result))
            };
            running.end = Some(run());
        }
    }

    /// The next piece and its number; `None` if there is none, or nothing more is wanted.
    fn begin(&self) -> Option<(u64, Range<u64>)> {
        let mut state = lock(&self.state);
        while !state.stopped && !state.exhausted && state.begun.len() >= self.window {
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.stopped || state.exhausted {
            return None;
        }
        let Some(piece) = state.pieces.next() else {
            state.exhausted = true;
            self.filled.notify_all();
            self.room.notify_all();
            return None;
        };
        state.begun.push_back(Results { waiting: VecDeque::new(), end: None });
        Some((state.first + state.begun.len() as u64 - 1, piece))
    }

    /// Hands over a result of a piece; waits while there are too many of them.
    fn give(&self, number: u64, result: T) -> Result<()> {
        let mut state = lock(&self.state);
        loop {
            // Pieces before `first` are finished, so that this one is there.
            let at = (number - state.first) as usize;
            if state.stopped {
                bail!("stopped");
            }
            if state.begun[at].waiting.len() < WAITING {
                state.begun[at].waiting.push_back(result);
                if at == 0 {
                    self.filled.notify_all();
                }
                return Ok(());
            }
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The next results; `None` at the end. An error is that of the first piece that failed.
    fn next(&self) -> Result<Option<VecDeque<T>>> {
        let mut state = lock(&self.state);
        loop {
            let exhausted = state.exhausted;
            match state.begun.front_mut() {
                None if exhausted => return Ok(None),
                None => {}
                Some(first) if !first.waiting.is_empty() => {
                    let results = std::mem::take(&mut first.waiting);
                    self.room.notify_all();
                    return Ok(Some(results));
                }
                Some(first) => {
                    if let Some(end) = first.end.take() {
                        state.begun.pop_front();
                        state.first += 1;
                        self.room.notify_all();
                        end?;
                        continue;
                    }
                }
            }
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Tells all threads to end when it is dropped.
struct StopOnDrop<'q, 'a, T>(&'q Queue<'a, T>);

impl<T> Drop for StopOnDrop<'_, '_, T> {
    fn drop(&mut self) {
        lock(&self.0.state).stopped = true;
        self.0.room.notify_all();
    }
}

/// Notes the end of the work on a piece when it is dropped, also by a panic: otherwise its end would be waited for.
struct Running<'q, 'a, T> {
    queue: &'q Queue<'a, T>,
    number: u64,
    end: Option<Result<()>>,
}

impl<T> Drop for Running<'_, '_, T> {
    fn drop(&mut self) {
        let end = self.end.take().unwrap_or_else(|| Err(anyhow!("a thread stopped unexpectedly")));
        let mut state = lock(&self.queue.state);
        let at = (self.number - state.first) as usize;
        if let Some(results) = state.begun.get_mut(at) {
            results.end = Some(end);
        }
        self.queue.filled.notify_all();
    }
}
