//! The distance estimator: one or two bytes of factors for each code, from which the true distance is estimated.
//!
//! **Equation** (after RaBitQ, adapted to learned directions). Let u = W'(x - phi) for a row x and v = W'(y - phi) for
//! a query y, which stays floats. Let S = sum_k sign(u_k) v_k, let x' be the residual of x - phi outside the directions,
//! and let g = |u|^2 / |u|_1 (1 + beta |x'| / |u|) be the gain. Then
//!
//! ```text
//! <x - phi, y - phi>  is about  g S
//! |x - y|^2           is about  |x - phi|^2 + |y - phi|^2 - 2 g S
//! ```
//!
//! The norm |x - phi| is that of the entire row, with the residual. The cross term <x', y'> of the residuals is near
//! zero on average, but not for near rows. beta is the residual coefficient, which predicts it from g S. The model learns
//! beta from its sample (`residual.rs`).
//!
//! **Where we differ.** RaBitQ keeps two floats (8 bytes). Here one byte holds the norm, quantised to 28 values on a
//! logarithmic scale, and the ratio g / norm, quantised to 9 values. Or two bytes hold the norm and g, each quantised
//! to 255 values: beside long codes, one byte is too coarse for the order of the nearest rows. The fit measures both on
//! the sample (`choice.rs`). The ranges of the scales are fitted to the sample. Directions are learned, and fewer than
//! dimensions. The Gaussian directions of LSH are not orthonormal: their gain is divided by the number of bits.
//!
//! **Quantiser ranges.** An outlier in the sample must not widen the steps for all other rows. So a range excludes a
//! share of the sampled rows at each end: the share that lies outside the optimal uniform quantiser of a normal
//! distribution (Max, 1960; [`NORM_TAIL`], [`RATIO_TAIL`]). Values outside the range are clamped.
//!
//! **Cost.** One or two bytes a row. Encoding takes one more pass over the row. Byte 0 means that the row is the mean.

use crate::error::{Error, Result};
use crate::storage::container::contradiction;
use crate::storage::mapped::Bytes;

/// Largest number of factor bytes of a row.
pub(crate) const MOST_BYTES: usize = 2;
/// Quantised values of the norm and of the ratio in one byte: 28 * 9 pairs and the code 0 fit into 256.
const NORMS: usize = 28;
const RATIOS: usize = 9;
/// Quantised values of a factor with its own byte; code 0 means zero.
const OWN_BYTE_VALUES: usize = 255;
/// Share of a normal distribution beyond each end of its optimal uniform quantiser with [`NORMS`] values, and with
/// [`RATIOS`] values. The ends are at 2.84 and 2.135 standard deviations.
const NORM_TAIL: f64 = 0.002_25;
const RATIO_TAIL: f64 = 0.016_4;
/// The same with [`OWN_BYTE_VALUES`] values: the ends are at 3.94 standard deviations.
const OWN_BYTE_TAIL: f64 = 0.000_04;
/// At most one in this many sampled rows is excluded at each end of a range; none of a smaller sample.
const MIN_ROWS_PER_EXCLUDED: usize = 10;
/// A range starts at the median divided by this number, or above. A squared norm of at most (median / 16)^2 is at most
/// 1/256 of the usual one, so smaller norms need no values of their own.
const MEDIAN_OVER_LOW: f64 = 16.0;

/// A quantiser with equal steps on a logarithmic scale from `low` to `high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LogScale {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl LogScale {
    /// Fits the range to sampled values, excluding the share `tail` at each end. Ignores values that are not positive;
    /// `None` if none is positive.
    pub(crate) fn around(values: impl Iterator<Item = f64>, tail: f64) -> Option<Self> {
        let mut values: Vec<f64> = values.filter(|v| *v > 0.0 && v.is_finite()).collect();
        values.sort_unstable_by(f64::total_cmp);
        let n = values.len();
        let cut = ((tail * n as f64).ceil() as usize).min(n / MIN_ROWS_PER_EXCLUDED);
        let (low, high) = (*values.get(cut)?, values[n - 1 - cut]);
        Some(Self { low: low.max(values[(n - 1) / 2] / MEDIAN_OVER_LOW), high })
    }

    /// The index of the nearest of `count` quantised values. Values outside the range are clamped.
    fn place(&self, value: f64, count: usize) -> usize {
        let last = (count - 1) as f64;
        let place = (value / self.low).ln() / (self.high / self.low).ln() * last;
        // NaN if low equals high; the cast makes it 0.
        place.round().clamp(0.0, last) as usize
    }

    /// The quantised value with index `place`.
    fn value(&self, place: usize, count: usize) -> f64 {
        let step = (self.high / self.low).ln() / (count - 1) as f64;
        self.low * (place as f64 * step).exp()
    }

    fn is_valid(&self) -> bool {
        self.low > 0.0 && self.low <= self.high && self.high.is_finite()
    }
}

/// The quantisers of both factors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scales {
    /// One byte holds the norm and the ratio of gain and norm. `residual` is the coefficient beta in the gain.
    Joint { norm: LogScale, ratio: LogScale, residual: f64 },
    /// One byte for each factor.
    Apart { norm: LogScale, gain: LogScale, residual: f64 },
}

impl Scales {
    /// Fits the ranges to the factors of sampled rows, for one byte a row or two; `None` without rows, or if all rows
    /// equal the mean.
    pub(crate) fn around(sample: &[Factors], residual: f64, bytes: usize) -> Option<Self> {
        let norms = sample.iter().map(|f| f.norm);
        if bytes == 1 {
            let norm = LogScale::around(norms, NORM_TAIL)?;
            let ratio = LogScale::around(sample.iter().map(|f| f.gain / f.norm), RATIO_TAIL)?;
            return Some(Scales::Joint { norm, ratio, residual });
        }
        let norm = LogScale::around(norms, OWN_BYTE_TAIL)?;
        let gain = LogScale::around(sample.iter().map(|f| f.gain), OWN_BYTE_TAIL)?;
        Some(Scales::Apart { norm, gain, residual })
    }

    /// Rejects invalid scales of a file.
    pub(crate) fn checked(self) -> Result<Self> {
        let (Scales::Joint { norm, ratio: other, .. } | Scales::Apart { norm, gain: other, .. }) =
            self;
        if !(norm.is_valid() && other.is_valid()) {
            return Err(contradiction(
                "the scales of the factors are not ranges of positive numbers",
            ));
        }
        if !(0.0..=1.0).contains(&self.residual()) {
            return Err(contradiction("the residual coefficient is not between 0 and 1"));
        }
        Ok(self)
    }

    /// The residual coefficient beta; 0 in models of earlier releases.
    pub(crate) fn residual(&self) -> f64 {
        let (Scales::Joint { residual, .. } | Scales::Apart { residual, .. }) = self;
        *residual
    }

    /// Number of factor bytes of a row.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Scales::Joint { .. } => 1,
            Scales::Apart { .. } => 2,
        }
    }

    /// Writes the factor bytes of a row.
    pub(crate) fn encode(&self, factors: Factors, out: &mut [u8]) {
        let Factors { norm: length, gain } = factors;
        match self {
            Scales::Joint { norm, ratio, .. } => {
                // At most 28 * 9, which fits a byte.
                out[0] = if length > 0.0 {
                    let pair =
                        norm.place(length, NORMS) * RATIOS + ratio.place(gain / length, RATIOS);
                    1 + pair as u8
                } else {
                    0
                };
            }
            Scales::Apart { norm, gain: gains, .. } => {
                for (out, (scale, value)) in out.iter_mut().zip([(norm, length), (gains, gain)]) {
                    let place = |value| 1 + scale.place(value, OWN_BYTE_VALUES) as u8;
                    *out = if value > 0.0 { place(value) } else { 0 };
                }
            }
        }
    }

    /// Decoding tables: the norm for each value of the first factor byte, and the gain for each value of the last.
    pub(crate) fn tables(&self) -> [[f32; 256]; 2] {
        let table = |value: &dyn Fn(usize) -> f64| {
            std::array::from_fn(|code| if code == 0 { 0.0 } else { value(code - 1) as f32 })
        };
        match self {
            Scales::Joint { norm, ratio, .. } => {
                // The last codes are never written, but a damaged file could hold them; they decode to a valid value.
                let length = |pair: usize| norm.value((pair / RATIOS).min(NORMS - 1), NORMS);
                let gain = |pair: usize| length(pair) * ratio.value(pair % RATIOS, RATIOS);
                [table(&length), table(&gain)]
            }
            Scales::Apart { norm, gain, .. } => {
                [norm, gain].map(|scale| table(&|at| scale.value(at, OWN_BYTE_VALUES)))
            }
        }
    }
}

/// The factor bytes of a set of codes: `bytes` for each row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FactorColumn {
    pub(crate) bytes: usize,
    pub(crate) data: Bytes,
}

impl FactorColumn {
    /// The bytes of norm and gain of each row from `first` on. They are the same byte if one byte holds both.
    pub(crate) fn from(&self, first: usize) -> impl Iterator<Item = (usize, usize)> {
        let rows = self.data[first * self.bytes..].chunks_exact(self.bytes);
        rows.map(|row| (usize::from(row[0]), usize::from(row[self.bytes - 1])))
    }
}

/// The factors of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Factors {
    pub(crate) norm: f64,
    pub(crate) gain: f64,
}

impl Factors {
    /// Computes the factors from the squared length and the projections of the centred row. `share` is 1 for orthonormal
    /// directions and 1 / bits for LSH; `residual` is beta.
    pub(crate) fn new(square_norm: f64, projections: &[f32], share: f64, residual: f64) -> Self {
        let (mut squares, mut magnitudes) = (0f64, 0f64);
        for u in projections {
            squares += f64::from(u * u);
            magnitudes += f64::from(u.abs());
        }
        Self::of(square_norm, squares, magnitudes, share, residual)
    }

    /// Computes the factors from the squared length of the centred row, and |u|^2 and |u|_1 of its projections.
    pub(crate) fn of(
        square_norm: f64,
        squares: f64,
        magnitudes: f64,
        share: f64,
        residual: f64,
    ) -> Self {
        let mut gain = if magnitudes > 0.0 { share * squares / magnitudes } else { 0.0 };
        if residual > 0.0 {
            gain *= 1.0 + residual * left_out(square_norm, squares);
        }
        Self { norm: square_norm.sqrt(), gain }
    }
}

/// |x'| / |u|, from the squared lengths of the centred row and of its projection.
pub(crate) fn left_out(square_norm: f64, squares: f64) -> f64 {
    if squares > 0.0 { (square_norm / squares - 1.0).max(0.0).sqrt() } else { 0.0 }
}

/// The error for codes or models without factors.
pub(crate) fn missing(what: &'static str, advice: &'static str) -> Error {
    Error::Factors { what, advice }
}

/// Squared length of `row - centre`.
pub(crate) fn square_norm(row: &[f32], centre: &[f32]) -> f64 {
    // Sixteen partial sums in single precision; their error is far below the quantiser steps.
    let mut parts = [0f32; 16];
    let (rows, centres) = (row.chunks_exact(16), centre.chunks_exact(16));
    let tail = rows.remainder().iter().zip(centres.remainder());
    let rest: f32 = tail.map(|(x, c)| (x - c) * (x - c)).sum();
    for (row, centre) in rows.zip(centres) {
        for ((part, x), c) in parts.iter_mut().zip(row).zip(centre) {
            *part += (x - c) * (x - c);
        }
    }
    parts.iter().map(|p| f64::from(*p)).sum::<f64>() + f64::from(rest)
}

#[cfg(test)]
mod tests;
