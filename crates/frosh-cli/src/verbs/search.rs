//! `frosh search`: neighbours of query vectors, by their codes; optionally put in exact order by the vectors.

use super::encode::check_dim;
use crate::args::{Common, names};
use crate::query_args::{QueryArgs, print_exact, print_near, print_scored};
use anyhow::{Result, bail};
use clap::Args;
use frosh::{Codes, Found, Hasher, Metric, Pool, Ranking, Scored};
use frosh_io::Vectors;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// Find the nearest codes for query vectors.
#[derive(Args)]
#[command(after_help = "Examples:
  frosh search model.frosh codes.frosh --queries q.npy -k 10
  frosh search model.frosh codes.frosh --queries q.npy --rerank vectors.npy --oversample 10
  frosh search model.frosh codes.frosh --queries q.npy --rank estimated     codes made with --factors
  frosh search model.frosh codes.frosh --queries q.npy --radius 5 --only ids.txt
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
    /// How codes are put in order: asymmetric has float queries, estimated needs codes with factors too
    #[arg(long, default_value_t = Ranking::Hamming, value_name = "NAME", ignore_case = true,
          value_parser = names::<Ranking>(Ranking::NAMES))]
    rank: Ranking,
    /// The vectors that were encoded: look up the best candidates there and put them in exact order
    #[arg(long, num_args = 1.., value_name = "DATA", conflicts_with = "radius")]
    rerank: Vec<OsString>,
    /// With --rerank: candidates for each neighbour wanted
    #[arg(long, default_value_t = 4, value_name = "N", requires = "rerank",
          value_parser = clap::value_parser!(u32).range(1..))]
    oversample: u32,
    #[command(flatten)]
    query_args: QueryArgs,
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
        let pool = Pool::new(common.threads)?;
        let asked = self.query_args.read(&hasher, &self.model, &pool, common)?;
        let (k, only) = (self.query_args.k as usize, asked.only.as_ref());
        if let Some(radius) = self.query_args.radius {
            let queries = asked.queries.codes();
            let found = match only {
                Some(only) => codes.within_among(&pool, queries, radius, only)?,
                None => codes.within_on(&pool, queries, radius)?,
            };
            return print_near(common, &found);
        }
        if self.rerank.is_empty() {
            let found = codes.ranked_among(&pool, &asked.queries, self.rank, k, only)?;
            return print_scored(common, &found, self.rank);
        }
        let base = Vectors::open(&self.rerank, &self.query_args.reading.options(false))?;
        check_dim(&hasher, &self.model, &base)?;
        if let Some(rows) = base.rows().filter(|rows| *rows != codes.len() as u64) {
            bail!(
                "{} has {rows} rows, but {} holds {} codes: --rerank needs the vectors that were encoded",
                self.rerank[0].display(),
                self.codes.display(),
                codes.len()
            );
        }
        let wide = k.saturating_mul(self.oversample as usize);
        let found = codes.ranked_among(&pool, &asked.queries, self.rank, wide, only)?;
        let found = rerank(&base, &asked.values, hasher.metric(), &found, k)?;
        print_exact(common, &found)
    }
}

/// Exact squared distances of the candidates, and the best `k` of them by (distance, id).
fn rerank(
    base: &Vectors,
    queries: &[f64],
    metric: Metric,
    candidates: &[Vec<Scored>],
    k: usize,
) -> Result<Vec<Vec<Found>>> {
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
    let mut exact: Vec<Vec<Found>> = vec![Vec::new(); candidates.len()];
    let ids: Vec<u64> = wanted.keys().copied().collect();
    base.visit(&ids, |id, row| {
        let own = scale(row);
        for &query in wanted.get(&id).into_iter().flatten() {
            let values = queries[query * dim..][..dim].iter().zip(row);
            let difference = |(q, x): (&f64, &f64)| q * scales[query] - x * own;
            let distance = values.map(|pair| difference(pair).powi(2)).sum();
            exact[query].push(Found { distance, id });
        }
    })?;
    for found in &mut exact {
        found.sort_by(|a, b| a.distance.total_cmp(&b.distance).then(a.id.cmp(&b.id)));
        found.truncate(k);
    }
    Ok(exact)
}
