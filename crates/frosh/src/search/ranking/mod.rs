//! Rankings: the order of codes for a query. The module page of `search` has the definitions.
//!
//! | file | purpose |
//! |---|---|
//! | `score.rs` | exact scores by tables: one look-up and one addition for each byte of a code |
//! | `bound.rs` | bounds that prune most rows before they are scored |
//! | `cells.rs` | the same for codes of a quantiser, whose rows are ordered by cell |
//! | `together.rs` | many queries at a time, for `cells.rs` |
//! | `mod.rs` | [`Ranking`], [`Queries`], the split into tasks, the k best rows |
//!
//! **Cost.** A query needs a table of 256 sums (1 kB) for each byte of a code. If a code has at most 64 bytes, bounds
//! prune nearly all rows. The remaining rows are scored exactly, so pruning does not change the hits.

mod bound;
mod cell_order;
mod cells;
mod score;
#[cfg(test)]
mod tests;
mod together;

use crate::error::{Error, Result};
use crate::hasher::Hasher;
use crate::hasher::estimator;
use crate::names::names;
use crate::pool::Pool;
use crate::quantizer::Decoder;
use crate::rows::{Element, Rows};
use crate::search::codes::Codes;
use crate::search::hamming::IdSet;
use crate::search::options::{Hit, Search, keep_nearest};
pub(crate) use cell_order::CellOrderCache;
#[cfg(test)]
pub(crate) use cell_order::ORDER_QUERIES;
use score::Scorer;
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

/// How codes are compared with a query.
///
/// The [module page](crate::search#definitions) has the equations and costs.
///
/// ```
/// use frosh::{Config, Ranking, Rows, Search, Sketcher};
/// # let data: Vec<f32> = (0..6400).map(|i| ((i * 31) % 101) as f32).collect();
/// # let rows = Rows::new(&data, 32)?;
/// # let mut sketcher = Sketcher::new(Config::new(32))?;
/// # sketcher.push(rows)?;
/// # let hasher = sketcher.finish().hasher(16)?;
/// let codes = hasher.encode_with_factors(rows)?;
/// let queries = hasher.queries(rows.slice(0..3))?;
/// let hits = codes.search(&queries, &Search::nearest(5).ranking(Ranking::Estimated))?;
/// assert_eq!((hits.len(), hits[0].len()), (3, 5));
/// assert_eq!("estimated".parse::<Ranking>()?, Ranking::Estimated);
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ranking {
    /// By the number of bits that differ between the codes of row and query.
    #[default]
    Hamming,
    /// By the negated sum of the query's projections, with the signs of the row's bits. Needs [`Queries`].
    Asymmetric,
    /// By an estimate of the squared Euclidean distance. Needs [`Queries`], and codes with factors.
    Estimated,
}

names!(
    Ranking,
    "ranking",
    Hamming => "hamming",
    Asymmetric => "asymmetric",
    Estimated => "estimated"
);

/// Encoded queries for any ranking: codes, projections and squared lengths.
///
/// [`Hasher::queries`] makes them. **Cost.** r floats, r / 8 bytes and one float a query, for r bits.
///
/// ```
/// use frosh::{Config, Rows, Sketcher};
/// # let data: Vec<f32> = (0..6400).map(|i| ((i * 31) % 101) as f32).collect();
/// # let rows = Rows::new(&data, 32)?;
/// # let mut sketcher = Sketcher::new(Config::new(32))?;
/// # sketcher.push(rows)?;
/// let hasher = sketcher.finish().hasher(16)?;
/// let queries = hasher.queries(rows.slice(0..3))?;
/// assert_eq!(queries.len(), 3);
/// assert_eq!(queries.ranking(), hasher.ranking());
/// assert_eq!(*queries.codes(), hasher.encode(rows.slice(0..3))?);
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Queries {
    codes: Codes,
    /// `bits` projections for each query.
    values: Vec<f32>,
    /// Squared lengths of the centred rows.
    square_norms: Vec<f32>,
    /// Decoding tables of the factors: the norm and the gain for each value of their byte; `None` if the model has no
    /// factors.
    tables: Option<Box<[[f32; 256]; 2]>>,
    /// The ranking that the model chose.
    ranking: Ranking,
    /// Look-up tables, for queries of a quantiser.
    quantized: Option<QuantizedTables>,
}

/// What the bytes of a quantiser's code add to the score, for each query.
#[derive(Clone, Debug)]
pub(crate) struct QuantizedTables {
    /// For each query, an entry for each cell and for each word of each codebook.
    pub(crate) entries: Vec<f32>,
    /// Entries of a query.
    pub(crate) per_query: usize,
    /// For each query, the squared length of its projections.
    pub(crate) squares: Vec<f32>,
    /// What the levels of the scalar add.
    pub(crate) levels: Arc<[f32; 256]>,
    /// The codebooks of the model.
    pub(crate) decoder: Arc<Decoder>,
}

impl QuantizedTables {
    fn of(&self, query: usize) -> &[f32] {
        &self.entries[query * self.per_query..][..self.per_query]
    }
}

impl Queries {
    /// Number of queries.
    pub fn len(&self) -> usize {
        self.square_norms.len()
    }

    /// Whether there are no queries.
    pub fn is_empty(&self) -> bool {
        self.square_norms.is_empty()
    }

    /// The projections of one query.
    fn projections(&self, query: usize) -> &[f32] {
        let bits = self.codes.bits();
        &self.values[query * bits..][..bits]
    }

    /// The ranking that the model chose. Searches use it by default.
    pub fn ranking(&self) -> Ranking {
        self.ranking
    }

    /// Queries of a quantiser, with their squared lengths.
    pub(crate) fn of_quantizer(codes: Codes, norms: Vec<f32>, tables: QuantizedTables) -> Self {
        Self {
            codes,
            values: Vec::new(),
            square_norms: norms,
            tables: None,
            ranking: Ranking::Estimated,
            quantized: Some(tables),
        }
    }

    /// What the cells add to the score of the first query.
    #[cfg(test)]
    pub(crate) fn cell_entries(&self) -> Vec<f32> {
        self.quantized.as_ref().map_or(Vec::new(), |tables| tables.of(0)[..256].to_vec())
    }

    /// The codes of the queries, as [`Hasher::encode`] returns them; none for queries of a quantiser, which need none.
    pub fn codes(&self) -> &Codes {
        &self.codes
    }
}

/// A row and its score in single precision. Smaller scores come first; equal scores are ordered by row number.
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
    /// Encodes queries for any ranking: projects each row and keeps its code, its projections and its squared length.
    ///
    /// # Errors
    ///
    /// Fails if the rows have another dimension than the model, or if a value is not finite or too large.
    pub fn queries<T: Element>(&self, rows: Rows<'_, T>) -> Result<Queries> {
        let projected = self.project(&Pool::current(), rows)?;
        let tables = self.scales().map(|s| Box::new(s.tables()));
        let square_norms = projected.square_norms.iter().map(|n| *n as f32).collect();
        let (codes, values) = (projected.codes, projected.values);
        let ranking = self.ranking();
        Ok(Queries { codes, values, square_norms, tables, ranking, quantized: None })
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
        if let Some(tables) = &queries.quantized
            && cells::is_faster(self, queries.len(), search)
        {
            return Ok(cells::search(self, pool, queries, tables, search));
        }
        let n = self.len();
        // Tasks split the queries. If there are fewer batches than threads, they also split the rows.
        let prune = !self.quantized && bound::is_faster(self, k);
        let most = if prune { bound::BATCH_QUERIES } else { 1 };
        let chunk = queries.len().div_ceil(pool.threads()).clamp(1, most);
        let chunks = queries.len().div_ceil(chunk);
        let parts = (2 * pool.threads()).div_ceil(chunks.max(1)).min(n.div_ceil(4096)).max(1);
        let parts = if chunks >= pool.threads() { 1 } else { parts };
        let mut found: Vec<Vec<Vec<Scored>>> = vec![Vec::new(); chunks * parts];
        let jobs = found.iter_mut().enumerate().collect();
        pool.each(jobs, |(job, found)| {
            let (first, part) = (job / parts * chunk, job % parts);
            let batch = first..queries.len().min(first + chunk);
            let rows = n * part / parts..n * (part + 1) / parts;
            let scorer = |query| Scorer::new(self, queries, query, ranking);
            let best = |query| Best::new(k, n, allowed, known(search, query));
            *found = if prune {
                let scorers = batch.clone().map(scorer).collect();
                bound::search(self, queries, batch, scorers, rows, best)
            } else {
                let one = |query| {
                    let mut best = best(query);
                    best.offer_range(&scorer(query), rows.clone());
                    best.finish()
                };
                batch.map(one).collect()
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

    /// Scores the rows in `range` for one query. Calls `consume` for each block, with the number of its first row. The
    /// caller has checked the ranking.
    pub(crate) fn scores(
        &self,
        queries: &Queries,
        query: usize,
        ranking: Ranking,
        range: Range<usize>,
        consume: impl FnMut(usize, &[f32]),
    ) {
        Scorer::new(self, queries, query, ranking).score_range(range, consume);
    }

    /// Fails if the queries are of another model, or if the codes or the model lack the factors that the ranking needs.
    pub(crate) fn check_ranking(&self, queries: &Queries, ranking: Ranking) -> Result<()> {
        self.check_same_hasher(&queries.codes)?;
        if self.quantized && ranking != Ranking::Estimated {
            return Err(Error::Ranking {
                ranking: ranking.as_str(),
                needs: "sign bits, and these are codes of a quantiser",
                advice: "use the estimated ranking",
            });
        }
        if self.quantized || ranking != Ranking::Estimated {
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

/// Row number of a hit that is known from elsewhere. It comes after all rows of the same score.
const KNOWN: u64 = u64::MAX;

/// The scores of k hits that are known from elsewhere; none if fewer are known.
fn known(search: &Search<'_>, query: usize) -> Vec<Scored> {
    let hits = search.known.map_or(&[][..], |known| &known[query]);
    let enough = if hits.len() >= search.k { hits } else { &[] };
    // Distances are scores, so they fit single precision.
    enough.iter().map(|hit| Scored { score: hit.distance as f32, id: KNOWN }).collect()
}

/// Collects the `k` best rows. Rows are offered in ascending order of ids.
struct Best<'a> {
    k: usize,
    allowed: Option<&'a IdSet>,
    /// The k-th smallest score at the last prune. Rows with this score or a larger one are rejected.
    limit: f32,
    found: Vec<Scored>,
}

impl<'a> Best<'a> {
    /// For `k` of `rows` rows; `known` are k hits from elsewhere, or none.
    fn new(k: usize, rows: usize, allowed: Option<&'a IdSet>, known: Vec<Scored>) -> Self {
        let limit = if k == 0 { f32::NEG_INFINITY } else { f32::INFINITY };
        let k = if known.is_empty() { k.min(rows) } else { k };
        let mut best = Self { k, allowed, limit, found: known };
        best.prune();
        best
    }

    #[inline]
    fn offer(&mut self, score: f32, id: u64) {
        // The set is checked last because it is slow and few rows are below the limit.
        if score < self.limit && self.allowed.is_none_or(|set| set.contains(id)) {
            self.found.push(Scored { score, id });
            if self.found.len() >= 2 * self.k + 16 {
                self.prune();
            }
        }
    }

    /// Keeps the k best rows and lowers the limit. A later row with the score of the limit has a larger id than the k-th
    /// row, so it can be rejected.
    fn prune(&mut self) {
        if self.k > 0 && self.found.len() >= self.k {
            self.found.select_nth_unstable_by(self.k - 1, Scored::order);
            self.found.truncate(self.k);
            let last = self.found[self.k - 1];
            // The id of a known hit is not known here, and may be larger than that of a row with the same score.
            self.limit = if last.id == KNOWN { last.score.next_up() } else { last.score };
        }
    }

    /// Offers all rows in `range`.
    fn offer_range(&mut self, scorer: &Scorer<'_>, range: Range<usize>) {
        scorer.score_range(range, |first, scores| {
            for (score, id) in scores.iter().zip(first as u64..) {
                self.offer(*score, id);
            }
        });
    }

    fn finish(mut self) -> Vec<Scored> {
        if self.k > 0 {
            self.prune();
        }
        self.found.retain(|row| row.id != KNOWN);
        self.found.sort_unstable_by(Scored::order);
        self.found
    }
}
