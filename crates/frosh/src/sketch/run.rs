//! The learner of one run: the rows between two cuts of a stream.
//!
//! **Algorithm 1** is centring, compression and frequent directions for every block of m rows. FROSH and
//! OSH are the same pipeline with and without compression. LSH keeps only the mean.
//!
//! **Where we differ.** Blocks start at fixed row numbers, not at the ends of batches, so the cut into batches does not
//! change the result. Unless the caller sets the block size, the first blocks of a stream are small and grow with the
//! row number ([`compression`](crate::sketch::compression)). Work is delayed as long as possible: a sub-block is
//! compressed when the first row after it arrives, and a full buffer shrinks when the next block starts. So the state
//! is a function of the rows alone, and a sketch taken at any row has lost as little as possible. Such a sketch
//! includes the rows of an unfinished block: unchanged if none of the block was compressed yet, else as a block padded
//! with zeros.
//!
//! **Cost.** O(n d log l + n d l^2 / m) time. Memory: 2 l d floats and the work space of the shrink. With several threads,
//! the shrink of one block runs in parallel with the compression of the next.

mod intake;

use crate::error::Result;
use crate::pool::Pool;
use crate::rows::{self, Element, Metric, Rows};
use crate::sketch::Sketch;
use crate::sketch::centering::Centering;
use crate::sketch::compression::{Block, Kind};
use crate::sketch::config::{Config, Method};
use crate::sketch::decay::Decay;
use crate::sketch::frequent_directions::FrequentDirections;
use crate::sketch::reservoir::Reservoir;

/// Limits of an LSH block, in rows and in values. Rows are read twice, the second time from cache.
const LSH_BLOCK_ROWS: usize = 64;
const LSH_BLOCK_VALUES: usize = 1 << 16;
/// Batches with fewer values are converted on one thread, which is faster than waking others.
const MIN_PARALLEL_VALUES: usize = 1 << 16;

/// Learns from the rows of one run.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// The settings of the stream, with the sizes that they imply.
    pub(crate) config: Config,
    pub(crate) pool: Pool,
    /// Number of the run in the stream.
    pub(crate) number: u64,
    pub(crate) centering: Centering,
    /// The compression stage; none for OSH and LSH.
    pub(crate) block: Option<Block>,
    pub(crate) directions: FrequentDirections,
    /// Rows that are not used yet, minus the reference of the centring; the first `pending` rows are valid.
    pub(crate) buffer: Vec<f32>,
    pub(crate) pending: usize,
    /// Rows of the run so far.
    pub(crate) rows: u64,
}

impl Run {
    /// The first run of a stream. It keeps the current pool.
    pub(crate) fn new(config: Config) -> Result<Self> {
        let (m, run_rows) = (config.resolved_block_rows()?, config.resolved_run_rows()?);
        let (dim, l) = (config.dim, config.sketch_rows);
        let kind = match config.method {
            Method::Frosh => Some(Kind::Srht),
            Method::FroshSparse => Some(Kind::Sparse),
            Method::Osh | Method::Lsh => None,
        };
        let block = kind.map(|kind| {
            let block = Block::new(kind, dim, l / 2, m, config.seed, config.worker);
            if config.block_rows.is_none() { block.growing() } else { block }
        });
        let capacity = if config.method == Method::Lsh { 2 } else { l };
        let decay = config.half_life.map(|rows| Decay::new(rows, config.clock));
        Ok(Self {
            centering: Centering::new(dim, decay),
            block,
            directions: FrequentDirections::new(dim, capacity, config.shrink_index),
            buffer: Vec::new(),
            pending: 0,
            number: 0,
            rows: 0,
            config: Config { block_rows: Some(m), run_rows: Some(run_rows), ..config },
            pool: Pool::current(),
        })
    }

    /// Rows of a complete run.
    pub(crate) fn length(&self) -> u64 {
        match self.config.run_rows {
            None | Some(0) => u64::MAX,
            Some(rows) => rows,
        }
    }

    /// Number of the run's first row in the stream.
    pub(crate) fn start(&self) -> u64 {
        self.number.saturating_mul(self.length())
    }

    /// Rows that the run still takes.
    pub(crate) fn room(&self) -> u64 {
        self.length() - self.rows
    }

    /// Begins run number `number` of the same stream, without rows. Memory is kept.
    pub(crate) fn restart(&mut self, number: u64) {
        let dim = self.config.dim;
        self.number = number;
        let (start, clock) = (self.start(), self.config.clock);
        let decay = self.config.half_life.map(|rows| Decay::new(rows, clock.saturating_add(start)));
        self.centering = Centering::new(dim, decay);
        if let Some(block) = &mut self.block {
            block.restart(number, start);
        }
        self.directions.clear();
        (self.pending, self.rows) = (0, 0);
    }

    /// Run number `number` of the same stream, without rows, on another pool.
    pub(crate) fn another(&self, number: u64, pool: Pool) -> Self {
        let directions = &self.directions;
        let mut run = Self {
            config: self.config.clone(),
            pool,
            number,
            centering: Centering::new(self.config.dim, None),
            block: self.block.as_ref().map(|block| block.another(Vec::new())),
            directions: FrequentDirections::new(
                self.config.dim,
                directions.capacity(),
                directions.index(),
            ),
            buffer: Vec::new(),
            pending: 0,
            rows: 0,
        };
        run.restart(number);
        run
    }

    /// Sets the worker number.
    pub(crate) fn set_worker(&mut self, worker: u64) {
        (self.config.worker, self.config.worker_from_rows) = (worker, false);
        if let Some(block) = &mut self.block {
            block.at.worker = worker;
        }
    }

    /// Learns from rows, of which there are no more than the run takes, up to the first bad one.
    pub(crate) fn push<T: Element>(&mut self, batch: &Rows<'_, T>) -> Result<()> {
        let dim = self.config.dim;
        if batch.is_empty() {
            return Ok(());
        }
        if self.rows == 0 {
            // The first row is the reference of the centring.
            let mut first = vec![0.0; dim];
            rows::load(batch.row(0), 0, self.config.metric, &vec![0.0; dim], &mut first)?;
            self.centering.reference = first;
        }
        self.buffer.resize(self.pending_capacity() * dim, 0.0);
        let ends = batch.len() as u64 == self.room();
        let small = batch.as_slice().len() < MIN_PARALLEL_VALUES;
        if small && self.pending + batch.len() <= self.limit() {
            // The rows are only copied to the buffer, which is too little work to wake a thread.
            self.take(batch, ends)
        } else {
            // Everything runs inside the pool, so that no step has to wake it.
            let pool = self.pool.clone();
            pool.enter(|| self.take(batch, ends))
        }
    }

    /// Absorbs rows up to the first bad one. `ends` says that the run ends with these rows.
    fn take<T: Element>(&mut self, batch: &Rows<'_, T>, ends: bool) -> Result<()> {
        let mut at = 0;
        while at < batch.len() {
            let rest = batch.slice(at..batch.len());
            let direct = T::as_f32(rest.as_slice()).is_some() && self.config.metric == Metric::L2;
            if direct && self.pending > 0 && self.pending == self.limit() {
                // Rows of an earlier batch fill the buffer. Once they are used, the rest needs no copy. They are used
                // only if an accepted row follows them.
                rows::check(&rest.slice(0..1)).map_err(|e| e.shift_row(at))?;
                self.use_pending();
                continue;
            }
            let taken = match T::as_f32(rest.as_slice()) {
                Some(values) if self.pending == 0 && self.config.metric == Metric::L2 => {
                    match self.take_blocks(values, ends) {
                        0 => self.take_directly(values, ends),
                        taken => Ok(taken),
                    }
                }
                _ => Ok(0),
            };
            let taken = match taken {
                Ok(0) => self.take_pending(&rest),
                other => other,
            };
            at += taken.map_err(|e| e.shift_row(at))?;
        }
        Ok(())
    }

    /// Ends the run, which has all its rows: its sketch, in as little memory as its rows need. What remains is to be
    /// [restarted](Run::restart).
    pub(crate) fn close(&mut self) -> Sketch {
        let pool = self.pool.clone();
        pool.enter(|| {
            // The end of a run allows what a row after it would allow.
            if self.pending > 0 && self.pending == self.limit() {
                self.use_pending();
            }
            self.flush();
            self.directions.compact(&pool);
        });
        let directions = self.directions.copy();
        self.sketch(directions)
    }

    /// Ends the stream in this run: the sketch of the rows so far.
    pub(crate) fn finish(mut self) -> Sketch {
        self.flush();
        let empty = FrequentDirections::new(self.config.dim, 2, self.directions.index());
        let directions = std::mem::replace(&mut self.directions, empty);
        self.sketch(directions)
    }

    /// The sketch with these rows, without a sample.
    fn sketch(&self, directions: FrequentDirections) -> Sketch {
        let config = &self.config;
        Sketch {
            dim: config.dim,
            method: config.method,
            metric: config.metric,
            seed: config.seed,
            workers: vec![config.worker],
            block_rows: config.block_rows.unwrap_or(0),
            rows: self.rows,
            left_out: 0,
            compressed: self.block.as_ref().is_some_and(|block| block.trial > 0),
            decay: self
                .centering
                .decay
                .map(|decay| Decay { clock: decay.clock.saturating_add(self.rows), ..decay }),
            mean: self.centering.mean.clone(),
            directions,
            reservoir: Reservoir::new(config.dim, 0),
        }
    }

    /// Capacity of the buffer of pending rows.
    pub(crate) fn pending_capacity(&self) -> usize {
        match (&self.block, self.config.method) {
            (Some(block), _) => block.p.max(block.q),
            (None, Method::Lsh) => (LSH_BLOCK_VALUES / self.config.dim).clamp(4, LSH_BLOCK_ROWS),
            (None, _) => self.config.sketch_rows / 2,
        }
    }

    /// The compression stage, if the current block is compressed.
    fn compression(&self) -> Option<&Block> {
        self.block.as_ref().filter(|block| !block.uncompressed)
    }

    /// Number of rows that may be pending before the first of them must be used.
    fn limit(&self) -> usize {
        match &self.block {
            Some(block) if block.uncompressed => block.q,
            Some(block) if block.done > 0 => block.p,
            // A block that ends with at most q rows is not compressed, so its first q rows must stay pending.
            _ => self.pending_capacity(),
        }
    }

    /// Heap bytes in use.
    pub(crate) fn bytes(&self) -> usize {
        let block = self.block.as_ref().map_or(0, |b| b.acc.len() * 4 + b.tally.len() * 8);
        self.buffer.len() * 4 + block + self.directions.bytes() + self.config.dim * 20
    }
}
