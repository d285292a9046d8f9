//! `sql`: any query with frosh's functions.

use super::job_name;
use crate::Common;
use crate::engine::Engine;
use crate::inputs::{self, File};
use crate::output;
use crate::progress::Progress;
use crate::session;
use anyhow::{Context as _, Result, bail};
use clap::Args;

#[derive(Args)]
pub(crate) struct Sql {
    /// The query; - reads it from standard input
    #[arg(value_name = "SQL")]
    query: String,
    /// A table of Parquet files, folders or patterns; may be given several times
    #[arg(long = "table", value_name = "NAME=DATA")]
    tables: Vec<String>,
}

impl Sql {
    pub(crate) async fn run(&self, engine: &Engine, common: &Common) -> Result<()> {
        let query = match &*self.query {
            "-" => std::io::read_to_string(std::io::stdin())?,
            query => query.to_owned(),
        };
        let local = session::local(1)?;
        let mut tables: Vec<(&str, Vec<File>)> = Vec::new();
        for table in &self.tables {
            let Some((name, data)) = table.split_once('=') else {
                bail!("--table {table}: expected NAME=DATA, such as t=vectors/");
            };
            tables.push((name, inputs::files(&local, &[data.to_owned()]).await?));
        }
        // Every file is a partition of its own.
        let partitions = tables.iter().map(|(_, files)| files.len()).max().unwrap_or(1);
        let job = job_name("sql");
        let context = engine.session(partitions.max(engine.slots()), &job).await?;
        for (name, files) in &tables {
            let table = inputs::read(&context, files).await?;
            let registered = context.register_table(*name, table.into_view());
            registered.with_context(|| format!("--table {name}"))?;
        }
        let progress = Progress::new("running", "tasks", 0, common.quiet);
        let batches = engine.collect(context.sql(&query).await?, &job, Some(&progress)).await?;
        drop(progress);
        if common.quiet { Ok(()) } else { output::print_rows(&batches, common.json) }
    }
}
