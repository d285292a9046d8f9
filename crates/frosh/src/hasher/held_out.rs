//! Measures rankings on sampled rows that were held out of the fit, and forecasts recall.
//!
//! Up to 512 sampled rows are queries; the other sampled rows are the base. Exact neighbours among them are the truth. Two
//! figures count:
//!
//! - MAP: the mean average precision, with the nearest 2 % of a part of the base as the relevant rows;
//! - recall: the mean of the expected recall@10, @20, @40 and @80 of a search in the whole stream. recall@10 alone would
//!   rest on few pairs of rows, and its noise would decide.
//!
//! The base has n of the N rows of the stream, so the 10 nearest of N rows correspond to about kappa = 10 n / N nearest
//! rows of the base, and a list of 10 o candidates to o kappa candidates. The recall is measured at a few kappa, and
//! interpolated. For kappa below 1, that is N > 10 n, recall at kappa = 1 is used: what changes below the distances
//! between sampled rows cannot be measured.

use crate::arch;
use crate::linalg;
use crate::pool::Pool;
use crate::sketch::Sketch;
use crate::sketch::frequent_directions::square_norm;
use crate::sketch::reservoir::PART_ROWS;
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, Par};
use serde::{Deserialize, Serialize};

/// The number of neighbours that recall is forecast for.
const K: usize = 10;
/// The recall that the forecast number of candidates reaches.
pub(super) const TARGET: f64 = 0.9;
/// Rows of the base that MAP is measured on, and the share of them that is relevant.
const MAP_ROWS: usize = 4096;
const RELEVANT: f64 = 0.02;
/// Sampled rows that are projected at a time: a multiple of the rows of a part.
const SHARE_ROWS: usize = 16 * PART_ROWS;
/// Numbers of neighbours in the base that recall is measured at, ascending.
const DEPTHS: [usize; 9] = [1, 2, 3, 4, 6, 8, 10, 16, 32];
/// Numbers of candidates for each neighbour that are tried, ascending.
const OVERSAMPLES: [usize; 17] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384];

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

/// Four digits, which a file keeps exactly; the rest is noise.
pub(crate) fn rounded(figure: f64) -> f64 {
    (figure * 1e4).round() / 1e4
}

/// Held-out queries, the base, and the exact neighbours among them.
pub(crate) struct HeldOut {
    /// Rows of the base.
    pub(crate) base: usize,
    /// Mean weight of a row of the stream: 1 without decay.
    weight: f64,
    pub(crate) queries: usize,
    /// Squared lengths of the centred rows of the base.
    pub(crate) squares: Vec<f64>,
    /// Projections of base rows and then of queries on the directions before rotation: a row each.
    pub(crate) along: Mat<f32>,
    /// The nearest rows of each query in the base, nearest first.
    pub(crate) nearest: Vec<Vec<u32>>,
    /// The relevant rows of each query in the first [`MAP_ROWS`] rows of the base.
    pub(crate) relevant: Vec<Vec<u32>>,
}

/// What was measured of an alternative.
pub(crate) struct Figures {
    pub(crate) map: f64,
    /// For each query, the positions of its nearest rows in the ranking; halves where rows are tied.
    positions: Vec<Vec<f32>>,
}

impl HeldOut {
    /// Projects the sample on the directions in the columns of `v`. `None` if the sample is too small to hold rows out.
    pub(crate) fn new(sketch: &Sketch, pool: &Pool, v: MatRef<'_, f64>) -> Option<Self> {
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
        let work = |rows: &[f32]| {
            let count = rows.len() / dim;
            let mut out = Mat::<f32>::zeros(count, queries + bits);
            let rows_of = MatRef::from_row_major_slice(rows, count, dim);
            matmul(out.as_mut(), Accum::Replace, rows_of, columns.as_ref(), 1.0, Par::Seq);
            let squares: Vec<f64> = rows.chunks_exact(dim).map(square_norm).collect();
            (squares, out)
        };
        let mut squares = Vec::with_capacity(sampled);
        let mut along = Mat::zeros(sampled, bits);
        let mut products = Mat::<f32>::zeros(base, queries);
        let mut first = 0;
        // A share of the sample at a time: what is computed for all of it would double the memory of a fit.
        let shares = (0..sampled).step_by(SHARE_ROWS).flat_map(|from| {
            let share = from..sampled.min(from + SHARE_ROWS);
            sketch.reservoir.map_parts(pool, mean, share, work)
        });
        for (part, out) in shares {
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
        let weight = sketch.weight() / sketch.rows as f64;
        Some(Self { base, weight, queries, squares, along, nearest, relevant })
    }

    /// How many rows of the base correspond to the [`K`] nearest of the stream; with decay, of as many rows as the stream
    /// has weight.
    pub(crate) fn depth(&self, rows: u64) -> f64 {
        K as f64 * self.base as f64 / (rows as f64 * self.weight)
    }

    /// Measures a ranking. `score` appends the score of each row of the base for a query.
    pub(crate) fn figures(
        &self,
        pool: &Pool,
        score: impl Fn(usize, &mut Vec<f32>) + Sync,
    ) -> Figures {
        let mut found = vec![(Vec::new(), 0.0); self.queries];
        pool.each(found.iter_mut().enumerate().collect(), |(query, found)| {
            let mut scores = Vec::with_capacity(self.base);
            score(query, &mut scores);
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
        let positions = found.into_iter().map(|(positions, _)| positions).collect();
        Figures { map, positions }
    }
}

impl Figures {
    /// What to expect from a search of all `rows` rows.
    pub(crate) fn forecast(&self, depth: f64, rows: u64) -> Forecast {
        let (recall, standard_error) = self.recall(depth, 1);
        let reached = OVERSAMPLES.iter().find(|o| self.recall(depth, **o).0 >= TARGET);
        let oversample = *reached.unwrap_or(&OVERSAMPLES[OVERSAMPLES.len() - 1]);
        Forecast {
            rows,
            k: K,
            recall: rounded(recall),
            standard_error: rounded(standard_error),
            oversample,
            reranked: rounded(self.recall(depth, oversample).0),
            measured: depth >= 1.0,
        }
    }

    /// The recall near the top of the list: a mean over several depths.
    pub(crate) fn top_recall(&self, depth: f64) -> f64 {
        let depth = depth.max(1.0);
        let all = [1.0, 2.0, 4.0, 8.0].map(|times| self.recall(times * depth, 1).0);
        all.iter().sum::<f64>() / all.len() as f64
    }

    /// The expected recall of `depth` neighbours among `oversample` times as many candidates, and its standard error.
    pub(crate) fn recall(&self, depth: f64, oversample: usize) -> (f64, f64) {
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

/// The positions of some rows in the order of scores, from 0; the mean position for rows with equal scores.
///
/// The rows are few: counting the smaller scores for each of them is several times as fast as sorting all scores.
pub(super) fn positions(scores: &[f32], rows: &[u32]) -> Vec<f32> {
    let position = |row: &u32| {
        let (below, equal) = arch::below_and_equal(scores, scores[*row as usize]);
        below as f32 + equal.saturating_sub(1) as f32 / 2.0
    };
    rows.iter().map(position).collect()
}

#[cfg(test)]
mod tests {
    use super::positions;

    /// By counting smaller and equal scores for each row.
    fn counted(scores: &[f32], rows: &[u32]) -> Vec<f32> {
        let count = |row: &u32| {
            let score = scores[*row as usize];
            let below = scores.iter().filter(|other| **other < score).count();
            let equal = scores.iter().filter(|other| **other == score).count();
            below as f32 + (equal - 1) as f32 / 2.0
        };
        rows.iter().map(count).collect()
    }

    #[test]
    fn positions_are_counts_of_smaller_scores() {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 8
        };
        for (n, distinct) in [(1, 1), (2, 1), (50, 3), (400, 1 << 20), (300, 40)] {
            let scores: Vec<f32> = (0..n).map(|_| (next() % distinct) as f32 - 7.0).collect();
            let rows: Vec<u32> = (0..n.min(40)).map(|_| next() % n as u32).collect();
            assert_eq!(positions(&scores, &rows), counted(&scores, &rows), "{n} {distinct}");
            assert_eq!(positions(&scores, &[]), [0f32; 0]);
        }
        // Zeros of both signs are equal.
        assert_eq!(positions(&[0.0, -0.0, 1.0, f32::MAX, -1.0], &[0, 1, 3]), [1.5, 1.5, 4.0]);
    }
}
