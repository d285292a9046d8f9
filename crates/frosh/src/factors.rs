//! Two bytes beside each code that turn bits into an estimate of the true distance.
//!
//! **Equation** (after RaBitQ, adapted to learned directions). With u = W'(x - phi) of a row x and
//! v = W'(y - phi) of a query y, kept as floats, S = sum_k sign(u_k) v_k and the gain
//! g = |u|^2 / |u|_1:
//!
//! ```text
//! <x - phi, y - phi>  is about  g S
//! |x - y|^2           is about  |x - phi|^2 + |y - phi|^2 - 2 g S
//! ```
//!
//! The norm |x - phi| is that of the whole row: what the directions leave out counts with its length,
//! and only its cross term, which is near zero on average, is lost.
//!
//! **Where we differ.** RaBitQ keeps floats (8 bytes); here each factor is a byte on a logarithmic scale
//! that the model fixes from its sample of rows, which loses nothing that can be measured. Directions
//! are learned and fewer than dimensions. LSH's Gaussian directions are not orthonormal: its gain is
//! divided by the number of bits.
//!
//! **Cost.** Two bytes a row. Encoding: one more pass over the row. 0 stands for the mean itself.

use crate::error::{Error, Result};
use crate::file::contradiction;

/// Bytes of a row's factors: norm, then gain.
pub(crate) const BYTES: usize = 2;
/// How far beyond the sample's smallest and largest value a scale reaches, as a factor.
const MARGIN: f64 = 1.3;
/// Steps between the smallest and the largest value; code 0 is zero.
const STEPS: f64 = 254.0;

/// A logarithmic scale of 255 values, and zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LogScale {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl LogScale {
    /// A scale that holds these positive values with a margin; `None` if there are none.
    pub(crate) fn around(values: impl Iterator<Item = f64>) -> Option<Self> {
        let (mut low, mut high) = (f64::INFINITY, 0f64);
        for value in values.filter(|v| *v > 0.0 && v.is_finite()) {
            low = low.min(value);
            high = high.max(value);
        }
        (low <= high).then_some(Self { low: low / MARGIN, high: high * MARGIN })
    }

    /// The nearest code.
    pub(crate) fn encode(&self, value: f64) -> u8 {
        if value <= 0.0 {
            return 0;
        }
        let place = (value / self.low).ln() / (self.high / self.low).ln() * STEPS;
        // A float becomes an integer by saturating, so values off the scale take its ends.
        1 + place.round().clamp(0.0, STEPS) as u8
    }

    /// The value of each code.
    pub(crate) fn table(&self) -> [f32; 256] {
        let ratio = (self.high / self.low).ln() / STEPS;
        std::array::from_fn(|code| match code {
            0 => 0.0,
            code => (self.low * ((code - 1) as f64 * ratio).exp()) as f32,
        })
    }

    fn is_possible(&self) -> bool {
        self.low > 0.0 && self.low < self.high && self.high.is_finite()
    }
}

/// The scales of both factors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scales {
    pub(crate) norm: LogScale,
    pub(crate) gain: LogScale,
}

impl Scales {
    /// Checks scales that were read from a file.
    pub(crate) fn checked(self) -> Result<Self> {
        if self.norm.is_possible() && self.gain.is_possible() {
            Ok(self)
        } else {
            Err(contradiction("the scales of the factors are not ranges of positive numbers"))
        }
    }

    /// The two bytes of a row.
    pub(crate) fn encode(&self, factors: Factors) -> [u8; BYTES] {
        [self.norm.encode(factors.norm), self.gain.encode(factors.gain)]
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
    /// directions, 1 / bits for LSH's.
    pub(crate) fn new(square_norm: f64, projections: &[f32], share: f64) -> Self {
        let (mut squares, mut magnitudes) = (0f64, 0f64);
        for u in projections {
            squares += f64::from(u * u);
            magnitudes += f64::from(u.abs());
        }
        let gain = if magnitudes > 0.0 { share * squares / magnitudes } else { 0.0 };
        Self { norm: square_norm.sqrt(), gain }
    }
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

    #[test]
    fn a_scale_is_within_half_a_step_inside_its_range_and_clamps_outside() {
        let scale = LogScale::around([0.5, 20.0, 0.0, f64::NAN].into_iter()).unwrap();
        let table = scale.table();
        let step = (scale.high / scale.low).ln() / STEPS;
        for i in 0..1000 {
            let value = 0.5 * 40f64.powf(f64::from(i) / 999.0);
            let back = f64::from(table[usize::from(scale.encode(value))]);
            assert!((back / value).ln().abs() <= step * 0.500_01 + 1e-6, "{value} {back}");
        }
        assert_eq!((scale.encode(0.0), table[0]), (0, 0.0));
        assert_eq!((scale.encode(1e-9), scale.encode(1e9)), (1, 255));
        assert!(LogScale::around([0.0].into_iter()).is_none());
        // One value only is a range all the same.
        assert!(LogScale::around([3.0].into_iter()).unwrap().is_possible());
    }

    #[test]
    fn the_estimate_is_exact_where_the_row_is_the_query() {
        let u = [0.5f32, -2.0, 1.0, -0.25];
        let norm: f64 = u.iter().map(|x| f64::from(x * x)).sum();
        let factors = Factors::new(norm, &u, 1.0);
        let s: f32 = u.iter().map(|x| x.abs()).sum();
        assert!((2.0 * norm - 2.0 * factors.gain * f64::from(s)).abs() < 1e-6);
        assert_eq!(Factors::new(0.0, &[0.0; 4], 1.0), Factors { norm: 0.0, gain: 0.0 });
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
