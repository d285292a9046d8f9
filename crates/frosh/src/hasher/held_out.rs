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
//!
//! **Cost.** A product of the sampled rows with the queries, 2 d operations a pair, for the exact neighbours. It does
//! not depend on what is measured, so a fit can compute it beside the directions. Memory: 4 q bytes for each of the
//! rows that MAP is measured on. Of the other rows only those are kept that are nearer than the nearest of these.

use crate::hasher::positions::Positions;
use crate::linalg;
use crate::pool::Pool;
use crate::sketch::Sketch;
use crate::sketch::frequent_directions::square_norm;
use crate::sketch::reservoir::{PART_ROWS, Part};
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatMut, MatRef, Par};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The number of neighbours that recall is forecast for.
const K: usize = 10;
/// The recall that the forecast number of candidates reaches.
pub(super) const TARGET: f64 = 0.9;
/// Rows of the base that MAP is measured on, and the share of them that is relevant.
const MAP_ROWS: usize = 4096;
const RELEVANT: f64 = 0.02;
/// Sampled rows that one task multiplies: a multiple of the rows of a part.
const TASK_ROWS: usize = 2 * PART_ROWS;
/// Distances that are compared with a limit together.
const STRIDE: usize = 32;
/// Queries that one task measures.
pub(super) const TASK_QUERIES: usize = 16;
/// Numbers of neighbours in the base that recall is measured at, ascending.
const DEPTHS: [usize; 9] = [1, 2, 3, 4, 6, 8, 10, 16, 32];
/// Multiples of kappa, or of 1 if that is more, that the figure of recall is the mean of.
const MULTIPLES: [f64; 4] = [1.0, 2.0, 4.0, 8.0];
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

/// The exact neighbours of the held-out queries.
pub(crate) struct Neighbours {
    /// Rows of the base.
    base: usize,
    queries: usize,
    /// See [`HeldOut`]; so below.
    weight: f64,
    squares: Vec<f64>,
    nearest: Vec<Vec<u32>>,
    relevant: Vec<Vec<u32>>,
}

/// How many rows of a base correspond to the [`K`] nearest of so many rows of this mean weight.
fn depth(base: usize, rows: u64, weight: f64) -> f64 {
    K as f64 * base as f64 / (rows as f64 * weight)
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
    /// The nearest rows of each query in the base, nearest first: as many as figures are made of.
    pub(crate) nearest: Vec<Vec<u32>>,
    /// The relevant rows of each query in the first [`MAP_ROWS`] rows of the base.
    pub(crate) relevant: Vec<Vec<u32>>,
}

/// What an alternative finds for a query: the positions of its nearest rows, and the average precision.
#[derive(Clone, Default)]
pub(super) struct Found {
    positions: Vec<f32>,
    average: f64,
}

/// What was measured of an alternative.
pub(crate) struct Figures {
    pub(crate) map: f64,
    /// For each query, the positions of its nearest rows in the ranking; halves where rows are tied.
    positions: Vec<Vec<f32>>,
}

/// How many nearest rows the figures for this depth are made of.
fn nearest_count(depth: f64) -> usize {
    let deepest = depth.max(1.0) * MULTIPLES[MULTIPLES.len() - 1];
    let last = DEPTHS[DEPTHS.len() - 1];
    DEPTHS.into_iter().find(|d| *d as f64 >= deepest).unwrap_or(last)
}

/// Calls `work` with the rows of a range of the sample, [`PART_ROWS`] at a time, and the number of the first of them within
/// the range.
fn each_part(
    sample: &Part<'_>,
    dim: usize,
    range: Range<usize>,
    mut work: impl FnMut(usize, &[f32]),
) {
    let mut rows = vec![0f32; PART_ROWS.min(range.len()) * dim];
    for from in (0..range.len()).step_by(PART_ROWS) {
        let first = range.start + from;
        let part = first..range.end.min(first + PART_ROWS);
        work(from, sample.read(part, 0..dim, &mut rows));
    }
}

/// The products of rows with the columns of `w`.
fn multiply(to: MatMut<'_, f32>, rows: &[f32], w: MatRef<'_, f32>) {
    let rows = MatRef::from_row_major_slice(rows, to.nrows(), w.nrows());
    matmul(to, Accum::Replace, rows, w, 1.0, Par::Seq);
}

/// An integer with the order of (distance, row).
fn key(distance: f32, row: usize) -> u64 {
    let bits = distance.to_bits();
    let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    u64::from(ordered) << 32 | row as u64
}

/// The distance of a key.
fn distance_of(key: u64) -> f32 {
    let ordered = (key >> 32) as u32;
    f32::from_bits(if ordered >> 31 == 1 { ordered & !(1 << 31) } else { !ordered })
}

/// The squared distance of a row and a query, less the squared length of the query.
fn distance(square: f32, product: f32) -> f32 {
    square - 2.0 * product
}

/// The squared length of each row.
fn square_norms<'a>(rows: &'a [f32], dim: usize) -> impl Iterator<Item = f64> + 'a {
    rows.chunks_exact(dim).map(square_norm)
}

impl Neighbours {
    /// Finds the neighbours among the first `most` sampled rows. `None` if these are too few to hold rows out.
    pub(crate) fn new(sketch: &Sketch, pool: &Pool, most: usize) -> Option<Self> {
        let (queries, sampled) = (sketch.held_out(), sketch.reservoir.len().min(most));
        let base = sampled - queries;
        if queries == 0 || base < 2 * DEPTHS[DEPTHS.len() - 1] {
            return None;
        }
        let dim = sketch.dim;
        let sample = sketch.reservoir.part(&sketch.mean, 0..sampled);
        let mut asked = vec![0f32; queries * dim];
        sample.read(0..queries, 0..dim, &mut asked);
        let asked = MatRef::from_column_major_slice(&asked, dim, queries);
        let map_rows = base.min(MAP_ROWS);
        let weight = sketch.weight() / sketch.rows as f64;
        let wanted = nearest_count(depth(base, sketch.rows, weight));

        // The first rows of the base: all of their distances.
        let mut squares = vec![0f64; base];
        let (first, rest) = squares.split_at_mut(map_rows);
        let mut products = Mat::<f32>::zeros(map_rows, queries);
        let pieces = linalg::row_pieces(products.as_mut(), TASK_ROWS);
        let jobs = pieces.into_iter().zip(first.chunks_mut(TASK_ROWS));
        pool.each(jobs.collect(), |((from, mut to), squares)| {
            let range = queries + from..queries + from + squares.len();
            each_part(&sample, dim, range, |at, rows| {
                let count = rows.len() / dim;
                squares[at..].iter_mut().zip(square_norms(rows, dim)).for_each(|(to, x)| *to = x);
                multiply(to.as_mut().subrows_mut(at, count), rows, asked);
            });
        });
        let count = ((RELEVANT * map_rows as f64).round() as usize).max(1);
        let top = count.max(wanted).min(map_rows);
        let mut lists = vec![(Vec::new(), Vec::new()); queries];
        let first = &*first;
        pool.each(lists.chunks_mut(TASK_QUERIES).enumerate().collect(), |(task, lists)| {
            let mut keys = Vec::with_capacity(map_rows);
            for (i, (near, relevant)) in lists.iter_mut().enumerate() {
                let products = products.col_as_slice(task * TASK_QUERIES + i);
                let each = first.iter().zip(products).enumerate();
                keys.clear();
                keys.extend(
                    each.map(|(row, (square, product))| {
                        key(distance(*square as f32, *product), row)
                    }),
                );
                if top < map_rows {
                    keys.select_nth_unstable(top);
                    keys.truncate(top);
                }
                keys.sort_unstable();
                *relevant = keys[..count].iter().map(|key| *key as u32).collect();
                *near = keys[..wanted.min(top)].to_vec();
            }
        });
        drop(products);

        // Of the other rows, only those that are nearer than the last of these can be among the nearest.
        let last = |(near, _): &(Vec<u64>, Vec<u32>)| near.last().copied().unwrap_or(0);
        let limits: Vec<u64> = lists.iter().map(last).collect();
        let mut found: Vec<Vec<(u32, u64)>> = vec![Vec::new(); rest.len().div_ceil(TASK_ROWS)];
        let jobs = rest.chunks_mut(TASK_ROWS).zip(&mut found).enumerate();
        pool.each(jobs.collect(), |(task, (squares, found))| {
            let from = map_rows + task * TASK_ROWS;
            let mut products = Mat::<f32>::zeros(PART_ROWS.min(squares.len()), queries);
            let range = queries + from..queries + from + squares.len();
            each_part(&sample, dim, range, |at, rows| {
                let count = rows.len() / dim;
                let squares = &mut squares[at..at + count];
                squares.iter_mut().zip(square_norms(rows, dim)).for_each(|(to, x)| *to = x);
                let squares: Vec<f32> = squares.iter().map(|x| *x as f32).collect();
                multiply(products.as_mut().subrows_mut(0, count), rows, asked);
                for (query, limit) in (0u32..).zip(&limits) {
                    let products = &products.col_as_slice(query as usize)[..count];
                    let pieces = squares.chunks(STRIDE).zip(products.chunks(STRIDE));
                    for (piece, (squares, products)) in pieces.enumerate() {
                        let far = distance_of(*limit);
                        let each = || squares.iter().zip(products).map(|(s, p)| distance(*s, *p));
                        // Nearly always false: a loop without branches decides for some rows together.
                        if each().fold(false, |any, x| any | (x <= far)) {
                            let first = from + at + piece * STRIDE;
                            let keys = each().enumerate().map(|(i, x)| key(x, first + i));
                            found.extend(keys.filter(|key| key < limit).map(|key| (query, key)));
                        }
                    }
                }
            });
        });
        for (query, key) in found.into_iter().flatten() {
            lists[query as usize].0.push(key);
        }
        let (mut nearest, mut relevant) =
            (Vec::with_capacity(queries), Vec::with_capacity(queries));
        for (mut keys, own) in lists {
            keys.sort_unstable();
            keys.truncate(wanted);
            nearest.push(keys.iter().map(|key| *key as u32).collect());
            relevant.push(own);
        }
        Some(Self { base, queries, weight, squares, nearest, relevant })
    }
}

impl HeldOut {
    /// Projects the first `most` sampled rows on the directions in the columns of `v`. `None` if these are too few to hold
    /// rows out.
    pub(crate) fn new(
        sketch: &Sketch,
        pool: &Pool,
        v: MatRef<'_, f64>,
        most: usize,
    ) -> Option<Self> {
        let neighbours = Neighbours::new(sketch, pool, most)?;
        Some(Self::along(neighbours, sketch, pool, v, Mat::zeros(0, v.ncols()).as_ref()))
    }

    /// The same with neighbours that are known, and with the projections of the first rows of the base, if they are known.
    pub(crate) fn along(
        neighbours: Neighbours,
        sketch: &Sketch,
        pool: &Pool,
        v: MatRef<'_, f64>,
        known: MatRef<'_, f32>,
    ) -> Self {
        let Neighbours { base, queries, weight, squares, nearest, relevant } = neighbours;
        let (dim, v) = (sketch.dim, linalg::single(v));
        let sample = sketch.reservoir.part(&sketch.mean, 0..base + queries);
        let mut along = Mat::zeros(base + queries, v.ncols());
        let (mut first, others) = along.as_mut().split_at_row_mut(known.nrows().min(base));
        first.copy_from(known.subrows(0, first.nrows()));
        // Queries come first in the sample, and last here.
        let skip = queries + first.nrows();
        let (of_base, of_queries) = others.split_at_row_mut(base - first.nrows());
        let mut jobs = linalg::row_pieces(of_queries, TASK_ROWS);
        let behind = |(from, to)| (skip + from, to);
        jobs.extend(linalg::row_pieces(of_base, TASK_ROWS).into_iter().map(behind));
        pool.each(jobs, |(from, mut to)| {
            each_part(&sample, dim, from..from + to.nrows(), |at, rows| {
                multiply(to.as_mut().subrows_mut(at, rows.len() / dim), rows, v.as_ref());
            });
        });
        Self { base, weight, queries, squares, along, nearest, relevant }
    }

    /// How many rows of the base correspond to the [`K`] nearest of the stream; with decay, of as many rows as the stream
    /// has weight.
    pub(crate) fn depth(&self, rows: u64) -> f64 {
        depth(self.base, rows, self.weight)
    }

    /// Measures a ranking. `score` appends the score of each row of the base for a query.
    pub(crate) fn figures(
        &self,
        pool: &Pool,
        score: impl Fn(usize, &mut Vec<f32>) + Sync,
    ) -> Figures {
        let mut found = vec![Found::default(); self.queries];
        pool.each(found.chunks_mut(TASK_QUERIES).enumerate().collect(), |(task, found)| {
            let mut positions = Positions::default();
            let mut scores = Vec::with_capacity(self.base);
            for (i, found) in found.iter_mut().enumerate() {
                let query = task * TASK_QUERIES + i;
                scores.clear();
                score(query, &mut scores);
                *found = self.found(query, &scores, &mut positions);
            }
        });
        Figures::new(found)
    }

    /// What a ranking finds for a query, by the scores of the rows of the base.
    pub(super) fn found(&self, query: usize, scores: &[f32], work: &mut Positions) -> Found {
        let positions = work.of(scores, &self.nearest[query]);
        let part = &scores[..self.base.min(MAP_ROWS)];
        let mut relevant = work.of(part, &self.relevant[query]);
        relevant.sort_unstable_by(f32::total_cmp);
        let precision = |(i, position): (usize, &f32)| (i + 1) as f64 / f64::from(position + 1.0);
        let precisions = relevant.iter().enumerate().map(precision);
        // Ties can make a mean position smaller than the number of relevant rows before it.
        let average = precisions.map(|p| p.min(1.0)).sum::<f64>() / relevant.len() as f64;
        Found { positions, average }
    }
}

impl Figures {
    /// From what was found for each query.
    pub(super) fn new(found: Vec<Found>) -> Self {
        let map = found.iter().map(|found| found.average).sum::<f64>() / found.len() as f64;
        Self { map, positions: found.into_iter().map(|found| found.positions).collect() }
    }

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
        let all = MULTIPLES.map(|times| self.recall(times * depth, 1).0);
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
            debug_assert!(depth <= positions.len(), "{depth} of {} positions", positions.len());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream};
    use crate::{Config, ExactSearch, Metric, Rows, Sketcher};

    /// As many rows as are sampled, more, and fewer than MAP is measured on; a stream of many rows needs few neighbours.
    #[test]
    fn neighbours_equal_those_of_the_exact_search() {
        const DIM: usize = 6;
        let mut stream = Stream::new(9, Purpose::Sample, 0, 0);
        let data: Vec<f32> = (0..9000 * DIM).map(|_| stream.normal() as f32 + 2.0).collect();
        for (rows, sampled, wanted) in
            [(9000, 9000, 32), (9000, 2000, 16), (1500, 1500, 32), (9000, 1024, 8)]
        {
            let config = Config::new(DIM).sketch_rows(8).reservoir_rows(sampled);
            let mut sketcher = Sketcher::new(config).unwrap();
            sketcher.push(Rows::new(&data[..rows * DIM], DIM).unwrap()).unwrap();
            let sketch = sketcher.finish();
            let queries = sketch.held_out();
            let part = sketch.reservoir.part(&sketch.mean, 0..sampled);
            let mut sample = vec![0f32; sampled * DIM];
            part.read(0..sampled, 0..DIM, &mut sample);
            let (asked, base) = sample.split_at(queries * DIM);
            let exact = |base: &[f32], k: usize| -> Vec<Vec<u32>> {
                let asked = Rows::new(asked, DIM).unwrap();
                let mut search = ExactSearch::new(asked, k, Metric::L2).unwrap();
                search.push(Rows::new(base, DIM).unwrap()).unwrap();
                let found = search.finish();
                found.iter().map(|list| list.iter().map(|hit| hit.id as u32).collect()).collect()
            };
            for threads in [1, 3] {
                let found =
                    Neighbours::new(&sketch, &Pool::new(threads).unwrap(), usize::MAX).unwrap();
                assert_eq!((found.base, found.queries), (sampled - queries, queries));
                assert_eq!(found.nearest, exact(base, wanted), "{rows} rows, {sampled} sampled");
                let part = found.base.min(MAP_ROWS);
                let count = (part as f64 * RELEVANT).round() as usize;
                assert_eq!(found.relevant, exact(&base[..part * DIM], count));
                let lengths =
                    base.chunks(DIM).map(|row| row.iter().map(|x| f64::from(x * x)).sum::<f64>());
                for (square, length) in found.squares.iter().zip(lengths) {
                    assert!((square - length).abs() < 1e-5 * length, "{square} {length}");
                }
            }
        }
    }

    #[test]
    fn figures_need_no_more_neighbours_than_are_found() {
        for depth in [0.001, 0.3, 1.0, 1.2, 2.0, 3.9, 4.0, 7.0, 50.0] {
            let found = Found { positions: vec![0.0; nearest_count(depth)], average: 0.5 };
            let figures = Figures::new(vec![found.clone(), found]);
            // Asking for more is a failed assertion.
            assert_eq!((figures.top_recall(depth), figures.forecast(depth, 10).recall), (1.0, 1.0));
        }
        assert_eq!([0.3, 1.0, 1.1, 2.0, 3.0].map(nearest_count), [8, 8, 10, 16, 32]);
    }
}
