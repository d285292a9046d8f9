//! File contents of a [`Sketcher`] and a [`Sketch`]. `docs/file-format.md` describes them.

use crate::error::Result;
use crate::sketch::Sketch;
use crate::sketch::config::{Config, MAX_SKETCH_ROWS, Method};
use crate::sketch::decay::Decay;
use crate::sketch::frequent_directions::{FrequentDirections, ShrinkIndex};
use crate::sketch::reservoir::{self, Reservoir};
use crate::sketch::sketcher::Sketcher;
use crate::storage::container::{Reader, Saved, Writer, contradiction, saved};
use crate::storage::formats::{read_dim, read_rows};

saved!(Sketcher);
saved!(Sketch);

fn write_directions(file: &mut Writer<'_>, dim: usize, fd: &FrequentDirections) {
    file.fact("sketch_rows", fd.capacity());
    file.fact("shrink_index", fd.index());
    file.fact("removed", fd.removed());
    file.fact("inserted", fd.inserted());
    file.f32s("sketch", &[fd.filled(), dim], fd.live());
    file.f64s("lengths", &[fd.lengths().len()], fd.lengths());
}

fn read_directions(file: &Reader<'_>, dim: usize) -> Result<FrequentDirections> {
    let capacity: usize = file.fact("sketch_rows")?;
    let index = file.fact::<ShrinkIndex>("shrink_index")?;
    let mass: (f64, f64) = (file.fact("removed")?, file.fact("inserted")?);
    let rows = file.f32s("sketch", &[None, Some(dim)])?;
    let lengths = file.f64s("lengths", &[None])?;
    let filled = rows.len() / dim;
    let possible = (2..=MAX_SKETCH_ROWS).contains(&capacity) && capacity.is_multiple_of(2);
    if !possible || filled > capacity {
        return Err(contradiction(&format!("{filled} rows in a sketch of {capacity}")));
    }
    if lengths.len() > filled || lengths.iter().any(|x| *x < 0.0) {
        return Err(contradiction("the lengths do not fit the rows"));
    }
    if !(mass.0.is_finite() && mass.0 >= 0.0 && mass.1.is_finite() && mass.1 >= 0.0) {
        return Err(contradiction("the certificate is not a number"));
    }
    Ok(FrequentDirections::resume(dim, capacity, index, rows, lengths, mass))
}

fn write_reservoir(file: &mut Writer<'_>, dim: usize, reservoir: &Reservoir) {
    let (keys, data, scales) = reservoir.parts();
    file.fact("reservoir_rows", reservoir.capacity());
    file.u64s("reservoir_keys", &keys);
    file.f16s("reservoir", &[keys.len(), dim], &data);
    file.f32s("reservoir_scales", &[keys.len()], &scales);
    file.f32s("reservoir_origin", &[dim], &reservoir.origin);
}

fn read_reservoir(file: &Reader<'_>, dim: usize) -> Result<Reservoir> {
    let capacity: usize = file.fact("reservoir_rows")?;
    let keys = file.u64s("reservoir_keys")?;
    let data = file.f16s("reservoir", &[Some(keys.len()), Some(dim)])?;
    let scales = file.f32s("reservoir_scales", &[Some(keys.len())])?;
    let origin = file.f32s("reservoir_origin", &[Some(dim)])?;
    if capacity != reservoir::capped(capacity, dim) || keys.len() > capacity || !keys.is_sorted() {
        return Err(contradiction("the reservoir's keys do not fit its size or order"));
    }
    Ok(Reservoir::from_parts(capacity, origin, keys, data, scales))
}

/// Whether sketches of this method count as compressed if the file has no entry for it.
fn compresses(method: Method) -> bool {
    matches!(method, Method::Frosh | Method::FroshSparse)
}

impl Saved for Sketch {
    const FORMAT: &'static str = "frosh-sketch";

    fn write<'a>(&'a self, file: &mut Writer<'a>) {
        file.fact("dim", self.dim);
        file.fact("method", self.method);
        file.fact("metric", self.metric);
        file.fact("seed", self.seed);
        file.fact("block_rows", self.block_rows);
        file.fact("rows", self.rows);
        if self.left_out > 0 {
            file.fact("left_out", self.left_out);
        }
        if self.compressed != compresses(self.method) {
            file.fact("compressed", self.compressed);
        }
        Decay::write(self.decay, file);
        file.u64s("workers", &self.workers);
        file.f64s("mean", &[self.dim], &self.mean);
        write_directions(file, self.dim, &self.directions);
        write_reservoir(file, self.dim, &self.reservoir);
    }

    fn read(file: &Reader<'_>) -> Result<Self> {
        let dim = read_dim(file)?;
        let method: Method = file.fact("method")?;
        let rows = read_rows(file)?;
        Ok(Self {
            dim,
            method,
            decay: Decay::read(file, rows)?,
            metric: file.fact("metric")?,
            seed: file.fact("seed")?,
            block_rows: file.fact("block_rows")?,
            rows,
            left_out: file.optional("left_out").map_or(Ok(0), |_| file.fact("left_out"))?,
            compressed: match file.optional("compressed") {
                Some(_) => file.fact("compressed")?,
                None => compresses(method),
            },
            workers: file.u64s("workers")?,
            mean: file.f64s("mean", &[Some(dim)])?,
            directions: read_directions(file, dim)?,
            reservoir: read_reservoir(file, dim)?,
        })
    }
}

impl Saved for Sketcher {
    const FORMAT: &'static str = "frosh-sketcher";

    fn write<'a>(&'a self, file: &mut Writer<'a>) {
        let (config, dim) = (&self.config, self.config.dim);
        file.fact("dim", dim);
        file.fact("method", config.method);
        file.fact("metric", config.metric);
        file.fact("seed", config.seed);
        file.fact("worker", config.worker);
        if config.worker_from_rows {
            file.fact("worker_from_rows", true);
        }
        file.fact("config_sketch_rows", config.sketch_rows);
        file.fact("config_reservoir_rows", config.reservoir_rows);
        file.fact("block_rows", config.block_rows.unwrap_or(0));
        file.fact("rows", self.rows);
        Decay::write(self.centering.decay, file);
        if !self.note.is_empty() {
            file.fact("note", &self.note);
        }
        file.fact("rows_before_block", self.centering.before);
        file.fact("rows_in_block", self.centering.rows);
        file.f64s("mean", &[dim], &self.centering.mean);
        file.f64s("sum", &[dim], &self.centering.sum);
        file.f32s("reference", &[dim], &self.centering.reference);
        file.f32s("waiting", &[self.pending, dim], &self.buffer[..self.pending * dim]);
        if let Some(block) = &self.block {
            file.fact("trial", block.trial);
            if block.grows {
                file.fact("growing_blocks", true);
            }
            file.fact("sub_blocks", block.done);
            let acc = if block.done > 0 { &block.acc[..] } else { &[] };
            file.f32s("accumulator", &[acc.len() / dim, dim], acc);
            file.i64s("tally", &block.tally);
        }
        write_directions(file, dim, &self.directions);
        write_reservoir(file, dim, &self.reservoir);
    }

    fn read(file: &Reader<'_>) -> Result<Self> {
        let dim = read_dim(file)?;
        let mut config = Config::new(dim)
            .method(file.fact("method")?)
            .metric(file.fact("metric")?)
            .seed(file.fact("seed")?)
            .worker(file.fact("worker")?)
            .sketch_rows(file.fact("config_sketch_rows")?)
            .reservoir_rows(file.fact("config_reservoir_rows")?)
            .saved_block_rows(file.fact("block_rows")?);
        if file.optional("worker_from_rows").is_some() {
            config = config.worker_from_rows();
        }
        let decay = Decay::read(file, file.fact("rows_before_block")?)?;
        if let Some(decay) = decay {
            config = config.half_life(decay.half_life).clock(decay.clock);
        }
        let directions = read_directions(file, dim)?;
        config = config.shrink_index(directions.index());
        let mut sketcher = Sketcher::new(config)?;
        let reservoir = read_reservoir(file, dim)?;
        if directions.capacity() != sketcher.directions.capacity()
            || reservoir.capacity() != sketcher.reservoir.capacity()
        {
            return Err(contradiction("sizes of sketch or reservoir do not fit the settings"));
        }
        sketcher.directions = directions;
        sketcher.reservoir = reservoir;
        sketcher.rows = read_rows(file)?;
        sketcher.note = file.optional("note").unwrap_or_default().to_owned();
        sketcher.centering.decay = decay;
        sketcher.centering.before = file.fact("rows_before_block")?;
        sketcher.centering.rows = file.fact("rows_in_block")?;
        sketcher.centering.mean = file.f64s("mean", &[Some(dim)])?;
        sketcher.centering.sum = file.f64s("sum", &[Some(dim)])?;
        sketcher.centering.reference = file.f32s("reference", &[Some(dim)])?;
        sketcher.buffer = file.f32s("waiting", &[None, Some(dim)])?;
        sketcher.pending = sketcher.buffer.len() / dim;
        let room = sketcher.pending_capacity();
        let mut absorbed = 0;
        if let Some(block) = &mut sketcher.block {
            block.trial = file.fact("trial")?;
            block.done = file.fact("sub_blocks")?;
            // Absent in states with a fixed block size, and in states of releases before blocks grew.
            block.grows = file.optional("growing_blocks").is_some();
            block.begin(sketcher.centering.before);
            let rows = if block.done > 0 { block.q } else { 0 };
            block.acc = file.f32s("accumulator", &[Some(rows), Some(dim)])?;
            block.tally = file.i64s("tally", block.q)?;
            if block.done >= (block.m / block.p).max(1)
                || (block.uncompressed && block.done > 0)
                || block.trial > u64::MAX >> 32
            {
                return Err(contradiction("more sub-blocks than a block has"));
            }
            absorbed = (block.done * block.p) as u64;
            let most = block.m as i64;
            if block.tally.iter().any(|t| !(-most..=most).contains(t)) {
                return Err(contradiction("the tally is larger than the block"));
            }
        }
        let counted = [sketcher.centering.before, absorbed, sketcher.pending as u64];
        let total = counted.iter().try_fold(0u64, |sum, n| sum.checked_add(*n));
        if sketcher.pending > room
            || sketcher.centering.rows != absorbed
            || total != Some(sketcher.rows)
        {
            return Err(contradiction("the counts of rows do not add up"));
        }
        Ok(sketcher)
    }
}
