//! `frosh eval`: how good codes are, against exact neighbours.

use crate::args::{Common, names};
use crate::ground::{self, GroundArgs};
use crate::output::{count, print, print_json, seconds};
use anyhow::Result;
use clap::Args;
use frosh::{
    Codes, CurvePoint, Evaluation, Hasher, Pool, Queries, RankedEvaluation, Ranking, Truth,
};
use serde_json::{Value, json};
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
    #[command(flatten)]
    ground: GroundArgs,
    /// What counts as relevant for MAP: a share of the base such as 2%, or a number of nearest rows
    #[arg(long, default_value = "2%", value_name = "N|N%", value_parser = truth)]
    truth: Truth,
    /// The k of recall@k
    #[arg(short, default_value = "1,10,100", value_delimiter = ',', value_name = "K,...",
          value_parser = clap::value_parser!(u32).range(1..))]
    k: Vec<u32>,
    /// How codes are put in order; by default every way that the model can
    #[arg(long, value_delimiter = ',', value_name = "NAME,...", ignore_case = true,
          value_parser = names::<Ranking>(&["hamming", "asymmetric", "estimated"]))]
    rank: Vec<Ranking>,
    /// Candidates for each neighbour wanted, for recall after re-ranking
    #[arg(long, default_value_t = 4, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..))]
    oversample: u32,
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
        let ground = self.ground.open(hasher.dim(), &self.model.display().to_string(), common)?;
        let queries = ground.queries()?;
        let rankings = ground::rankings(&self.rank, &hasher);
        let codes = ground.encode(&hasher, &pool, rankings.contains(&Ranking::Estimated))?;
        let most = self.k.iter().max().map_or(0, |k| *k as usize).min(codes.len());
        let deepest = self.truth.count(codes.len()).max(most);
        let near = ground.nearest(deepest, hasher.metric(), &pool)?;
        let asked = hasher.queries(&pool, queries)?;
        let mut lines = Vec::new();
        for ranking in rankings {
            lines.push(self.line(ranking, &asked, &codes, &near, &pool)?);
        }
        self.report(common, &hasher, &codes, queries.len(), &lines, start.elapsed().as_secs_f64())
    }

    fn line(
        &self,
        ranking: Ranking,
        asked: &Queries,
        codes: &Codes,
        near: &[Vec<u64>],
        pool: &Pool,
    ) -> Result<Line> {
        let with = |recall: &dyn Fn(usize, usize) -> Option<f64>| -> Vec<Recall> {
            let over = self.oversample as usize;
            self.k.iter().map(|k| (recall(*k as usize, 1), recall(*k as usize, over))).collect()
        };
        let plain = codes.bytes_per_row();
        if ranking == Ranking::Hamming {
            let result = Evaluation::by_neighbours(asked.codes(), codes, self.truth, near, pool)?;
            return Ok(Line {
                ranking,
                bytes: plain,
                map: result.map(),
                interpolated: result.interpolated(),
                recall: with(&|k, over| match over {
                    1 => result.recall(k),
                    _ => result.recall_after_reranking(k, k * over),
                }),
                pooled: Some((result.pooled_area(), result.curve())),
            });
        }
        let result = RankedEvaluation::new(asked, codes, ranking, self.truth, near, pool)?;
        let bytes =
            if ranking == Ranking::Estimated { codes.stored_bytes_per_row() } else { plain };
        Ok(Line {
            ranking,
            bytes,
            map: result.map(),
            interpolated: result.interpolated(),
            recall: with(&|k, over| result.recall_after_reranking(k, k * over)),
            pooled: None,
        })
    }

    fn report(
        &self,
        common: &Common,
        hasher: &Hasher,
        codes: &Codes,
        queries: usize,
        lines: &[Line],
        elapsed: f64,
    ) -> Result<()> {
        if common.json {
            let all: Vec<Value> = lines.iter().map(|line| line.json(&self.k)).collect();
            // The first ranking's figures stand for the model.
            let mut object = all.first().cloned().unwrap_or_default();
            object["rankings"] = json!(all);
            object["oversample"] = json!(self.oversample);
            object["queries"] = json!(queries);
            object["base"] = json!(codes.len());
            object["bits"] = json!(hasher.bits());
            object["truth"] = json!(self.truth.to_string());
            object["seconds"] = json!(elapsed);
            return print_json(&object);
        }
        let mut text = format!(
            "{} queries against {} rows, {} bits; relevant for MAP: {} ({})\n\n{:<12}{:>7}{:>8}",
            count(queries as u64),
            count(codes.len() as u64),
            hasher.bits(),
            self.truth,
            seconds(elapsed),
            "ranking",
            "bytes",
            "MAP",
        );
        for k in &self.k {
            text += &format!("{:>12}{:>8}", format!("recall@{k}"), format!("x{}", self.oversample));
        }
        text.push('\n');
        for line in lines {
            text += &format!("{:<12}{:>7}{:>8.3}", line.ranking, line.bytes, line.map);
            let show = |x: Option<f64>| x.map_or("-".into(), |x| format!("{x:.3}"));
            for (plain, over) in &line.recall {
                text += &format!("{:>12}{:>8}", show(*plain), show(*over));
            }
            text.push('\n');
        }
        text += &format!(
            "\nx{}: recall after the best {} times as many candidates are put in exact order\n",
            self.oversample, self.oversample
        );
        print(&text)
    }
}

/// Recall, and recall after re-ranking, where enough neighbours are known.
type Recall = (Option<f64>, Option<f64>);

/// What was measured of one ranking.
struct Line {
    ranking: Ranking,
    /// Stored for each vector, factors included.
    bytes: usize,
    map: f64,
    interpolated: f64,
    /// For each k: recall, and recall after re-ranking.
    recall: Vec<Recall>,
    /// Area and points of the pooled curve.
    pooled: Option<(f64, Vec<CurvePoint>)>,
}

impl Line {
    fn json(&self, ks: &[u32]) -> Value {
        let by_k = |value: fn(&Recall) -> Option<f64>| -> Value {
            ks.iter().zip(&self.recall).map(|(k, r)| (k.to_string(), json!(value(r)))).collect()
        };
        let mut object = json!({
            "ranking": self.ranking.as_str(),
            "bytes_per_row": self.bytes,
            "map": self.map,
            "interpolated": self.interpolated,
            "recall": by_k(|r| r.0),
            "recall_reranked": by_k(|r| r.1),
        });
        if let Some((area, curve)) = &self.pooled {
            object["pooled_area"] = json!(area);
            let points: Vec<_> = curve.iter().map(|p| json!([p.recall, p.precision])).collect();
            object["curve"] = json!(points);
        }
        object
    }
}
