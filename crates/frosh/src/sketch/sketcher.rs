//! The learner: takes batches of rows of any size and keeps a sketch of their centred scatter.
//!
//! It cuts the stream into [runs](crate::sketch::runs). The [`Run`] in progress learns from the rows; the sketches of
//! complete runs are merged as soon as a pair of equal size is there. The sample of rows is one for the whole stream.
//!
//! **Cost.** O(n d log l + n d l^2 / m) time. Memory: 2 l d floats for the run in progress, the work space of the shrink,
//! at most 3/4 l d floats for each power of two in the number of complete runs, and the reservoir.

use crate::error::{Error, Result};
use crate::random::priority;
use crate::rows::{self, Element, Rows};
use crate::sketch::Sketch;
use crate::sketch::config::Config;
use crate::sketch::decay::Decay;
use crate::sketch::reservoir::Reservoir;
use crate::sketch::run::Run;
use xxhash_rust::xxh3::Xxh3;

/// Learns from a stream of rows.
///
/// It takes batches of any size and keeps a sketch of their centred scatter, in memory that does not grow with the
/// stream. The cut into batches and the number of threads do not change the result.
///
/// Time for n rows: O(n d log l + n d l^2 / m) for FROSH, O(n d l) for OSH. Memory: at most 3 l d floats and s (2 d +
/// 28) bytes for s sampled rows; l d / 2 floats more on several threads; 3/4 l d floats more for each doubling of a
/// stream beyond one [run](Config::run_rows).
///
/// Several threads learn from different runs at the same time if a batch has two runs or more, or if each thread reads its
/// rows itself ([`learn_ranges`](Sketcher::learn_ranges)).
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
    /// The run in progress.
    pub(crate) run: Run,
    /// Sketches of the complete runs, without samples: one for each power of two in their number, the oldest and largest
    /// first.
    pub(crate) parts: Vec<Sketch>,
    pub(crate) reservoir: Reservoir,
    pub(crate) note: String,
}

impl Sketcher {
    /// A learner without rows. It keeps the [current pool](crate::Pool::current).
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if a setting is outside its range.
    pub fn new(config: Config) -> Result<Self> {
        let run = Run::new(config)?;
        let (rows, dim) = (run.config.reservoir_rows, run.config.dim);
        let reservoir = Reservoir::new(dim, rows);
        Ok(Self { run, parts: Vec::new(), reservoir, note: String::new() })
    }

    /// Number of rows learned from so far.
    pub fn rows(&self) -> u64 {
        self.run.start() + self.run.rows
    }

    /// Values per row.
    pub fn dim(&self) -> usize {
        self.run.config.dim
    }

    /// Rows l of the sketch.
    pub fn sketch_rows(&self) -> usize {
        self.run.config.sketch_rows
    }

    /// Rows m of the largest compressed block; the first blocks may be smaller.
    pub fn block_rows(&self) -> usize {
        self.run.config.block_rows.unwrap_or(0)
    }

    /// Rows of a [run](Config::run_rows); 0 if the whole stream is one run.
    pub fn run_rows(&self) -> u64 {
        self.run.config.run_rows.unwrap_or(0)
    }

    /// The half-life in rows, if there is one.
    pub fn half_life(&self) -> Option<u64> {
        self.run.config.half_life
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
        let parts: usize = self.parts.iter().map(Sketch::bytes).sum();
        self.run.bytes() + parts + self.reservoir.bytes() + self.run.config.dim * 4
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
        let dim = self.run.config.dim;
        if batch.dim() != dim {
            return Err(Error::Dimension { expected: dim, got: batch.dim() });
        }
        if batch.is_empty() {
            return Ok(());
        }
        if self.rows() == 0 {
            self.start(batch.row(0))?;
        }
        let first = self.rows();
        let result = self.take(&batch);
        self.sample(first, &batch);
        result
    }

    /// Learns from the rows of a batch, up to the first bad one.
    fn take<T: Element>(&mut self, batch: &Rows<'_, T>) -> Result<()> {
        let mut at = 0;
        while at < batch.len() {
            let left = (batch.len() - at) as u64;
            let runs = if self.run.rows == 0 { left / self.run.length() } else { 0 };
            let rows = if runs >= 2 && self.run.pool.threads() >= 2 {
                let rows = (runs * self.run.length()) as usize;
                self.take_runs(&batch.slice(at..at + rows)).map_err(|e| e.shift_row(at))?;
                rows
            } else {
                let rows = left.min(self.run.room()) as usize;
                self.run.push(&batch.slice(at..at + rows)).map_err(|e| e.shift_row(at))?;
                if self.run.room() == 0 {
                    self.close_run();
                }
                rows
            };
            at += rows;
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
    pub fn finish(self) -> Sketch {
        let (pool, worker) = (self.run.pool.clone(), self.run.config.worker);
        let mut sketch = self.run.finish();
        // From the newest to the oldest. Nothing more will be appended, so nothing is shrunk that need not be.
        for mut older in self.parts.into_iter().rev() {
            if sketch.rows > 0 {
                let clock = sketch.clock();
                older.age_to(clock);
                older.add(&pool, &sketch, clock);
            }
            sketch = older;
        }
        let mut reservoir = self.reservoir;
        reservoir.put_in_order();
        Sketch { workers: vec![worker], reservoir, ..sketch }
    }

    /// Makes the first row of the stream the origin of the reservoir, and takes the worker number from it if that was asked
    /// for.
    pub(super) fn start<T: Element>(&mut self, row: &[T]) -> Result<()> {
        let zero = vec![0.0; self.run.config.dim];
        let mut first = zero.clone();
        rows::load(row, 0, self.run.config.metric, &zero, &mut first)?;
        self.reservoir.origin = first;
        if self.run.config.worker_from_rows {
            self.run.set_worker(worker_of(row));
        }
        Ok(())
    }

    /// Adds the sketch of the run, which is complete, to those of the runs before, and begins the next run.
    fn close_run(&mut self) {
        let mut sketch = self.run.close();
        let pool = self.run.pool.clone();
        // As in counting by ones in binary: each trailing one is a sketch of as many runs as this one has by then.
        for _ in 0..self.run.number.trailing_ones() {
            let Some(older) = self.parts.pop() else { break };
            let work = &mut self.run.directions;
            sketch = pool.enter(|| older.followed_by(&pool, &sketch, work));
        }
        self.parts.push(sketch);
        self.run.restart(self.run.number + 1);
    }

    /// Offers the absorbed rows of the batch to the reservoir. `first` is the number of the batch's first row in the
    /// stream.
    fn sample<T: Element>(&mut self, first: u64, batch: &Rows<'_, T>) {
        let (keys, metric) = (Keys::of(&self.run.config), self.run.config.metric);
        let numbers = first..self.rows();
        let origin = std::mem::take(&mut self.reservoir.origin);
        let keys = numbers.map(|number| keys.of_row(number));
        self.reservoir.offer(&self.run.pool, first, keys, |i, row| {
            // Cannot fail: every offered row was checked before.
            let _ = rows::load(batch.row(i), i, metric, &origin, row);
        });
        self.reservoir.origin = origin;
    }
}

/// The keys by which rows are sampled.
#[derive(Clone, Copy)]
pub(super) struct Keys {
    seed: u64,
    worker: u64,
    decay: Option<Decay>,
}

impl Keys {
    pub(super) fn of(config: &Config) -> Self {
        let decay = config.half_life.map(|rows| Decay::new(rows, config.clock));
        Self { seed: config.seed, worker: config.worker, decay }
    }

    /// The key of the row with this number in the stream.
    pub(super) fn of_row(self, number: u64) -> u64 {
        let hash = priority(self.seed, self.worker, number);
        self.decay.map_or(hash, |decay| decay.key(hash, number))
    }
}

/// The worker number of a stream that begins with this row: a hash of its values in double precision, so that the element
/// type does not matter.
fn worker_of<T: Element>(row: &[T]) -> u64 {
    let mut hash = Xxh3::new();
    row.iter().for_each(|x| hash.update(&x.to_f64().to_le_bytes()));
    hash.digest()
}
