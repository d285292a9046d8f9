//! Rows that codebooks are fitted to, in half precision or as bytes: more of them in the same memory.
//!
//! They are stored as sampled rows are (`sketch/rounding.rs`): as bytes if half precision would not leave room for all
//! of them. Rounding to bytes adds k / 190,000 or less to the squared length of a row on average, relative to it.
//! Codebooks gain more by more rows.

use crate::sketch::rounding::Rounding;
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

/// Rows of k coordinates in fewer bits.
pub(super) struct StoredRows {
    rounding: Rounding,
    words: Vec<u16>,
    scales: Vec<f32>,
    /// What is subtracted from rows that are read: nothing.
    zeros: Vec<f32>,
}

impl StoredRows {
    /// These rows. Overwrites them.
    pub(super) fn new(rounding: Rounding, mut rows: Vec<f32>) -> Self {
        let zeros = vec![0.0; rounding.dim];
        let mut stored = Self { rounding, words: Vec::new(), scales: Vec::new(), zeros };
        let count = rows.len() / rounding.dim;
        stored.grow(count);
        stored.pieces(0, count).for_each(|mut piece| piece.write(&mut rows));
        stored
    }

    /// Appends rows of zeros.
    pub(super) fn grow(&mut self, rows: usize) {
        let words = rows * self.rounding.words();
        self.words.reserve_exact(words);
        self.words.resize(self.words.len() + words, 0);
        self.scales.resize(self.scales.len() + rows, 0.0);
    }

    /// Keeps the first rows.
    pub(super) fn truncate(&mut self, rows: usize) {
        self.words.truncate(rows * self.rounding.words());
        self.words.shrink_to_fit();
        self.scales.truncate(rows);
    }

    /// The rows from `first` on, `rows` at a time.
    pub(super) fn pieces(&mut self, first: usize, rows: usize) -> impl Iterator<Item = Piece<'_>> {
        let (rounding, length) = (self.rounding, self.rounding.words());
        let words = self.words[first * length..].chunks_mut(rows * length);
        let scales = self.scales[first..].chunks_mut(rows);
        words.zip(scales).map(move |(words, scales)| Piece { rounding, words, scales })
    }
}

impl FittedRows for StoredRows {
    fn count(&self) -> usize {
        self.scales.len()
    }

    fn read(&self, row: usize, coordinates: Range<usize>, to: &mut [f32]) {
        let length = self.rounding.words();
        let words = &self.words[row * length..][..length];
        let zeros = &self.zeros[coordinates.clone()];
        self.rounding.load(words, self.scales[row], coordinates.start, zeros, to);
    }
}

/// Rows to write.
pub(super) struct Piece<'a> {
    rounding: Rounding,
    words: &'a mut [u16],
    scales: &'a mut [f32],
}

impl Piece<'_> {
    /// Number of rows.
    pub(super) fn count(&self) -> usize {
        self.scales.len()
    }

    /// Writes all rows. Overwrites `rows`.
    pub(super) fn write(&mut self, rows: &mut [f32]) {
        let stored = self.words.chunks_exact_mut(self.rounding.words()).zip(&mut *self.scales);
        for (row, (words, scale)) in rows.chunks_exact_mut(self.rounding.dim).zip(stored) {
            *scale = self.rounding.store(row, words);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream};
    use crate::sketch::rounding::Precision;

    #[test]
    fn stored_rows_are_read_as_they_were_written() {
        let (k, n) = (7, 50);
        let mut stream = Stream::new(2, Purpose::Sample, 9, 0);
        for (precision, steps) in [(Precision::Half, 4096.0), (Precision::Byte, 127.0)] {
            let rows: Vec<f32> = (0..n * k).map(|_| stream.normal() as f32).collect();
            let more: Vec<f32> = rows.iter().map(|x| 1000.0 * x).collect();
            let mut stored = StoredRows::new(Rounding { dim: k, precision }, rows.clone());
            stored.grow(n);
            for (mut to, more) in stored.pieces(n, 20).zip(more.chunks(20 * k)) {
                assert_eq!(to.count(), more.len() / k);
                to.write(&mut more.to_vec());
            }
            assert_eq!(stored.count(), 2 * n);
            let all = stored.floats(2 * n, k);
            let written = rows.chunks_exact(k).chain(more.chunks_exact(k));
            for (row, written) in all.chunks_exact(k).zip(written) {
                let largest = written.iter().fold(0f32, |most, x| most.max(x.abs()));
                for (x, y) in row.iter().zip(written) {
                    assert!((x - y).abs() <= 1.001 * largest / steps, "{x} {y} {largest}");
                }
            }
            let mut some = [0f32; 3];
            stored.read(4, 2..5, &mut some);
            assert_eq!(some, all[4 * k + 2..][..3]);
            stored.truncate(3);
            assert_eq!(stored.floats(stored.count(), k), all[..3 * k]);
        }
    }
}
