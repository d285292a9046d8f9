//! What each kind of file holds, part by part. The container is [`file`](crate::file).
//!
//! | format | content |
//! |---|---|
//! | `frosh-sketcher` | a learner in the middle of its stream: goes on bit for bit |
//! | `frosh-sketch` | a finished sketch |
//! | `frosh-hasher` | a model: `mean` (F64, dim) and `projection` (F32, dim x bits) |
//! | `frosh-codes` | `codes` (U8, rows x bytes), the id of their hasher, and maybe `factors` (U8, rows x 1; x 2 by earlier models) |

use crate::codes::{Codes, HasherId};
use crate::config::{Config, MAX_DIM, MAX_SKETCH_ROWS, Method};
use crate::error::Result;
use crate::factors::{self, Beside, LogScale, Scales};
use crate::file::{Reader, Saved, Writer, contradiction, saved};
use crate::frequent_directions::{FrequentDirections, ShrinkIndex};
use crate::hasher::{Facts, Hasher};
use crate::reservoir::{self, Reservoir};
use crate::sketch::{MAX_ROWS, Sketch};
use crate::sketcher::Sketcher;

saved!(Sketcher);
saved!(Sketch);
saved!(Hasher);
saved!(Codes);

/// A file of any of the four kinds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AnyFile {
    /// A learner in the middle of its stream.
    Sketcher(Box<Sketcher>),
    /// What was learned.
    Sketch(Box<Sketch>),
    /// A model.
    Hasher(Box<Hasher>),
    /// Packed codes.
    Codes(Codes),
}

impl AnyFile {
    /// Reads a file of whichever kind it is; `None` if it is none of frosh's.
    pub fn load(path: impl AsRef<std::path::Path>) -> Result<Option<Self>> {
        let path = path.as_ref();
        Ok(match crate::file::format_of(path)?.as_deref() {
            Some(Sketcher::FORMAT) => Some(Self::Sketcher(Box::new(Sketcher::load(path)?))),
            Some(Sketch::FORMAT) => Some(Self::Sketch(Box::new(Sketch::load(path)?))),
            Some(Hasher::FORMAT) => Some(Self::Hasher(Box::new(Hasher::load(path)?))),
            Some(Codes::FORMAT) => Some(Self::Codes(Codes::load(path)?)),
            _ => None,
        })
    }
}

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

/// Whether sketches of this method count as compressed where their file does not say it.
fn compresses(method: Method) -> bool {
    matches!(method, Method::Frosh | Method::FroshSparse)
}

fn read_dim(file: &Reader<'_>) -> Result<usize> {
    let dim: usize = file.fact("dim")?;
    if dim == 0 || dim > MAX_DIM {
        return Err(contradiction(&format!("rows of {dim} dimensions")));
    }
    // A tensor of this length is in every file with rows: no size is believed that is not there.
    file.f64s("mean", &[Some(dim)])?;
    Ok(dim)
}

/// Rows seen; more than [`MAX_ROWS`] are rejected so that sums cannot overflow.
fn read_rows(file: &Reader<'_>) -> Result<u64> {
    let rows: u64 = file.fact("rows")?;
    if rows > MAX_ROWS { Err(contradiction(&format!("{rows} rows"))) } else { Ok(rows) }
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
        if self.compressed != compresses(self.method) {
            file.fact("compressed", self.compressed);
        }
        file.u64s("workers", &self.workers);
        file.f64s("mean", &[self.dim], &self.mean);
        write_directions(file, self.dim, &self.directions);
        write_reservoir(file, self.dim, &self.reservoir);
    }

    fn read(file: &Reader<'_>) -> Result<Self> {
        let dim = read_dim(file)?;
        let method: Method = file.fact("method")?;
        Ok(Self {
            dim,
            method,
            metric: file.fact("metric")?,
            seed: file.fact("seed")?,
            block_rows: file.fact("block_rows")?,
            rows: read_rows(file)?,
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
        file.fact("config_sketch_rows", config.sketch_rows);
        file.fact("config_reservoir_rows", config.reservoir_rows);
        file.fact("block_rows", config.block_rows.unwrap_or(0));
        file.fact("rows", self.rows);
        if !self.note.is_empty() {
            file.fact("note", &self.note);
        }
        file.fact("rows_before_block", self.centering.before);
        file.fact("rows_in_block", self.centering.rows);
        file.f64s("mean", &[dim], &self.centering.mean);
        file.f64s("sum", &[dim], &self.centering.sum);
        file.f32s("reference", &[dim], &self.centering.reference);
        file.f32s("waiting", &[self.waiting, dim], &self.buffer[..self.waiting * dim]);
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
        sketcher.centering.before = file.fact("rows_before_block")?;
        sketcher.centering.rows = file.fact("rows_in_block")?;
        sketcher.centering.mean = file.f64s("mean", &[Some(dim)])?;
        sketcher.centering.sum = file.f64s("sum", &[Some(dim)])?;
        sketcher.centering.reference = file.f32s("reference", &[Some(dim)])?;
        sketcher.buffer = file.f32s("waiting", &[None, Some(dim)])?;
        sketcher.waiting = sketcher.buffer.len() / dim;
        let room = sketcher.waiting_room();
        let mut absorbed = 0;
        if let Some(block) = &mut sketcher.block {
            block.trial = file.fact("trial")?;
            block.done = file.fact("sub_blocks")?;
            // Streams of before blocks grew, and those of a fixed block size, do not say so.
            block.grows = file.optional("growing_blocks").is_some();
            block.begin(sketcher.centering.before);
            let rows = if block.done > 0 { block.q } else { 0 };
            block.acc = file.f32s("accumulator", &[Some(rows), Some(dim)])?;
            block.tally = file.i64s("tally", block.q)?;
            if block.done >= (block.m / block.p).max(1)
                || (block.plain && block.done > 0)
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
        let counted = [sketcher.centering.before, absorbed, sketcher.waiting as u64];
        let total = counted.iter().try_fold(0u64, |sum, n| sum.checked_add(*n));
        if sketcher.waiting > room
            || sketcher.centering.rows != absorbed
            || total != Some(sketcher.rows)
        {
            return Err(contradiction("the counts of rows do not add up"));
        }
        Ok(sketcher)
    }
}

impl Saved for Hasher {
    const FORMAT: &'static str = "frosh-hasher";

    fn write<'a>(&'a self, file: &mut Writer<'a>) {
        let facts = &self.facts;
        file.fact("dim", facts.dim);
        file.fact("bits", facts.bits);
        file.fact("metric", facts.metric);
        file.fact("method", facts.method);
        file.fact("rotation", facts.rotation);
        file.fact("seed", facts.seed);
        file.fact("rows", facts.rows);
        file.fact("rank", facts.rank);
        file.fact("exact_centre", facts.exact_centre);
        file.fact("id", self.id());
        if let Some(scales) = self.scales() {
            let (norm, other, low, high) = match scales {
                Scales::Joint { norm, ratio, .. } => (norm, ratio, "ratio_low", "ratio_high"),
                Scales::Apart { norm, gain } => (norm, gain, "gain_low", "gain_high"),
            };
            file.fact("norm_low", norm.low);
            file.fact("norm_high", norm.high);
            file.fact(low, other.low);
            file.fact(high, other.high);
            if scales.beyond() > 0.0 {
                file.fact("beyond", scales.beyond());
            }
        }
        file.f64s("mean", &[facts.dim], &self.mean);
        file.f32s("projection", &[facts.dim, facts.bits], &self.projection());
    }

    fn read(file: &Reader<'_>) -> Result<Self> {
        let (dim, bits) = (read_dim(file)?, file.fact::<usize>("bits")?);
        if bits == 0 {
            return Err(contradiction("codes of 0 bits"));
        }
        let facts = Facts {
            dim,
            bits,
            metric: file.fact("metric")?,
            method: file.fact("method")?,
            rotation: file.fact("rotation")?,
            seed: file.fact("seed")?,
            rows: read_rows(file)?,
            rank: file.fact("rank")?,
            exact_centre: file.fact("exact_centre")?,
        };
        let mean = file.f64s("mean", &[Some(dim)])?;
        let w = file.f32s("projection", &[Some(dim), Some(bits)])?;
        let directions = (0..bits).flat_map(|k| w.iter().skip(k).step_by(bits)).copied().collect();
        // Models of before there were factors have no scales.
        let scales = match file.optional("norm_low") {
            None => None,
            Some(_) => {
                let range = |low, high| -> Result<LogScale> {
                    Ok(LogScale { low: file.fact(low)?, high: file.fact(high)? })
                };
                let norm = range("norm_low", "norm_high")?;
                // Earlier models keep a byte for each factor.
                let scales = match file.optional("gain_low") {
                    None => Scales::Joint {
                        norm,
                        ratio: range("ratio_low", "ratio_high")?,
                        beyond: match file.optional("beyond") {
                            Some(_) => file.fact("beyond")?,
                            None => 0.0,
                        },
                    },
                    Some(_) => Scales::Apart { norm, gain: range("gain_low", "gain_high")? },
                };
                Some(scales.checked()?)
            }
        };
        let hasher = Hasher::assemble(facts, mean, directions, scales);
        if file.fact::<String>("id")? != hasher.id().to_string() {
            return Err(contradiction("the id does not fit the content"));
        }
        Ok(hasher)
    }
}

impl Saved for Codes {
    const FORMAT: &'static str = "frosh-codes";

    fn write<'a>(&'a self, file: &mut Writer<'a>) {
        file.fact("bits", self.bits);
        file.fact("hasher", self.hasher);
        file.u8s("codes", &[self.len(), self.bytes_per_row()], &self.data);
        if let Some(factors) = &self.factors {
            file.u8s("factors", &[self.len(), factors.bytes], &factors.data);
        }
    }

    fn read(file: &Reader<'_>) -> Result<Self> {
        let bits: usize = file.fact("bits")?;
        if bits == 0 || bits > MAX_DIM {
            return Err(contradiction(&format!("codes of {bits} bits")));
        }
        let id = file.fact_by("hasher", |text| u128::from_str_radix(text, 16).ok())?;
        let data = file.u8s("codes", &[None, Some(bits.div_ceil(8))])?;
        let mut codes = Codes::new(bits, HasherId(id), data);
        if file.has("factors") {
            // One byte, or two of an earlier model.
            let bytes = file.width("factors").map_or(1, |w| w.clamp(1, factors::MOST_BYTES));
            let data = file.u8s("factors", &[Some(codes.len()), Some(bytes)])?.into();
            codes.factors = Some(Beside { bytes, data });
        }
        // Distances count whole bytes, so bits past the end must be 0.
        let spare = codes.bytes_per_row() * 8 - bits;
        if spare > 0
            && (0..codes.len()).any(|i| codes.row(i).last().is_some_and(|b| b >> (8 - spare) != 0))
        {
            return Err(contradiction("a code has bits past its end"));
        }
        Ok(codes)
    }
}
