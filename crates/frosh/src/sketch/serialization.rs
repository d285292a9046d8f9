//! File contents of a [`Sketcher`] and a [`Sketch`]. `docs/file-format.md` describes them.

use crate::error::Result;
use crate::sketch::config::{Config, MAX_SKETCH_ROWS, Method};
use crate::sketch::decay::Decay;
use crate::sketch::frequent_directions::{FrequentDirections, ShrinkIndex};
use crate::sketch::reservoir::Reservoir;
use crate::sketch::rounding::{Precision, Rounding};
use crate::sketch::run::Run;
use crate::sketch::sketcher::Sketcher;
use crate::sketch::{MAX_ROWS, Sketch};
use crate::storage::container::{Reader, Saved, Writer, contradiction, saved};
use crate::storage::formats::{read_dim, read_rows};
use half::slice::HalfBitsSliceExt;
use half::vec::HalfFloatVecExt;

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
    let rounding = reservoir.rounding();
    file.fact("reservoir_rows", reservoir.capacity());
    file.u64s("reservoir_keys", &keys);
    match rounding.precision {
        Precision::Half => file.f16s("reservoir", &[keys.len(), dim], data.reinterpret_cast()),
        Precision::Byte => {
            file.require_version(BYTES_VERSION);
            file.fact("reservoir_type", "i8");
            let (mut values, mut shifts) = (Vec::new(), Vec::new());
            for row in data.chunks_exact(rounding.words()) {
                let row: &[u8] = bytemuck::cast_slice(row);
                values.extend_from_slice(&row[..dim]);
                shifts.extend_from_slice(&row[dim..][..rounding.shifts()]);
            }
            file.i8s("reservoir", &[keys.len(), dim], bytemuck::cast_slice(&values));
            file.owned_bytes("reservoir_shifts", shifts);
        }
    }
    file.f32s("reservoir_scales", &[keys.len()], &scales);
    file.f32s("reservoir_origin", &[dim], &reservoir.origin);
}

fn read_reservoir(file: &Reader<'_>, dim: usize) -> Result<Reservoir> {
    let capacity: usize = file.fact("reservoir_rows")?;
    let keys = file.u64s("reservoir_keys")?;
    let precision = match file.optional("reservoir_type") {
        None => Precision::Half,
        Some("i8") => Precision::Byte,
        Some(other) => return Err(contradiction(&format!("a sample of type {other:?}"))),
    };
    let rounding = Rounding { dim, precision };
    let shape = [Some(keys.len()), Some(dim)];
    let data = match precision {
        Precision::Half => file.f16s("reservoir", &shape)?.reinterpret_into(),
        Precision::Byte => {
            let values = file.i8s("reservoir", &shape)?;
            let shifts = file.u8s("reservoir_shifts", &[Some(keys.len() * rounding.shifts())])?;
            let mut data = vec![0u16; keys.len() * rounding.words()];
            let from = values.chunks_exact(dim).zip(shifts.chunks_exact(rounding.shifts()));
            for (row, (values, shifts)) in data.chunks_exact_mut(rounding.words()).zip(from) {
                let row: &mut [u8] = bytemuck::cast_slice_mut(row);
                row[..dim].copy_from_slice(bytemuck::cast_slice(values));
                row[dim..][..shifts.len()].copy_from_slice(shifts);
            }
            data
        }
    };
    let scales = file.f32s("reservoir_scales", &[Some(keys.len())])?;
    let origin = file.f32s("reservoir_origin", &[Some(dim)])?;
    if capacity != rounding.capacity(capacity) || keys.len() > capacity || !keys.is_sorted() {
        return Err(contradiction("the reservoir's keys do not fit its size or order"));
    }
    Ok(Reservoir::from_parts(rounding, capacity, origin, keys, data, scales))
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

/// The version of samples in bytes.
const BYTES_VERSION: u32 = 4;
/// The version of states with complete runs. A program that does not know runs would take them for damaged.
const RUNS_VERSION: u32 = 3;

impl Saved for Sketcher {
    const FORMAT: &'static str = "frosh-sketcher";

    fn write<'a>(&'a self, file: &mut Writer<'a>) {
        let Self { run, parts, reservoir, note } = self;
        let (config, dim) = (&run.config, run.config.dim);
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
        if self.run_rows() > 0 {
            file.fact("run_rows", self.run_rows());
        }
        file.fact("rows", self.rows());
        let decay = run.centering.decay;
        Decay::write(decay.map(|decay| Decay { clock: config.clock, ..decay }), file);
        if !note.is_empty() {
            file.fact("note", note);
        }
        file.fact("rows_before_block", run.centering.before);
        file.fact("rows_in_block", run.centering.rows);
        file.f64s("mean", &[dim], &run.centering.mean);
        file.f64s("sum", &[dim], &run.centering.sum);
        file.f32s("reference", &[dim], &run.centering.reference);
        file.f32s("waiting", &[run.pending, dim], &run.buffer[..run.pending * dim]);
        if let Some(block) = &run.block {
            file.fact("trial", block.trial);
            if block.grows {
                file.fact("growing_blocks", true);
            }
            file.fact("sub_blocks", block.done);
            let acc = if block.done > 0 { &block.acc[..] } else { &[] };
            file.f32s("accumulator", &[acc.len() / dim, dim], acc);
            file.i64s("tally", &block.tally);
        }
        write_directions(file, dim, &run.directions);
        write_reservoir(file, dim, reservoir);
        if run.number > 0 {
            file.require_version(RUNS_VERSION);
            let parts: Vec<Vec<u8>> = parts.iter().map(Sketch::to_bytes).collect();
            let lengths: Vec<u64> = parts.iter().map(|part| part.len() as u64).collect();
            file.u64s("part_bytes", &lengths);
            file.owned_bytes("parts", parts.concat());
        }
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
            .saved_block_rows(file.fact("block_rows")?)
            // States of releases before there were runs go on as one run.
            .run_rows(file.optional("run_rows").map_or(Ok(0), |_| file.fact("run_rows"))?);
        if file.optional("worker_from_rows").is_some() {
            config = config.worker_from_rows();
        }
        let decay = Decay::read(file, file.fact("rows_before_block")?)?;
        if let Some(decay) = decay {
            config = config.half_life(decay.half_life).clock(decay.clock);
        }
        let directions = read_directions(file, dim)?;
        config = config.shrink_index(directions.index());
        let config_rows = config.reservoir_rows;
        let mut sketcher = Sketcher::new(config)?;
        let reservoir = read_reservoir(file, dim)?;
        if directions.capacity() != sketcher.run.directions.capacity()
            // Of the precision in the file: samples were in half precision before there were bytes.
            || reservoir.capacity() != reservoir.rounding().capacity(config_rows)
        {
            return Err(contradiction("sizes of sketch or reservoir do not fit the settings"));
        }
        sketcher.reservoir = reservoir;
        sketcher.note = file.optional("note").unwrap_or_default().to_owned();
        let rows = read_rows(file)?;
        sketcher.run.restart(rows / sketcher.run.length());
        sketcher.parts = read_parts(file, &sketcher)?;
        read_run(file, rows, directions, decay, &mut sketcher.run)?;
        Ok(sketcher)
    }
}

/// The sketches of the complete runs of this learner.
fn read_parts(file: &Reader<'_>, sketcher: &Sketcher) -> Result<Vec<Sketch>> {
    let (run, config) = (&sketcher.run, &sketcher.run.config);
    if run.number == 0 {
        return Ok(Vec::new());
    }
    let lengths = file.u64s("part_bytes")?;
    let bytes = file.u8s("parts", &[None])?;
    let mut rest = &bytes[..];
    let mut parts = Vec::new();
    let levels = (0..u64::BITS).rev().filter(|level| run.number >> level & 1 == 1);
    let mut end = 0;
    for (level, length) in levels.zip(&lengths) {
        let length = usize::try_from(*length).ok().filter(|length| *length <= rest.len());
        let Some(length) = length else {
            return Err(contradiction("a sketch of complete runs is cut short"));
        };
        let (part, later) = rest.split_at(length);
        rest = later;
        let part = Sketch::from_bytes(part)?;
        end += run.length() << level;
        let clock = config.half_life.map(|_| config.clock.saturating_add(end));
        let fits = part.dim == config.dim
            && part.method == config.method
            && part.metric == config.metric
            && part.directions.capacity() == run.directions.capacity()
            && part.directions.index() == run.directions.index()
            && part.rows == run.length() << level
            && part.half_life() == config.half_life
            && part.decay.map(|decay| decay.clock) == clock
            && part.reservoir.capacity() == 0;
        if !fits {
            return Err(contradiction("a sketch of complete runs does not fit the settings"));
        }
        parts.push(part);
    }
    if !rest.is_empty()
        || parts.len() != lengths.len()
        || run.number.count_ones() as usize != parts.len()
    {
        return Err(contradiction("the number of sketches does not fit that of complete runs"));
    }
    Ok(parts)
}

/// Reads the run in progress. `rows` are those of the whole stream.
fn read_run(
    file: &Reader<'_>,
    rows: u64,
    directions: FrequentDirections,
    decay: Option<Decay>,
    run: &mut Run,
) -> Result<()> {
    let dim = run.config.dim;
    run.directions = directions;
    run.rows = rows - run.start();
    if let (Some(to), Some(decay)) = (&mut run.centering.decay, decay) {
        to.weight = decay.weight;
    }
    run.centering.before = file.fact("rows_before_block")?;
    run.centering.rows = file.fact("rows_in_block")?;
    run.centering.mean = file.f64s("mean", &[Some(dim)])?;
    run.centering.sum = file.f64s("sum", &[Some(dim)])?;
    run.centering.reference = file.f32s("reference", &[Some(dim)])?;
    run.buffer = file.f32s("waiting", &[None, Some(dim)])?;
    run.pending = run.buffer.len() / dim;
    let room = run.pending_capacity();
    let mut absorbed = 0;
    if let Some(block) = &mut run.block {
        block.trial = file.fact("trial")?;
        block.done = file.fact("sub_blocks")?;
        // Absent in states with a fixed block size, and in states of releases before blocks grew.
        block.grows = file.optional("growing_blocks").is_some();
        block.begin(run.centering.before.min(MAX_ROWS));
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
    let counted = [run.centering.before, absorbed, run.pending as u64];
    let total = counted.iter().try_fold(0u64, |sum, n| sum.checked_add(*n));
    if run.pending > room || run.centering.rows != absorbed || total != Some(run.rows) {
        return Err(contradiction("the counts of rows do not add up"));
    }
    Ok(())
}
