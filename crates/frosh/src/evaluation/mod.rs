//! How good codes are: the ranking by code distance against the true neighbours.
//!
//! **Equation.** Section 12 of docs/algorithms.md. A query's relevant rows are its floor(0.02 n) nearest in the
//! original space ([`Truth::TopShare`]), its k nearest ([`Truth::Nearest`]) or those of its class
//! ([`Truth::Labels`]). Three numbers are called MAP and are not comparable; all three are given:
//! [`map`](Evaluation::map) (a), [`pooled_area`](Evaluation::pooled_area) (b) and
//! [`interpolated`](Evaluation::interpolated) (c), see `measures.rs` for their formulas. Recall at k is the
//! share of the k true nearest among the first k by code.
//!
//! **Where we differ.** Ties in the ranking count by their expectation over random order, not by the order
//! of the database. Only recall after re-ranking takes ties by id, because that is what
//! [`Codes::nearest`] hands to a re-ranker.
//!
//! **Cost.** One Hamming distance and one count for each pair of query and base row. Memory: two
//! histograms a query, and 8 bytes for each true neighbour. The same numbers for any number of threads.
//!
//! ```
//! use frosh::{Config, Evaluation, ExactSearch, Metric, Pool, Rows, Sketcher, Truth};
//! # let mut state = 1u64;
//! # let data: Vec<f32> = (0..16 * 1000).map(|i| {
//! #     state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
//! #     (state >> 40) as f32 / (1 + i % 16) as f32
//! # }).collect();
//! let rows = Rows::new(&data, 16)?;
//! let (queries, base) = (rows.slice(0..20), rows.slice(20..1000));
//! let truth = Truth::TopShare(0.02);
//!
//! let mut search = ExactSearch::new(queries, truth.count(980), Metric::L2, Pool::all())?;
//! search.push(base)?;
//! let nearest: Vec<Vec<u64>> =
//!     search.finish().iter().map(|found| found.iter().map(|f| f.id).collect()).collect();
//!
//! let mut sketcher = Sketcher::new(Config::new(16))?;
//! sketcher.push(base)?;
//! let hasher = sketcher.finish().hasher(8)?;
//! let (queries, base) = (hasher.encode(queries)?, hasher.encode(base)?);
//! let evaluation = Evaluation::by_neighbours(&queries, &base, truth, &nearest, Pool::all())?;
//! assert!(evaluation.map() > 0.1, "{}", evaluation.map());
//! assert!(evaluation.recall_after_reranking(10, 100) >= evaluation.recall(10));
//! println!("MAP (a) {:.3}, truth: {}", evaluation.map(), evaluation.truth());
//! # Ok::<(), frosh::Error>(())
//! ```

mod exact;
mod measures;
mod ranked;
mod scan;

pub use exact::{ExactSearch, Found};
pub use measures::{CurvePoint, Tally};
pub use ranked::RankedEvaluation;

use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::search::codes::Codes;
use std::fmt;

/// Which base rows are relevant for a query.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Truth {
    /// This share of the base, rounded down: the nearest in the original space. Usually 0.02.
    TopShare(f64),
    /// This many of the base: the nearest in the original space.
    Nearest(usize),
    /// Those with the query's label.
    Labels,
}

impl Truth {
    /// How many of `n` base rows are relevant for each query; 0 for labels, which do not say.
    pub fn count(&self, n: usize) -> usize {
        match *self {
            // The nearest double to a share like 0.29 may lie below it: 0.29 * 100 must be 29.
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
            // Rounded, so that 0.07 does not read 7.000000000000001 %.
            Truth::TopShare(share) => write!(f, "nearest {} %", (share * 1e8).round() / 1e6),
            Truth::Nearest(k) => write!(f, "nearest {k}"),
            Truth::Labels => f.write_str("same label"),
        }
    }
}

/// Measures of the codes of some queries against those of a base.
#[derive(Clone, Debug)]
pub struct Evaluation {
    truth: Truth,
    bits: usize,
    base: usize,
    queries: Vec<Query>,
    pooled: Tally,
}

/// What is known of one query.
#[derive(Clone, Debug)]
struct Query {
    tally: Tally,
    /// Place of each true neighbour in the ranking by (code distance, id), nearest neighbour first;
    /// empty for labels.
    ranks: Vec<u64>,
}

/// A query with a list of neighbours, during the scan.
struct Listed {
    items: Vec<u64>,
    /// The list by id: (id, place in the list).
    list: Vec<(u64, usize)>,
    /// How many of them have passed.
    passed: usize,
    /// For each place in the list: distance, and how many rows of smaller id have the same.
    places: Vec<(u32, u64)>,
}

impl Evaluation {
    /// Scores codes against the true neighbours of each query, nearest first. The lists may be longer than
    /// `truth` asks for: the further ones serve [`Evaluation::recall`] at larger k.
    pub fn by_neighbours(
        queries: &Codes,
        base: &Codes,
        truth: Truth,
        neighbours: &[Vec<u64>],
        pool: &Pool,
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
        let scanned =
            scan::scan(queries, base, pool, start, Listed::visit, |state| state.end(count))?;
        Self::assemble(truth, bits, n, scanned)
    }

    /// Scores codes against class labels: relevant are the base rows with the query's label.
    pub fn by_labels(
        queries: &Codes,
        base: &Codes,
        query_labels: &[u32],
        base_labels: &[u32],
        pool: &Pool,
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
        let scanned = scan::scan(queries, base, pool, start, visit, end)?;
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

    /// What was relevant.
    pub fn truth(&self) -> Truth {
        self.truth
    }

    /// Bits of a code.
    pub fn bits(&self) -> usize {
        self.bits
    }

    /// How many base rows.
    pub fn base(&self) -> usize {
        self.base
    }

    /// How many queries.
    pub fn queries(&self) -> usize {
        self.queries.len()
    }

    /// How many queries have a relevant row: the means are over these.
    pub fn scored(&self) -> usize {
        self.queries.iter().filter(|q| q.tally.total_relevant() > 0).count()
    }

    /// Mean over queries of the average precision over the full ranking (a): the primary measure.
    pub fn map(&self) -> f64 {
        self.mean(Tally::average_precision)
    }

    /// Area under the precision-recall curve of all query-row pairs together (b).
    pub fn pooled_area(&self) -> f64 {
        self.pooled.area().unwrap_or(0.0)
    }

    /// Mean over queries of the interpolated precision at recall 0, 0.01, ..., 1 (c).
    pub fn interpolated(&self) -> f64 {
        self.mean(Tally::interpolated)
    }

    /// Expected share of relevant rows among the first `k` by code (all, if the base has fewer), ties in
    /// random order, mean over the queries that have a relevant row. Nothing for k = 0.
    pub fn precision(&self, k: usize) -> Option<f64> {
        let k = k.min(self.base);
        let share =
            |t: &Tally| (t.total_relevant() > 0).then(|| t.hits_within(k as u64) / k as f64);
        (k > 0).then(|| self.mean(share))
    }

    /// Expected share of a query's relevant rows that are among the first `k` by code, ties in random order,
    /// mean over the queries that have a relevant row. With [`Evaluation::precision`] at the same k it is a
    /// point of the precision-recall curve by the number of returned rows. Nothing for k = 0.
    pub fn relevant_recall(&self, k: usize) -> Option<f64> {
        (k > 0).then(|| self.mean(|tally| tally.recall_at(k as u64)))
    }

    /// The precision-recall curve of all query-row pairs together, one point a radius. It is not the curve by
    /// the number of returned rows: within one radius, queries get different numbers of rows.
    pub fn curve(&self) -> Vec<CurvePoint> {
        self.pooled.curve()
    }

    /// Counts by distance of all queries together.
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

    /// Share of the `k` true nearest that are among the first `k` by code, mean over queries. Nothing
    /// where the k nearest are not known: for labels, for k = 0, or if a list of neighbours is shorter.
    pub fn recall(&self, k: usize) -> Option<f64> {
        let k = self.known(k)?;
        let shares = self.queries.iter().map(|q| q.first(k).hits_within(k as u64) / k as f64);
        Some(shares.sum::<f64>() / self.queries.len() as f64)
    }

    /// Share of the `k` true nearest that are found when the first `candidates` by code (ties by id, as
    /// [`Codes::nearest`] gives them) are put in order by their true distances, mean over queries.
    /// Nothing where the k nearest are not known.
    pub fn recall_after_reranking(&self, k: usize, candidates: usize) -> Option<f64> {
        let k = self.known(k)?;
        let reached = |q: &Query| q.ranks[..k].iter().filter(|r| **r < candidates as u64).count();
        let hits: usize = self.queries.iter().map(reached).sum();
        Some(hits as f64 / (k as f64 * self.queries.len() as f64))
    }

    /// `k`, or the size of the base if that is smaller, if every query's nearest are known so far.
    fn known(&self, k: usize) -> Option<usize> {
        let k = k.min(self.base);
        (k > 0 && self.queries.iter().all(|q| q.ranks.len() >= k)).then_some(k)
    }

    /// Mean over the queries that have a measure, summed in their order.
    fn mean(&self, measure: impl Fn(&Tally) -> Option<f64>) -> f64 {
        let sum: f64 = self.queries.iter().filter_map(|q| measure(&q.tally)).sum();
        sum / self.scored() as f64
    }
}

/// Refuses labels that are not one for each query, and one for each row of the base.
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

/// The error where no query has anything to find.
fn nothing_relevant(queries: usize) -> Error {
    Error::setting("queries", queries, "none of them has a relevant row in the base")
}

impl Query {
    /// The tally with the first `k` neighbours as the relevant rows.
    fn first(&self, k: usize) -> Tally {
        let items = self.tally.items();
        // Rows within each radius; a rank below the count lies within.
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

    /// Counts the rows from number `first` on.
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

    /// The first `count` neighbours are relevant.
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
