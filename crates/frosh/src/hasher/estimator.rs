//! One byte beside each code that turns bits into an estimate of the true distance.
//!
//! **Equation** (after RaBitQ, adapted to learned directions). With u = W'(x - phi) of a row x and
//! v = W'(y - phi) of a query y, kept as floats, S = sum_k sign(u_k) v_k, x' what the directions leave out of x - phi,
//! and the gain g = |u|^2 / |u|_1 (1 + beta |x'| / |u|):
//!
//! ```text
//! <x - phi, y - phi>  is about  g S
//! |x - y|^2           is about  |x - phi|^2 + |y - phi|^2 - 2 g S
//! ```
//!
//! The norm |x - phi| is that of the whole row: what the directions leave out counts with its length. Of its cross
//! term, which is near zero on average, beta is the part that near rows have on top of g S; the model learns it from its
//! sample (`beyond.rs`).
//!
//! **Where we differ.** RaBitQ keeps two floats (8 bytes). Here one byte holds the norm on a logarithmic scale
//! of 28 steps and the ratio g / norm on one of 9, which the model fixes from its sample of rows. That is
//! coarse, yet far finer than what a bit a direction leaves open: in MAP it costs at most .006, where the
//! seven bytes are worth much more as bits (`docs/quality.md`). Directions are learned and fewer than
//! dimensions. LSH's Gaussian directions are not orthonormal: its gain is divided by the number of bits.
//!
//! **Scales.** One strange row in the sample must not stretch the steps of all others, so a scale leaves a share of the
//! sampled rows out at each end: as much as equal steps with the least squared error leave out of a normal distribution
//! (Max, 1960; [`NORM_TAIL`], [`RATIO_TAIL`]). What is off the scale gets its nearest end.
//!
//! Models of an earlier time have a byte for each factor; they are read, and go on to make two.
//!
//! **Cost.** One byte a row. Encoding: one more pass over the row. 0 stands for the mean itself.

use crate::error::{Error, Result};
use crate::storage::container::contradiction;
use crate::storage::mapped::Bytes;

/// Most bytes of a row's factors.
pub(crate) const MOST_BYTES: usize = 2;
/// Values of the norm and of the ratio in one byte: with the 0 at most 256 pairs.
const NORMS: usize = 28;
const RATIOS: usize = 9;
/// Values of a factor that has a byte of its own; code 0 is zero.
const ALONE: usize = 255;
/// The share of a normal distribution beyond each end of the [`NORMS`] equally spaced values that have the least squared
/// error for it; the same for [`RATIOS`]. These ends lie at 2.84 and 2.135 deviations.
const NORM_TAIL: f64 = 0.002_25;
const RATIO_TAIL: f64 = 0.016_4;
/// A small sample leaves at most one row in so many out at each end; fewer rows than that are all on the scale.
const LEFT_OUT: usize = 10;
/// A scale goes no further below its median than this. A squared norm that is taken for (median / 16)^2 is off by 1/256
/// of a usual one, so finer steps down there are worth nothing, however many rows are that short.
const SHORTEST: f64 = 16.0;

/// Equal steps on a logarithmic scale from `low` to `high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LogScale {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl LogScale {
    /// A scale for values like these, of which it leaves the share `tail` out at each end. Only positive ones count;
    /// `None` if there are none.
    pub(crate) fn around(values: impl Iterator<Item = f64>, tail: f64) -> Option<Self> {
        let mut values: Vec<f64> = values.filter(|v| *v > 0.0 && v.is_finite()).collect();
        values.sort_unstable_by(f64::total_cmp);
        let n = values.len();
        let cut = ((tail * n as f64).ceil() as usize).min(n / LEFT_OUT);
        let (low, high) = (*values.get(cut)?, values[n - 1 - cut]);
        Some(Self { low: low.max(values[(n - 1) / 2] / SHORTEST), high })
    }

    /// The nearest of `count` values; the first or the last for what is off the scale.
    fn place(&self, value: f64, count: usize) -> usize {
        let last = (count - 1) as f64;
        let place = (value / self.low).ln() / (self.high / self.low).ln() * last;
        // Not a number where the scale has one value only: that is place 0.
        place.round().clamp(0.0, last) as usize
    }

    /// The value at a place.
    fn value(&self, place: usize, count: usize) -> f64 {
        let step = (self.high / self.low).ln() / (count - 1) as f64;
        self.low * (place as f64 * step).exp()
    }

    fn is_possible(&self) -> bool {
        self.low > 0.0 && self.low <= self.high && self.high.is_finite()
    }
}

/// The scales of both factors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scales {
    /// One byte for the norm, and the gain relative to it, which is made with `beyond` for beta.
    Joint { norm: LogScale, ratio: LogScale, residual: f64 },
    /// A byte each.
    Apart { norm: LogScale, gain: LogScale },
}

impl Scales {
    /// Scales for rows like the sampled ones, of which these are the factors; none without rows, or where all are the
    /// mean.
    pub(crate) fn around(sample: &[Factors], residual: f64) -> Option<Self> {
        Some(Scales::Joint {
            norm: LogScale::around(sample.iter().map(|f| f.norm), NORM_TAIL)?,
            ratio: LogScale::around(sample.iter().map(|f| f.gain / f.norm), RATIO_TAIL)?,
            residual,
        })
    }

    /// Checks scales that were read from a file.
    pub(crate) fn checked(self) -> Result<Self> {
        let (Scales::Joint { norm, ratio: other, .. } | Scales::Apart { norm, gain: other }) = self;
        if !(norm.is_possible() && other.is_possible()) {
            return Err(contradiction(
                "the scales of the factors are not ranges of positive numbers",
            ));
        }
        if !(0.0..=1.0).contains(&self.residual()) {
            return Err(contradiction("what lies beyond the directions is no share"));
        }
        Ok(self)
    }

    /// Beta; models of an earlier time have none.
    pub(crate) fn residual(&self) -> f64 {
        match self {
            Scales::Joint { residual, .. } => *residual,
            Scales::Apart { .. } => 0.0,
        }
    }

    /// Bytes of a row's factors.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Scales::Joint { .. } => 1,
            Scales::Apart { .. } => 2,
        }
    }

    /// Fills the bytes of a row.
    pub(crate) fn encode(&self, factors: Factors, out: &mut [u8]) {
        let Factors { norm: length, gain } = factors;
        match self {
            Scales::Joint { norm, ratio, .. } => {
                // At most 28 * 9, which a byte holds.
                out[0] = if length > 0.0 {
                    let pair =
                        norm.place(length, NORMS) * RATIOS + ratio.place(gain / length, RATIOS);
                    1 + pair as u8
                } else {
                    0
                };
            }
            Scales::Apart { norm, gain: gains } => {
                for (out, (scale, value)) in out.iter_mut().zip([(norm, length), (gains, gain)]) {
                    *out = if value > 0.0 { 1 + scale.place(value, ALONE) as u8 } else { 0 };
                }
            }
        }
    }

    /// The norm for each value of a row's first byte, and the gain for each of its last.
    pub(crate) fn tables(&self) -> [[f32; 256]; 2] {
        let table = |value: &dyn Fn(usize) -> f64| {
            std::array::from_fn(|code| if code == 0 { 0.0 } else { value(code - 1) as f32 })
        };
        match self {
            Scales::Joint { norm, ratio, .. } => {
                // The last codes are never written; a file may hold them, and they are some number.
                let length = |pair: usize| norm.value((pair / RATIOS).min(NORMS - 1), NORMS);
                let gain = |pair: usize| length(pair) * ratio.value(pair % RATIOS, RATIOS);
                [table(&length), table(&gain)]
            }
            Scales::Apart { norm, gain } => {
                [table(&|at| norm.value(at, ALONE)), table(&|at| gain.value(at, ALONE))]
            }
        }
    }
}

/// The factors of a set of codes: `bytes` for each row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FactorColumn {
    pub(crate) bytes: usize,
    pub(crate) data: Bytes,
}

impl FactorColumn {
    /// The norm's and the gain's byte of each row from `first` on: one byte holds both, or each has its own.
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
    /// From the centred row's squared length and its projections. `share` is 1 for orthonormal
    /// directions, 1 / bits for LSH's; `beyond` is beta.
    pub(crate) fn new(square_norm: f64, projections: &[f32], share: f64, residual: f64) -> Self {
        let (mut squares, mut magnitudes) = (0f64, 0f64);
        for u in projections {
            squares += f64::from(u * u);
            magnitudes += f64::from(u.abs());
        }
        let mut gain = if magnitudes > 0.0 { share * squares / magnitudes } else { 0.0 };
        if residual > 0.0 {
            gain *= 1.0 + residual * left_out(square_norm, squares);
        }
        Self { norm: square_norm.sqrt(), gain }
    }
}

/// |x'| / |u|, from the squared lengths of the centred row and of its projections.
pub(crate) fn left_out(square_norm: f64, squares: f64) -> f64 {
    if squares > 0.0 { (square_norm / squares - 1.0).max(0.0).sqrt() } else { 0.0 }
}

/// The error for codes or models without factors.
pub(crate) fn missing(what: &'static str, advice: &'static str) -> Error {
    Error::Factors { what, advice }
}

/// Squared length of `row - centre`.
pub(crate) fn square_norm(row: &[f32], centre: &[f32]) -> f64 {
    // Sixteen partial sums in single precision: far finer than the scale's steps.
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
