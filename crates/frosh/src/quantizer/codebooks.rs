//! The codebooks of the additive quantiser: what a code stands for.
//!
//! A row z of k coordinates is approximated by a sum of one cell and M words:
//!
//! ```text
//! z  ~  cell[a] + sum_m word[m][b_m],      a < 256,  b_m < 16
//! ```
//!
//! Coordinates are divided into segments. A word is zero outside the segment of its codebook, so products between words
//! are needed inside a segment only. Cells cover all coordinates.

use crate::linalg;
use faer::MatRef;
use std::ops::Range;

/// Number of cells: a byte of the code.
pub(crate) const CELLS: usize = 256;
/// Words of a codebook: a nibble of the code.
pub(crate) const WORDS: usize = 16;

/// A range of coordinates, and the codebooks that describe it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Segment {
    pub(crate) coordinates: Range<usize>,
    pub(crate) books: Range<usize>,
}

/// Cells and words.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Codebooks {
    /// Coordinates of a row.
    pub(crate) k: usize,
    /// Number of codebooks.
    pub(crate) books: usize,
    pub(crate) segments: Vec<Segment>,
    /// Number of cells: [`CELLS`], or 1 while words are fitted without cells.
    pub(crate) cell_count: usize,
    /// A vector of k coordinates for each cell.
    pub(crate) cells: Vec<f32>,
    /// [`WORDS`] vectors for each codebook, as long as the segment of the codebook.
    pub(crate) words: Vec<f32>,
}

/// The items of part `i` of `parts` nearly equal parts of `count` items; the first parts are the larger ones. So one item more
/// makes one part larger and moves the parts after it.
fn part(count: usize, i: usize, parts: usize) -> Range<usize> {
    let from = |i: usize| i * (count / parts) + i.min(count % parts);
    from(i)..from(i + 1)
}

impl Codebooks {
    /// Codebooks of zeros. Coordinates and codebooks are divided evenly among `segments` segments.
    pub(crate) fn new(k: usize, books: usize, segments: usize, cell_count: usize) -> Self {
        let segment = |i: usize| Segment {
            coordinates: part(k, i, segments),
            books: part(books, i, segments),
        };
        let segments: Vec<Segment> = (0..segments).map(segment).collect();
        let words = segments.iter().map(|s| WORDS * s.books.len() * s.coordinates.len()).sum();
        let cells = vec![0.0; cell_count * k];
        Self { k, books, segments, cell_count, cells, words: vec![0.0; words] }
    }

    /// The range of all words of a segment in [`Codebooks::words`].
    pub(crate) fn words_of(&self, segment: usize) -> Range<usize> {
        let sizes = self.segments.iter().map(|s| WORDS * s.books.len() * s.coordinates.len());
        let from = sizes.take(segment).sum::<usize>();
        let own = &self.segments[segment];
        from..from + WORDS * own.books.len() * own.coordinates.len()
    }

    /// The number of coordinates of each segment.
    pub(crate) fn widths(k: usize, segments: usize) -> Vec<usize> {
        (0..segments).map(|i| part(k, i, segments).len()).collect()
    }

    /// The same with one codebook of zeros more, and the segment that it belongs to.
    pub(crate) fn extended(&self) -> (Self, usize) {
        let count = self.segments.len();
        let mut larger = Self::new(self.k, self.books + 1, count, self.cell_count);
        larger.cells.clone_from(&self.cells);
        for i in 0..count {
            let (from, to) = (self.words_of(i), larger.words_of(i));
            larger.words[to][..from.len()].copy_from_slice(&self.words[from]);
        }
        (larger, self.books % count)
    }

    /// Writes the row that a code stands for. `code` is the cell and then a nibble for each codebook.
    pub(crate) fn decode(&self, code: &[u8], out: &mut [f32]) {
        out.copy_from_slice(&self.cells[usize::from(code[0]) * self.k..][..self.k]);
        for (i, segment) in self.segments.iter().enumerate() {
            let words = &self.words[self.words_of(i)];
            let width = segment.coordinates.len();
            let own = segment.books.clone().zip(words.chunks_exact((WORDS * width).max(1)));
            for (book, words) in own {
                let word = &words[usize::from(code[book + 1]) * width..][..width];
                let to = &mut out[segment.coordinates.clone()];
                to.iter_mut().zip(word).for_each(|(x, w)| *x += w);
            }
        }
    }

    /// Writes the products of some rows with all cells and words: those with the cells and then [`WORDS`] for each codebook, a row
    /// each.
    pub(crate) fn products(&self, rows: &[f32], out: &mut [f32]) {
        use faer::linalg::matmul::matmul;
        use faer::{Accum, MatMut, Par};
        let n = rows.len() / self.k;
        let width = self.entries();
        let all = MatRef::from_row_major_slice(rows, n, self.k);
        let out = MatMut::from_row_major_slice_mut(&mut out[..n * width], n, width);
        let (to_cells, mut rest) = out.split_at_col_mut(self.cell_count);
        let cells = MatRef::from_row_major_slice(&self.cells, self.cell_count, self.k);
        matmul(to_cells, Accum::Replace, all, cells.transpose(), 1.0, Par::Seq);
        for (i, segment) in self.segments.iter().enumerate() {
            let (count, coordinates) = (WORDS * segment.books.len(), segment.coordinates.len());
            let words =
                MatRef::from_row_major_slice(&self.words[self.words_of(i)], count, coordinates);
            let (to, after) = rest.split_at_col_mut(count);
            let own = all.subcols(segment.coordinates.start, coordinates);
            matmul(to, Accum::Replace, own, words.transpose(), 1.0, Par::Seq);
            rest = after;
        }
    }

    /// Cells and words together.
    pub(crate) fn entries(&self) -> usize {
        self.cell_count + WORDS * self.books
    }

    /// Products between entries, which encoding needs.
    pub(crate) fn tables(&self) -> Tables {
        let count = WORDS * self.books;
        let mut cell_words = vec![0f32; self.cell_count * count];
        self.words_by_cells(&mut cell_words);
        let mut word_cells = vec![0f32; self.cell_count * count];
        for (a, row) in cell_words.chunks_exact(count.max(1)).enumerate() {
            for (j, x) in row.iter().enumerate() {
                word_cells[j * self.cell_count + a] = *x;
            }
        }
        let square = |x: &[f32]| x.iter().map(|x| x * x).sum::<f32>();
        let mut squares: Vec<f32> = self.cells.chunks_exact(self.k).map(square).collect();
        let mut pairs = Vec::new();
        let mut firsts = Vec::new();
        for (i, segment) in self.segments.iter().enumerate() {
            let (own, width) = (WORDS * segment.books.len(), segment.coordinates.len());
            let words = &self.words[self.words_of(i)];
            squares.extend(words.chunks_exact(width).map(square));
            let words = MatRef::from_row_major_slice(words, own, width);
            let gram = linalg::product(words, words.transpose());
            for book in segment.books.clone() {
                firsts.push(pairs.len() + (book - segment.books.start) * WORDS * own);
            }
            pairs.extend(
                (0..own).flat_map(|i| (0..own).map(move |j| (i, j))).map(|(i, j)| gram[(i, j)]),
            );
        }
        Tables { cell_words, word_cells, squares, pairs, firsts }
    }

    /// The products of cells with words, a row for each cell.
    fn words_by_cells(&self, out: &mut [f32]) {
        let width = self.entries();
        let mut all = vec![0f32; self.cell_count * width];
        self.products(&self.cells, &mut all);
        for (to, from) in
            out.chunks_exact_mut((width - self.cell_count).max(1)).zip(all.chunks_exact(width))
        {
            to.copy_from_slice(&from[self.cell_count..]);
        }
    }
}

/// Products between the entries of codebooks.
#[derive(Debug)]
pub(crate) struct Tables {
    /// For each cell, its product with every word.
    pub(crate) cell_words: Vec<f32>,
    /// For each word, its product with every cell.
    pub(crate) word_cells: Vec<f32>,
    /// Squared lengths of cells and words.
    pub(crate) squares: Vec<f32>,
    /// For each segment, the products of all its words with each other.
    pub(crate) pairs: Vec<f32>,
    /// Where the rows of a codebook begin in `pairs`.
    pub(crate) firsts: Vec<usize>,
}
