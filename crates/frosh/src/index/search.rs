//! Searching an index: the codes of every segment, and re-ranking by stored vectors.

use super::version::Version;
use super::{Index, StoredVectors};
use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::rows::{Element, Rows};
use crate::search::options::{Hit, Search, keep_nearest};
use crate::search::ranking::{Queries, Ranking};
use crate::search::rerank::Rerank;

impl Index {
    /// Finds the `k` nearest rows for each query: [`Index::search`] with default options.
    ///
    /// # Errors
    ///
    /// As [`Index::search`].
    pub fn nearest<T: Element>(&self, queries: Rows<'_, T>, k: usize) -> Result<Vec<Vec<Hit>>> {
        self.search(queries, &Search::nearest(k))
    }

    /// Searches the index. Returns one list of hits for each query vector, sorted by distance, then by id. If the index
    /// stores vectors, the candidates are re-ranked by exact distance ([`Search::rerank`]).
    ///
    /// If the index has several versions ([`Index::versions`]), the queries are projected once for each model. The rows of
    /// a model are compared with its projections, and the hits of all models are merged by estimated or exact distance.
    ///
    /// ```
    /// use frosh::{IdSet, Ranking, Search};
    /// # use frosh::{Config, IndexWriter, Rows, Sketcher};
    /// # let data: Vec<f32> = (0..6400).map(|i| ((i * 31) % 101) as f32).collect();
    /// # let rows = Rows::new(&data, 32)?;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path().join("index");
    /// # let mut sketcher = Sketcher::new(Config::new(32))?;
    /// # sketcher.push(rows)?;
    /// # let hasher = sketcher.finish().hasher(16)?;
    /// # let mut writer = IndexWriter::create(&folder, &hasher, true, None)?;
    /// # let mut new = writer.add();
    /// # new.push(rows)?;
    /// # new.commit()?;
    /// # let index = writer.index();
    /// let ids: IdSet = (100..150).collect();
    /// let search = Search::nearest(5).ranking(Ranking::Estimated).filter(&ids);
    /// let hits = index.search(rows.slice(0..3), &search)?;
    /// assert!(hits.iter().flatten().all(|hit| (100..150).contains(&hit.id)));
    /// # Ok::<(), frosh::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the queries have another dimension than the model or a value that is not finite or too large, if an
    /// option needs factors or vectors that the index does not store, if a radius is combined with a ranking other than
    /// Hamming, if several versions are ranked neither by estimated nor by exact distance (see
    /// [`Search::mix_versions`]), or if an array that the search reads is damaged.
    pub fn search<T: Element>(
        &self,
        queries: Rows<'_, T>,
        search: &Search<'_>,
    ) -> Result<Vec<Vec<Hit>>> {
        let live = self.live();
        let oversample = match search.rerank {
            Some(candidates) => candidates,
            None if search.radius.is_some() || self.layout.vectors.is_none() => 0,
            None => live.iter().map(|version| version.model.oversample()).max().unwrap_or(0),
        };
        let ranking = search.ranking_of(Some(self.ranking()), self.can_estimate())?;
        // Only estimates of the distance mean the same for codes of different models.
        let comparable = live.len() <= 1 || ranking == Ranking::Estimated;
        if !comparable && oversample == 0 && !search.mix_versions {
            return Err(Error::Ranking {
                ranking: ranking.as_str(),
                needs: "codes of one model, and this index has several versions",
                advice: "use the estimated ranking, or re-rank by stored vectors. To compare such codes all the same, \
                         set Search::mix_versions (--mix-versions)",
            });
        }
        let projected = live
            .iter()
            .map(|version| Ok((&***version, version.model.queries(queries)?)))
            .collect::<Result<Vec<_>>>()?;
        let search = Search { ranking: Some(ranking), ..search.clone() };
        if oversample == 0 {
            return self.by_codes(&projected, &search);
        }
        if self.layout.vectors.is_none() {
            let why = "stores no vectors, which exact distances need: build it with them".into();
            return Err(Error::File { path: Some(self.folder.clone()), why });
        }
        let wide = Search { k: search.k.saturating_mul(oversample), ..search.clone() };
        let candidates = if comparable {
            self.by_codes(&projected, &wide)?
        } else {
            // The exact distances decide. So each version has as many candidates as an index of its own would have.
            let mut all = vec![Vec::new(); queries.len()];
            for one in projected.chunks(1) {
                let found = self.by_codes(one, &wide)?;
                all.iter_mut().zip(found).for_each(|(all, found)| all.extend(found));
            }
            all
        };
        let pool = Pool::current();
        if self.verify {
            self.segments.iter().try_for_each(|segment| segment.arrays.verify_ids(&pool))?;
        }
        let mut rerank = Rerank::new(queries, self.model().metric(), &candidates)?;
        rerank.fetch(&pool, |id, out| self.vector(id, out))?;
        Ok(rerank.finish(search.k))
    }

    /// Searches the codes of the segments of some versions, without re-ranking.
    fn by_codes(
        &self,
        versions: &[(&Version, Queries)],
        search: &Search<'_>,
    ) -> Result<Vec<Vec<Hit>>> {
        let estimated = search.ranking == Some(Ranking::Estimated);
        let queries = versions.first().map_or(0, |(_, queries)| queries.len());
        let mut all = vec![Vec::new(); queries];
        for segment in &self.segments {
            let of_segment = versions.iter().find(|(version, _)| segment.is_of(version));
            let Some((_, queries)) = of_segment else { continue };
            let arrays = &segment.arrays;
            if self.verify {
                arrays.verify(&Pool::current(), estimated)?;
            }
            let allowed = segment.allowed(search.filter);
            let filter = allowed.as_deref();
            // The k best so far prune rows of this segment.
            let here = Search { rerank: None, filter, known: Some(&all), ..search.clone() };
            let found = arrays.codes.search(queries, &here)?;
            for (all, found) in all.iter_mut().zip(found) {
                let with_id = |hit: Hit| Hit { id: arrays.ids.of(hit.id as usize), ..hit };
                all.extend(found.into_iter().map(with_id));
                if all.len() > search.k {
                    keep_nearest(all, search.k);
                }
            }
        }
        all.iter_mut().for_each(|hits| keep_nearest(hits, search.k));
        Ok(all)
    }

    /// Writes the stored vector of an id to `out`. Returns false if there is none.
    fn vector(&self, id: u64, out: &mut [f64]) -> Result<bool> {
        let place = self.segments.iter().find_map(|s| Some((&s.arrays, s.find(id)?)));
        let (Some((arrays, row)), Some(stored)) = (place, self.layout.vectors) else {
            return Ok(false);
        };
        let width = stored.form(out.len()).width();
        let Some(bytes) = arrays.vector(row, width, self.verify)? else { return Ok(false) };
        match stored {
            StoredVectors::F32 => {
                for (out, bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
                    *out = f32::from_le_bytes(*bytes).into();
                }
            }
            StoredVectors::F16 => {
                for (out, bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
                    *out = half::f16::from_le_bytes(*bytes).into();
                }
            }
        }
        Ok(true)
    }
}
