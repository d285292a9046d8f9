//! Chooses rotation, ranking and bytes of factors by measuring them on the sample, and forecasts the recall of a search.
//!
//! **Measures.** Up to 512 sampled rows are held out of every fit and serve as queries; the other sampled rows are the base.
//! Exact neighbours among them are the truth. Two figures count:
//!
//! - MAP: the mean average precision, with the nearest 2 % of a part of the base as the relevant rows;
//! - recall: the mean of the expected recall@10, @20, @40 and @80 of a search in the whole stream. recall@10 alone would
//!   rest on few pairs of rows, and its noise would decide.
//!
//! The base has n of the N rows of the stream, so the 10 nearest of N rows correspond to about kappa = 10 n / N nearest
//! rows of the base, and a list of 10 o candidates to o kappa candidates. The recall is measured at a few kappa, and
//! interpolated. For kappa below 1, that is N > 10 n, recall at kappa = 1 is used: what changes below the distances
//! between sampled rows cannot be measured.
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
use crate::hasher::{Hasher, ITQ_ROUNDS, Rotation, rotation};
use crate::linalg;
use crate::pool::Pool;
use crate::random::{Purpose, Stream};
use crate::search::ranking::Ranking;
use crate::sketch::frequent_directions::square_norm;
use crate::sketch::{Principal, Sketch};
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, Par};
use serde::{Deserialize, Serialize};

/// The number of neighbours that recall is forecast for.
const K: usize = 10;
/// The recall that the forecast number of candidates reaches.
const TARGET: f64 = 0.9;
/// Differences of MAP or recall that do not count.
const TOLERANCE: f64 = 0.005;
/// Rows of the base that MAP is measured on, and the share of them that is relevant.
const MAP_ROWS: usize = 4096;
const RELEVANT: f64 = 0.02;
/// Numbers of neighbours in the base that recall is measured at, ascending.
const DEPTHS: [usize; 9] = [1, 2, 3, 4, 6, 8, 10, 16, 32];
/// Numbers of candidates for each neighbour that are tried, ascending.
const OVERSAMPLES: [usize; 17] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384];
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

/// What to expect from a search of the rows that were learned from, for queries like them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Forecast {
    /// Rows that are searched: those that were learned from.
    pub rows: u64,
    /// Neighbours for each query.
    pub k: usize,
    /// Recall by codes alone.
    pub recall: f64,
    /// Standard error of the recall, from the number of sampled queries.
    pub standard_error: f64,
    /// Candidates for each neighbour that re-ranking needs for a recall of .9.
    pub oversample: usize,
    /// Recall after re-ranking that many candidates.
    pub reranked: f64,
    /// Whether the sample is dense enough to measure this recall. For much longer streams it is an extrapolation.
    pub measured: bool,
}

/// Fits a hasher with the rotation, ranking and bytes of factors that measure best. The caller has checked the bits.
pub(super) fn chosen(sketch: &Sketch, pool: &Pool, bits: usize) -> Result<Hasher> {
    let Principal { vectors, values, rank } = sketch.principal(pool, bits);
    let (v, along) = sketch.refined(pool, vectors.as_ref(), &values);
    drop(vectors);
    let itq =
        pool.in_rayon(|| rotation::itq(along.as_ref(), &mut sketch.rotation_stream(), ITQ_ROUNDS));
    drop(along);
    let Some(trial) = Trial::new(sketch, pool, v.as_ref()) else {
        return Ok(sketch.fitted(pool, product(&v, &itq), &values, rank, Rotation::Refined, 1));
    };
    let random = rotation::random(bits, &mut sketch.rotation_stream());
    let mut alternatives = Vec::new();
    for (name, r) in [(Rotation::Refined, &itq), (Rotation::RefinedRandom, &random)] {
        let w = linalg::single(product(&v, r).as_ref());
        let scales = sketch.scales(pool, w.as_ref(), 1.0);
        let rotated = trial.rotated(pool, r.as_ref());
        for (ranking, bytes) in KINDS {
            if let Some(figures) = trial.measure(pool, &rotated, ranking, bytes, &scales) {
                alternatives.push((name, ranking, bytes, figures));
            }
        }
    }
    let depth = trial.depth(sketch.rows);
    let measured: Vec<Measured> = alternatives
        .iter()
        .map(|(rotation, ranking, factor_bytes, figures)| Measured {
            rotation: *rotation,
            ranking: *ranking,
            factor_bytes: *factor_bytes,
            map: rounded(figures.map),
            recall: rounded(figures.top_recall(depth)),
        })
        .collect();
    let best = choose(&measured);
    let Measured { rotation, ranking, factor_bytes, .. } = measured[best];
    let figures = &alternatives[best].3;
    let (recall, standard_error) = figures.recall(depth, 1);
    let reached = OVERSAMPLES.iter().find(|o| figures.recall(depth, **o).0 >= TARGET);
    let oversample = *reached.unwrap_or(&OVERSAMPLES[OVERSAMPLES.len() - 1]);
    let forecast = Forecast {
        rows: sketch.rows,
        k: K,
        recall: rounded(recall),
        standard_error: rounded(standard_error),
        oversample,
        reranked: rounded(figures.recall(depth, oversample).0),
        measured: depth >= 1.0,
    };
    let r = if rotation == Rotation::Refined { &itq } else { &random };
    let bytes = factor_bytes.max(1);
    let mut hasher = sketch.fitted(pool, product(&v, r), &values, rank, rotation, bytes);
    hasher.choice = Some(Box::new(Choice { rotation, ranking, factor_bytes, measured, forecast }));
    Ok(hasher)
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

/// Four digits, which a file keeps exactly; the rest is noise.
fn rounded(figure: f64) -> f64 {
    (figure * 1e4).round() / 1e4
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

/// Held-out queries, the base, and the exact neighbours among them.
struct Trial {
    /// Rows of the base.
    base: usize,
    queries: usize,
    /// Squared lengths of the centred rows of the base.
    squares: Vec<f64>,
    /// Projections of base rows and then of queries on the directions before rotation: a row each.
    along: Mat<f32>,
    /// The nearest rows of each query in the base, nearest first.
    nearest: Vec<Vec<u32>>,
    /// The relevant rows of each query in the first [`MAP_ROWS`] rows of the base.
    relevant: Vec<Vec<u32>>,
}

/// What was measured of an alternative.
struct Figures {
    map: f64,
    /// For each query, the positions of its nearest rows in the ranking; halves where rows are tied.
    positions: Vec<Vec<f32>>,
}

/// Projections after a rotation.
struct Rotated {
    /// Signed sums of base rows (rows) and queries (columns).
    sums: Mat<f32>,
    /// For each row of the base: |u|^2 and |u|_1.
    lengths: Vec<(f64, f64)>,
}

impl Trial {
    /// Projects the sample on the directions in the columns of `v`. `None` if the sample is too small to hold rows out.
    fn new(sketch: &Sketch, pool: &Pool, v: MatRef<'_, f64>) -> Option<Self> {
        let (queries, sampled) = (sketch.held_out(), sketch.reservoir.len());
        let (base, bits) = (sampled - queries, v.ncols());
        if queries == 0 || base < 2 * DEPTHS[DEPTHS.len() - 1] {
            return None;
        }
        let (dim, mean) = (sketch.dim, &sketch.mean);
        let first = sketch.reservoir.map_parts(pool, mean, 0..queries, <[f32]>::to_vec).concat();
        // One product with the queries and the directions.
        let mut columns = Mat::<f32>::zeros(dim, queries + bits);
        let own = MatRef::from_column_major_slice(&first, dim, queries);
        columns.as_mut().subcols_mut(0, queries).copy_from(own);
        columns.as_mut().subcols_mut(queries, bits).copy_from(linalg::single(v));
        let parts = sketch.reservoir.map_parts(pool, mean, 0..sampled, |rows| {
            let count = rows.len() / dim;
            let mut out = Mat::<f32>::zeros(count, queries + bits);
            let rows_of = MatRef::from_row_major_slice(rows, count, dim);
            matmul(out.as_mut(), Accum::Replace, rows_of, columns.as_ref(), 1.0, Par::Seq);
            let squares: Vec<f64> = rows.chunks_exact(dim).map(square_norm).collect();
            (squares, out)
        });
        let mut squares = Vec::with_capacity(sampled);
        let mut along = Mat::zeros(sampled, bits);
        let mut products = Mat::<f32>::zeros(base, queries);
        let mut first = 0;
        for (part, out) in parts {
            // Queries come first in the sample, and last in `along`.
            let asked = queries.saturating_sub(first).min(part.len());
            let (rows, count) = (first + asked - queries.min(first + asked), part.len() - asked);
            let mut to = along.as_mut().submatrix_mut(base + first.min(queries), 0, asked, bits);
            to.copy_from(out.as_ref().submatrix(0, queries, asked, bits));
            let mut to = along.as_mut().submatrix_mut(rows, 0, count, bits);
            to.copy_from(out.as_ref().submatrix(asked, queries, count, bits));
            let mut to = products.as_mut().submatrix_mut(rows, 0, count, queries);
            to.copy_from(out.as_ref().submatrix(asked, 0, count, queries));
            squares.extend_from_slice(&part[asked..]);
            first += part.len();
        }
        let map_rows = base.min(MAP_ROWS);
        let count = ((RELEVANT * map_rows as f64).round() as usize).max(1);
        let mut lists = vec![(Vec::new(), Vec::new()); queries];
        pool.each(lists.iter_mut().enumerate().collect(), |(query, lists)| {
            let products = products.col(query);
            let distance = |i: usize| (squares[i] - 2.0 * f64::from(products[i])) as f32;
            let nearest = |rows: usize, count: usize| -> Vec<u32> {
                let mut all: Vec<(f32, u32)> = (0..rows).map(|i| (distance(i), i as u32)).collect();
                let order =
                    |a: &(f32, u32), b: &(f32, u32)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
                if count < rows {
                    all.select_nth_unstable_by(count, order);
                    all.truncate(count);
                }
                all.sort_unstable_by(order);
                all.iter().map(|(_, row)| *row).collect()
            };
            *lists = (nearest(base, DEPTHS[DEPTHS.len() - 1]), nearest(map_rows, count));
        });
        let (nearest, relevant) = lists.into_iter().unzip();
        Some(Self { base, queries, squares, along, nearest, relevant })
    }

    /// How many rows of the base correspond to the [`K`] nearest of the stream.
    fn depth(&self, rows: u64) -> f64 {
        K as f64 * self.base as f64 / rows as f64
    }

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
        let mut found = vec![(Vec::new(), 0.0); self.queries];
        pool.each(found.iter_mut().enumerate().collect(), |(query, found)| {
            let sums = rotated.sums.col_as_slice(query);
            let scores: Vec<f32> =
                factors.iter().zip(sums).map(|([c, g], sum)| c - g * sum).collect();
            let positions = positions(&scores, &self.nearest[query]);
            let part = &scores[..self.base.min(MAP_ROWS)];
            let mut relevant = self::positions(part, &self.relevant[query]);
            relevant.sort_unstable_by(f32::total_cmp);
            let precision =
                |(i, position): (usize, &f32)| (i + 1) as f64 / f64::from(position + 1.0);
            let precisions = relevant.iter().enumerate().map(precision);
            // Ties can make a mean position smaller than the number of relevant rows before it.
            let average = precisions.map(|p| p.min(1.0)).sum::<f64>() / relevant.len() as f64;
            *found = (positions, average);
        });
        let map = found.iter().map(|(_, average)| average).sum::<f64>() / self.queries as f64;
        Some(Figures {
            map,
            positions: found.into_iter().map(|(positions, _)| positions).collect(),
        })
    }
}

impl Figures {
    /// The recall near the top of the list: a mean over several depths.
    fn top_recall(&self, depth: f64) -> f64 {
        let depth = depth.max(1.0);
        let all = [1.0, 2.0, 4.0, 8.0].map(|times| self.recall(times * depth, 1).0);
        all.iter().sum::<f64>() / all.len() as f64
    }

    /// The expected recall of `depth` neighbours among `oversample` times as many candidates, and its standard error.
    fn recall(&self, depth: f64, oversample: usize) -> (f64, f64) {
        let depth = depth.clamp(DEPTHS[0] as f64, DEPTHS[DEPTHS.len() - 1] as f64);
        let above = DEPTHS.iter().position(|d| *d as f64 >= depth).unwrap_or(DEPTHS.len() - 1);
        let (low, high) = (DEPTHS[above.saturating_sub(1)], DEPTHS[above]);
        let share = if high > low {
            ((depth / low as f64).ln() / (high as f64 / low as f64).ln()).clamp(0.0, 1.0)
        } else {
            1.0
        };
        let at = |positions: &[f32], depth: usize| {
            let limit = (depth * oversample) as f32;
            let hits = positions[..depth.min(positions.len())].iter().filter(|p| **p < limit);
            hits.count() as f64 / depth as f64
        };
        let each: Vec<f64> = self
            .positions
            .iter()
            .map(|p| (1.0 - share) * at(p, low) + share * at(p, high))
            .collect();
        let n = each.len() as f64;
        let mean = each.iter().sum::<f64>() / n;
        let squares = each.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
        (mean, (squares / (n * (n - 1.0).max(1.0))).sqrt())
    }
}

fn sign(x: f32) -> f32 {
    if x > 0.0 { 1.0 } else { -1.0 }
}

/// The positions of some rows in the order of scores, from 0; the mean position for rows with equal scores.
fn positions(scores: &[f32], rows: &[u32]) -> Vec<f32> {
    let last = rows.iter().map(|row| scores[*row as usize]).fold(f32::NEG_INFINITY, f32::max);
    let mut first: Vec<f32> = scores.iter().copied().filter(|score| *score <= last).collect();
    first.sort_unstable_by(f32::total_cmp);
    let position = |row: &u32| {
        let score = scores[*row as usize];
        let below = first.partition_point(|other| *other < score);
        let equal = first.partition_point(|other| *other <= score) - below;
        below as f32 + equal.saturating_sub(1) as f32 / 2.0
    };
    rows.iter().map(position).collect()
}

#[cfg(test)]
mod tests;
