//! Decay: rows count less the older they are. Not in the paper.
//!
//! **Equation.** With a half-life of H rows, a row that is H rows old counts half as much as a new one. Weights change only
//! where a block ends, so that batches do not matter. For a block of h rows, gamma = 2^(-h / H) and
//!
//! ```text
//! B <- sqrt(gamma) B        removed, mass, weight <- gamma times the same
//! ```
//!
//! before the block is appended. Then the rows of the block enter as ever, with tau = weight in place of the number of
//! earlier rows ([`centering`](crate::sketch::centering)), and weight grows by h. So all rows of a block have the same
//! weight. The rows of an unfinished block have weight 1. Whatever is divided by the number of rows without decay is
//! divided by `weight`.
//!
//! **Guarantee.** With A_w the rows that were inserted, each times the root of its weight: 0 <= A_w'A_w - B'B <= removed I.
//! Scaling by gamma keeps the order of positive semi-definite matrices, so the bound follows block by block.
//!
//! **Clock.** A sketch has a clock: the number of rows of its stream, counted from where the stream's clock began
//! ([`Config::clock`](crate::Config::clock)). A merge brings all parts to the latest clock T: a part with clock t is
//! scaled by 2^(-(T - t) / H).
//!
//! **Sample.** A row with clock t has the key ln E - t ln 2 / H, with E exponentially distributed. The sample is the
//! rows with the smallest keys, as without decay: the chance that a row has the smallest key is proportional to 2^(t /
//! H). Keys do not change with age. So the sample of a merge is the smallest keys of all parts.
//!
//! **Cost.** l d multiplications for each block; a logarithm for each row. About s ln 2 / H of the rows enter a sample of s
//! rows, also late in the stream.

use crate::error::{Error, Result};
use crate::sketch::{MAX_ROWS, Sketch};
use crate::storage::container::{Reader, Writer, contradiction};

/// The version of files with decay. A program that does not know decay must not merge them.
const FILE_VERSION: u32 = 2;

/// Half-life, and the state that follows from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Decay {
    /// Rows after which a row counts half.
    pub(crate) half_life: u64,
    /// The clock: of the first row in a learner, after the last row in a sketch.
    pub(crate) clock: u64,
    /// Sum of the weights of all rows; in a learner, of those before the current block.
    pub(crate) weight: f64,
}

impl Decay {
    /// The state before the first row. The settings were checked.
    pub(crate) fn new(half_life: u64, clock: u64) -> Self {
        Self { half_life, clock, weight: 0.0 }
    }

    /// What remains of a weight after so many rows.
    pub(crate) fn factor(self, rows: u64) -> f64 {
        libm::exp2(-(rows as f64) / self.half_life as f64)
    }

    /// The key of a row: an integer with the same order as ln E - t ln 2 / H. `hash` is uniform.
    pub(crate) fn key(self, hash: u64, row: u64) -> u64 {
        // 52 bits, so that the sum is exact, and the quotient neither 0 nor 1.
        let uniform = ((hash >> 12) as f64 + 0.5) / (1u64 << 52) as f64;
        let exponential = -libm::log(uniform);
        let clock = (self.clock + row) as f64;
        let key = libm::log(exponential) - clock / self.half_life as f64 * std::f64::consts::LN_2;
        let bits = key.to_bits();
        if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
    }

    /// Rejects a half-life or a clock that is outside its range.
    pub(crate) fn check(half_life: Option<u64>, clock: u64) -> Result<()> {
        let reject = |name, got, why| Err(Error::Setting { name, got, why });
        match half_life {
            Some(rows) if !(1..=MAX_ROWS).contains(&rows) => {
                let why =
                    format!("it must be from 1 to {MAX_ROWS} rows; leave it out for no decay");
                reject("half_life", rows, why)
            }
            None if clock > 0 => {
                reject("clock", clock, "only a sketch with a half-life has a clock".into())
            }
            _ if clock > MAX_ROWS => {
                reject("clock", clock, format!("it must be at most {MAX_ROWS}"))
            }
            _ => Ok(()),
        }
    }

    /// Writes the facts of a state, if there is one.
    pub(crate) fn write(decay: Option<Self>, file: &mut Writer<'_>) {
        if let Some(decay) = decay {
            file.require_version(FILE_VERSION);
            file.fact("half_life", decay.half_life);
            file.fact("clock", decay.clock);
            file.fact("weight", decay.weight);
        }
    }

    /// Reads the facts, if there are any. `rows` is the number of rows that the weight is of.
    pub(crate) fn read(file: &Reader<'_>, rows: u64) -> Result<Option<Self>> {
        if file.optional("half_life").is_none() {
            return Ok(None);
        }
        let decay = Self {
            half_life: file.fact("half_life")?,
            clock: file.fact("clock")?,
            weight: file.fact("weight")?,
        };
        Self::check(Some(decay.half_life), decay.clock)
            .map_err(|error| contradiction(&error.to_string()))?;
        // Rounding may exceed the count by a little. The rows of the last block have weight 1.
        let most = rows as f64 * (1.0 + 1e-9);
        let fits = decay.weight <= most && (rows == 0 || decay.weight >= 1.0);
        if !fits || decay.weight < 0.0 {
            return Err(contradiction(&format!("{rows} rows of weight {}", decay.weight)));
        }
        Ok(Some(decay))
    }
}

impl Sketch {
    /// The half-life in rows; `None` if all rows count the same. See [`Config::half_life`](crate::Config::half_life).
    pub fn half_life(&self) -> Option<u64> {
        self.decay.map(|decay| decay.half_life)
    }

    /// The sum of the weights of all rows: their number, unless there is a half-life.
    pub fn weight(&self) -> f64 {
        self.decay.map_or(self.rows as f64, |decay| decay.weight)
    }

    /// The clock after the last row: the start of the clock ([`Config::clock`](crate::Config::clock)) plus the number
    /// of rows; of a merged sketch, the latest clock of its parts. A stream that goes on from here begins with this
    /// clock.
    pub fn clock(&self) -> u64 {
        self.decay.map_or(self.rows, |decay| decay.clock)
    }

    /// What remains of this sketch's weights at the clock `at`.
    pub(crate) fn factor_at(&self, at: u64) -> f64 {
        self.decay.map_or(1.0, |decay| decay.factor(at.saturating_sub(decay.clock)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Pool;
    use crate::random::priority;
    use crate::sketch::reservoir::Reservoir;

    const ROWS: usize = 30;
    const TRIALS: u64 = 6000;
    const DECAY: Decay = Decay { half_life: 6, clock: 1000, weight: 0.0 };

    /// Counts how often each row is in a sample of `k` rows. The stream is sampled in two parts, which are merged.
    fn counts(k: usize) -> Vec<f64> {
        let mut counts = vec![0.0; ROWS];
        for seed in 0..TRIALS {
            let part = |rows: std::ops::Range<u64>| {
                let mut reservoir = Reservoir::new(1, k);
                let keys = rows.clone().map(|row| DECAY.key(priority(seed, 3, row), row));
                reservoir.offer(&Pool::ONE, rows.start, keys, |i, value| {
                    value[0] = (rows.start + i as u64) as f32;
                });
                reservoir
            };
            let mut both = part(0..11);
            both.merge(&part(11..ROWS as u64));
            let part = both.part(&[0.0], 0..k);
            let mut rows = vec![0f32; part.len()];
            let rows = part.read(0..part.len(), 0..1, &mut rows);
            rows.iter().for_each(|row| counts[row.round() as usize] += 1.0);
        }
        counts
    }

    fn weight(row: usize) -> f64 {
        ((row as f64 + 1.0 - ROWS as f64) / DECAY.half_life as f64).exp2()
    }

    #[test]
    fn a_sample_of_one_row_follows_the_weights() {
        let counts = counts(1);
        let total: f64 = (0..ROWS).map(weight).sum();
        let terms = counts.iter().enumerate().map(|(row, count)| {
            let expected = TRIALS as f64 * weight(row) / total;
            (count - expected).powi(2) / expected
        });
        let (chi_square, freedom) = (terms.sum::<f64>(), (ROWS - 1) as f64);
        // Five standard deviations above the mean.
        assert!(chi_square < freedom + 5.0 * (2.0 * freedom).sqrt(), "{chi_square}");
        assert_eq!(counts.iter().sum::<f64>(), TRIALS as f64);
    }

    /// The chance that fewer than `k` of the other rows have a smaller key, integrated over the key of the row.
    fn chance(row: usize, k: usize) -> f64 {
        const STEPS: usize = 2000;
        let mut sum = 0.0;
        for step in 0..STEPS {
            // The row's key is at the quantile u: E = -ln(1 - u) / weight.
            let u = (step as f64 + 0.5) / STEPS as f64;
            let time = -(1.0 - u).ln() / weight(row);
            // before[j]: the chance that j other rows come before.
            let mut before = vec![0.0; k + 1];
            before[0] = 1.0;
            for other in (0..ROWS).filter(|other| *other != row) {
                let earlier = 1.0 - (-time * weight(other)).exp();
                for j in (0..=k).rev() {
                    let from = if j > 0 { before[j - 1] * earlier } else { 0.0 };
                    before[j] = before[j] * (1.0 - earlier) + from;
                }
            }
            sum += before[..k].iter().sum::<f64>();
        }
        sum / STEPS as f64
    }

    #[test]
    fn a_larger_sample_has_the_chances_of_sampling_without_replacement() {
        let k = 7;
        let counts = counts(k);
        let chances: Vec<f64> = (0..ROWS).map(|row| chance(row, k)).collect();
        assert!((chances.iter().sum::<f64>() - k as f64).abs() < 1e-3);
        for (row, (count, p)) in counts.iter().zip(chances).enumerate() {
            let deviation = (TRIALS as f64 * p * (1.0 - p)).sqrt();
            let z = (count - TRIALS as f64 * p) / deviation;
            assert!(z.abs() < 4.5, "row {row}: z = {z}");
        }
    }

    #[test]
    fn keys_have_the_order_of_their_values() {
        let value = |key: u64| f64::from_bits(if key >> 63 == 1 { key & !(1 << 63) } else { !key });
        let decay = Decay::new(1000, 0);
        let mut keys: Vec<u64> =
            (0..500).map(|row| decay.key(priority(1, 2, row), row * 40)).collect();
        keys.extend([decay.key(0, 0), decay.key(u64::MAX, 0), decay.key(0, 1 << 62)]);
        keys.sort_unstable();
        assert!(keys.iter().all(|key| value(*key).is_finite()));
        assert!(keys.windows(2).all(|pair| value(pair[0]) <= value(pair[1])));
    }
}
