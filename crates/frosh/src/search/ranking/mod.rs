//! Ranking codes by more than the bits that differ: float queries against bits.
//!
//! | ranking | query | beside the bits | order by |
//! |---|---|---|---|
//! | Hamming | bits | nothing | bits that differ |
//! | asymmetric | floats v = W'(y - phi) | nothing | -S, with S = sum_k ±v_k, + where the bit is 1 |
//! | estimated | floats | a byte (see `estimator.rs`) | an estimate of \|x - y\|^2 |
//!
//! All three read the same codes. The asymmetric order costs no storage; the estimated one costs a byte a
//! vector and is worth far more than eight further bits.
//!
//! **Where we differ from the paper**, which knows Hamming only: see [`Hasher::queries`] for what a query keeps.
//!
//! **Cost.** For each query a table of 256 sums for every byte of a code (1 kB each); then one look-up and
//! one addition a byte and code. Where a row's code has at most 64 bytes, bounds by bytes rule nearly all rows
//! out first (`bound.rs`); what is left is scored exactly, so answers are the same.
//!
//! ```
//! use frosh::{Config, Ranking, Rows, Search, Sketcher};
//! let data: Vec<f32> = (0..6400).map(|i| ((i * 31) % 101) as f32).collect();
//! let rows = Rows::new(&data, 32)?;
//! let mut sketcher = Sketcher::new(Config::new(32))?;
//! sketcher.push(rows)?;
//! let hasher = sketcher.finish().hasher(16)?;
//! let codes = hasher.encode_with_factors(rows)?;
//! let queries = hasher.queries(rows.slice(0..3))?;
//! let hits = codes.search(&queries, &Search::nearest(5).ranking(Ranking::Estimated))?;
//! assert_eq!((hits.len(), hits[0].len()), (3, 5));
//! # Ok::<(), frosh::Error>(())
//! ```

mod bound;
mod score;
#[cfg(test)]
mod tests;

use crate::error::Result;
use crate::hasher::Hasher;
use crate::hasher::estimator;
use crate::names::names;
use crate::pool::Pool;
use crate::rows::{Element, Rows};
use crate::search::codes::Codes;
use crate::search::hamming::IdSet;
use crate::search::options::{Hit, Search, keep_nearest};
use score::Scorer;
use std::cmp::Ordering;
use std::ops::Range;

/// How codes are put in order for a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ranking {
    /// By the bits that differ: both sides are bits.
    #[default]
    Hamming,
    /// By the signed sum of the query's projections: the query is floats, the codes are bits.
    Asymmetric,
    /// By an estimate of the true squared distance: the query is floats, the codes have factors.
    Estimated,
}

names!(
    Ranking,
    "ranking",
    Hamming => "hamming",
    Asymmetric => "asymmetric",
    Estimated => "estimated"
);

/// Queries made ready for any ranking: their bits, their projections, their lengths.
#[derive(Clone, Debug)]
pub struct Queries {
    codes: Codes,
    /// `bits` projections for each query.
    values: Vec<f32>,
    /// Squared lengths of the centred rows.
    square_norms: Vec<f32>,
    /// The norm and the gain for each value of their byte; none if the model has no scales.
    tables: Option<Box<[[f32; 256]; 2]>>,
    /// The ranking of their model.
    ranking: Ranking,
}

impl Queries {
    /// How many.
    pub fn len(&self) -> usize {
        self.square_norms.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.square_norms.is_empty()
    }

    /// The projections of one.
    fn projections(&self, query: usize) -> &[f32] {
        let bits = self.codes.bits();
        &self.values[query * bits..][..bits]
    }

    /// The ranking that their model chose, which searches use by default.
    pub fn ranking(&self) -> Ranking {
        self.ranking
    }

    /// Their codes, as [`Hasher::encode`] gives them.
    pub fn codes(&self) -> &Codes {
        &self.codes
    }
}

/// A row and its score in single precision; smaller scores come first, equal ones by row number.
#[derive(Clone, Copy, Debug)]
struct Scored {
    score: f32,
    id: u64,
}

impl Scored {
    fn order(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(self.id.cmp(&other.id))
    }
}

impl Hasher {
    /// Makes queries ready for any ranking. Rows of another dimension are refused, and so is a row with a value that is
    /// not finite or too large.
    pub fn queries<T: Element>(&self, rows: Rows<'_, T>) -> Result<Queries> {
        let projected = self.project(&Pool::current(), rows)?;
        let tables = self.scales().map(|s| Box::new(s.tables()));
        let square_norms = projected.square_norms.iter().map(|n| *n as f32).collect();
        let (codes, values) = (projected.codes, projected.values);
        Ok(Queries { codes, values, square_norms, tables, ranking: self.ranking() })
    }
}

impl Codes {
    /// Searches by a ranking that uses the queries' projections.
    pub(crate) fn ranked(
        &self,
        pool: &Pool,
        queries: &Queries,
        ranking: Ranking,
        search: &Search<'_>,
    ) -> Result<Vec<Vec<Hit>>> {
        let Search { k, filter: allowed, .. } = *search;
        self.check_ranking(queries, ranking)?;
        let n = self.len();
        // Work is cut by queries, and for few of them by rows as well, so that every thread has some.
        let bounded = bound::pays(self, k);
        let most = if bounded { bound::BATCH_QUERIES } else { 1 };
        let chunk = queries.len().div_ceil(pool.threads()).clamp(1, most);
        let chunks = queries.len().div_ceil(chunk);
        let parts = (2 * pool.threads()).div_ceil(chunks.max(1)).min(n.div_ceil(4096)).max(1);
        let parts = if chunks >= pool.threads() { 1 } else { parts };
        let mut found: Vec<Vec<Vec<Scored>>> = vec![Vec::new(); chunks * parts];
        let jobs = found.iter_mut().enumerate().collect();
        pool.each(jobs, |(job, found)| {
            let (first, part) = (job / parts * chunk, job % parts);
            let asked = first..queries.len().min(first + chunk);
            let rows = n * part / parts..n * (part + 1) / parts;
            let scorer = |query| Scorer::new(self, queries, query, ranking);
            let best = || Best::new(k.min(n), allowed);
            *found = if bounded {
                let scorers = asked.clone().map(scorer).collect();
                bound::search(self, queries, asked, scorers, rows, best)
            } else {
                let one = |query| {
                    let mut best = best();
                    best.all(&scorer(query), rows.clone());
                    best.finish()
                };
                asked.map(one).collect()
            };
        });
        let mut all = vec![Vec::new(); queries.len()];
        for (job, lists) in found.into_iter().enumerate() {
            for (all, list) in all[job / parts * chunk..].iter_mut().zip(lists) {
                all.extend(list.iter().map(|s| Hit { id: s.id, distance: s.score.into() }));
            }
        }
        if parts > 1 {
            all.iter_mut().for_each(|hits| keep_nearest(hits, k));
        }
        Ok(all)
    }

    /// Scores of the rows in `range` for one query, handed on block by block with the first row's number.
    /// The caller has checked the ranking.
    pub(crate) fn scores(
        &self,
        queries: &Queries,
        query: usize,
        ranking: Ranking,
        range: Range<usize>,
        take: impl FnMut(usize, &[f32]),
    ) {
        Scorer::new(self, queries, query, ranking).each(range, take);
    }

    /// Refuses queries of another model, and codes that lack what the ranking needs.
    pub(crate) fn check_ranking(&self, queries: &Queries, ranking: Ranking) -> Result<()> {
        self.check_same_hasher(&queries.codes)?;
        if ranking != Ranking::Estimated {
            return Ok(());
        }
        if queries.tables.is_none() {
            let advice = "fit the model from a sketch with a reservoir of rows";
            return Err(estimator::missing("the model", advice));
        }
        if self.factors.is_none() {
            return Err(estimator::missing("the set of codes", "encode again with factors"));
        }
        Ok(())
    }
}

/// The best `k` of what was offered in ascending order of ids.
struct Best<'a> {
    k: usize,
    allowed: Option<&'a IdSet>,
    /// What a score must be below.
    limit: f32,
    found: Vec<Scored>,
}

impl<'a> Best<'a> {
    fn new(k: usize, allowed: Option<&'a IdSet>) -> Self {
        let limit = if k == 0 { f32::NEG_INFINITY } else { f32::INFINITY };
        Self { k, allowed, limit, found: Vec::new() }
    }

    #[inline]
    fn offer(&mut self, score: f32, id: u64) {
        // The set is asked last: few rows come that far.
        if score < self.limit && self.allowed.is_none_or(|set| set.contains(id)) {
            self.found.push(Scored { score, id });
            if self.found.len() >= 2 * self.k + 16 {
                self.prune();
            }
        }
    }

    /// Keeps the best k. A later row of the limit's score has a larger id, so it never counts.
    fn prune(&mut self) {
        if self.k > 0 && self.found.len() >= self.k {
            self.found.select_nth_unstable_by(self.k - 1, Scored::order);
            self.found.truncate(self.k);
            self.limit = self.found[self.k - 1].score;
        }
    }

    /// Offers all rows in `range`.
    fn all(&mut self, scorer: &Scorer<'_>, range: Range<usize>) {
        scorer.each(range, |first, scores| {
            for (score, id) in scores.iter().zip(first as u64..) {
                self.offer(*score, id);
            }
        });
    }

    fn finish(mut self) -> Vec<Scored> {
        if self.k > 0 {
            self.prune();
        }
        self.found.sort_unstable_by(Scored::order);
        self.found
    }
}
