//! Measures of quality: compares the ranking of codes with exact neighbours or class labels.
//!
//! | type | purpose |
//! |---|---|
//! | [`ExactSearch`] | finds the exact nearest rows of queries in a stream of rows |
//! | [`Truth`] | which rows are relevant for a query |
//! | [`Evaluation`] | measures of the ranking by Hamming distance |
//! | [`RankedEvaluation`] | measures of the rankings for float queries |
//! | [`Tally`] | counts by distance, from which the measures follow |
//! | [`CurvePoint`] | a point of a precision-recall curve |
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | [`Truth`], [`Evaluation`] |
//! | `measures.rs` | [`Tally`], the formulas of all measures |
//! | `ranked.rs` | [`RankedEvaluation`] |
//! | `exact.rs` | [`ExactSearch`] |
//! | `scan.rs` | all Hamming distances of a group of queries |
//!
//! # Definitions
//!
//! The relevant rows of a query are its floor(0.02 n) nearest in the original space ([`Truth::TopShare`], the
//! paper's choice), its k nearest ([`Truth::Nearest`]), or the rows of its class ([`Truth::Labels`]).
//!
//! Codes have few distances, so a ranking is mostly ties. Let a group of equal distance hold t rows, k of them
//! relevant, after N nearer rows with h relevant ones. Let R rows be relevant in all. Three measures are called
//! MAP in the literature, and they are not comparable with each other:
//!
//! ```text
//! (a) average precision   1/R  sum over groups of  k/t  sum_{i=1..t} (h + 1 + (i-1) b) / (N + i)
//!                         with b = (k-1) / (t-1)
//! (b) pooled area         trapezoids under (recall, precision) at radius 0, 1, 2, ...
//!                         with counts summed over queries
//! (c) interpolated        mean over i = 0..100 of the best precision at recall i/100 or more
//! ```
//!
//! They are [`map`](Evaluation::map), [`pooled_area`](Evaluation::pooled_area) and
//! [`interpolated`](Evaluation::interpolated). frosh reports (a) as MAP. Recall at k is the share of the k exact nearest
//! rows among the first k of the ranking.
//!
//! # Differences from the paper
//!
//! - Ties count by their expectation over random order, not in database order.
//! - Recall after re-ranking takes ties by id, because [`Codes::nearest`] returns candidates in that order.
//! - The paper describes (c). All three are computed.
//!
//! Section 12 of `docs/algorithms.md` in the repository has the details.
//!
//! # Cost
//!
//! [`Evaluation`]: one Hamming distance and one count for each pair of query and base row; two histograms a query,
//! and 8 bytes for each neighbour. [`RankedEvaluation`]: one score for each pair and a sort for each query;
//! 4 bytes for each neighbour. [`ExactSearch`]: 2 d operations a pair; 12 d + 20 k bytes a query. The number of
//! threads does not change results.
//!
//! # Example
//!
//! ```
//! use frosh::{Config, Evaluation, ExactSearch, Metric, Rows, Sketcher, Truth};
//! # let mut state = 1u64;
//! # let data: Vec<f32> = (0..16 * 1000).map(|i| {
//! #     state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
//! #     (state >> 40) as f32 / (1 + i % 16) as f32
//! # }).collect();
//! let rows = Rows::new(&data, 16)?;
//! let (queries, base) = (rows.slice(0..20), rows.slice(20..1000));
//! let truth = Truth::TopShare(0.02);
//!
//! let mut search = ExactSearch::new(queries, truth.count(980), Metric::L2)?;
//! search.push(base)?;
//! let nearest: Vec<Vec<u64>> =
//!     search.finish().iter().map(|found| found.iter().map(|f| f.id).collect()).collect();
//!
//! let mut sketcher = Sketcher::new(Config::new(16))?;
//! sketcher.push(base)?;
//! let hasher = sketcher.finish().hasher(8)?;
//! let (queries, base) = (hasher.encode(queries)?, hasher.encode(base)?);
//! let evaluation = Evaluation::by_neighbours(&queries, &base, truth, &nearest)?;
//! assert!(evaluation.map() > 0.1, "{}", evaluation.map());
//! assert!(evaluation.recall_after_reranking(10, 100) >= evaluation.recall(10));
//! println!("MAP (a) {:.3}, truth: {}", evaluation.map(), evaluation.truth());
//! # Ok::<(), frosh::Error>(())
//! ```

mod exact;
mod measures;
mod ranked;
mod scan;

pub use exact::ExactSearch;
pub(crate) use exact::square_distance;
pub use measures::{CurvePoint, Tally};
pub use ranked::RankedEvaluation;

use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::search::codes::Codes;
use std::fmt;

/// Which base rows are relevant for a query.
///
/// ```
/// use frosh::Truth;
/// assert_eq!(Truth::TopShare(0.02).count(60_000), 1200); // the paper's choice
/// assert_eq!(Truth::Nearest(10).count(60_000), 10);
/// assert_eq!(Truth::TopShare(0.02).to_string(), "nearest 2 %");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Truth {
    /// The nearest rows in the original space, this share of the base, rounded down. The paper uses 0.02.
    TopShare(f64),
    /// This many nearest rows in the original space.
    Nearest(usize),
    /// The rows with the query's label.
    Labels,
}

impl Truth {
    /// Number of relevant rows of each query, for a base of `n` rows; 0 for labels, where it depends on the query.
    pub fn count(&self, n: usize) -> usize {
        match *self {
            // The nearest double of a share such as 0.29 may be smaller, but 0.29 * 100 must give 29.
            Truth::TopShare(share) => {
                ((share.max(0.0) * n as f64 * (1.0 + 1e-12)).floor() as usize).min(n)
            }
            Truth::Nearest(k) => k.min(n),
            Truth::Labels => 0,
        }
    }
}

impl fmt::Display for Truth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Rounded, so that 0.07 is not printed as 7.000000000000001 %.
            Truth::TopShare(share) => write!(f, "nearest {} %", (share * 1e8).round() / 1e6),
            Truth::Nearest(k) => write!(f, "nearest {k}"),
            Truth::Labels => f.write_str("same label"),
        }
    }
}

/// Measures of the ranking by Hamming distance, for the codes of queries and of a base.
///
/// ```
/// use frosh::{Codes, Evaluation, HasherId, Truth};
/// // Codes of one byte, as a hasher makes them.
/// let codes = |bytes: &[u8]| Codes::from_packed(HasherId::foreign(1), 8, bytes.to_vec());
/// let (queries, base) = (codes(&[0b0000])?, codes(&[0b0001, 0b0111, 0b0000, 0b1111])?);
/// // The exact neighbours of the query, nearest first: rows 2 and 1.
/// let nearest = [vec![2, 1]];
/// let evaluation = Evaluation::by_neighbours(&queries, &base, Truth::Nearest(2), &nearest)?;
/// assert_eq!(evaluation.recall(1), Some(1.0)); // row 2 comes first by code, too
/// assert_eq!(evaluation.recall(2), Some(0.5)); // then row 0, not row 1
/// assert_eq!(evaluation.recall_after_reranking(2, 3), Some(1.0));
/// assert!((evaluation.map() - (1.0 + 2.0 / 3.0) / 2.0).abs() < 1e-12);
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Evaluation {
    truth: Truth,
    bits: usize,
    base: usize,
    queries: Vec<Query>,
    pooled: Tally,
}

/// The counts of one query.
#[derive(Clone, Debug)]
struct Query {
    tally: Tally,
    /// Rank of each exact neighbour in the ranking by (code distance, id), nearest neighbour first;
    /// empty for labels.
    ranks: Vec<u64>,
}

/// The state of a query with a list of neighbours during the scan.
struct Listed {
    items: Vec<u64>,
    /// (id, position in the list), sorted by id.
    list: Vec<(u64, usize)>,
    /// Number of entries of `list` whose rows were visited.
    passed: usize,
    /// For each position in the list: the distance, and the number of rows with smaller id at the same distance.
    places: Vec<(u32, u64)>,
}

impl Evaluation {
    /// Evaluates codes with the exact neighbours of each query, given nearest first (see [`ExactSearch`]). Lists may
    /// be longer than `truth` needs; then [`Evaluation::recall`] works for larger k.
    ///
    /// # Errors
    ///
    /// [`Error::OtherHasher`] if the codes are of different hashers. [`Error::Setting`] if there is not one list for each
    /// query, if `truth` gives no relevant rows, or if a list is too short, has a row twice or a row outside the base.
    pub fn by_neighbours(
        queries: &Codes,
        base: &Codes,
        truth: Truth,
        neighbours: &[Vec<u64>],
    ) -> Result<Self> {
        base.check_same_hasher(queries)?;
        let (bits, n) = (base.bits(), base.len());
        if neighbours.len() != queries.len() {
            let why = format!("there are {} queries", queries.len());
            return Err(Error::setting("lists of neighbours", neighbours.len(), why));
        }
        let count = truth.count(n);
        if count == 0 {
            let why = format!("\"{truth}\" of {n} base rows names no neighbours");
            return Err(Error::setting("neighbours that count", count, why));
        }
        let start = |q: usize| {
            let length = neighbours[q].len();
            if length < count {
                let why = format!("\"{truth}\" of {n} base rows needs {count} (query {q})");
                return Err(Error::setting("neighbours in a list", length, why));
            }
            Listed::new(&neighbours[q], q, n, bits)
        };
        let scanned = scan::scan(queries, base, &Pool::current(), start, Listed::visit, |state| {
            state.end(count)
        })?;
        Self::assemble(truth, bits, n, scanned)
    }

    /// Evaluates codes with class labels: the base rows with the query's label are relevant.
    ///
    /// # Errors
    ///
    /// [`Error::OtherHasher`] if the codes are of different hashers. [`Error::Setting`] if there is not one label for each
    /// code, or if no query has a relevant row.
    ///
    /// ```
    /// use frosh::{Codes, Evaluation, HasherId};
    /// # let codes = |bytes: &[u8]| Codes::from_packed(HasherId::foreign(1), 8, bytes.to_vec());
    /// let (queries, base) = (codes(&[0b0000, 0b1111])?, codes(&[0b0001, 0b0111, 0b1111])?);
    /// let evaluation = Evaluation::by_labels(&queries, &base, &[7, 8], &[7, 8, 8])?;
    /// assert_eq!(evaluation.map(), 1.0);
    /// # Ok::<(), frosh::Error>(())
    /// ```
    pub fn by_labels(
        queries: &Codes,
        base: &Codes,
        query_labels: &[u32],
        base_labels: &[u32],
    ) -> Result<Self> {
        base.check_same_hasher(queries)?;
        let (bits, n) = (base.bits(), base.len());
        check_labels(query_labels, queries.len(), base_labels, n)?;
        let start = |q: usize| Ok((query_labels[q], Tally::new(bits)));
        let visit = |(label, tally): &mut (u32, Tally), first: u64, distances: &[u32]| {
            for (distance, other) in distances.iter().zip(&base_labels[first as usize..]) {
                tally.add(*distance as usize, other == label);
            }
        };
        let end = |(_, tally)| Query { tally, ranks: Vec::new() };
        let scanned = scan::scan(queries, base, &Pool::current(), start, visit, end)?;
        Self::assemble(Truth::Labels, bits, n, scanned)
    }

    fn assemble(truth: Truth, bits: usize, base: usize, queries: Vec<Query>) -> Result<Self> {
        let mut pooled = Tally::new(bits);
        queries.iter().for_each(|q| pooled.merge(&q.tally));
        if pooled.total_relevant() == 0 {
            return Err(nothing_relevant(queries.len()));
        }
        Ok(Self { truth, bits, base, queries, pooled })
    }

    /// Which rows counted as relevant.
    pub fn truth(&self) -> Truth {
        self.truth
    }

    /// Bits of a code.
    pub fn bits(&self) -> usize {
        self.bits
    }

    /// Number of base rows.
    pub fn base(&self) -> usize {
        self.base
    }

    /// Number of queries.
    pub fn queries(&self) -> usize {
        self.queries.len()
    }

    /// Number of queries with a relevant row. Means are over these.
    pub fn scored(&self) -> usize {
        self.queries.iter().filter(|q| q.tally.total_relevant() > 0).count()
    }

    /// Mean average precision (MAP): the mean over queries of measure (a), over the full ranking.
    pub fn map(&self) -> f64 {
        self.mean(Tally::average_precision)
    }

    /// Area under the pooled precision-recall curve of all queries: measure (b).
    pub fn pooled_area(&self) -> f64 {
        self.pooled.area().unwrap_or(0.0)
    }

    /// Mean over queries of the interpolated precision at recall 0, 0.01, ..., 1: measure (c).
    pub fn interpolated(&self) -> f64 {
        self.mean(Tally::interpolated)
    }

    /// Precision at k: the expected share of relevant rows among the first `k` of the ranking, with ties in random
    /// order; mean over the queries with a relevant row. k is limited to the base. `None` for k = 0.
    pub fn precision(&self, k: usize) -> Option<f64> {
        let k = k.min(self.base);
        let share =
            |t: &Tally| (t.total_relevant() > 0).then(|| t.hits_within(k as u64) / k as f64);
        (k > 0).then(|| self.mean(share))
    }

    /// Expected share of a query's relevant rows that are among the first `k` by code, ties in random order, mean over
    /// the queries that have a relevant row. With [`Evaluation::precision`] at the same k it is a point of the
    /// precision-recall curve by the number of returned rows. `None` for k = 0.
    pub fn relevant_recall(&self, k: usize) -> Option<f64> {
        (k > 0).then(|| self.mean(|tally| tally.recall_at(k as u64)))
    }

    /// The pooled precision-recall curve of all queries, with one point for each Hamming radius that occurs. It is not
    /// the curve by the number of returned rows: within one radius, queries get different numbers of rows.
    pub fn curve(&self) -> Vec<CurvePoint> {
        self.pooled.curve()
    }

    /// Counts by distance, summed over all queries.
    pub fn pooled(&self) -> &Tally {
        &self.pooled
    }

    /// Counts by distance of one query.
    ///
    /// # Panics
    ///
    /// If there is no such query.
    pub fn tally(&self, query: usize) -> &Tally {
        &self.queries[query].tally
    }

    /// Recall at k: the expected share of the `k` exact nearest rows among the first `k` of the ranking, with ties in
    /// random order; mean over queries. `None` for labels, for k = 0, and if a list of neighbours has fewer than k rows.
    pub fn recall(&self, k: usize) -> Option<f64> {
        let k = self.known(k)?;
        let shares = self.queries.iter().map(|q| q.first(k).hits_within(k as u64) / k as f64);
        Some(shares.sum::<f64>() / self.queries.len() as f64)
    }

    /// Recall at k after the first `candidates` of the ranking were re-ranked by their exact distances; mean over
    /// queries. Ties are by id, as in the results of [`Codes::nearest`]. `None` where [`recall`](Evaluation::recall) is.
    pub fn recall_after_reranking(&self, k: usize, candidates: usize) -> Option<f64> {
        let k = self.known(k)?;
        let reached = |q: &Query| q.ranks[..k].iter().filter(|r| **r < candidates as u64).count();
        let hits: usize = self.queries.iter().map(reached).sum();
        Some(hits as f64 / (k as f64 * self.queries.len() as f64))
    }

    /// `k`, at most the size of the base; `None` if it is 0 or a query has fewer than k neighbours.
    fn known(&self, k: usize) -> Option<usize> {
        let k = k.min(self.base);
        (k > 0 && self.queries.iter().all(|q| q.ranks.len() >= k)).then_some(k)
    }

    /// Mean over the queries for which `measure` is defined, summed in the order of queries.
    fn mean(&self, measure: impl Fn(&Tally) -> Option<f64>) -> f64 {
        let sum: f64 = self.queries.iter().filter_map(|q| measure(&q.tally)).sum();
        sum / self.scored() as f64
    }
}

/// Rejects labels if there is not one for each query and one for each base row.
fn check_labels(of_queries: &[u32], queries: usize, of_base: &[u32], base: usize) -> Result<()> {
    for (name, got, codes) in
        [("query labels", of_queries.len(), queries), ("base labels", of_base.len(), base)]
    {
        if got != codes {
            return Err(Error::setting(name, got, format!("there are {codes} codes")));
        }
    }
    Ok(())
}

/// The error if no query has a relevant row.
fn nothing_relevant(queries: usize) -> Error {
    Error::setting("queries", queries, "none of them has a relevant row in the base")
}

impl Query {
    /// The tally with the first `k` neighbours as the relevant rows.
    fn first(&self, k: usize) -> Tally {
        let items = self.tally.items();
        // Number of rows within each radius. A rank below this number is within the radius.
        let within: Vec<u64> = items
            .iter()
            .scan(0, |sum, items| {
                *sum += items;
                Some(*sum)
            })
            .collect();
        let mut relevant = vec![0; items.len()];
        for rank in &self.ranks[..k] {
            relevant[within.partition_point(|count| count <= rank)] += 1;
        }
        Tally::from_counts(items.to_vec(), relevant)
    }
}

impl Listed {
    /// Checks the neighbours of query `q` among `n` rows.
    fn new(neighbours: &[u64], q: usize, n: usize, bits: usize) -> Result<Self> {
        let mut list: Vec<(u64, usize)> = neighbours.iter().copied().zip(0..).collect();
        list.sort_unstable();
        if let Some((id, _)) = list.last().filter(|(id, _)| *id >= n as u64) {
            let why = format!("the base has {n} rows (query {q})");
            return Err(Error::Setting { name: "neighbour", got: *id, why });
        }
        if let Some(twice) = list.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let why = format!("it is listed twice (query {q})");
            return Err(Error::Setting { name: "neighbour", got: twice[0].0, why });
        }
        let places = vec![(0, 0); list.len()];
        Ok(Self { items: vec![0; bits + 1], list, passed: 0, places })
    }

    /// Counts a block of rows that starts at row `first`.
    fn visit(&mut self, first: u64, distances: &[u32]) {
        let end = first + distances.len() as u64;
        let mut at = 0;
        while let Some((id, place)) = self.list.get(self.passed).filter(|(id, _)| *id < end) {
            let here = (id - first) as usize;
            distances[at..here].iter().for_each(|d| self.items[*d as usize] += 1);
            self.places[*place] = (distances[here], self.items[distances[here] as usize]);
            at = here;
            self.passed += 1;
        }
        distances[at..].iter().for_each(|d| self.items[*d as usize] += 1);
    }

    /// Ends the scan; the first `count` neighbours are relevant.
    fn end(self, count: usize) -> Query {
        let mut nearer = vec![0; self.items.len()];
        for d in 1..nearer.len() {
            nearer[d] = nearer[d - 1] + self.items[d - 1];
        }
        let mut relevant = vec![0; self.items.len()];
        for (distance, _) in &self.places[..count] {
            relevant[*distance as usize] += 1;
        }
        let ranks = self.places.iter().map(|(d, before)| nearer[*d as usize] + before).collect();
        Query { tally: Tally::from_counts(self.items, relevant), ranks }
    }
}

#[cfg(test)]
mod tests;
