//! Options of a search, its hits, and the trait of its queries.

use super::codes::Codes;
use super::hamming::IdSet;
use super::ranking::{Queries, Ranking};
use crate::error::{Error, Result};
use std::cmp::Ordering;

/// A row that a search found: its id and its distance to the query.
///
/// Hits are sorted by distance, then by id. The meaning of the distance depends on the search:
///
/// | search | distance |
/// |---|---|
/// | [`Ranking::Hamming`] | number of bits that differ |
/// | [`Ranking::Asymmetric`] | negated signed sum of the query's projections |
/// | [`Ranking::Estimated`] | estimate of the squared Euclidean distance; it can be negative |
/// | re-ranked, and [`ExactSearch`](crate::ExactSearch) | squared Euclidean distance; for cosine, of the rows scaled to length 1 |
///
/// ```
/// use frosh::Hit;
/// let mut hits = vec![Hit { id: 7, distance: 2.0 }, Hit { id: 9, distance: 1.0 }, Hit { id: 3, distance: 2.0 }];
/// hits.sort();
/// assert_eq!(hits.iter().map(|hit| hit.id).collect::<Vec<_>>(), [9, 3, 7]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Hit {
    /// Row number in the codes, or id in an index.
    pub id: u64,
    /// Distance to the query; smaller is nearer.
    pub distance: f64,
}

impl Ord for Hit {
    fn cmp(&self, other: &Self) -> Ordering {
        self.distance.total_cmp(&other.distance).then(self.id.cmp(&other.id))
    }
}

impl PartialOrd for Hit {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Hit {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Hit {}

/// Keeps the `k` nearest hits, sorted.
pub(crate) fn keep_nearest(hits: &mut Vec<Hit>, k: usize) {
    if k < hits.len() {
        if k > 0 {
            hits.select_nth_unstable(k - 1);
        }
        hits.truncate(k);
    }
    hits.sort_unstable();
}

/// Options of a search, the same for [`Codes`], [`MultiIndex`](crate::MultiIndex) and [`Index`](crate::Index).
///
/// A search returns one list of [`Hit`]s for each query, sorted by distance, then by id. A list is shorter than k if
/// fewer rows match.
///
/// ```
/// use frosh::{IdSet, Ranking, Search};
/// # use frosh::{Config, Rows, Sketcher};
/// # let values: Vec<f32> = (0..3200).map(|i| ((i * 7919) % 113) as f32).collect();
/// # let rows = Rows::new(&values, 32)?;
/// # let mut sketcher = Sketcher::new(Config::new(32).sketch_rows(32))?;
/// # sketcher.push(rows)?;
/// # let hasher = sketcher.finish().hasher(16)?;
/// # let codes = hasher.encode(rows)?;
/// let queries = hasher.queries(rows.slice(0..2))?;
/// let even: IdSet = (0..100).step_by(2).collect();
/// let hits = codes.search(&queries, &Search::nearest(5).ranking(Ranking::Asymmetric).filter(&even))?;
/// assert!(hits.iter().all(|list| list.len() == 5 && list.iter().all(|hit| hit.id % 2 == 0)));
///
/// let near = codes.search(&queries, &Search::within(3))?;
/// assert!(near[0].iter().all(|hit| hit.distance <= 3.0));
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Search<'a> {
    pub(crate) k: usize,
    pub(crate) radius: Option<u32>,
    pub(crate) ranking: Option<Ranking>,
    pub(crate) filter: Option<&'a IdSet>,
    pub(crate) rerank: Option<usize>,
    pub(crate) scan_only: bool,
    pub(crate) probe: Option<usize>,
    pub(crate) mix_versions: bool,
    /// For each query, hits that are known from elsewhere. If there are k of them, rows that are not among the k best
    /// together with them may be left out. Hamming searches ignore it.
    pub(crate) known: Option<&'a [Vec<Hit>]>,
}

impl<'a> Search<'a> {
    /// Finds the `k` nearest rows for each query; none for k = 0.
    pub fn nearest(k: usize) -> Self {
        Self {
            k,
            radius: None,
            ranking: None,
            filter: None,
            rerank: None,
            scan_only: false,
            probe: None,
            mix_versions: false,
            known: None,
        }
    }

    /// Finds all rows whose code differs from the query's in at most `radius` bits.
    pub fn within(radius: u32) -> Self {
        Self::nearest(usize::MAX).radius(radius)
    }

    /// Limits the search to rows whose code differs from the query's in at most `bits` bits. It needs
    /// [`Ranking::Hamming`], which then is the default.
    pub fn radius(mut self, bits: u32) -> Self {
        self.radius = Some(bits);
        self
    }

    /// Sets how codes are compared with queries. By default queries that are [`Codes`] are compared by Hamming
    /// distance, and [`Queries`] by the ranking that their model chose ([`Hasher::ranking`](crate::Hasher::ranking)). If
    /// that is [`Ranking::Estimated`] and the codes have no factors, it is [`Ranking::Asymmetric`].
    pub fn ranking(mut self, ranking: Ranking) -> Self {
        self.ranking = Some(ranking);
        self
    }

    /// Limits the search to these ids. Ids that do not exist are ignored.
    pub fn filter(mut self, ids: &'a IdSet) -> Self {
        self.filter = Some(ids);
        self
    }

    /// Re-ranks `candidates` * k candidates by the exact distance of their stored vectors; 0 keeps the order by codes. By
    /// default an [`Index`](crate::Index) that stores vectors uses the number that its model predicts
    /// ([`Hasher::oversample`](crate::Hasher::oversample)). [`Codes`] have no vectors: use [`Rerank`](crate::Rerank).
    pub fn rerank(mut self, candidates: usize) -> Self {
        self.rerank = Some(candidates);
        self
    }

    /// Never builds hash tables. By default a large batch of Hamming queries builds a temporary
    /// [`MultiIndex`](crate::MultiIndex) if a trial on its first queries shows that this is faster. The tables take about 4
    /// bytes a row for each 24 bits of a code. The hits are the same.
    pub fn scan_only(mut self) -> Self {
        self.scan_only = true;
        self
    }

    /// Searches only the `cells` cells of a [`Quantizer`](crate::Quantizer) that are best for each query, of 256. This
    /// is faster and may miss neighbours. By default all cells are searched, and the hits are exact by the estimated
    /// distances. Fewer than 4,096 codes are always searched whole.
    pub fn probe(mut self, cells: usize) -> Self {
        self.probe = Some(cells);
        self
    }

    /// Allows rankings other than [`Ranking::Estimated`] in an [`Index`](crate::Index) with several versions, without
    /// re-ranking. Hamming and asymmetric distances of different models are not comparable: the hits of one model may hide
    /// nearer rows of another. By default such a search is an error.
    pub fn mix_versions(mut self) -> Self {
        self.mix_versions = true;
        self
    }

    /// The smallest Hamming distance that is outside the radius.
    pub(crate) fn limit(&self) -> u32 {
        self.radius.map_or(u32::MAX, |radius| radius.saturating_add(1))
    }

    /// The ranking of this search. `model` is the ranking that the model of the queries chose, or `None` for queries
    /// without projections. `factors` says whether the codes have factors.
    pub(crate) fn ranking_of(&self, model: Option<Ranking>, factors: bool) -> Result<Ranking> {
        let default = match (self.radius, model, factors) {
            (Some(_), ..) | (None, None, _) => Ranking::Hamming,
            (None, Some(Ranking::Estimated), false) => Ranking::Asymmetric,
            (None, Some(ranking), _) => ranking,
        };
        let ranking = self.ranking.unwrap_or(default);
        if let Some(radius) = self.radius
            && ranking != Ranking::Hamming
        {
            let why = format!("a radius counts bits that differ, the {ranking} ranking does not");
            return Err(Error::setting("radius", radius as usize, why));
        }
        if ranking != Ranking::Hamming && model.is_none() {
            return Err(Error::Ranking {
                ranking: ranking.as_str(),
                needs: "the projections of queries, and these are codes",
                advice: "make the queries with Hasher::queries",
            });
        }
        Ok(ranking)
    }

    /// Fails if cells are to be probed and the codes have none. `cells` says whether they have.
    pub(crate) fn check_probe(&self, cells: bool) -> Result<()> {
        match self.probe {
            Some(0) => Err(Error::setting("probe", 0, "a search needs at least one cell")),
            Some(probe) if !cells => {
                let why = "sign bits have no cells: only codes of a quantiser (bytes) have";
                Err(Error::setting("probe", probe, why))
            }
            _ => Ok(()),
        }
    }

    /// Fails if re-ranking is requested: codes have no vectors.
    pub(crate) fn check_no_rerank(&self) -> Result<()> {
        match self.rerank {
            None | Some(0) => Ok(()),
            Some(candidates) => {
                let why = "codes have no vectors to re-rank by: use Rerank, or an index that stores vectors";
                Err(Error::setting("rerank", candidates, why))
            }
        }
    }
}

/// The types that can be queries: [`Codes`], which are compared by Hamming distance, and [`Queries`], which work with
/// every [`Ranking`]. The trait is sealed.
pub trait QuerySet: sealed::QuerySet {}

impl<T: sealed::QuerySet> QuerySet for T {}

mod sealed {
    use super::*;

    pub trait QuerySet {
        fn query_codes(&self) -> &Codes;
        fn projected(&self) -> Option<&Queries>;
    }

    impl QuerySet for Codes {
        fn query_codes(&self) -> &Codes {
            self
        }
        fn projected(&self) -> Option<&Queries> {
            None
        }
    }

    impl QuerySet for Queries {
        fn query_codes(&self) -> &Codes {
            self.codes()
        }
        fn projected(&self) -> Option<&Queries> {
            Some(self)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::codes::HasherId;

    #[test]
    fn hits_are_ordered_by_distance_then_by_id() {
        let hit = |distance, id| Hit { id, distance };
        let mut hits = vec![hit(1.0, 5), hit(-2.0, 9), hit(1.0, 2), hit(0.5, 7)];
        let sorted = [hit(-2.0, 9), hit(0.5, 7), hit(1.0, 2), hit(1.0, 5)];
        for k in [0, 1, 3, 4, 9] {
            let mut nearest = hits.clone();
            keep_nearest(&mut nearest, k);
            assert_eq!(nearest, sorted[..k.min(4)]);
        }
        hits.sort();
        assert_eq!(hits, sorted);
    }

    #[test]
    fn the_default_ranking_is_the_models_if_the_codes_have_what_it_needs() {
        let search = Search::nearest(3);
        let default = |model, factors| search.ranking_of(model, factors).unwrap();
        let (estimated, asymmetric) = (Some(Ranking::Estimated), Some(Ranking::Asymmetric));
        assert_eq!(default(None, false), Ranking::Hamming);
        assert_eq!(default(None, true), Ranking::Hamming);
        assert_eq!(default(estimated, false), Ranking::Asymmetric);
        assert_eq!(default(estimated, true), Ranking::Estimated);
        assert_eq!(default(asymmetric, true), Ranking::Asymmetric);
        assert_eq!(Search::within(3).ranking_of(estimated, true).unwrap(), Ranking::Hamming);
    }

    #[test]
    fn options_that_do_not_fit_are_refused() {
        let codes = Codes::new(8, HasherId(1), vec![1, 2, 3]);
        let refused = |search: &Search<'_>| codes.search(&codes, search).unwrap_err().to_string();
        let said = refused(&Search::nearest(1).ranking(Ranking::Asymmetric));
        assert!(said.contains("Hasher::queries"), "{said}");
        let said = refused(&Search::within(1).ranking(Ranking::Estimated));
        assert!(said.contains("radius"), "{said}");
        let said = refused(&Search::nearest(1).rerank(4));
        assert!(said.contains("Rerank"), "{said}");
        assert_eq!(codes.search(&codes, &Search::nearest(1).rerank(0)).unwrap().len(), 3);
    }
}
