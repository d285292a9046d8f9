//! What a search is asked: the queries, how many neighbours or how near, among which; and printing what it found.
//! What `search` and `index search` share.

use crate::args::{Common, Reading};
use crate::output::print;
use crate::progress::Progress;
use crate::verbs::encode::check_dim;
use anyhow::{Result, bail};
use clap::Args;
use frosh::{Found, Hasher, IdSet, Neighbour, Pool, Queries, Ranking, Rows, Scored};
use frosh_io::Vectors;
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What is asked.
#[derive(Args)]
pub(crate) struct QueryArgs {
    /// Files, folders or patterns of query vectors
    #[arg(long, required = true, num_args = 1.., value_name = "DATA")]
    queries: Vec<OsString>,
    /// Neighbours for each query
    #[arg(short, default_value_t = 10, value_name = "K",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) k: u32,
    /// All codes that differ from the query's in at most so many bits, instead of the nearest k
    #[arg(long, value_name = "BITS", conflicts_with_all = ["k", "rank"])]
    pub(crate) radius: Option<u32>,
    /// Find only these ids: a file with one a line, or a .npy array of integers
    #[arg(long, value_name = "FILE")]
    only: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) reading: Reading,
}

/// Queries as they came, and made ready.
pub(crate) struct Asked {
    pub(crate) values: Vec<f64>,
    pub(crate) queries: Queries,
    /// The ids that may be found.
    pub(crate) only: Option<IdSet>,
}

impl QueryArgs {
    /// Reads the queries for this model, which is in the file or folder `whose`.
    pub(crate) fn read(
        &self,
        hasher: &Hasher,
        whose: &Path,
        pool: &Pool,
        common: &Common,
    ) -> Result<Asked> {
        let vectors = Vectors::open(&self.queries, &self.reading.options(false))?;
        check_dim(hasher, whose, &vectors)?;
        let only = self.only.as_deref().map(frosh_io::whole_numbers::<u64>).transpose()?;
        let only = only.map(|ids| ids.into_iter().collect());
        let mut progress = Progress::new("queries", vectors.rows(), 0, common.quiet);
        let values = read_all(&vectors, &mut progress)?;
        drop(progress);
        let queries = hasher.queries(pool, Rows::new(&values, hasher.dim())?)?;
        Ok(Asked { values, queries, only })
    }
}

/// Prints the best rows by a ranking.
pub(crate) fn print_scored(common: &Common, found: &[Vec<Scored>], rank: Ranking) -> Result<()> {
    let whole = rank == Ranking::Hamming;
    print_all(common, found, |n| {
        let score = if whole { json!(n.score as u32) } else { json!(n.score) };
        (n.id, score, n.score.to_string())
    })
}

/// Prints rows in exact order.
pub(crate) fn print_exact(common: &Common, found: &[Vec<Found>]) -> Result<()> {
    print_all(common, found, |n| (n.id, json!(n.distance), (n.distance as f32).to_string()))
}

/// Prints what lies within a radius.
pub(crate) fn print_near(common: &Common, found: &[Vec<Neighbour>]) -> Result<()> {
    print_all(common, found, |n| (n.id, json!(n.distance), n.distance.to_string()))
}

/// All values of some vectors.
pub(crate) fn read_all(vectors: &Vectors, progress: &mut Progress) -> Result<Vec<f64>> {
    let mut values = Vec::new();
    let mut batches = vectors.batches();
    while let Some(batch) = batches.next()? {
        batch.check()?;
        values.extend(batch.values().to_f64());
        progress.add(batch.len());
    }
    if values.is_empty() {
        bail!("{} has no rows", vectors.files()[0].path.display());
    }
    Ok(values)
}

/// One line for each query (JSON) or for each neighbour (text).
fn print_all<T>(
    common: &Common,
    found: &[Vec<T>],
    parts: impl Fn(&T) -> (u64, serde_json::Value, String),
) -> Result<()> {
    let mut text = String::new();
    if !common.json {
        text += "query\trank\tid\tdistance\n";
    }
    for (query, found) in found.iter().enumerate() {
        if common.json {
            let (ids, distances): (Vec<_>, Vec<_>) =
                found.iter().map(|n| (parts(n).0, parts(n).1)).unzip();
            text += &format!("{}\n", json!({"query": query, "ids": ids, "distances": distances}));
        } else {
            for (rank, n) in found.iter().enumerate() {
                let (id, _, distance) = parts(n);
                text += &format!("{query}\t{}\t{id}\t{distance}\n", rank + 1);
            }
        }
        if text.len() > 1 << 16 {
            print(&text)?;
            text.clear();
        }
    }
    print(&text)
}
