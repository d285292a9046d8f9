//! `frosh train`: one pass over the data, to a model.

use crate::args::{Common, Fitting, Learning, Reading};
use crate::choice;
use crate::kinds;
use crate::learn::{Learned, Worker, learn};
use crate::output::{count, print, print_json, seconds};
use crate::skipping::Skipping;
use anyhow::{Result, bail};
use clap::Args;
use frosh::{AtomicFile, Model, Sketcher};
use serde_json::json;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Instant;

/// Learn a model from vectors, in one pass over files, folders or patterns.
#[derive(Args)]
#[command(after_help = "Examples:
  frosh train vectors.npy -o model.frosh
  frosh train 'shards/part-*.parquet' --column embedding -b 128 -o model.frosh
  frosh train vectors.npy --bytes 16 -o model.frosh  a quantiser
  frosh train big.fbin --checkpoint state.frosh -o model.frosh  resumable
  frosh train log.npy --half-life 500000 -o model.frosh  recent rows count most
  produce | frosh train - --dim 768 --refresh-every 1000000 -o model.frosh

Ctrl-C ends the reading: the model of the rows read so far is written (with --checkpoint, the state instead), and the
exit code is 130. A second Ctrl-C stops at once and writes nothing.")]
pub(crate) struct Train {
    /// Files, folders or patterns of vectors; - is standard input
    #[arg(required = true, value_name = "DATA")]
    data: Vec<OsString>,
    /// The model file to write
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Write the model anew after every N rows, so that a reader always finds a whole one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    refresh_every: Option<u64>,
    #[command(flatten)]
    fitting: Fitting,
    #[command(flatten)]
    learning: Learning,
    #[command(flatten)]
    reading: Reading,
    #[command(flatten)]
    skipping: Skipping,
}

impl Train {
    pub(crate) fn run(&self, common: &Common) -> Result<()> {
        if self.output.as_os_str() == "-" {
            bail!("a model is a file: give its name with -o");
        }
        let start = Instant::now();
        // A folder that is missing or locked shall be known before the work is done.
        AtomicFile::begin(&self.output)?;
        // A run that goes on from its checkpoint replaces what it wrote itself.
        let resumes = self.learning.checkpoint.as_ref().is_some_and(|path| path.exists());
        if !self.fitting.force && !resumes {
            kinds::check_replaces_no_model(&self.output)?;
        }
        let write = |sketcher: &Sketcher| -> Result<()> {
            Ok(self.fitting.model(&sketcher.sketch())?.save(&self.output)?)
        };
        let refresh = self.refresh_every.map(|every| (every, &write as _));
        let (reading, skipping, learning) = (&self.reading, &self.skipping, &self.learning);
        let (fitting, data, output) = (Some(&self.fitting), &self.data, &self.output);
        let learned = learn(
            data,
            output,
            reading,
            skipping,
            learning,
            Worker::Number(0),
            0,
            common,
            fitting,
            refresh,
        )?;
        let Learned { result, checkpoint, .. } = &learned;
        let clock = Instant::now();
        let model = self.fitting.model(result)?;
        self.fitting.check_variance(&model, result)?;
        let solve = clock.elapsed().as_secs_f64();
        model.save(&self.output)?;
        if let Some(checkpoint) = checkpoint {
            checkpoint.remove();
        }
        let total = start.elapsed().as_secs_f64();
        self.report(common, &learned, &model, total, solve)?;
        learned.end(&self.output)
    }

    fn report(
        &self,
        common: &Common,
        learned: &Learned,
        model: &Model,
        total: f64,
        solve: f64,
    ) -> Result<()> {
        let Learned { result, resumed_at, left_out, read, sketch, .. } = learned;
        let (rows, bits, hasher) = (result.rows(), model.bits(), model.hasher());
        if common.json {
            return print_json(&json!({
                "model": self.output.display().to_string(),
                "id": model.id().to_string(),
                "rows": rows,
                "dim": model.dim(),
                "bits": bits,
                "bytes_per_row": choice::bytes_per_row(model),
                "kind": choice::kind(model),
                "ranking": model.ranking().as_str(),
                "choice": choice::object(model),
                "method": self.learning.method.as_str(),
                "metric": model.metric().as_str(),
                "rotation": hasher.map(|hasher| hasher.rotation().as_str()),
                "sketch_rows": learned.sketch_rows,
                "block_rows": result.block_rows(),
                "half_life": self.learning.half_life,
                "threads": learned.threads,
                "resumed_at": resumed_at,
                "left_out": left_out.count,
                "interrupted": learned.interrupted,
                "rank": hasher.map(frosh::Hasher::rank),
                "seconds": { "total": total, "read": read, "sketch": sketch, "solve": solve },
            }));
        }
        if common.quiet {
            return Ok(());
        }
        let here = rows - resumed_at;
        let mut text = format!(
            "{}: {} ({} bytes instead of {} for each vector)\n{} rows of {} dimensions in {} \
             ({} rows/s): waiting for data {}, learning {}, solving {}\n",
            self.output.display(),
            choice::title(model),
            choice::bytes_per_row(model),
            learned.bytes_per_row,
            count(rows),
            model.dim(),
            seconds(total),
            count((here as f64 / total) as u64),
            seconds(*read),
            seconds(*sketch),
            seconds(solve),
        );
        if *resumed_at > 0 {
            text += &format!("went on from a checkpoint at row {}\n", count(*resumed_at));
        }
        text += &left_out.line(", left out");
        if let Some(hasher) = hasher
            && hasher.rank() < bits
            && hasher.method() != frosh::Method::Lsh
        {
            text += &format!(
                "note: the data gave only {} directions; the other {} bits are random\n",
                hasher.rank(),
                bits - hasher.rank()
            );
        }
        text += &choice::summary(model);
        text += &format!("next: frosh encode {} DATA -o codes.frosh\n", self.output.display());
        print(&text)
    }
}

impl Fitting {
    /// The model that is asked for.
    pub(crate) fn model(&self, sketch: &frosh::Sketch) -> frosh::Result<Model> {
        match (self.bytes, self.rotation) {
            (Some(bytes), _) => sketch.quantizer(bytes).map(Model::from),
            (None, Some(rotation)) => sketch.hasher_with(self.bits, rotation).map(Model::from),
            (None, None) => sketch.hasher(self.bits).map(Model::from),
        }
    }

    /// Refuses a model of rows that do not differ, unless that is asked for. Random directions need no data.
    pub(crate) fn check_variance(&self, model: &Model, sketch: &frosh::Sketch) -> Result<()> {
        let varies = match model {
            Model::Hasher(hasher) => hasher.rank() > 0 || hasher.method() == frosh::Method::Lsh,
            _ => sketch.certificate().mass > 0.0,
        };
        if varies || self.allow_constant {
            return Ok(());
        }
        bail!(
            "nothing can be learned from {} rows that are all equal: check the data, or give --allow-constant",
            count(model.rows())
        )
    }
}
