//! Runs: a long stream is cut at fixed row numbers, so that several threads can learn from it at the same time.
//!
//! Run number k has the rows from k R to (k + 1) R, with R a function of the settings alone
//! ([`Config::run_rows`](crate::Config::run_rows)). Its sketch is a function of its rows and its number. The sketches are
//! merged (Algorithm 3 of the paper) in a fixed binary tree: run 2k with run 2k + 1, the result with the one beside it, and
//! so on. So the result depends neither on the number of threads, nor on batches, nor on who reads the rows. A stream
//! of less than R rows is one run, whose sketch needs no merge.
//!
//! The state is a binary counter: of n complete runs it holds the merged sketch of 2^j runs for every one in the binary
//! form of n. A sketch of the stream so far merges them, from the newest to the oldest, with the run in progress.
//!
//! **Threads.** Each thread takes the next run, learns from its rows, and merges its sketch with that of the run beside
//! it if this one is done, else leaves it to the other thread. So merges are spread over the threads as well, and no
//! thread waits for another. The [sample](crate::sketch::reservoir) is one for the whole stream: it does not depend on
//! the order of offers.
//!
//! **Cost.** A run begins with an empty buffer, which saves two shrinks, and costs two more at its end: one to fit its
//! rows into 3/4 of the buffer, one for the merge. Memory for each thread: that of a learner without a sample. Besides,
//! 3/4 l d floats for each level of the tree.

use crate::error::Error;
use crate::pool::Pool;
use crate::rows::{self, Element, Metric, Rows};
use crate::sketch::Sketch;
use crate::sketch::frequent_directions::FrequentDirections;
use crate::sketch::reservoir::Reservoir;
use crate::sketch::rounding::Rounding;
use crate::sketch::run::Run;
use crate::sketch::sketcher::{Keys, Sketcher};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Rows that are rounded before they are offered to the shared sample.
const OFFERED_ROWS: usize = 64;

/// Reads a range of rows of the stream.
type Read<'a, E> = dyn Fn(Range<u64>, &mut RangeRows<'_>) -> Result<(), E> + Sync + 'a;
/// Is told of runs that are complete.
type Done<'a, E> = dyn Fn(&Finished<'_>) -> Result<(), E> + Sync + 'a;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sketcher {
    /// Learns from the next `rows` rows of the stream, which several threads read at the same time.
    ///
    /// `read` is called on the threads of the learner's pool, once for each [run](crate::Config::run_rows), with a
    /// range of row numbers of the stream. It gives all rows of the range to [`RangeRows::push`], in order and in
    /// batches of any size. The result is the same as that of [`push`](Sketcher::push) with the same rows. At the start
    /// of a stream, `read` is first called for row 0 alone.
    ///
    /// `done` is called now and then, by one thread at a time, with the runs that are complete: for a
    /// [copy](Finished::sketcher) of the state, to be saved.
    ///
    /// # Errors
    ///
    /// The error of the first row that is refused, or of the first range that cannot be read, in the order of the
    /// stream. The state is then that of the rows before it, except that the sample may have fewer rows than it could.
    /// An error of `done`; then the state is that of some of the runs.
    ///
    /// ```
    /// use frosh::{Config, Pool, Rows, Sketcher};
    /// # let data: Vec<f32> = (0..16 * 5000u64).map(|i| ((i * i) % 97) as f32).collect();
    /// let config = Config::new(16).run_rows(1000);
    /// let mut sketcher = Pool::new(2)?.install(|| Sketcher::new(config.clone()))?;
    /// let all = Rows::new(&data, 16)?;
    /// sketcher.learn_ranges(
    ///     5000,
    ///     |range, rows| rows.push(all.slice(range.start as usize..range.end as usize)),
    ///     |_| Ok(()),
    /// )?;
    /// let mut serial = Sketcher::new(config)?;
    /// serial.push(all)?;
    /// assert_eq!(sketcher.to_bytes(), serial.to_bytes());
    /// # Ok::<(), frosh::Error>(())
    /// ```
    pub fn learn_ranges<E, R, D>(&mut self, rows: u64, read: R, done: D) -> Result<(), E>
    where
        E: From<Error> + Send,
        R: Fn(Range<u64>, &mut RangeRows<'_>) -> Result<(), E> + Sync,
        D: Fn(&Finished<'_>) -> Result<(), E> + Sync,
    {
        if rows == 0 {
            return Ok(());
        }
        if self.rows() == 0 {
            let mut first = RangeRows { to: To::First(self), left: 1 };
            read(0..1, &mut first)?;
            first.check_complete()?;
        }
        let sample = SharedSample::new(self);
        let result = self.learn_in_parallel(rows, Some(&sample), &read, &done);
        self.reservoir = sample.into_inner();
        if result.is_err() {
            self.reservoir = self.reservoir.before(self.rows());
        }
        result
    }

    /// Learns from whole runs in parallel. Rows are not sampled.
    pub(super) fn take_runs<T: Element>(&mut self, batch: &Rows<'_, T>) -> crate::Result<()> {
        let first = self.rows();
        let read = |range: Range<u64>, rows: &mut RangeRows<'_>| {
            let (from, to) = ((range.start - first) as usize, (range.end - first) as usize);
            rows.push(batch.slice(from..to)).map_err(|error| error.shift_row(from))
        };
        self.learn_in_parallel(batch.len() as u64, None, &read, &|_| Ok(()))
    }

    /// Learns from the next `rows` rows, one run for each thread at a time.
    fn learn_in_parallel<E: From<Error> + Send>(
        &mut self,
        rows: u64,
        sample: Option<&SharedSample>,
        read: &Read<'_, E>,
        done: &Done<'_, E>,
    ) -> Result<(), E> {
        let (pool, length) = (self.run.pool.clone(), self.run.length());
        let (begin, first) = (self.rows(), self.run.number);
        let end = begin.saturating_add(rows);
        let runs = (end - 1) / length - first + 1;
        let threads = pool.threads();
        let workers = threads.min(usize::try_from(runs).unwrap_or(usize::MAX));
        // Where there are fewer runs than threads, as in the last round, each of them gets several threads.
        let last_round = runs % workers as u64;
        let template = self.run.another(first, Pool::ONE);
        let current = std::mem::replace(&mut self.run, template.clone());
        let shared = Shared {
            tree: Mutex::new(Tree::of(first, std::mem::take(&mut self.parts))),
            next: AtomicU64::new(first),
            stop_after: AtomicU64::new(u64::MAX),
            current: Mutex::new(Some(current)),
            stopped: Mutex::new(None),
            reported: Mutex::new(first),
            failed: Mutex::new(None),
        };
        pool.each((0..workers).collect(), |_| {
            let mut idle: Option<Run> = None;
            loop {
                let number = shared.next.fetch_add(1, Ordering::Relaxed);
                let until_end = (first + runs).saturating_sub(number);
                if until_end == 0 || number > shared.stop_after.load(Ordering::Acquire) {
                    break;
                }
                let mut run = match idle.take() {
                    _ if number == first => {
                        lock(&shared.current).take().unwrap_or_else(|| template.clone())
                    }
                    Some(mut run) => {
                        run.restart(number);
                        run
                    }
                    None => template.another(number, Pool::ONE),
                };
                let share = match until_end <= last_round {
                    true => threads / last_round as usize,
                    false => threads / workers,
                };
                if run.pool.threads() != share {
                    run.pool = match share == threads {
                        true => pool.clone(),
                        false => Pool::new(share).unwrap_or(Pool::ONE),
                    };
                }
                let start = begin.max(number.saturating_mul(length));
                let range = start..end.min(number.saturating_add(1).saturating_mul(length));
                let left = range.end - range.start;
                let to = To::Run { run: &mut run, sample, stop_after: &shared.stop_after };
                let mut rows = RangeRows { to, left };
                let result = read(range, &mut rows).and_then(|()| Ok(rows.check_complete()?));
                if let Err(error) = result {
                    shared.stop(run, Some(error));
                    break;
                }
                if run.room() > 0 {
                    shared.stop(run, None);
                    break;
                }
                let sketch = run.close();
                shared.add(number, sketch, &mut run);
                if let Err(error) = self.report(&shared, &template, sample, done) {
                    lock(&shared.failed).get_or_insert(error);
                    shared.stop_after.store(0, Ordering::Release);
                    break;
                }
                idle = Some(run);
            }
        });
        let (complete, parts) =
            shared.tree.into_inner().unwrap_or_else(PoisonError::into_inner).into_prefix();
        self.parts = parts;
        let stopped = shared.stopped.into_inner().unwrap_or_else(PoisonError::into_inner);
        let (run, error) = match stopped.filter(|(run, _)| run.number == complete) {
            Some((run, error)) => (run, error),
            None => (template.another(complete, Pool::ONE), None),
        };
        self.run = Run { pool, ..run };
        let failed = shared.failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        failed.or(error).map_or(Ok(()), Err)
    }

    /// Calls `done` if there are more complete runs than at its last call.
    fn report<E>(
        &self,
        shared: &Shared<E>,
        template: &Run,
        sample: Option<&SharedSample>,
        done: &Done<'_, E>,
    ) -> Result<(), E> {
        // If another thread is at it, it need not be done twice.
        let (Some(sample), Ok(mut reported)) = (sample, shared.reported.try_lock()) else {
            return Ok(());
        };
        // The parts are shared, since another thread may take them for a merge at any time.
        let (complete, parts) = lock(&shared.tree).prefix();
        if complete <= *reported {
            return Ok(());
        }
        *reported = complete;
        let sketcher = || {
            let parts = parts.iter().map(|part| Sketch::clone(part)).collect();
            let run = template.another(complete, Pool::ONE);
            let reservoir = lock(&sample.reservoir).before(run.start());
            Sketcher { run, parts, reservoir, note: self.note.clone() }
        };
        done(&Finished { rows: complete * template.length(), sketcher: &sketcher })
    }
}

/// Takes the rows of one range, for [`Sketcher::learn_ranges`].
pub struct RangeRows<'a> {
    to: To<'a>,
    /// Rows of the range that are still to come.
    left: u64,
}

/// What is done with the rows.
enum To<'a> {
    /// Row 0, before all others: it determines the origin of the sample.
    First(&'a mut Sketcher),
    Run {
        run: &'a mut Run,
        sample: Option<&'a SharedSample>,
        stop_after: &'a AtomicU64,
    },
}

impl RangeRows<'_> {
    /// Takes the next rows of the range.
    ///
    /// # Errors
    ///
    /// As [`Sketcher::push`]. [`Error::Setting`] if there are more rows than the range has. Any error if the rows are
    /// not needed any more, because an earlier range failed: the caller should return it.
    pub fn push<T: Element>(&mut self, batch: Rows<'_, T>) -> crate::Result<()> {
        let rows = batch.len() as u64;
        if rows > self.left {
            let why = format!("the range has only {} rows left", self.left);
            return Err(Error::Setting { name: "rows", got: rows, why });
        }
        if rows == 0 {
            return Ok(());
        }
        let (expected, got) = (self.dim(), batch.dim());
        if expected != got {
            return Err(Error::Dimension { expected, got });
        }
        match &mut self.to {
            To::First(sketcher) => {
                sketcher.start(batch.row(0))?;
                self.left -= rows;
                Ok(())
            }
            To::Run { run, sample, stop_after } => {
                if stop_after.load(Ordering::Relaxed) < run.number {
                    // The result is discarded, and so is this error.
                    return Err(Error::Empty);
                }
                let before = run.rows;
                let result = run.push(&batch);
                let taken = run.rows - before;
                self.left -= taken;
                if let Some(sample) = sample {
                    sample.offer(run.start() + before, &batch.slice(0..taken as usize));
                }
                result
            }
        }
    }

    /// Values per row.
    pub fn dim(&self) -> usize {
        match &self.to {
            To::First(sketcher) => sketcher.dim(),
            To::Run { run, .. } => run.config.dim,
        }
    }

    fn check_complete(&self) -> crate::Result<()> {
        if self.left == 0 {
            return Ok(());
        }
        let why = "the reader ended before the last row of its range".into();
        Err(Error::Setting { name: "missing rows", got: self.left, why })
    }
}

/// The runs that [`Sketcher::learn_ranges`] has completed so far.
pub struct Finished<'a> {
    rows: u64,
    sketcher: &'a dyn Fn() -> Sketcher,
}

impl Finished<'_> {
    /// Rows of the complete runs, from the first row of the stream.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// A learner of these rows, to be saved. It continues to the same result as one that was not interrupted. Its
    /// sample may have fewer rows than it could.
    pub fn sketcher(&self) -> Sketcher {
        (self.sketcher)()
    }
}

/// What the threads share.
struct Shared<E> {
    tree: Mutex<Tree>,
    /// The next run that nobody has taken.
    next: AtomicU64,
    /// Runs with larger numbers are not needed.
    stop_after: AtomicU64,
    /// The run that was in progress at the start.
    current: Mutex<Option<Run>>,
    /// The first run that did not become complete, and why; no error at the end of the rows.
    stopped: Mutex<Option<(Run, Option<E>)>>,
    /// Number of complete runs at the last report.
    reported: Mutex<u64>,
    /// An error that has no place in the stream.
    failed: Mutex<Option<E>>,
}

impl<E> Shared<E> {
    /// Notes that a run did not become complete.
    fn stop(&self, run: Run, error: Option<E>) {
        let mut stopped = lock(&self.stopped);
        if run.number <= self.stop_after.fetch_min(run.number, Ordering::AcqRel) {
            *stopped = Some((run, error));
        }
    }

    /// Adds the sketch of a run. `run` lends its work space and its pool.
    fn add(&self, number: u64, sketch: Sketch, run: &mut Run) {
        let (mut start, mut level, mut sketch) = (number, 0, sketch);
        loop {
            let beside = lock(&self.tree).pair_or_keep(start, level, sketch);
            let Some((older, newer)) = beside else { return };
            let older = Arc::unwrap_or_clone(older);
            let (pool, work): (_, &mut FrequentDirections) =
                (run.pool.clone(), &mut run.directions);
            sketch = pool.enter(|| older.followed_by(&pool, &newer, work));
            start &= !(1 << level);
            level += 1;
        }
    }
}

/// Sketches of complete runs. The key is the first run; a sketch of level j is of 2^j runs, and its first run is a
/// multiple of that.
struct Tree(BTreeMap<u64, (u32, Arc<Sketch>)>);

impl Tree {
    /// The sketches of the first `runs` runs.
    fn of(runs: u64, parts: Vec<Sketch>) -> Self {
        let levels = (0..u64::BITS).rev().filter(|level| runs >> level & 1 == 1);
        let mut start = 0;
        let nodes = levels.zip(parts).map(|(level, sketch)| {
            let at = start;
            start += 1 << level;
            (at, (level, Arc::new(sketch)))
        });
        Self(nodes.collect())
    }

    /// Returns the sketch and the one beside it, the older one first, if that is there. Else keeps the sketch.
    fn pair_or_keep(
        &mut self,
        start: u64,
        level: u32,
        sketch: Sketch,
    ) -> Option<(Arc<Sketch>, Arc<Sketch>)> {
        let sketch = Arc::new(sketch);
        let beside = start ^ 1 << level;
        match self.0.get(&beside).map(|node| node.0 == level) {
            Some(true) => {
                let (_, other) = self.0.remove(&beside)?;
                Some(if beside < start { (other, sketch) } else { (sketch, other) })
            }
            _ => {
                self.0.insert(start, (level, sketch));
                None
            }
        }
    }

    /// Number of complete runs from the first one on, without a gap, and their sketches.
    fn prefix(&self) -> (u64, Vec<Arc<Sketch>>) {
        let (mut runs, mut parts) = (0, Vec::new());
        while let Some((level, sketch)) = self.0.get(&runs) {
            parts.push(Arc::clone(sketch));
            runs += 1 << level;
        }
        (runs, parts)
    }

    fn into_prefix(mut self) -> (u64, Vec<Sketch>) {
        let (mut runs, mut parts) = (0, Vec::new());
        while let Some((level, sketch)) = self.0.remove(&runs) {
            parts.push(Arc::unwrap_or_clone(sketch));
            runs += 1 << level;
        }
        (runs, parts)
    }
}

/// The sample, which all threads offer their rows to.
struct SharedSample {
    reservoir: Mutex<Reservoir>,
    /// Rows with larger keys need not be offered.
    limit: AtomicU64,
    origin: Vec<f32>,
    rounding: Rounding,
    keys: Keys,
    metric: Metric,
}

impl SharedSample {
    /// Takes the sample of a learner.
    fn new(sketcher: &mut Sketcher) -> Self {
        let config = &sketcher.run.config;
        let empty = Reservoir::new(config.dim, 0);
        let (keys, metric) = (Keys::of(config), config.metric);
        let reservoir = std::mem::replace(&mut sketcher.reservoir, empty);
        let limit = if reservoir.capacity() == 0 { Some(0) } else { reservoir.limit() };
        Self {
            limit: AtomicU64::new(limit.unwrap_or(u64::MAX)),
            origin: reservoir.origin.clone(),
            rounding: reservoir.rounding(),
            keys,
            metric,
            reservoir: Mutex::new(reservoir),
        }
    }

    fn into_inner(self) -> Reservoir {
        self.reservoir.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Offers rows that were checked. `first` is the number of the first row in the stream.
    fn offer<T: Element>(&self, first: u64, batch: &Rows<'_, T>) {
        let (dim, words) = (batch.dim(), self.rounding.words());
        let limit = self.limit.load(Ordering::Relaxed);
        let keys = (0..batch.len()).map(|i| (self.keys.of_row(first + i as u64), i));
        let near: Vec<(u64, usize)> = keys.filter(|(key, _)| *key <= limit).collect();
        let mut row = vec![0f32; dim];
        let mut stored = vec![0u16; OFFERED_ROWS.min(near.len()) * words];
        let mut scales = [0f32; OFFERED_ROWS];
        for near in near.chunks(OFFERED_ROWS) {
            // Rows are converted before the lock is taken. Meanwhile the limit may have fallen.
            let limit = self.limit.load(Ordering::Relaxed);
            let wanted = || near.iter().filter(|(key, _)| *key <= limit);
            let places = stored.chunks_exact_mut(words).zip(&mut scales);
            for ((_, i), (stored, scale)) in wanted().zip(places) {
                // Cannot fail: every offered row was checked before.
                let _ = rows::load(batch.row(*i), *i, self.metric, &self.origin, &mut row);
                *scale = self.rounding.store(&mut row, stored);
            }
            let mut reservoir = lock(&self.reservoir);
            let mut limit = None;
            let rows = stored.chunks_exact(words).zip(&scales);
            for ((key, i), (row, scale)) in wanted().zip(rows) {
                limit = reservoir.offer_one(*key, first + *i as u64, row, *scale);
            }
            if let Some(limit) = limit {
                self.limit.fetch_min(limit, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests;
