//! Fits codebooks to sampled rows.
//!
//! 1. Cells: k-means with 256 centres (`means.rs`).
//! 2. Words: in each segment, codebook after codebook, k-means of what the earlier ones left over. What is left over by the
//!    best few codes of a row counts, not only by the best one: the next codebook then overfits less (`growth.rs`).
//! 3. Rounds: all cells and words of a segment are the solution of a least-squares problem with the codes of the rows
//!    fixed (`least_squares.rs`); then the rows are encoded again. In between, words are extrapolated ([`improve`]).
//!    (LSQ++ disturbs the words by noise between the rounds. It was measured: noise that is small beside the rows is
//!    large beside what long codes leave over, and ruins them.)
//!
//! The rounds take more rows than the first two steps, which keeps words from fitting to single rows where it counts,
//! and costs less.
//!
//! All work is divided by rows or coordinates in pieces of fixed size, so that the result does not depend on the number of
//! threads.

use super::beam::Beam;
use super::codebooks::{CELLS, Codebooks, Segment, WORDS};
use super::growth::{AddedBook, Candidates};
use super::least_squares::{self, STEPS};
use super::means::{self, k_means};
use super::rounded::Buffers;
use super::stored_rows::FittedRows;
use crate::arch::Isa;
use crate::pool::Pool;
use crate::random::Stream;
use std::ops::Range;

/// Rows that are encoded at a time: their products with all entries stay in the second cache. And blocks of a task.
const BLOCK: usize = 32;
const TASK_BLOCKS: usize = 16;
/// The last rounds, and the width of the beam in them.
const LAST_ROUNDS: usize = 2;
const LAST_BEAM: usize = 8;
/// Codes of a row whose residuals the next codebook is fitted to.
const CODES: usize = 2;

/// How step 3 goes.
#[derive(Clone, Copy)]
pub(super) struct Schedule {
    pub(super) rounds: usize,
    /// Width of the beam in all rounds but the last: narrow while words still move.
    pub(super) beam: usize,
    /// How much further cells and words go, in all rounds but the last, in proportion to what they have moved since the
    /// round before.
    pub(super) momentum: f32,
}

/// Steps 1 and 2: codebooks for rows of k coordinates.
pub(super) fn begin(
    pool: &Pool,
    rows: &impl FittedRows,
    k: usize,
    books: usize,
    segments: usize,
    stream: &mut Stream,
) -> Codebooks {
    let mut fitted = Codebooks::new(k, books, segments, CELLS);
    let mut copy = rows.floats(rows.count(), k);
    let cells = k_means(pool, &mut copy, k, stream);
    // k-means leaves the coordinates in another order.
    rows.read_rows(0, 0..k, &mut copy);
    let nearest = means::nearest(pool, &copy, k, &cells);
    drop(copy);
    for i in 0..segments {
        let (range, segment) = (fitted.words_of(i), &fitted.segments[i]);
        let from = segment.coordinates.start;
        let rest = LeftOver { rows, nearest: &nearest, cells: &cells, k, from };
        first_words(pool, &rest, segment, &mut fitted.words[range], stream);
    }
    fitted.cells = cells;
    fitted
}

/// What the nearest cell of each row leaves over.
struct LeftOver<'a, R> {
    rows: &'a R,
    nearest: &'a [u32],
    cells: &'a [f32],
    k: usize,
    /// The first coordinate.
    from: usize,
}

impl<R: FittedRows> FittedRows for LeftOver<'_, R> {
    fn count(&self) -> usize {
        self.nearest.len()
    }

    fn read(&self, row: usize, coordinates: Range<usize>, to: &mut [f32]) {
        let own = self.from + coordinates.start..self.from + coordinates.end;
        let cell = &self.cells[self.nearest[row] as usize * self.k..][own.clone()];
        self.rows.read(row, own, to);
        to.iter_mut().zip(cell).for_each(|(x, c)| *x -= c);
    }
}

/// Step 3: alternates between least squares and encoding.
///
/// Words move in the same direction for many rounds, so that they may go further in each. If the error of the rows
/// rises, they went too far, and go no further than least squares from then on.
pub(super) fn improve(
    pool: &Pool,
    fitted: &mut Codebooks,
    rows: &impl FittedRows,
    schedule: Schedule,
) {
    let Schedule { rounds, beam, momentum } = schedule;
    let mut codes = encode(pool, fitted, rows, beam);
    let (mut last, mut last_error) = (None, f64::INFINITY);
    for round in 0..rounds {
        // Not exact: the next round goes on from here.
        let error = least_squares::solve(pool, fitted, rows, &codes, STEPS / 2);
        let early = round + LAST_ROUNDS < rounds;
        if momentum > 0.0 && early && error <= last_error {
            last_error = error;
            let found = fitted.clone();
            if let Some(last) = last.replace(found) {
                extrapolate(fitted, &last, momentum);
            }
        } else {
            last_error = f64::NEG_INFINITY;
        }
        codes = encode(pool, fitted, rows, if early { beam } else { LAST_BEAM });
    }
    least_squares::solve(pool, fitted, rows, &codes, STEPS);
}

/// Moves cells and words on, away from those of `last`.
fn extrapolate(fitted: &mut Codebooks, last: &Codebooks, momentum: f32) {
    let cells = fitted.cells.iter_mut().zip(&last.cells);
    let words = fitted.words.iter_mut().zip(&last.words);
    cells.chain(words).for_each(|(x, last)| *x += momentum * (*x - last));
}

/// Encodes rows of k coordinates: a cell and a word of each codebook, a byte each.
pub(super) fn encode(
    pool: &Pool,
    books: &Codebooks,
    rows: &impl FittedRows,
    beam: usize,
) -> Vec<u8> {
    let (tables, isa) = (books.tables(pool), Isa::detect());
    let (k, length) = (books.k, books.books + 1);
    let mut codes = vec![0u8; rows.count() * length];
    let per_task = BLOCK * TASK_BLOCKS;
    let jobs = codes.chunks_mut(per_task * length).enumerate().collect();
    pool.each(jobs, |(task, codes): (usize, &mut [u8])| {
        let mut beam = Beam::new(books, beam);
        let mut products = vec![0f32; BLOCK * books.entries()];
        let (mut block, mut buffer) = (vec![0f32; BLOCK * k], Buffers::default());
        let firsts = (task * per_task..).step_by(BLOCK);
        for (codes, first) in codes.chunks_mut(BLOCK * length).zip(firsts) {
            let block = &mut block[..codes.len() / length * k];
            rows.read_rows(first, 0..k, block);
            tables.rounded_products(isa, books, block, &mut buffer, &mut products);
            beam.encode(isa, books, &tables, &products, codes);
        }
    });
    codes
}

/// Writes the words of a segment, codebook after codebook. `rows` have the coordinates of the segment only.
fn first_words(
    pool: &Pool,
    rows: &impl FittedRows,
    segment: &Segment,
    words: &mut [f32],
    stream: &mut Stream,
) {
    let (n, width) = (rows.count(), segment.coordinates.len());
    // With room for the residuals of all codes.
    let mut rest = Vec::with_capacity(CODES * n * width);
    rest.resize(n * width, 0.0);
    rows.read_rows(0, 0..width, &mut rest);
    let mut candidates = vec![Candidates::new(); n];
    for book in 0..segment.books.len() {
        let (words, _) = words.split_at_mut((book + 1) * WORDS * width);
        words[book * WORDS * width..].copy_from_slice(&k_means(pool, &mut rest, width, stream));
        if book + 1 == segment.books.len() {
            break;
        }
        AddedBook::new(pool, words, width).extend(pool, rows, width, &mut candidates);
        rest.resize(CODES * n * width, 0.0);
        let jobs = rest
            .chunks_mut(BLOCK * CODES * width)
            .zip(candidates.chunks(BLOCK))
            .enumerate()
            .collect();
        pool.each(jobs, |(block, (rest, candidates)): (usize, (&mut [f32], &[Candidates]))| {
            let mut row = vec![0f32; width];
            let each = rest.chunks_exact_mut(CODES * width).zip(candidates);
            for (i, (rest, candidates)) in each.enumerate() {
                rows.read(block * BLOCK + i, 0..width, &mut row);
                for (i, rest) in rest.chunks_exact_mut(width).enumerate() {
                    rest.copy_from_slice(&row);
                    let code = &candidates.code(i)[1..book + 2];
                    for (word, words) in code.iter().zip(words.chunks_exact(WORDS * width)) {
                        let word = &words[usize::from(*word) * width..][..width];
                        rest.iter_mut().zip(word).for_each(|(x, w)| *x -= w);
                    }
                }
            }
        });
    }
}

/// The standard deviation of each coordinate.
pub(super) fn deviations(rows: &[f32], k: usize) -> Vec<f64> {
    let n = (rows.len() / k) as f64;
    let (mut sums, mut squares) = (vec![0f64; k], vec![0f64; k]);
    for row in rows.chunks_exact(k) {
        for ((sum, square), x) in sums.iter_mut().zip(&mut squares).zip(row) {
            *sum += f64::from(*x);
            *square += f64::from(*x) * f64::from(*x);
        }
    }
    let of = |(s, q): (&f64, &f64)| (q / n - (s / n) * (s / n)).max(0.0).sqrt();
    sums.iter().zip(&squares).map(of).collect()
}
