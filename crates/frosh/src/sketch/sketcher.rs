//! The learner: takes batches of rows of any size and keeps a sketch of their centred scatter.
//!
//! **Algorithm 1** is centring, compression and frequent directions for every block of m rows. FROSH and
//! OSH are the same pipeline with and without compression. LSH keeps only the mean.
//!
//! **Where we differ.** Blocks start at fixed row numbers, not at the ends of batches, so the cut into batches
//! does not change the result. Unless the caller sets the block size, the first blocks are small and grow with the
//! row number ([`compression`](crate::sketch::compression)). Work is delayed as long as possible: a sub-block is compressed
//! when the first row after it arrives, and a full buffer shrinks when the next block starts. So the state is a function
//! of the rows alone, and a sketch taken at any row has lost as little as possible. Such a sketch includes the
//! rows of an unfinished block: unchanged if none of the block was compressed yet, else as a block padded with zeros.
//!
//! **Cost.** O(n d log l + n d l^2 / m) time. Memory: 2 l d floats, the work space of the shrink and the reservoir,
//! for any n. With several threads, the shrink of one block runs in parallel with the compression of the next.

mod intake;

use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::random::priority;
use crate::rows::{self, Element, Metric, Rows};
use crate::sketch::Sketch;
use crate::sketch::centering::Centering;
use crate::sketch::compression::{Block, Kind};
use crate::sketch::config::{Config, Method};
use crate::sketch::decay::Decay;
use crate::sketch::frequent_directions::FrequentDirections;
use crate::sketch::reservoir::{self, Reservoir};
use xxhash_rust::xxh3::Xxh3;

/// Limits of an LSH block, in rows and in values. Rows are read twice, the second time from cache.
const LSH_BLOCK_ROWS: usize = 64;
const LSH_BLOCK_VALUES: usize = 1 << 16;
/// Batches with fewer values are converted on one thread, which is faster than waking others.
const MIN_PARALLEL_VALUES: usize = 1 << 16;

/// Learns from a stream of rows.
///
/// It takes batches of any size and keeps a sketch of their centred scatter, in memory that does not grow with the
/// stream. The cut into batches and the number of threads do not change the result.
///
/// Time for n rows: O(n d log l + n d l^2 / m) for FROSH, O(n d l) for OSH. Memory: at most 3 l d floats and
/// s (2 d + 12) bytes for s sampled rows; l d / 2 floats more on several threads.
///
/// ```
/// use frosh::{Config, Rows, Sketcher};
/// # let data: Vec<f32> = (0..4000).map(|i| ((i * i) % 97) as f32).collect();
/// let mut sketcher = Sketcher::new(Config::new(20).seed(7))?;
/// for batch in data.chunks(20 * 64) {
///     sketcher.push(Rows::new(batch, 20)?)?;
/// }
/// let codes = sketcher.finish().hasher(16)?.encode(Rows::new(&data, 20)?)?;
/// assert_eq!((codes.len(), codes.bits()), (200, 16));
/// # Ok::<(), frosh::Error>(())
/// ```
///
/// A learner can be saved in the middle of a stream and resumed later, bit for bit:
///
/// ```
/// # use frosh::{Config, Rows, Sketcher};
/// # let data: Vec<f32> = (0..4000).map(|i| ((i * i) % 97) as f32).collect();
/// # let mut sketcher = Sketcher::new(Config::new(20).seed(7))?;
/// sketcher.push(Rows::new(&data[..2000], 20)?)?;
/// sketcher.set_note("shard 1 done");
/// let state = sketcher.to_bytes(); // or sketcher.save("state.frosh")?
///
/// let mut resumed = Sketcher::from_bytes(&state)?;
/// assert_eq!((resumed.rows(), resumed.note()), (100, "shard 1 done"));
/// resumed.push(Rows::new(&data[2000..], 20)?)?;
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Sketcher {
    pub(crate) config: Config,
    pub(crate) pool: Pool,
    pub(crate) centering: Centering,
    /// The compression stage; none for OSH and LSH.
    pub(crate) block: Option<Block>,
    pub(crate) directions: FrequentDirections,
    /// Rows that are not used yet, minus the reference of the centring; the first `pending` rows are valid.
    pub(crate) buffer: Vec<f32>,
    pub(crate) pending: usize,
    pub(crate) reservoir: Reservoir,
    pub(crate) rows: u64,
    pub(crate) note: String,
}

impl Sketcher {
    /// A learner without rows. It keeps the [current pool](Pool::current).
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if a setting is outside its range.
    pub fn new(config: Config) -> Result<Self> {
        let m = config.resolved_block_rows()?;
        let pool = Pool::current();
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
            reservoir: Reservoir::new(dim, reservoir::capped(config.reservoir_rows, dim)),
            rows: 0,
            note: String::new(),
            config: Config { block_rows: Some(m), ..config },
            pool,
        })
    }

    /// Number of rows learned from so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Values per row.
    pub fn dim(&self) -> usize {
        self.config.dim
    }

    /// Rows l of the sketch.
    pub fn sketch_rows(&self) -> usize {
        self.config.sketch_rows
    }

    /// Rows m of the largest compressed block; the first blocks may be smaller.
    pub fn block_rows(&self) -> usize {
        self.config.block_rows.unwrap_or(0)
    }

    /// The half-life in rows, if there is one.
    pub fn half_life(&self) -> Option<u64> {
        self.config.half_life
    }

    /// A text of the caller that is saved with the state, for example the position in the input.
    pub fn note(&self) -> &str {
        &self.note
    }

    /// Sets the note.
    pub fn set_note(&mut self, note: impl Into<String>) {
        self.note = note.into();
    }

    /// Heap bytes in use.
    pub fn bytes(&self) -> usize {
        let block = self.block.as_ref().map_or(0, |b| b.acc.len() * 4 + b.tally.len() * 8);
        let dim = self.config.dim;
        self.buffer.len() * 4 + block + self.directions.bytes() + self.reservoir.bytes() + dim * 24
    }

    /// Learns from a batch of any size.
    ///
    /// # Errors
    ///
    /// [`Error::Dimension`] if the rows have another dimension; then the state is unchanged. [`Error::NotFinite`] or
    /// [`Error::TooLarge`] if a row has a bad value; then the rows before it are learned from, and no row after it.
    ///
    /// ```
    /// use frosh::{Config, Rows, Sketcher};
    /// let mut sketcher = Sketcher::new(Config::new(3))?;
    /// sketcher.push(Rows::new(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], 3)?)?;
    /// sketcher.push(Rows::new(&[7u8, 8, 9], 3)?)?; // batches may have different element types
    /// assert_eq!(sketcher.rows(), 3);
    /// assert!(sketcher.push(Rows::new(&[1.0f32, f32::INFINITY, 0.0], 3)?).is_err());
    /// # Ok::<(), frosh::Error>(())
    /// ```
    pub fn push<T: Element>(&mut self, batch: Rows<'_, T>) -> Result<()> {
        let dim = self.config.dim;
        if batch.dim() != dim {
            return Err(Error::Dimension { expected: dim, got: batch.dim() });
        }
        if batch.is_empty() {
            return Ok(());
        }
        if self.rows == 0 {
            self.start(batch.row(0))?;
        }
        self.buffer.resize(self.pending_capacity() * dim, 0.0);
        let first = self.rows;
        let small = batch.as_slice().len() < MIN_PARALLEL_VALUES;
        let result = if small && self.pending + batch.len() <= self.limit() {
            // The rows are only copied to the buffer, which is too little work to wake a thread.
            self.take(&batch)
        } else {
            // Everything runs inside the pool, so that no step has to wake it.
            let pool = self.pool.clone();
            pool.enter(|| self.take(&batch))
        };
        self.sample(first, &batch);
        result
    }

    /// Absorbs the rows of a batch, up to the first bad one.
    fn take<T: Element>(&mut self, batch: &Rows<'_, T>) -> Result<()> {
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
                    match self.take_blocks(values) {
                        0 => self.take_directly(values),
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

    /// The sketch of all rows so far. The learner is not changed, and can take more rows.
    ///
    /// Copies the state, and absorbs the rows of an unfinished block into the copy.
    ///
    /// ```
    /// # use frosh::{Config, Rows, Sketcher};
    /// # let data: Vec<f32> = (0..4000).map(|i| ((i * i) % 97) as f32).collect();
    /// let mut sketcher = Sketcher::new(Config::new(20))?;
    /// for batch in data.chunks(20 * 64) {
    ///     sketcher.push(Rows::new(batch, 20)?)?;
    ///     let model_so_far = sketcher.sketch().hasher(8)?;
    /// }
    /// # Ok::<(), frosh::Error>(())
    /// ```
    pub fn sketch(&self) -> Sketch {
        self.clone().finish()
    }

    /// Ends the stream and returns the sketch of all rows.
    pub fn finish(mut self) -> Sketch {
        self.flush();
        Sketch {
            dim: self.config.dim,
            method: self.config.method,
            metric: self.config.metric,
            seed: self.config.seed,
            workers: vec![self.config.worker],
            block_rows: self.config.block_rows.unwrap_or(0),
            rows: self.rows,
            left_out: 0,
            compressed: self.block.is_some_and(|block| block.trial > 0),
            decay: self
                .centering
                .decay
                .map(|decay| Decay { clock: decay.clock.saturating_add(self.rows), ..decay }),
            mean: self.centering.mean,
            directions: self.directions,
            reservoir: self.reservoir,
        }
    }

    /// Makes the first row of the stream the reference of the centring and the origin of the reservoir, and takes the worker
    /// number from it if that was asked for.
    fn start<T: Element>(&mut self, row: &[T]) -> Result<()> {
        let zero = vec![0.0; self.config.dim];
        let mut first = zero.clone();
        rows::load(row, 0, self.config.metric, &zero, &mut first)?;
        self.reservoir.origin.copy_from_slice(&first);
        self.centering.reference = first;
        if std::mem::take(&mut self.config.worker_from_rows) {
            self.config.worker = worker_of(row);
            if let Some(block) = &mut self.block {
                block.worker = self.config.worker;
            }
        }
        Ok(())
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

    /// Offers the absorbed rows of the batch to the reservoir. `first` is the number of the batch's first row in the
    /// stream.
    fn sample<T: Element>(&mut self, first: u64, batch: &Rows<'_, T>) {
        let (seed, worker, metric) = (self.config.seed, self.config.worker, self.config.metric);
        let origin = std::mem::take(&mut self.reservoir.origin);
        let decay = self.centering.decay;
        let keys = (first..self.rows).map(|number| {
            let hash = priority(seed, worker, number);
            decay.map_or(hash, |decay| decay.key(hash, number))
        });
        self.reservoir.offer(keys, |i, row| {
            // Cannot fail: every offered row was checked before.
            let _ = rows::load(batch.row(i), i, metric, &origin, row);
        });
        self.reservoir.origin = origin;
    }
}

/// The worker number of a stream that begins with this row: a hash of its values in double precision, so that the element
/// type does not matter.
fn worker_of<T: Element>(row: &[T]) -> u64 {
    let mut hash = Xxh3::new();
    row.iter().for_each(|x| hash.update(&x.to_f64().to_le_bytes()));
    hash.digest()
}
