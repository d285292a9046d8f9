//! How a sketch is made.

use crate::error::{Error, Result};
use crate::names::names;
use crate::rows::Metric;
use crate::sketch::compression::srht;
use crate::sketch::frequent_directions::ShrinkIndex;
use crate::sketch::reservoir;

/// Which algorithm learns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Method {
    /// FROSH: centring, the SRHT, frequent directions (Algorithms 1 and 2 of the paper).
    #[default]
    Frosh,
    /// FROSH with the sparse embedding in place of the SRHT: fewer operations per value.
    FroshSparse,
    /// OSH: centring and frequent directions on every row, without compression.
    Osh,
    /// LSH: learns only the mean; directions are random.
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

/// Settings of a [`Sketcher`](crate::Sketcher); every one has a default but the dimension.
///
/// ```
/// use frosh::{Config, Method, Sketcher};
/// let config = Config::new(960).sketch_rows(128).seed(7);
/// assert_eq!(config.resolved_block_rows()?, 4096);
/// let sketcher = Sketcher::new(config.method(Method::Osh))?;
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub(crate) dim: usize,
    pub(crate) method: Method,
    pub(crate) sketch_rows: usize,
    pub(crate) block_rows: Option<usize>,
    /// The largest block that is taken.
    pub(crate) most_block_rows: usize,
    pub(crate) seed: u64,
    pub(crate) worker: u64,
    pub(crate) metric: Metric,
    pub(crate) reservoir_rows: usize,
    pub(crate) shrink_index: ShrinkIndex,
}

/// Largest dimension taken: keeps every size computation far from overflow.
pub(crate) const MAX_DIM: usize = 1 << 24;
/// Largest sketch.
pub(crate) const MAX_SKETCH_ROWS: usize = 1 << 14;
/// Largest block: the paper's for the largest dimension. A block gives nothing to the sketch before it is full.
const MAX_BLOCK_ROWS: usize = 4 * MAX_DIM;
/// Largest block of a saved state: larger ones could be chosen once.
const MAX_SAVED_BLOCK_ROWS: usize = 1 << 30;

impl Config {
    /// Rows of `dim` values, all else by default: FROSH, 256 sketch rows (enough for 128 bits; fewer
    /// where twice the dimension is less), every core.
    pub fn new(dim: usize) -> Self {
        Self {
            dim,
            method: Method::default(),
            sketch_rows: 2 * dim.clamp(1, 128),
            block_rows: None,
            most_block_rows: MAX_BLOCK_ROWS,
            seed: 0,
            worker: 0,
            metric: Metric::default(),
            reservoir_rows: reservoir::DEFAULT_ROWS,
            shrink_index: ShrinkIndex::default(),
        }
    }

    /// Which algorithm learns.
    pub fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// Rows l of the sketch: even, at least twice the bits. More rows make it more accurate.
    pub fn sketch_rows(mut self, rows: usize) -> Self {
        self.sketch_rows = rows;
        self
    }

    /// Rows m of a block that is compressed at once: a power of two, at least half the sketch rows. Every block then
    /// has this size, as in the paper.
    ///
    /// Without it the size balances the cost of the two stages, and the first blocks are smaller: a block has at most a
    /// sixteenth of the rows before it, so that streams of few rows lose little by it.
    pub fn block_rows(mut self, rows: usize) -> Self {
        self.block_rows = Some(rows);
        self
    }

    /// The block size of a state that was saved.
    pub(crate) fn saved_block_rows(mut self, rows: usize) -> Self {
        self.most_block_rows = MAX_SAVED_BLOCK_ROWS;
        self.block_rows(rows)
    }

    /// Seed of all randomness.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Number of this worker: different on every machine whose sketches will be merged.
    pub fn worker(mut self, worker: u64) -> Self {
        self.worker = worker;
        self
    }

    /// How rows are compared.
    pub fn metric(mut self, metric: Metric) -> Self {
        self.metric = metric;
        self
    }

    /// Rows to sample for the ITQ and refined rotations and for estimated distances: 4,096 by default, 0 for none, at
    /// most 32 MB of them.
    pub fn reservoir_rows(mut self, rows: usize) -> Self {
        self.reservoir_rows = rows;
        self
    }

    /// Which singular value a shrink takes off.
    pub fn shrink_index(mut self, index: ShrinkIndex) -> Self {
        self.shrink_index = index;
        self
    }

    /// The paper's block size: the power of two nearest to 4d on a logarithmic scale.
    pub fn paper_block_rows(dim: usize) -> usize {
        let target = 4.0 * dim.max(1) as f64;
        1 << (target.log2().round() as u32).min(30)
    }

    /// The block size that will be used, after the first rows: the one set, or the default.
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
        Ok(Self::paper_block_rows(self.dim).min(balanced).max(2 * p))
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
        Ok(())
    }
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
