//! Fits codebooks to sampled rows.
//!
//! 1. Cells: k-means with 256 centres (`means.rs`).
//! 2. Words: in each segment, codebook after codebook, k-means of what the earlier ones left over. What is left over by the
//!    best few codes of a row counts, not only by the best one: the next codebook then overfits less (`growth.rs`).
//! 3. Rounds: all cells and words of a segment are the solution of a least-squares problem with the codes of the rows
//!    fixed (`least_squares.rs`); then the rows are encoded again. The words are disturbed by noise that falls to zero, which
//!    lets codes leave poor local optima (as in LSQ++).
//!
//! The rounds take more rows than the first two steps, which keeps words from fitting to single rows where it counts, and costs less.
//!
//! All work is divided by rows or coordinates in pieces of fixed size, so that the result does not depend on the number of
//! threads.

use super::beam::Beam;
use super::codebooks::{CELLS, Codebooks, Segment, WORDS};
use super::growth::{AddedBook, Candidates};
use super::least_squares::{self, STEPS};
use super::means::{self, k_means};
use super::rounded::Buffers;
use crate::arch::Isa;
use crate::pool::Pool;
use crate::random::Stream;

/// Rows that are encoded at a time: their products with all entries stay in the second cache. And blocks of a task.
const BLOCK: usize = 32;
const TASK_BLOCKS: usize = 16;
/// Width of the beam in the rounds: narrow while words are disturbed by noise anyway, and wide in the last rounds.
const EARLY_BEAM: usize = 2;
const LAST_BEAM: usize = 8;
const LAST_ROUNDS: usize = 2;
/// Codes of a row whose residuals the next codebook is fitted to.
const CODES: usize = 2;
/// Noise of the first rounds, relative to the deviation that a codebook has to describe.
const NOISE: f64 = 0.1;

/// Steps 1 and 2: codebooks for rows of k coordinates.
pub(super) fn begin(
    pool: &Pool,
    rows: &[f32],
    k: usize,
    books: usize,
    segments: usize,
    stream: &mut Stream,
) -> Codebooks {
    let mut fitted = Codebooks::new(k, books, segments, CELLS);
    let mut rest = rows.to_vec();
    let cells = k_means(pool, &mut rest, k, stream);
    let nearest = means::nearest(pool, rows, k, &cells);
    rest.copy_from_slice(rows);
    for (row, cell) in rest.chunks_exact_mut(k).zip(nearest) {
        let cell = &cells[cell as usize * k..][..k];
        row.iter_mut().zip(cell).for_each(|(x, c)| *x -= c);
    }
    fitted.cells = cells;
    for i in 0..segments {
        let segment = fitted.segments[i].clone();
        let mut own = Vec::with_capacity(rest.len() / k * segment.coordinates.len());
        for row in rest.chunks_exact(k) {
            own.extend_from_slice(&row[segment.coordinates.clone()]);
        }
        let words = first_words(pool, &own, &segment, stream);
        let range = fitted.words_of(i);
        fitted.words[range].copy_from_slice(&words);
    }
    fitted
}

/// Step 3: alternates between least squares and encoding.
pub(super) fn improve(
    pool: &Pool,
    fitted: &mut Codebooks,
    rows: &[f32],
    rounds: usize,
    stream: &mut Stream,
) {
    let mut codes = encode(pool, fitted, rows, EARLY_BEAM);
    let deviations = deviations(rows, fitted.k);
    for round in 0..rounds {
        // Not exact: noise follows, and the next round goes on from here.
        least_squares::solve(pool, fitted, rows, &codes, STEPS / 2);
        let noise = NOISE * (1.0 - (round + 1) as f64 / rounds as f64).sqrt();
        if noise > 0.0 {
            disturb(fitted, &deviations, noise, stream);
        }
        let beam = if round + LAST_ROUNDS < rounds { EARLY_BEAM } else { LAST_BEAM };
        codes = encode(pool, fitted, rows, beam);
    }
    least_squares::solve(pool, fitted, rows, &codes, STEPS);
}

/// Encodes rows of k coordinates: a cell and a word of each codebook, a byte each.
pub(super) fn encode(pool: &Pool, books: &Codebooks, rows: &[f32], beam: usize) -> Vec<u8> {
    let (tables, isa) = (books.tables(pool), Isa::detect());
    let length = books.books + 1;
    let mut codes = vec![0u8; rows.len() / books.k * length];
    let per_task = BLOCK * TASK_BLOCKS;
    let jobs = codes.chunks_mut(per_task * length).zip(rows.chunks(per_task * books.k)).collect();
    pool.each(jobs, |(codes, rows): (&mut [u8], &[f32])| {
        let mut beam = Beam::new(books, beam);
        let mut products = vec![0f32; BLOCK * books.entries()];
        let mut buffer = Buffers::default();
        let blocks = codes.chunks_mut(BLOCK * length).zip(rows.chunks(BLOCK * books.k));
        for (codes, rows) in blocks {
            tables.rounded_products(isa, books, rows, &mut buffer, &mut products);
            beam.encode(isa, books, &tables, &products, codes);
        }
    });
    codes
}

/// The words of a segment, codebook after codebook. `rows` hold the coordinates of the segment only.
fn first_words(pool: &Pool, rows: &[f32], segment: &Segment, stream: &mut Stream) -> Vec<f32> {
    let width = segment.coordinates.len();
    let mut rest = rows.to_vec();
    let mut words = Vec::new();
    let mut candidates = vec![Candidates::new(); rows.len() / width];
    for book in 0..segment.books.len() {
        let more = k_means(pool, &mut rest, width, stream);
        words.extend(more);
        if book + 1 == segment.books.len() {
            break;
        }
        AddedBook::new(pool, &words, width).extend(pool, rows, width, &mut candidates);
        rest.resize(CODES * rows.len(), 0.0);
        let jobs = rest
            .chunks_mut(BLOCK * CODES * width)
            .zip(rows.chunks(BLOCK * width))
            .zip(candidates.chunks(BLOCK))
            .collect();
        pool.each(jobs, |((rest, rows), candidates): ((&mut [f32], &[f32]), &[Candidates])| {
            let each = rest.chunks_exact_mut(CODES * width).zip(rows.chunks_exact(width));
            for ((rest, row), candidates) in each.zip(candidates) {
                for (i, rest) in rest.chunks_exact_mut(width).enumerate() {
                    rest.copy_from_slice(row);
                    let code = &candidates.code(i)[1..book + 2];
                    for (word, words) in code.iter().zip(words.chunks_exact(WORDS * width)) {
                        let word = &words[usize::from(*word) * width..][..width];
                        rest.iter_mut().zip(word).for_each(|(x, w)| *x -= w);
                    }
                }
            }
        });
    }
    words
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

/// Adds noise to the words.
fn disturb(books: &mut Codebooks, deviations: &[f64], noise: f64, stream: &mut Stream) {
    for i in 0..books.segments.len() {
        let (segment, range) = (books.segments[i].clone(), books.words_of(i));
        let share = noise / ((segment.books.len() + 1) as f64).sqrt();
        let deviations = &deviations[segment.coordinates];
        for word in books.words[range].chunks_exact_mut(deviations.len()) {
            for (x, deviation) in word.iter_mut().zip(deviations) {
                *x += (share * deviation * stream.normal()) as f32;
            }
        }
    }
}
