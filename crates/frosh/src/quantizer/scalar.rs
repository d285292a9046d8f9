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
//! code stores what is left over, as one of 256 levels.

use super::codebooks::{CELLS, WORDS};

/// Weight of zero in the regression, in rows: as much as a word has in a sample of usual size. Long codes have as many
/// words as there are sampled rows, and the prediction has to hold for other rows. What it lacks costs little: it is in
/// the levels.
const RIDGE: f64 = 64.0;
/// Most steps of conjugate gradients, and the relative size of the gradient that ends them. Errors of the prediction are
/// part of what is left over, so that it need not be exact.
const STEPS: usize = 60;
const TOLERANCE: f64 = 1e-5;
/// Largest leverage of a sampled row in a fit. Sums of 1 / n over its words can exceed 1, which no leverage does.
pub(super) const MAX_LEVERAGE: f64 = 0.9;
/// Number of levels: a byte of the code.
pub(crate) const LEVELS: usize = 256;
/// Share of the range of the sample that the levels extend beyond it, at each end.
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
    /// Values of the part that is left over, ascending: [`LEVELS`] of them.
    pub(crate) levels: Vec<f32>,
}

/// Predictions of the three terms of tau from the code: a value for each cell and word. A prediction is linear in what it
/// predicts, so that of tau follows for any slopes.
pub(crate) struct Predictions {
    entries: Vec<Three>,
    /// 1 / (n + ridge) for each entry, n rows having it.
    shares: Vec<f64>,
}

/// A number for each term.
type Three = [f64; 3];

impl Predictions {
    /// Ridge regression of the terms of sampled rows on the ones and zeros of their codes.
    pub(crate) fn fit(codes: &[u8], books: usize, terms: &[Terms]) -> Self {
        let count = CELLS + WORDS * books;
        let rows = codes.chunks_exact(books + 1);
        let values = |t: &Terms| [t.square, t.along, t.error].map(f64::from);
        let mut means = [0f64; 3];
        for terms in terms {
            means.iter_mut().zip(values(terms)).for_each(|(mean, x)| *mean += x);
        }
        let means = means.map(|sum| sum / terms.len().max(1) as f64);
        // Conjugate gradients for (O'O + ridge I) x = O' terms, with the diagonal as preconditioner.
        let mut weights = vec![RIDGE; count];
        let mut left = vec![[0f64; 3]; count];
        for (code, terms) in rows.clone().zip(terms) {
            for entry in entries(code) {
                weights[entry] += 1.0;
                let all = left[entry].iter_mut().zip(values(terms)).zip(means);
                all.for_each(|((sum, x), mean)| *sum += x - mean);
            }
        }
        let mut found = vec![[0f64; 3]; count];
        let scaled = |left: &[Three]| -> Vec<Three> {
            left.iter().zip(&weights).map(|(x, w)| x.map(|x| x / w)).collect()
        };
        let mut step = scaled(&left);
        let mut size = product(&left, &step);
        let enough = size.map(|x| x * TOLERANCE * TOLERANCE);
        for _ in 0..STEPS {
            if size.iter().zip(enough).all(|(x, enough)| *x <= enough) {
                break;
            }
            let mut image: Vec<Three> = step.iter().map(|x| x.map(|x| RIDGE * x)).collect();
            for code in rows.clone() {
                let mut sum = [0f64; 3];
                entries(code).for_each(|entry| add(&mut sum, [1.0; 3], &step[entry]));
                entries(code).for_each(|entry| add(&mut image[entry], [1.0; 3], &sum));
            }
            let along = quotient(size, product(&step, &image));
            for (i, (step, image)) in step.iter().zip(&image).enumerate() {
                add(&mut found[i], along, step);
                add(&mut left[i], along.map(|x| -x), image);
            }
            let mut next = scaled(&left);
            let new_size = product(&left, &next);
            let again = quotient(new_size, size);
            next.iter_mut().zip(&step).for_each(|(next, step)| add(next, again, step));
            (step, size) = (next, new_size);
        }
        found[..CELLS].iter_mut().for_each(|x| add(x, [1.0; 3], &means));
        let shares = weights.iter().map(|weight| 1.0 / weight).collect();
        Self { entries: found, shares }
    }

    /// By how much the prediction lacks more for a row that it was not fitted to: 1 / (1 - h) with the leverage h.
    fn unseen(&self, code: &[u8]) -> f32 {
        let leverage = entries(code).map(|entry| self.shares[entry]).sum::<f64>();
        (1.0 / (1.0 - leverage.min(MAX_LEVERAGE))) as f32
    }

    /// The prediction of tau.
    fn of_tau(&self, [along, error]: [f32; 2]) -> Vec<f32> {
        let slopes = [1.0, f64::from(along), f64::from(error)];
        let entry = |x: &Three| (0..3).map(|j| slopes[j] * x[j]).sum::<f64>() as f32;
        self.entries.iter().map(entry).collect()
    }
}

/// The entries of a code: its cell and its words.
pub(super) fn entries(code: &[u8]) -> impl Iterator<Item = usize> {
    // Cells and words are 256 each, so that the entries of byte m begin at 256 m.
    code.iter().enumerate().map(|(m, byte)| WORDS * m + usize::from(*byte))
}

/// Adds factor times `x`, term by term.
fn add(to: &mut Three, factor: Three, x: &Three) {
    to.iter_mut().zip(factor).zip(x).for_each(|((to, factor), x)| *to += factor * x);
}

/// The scalar products of two vectors, term by term.
fn product(a: &[Three], b: &[Three]) -> Three {
    let mut sums = [0f64; 3];
    a.iter().zip(b).for_each(|(a, b)| add(&mut sums, *a, b));
    sums
}

/// Quotients; zero where there is nothing left to divide by.
fn quotient(a: Three, b: Three) -> Three {
    std::array::from_fn(|j| if b[j] > 0.0 { a[j] / b[j] } else { 0.0 })
}

impl ScalarCode {
    /// Fits the levels to the codes of sampled rows and their tau.
    pub(crate) fn fit(
        slopes: [f32; 2],
        predictions: &Predictions,
        codes: &[u8],
        books: usize,
        taus: &[f32],
    ) -> Self {
        let prediction = predictions.of_tau(slopes);
        let mut fitted = Self { slopes, prediction, levels: Vec::new() };
        let rest: Vec<f32> = codes
            .chunks_exact(books + 1)
            .zip(taus)
            .map(|(code, tau)| (tau - fitted.predict(code)) * predictions.unseen(code))
            .collect();
        fitted.levels = stretched(rest);
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

/// Levels that are evenly spaced in asinh of the deviation from the median: fine near the median, and far enough for
/// heavy tails.
fn stretched(mut values: Vec<f32>) -> Vec<f32> {
    values.sort_unstable_by(f32::total_cmp);
    let Some(median) = values.get(values.len() / 2).copied().map(f64::from) else {
        return vec![0.0; LEVELS];
    };
    let mut deviations: Vec<f64> = values.iter().map(|x| (f64::from(*x) - median).abs()).collect();
    deviations.sort_unstable_by(f64::total_cmp);
    let unit = deviations[deviations.len() / 2].max(f64::from(f32::MIN_POSITIVE));
    let to = |x: f32| libm::asinh((f64::from(x) - median) / unit);
    let (low, high) = (to(values[0]), to(values[values.len() - 1]));
    let margin = MARGIN * (high - low);
    let step = (high - low + 2.0 * margin) / (LEVELS - 1) as f64;
    let at = |i: usize| median + unit * libm::sinh(low - margin + step * i as f64);
    (0..LEVELS).map(|i| at(i) as f32).collect()
}
