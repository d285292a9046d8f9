//! Drift: how much a search loses because the data changed after the model was made.
//!
//! **Measure.** [`drift`] fits a candidate, a new model of the same kind and size, to a sketch of the present data. Up to
//! [`QUERIES`] sampled rows then query up to [`BASE_ROWS`] other sampled rows, once with the old model and once with the
//! candidate, by the ranking in use. The relevant rows of a query are the nearest 2 % of the base. The *gap* is the MAP of
//! the candidate less the MAP of the old model. Both models have the same queries, so the standard error is that of the
//! mean of the differences for each query.
//!
//! **Bias.** A candidate ranks the rows that it was fitted to a little better than other rows (about .01 of MAP). Fits
//! never use the first sampled rows, and use 4,096 rows after them at most. So the queries are the first rows, and the
//! base is the last rows. In a sample of 8,704 rows or more, the candidate has seen none of them
//! ([`Drift::independent`]). With a half-life the base is the rows after the queries instead, which follow the weights
//! best.
//!
//! **Energy.** The captured energy of a model is the share of the scatter of the base rows, about the present mean,
//! that lies in the span of its directions.
//!
//! **Cost.** A fit; encoding of the measured rows with both models; 2 d operations for each query and row of the base,
//! for the exact neighbours.
//!
//! The paper has none of this: it fits a new model after each round, and encodes everything again.

use crate::error::{Error, Result};
use crate::evaluation::{Evaluation, ExactSearch, RankedEvaluation, Truth};
use crate::hasher::Rotation;
use crate::linalg;
use crate::model::Model;
use crate::pool::Pool;
use crate::rows::Rows;
use crate::search::ranking::Ranking;
use crate::sketch::Sketch;
use crate::sketch::config::Method;
use faer::{Mat, MatRef};
use std::ops::Range;

/// Sampled rows that are queries, at most.
const QUERIES: usize = 256;
/// Sampled rows that are searched, at most.
const BASE_ROWS: usize = 4096;
/// Sampled rows that a measurement needs.
const MIN_SAMPLE: usize = 256;
/// The share of the base that is relevant for a query.
const RELEVANT: f64 = 0.02;
/// Neighbours of the reported recall.
const K: usize = 10;
/// Rows that are projected at a time.
const PART: usize = 512;

/// What [`drift`] measured.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Drift {
    /// The new model that the old one was compared with.
    pub candidate: Model,
    /// The ranking that was measured.
    pub ranking: Ranking,
    /// Number of queries.
    pub queries: usize,
    /// Number of rows that were searched.
    pub base: usize,
    /// Whether the measured rows are others than those that the candidate was fitted to. If not, the gap is about .01 too
    /// large.
    pub independent: bool,
    /// Mean average precision of the old model, with the nearest 2 % of the base as the relevant rows.
    pub map: f64,
    /// The same of the candidate.
    pub refreshed_map: f64,
    /// What a refresh would gain: `refreshed_map - map`.
    pub gap: f64,
    /// Standard error of the gap, from the differences for each query.
    pub gap_error: f64,
    /// Recall@10 of the old model.
    pub recall: f64,
    /// Recall@10 of the candidate.
    pub refreshed_recall: f64,
    /// Share of the scatter of the base rows that lies in the span of the old model's directions.
    pub energy: f64,
    /// The same of the candidate.
    pub refreshed_energy: f64,
    /// Distance between the mean of the old model and the present mean, divided by the root mean square distance of the
    /// base rows to the present mean.
    pub mean_shift: f64,
}

impl Drift {
    /// The gap from which on a refresh is due, unless the caller knows better.
    pub const DEFAULT_GAP: f64 = 0.04;

    /// How much energy the old model's directions lack, compared with those of the candidate.
    pub fn energy_drop(&self) -> f64 {
        self.refreshed_energy - self.energy
    }

    /// Whether the gap is above `threshold`, and above two of its standard errors.
    pub fn is_due(&self, threshold: f64) -> bool {
        self.gap > threshold && self.gap > 2.0 * self.gap_error
    }
}

/// Measures how much a search with `old` loses, compared with a new model of the same kind and size that is fitted to
/// `sketch`.
///
/// `sketch` is of the rows that are searched now. `ranking` is the ranking that the searches use ([`Model::ranking`] by
/// default): gaps of other rankings differ.
///
/// # Errors
///
/// [`Error::Mismatch`] if dimension or metric of model and sketch differ, or if one is of LSH and the other is not.
/// [`Error::Setting`] if fewer than 256 rows were sampled. [`Error::Ranking`] or [`Error::Factors`] if the models do not
/// have this ranking. The errors of [`Sketch::hasher`] or [`Sketch::quantizer`] if no candidate can be fitted.
///
/// ```
/// use frosh::{Config, Drift, Model, Ranking, Rows, Sketcher, drift};
/// # let mut state = 1u64;
/// # let mut next = || { state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407); (state >> 40) as f32 / 16777216.0 - 0.5 };
/// # let flat: Vec<f32> = (0..32 * 4000).map(|_| next()).collect();
/// # let rows = |strong: usize| -> Vec<f32> { flat.iter().enumerate().map(|(i, x)| if (i % 32) / 8 == strong { 5.0 * x } else { *x }).collect() };
/// // At first the rows vary most in columns 0 to 7, later in columns 16 to 23.
/// let (before, now) = (rows(0), rows(2));
/// let sketch = |data: &[f32]| {
///     let mut sketcher = Sketcher::new(Config::new(32))?;
///     sketcher.push(Rows::new(data, 32)?)?;
///     Ok::<_, frosh::Error>(sketcher.finish())
/// };
/// let old = Model::from(sketch(&before)?.hasher(8)?);
/// let same = drift(&old, &sketch(&before)?, Ranking::Estimated)?;
/// assert!(!same.is_due(Drift::DEFAULT_GAP));
/// let changed = drift(&old, &sketch(&now)?, Ranking::Estimated)?;
/// assert!(changed.is_due(Drift::DEFAULT_GAP));
/// assert!(changed.energy_drop() > 0.5);
/// let new = changed.candidate; // the model to use from now on
/// # Ok::<(), frosh::Error>(())
/// ```
pub fn drift(old: &Model, sketch: &Sketch, ranking: Ranking) -> Result<Drift> {
    check(old, sketch)?;
    let sample = Sample::new(sketch)?;
    let candidate = candidate(old, sketch)?;
    let nearest = sample.nearest(sketch)?;
    let now = sample.measure(old, ranking, &nearest)?;
    let refreshed = sample.measure(&candidate, ranking, &nearest)?;
    let (gap, gap_error) = paired(&refreshed.precisions, &now.precisions);
    let scatter = sample.scatter(sketch);
    let shift = old.mean().iter().zip(sketch.mean()).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
    let radius = (scatter.iter().map(|row| row.square).sum::<f64>() / scatter.len() as f64).sqrt();
    let energy = |model: &Model| captured(&scatter, basis(model).as_ref());
    Ok(Drift {
        ranking,
        queries: sample.queries.len() / sample.dim,
        base: sample.base.len() / sample.dim,
        independent: sample.independent,
        map: mean(&now.precisions),
        refreshed_map: mean(&refreshed.precisions),
        gap,
        gap_error,
        recall: now.recall,
        refreshed_recall: refreshed.recall,
        energy: energy(old),
        refreshed_energy: energy(&candidate),
        mean_shift: if radius > 0.0 { shift.sqrt() / radius } else { 0.0 },
        candidate,
    })
}

/// Rejects a sketch that is of other rows than the model.
pub(crate) fn check(old: &Model, sketch: &Sketch) -> Result<()> {
    let differ = |what, model: &dyn ToString, sketch: &dyn ToString| {
        let (model, sketch) = (model.to_string(), sketch.to_string());
        if model == sketch { Ok(()) } else { Err(Error::Mismatch { what, model, sketch }) }
    };
    differ("the dimension", &old.dim(), &sketch.dim())?;
    differ("the metric", &old.metric(), &sketch.metric())?;
    let learns = |method| if method == Method::Lsh { "lsh" } else { "frosh or osh" };
    let method = old.hasher().map_or(Method::Frosh, |hasher| hasher.method());
    differ("the method", &learns(method), &learns(sketch.method()))
}

/// The model that a refresh would make: of the same kind and size as the old one.
fn candidate(old: &Model, sketch: &Sketch) -> Result<Model> {
    let hasher = match old {
        Model::Quantizer(quantizer) => return sketch.quantizer(quantizer.bytes()).map(Model::from),
        Model::Hasher(hasher) => hasher,
    };
    let fitted = match hasher.rotation() {
        // `Sketch::hasher` never chooses these, so somebody asked for them.
        asked @ (Rotation::None | Rotation::Isotropic | Rotation::Itq) => {
            sketch.hasher_with(hasher.bits(), asked)
        }
        _ => sketch.hasher_of_size(hasher.bits(), hasher.factor_bytes()),
    };
    fitted.map(Model::from)
}

/// The sampled rows that are measured.
struct Sample {
    dim: usize,
    queries: Vec<f32>,
    base: Vec<f32>,
    /// Which of the sampled rows the base is.
    range: Range<usize>,
    independent: bool,
}

/// The figures of a model.
struct Figures {
    /// Average precision of each query.
    precisions: Vec<f64>,
    recall: f64,
}

/// A row minus the present mean, and its squared length.
struct Centred {
    row: Vec<f32>,
    square: f64,
}

impl Sample {
    fn new(sketch: &Sketch) -> Result<Self> {
        let sampled = sketch.reservoir_rows();
        if sampled < MIN_SAMPLE {
            let why = format!("a measurement of drift needs {MIN_SAMPLE}; sketch more rows");
            return Err(Error::setting("sampled rows", sampled, why));
        }
        let held_out = sketch.held_out();
        let queries = if held_out > 0 { held_out } else { sampled / 4 }.min(QUERIES);
        // With decay, the first rows follow the weights best: a sample without replacement runs out of recent rows.
        let decays = sketch.half_life().is_some();
        let end = if decays { sampled.min(queries + BASE_ROWS) } else { sampled };
        let range = end.saturating_sub(BASE_ROWS).max(queries)..end;
        let zero = vec![0.0; sketch.dim()];
        let rows = |range: Range<usize>| {
            let parts = sketch.reservoir.map_parts(&Pool::current(), &zero, range, <[f32]>::to_vec);
            parts.concat()
        };
        Ok(Self {
            dim: sketch.dim(),
            queries: rows(0..queries),
            base: rows(range.clone()),
            independent: held_out > 0 && range.start >= sketch.fit_rows(usize::MAX).end,
            range,
        })
    }

    /// The exact neighbours of each query in the base, nearest first.
    fn nearest(&self, sketch: &Sketch) -> Result<Vec<Vec<u64>>> {
        let rows = self.base.len() / self.dim;
        let count = Truth::TopShare(RELEVANT).count(rows).max(K);
        let queries = Rows::new(&self.queries, self.dim)?;
        let mut search = ExactSearch::new(queries, count, sketch.metric())?;
        search.push(Rows::new(&self.base, self.dim)?)?;
        Ok(search.finish().iter().map(|hits| hits.iter().map(|hit| hit.id).collect()).collect())
    }

    /// Encodes the rows with a model, and ranks the base for each query.
    fn measure(&self, model: &Model, ranking: Ranking, nearest: &[Vec<u64>]) -> Result<Figures> {
        let base = Rows::new(&self.base, self.dim)?;
        let codes = match ranking {
            Ranking::Estimated => model.encode_with_factors(base)?,
            _ => model.encode(base)?,
        };
        let queries = model.queries(Rows::new(&self.queries, self.dim)?)?;
        codes.check_ranking(&queries, ranking)?;
        let truth = Truth::TopShare(RELEVANT);
        if ranking == Ranking::Hamming {
            // Counts ties by their expectation.
            let result = Evaluation::by_neighbours(queries.codes(), &codes, truth, nearest)?;
            let of = |query: usize| result.tally(query).average_precision().unwrap_or(0.0);
            return Ok(Figures {
                precisions: (0..result.queries()).map(of).collect(),
                recall: result.recall(K).unwrap_or(0.0),
            });
        }
        let result = RankedEvaluation::new(&queries, &codes, ranking, truth, nearest)?;
        Ok(Figures {
            precisions: result.average_precisions(),
            recall: result.recall(K).unwrap_or(0.0),
        })
    }

    /// The rows of the base minus the present mean.
    fn scatter(&self, sketch: &Sketch) -> Vec<Centred> {
        let (range, pool) = (self.range.clone(), &Pool::current());
        let parts = sketch.reservoir.map_parts(pool, sketch.mean(), range, |rows| {
            let centred = |row: &[f32]| Centred {
                row: row.to_vec(),
                square: row.iter().map(|x| f64::from(*x).powi(2)).sum(),
            };
            rows.chunks_exact(self.dim).map(centred).collect::<Vec<_>>()
        });
        parts.into_iter().flatten().collect()
    }
}

/// An orthonormal basis of the span of the model's directions.
fn basis(model: &Model) -> Mat<f32> {
    let (dim, directions) = (model.dim(), model.directions());
    let count = directions.len() / dim;
    if count >= dim {
        return Mat::identity(dim, dim);
    }
    let columns = MatRef::from_column_major_slice(&directions, dim, count);
    let columns = Mat::from_fn(dim, count, |i, j| f64::from(columns[(i, j)]));
    linalg::single(linalg::thin_q(columns).as_ref())
}

/// The share of the scatter that lies in the span of the columns of `basis`.
fn captured(scatter: &[Centred], basis: MatRef<'_, f32>) -> f64 {
    let (mut inside, mut total) = (0.0, 0.0);
    for part in scatter.chunks(PART) {
        let rows = Mat::from_fn(part.len(), basis.nrows(), |i, j| part[i].row[j]);
        let along = linalg::product(rows.as_ref(), basis);
        inside += along.squared_norm_l2() as f64;
        total += part.iter().map(|row| row.square).sum::<f64>();
    }
    if total > 0.0 { (inside / total).min(1.0) } else { 0.0 }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The mean of `a - b`, and its standard error.
fn paired(a: &[f64], b: &[f64]) -> (f64, f64) {
    let n = a.len() as f64;
    let differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| a - b).collect();
    let mean = mean(&differences);
    let squares = differences.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
    (mean, (squares / (n * (n - 1.0).max(1.0))).sqrt())
}

#[cfg(test)]
mod tests;
