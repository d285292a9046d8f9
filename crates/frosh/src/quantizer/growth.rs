//! The best codes of rows while codebooks are added one by one.
//!
//! It is the beam search of `beam.rs`, kept between codebooks: each new codebook extends the codes of every row by a
//! word, and the best few are kept. Nothing is encoded twice.

use super::beam::{Code, Continuations, MAX_LENGTH, Sums, VECTORS, Words, add_pairs, extend};
use super::codebooks::WORDS;
use super::stored_rows::FittedRows;
use crate::arch::Isa;
use crate::arch::byte_products::{self, ByteRows, ByteVectors, largest, rounded};
use crate::arch::sixteen::{F32x16, Work16};
use crate::linalg;
use crate::pool::Pool;
use faer::MatRef;
use std::ops::Range;

/// Codes that are kept for a row.
const WIDTH: usize = 4;
/// Rows of a task, and rows whose products are in memory together.
const TASK_ROWS: usize = 512;
const BLOCK: usize = 128;

/// There are no cells.
static NOTHING: Words = [[0.0; 16]; VECTORS];

/// The best codes of a row, ascending by their error. A code has a zero first, where codes of other rows have a cell.
#[derive(Clone)]
pub(super) struct Candidates {
    codes: [Code; WIDTH],
    scores: [f32; WIDTH],
    count: usize,
}

impl Candidates {
    /// The code of no words.
    pub(super) fn new() -> Self {
        Self { codes: [[0; MAX_LENGTH]; WIDTH], scores: [0.0; WIDTH], count: 1 }
    }

    /// Code number `i`. There are four as soon as there is a codebook.
    pub(super) fn code(&self, i: usize) -> &[u8] {
        &self.codes[i]
    }
}

/// A codebook that is added to others.
pub(super) struct AddedBook {
    /// Its number.
    book: usize,
    words: ByteVectors,
    squares: Words,
    /// For each word of the other codebooks, its products with the new words.
    pairs: Vec<[i8; WORDS]>,
    /// The unit of these products.
    scale: f32,
}

impl AddedBook {
    /// The last [`WORDS`] of some words of `width` coordinates.
    pub(super) fn new(pool: &Pool, words: &[f32], width: usize) -> Self {
        let (others, new) = words.split_at(words.len() - WORDS * width);
        let book = others.len() / (WORDS * width);
        let mut products = vec![[0f32; WORDS]; book * WORDS];
        let matrix = |x| MatRef::from_row_major_slice(x, WORDS, width);
        let jobs = products.chunks_mut(WORDS).zip(others.chunks_exact(WORDS * width)).collect();
        pool.each(jobs, |(products, others): (&mut [[f32; WORDS]], &[f32])| {
            // A column for each of the other words.
            let found = linalg::product(matrix(new), matrix(others).transpose());
            for (i, to) in products.iter_mut().enumerate() {
                to.copy_from_slice(found.col_as_slice(i));
            }
        });
        let scale = largest(products.as_flattened()) / 127.0;
        let factor = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        let byte = |x: &f32| rounded((x * factor).clamp(-127.0, 127.0));
        let mut pairs = vec![[0i8; WORDS]; products.len()];
        for (to, from) in pairs.iter_mut().zip(&products) {
            to.iter_mut().zip(from).for_each(|(to, x)| *to = byte(x));
        }
        let mut squares = [[0f32; 16]; VECTORS];
        for (to, word) in squares.as_flattened_mut().iter_mut().zip(new.chunks_exact(width)) {
            *to = word.iter().map(|x| x * x).sum();
        }
        Self { book, words: ByteVectors::new(new, width), squares, pairs, scale }
    }

    /// Extends the codes of all rows of `width` coordinates.
    pub(super) fn extend(
        &self,
        pool: &Pool,
        rows: &impl FittedRows,
        width: usize,
        all: &mut [Candidates],
    ) {
        let jobs = all.chunks_mut(TASK_ROWS).enumerate().collect();
        pool.each(jobs, |(task, all): (usize, &mut [Candidates])| {
            let (isa, mut bytes) = (Isa::detect(), ByteRows::default());
            let mut products = vec![[[0f32; 16]; VECTORS]; BLOCK];
            let mut block = vec![0f32; BLOCK * width];
            let firsts = (task * TASK_ROWS..).step_by(BLOCK);
            for (all, first) in all.chunks_mut(BLOCK).zip(firsts) {
                let block = &mut block[..all.len() * width];
                rows.read_rows(first, 0..width, block);
                bytes.load(isa, block, width, 0..width);
                let floats = products.as_flattened_mut().as_flattened_mut();
                byte_products::products(isa, &self.words, &bytes, floats, WORDS);
                isa.sixteens(Extend { book: self, products: &products, all });
            }
        });
    }
}

/// Rows whose codes are extended, and their products with the new words.
struct Extend<'a> {
    book: &'a AddedBook,
    products: &'a [Words],
    all: &'a mut [Candidates],
}

impl Work16 for Extend<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: F32x16>(self, s: S) {
        let mut grown = [[[0f32; 16]; VECTORS]; WIDTH];
        for (own, products) in self.all.iter_mut().zip(self.products) {
            let mut alone = [s.splat(0.0); VECTORS];
            for i in 0..VECTORS {
                let product = s.load(&products[i]);
                alone[i] = s.sub(s.load(&self.book.squares[i]), s.add(product, product));
            }
            let from = own.codes;
            let (to, scores) = (&mut own.codes, &mut own.scores);
            let count = own.count;
            own.count = extend(s, self.book, &alone, &from[..count], to, scores, WIDTH, &mut grown);
        }
    }
}

impl Continuations for AddedBook {
    #[inline(always)]
    fn places(&self) -> Range<usize> {
        1..self.book + 1
    }

    #[inline(always)]
    fn add_products<S: F32x16>(&self, s: S, code: &Code, places: Range<usize>, sums: &mut Sums<S>) {
        let pairs = places.map(|place| &self.pairs[WORDS * (place - 1) + usize::from(code[place])]);
        add_pairs::<S, false>(s, pairs, sums);
    }

    #[inline(always)]
    fn scale(&self) -> f32 {
        self.scale
    }

    #[inline(always)]
    fn to_cell(&self, _: &Code) -> &Words {
        &NOTHING
    }

    #[inline(always)]
    fn prefetch<S: F32x16>(&self, _: S, _: u8) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantizer::stored_rows::FloatRows;
    use crate::random::{Purpose, Stream};

    /// The score of a code by its definition, and how far rounding to bytes may move it.
    fn score(row: &[f32], words: &[f32], code: &[u8]) -> (f64, f64) {
        let width = row.len();
        let book = |m: usize| &words[m * WORDS * width..][..WORDS * width];
        let all = code.iter().enumerate();
        let own: Vec<&[f32]> =
            all.map(|(m, word)| &book(m)[usize::from(*word) * width..][..width]).collect();
        let product = |a: &[f32], b: &[f32]| -> f64 {
            a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum()
        };
        let length = |a: &[f32]| a.iter().map(|x| f64::from(x.abs())).sum::<f64>();
        let half = |a: &[f32]| f64::from(largest(a)) / 63.0 / 2.0;
        let (mut score, mut error) = (0.0, 1e-4);
        for (m, word) in own.iter().enumerate() {
            score += product(word, word) - 2.0 * product(row, word);
            // Half a step of one factor for each value of the other.
            let rounding =
                half(row) * (length(word) + width as f64 * half(word)) + half(word) * length(row);
            error += 2.0 * rounding;
            for (p, other) in own[..m].iter().enumerate() {
                score += 2.0 * product(word, other);
                let pairs = (0..m).flat_map(|p| book(p).chunks_exact(width));
                let most = |other: &[f32]| {
                    let new = book(m).chunks_exact(width);
                    new.map(|word| product(word, other).abs()).fold(0.0, f64::max)
                };
                // Half a step of the largest product of the new words with all others. It counts twice.
                if p == 0 {
                    error += m as f64 * pairs.map(most).fold(0.0, f64::max) / 127.0;
                }
            }
        }
        (score, error)
    }

    #[test]
    fn codes_are_extended_by_the_best_words() {
        let (n, width, books) = (6, 10, 3);
        let mut stream = Stream::new(4, Purpose::Sample, 7, 0);
        let mut normal =
            |count: usize| -> Vec<f32> { (0..count).map(|_| stream.normal() as f32).collect() };
        let (rows, words) = (normal(n * width), normal(books * WORDS * width));
        let pool = Pool::new(2).unwrap();
        let mut all = vec![Candidates::new(); n];
        for book in 0..books {
            let words = &words[..(book + 1) * WORDS * width];
            let before = all.clone();
            let floats = FloatRows { k: width, values: &rows };
            AddedBook::new(&pool, words, width).extend(&pool, &floats, width, &mut all);
            for ((row, before), after) in rows.chunks_exact(width).zip(&before).zip(&all) {
                assert_eq!(after.count, WIDTH);
                let mut best: Vec<f64> = before.codes[..before.count]
                    .iter()
                    .flat_map(|code| (0..WORDS).map(move |word| (*code, word)))
                    .map(|(mut code, word)| {
                        code[book + 1] = word as u8;
                        score(row, words, &code[1..book + 2]).0
                    })
                    .collect();
                best.sort_by(f64::total_cmp);
                for (i, best) in best[..WIDTH].iter().enumerate() {
                    let (exact, error) = score(row, words, &after.code(i)[1..book + 2]);
                    let got = f64::from(after.scores[i]);
                    assert!((got - exact).abs() <= error, "{got} {exact} {error}");
                    // The rounding of both codes counts.
                    assert!(exact <= best + 2.0 * error, "codebook {book}: {exact} {best}");
                }
            }
        }
    }
}
