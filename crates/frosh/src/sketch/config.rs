//! Settings of the learner.

use crate::error::{Error, Result};
use crate::names::names;
use crate::rows::Metric;
use crate::sketch::MAX_ROWS;
use crate::sketch::compression::srht;
use crate::sketch::decay::Decay;
use crate::sketch::frequent_directions::ShrinkIndex;
use crate::sketch::reservoir;

/// The algorithm that learns.
///
/// ```
/// use frosh::{Config, Method};
/// let config = Config::new(128).method(Method::Osh);
/// assert_eq!("frosh-sparse".parse::<Method>()?, Method::FroshSparse);
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Method {
    /// FROSH: centring, the SRHT, frequent directions (Algorithms 1 and 2 of the paper).
    /// log2(p) + q/p additions a value before frequent directions, with p rows in a sub-block and q = l/2.
    #[default]
    Frosh,
    /// FROSH with a sparse embedding in place of the SRHT: one addition a value.
    FroshSparse,
    /// OSH (Leng and others, 2015): centring and frequent directions on every row, without compression.
    Osh,
    /// LSH (Charikar, 2002): learns only the mean; directions are random.
    Lsh,
}

names!(
    Method,
    "method",
    Frosh => "frosh",
    FroshSparse => "frosh-sparse",
    Osh => "osh",
    Lsh => "lsh"
);

/// Settings of a [`Sketcher`](crate::Sketcher). All but the dimension have defaults.
///
/// Settings are checked by [`Sketcher::new`](crate::Sketcher::new), not by the methods here.
///
/// ```
/// use frosh::{Config, Metric, Sketcher};
/// let config = Config::new(960)
///     .sketch_rows(128) // for codes of at most 64 bits
///     .metric(Metric::Cosine)
///     .seed(7);
/// config.check_hasher(64, None)?; // fail before the first row, not after the last
/// assert_eq!(config.resolved_block_rows()?, 4096);
/// let sketcher = Sketcher::new(config)?;
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub(crate) dim: usize,
    pub(crate) method: Method,
    pub(crate) sketch_rows: usize,
    pub(crate) block_rows: Option<usize>,
    /// The largest accepted `block_rows`.
    pub(crate) most_block_rows: usize,
    /// Rows of a run; 0 if the whole stream is one run.
    pub(crate) run_rows: Option<u64>,
    pub(crate) seed: u64,
    pub(crate) worker: u64,
    /// Whether the first row will determine `worker`.
    pub(crate) worker_from_rows: bool,
    pub(crate) metric: Metric,
    pub(crate) reservoir_rows: usize,
    pub(crate) shrink_index: ShrinkIndex,
    pub(crate) half_life: Option<u64>,
    pub(crate) clock: u64,
}

/// Largest dimension. It keeps all size computations far from overflow.
pub(crate) const MAX_DIM: usize = 1 << 24;
/// Largest number of sketch rows.
pub(crate) const MAX_SKETCH_ROWS: usize = 1 << 14;
/// Largest block: the paper's 4d for the largest dimension.
const MAX_BLOCK_ROWS: usize = 4 * MAX_DIM;
/// Values and blocks that a run has at least. Both are large enough that beginning a run and merging its sketch cost
/// little, and small enough that files of a gigabyte have runs for many threads.
const RUN_VALUES: usize = 1 << 24;
const RUN_BLOCKS: usize = 4;
/// Largest block in a saved state. Earlier releases accepted blocks above [`MAX_BLOCK_ROWS`].
const MAX_SAVED_BLOCK_ROWS: usize = 1 << 30;

impl Config {
    /// The default settings for rows of `dim` values: FROSH, 256 sketch rows (enough for 128 bits) but at most
    /// twice the dimension, Euclidean distance, 16,384 sampled rows, seed 0, worker 0.
    pub fn new(dim: usize) -> Self {
        Self {
            dim,
            method: Method::default(),
            sketch_rows: 2 * dim.clamp(1, 128),
            block_rows: None,
            most_block_rows: MAX_BLOCK_ROWS,
            run_rows: None,
            seed: 0,
            worker: 0,
            worker_from_rows: false,
            metric: Metric::default(),
            reservoir_rows: reservoir::DEFAULT_ROWS,
            shrink_index: ShrinkIndex::default(),
            half_life: None,
            clock: 0,
        }
    }

    /// Sets the algorithm.
    pub fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// Sets l, the rows of the sketch: even, from 2 to 16,384, and at least twice the bits of the code. More rows
    /// give a smaller error, and cost time O(n d log l + n d l^2 / m) and memory O(l d).
    pub fn sketch_rows(mut self, rows: usize) -> Self {
        self.sketch_rows = rows;
        self
    }

    /// Sets m, the rows of a compressed block: a power of two, at least half the sketch rows. Every block then has
    /// this size, as in the paper.
    ///
    /// By default m balances the cost of compression and shrink, and the first blocks are smaller: a block has at
    /// most a sixteenth of the number of rows before it. So compression adds little error to short streams.
    pub fn block_rows(mut self, rows: usize) -> Self {
        self.block_rows = Some(rows);
        self
    }

    /// Sets the rows of a run. A long stream is cut into runs of this many rows, which several threads can learn from
    /// at the same time. Their sketches are merged in a fixed order, so that the number of threads does not change the
    /// result. By default a run has about 64 MB of single-precision values, and at least four of the largest blocks. 0
    /// makes the whole stream one run, as in the paper.
    ///
    /// ```
    /// use frosh::Config;
    /// assert_eq!(Config::new(1024).sketch_rows(128).resolved_run_rows()?, 16_384);
    /// assert_eq!(Config::new(1024).run_rows(0).resolved_run_rows()?, 0);
    /// # Ok::<(), frosh::Error>(())
    /// ```
    pub fn run_rows(mut self, rows: u64) -> Self {
        self.run_rows = Some(rows);
        self
    }

    /// Sets the block size of a saved state.
    pub(crate) fn saved_block_rows(mut self, rows: usize) -> Self {
        self.most_block_rows = MAX_SAVED_BLOCK_ROWS;
        self.block_rows(rows)
    }

    /// Sets the seed of all randomness.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the worker number. It must be different on every machine whose sketches will be merged, because it
    /// selects the randomness.
    pub fn worker(mut self, worker: u64) -> Self {
        (self.worker, self.worker_from_rows) = (worker, false);
        self
    }

    /// Takes the worker number from the rows: it will be a hash of the first row's values.
    ///
    /// For workers that have no numbers, such as the tasks of a query engine: which machine learns from a part of the
    /// data, and when, then does not change the result. Parts that begin with the same row get the same number.
    ///
    /// ```
    /// use frosh::{Config, Rows, Sketcher};
    /// let sketch = |rows: &[f32]| {
    ///     let mut sketcher = Sketcher::new(Config::new(2).worker_from_rows())?;
    ///     sketcher.push(Rows::new(rows, 2)?)?;
    ///     Ok::<_, frosh::Error>(sketcher.finish())
    /// };
    /// let (a, b) = (sketch(&[1.0, 2.0, 3.0, 5.0])?, sketch(&[2.0, 1.0, 3.0, 5.0])?);
    /// assert_ne!(a.workers(), b.workers());
    /// assert_eq!(a.workers(), sketch(&[1.0, 2.0])?.workers());
    /// # Ok::<(), frosh::Error>(())
    /// ```
    pub fn worker_from_rows(mut self) -> Self {
        (self.worker, self.worker_from_rows) = (0, true);
        self
    }

    /// Sets how rows are compared.
    pub fn metric(mut self, metric: Metric) -> Self {
        self.metric = metric;
        self
    }

    /// Sets the number of sampled rows, which the ITQ and refined rotations and the distance estimator are fitted to:
    /// 16,384 by default, 0 for no sample. A sample takes 2 d + 28 bytes a row, and is limited to 32 MB.
    /// If more than 16,384 rows were requested and do not fit, they are stored as bytes, which take half of that.
    pub fn reservoir_rows(mut self, rows: usize) -> Self {
        self.reservoir_rows = rows;
        self
    }

    /// The number of sampled rows that is asked for.
    pub fn requested_reservoir_rows(&self) -> usize {
        self.reservoir_rows
    }

    /// Sets which squared singular value a shrink subtracts.
    pub fn shrink_index(mut self, index: ShrinkIndex) -> Self {
        self.shrink_index = index;
        self
    }

    /// Makes older rows count less: a row that is `rows` rows old counts half as much as a new one, in the mean, the
    /// sketch, the certificate and the sample. Off by default. From 1 to 2^62; sketches of different half-lives do not
    /// merge.
    ///
    /// Use it if only recent rows are searched. A model of decayed rows is worse for a collection that keeps all rows.
    /// Weights change where a block ends, so blocks have at most an eighth of the half-life, unless
    /// [`block_rows`](Config::block_rows) is set or the blocks would be shorter than half the sketch rows. The sample
    /// follows the weights if the half-life is well above [`reservoir_rows`](Config::reservoir_rows).
    ///
    /// ```
    /// use frosh::{Config, Rows, Sketcher};
    /// let mut sketcher = Sketcher::new(Config::new(1).sketch_rows(2).half_life(100))?;
    /// sketcher.push(Rows::new(&vec![0.0f32; 1000], 1)?)?;
    /// sketcher.push(Rows::new(&vec![1.0f32; 100], 1)?)?; // the last 100 rows count as much as all before
    /// let sketch = sketcher.finish();
    /// assert!((sketch.mean()[0] - 0.5).abs() < 0.02);
    /// assert!((sketch.weight() - 100.0 / 2f64.ln()).abs() < 5.0);
    /// assert_eq!(sketch.rows(), 1100);
    /// # Ok::<(), frosh::Error>(())
    /// ```
    pub fn half_life(mut self, rows: u64) -> Self {
        self.half_life = Some(rows);
        self
    }

    /// Sets the clock of the first row, in rows: 0 by default. It needs a half-life. A stream that continues another one
    /// begins with the [clock](crate::Sketch::clock) of that one, so that a merge of both knows which rows are older.
    ///
    /// ```
    /// use frosh::{Config, Rows, Sketch, Sketcher};
    /// let config = Config::new(1).sketch_rows(2).half_life(500);
    /// let mut monday = Sketcher::new(config.clone().worker(1))?;
    /// monday.push(Rows::new(&vec![0.0f32; 1000], 1)?)?;
    /// let monday = monday.finish();
    /// let mut tuesday = Sketcher::new(config.worker(2).clock(monday.clock()))?;
    /// tuesday.push(Rows::new(&vec![1.0f32; 1000], 1)?)?;
    /// // Tuesday's rows are 1,000 rows, two half-lives, newer: they count four times as much.
    /// let both = Sketch::merge([&monday, &tuesday.finish()])?;
    /// assert!((both.mean()[0] - 0.8).abs() < 1e-6);
    /// # Ok::<(), frosh::Error>(())
    /// ```
    pub fn clock(mut self, rows: u64) -> Self {
        self.clock = rows;
        self
    }

    /// The paper's block size: the power of two nearest to 4d on a logarithmic scale.
    pub fn paper_block_rows(dim: usize) -> usize {
        let target = 4.0 * dim.max(1) as f64;
        1 << (target.log2().round() as u32).min(30)
    }

    /// The size m of the largest block: the value set by [`block_rows`](Config::block_rows), or the default.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if the dimension, the sketch rows or the block rows are outside their range.
    pub fn resolved_block_rows(&self) -> Result<usize> {
        self.check_sizes()?;
        let q = self.sketch_rows / 2;
        let least = q.next_power_of_two().max(2);
        if let Some(m) = self.block_rows {
            if !m.is_power_of_two() || m < least || m > self.most_block_rows {
                let why = format!(
                    "it must be a power of two from {least} (half the sketch rows) to {}",
                    self.most_block_rows
                );
                return Err(Error::setting("block_rows", m, why));
            }
            return Ok(m);
        }
        let p = srht::height(q, MAX_BLOCK_ROWS);
        let balance =
            1.5 * (self.sketch_rows * self.sketch_rows) as f64 / (f64::from(p.ilog2()) + 2.0);
        let balanced = (balance.ceil() as usize).next_power_of_two();
        let m = Self::paper_block_rows(self.dim).min(balanced).max(2 * p);
        Ok(match self.half_life {
            // All rows of a block have the same weight, and few blocks count. So blocks are short compared with the
            // half-life: the error of compression is at most that of 23 equal blocks.
            Some(rows) => m.min(power_of_two(rows / 8)).max(least),
            None => m,
        })
    }

    /// The rows of a run: the value set by [`run_rows`](Config::run_rows), or the default.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if the dimension, the sketch rows, the block rows or the run rows are outside their range.
    pub fn resolved_run_rows(&self) -> Result<u64> {
        let block = match self.method {
            Method::Frosh | Method::FroshSparse => self.resolved_block_rows()?,
            Method::Osh | Method::Lsh => {
                self.check_sizes()?;
                self.sketch_rows / 2
            }
        };
        match self.run_rows {
            Some(rows) if rows > MAX_ROWS => {
                let why = format!("it must be at most {MAX_ROWS}; 0 makes the stream one run");
                Err(Error::Setting { name: "run_rows", got: rows, why })
            }
            Some(rows) => Ok(rows),
            // A whole number of blocks, so that no block is cut short.
            None => {
                let rows = RUN_VALUES.div_ceil(self.dim).max(RUN_BLOCKS * block);
                Ok(rows.next_multiple_of(block) as u64)
            }
        }
    }

    fn check_sizes(&self) -> Result<()> {
        if self.dim == 0 || self.dim > MAX_DIM {
            return Err(Error::setting("dim", self.dim, format!("it must be from 1 to {MAX_DIM}")));
        }
        let l = self.sketch_rows;
        if l < 2 || !l.is_multiple_of(2) || l > MAX_SKETCH_ROWS {
            let why = format!("it must be even, from 2 to {MAX_SKETCH_ROWS}");
            return Err(Error::setting("sketch_rows", l, why));
        }
        Decay::check(self.half_life, self.clock)
    }
}

/// The largest power of two that is at most `rows`; 1 for 0.
fn power_of_two(rows: u64) -> usize {
    1 << rows.max(1).ilog2().min(30)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_block_sizes() {
        for (dim, m) in [(512, 2048), (784, 4096), (960, 4096), (1, 4), (25_600, 131_072)] {
            assert_eq!(Config::paper_block_rows(dim), m);
        }
    }

    #[test]
    fn the_default_block_balances_the_two_stages() {
        let m = |dim, l| Config::new(dim).sketch_rows(l).resolved_block_rows().unwrap();
        assert_eq!(m(960, 64), 1024);
        assert_eq!(m(960, 128), 4096);
        assert_eq!(m(960, 256), 4096);
        assert_eq!(m(8, 16), 32);
        let m = |half_life| {
            Config::new(960).sketch_rows(128).half_life(half_life).resolved_block_rows().unwrap()
        };
        assert_eq!([1, 1000, 10_000, 40_000, 1 << 62].map(m), [64, 64, 1024, 4096, 4096]);
    }

    #[test]
    fn runs_are_whole_blocks_of_about_64_megabytes() {
        let rows = |dim, l| Config::new(dim).sketch_rows(l).resolved_run_rows().unwrap();
        assert_eq!(
            [(960, 64), (960, 128), (960, 256)].map(|(d, l)| rows(d, l)),
            [18_432, 20_480, 20_480]
        );
        assert_eq!([rows(1, 2), rows(25_600, 128)], [1 << 24, 4 * 4096]);
        for config in
            [Config::new(100), Config::new(7).sketch_rows(6), Config::new(960).half_life(100)]
        {
            for method in [Method::Frosh, Method::Osh, Method::Lsh] {
                let config = config.clone().method(method);
                let rows = config.resolved_run_rows().unwrap() as usize;
                assert!(rows * config.dim >= RUN_VALUES && rows * config.dim < 2 * RUN_VALUES);
            }
        }
        assert_eq!(Config::new(9).run_rows(5).resolved_run_rows().unwrap(), 5);
        let error = Config::new(9).run_rows(u64::MAX).resolved_run_rows().unwrap_err().to_string();
        assert!(error.starts_with("run_rows = 18446744073709551615"), "{error}");
    }

    #[test]
    fn impossible_settings_are_refused_with_their_numbers() {
        let refused = |c: Config| c.resolved_block_rows().unwrap_err().to_string();
        assert!(refused(Config::new(0)).starts_with("dim = 0"));
        assert!(refused(Config::new(4).sketch_rows(0)).starts_with("sketch_rows = 0"));
        assert!(refused(Config::new(4).sketch_rows(7)).starts_with("sketch_rows = 7"));
        assert!(
            refused(Config::new(4).sketch_rows(8).block_rows(48)).starts_with("block_rows = 48")
        );
        assert!(
            refused(Config::new(4).sketch_rows(64).block_rows(16)).starts_with("block_rows = 16")
        );
        let large = refused(Config::new(4).block_rows(1 << 30));
        assert!(large.starts_with("block_rows = 1073741824") && large.ends_with("to 67108864"));
        assert_eq!(
            Config::new(4).saved_block_rows(1 << 30).resolved_block_rows().ok(),
            Some(1 << 30)
        );
    }
}
