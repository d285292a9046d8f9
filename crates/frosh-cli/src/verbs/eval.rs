//! `frosh eval`: how good codes are, against exact neighbours or class labels.

use crate::args::{Common, Encoding, names};
use crate::choice;
use crate::eval_set::{self, EvalSetArgs};
use crate::kinds;
use crate::labels::{LabelArgs, Labels};
use crate::output::{count, print, print_json, seconds};
use crate::skipping::count_of;
use anyhow::Result;
use clap::Args;
use frosh::{Codes, CurvePoint, Evaluation, Queries, RankedEvaluation, Ranking, Truth};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Instant;

/// Measure a model: MAP, precision-recall area and recall against exact neighbours, or class labels.
#[derive(Args)]
#[command(after_help = "Examples:
  frosh eval model.frosh --base vectors.npy --queries q.npy
  frosh eval model.frosh --base vectors.npy --held-out 500
  frosh eval model.frosh --base vectors.npy --truth 100 --json
  frosh eval model.frosh --base vectors.npy --effort 32
  frosh eval model.frosh --base vectors.npy --labels classes.npy
  frosh eval model.frosh --base vectors.parquet --label-column category

MAP is the mean over queries of the average precision over the whole ranking by code, ties in expectation.
Recall@k is the share of the k exact nearest among the first k by code; 'reranked' looks at --oversample
times as many candidates, which exact re-ranking puts in order. With --labels, rows of the query's label are
relevant, and precision@k is their share among the first k.

With --skip-bad, rows of the base and queries that cannot be used are left out; --skipped FILE lists those of
the base. Labels are given for all rows all the same.")]
pub(crate) struct Eval {
    /// The model file
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// What counts as relevant for MAP: a share of the base such as 2%, or a number of nearest rows
    #[arg(long, default_value = "2%", value_name = "N|N%", value_parser = truth)]
    truth: Truth,
    /// The k of recall@k, or of precision@k
    #[arg(short, default_value = "1,10,100", value_delimiter = ',', value_name = "K,...",
          value_parser = clap::value_parser!(u32).range(1..))]
    k: Vec<u32>,
    /// How codes are put in order; by default every way that the model can
    #[arg(long, value_delimiter = ',', value_name = "NAME,...", ignore_case = true,
          value_parser = names::<Ranking>(Ranking::NAMES))]
    rank: Vec<Ranking>,
    /// Candidates for each neighbour wanted, for recall after re-ranking
    #[arg(long, default_value_t = 4, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..))]
    oversample: u32,
    #[command(flatten)]
    encoding: Encoding,
    #[command(flatten)]
    eval_set: EvalSetArgs,
    #[command(flatten)]
    labels: LabelArgs,
}

/// What was relevant: the exact neighbours of each query, or labels.
enum Known {
    Neighbours(Vec<Vec<u64>>),
    Labels(Labels),
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
        let model = kinds::model(&self.model, "frosh eval MODEL --base DATA")?;
        let model = self.encoding.set(model);
        let name = self.model.display().to_string();
        let eval_set = self.eval_set.open(model.dim(), &name, self.labels.data_column(), common)?;
        let queries = eval_set.queries()?;
        let rankings = eval_set::rankings(&self.rank, &model);
        let labels = self.labels.open(&eval_set)?;
        let codes = eval_set.encode(&model, rankings.contains(&Ranking::Estimated))?;
        let known = match labels {
            Some(labels) => {
                self.labels.check(&labels, &eval_set, codes.len())?;
                Known::Labels(labels)
            }
            None => {
                let most = self.k.iter().max().map_or(0, |k| *k as usize).min(codes.len());
                let deepest = self.truth.count(codes.len()).max(most);
                Known::Neighbours(eval_set.nearest(deepest, model.metric())?)
            }
        };
        let asked = model.queries(queries)?;
        let mut lines = Vec::new();
        for ranking in rankings {
            lines.push(self.line(ranking, &asked, &codes, &known)?);
        }
        let truth = match known {
            Known::Labels(_) => Truth::Labels,
            Known::Neighbours(_) => self.truth,
        };
        let facts = Facts {
            truth,
            bits: model.bits(),
            size: choice::size_of_code(&model),
            base: codes.len(),
            queries: queries.len(),
            seconds: start.elapsed().as_secs_f64(),
            left_out: count_of(eval_set.left_out()),
            left_out_queries: count_of(eval_set.left_out_queries()),
            left_out_lines: eval_set.left_out_lines(),
        };
        self.report(common, &facts, &lines)
    }

    fn line(
        &self,
        ranking: Ranking,
        asked: &Queries,
        codes: &Codes,
        known: &Known,
    ) -> Result<Line> {
        let over = self.oversample as usize;
        let each = |measure: &dyn Fn(usize) -> Measured| -> Vec<Measured> {
            self.k.iter().map(|k| measure(*k as usize)).collect()
        };
        let plain = codes.bytes_per_row();
        if ranking == Ranking::Hamming {
            let result = match known {
                Known::Neighbours(near) => {
                    Evaluation::by_neighbours(asked.codes(), codes, self.truth, near)?
                }
                Known::Labels(Labels { base, queries }) => {
                    Evaluation::by_labels(asked.codes(), codes, queries, base)?
                }
            };
            return Ok(Line {
                ranking,
                bytes: plain,
                map: result.map(),
                interpolated: result.interpolated(),
                at: each(&|k| Measured {
                    precision: result.precision(k),
                    recall: result.recall(k),
                    reranked: match over {
                        1 => result.recall(k),
                        _ => result.recall_after_reranking(k, k * over),
                    },
                }),
                pooled: Some((result.pooled_area(), result.curve())),
            });
        }
        let result = match known {
            Known::Neighbours(near) => {
                RankedEvaluation::new(asked, codes, ranking, self.truth, near)?
            }
            Known::Labels(Labels { base, queries }) => {
                RankedEvaluation::by_labels(asked, codes, ranking, queries, base)?
            }
        };
        let bytes =
            if ranking == Ranking::Estimated { codes.stored_bytes_per_row() } else { plain };
        Ok(Line {
            ranking,
            bytes,
            map: result.map(),
            interpolated: result.interpolated(),
            at: each(&|k| Measured {
                precision: result.precision(k),
                recall: result.recall(k),
                reranked: result.recall_after_reranking(k, k * over),
            }),
            pooled: None,
        })
    }

    fn report(&self, common: &Common, facts: &Facts, lines: &[Line]) -> Result<()> {
        let labels = facts.truth == Truth::Labels;
        if common.json {
            let all: Vec<Value> = lines.iter().map(|line| line.json(&self.k, labels)).collect();
            // The first ranking's figures stand for the model.
            let mut object = all.first().cloned().unwrap_or_default();
            object["rankings"] = json!(all);
            if !labels {
                object["oversample"] = json!(self.oversample);
            }
            object["queries"] = json!(facts.queries);
            object["base"] = json!(facts.base);
            object["bits"] = json!(facts.bits);
            object["truth"] = if labels { json!("labels") } else { json!(facts.truth.to_string()) };
            object["left_out"] = json!(facts.left_out);
            object["left_out_queries"] = json!(facts.left_out_queries);
            object["seconds"] = json!(facts.seconds);
            return print_json(&object);
        }
        let mut text = format!(
            "{} queries against {} rows, codes of {}; relevant for MAP: {} ({})\n\n{:<12}{:>7}{:>8}",
            count(facts.queries as u64),
            count(facts.base as u64),
            facts.size,
            facts.truth,
            seconds(facts.seconds),
            "ranking",
            "bytes",
            "MAP",
        );
        let over = format!("x{}", self.oversample);
        for k in &self.k {
            text += &match labels {
                true => format!("{:>15}", format!("precision@{k}")),
                false => format!("{:>12}{over:>8}", format!("recall@{k}")),
            };
        }
        text.push('\n');
        for line in lines {
            text += &format!("{:<12}{:>7}{:>8.3}", line.ranking, line.bytes, line.map);
            let show = |x: Option<f64>| x.map_or("-".into(), |x| format!("{x:.3}"));
            for at in &line.at {
                text += &match labels {
                    true => format!("{:>15}", show(at.precision)),
                    false => format!("{:>12}{:>8}", show(at.recall), show(at.reranked)),
                };
            }
            text.push('\n');
        }
        if !labels {
            text += &format!(
                "\n{over}: recall after the best {} times as many candidates are put in exact order\n",
                self.oversample
            );
        }
        print(&(text + &facts.left_out_lines))
    }
}

/// What a report says of all rankings.
struct Facts {
    truth: Truth,
    bits: usize,
    /// The size of a code, in words.
    size: String,
    base: usize,
    queries: usize,
    seconds: f64,
    /// Rows of the base and queries that could not be used, and what is said of them.
    left_out: u64,
    left_out_queries: u64,
    left_out_lines: String,
}

/// What was measured at one k, where it has a meaning.
struct Measured {
    precision: Option<f64>,
    recall: Option<f64>,
    /// Recall after re-ranking.
    reranked: Option<f64>,
}

/// What was measured of one ranking.
struct Line {
    ranking: Ranking,
    /// Stored for each vector, factors included.
    bytes: usize,
    map: f64,
    interpolated: f64,
    /// For each k.
    at: Vec<Measured>,
    /// Area and points of the pooled curve.
    pooled: Option<(f64, Vec<CurvePoint>)>,
}

impl Line {
    fn json(&self, ks: &[u32], labels: bool) -> Value {
        let by_k = |value: fn(&Measured) -> Option<f64>| -> Value {
            ks.iter().zip(&self.at).map(|(k, at)| (k.to_string(), json!(value(at)))).collect()
        };
        let mut object = json!({
            "ranking": self.ranking.as_str(),
            "bytes_per_row": self.bytes,
            "map": self.map,
            "interpolated": self.interpolated,
        });
        if labels {
            object["precision"] = by_k(|at| at.precision);
        } else {
            object["recall"] = by_k(|at| at.recall);
            object["recall_reranked"] = by_k(|at| at.reranked);
        }
        if let Some((area, curve)) = &self.pooled {
            object["pooled_area"] = json!(area);
            let points: Vec<_> = curve.iter().map(|p| json!([p.recall, p.precision])).collect();
            object["curve"] = json!(points);
        }
        object
    }
}
