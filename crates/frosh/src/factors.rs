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
//! Models of an earlier time have a byte for each factor; they are read, and go on to make two.
//!
//! **Cost.** One byte a row. Encoding: one more pass over the row. 0 stands for the mean itself.

use crate::bytes::Bytes;
use crate::error::{Error, Result};
use crate::file::contradiction;

/// Most bytes of a row's factors.
pub(crate) const MOST_BYTES: usize = 2;
/// Values of the norm and of the ratio in one byte: with the 0 at most 256 pairs.
const NORMS: usize = 28;
const RATIOS: usize = 9;
/// Values of a factor that has a byte of its own; code 0 is zero.
const ALONE: usize = 255;

/// Equal steps on a logarithmic scale from `low` to `high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LogScale {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl LogScale {
    /// A scale that just holds these positive values; `None` if there are none.
    pub(crate) fn around(values: impl Iterator<Item = f64>) -> Option<Self> {
        let (mut low, mut high) = (f64::INFINITY, 0f64);
        for value in values.filter(|v| *v > 0.0 && v.is_finite()) {
            low = low.min(value);
            high = high.max(value);
        }
        (low <= high).then_some(Self { low, high })
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
    Joint { norm: LogScale, ratio: LogScale, beyond: f64 },
    /// A byte each.
    Apart { norm: LogScale, gain: LogScale },
}

impl Scales {
    /// Scales that hold the factors of sampled rows; none without rows, or where all are the mean.
    pub(crate) fn around(sample: &[Factors], beyond: f64) -> Option<Self> {
        Some(Scales::Joint {
            norm: LogScale::around(sample.iter().map(|f| f.norm))?,
            ratio: LogScale::around(sample.iter().map(|f| f.gain / f.norm))?,
            beyond,
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
        if !(0.0..=1.0).contains(&self.beyond()) {
            return Err(contradiction("what lies beyond the directions is no share"));
        }
        Ok(self)
    }

    /// Beta; models of an earlier time have none.
    pub(crate) fn beyond(&self) -> f64 {
        match self {
            Scales::Joint { beyond, .. } => *beyond,
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
pub(crate) struct Beside {
    pub(crate) bytes: usize,
    pub(crate) data: Bytes,
}

impl Beside {
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
    pub(crate) fn new(square_norm: f64, projections: &[f32], share: f64, beyond: f64) -> Self {
        let (mut squares, mut magnitudes) = (0f64, 0f64);
        for u in projections {
            squares += f64::from(u * u);
            magnitudes += f64::from(u.abs());
        }
        let mut gain = if magnitudes > 0.0 { share * squares / magnitudes } else { 0.0 };
        if beyond > 0.0 {
            gain *= 1.0 + beyond * left_out(square_norm, squares);
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
mod tests {
    use super::*;

    const SPREAD: LogScale = LogScale { low: 0.5, high: 20.0 };

    #[test]
    fn a_scale_is_within_half_a_step_inside_its_range_and_clamps_outside() {
        let scale = LogScale::around([0.5, 20.0, 0.0, f64::NAN].into_iter()).unwrap();
        assert_eq!(scale, SPREAD);
        for count in [RATIOS, NORMS, ALONE] {
            let step = 40f64.ln() / (count - 1) as f64;
            for i in 0..1000 {
                let value = 0.5 * 40f64.powf(f64::from(i) / 999.0);
                let back = scale.value(scale.place(value, count), count);
                assert!((back / value).ln().abs() <= step * 0.500_01, "{value} {back}");
            }
            assert_eq!((scale.place(1e-9, count), scale.place(1e9, count)), (0, count - 1));
        }
        assert!(LogScale::around([0.0].into_iter()).is_none());
        // One value only is a range all the same.
        let one = LogScale::around([3.0].into_iter()).unwrap();
        assert!(one.is_possible());
        assert_eq!((one.place(3.0, 9), one.place(8.0, 9), one.value(0, 9)), (0, 8, 3.0));
    }

    #[test]
    fn factors_come_back_within_half_a_step_of_each_scale() {
        let ratio = LogScale { low: 0.1, high: 0.3 };
        let gain = LogScale { low: 0.05, high: 6.0 };
        let scales = [
            (
                Scales::Joint { norm: SPREAD, ratio, beyond: 0.2 },
                40f64.ln() / 27.0,
                3f64.ln() / 8.0,
            ),
            (Scales::Apart { norm: SPREAD, gain }, 40f64.ln() / 254.0, 120f64.ln() / 254.0),
        ];
        for (scales, norm_step, gain_step) in scales {
            let scales = scales.checked().unwrap();
            let tables = scales.tables();
            let mut bytes = vec![9u8; scales.bytes()];
            for i in 0..40 {
                for j in 0..40 {
                    let norm = 0.5 * 40f64.powf(f64::from(i) / 39.0);
                    let gain = norm * 0.1 * 3f64.powf(f64::from(j) / 39.0);
                    scales.encode(Factors { norm, gain }, &mut bytes);
                    let far = |table: usize, byte: u8, value: f64| {
                        (f64::from(tables[table][usize::from(byte)]) / value).ln().abs()
                    };
                    assert!(far(0, bytes[0], norm) <= norm_step * 0.500_01);
                    // The ratio is to the norm that is kept, which has its own half step.
                    let last = bytes[bytes.len() - 1];
                    assert!(far(1, last, gain) <= (norm_step + gain_step) * 0.500_01);
                }
            }
            scales.encode(Factors { norm: 0.0, gain: 0.0 }, &mut bytes);
            assert!(bytes.iter().all(|b| *b == 0));
            assert_eq!((tables[0][0], tables[1][0]), (0.0, 0.0));
            assert!(tables.iter().flatten().all(|x| x.is_finite()));
            // A row across all directions: as far as the scale goes, and no further.
            scales.encode(Factors { norm: 1e9, gain: 0.0 }, &mut bytes);
            assert!((tables[0][usize::from(bytes[0])] - 20.0).abs() < 1e-4);
        }
        let wrong = LogScale { low: 2.0, high: 1.0 };
        assert!(Scales::Joint { norm: SPREAD, ratio: wrong, beyond: 0.0 }.checked().is_err());
        assert!(Scales::Apart { norm: wrong, gain }.checked().is_err());
        for beyond in [-0.1, 1.1, f64::NAN] {
            assert!(Scales::Joint { norm: SPREAD, ratio, beyond }.checked().is_err());
        }
    }

    #[test]
    fn the_estimate_is_exact_where_the_row_is_the_query() {
        let u = [0.5f32, -2.0, 1.0, -0.25];
        let norm: f64 = u.iter().map(|x| f64::from(x * x)).sum();
        let factors = Factors::new(norm, &u, 1.0, 0.0);
        let s: f32 = u.iter().map(|x| x.abs()).sum();
        assert!((2.0 * norm - 2.0 * factors.gain * f64::from(s)).abs() < 1e-6);
        assert_eq!(Factors::new(0.0, &[0.0; 4], 1.0, 0.5), Factors { norm: 0.0, gain: 0.0 });
    }

    #[test]
    fn the_square_norm_is_the_sum_of_squares() {
        for len in [1, 15, 16, 17, 100] {
            let row: Vec<f32> = (0..len).map(|i| i as f32 * 0.5).collect();
            let centre: Vec<f32> = (0..len).map(|i| (i % 7) as f32).collect();
            let want: f64 =
                row.iter().zip(&centre).map(|(x, c)| f64::from(x - c) * f64::from(x - c)).sum();
            assert!((square_norm(&row, &centre) - want).abs() <= 1e-5 * want);
        }
    }
}
