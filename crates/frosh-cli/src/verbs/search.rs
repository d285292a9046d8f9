//! `frosh search`: neighbours of query vectors, by their codes; optionally put in exact order by the vectors.

use super::encode::check_dim;
use crate::args::{Common, names};
use crate::kinds;
use crate::query_args::{QueryArgs, print_hits};
use anyhow::{Result, bail};
use clap::Args;
use frosh::{IdSet, Ranking, Rerank, Rows};
use frosh_io::{IdType, Ids};
use std::ffi::OsString;
use std::path::PathBuf;

/// Find the nearest codes for query vectors.
#[derive(Args)]
#[command(after_help = "Examples:
  frosh search model.frosh codes.frosh --queries q.npy -k 10
  frosh search model.frosh codes.frosh --queries q.npy --rerank vectors.npy
  frosh search model.frosh codes.frosh --queries q.npy --rank hamming
  frosh search model.frosh codes.frosh --queries q.npy --radius 5 --only ids.txt
  frosh search model.frosh codes.frosh --queries q.npy --json | jq .ids

Distances are, by ranking: the bits that differ (hamming), the negated signed sum (asymmetric), an estimate of
the squared Euclidean distance (estimated); with --rerank that distance itself (for cosine: of unit vectors).
Ids are row numbers, from 0. Neighbours come by distance, equal ones by id. With --skip-bad, a query that cannot
be used finds nothing, and the other queries keep their numbers. A row of --rerank that cannot be used is not found.")]
pub(crate) struct Search {
    /// The model file
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// The codes to search, made by that model
    #[arg(value_name = "CODES")]
    codes: PathBuf,
    /// How codes are compared with queries; by default as the model chose. estimated needs codes with factors
    #[arg(long, value_name = "NAME", ignore_case = true,
          value_parser = names::<Ranking>(Ranking::NAMES))]
    rank: Option<Ranking>,
    /// The vectors that were encoded: look up the best candidates there and put them in exact order
    #[arg(long, num_args = 1.., value_name = "DATA", conflicts_with = "radius")]
    rerank: Vec<OsString>,
    /// With --rerank: candidates for each neighbour wanted; by default what the model expects to need for a recall of .9
    #[arg(long, value_name = "N", requires = "rerank",
          value_parser = clap::value_parser!(u32).range(1..))]
    oversample: Option<u32>,
    #[command(flatten)]
    query_args: QueryArgs,
}

impl Search {
    pub(crate) fn run(&self, common: &Common) -> Result<()> {
        let model = kinds::model(&self.model, "frosh search MODEL CODES --queries DATA")?;
        if self.codes.extension().is_some_and(|e| e == "npy") {
            bail!(
                "{}: plain codes do not know their model; search the file that encode writes under a name \
                 that does not end in .npy",
                self.codes.display()
            );
        }
        let codes = kinds::codes(&self.codes)?;
        if codes.hasher() != model.id() {
            bail!(
                "{} was made by model {}, but {} is model {}: encode the vectors with this model",
                self.codes.display(),
                codes.hasher(),
                self.model.display(),
                model.id()
            );
        }
        let asked = self.query_args.read(&model, &self.model, Some(IdType::Number), common)?;
        let only: Option<IdSet> = match &asked.only {
            None => None,
            Some(Ids::Numbers(ids)) => Some(ids.iter().copied().collect()),
            Some(Ids::Names(_)) => {
                bail!("--only: codes have row numbers as ids, and these are text")
            }
        };
        let queries = model.queries(Rows::new(&asked.values, model.dim())?)?;
        let k = self.query_args.k as usize;
        let search = |k| self.query_args.search(k, self.rank, only.as_ref());
        if self.rerank.is_empty() {
            let rank = self.rank.unwrap_or(model.ranking());
            let whole = self.query_args.radius.is_some() || rank == Ranking::Hamming;
            let found = codes.search(&queries, &search(k))?;
            return print_hits(common, &found, &asked.left_out, whole, |_| Ok(None));
        }
        let base = kinds::vectors(
            &self.rerank,
            &self.query_args.reading.options(self.query_args.skipping.skip_bad),
        )?;
        check_dim(&model, &self.model, &base)?;
        if let Some(rows) = base.rows().filter(|rows| *rows != codes.len() as u64) {
            bail!(
                "{} has {rows} rows, but {} holds {} codes: --rerank needs the vectors that were encoded",
                self.rerank[0].display(),
                self.codes.display(),
                codes.len()
            );
        }
        let wide = k.saturating_mul(self.oversample.map_or(model.oversample(), |n| n as usize));
        let candidates = codes.search(&queries, &search(wide))?;
        let rows = Rows::new(&asked.values, model.dim())?;
        let mut rerank = Rerank::new(rows, model.metric(), &candidates)?;
        let mut pushed = Ok(());
        base.visit(&rerank.ids(), |id, row| {
            if pushed.is_ok() {
                pushed = rerank.push(id, row);
            }
        })?;
        pushed?;
        print_hits(common, &rerank.finish(k), &asked.left_out, false, |_| Ok(None))
    }
}
