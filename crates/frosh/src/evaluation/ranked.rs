//! Measures of rankings with float scores, from the ranks of the exact neighbours.
//!
//! **Definitions.** Measures (a) and (c) of the parent module, and recall. Float scores rarely tie; ties are by id.
//! The pooled curve (b) is not defined here, because scores of different queries are not comparable.
//!
//! **Cost.** For each query a scan of all codes and a sort of their scores; 4 bytes for each query
//! and neighbour, or each row of its class.

use super::Truth;
use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::search::codes::Codes;
use crate::search::ranking::{Queries, Ranking};

/// Measures of a [`Ranking`] of a base for float queries.
///
/// ```
/// use frosh::{Config, ExactSearch, Metric, RankedEvaluation, Ranking, Rows, Sketcher, Truth};
/// # let mut state = 1u64;
/// # let data: Vec<f32> = (0..16 * 1000).map(|i| {
/// #     state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
/// #     (state >> 40) as f32 / (1 + i % 16) as f32
/// # }).collect();
/// # let rows = Rows::new(&data, 16)?;
/// let (queries, base) = (rows.slice(0..20), rows.slice(20..1000));
/// let mut search = ExactSearch::new(queries, 10, Metric::L2)?;
/// search.push(base)?;
/// let nearest: Vec<Vec<u64>> =
///     search.finish().iter().map(|found| found.iter().map(|f| f.id).collect()).collect();
///
/// # let mut sketcher = Sketcher::new(Config::new(16))?;
/// # sketcher.push(base)?;
/// let hasher = sketcher.finish().hasher(16)?;
/// let codes = hasher.encode_with_factors(base)?;
/// let queries = hasher.queries(queries)?;
/// let (ranking, truth) = (Ranking::Estimated, Truth::Nearest(10));
/// let evaluation = RankedEvaluation::new(&queries, &codes, ranking, truth, &nearest)?;
/// // How many candidates must be re-ranked for a recall@10 of 0.95?
/// let candidates = evaluation.candidates_for(10, 0.95).unwrap();
/// assert!(evaluation.recall_after_reranking(10, candidates).unwrap() >= 0.95);
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RankedEvaluation {
    truth: Truth,
    base: usize,
    /// For each query: ranks, from 0, of its exact neighbours, nearest neighbour first; or of the rows with
    /// its label, in no particular order.
    places: Vec<Vec<u32>>,
    /// Number of relevant rows in each list; `usize::MAX` for labels, where all are.
    relevant: usize,
}

impl RankedEvaluation {
    /// Ranks the base for every query, and finds the ranks of its exact neighbours, which are given nearest
    /// first. Lists may be longer than `truth` needs.
    ///
    /// # Errors
    ///
    /// [`Error::OtherHasher`] if codes and queries are of different hashers, [`Error::Factors`] if the ranking needs
    /// factors and the codes have none. [`Error::Setting`] if there are no queries, if there is not one list for each
    /// query, if `truth` gives no relevant rows, if a list is too short, has a row twice or a row outside the base, or
    /// if the base has 2^32 rows or more.
    pub fn new(
        queries: &Queries,
        base: &Codes,
        ranking: Ranking,
        truth: Truth,
        neighbours: &[Vec<u64>],
    ) -> Result<Self> {
        let n = Self::check(queries, base, ranking)?;
        let relevant = truth.count(n);
        if relevant == 0 {
            let why = format!("\"{truth}\" of {n} base rows names no neighbours");
            return Err(Error::setting("neighbours that count", relevant, why));
        }
        if neighbours.len() != queries.len() {
            let why = format!("there are {} queries", queries.len());
            return Err(Error::setting("lists of neighbours", neighbours.len(), why));
        }
        if neighbours.is_empty() {
            return Err(super::nothing_relevant(0));
        }
        let bad = |list: &Vec<u64>| list.len() < relevant || list.iter().any(|id| *id >= n as u64);
        if let Some(list) = neighbours.iter().find(|list| bad(list)) {
            let why =
                format!("\"{truth}\" of {n} base rows needs {relevant}, each a row of the base");
            return Err(Error::setting("neighbours in a list", list.len(), why));
        }
        for (query, list) in neighbours.iter().enumerate() {
            let mut ids = list.clone();
            ids.sort_unstable();
            if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
                let why = format!("it is listed twice (query {query})");
                return Err(Error::Setting { name: "neighbour", got: twice[0], why });
            }
        }
        let mut places: Vec<Vec<u32>> = vec![Vec::new(); queries.len()];
        let jobs = places.iter_mut().enumerate().collect();
        Pool::current().each(jobs, |(query, places)| {
            let place = ranks(base, queries, query, ranking);
            *places = neighbours[query].iter().map(|id| place[*id as usize]).collect();
        });
        Ok(Self { truth, base: n, places, relevant })
    }

    /// Ranks the base for every query, and finds the ranks of the rows with the query's label.
    ///
    /// # Errors
    ///
    /// As [`RankedEvaluation::new`], and [`Error::Setting`] if there is not one label for each query and base row, or if no
    /// query has a relevant row.
    pub fn by_labels(
        queries: &Queries,
        base: &Codes,
        ranking: Ranking,
        query_labels: &[u32],
        base_labels: &[u32],
    ) -> Result<Self> {
        let n = Self::check(queries, base, ranking)?;
        super::check_labels(query_labels, queries.len(), base_labels, n)?;
        let mut places: Vec<Vec<u32>> = vec![Vec::new(); queries.len()];
        let jobs = places.iter_mut().zip(query_labels).enumerate().collect();
        Pool::current().each(jobs, |(query, (places, label))| {
            let place = ranks(base, queries, query, ranking);
            let own = base_labels.iter().zip(place).filter(|(other, _)| *other == label);
            *places = own.map(|(_, place)| place).collect();
        });
        if places.iter().all(Vec::is_empty) {
            return Err(super::nothing_relevant(queries.len()));
        }
        Ok(Self { truth: Truth::Labels, base: n, places, relevant: usize::MAX })
    }

    /// Rejects codes and queries that cannot be ranked; otherwise returns the number of base rows.
    fn check(queries: &Queries, base: &Codes, ranking: Ranking) -> Result<usize> {
        base.check_ranking(queries, ranking)?;
        let n = base.len();
        if u32::try_from(n).is_err() {
            let why = "a ranking is evaluated on fewer than 2^32";
            return Err(Error::setting("base rows", n, why));
        }
        Ok(n)
    }

    /// Which rows counted as relevant.
    pub fn truth(&self) -> Truth {
        self.truth
    }

    /// Number of base rows.
    pub fn base(&self) -> usize {
        self.base
    }

    /// Number of queries.
    pub fn queries(&self) -> usize {
        self.places.len()
    }

    /// Number of queries with a relevant row. Means are over these.
    pub fn scored(&self) -> usize {
        self.relevant().count()
    }

    /// Ranks of the relevant rows, for each query that has any.
    fn relevant(&self) -> impl Iterator<Item = &[u32]> {
        let relevant = |places: &'_ [u32]| places.len().min(self.relevant);
        self.places.iter().map(move |p| &p[..relevant(p)]).filter(|places| !places.is_empty())
    }

    /// Ranks of the relevant rows in ascending order, for each query that has any.
    fn relevant_places(&self) -> impl Iterator<Item = Vec<u32>> {
        self.relevant().map(|places| {
            let mut relevant = places.to_vec();
            relevant.sort_unstable();
            relevant
        })
    }

    /// Mean average precision (MAP) over the full ranking: measure (a).
    pub fn map(&self) -> f64 {
        mean(self.average_precisions().into_iter())
    }

    /// The average precision of each query that has a relevant row.
    pub(crate) fn average_precisions(&self) -> Vec<f64> {
        let precision = |places: Vec<u32>| {
            let terms =
                places.iter().zip(1u32..).map(|(p, hits)| f64::from(hits) / (f64::from(*p) + 1.0));
            terms.sum::<f64>() / places.len() as f64
        };
        self.relevant_places().map(precision).collect()
    }

    /// Mean interpolated precision at recall 0, 0.01, ..., 1: measure (c).
    pub fn interpolated(&self) -> f64 {
        let one = |places: Vec<u32>| {
            let mut best = vec![0f64; places.len()];
            let mut largest = 0f64;
            for (i, place) in places.iter().enumerate().rev() {
                largest = largest.max((i + 1) as f64 / (f64::from(*place) + 1.0));
                best[i] = largest;
            }
            let needed = |i: usize| (i * places.len()).div_ceil(100).max(1) - 1;
            (0..=100).map(|i| best[needed(i)]).sum::<f64>() / 101.0
        };
        mean(self.relevant_places().map(one))
    }

    /// Precision at k: the share of relevant rows among the first `k` of the ranking. k is limited to the base.
    /// `None` for k = 0.
    pub fn precision(&self, k: usize) -> Option<f64> {
        let k = k.min(self.base);
        let share = |places: &[u32]| {
            places.iter().filter(|place| (**place as usize) < k).count() as f64 / k as f64
        };
        (k > 0).then(|| mean(self.relevant().map(share)))
    }

    /// Recall at k: the share of the `k` exact nearest rows among the first `k` of the ranking. `None` for labels, for
    /// k = 0, and if a list of neighbours has fewer than k rows.
    pub fn recall(&self, k: usize) -> Option<f64> {
        self.recall_after_reranking(k, k)
    }

    /// The smallest number of candidates whose exact re-ranking reaches this recall at k. `None` where
    /// [`recall`](RankedEvaluation::recall) is, and if `recall` is NaN. `recall` is clamped to 0..=1.
    pub fn candidates_for(&self, k: usize, recall: f64) -> Option<usize> {
        if self.places.is_empty() || !self.knows(k) || recall.is_nan() {
            return None;
        }
        let mut places: Vec<u32> = self.places.iter().flat_map(|p| &p[..k]).copied().collect();
        places.sort_unstable();
        let needed = (recall.clamp(0.0, 1.0) * places.len() as f64).ceil().max(1.0) as usize;
        // At least k candidates, because a search returns k rows.
        Some((places[needed - 1] as usize + 1).max(k))
    }

    /// Recall at k after the first `candidates` of the ranking were re-ranked by their exact distances. `None` where
    /// [`recall`](RankedEvaluation::recall) is.
    pub fn recall_after_reranking(&self, k: usize, candidates: usize) -> Option<f64> {
        if !self.knows(k) {
            return None;
        }
        let found = |places: &Vec<u32>| {
            let hits = places[..k].iter().filter(|p| (**p as usize) < candidates).count();
            hits as f64 / k as f64
        };
        Some(mean(self.places.iter().map(found)))
    }

    /// The standard error of that recall: how far it would be, typically, from the recall of all queries that could be
    /// asked, of which these are a sample. `None` where [`recall`](RankedEvaluation::recall) is, and for one query.
    pub fn recall_error(&self, k: usize, candidates: usize) -> Option<f64> {
        let recall = self.recall_after_reranking(k, candidates)?;
        let queries = self.places.len();
        if queries < 2 {
            return None;
        }
        let square = |places: &Vec<u32>| {
            let hits = places[..k].iter().filter(|p| (**p as usize) < candidates).count();
            (hits as f64 / k as f64 - recall).powi(2)
        };
        let variance = self.places.iter().map(square).sum::<f64>() / (queries - 1) as f64;
        Some((variance / queries as f64).sqrt())
    }

    /// Whether at least `k` neighbours of every query were given.
    fn knows(&self, k: usize) -> bool {
        k > 0 && self.truth != Truth::Labels && self.places.iter().all(|p| p.len() >= k)
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = values.fold((0.0, 0usize), |(sum, n), x| (sum + x, n + 1));
    if n == 0 { 0.0 } else { sum / n as f64 }
}

/// The rank of every row for one query.
fn ranks(base: &Codes, queries: &Queries, query: usize, ranking: Ranking) -> Vec<u32> {
    // High half: the bits of the score, mapped to an integer with the same order. Low half: the row number.
    let mut keys: Vec<u64> = Vec::with_capacity(base.len());
    base.scores(queries, query, ranking, 0..base.len(), |first, scores| {
        for (score, id) in scores.iter().zip(first as u64..) {
            let bits = score.to_bits();
            let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
            keys.push(u64::from(ordered) << 32 | id);
        }
    });
    keys.sort_unstable();
    let mut places = vec![0u32; keys.len()];
    for (key, place) in keys.iter().zip(0u32..) {
        places[*key as u32 as usize] = place;
    }
    places
}

#[cfg(test)]
mod tests;
