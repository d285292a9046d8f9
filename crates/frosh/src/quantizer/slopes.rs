//! The slopes of the scalar, by least squares.
//!
//! A search errs where rows compete for the last places of its list. The slopes a1 and a2 are those that bring the
//! ranking of such rivals nearest to the true distances D:
//!
//! ```text
//! D - (|c|^2 - 2 v.c)  ~  a1 * 2 (u.c - |c|^2) + a2 * (N - 2 u.c + |c|^2) + a constant for each query
//! ```
//!
//! The rivals are the first 2 k rows by the estimate, if k rows are asked for: about half of them belong into the list.
//! Which rows these are depends on the slopes, so that the regression is repeated.
//!
//! Queries are the held-out rows, and rows of the base, which are searched for among all others. Few pairs of rows
//! decide, so many queries are needed. (Slopes that maximise the measured recall vary far more from sample to sample.)
//!
//! **Cost.** For each query, its products with the decoded rows of the base, and the exact distances of a few.

use super::scalar::Terms;
use crate::arch::Isa;
use crate::arch::sixteen::{F32x16, Work16, square_distance};
use crate::pool::Pool;
use crate::sketch::reservoir::Part;
use faer::{Mat, MatRef};

/// Most queries.
const QUERIES: usize = 4096;
/// Queries whose products are in memory together.
const PIECE: usize = 256;
/// Queries of a task.
const TASK_QUERIES: usize = 16;
/// Rivals of a query for each row that is asked for, and the fewest.
const RIVALS: f64 = 2.0;
const MIN_RIVALS: usize = 4;
/// Candidates for each rival. The estimates that they are chosen by have the first slopes.
const CANDIDATES: usize = 4;
/// Most rivals.
const MAX_RIVALS: usize = LANES / 2 / CANDIDATES;
/// Slopes that the candidates are chosen by, and the number of regressions.
const FIRST: [f32; 2] = [0.2, 0.5];
const ROUNDS: usize = 8;
/// Lanes of [`Smallest`].
const LANES: usize = 512;

/// A row that competes for a place among the nearest of a query.
#[derive(Clone, Copy)]
struct Rival {
    /// |c|^2 - 2 v.c
    estimate: f64,
    /// The terms of tau that have slopes.
    terms: [f64; 2],
    /// The exact distance.
    distance: f64,
}

impl Rival {
    fn score(&self, slopes: [f64; 2]) -> f64 {
        self.estimate + slopes[0] * self.terms[0] + slopes[1] * self.terms[1]
    }
}

/// Sampled rows: queries first, and then the base.
pub(super) struct Sampled<'a> {
    pub(super) rows: Part<'a>,
    pub(super) dim: usize,
    /// Held-out queries.
    pub(super) held_out: usize,
}

/// The slopes for rows of the base with these terms, if `depth` rows are asked for. `projections` returns those of some
/// sampled rows, a column each, and `products` the products of projections with the decoded rows of the base.
pub(super) fn fit(
    pool: &Pool,
    terms: &[Terms],
    sampled: &Sampled<'_>,
    depth: f64,
    projections: impl Fn(std::ops::Range<usize>) -> Mat<f32>,
    products: impl Fn(MatRef<'_, f32>) -> Mat<f32>,
) -> [f32; 2] {
    let rivals = ((RIVALS * depth).round() as usize).clamp(MIN_RIVALS, MAX_RIVALS);
    let taus: Vec<f32> = terms.iter().map(|t| t.tau(FIRST)).collect();
    let asked = sampled.rows.len().min(QUERIES);
    let mut all: Vec<Vec<Rival>> = vec![Vec::new(); asked];
    for (piece, found) in all.chunks_mut(PIECE).enumerate() {
        let first = piece * PIECE;
        let products = products(projections(first..first + found.len()).as_ref());
        pool.each(found.chunks_mut(TASK_QUERIES).enumerate().collect(), |(task, found)| {
            let mut scores = vec![0f32; taus.len()];
            let (mut smallest, dim) = (Smallest::default(), sampled.dim);
            let (mut query, mut row) = (vec![0f32; dim], vec![0f32; dim]);
            for (i, found) in found.iter_mut().enumerate() {
                let (column, number) = (task * TASK_QUERIES + i, first + task * TASK_QUERIES + i);
                let products = products.col_as_slice(column);
                let each = scores.iter_mut().zip(&taus).zip(products);
                each.for_each(|((score, tau), product)| *score = tau - 2.0 * product);
                // A row of the base does not compete for itself.
                if let Some(own) = number.checked_sub(sampled.held_out) {
                    scores[own] = f32::INFINITY;
                }
                sampled.rows.read(number..number + 1, 0..dim, &mut query);
                for i in smallest.of(&scores, CANDIDATES * rivals) {
                    let place = sampled.held_out + i;
                    sampled.rows.read(place..place + 1, 0..dim, &mut row);
                    let distance = Isa::detect().sixteens(Distance(&query, &row));
                    let estimate = f64::from(terms[i].square) - 2.0 * f64::from(products[i]);
                    let terms = [terms[i].along.into(), terms[i].error.into()];
                    found.push(Rival { estimate, terms, distance: distance.into() });
                }
            }
        });
    }
    let mut slopes = FIRST.map(f64::from);
    for _ in 0..ROUNDS {
        // Half a step: small slopes choose rivals that large slopes fit, and the reverse.
        let found = regression(&all, slopes, rivals);
        slopes = [(slopes[0] + found[0]) / 2.0, (slopes[1] + found[1]) / 2.0];
    }
    slopes.map(|x| x as f32)
}

struct Distance<'a>(&'a [f32], &'a [f32]);

impl Work16 for Distance<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: F32x16>(self, s: S) -> f32 {
        square_distance(s, self.0, self.1)
    }
}

/// The slopes that fit the first `count` candidates of each query best, in the order that the present slopes give.
fn regression(queries: &[Vec<Rival>], slopes: [f64; 2], count: usize) -> [f64; 2] {
    // The normal equations.
    let (mut squares, mut right) = ([0f64; 3], [0f64; 2]);
    for candidates in queries {
        let mut ranked: Vec<(f64, &Rival)> =
            candidates.iter().map(|rival| (rival.score(slopes), rival)).collect();
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
        ranked.truncate(count);
        let value = |r: &Rival| [r.terms[0], r.terms[1], r.distance - r.estimate];
        let mut means = [0f64; 3];
        for (_, rival) in &ranked {
            means.iter_mut().zip(value(rival)).for_each(|(mean, x)| *mean += x);
        }
        let means = means.map(|sum| sum / ranked.len().max(1) as f64);
        for (_, rival) in &ranked {
            let [mut x, mut y, mut z] = value(rival);
            (x, y, z) = (x - means[0], y - means[1], z - means[2]);
            squares = [squares[0] + x * x, squares[1] + x * y, squares[2] + y * y];
            right = [right[0] + x * z, right[1] + y * z];
        }
    }
    let [a, b, c] = squares;
    let determinant = a * c - b * b;
    // Without differences between rivals, any slopes will do.
    if determinant <= 1e-9 * a * c {
        return [1.0; 2];
    }
    let solved =
        [(c * right[0] - b * right[1]) / determinant, (a * right[1] - b * right[0]) / determinant];
    // A query that is independent of the rows would need slopes of 1, and one that equals a row 0 and -1.
    solved.map(|slope| slope.clamp(0.0, 1.0))
}

/// Finds the smallest of many numbers.
#[derive(Default)]
struct Smallest {
    lanes: Vec<f32>,
    sorted: Vec<f32>,
    found: Vec<(f32, usize)>,
}

impl Smallest {
    /// The places of the `count` smallest scores, ascending; of equal ones, those that stand first. `count` is at most
    /// half the [`LANES`].
    fn of(&mut self, scores: &[f32], count: usize) -> impl Iterator<Item = usize> {
        // Lane j has the least of every 512th score from j on. The count-th of the lanes is a limit for the count-th of
        // all.
        self.lanes.clear();
        self.lanes.resize(LANES, f32::INFINITY);
        for part in scores.chunks(LANES) {
            for (least, x) in self.lanes.iter_mut().zip(part) {
                *least = if *x < *least { *x } else { *least };
            }
        }
        self.sorted.clone_from(&self.lanes);
        let (_, limit, _) = self.sorted.select_nth_unstable_by(count - 1, f32::total_cmp);
        self.found.clear();
        for (j, _) in self.lanes.iter().enumerate().filter(|(_, least)| **least <= *limit) {
            let lane = scores.iter().enumerate().skip(j).step_by(LANES);
            self.found.extend(lane.filter(|(_, x)| **x <= *limit).map(|(i, x)| (*x, i)));
        }
        self.found.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        self.found.truncate(count);
        self.found.iter().map(|(_, i)| *i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream};

    #[test]
    fn the_smallest_equal_those_of_sorting() {
        let mut stream = Stream::new(1, Purpose::Sample, 7, 0);
        let mut smallest = Smallest::default();
        for n in [1, 40, 512, 513, 3000] {
            // Few different numbers, so that many are equal.
            let scores: Vec<f32> = (0..n).map(|_| stream.below(300) as f32).collect();
            let mut order: Vec<usize> = (0..n).collect();
            order.sort_by(|a, b| scores[*a].total_cmp(&scores[*b]));
            for count in [1, 7, 100, 256] {
                let got: Vec<usize> = smallest.of(&scores, count).collect();
                assert_eq!(got, order[..count.min(n)], "{count} of {n}");
            }
        }
    }

    /// Distances that are the model with known slopes, and noise of deviation .1.
    #[test]
    fn regression_finds_the_slopes_of_a_model() {
        let mut stream = Stream::new(2, Purpose::Sample, 7, 0);
        let (slopes, queries, count) = ([0.3, 0.6], 400, 8);
        let all: Vec<Vec<Rival>> = (0..queries)
            .map(|_| {
                let mut rival = |constant: f64| {
                    let terms = [stream.normal(), 1.0 + stream.normal().abs()];
                    let estimate = 3.0 * stream.normal();
                    let told = slopes[0] * terms[0] + slopes[1] * terms[1];
                    let distance = estimate + told + constant + 0.1 * stream.normal();
                    Rival { estimate, terms, distance }
                };
                (0..4 * count).map(|i| rival(f64::from(i as u32 / 64))).collect()
            })
            .collect();
        let got = regression(&all, [0.5, 0.5], count);
        // 2,800 differences of terms with a deviation of at least .6: four standard errors.
        for (got, want) in got.into_iter().zip(slopes) {
            assert!((got - want).abs() < 4.0 * 0.1 / 0.6 / 2800f64.sqrt(), "{got} {want}");
        }
        assert_eq!(regression(&[], [0.5, 0.5], count), [1.0, 1.0]);
    }
}
