//! How sampled rows are stored: in half precision, or as bytes, so that 32 MB hold more rows.
//!
//! Rows are relative to the origin of the sample. Each is divided by its largest entry, the scale.
//!
//! | precision | a value v of the divided row | error of a row x, relative to its largest entry |
//! |---|---|---|
//! | half | as an IEEE half | at most 2^-12 for each value |
//! | byte | v ~ byte 2^-shift / 127 with a shift for each 32 values (as the MX formats of the Open Compute Project have it) | at most 2^-8 for each value |
//!
//! So rows with a large offset or scale keep their bits, and a few large coordinates take no precision from the others.
//! Rounding to bytes adds d / 190,000 or less to the squared length of a row on average, relative to it; a quantiser
//! leaves out some hundredths at least.
//!
//! **Which one.** Samples of up to 16,384 rows, which sign bits are fitted to, are in half precision. Larger ones are
//! if they fit into 32 MB, and in bytes otherwise. With bytes there are twice as many rows, and codebooks that are
//! fitted to them describe other rows better.

use super::reservoir::{DEFAULT_ROWS, MAX_BYTES};
use crate::arch;
use crate::arch::byte_products::{largest, rounded};
use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};

/// Values that have a shift in common.
pub(crate) const BLOCK: usize = 32;
/// Largest shift. Smaller values are zero beside the largest one of the row in single precision.
const MAX_SHIFT: u32 = 24;
/// Bytes of a sampled row beside its values: key and scale.
const ROW_BYTES: usize = 12;

/// Precision of stored rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    Half,
    Byte,
}

/// Stores rows of `dim` values in words of 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rounding {
    pub(crate) dim: usize,
    pub(crate) precision: Precision,
}

impl Rounding {
    /// What is used for a sample of so many rows.
    pub(crate) fn for_sample(requested: usize, dim: usize) -> Self {
        let half = Self { dim, precision: Precision::Half };
        match requested > DEFAULT_ROWS && half.capacity(requested) < requested {
            true => Self { dim, precision: Precision::Byte },
            false => half,
        }
    }

    /// The requested number of rows, reduced to what [`MAX_BYTES`] can hold.
    pub(crate) fn capacity(self, requested: usize) -> usize {
        requested.min(MAX_BYTES / (2 * self.words() + ROW_BYTES))
    }

    /// Shifts of a row.
    pub(crate) fn shifts(self) -> usize {
        self.dim.div_ceil(BLOCK)
    }

    /// Words of a stored row.
    pub(crate) fn words(self) -> usize {
        match self.precision {
            Precision::Half => self.dim,
            // The values, and then the shifts.
            Precision::Byte => (self.dim + self.shifts()).div_ceil(2),
        }
    }

    /// Stores a row, and returns its scale. Overwrites `row`.
    pub(crate) fn store(self, row: &mut [f32], out: &mut [u16]) -> f32 {
        let scale = f32::from_bits(arch::magnitude_bits(row));
        let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        // If the inverse overflows, the row is stored as zeros.
        let (scale, inverse) = if inverse.is_finite() { (scale, inverse) } else { (0.0, 0.0) };
        row.iter_mut().for_each(|x| *x *= inverse);
        match self.precision {
            Precision::Half => out.reinterpret_cast_mut::<f16>().convert_from_f32_slice(row),
            Precision::Byte => {
                let (values, shifts) = bytemuck::cast_slice_mut(out).split_at_mut(self.dim);
                let blocks = row.chunks(BLOCK).zip(values.chunks_mut(BLOCK));
                for ((row, values), shift) in blocks.zip(shifts) {
                    let most = largest(row);
                    // The exponent of 1 / most.
                    let exponent = (1.0 / most).to_bits() >> 23;
                    *shift = exponent.saturating_sub(127).min(MAX_SHIFT) as u8;
                    let factor = 127.0 * (1u32 << *shift) as f32;
                    for (to, x) in values.iter_mut().zip(row) {
                        *to = rounded((x * factor).clamp(-127.0, 127.0)) as u8;
                    }
                }
            }
        }
        scale
    }

    /// Writes the values of a stored row from column `from` on, minus `reference`.
    pub(crate) fn load(
        self,
        row: &[u16],
        scale: f32,
        from: usize,
        reference: &[f32],
        out: &mut [f32],
    ) {
        match self.precision {
            Precision::Half => {
                arch::halves_minus(&row[from..][..out.len()], scale, reference, out);
            }
            Precision::Byte => {
                let (values, shifts) = bytemuck::cast_slice::<u16, i8>(row).split_at(self.dim);
                let mut at = 0;
                while at < out.len() {
                    // Up to the end of a block.
                    let column = from + at;
                    let count = (BLOCK - column % BLOCK).min(out.len() - at);
                    let shift = shifts[column / BLOCK] as u8;
                    let factor = scale / 127.0
                        * f32::from_bits((127 - u32::from(shift).min(MAX_SHIFT)) << 23);
                    let own = at..at + count;
                    arch::bytes_minus(
                        &values[column..][..count],
                        factor,
                        &reference[own.clone()],
                        &mut out[own],
                    );
                    at += count;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream};

    fn stored(rounding: Rounding, row: &[f32]) -> (Vec<u16>, f32) {
        let mut out = vec![0u16; rounding.words()];
        let scale = rounding.store(&mut row.to_vec(), &mut out);
        (out, scale)
    }

    /// The definition in the table above, value by value.
    fn defined(rounding: Rounding, words: &[u16], scale: f32, j: usize) -> f64 {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let shift = i32::from(bytes[rounding.dim + j / 32]);
        f64::from(bytes[j] as i8) * 2f64.powi(-shift) / 127.0 * f64::from(scale)
    }

    #[test]
    fn bytes_are_within_half_a_step_of_the_row_in_every_block() {
        let mut stream = Stream::new(8, Purpose::Sample, 0, 0);
        for dim in [1, 31, 32, 33, 100] {
            for size in [1e-30f32, 1.0, 1e14] {
                // Each block has a scale of its own, from 1 to 10^-6; one block is zero.
                let mut row: Vec<f32> = (0..dim)
                    .map(|j| size * 0.01f32.powi((j / BLOCK) as i32) * stream.normal() as f32)
                    .collect();
                if dim == 100 {
                    row[64..96].fill(0.0);
                }
                let rounding = Rounding { dim, precision: Precision::Byte };
                let (words, scale) = stored(rounding, &row);
                let reference: Vec<f32> = (0..dim).map(|j| size * j as f32).collect();
                for from in [0, dim / 2, dim - 1] {
                    let mut got = vec![0f32; dim - from];
                    rounding.load(&words, scale, from, &vec![0.0; dim - from], &mut got);
                    let mut less = got.clone();
                    rounding.load(&words, scale, from, &reference[from..], &mut less);
                    for (j, (got, less)) in (from..dim).zip(got.iter().zip(less)) {
                        let most =
                            largest(&row[j / BLOCK * BLOCK..dim.min((j / BLOCK + 1) * BLOCK)]);
                        // A step is at most twice the largest entry of the block over 127.
                        assert!((got - row[j]).abs() <= 1.001 * most / 127.0, "{got} {}", row[j]);
                        let want = defined(rounding, &words, scale, j);
                        assert!(
                            (f64::from(*got) - want).abs()
                                <= 1e-6 * f64::from(most.max(f32::MIN_POSITIVE))
                        );
                        assert_eq!(less, got - reference[j]);
                    }
                }
            }
        }
    }

    #[test]
    fn rows_that_cannot_be_divided_are_zeros() {
        for precision in [Precision::Half, Precision::Byte] {
            let rounding = Rounding { dim: 3, precision };
            for row in [[0.0; 3], [f32::from_bits(1); 3]] {
                let (words, scale) = stored(rounding, &row);
                let mut got = [1f32; 3];
                rounding.load(&words, scale, 0, &[0.0; 3], &mut got);
                assert_eq!(got, [0.0; 3], "{precision:?}");
            }
        }
    }

    #[test]
    fn large_samples_of_wide_rows_are_bytes() {
        let of = |rows, dim| {
            let rounding = Rounding::for_sample(rows, dim);
            (rounding.precision, rounding.capacity(rows))
        };
        assert_eq!(of(65_536, 100), (Precision::Half, 65_536));
        assert_eq!(of(65_536, 384), (Precision::Byte, 65_536));
        assert_eq!(of(65_536, 960), (Precision::Byte, MAX_BYTES / (990 + 12)));
        // The sample of sign bits stays as it was.
        assert_eq!(of(4096, 960), (Precision::Half, 4096));
        assert_eq!(of(16_384, 25_600), (Precision::Half, MAX_BYTES / 51_212));
        assert_eq!(of(0, 10), (Precision::Half, 0));
    }
}
