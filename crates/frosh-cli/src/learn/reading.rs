//! The two ways to read what is learned: all rows in order, or ranges of rows on every thread.
//!
//! The result is the same bytes: the library cuts the stream into runs at fixed row numbers, and merges their sketches in a
//! fixed order.

use super::Refresh;
use crate::checkpoint::Checkpoint;
use crate::progress::Progress;
use crate::signals::FinishOnInterrupt;
use crate::skipping::SkippedRows;
use anyhow::Result;
use frosh::{Element, Finished, RangeRows, Rows, Sketcher};
use frosh_io::{RangeReader, RowConsumer, Vectors};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Batches that are still learned after an interrupt: as many as the reader and a pipe may hold.
const LATE_BATCHES: usize = 4;

/// Bytes of values that a thread reads at a time. The last rows of a batch are copied, so small batches are slower;
/// large ones leave the cache.
const BATCH_BYTES: usize = 2 << 20;

/// What both ways need.
pub(super) struct Input<'a> {
    pub(super) vectors: &'a Vectors,
    pub(super) checkpoint: &'a mut Option<Checkpoint>,
    pub(super) skipped: &'a mut SkippedRows,
    pub(super) progress: Progress,
    pub(super) interrupt: &'a FinishOnInterrupt,
}

/// Seconds spent waiting for data, and learning.
pub(super) type Seconds = (f64, f64);

impl Input<'_> {
    /// Learns from all rows from the learner's row on, in order. One thread reads ahead.
    pub(super) fn learn_in_order(
        &mut self,
        sketcher: &mut Sketcher,
        refresh: Refresh<'_>,
    ) -> Result<Seconds> {
        let mut batches = self.vectors.batches_from(sketcher.rows());
        let (mut read, mut sketch, mut late_batches) = (0.0, 0.0, 0);
        loop {
            let clock = Instant::now();
            let due = || late_batches == LATE_BATCHES || self.interrupt.is_due(clock);
            let Some(batch) = batches.next_unless(due)? else { break };
            late_batches += usize::from(self.interrupt.came());
            read += clock.elapsed().as_secs_f64();
            let mut from = 0;
            while from < batch.len() {
                let left = batch.len() - from;
                let rows = match refresh {
                    Some((every, _)) => left.min((every - sketcher.rows() % every) as usize),
                    None => left,
                };
                let clock = Instant::now();
                batch.feed_range(from..from + rows, &mut *sketcher)?;
                sketch += clock.elapsed().as_secs_f64();
                from += rows;
                match refresh {
                    Some((every, write)) if sketcher.rows().is_multiple_of(every) => {
                        write(sketcher)?;
                    }
                    _ => {}
                }
            }
            self.progress.add(batch.len());
            self.skipped.add(&batches.take_left_out())?;
            if let Some(checkpoint) = self.checkpoint.as_mut().filter(|it| it.is_due()) {
                checkpoint.save(sketcher)?;
            }
        }
        self.skipped.add(&batches.take_left_out())?;
        Ok((read, sketch))
    }

    /// Learns from the rows from the learner's row to `end`. Every thread reads and learns from runs of its own.
    pub(super) fn learn_ranges(&mut self, sketcher: &mut Sketcher, end: u64) -> Result<Seconds> {
        let readers = Readers {
            vectors: self.vectors,
            interrupt: self.interrupt,
            idle: Mutex::new(Vec::new()),
            made: AtomicUsize::new(0),
            nanoseconds: AtomicU64::new(0),
            new_rows: AtomicUsize::new(0),
            progress: Mutex::new(&mut self.progress),
        };
        let checkpoint = Mutex::new(&mut *self.checkpoint);
        let done = |finished: &Finished<'_>| {
            let mut checkpoint = checkpoint.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(checkpoint) = checkpoint.as_mut().filter(|it| it.is_due()) {
                checkpoint.save(&mut finished.sketcher()).map_err(Failure::Error)?;
            }
            Ok(())
        };
        let rows = end - sketcher.rows();
        let clock = Instant::now();
        let result = sketcher.learn_ranges(rows, |range, rows| readers.read(range, rows), done);
        match result {
            Ok(()) | Err(Failure::Interrupted) => {
                let (all, read) = (clock.elapsed().as_secs_f64(), readers.seconds());
                Ok((read, (all - read).max(0.0)))
            }
            Err(Failure::Error(error)) => Err(error),
        }
    }
}

/// Why a range was not read to its end.
enum Failure {
    Interrupted,
    Error(anyhow::Error),
}

impl From<frosh::Error> for Failure {
    fn from(error: frosh::Error) -> Self {
        Self::Error(error.into())
    }
}

impl From<frosh_io::Error> for Failure {
    fn from(error: frosh_io::Error) -> Self {
        Self::Error(error.into())
    }
}

/// Readers of ranges, one for each thread, and what they count.
struct Readers<'a> {
    vectors: &'a Vectors,
    interrupt: &'a FinishOnInterrupt,
    /// Readers that are not in use. They keep their files open.
    idle: Mutex<Vec<RangeReader>>,
    /// Number of readers.
    made: AtomicUsize,
    /// Time spent reading, of all threads together.
    nanoseconds: AtomicU64,
    /// Rows that the progress bar does not show yet.
    new_rows: AtomicUsize,
    progress: Mutex<&'a mut Progress>,
}

impl Readers<'_> {
    /// Reads a range, and gives its rows to the learner.
    fn read(&self, range: Range<u64>, to: &mut RangeRows<'_>) -> Result<(), Failure> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let reader = idle().pop();
        let mut reader = match reader {
            Some(reader) => reader,
            None => {
                self.made.fetch_add(1, Ordering::Relaxed);
                self.vectors.ranges()?.batch_bytes(BATCH_BYTES)
            }
        };
        reader.start(range);
        let result = self.feed(&mut reader, to);
        idle().push(reader);
        result
    }

    fn feed(&self, reader: &mut RangeReader, to: &mut RangeRows<'_>) -> Result<(), Failure> {
        let mut clock = Instant::now();
        while let Some(batch) = reader.next()? {
            if self.interrupt.came() {
                return Err(Failure::Interrupted);
            }
            self.nanoseconds.fetch_add(clock.elapsed().as_nanos() as u64, Ordering::Relaxed);
            batch.feed(ToRange(to))?;
            clock = Instant::now();
            self.new_rows.fetch_add(batch.len(), Ordering::Relaxed);
            // If another thread is drawing the bar, the next batch shows these rows too.
            if let Ok(mut progress) = self.progress.try_lock() {
                progress.add(self.new_rows.swap(0, Ordering::Relaxed));
            }
        }
        Ok(())
    }

    /// Seconds spent reading: the mean over the threads.
    fn seconds(&self) -> f64 {
        let threads = self.made.load(Ordering::Relaxed).max(1) as f64;
        self.nanoseconds.load(Ordering::Relaxed) as f64 / 1e9 / threads
    }
}

/// Gives rows of any element type to the learner.
struct ToRange<'a, 'b>(&'a mut RangeRows<'b>);

impl RowConsumer for ToRange<'_, '_> {
    type Output = ();

    fn consume<T: Element>(self, rows: Rows<'_, T>) -> frosh::Result<()> {
        self.0.push(rows)
    }
}
