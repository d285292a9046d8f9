//! `frosh demo`: the whole job on data made on the spot.

mod data;
mod page;

use crate::args::Common;
use crate::output::{count, print, print_json, seconds, size};
use anyhow::{Context as _, Result};
use clap::Args;
use frosh::{
    Config, Evaluation, ExactSearch, Hasher, Method, Metric, Quantizer, RankedEvaluation, Ranking,
    Rows, Sketch, Sketcher, Truth,
};
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

const DIM: usize = 128;
const CLUSTERS: usize = 300;
const QUERIES: usize = 500;
const WORKERS: usize = 5;
/// Fewest bytes of a quantiser's code.
const MIN_BYTES: usize = 4;
/// Candidates for each neighbour wanted, when they are put in exact order.
const OVERSAMPLE: usize = 4;

/// Show the whole job on data made on the spot: train five ways, encode, search, compare.
#[derive(Args)]
#[command(after_help = "Examples:
  frosh demo
  frosh demo --bits 128 --rows 300000 -o demo.html")]
pub(crate) struct Demo {
    /// Bits of a code
    #[arg(long, short, default_value_t = 64, value_name = "N",
          value_parser = clap::value_parser!(u32).range(8..=128))]
    bits: u32,
    /// Rows to make
    #[arg(long, default_value_t = 100_000, value_name = "N",
          value_parser = clap::value_parser!(u32).range(2000..=5_000_000))]
    rows: u32,
    /// The page to write
    #[arg(long, short, default_value = "frosh-demo.html", value_name = "FILE")]
    output: PathBuf,
    /// Seed of the data and of learning
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
}

/// One line of the table.
struct Outcome {
    name: &'static str,
    what: &'static str,
    seconds: f64,
    rows_per_second: f64,
    map: f64,
    recall: f64,
    reranked: f64,
}

impl Demo {
    pub(crate) fn run(&self, common: &Common) -> Result<()> {
        let start = Instant::now();
        let say = |text: String| -> Result<()> {
            if common.quiet || common.json { Ok(()) } else { print(&(text + "\n")) }
        };
        let (rows, bits) = (self.rows as usize, self.bits as usize);
        say(format!(
            "making {} vectors of {DIM} dimensions in {CLUSTERS} clusters ({} raw)",
            count(rows as u64),
            size((rows * DIM * 4) as u64)
        ))?;
        let all = data::vectors(rows + QUERIES, DIM, CLUSTERS, self.seed);
        let (base, queries) = all.split_at(rows * DIM);
        let (base, queries) = (Rows::new(base, DIM)?, Rows::new(queries, DIM)?);

        say(format!("finding the exact neighbours of {QUERIES} queries, to compare with"))?;
        let truth = Truth::TopShare(0.02);
        let mut exact = ExactSearch::new(queries, truth.count(rows), Metric::L2)?;
        exact.push(base)?;
        let near: Vec<Vec<u64>> =
            exact.finish().iter().map(|found| found.iter().map(|f| f.id).collect()).collect();

        say(format!("training, encoding and searching with {bits} bits, five ways\n"))?;
        let mut outcomes = Vec::new();
        for (name, what, method) in [
            ("LSH", "random directions", Some(Method::Lsh)),
            ("OSH", "one pass, no compression", Some(Method::Osh)),
            ("FROSH", "one pass, compressed", Some(Method::Frosh)),
            ("DFROSH", "five workers, merged", None),
        ] {
            let (hasher, seconds) = match method {
                Some(method) => self.train(method, base)?,
                None => self.train_apart(base)?,
            };
            let codes = hasher.encode(base)?;
            let asked = hasher.encode(queries)?;
            let result = Evaluation::by_neighbours(&asked, &codes, truth, &near)?;
            outcomes.push(Outcome {
                name,
                what,
                seconds,
                rows_per_second: rows as f64 / seconds,
                map: result.map(),
                recall: result.recall(10).unwrap_or(0.0),
                reranked: result.recall_after_reranking(10, 10 * OVERSAMPLE).unwrap_or(0.0),
            });
        }
        let bytes = bits.div_ceil(8);
        if bytes >= MIN_BYTES {
            let (quantizer, seconds) = self.train_quantizer(bytes, base)?;
            let (codes, asked) = (quantizer.encode(base)?, quantizer.queries(queries)?);
            let result = RankedEvaluation::new(&asked, &codes, Ranking::Estimated, truth, &near)?;
            outcomes.push(Outcome {
                name: "quantiser",
                what: "bytes instead of bits",
                seconds,
                rows_per_second: rows as f64 / seconds,
                map: result.map(),
                recall: result.recall(10).unwrap_or(0.0),
                reranked: result.recall_after_reranking(10, 10 * OVERSAMPLE).unwrap_or(0.0),
            });
        }
        let page = page::page(&outcomes, rows, bits);
        let whole = frosh::AtomicFile::begin(&self.output)?;
        std::io::Write::write_all(&mut whole.file(), page.as_bytes())
            .with_context(|| self.output.display().to_string())?;
        whole.commit()?;
        self.report(common, &outcomes, start.elapsed().as_secs_f64())
    }

    fn config(&self, method: Method) -> Config {
        let config = Config::new(DIM).method(method).seed(self.seed);
        config.sketch_rows(2 * self.bits as usize)
    }

    fn train(&self, method: Method, base: Rows<'_, f32>) -> Result<(Hasher, f64)> {
        let clock = Instant::now();
        let mut sketcher = Sketcher::new(self.config(method))?;
        sketcher.push(base)?;
        let hasher = sketcher.finish().hasher(self.bits as usize)?;
        Ok((hasher, clock.elapsed().as_secs_f64()))
    }

    fn train_quantizer(&self, bytes: usize, base: Rows<'_, f32>) -> Result<(Quantizer, f64)> {
        let clock = Instant::now();
        let config = Config::new(DIM).seed(self.seed);
        let mut sketcher = Sketcher::new(config.for_quantizer(bytes))?;
        sketcher.push(base)?;
        let quantizer = sketcher.finish().quantizer(bytes)?;
        Ok((quantizer, clock.elapsed().as_secs_f64()))
    }

    /// Five workers, one after the other here; their time is that of the slowest, and of the merge.
    fn train_apart(&self, base: Rows<'_, f32>) -> Result<(Hasher, f64)> {
        let mut slowest = 0f64;
        let mut parts = Vec::new();
        for worker in 0..WORKERS {
            let clock = Instant::now();
            let share = base.len() * worker / WORKERS..base.len() * (worker + 1) / WORKERS;
            let config = self.config(Method::Frosh).worker(worker as u64);
            let mut sketcher = Sketcher::new(config)?;
            sketcher.push(base.slice(share))?;
            parts.push(sketcher.finish());
            slowest = slowest.max(clock.elapsed().as_secs_f64());
        }
        let clock = Instant::now();
        let hasher = Sketch::merge(&parts)?.hasher(self.bits as usize)?;
        Ok((hasher, slowest + clock.elapsed().as_secs_f64()))
    }

    fn report(&self, common: &Common, outcomes: &[Outcome], elapsed: f64) -> Result<()> {
        let bytes = (self.bits as usize).div_ceil(8);
        if common.json {
            let methods: Vec<_> = outcomes
                .iter()
                .map(|o| {
                    json!({
                        "method": o.name, "seconds": o.seconds, "rows_per_second": o.rows_per_second,
                        "bytes_per_row": bytes, "map": o.map, "recall_10": o.recall,
                        "recall_10_reranked": o.reranked,
                    })
                })
                .collect();
            return print_json(&json!({
                "rows": self.rows, "dim": DIM, "bits": self.bits, "methods": methods,
                "page": self.output.display().to_string(), "seconds": elapsed,
            }));
        }
        if common.quiet {
            return Ok(());
        }
        let mut text = format!(
            "{:<10}{:<26}{:>10}{:>14}{:>18}{:>7}{:>11}{:>11}\n",
            "method", "", "training", "rows/s", "bytes a vector", "MAP", "recall@10", "reranked"
        );
        for o in outcomes {
            text += &format!(
                "{:<10}{:<26}{:>10}{:>14}{:>18}{:>7.3}{:>11.3}{:>11.3}\n",
                o.name,
                o.what,
                seconds(o.seconds),
                count(o.rows_per_second as u64),
                format!("{bytes} of {}", DIM * 4),
                o.map,
                o.recall,
                o.reranked
            );
        }
        text += &format!(
            "\nDFROSH's time is that of its slowest worker and the merge. The quantiser (`train --bytes`) ranks by \
             estimated\ndistance, the others by Hamming distance. MAP: truth is the nearest 2 %. Reranked: the best {} by \
             code, put in\nexact order. All in {}. The page: {}\n\n\
             next: frosh train YOUR.npy --bits {} -o model.frosh && frosh eval model.frosh --base YOUR.npy\n",
            10 * OVERSAMPLE,
            seconds(elapsed),
            self.output.display(),
            self.bits,
        );
        print(&text)
    }
}
