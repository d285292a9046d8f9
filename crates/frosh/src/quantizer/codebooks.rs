//! The codebooks of the additive quantiser: what a code stands for.
//!
//! A row z of k coordinates is approximated by a sum of one cell and M words:
//!
//! ```text
//! z  ~  cell[a] + sum_m word[m][b_m],      a < 256,  b_m < 256
//! ```
//!
//! Coordinates are divided into segments. A word is zero outside the segment of its codebook, so products between words
//! are needed inside a segment only. Cells cover all coordinates.

use super::rounded::{Buffers, RoundedProducts};
use crate::arch::Isa;
use crate::arch::byte_products::{largest, rounded};
use crate::arch::project::{self, Packed};
use crate::linalg;
use crate::pool::Pool;
use faer::MatRef;
use std::ops::Range;

/// Number of cells: a byte of the code.
pub(crate) const CELLS: usize = 256;
/// Words of a codebook: a byte of the code.
pub(crate) const WORDS: usize = 256;

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
    /// Number of cells: [`CELLS`], and fewer in some tests.
    pub(crate) cell_count: usize,
    /// A vector of k coordinates for each cell.
    pub(crate) cells: Vec<f32>,
    /// [`WORDS`] vectors for each codebook, as long as the segment of the codebook.
    pub(crate) words: Vec<f32>,
}

/// The items of part `i` of `parts` nearly equal parts of `count` items; the first parts are the larger ones.
fn part(count: usize, i: usize, parts: usize) -> Range<usize> {
    let from = |i: usize| i * (count / parts) + i.min(count % parts);
    from(i)..from(i + 1)
}

impl Codebooks {
    /// Codebooks of zeros. Coordinates and codebooks are divided evenly among `segments` segments.
    pub(crate) fn new(k: usize, books: usize, segments: usize, cell_count: usize) -> Self {
        let words = Self::word_values(k, books, segments).expect("codebooks fit into memory");
        Self::of(k, books, segments, vec![0.0; cell_count * k], vec![0.0; words])
    }

    /// Codebooks of these cells and words.
    pub(crate) fn of(
        k: usize,
        books: usize,
        segments: usize,
        cells: Vec<f32>,
        words: Vec<f32>,
    ) -> Self {
        let segment = |i: usize| Segment {
            coordinates: part(k, i, segments),
            books: part(books, i, segments),
        };
        let segments = (0..segments).map(segment).collect();
        Self { k, books, segments, cell_count: cells.len() / k, cells, words }
    }

    /// The number of values of all words. None if there are more than can be counted, as a file may claim.
    pub(crate) fn word_values(k: usize, books: usize, segments: usize) -> Option<usize> {
        WORDS.checked_mul(books)?.checked_mul(k)?;
        let of = |i: usize| WORDS * part(books, i, segments).len() * part(k, i, segments).len();
        Some((0..segments).map(of).sum())
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

    /// Writes the row that a code stands for. `code` is the cell and then a word of each codebook.
    #[inline(always)]
    pub(crate) fn decode(&self, code: &[u8], out: &mut [f32]) {
        out.copy_from_slice(&self.cells[usize::from(code[0]) * self.k..][..self.k]);
        for (i, segment) in self.segments.iter().enumerate() {
            let words = &self.words[self.words_of(i)];
            let width = segment.coordinates.len();
            let own = segment.books.clone().zip(words.chunks_exact((WORDS * width).max(1)));
            for (book, words) in own {
                let word = &words[usize::from(code[book + 1]) * width..][..width];
                for (x, w) in out[segment.coordinates.clone()].iter_mut().zip(word) {
                    *x += w;
                }
            }
        }
    }

    /// The same for a row that the codebooks were fitted to, as if they had been fitted without it: in each segment,
    /// the error is larger by the factor 1 + gain. No gains are zeros.
    #[inline(always)]
    pub(crate) fn decode_unseen(&self, code: &[u8], row: &[f32], gains: &[f32], out: &mut [f32]) {
        self.decode(code, out);
        for (segment, gain) in self.segments.iter().zip(gains) {
            let own = segment.coordinates.clone();
            let each = out[own.clone()].iter_mut().zip(&row[own]);
            each.for_each(|(y, x)| *y -= gain * (x - *y));
        }
    }

    /// Cells and words together.
    pub(crate) fn entries(&self) -> usize {
        self.cell_count + WORDS * self.books
    }

    /// Products between entries, which encoding needs.
    pub(crate) fn tables(&self, pool: &Pool) -> Tables {
        let (count, width) = (WORDS * self.books, self.entries());
        let mut all = vec![0f32; self.cell_count * width];
        Products::new(self).of(Isa::detect(), &self.cells, &mut all);
        let mut cell_words = Vec::with_capacity(self.cell_count * count);
        let mut cell_cells = Vec::with_capacity(self.cell_count * self.cell_count);
        for row in all.chunks_exact(width) {
            let (cells, words) = row.split_at(self.cell_count);
            cell_cells.extend_from_slice(cells);
            cell_words.extend_from_slice(words);
        }
        drop(all);
        let square = |x: &[f32]| x.iter().map(|x| x * x).sum::<f32>();
        let mut squares: Vec<f32> = self.cells.chunks_exact(self.k).map(square).collect();
        for (i, segment) in self.segments.iter().enumerate() {
            let words = &self.words[self.words_of(i)];
            squares.extend(words.chunks_exact(segment.coordinates.len()).map(square));
        }
        let pairs = Pairs::new(self, pool);
        let rounded = RoundedProducts::new(self, cell_cells);
        Tables { rounded, cell_words, squares, pairs }
    }
}

/// Products between the entries of codebooks.
#[derive(Debug)]
pub(crate) struct Tables {
    /// Products of rows with all entries, by bytes.
    rounded: RoundedProducts,
    /// For each cell, its product with every word.
    pub(crate) cell_words: Vec<f32>,
    /// Squared lengths of cells and words.
    pub(crate) squares: Vec<f32>,
    pub(crate) pairs: Pairs,
}

/// The products of words with those of later codebooks of their segment. They are rounded to bytes: words of different
/// codebooks are nearly orthogonal, so that little is lost, and encoding reads a quarter of the memory. All products
/// with the words of a codebook have the same scale, so that their sums are whole numbers.
#[derive(Debug)]
pub(crate) struct Pairs {
    /// For each word, its products with the words of each later codebook of its segment.
    bytes: Vec<i8>,
    /// For each codebook, where its words begin in `bytes`, in blocks of [`WORDS`].
    firsts: Vec<usize>,
    /// For each codebook, what products with its words are multiplied by.
    scales: Vec<f32>,
}

/// Some words of a codebook, and all words of the later codebooks of its segment.
struct SomeWords<'a> {
    words: &'a [f32],
    /// The later codebooks.
    later: Range<usize>,
    later_words: &'a [f32],
    width: usize,
}

impl SomeWords<'_> {
    /// Calls `work` for each word (by number) and each later codebook, with their products.
    fn each(&self, mut work: impl FnMut(usize, usize, &[f32])) {
        let matrix = |x| MatRef::from_row_major_slice(x, x.len() / self.width, self.width);
        // A column for each word.
        let products = linalg::product(matrix(self.later_words), matrix(self.words).transpose());
        for word in 0..products.ncols() {
            let blocks = products.col_as_slice(word).chunks_exact(WORDS);
            self.later.clone().zip(blocks).for_each(|(other, block)| work(word, other, block));
        }
    }
}

impl Pairs {
    fn new(books: &Codebooks, pool: &Pool) -> Self {
        /// Words whose products are in memory together.
        const TASK_WORDS: usize = 64;
        /// Words of a task that the scales are found by, and how much larger than theirs a product may be without being
        /// cut.
        const SCALE_WORDS: usize = 8;
        const SCALE_MARGIN: f32 = 1.25;
        let (mut firsts, mut blocks, mut tasks) = (Vec::new(), 0, Vec::new());
        for (i, segment) in books.segments.iter().enumerate() {
            let (own, width) = (segment.books.clone(), segment.coordinates.len());
            let all = &books.words[books.words_of(i)];
            for book in own.clone() {
                let (words, later_words) =
                    all[(book - own.start) * WORDS * width..].split_at(WORDS * width);
                let later = book + 1..own.end;
                firsts.push(blocks);
                blocks += WORDS * later.len();
                let some = words.chunks_exact(TASK_WORDS * width);
                tasks.extend(some.map(|words| SomeWords {
                    words,
                    later: later.clone(),
                    later_words,
                    width,
                }));
            }
        }
        // Scales by the products of a part of the words.
        let mut most = vec![vec![0f32; books.books]; tasks.len()];
        pool.each(most.iter_mut().zip(&tasks).collect(), |(most, task): (&mut Vec<f32>, _)| {
            let words = &task.words[..SCALE_WORDS * task.width];
            SomeWords { words, later: task.later.clone(), ..*task }.each(|_, other, products| {
                most[other] = most[other].max(largest(products));
            });
        });
        let most = |book: usize| most.iter().fold(0f32, |all, task| all.max(task[book]));
        let scale = |book: usize| SCALE_MARGIN * most(book) / 127.0;
        let scales: Vec<f32> = (0..books.books).map(scale).collect();
        let mut bytes = vec![0i8; blocks * WORDS];
        let (mut left, mut jobs) = (&mut bytes[..], Vec::new());
        for task in &tasks {
            let (own, rest) = left.split_at_mut(TASK_WORDS * task.later.len() * WORDS);
            left = rest;
            jobs.push((own, task));
        }
        pool.each(jobs, |(bytes, task)| {
            task.each(|word, other, products| {
                let block = word * task.later.len() + other - task.later.start;
                let bytes = &mut bytes[block * WORDS..][..WORDS];
                let factor = if scales[other] > 0.0 { 1.0 / scales[other] } else { 0.0 };
                for (byte, x) in bytes.iter_mut().zip(products) {
                    *byte = rounded((x * factor).clamp(-127.0, 127.0));
                }
            });
        });
        Self { bytes, firsts, scales }
    }

    /// The products of a word of a codebook with those of a later codebook, in units of [`Pairs::scale`]. `own` are the
    /// codebooks of their segment.
    #[inline(always)]
    pub(crate) fn of(
        &self,
        book: usize,
        word: u8,
        later: usize,
        own: &Range<usize>,
    ) -> &[i8; WORDS] {
        let first = book + 1;
        let block = self.firsts[book] + usize::from(word) * (own.end - first) + later - first;
        &self.bytes.as_chunks().0[block]
    }

    /// The unit of products with words of this codebook. It is 0 for the first codebook of a segment.
    #[inline(always)]
    pub(crate) fn scale(&self, book: usize) -> f32 {
        self.scales[book]
    }
}

impl Tables {
    /// Writes the products of rows with all entries, as far as encoding needs to know them.
    pub(crate) fn rounded_products(
        &self,
        isa: Isa,
        books: &Codebooks,
        rows: &[f32],
        work: &mut Buffers,
        out: &mut [f32],
    ) {
        self.rounded.of(isa, books, self, rows, work, out);
    }
}

/// Computes the products of rows with all entries. The products of a row do not depend on the rows beside it, to the last
/// bit, as those of a general matrix product might.
#[derive(Debug)]
pub(crate) struct Products {
    k: usize,
    entries: usize,
    cells: Packed,
    /// For each segment, its coordinates and its words.
    segments: Vec<(Range<usize>, Packed)>,
}

impl Products {
    pub(crate) fn new(books: &Codebooks) -> Self {
        let pack = |vectors: &[f32], width: usize| {
            Packed::new(vectors, width, &vec![0.0; vectors.len() / width.max(1)])
        };
        let segment = |(i, segment): (usize, &Segment)| {
            let words = pack(&books.words[books.words_of(i)], segment.coordinates.len());
            (segment.coordinates.clone(), words)
        };
        Self {
            k: books.k,
            entries: books.entries(),
            cells: pack(&books.cells, books.k),
            segments: books.segments.iter().enumerate().map(segment).collect(),
        }
    }

    /// Writes, for each row, its products with the cells, and then with the words of each codebook.
    pub(crate) fn of(&self, isa: Isa, rows: &[f32], out: &mut [f32]) {
        let mut scratch = Scratch::default();
        let all = self.segments.iter().map(|(coordinates, words)| (coordinates.clone(), words));
        let mut at = 0;
        for (coordinates, packed) in std::iter::once((0..self.k, &self.cells)).chain(all) {
            let values = scratch.products(isa, packed, rows, self.k, coordinates);
            let rows = out.chunks_exact_mut(self.entries);
            for (to, from) in rows.zip(values.chunks_exact(packed.padded())) {
                to[at..at + packed.count()].copy_from_slice(&from[..packed.count()]);
            }
            at += packed.count();
        }
    }
}

/// Buffers of a product.
#[derive(Default)]
struct Scratch {
    own: Vec<f32>,
    bits: Vec<u8>,
    values: Vec<f32>,
}

impl Scratch {
    /// The products of some coordinates of rows with packed vectors.
    fn products(
        &mut self,
        isa: Isa,
        packed: &Packed,
        rows: &[f32],
        k: usize,
        coordinates: Range<usize>,
    ) -> &[f32] {
        let n = rows.len() / k;
        let rows = if coordinates.len() == k {
            rows
        } else {
            self.own.clear();
            let each = rows.chunks_exact(k);
            each.for_each(|row| self.own.extend_from_slice(&row[coordinates.clone()]));
            &self.own
        };
        // The kernel also writes signs, which are not needed.
        self.bits.resize(n * packed.count().div_ceil(8), 0);
        self.values.resize(n * packed.padded(), 0.0);
        project::projections(isa, packed, rows, &mut self.bits, &mut self.values);
        &self.values
    }
}
