//! The scalar of a code: what the distance needs beside the decoded row.
//!
//! With u the projections of a row, N its squared length and c its decoded projections, the distance to a query with
//! projections v is ranked by tau - 2 v.c, where
//!
//! ```text
//! tau = |c|^2 + a1 * 2 (u.c - |c|^2) + a2 * (N - 2 u.c + |c|^2)
//! ```
//!
//! The second term is what decoding lost along c, the third the squared error, with the part outside the directions.
//! a1 = a2 = 1 would be unbiased for a query that is independent of the row. A near row shares part of what was lost, so
//! smaller slopes rank better. The fit chooses them on the sample.
//!
//! Most of tau follows from the code: a table predicts it, with one entry for each cell and word (ridge regression). The
//! code stores what is left over, as one of 16 or 256 levels.

use super::codebooks::{CELLS, WORDS};
use faer::linalg::solvers::Solve;
use faer::{Mat, Side};

/// Weight of zero in the regression, in rows.
const RIDGE: f64 = 4.0;
/// Rounds of Lloyd's method for 16 levels.
const LLOYD_ROUNDS: usize = 30;
/// Share of the range of the sample that 256 levels extend beyond it, at each end.
const MARGIN: f64 = 0.08;

/// The three terms of tau for one row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terms {
    /// |c|^2
    pub(crate) square: f32,
    /// 2 (u.c - |c|^2)
    pub(crate) along: f32,
    /// N - 2 u.c + |c|^2
    pub(crate) error: f32,
}

impl Terms {
    /// The terms of a row, from |c|^2, u.c and N.
    pub(crate) fn new(square: f32, product: f32, norm: f32) -> Self {
        Self { square, along: 2.0 * (product - square), error: norm - 2.0 * product + square }
    }

    /// tau.
    pub(crate) fn tau(&self, [along, error]: [f32; 2]) -> f32 {
        self.square + along * self.along + error * self.error
    }
}

/// How tau is stored.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ScalarCode {
    /// a1 and a2.
    pub(crate) slopes: [f32; 2],
    /// What each cell and word adds to the prediction. The constant is in the cells.
    pub(crate) prediction: Vec<f32>,
    /// Values of the part that is left over, ascending: 16 or 256.
    pub(crate) levels: Vec<f32>,
}

/// Predictions of the three terms of tau from the code: a value for each cell and word. A prediction is linear in what it
/// predicts, so that of tau follows for any slopes.
pub(crate) struct Predictions(Mat<f64>);

impl Predictions {
    /// Ridge regression of the terms of sampled rows on the ones and zeros of their codes.
    pub(crate) fn fit(codes: &[u8], books: usize, terms: &[Terms]) -> Self {
        let (length, count) = (books + 1, CELLS + WORDS * books);
        let columns = |code: &[u8]| -> Vec<usize> {
            let words = code[1..].iter().enumerate();
            let words = words.map(|(m, b)| CELLS + WORDS * m + usize::from(*b));
            std::iter::once(usize::from(code[0])).chain(words).collect()
        };
        let values = |t: &Terms| [t.square, t.along, t.error].map(f64::from);
        let mut means = [0f64; 3];
        for terms in terms {
            means.iter_mut().zip(values(terms)).for_each(|(mean, x)| *mean += x);
        }
        let means = means.map(|sum| sum / terms.len().max(1) as f64);
        let mut gram = Mat::<f64>::zeros(count, count);
        let mut right = Mat::<f64>::zeros(count, 3);
        for (code, terms) in codes.chunks_exact(length).zip(terms) {
            let columns = columns(code);
            for (a, column) in columns.iter().enumerate() {
                for (j, (x, mean)) in values(terms).iter().zip(means).enumerate() {
                    right[(*column, j)] += x - mean;
                }
                for row in &columns[a..] {
                    gram[(*row, *column)] += 1.0;
                }
            }
        }
        for j in 0..count {
            gram[(j, j)] += RIDGE;
        }
        if let Ok(factor) = gram.llt(Side::Lower) {
            factor.solve_in_place(right.as_mut());
        }
        for (j, mean) in means.into_iter().enumerate() {
            (0..CELLS).for_each(|cell| right[(cell, j)] += mean);
        }
        Self(right)
    }

    /// The prediction of tau.
    fn of_tau(&self, [along, error]: [f32; 2]) -> Vec<f32> {
        let slopes = [1.0, f64::from(along), f64::from(error)];
        let entry = |i| (0..3).map(|j| slopes[j] * self.0[(i, j)]).sum::<f64>() as f32;
        (0..self.0.nrows()).map(entry).collect()
    }
}

impl ScalarCode {
    /// Fits the levels to the codes of sampled rows and their tau.
    pub(crate) fn fit(
        slopes: [f32; 2],
        predictions: &Predictions,
        codes: &[u8],
        books: usize,
        taus: &[f32],
        levels: usize,
    ) -> Self {
        let prediction = predictions.of_tau(slopes);
        let mut fitted = Self { slopes, prediction, levels: Vec::new() };
        let rest: Vec<f32> = codes
            .chunks_exact(books + 1)
            .zip(taus)
            .map(|(code, tau)| tau - fitted.predict(code))
            .collect();
        fitted.levels = if levels <= 16 { lloyd(rest, levels) } else { stretched(rest, levels) };
        fitted
    }

    /// The tau that a code predicts.
    pub(crate) fn predict(&self, code: &[u8]) -> f32 {
        let (cells, words) = self.prediction.split_at(CELLS);
        let words = code[1..].iter().zip(words.as_chunks::<WORDS>().0);
        words.fold(cells[usize::from(code[0])], |sum, (b, table)| sum + table[usize::from(*b)])
    }

    /// The number of the level that is nearest to what the prediction lacks.
    pub(crate) fn encode(&self, code: &[u8], tau: f32) -> u8 {
        let rest = tau - self.predict(code);
        let above = self.levels.partition_point(|level| *level < rest);
        let near = |i: usize| (self.levels[i] - rest).abs();
        match above {
            0 => 0,
            n if n == self.levels.len() => (n - 1) as u8,
            n if near(n - 1) <= near(n) => (n - 1) as u8,
            n => n as u8,
        }
    }
}

/// Levels by Lloyd's method, which minimises the squared error.
fn lloyd(mut values: Vec<f32>, levels: usize) -> Vec<f32> {
    values.sort_unstable_by(f32::total_cmp);
    let n = values.len();
    if n == 0 {
        return (0..levels).map(|_| 0.0).collect();
    }
    let mut sums = vec![0f64; n + 1];
    for (i, x) in values.iter().enumerate() {
        sums[i + 1] = sums[i] + f64::from(*x);
    }
    let mut found: Vec<f32> = (0..levels).map(|i| values[(2 * i + 1) * n / (2 * levels)]).collect();
    for _ in 0..LLOYD_ROUNDS {
        let cuts: Vec<usize> = std::iter::once(0)
            .chain(found.windows(2).map(|w| {
                let middle = (w[0] + w[1]) / 2.0;
                values.partition_point(|x| *x < middle)
            }))
            .chain(std::iter::once(n))
            .collect();
        for (level, cut) in found.iter_mut().zip(cuts.windows(2)) {
            if cut[1] > cut[0] {
                *level = ((sums[cut[1]] - sums[cut[0]]) / (cut[1] - cut[0]) as f64) as f32;
            }
        }
        found.sort_unstable_by(f32::total_cmp);
    }
    found
}

/// Levels that are evenly spaced in asinh of the deviation from the median: fine near the median, and far enough for
/// heavy tails.
fn stretched(mut values: Vec<f32>, levels: usize) -> Vec<f32> {
    values.sort_unstable_by(f32::total_cmp);
    let Some(median) = values.get(values.len() / 2).copied().map(f64::from) else {
        return vec![0.0; levels];
    };
    let mut deviations: Vec<f64> = values.iter().map(|x| (f64::from(*x) - median).abs()).collect();
    deviations.sort_unstable_by(f64::total_cmp);
    let unit = deviations[deviations.len() / 2].max(f64::from(f32::MIN_POSITIVE));
    let to = |x: f32| libm::asinh((f64::from(x) - median) / unit);
    let (low, high) = (to(values[0]), to(values[values.len() - 1]));
    let margin = MARGIN * (high - low);
    let step = (high - low + 2.0 * margin) / (levels - 1) as f64;
    let at = |i: usize| median + unit * libm::sinh(low - margin + step * i as f64);
    (0..levels).map(|i| at(i) as f32).collect()
}
