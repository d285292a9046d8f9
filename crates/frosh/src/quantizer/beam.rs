//! Beam search: the code of a row, by the products of the row with all entries.
//!
//! Encoding minimises |z - cell - sum of words|^2 over all codes. Up to a constant it is
//!
//! ```text
//! |cell|^2 - 2 z.cell + sum_m ( |w_m|^2 - 2 z.w_m + 2 cell.w_m + 2 sum_{p < m} w_p.w_m )
//! ```
//!
//! so that everything is a sum of table entries. The beam starts with the best cells. Each codebook extends every
//! candidate by 16 words and the best are kept. Then one sweep changes the cell or one word at a time while that helps.

use super::codebooks::{Codebooks, Tables, WORDS};

/// Largest width of the beam.
pub(crate) const MAX_BEAM: usize = 32;

type Entry = [f32; WORDS];

/// Working memory of the search for one thread.
pub(crate) struct Beam {
    width: usize,
    /// For each candidate, cell and nibbles; two generations.
    codes: [Vec<u8>; 2],
    scores: [f32; MAX_BEAM],
    grown: Vec<Entry>,
    cells: Vec<f32>,
}

impl Beam {
    /// A beam of `width` candidates for these codebooks.
    pub(crate) fn new(books: &Codebooks, width: usize) -> Self {
        let width = width.clamp(1, MAX_BEAM);
        let codes = vec![0; width * (books.books + 1)];
        Self {
            width,
            codes: [codes.clone(), codes],
            scores: [0.0; MAX_BEAM],
            grown: vec![[0.0; WORDS]; width],
            cells: vec![0.0; books.cell_count],
        }
    }

    /// Writes the code of a row: its cell and a nibble for each of the first `count` codebooks. `products` are those of
    /// [`Products::of`](super::codebooks::Products::of).
    #[inline(always)]
    pub(crate) fn encode(
        &mut self,
        books: &Codebooks,
        tables: &Tables,
        products: &[f32],
        sweeps: usize,
        code: &mut [u8],
    ) {
        let length = books.books + 1;
        let (to_cells, to_words) = products.split_at(books.cell_count);
        for ((to, product), square) in self.cells.iter_mut().zip(to_cells).zip(&tables.squares) {
            *to = square - 2.0 * product;
        }
        let mut kept = Kept::new(self.width);
        kept.offer_all(&self.cells);
        let mut live = kept.len;
        for (i, cell) in kept.items[..live].iter().enumerate() {
            self.codes[0][i * length] = *cell as u8;
            self.scores[i] = kept.scores[i];
        }
        let words = to_words.as_chunks::<WORDS>().0;
        let squares = tables.squares[books.cell_count..].as_chunks::<WORDS>().0;
        for segment in &books.segments {
            let own = WORDS * segment.books.len();
            for book in segment.books.clone() {
                let alone: Entry = std::array::from_fn(|j| squares[book][j] - 2.0 * words[book][j]);
                let within = WORDS * (book - segment.books.start);
                for (i, grown) in self.grown[..live].iter_mut().enumerate() {
                    let code = &self.codes[0][i * length..][..length];
                    let mut sum = cross(tables, books, usize::from(code[0]), book);
                    for before in segment.books.start..book {
                        let word = usize::from(code[before + 1]);
                        let row = &tables.pairs[tables.firsts[before] + word * own + within..];
                        add(&mut sum, row);
                    }
                    let score = self.scores[i];
                    *grown = std::array::from_fn(|j| score + alone[j] + 2.0 * sum[j]);
                }
                let mut kept = Kept::new(self.width);
                kept.offer_all(self.grown[..live].as_flattened());
                let [from, to] = &mut self.codes;
                for (i, item) in kept.items[..kept.len].iter().enumerate() {
                    let parent = *item as usize / WORDS;
                    let to = &mut to[i * length..][..book + 2];
                    to.copy_from_slice(&from[parent * length..][..book + 2]);
                    to[book + 1] = (*item as usize % WORDS) as u8;
                    self.scores[i] = kept.scores[i];
                }
                live = kept.len;
                self.codes.swap(0, 1);
            }
        }
        code.copy_from_slice(&self.codes[0][..length]);
        for _ in 0..sweeps {
            if !self.sweep(books, tables, products, code) {
                break;
            }
        }
    }

    /// Changes the cell, and then each word, to the best one beside the rest of the code. Returns whether anything changed.
    #[inline(always)]
    fn sweep(
        &mut self,
        books: &Codebooks,
        tables: &Tables,
        products: &[f32],
        code: &mut [u8],
    ) -> bool {
        let (to_cells, to_words) = products.split_at(books.cell_count);
        let mut changed = false;
        let scores = &mut self.cells;
        for ((to, product), square) in scores.iter_mut().zip(to_cells).zip(&tables.squares) {
            *to = square - 2.0 * product;
        }
        for (book, word) in code[1..].iter().enumerate() {
            let row = &tables.word_cells[(book * WORDS + usize::from(*word)) * books.cell_count..]
                [..books.cell_count];
            scores.iter_mut().zip(row).for_each(|(to, x)| *to += 2.0 * x);
        }
        let best = smallest(scores);
        if scores[best] < scores[usize::from(code[0])] {
            code[0] = best as u8;
            changed = true;
        }
        let words = to_words.as_chunks::<WORDS>().0;
        let squares = tables.squares[books.cell_count..].as_chunks::<WORDS>().0;
        for segment in &books.segments {
            let own = WORDS * segment.books.len();
            for book in segment.books.clone() {
                let within = WORDS * (book - segment.books.start);
                let mut sum = cross(tables, books, usize::from(code[0]), book);
                for other in segment.books.clone().filter(|other| *other != book) {
                    let word = usize::from(code[other + 1]);
                    let row = &tables.pairs[tables.firsts[other] + word * own + within..];
                    add(&mut sum, row);
                }
                let score: Entry =
                    std::array::from_fn(|j| squares[book][j] - 2.0 * words[book][j] + 2.0 * sum[j]);
                let best = smallest(&score);
                if score[best] < score[usize::from(code[book + 1])] {
                    code[book + 1] = best as u8;
                    changed = true;
                }
            }
        }
        changed
    }
}

/// The products of a cell with the words of a codebook.
#[inline(always)]
fn cross(tables: &Tables, books: &Codebooks, cell: usize, book: usize) -> Entry {
    let row = &tables.cell_words[(cell * books.books + book) * WORDS..][..WORDS];
    std::array::from_fn(|j| row[j])
}

#[inline(always)]
fn add(sum: &mut Entry, row: &[f32]) {
    let row = &row[..WORDS];
    for j in 0..WORDS {
        sum[j] += row[j];
    }
}

/// The position of the smallest value; the first of equal ones.
#[inline(always)]
fn smallest(values: &[f32]) -> usize {
    let least = values.iter().copied().fold(f32::INFINITY, |a, b| if b < a { b } else { a });
    values.iter().position(|x| *x == least).unwrap_or(0)
}

/// The smallest scores, sorted; of equal ones, those that were offered first.
struct Kept {
    most: usize,
    len: usize,
    scores: [f32; MAX_BEAM],
    items: [u16; MAX_BEAM],
}

impl Kept {
    #[inline(always)]
    fn new(most: usize) -> Self {
        Self { most, len: 0, scores: [f32::INFINITY; MAX_BEAM], items: [0; MAX_BEAM] }
    }

    /// Offers values. Chunks without a value below the largest kept one are skipped.
    #[inline(always)]
    fn offer_all(&mut self, values: &[f32]) {
        let (chunks, rest) = values.as_chunks::<WORDS>();
        for (c, chunk) in chunks.iter().enumerate() {
            let limit = self.scores[self.most - 1];
            let mut mask = 0u32;
            for (j, value) in chunk.iter().enumerate() {
                mask |= u32::from(*value < limit) << j;
            }
            while mask != 0 {
                let j = mask.trailing_zeros() as usize;
                mask &= mask - 1;
                self.offer(chunk[j], (c * WORDS + j) as u16);
            }
        }
        for (j, value) in rest.iter().enumerate() {
            self.offer(*value, (chunks.len() * WORDS + j) as u16);
        }
    }

    #[inline(always)]
    fn offer(&mut self, value: f32, item: u16) {
        if value >= self.scores[self.most - 1] {
            return;
        }
        let mut at = if self.len < self.most { self.len } else { self.most - 1 };
        self.len = self.most.min(self.len + 1);
        while at > 0 && self.scores[at - 1] > value {
            self.scores[at] = self.scores[at - 1];
            self.items[at] = self.items[at - 1];
            at -= 1;
        }
        self.scores[at] = value;
        self.items[at] = item;
    }
}
