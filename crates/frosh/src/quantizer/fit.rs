//! Fitting a quantiser to a sketch.
//!
//! 1. **Directions.** Those of the sketch, refined with the sample (`hasher/refine.rs`), and turned onto the principal
//!    axes of the sampled rows. Those of the largest variance are kept, until they hold nearly all of it.
//! 2. **Scales.** s_j = (w_j / w_1)^(1/4), with w_j the mean squared difference along direction j between held-out rows and
//!    their near rows. Directions in which neighbours differ more count more.
//! 3. **Segments.** Directions are dealt to segments so that the products of their variances are even.
//! 4. **Codebooks** of the scaled projections (`train.rs`).
//! 5. **Slopes** of the scalar, by regression on sampled rows (`slopes.rs`).
//! 6. **Forecast.** MAP and recall on held-out rows (`hasher/held_out.rs`).

use super::codebooks::{CELLS, Codebooks, WORDS};
use super::coordinates::Sample;
use super::encode::CodedRow;
use super::scalar::{MAX_LEVERAGE, Predictions, ScalarCode, Terms, entries};
use super::slopes::{self, Sampled};
use super::stored_rows::{FittedRows, Piece, StoredRows};
use super::train::{self, Schedule};
use super::{DEFAULT_BEAM, Facts, Quantizer};
use crate::arch::Isa;
use crate::error::{Error, Result};
use crate::hasher::Forecast;
use crate::hasher::held_out::{Figures, HeldOut, rounded};
use crate::linalg;
use crate::pool::Pool;
use crate::random::{Purpose, Stream};
use crate::sketch::Sketch;
use crate::sketch::config::{Config, Method};
use crate::sketch::reservoir::PART_ROWS;
use crate::sketch::rounding::{Precision, Rounding};
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatMut, MatRef, Par};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Bytes that a code can have.
const MIN_BYTES: usize = 4;
const MAX_BYTES: usize = 64;
/// Sampled rows that a fit needs: fewer cannot determine 256 cells.
const MIN_SAMPLE: usize = 1024;
/// Most sampled rows that codebooks are fitted to: 256 for each word. More hardly improve them.
const MAX_FITTED_ROWS: usize = 256 * WORDS;
/// Most memory for the projections and codes of these rows, and for the words and the products between them, in bytes.
const MAX_FIT_MEMORY: usize = 60 << 20;
/// Most sampled rows that choices are measured on, and that codebooks begin with.
const MAX_MEASURED_ROWS: usize = 16_384;
/// Directions that rows are projected on. Encoding takes longer with more.
pub(super) const MIN_DIRECTIONS: usize = 128;
const MAX_DIRECTIONS: usize = 256;
/// Most memory for the products between words, in bytes. It decides how many segments there are: 1 up to 32 bytes, and
/// more beyond.
const MAX_PRODUCTS: usize = 30 << 20;
/// Fewest and most rounds of least squares and encoding, and rows for each round in between: 40 for each word. Short
/// codes have [`SHORT_ROUNDS`] times as many: they gain the most, and take the least time.
const MIN_ROUNDS: usize = 3;
const MAX_ROUNDS: usize = 10;
const ROWS_PER_ROUND: f64 = 40.0 * WORDS as f64;
const SHORT_ROUNDS: usize = 2;
/// The momentum of the words of short codes, which have many rounds, and the width of the beam in the early rounds of
/// short codes and of others.
const MOMENTUM: f32 = 0.75;
const SHORT_BEAM: usize = 2;
const LONG_BEAM: usize = 4;
/// What a fit chose, and what it measured on the sample with it.
///
/// ```
/// use frosh::{Config, Rows, Sketcher};
/// # let mut state = 1u32;
/// # let mut next = move || { state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223); (state >> 8) as f32 / 16_777_216.0 };
/// # let data: Vec<f32> = (0..16 * 2000).map(|i| next() / (1 + i % 16) as f32).collect();
/// let mut sketcher = Sketcher::new(Config::new(16))?;
/// sketcher.push(Rows::new(&data, 16)?)?;
/// let quantizer = sketcher.finish().quantizer(4)?;
/// let choice = quantizer.choice().unwrap();
/// assert!(choice.map > 0.0 && choice.map <= 1.0);
/// println!("recall@{} of about {:.2}", choice.forecast.k, choice.forecast.recall);
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct QuantizerChoice {
    /// The slopes a1 and a2 of the scalar.
    pub slopes: [f64; 2],
    /// Mean average precision, with the nearest 2 % of rows as the relevant ones.
    pub map: f64,
    /// Mean of the expected recall@10 and recall@20 by codes alone.
    pub recall: f64,
    /// What to expect from a search.
    pub forecast: Forecast,
}

/// Whether codes of so many bytes are short: they hardly reach many directions, and are to be fast.
fn is_short(bytes: usize) -> bool {
    bytes < 16
}

/// The largest number of directions for codes of so many bytes.
fn most_directions(bytes: usize) -> usize {
    if is_short(bytes) { MIN_DIRECTIONS } else { MAX_DIRECTIONS }
}

/// The share of the variance that the directions may leave out: much less than what codes of so many bytes leave out
/// themselves.
fn share_outside(bytes: usize) -> f64 {
    0.8 / bytes as f64
}

/// Segments for codes of so many bytes: as few as memory allows.
fn segment_count(bytes: usize) -> usize {
    // A byte for all pairs of words, if there were one segment; divided by the number of segments.
    let products = (WORDS * (bytes - 2)).pow(2) / 2;
    products.div_ceil(MAX_PRODUCTS)
}

/// Sampled rows that codebooks for codes of so many bytes are fitted to, if memory is to suffice for them.
fn fitted_rows(bytes: usize, rounding: Rounding) -> usize {
    let words = WORDS * (bytes - 2);
    // Bytes between words, and single precision between words and cells.
    let products = words * words / 2 / segment_count(bytes) + 4 * words * CELLS;
    // In single precision and as bytes.
    let words = 5 * words * rounding.dim / segment_count(bytes);
    // A row, its scale, and its codes of two rounds.
    let row = 2 * rounding.words() + 4 + 2 * (bytes - 1);
    MAX_FITTED_ROWS.min(MAX_FIT_MEMORY.saturating_sub(products + words) / row)
}

/// How so many rows with k coordinates are stored: in half precision if there is room for all.
fn fitted_rounding(bytes: usize, k: usize, rows: usize) -> Rounding {
    let half = Rounding { dim: k, precision: Precision::Half };
    let fits = fitted_rows(bytes, half) >= rows;
    if fits { half } else { Rounding { dim: k, precision: Precision::Byte } }
}

/// Rejects a number of bytes that is impossible for such a sketch.
fn check_request(method: Method, bytes: usize) -> Result<()> {
    if !(MIN_BYTES..=MAX_BYTES).contains(&bytes) {
        let why = format!("codes of a quantiser have {MIN_BYTES} to {MAX_BYTES}");
        return Err(Error::setting("bytes", bytes, why));
    }
    if method == Method::Lsh {
        return Err(Error::setting("bytes", bytes, "LSH learns no directions for a quantiser"));
    }
    Ok(())
}

impl Config {
    /// Checks, before any row is read, whether a quantiser of `bytes` bytes can be fitted.
    ///
    /// # Errors
    ///
    /// The errors of [`Sketch::quantizer`] that do not depend on the rows.
    pub fn check_quantizer(&self, bytes: usize) -> Result<()> {
        check_request(self.method, bytes)?;
        let rows = self.reservoir_rows;
        let sampled = Rounding::for_sample(rows, self.dim).capacity(rows);
        if sampled < MIN_SAMPLE { Err(too_few(sampled)) } else { Ok(()) }
    }

    /// Sets the rows of the sketch and of the sample to what codes of `bytes` bytes need: [`Config::quantizer_rows`], and
    /// 65,536 sampled rows. A sample is limited to 32 MB, which are 33,000 rows of 960 values.
    pub fn for_quantizer(self, bytes: usize) -> Self {
        self.sketch_rows(Self::quantizer_rows(bytes)).reservoir_rows(MAX_FITTED_ROWS)
    }

    /// The number of sketch rows that codes of `bytes` bytes need. The fit finds up to twice as many directions with the
    /// sample.
    pub fn quantizer_rows(bytes: usize) -> usize {
        (8 * bytes).clamp(MIN_DIRECTIONS, MAX_DIRECTIONS)
    }
}

fn too_few(sampled: usize) -> Error {
    let why = format!("a quantiser needs {MIN_SAMPLE}; fit a hasher (bits) to fewer rows");
    Error::setting("sampled rows", sampled, why)
}

impl Sketch {
    /// Fits a quantiser for codes of `bytes` bytes. Everything that is not fixed by theory is chosen by measuring it on
    /// sampled rows ([`Quantizer::choice`]).
    ///
    /// # Errors
    ///
    /// [`Error::Empty`] if the sketch has no rows. [`Error::Setting`] if a code cannot have so many bytes, for LSH, or if
    /// fewer than 1,024 rows were sampled.
    ///
    /// ```
    /// use frosh::{Config, Rows, Sketcher};
    /// # let data: Vec<f32> = (0..16 * 1500).map(|i| ((i * i) % 97) as f32).collect();
    /// let mut sketcher = Sketcher::new(Config::new(16))?;
    /// sketcher.push(Rows::new(&data, 16)?)?;
    /// let sketch = sketcher.finish();
    /// let [short, long] = [sketch.quantizer(4)?, sketch.quantizer(8)?]; // several models from one sketch
    /// assert_eq!((short.bytes(), long.bytes()), (4, 8));
    /// assert!(sketch.quantizer(1).is_err());
    /// # Ok::<(), frosh::Error>(())
    /// ```
    pub fn quantizer(&self, bytes: usize) -> Result<Quantizer> {
        check_request(self.method, bytes)?;
        if self.rows == 0 {
            return Err(Error::Empty);
        }
        if self.reservoir.len() < MIN_SAMPLE {
            return Err(too_few(self.reservoir.len()));
        }
        let pool = &Pool::current();
        let count = most_directions(bytes).min(self.dim);
        let old = self.principal(pool, count.min(self.sketch_rows()));
        let (v, _) = self.refined_to(pool, old.vectors.as_ref(), &old.values, count);
        drop(old);
        let Some(mut held) = HeldOut::new(self, pool, v.as_ref(), MAX_MEASURED_ROWS) else {
            return Err(too_few(self.reservoir.len()));
        };
        let mut sample = Sample::new(&mut held, segment_count(bytes), share_outside(bytes));
        let k = sample.scales.len();
        let stream = &mut Stream::new(self.seed, Purpose::Codebooks, 0, 0);
        // A byte is for the cell, and one for the scalar.
        let books = bytes - 2;
        let segments = segment_count(bytes).min(k).min(books);
        let known = self.reservoir.len().min(MAX_FITTED_ROWS);
        let rounding = fitted_rounding(bytes, k, known);
        let mut rows = StoredRows::new(rounding, std::mem::take(&mut sample.rows));
        let (directions, scales) = sample.directions(self.dim, v.as_ref());
        drop(v);
        let mut books = train::begin(pool, &rows, k, books, segments, stream);
        let (measured, first_rows) = (rows.count(), held.base + held.queries);
        let more = fitted_rows(bytes, rounding).saturating_sub(measured);
        self.project_more(pool, first_rows..first_rows + more, &directions, &mut rows);
        let origin = Origin { fitted: rows.count(), rows: self.rows };
        train::improve(pool, &mut books, &rows, origin.schedule(bytes));
        // The measure needs memory of its own, and so do the tables of the encoding.
        rows.truncate(measured);
        let codes = train::encode(pool, &books, &rows, DEFAULT_BEAM);
        sample.rows = rows.floats(measured, k);
        drop(rows);
        let depth = held.depth(self.rows);
        let rows = self.reservoir.part(&self.mean, 0..first_rows);
        let sampled = Sampled { rows, dim: self.dim, held_out: held.queries };
        let gains = gains(&codes, &books, origin);
        let base = Base { books: &books, codes: &codes, gains: &gains, sample: &sample };
        let (scalar, figures) = base.fit_scalar(pool, &held, &sampled, depth);
        let facts =
            Facts { dim: self.dim, bytes, metric: self.metric, seed: self.seed, rows: self.rows };
        let slopes = scalar.slopes.map(|s| rounded(s.into()));
        let mut quantizer =
            Quantizer::assemble(facts, self.mean.clone(), directions, scales, books, scalar);
        quantizer.choice = Some(Box::new(QuantizerChoice {
            slopes,
            map: rounded(figures.map),
            recall: rounded(top_recall(&figures, depth)),
            forecast: figures.forecast(depth, self.rows),
        }));
        Ok(quantizer)
    }

    /// Appends the scaled projections of these sampled rows, as far as there are so many.
    fn project_more(
        &self,
        pool: &Pool,
        range: Range<usize>,
        directions: &[f32],
        rows: &mut StoredRows,
    ) {
        let k = directions.len() / self.dim;
        let sample = self.reservoir.part(&self.mean, range);
        let by = MatRef::from_row_major_slice(directions, k, self.dim).transpose();
        let known = rows.count();
        rows.grow(sample.len());
        let jobs = rows.pieces(known, PART_ROWS).enumerate().collect();
        pool.each(jobs, |(part, mut to): (usize, Piece<'_>)| {
            let (from, count) = (part * PART_ROWS, to.count());
            let (mut rows, mut projected) = (vec![0f32; count * self.dim], vec![0f32; count * k]);
            sample.read(from..from + count, 0..self.dim, &mut rows);
            let rows = MatRef::from_row_major_slice(&rows, count, self.dim);
            let projections = MatMut::from_row_major_slice_mut(&mut projected, count, k);
            matmul(projections, Accum::Replace, rows, by, 1.0, Par::Seq);
            to.write(&mut projected);
        });
    }
}

/// The mean of the expected recall@10 and recall@20.
fn top_recall(figures: &Figures, depth: f64) -> f64 {
    let depth = depth.max(1.0);
    [1.0, 2.0].map(|times| figures.recall(times * depth, 1).0).iter().sum::<f64>() / 2.0
}

/// What codebooks were fitted to.
#[derive(Clone, Copy)]
struct Origin {
    /// Rows that they were fitted to, those of the base among them.
    fitted: usize,
    /// Rows of the stream.
    rows: u64,
}

impl Origin {
    /// What pays. With few rows for each word, more rounds fit the words to single rows. This harms the rows that were not
    /// fitted to, so that it counts less if these are few.
    fn schedule(self, bytes: usize) -> Schedule {
        let (times, beam, momentum) = if is_short(bytes) {
            (SHORT_ROUNDS, SHORT_BEAM, MOMENTUM)
        } else {
            (1, LONG_BEAM, 0.0)
        };
        let unseen = 1.0 - self.fitted as f64 / self.rows as f64;
        let rounds = times as f64 * self.fitted as f64 / unseen.max(f64::EPSILON) / ROWS_PER_ROUND;
        let rounds = (rounds as usize).clamp(times * MIN_ROUNDS, times * MAX_ROUNDS);
        Schedule { rounds, beam, momentum }
    }
}

/// By how much each row of the base would be decoded worse, in each segment, if the codebooks had not been fitted to it.
///
/// A row with the leverage h in a least-squares fit has a residual that is 1 / (1 - h) times as large if it is left out
/// of the fit. With codebooks that are independent of each other, h is the sum of 1 / n over its cell and its words in
/// the segment, n of the fitted rows having the word. Of all rows of the stream, a share was fitted to. The order of
/// the sample is random, so the first rows of the base stand for it.
fn gains(codes: &[u8], books: &Codebooks, origin: Origin) -> Vec<f32> {
    let length = books.books + 1;
    let mut counts = vec![0u32; books.entries()];
    codes.chunks_exact(length).flat_map(entries).for_each(|entry| counts[entry] += 1);
    let n = codes.len() / length;
    let seen = (n as f64 * origin.fitted as f64 / origin.rows as f64) as usize;
    // The base stands for all rows that were fitted to.
    let share = n as f64 / origin.fitted as f64;
    let mut gains = Vec::with_capacity(n * books.segments.len());
    for (i, code) in codes.chunks_exact(length).enumerate() {
        let shares: Vec<f64> =
            entries(code).map(|entry| share / f64::from(counts[entry])).collect();
        for segment in &books.segments {
            let words = &shares[segment.books.start + 1..=segment.books.end];
            let leverage = (shares[0] + words.iter().sum::<f64>()).min(MAX_LEVERAGE);
            gains.push(if i < seen { 0.0 } else { (leverage / (1.0 - leverage)) as f32 });
        }
    }
    gains
}

/// The base with its codes.
struct Base<'a> {
    books: &'a Codebooks,
    codes: &'a [u8],
    gains: &'a [f32],
    sample: &'a Sample,
}

impl Base<'_> {
    /// Chooses the scalar, and measures it.
    fn fit_scalar(
        &self,
        pool: &Pool,
        held: &HeldOut,
        sampled: &Sampled<'_>,
        depth: f64,
    ) -> (ScalarCode, Figures) {
        let Self { books, codes, gains, sample } = self;
        let (k, length) = (books.k, books.books + 1);
        let inverses: Vec<f32> = sample.scales.iter().map(|s| 1.0 / (s * s)).collect();
        let mut decoded = vec![0f32; k];
        let each = codes.chunks_exact(length).zip(sample.rows.chunks_exact(k));
        let all: Vec<Terms> = each
            .zip(held.squares.iter().zip(gains.chunks_exact(books.segments.len())))
            .map(|((code, z), (norm, gains))| {
                let norm = *norm as f32;
                let row = CodedRow { books, code, z, norm, inverses: &inverses, gains };
                row.terms(Isa::detect(), &mut decoded)
            })
            .collect();
        // Before the products of all rows and queries are made, which are most of the memory.
        let predictions = Predictions::fit(codes, books.books, &all);
        let queries = |range: Range<usize>| sample.projections(range);
        let slopes = slopes::fit(pool, &all, sampled, depth, queries, |q| self.products(pool, q));
        let products = self.products(pool, sample.queries.as_ref());
        let measure = |taus: &[f32]| {
            held.figures(pool, |query, scores| {
                let products = products.col_as_slice(query);
                scores.extend(taus.iter().zip(products).map(|(tau, p)| tau - 2.0 * p));
            })
        };
        let taus: Vec<f32> = all.iter().map(|t| t.tau(slopes)).collect();
        let scalar = ScalarCode::fit(slopes, &predictions, codes, books.books, &taus);
        let coded: Vec<f32> = codes
            .chunks_exact(length)
            .zip(&taus)
            .map(|(code, tau)| {
                let level = scalar.encode(code, *tau);
                scalar.predict(code) + scalar.levels[usize::from(level)]
            })
            .collect();
        (scalar, measure(&coded))
    }

    /// v.c for all rows of the base (rows) and these projections of queries (columns).
    fn products(&self, pool: &Pool, queries: MatRef<'_, f32>) -> Mat<f32> {
        const PIECE: usize = 512;
        let Self { books, codes, gains, sample } = self;
        debug_assert_eq!(books.cell_count, CELLS);
        let (k, length) = (books.k, books.books + 1);
        let mut out = Mat::<f32>::zeros(codes.len() / length, queries.ncols());
        let jobs =
            linalg::row_pieces(out.as_mut(), PIECE).into_iter().zip(codes.chunks(PIECE * length));
        pool.each(jobs.collect(), |((first, to), codes)| {
            let mut decoded = vec![0f32; to.nrows() * k];
            let gains = gains.chunks_exact(books.segments.len());
            let rows = sample.rows.chunks_exact(k).zip(gains).skip(first);
            for ((out, code), (row, gains)) in
                decoded.chunks_exact_mut(k).zip(codes.chunks_exact(length)).zip(rows)
            {
                books.decode_unseen(code, row, gains, out);
                out.iter_mut().zip(&sample.scales).for_each(|(x, s)| *x /= s);
            }
            let rows = MatRef::from_row_major_slice(&decoded, to.nrows(), k);
            matmul(to, Accum::Replace, rows, queries, 1.0, Par::Seq);
        });
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantizer::stored_rows::FloatRows;
    use crate::random::Purpose;

    /// By the definition: what a row is decoded to as if the codebooks had not been fitted to it, without the scales.
    #[test]
    fn products_are_those_of_decoded_rows_that_are_not_scaled() {
        let (k, n, count) = (6, 700, 3);
        let mut stream = Stream::new(4, Purpose::Sample, 8, 0);
        let mut normal =
            |count: usize| -> Vec<f32> { (0..count).map(|_| stream.normal() as f32).collect() };
        // Two segments of three coordinates, with a codebook each.
        let books = Codebooks::of(k, 2, 2, normal(CELLS * k), normal(2 * WORDS * 3));
        let (rows, queries) = (normal(n * k), normal(count * k));
        let gains: Vec<f32> = normal(2 * n).iter().map(|x| x.abs()).collect();
        let codes: Vec<u8> = (0..3 * n).map(|i| (i * i % 251) as u8).collect();
        let scales: Vec<f32> = (0..k).map(|j| 1.0 / (1 + j) as f32).collect();
        let queries = Mat::from_fn(k, count, |j, q| queries[q * k + j]);
        let sample = Sample::of(rows, queries, scales);
        let base = Base { books: &books, codes: &codes, gains: &gains, sample: &sample };
        let got = base.products(&Pool::new(2).unwrap(), sample.queries.as_ref());
        let mut decoded = vec![0f32; k];
        for row in 0..n {
            books.decode(&codes[3 * row..3 * row + 3], &mut decoded);
            for query in 0..count {
                let of = |j: usize| -> f64 {
                    let (x, y) = (f64::from(sample.rows[row * k + j]), f64::from(decoded[j]));
                    let unseen = y - f64::from(gains[2 * row + j / 3]) * (x - y);
                    unseen * (1 + j) as f64 * f64::from(sample.queries[(j, query)])
                };
                // Sums of six products in single precision: the error is far below that of a missing scale.
                let (want, size) =
                    (0..k).map(of).fold((0.0, 0.0), |(s, a), x| (s + x, a + x.abs()));
                let error = (f64::from(got[(row, query)]) - want).abs();
                assert!(error < 1e-5 * size, "row {row}, query {query}: {error} of {size}");
            }
        }
    }

    /// The error of k-means on rows that it was not fitted to, as [`gains`] has it and as it is. With one codebook the
    /// leverage is exact, so that only the choice of the nearest centre is not accounted for.
    #[test]
    fn gains_are_near_the_error_of_rows_that_were_not_fitted_to() {
        let (k, n) = (24, 4000);
        let mut stream = Stream::new(3, Purpose::Sample, 6, 0);
        let mut normal = || -> Vec<f32> { (0..n * k).map(|_| stream.normal() as f32).collect() };
        let (seen, other) = (normal(), normal());
        let stream = &mut Stream::new(1, Purpose::Codebooks, 0, 0);
        let mut books = train::begin(&Pool::ONE, &FloatRows { k, values: &seen }, k, 2, 1, stream);
        let schedule = Schedule { rounds: 2, beam: 2, momentum: 0.0 };
        train::improve(&Pool::ONE, &mut books, &FloatRows { k, values: &seen }, schedule);
        let of_stream = |rows| Origin { fitted: n, rows };
        let error = |rows: &[f32], gains: &dyn Fn(&[u8]) -> Vec<f32>| -> f64 {
            let codes = train::encode(&Pool::ONE, &books, &FloatRows { k, values: rows }, 8);
            let (gains, mut decoded) = (gains(&codes), vec![0f32; k]);
            let each = rows.chunks_exact(k).zip(codes.chunks_exact(3)).zip(gains);
            let of = |((row, code), gain): ((&[f32], &[u8]), f32)| {
                books.decode_unseen(code, row, &[gain], &mut decoded);
                row.iter().zip(&decoded).map(|(x, y)| f64::from(x - y).powi(2)).sum::<f64>()
            };
            each.map(of).sum::<f64>() / (n * k) as f64
        };
        let none = |_: &[u8]| vec![0.0; n];
        let fitted = error(&seen, &none);
        let unseen = error(&other, &none);
        let estimated = error(&seen, &|codes| gains(codes, &books, of_stream(u64::MAX)));
        assert!(fitted < 0.9 * unseen, "{fitted} {unseen}");
        assert!(
            (estimated - unseen).abs() < 0.4 * (unseen - fitted),
            "{fitted} {estimated} {unseen}"
        );
        // All rows of the stream were sampled: they are decoded as they are.
        assert_eq!(error(&seen, &|codes| gains(codes, &books, of_stream(n as u64))), fitted);
    }
}
