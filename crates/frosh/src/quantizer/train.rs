//! Fits codebooks to sampled rows.
//!
//! 1. Cells: k-means with 256 centres.
//! 2. Words: in each segment, codebook after codebook, 16-means of what the earlier ones left over.
//! 3. Rounds: all cells and words of a segment are the solution of a least-squares problem with the codes of the rows
//!    fixed; then the rows are encoded again. The words are disturbed by noise that falls to zero, which lets codes leave
//!    poor local optima (as in LSQ++).
//!
//! All work is divided by rows or coordinates in pieces of fixed size, so that the result does not depend on the number of
//! threads.

use super::beam::Beam;
use super::codebooks::{CELLS, Codebooks, Segment, WORDS};
use crate::arch::Isa;
use crate::arch::sixteen::{F32x16, Work16, square_distance};
use crate::pool::Pool;
use crate::random::Stream;
use faer::linalg::matmul::matmul;
use faer::linalg::solvers::Solve;
use faer::{Accum, Mat, MatMut, MatRef, Par, Side};

/// Rows that one task encodes at a time.
const BLOCK: usize = 128;
/// Rounds of k-means for cells and for words.
const CELL_ROUNDS: usize = 10;
const WORD_ROUNDS: usize = 8;
/// Rows that the first centres are chosen from.
const SEED_ROWS: usize = 4096;
/// Width of the beam while codebooks are built one by one, and in the rounds.
const FIRST_BEAM: usize = 4;
const ROUND_BEAM: usize = 6;
/// Weight of the previous codebooks in the least squares, in rows: words that few rows use move little.
const RIDGE: f64 = 2.0;
/// Noise of the first rounds, relative to the deviation that a codebook has to describe.
const NOISE: f64 = 0.15;

/// Fits codebooks to rows of k coordinates.
pub(super) fn fit(
    pool: &Pool,
    rows: &[f32],
    k: usize,
    books: usize,
    segments: usize,
    rounds: usize,
    stream: &mut Stream,
) -> Codebooks {
    let mut fitted = Codebooks::new(k, books, segments, CELLS);
    let (cells, nearest) = k_means(pool, rows, k, CELLS, CELL_ROUNDS, stream);
    let mut rest = rows.to_vec();
    for (row, cell) in rest.chunks_exact_mut(k).zip(nearest) {
        let cell = &cells[cell as usize * k..][..k];
        row.iter_mut().zip(cell).for_each(|(x, c)| *x -= c);
    }
    fitted.cells = cells;
    for i in 0..segments {
        let segment = fitted.segments[i].clone();
        let own: Vec<f32> = rest
            .chunks_exact(k)
            .flat_map(|row| &row[segment.coordinates.clone()])
            .copied()
            .collect();
        let words = first_words(pool, &own, &segment, stream);
        let range = fitted.words_of(i);
        fitted.words[range].copy_from_slice(&words);
    }
    drop(rest);
    improve(pool, &mut fitted, rows, NOISE, rounds, stream);
    fitted
}

/// Adds a codebook to fitted ones, and fits all of them again for a few rounds.
pub(super) fn extend(
    pool: &Pool,
    fitted: &Codebooks,
    rows: &[f32],
    rounds: usize,
    stream: &mut Stream,
) -> Codebooks {
    let (mut larger, segment) = fitted.extended();
    let codes = encode(pool, fitted, rows, ROUND_BEAM, 1);
    let coordinates = larger.segments[segment].coordinates.clone();
    let mut decoded = vec![0f32; fitted.k];
    let mut rest = Vec::with_capacity(rows.len() / fitted.k * coordinates.len());
    for (row, code) in rows.chunks_exact(fitted.k).zip(codes.chunks_exact(fitted.books + 1)) {
        fitted.decode(code, &mut decoded);
        let own = row.iter().zip(&decoded).take(coordinates.end).skip(coordinates.start);
        rest.extend(own.map(|(x, y)| x - y));
    }
    let (words, _) = k_means(pool, &rest, coordinates.len(), WORDS, WORD_ROUNDS, stream);
    let range = larger.words_of(segment);
    larger.words[range.end - words.len()..range.end].copy_from_slice(&words);
    // The other codebooks are near their optimum: little noise.
    improve(pool, &mut larger, rows, NOISE / 2.0, rounds, stream);
    larger
}

/// Alternates between least squares and encoding.
fn improve(
    pool: &Pool,
    fitted: &mut Codebooks,
    rows: &[f32],
    most_noise: f64,
    rounds: usize,
    stream: &mut Stream,
) {
    let mut codes = encode(pool, fitted, rows, ROUND_BEAM, 1);
    let deviations = deviations(rows, fitted.k);
    for round in 0..rounds {
        solve(pool, fitted, rows, &codes);
        let noise = most_noise * (1.0 - (round + 1) as f64 / rounds as f64).sqrt();
        if noise > 0.0 {
            disturb(fitted, &deviations, noise, stream);
        }
        codes = encode(pool, fitted, rows, ROUND_BEAM, 1);
    }
    solve(pool, fitted, rows, &codes);
}

/// Encodes rows of k coordinates: a cell and a nibble for each codebook, a byte each.
pub(super) fn encode(
    pool: &Pool,
    books: &Codebooks,
    rows: &[f32],
    beam: usize,
    sweeps: usize,
) -> Vec<u8> {
    let (tables, length, isa) = (books.tables(), books.books + 1, Isa::detect());
    let mut codes = vec![0u8; rows.len() / books.k * length];
    let per_task = BLOCK * 4;
    let jobs = codes.chunks_mut(per_task * length).zip(rows.chunks(per_task * books.k)).collect();
    pool.each(jobs, |(codes, rows): (&mut [u8], &[f32])| {
        let mut beam = Beam::new(books, beam);
        let mut products = vec![0f32; BLOCK * books.entries()];
        let blocks = codes.chunks_mut(BLOCK * length).zip(rows.chunks(BLOCK * books.k));
        for (codes, rows) in blocks {
            tables.products.of(isa, rows, &mut products);
            beam.encode(isa, books, &tables, &products, sweeps, codes);
        }
    });
    codes
}

/// The words of a segment, codebook after codebook. `rows` hold the coordinates of the segment only.
fn first_words(pool: &Pool, rows: &[f32], segment: &Segment, stream: &mut Stream) -> Vec<f32> {
    let width = segment.coordinates.len();
    let mut rest = rows.to_vec();
    let mut words = Vec::new();
    for book in 0..segment.books.len() {
        let (more, _) = k_means(pool, &rest, width, WORDS, WORD_ROUNDS, stream);
        words.extend(more);
        if book + 1 == segment.books.len() {
            break;
        }
        let mut so_far = Codebooks::new(width, book + 1, 1, 1);
        so_far.words.clone_from(&words);
        let codes = encode(pool, &so_far, rows, FIRST_BEAM, 0);
        rest.copy_from_slice(rows);
        let jobs = rest.chunks_mut(BLOCK * width).zip(codes.chunks(BLOCK * (book + 2))).collect();
        pool.each(jobs, |(rest, codes): (&mut [f32], &[u8])| {
            let mut decoded = vec![0f32; width];
            for (row, code) in rest.chunks_exact_mut(width).zip(codes.chunks_exact(book + 2)) {
                so_far.decode(code, &mut decoded);
                row.iter_mut().zip(&decoded).for_each(|(x, y)| *x -= y);
            }
        });
    }
    words
}

/// Centres of k-means, and the nearest centre of each row.
fn k_means(
    pool: &Pool,
    rows: &[f32],
    width: usize,
    centres: usize,
    rounds: usize,
    stream: &mut Stream,
) -> (Vec<f32>, Vec<u32>) {
    let mut found = first_centres(rows, width, centres, stream);
    let mut nearest = vec![0u32; rows.len() / width];
    for round in 0..=rounds {
        assign(pool, rows, width, &found, &mut nearest);
        if round == rounds {
            break;
        }
        let (mut sums, mut counts) = (vec![0f64; centres * width], vec![0usize; centres]);
        for (row, to) in rows.chunks_exact(width).zip(&nearest) {
            counts[*to as usize] += 1;
            let sum = &mut sums[*to as usize * width..][..width];
            sum.iter_mut().zip(row).for_each(|(s, x)| *s += f64::from(*x));
        }
        for ((centre, sum), count) in
            found.chunks_exact_mut(width).zip(sums.chunks_exact(width)).zip(counts)
        {
            if count > 0 {
                centre.iter_mut().zip(sum).for_each(|(c, s)| *c = (s / count as f64) as f32);
            } else {
                // A centre without rows starts again at a random row.
                let row = stream.below(nearest.len() as u64) as usize;
                centre.copy_from_slice(&rows[row * width..][..width]);
            }
        }
    }
    (found, nearest)
}

/// The nearest centre of each row.
fn assign(pool: &Pool, rows: &[f32], width: usize, centres: &[f32], nearest: &mut [u32]) {
    let count = centres.len() / width;
    let squares: Vec<f32> =
        centres.chunks_exact(width).map(|c| c.iter().map(|x| x * x).sum()).collect();
    let by = MatRef::from_row_major_slice(centres, count, width);
    let jobs = nearest.chunks_mut(4 * BLOCK).zip(rows.chunks(4 * BLOCK * width)).collect();
    pool.each(jobs, |(nearest, rows): (&mut [u32], &[f32])| {
        let mut products = vec![0f32; nearest.len() * count];
        let n = nearest.len();
        let to = MatMut::from_row_major_slice_mut(&mut products, n, count);
        let rows = MatRef::from_row_major_slice(rows, n, width);
        matmul(to, Accum::Replace, rows, by.transpose(), 1.0, Par::Seq);
        for (nearest, products) in nearest.iter_mut().zip(products.chunks_exact(count)) {
            let mut best = (f32::INFINITY, 0);
            for (i, (product, square)) in (0..).zip(products.iter().zip(&squares)) {
                let distance = square - 2.0 * product;
                if distance < best.0 {
                    best = (distance, i);
                }
            }
            *nearest = best.1;
        }
    });
}

/// First centres by k-means++: each is a row, drawn with a probability in proportion to its squared distance from the
/// centres so far.
fn first_centres(rows: &[f32], width: usize, centres: usize, stream: &mut Stream) -> Vec<f32> {
    let n = (rows.len() / width).min(SEED_ROWS);
    let row = |i: usize| &rows[i * width..][..width];
    let mut found = row(stream.below(n as u64) as usize).to_vec();
    let mut distances = vec![f32::INFINITY; n];
    while found.len() < centres * width {
        let last = found[found.len() - width..].to_vec();
        Isa::detect().sixteens(Nearer { rows, centre: &last, distances: &mut distances });
        let total: f64 = distances.iter().map(|d| f64::from(*d)).sum();
        let mut left = stream.uniform() * total;
        let chosen = distances.iter().position(|d| {
            left -= f64::from(*d);
            left < 0.0
        });
        // Equal rows have no distance left: any of them will do.
        let chosen = chosen.unwrap_or_else(|| stream.below(n as u64) as usize);
        found.extend_from_slice(row(chosen));
    }
    found
}

/// Lowers the squared distances of rows to the nearest centre by one more centre.
struct Nearer<'a> {
    rows: &'a [f32],
    centre: &'a [f32],
    distances: &'a mut [f32],
}

impl Work16 for Nearer<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: F32x16>(self, s: S) {
        let rows = self.rows.chunks_exact(self.centre.len());
        for (row, distance) in rows.zip(self.distances) {
            *distance = distance.min(square_distance(s, row, self.centre));
        }
    }
}

/// The standard deviation of each coordinate.
fn deviations(rows: &[f32], k: usize) -> Vec<f64> {
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

/// Sets the cells and words of each segment to the least-squares solution for these codes:
/// (O'O + ridge I) C = O'Z + ridge C_old, with O the rows' codes as zeros and ones.
fn solve(pool: &Pool, books: &mut Codebooks, rows: &[f32], codes: &[u8]) {
    let (k, length) = (books.k, books.books + 1);
    for i in 0..books.segments.len() {
        let (segment, range) = (books.segments[i].clone(), books.words_of(i));
        let (own, width) = (segment.books.len(), segment.coordinates.len());
        let count = CELLS + WORDS * own;
        // The columns of O that a row has a one in.
        let columns: Vec<u32> = codes
            .chunks_exact(length)
            .flat_map(|code| {
                let words = code[segment.books.start + 1..=segment.books.end].iter().enumerate();
                let words = words.map(|(m, b)| (CELLS + WORDS * m) as u32 + u32::from(*b));
                std::iter::once(u32::from(code[0])).chain(words)
            })
            .collect();
        let mut gram = Mat::<f64>::zeros(count, count);
        for columns in columns.chunks_exact(own + 1) {
            for (a, column) in columns.iter().enumerate() {
                for row in &columns[a..] {
                    gram[(*row as usize, *column as usize)] += 1.0;
                }
            }
        }
        for j in 0..count {
            gram[(j, j)] += RIDGE;
        }
        let mut right = Mat::<f64>::zeros(count, width);
        let pieces: Vec<(usize, MatMut<'_, f64>)> = column_pieces(right.as_mut(), 16);
        let old_words = &books.words[range.clone()];
        let cells = &books.cells;
        pool.each(pieces, |(from, mut to)| {
            let first = segment.coordinates.start + from;
            let width_here = to.ncols();
            // Rows of 16 sums, so that a row of the sample is read once.
            let mut sums = vec![0f64; count * width_here];
            for (a, cell) in cells.chunks_exact(k).enumerate() {
                let cell = &cell[first..first + width_here];
                sums[a * width_here..][..width_here]
                    .iter_mut()
                    .zip(cell)
                    .for_each(|(s, x)| *s = RIDGE * f64::from(*x));
            }
            for (j, word) in old_words.chunks_exact(width).enumerate() {
                let word = &word[from..from + width_here];
                sums[(CELLS + j) * width_here..][..width_here]
                    .iter_mut()
                    .zip(word)
                    .for_each(|(s, x)| *s = RIDGE * f64::from(*x));
            }
            for (row, columns) in rows.chunks_exact(k).zip(columns.chunks_exact(own + 1)) {
                let row = &row[first..first + width_here];
                for column in columns {
                    let sum = &mut sums[*column as usize * width_here..][..width_here];
                    sum.iter_mut().zip(row).for_each(|(s, x)| *s += f64::from(*x));
                }
            }
            to.copy_from(MatRef::from_row_major_slice(&sums, count, width_here));
        });
        // Positive definite by the ridge, so that the factorisation cannot fail but by overflow.
        let Ok(factor) = gram.llt(Side::Lower) else { return };
        factor.solve_in_place(right.as_mut());
        for (a, cell) in books.cells.chunks_exact_mut(k).enumerate() {
            for (j, x) in cell[segment.coordinates.clone()].iter_mut().enumerate() {
                *x = right[(a, j)] as f32;
            }
        }
        for (w, word) in books.words[range].chunks_exact_mut(width).enumerate() {
            for (j, x) in word.iter_mut().enumerate() {
                *x = right[(CELLS + w, j)] as f32;
            }
        }
    }
}

/// Splits a matrix into pieces of `size` columns, each with the number of its first column.
fn column_pieces(to: MatMut<'_, f64>, size: usize) -> Vec<(usize, MatMut<'_, f64>)> {
    let (n, mut pieces, mut rest) = (to.ncols(), Vec::new(), to);
    for from in (0..n).step_by(size) {
        let (piece, after) = rest.split_at_col_mut(size.min(n - from));
        pieces.push((from, piece));
        rest = after;
    }
    pieces
}
