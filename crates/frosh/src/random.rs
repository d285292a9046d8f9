//! Addressable randomness: the same bits in every release and on every platform.
//!
//! A [`Stream`] is ChaCha8 with the 256-bit key
//!
//! ```text
//! key = seed || purpose + 256 run || worker || index        (four u64, little endian)
//! ```
//!
//! so streams can be opened in any order and on any thread. `run` is the number of the [run](crate::sketch::runs) of a long
//! stream of rows, and 0 for everything else.
//! [`priority`] is the random-access form: one 64-bit number for each row, which is the row-th
//! output of SplitMix64 with a state mixed from seed and worker.
//!
//! The distributions of `rand` may change between releases. So the samplers here are
//! our own, and read 32-bit words only. The only transcendental function, the
//! logarithm in [`Stream::normal`], is that of `libm` (pure Rust), because the
//! system's may round differently.
//!
//! **Cost.** About 3 ns for a 32-bit word, 25 ns for a normal number, 2 ns for a [`priority`] and
//! 0.1 us to open a stream.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The purpose of a stream. The numbers are part of the key, so they must stay unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Purpose {
    /// Sign flips before the Hadamard transform.
    Signs = 1,
    /// Rows kept after the transform, and other subsets.
    Sample = 2,
    /// Assignment of rows to buckets.
    Buckets = 3,
    /// Rotations after PCA.
    Rotation = 4,
    /// Directions of random-hyperplane hashing.
    Lsh = 5,
    /// Codebooks of a quantiser.
    Codebooks = 6,
}

/// Whose randomness it is: the parts of an address that one run of a worker's stream of rows has in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) seed: u64,
    pub(crate) worker: u64,
    /// Number of the run, below 2^56.
    pub(crate) run: u64,
}

impl Address {
    /// Opens a stream of this run.
    pub(crate) fn stream(self, purpose: Purpose, index: u64) -> Stream {
        Stream::with_key([self.seed, purpose as u64 | self.run << 8, self.worker, index])
    }
}

/// One independent sequence of random words.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    words: ChaCha8Rng,
    /// The polar method makes normal numbers in pairs; this is the second of the last pair.
    spare: Option<f64>,
}

impl Stream {
    /// Opens the stream with this address.
    pub(crate) fn new(seed: u64, purpose: Purpose, worker: u64, index: u64) -> Self {
        Address { seed, worker, run: 0 }.stream(purpose, index)
    }

    fn with_key(parts: [u64; 4]) -> Self {
        let mut key = [0; 32];
        for (bytes, part) in key.chunks_exact_mut(8).zip(parts) {
            bytes.copy_from_slice(&part.to_le_bytes());
        }
        Self { words: ChaCha8Rng::from_seed(key), spare: None }
    }

    /// The next 32-bit word.
    pub(crate) fn next_u32(&mut self) -> u32 {
        self.words.next_u32()
    }

    /// The next two words, low half first.
    pub(crate) fn next_u64(&mut self) -> u64 {
        // Not the generator's own `next_u64`: its order of words is not guaranteed.
        let low = u64::from(self.next_u32());
        low | u64::from(self.next_u32()) << 32
    }

    /// A uniform number below `n`, without bias; 0 if `n` is 0.
    ///
    /// Lemire's method: the high half of `word * n`, rejecting the few low halves
    /// that would make some results more likely.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        let mut product = u128::from(self.next_u64()) * u128::from(n);
        // `2^64 mod n < n`, so most calls need no division.
        if (product as u64) < n {
            let reject = n.wrapping_neg() % n;
            while (product as u64) < reject {
                product = u128::from(self.next_u64()) * u128::from(n);
            }
        }
        (product >> 64) as u64
    }

    /// A uniform number in the open interval (0, 1): an odd multiple of 2^-53.
    pub(crate) fn uniform(&mut self) -> f64 {
        // 52 random bits plus one half; with 53 bits the largest value would round to 1.
        ((self.next_u64() >> 12) as f64 + 0.5) * (1.0 / (1u64 << 52) as f64)
    }

    /// A standard normal number, by Marsaglia's polar method.
    pub(crate) fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        loop {
            let x = 2.0 * self.uniform() - 1.0;
            let y = 2.0 * self.uniform() - 1.0;
            // Never 0: x and y are odd multiples of 2^-52.
            let s = x * x + y * y;
            if s < 1.0 {
                // `sqrt` is correctly rounded on every platform, the system's logarithm is not.
                let scale = (-2.0 * libm::log(s) / s).sqrt();
                self.spare = Some(y * scale);
                return x * scale;
            }
        }
    }

    /// Fills `out` with random signs, +1 for a 0 bit and -1 for a 1 bit.
    ///
    /// Each word gives 32 signs, lowest bit first; unused bits of the last word are
    /// discarded.
    pub(crate) fn fill_signs(&mut self, out: &mut [f32]) {
        for signs in out.chunks_mut(32) {
            let word = self.next_u32();
            for (bit, sign) in signs.iter_mut().enumerate() {
                *sign = f32::from_bits(1f32.to_bits() | (word >> bit & 1) << 31);
            }
        }
    }

    /// `count` distinct numbers below `m`, every subset equally likely, in
    /// increasing order. Needs `count <= m`.
    ///
    /// Floyd's method with a bit set: `count` draws, and the set is read in order,
    /// so no sorting is needed. Memory: m / 8 bytes.
    pub(crate) fn distinct(&mut self, count: u32, m: u32) -> Vec<u32> {
        assert!(count <= m, "cannot draw {count} distinct numbers below {m}");
        let mut taken = vec![0u64; m.div_ceil(64) as usize];
        for top in m - count..m {
            let draw = self.below(u64::from(top) + 1) as u32;
            // If the number was drawn before, `top` is taken, which is new in this step.
            let free = taken[draw as usize / 64] >> (draw % 64) & 1 == 0;
            let pick = if free { draw } else { top };
            taken[pick as usize / 64] |= 1 << (pick % 64);
        }
        let mut out = Vec::with_capacity(count as usize);
        for (base, mut bits) in (0..m).step_by(64).zip(taken) {
            while bits != 0 {
                out.push(base + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
        out
    }
}

/// A random 64-bit key for one row. The rows with the smallest keys are a uniform sample.
///
/// For a fixed seed and worker this is a bijection of `row`, so keys are unique.
#[inline]
pub(crate) fn priority(seed: u64, worker: u64, row: u64) -> u64 {
    // The golden ratio times 2^64: SplitMix64's step.
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let state = mix(mix(seed.wrapping_add(STEP)) ^ worker.wrapping_mul(STEP));
    mix(state.wrapping_add(row.wrapping_mul(STEP)))
}

/// The finaliser of SplitMix64, a bijection in which every input bit flips every output
/// bit with probability near one half.
#[inline]
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stream(index: u64) -> Stream {
        Stream::new(7, Purpose::Sample, 3, index)
    }

    /// Pearson's chi-squared statistic must be within 4 standard deviations of its mean.
    fn assert_flat(counts: &[u64], expected: f64) {
        let dof = (counts.len() - 1) as f64;
        let chi: f64 = counts.iter().map(|&c| (c as f64 - expected).powi(2) / expected).sum();
        assert!((chi - dof).abs() < 4.0 * (2.0 * dof).sqrt(), "{chi} / {dof}");
    }

    /// If one of these values changes, the results of earlier releases cannot be reproduced.
    #[test]
    fn golden() {
        let mut s = stream(0);
        assert_eq!([s.next_u32(), s.next_u32()], [3_705_619_725, 2_379_928_459]);
        assert_eq!(s.next_u64(), 0xaeee_6c1a_3149_bf4a);
        let draws = [s.below(10), s.below(1000), s.below(u64::MAX)];
        assert_eq!(draws, [5, 5, 8_290_557_055_218_759_025]);
        assert_eq!(s.uniform().to_bits(), 0x3fef_0fa7_3da1_776b);
        assert_eq!(s.normal().to_bits(), 0xbfc2_8e80_23a6_7f84);
        assert_eq!(s.normal().to_bits(), 0x3ff2_0193_e60f_9d69);
        let mut signs = [0.0; 8];
        s.fill_signs(&mut signs);
        assert_eq!(signs, [-1.0, 1.0, 1.0, 1.0, 1.0, 1.0, -1.0, 1.0]);
        assert_eq!(s.distinct(6, 100), [6, 23, 64, 66, 80, 86]);
        assert_eq!(priority(0, 0, 0), 0x33fe_8bd4_f9c5_7863);
        assert_eq!(priority(7, 3, 1_000_000), 0x27d6_8ac2_9b84_d711);
    }

    #[test]
    fn every_part_of_the_address_matters() {
        let first = |s, p, w, i| Stream::new(s, p, w, i).next_u64();
        let base = first(7, Purpose::Sample, 3, 0);
        assert_eq!(base, first(7, Purpose::Sample, 3, 0));
        assert_ne!(base, first(8, Purpose::Sample, 3, 0));
        assert_ne!(base, first(7, Purpose::Signs, 3, 0));
        assert_ne!(base, first(7, Purpose::Sample, 4, 0));
        assert_ne!(base, first(7, Purpose::Sample, 3, 1));
        // The same numbers in other parts of the address give another stream.
        assert_ne!(first(1, Purpose::Signs, 0, 2), first(1, Purpose::Sample, 0, 1));
        // A run is a part of the address, and the first one is what there was before runs.
        let of_run =
            |run| Address { seed: 7, worker: 3, run }.stream(Purpose::Sample, 0).next_u64();
        assert_eq!(of_run(0), base);
        assert_ne!(of_run(1), base);
        assert_ne!(of_run(1), of_run(2));
    }

    #[test]
    fn below_is_uniform() {
        for n in [1, 2, 3, 10, 97] {
            let mut s = stream(n);
            let mut counts = vec![0; n as usize];
            for _ in 0..2000 * n {
                counts[s.below(n) as usize] += 1;
            }
            if n > 1 {
                assert_flat(&counts, 2000.0);
            }
        }
        // Without rejection, multiples of 3 would be twice as frequent as other numbers.
        let n = 3 << 62;
        let mut s = stream(1);
        let mut counts = [0; 3];
        for _ in 0..6000 {
            counts[(s.below(n) % 3) as usize] += 1;
        }
        assert_flat(&counts, 2000.0);
        assert_eq!(s.below(0), 0);
    }

    #[test]
    fn uniform_is_open_and_flat() {
        let mut s = stream(2);
        let mut counts = [0; 50];
        for _ in 0..50 * 2000 {
            let x = s.uniform();
            assert!(0.0 < x && x < 1.0);
            counts[(x * 50.0) as usize] += 1;
        }
        assert_flat(&counts, 2000.0);
        let top = ((u64::MAX >> 12) as f64 + 0.5) * (1.0 / (1u64 << 52) as f64);
        assert!(top < 1.0);
    }

    #[test]
    fn normal_moments() {
        let n = 200_000;
        let mut s = stream(3);
        let (mut m1, mut m2, mut m4) = (0.0, 0.0, 0.0);
        for _ in 0..n {
            let x = s.normal();
            m1 += x;
            m2 += x * x;
            m4 += x.powi(4);
        }
        let n = f64::from(n);
        // Variances of x, x^2 and x^4 are 1, 2 and 96.
        assert!((m1 / n).abs() < 4.0 * (1.0 / n).sqrt());
        assert!((m2 / n - 1.0).abs() < 4.0 * (2.0 / n).sqrt());
        assert!((m4 / n - 3.0).abs() < 4.0 * (96.0 / n).sqrt());
    }

    #[test]
    fn signs_are_fair() {
        let mut signs = vec![0.0; 100_003];
        stream(4).fill_signs(&mut signs);
        assert!(signs.iter().all(|x| x.abs() == 1.0));
        let sum: f32 = signs.iter().sum();
        assert!(sum.abs() < 4.0 * (signs.len() as f32).sqrt());
        let pairs: f32 = signs.windows(2).map(|w| w[0] * w[1]).sum();
        assert!(pairs.abs() < 4.0 * (signs.len() as f32).sqrt());
    }

    #[test]
    fn distinct_is_uniform() {
        // Counts subsets, so that joint frequencies are tested as well.
        let mut s = stream(5);
        let mut counts = [0; 1 << 6];
        for _ in 0..20 * 2000 {
            let set = s.distinct(3, 6);
            counts[set.iter().fold(0, |mask, &i| mask | 1 << i)] += 1;
        }
        let seen: Vec<u64> = counts.into_iter().filter(|&c| c > 0).collect();
        assert_eq!(seen.len(), 20);
        assert_flat(&seen, 2000.0);
    }

    #[test]
    fn priority_is_balanced() {
        let n = 1u64 << 14;
        let sigma = (n as f64 / 4.0).sqrt();
        for bit in 0..64 {
            // Consecutive rows, and consecutive workers.
            for axis in 0..2 {
                let ones: u64 =
                    (0..n).map(|i| [priority(1, 2, i), priority(1, i, 2)][axis] >> bit & 1).sum();
                assert!((ones as f64 - n as f64 / 2.0).abs() < 4.5 * sigma);
                // Flipping one input bit flips each output bit with probability 1/2.
                let flips: u64 = (0..n)
                    .map(|i| (priority(1, 2, i) ^ priority(1, 2, i ^ 1 << (i % 64))) >> bit & 1)
                    .sum();
                assert!((flips as f64 - n as f64 / 2.0).abs() < 4.5 * sigma);
            }
        }
    }

    #[test]
    fn priority_streams_differ() {
        let mut keys: Vec<u64> = (0..20)
            .flat_map(|s| (0..20).flat_map(move |w| (0..100).map(move |r| priority(s, w, r))))
            .collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 20 * 20 * 100);
    }

    proptest! {
        #[test]
        fn distinct_is_sorted_and_complete(seed: u64, m in 0u32..300, part in 0.0..=1.0f64) {
            let count = (f64::from(m) * part).round() as u32;
            let set = Stream::new(seed, Purpose::Sample, 0, 0).distinct(count, m);
            prop_assert_eq!(set.len(), count as usize);
            prop_assert!(set.windows(2).all(|w| w[0] < w[1]));
            prop_assert!(set.iter().all(|&i| i < m));
        }

        #[test]
        fn below_is_below(seed: u64, n in 1u64..) {
            prop_assert!(Stream::new(seed, Purpose::Sample, 0, 0).below(n) < n);
        }
    }
}
