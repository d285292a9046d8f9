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
use datafusion::arrow::array::{Array as _, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::common::ScalarValue;
use datafusion::execution::FunctionRegistry as _;
use datafusion::logical_expr::{Expr, SortExpr, ident, lit};
use datafusion::prelude::{DataFrame, SessionContext};
use frosh::Model;

/// Queries of one job. Each of them reads all codes.
const QUERIES_PER_JOB: usize = 16;
/// Bytes of models in one job: each query of a quantiser carries the model.
const MODEL_BYTES_PER_JOB: usize = 16 << 20;
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
        let model = super::model(&local, &self.model).await?;
        let queries = self.queries(&local, &model).await?;
        let per_job = match &model {
            Model::Quantizer(_) => {
                (MODEL_BYTES_PER_JOB / model.to_bytes().len()).clamp(1, QUERIES_PER_JOB)
            }
            _ => QUERIES_PER_JOB,
        };
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
        for (chunk, group) in queries.chunks(per_job).enumerate() {
            let mut all: Option<DataFrame> = None;
            for (i, query) in group.iter().enumerate() {
                let number = (chunk * per_job + i) as u64;
                let distance = distance(&context, &model, query)?;
                let one = self.nearest(codes.clone(), distance, number, &kept, &order)?;
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

    /// What each query is compared by: its code, which is computed here, or for a quantiser its vector.
    async fn queries(&self, context: &SessionContext, model: &Model) -> Result<Vec<ScalarValue>> {
        let files = inputs::files(context, std::slice::from_ref(&self.queries)).await?;
        let table = inputs::read(context, &files).await?;
        let column = inputs::vector_column(table.schema().as_arrow(), self.column.as_deref())?;
        let encode = context.udf("frosh_encode")?;
        let bytes = lit(ScalarValue::LargeBinary(Some(model.to_bytes())));
        // The code tells of a vector that cannot be used, also where it is not needed.
        let code = encode.call(vec![ident(&column), bytes]).alias(CODE);
        let mut columns = vec![code];
        if let Model::Quantizer(_) = model {
            columns.push(ident(&column));
        }
        let batches = table.select(columns)?.limit(0, Some(MOST_QUERIES + 1))?.collect().await?;
        let mut queries = Vec::new();
        for batch in &batches {
            if batch.column(0).null_count() > 0 {
                bail!("{}: a query is null", self.queries);
            }
            let column = batch.column(batch.num_columns() - 1);
            for row in 0..batch.num_rows() {
                queries.push(ScalarValue::try_from_array(column, row)?);
            }
        }
        match queries.len() {
            0 => bail!("{}: there are no queries", self.queries),
            1..=MOST_QUERIES => Ok(queries),
            _ => bail!(
                "{}: there are more than {MOST_QUERIES} queries: frosh search is made for many",
                self.queries
            ),
        }
    }

    fn nearest(
        &self,
        codes: DataFrame,
        distance: Expr,
        number: u64,
        kept: &[String],
        order: &[SortExpr],
    ) -> Result<DataFrame> {
        let mut columns: Vec<Expr> = vec![lit(number).alias("query"), distance.alias("distance")];
        columns.extend(kept.iter().map(ident));
        let rows = codes.filter(ident(CODE).is_not_null())?.select(columns)?;
        Ok(rows.sort(order.to_vec())?.limit(0, Some(self.k as usize))?)
    }
}

/// The distance of a code to a query.
fn distance(context: &SessionContext, model: &Model, query: &ScalarValue) -> Result<Expr> {
    let query = lit(query.clone());
    Ok(match model {
        Model::Quantizer(_) => {
            let bytes = lit(ScalarValue::LargeBinary(Some(model.to_bytes())));
            context.udf("frosh_distance")?.call(vec![ident(CODE), query, bytes])
        }
        _ => context.udf("frosh_hamming")?.call(vec![ident(CODE), query]),
    })
}
