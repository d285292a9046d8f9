//! Chooses rotation, ranking and bytes of factors by measuring them on the sample, and forecasts the recall of a search.
//!
//! **Measures.** MAP and recall on held-out sampled rows: see `held_out.rs`.
//!
//! **Choice.** The regret of an alternative is how far it falls below the best one, in MAP or in recall, whichever is
//! more. Of the rankings in the order asymmetric, estimated with one byte, estimated with two, each with its better
//! rotation, the first is chosen whose regret is within [`TOLERANCE`] of the smallest. So more bytes are used only if
//! they find more. Hamming distances are not tried: the asymmetric ranking uses the same codes and finds more.
//!
//! **Where we differ.** The paper has one rotation (none) and one ranking (Hamming).
//!
//! **Cost.** One product of the sampled rows with the queries and the directions; for each of two rotations, products of
//! the sampled rows in r dimensions. Memory: 4 n (2 q + r) bytes for q queries.

use crate::error::Result;
use crate::hasher::estimator::{Factors, MOST_BYTES, Scales};
use crate::hasher::held_out::{Figures, Forecast, HeldOut, rounded};
use crate::hasher::{Hasher, ITQ_ROUNDS, Rotation, rotation};
use crate::linalg;
use crate::pool::Pool;
use crate::random::{Purpose, Stream};
use crate::search::ranking::Ranking;
use crate::sketch::{Principal, Sketch};
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, Par};
use serde::{Deserialize, Serialize};

/// Differences of MAP or recall that do not count.
const TOLERANCE: f64 = 0.005;
/// Rows that one task works on.
const PIECE: usize = 512;

/// What a fit measured on the sample, and what it chose.
///
/// ```
/// use frosh::{Config, Rows, Sketcher};
/// # let mut state = 1u32;
/// # let mut next = move || { state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223); (state >> 8) as f32 / 16_777_216.0 };
/// # let data: Vec<f32> = (0..16 * 2000).map(|i| next() / (1 + i % 16) as f32).collect();
/// let mut sketcher = Sketcher::new(Config::new(16))?;
/// sketcher.push(Rows::new(&data, 16)?)?;
/// let hasher = sketcher.finish().hasher(8)?;
/// let choice = hasher.choice().unwrap(); // the sample is large enough to measure
/// assert_eq!(choice.ranking, hasher.ranking());
/// assert!(choice.measured.iter().any(|m| m.ranking == choice.ranking && m.rotation == choice.rotation));
/// println!("recall@{} of about {:.2}", choice.forecast.k, choice.forecast.recall);
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Choice {
    /// The rotation of the model.
    pub rotation: Rotation,
    /// The ranking that searches use by default.
    pub ranking: Ranking,
    /// Bytes of factors that the ranking needs for each row.
    pub factor_bytes: usize,
    /// All alternatives, with their figures.
    pub measured: Vec<Measured>,
    /// What to expect from a search.
    pub forecast: Forecast,
}

/// An alternative that a fit measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Measured {
    /// The rotation.
    pub rotation: Rotation,
    /// The ranking.
    pub ranking: Ranking,
    /// Bytes of factors for each row.
    pub factor_bytes: usize,
    /// Mean average precision, with the nearest 2 % of rows as the relevant ones.
    pub map: f64,
    /// Mean of the expected recall@10, @20, @40 and @80 by codes alone.
    pub recall: f64,
}

/// Fits a hasher with the rotation, ranking and bytes of factors that measure best; `given` bytes of factors, unless that
/// is 0. The caller has checked the bits.
pub(super) fn chosen(sketch: &Sketch, pool: &Pool, bits: usize, given: usize) -> Result<Hasher> {
    let Principal { vectors, values, rank } = sketch.principal(pool, bits);
    let (v, along) = sketch.refined(pool, vectors.as_ref(), &values);
    drop(vectors);
    let itq =
        pool.in_rayon(|| rotation::itq(along.as_ref(), &mut sketch.rotation_stream(), ITQ_ROUNDS));
    drop(along);
    let random = rotation::random(bits, &mut sketch.rotation_stream());
    let rotations = [(Rotation::Refined, itq), (Rotation::RefinedRandom, random)];
    let possible = |(_, bytes): &(Ranking, usize)| given == 0 || [0, given].contains(bytes);
    let kinds: Vec<_> = KINDS.into_iter().filter(possible).collect();
    Ok(best(sketch, pool, v, &values, rank, &rotations, &kinds, given.max(1)))
}

/// Fits a hasher with the directions `v` and the best of these rotations and rankings; with the first rotation if the sample
/// is too small to measure. The model makes codes with at least `least` bytes of factors.
#[expect(clippy::too_many_arguments, reason = "the parts of a fit, and what to choose from")]
pub(super) fn best(
    sketch: &Sketch,
    pool: &Pool,
    v: Mat<f64>,
    values: &[f64],
    rank: usize,
    rotations: &[(Rotation, Mat<f64>)],
    kinds: &[(Ranking, usize)],
    least: usize,
) -> Hasher {
    let mut alternatives = Vec::new();
    let mut depth = 0.0;
    if let Some(trial) = HeldOut::new(sketch, pool, v.as_ref()) {
        depth = trial.depth(sketch.rows);
        for (number, (_, r)) in rotations.iter().enumerate() {
            let w = linalg::single(product(&v, r).as_ref());
            let scales = sketch.scales(pool, w.as_ref(), 1.0);
            let rotated = trial.rotated(pool, r.as_ref());
            for (ranking, bytes) in kinds {
                if let Some(figures) = trial.measure(pool, &rotated, *ranking, *bytes, &scales) {
                    alternatives.push((number, *ranking, *bytes, figures));
                }
            }
        }
    }
    let measured: Vec<Measured> = alternatives
        .iter()
        .map(|(number, ranking, factor_bytes, figures)| Measured {
            rotation: rotations[*number].0,
            ranking: *ranking,
            factor_bytes: *factor_bytes,
            map: rounded(figures.map),
            recall: rounded(figures.top_recall(depth)),
        })
        .collect();
    let found = choose(&measured);
    let Some((number, ranking, factor_bytes, figures)) = alternatives.get(found) else {
        let (rotation, r) = &rotations[0];
        return sketch.fitted(pool, product(&v, r), values, rank, *rotation, least);
    };
    let (ranking, factor_bytes) = (*ranking, *factor_bytes);
    let forecast = figures.forecast(depth, sketch.rows);
    let (rotation, r) = &rotations[*number];
    let (rotation, bytes) = (*rotation, factor_bytes.max(least));
    let mut hasher = sketch.fitted(pool, product(&v, r), values, rank, rotation, bytes);
    hasher.choice = Some(Box::new(Choice { rotation, ranking, factor_bytes, measured, forecast }));
    hasher
}

/// Rankings and their bytes of factors, in the order of cost.
const KINDS: [(Ranking, usize); 3] =
    [(Ranking::Asymmetric, 0), (Ranking::Estimated, 1), (Ranking::Estimated, 2)];

/// The alternative to use: see the head of this file.
fn choose(measured: &[Measured]) -> usize {
    let best = |figure: fn(&Measured) -> f64| measured.iter().map(figure).fold(0.0, f64::max);
    let (map, recall) = (best(|m| m.map), best(|m| m.recall));
    let regret = |m: &Measured| (map - m.map).max(recall - m.recall);
    let least = measured.iter().map(regret).fold(f64::INFINITY, f64::min);
    let of_kind = |(ranking, bytes): (Ranking, usize)| {
        let same = |m: &Measured| (m.ranking, m.factor_bytes) == (ranking, bytes);
        let all = measured.iter().enumerate().filter(|(_, m)| same(m));
        all.min_by(|a, b| regret(a.1).total_cmp(&regret(b.1)))
    };
    let found = KINDS.into_iter().filter_map(of_kind).find(|(_, m)| regret(m) <= least + TOLERANCE);
    found.map_or(0, |(number, _)| number)
}

fn product(v: &Mat<f64>, r: &Mat<f64>) -> Mat<f64> {
    linalg::product(v.as_ref(), r.as_ref())
}

impl Sketch {
    /// The random numbers that rotations start from.
    pub(super) fn rotation_stream(&self) -> Stream {
        Stream::new(self.seed, Purpose::Rotation, 0, 0)
    }
}

/// Projections after a rotation.
struct Rotated {
    /// Signed sums of base rows (rows) and queries (columns).
    sums: Mat<f32>,
    /// For each row of the base: |u|^2 and |u|_1.
    lengths: Vec<(f64, f64)>,
}

impl HeldOut {
    /// The sums of all pairs after a rotation.
    fn rotated(&self, pool: &Pool, r: MatRef<'_, f64>) -> Rotated {
        let r = linalg::single(r);
        let bits = r.ncols();
        let asked =
            linalg::product(self.along.as_ref().subrows(self.base, self.queries), r.as_ref());
        let asked = asked.transpose().to_owned();
        let mut sums = Mat::zeros(self.base, self.queries);
        let mut lengths = vec![(0.0, 0.0); self.base];
        let pieces = linalg::row_pieces(sums.as_mut(), PIECE);
        let jobs = pieces.into_iter().zip(lengths.chunks_mut(PIECE));
        pool.each(jobs.collect(), |((from, sums), lengths)| {
            let rows = self.along.as_ref().subrows(from, lengths.len());
            let mut u = linalg::product(rows, r.as_ref());
            for k in 0..bits {
                for (x, (squares, magnitudes)) in
                    u.col_as_slice_mut(k).iter_mut().zip(&mut *lengths)
                {
                    *squares += f64::from(*x * *x);
                    *magnitudes += f64::from(x.abs());
                    *x = sign(*x);
                }
            }
            matmul(sums, Accum::Replace, u.as_ref(), asked.as_ref(), 1.0, Par::Seq);
        });
        Rotated { sums, lengths }
    }

    /// Measures a ranking; `None` if it needs factors that the fit could not make.
    fn measure(
        &self,
        pool: &Pool,
        rotated: &Rotated,
        ranking: Ranking,
        bytes: usize,
        scales: &[Option<Scales>; MOST_BYTES],
    ) -> Option<Figures> {
        // A score is c - g S: a constant and a factor for each row.
        let factors: Vec<[f32; 2]> = if ranking == Ranking::Estimated {
            let scales = scales[bytes - 1]?;
            let tables = scales.tables();
            let of = |i: usize| {
                let (squares, magnitudes) = rotated.lengths[i];
                let mut coded = [0u8; MOST_BYTES];
                let factors =
                    Factors::of(self.squares[i], squares, magnitudes, 1.0, scales.residual());
                scales.encode(factors, &mut coded[..bytes]);
                let norm = tables[0][usize::from(coded[0])];
                [norm * norm, 2.0 * tables[1][usize::from(coded[bytes - 1])]]
            };
            (0..self.base).map(of).collect()
        } else {
            vec![[0.0, 1.0]; self.base]
        };
        Some(self.figures(pool, |query, scores| {
            let sums = rotated.sums.col_as_slice(query);
            scores.extend(factors.iter().zip(sums).map(|([c, g], sum)| c - g * sum));
        }))
    }
}

fn sign(x: f32) -> f32 {
    if x > 0.0 { 1.0 } else { -1.0 }
}

#[cfg(test)]
mod tests;
