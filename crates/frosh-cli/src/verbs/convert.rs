//! `frosh convert`: from one format to another.

use crate::args::{Common, Reading, check_distinct, format_name, kind_name};
use crate::output::{complain, count, print, print_json, seconds};
use crate::pieces;
use crate::progress::Progress;
use crate::skipping::Skipping;
use anyhow::{Result, bail};
use clap::{Args, CommandFactory as _};
use frosh_io::{Format, Kind, Output, Target};
use serde_json::json;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Instant;

/// Turn vectors from one format into another; the names tell which. Many files can become one.
#[derive(Args)]
#[command(after_help = "Examples:
  frosh convert sift_base.fvecs sift.npy
  frosh convert glove-100-angular.hdf5 --dataset test queries.fbin
  frosh convert 'shards/*.parquet' --column embedding all.f16bin
  frosh convert vectors.npy - --to csv | head -3

Floats are rounded to the type that is written; a value that an integer type cannot hold is an error.

NaN is copied, and a null is an error. With --skip-bad such rows are left out: the rows after them move up,
and --skipped FILE lists the numbers that are missing.")]
pub(crate) struct Convert {
    /// Files, folders or patterns of vectors, then the file to write; - is standard input or output
    #[arg(required = true, value_name = "FROM... TO")]
    paths: Vec<OsString>,
    /// Format to write, where the name does not tell
    #[arg(long, value_name = "NAME", value_parser = format_name)]
    to: Option<Format>,
    /// Element type to write, in formats that leave it open: f16, f32, f64, u8 or i8
    #[arg(long = "type", value_name = "TYPE", value_parser = kind_name)]
    kind: Option<Kind>,
    /// Name of the column, data set or array to write
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    reading: Reading,
    #[command(flatten)]
    skipping: Skipping,
}

impl Convert {
    pub(crate) fn run(&self, common: &Common) -> Result<()> {
        let start = Instant::now();
        let (to, from) = match self.paths.split_last() {
            Some((to, from)) if !from.is_empty() => (to, from),
            _ => {
                let missing = clap::error::ErrorKind::MissingRequiredArgument;
                let why = "convert needs the files to read and the file to write: FROM... TO";
                crate::args::Cli::command().error(missing, why).exit();
            }
        };
        let to = PathBuf::from(to);
        let Some(format) = self.to.or_else(|| Format::of_name(&to)) else {
            bail!("{}: the name tells no format: choose one with --to", to.display());
        };
        let vectors = crate::kinds::vectors(from, &self.reading.options(self.skipping.skip_bad))?;
        check_distinct(&to, vectors.files().iter().map(|file| &*file.path))?;
        let inputs = vectors.files().iter().map(|file| &*file.path);
        let mut skipped = self.skipping.start(inputs.chain([&*to]))?;
        let target = Target {
            format,
            kind: self.kind.unwrap_or(vectors.kind()),
            dim: vectors.dim(),
            rows: vectors.rows(),
            name: self.name.clone(),
        };
        let mut output = Output::create(&to, &target)?;
        let bytes_per_row = vectors.dim() * vectors.kind().bytes();
        let mut progress = Progress::new("converting", vectors.rows(), bytes_per_row, common.quiet);
        if pieces::can(&vectors) {
            pieces::batches_in_order(&vectors, |batch, left_out| {
                if let Some(batch) = batch {
                    output.write(batch)?;
                    progress.add(batch.len());
                }
                skipped.add(&left_out)
            })?;
        } else {
            let mut batches = vectors.batches();
            while let Some(batch) = batches.next()? {
                output.write(batch)?;
                progress.add(batch.len());
                skipped.add(&batches.take_left_out())?;
            }
            skipped.add(&batches.take_left_out())?;
        }
        drop(progress);
        let rows = output.rows();
        output.finish()?;
        let left_out = skipped.finish()?;
        let elapsed = start.elapsed().as_secs_f64();
        // The rows after them have moved up: to be told wherever the rows went.
        let moved = left_out.line(" and are missing in the output");
        if to.as_os_str() == "-" {
            if !common.quiet && !moved.is_empty() {
                complain(moved.trim_end());
            }
            return Ok(());
        }
        if common.json {
            return print_json(&json!({
                "file": to.display().to_string(),
                "format": format.name(),
                "rows": rows,
                "dim": vectors.dim(),
                "type": target.kind().name(),
                "left_out": left_out.count,
                "seconds": elapsed,
            }));
        }
        if common.quiet {
            return Ok(());
        }
        let text = format!(
            "{}: {} rows of {} dimensions, {format}, in {}\n",
            to.display(),
            count(rows),
            vectors.dim(),
            seconds(elapsed)
        );
        print(&(text + &moved))
    }
}
