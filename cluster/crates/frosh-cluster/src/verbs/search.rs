//! `search`: the nearest codes of some queries.

use super::encode::CODE;
use super::job_name;
use crate::Common;
use crate::engine::Engine;
use crate::inputs;
use crate::output;
use crate::progress::Progress;
use crate::session;
use anyhow::{Result, bail};
use clap::Args;
use datafusion::arrow::array::{Array as _, AsArray as _, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::common::ScalarValue;
use datafusion::execution::FunctionRegistry as _;
use datafusion::logical_expr::{Expr, SortExpr, ident, lit};
use datafusion::prelude::{DataFrame, SessionContext};

/// Queries of one job. Each of them reads all codes.
const QUERIES_PER_JOB: usize = 16;
/// Queries that may be asked. More are a job for `frosh search`, which scans codes in memory.
const MOST_QUERIES: usize = 4096;

#[derive(Args)]
pub(crate) struct Search {
    /// The model file
    #[arg(value_name = "MODEL")]
    model: String,
    /// Parquet files with a column named code, as encode writes them
    #[arg(required = true, value_name = "CODES")]
    codes: Vec<String>,
    /// A Parquet file of query vectors
    #[arg(long, value_name = "FILE")]
    queries: String,
    /// Column of the query vectors; not needed if there is only one
    #[arg(long, value_name = "NAME")]
    column: Option<String>,
    /// Neighbours of each query
    #[arg(short, default_value_t = 10, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    k: u32,
    /// Columns to print; by default all but the code
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    keep: Option<Vec<String>>,
}

impl Search {
    pub(crate) async fn run(&self, engine: &Engine, common: &Common) -> Result<()> {
        let local = session::local(1)?;
        let queries = self.query_codes(&local).await?;
        let files = inputs::files(&local, &self.codes).await?;
        let job = job_name("search");
        let context = engine.session(files.len(), &job).await?;
        let codes = inputs::read(&context, &files).await?;
        let schema = codes.schema().as_arrow().clone();
        if schema.field_with_name(CODE).is_err() {
            bail!(
                "{}: there is no column named {CODE}: make codes with frosh-cluster encode",
                self.codes.join(" ")
            );
        }
        let names = schema.fields().iter().map(|f| f.name().clone()).filter(|name| name != CODE);
        let kept: Vec<String> = self.keep.clone().unwrap_or_else(|| names.collect());
        if let Some(missing) = kept.iter().find(|name| schema.field_with_name(name).is_err()) {
            bail!("--keep: there is no column {missing}");
        }
        // Rows at equal distances are ordered by their columns, so that the result is always the same.
        let ordered = kept.iter().filter(|name| {
            schema.field_with_name(name).is_ok_and(|field| !field.data_type().is_nested())
        });
        let order: Vec<SortExpr> = std::iter::once("distance")
            .chain(ordered.map(String::as_str))
            .map(|name| ident(name).sort(true, false))
            .collect();
        let progress = Progress::new("searching", "queries", queries.len(), common.quiet);
        let mut found: Vec<RecordBatch> = Vec::new();
        for (chunk, group) in queries.chunks(QUERIES_PER_JOB).enumerate() {
            let mut all: Option<DataFrame> = None;
            for (i, query) in group.iter().enumerate() {
                let number = (chunk * QUERIES_PER_JOB + i) as u64;
                let one = self.nearest(&context, codes.clone(), query, number, &kept, &order)?;
                all = Some(match all {
                    None => one,
                    Some(before) => before.union(one)?,
                });
            }
            let Some(all) = all else { continue };
            let mut first = order.clone();
            first.insert(0, ident("query").sort(true, false));
            found.extend(engine.collect(all.sort(first)?, &job, None).await?);
            progress.add(group.len());
        }
        drop(progress);
        let Some(first) = found.first() else { return output::print_rows(&[], common.json) };
        let all = concat_batches(&first.schema(), &found)?;
        output::print_rows(&[all], common.json)
    }

    /// The codes of the queries, which are computed here.
    async fn query_codes(&self, context: &SessionContext) -> Result<Vec<Vec<u8>>> {
        let hasher = super::model(context, &self.model).await?;
        let files = inputs::files(context, std::slice::from_ref(&self.queries)).await?;
        let table = inputs::read(context, &files).await?;
        let column = inputs::vector_column(table.schema().as_arrow(), self.column.as_deref())?;
        let function = context.udf("frosh_encode")?;
        let model = lit(ScalarValue::LargeBinary(Some(hasher.to_bytes())));
        let code = function.call(vec![ident(column), model]).alias(CODE);
        let batches = table.select(vec![code])?.limit(0, Some(MOST_QUERIES + 1))?.collect().await?;
        let mut codes = Vec::new();
        for batch in &batches {
            let column = batch.column(0).as_binary::<i32>();
            if column.null_count() > 0 {
                bail!("{}: a query is null", self.queries);
            }
            codes.extend(column.iter().flatten().map(<[u8]>::to_vec));
        }
        match codes.len() {
            0 => bail!("{}: there are no queries", self.queries),
            1..=MOST_QUERIES => Ok(codes),
            _ => bail!(
                "{}: there are more than {MOST_QUERIES} queries: frosh search is made for many",
                self.queries
            ),
        }
    }

    fn nearest(
        &self,
        context: &SessionContext,
        codes: DataFrame,
        query: &[u8],
        number: u64,
        kept: &[String],
        order: &[SortExpr],
    ) -> Result<DataFrame> {
        let function = context.udf("frosh_hamming")?;
        let query = lit(ScalarValue::Binary(Some(query.to_vec())));
        let mut columns: Vec<Expr> = vec![
            lit(number).alias("query"),
            function.call(vec![ident(CODE), query]).alias("distance"),
        ];
        columns.extend(kept.iter().map(ident));
        let rows = codes.filter(ident(CODE).is_not_null())?.select(columns)?;
        Ok(rows.sort(order.to_vec())?.limit(0, Some(self.k as usize))?)
    }
}
