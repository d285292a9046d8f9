//! All Hamming distances of some queries, block by block of the base.
//!
//! A block of base codes is turned so that the first words of all its rows lie together, then the second
//! words, and so on. Distances to one query are then a loop over neighbouring words that compilers
//! vectorise. Several queries meet a block while it is in cache.

use crate::codes::Codes;
use crate::error::Result;
use crate::pool::Pool;

/// Queries that meet each block together.
const GROUP: usize = 16;
/// Base rows of a block.
const BLOCK: usize = 2048;

/// Shows the distances from each query to all base rows to a state of that query: `visit` gets the number
/// of the first row of a block and the distances of its rows. Returns what `end` makes of the states, in
/// the order of the queries.
pub(super) fn scan<S, R: Send>(
    queries: &Codes,
    base: &Codes,
    pool: &Pool,
    start: impl Fn(usize) -> Result<S> + Sync,
    visit: impl Fn(&mut S, u64, &[u32]) + Sync,
    end: impl Fn(S) -> R + Sync,
) -> Result<Vec<R>> {
    let mut results: Vec<Option<Result<R>>> = (0..queries.len()).map(|_| None).collect();
    let work = |(group, results): (usize, &mut [Option<Result<R>>])| {
        let first = group * GROUP;
        let mut states: Vec<Result<S>> = (first..first + results.len()).map(&start).collect();
        let words: Vec<Vec<u64>> =
            (first..first + results.len()).map(|q| turned(queries, q..q + 1)).collect();
        let mut distances = vec![0u32; BLOCK];
        for from in (0..base.len()).step_by(BLOCK) {
            let rows = (base.len() - from).min(BLOCK);
            let block = turned(base, from..from + rows);
            for (state, query) in states.iter_mut().zip(&words) {
                if let Ok(state) = state {
                    let distances = &mut distances[..rows];
                    measure(query, &block, distances);
                    visit(state, from as u64, distances);
                }
            }
        }
        for (result, state) in results.iter_mut().zip(states) {
            *result = Some(state.map(&end));
        }
    };
    pool.each(results.chunks_mut(GROUP).enumerate().collect(), work);
    results.into_iter().flatten().collect()
}

/// Some codes as words, the same word of all rows side by side.
fn turned(codes: &Codes, rows: std::ops::Range<usize>) -> Vec<u64> {
    let height = rows.len();
    let mut turned = vec![0u64; codes.bytes_per_row().div_ceil(8) * height];
    for (i, row) in rows.enumerate() {
        for (w, bytes) in codes.row(row).chunks(8).enumerate() {
            let mut word = [0u8; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            turned[w * height + i] = u64::from_le_bytes(word);
        }
    }
    turned
}

/// Writes the bits in which each row of a block differs from the query.
fn measure(query: &[u64], block: &[u64], distances: &mut [u32]) {
    distances.fill(0);
    for (query, words) in query.iter().zip(block.chunks_exact(distances.len())) {
        for (distance, word) in distances.iter_mut().zip(words) {
            *distance += (query ^ word).count_ones();
        }
    }
}
