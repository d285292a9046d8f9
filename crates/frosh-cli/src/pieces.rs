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

/// Bytes of values in a piece. The first cost of a piece is that two pieces of a Parquet file share a page, which is
/// decompressed twice: so the pieces of large files are large. The pieces of a small file are smaller, so that
/// all threads have some and end at about the same time.
const PIECE_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=16 << 20;
/// Pieces that a file is cut into, if that gives pieces of such a size.
const PIECES: u64 = 64;
/// Pieces that may be begun ahead of the one whose results are being taken, beside one for each thread.
const AHEAD: usize = 2;
/// Bytes of the results of one piece that wait to be taken: those of a whole piece, if it can be cut as wanted.
const WAITING: usize = 17 << 20;
/// Batches whose memory is kept to be filled again.
const SPARE: usize = 32;

/// Whether [`in_order`] can work on these files.
pub(crate) fn can(vectors: &Vectors) -> bool {
    vectors.cuttable()
}

/// Bytes of a piece: a function of the files alone.
fn piece_bytes(vectors: &Vectors) -> usize {
    let row_bytes = vectors.dim().saturating_mul(vectors.kind().bytes()) as u64;
    let all = vectors.stored_rows().unwrap_or(0).saturating_mul(row_bytes);
    (all / PIECES).clamp(*PIECE_BYTES.start(), *PIECE_BYTES.end()) as usize
}

/// What `work` gives results to, with the bytes that each takes until it is taken.
pub(crate) type Give<'a, T> = &'a mut dyn FnMut(T, usize) -> Result<()>;

/// Runs `work` for every piece, on the threads of the current pool. `work` reads the piece and gives any number of results;
/// `take` gets all results in order, on the calling thread. On one thread, a result is taken as soon as it is given.
pub(crate) fn in_order<T: Send>(
    vectors: &Vectors,
    work: impl Fn(&mut RangeReader, Give<'_, T>) -> Result<()> + Sync,
    mut take: impl FnMut(T) -> Result<()>,
) -> Result<()> {
    let threads = Pool::current().threads();
    let mut pieces = vectors.pieces(piece_bytes(vectors));
    if threads == 1 {
        let mut reader = vectors.ranges()?;
        return pieces.try_for_each(|piece| {
            reader.start(piece);
            work(&mut reader, &mut |result, _| take(result))
        });
    }
    let queue = Queue::new(&mut pieces, threads + AHEAD);
    std::thread::scope(|scope| {
        // However this function is left, the threads end: the scope waits for them.
        let stop = StopOnDrop(&queue);
        let mut started = Vec::new();
        for i in 0..threads {
            let thread = std::thread::Builder::new().name(format!("frosh-piece-{i}"));
            let run = || {
                // Each thread works on a piece of its own, so that calls of the library need no threads.
                Pool::ONE.install(|| queue.work(vectors, &work));
            };
            match thread.spawn_scoped(scope, run) {
                Ok(thread) => started.push(thread),
                Err(error) if i == 0 => bail!("no thread can be started: {error}"),
                // Fewer threads do the same work.
                Err(_) => break,
            }
        }
        let mut take_all = || -> Result<()> {
            while let Some(results) = queue.next()? {
                results.into_iter().try_for_each(&mut take)?;
            }
            Ok(())
        };
        let done = take_all();
        drop(stop);
        // A thread that panicked has said so, and its piece has ended with an error.
        started.into_iter().for_each(|thread| drop(thread.join()));
        done
    })
}

/// Reads all batches and takes them in order, with the numbers of the rows that were left out in or before each. After
/// the last batch of a piece there may be such numbers alone.
pub(crate) fn batches_in_order(
    vectors: &Vectors,
    mut take: impl FnMut(Option<&Batch>, Vec<Range<u64>>) -> Result<()>,
) -> Result<()> {
    // Batches that were taken, whose memory is filled again.
    let spare: Mutex<Vec<Batch>> = Mutex::new(Vec::new());
    let work = |reader: &mut RangeReader, give: Give<'_, _>| {
        while reader.next()?.is_some() {
            let left_out = reader.take_left_out();
            let other = lock(&spare).pop();
            let batch = reader.exchange(other);
            let bytes = batch.values().len() * batch.values().kind().bytes();
            give((Some(batch), left_out), bytes)?;
        }
        let left_out = reader.take_left_out();
        if left_out.is_empty() { Ok(()) } else { give((None, left_out), 0) }
    };
    in_order(vectors, work, |(batch, left_out): (Option<Batch>, Vec<Range<u64>>)| {
        take(batch.as_ref(), left_out)?;
        let mut spare = lock(&spare);
        if spare.len() < SPARE {
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
    /// Bytes that they take.
    bytes: usize,
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
    fn work(&self, vectors: &Vectors, work: &impl Fn(&mut RangeReader, Give<'_, T>) -> Result<()>) {
        let mut reader = None;
        while let Some((number, piece)) = self.begin() {
            let mut running = Running { queue: self, number, end: None };
            let run = || {
                let reader = match &mut reader {
                    Some(reader) => reader,
                    none => none.insert(vectors.ranges()?),
                };
                reader.start(piece);
                work(reader, &mut |result, bytes| self.give(number, result, bytes))
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
        state.begun.push_back(Results { waiting: VecDeque::new(), bytes: 0, end: None });
        Some((state.first + state.begun.len() as u64 - 1, piece))
    }

    /// Hands over a result of a piece; waits while there are too many of them.
    fn give(&self, number: u64, result: T, bytes: usize) -> Result<()> {
        let mut state = lock(&self.state);
        loop {
            // Pieces before `first` are finished, so that this one is there.
            let at = (number - state.first) as usize;
            if state.stopped {
                bail!("stopped");
            }
            let results = &mut state.begun[at];
            if results.waiting.is_empty() || results.bytes + bytes <= WAITING {
                results.waiting.push_back(result);
                results.bytes += bytes;
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
                    first.bytes = 0;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A file of 40 MB: 40 pieces of a row each.
    fn vectors(folder: &tempfile::TempDir) -> Vectors {
        let path = folder.path().join("a.raw");
        std::fs::File::create(&path).and_then(|file| file.set_len(40 << 20)).expect("a file");
        let options = frosh_io::Options { dim: Some(1 << 18), ..frosh_io::Options::default() };
        Vectors::open(&[&path], &options).expect("raw values")
    }

    fn number(reader: &mut RangeReader) -> Result<u64> {
        let batch = reader.next()?.ok_or_else(|| anyhow!("a piece has no rows"))?;
        Ok(batch.runs()[0].1)
    }

    #[test]
    fn results_come_in_order_and_few_wait() {
        let folder = tempfile::tempdir().expect("a folder");
        let vectors = vectors(&folder);
        for threads in [1, 2, 3, 7] {
            let (begun, mut taken) = (AtomicUsize::new(0), Vec::new());
            let work = |reader: &mut RangeReader, give: Give<'_, u64>| {
                begun.fetch_add(1, Ordering::Relaxed);
                let first = number(reader)?;
                (0..3).try_for_each(|i| give(10 * first + i, WAITING))
            };
            let take = |result| {
                taken.push(result);
                let ahead = begun.load(Ordering::Relaxed) - taken.len().div_ceil(3);
                assert!(ahead <= threads + AHEAD, "{ahead} pieces are ahead of {}", taken.len());
                Ok(())
            };
            Pool::new(threads)
                .expect("threads")
                .install(|| in_order(&vectors, work, take))
                .expect("no error");
            let want: Vec<u64> =
                (0..40).flat_map(|row| (0..3).map(move |i| 10 * row + i)).collect();
            assert_eq!(taken, want, "{threads} threads");
        }
    }

    #[test]
    fn the_first_error_ends_the_work() {
        let folder = tempfile::tempdir().expect("a folder");
        let vectors = vectors(&folder);
        let pool = Pool::new(3).expect("threads");
        let mut taken = 0;
        let work = |reader: &mut RangeReader, give: Give<'_, ()>| match number(reader)? {
            row if row >= 17 => bail!("row {row}"),
            _ => give((), 0),
        };
        let take = |()| {
            taken += 1;
            Ok(())
        };
        let error = pool.install(|| in_order(&vectors, work, take)).expect_err("a bad row");
        assert_eq!((error.to_string().as_str(), taken), ("row 17", 17));
        // An error of what takes the results, and threads that panic.
        let work = |_: &mut RangeReader, give: Give<'_, ()>| give((), 0);
        let error = pool.install(|| in_order(&vectors, work, |()| bail!("full")));
        assert_eq!(error.expect_err("nothing is taken").to_string(), "full");
        let work = |reader: &mut RangeReader, _: Give<'_, ()>| -> Result<()> {
            assert!(number(reader)? < 5, "this panic is part of a test");
            Ok(())
        };
        let error = pool.install(|| in_order(&vectors, work, |()| Ok(())));
        assert!(error.expect_err("a panic").to_string().contains("unexpectedly"));
    }
}
