//! Measures the recall of a ranking on the sample: some sampled rows are held out as queries, and the others are the base.
//! The fit uses it to choose between alternatives.
//!
//! **Measure.** The recall of a query at depth k is the share of its k exact nearest rows that are among the first k
//! of the ranking. The score of a query is the mean of its recall over some depths.
//!
//! **Depth.** The base has n of the N rows of the stream, so the k nearest of N rows correspond to about k n / N rows of
//! the base. Depths are given for the stream and converted, to at least 1. A sample cannot measure effects at smaller
//! distances than those between sampled rows.
//!
//! **Choice.** All alternatives have the same queries, so their scores are compared for each query ([`choose`]). The
//! first alternative is the default. Another one replaces it only if it is better by more than the standard error.
//!
//! **Where we differ** from [`RankedEvaluation`](crate::RankedEvaluation), which measures a model on a base of any
//! size: nothing is encoded here, the ranking is any function of pairs of sampled rows, and the exact neighbours are
//! computed once for all alternatives.
//!
//! **Cost.** A product of the sampled rows with the queries, 2 d operations a pair. For each alternative, a score for
//! each pair and a selection.

use crate::hasher::estimator;
use crate::pool::Pool;
use crate::sketch::Sketch;
use faer::MatRef;
use std::ops::Range;

/// Largest number of sampled rows that are used.
pub(crate) const ROWS: usize = 2048;
/// Number of queries among them.
pub(crate) const QUERIES: usize = 128;

/// Held-out queries, and their exact neighbours.
pub(crate) struct Trial {
    /// Number of sampled rows that are used.
    rows: usize,
    /// Which of them are queries; all others are the base.
    queries: Range<usize>,
    /// Depths in rows of the base, ascending.
    depths: Vec<usize>,
    /// The exact nearest rows of each query, nearest first, up to the largest depth.
    nearest: Vec<Vec<u32>>,
}

impl Trial {
    /// Uses the sampled rows in `queries` as queries, and the others as the base. `depths` are numbers of nearest rows
    /// among all rows of the stream. `None` if the base would not have more rows than there are queries.
    pub(crate) fn new(
        sketch: &Sketch,
        pool: &Pool,
        queries: Range<usize>,
        depths: &[usize],
    ) -> Option<Self> {
        let rows = sketch.fit_rows(ROWS).len();
        let base = rows.checked_sub(queries.len()).filter(|base| *base > queries.len())?;
        if queries.is_empty() || queries.end > rows || depths.is_empty() {
            return None;
        }
        let share = base as f64 / sketch.weight();
        let converted = |k: &usize| ((*k as f64 * share).round() as usize).clamp(1, base);
        let mut depths: Vec<usize> = depths.iter().map(converted).collect();
        depths.sort_unstable();
        depths.dedup();

        let dim = sketch.dim;
        let first = sketch.reservoir.map_parts(
            pool,
            &sketch.mean,
            sketch.fit_rows(queries.end),
            <[f32]>::to_vec,
        );
        let first = first.concat();
        let columns =
            MatRef::from_column_major_slice(&first[queries.start * dim..], dim, queries.len());
        let zero = vec![0f32; dim];
        let pairs = sketch.project_sample(pool, rows, columns, |row, products| {
            (estimator::square_norm(row, &zero) as f32, products.to_vec())
        });
        let mut trial = Self { rows, queries, depths, nearest: Vec::new() };
        // Without the squared length of the query, which is the same for all rows.
        trial.nearest = trial.each(pool, |query, distances| {
            for (distance, (square, products)) in distances.iter_mut().zip(&pairs) {
                *distance = square - 2.0 * products[query];
            }
        });
        Some(trial)
    }

    /// The score of a ranking for each query. `rank` is called with the number of a query, from 0, and writes a value for
    /// each sampled row, smaller for nearer rows; values of query rows are ignored.
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

    /// For each query, the first rows of the base by the values of `rank`, up to the largest depth; ties by row number.
    fn each(&self, pool: &Pool, rank: impl Fn(usize, &mut [f32]) + Sync) -> Vec<Vec<u32>> {
        let deepest = self.depths[self.depths.len() - 1];
        let mut found: Vec<Vec<u32>> = vec![Vec::new(); self.queries.len()];
        // A few tasks for each thread, so that few buffers are allocated.
        let size = found.len().div_ceil(4 * pool.threads());
        let jobs = found.chunks_mut(size).enumerate().collect();
        pool.each(jobs, |(job, found): (usize, &mut [Vec<u32>])| {
            let (mut values, mut keys) = (vec![0f32; self.rows], Vec::with_capacity(self.rows));
            for (i, found) in found.iter_mut().enumerate() {
                rank(job * size + i, &mut values);
                keys.clear();
                let base = values.iter().zip(0u32..);
                keys.extend(
                    base.filter(|(_, row)| !self.queries.contains(&(*row as usize)))
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

/// An integer with the same order as (value, row).
fn key(value: f32, row: u32) -> u64 {
    let bits = value.to_bits();
    let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    u64::from(ordered) << 32 | u64::from(row)
}

/// The index of the best alternative, by scores for the same queries. It is the first one, unless the mean of another is
/// higher by more than the standard error of the difference; of several such alternatives, the one with the highest mean.
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

    /// A ranking by exact distances has recall 1, one by negated distances recall 0. Queries are never in the results.
    #[test]
    fn neighbours_equal_those_of_the_exact_search() {
        let sketch = sketch(600, 600);
        let rows = sketch.reservoir.map_parts(
            &Pool::ONE,
            &sketch.mean,
            sketch.fit_rows(600),
            <[f32]>::to_vec,
        );
        let rows = rows.concat();
        let (queries, depths) = (20..50, [1, 10, 40]);
        let trial = Trial::new(&sketch, &Pool::ONE, queries.clone(), &depths).unwrap();
        // 570 of 600 rows are the base.
        assert_eq!((trial.rows, trial.depths.clone()), (600, vec![1, 10, 38]));

        let of = |data| Rows::new(data, DIM).unwrap();
        let (before, rest) = rows.split_at(queries.start * DIM);
        let (held_out, after) = rest.split_at(queries.len() * DIM);
        let mut search = ExactSearch::new(of(held_out), 38, Metric::L2).unwrap();
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
        // A ranking that moves every second exact neighbour to the end.
        let half = |query: usize, out: &mut [f32]| {
            exact(query, out);
            want[query].iter().skip(1).step_by(2).for_each(|row| out[*row as usize] = f32::MAX);
        };
        for score in trial.recall(&Pool::ONE, half) {
            assert!((score - (1.0 + 0.5 + 0.5) / 3.0).abs() < 1e-12, "{score}");
        }
    }

    #[test]
    fn depths_are_converted_from_stream_to_base() {
        let sketch = sketch(4000, 1000);
        let depths = |of_stream: &[usize]| {
            Trial::new(&sketch, &Pool::ONE, 0..200, of_stream).map(|trial| trial.depths)
        };
        // 800 of 4,000 rows are the base: one in five.
        assert_eq!(depths(&[100, 1, 10]).unwrap(), [1, 2, 20]);
        assert_eq!(depths(&[1, 2]).unwrap(), [1]);
        assert_eq!(depths(&[1_000_000]).unwrap(), [800]);
        assert!(depths(&[]).is_none());
        for queries in [0..0, 900..1001, 0..500] {
            assert!(Trial::new(&sketch, &Pool::ONE, queries, &[10]).is_none());
        }
    }

    #[test]
    fn the_first_is_chosen_unless_another_is_significantly_better() {
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
