//! frosh as functions of [Apache DataFusion](https://datafusion.apache.org): sketches, models and codes in SQL.
//!
//! | function | kind | result |
//! |---|---|---|
//! | `frosh_sketch(vector [, options])` | aggregate | a sketch (binary): partial for each partition, merged at the end (Algorithm 3) |
//! | `frosh_merge(sketch)` | aggregate | one sketch of many stored ones |
//! | `frosh_model(sketch, bits [, options])` | scalar | a model (binary) |
//! | `frosh_quantizer(sketch, bytes [, options])` | scalar | a model of a quantiser (binary) |
//! | `frosh_encode(vector, model [, options])` | scalar | the packed code (binary) |
//! | `frosh_hamming(code, code)` | scalar | the number of bits that differ; for sign bits |
//! | `frosh_distance(code, vector, model)` | scalar | the estimated squared distance of a quantiser, the asymmetric distance of sign bits |
//! | `frosh_info(sketch or model)` | scalar | facts as JSON text |
//! | `frosh_version()` | scalar | the release that runs the query |
//!
//! Vectors are List, LargeList or FixedSizeList of f16, f32, f64, i8 or u8. Sketches and models are the bytes of frosh's
//! files. Options are a literal text:
//!
//! | function | options |
//! |---|---|
//! | `frosh_sketch` | `bits=N`, `bytes=N` (for a quantiser) or `sketch_rows=N`, `block_rows=N`, `reservoir=N`, `seed=N`, `method=NAME`, `metric=NAME`, `dim=N`, `skip_bad` |
//! | `frosh_model` | `rotation=NAME`, `allow_constant` |
//! | `frosh_quantizer` | `allow_constant` |
//! | `frosh_encode` | `skip_bad`, `effort=N` (for a quantiser: from 1, the fastest, to 32; by default 8) |
//!
//! A row that cannot be used (null, NaN or infinity, another length) is an error that names its position. With `skip_bad`
//! such rows are left out and counted (`left_out` in `frosh_info`); `frosh_encode` gives a null for them. A null vector has
//! a null code.
//!
//! ```
//! use datafusion::prelude::SessionContext;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> datafusion::error::Result<()> {
//! let context = SessionContext::new_with_config(frosh_sql::session_config());
//! frosh_sql::register(&context);
//! context.sql("CREATE TABLE t AS SELECT i, [sin(i), cos(i), i % 7.0] AS v FROM generate_series(1, 999) AS s(i)").await?;
//! context.sql("CREATE TABLE m AS SELECT frosh_model(frosh_sketch(v, 'bits=8'), 3) AS model FROM t").await?;
//! let near = context.sql(
//!     "WITH codes AS (SELECT i, frosh_encode(v, model) AS code FROM t, m)
//!      SELECT a.i, frosh_hamming(a.code, b.code) AS distance FROM codes a, codes b
//!      WHERE b.i = 5 ORDER BY distance, a.i LIMIT 10").await?;
//! assert_eq!(near.count().await?, 10);
//! # Ok(())
//! # }
//! ```
//!
//! # Which bytes
//!
//! The result of `frosh_sketch` is a function of the rows and of their split into partitions. It does not depend on the
//! machine that learned from a partition, on the order in which partial sketches arrive, or on a task that ran twice: a
//! partial sketch takes its random numbers from a hash of its first row, and sketches are merged in an order that depends
//! on them alone. The split itself must not depend on the machine: [`session_config`] makes every file one partition, if
//! [`set_partitions`] allows as many partitions as there are files. The result then equals that of the `frosh` program:
//! `frosh sketch --worker auto` for each file, and `frosh merge`.
//!
//! This holds for one instruction set; see the documentation of `frosh`.
//!
//! # Memory
//!
//! An aggregate takes, for each group in each partition, at most 12 l d + s (2 d + 28) bytes, and 3 l d for each
//! doubling beyond 64 MB of values: l sketch rows (256 by default, twice the bits with `bits=N`), s sampled rows
//! (16,384 by default and 65,536 with `bytes=N`, at most 32 MB, and no more than the group has). `GROUP BY` with many
//! groups needs small sketches: `'bits=32, reservoir=1024'`.

#![deny(unsafe_code)]

mod binary;
mod distance;
mod models;
mod options;
mod scalars;
mod sketch;
mod state;
#[cfg(test)]
mod tests;
mod vectors;

use datafusion::logical_expr::{AggregateUDF, ScalarUDF};
use datafusion::prelude::{SessionConfig, SessionContext};
use scalars::{Function, Scalar};
use std::sync::Arc;

/// The release of these functions. Processes of one query must have the same.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Registers all functions.
pub fn register(context: &SessionContext) {
    scalar_functions().into_iter().for_each(|f| context.register_udf(f.as_ref().clone()));
    aggregate_functions().into_iter().for_each(|f| context.register_udaf(f.as_ref().clone()));
}

/// The scalar functions.
pub fn scalar_functions() -> Vec<Arc<ScalarUDF>> {
    use Function::{Distance, Encode, Hamming, Info, Model, Quantizer, Version};
    let functions = [Model, Quantizer, Encode, Hamming, Distance, Info, Version];
    functions.map(|f| Arc::new(ScalarUDF::new_from_impl(Scalar::new(f)))).to_vec()
}

/// The aggregate functions.
pub fn aggregate_functions() -> Vec<Arc<AggregateUDF>> {
    vec![
        Arc::new(AggregateUDF::new_from_impl(sketch::FroshSketch::default())),
        Arc::new(AggregateUDF::new_from_impl(sketch::FroshMerge::default())),
    ]
}

/// Settings with which the split of the input into partitions does not depend on the machine or on the moment.
pub fn session_config() -> SessionConfig {
    fix_split(SessionConfig::new())
}

/// Changes settings so that the split of the input into partitions does not depend on the machine or on the moment.
pub fn fix_split(mut config: SessionConfig) -> SessionConfig {
    let options = config.options_mut();
    // Files are not cut into pieces, and no task takes files of another.
    options.optimizer.repartition_file_scans = false;
    options.execution.enable_file_stream_work_stealing = false;
    // Rows are not dealt out to other partitions below an aggregate.
    options.optimizer.enable_round_robin_repartition = false;
    // A partial aggregate does not give up halfway: every group would fall apart into rows.
    options.execution.skip_partial_aggregation_probe_rows_threshold = usize::MAX;
    config
}

/// Allows as many partitions as there are files, so that each file is a partition of its own.
pub fn set_partitions(config: SessionConfig, files: usize) -> SessionConfig {
    config.with_target_partitions(files.max(1))
}
