//! Computes all Hamming distances between queries and base, one block of base rows at a time.
//!
//! A group of queries is compared with a block while the block is in cache. The kernels are those of the search.

use crate::arch::Isa;
use crate::arch::hamming::distances as measure;
use crate::error::Result;
use crate::pool::Pool;
use crate::search::codes::Codes;

/// Number of queries in a group, which one task compares with every block.
const GROUP: usize = 16;
/// Number of base rows in a block.
const BLOCK: usize = 2048;

/// Computes the distances from each query to all base rows. `start` makes the state of a query. `visit` is called for
/// each block with the state, the number of the block's first row, and the distances of its rows. Returns the results
/// of `end` on the states, in the order of the queries.
pub(super) fn scan<S, R: Send>(
    queries: &Codes,
    base: &Codes,
    pool: &Pool,
    start: impl Fn(usize) -> Result<S> + Sync,
    visit: impl Fn(&mut S, u64, &[u32]) + Sync,
    end: impl Fn(S) -> R + Sync,
) -> Result<Vec<R>> {
    let mut results: Vec<Option<Result<R>>> = (0..queries.len()).map(|_| None).collect();
    let isa = Isa::detect();
    let work = |(group, results): (usize, &mut [Option<Result<R>>])| {
        let first = group * GROUP;
        let mut states: Vec<Result<S>> = (first..first + results.len()).map(&start).collect();
        let mut distances = vec![0u32; BLOCK];
        for from in (0..base.len()).step_by(BLOCK) {
            let rows = (base.len() - from).min(BLOCK);
            let block = base.table().part(from, from + rows);
            for (state, q) in states.iter_mut().zip(first..) {
                if let Ok(state) = state {
                    let distances = &mut distances[..rows];
                    measure(isa, queries.row(q), block, distances);
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
