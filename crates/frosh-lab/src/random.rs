//! Randomness of the lab: SplitMix64, and normal numbers from a table.
//!
//! A generator of gigabytes needs normal numbers at about a nanosecond each. Sixteen random bits choose one of
//! the 65,536 quantiles of the normal law, scaled so that mean and variance are exactly 0 and 1; what is lost is
//! the tail beyond 4.3 deviations. Every stream is opened at (seed, number), so rows can be made in any order.

use std::sync::OnceLock;

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// One stream of random words.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The stream with this address.
    pub(crate) fn new(seed: u64, number: u64) -> Self {
        Self(mix(mix(seed ^ 0x6c61_6262).wrapping_add(number.wrapping_mul(0xd134_2543_de82_ef95))))
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// A number below `n`; its bias of n / 2^64 is of no concern here.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(n)) >> 64) as u64
    }

    /// Fills a slice with standard normal numbers.
    pub(crate) fn normals(&mut self, out: &mut [f32]) {
        let table = table();
        for four in out.chunks_mut(4) {
            let mut word = self.word();
            for x in four {
                *x = table[usize::from(word as u16)];
                word >>= 16;
            }
        }
    }

    /// A random order of 0..n.
    pub(crate) fn permutation(&mut self, n: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..n as u32).collect();
        for i in (1..n).rev() {
            order.swap(i, self.below(i as u64 + 1) as usize);
        }
        order
    }

    /// `count` different numbers below `n` (all, where there are fewer), ascending.
    pub(crate) fn choose(&mut self, count: u64, n: u64) -> Vec<u64> {
        let mut chosen = std::collections::BTreeSet::new();
        // Floyd's way: every subset is as likely as every other.
        for last in n.saturating_sub(count)..n {
            let draw = self.below(last + 1);
            if !chosen.insert(draw) {
                chosen.insert(last);
            }
        }
        chosen.into_iter().collect()
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn table() -> &'static [f32; 1 << 16] {
    static TABLE: OnceLock<Box<[f32; 1 << 16]>> = OnceLock::new();
    TABLE.get_or_init(|| {
        let half = 1 << 15;
        let mut quantiles: Vec<f64> = Vec::with_capacity(half);
        let mut x = 0.0f64;
        for i in 0..half {
            // The quantile of 1/2 + (i + 1/2) / 2^16, by Newton's method from the one before.
            let share = (i as f64 + 0.5) / (2 * half) as f64;
            for _ in 0..20 {
                let density = (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
                let step = (share - above_middle(x)) / density;
                x += step.clamp(-0.5, 0.5);
                if step.abs() < 1e-9 {
                    break;
                }
            }
            quantiles.push(x);
        }
        let scale = (quantiles.iter().map(|x| x * x).sum::<f64>() / half as f64).sqrt();
        let mut out = Box::new([0f32; 1 << 16]);
        for (i, x) in quantiles.iter().enumerate() {
            out[half + i] = (x / scale) as f32;
            out[half - 1 - i] = -out[half + i];
        }
        out
    })
}

/// The share of the normal law between 0 and x: Marsaglia's series, good to rounding below six deviations.
fn above_middle(x: f64) -> f64 {
    let (mut term, mut sum, mut i) = (x, x, 1.0);
    while term.abs() > 1e-17 * sum.abs() {
        i += 2.0;
        term *= x * x / i;
        sum += term;
    }
    sum * (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_numbers_have_the_moments_of_the_normal_law() {
        let mut x = vec![0f32; 400_000];
        Random::new(3, 1).normals(&mut x);
        let moment = |k: i32| x.iter().map(|x| f64::from(*x).powi(k)).sum::<f64>() / x.len() as f64;
        assert!(moment(1).abs() < 0.01 && (moment(2) - 1.0).abs() < 0.01, "{}", moment(2));
        assert!(moment(3).abs() < 0.03 && (moment(4) - 3.0).abs() < 0.06, "{}", moment(4));
        // 1.96 deviations hold 95 %.
        let inside = x.iter().filter(|x| x.abs() < 1.96).count() as f64 / x.len() as f64;
        assert!((inside - 0.95).abs() < 0.002);
    }

    #[test]
    fn chosen_numbers_are_different_and_ascending() {
        let chosen = Random::new(1, 2).choose(300, 1000);
        assert_eq!(chosen.len(), 300);
        assert!(chosen.windows(2).all(|w| w[0] < w[1]) && chosen[299] < 1000);
        assert_eq!(Random::new(1, 2).choose(10, 4), [0, 1, 2, 3]);
    }
}
