//! Rows that codebooks are fitted to, in half precision: twice as many in the same memory.
//!
//! The error of a value is at most 2^-11 of it, where codes leave out a hundredth of a row and more.

use half::f16;
use half::slice::HalfFloatSliceExt;
use std::ops::Range;

/// What the largest value of the first rows becomes. Halves reach up to 65,504, so that other rows may have larger values.
const LARGEST: f32 = 256.0;

/// Rows that are rounded at a time.
const PIECE: usize = 512;

/// Rows of k coordinates that can be read one by one.
pub(super) trait FittedRows: Sync {
    /// Number of rows.
    fn count(&self) -> usize;
    /// Writes some coordinates of a row.
    fn read(&self, row: usize, coordinates: Range<usize>, to: &mut [f32]);

    /// Writes some coordinates of the rows from `first` on, as many rows as there is room for.
    fn read_rows(&self, first: usize, coordinates: Range<usize>, to: &mut [f32]) {
        for (i, to) in to.chunks_exact_mut(coordinates.len()).enumerate() {
            self.read(first + i, coordinates.clone(), to);
        }
    }

    /// The k coordinates of the first rows.
    fn floats(&self, count: usize, k: usize) -> Vec<f32> {
        let mut floats = vec![0f32; count * k];
        self.read_rows(0, 0..k, &mut floats);
        floats
    }
}

/// Rows of k floats, one after the other.
#[cfg(test)]
pub(super) struct FloatRows<'a> {
    pub(super) k: usize,
    pub(super) values: &'a [f32],
}

#[cfg(test)]
impl FittedRows for FloatRows<'_> {
    fn count(&self) -> usize {
        self.values.len() / self.k
    }

    fn read(&self, row: usize, coordinates: Range<usize>, to: &mut [f32]) {
        to.copy_from_slice(&self.values[row * self.k..][coordinates]);
    }
}

/// Rows of k halves, all times the same power of two.
pub(super) struct HalfRows {
    k: usize,
    values: Vec<f16>,
    /// What a half is multiplied by.
    unit: f32,
}

impl HalfRows {
    /// These rows.
    pub(super) fn new(k: usize, rows: &[f32]) -> Self {
        let largest = rows.iter().fold(0f32, |most, x| most.max(x.abs()));
        // A power of two keeps all bits. The smallest and largest floats have no such unit.
        let power = (largest / LARGEST).log2().ceil().clamp(-100.0, 100.0);
        let unit = if largest > 0.0 { power.exp2() } else { 1.0 };
        let mut halves = Self { k, values: vec![f16::ZERO; rows.len()], unit };
        for (mut to, from) in halves.pieces(0, PIECE).zip(rows.chunks(PIECE * k)) {
            to.write(&mut from.to_vec());
        }
        halves
    }

    /// Appends rows of zeros.
    pub(super) fn grow(&mut self, rows: usize) {
        self.values.reserve_exact(rows * self.k);
        self.values.resize(self.values.len() + rows * self.k, f16::ZERO);
    }

    /// Keeps the first rows.
    pub(super) fn truncate(&mut self, rows: usize) {
        self.values.truncate(rows * self.k);
        self.values.shrink_to_fit();
    }

    /// The rows from `first` on, some at a time.
    pub(super) fn pieces(
        &mut self,
        first: usize,
        rows: usize,
    ) -> impl Iterator<Item = HalfPiece<'_>> {
        let (k, unit) = (self.k, self.unit);
        let pieces = self.values[first * k..].chunks_mut(rows * k);
        pieces.map(move |to| HalfPiece { k, to, unit })
    }
}

impl FittedRows for HalfRows {
    fn count(&self) -> usize {
        self.values.len() / self.k
    }

    fn read(&self, row: usize, coordinates: Range<usize>, to: &mut [f32]) {
        self.values[row * self.k..][coordinates].convert_to_f32_slice(to);
        to.iter_mut().for_each(|x| *x *= self.unit);
    }
}

/// Rows to write.
pub(super) struct HalfPiece<'a> {
    k: usize,
    to: &'a mut [f16],
    unit: f32,
}

impl HalfPiece<'_> {
    /// Number of rows.
    pub(super) fn count(&self) -> usize {
        self.to.len() / self.k
    }

    /// Writes all rows. Overwrites `rows`.
    pub(super) fn write(&mut self, rows: &mut [f32]) {
        let most = f16::MAX.to_f32();
        rows.iter_mut().for_each(|x| *x = (*x / self.unit).clamp(-most, most));
        self.to.convert_from_f32_slice(rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream};

    #[test]
    fn halves_keep_eleven_bits_at_any_scale() {
        let (k, n) = (7, 50);
        let mut stream = Stream::new(2, Purpose::Sample, 9, 0);
        for scale in [0.0, 1e-25f32, 1.0, 3e7, 1e25] {
            let rows: Vec<f32> = (0..n * k).map(|_| scale * stream.normal() as f32).collect();
            // Later rows may be larger than the first ones.
            let more: Vec<f32> = rows.iter().map(|x| 10.0 * x).collect();
            let mut halves = HalfRows::new(k, &rows);
            halves.grow(n);
            halves.pieces(n, n).for_each(|mut to| to.write(&mut more.clone()));
            assert_eq!(halves.count(), 2 * n);
            let largest = rows.iter().fold(0f32, |most, x| most.max(x.abs()));
            for (x, y) in halves.floats(2 * n, k).iter().zip(rows.iter().chain(&more)) {
                // Beside the largest value, the smallest ones are rounded more.
                let error = (y.abs() / 2048.0).max(largest * 1e-6);
                assert!((x - y).abs() <= error, "{x} {y} {largest}");
            }
            let mut some = [0f32; 3];
            halves.read(4, 2..5, &mut some);
            assert_eq!(some, halves.floats(5, k)[4 * k + 2..][..3]);
        }
    }

    #[test]
    fn values_beyond_the_largest_half_are_cut() {
        let mut halves = HalfRows::new(2, &[1.0, -1.0]);
        halves.grow(1);
        halves.pieces(1, 1).for_each(|mut to| to.write(&mut [1e30, -1e30]));
        assert!(halves.floats(2, 2)[2..].iter().all(|x| x.is_finite() && x.abs() > 100.0));
    }
}
