//! One pass over a row: the largest magnitude, counts of smaller and equal values, buckets, scores, and bytes or halves as
//! floats less a reference.

use super::isa::{Isa, dispatch_f32};
use super::vector::{F32Vector, MAGNITUDE};

/// The largest magnitude among the values, as bits.
pub(crate) fn magnitude_bits(values: &[f32]) -> u32 {
    magnitude_bits_on(Isa::detect(), values)
}

fn magnitude_bits_on(isa: Isa, values: &[f32]) -> u32 {
    dispatch_f32!(isa, largest_magnitude(values: &[f32]) -> u32)
}

#[inline(always)]
unsafe fn largest_magnitude<V: F32Vector>(values: &[f32]) -> u32 {
    // SAFETY: the caller has the features; so below.
    let mut wide = [unsafe { V::splat(0.0) }; 4];
    let mut chunks = values.chunks_exact(4 * V::LANES);
    for chunk in &mut chunks {
        for (w, values) in wide.iter_mut().zip(chunk.chunks_exact(V::LANES)) {
            // SAFETY: as many values as a register has lanes.
            *w = unsafe { w.max_bits(V::load(values.as_ptr())) };
        }
    }
    let mut largest = chunks.remainder().iter().fold(0, |m, x| m.max(x.to_bits() & MAGNITUDE));
    for w in wide {
        // SAFETY: see above.
        largest = largest.max(unsafe { w.largest() });
    }
    largest
}

/// Whether all values are finite and not too large: see [`crate::rows::LIMIT`].
pub(crate) fn usable(values: &[f32]) -> bool {
    magnitude_bits(values) <= crate::rows::LIMIT.to_bits()
}

/// For each mark, how many values are below it, and how many are equal to it.
pub(crate) fn below_and_equal(values: &[f32], marks: [f32; 4]) -> [(u32, u32); 4] {
    below_and_equal_on(Isa::detect(), values, marks)
}

fn below_and_equal_on(isa: Isa, values: &[f32], marks: [f32; 4]) -> [(u32, u32); 4] {
    dispatch_f32!(isa, count_below_and_equal(values: &[f32], marks: [f32; 4]) -> [(u32, u32); 4])
}

/// A plain loop, which compilers vectorise for each instruction set. Four marks at a time, so that values are loaded once
/// for all of them.
#[inline(always)]
unsafe fn count_below_and_equal<V: F32Vector>(values: &[f32], marks: [f32; 4]) -> [(u32, u32); 4] {
    let (mut below, mut equal) = ([0; 4], [0; 4]);
    for value in values {
        for (mark, (below, equal)) in marks.iter().zip(below.iter_mut().zip(&mut equal)) {
            *below += u32::from(value < mark);
            *equal += u32::from(value == mark);
        }
    }
    std::array::from_fn(|i| (below[i], equal[i]))
}

/// The bucket of each value: `(value - low) * scale`, limited to -1 and `last`, plus 1 and rounded. A larger value never
/// has a smaller bucket.
pub(crate) fn buckets(values: &[f32], low: f32, scale: f32, last: f32, out: &mut [u16]) {
    buckets_on(Isa::detect(), values, low, scale, last, out);
}

fn buckets_on(isa: Isa, values: &[f32], low: f32, scale: f32, last: f32, out: &mut [u16]) {
    dispatch_f32!(isa, find_buckets(values: &[f32], low: f32, scale: f32, last: f32, out: &mut [u16]) -> ())
}

/// A plain loop, which compilers vectorise for each instruction set.
#[inline(always)]
unsafe fn find_buckets<V: F32Vector>(
    values: &[f32],
    low: f32,
    scale: f32,
    last: f32,
    out: &mut [u16],
) {
    for (out, value) in out.iter_mut().zip(values) {
        let place = ((value - low) * scale).max(-1.0).min(last) + 1.0;
        // Adding 2^23 rounds to a whole number, which is then in the last bits. A cast would not be vectorised.
        *out = (place + 8_388_608.0).to_bits() as u16;
    }
}

/// Scores `constant - factor * sum` of rows.
pub(crate) fn scores(constants: &[f32], factors: &[f32], sums: &[f32], out: &mut [f32]) {
    scores_on(Isa::detect(), constants, factors, sums, out);
}

fn scores_on(isa: Isa, constants: &[f32], factors: &[f32], sums: &[f32], out: &mut [f32]) {
    dispatch_f32!(isa, find_scores(constants: &[f32], factors: &[f32], sums: &[f32], out: &mut [f32]) -> ())
}

/// A plain loop, which compilers vectorise for each instruction set.
#[inline(always)]
unsafe fn find_scores<V: F32Vector>(
    constants: &[f32],
    factors: &[f32],
    sums: &[f32],
    out: &mut [f32],
) {
    for (((out, c), f), s) in out.iter_mut().zip(constants).zip(factors).zip(sums) {
        *out = c - f * s;
    }
}

/// Half-precision values, as their bits, times `scale`, less the reference.
pub(crate) fn halves_minus(row: &[u16], scale: f32, reference: &[f32], out: &mut [f32]) {
    halves_minus_on(Isa::detect(), row, scale, reference, out);
}

fn halves_minus_on(isa: Isa, row: &[u16], scale: f32, reference: &[f32], out: &mut [f32]) {
    dispatch_f32!(isa, convert_halves(row: &[u16], scale: f32, reference: &[f32], out: &mut [f32]) -> ())
}

/// A plain loop, which compilers vectorise for each instruction set. Every step is exact but the last two.
#[inline(always)]
unsafe fn convert_halves<V: F32Vector>(
    row: &[u16],
    scale: f32,
    reference: &[f32],
    out: &mut [f32],
) {
    /// The difference of the exponents of 1 in both types, where a float has its exponent.
    const BIAS: u32 = (127 - 15) << 23;
    const SMALLEST_NORMAL: u32 = 1 << 10;
    const INFINITY: u32 = 31 << 10;
    const UNIT: f32 = 1.0 / (1 << 24) as f32;
    for ((out, half), reference) in out.iter_mut().zip(row).zip(reference) {
        let magnitude = u32::from(half & 0x7fff);
        let beyond = if magnitude >= INFINITY { BIAS } else { 0 };
        let normal = (magnitude << 13) + BIAS + beyond;
        let subnormal = (magnitude as i32 as f32 * UNIT).to_bits();
        let bits = if magnitude < SMALLEST_NORMAL { subnormal } else { normal };
        let value = f32::from_bits(bits | u32::from(half & 0x8000) << 16);
        *out = value * scale - reference;
    }
}

/// Bytes times `factor`, less the reference.
pub(crate) fn bytes_minus(row: &[i8], factor: f32, reference: &[f32], out: &mut [f32]) {
    bytes_minus_on(Isa::detect(), row, factor, reference, out);
}

fn bytes_minus_on(isa: Isa, row: &[i8], factor: f32, reference: &[f32], out: &mut [f32]) {
    dispatch_f32!(isa, convert_bytes(row: &[i8], factor: f32, reference: &[f32], out: &mut [f32]) -> ())
}

/// A plain loop, which compilers vectorise for each instruction set.
#[inline(always)]
unsafe fn convert_bytes<V: F32Vector>(row: &[i8], factor: f32, reference: &[f32], out: &mut [f32]) {
    for ((out, x), reference) in out.iter_mut().zip(row).zip(reference) {
        *out = f32::from(*x) * factor - reference;
    }
}

/// Bytes as floats less the reference: a plain loop, which compilers vectorise with each instruction set's own
/// conversion.
macro_rules! bytes_minus {
    ($name:ident, $t:ty) => {
        pub(crate) fn $name(row: &[$t], reference: &[f32], out: &mut [f32]) {
            $name::run(Isa::detect(), row, reference, out);
        }

        mod $name {
            use super::*;

            pub(super) fn run(isa: Isa, row: &[$t], reference: &[f32], out: &mut [f32]) {
                dispatch_f32!(isa, each(row: &[$t], reference: &[f32], out: &mut [f32]) -> ())
            }

            #[inline(always)]
            unsafe fn each<V: F32Vector>(row: &[$t], reference: &[f32], out: &mut [f32]) {
                for ((o, x), r) in out.iter_mut().zip(row).zip(reference) {
                    *o = f32::from(*x) - r;
                }
            }

            #[test]
            fn every_instruction_set_gives_the_same_bytes() {
                for len in [0, 1, 7, 8, 31, 64, 100] {
                    let row: Vec<$t> = (0..len).map(|i| (i * 37 % 256) as u8 as $t).collect();
                    let reference: Vec<f32> = (0..len).map(|i| i as f32 * 0.3 - 7.0).collect();
                    let want: Vec<f32> =
                        row.iter().zip(&reference).map(|(x, r)| f32::from(*x) - r).collect();
                    for isa in Isa::every_and_scalar() {
                        let mut got = vec![0.0; len];
                        run(isa, &row, &reference, &mut got);
                        assert_eq!(got, want, "{isa:?}");
                    }
                }
            }
        }
    };
}
bytes_minus!(u8_minus, u8);
bytes_minus!(i8_minus, i8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_set_counts_smaller_and_equal_values() {
        for len in [0, 1, 5, 16, 33, 200] {
            let values: Vec<f32> = (0..len).map(|i| (i * 7 % 23) as f32 - 4.0).collect();
            for marks in [[-5.0, -4.0, 0.0, 0.5], [18.0, 20.0, -0.0, f32::NAN]] {
                let want = marks.map(|mark| {
                    let below = values.iter().filter(|x| **x < mark).count() as u32;
                    let equal = values.iter().filter(|x| **x == mark).count() as u32;
                    (below, equal)
                });
                for isa in Isa::every_and_scalar() {
                    assert_eq!(below_and_equal_on(isa, &values, marks), want, "{isa:?}");
                }
            }
        }
    }

    #[test]
    fn every_instruction_set_converts_every_half() {
        let all: Vec<u16> = (0..=u16::MAX).collect();
        let reference: Vec<f32> = all.iter().map(|x| f32::from(*x) * 0.37 - 9.0).collect();
        for scale in [1.0, 0.3] {
            for isa in Isa::every_and_scalar() {
                let mut got = vec![0.0; all.len()];
                halves_minus_on(isa, &all, scale, &reference, &mut got);
                for ((half, reference), got) in all.iter().zip(&reference).zip(got) {
                    let want = half::f16::from_bits(*half).to_f32() * scale - reference;
                    let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
                    assert!(same, "{isa:?}, {half:#x}: {got}, not {want}");
                }
            }
        }
    }

    #[test]
    fn every_instruction_set_converts_every_byte() {
        let all: Vec<i8> = (i8::MIN..=i8::MAX).collect();
        let reference: Vec<f32> = all.iter().map(|x| f32::from(*x) * 0.37 - 9.0).collect();
        for isa in Isa::every_and_scalar() {
            let mut got = vec![0.0; all.len()];
            bytes_minus_on(isa, &all, 0.3, &reference, &mut got);
            for ((x, reference), got) in all.iter().zip(&reference).zip(got) {
                assert_eq!(got, f32::from(*x) * 0.3 - reference, "{isa:?}, {x}");
            }
        }
    }

    #[test]
    fn every_instruction_set_finds_the_same_buckets_and_scores() {
        for len in [0, 1, 5, 16, 33, 200] {
            let values: Vec<f32> = (0..len).map(|i| (i * 7 % 23) as f32 - 4.25).collect();
            let place =
                |x: &f32| (((x + 2.0) * 1.5).clamp(-1.0, 9.0) + 1.0).round_ties_even() as u16;
            let want: Vec<u16> = values.iter().map(place).collect();
            let of = |x: &f32| (x * 0.3, 2.0 - x);
            let (constants, factors): (Vec<f32>, Vec<f32>) = values.iter().map(of).unzip();
            let score = |i: usize| constants[i] - factors[i] * values[i];
            let want_scores: Vec<f32> = (0..len).map(score).collect();
            for isa in Isa::every_and_scalar() {
                let (mut got, mut scores) = (vec![0; len], vec![0.0; len]);
                buckets_on(isa, &values, -2.0, 1.5, 9.0, &mut got);
                scores_on(isa, &constants, &factors, &values, &mut scores);
                assert_eq!((got, scores), (want.clone(), want_scores.clone()), "{isa:?}");
            }
        }
    }

    #[test]
    fn every_instruction_set_finds_the_largest_magnitude_anywhere() {
        for len in [0, 1, 3, 4, 15, 16, 63, 64, 65, 200] {
            let values: Vec<f32> = (0..len).map(|i| -((i * 7919 % 61) as f32)).collect();
            for at in 0..=len {
                let mut values = values.clone();
                if let Some(value) = values.get_mut(at) {
                    *value = -1e6;
                }
                let want = values.iter().fold(0f32, |m, x| m.max(x.abs()));
                for isa in Isa::every_and_scalar() {
                    let got = f32::from_bits(magnitude_bits_on(isa, &values));
                    assert_eq!(got, want, "{isa:?}, {len} values, {at}");
                }
            }
        }
    }
}
