//! The verbs that are jobs: each runs on this machine or on a cluster.

mod encode;
mod search;
mod sql;
mod train;

pub(crate) use encode::Encode;
pub(crate) use search::Search;
pub(crate) use sql::Sql;
pub(crate) use train::Train;

use crate::output;
use anyhow::{Context as _, Result};
use datafusion::prelude::SessionContext;
use frosh::Model;

pub(crate) const TRAIN_HELP: &str = "Examples:
  frosh-cluster local train 'vectors/*.parquet' --column embedding --bits 64 -o model.frosh
  frosh-cluster local train 'vectors/*.parquet' --column embedding --bytes 8 -o model.frosh      a quantiser
  frosh-cluster train --scheduler df://10.0.0.1:50050 's3://bucket/vectors/*.parquet' --column embedding -o model.frosh

Each file is one partition. The model depends on the rows and on the files they are in, not on machines, their number or
the order of their work. It equals that of frosh sketch FILE --worker auto for each file, frosh merge and frosh fit.
Paths must be the same on all machines; keys of S3 come from the environment.";

pub(crate) const ENCODE_HELP: &str = "Examples:
  frosh-cluster local encode model.frosh 'vectors/*.parquet' --column embedding -o codes/
  frosh-cluster encode --scheduler df://10.0.0.1:50050 model.frosh 's3://bucket/vectors/' -o s3://bucket/codes/

Each input file becomes one file of the same name in the output folder, with the same rows in the same order: the other
columns, and a column named code. A file that was begun by a machine that failed is written again as a whole.";

pub(crate) const SEARCH_HELP: &str = "Examples:
  frosh-cluster local search model.frosh codes/ --queries queries.parquet -k 10
  frosh-cluster search --scheduler df://10.0.0.1:50050 model.frosh s3://bucket/codes/ --queries queries.parquet --json

Rows are ordered by distance, then by their columns: Hamming distance for sign bits, the estimated squared distance for a
quantiser. For many queries on one machine, frosh search is faster.";

pub(crate) const SQL_HELP: &str = "Examples:
  frosh-cluster local sql --table t=vectors/ \"SELECT frosh_info(frosh_sketch(embedding)) FROM t\"
  frosh-cluster sql --scheduler df://10.0.0.1:50050 --table t=s3://bucket/vectors/ \\
      \"SELECT tenant, frosh_model(frosh_sketch(embedding, 'bits=32'), 32) AS model FROM t GROUP BY tenant\"

Functions: frosh_sketch(vector [, options]), frosh_merge(sketch), frosh_model(sketch, bits [, options]),
frosh_quantizer(sketch, bytes [, options]), frosh_encode(vector, model [, options]), frosh_hamming(code, code),
frosh_distance(code, vector, model), frosh_info(sketch or model), frosh_version().";

/// Reads a model of either kind.
async fn model(context: &SessionContext, name: &str) -> Result<Model> {
    let bytes = output::read(context, name).await?;
    Model::from_bytes(&bytes).with_context(|| name.to_owned())
}

/// A name for the jobs of this run, by which they are found among others.
fn job_name(verb: &str) -> String {
    format!("frosh {verb} {}", uuid::Uuid::new_v4())
}
