//! `train`: a model from Parquet files.

use super::job_name;
use crate::Common;
use crate::engine::Engine;
use crate::inputs::{self, File};
use crate::output::{self, count};
use crate::progress::Progress;
use crate::session;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use datafusion::arrow::array::{Array as _, AsArray as _, RecordBatch};
use datafusion::execution::FunctionRegistry as _;
use datafusion::logical_expr::{col, ident, lit};
use datafusion::prelude::{DataFrame, SessionContext};
use frosh::{Config, Method, Metric, Model, Rotation, Sketch};
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::json;
use std::time::Instant;

#[derive(Args)]
pub(crate) struct Train {
    /// Parquet files, folders or patterns, also of s3://bucket/
    #[arg(required = true, value_name = "DATA")]
    data: Vec<String>,
    /// The model file to write, also in s3://bucket/
    #[arg(long, short, value_name = "FILE")]
    output: String,
    /// Write the merged sketch too
    #[arg(long, value_name = "FILE")]
    sketch: Option<String>,
    /// Column of vectors; not needed if there is only one
    #[arg(long, value_name = "NAME")]
    column: Option<String>,
    /// Bits of a code: 64 is 8 bytes for each vector
    #[arg(long, short, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=8192))]
    bits: u16,
    /// Bytes of a code of a quantiser instead of sign bits, from 4 to 64: more accuracy a byte, slower to encode
    #[arg(long, value_name = "N", conflicts_with_all = ["bits", "rotation"],
          value_parser = clap::value_parser!(u16).range(4..=64))]
    bytes: Option<u16>,
    /// Rows of the sketch: even, and at least twice the bits, which is the default; for a quantiser up to 256
    #[arg(long, value_name = "N")]
    sketch_rows: Option<usize>,
    /// Rows of the sample that the model is fitted to. Each partition sends so many: fewer make smaller messages
    #[arg(long, value_name = "N")]
    reservoir: Option<usize>,
    /// How vectors are compared: l2 or cosine
    #[arg(long, default_value_t = Metric::L2, value_name = "NAME")]
    metric: Metric,
    /// The algorithm: frosh, frosh-sparse, osh or lsh
    #[arg(long, default_value_t = Method::Frosh, value_name = "NAME")]
    method: Method,
    /// How directions are turned before signs are taken; by default chosen by measurement
    #[arg(long, value_name = "NAME")]
    rotation: Option<Rotation>,
    /// Seed of all random choices
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
    /// Leave out rows with NaN, infinity, nulls or another length instead of stopping at them
    #[arg(long)]
    skip_bad: bool,
    /// Replace the files that are there
    #[arg(long)]
    force: bool,
}

impl Train {
    pub(crate) async fn run(&self, engine: &Engine, common: &Common) -> Result<()> {
        let start = Instant::now();
        if let Some(bytes) = self.bytes {
            // Before any row is read. Rows of another dimension have the same limits, unless they are very long.
            let config = Config::new(1 << 10).method(self.method);
            let config = self.reservoir.map_or(config.clone(), |rows| config.reservoir_rows(rows));
            config.check_quantizer(bytes.into())?;
        }
        for place in [Some(&self.output), self.sketch.as_ref()].into_iter().flatten() {
            output::check_place(place, self.force)?;
        }
        // Lists and looks at the files; the work is done elsewhere.
        let local = session::local(1)?;
        let files = inputs::files(&local, &self.data).await?;
        let schema = inputs::read(&local, &files[..1]).await?.schema().as_arrow().clone();
        let column = inputs::vector_column(&schema, self.column.as_deref())?;
        let sketch = match engine {
            Engine::Local { threads } => self.here(&files, &column, *threads, common).await?,
            Engine::Cluster { .. } => self.there(engine, &files, &column, common).await?,
        };
        let Some(sketch) = sketch else {
            bail!(
                "{}: there are no rows to learn from: the data is empty, or every row was left out",
                self.data.join(" ")
            );
        };
        let sketched = start.elapsed();
        let model = self.model(&sketch)?;
        let varies = match model.hasher() {
            Some(hasher) => hasher.rank() > 0 || hasher.method() == Method::Lsh,
            None => sketch.certificate().mass > 0.0,
        };
        if !varies {
            bail!(
                "nothing can be learned from {} rows that are all equal: check the data",
                count(sketch.rows())
            );
        }
        if let Some(place) = &self.sketch {
            output::write(&local, place, sketch.to_bytes()).await?;
        }
        output::write(&local, &self.output, model.to_bytes()).await?;
        let total = start.elapsed();
        if common.json {
            let report = json!({
                "model": self.output,
                "id": model.id().to_string(),
                "rows": sketch.rows(),
                "left_out": sketch.left_out(),
                "dim": sketch.dim(),
                "bits": model.bits(),
                "bytes_per_row": model.bytes_per_row(),
                "files": files.len(),
                "bytes": files.iter().map(|file| file.bytes).sum::<u64>(),
                "rotation": model.hasher().map(|hasher| hasher.rotation().as_str()),
                "ranking": model.ranking().as_str(),
                "seconds": { "total": total.as_secs_f64(), "sketch": sketched.as_secs_f64() },
            });
            return output::print(&format!("{report}\n"));
        }
        if common.quiet {
            return Ok(());
        }
        let left_out = match sketch.left_out() {
            0 => String::new(),
            rows => format!("{} rows could not be used, left out\n", count(rows)),
        };
        let what = match model.hasher() {
            Some(hasher) => format!("{} bits, {} rotation", hasher.bits(), hasher.rotation()),
            None => format!("quantiser of {} bytes", model.bytes_per_row()),
        };
        output::print(&format!(
            "{}: {what}, from {} rows of {} dimensions in {} files, {:.1} s\n{left_out}",
            self.output,
            count(sketch.rows()),
            sketch.dim(),
            count(files.len() as u64),
            total.as_secs_f64(),
        ))
    }

    /// The model that is asked for.
    fn model(&self, sketch: &Sketch) -> frosh::Result<Model> {
        match (self.bytes, self.rotation) {
            (Some(bytes), _) => sketch.quantizer(bytes.into()).map(Model::from),
            (None, Some(rotation)) => {
                sketch.hasher_with(self.bits.into(), rotation).map(Model::from)
            }
            (None, None) => sketch.hasher(self.bits.into()).map(Model::from),
        }
    }

    /// The options of `frosh_sketch`.
    fn options(&self) -> String {
        let mut options = match (self.sketch_rows, self.bytes) {
            (Some(rows), _) => format!("sketch_rows={rows}"),
            (None, Some(bytes)) => format!("bytes={bytes}"),
            (None, None) => format!("bits={}", self.bits),
        };
        options += &format!(", seed={}, metric={}, method={}", self.seed, self.metric, self.method);
        // `bytes` sets the sample as well, and cannot stand beside `sketch_rows`.
        let of_bytes = |bytes: u16| Config::new(1).for_quantizer(bytes.into());
        let sample = self.sketch_rows.and(self.bytes).map(of_bytes);
        if let Some(rows) = self.reservoir.or(sample.map(|c| c.requested_reservoir_rows())) {
            options += &format!(", reservoir={rows}");
        }
        if self.skip_bad {
            options += ", skip_bad";
        }
        options
    }

    fn query(&self, context: &SessionContext, table: DataFrame, column: &str) -> Result<DataFrame> {
        let function = context.udaf("frosh_sketch")?;
        let sketch = function.call(vec![ident(column), lit(self.options())]).alias("sketch");
        Ok(table.aggregate(vec![], vec![sketch])?.select(vec![col("sketch")])?)
    }

    /// One task for each file, `threads` at a time, so that memory does not grow with the number of files.
    async fn here(
        &self,
        files: &[File],
        column: &str,
        threads: usize,
        common: &Common,
    ) -> Result<Option<Sketch>> {
        let progress = Progress::new("learning", "files", files.len(), common.quiet);
        let tasks = futures::stream::iter(files).map(|file| async {
            let context = session::local(1)?;
            let query = self.query(
                &context,
                inputs::read(&context, std::slice::from_ref(file)).await?,
                column,
            )?;
            // A task of its own, so that tasks run on different threads.
            let batches = tokio::spawn(query.collect()).await?;
            let batches = batches.with_context(|| file.url.clone())?;
            progress.add(1);
            sketch_of(&batches)
        });
        let sketches: Vec<Option<Sketch>> = tasks.buffer_unordered(threads).try_collect().await?;
        let sketches: Vec<Sketch> = sketches.into_iter().flatten().collect();
        if sketches.is_empty() { Ok(None) } else { Ok(Some(Sketch::merge(&sketches)?)) }
    }

    /// One job: the engine makes the partial sketches and merges them.
    async fn there(
        &self,
        engine: &Engine,
        files: &[File],
        column: &str,
        common: &Common,
    ) -> Result<Option<Sketch>> {
        let job = job_name("train");
        let context = engine.session(files.len(), &job).await?;
        let query = self.query(&context, inputs::read(&context, files).await?, column)?;
        let progress = Progress::new("learning", "tasks", files.len() + 1, common.quiet);
        sketch_of(&engine.collect(query, &job, Some(&progress)).await?)
    }
}

/// The sketch in the only row of the only column.
fn sketch_of(batches: &[RecordBatch]) -> Result<Option<Sketch>> {
    let Some(batch) = batches.iter().find(|batch| batch.num_rows() > 0) else { return Ok(None) };
    let column = batch.column(0).as_binary::<i64>();
    if column.is_null(0) { Ok(None) } else { Ok(Some(Sketch::from_bytes(column.value(0))?)) }
}
