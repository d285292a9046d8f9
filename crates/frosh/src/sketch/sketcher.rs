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

use crate::arch;
use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::random::priority;
use crate::rows::{self, Element, LIMIT, Metric, Rows};
use crate::sketch::Sketch;
use crate::sketch::blocks;
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

    /// Absorbs complete blocks in parallel, without copying rows, if there are enough blocks. Returns the number of
    /// rows absorbed.
    fn take_blocks(&mut self, values: &[f32]) -> usize {
        let Self { block: Some(block), directions, centering, pool, .. } = self else { return 0 };
        if block.uncompressed || block.done > 0 {
            return 0;
        }
        // A block is absorbed only if a row follows it.
        let m = block.m;
        let blocks = block.equal_blocks(centering.before, (values.len() / self.config.dim - 1) / m);
        if !blocks::can_run(pool, blocks) {
            return 0;
        }
        let taken = blocks::take(pool, values, blocks, block, centering, directions) * m;
        self.rows += taken as u64;
        taken
    }

    /// Absorbs all complete sub-blocks without copying rows. Returns the number of rows absorbed.
    fn take_directly(&mut self, values: &[f32]) -> Result<usize> {
        let dim = self.config.dim;
        let available = values.len() / dim;
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
        let next = &values[count * unit * dim..][..dim];
        let fine = arch::usable(next) && arch::usable(&values[..begins * dim]);
        if fine && self.use_rows(used) {
            self.rows += (count * unit) as u64;
            return Ok(count * unit);
        }
        // Nothing has changed. Absorb the rows before the first bad one, then report that row.
        let suspects = Rows::new(&values[..(count * unit + 1).max(begins) * dim], dim)?;
        match rows::check(&suspects) {
            Err(error @ (Error::NotFinite { row, .. } | Error::TooLarge { row, .. })) => {
                self.take(&suspects.slice(0..row))?;
                Err(error)
            }
            other => other.map(|()| 0),
        }
    }

    /// Passes complete sub-blocks of uncentred rows to the next stage. Returns false, and changes nothing, if one has
    /// a bad value.
    fn use_rows(&mut self, values: &[f32]) -> bool {
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
    fn compress(&mut self, values: &[f32], live: usize, raw: bool) -> u32 {
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

    fn end_block_if_full(&mut self) {
        if self.compression().is_some_and(|block| block.remaining() == 0) {
            self.end_block();
        }
    }

    /// Appends the compressed rows to the sketch, and starts the next block.
    fn end_block(&mut self) {
        let shift = self.centering.shift();
        self.decay();
        let Self { block, directions, pool, .. } = self;
        if let Some(block) = block {
            block.close(&shift, |rows| directions.append(pool, rows));
        }
        self.begin_block();
    }

    /// Reduces the weights of the rows before the current block.
    fn decay(&mut self) {
        if let Some(factor) = self.centering.factor() {
            self.directions.decay(factor);
        }
    }

    /// Adds the rows of the block to the mean, and starts the next block.
    fn begin_block(&mut self) {
        self.centering.close();
        if let Some(block) = &mut self.block {
            block.begin(self.centering.before);
        }
    }

    /// Absorbs a block that is not compressed: of OSH, of LSH (only the mean is kept), or one that is too short.
    fn use_uncompressed(&mut self, values: &[f32], raw: bool) {
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
    fn take_pending<T: Element>(&mut self, rest: &Rows<'_, T>) -> Result<usize> {
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
    fn use_pending(&mut self) {
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
    fn flush(&mut self) {
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

/// Converts rows to `out`, on all threads if there are enough values. Fails for the first bad row.
fn load_all<T: Element>(
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
