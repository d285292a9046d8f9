//! `frosh search`: neighbours of query vectors, by their codes; optionally put in exact order by the vectors.

use super::encode::check_dim;
use crate::args::{Common, Reading, names};
use crate::output::print;
use crate::progress::Progress;
use anyhow::{Result, bail};
use clap::Args;
use frosh::{Codes, Hasher, Metric, Pool, Ranking, Rows, Scored};
use frosh_io::{Vectors, for_values};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Find the nearest codes for query vectors.
#[derive(Args)]
#[command(after_help = "Examples:
  frosh search model.frosh codes.frosh --queries q.npy -k 10
  frosh search model.frosh codes.frosh --queries q.npy --rerank vectors.npy --oversample 10
  frosh search model.frosh codes.frosh --queries q.npy --rank estimated     codes made with --factors
  frosh search model.frosh codes.frosh --queries q.npy --json | jq .ids

Distances are bits that differ; with --rank asymmetric the negated signed sum, with --rank estimated estimates
of the squared Euclidean distance, with --rerank that distance itself (for cosine: of unit vectors).
Ids are row numbers, from 0. Neighbours come by distance, equal ones by id.")]
pub(crate) struct Search {
    /// The model file
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// The codes to search, made by that model
    #[arg(value_name = "CODES")]
    codes: PathBuf,
    /// Files, folders or patterns of query vectors
    #[arg(long, required = true, num_args = 1.., value_name = "DATA")]
    queries: Vec<String>,
    /// Neighbours for each query
    #[arg(short, default_value_t = 10, value_name = "K",
          value_parser = clap::value_parser!(u32).range(1..))]
    k: u32,
    /// How codes are put in order: asymmetric has float queries, estimated needs codes with factors too
    #[arg(long, default_value_t = Ranking::Hamming, value_name = "NAME", ignore_case = true,
          value_parser = names::<Ranking>(&["hamming", "asymmetric", "estimated"]))]
    rank: Ranking,
    /// The vectors that were encoded: look up the best candidates there and put them in exact order
    #[arg(long, num_args = 1.., value_name = "DATA")]
    rerank: Vec<String>,
    /// With --rerank: candidates for each neighbour wanted
    #[arg(long, default_value_t = 4, value_name = "N", requires = "rerank",
          value_parser = clap::value_parser!(u32).range(1..))]
    oversample: u32,
    #[command(flatten)]
    reading: Reading,
}

impl Search {
    pub(crate) fn run(&self, common: &Common) -> Result<()> {
        let hasher = Hasher::load(&self.model)?;
        if self.codes.extension().is_some_and(|e| e == "npy") {
            bail!(
                "{}: plain codes do not know their model; search the file that encode writes under a name \
                 that does not end in .npy",
                self.codes.display()
            );
        }
        let codes = Codes::load(&self.codes)?;
        if codes.hasher() != hasher.id() {
            bail!(
                "{} was made by model {}, but {} is model {}: encode the vectors with this model",
                self.codes.display(),
                codes.hasher(),
                self.model.display(),
                hasher.id()
            );
        }
        let queries = Vectors::open(&self.queries, &self.reading.options(false))?;
        check_dim(&hasher, &self.model, &queries)?;
        let pool = Pool::new(common.threads)?;
        let mut progress = Progress::new("queries", queries.rows(), 0, common.quiet);
        let values = read_all(&queries, &mut progress)?;
        drop(progress);
        let asked = hasher.queries(&pool, Rows::new(&values, hasher.dim())?)?;
        if self.rerank.is_empty() {
            let found = codes.ranked(&pool, &asked, self.rank, self.k as usize)?;
            let whole = self.rank == Ranking::Hamming;
            return print_all(common, &found, |n| {
                let score = if whole { json!(n.score as u32) } else { json!(n.score) };
                (n.id, score, n.score.to_string())
            });
        }
        let base = Vectors::open(&self.rerank, &self.reading.options(false))?;
        check_dim(&hasher, &self.model, &base)?;
        if let Some(rows) = base.rows().filter(|rows| *rows != codes.len() as u64) {
            bail!(
                "{} has {rows} rows, but {} holds {} codes: --rerank needs the vectors that were encoded",
                self.rerank[0],
                self.codes.display(),
                codes.len()
            );
        }
        let wide = (self.k as usize).saturating_mul(self.oversample as usize);
        let found = codes.ranked(&pool, &asked, self.rank, wide)?;
        let found = rerank(&base, &values, hasher.metric(), &found, self.k as usize)?;
        print_all(common, &found, |n| (n.1, json!(n.0), format!("{}", n.0 as f32)))
    }
}

/// All values of some vectors.
pub(crate) fn read_all(vectors: &Vectors, progress: &mut Progress) -> Result<Vec<f64>> {
    let mut values = Vec::new();
    let mut batches = vectors.batches();
    while let Some(batch) = batches.next().map_err(frosh_io::Error::without_skipping)? {
        for_values!(batch.values(), v => {
            let checked = frosh_io::rows(v, batch.dim()).check();
            checked.map_err(|e| batch.explain(e, 0).without_skipping())?;
        });
        values.extend(batch.values().to_f64());
        progress.add(batch.len());
    }
    if values.is_empty() {
        bail!("{} has no rows", vectors.files()[0].path.display());
    }
    Ok(values)
}

/// Exact squared distances of the candidates, and the best `k` of them by (distance, id).
fn rerank(
    base: &Vectors,
    queries: &[f64],
    metric: Metric,
    candidates: &[Vec<Scored>],
    k: usize,
) -> Result<Vec<Vec<(f64, u64)>>> {
    // Each row is read once, for all queries that want it.
    let mut wanted: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (query, found) in candidates.iter().enumerate() {
        found.iter().for_each(|n| wanted.entry(n.id).or_default().push(query));
    }
    let dim = base.dim();
    let scale = |row: &[f64]| match metric {
        Metric::Cosine => {
            let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt();
            if norm > 0.0 { 1.0 / norm } else { 0.0 }
        }
        _ => 1.0,
    };
    let scales: Vec<f64> = queries.chunks_exact(dim).map(scale).collect();
    let mut exact: Vec<Vec<(f64, u64)>> = vec![Vec::new(); candidates.len()];
    let ids: Vec<u64> = wanted.keys().copied().collect();
    base.visit(&ids, |id, row| {
        let own = scale(row);
        for &query in wanted.get(&id).into_iter().flatten() {
            let values = queries[query * dim..][..dim].iter().zip(row);
            let difference = |(q, x): (&f64, &f64)| q * scales[query] - x * own;
            let distance = values.map(|pair| difference(pair).powi(2)).sum();
            exact[query].push((distance, id));
        }
    })?;
    for found in &mut exact {
        found.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        found.truncate(k);
    }
    Ok(exact)
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
