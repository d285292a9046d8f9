//! `encode`: Parquet files of vectors to Parquet files of codes.

use super::job_name;
use crate::Common;
use crate::engine::Engine;
use crate::inputs::{self, File};
use crate::output::{self, count, is_url};
use crate::progress::Progress;
use crate::session;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use datafusion::arrow::array::{AsArray as _, RecordBatch};
use datafusion::arrow::datatypes::UInt64Type;
use datafusion::common::ScalarValue;
use datafusion::config::TableParquetOptions;
use datafusion::dataframe::DataFrameWriteOptions;
use datafusion::execution::FunctionRegistry as _;
use datafusion::logical_expr::{Expr, ident, lit};
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

/// The column of codes.
pub(super) const CODE: &str = "code";
/// Jobs under way for each slot of a cluster, so that no slot waits for the next job to be planned.
const JOBS_PER_SLOT: usize = 2;

#[derive(Args)]
pub(crate) struct Encode {
    /// The model file
    #[arg(value_name = "MODEL")]
    model: String,
    /// Parquet files, folders or patterns, also of s3://bucket/
    #[arg(required = true, value_name = "DATA")]
    data: Vec<String>,
    /// The folder to write to, also s3://bucket/folder/
    #[arg(long, short, value_name = "FOLDER")]
    output: String,
    /// Column of vectors; not needed if there is only one
    #[arg(long, value_name = "NAME")]
    column: Option<String>,
    /// Columns to keep beside the codes; by default all others
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    keep: Option<Vec<String>>,
    /// For a quantiser: candidates that the search for the best code keeps, from 1 (fastest) to 32 (most accurate)
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=32))]
    effort: u16,
    /// Give rows with NaN, infinity, nulls or another length a null code instead of stopping at them
    #[arg(long)]
    skip_bad: bool,
    /// Replace files of the same names in the output folder
    #[arg(long)]
    force: bool,
}

impl Encode {
    pub(crate) async fn run(&self, engine: &Engine, common: &Common) -> Result<()> {
        let start = Instant::now();
        let local = session::local(1)?;
        let model = super::model(&local, &self.model).await?;
        let files = inputs::files(&local, &self.data).await?;
        let schema = inputs::read(&local, &files[..1]).await?.schema().as_arrow().clone();
        let column = inputs::vector_column(&schema, self.column.as_deref())?;
        let names = schema.fields().iter().map(|field| field.name().clone());
        let kept: Vec<String> = match &self.keep {
            Some(kept) => kept.clone(),
            None => names.filter(|name| *name != column).collect(),
        };
        if let Some(missing) = kept.iter().find(|name| schema.field_with_name(name).is_err()) {
            bail!("--keep: there is no column {missing}");
        }
        if kept.iter().any(|name| name == CODE) {
            bail!("the data has a column {CODE} already: choose the columns to keep with --keep");
        }
        let targets = self.targets(&local, &files).await?;
        let function = local.udf("frosh_encode")?;
        let bytes = lit(ScalarValue::LargeBinary(Some(model.to_bytes())));
        let mut options = format!("effort={}", self.effort);
        if self.skip_bad {
            options += ", skip_bad";
        }
        let arguments = vec![ident(&column), bytes, lit(options)];
        let mut columns: Vec<Expr> = kept.iter().map(ident).collect();
        columns.push(function.call(arguments).alias(CODE));
        let progress = Progress::new("encoding", "files", files.len(), common.quiet);
        let job = job_name("encode");
        let many = match engine {
            Engine::Local { threads } => *threads,
            Engine::Cluster { slots, .. } => slots * JOBS_PER_SLOT,
        };
        // One job for each file, with one output of a fixed name: a task that runs twice replaces its file, and leaves no
        // rows that count twice.
        let jobs = futures::stream::iter(files.iter().zip(&targets)).map(|(file, target)| {
            let (columns, job) = (columns.clone(), &job);
            let progress = &progress;
            async move {
                let context = engine.session(1, job).await?;
                let table = inputs::read(&context, std::slice::from_ref(file)).await?;
                let options = DataFrameWriteOptions::new().with_single_file_output(true);
                let table = table.select(columns)?;
                let (target, work) = (target.clone(), TableParquetOptions::default());
                let written = async move {
                    let work = table.write_parquet(&target, options, Some(work));
                    Ok(work.await?)
                };
                let rows = match engine {
                    Engine::Local { .. } => tokio::spawn(written).await?,
                    Engine::Cluster { .. } => engine.run(written, job, None).await,
                };
                progress.add(1);
                Ok::<u64, anyhow::Error>(written_rows(&rows.with_context(|| file.url.clone())?))
            }
        });
        let rows: Vec<u64> = jobs.buffer_unordered(many).try_collect().await?;
        drop(progress);
        let rows: u64 = rows.into_iter().sum();
        let seconds = start.elapsed().as_secs_f64();
        if common.json {
            let report = json!({
                "output": self.output, "files": files.len(), "rows": rows, "bits": model.bits(),
                "model": model.id().to_string(), "seconds": seconds,
            });
            return output::print(&format!("{report}\n"));
        }
        if common.quiet {
            return Ok(());
        }
        output::print(&format!(
            "{}: {} codes of {} bits in {} files, {seconds:.1} s\n",
            self.output,
            count(rows),
            model.bits(),
            count(files.len() as u64)
        ))
    }

    /// Where the codes of each file go: the same name in the output folder. Names that occur twice get a number.
    async fn targets(
        &self,
        context: &datafusion::prelude::SessionContext,
        files: &[File],
    ) -> Result<Vec<String>> {
        let folder = if is_url(&self.output) {
            self.output.trim_end_matches('/').to_owned()
        } else {
            let path = Path::new(&self.output);
            std::fs::create_dir_all(path).with_context(|| self.output.clone())?;
            let path = path.canonicalize().with_context(|| self.output.clone())?;
            path.to_str()
                .with_context(|| format!("{}: not a name in UTF-8", self.output))?
                .to_owned()
        };
        let mut used = BTreeSet::new();
        let mut targets = Vec::new();
        for (number, file) in files.iter().enumerate() {
            let stem = file.name().strip_suffix(".parquet").unwrap_or(file.name());
            let name = match used.insert(stem.to_owned()) {
                true => format!("{stem}.parquet"),
                false => format!("{stem}-{number}.parquet"),
            };
            used.insert(name.trim_end_matches(".parquet").to_owned());
            let target = format!("{folder}/{name}");
            if files.iter().any(|file| file.url == target) {
                bail!("{target} would overwrite its own input: choose another output folder");
            }
            targets.push(target);
        }
        if !self.force {
            for target in &targets {
                let there = match is_url(target) {
                    true => inputs::files(context, std::slice::from_ref(target)).await.is_ok(),
                    false => Path::new(target).exists(),
                };
                if there {
                    bail!(
                        "{target} is there already: choose another output folder, or replace it with --force"
                    );
                }
            }
        }
        Ok(targets)
    }
}

/// The number of rows that a write reports.
fn written_rows(batches: &[RecordBatch]) -> u64 {
    let counts = batches.iter().filter_map(|b| b.column_by_name("count"));
    counts.flat_map(|c| c.as_primitive::<UInt64Type>().values().to_vec()).sum()
}
