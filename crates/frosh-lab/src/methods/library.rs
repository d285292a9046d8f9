//! LSH, OSH, FROSH and DFROSH: the library, with the paper's settings.
//!
//! **Section 5.2**: l = 2r; m = 4d, to a power of two; DFROSH on five machines with equal shares, whose time is that
//! of the slowest worker and of the merge.
//!
//! **Where we differ.** Where the rows of a learner are fewer than eight of the paper's blocks, m is the library's
//! default, or as much less as it takes for eight blocks: on FLICKR-25600 the paper's m = 102,400 is more than all rows.
//! OSH, FROSH and DFROSH rotate their directions by ITQ, learned on a sample of rows. The library's default, `refined`,
//! also changes the directions by the sample, which would hide what each sketch has found. Algorithm 1 is printed
//! without a rotation; run literally (`--no-rotation`), all three fall behind LSH.

use super::{Encoder, Learner, Method, Task};
use crate::clock::timed;
use crate::error::Result;
use frosh::{Config, Pool, Rotation, Rows, Sketch, Sketcher};

/// Machines of DFROSH.
const WORKERS: u64 = 5;
/// Sampled rows for ITQ, and how many it needs for each bit.
const ITQ_ROWS: usize = 4096;
const ITQ_ROWS_PER_BIT: usize = 8;
/// Blocks of the paper's height that rows must fill.
const BLOCKS: u64 = 8;

/// The configuration for a stream of `rows` rows.
fn config(method: frosh::Method, dim: usize, rows: u64, l: usize) -> Result<Config> {
    // One run, as in the paper. DFROSH has workers instead.
    let config = Config::new(dim).method(method).sketch_rows(l).run_rows(0);
    let least = l.next_power_of_two();
    let paper = Config::paper_block_rows(dim).max(least);
    if rows >= BLOCKS * paper as u64 {
        return Ok(config.block_rows(paper));
    }
    let fits = 1 << (rows / BLOCKS).max(1).ilog2();
    let default = config.resolved_block_rows()?;
    Ok(config.block_rows(default.min(fits).max(least)))
}

/// A sketcher for codes of `bits` bits by one of the methods of the library.
pub(crate) fn sketcher(task: &Task, method: Method, bits: usize, worker: u64) -> Result<Sketcher> {
    let (kind, rows) = match method {
        Method::Lsh => (frosh::Method::Lsh, task.rows),
        Method::Osh => (frosh::Method::Osh, task.rows),
        Method::Dfrosh => (frosh::Method::Frosh, task.rows / WORKERS),
        _ => (frosh::Method::Frosh, task.rows),
    };
    let mut config = config(kind, task.dim, rows, 2 * bits)?.seed(task.seed).worker(worker);
    if !task.learned_rotation || task.no_rotation || method == Method::Lsh {
        config = config.reservoir_rows(0);
    } else {
        config = config.reservoir_rows(ITQ_ROWS);
    }
    Ok(Sketcher::new(config)?)
}

/// How directions are rotated. Not refined by the sample: the paper's methods are compared by the directions that each
/// sketch has found.
pub(crate) fn rotation(task: &Task, sketch: &Sketch, bits: usize) -> Rotation {
    if task.no_rotation || sketch.method() == frosh::Method::Lsh {
        Rotation::None
    } else if sketch.reservoir_rows() >= ITQ_ROWS_PER_BIT * bits {
        Rotation::Itq
    } else {
        Rotation::Random
    }
}

/// LSH: one mean serves all code lengths.
pub(super) struct Lsh {
    bits: Vec<usize>,
    sketcher: Sketcher,
}

impl Lsh {
    pub(super) fn new(task: &Task, bits: Vec<usize>) -> Result<Self> {
        let sketcher = Pool::ONE.install(|| sketcher(task, Method::Lsh, 1, 0))?;
        Ok(Self { bits, sketcher })
    }
}

impl Learner for Lsh {
    fn gives(&self) -> Vec<(Method, usize)> {
        self.bits.iter().map(|b| (Method::Lsh, *b)).collect()
    }

    fn push(&mut self, rows: &[f32]) -> Result<()> {
        Ok(self.sketcher.push(Rows::new(rows, self.sketcher.dim())?)?)
    }

    fn fit(&mut self, _: Method, bits: usize) -> Result<Encoder> {
        let sketch = self.sketcher.sketch();
        let hasher = Pool::ONE.install(|| sketch.hasher_with(bits, Rotation::None))?;
        Ok(Encoder::Frosh(Box::new(hasher)))
    }
}

/// OSH and FROSH, or, with several workers, DFROSH.
pub(super) struct Sketching {
    task: Task,
    method: Method,
    bits: usize,
    workers: Vec<Sketcher>,
    /// What the workers learned, once the pass is over.
    sketches: Vec<Sketch>,
    /// Seconds of each worker.
    seconds: Vec<f64>,
    seen: u64,
    sizes: (Option<u64>, Option<u64>),
}

impl Sketching {
    pub(super) fn new(task: &Task, method: Method, bits: usize) -> Result<Self> {
        let count = if method == Method::Dfrosh { WORKERS } else { 1 };
        let worker = |w| Pool::ONE.install(|| sketcher(task, method, bits, w));
        let workers: Result<Vec<_>> = (0..count).map(worker).collect();
        let (workers, seconds) = (workers?, vec![0.0; count as usize]);
        let sizes = sizes(method, &workers[0]);
        Ok(Self {
            task: task.clone(),
            method,
            bits,
            workers,
            sketches: Vec::new(),
            seconds,
            seen: 0,
            sizes,
        })
    }
}

#[cfg(test)]
impl Sketching {
    /// Rows of each worker.
    pub(super) fn shares(&self) -> Vec<u64> {
        self.workers.iter().map(Sketcher::rows).collect()
    }
}

impl Learner for Sketching {
    fn gives(&self) -> Vec<(Method, usize)> {
        vec![(self.method, self.bits)]
    }

    fn push(&mut self, mut rows: &[f32]) -> Result<()> {
        let (dim, count) = (self.task.dim, self.workers.len() as u64);
        while !rows.is_empty() {
            // Equal shares, one after the other in the stream.
            let worker = (self.seen * count / self.task.rows.max(1)).min(count - 1);
            let end = ((worker + 1) * self.task.rows).div_ceil(count);
            let here = match worker + 1 == count {
                true => rows.len() / dim,
                false => (rows.len() / dim).min((end - self.seen) as usize),
            };
            let (now, rest) = rows.split_at(here * dim);
            let batch = Rows::new(now, dim)?;
            let (seconds, pushed) = timed(|| self.workers[worker as usize].push(batch));
            pushed?;
            self.seconds[worker as usize] += seconds;
            self.seen += here as u64;
            rows = rest;
        }
        Ok(())
    }

    fn end_pass(&mut self) -> Result<()> {
        for (worker, own) in self.workers.drain(..).zip(&mut self.seconds) {
            let (seconds, sketch) = timed(|| worker.finish());
            *own += seconds;
            self.sketches.push(sketch);
        }
        Ok(())
    }

    fn fit(&mut self, _: Method, bits: usize) -> Result<Encoder> {
        let merged;
        let sketch = match self.sketches.as_slice() {
            [one] => one,
            several => {
                merged = Pool::ONE.install(|| Sketch::merge(several))?;
                &merged
            }
        };
        let rotation = rotation(&self.task, sketch, bits);
        let pool = if self.task.timed { Pool::ONE } else { Pool::current() };
        let hasher = pool.install(|| sketch.hasher_with(bits, rotation))?;
        Ok(Encoder::Frosh(Box::new(hasher)))
    }

    fn pass_seconds(&self, measured: f64) -> f64 {
        match self.seconds.len() {
            1 => measured,
            _ => self.seconds.iter().copied().fold(0.0, f64::max),
        }
    }

    fn sizes(&self) -> (Option<u64>, Option<u64>) {
        self.sizes
    }
}

/// Sketch rows and block rows, as far as the method has them.
pub(crate) fn sizes(method: Method, sketcher: &Sketcher) -> (Option<u64>, Option<u64>) {
    let (l, m) = (sketcher.sketch_rows() as u64, sketcher.block_rows() as u64);
    match method {
        Method::Lsh => (None, None),
        Method::Osh => (Some(l), None),
        _ => (Some(l), Some(m)),
    }
}
