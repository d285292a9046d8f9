//! Scores of rankings by floats: the same measures as for codes, from the places of the true neighbours.
//!
//! **Definitions** (a) and (c) of the parent module and recall. Scores are floats, so ties hardly occur; they
//! go by id. The pooled curve (b) has no meaning here: radii of different queries cannot be compared.
//!
//! **Cost.** For each query a scan of all codes and a sort of their scores; 4 bytes are kept for each query
//! and true neighbour, or row of its label.

use super::Truth;
use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::search::codes::Codes;
use crate::search::ranking::{Queries, Ranking};

/// Measures of a ranking of a base for some queries.
#[derive(Clone, Debug)]
pub struct RankedEvaluation {
    truth: Truth,
    base: usize,
    /// For each query: places in the ranking, from 0, of its true neighbours, nearest neighbour first; or
    /// of the rows with its label, in no order.
    places: Vec<Vec<u32>>,
    /// How many of them are relevant; all, for labels.
    relevant: usize,
}

impl RankedEvaluation {
    /// Ranks the base for every query and finds the places of its true neighbours, which are given nearest
    /// first and may be more than `truth` asks for. Without queries there is nothing to measure, which is an error.
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

    /// Ranks the base for every query and finds the places of the rows that have the query's label.
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

    /// Refuses what cannot be ranked; else the rows of the base.
    fn check(queries: &Queries, base: &Codes, ranking: Ranking) -> Result<usize> {
        base.check_ranking(queries, ranking)?;
        let n = base.len();
        if u32::try_from(n).is_err() {
            let why = "a ranking is evaluated on fewer than 2^32";
            return Err(Error::setting("base rows", n, why));
        }
        Ok(n)
    }

    /// What was relevant.
    pub fn truth(&self) -> Truth {
        self.truth
    }

    /// Rows in the base.
    pub fn base(&self) -> usize {
        self.base
    }

    /// Queries.
    pub fn queries(&self) -> usize {
        self.places.len()
    }

    /// How many queries have a relevant row: the means are over these.
    pub fn scored(&self) -> usize {
        self.relevant().count()
    }

    /// Places of the relevant rows of each query that has any.
    fn relevant(&self) -> impl Iterator<Item = &[u32]> {
        let relevant = |places: &'_ [u32]| places.len().min(self.relevant);
        self.places.iter().map(move |p| &p[..relevant(p)]).filter(|places| !places.is_empty())
    }

    /// The same, ascending.
    fn relevant_places(&self) -> impl Iterator<Item = Vec<u32>> {
        self.relevant().map(|places| {
            let mut relevant = places.to_vec();
            relevant.sort_unstable();
            relevant
        })
    }

    /// Mean average precision over the whole ranking: (a).
    pub fn map(&self) -> f64 {
        let precision = |places: Vec<u32>| {
            let terms =
                places.iter().zip(1u32..).map(|(p, hits)| f64::from(hits) / (f64::from(*p) + 1.0));
            terms.sum::<f64>() / places.len() as f64
        };
        mean(self.relevant_places().map(precision))
    }

    /// Mean interpolated precision at recall 0, 0.01 ... 1: (c).
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

    /// Share of relevant rows among the first `k` of the ranking (all, if the base has fewer); nothing for
    /// k = 0.
    pub fn precision(&self, k: usize) -> Option<f64> {
        let k = k.min(self.base);
        let share = |places: &[u32]| {
            places.iter().filter(|place| (**place as usize) < k).count() as f64 / k as f64
        };
        (k > 0).then(|| mean(self.relevant().map(share)))
    }

    /// Share of the `k` nearest that are among the first `k` of the ranking; `None` where fewer neighbours
    /// than that were given, and for labels, which do not say what is near.
    pub fn recall(&self, k: usize) -> Option<f64> {
        self.recall_after_reranking(k, k)
    }

    /// The fewest candidates whose exact re-ranking finds this share of the `k` nearest; `None` where fewer
    /// neighbours than that were given, for k = 0, and for a recall that is no number. A recall below 0 is taken as 0,
    /// one above 1 as 1.
    pub fn candidates_for(&self, k: usize, recall: f64) -> Option<usize> {
        if self.places.is_empty() || !self.knows(k) || recall.is_nan() {
            return None;
        }
        let mut places: Vec<u32> = self.places.iter().flat_map(|p| &p[..k]).copied().collect();
        places.sort_unstable();
        let needed = (recall.clamp(0.0, 1.0) * places.len() as f64).ceil().max(1.0) as usize;
        // At least k, of which k are to be returned.
        Some((places[needed - 1] as usize + 1).max(k))
    }

    /// Share of the `k` nearest that are among the first `candidates` of the ranking: what exact re-ranking
    /// of those finds.
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

    /// Whether the `k` nearest of every query are known.
    fn knows(&self, k: usize) -> bool {
        k > 0 && self.truth != Truth::Labels && self.places.iter().all(|p| p.len() >= k)
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = values.fold((0.0, 0usize), |(sum, n), x| (sum + x, n + 1));
    if n == 0 { 0.0 } else { sum / n as f64 }
}

/// The place of every row in the ranking for one query.
fn ranks(base: &Codes, queries: &Queries, query: usize, ranking: Ranking) -> Vec<u32> {
    // A float's bits, turned so that they order as the float does, above the row's number.
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
