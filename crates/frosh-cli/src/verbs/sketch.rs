//! `frosh sketch`: one worker's share of DFROSH.

use crate::args::{Common, Fitting, Learning, Reading, possible_bytes};
use crate::learn::{Worker, learn};
use crate::output::{count, print, print_json, seconds};
use crate::skipping::Skipping;
use anyhow::Result;
use clap::Args;
use serde_json::json;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Instant;

/// Learn a sketch of this machine's vectors. Sketches of several machines merge into one model.
#[derive(Args)]
#[command(after_help = "Examples:
  machine 1:  frosh sketch shard-1/ --worker 1 -o 1.sketch
  machine 2:  frosh sketch shard-2/ --worker 2 -o 2.sketch
  or:         frosh sketch shard-3.parquet --worker auto -o 3.sketch
  then:       frosh merge 1.sketch 2.sketch -o all.sketch
              frosh fit all.sketch -o model.frosh
  day by day: frosh sketch mon.npy --half-life 1000000 --worker 1 -o mon.sketch
              frosh sketch tue.npy --half-life 1000000 --worker 2 \\
                --clock $(frosh inspect mon.sketch --json | jq .clock) \\
                -o tue.sketch

Ctrl-C ends the reading: the sketch of the rows read so far is written (with --checkpoint, the state instead), and the
exit code is 130. A second Ctrl-C stops at once and writes nothing.")]
pub(crate) struct Sketch {
    /// Files, folders or patterns of vectors; - is standard input
    #[arg(required = true, value_name = "DATA")]
    data: Vec<OsString>,
    /// The sketch file to write
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Number of this worker, different on every machine; auto takes it from the first row
    #[arg(long, default_value_t = Worker::Number(0), value_name = "N|auto")]
    worker: Worker,
    /// Clock of the first row, for a stream that goes on: the clock of the sketch before (`frosh inspect` shows it), so
    /// that `merge` knows which rows are older
    #[arg(
        long,
        default_value_t = 0,
        value_name = "N",
        requires = "half_life",
        hide_default_value = true
    )]
    clock: u64,
    /// Sample enough rows for a quantiser of N bytes (`fit --bytes`), and take as many sketch rows as it needs
    #[arg(long, value_name = "N", value_parser = possible_bytes)]
    bytes: Option<usize>,
    #[command(flatten)]
    learning: Learning,
    #[command(flatten)]
    reading: Reading,
    #[command(flatten)]
    skipping: Skipping,
}

impl Sketch {
    pub(crate) fn run(&self, common: &Common) -> Result<()> {
        let start = Instant::now();
        // A folder that is missing or locked shall be known before the work is done.
        frosh::AtomicFile::begin(&self.output)?;
        let (reading, skipping, learning) = (&self.reading, &self.skipping, &self.learning);
        let (data, output, worker) = (&self.data, &self.output, self.worker);
        let fitting = self.bytes.map(Fitting::quantizer);
        let learned = learn(
            data,
            output,
            reading,
            skipping,
            learning,
            worker,
            self.clock,
            common,
            fitting.as_ref(),
            None,
        )?;
        let sketch = &learned.result;
        let (rows, dim) = (sketch.rows(), sketch.dim());
        sketch.save(&self.output)?;
        if let Some(checkpoint) = &learned.checkpoint {
            checkpoint.remove();
        }
        let total = start.elapsed().as_secs_f64();
        if common.json {
            print_json(&json!({
                "sketch": self.output.display().to_string(),
                "rows": rows,
                "dim": dim,
                "method": sketch.method().as_str(),
                "metric": sketch.metric().as_str(),
                "sketch_rows": sketch.sketch_rows(),
                "block_rows": sketch.block_rows(),
                "worker": sketch.workers()[0],
                "half_life": sketch.half_life(),
                "weight": sketch.weight(),
                "clock": sketch.clock(),
                "resumed_at": learned.resumed_at,
                "left_out": learned.left_out.count,
                "interrupted": learned.interrupted,
                "seconds": { "total": total, "read": learned.read, "sketch": learned.sketch },
            }))?;
        } else if !common.quiet {
            print(&format!(
                "{}: {} rows of {dim} dimensions in {} ({} rows/s), worker {}\n{}\
             next: frosh merge {} OTHERS... -o all.sketch, or frosh fit {} -o model.frosh\n",
                self.output.display(),
                count(rows),
                seconds(total),
                count(((rows - learned.resumed_at) as f64 / total) as u64),
                sketch.workers()[0],
                learned.left_out.line(", left out"),
                self.output.display(),
                self.output.display(),
            ))?;
        }
        learned.end(&self.output)
    }
}
