//! The best cells and words for rows whose codes are fixed.
//!
//! With O the codes of the rows as zeros and ones, and Z the rows, cells and words are the solution C of
//!
//! ```text
//! (O'O + ridge I) C = O'Z + ridge C_old
//! ```
//!
//! in each segment. The ridge moves words that few rows use only a little. The matrix has thousands of rows and is
//! never formed: conjugate gradients multiply by O and O', which are look-ups and sums. They start at the old words,
//! which are near.

use super::codebooks::{Codebooks, WORDS};
use super::stored_rows::FittedRows;
use crate::arch::Isa;
use crate::arch::sixteen::{F32x16, Floats, Work16};
use crate::pool::Pool;
use std::ops::Range;

/// Weight of the old cells and words, in rows.
const RIDGE: f32 = 10.0;
/// Steps of conjugate gradients that come near the solution.
pub(super) const STEPS: usize = 12;
/// Rows whose squared errors are added up in single precision.
const SUMMED_ROWS: usize = 256;

/// Sets cells and words to the best for these codes, in `steps` steps. Returns the squared error of all rows before.
pub(super) fn solve(
    pool: &Pool,
    books: &mut Codebooks,
    rows: &impl FittedRows,
    codes: &[u8],
    steps: usize,
) -> f64 {
    let mut pieces: Vec<Piece> = Vec::new();
    for (i, segment) in books.segments.iter().enumerate() {
        for first in segment.coordinates.clone().step_by(16) {
            let coordinates = first..segment.coordinates.end.min(first + 16);
            pieces.push(Piece { segment: i, coordinates, entries: Vec::new(), error: 0.0 });
        }
    }
    pool.each(pieces.iter_mut().collect(), |piece: &mut Piece| {
        let own = &piece.coordinates;
        piece.entries = piece.load(books);
        let row = |i: usize| {
            let mut row = [0f32; 16];
            rows.read(i, own.clone(), &mut row[..own.len()]);
            row
        };
        let rows: Vec<Floats> = (0..rows.count()).map(row).collect();
        let (length, own) = (books.books + 1, books.segments[piece.segment].books.clone());
        let entries = &mut piece.entries;
        let solve = Solve { codes, length, books: own, rows: &rows, entries, steps };
        piece.error = Isa::detect().sixteens(solve);
    });
    pieces.iter().for_each(|piece| piece.store(books));
    pieces.iter().map(|piece| piece.error).sum()
}

/// At most sixteen coordinates of the cells and words of a segment.
struct Piece {
    segment: usize,
    coordinates: Range<usize>,
    entries: Vec<Floats>,
    /// The squared error of all rows before.
    error: f64,
}

/// Some numbers, and zeros.
fn padded(from: &[f32]) -> Floats {
    let mut to = [0f32; 16];
    to[..from.len()].copy_from_slice(from);
    to
}

impl Piece {
    /// The coordinates within a word of the segment.
    fn in_word(&self, books: &Codebooks) -> (usize, Range<usize>) {
        let all = &books.segments[self.segment].coordinates;
        (all.len(), self.coordinates.start - all.start..self.coordinates.end - all.start)
    }

    fn load(&self, books: &Codebooks) -> Vec<Floats> {
        let (width, own) = self.in_word(books);
        let cells = books.cells.chunks_exact(books.k).map(|x| padded(&x[self.coordinates.clone()]));
        let words = books.words[books.words_of(self.segment)].chunks_exact(width);
        cells.chain(words.map(|x| padded(&x[own.clone()]))).collect()
    }

    fn store(&self, books: &mut Codebooks) {
        let (width, own) = self.in_word(books);
        let (k, words) = (books.k, books.words_of(self.segment));
        let cells = books.cells.chunks_exact_mut(k).map(|x| &mut x[self.coordinates.clone()]);
        let words = books.words[words].chunks_exact_mut(width).map(|x| &mut x[own.clone()]);
        for (to, from) in cells.chain(words).zip(&self.entries) {
            to.copy_from_slice(&from[..to.len()]);
        }
    }
}

/// Conjugate gradients for sixteen coordinates at once, with the diagonal as preconditioner.
struct Solve<'a> {
    codes: &'a [u8],
    /// Bytes of a code.
    length: usize,
    /// The codebooks of the segment.
    books: Range<usize>,
    rows: &'a [Floats],
    /// Cells and words.
    entries: &'a mut [Floats],
    steps: usize,
}

impl Work16 for Solve<'_> {
    /// The squared error of all rows before.
    type Output = f64;

    #[inline(always)]
    fn run<S: F32x16>(self, s: S) -> f64 {
        let Solve { codes, length, books, rows, entries, steps } = self;
        let cells = entries.len() - WORDS * books.len();
        let codes = Codes { codes, length, books, cells };
        let mut weights = vec![RIDGE; entries.len()];
        for code in codes.rows() {
            weights[usize::from(code[0])] += 1.0;
            for (m, word) in codes.words(code).iter().enumerate() {
                weights[codes.entry(m, *word)] += 1.0;
            }
        }
        weights.iter_mut().for_each(|x| *x = 1.0 / *x);
        let zeros = vec![[0f32; 16]; entries.len()];
        let (mut left, mut step, mut image) = (zeros.clone(), zeros.clone(), zeros);
        let mut error = 0f64;
        for (own, rows) in codes.codes.chunks(SUMMED_ROWS * length).zip(rows.chunks(SUMMED_ROWS)) {
            let mut squares = s.splat(0.0);
            for (code, row) in own.chunks_exact(length).zip(rows) {
                let rest = s.sub(s.load(row), codes.sum(s, entries, code));
                squares = s.add(squares, s.mul(rest, rest));
                codes.add(s, rest, &mut left, code);
            }
            let mut sums = [0f32; 16];
            s.store(squares, &mut sums);
            for sum in sums {
                error += f64::from(sum);
            }
        }
        let mut size = s.splat(0.0);
        for i in 0..left.len() {
            let x = s.load(&left[i]);
            let scaled = s.mul(x, s.splat(weights[i]));
            s.store(scaled, &mut step[i]);
            size = s.add(size, s.mul(x, scaled));
        }
        for _ in 0..steps {
            for i in 0..step.len() {
                s.store(s.mul(s.load(&step[i]), s.splat(RIDGE)), &mut image[i]);
            }
            for code in codes.rows() {
                let sum = codes.sum(s, &step, code);
                codes.add(s, sum, &mut image, code);
            }
            let mut product = s.splat(0.0);
            for i in 0..step.len() {
                product = s.add(product, s.mul(s.load(&step[i]), s.load(&image[i])));
            }
            let along = divided(s, size, product);
            let mut next = s.splat(0.0);
            for i in 0..step.len() {
                let x = s.add(s.load(&entries[i]), s.mul(along, s.load(&step[i])));
                s.store(x, &mut entries[i]);
                let x = s.sub(s.load(&left[i]), s.mul(along, s.load(&image[i])));
                s.store(x, &mut left[i]);
                next = s.add(next, s.mul(s.mul(x, x), s.splat(weights[i])));
            }
            let again = divided(s, next, size);
            size = next;
            for i in 0..step.len() {
                let scaled = s.mul(s.load(&left[i]), s.splat(weights[i]));
                s.store(s.add(scaled, s.mul(again, s.load(&step[i]))), &mut step[i]);
            }
        }
        error
    }
}

/// Quotients; zero where there is nothing left to divide by.
#[inline(always)]
fn divided<S: F32x16>(s: S, x: S::V, by: S::V) -> S::V {
    let (mut above, mut below) = ([0f32; 16], [0f32; 16]);
    s.store(x, &mut above);
    s.store(by, &mut below);
    for i in 0..16 {
        let quotient = above[i] / below[i];
        above[i] = if quotient.is_finite() { quotient } else { 0.0 };
    }
    s.load(&above)
}

/// The matrix O of a segment.
struct Codes<'a> {
    codes: &'a [u8],
    length: usize,
    books: Range<usize>,
    cells: usize,
}

impl Codes<'_> {
    #[inline(always)]
    fn rows(&self) -> std::slice::ChunksExact<'_, u8> {
        self.codes.chunks_exact(self.length)
    }

    #[inline(always)]
    fn words<'b>(&self, code: &'b [u8]) -> &'b [u8] {
        &code[self.books.start + 1..=self.books.end]
    }

    /// The number of a word among all entries.
    #[inline(always)]
    fn entry(&self, book: usize, word: u8) -> usize {
        self.cells + WORDS * book + usize::from(word)
    }

    /// The sum of the entries of a code.
    #[inline(always)]
    fn sum<S: F32x16>(&self, s: S, entries: &[Floats], code: &[u8]) -> S::V {
        let mut sum = s.load(&entries[usize::from(code[0])]);
        for (m, word) in self.words(code).iter().enumerate() {
            sum = s.add(sum, s.load(&entries[self.entry(m, *word)]));
        }
        sum
    }

    /// Adds `x` to the entries of a code.
    #[inline(always)]
    fn add<S: F32x16>(&self, s: S, x: S::V, entries: &mut [Floats], code: &[u8]) {
        let cell = &mut entries[usize::from(code[0])];
        s.store(s.add(s.load(cell), x), cell);
        for (m, word) in self.words(code).iter().enumerate() {
            let entry = &mut entries[self.entry(m, *word)];
            s.store(s.add(s.load(entry), x), entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantizer::stored_rows::FloatRows;
    use crate::random::{Purpose, Stream};
    use faer::linalg::solvers::Solve as _;
    use faer::{Mat, Side};

    #[test]
    fn conjugate_gradients_come_near_the_solution_of_the_normal_equations() {
        let (k, n, books) = (20, 3000, 3);
        let mut stream = Stream::new(1, Purpose::Sample, 4, 0);
        let mut normal =
            |count: usize| -> Vec<f32> { (0..count).map(|_| stream.normal() as f32).collect() };
        let rows = normal(n * k);
        let mut fitted = Codebooks::new(k, books, 1, 256);
        fitted.cells = normal(fitted.cells.len());
        fitted.words = normal(fitted.words.len());
        let codes: Vec<u8> = (0..n * (books + 1)).map(|_| stream.below(256) as u8).collect();
        let count = 256 * (books + 1);
        let old = |i: usize, j: usize| match i < 256 {
            true => fitted.cells[i * k + j],
            false => fitted.words[(i - 256) * k + j],
        };
        let mut gram = Mat::<f64>::zeros(count, count);
        let mut right = Mat::from_fn(count, k, |i, j| f64::from(RIDGE * old(i, j)));
        (0..count).for_each(|i| gram[(i, i)] = f64::from(RIDGE));
        for (code, row) in codes.chunks_exact(books + 1).zip(rows.chunks_exact(k)) {
            for (a, x) in code.iter().enumerate() {
                for (b, y) in code.iter().enumerate() {
                    gram[(256 * a + usize::from(*x), 256 * b + usize::from(*y))] += 1.0;
                }
                for (j, z) in row.iter().enumerate() {
                    right[(256 * a + usize::from(*x), j)] += f64::from(*z);
                }
            }
        }
        let first = Mat::from_fn(count, k, |i, j| f64::from(old(i, j)));
        gram.llt(Side::Lower).unwrap().solve_in_place(right.as_mut());
        let mut decoded = vec![0f32; k];
        let error = |(code, row): (&[u8], &[f32])| {
            fitted.decode(code, &mut decoded);
            row.iter().zip(&decoded).map(|(x, y)| f64::from(x - y).powi(2)).sum::<f64>()
        };
        let error: f64 = codes.chunks_exact(books + 1).zip(rows.chunks_exact(k)).map(error).sum();
        for threads in [1, 3] {
            let (pool, mut solved) = (Pool::new(threads).unwrap(), fitted.clone());
            let rows = FloatRows { k, values: &rows };
            let before = solve(&pool, &mut solved, &rows, &codes, STEPS);
            // Sums of SUMMED_ROWS numbers in single precision.
            assert!((before - error).abs() < 1e-5 * error, "{before} {error}");
            let (mut away, mut moved) = (0f64, 0f64);
            for (i, j) in (0..count).flat_map(|i| (0..k).map(move |j| (i, j))) {
                let got = match i < 256 {
                    true => solved.cells[i * k + j],
                    false => solved.words[(i - 256) * k + j],
                };
                away += (f64::from(got) - right[(i, j)]).powi(2);
                moved += (first[(i, j)] - right[(i, j)]).powi(2);
            }
            assert!(away < 1e-4 * moved, "{away} of {moved}");
        }
    }
}
