//! How well cheap figures on the sample predict what an old model loses on all rows.
//!
//! A stream is cut at six places. For each pair of places, the model of the earlier one is the old model, and the rows
//! up to the later one are the collection. [`frosh::drift`] measures old model and candidate on the sample. The *true
//! loss* is the MAP of the candidate less the MAP of the old model, for rows held out of the collection, over all other
//! rows of it, with the nearest 2 % of them as the truth.

use super::{Stream, each, view};
use crate::error::{Error, Result};
use crate::plot::{self, Axis, Panel, Point, Series};
use frosh::{
    Config, Drift, ExactSearch, Metric, Model, RankedEvaluation, Ranking, Sketch, Sketcher, Truth,
};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Places where models are made, in tenths of the stream.
const PLACES: [usize; 6] = [1, 2, 3, 5, 7, 10];
/// Queries for the true loss.
const QUERIES: usize = 400;
const TRUTH: Truth = Truth::TopShare(0.02);
/// Losses above this count as losses for the AUC.
const LOSS: f64 = 0.02;
/// Rows of a stream with `quick`.
const QUICK_ROWS: usize = 6000;
/// Styles of the streams in the figure.
const STYLES: [&str; 9] =
    ["OSH", "FROSH", "SGH", "OCH-style", "PCA-ITQ", "PCA-RR", "LSH", "DFROSH", "PCA"];

/// An old model, and the collection at a later time.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Pair {
    /// The stream.
    pub stream: String,
    /// Rows that the old model was learned from.
    pub old_rows: usize,
    /// Rows of the collection.
    pub rows: usize,
    /// MAP of the old model on all rows.
    pub map: f64,
    /// What the old model loses on all rows, compared with the candidate.
    pub loss: f64,
    /// The gap on the sample.
    pub gap: f64,
    /// Its standard error.
    pub gap_error: f64,
    /// Drop of the captured energy on the sample.
    pub energy_drop: f64,
    /// Shift of the mean.
    pub mean_shift: f64,
    /// Whether the candidate was fitted to other rows than those that were measured.
    pub independent: bool,
}

/// How well a figure predicts the loss.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Score {
    /// The figure.
    pub figure: &'static str,
    /// Pearson correlation with the loss.
    pub correlation: f64,
    /// The chance that a pair with a loss above .02 has a larger figure than one without; `None` if all pairs are of
    /// one kind.
    pub auc: Option<f64>,
}

/// All pairs, and how well each figure predicts the loss.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Predictor {
    /// The pairs.
    pub pairs: Vec<Pair>,
    /// The gap first.
    pub scores: Vec<Score>,
    /// Mean of gap less loss.
    pub bias: f64,
}

/// Measures all pairs of all streams in `data`, and writes `drift.csv` and `drift.svg` to the folder `out`.
///
/// # Errors
///
/// [`Error::Usage`] if there is no data. What the library or the system refuses.
pub fn drift_predictor(
    data: &[PathBuf],
    out: &Path,
    bits: usize,
    quick: bool,
    seed: u64,
    progress: &mut dyn FnMut(&str),
) -> Result<Predictor> {
    let most = if quick { QUICK_ROWS } else { usize::MAX };
    let mut pairs = Vec::new();
    each(data, most, seed, progress, &mut |stream, progress| {
        let start = Instant::now();
        let new = of_stream(stream, bits, seed)?;
        let seconds = start.elapsed().as_secs_f64();
        progress(&format!("{}: {} pairs in {seconds:.1} s", stream.name, new.len()));
        pairs.extend(new);
        Ok(())
    })?;
    let result = scored(pairs);
    std::fs::create_dir_all(out).map_err(Error::io(out))?;
    for (name, text) in [("drift.csv", csv(&result.pairs)), ("drift.svg", figure(&result, bits))] {
        let path = out.join(name);
        std::fs::write(&path, text).map_err(Error::io(&path))?;
    }
    Ok(result)
}

/// The pairs of one stream.
fn of_stream(stream: &Stream, bits: usize, seed: u64) -> Result<Vec<Pair>> {
    let (dim, n) = (stream.dim, stream.rows());
    let bits = bits.min(dim);
    let mut sketcher = Sketcher::new(Config::new(dim).sketch_rows(2 * bits).seed(seed))?;
    let mut before: Vec<(usize, Model)> = Vec::new();
    let mut pairs = Vec::new();
    for place in PLACES {
        let rows = n * place / 10;
        let from = sketcher.rows() as usize;
        sketcher.push(view(&stream.first(rows)[from * dim..], dim)?)?;
        let sketch = sketcher.sketch();
        if !before.is_empty() {
            let collection = Collection::new(stream, rows)?;
            pairs.extend(of_place(stream, &collection, &sketch, &before)?);
        }
        before.push((rows, sketch.hasher(bits)?.into()));
    }
    Ok(pairs)
}

fn of_place(
    stream: &Stream,
    collection: &Collection,
    sketch: &Sketch,
    before: &[(usize, Model)],
) -> Result<Vec<Pair>> {
    let ranking = Ranking::Estimated;
    // The candidates of all old models are one, unless their bytes of factors differ.
    let mut refreshed: Option<(frosh::HasherId, f64)> = None;
    let mut pairs = Vec::new();
    for (old_rows, old) in before {
        let Drift {
            candidate,
            gap,
            gap_error,
            mean_shift,
            independent,
            energy,
            refreshed_energy,
            ..
        } = frosh::drift(old, sketch, ranking)?;
        let new = match refreshed {
            Some((id, map)) if id == candidate.id() => map,
            _ => collection.map(&candidate, ranking)?,
        };
        refreshed = Some((candidate.id(), new));
        let map = collection.map(old, ranking)?;
        pairs.push(Pair {
            stream: stream.name.clone(),
            old_rows: *old_rows,
            rows: sketch.rows() as usize,
            map,
            loss: new - map,
            gap,
            gap_error,
            energy_drop: refreshed_energy - energy,
            mean_shift,
            independent,
        });
    }
    Ok(pairs)
}

/// The first rows of a stream: queries at equal distances, all other rows, and the exact neighbours among them.
struct Collection {
    dim: usize,
    base: Vec<f32>,
    queries: Vec<f32>,
    nearest: Vec<Vec<u64>>,
}

impl Collection {
    fn new(stream: &Stream, rows: usize) -> Result<Self> {
        let dim = stream.dim;
        let count = QUERIES.min(rows / 4);
        let (mut base, mut queries) = (Vec::new(), Vec::new());
        for (i, row) in stream.first(rows).chunks_exact(dim).enumerate() {
            // A query is where the number of queries so far goes up by one.
            let held = (i + 1) * count / rows > i * count / rows;
            if held { &mut queries } else { &mut base }.extend_from_slice(row);
        }
        let depth = TRUTH.count(base.len() / dim);
        let mut search = ExactSearch::new(view(&queries, dim)?, depth, Metric::L2)?;
        search.push(view(&base, dim)?)?;
        let ids = |hits: &Vec<frosh::Hit>| hits.iter().map(|hit| hit.id).collect();
        let nearest = search.finish().iter().map(ids).collect();
        Ok(Self { dim, base, queries, nearest })
    }

    fn map(&self, model: &Model, ranking: Ranking) -> Result<f64> {
        let codes = model.encode_with_factors(view(&self.base, self.dim)?)?;
        let queries = model.queries(view(&self.queries, self.dim)?)?;
        Ok(RankedEvaluation::new(&queries, &codes, ranking, TRUTH, &self.nearest)?.map())
    }
}

fn scored(pairs: Vec<Pair>) -> Predictor {
    let losses: Vec<f64> = pairs.iter().map(|pair| pair.loss).collect();
    type Figure = (&'static str, fn(&Pair) -> f64);
    let figures: [Figure; 3] = [
        ("gap", |pair| pair.gap),
        ("energy drop", |pair| pair.energy_drop),
        ("mean shift", |pair| pair.mean_shift),
    ];
    let scores = figures.map(|(figure, value)| {
        let values: Vec<f64> = pairs.iter().map(value).collect();
        let (correlation, auc) = (correlation(&values, &losses), auc(&values, &losses));
        Score { figure, correlation, auc }
    });
    let bias = pairs.iter().map(|pair| pair.gap - pair.loss).sum::<f64>() / pairs.len() as f64;
    Predictor { pairs, scores: scores.to_vec(), bias }
}

/// Pearson's correlation; 0 if one side does not vary.
fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
    let (ma, mb) = (mean(a), mean(b));
    let sum =
        |f: &dyn Fn(f64, f64) -> f64| a.iter().zip(b).map(|(x, y)| f(x - ma, y - mb)).sum::<f64>();
    let (xy, xx, yy) = (sum(&|x, y| x * y), sum(&|x, _| x * x), sum(&|_, y| y * y));
    if xx * yy > 0.0 { xy / (xx * yy).sqrt() } else { 0.0 }
}

/// The chance that the value of a pair with a loss is above that of a pair without; ties count half.
fn auc(values: &[f64], losses: &[f64]) -> Option<f64> {
    let of = |lost: bool| {
        let all = values.iter().zip(losses);
        all.filter(|(_, loss)| (**loss > LOSS) == lost).map(|(v, _)| *v).collect::<Vec<f64>>()
    };
    let (with, without) = (of(true), of(false));
    let wins = with.iter().flat_map(|a| without.iter().map(move |b| (a, b)));
    let wins: f64 = wins
        .map(|(a, b)| {
            if a > b {
                1.0
            } else if a == b {
                0.5
            } else {
                0.0
            }
        })
        .sum();
    let pairs = with.len() * without.len();
    (pairs > 0).then(|| wins / pairs as f64)
}

fn csv(pairs: &[Pair]) -> String {
    let mut text =
        "stream,old_rows,rows,map,loss,gap,gap_error,energy_drop,mean_shift,independent\n"
            .to_owned();
    for p in pairs {
        text += &format!(
            "{},{},{},{:.4},{:.4},{:.4},{:.4},{:.4},{:.4},{}\n",
            p.stream.replace([',', '"', '\n', '\r'], " "),
            p.old_rows,
            p.rows,
            p.map,
            p.loss,
            p.gap,
            p.gap_error,
            p.energy_drop,
            p.mean_shift,
            p.independent
        );
    }
    text
}

/// The loss over the gap, a point for each pair.
fn figure(result: &Predictor, bits: usize) -> String {
    let mut names: Vec<&str> = result.pairs.iter().map(|pair| pair.stream.as_str()).collect();
    names.dedup();
    let point = |x: f64, y: f64, note: String| Point { x, y, low: y, high: y, paper: None, note };
    let one = |pair: &Pair| {
        let number = names.iter().position(|name| *name == pair.stream).unwrap_or(0);
        let note = format!(
            "{}: model of {} rows, {} rows now: gap {:.3}, loss {:.3}",
            pair.stream, pair.old_rows, pair.rows, pair.gap, pair.loss
        );
        // A series for each point, so that points are not joined. The legend shows each label once.
        Series {
            label: pair.stream.clone(),
            method: STYLES[number % STYLES.len()].into(),
            tau: None,
            points: vec![point(pair.gap, pair.loss, note)],
        }
    };
    let values = || result.pairs.iter().flat_map(|pair| [pair.gap, pair.loss]);
    let most = values().fold(0.0, f64::max);
    let mut series: Vec<Series> = result.pairs.iter().map(one).collect();
    let diagonal = [0.0, most].map(|v| point(v, v, String::new())).to_vec();
    let label = "loss = gap".to_owned();
    series.push(Series { label, method: String::new(), tau: None, points: diagonal });
    let gap = &result.scores[0];
    let fixed = format!(
        "{} pairs, {bits} bits: correlation {:.2}, AUC {}",
        result.pairs.len(),
        gap.correlation,
        gap.auc.map_or("–".into(), |auc| format!("{auc:.2}"))
    );
    let panel = Panel {
        title: "What an old model loses".into(),
        fixed,
        x: Axis::between("gap on the sample", values()),
        y: Axis::between("loss of MAP on all rows", values()),
        series,
    };
    plot::file("The gap on the sample predicts the loss", &[panel], 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn correlation_and_auc_by_hand() {
        assert!((correlation(&[1.0, 2.0, 3.0], &[2.0, 4.0, 6.0]) - 1.0).abs() < 1e-12);
        assert!((correlation(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]) + 1.0).abs() < 1e-12);
        assert!((correlation(&[0.0, 1.0, 0.0, 1.0], &[0.0, 0.0, 1.0, 1.0])).abs() < 1e-12);
        assert_eq!(correlation(&[1.0, 1.0], &[0.0, 5.0]), 0.0);
        // Losses at places 1 and 3: of the four comparisons 2.5 are won.
        let losses = [0.0, 0.5, 0.01, 0.3];
        assert_eq!(auc(&[0.1, 0.2, 0.2, 0.15], &losses), Some(2.5 / 4.0));
        assert_eq!(auc(&[1.0, 2.0], &[0.0, 0.0]), None);
    }

    #[test]
    fn a_stream_that_changes_loses_and_the_gap_says_so() {
        // The strong columns change in the middle of the stream.
        let (dim, n) = (16, 6000);
        let mut state = 7u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 24) as f32 - 0.5
        };
        let values = (0..n * dim)
            .map(|e| next() * if (e % dim) / 8 == (e / dim * 2 / n) { 6.0 } else { 1.0 })
            .collect();
        let stream = Stream { name: "made up".into(), dim, values };
        let result = scored(of_stream(&stream, 8, 0).unwrap());
        assert_eq!(result.pairs.len(), 15);
        assert!(result.scores[0].correlation > 0.9, "{:?}", result.scores);
        let last = result.pairs.iter().find(|p| p.old_rows == 600 && p.rows == n).unwrap();
        assert!(last.loss > 0.05 && last.gap > 0.05, "{last:?}");
        let first = result.pairs.iter().find(|p| p.old_rows == 600 && p.rows == 1200).unwrap();
        assert!(first.loss.abs() < 0.04 && first.gap.abs() < 0.06, "{first:?}");
        let svg = figure(&result, 8);
        assert!(svg.contains("15 pairs, 8 bits") && svg.matches("<title>made up").count() == 15);
        assert_eq!(csv(&result.pairs).lines().count(), 16);
    }
}
