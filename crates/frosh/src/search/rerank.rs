//! Re-ranking: exact distances of candidates, from their vectors.
//!
//! A search by codes finds more candidates than the caller needs. Re-ranking sorts them by their exact distances.
//! Distances are computed as in [`ExactSearch`](crate::ExactSearch): squared differences are summed in double precision;
//! for cosine, the rows are first scaled to length 1. Re-ranking all rows gives the same hits as an exact search.
//!
//! **Cost.** d multiplications for each candidate, and one read of each distinct candidate's vector. Memory: 8 d bytes a
//! query and 28 bytes a candidate.

use super::options::{Hit, keep_nearest};
use crate::error::{Error, Result};
use crate::evaluation::square_distance;
use crate::pool::Pool;
use crate::rows::{self, Element, Metric, Rows};
use std::sync::Mutex;

/// Candidates per task of the thread pool.
const CANDIDATES_PER_TASK: usize = 256;

/// Sorts candidates by their exact distances.
///
/// The caller pushes the vector of each candidate once, in any order. A vector is compared with every query that has it as
/// a candidate.
///
/// **Cost.** d multiplications for each candidate; 8 d bytes a query and 28 bytes a candidate.
///
/// ```
/// use frosh::{Hit, Metric, Rerank, Rows};
/// let (vectors, query) = ([[0.0f32, 3.0], [1.0, 0.0], [9.0, 9.0]], [0.0f32, 0.0]);
/// let candidates = vec![vec![Hit { id: 0, distance: 5.0 }, Hit { id: 1, distance: 6.0 }]];
/// let mut rerank = Rerank::new(Rows::new(&query, 2)?, Metric::L2, &candidates)?;
/// for id in rerank.ids() {
///     rerank.push(id, &vectors[id as usize])?;
/// }
/// assert_eq!(rerank.finish(1), [[Hit { id: 1, distance: 1.0 }]]);
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Debug)]
pub struct Rerank {
    metric: Metric,
    dim: usize,
    /// Queries in double precision, for cosine scaled to length 1.
    queries: Vec<f64>,
    /// Pairs of a candidate's id and its query, ascending.
    pairs: Vec<(u64, u32)>,
    found: Vec<Vec<Hit>>,
    /// Buffer: the last pushed vector in double precision.
    row: Vec<f64>,
}

impl Rerank {
    /// Takes the queries and one list of candidates for each. Only the ids of the candidates are used.
    ///
    /// # Errors
    ///
    /// Fails if there is not one list for each query, if there are 2^32 queries or more, or if a query has a value that is
    /// not finite or too large.
    pub fn new<T: Element>(
        queries: Rows<'_, T>,
        metric: Metric,
        candidates: &[Vec<Hit>],
    ) -> Result<Self> {
        rows::check(&queries)?;
        let dim = queries.dim();
        if queries.len() != candidates.len() {
            let why = format!("there are candidates for {} queries", candidates.len());
            return Err(Error::setting("queries", queries.len(), why));
        }
        if u32::try_from(queries.len()).is_err() {
            return Err(Error::setting(
                "queries",
                queries.len(),
                "re-rank fewer than 2^32 queries",
            ));
        }
        let mut values = vec![0f64; queries.len() * dim];
        for (i, to) in values.chunks_exact_mut(dim).enumerate() {
            rows::widen(queries.row(i), metric, to);
        }
        let of_query = |(query, hits): (usize, &Vec<Hit>)| {
            hits.iter().map(|hit| (hit.id, query as u32)).collect::<Vec<_>>()
        };
        let mut pairs: Vec<(u64, u32)> = candidates.iter().enumerate().flat_map(of_query).collect();
        pairs.sort_unstable();
        pairs.dedup();
        let (found, row) = (vec![Vec::new(); candidates.len()], vec![0.0; dim]);
        Ok(Self { metric, dim, queries: values, pairs, found, row })
    }

    /// The ids whose vectors are needed, ascending.
    pub fn ids(&self) -> Vec<u64> {
        self.pairs.chunk_by(|a, b| a.0 == b.0).map(|same| same[0].0).collect()
    }

    /// Adds the vector of a candidate. An id that is not a candidate is ignored.
    ///
    /// # Errors
    ///
    /// Fails if the vector has another dimension than the queries.
    pub fn push<T: Element>(&mut self, id: u64, vector: &[T]) -> Result<()> {
        if vector.len() != self.dim {
            return Err(Error::Dimension { expected: self.dim, got: vector.len() });
        }
        let from = self.pairs.partition_point(|pair| pair.0 < id);
        rows::widen(vector, self.metric, &mut self.row);
        for (_, query) in self.pairs[from..].iter().take_while(|pair| pair.0 == id) {
            let distance = square_distance(&self.row, query_row(&self.queries, self.dim, *query));
            self.found[*query as usize].push(Hit { id, distance });
        }
        Ok(())
    }

    /// Adds the vectors of all candidates. `vector` writes the vector of an id and returns false if there is none.
    pub(crate) fn fetch(
        &mut self,
        pool: &Pool,
        vector: impl Fn(u64, &mut [f64]) -> Result<bool> + Sync,
    ) -> Result<()> {
        let Self { metric, dim, queries, pairs, found, .. } = self;
        let (metric, dim) = (*metric, *dim);
        let done = Mutex::new(Ok(()));
        let lists: Vec<Mutex<&mut Vec<Hit>>> = found.iter_mut().map(Mutex::new).collect();
        pool.each(pairs.chunks(CANDIDATES_PER_TASK).collect(), |pairs: &[(u64, u32)]| {
            let (mut raw, mut row) = (vec![0f64; dim], vec![0f64; dim]);
            for same in pairs.chunk_by(|a, b| a.0 == b.0) {
                let id = same[0].0;
                match vector(id, &mut raw) {
                    Ok(true) => rows::widen(&raw, metric, &mut row),
                    Ok(false) => continue,
                    Err(error) => {
                        *done.lock().expect("no thread panics") = Err(error);
                        return;
                    }
                }
                for (_, query) in same {
                    let distance = square_distance(&row, query_row(queries, dim, *query));
                    let mut hits = lists[*query as usize].lock().expect("no thread panics");
                    hits.push(Hit { id, distance });
                }
            }
        });
        done.into_inner().expect("no thread panics")
    }

    /// The `k` nearest candidates of each query by exact distance, sorted by distance, then by id. Candidates whose vector
    /// was not pushed are left out.
    pub fn finish(mut self, k: usize) -> Vec<Vec<Hit>> {
        self.found.iter_mut().for_each(|hits| keep_nearest(hits, k));
        self.found
    }
}

/// The values of query number `query`.
fn query_row(queries: &[f64], dim: usize, query: u32) -> &[f64] {
    &queries[query as usize * dim..][..dim]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ExactSearch;

    const DIM: usize = 11;

    fn values(n: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % 9
        };
        // Small whole numbers: ties are frequent.
        (0..n * DIM).map(|_| next() as f32 - 4.0).collect()
    }

    #[test]
    fn re_ranking_all_rows_is_an_exact_search() {
        let (base, asked) = (values(300, 1), values(5, 2));
        let (rows, queries) = (Rows::new(&base, DIM).unwrap(), Rows::new(&asked, DIM).unwrap());
        for metric in [Metric::L2, Metric::Cosine] {
            let mut exact = ExactSearch::new(queries, 12, metric).unwrap();
            exact.push(rows).unwrap();
            let want = exact.finish();
            // Every row is a candidate of every query, some of them twice.
            let all = || (0..300).chain(5..9).map(|id| Hit { id, distance: 0.0 });
            let candidates: Vec<Vec<Hit>> = (0..5).map(|_| all().collect()).collect();
            let mut pushed = Rerank::new(queries, metric, &candidates).unwrap();
            assert_eq!(pushed.ids(), (0..300).collect::<Vec<u64>>());
            for id in pushed.ids().into_iter().rev() {
                pushed.push(id, rows.row(id as usize)).unwrap();
            }
            pushed.push(999, rows.row(0)).unwrap();
            assert_eq!(pushed.finish(12), want);
            for pool in [Pool::ONE, Pool::new(3).unwrap()] {
                let mut fetched = Rerank::new(queries, metric, &candidates).unwrap();
                let vector = |id: u64, out: &mut [f64]| {
                    rows::widen(rows.row(id as usize), Metric::L2, out);
                    Ok(true)
                };
                fetched.fetch(&pool, vector).unwrap();
                assert_eq!(fetched.finish(12), want);
            }
        }
    }

    #[test]
    fn invalid_input_is_an_error_and_missing_vectors_are_left_out() {
        let asked = values(2, 3);
        let queries = Rows::new(&asked, DIM).unwrap();
        let candidates = vec![vec![Hit { id: 4, distance: 0.0 }], Vec::new()];
        assert!(Rerank::new(queries, Metric::L2, &candidates[..1]).is_err());
        let mut rerank = Rerank::new(queries, Metric::L2, &candidates).unwrap();
        assert!(rerank.push(4, &[1f32; DIM + 1]).is_err());
        assert!(rerank.fetch(&Pool::ONE, |_, _| Err(Error::Empty)).is_err());
        rerank.fetch(&Pool::ONE, |_, _| Ok(false)).unwrap();
        assert_eq!(rerank.finish(3), vec![Vec::new(), Vec::new()]);
    }
}
