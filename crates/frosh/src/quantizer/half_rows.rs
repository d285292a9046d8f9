//! Rows that codebooks are fitted to, in 16 bits: twice as many in the same memory.
//!
//! The upper half of a float (bfloat16) has its range, so that rows need no scale, and it becomes a float again by a shift. The error of
//! a value is at most 2^-8 of it. So the squared error of a row is below 1e-5 of its squared length on average, where codes of 64 bytes leave out a
//! thousandth and more.

use half::bf16;
use std::ops::Range;

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

/// Rows of k halves of floats.
pub(super) struct HalfRows {
    k: usize,
    values: Vec<bf16>,
}

impl HalfRows {
    /// These rows.
    pub(super) fn new(k: usize, rows: &[f32]) -> Self {
        Self { k, values: rows.iter().map(|x| bf16::from_f32(*x)).collect() }
    }

    /// Appends rows of zeros.
    pub(super) fn grow(&mut self, rows: usize) {
        self.values.reserve_exact(rows * self.k);
        self.values.resize(self.values.len() + rows * self.k, bf16::ZERO);
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
        let k = self.k;
        self.values[first * k..].chunks_mut(rows * k).map(move |to| HalfPiece { k, to })
    }
}

impl FittedRows for HalfRows {
    fn count(&self) -> usize {
        self.values.len() / self.k
    }

    fn read(&self, row: usize, coordinates: Range<usize>, to: &mut [f32]) {
        let from = &self.values[row * self.k..][coordinates];
        // A shift, which the compiler vectorises.
        to.iter_mut()
            .zip(from)
            .for_each(|(x, y)| *x = f32::from_bits(u32::from(y.to_bits()) << 16));
    }
}

/// Rows to write.
pub(super) struct HalfPiece<'a> {
    k: usize,
    to: &'a mut [bf16],
}

impl HalfPiece<'_> {
    /// Number of rows.
    pub(super) fn count(&self) -> usize {
        self.to.len() / self.k
    }

    /// Writes all rows.
    pub(super) fn write(&mut self, rows: &[f32]) {
        self.to.iter_mut().zip(rows).for_each(|(to, x)| *to = bf16::from_f32(*x));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream};

    #[test]
    fn halves_keep_eight_bits_at_any_scale() {
        let (k, n) = (7, 50);
        let mut stream = Stream::new(2, Purpose::Sample, 9, 0);
        for scale in [0.0, 1e-25f32, 1.0, 3e7, 1e25] {
            let rows: Vec<f32> = (0..n * k).map(|_| scale * stream.normal() as f32).collect();
            let more: Vec<f32> = rows.iter().map(|x| 10.0 * x).collect();
            let mut halves = HalfRows::new(k, &rows);
            halves.grow(n);
            halves.pieces(n, n).for_each(|mut to| to.write(&more));
            assert_eq!(halves.count(), 2 * n);
            let all = halves.floats(2 * n, k);
            for (x, y) in all.iter().zip(rows.iter().chain(&more)) {
                assert!((x - y).abs() <= y.abs() / 256.0, "{x} {y}");
            }
            let mut some = [0f32; 3];
            halves.read(4, 2..5, &mut some);
            assert_eq!(some, all[4 * k + 2..][..3]);
            halves.truncate(3);
            assert_eq!(halves.floats(halves.count(), k), all[..3 * k]);
        }
    }
}
