//! One pass over a row: the largest magnitude, counts of smaller and equal values, and bytes as floats less a reference.

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

/// How many values are below the mark, and how many are equal to it.
pub(crate) fn below_and_equal(values: &[f32], mark: f32) -> (u32, u32) {
    below_and_equal_on(Isa::detect(), values, mark)
}

fn below_and_equal_on(isa: Isa, values: &[f32], mark: f32) -> (u32, u32) {
    dispatch_f32!(isa, count_below_and_equal(values: &[f32], mark: f32) -> (u32, u32))
}

/// A plain loop, which compilers vectorise for each instruction set.
#[inline(always)]
unsafe fn count_below_and_equal<V: F32Vector>(values: &[f32], mark: f32) -> (u32, u32) {
    let (mut below, mut equal) = (0, 0);
    for value in values {
        below += u32::from(*value < mark);
        equal += u32::from(*value == mark);
    }
    (below, equal)
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
            for mark in [-5.0, -4.0, 0.0, 0.5, 18.0, 20.0] {
                let below = values.iter().filter(|x| **x < mark).count() as u32;
                let equal = values.iter().filter(|x| **x == mark).count() as u32;
                for isa in Isa::every_and_scalar() {
                    assert_eq!(below_and_equal_on(isa, &values, mark), (below, equal), "{isa:?}");
                }
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
