//! Products of rows with all entries of codebooks, by bytes.
//!
//! Encoding compares the entries of a codebook, and bytes suffice for that (`arch/byte_products.rs`). Rounding errors
//! are in proportion to the length of a row, so that the nearest cell is taken off the row first. Its products with the
//! entries are known:
//!
//! ```text
//! z.w = (z - cell).w + cell.w
//! ```

use super::beam::smallest_item;
use super::codebooks::{Codebooks, Segment, Tables};
use crate::arch::Isa;
use crate::arch::byte_products::{self, ByteRows, ByteVectors};
use crate::arch::sixteen::{F32x16, Floats, Work16};
use std::ops::Range;

/// Entries as bytes.
#[derive(Debug)]
pub(crate) struct RoundedProducts {
    k: usize,
    entries: usize,
    cells: ByteVectors,
    /// Coordinates and words of each segment.
    segments: Vec<(Range<usize>, ByteVectors)>,
    /// For each cell, its product with every cell.
    cell_cells: Vec<f32>,
}

/// Working memory.
#[derive(Default)]
pub(crate) struct Buffers {
    bytes: ByteRows,
    rest: Vec<f32>,
    nearest: Vec<usize>,
}

impl RoundedProducts {
    pub(super) fn new(books: &Codebooks, cell_cells: Vec<f32>) -> Self {
        let segment = |(i, segment): (usize, &Segment)| {
            let words = &books.words[books.words_of(i)];
            (segment.coordinates.clone(), ByteVectors::new(words, segment.coordinates.len()))
        };
        Self {
            k: books.k,
            entries: books.entries(),
            cells: ByteVectors::new(&books.cells, books.k),
            segments: books.segments.iter().enumerate().map(segment).collect(),
            cell_cells,
        }
    }

    /// Writes, for each row, its products with the cells, and then with the words of each codebook.
    pub(super) fn of(
        &self,
        isa: Isa,
        books: &Codebooks,
        tables: &Tables,
        rows: &[f32],
        work: &mut Buffers,
        out: &mut [f32],
    ) {
        let (k, entries) = (self.k, self.entries);
        let out = &mut out[..rows.len() / k * entries];
        let Buffers { bytes, rest, nearest } = work;
        bytes.load(isa, rows, k, 0..k);
        byte_products::products(isa, &self.cells, bytes, out, entries);
        rest.clear();
        rest.extend_from_slice(rows);
        let squares = &tables.squares;
        isa.sixteens(TakeOff { books, squares, out, entries, rest, nearest });
        bytes.load(isa, rest, k, 0..k);
        byte_products::products(isa, &self.cells, bytes, out, entries);
        let mut at = self.cells.count();
        for (coordinates, words) in &self.segments {
            if coordinates.len() < k {
                bytes.load(isa, rest, k, coordinates.clone());
            }
            byte_products::products(isa, words, bytes, &mut out[at..], entries);
            at += words.count();
        }
        let known = [&self.cell_cells, &tables.cell_words];
        let (known, cell_count) = (known.map(|x| &x[..]), self.cells.count());
        isa.sixteens(PutBack { known, out, entries, cell_count, nearest });
    }
}

/// Finds the nearest cell of each row by the products, and takes it off the row.
struct TakeOff<'a> {
    books: &'a Codebooks,
    squares: &'a [f32],
    out: &'a [f32],
    entries: usize,
    rest: &'a mut [f32],
    nearest: &'a mut Vec<usize>,
}

impl Work16 for TakeOff<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: F32x16>(self, s: S) {
        let (k, cells) = (self.books.k, self.books.cell_count);
        let mut scores: Vec<Floats> = vec![[f32::MAX; 16]; cells.div_ceil(16)];
        self.nearest.clear();
        let rows = self.rest.chunks_exact_mut(k).zip(self.out.chunks_exact(self.entries));
        for (row, products) in rows {
            let each = scores.as_flattened_mut().iter_mut().zip(products).zip(self.squares);
            for ((score, product), square) in each.take(cells) {
                *score = square - 2.0 * product;
            }
            let cell = smallest_item(s, &scores).min(cells - 1);
            self.nearest.push(cell);
            let cell = &self.books.cells[cell * k..][..k];
            for (x, c) in row.iter_mut().zip(cell) {
                *x -= c;
            }
        }
    }
}

/// Adds what the cells contribute.
struct PutBack<'a> {
    /// The products of cells with cells, and with words.
    known: [&'a [f32]; 2],
    out: &'a mut [f32],
    entries: usize,
    cell_count: usize,
    nearest: &'a [usize],
}

impl Work16 for PutBack<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: F32x16>(self, _: S) {
        let [cells, words] = self.known;
        for (products, cell) in self.out.chunks_exact_mut(self.entries).zip(self.nearest) {
            let (to_cells, to_words) = products.split_at_mut(self.cell_count);
            for (to, known) in [(to_cells, cells), (to_words, words)] {
                let known = &known[cell * to.len()..][..to.len()];
                for (x, y) in to.iter_mut().zip(known) {
                    *x += y;
                }
            }
        }
    }
}
