//! A ranking on trial: some sampled rows ask for the others, and what the ranking finds is compared with their exact
//! neighbours. Choices that a model makes by itself are made so, on the rows of its own stream.
//!
//! **Measure.** Of the sampled rows some ask, and all others are the base. A query's recall at depth k is the share of
//! its k exact nearest that are among the first k of the ranking; a query's score is the mean of that over some depths.
//!
//! **Depth.** The sample has n of the N rows of the stream, so who asks for the k nearest of N asks for about k n / N
//! rows of the sample. Depths are given for the stream and converted; at least one row is asked for. A sample cannot show
//! what only happens nearer than its own nearest rows.
//!
//! **Choice.** The alternatives answer the same queries, so their scores are compared query by query ([`choose`]).
//! The first one is the default: another takes its place only if it is better by more than the standard error.
//!
//! **Where we differ** from [`RankedEvaluation`](crate::RankedEvaluation), which measures a finished model on a base of
//! any size: here nothing is encoded, the ranking is any function of pairs of sampled rows, and truth is computed once
//! for all alternatives.
//!
//! **Cost.** A product of the sampled rows with those that ask, 2 d operations a pair. For each alternative, a score
//! for each pair and a selection.

use crate::hasher::estimator;
use crate::pool::Pool;
use crate::sketch::Sketch;
use faer::MatRef;
use std::ops::Range;

/// Most sampled rows that take part.
pub(crate) const ROWS: usize = 2048;
/// How many of them ask.
pub(crate) const QUERIES: usize = 128;

/// The queries, and what is true of them.
pub(crate) struct Trial {
    /// Sampled rows that take part.
    rows: usize,
    /// Which of them ask; all others are the base.
    asking: Range<usize>,
    /// How deep it is looked, in rows of the sample, ascending.
    depths: Vec<usize>,
    /// For each query as many of its exact nearest as the last depth, nearest first.
    nearest: Vec<Vec<u32>>,
}

impl Trial {
    /// The sampled rows in `asking` ask for the others. `depths` are numbers of nearest rows among all rows that the
    /// sketch has seen. `None` where the sample is too small for a base of more rows than there are queries.
    pub(crate) fn new(
        sketch: &Sketch,
        pool: &Pool,
        asking: Range<usize>,
        depths: &[usize],
    ) -> Option<Self> {
        let rows = sketch.reservoir.len().min(ROWS);
        let base = rows.checked_sub(asking.len()).filter(|base| *base > asking.len())?;
        if asking.is_empty() || asking.end > rows || depths.is_empty() {
            return None;
        }
        let share = base as f64 / sketch.rows as f64;
        let converted = |k: &usize| ((*k as f64 * share).round() as usize).clamp(1, base);
        let mut depths: Vec<usize> = depths.iter().map(converted).collect();
        depths.sort_unstable();
        depths.dedup();

        let dim = sketch.dim;
        let first = sketch.reservoir.map_parts(pool, &sketch.mean, asking.end, <[f32]>::to_vec);
        let first = first.concat();
        let queries =
            MatRef::from_column_major_slice(&first[asking.start * dim..], dim, asking.len());
        let zero = vec![0f32; dim];
        let pairs = sketch.project_sample(pool, rows, queries, |row, products| {
            (estimator::square_norm(row, &zero) as f32, products.to_vec())
        });
        let mut trial = Self { rows, asking, depths, nearest: Vec::new() };
        // The query's own length is the same for all rows.
        trial.nearest = trial.each(pool, |query, distances| {
            for (distance, (square, products)) in distances.iter_mut().zip(&pairs) {
                *distance = square - 2.0 * products[query];
            }
        });
        Some(trial)
    }

    /// Which of the sampled rows ask.
    pub(crate) fn asking(&self) -> Range<usize> {
        self.asking.clone()
    }

    /// The score of a ranking for each query. `rank` gets the number of a query, from 0, and fills in a value for each
    /// sampled row, the smaller the nearer; those of rows that ask are not looked at.
    pub(crate) fn recall(&self, pool: &Pool, rank: impl Fn(usize, &mut [f32]) + Sync) -> Vec<f64> {
        let found = self.each(pool, rank);
        let mut place = vec![u32::MAX; self.rows];
        let one = |(found, nearest): (&Vec<u32>, &Vec<u32>)| {
            found.iter().zip(0..).for_each(|(row, at)| place[*row as usize] = at);
            let hits = |depth: usize| {
                nearest[..depth]
                    .iter()
                    .filter(|row| (place[**row as usize] as usize) < depth)
                    .count()
            };
            let shares = self.depths.iter().map(|depth| hits(*depth) as f64 / *depth as f64);
            let score = shares.sum::<f64>() / self.depths.len() as f64;
            found.iter().for_each(|row| place[*row as usize] = u32::MAX);
            score
        };
        found.iter().zip(&self.nearest).map(one).collect()
    }

    /// For each query, the first rows of the base by what `rank` gives them, as many as the last depth; equal ones by
    /// their number.
    fn each(&self, pool: &Pool, rank: impl Fn(usize, &mut [f32]) + Sync) -> Vec<Vec<u32>> {
        let deepest = self.depths[self.depths.len() - 1];
        let mut found: Vec<Vec<u32>> = vec![Vec::new(); self.asking.len()];
        // A few tasks for each thread, so that buffers are made seldom.
        let size = found.len().div_ceil(4 * pool.threads());
        let jobs = found.chunks_mut(size).enumerate().collect();
        pool.each(jobs, |(job, found): (usize, &mut [Vec<u32>])| {
            let (mut values, mut keys) = (vec![0f32; self.rows], Vec::with_capacity(self.rows));
            for (i, found) in found.iter_mut().enumerate() {
                rank(job * size + i, &mut values);
                keys.clear();
                let base = values.iter().zip(0u32..);
                keys.extend(
                    base.filter(|(_, row)| !self.asking.contains(&(*row as usize)))
                        .map(|(value, row)| key(*value, row)),
                );
                if deepest < keys.len() {
                    keys.select_nth_unstable(deepest - 1);
                    keys.truncate(deepest);
                }
                keys.sort_unstable();
                *found = keys.iter().map(|key| *key as u32).collect();
            }
        });
        found
    }
}

/// A number that orders as (value, row) does.
fn key(value: f32, row: u32) -> u64 {
    let bits = value.to_bits();
    let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    u64::from(ordered) << 32 | u64::from(row)
}

/// The number of the best of some alternatives, by their scores for the same queries: the first, unless another is
/// above it by more than the standard error of their difference. Of several such ones, the one with the best mean.
pub(crate) fn choose(scores: &[Vec<f64>]) -> usize {
    let Some((first, others)) = scores.split_first() else { return 0 };
    let n = first.len() as f64;
    let mut best = (0, 0.0);
    for (number, other) in (1..).zip(others) {
        let above = |(a, b): (&f64, &f64)| a - b;
        let mean = other.iter().zip(first).map(above).sum::<f64>() / n;
        let squares = other.iter().zip(first).map(|pair| (above(pair) - mean).powi(2)).sum::<f64>();
        let standard_error = (squares / (n * (n - 1.0).max(1.0))).sqrt();
        if mean > standard_error && mean > best.1 {
            best = (number, mean);
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream};
    use crate::{Config, ExactSearch, Metric, Rows, Sketcher};

    const DIM: usize = 12;

    fn sketch(rows: usize, sampled: usize) -> Sketch {
        let mut stream = Stream::new(9, Purpose::Sample, 0, 0);
        let data: Vec<f32> = (0..rows * DIM).map(|_| stream.normal() as f32 + 2.0).collect();
        let config = Config::new(DIM).sketch_rows(16).reservoir_rows(sampled);
        let mut sketcher = Sketcher::new(config).unwrap();
        sketcher.push(Rows::new(&data, DIM).unwrap()).unwrap();
        sketcher.finish()
    }

    /// Who ranks by the exact distances finds all, who ranks by their opposites nothing, and the rows that ask are never
    /// among those found.
    #[test]
    fn truth_is_that_of_the_exact_search() {
        let sketch = sketch(600, 600);
        let rows = sketch.reservoir.map_parts(&Pool::ONE, &sketch.mean, 600, <[f32]>::to_vec);
        let rows = rows.concat();
        let (asking, depths) = (20..50, [1, 10, 40]);
        let trial = Trial::new(&sketch, &Pool::ONE, asking.clone(), &depths).unwrap();
        // 570 of 600 rows are the base.
        assert_eq!((trial.rows, trial.depths.clone()), (600, vec![1, 10, 38]));

        let of = |data| Rows::new(data, DIM).unwrap();
        let (before, rest) = rows.split_at(asking.start * DIM);
        let (asked, after) = rest.split_at(asking.len() * DIM);
        let mut search = ExactSearch::new(of(asked), 38, Metric::L2).unwrap();
        search.push(of(before)).unwrap();
        search.push(of(after)).unwrap();
        let number = |id: u64| id as u32 + if id < 20 { 0 } else { 30 };
        let want: Vec<Vec<u32>> = search
            .finish()
            .iter()
            .map(|list| list.iter().map(|f| number(f.id)).collect())
            .collect();
        assert_eq!(trial.nearest, want);

        let exact = |query: usize, out: &mut [f32]| {
            let own = &rows[(20 + query) * DIM..][..DIM];
            for (out, row) in out.iter_mut().zip(rows.chunks(DIM)) {
                *out = row.iter().zip(own).map(|(a, b)| (a - b).powi(2)).sum();
            }
        };
        let pool = Pool::new(3).unwrap();
        assert_eq!(trial.recall(&pool, exact), vec![1.0; 30]);
        let opposite = |query: usize, out: &mut [f32]| {
            exact(query, out);
            out.iter_mut().for_each(|x| *x = -*x);
        };
        assert_eq!(trial.recall(&pool, opposite), vec![0.0; 30]);
        // A ranking that has every second of the nearest far away.
        let half = |query: usize, out: &mut [f32]| {
            exact(query, out);
            want[query].iter().skip(1).step_by(2).for_each(|row| out[*row as usize] = f32::MAX);
        };
        for score in trial.recall(&Pool::ONE, half) {
            assert!((score - (1.0 + 0.5 + 0.5) / 3.0).abs() < 1e-12, "{score}");
        }
    }

    #[test]
    fn depths_are_those_of_the_stream() {
        let sketch = sketch(4000, 1000);
        let depths = |asked: &[usize]| {
            Trial::new(&sketch, &Pool::ONE, 0..200, asked).map(|trial| trial.depths)
        };
        // 800 of 4,000 rows are the base: one in five.
        assert_eq!(depths(&[100, 1, 10]).unwrap(), [1, 2, 20]);
        assert_eq!(depths(&[1, 2]).unwrap(), [1]);
        assert_eq!(depths(&[1_000_000]).unwrap(), [800]);
        assert!(depths(&[]).is_none());
        for asking in [0..0, 900..1001, 0..500] {
            assert!(Trial::new(&sketch, &Pool::ONE, asking, &[10]).is_none());
        }
    }

    #[test]
    fn the_first_stays_unless_another_is_surely_better() {
        let alike = vec![0.5; 100];
        let noisy = |by: f64| -> Vec<f64> {
            (0..100).map(|i| 0.5 + by + if i % 2 == 0 { 0.3 } else { -0.3 }).collect()
        };
        assert_eq!(choose(&[alike.clone(), alike.clone()]), 0);
        // Two standard errors are 0.06.
        assert_eq!(choose(&[alike.clone(), noisy(0.01)]), 0);
        assert_eq!(choose(&[alike.clone(), noisy(0.01), noisy(0.06), noisy(0.05)]), 2);
        assert_eq!(choose(&[alike.clone(), noisy(-0.2), vec![0.51; 100]]), 2);
        assert_eq!(choose(&[]), 0);
    }
}
