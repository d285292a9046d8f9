//! `frosh encode`: vectors to packed codes.

use crate::args::{Common, Encoding, Reading, check_distinct};
use crate::choice;
use crate::kinds;
use crate::output::{complain, count, print, print_json, seconds, size};
use crate::pieces::{self, Give};
use crate::progress::Progress;
use crate::skipping::{LeftOut, Skipping};
use anyhow::{Result, bail};
use clap::Args;
use frosh::{Codes, CodesWriter, Element, Model, Rows};
use frosh_io::{Batch, Format, Kind, Output, RangeReader, RowConsumer, Target, Values, Vectors};
use serde_json::json;
use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Instant;

/// Turn vectors into packed codes.
#[derive(Args)]
#[command(after_help = "Examples:
  frosh encode model.frosh vectors.npy -o codes.frosh  knows its model
  frosh encode model.frosh vectors.npy -o codes.npy    plain uint8 array
  frosh encode model.frosh shard-*/ -o - > codes.bin    bare bytes

Bits are packed as FAISS's binary indexes and numpy.packbits(bitorder='little') have them.

Code i is that of row i. With --skip-bad, a row that cannot be used gets a code of zero bits, so that the others
keep their numbers; --skipped FILE lists such rows. A search may find them; an index (`frosh index build`)
leaves them out.")]
pub(crate) struct Encode {
    /// The model file
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// Files, folders or patterns of vectors; - is standard input
    #[arg(required = true, value_name = "DATA")]
    data: Vec<OsString>,
    /// The codes to write: NAME.npy for a plain array, - for bare bytes, else a file that knows its model
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Keep factors beside each code, for `search --rank estimated`; by default if the model chose that ranking
    #[arg(long, conflicts_with = "no_factors")]
    factors: bool,
    /// Keep no factors, whatever the model chose
    #[arg(long)]
    no_factors: bool,
    #[command(flatten)]
    encoding: Encoding,
    #[command(flatten)]
    reading: Reading,
    #[command(flatten)]
    skipping: Skipping,
}

/// Where codes go.
enum Sink {
    Codes(Box<CodesWriter>),
    Plain(Output),
}

impl Sink {
    fn push(&mut self, codes: &Codes) -> Result<()> {
        match self {
            Sink::Codes(file) => file.push(codes)?,
            Sink::Plain(file) => {
                let bytes = codes.bytes_per_row();
                file.write_values(&Values::U8(codes.as_bytes().to_vec()), bytes)?;
            }
        }
        Ok(())
    }

    /// Adds a code so many times.
    fn push_blank(&mut self, blank: &Codes, count: u64) -> Result<()> {
        (0..count).try_for_each(|_| self.push(blank))
    }
}

impl Encode {
    pub(crate) fn run(&self, common: &Common) -> Result<()> {
        let start = Instant::now();
        let model = kinds::model(&self.model, "frosh encode MODEL DATA -o FILE")?;
        let model = self.encoding.set(model);
        let vectors = kinds::vectors(&self.data, &self.reading.options(self.skipping.skip_bad))?;
        check_dim(&model, &self.model, &vectors)?;
        let inputs = vectors.files().iter().map(|file| &*file.path).chain([&*self.model]);
        check_distinct(&self.output, inputs.clone())?;
        let mut skipped = self.skipping.start(inputs.chain([&*self.output]))?;
        let factors = self.keeps_factors(&model);
        let blank = self.blank(&model, factors)?;
        let mut sink = self.sink(&model, factors, vectors.rows())?;
        let bytes_per_row = vectors.dim() * vectors.kind().bytes();
        let mut progress = Progress::new("encoding", vectors.rows(), bytes_per_row, common.quiet);
        let mut total = 0u64;
        let mut write = |encoded: Encoded| -> Result<()> {
            for (codes, first) in &encoded.runs {
                sink.push_blank(&blank, first - total)?;
                total = first + codes.len() as u64;
                progress.add(codes.len());
                sink.push(codes)?;
            }
            skipped.add(&encoded.left_out)
        };
        if pieces::can(&vectors) {
            let work = |reader: &mut RangeReader, give: Give<'_, Encoded>| {
                while let Some(batch) = reader.next()? {
                    let runs = encode_runs(&model, batch, factors)?;
                    let bytes = batch.len() * blank.stored_bytes_per_row();
                    give(Encoded { runs, left_out: reader.take_left_out() }, bytes)?;
                }
                let left_out = reader.take_left_out();
                give(Encoded { runs: Vec::new(), left_out }, 0)
            };
            pieces::in_order(&vectors, work, write)?;
        } else {
            let mut batches = vectors.batches();
            while let Some(batch) = batches.next()? {
                let runs = encode_runs(&model, batch, factors)?;
                write(Encoded { runs, left_out: batches.take_left_out() })?;
            }
            write(Encoded { runs: Vec::new(), left_out: batches.take_left_out() })?;
        }
        drop(progress);
        if total > 0 && skipped.end() > total {
            sink.push_blank(&blank, skipped.end() - total)?;
            total = skipped.end();
        }
        match sink {
            Sink::Codes(_) if total == 0 => bail!(
                "{}: there are no rows to encode: the data is empty, or every row was left out",
                vectors.files()[0].path.display()
            ),
            Sink::Codes(file) => drop(file.finish()?),
            Sink::Plain(file) => file.finish()?,
        }
        let left_out = skipped.finish()?;
        let elapsed = start.elapsed().as_secs_f64();
        self.report(common, &model, total, bytes_per_row, elapsed, &left_out)
    }

    /// The code of a row that cannot be used: zero bits. Factors, where they are kept, are those of the zero vector.
    fn blank(&self, model: &Model, factors: bool) -> Result<Codes> {
        let zero = vec![0f32; model.dim()];
        let encoder = Encoder { model, factors };
        let mut blank = encoder.consume(Rows::new(&zero, model.dim())?)?;
        blank.clear_row(0);
        Ok(blank)
    }

    /// Whether the output is bare bytes, which have no place for factors.
    fn is_plain(&self) -> bool {
        self.output.as_os_str() == "-" || self.output.extension().is_some_and(|e| e == "npy")
    }

    fn keeps_factors(&self, model: &Model) -> bool {
        self.factors || !self.no_factors && !self.is_plain() && choice::has_factors(model)
    }

    fn sink(&self, model: &Model, factors: bool, rows: Option<u64>) -> Result<Sink> {
        let plain = self.is_plain();
        if plain && factors {
            bail!(
                "plain codes have no place for factors: give -o a name that does not end in .npy"
            );
        }
        let format = match self.output.extension().and_then(|e| e.to_str()) {
            _ if self.output.as_os_str() == "-" => Format::Raw,
            Some("npy") => Format::Npy,
            _ => {
                let file = CodesWriter::create(&self.output, model, factors, rows)?;
                return Ok(Sink::Codes(Box::new(file)));
            }
        };
        let target =
            Target { format, kind: Kind::U8, dim: model.bits().div_ceil(8), rows, name: None };
        Ok(Sink::Plain(Output::create(&self.output, &target)?))
    }

    fn report(
        &self,
        common: &Common,
        model: &Model,
        total: u64,
        bytes_per_row: usize,
        elapsed: f64,
        left_out: &LeftOut,
    ) -> Result<()> {
        let factors = self.keeps_factors(model);
        if common.quiet && !common.json {
            return Ok(());
        }
        let blank = left_out.line(" and have codes of zero bits");
        if self.output.as_os_str() == "-" {
            if !common.quiet && !blank.is_empty() {
                complain(blank.trim_end());
            }
            return Ok(());
        }
        let bytes = model.bits().div_ceil(8) + if factors { model.factor_bytes() } else { 0 };
        if common.json {
            return print_json(&json!({
                "codes": self.output.display().to_string(),
                "model": model.id().to_string(),
                "rows": total,
                "bits": model.bits(),
                "bytes_per_row": bytes,
                "factors": factors,
                "left_out": left_out.count,
                "seconds": elapsed,
            }));
        }
        print(&format!(
            "{}: {} codes of {}, {} instead of {}, in {} ({} rows/s)\n{blank}",
            self.output.display(),
            count(total),
            choice::size_of_code(model),
            size(total * bytes as u64),
            size(total * bytes_per_row as u64),
            seconds(elapsed),
            count((total as f64 / elapsed) as u64),
        ))
    }
}

/// What comes of some rows.
struct Encoded {
    /// The codes of rows with consecutive numbers, and the number of the first.
    runs: Vec<(Codes, u64)>,
    /// The numbers of rows that were left out.
    left_out: Vec<Range<u64>>,
}

/// The codes of each run of rows of a batch, and the number of its first row.
fn encode_runs(model: &Model, batch: &Batch, factors: bool) -> Result<Vec<(Codes, u64)>> {
    let runs = batch.runs().into_iter();
    runs.map(|(rows, first)| Ok((batch.feed_range(rows, Encoder { model, factors })?, first)))
        .collect()
}

/// The codes of a batch.
pub(crate) fn encode(model: &Model, batch: &Batch, factors: bool) -> Result<Codes> {
    Ok(batch.feed(Encoder { model, factors })?)
}

struct Encoder<'a> {
    model: &'a Model,
    factors: bool,
}

impl RowConsumer for Encoder<'_> {
    type Output = Codes;

    fn consume<T: Element>(self, rows: Rows<'_, T>) -> frosh::Result<Codes> {
        if self.factors { self.model.encode_with_factors(rows) } else { self.model.encode(rows) }
    }
}

/// Refuses data that the model was not made for, with both names.
pub(crate) fn check_dim(model: &Model, path: &std::path::Path, data: &Vectors) -> Result<()> {
    if model.dim() == data.dim() {
        return Ok(());
    }
    bail!(
        "{} is a model for {} dimensions, but {} has {}: encode with a model trained on such data",
        path.display(),
        model.dim(),
        data.files()[0].path.display(),
        data.dim()
    )
}
