//! `frosh calibrate`: how many candidates re-ranking needs for a recall, and with which bits or bytes.

use crate::args::{Common, Encoding, names, possible_bytes};
use crate::choice;
use crate::eval_set::{self, EvalSet, EvalSetArgs};
use crate::output::{count, print, print_json, seconds};
use crate::skipping::count_of;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use frosh::{AnyFile, Model, RankedEvaluation, Ranking, Sketch, Truth};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Instant;

/// Find how many candidates must be put in exact order to reach a recall; given a sketch, with which bits or bytes.
#[derive(Args)]
#[command(after_help = "Examples:
  frosh calibrate model.frosh --base vectors.npy --recall 0.95
  frosh calibrate all.sketch --base vectors.npy --bits 32,64,128 -k 100
  frosh calibrate all.sketch --base vectors.npy --bits 64 --bytes 8,16

For every ranking it prints the candidates (and the --oversample for `frosh search --rerank`) with which exact
re-ranking finds that share of the true k nearest, on queries that are not in the base. A recall measured with few
queries is uncertain: its standard error is told, and the candidates reach the share and this error above it.")]
pub(crate) struct Calibrate {
    /// A model file, or a sketch to try several numbers of bits and bytes
    #[arg(value_name = "MODEL|SKETCH")]
    file: PathBuf,
    /// The recall to reach
    #[arg(long, default_value_t = 0.95, value_name = "SHARE", value_parser = share)]
    recall: f64,
    /// Neighbours for each query
    #[arg(short, default_value_t = 10, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    k: u32,
    /// With a sketch: the numbers of bits to try; without --bytes, 32,64,128 by default
    #[arg(long, short, value_delimiter = ',', value_name = "N,...")]
    bits: Vec<usize>,
    /// With a sketch: the bytes of quantisers to try
    #[arg(long, value_delimiter = ',', value_name = "N,...", value_parser = possible_bytes)]
    bytes: Vec<usize>,
    /// Most candidates for each neighbour that a choice may need
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    most: u32,
    /// How codes are put in order; by default every way that the model can
    #[arg(long, value_delimiter = ',', value_name = "NAME,...", ignore_case = true,
          value_parser = names::<Ranking>(Ranking::NAMES))]
    rank: Vec<Ranking>,
    #[command(flatten)]
    encoding: Encoding,
    #[command(flatten)]
    eval_set: EvalSetArgs,
}

/// Bits to try if nothing is asked for.
const DEFAULT_BITS: [usize; 3] = [32, 64, 128];

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err("expected a share above 0 and at most 1, such as 0.95".into()),
    }
}

/// One line of the table.
struct Line {
    /// The kind of the model, in JSON.
    kind: &'static str,
    bits: usize,
    ranking: Ranking,
    bytes: usize,
    plain: f64,
    candidates: usize,
    /// Candidates that reach the recall on these queries, without a margin.
    bare: usize,
    /// Recall after these candidates were put in exact order, and its standard error.
    reached: f64,
    error: f64,
}

impl Line {
    fn oversample(&self, k: u32) -> usize {
        self.candidates.div_ceil(k as usize)
    }

    /// The option of `train` and `fit` that gives such codes.
    fn size(&self) -> String {
        match self.kind {
            choice::SIGNS => format!("--bits {}", self.bits),
            _ => format!("--bytes {}", self.bits / 8),
        }
    }
}

impl Calibrate {
    pub(crate) fn run(&self, common: &Common) -> Result<()> {
        let start = Instant::now();
        let asked = !self.bits.is_empty() || !self.bytes.is_empty();
        let models: Vec<Model> = match AnyFile::load(&self.file)? {
            Some(AnyFile::Hasher(_) | AnyFile::Quantizer(_)) if asked => bail!(
                "{}: is a model, whose codes have one size: leave out --bits and --bytes, or give a sketch",
                self.file.display()
            ),
            Some(AnyFile::Hasher(hasher)) => vec![(*hasher).into()],
            Some(AnyFile::Quantizer(quantizer)) => vec![(*quantizer).into()],
            Some(AnyFile::Sketch(sketch)) => self.models(&sketch)?,
            _ => bail!("{}: is neither a model nor a sketch", self.file.display()),
        };
        let models: Vec<Model> = models.into_iter().map(|m| self.encoding.set(m)).collect();
        let (dim, metric) = (models[0].dim(), models[0].metric());
        let eval_set = self.eval_set.open(dim, &self.file.display().to_string(), None, common)?;
        let k = self.k as usize;
        let near = eval_set.nearest(k, metric)?;
        let mut lines = Vec::new();
        let mut base = 0;
        for model in &models {
            let rankings = eval_set::rankings(&self.rank, model);
            let codes = eval_set.encode(model, rankings.contains(&Ranking::Estimated))?;
            base = codes.len();
            if base < k {
                bail!("the base has only {base} rows beside the queries: ask for a smaller -k");
            }
            let asked = model.queries(eval_set.queries()?)?;
            for ranking in rankings {
                let truth = Truth::Nearest(k);
                let result = RankedEvaluation::new(&asked, &codes, ranking, truth, &near)?;
                let bytes = match ranking {
                    Ranking::Estimated => codes.stored_bytes_per_row(),
                    _ => codes.bytes_per_row(),
                };
                let candidates = self.candidates(&result, base);
                lines.push(Line {
                    kind: choice::kind(model),
                    bits: model.bits(),
                    ranking,
                    bytes,
                    plain: result.recall(k).unwrap_or(0.0),
                    candidates,
                    bare: result.candidates_for(k, self.recall).unwrap_or(base),
                    reached: result.recall_after_reranking(k, candidates).unwrap_or(0.0),
                    error: result.recall_error(k, candidates).unwrap_or(0.0),
                });
            }
        }
        let queries = eval_set.queries()?.len();
        self.report(common, &lines, &eval_set, queries, base, start.elapsed().as_secs_f64())
    }

    /// The fewest candidates whose recall is above the one asked for by its standard error: other queries than these are
    /// then likely to reach it too.
    fn candidates(&self, result: &RankedEvaluation, base: usize) -> usize {
        let k = self.k as usize;
        let enough = |candidates: usize| {
            let recall = result.recall_after_reranking(k, candidates).unwrap_or(0.0);
            recall - result.recall_error(k, candidates).unwrap_or(0.0) >= self.recall
        };
        let (mut few, mut many) = (result.candidates_for(k, self.recall).unwrap_or(base), base);
        if enough(few) {
            return few;
        }
        // `few` are not enough, and `many` are: with all rows, recall is 1 without an error.
        while many - few > 1 {
            let middle = few + (many - few) / 2;
            if enough(middle) {
                many = middle;
            } else {
                few = middle;
            }
        }
        many
    }

    fn models(&self, sketch: &Sketch) -> Result<Vec<Model>> {
        let bits: &[usize] = match (self.bits.is_empty(), self.bytes.is_empty()) {
            (true, true) => &DEFAULT_BITS,
            _ => &self.bits,
        };
        let hashers = bits.iter().map(|bits| sketch.hasher(*bits).map(Model::from));
        let quantizers = self.bytes.iter().map(|bytes| sketch.quantizer(*bytes).map(Model::from));
        let models = hashers.chain(quantizers).collect::<frosh::Result<_>>();
        models.with_context(|| self.file.display().to_string())
    }

    /// The fewest bytes that stay within `--most`; where none do, the fewest candidates.
    fn choice<'a>(&self, lines: &'a [Line]) -> Option<&'a Line> {
        let within = |line: &&Line| line.oversample(self.k) <= self.most as usize;
        let cheapest = lines.iter().filter(within).min_by_key(|line| (line.bytes, line.candidates));
        cheapest.or_else(|| lines.iter().min_by_key(|line| line.candidates))
    }

    fn report(
        &self,
        common: &Common,
        lines: &[Line],
        eval_set: &EvalSet,
        queries: usize,
        base: usize,
        elapsed: f64,
    ) -> Result<()> {
        let choice = self.choice(lines);
        if common.json {
            let object = |line: &Line| {
                json!({
                    "kind": line.kind,
                    "bits": line.bits,
                    "ranking": line.ranking.as_str(),
                    "bytes_per_row": line.bytes,
                    "recall": line.plain,
                    "candidates": line.candidates,
                    "candidates_on_these_queries": line.bare,
                    "oversample": line.oversample(self.k),
                    "recall_reranked": line.reached,
                    "standard_error": line.error,
                })
            };
            return print_json(&json!({
                "recall": self.recall,
                "k": self.k,
                "queries": queries,
                "base": base,
                "left_out": count_of(eval_set.left_out()),
                "left_out_queries": count_of(eval_set.left_out_queries()),
                "table": lines.iter().map(object).collect::<Vec<Value>>(),
                "choice": choice.map(object),
                "seconds": elapsed,
            }));
        }
        let mut text = format!(
            "recall {} of the nearest {}, {} queries against {} rows ({})\n\n{:<12}{:<12}{:>7}{:>12}{:>12}{:>12}{:>13}\n",
            self.recall,
            self.k,
            count(queries as u64),
            count(base as u64),
            seconds(elapsed),
            "codes",
            "ranking",
            "bytes",
            format!("recall@{}", self.k),
            "candidates",
            "oversample",
            "recall then"
        );
        for line in lines {
            text += &format!(
                "{:<12}{:<12}{:>7}{:>12.3}{:>12}{:>12}{:>13}\n",
                line.size(),
                line.ranking,
                line.bytes,
                line.plain,
                count(line.candidates as u64),
                count(line.oversample(self.k) as u64),
                format!("{:.3} ± {:.3}", line.reached, line.error)
            );
        }
        text += &format!(
            "\n±: the standard error of a recall measured with {} queries. The candidates\n\
             reach {1} plus this error, so that other queries are likely to reach {1}.\n",
            count(queries as u64),
            self.recall
        );
        if let Some(line) = choice {
            let how = match (line.kind, line.ranking) {
                (choice::SIGNS, Ranking::Estimated) => " (encode with --factors)",
                _ => "",
            };
            text += &format!(
                "\nchoice: {} --rank {} --oversample {}{how}\n",
                line.size(),
                line.ranking,
                line.oversample(self.k)
            );
            if line.oversample(self.k) > self.most as usize {
                text += &format!(
                    "note: nothing stays within {} candidates for each neighbour\n",
                    self.most
                );
            }
        }
        print(&(text + &eval_set.left_out_lines()))
    }
}
