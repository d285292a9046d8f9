//! `frosh eval`: how good codes are, against exact neighbours.

use super::encode::{check_dim, encode};
use super::search::read_all;
use crate::args::{Common, Reading};
use crate::output::{count, print, print_json, seconds};
use crate::progress::Progress;
use anyhow::{Result, bail};
use clap::Args;
use frosh::{Codes, Evaluation, ExactSearch, Hasher, Pool, Rows, Truth};
use frosh_io::{Batch, Vectors, for_values, rows};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Instant;

/// Measure a model: MAP, precision-recall area and recall against exact neighbours.
#[derive(Args)]
#[command(after_help = "Examples:
  frosh eval model.frosh --base vectors.npy --queries q.npy
  frosh eval model.frosh --base vectors.npy --held-out 500     queries taken out of the base
  frosh eval model.frosh --base vectors.npy --truth 100 --json

MAP is the mean over queries of the average precision over the whole ranking by code, ties in expectation.
Recall@k is the share of the k exact nearest among the first k by code; 'reranked' looks at --oversample
times as many candidates, which exact re-ranking puts in order.")]
pub(crate) struct Eval {
    /// The model file
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// Files, folders or patterns of the vectors to be searched
    #[arg(long, required = true, num_args = 1.., value_name = "DATA")]
    base: Vec<String>,
    /// Query vectors; without them, some rows of the base are held out
    #[arg(long, num_args = 1.., value_name = "DATA", conflicts_with = "held_out")]
    queries: Vec<String>,
    /// Rows of the base to hold out as queries
    #[arg(long, default_value_t = 300, value_name = "N")]
    held_out: usize,
    /// What counts as relevant for MAP: a share of the base such as 2%, or a number of nearest rows
    #[arg(long, default_value = "2%", value_name = "N|N%", value_parser = truth)]
    truth: Truth,
    /// The k of recall@k
    #[arg(short, default_value = "1,10,100", value_delimiter = ',', value_name = "K,...",
          value_parser = clap::value_parser!(u32).range(1..))]
    k: Vec<u32>,
    /// Candidates for each neighbour wanted, for recall after re-ranking
    #[arg(long, default_value_t = 4, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..))]
    oversample: u32,
    /// Seed of the choice of held-out rows
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
    #[command(flatten)]
    reading: Reading,
}

fn truth(text: &str) -> Result<Truth, String> {
    let bad = || format!("{text:?} is neither a number of rows nor a share such as 2%");
    let truth = match text.strip_suffix('%') {
        Some(share) => Truth::TopShare(share.trim().parse::<f64>().map_err(|_| bad())? / 100.0),
        None => Truth::Nearest(text.parse().map_err(|_| bad())?),
    };
    match truth {
        Truth::TopShare(share) if !(share > 0.0 && share <= 1.0) => Err(bad()),
        Truth::Nearest(0) => Err(bad()),
        other => Ok(other),
    }
}

impl Eval {
    pub(crate) fn run(&self, common: &Common) -> Result<()> {
        let start = Instant::now();
        let hasher = Hasher::load(&self.model)?;
        let pool = Pool::new(common.threads)?;
        let base = Vectors::open(&self.base, &self.reading.options(false))?;
        check_dim(&hasher, &self.model, &base)?;
        if base.files().iter().any(|file| file.path.as_os_str() == "-") {
            bail!(
                "the base is read twice, so it cannot be standard input: save it as a file first"
            );
        }
        let (held, queries) = self.queries(&hasher, &base, common)?;
        let queries = Rows::new(&queries, hasher.dim())?;

        let mut codes: Option<Codes> = None;
        let mut progress = Progress::new("encoding", base.rows(), 0, common.quiet);
        each_kept(&base, &held, &mut progress, |batch| {
            let more = encode(&hasher, &pool, batch)?;
            match &mut codes {
                None => codes = Some(more),
                Some(all) => all.append(&more)?,
            }
            Ok(())
        })?;
        drop(progress);
        let Some(codes) = codes else { bail!("the base has no rows beside the queries") };

        let most = self.k.iter().max().map_or(0, |k| *k as usize).min(codes.len());
        let deepest = self.truth.count(codes.len()).max(most);
        let mut exact = ExactSearch::new(queries, deepest, hasher.metric(), &pool)?;
        let mut progress = Progress::new("exact search", base.rows(), 0, common.quiet);
        each_kept(&base, &held, &mut progress, |batch| {
            for_values!(batch.values(), v => exact.push(rows(v, batch.dim())))
                .map_err(|e| batch.explain(e, 0).without_skipping().into())
        })?;
        drop(progress);
        let near: Vec<Vec<u64>> =
            exact.finish().iter().map(|found| found.iter().map(|f| f.id).collect()).collect();
        let asked = hasher.encode_on(&pool, queries)?;
        let result = Evaluation::by_neighbours(&asked, &codes, self.truth, &near, &pool)?;
        self.report(common, &result, start.elapsed().as_secs_f64())
    }

    /// The queries, and which rows of the base they are.
    fn queries(
        &self,
        hasher: &Hasher,
        base: &Vectors,
        common: &Common,
    ) -> Result<(BTreeSet<u64>, Vec<f64>)> {
        if !self.queries.is_empty() {
            let queries = Vectors::open(&self.queries, &self.reading.options(false))?;
            check_dim(hasher, &self.model, &queries)?;
            let mut progress = Progress::new("queries", queries.rows(), 0, common.quiet);
            return Ok((BTreeSet::new(), read_all(&queries, &mut progress)?));
        }
        let rows = match base.rows() {
            Some(rows) => rows,
            None => {
                let mut batches = base.batches();
                let mut rows = 0;
                while let Some(batch) = batches.next()? {
                    rows += batch.len() as u64;
                }
                rows
            }
        };
        let wanted = self.held_out as u64;
        if wanted == 0 || wanted > rows / 2 {
            bail!("cannot hold out {wanted} of {rows} rows as queries: at most half of them");
        }
        let mut held = BTreeSet::new();
        for draw in 0u64.. {
            if held.len() == self.held_out {
                break;
            }
            let bytes = [self.seed.to_le_bytes(), draw.to_le_bytes()].concat();
            held.insert(xxhash_rust::xxh3::xxh3_64(&bytes) % rows);
        }
        let ids: Vec<u64> = held.iter().copied().collect();
        let mut values = Vec::with_capacity(ids.len() * base.dim());
        base.visit(&ids, |_, row| values.extend_from_slice(row))?;
        Ok((held, values))
    }

    fn report(&self, common: &Common, result: &Evaluation, elapsed: f64) -> Result<()> {
        let reranked = |k: u32| {
            let candidates = k as usize * self.oversample as usize;
            result.recall_after_reranking(k as usize, candidates)
        };
        if common.json {
            let by_k = |value: &dyn Fn(u32) -> Option<f64>| -> serde_json::Value {
                self.k.iter().map(|k| (k.to_string(), json!(value(*k)))).collect()
            };
            let curve: Vec<_> =
                result.curve().iter().map(|p| json!([p.recall, p.precision])).collect();
            return print_json(&json!({
                "map": result.map(),
                "pooled_area": result.pooled_area(),
                "interpolated": result.interpolated(),
                "recall": by_k(&|k| result.recall(k as usize)),
                "recall_reranked": by_k(&reranked),
                "oversample": self.oversample,
                "queries": result.queries(),
                "base": result.base(),
                "bits": result.bits(),
                "bytes_per_row": result.bits().div_ceil(8),
                "truth": result.truth().to_string(),
                "curve": curve,
                "seconds": elapsed,
            }));
        }
        let mut text = format!(
            "{} queries against {} rows, {} bits, truth: {} ({})\n\n\
             MAP                 {:.3}\n\
             pooled PR area      {:.3}\n\
             interpolated        {:.3}\n\n\
             {:>8}  {:>8}  {:>9}\n",
            count(result.queries() as u64),
            count(result.base() as u64),
            result.bits(),
            result.truth(),
            seconds(elapsed),
            result.map(),
            result.pooled_area(),
            result.interpolated(),
            "k",
            "recall",
            format!("reranked x{}", self.oversample),
        );
        for &k in &self.k {
            let show = |x: Option<f64>| x.map_or("-".into(), |x| format!("{x:.3}"));
            let recall = show(result.recall(k as usize));
            text += &format!("{k:>8}  {recall:>8}  {:>9}\n", show(reranked(k)));
        }
        print(&text)
    }
}

/// Goes through the rows of the base but those held out.
fn each_kept(
    base: &Vectors,
    held: &BTreeSet<u64>,
    progress: &mut Progress,
    mut take: impl FnMut(&Batch) -> Result<()>,
) -> Result<()> {
    let mut batches = base.batches();
    let mut at = 0u64;
    while let Some(batch) = batches.next()? {
        let end = at + batch.len() as u64;
        let mut inside = held.range(at..end).map(|id| (id - at) as usize).peekable();
        if inside.peek().is_none() {
            take(batch)?;
        } else {
            // While rows still have their numbers.
            for_values!(batch.values(), v => rows(v, batch.dim()).check())
                .map_err(|e| batch.explain(e, 0).without_skipping())?;
            let kept = batch.without(inside);
            if !kept.is_empty() {
                take(&kept)?;
            }
        }
        progress.add(batch.len());
        at = end;
    }
    Ok(())
}
