//! New versions: a new model for an index, and the rows that it encodes again.

use super::manifest::VersionFacts;
use super::rewrite::{Chosen, Coding, GivenCodes, rewrite};
use super::segment::Segment;
use super::version;
use super::writer::{IndexWriter, mark, number};
use super::{Index, Layout, disk};
use crate::error::{Error, Result};
use crate::hasher::estimator;
use crate::model::Model;
use crate::rows::{Element, Rows};
use crate::search::codes::HasherId;
use crate::search::hamming::IdSet;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Versions that [`IndexWriter::compact`] leaves. Each one costs a search a projection of the queries.
pub(super) const MOST_VERSIONS: usize = 10;

/// Rows that are being encoded again, by a new model or by the newest one.
///
/// [`IndexWriter::refresh`] and [`IndexWriter::fold`] start it. Nothing changes before [`Reencoding::commit`], which makes
/// the change at once. Rows are encoded from the vectors that the index stores. If it stores none, push the vectors of the
/// rows from where they came. Rows that need not be encoded again may be pushed too; they are ignored.
///
/// ```
/// use frosh::{Config, IndexWriter, Rows, Sketcher};
/// # let data: Vec<f32> = (0..6400).map(|i| ((i * 31 + i / 640) % 101) as f32).collect();
/// # let rows = Rows::new(&data, 32)?;
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path().join("index");
/// let mut sketcher = Sketcher::new(Config::new(32))?;
/// sketcher.push(rows.slice(0..100))?;
/// let mut writer = IndexWriter::create(&folder, &sketcher.sketch().hasher(16)?, true, None)?;
/// let mut new = writer.add();
/// new.push(rows.slice(0..100))?;
/// new.commit()?;
/// let mut new = writer.add();
/// new.push(rows.slice(100..200))?; // ids 100 to 199
/// new.commit()?;
///
/// sketcher.push(rows.slice(100..200))?;
/// let mut again = writer.refresh(&sketcher.finish().hasher(16)?)?;
/// assert_eq!((again.rows(), again.missing()), (100, 100)); // the rows since the first version
/// again.push_with_ids(rows.slice(100..200), &(100..200).collect::<Vec<u64>>())?;
/// assert_eq!(again.missing(), 0);
/// again.commit()?;
/// let rows_of: Vec<u64> = writer.index().versions().iter().map(|version| version.rows).collect();
/// assert_eq!(rows_of, [100, 100]);
/// # Ok::<(), frosh::Error>(())
/// ```
pub struct Reencoding<'w> {
    writer: &'w mut IndexWriter,
    model: Arc<Model>,
    layout: Layout,
    /// Whether the model becomes a new version.
    is_new: bool,
    /// The factors flag of the manifest after the change.
    factors: bool,
    /// The segments whose rows are encoded again, and their new codes from pushed vectors.
    chosen: BTreeMap<usize, Option<GivenCodes>>,
    keep_missing: bool,
    measured: Vec<(String, f64)>,
}

impl std::fmt::Debug for Reencoding<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reencoding({:?}, {} rows)", self.writer.index, self.rows())
    }
}

impl IndexWriter {
    /// Starts a new version: from now on `model` encodes the rows that are added. It also encodes the rows again that came
    /// since the last version was made. All other rows keep their codes and the model that made them. With the newest model
    /// itself, only rows are encoded again that an earlier refresh left to an older model ([`Reencoding::keep_missing`]).
    ///
    /// # Errors
    ///
    /// Fails if the model has another dimension or metric than the index, if it is the newest model and there are no such
    /// rows, or if it lacks the factors that the index stores.
    pub fn refresh(&mut self, model: impl Into<Model>) -> Result<Reencoding<'_>> {
        let (model, index) = (Arc::new(model.into()), &self.index);
        let refuse = |why: String| Err(Error::File { path: Some(index.folder.clone()), why });
        if let Err(why) = version::fits(index.model(), &model) {
            return refuse(format!("the new model {why}"));
        }
        // The newest model encodes rows that an earlier refresh left to an older one, because their vectors were missing.
        let is_new = model.id() != index.model().id();
        let since = |segment: &Segment| {
            !segment.facts.settled && (is_new || !segment.is_of(index.newest()))
        };
        let segments = index.segments.iter().enumerate();
        let chosen: BTreeMap<_, _> =
            segments.filter(|(_, segment)| since(segment)).map(|(s, _)| (s, None)).collect();
        if !is_new && chosen.is_empty() {
            return refuse(format!("{} is its newest model already", model.id()));
        }
        // The codes of quantisers hold what factors hold. So the first hasher among them decides.
        let only_quantizers = index.versions.iter().all(|v| v.layout.empty.is_quantized());
        let factors = index.manifest.factors || only_quantizers && model.has_factors();
        if factors && model.hasher().is_some() && !model.has_factors() {
            let advice = "fit the model from a sketch with a reservoir of rows";
            return Err(estimator::missing("the new model", advice));
        }
        let mut manifest = index.manifest.clone();
        manifest.factors = factors;
        let layout = version::layout(&model, &manifest);
        let estimates = layout.factors.is_some() || layout.empty.is_quantized();
        let comparable = estimates && index.versions.iter().all(|version| version.can_estimate());
        if !comparable && index.vectors().is_none() {
            return refuse(
                "has neither factors nor vectors, so rows of different models cannot be compared: build it again with \
                 factors"
                    .into(),
            );
        }
        let (keep_missing, measured) = (false, Vec::new());
        let writer = self;
        Ok(Reencoding { writer, model, layout, is_new, factors, chosen, keep_missing, measured })
    }

    /// Starts to fold old versions, so that at most `versions` are left: the newest model encodes their rows again. The
    /// versions with the worst [`IndexVersion::sample_map`](crate::IndexVersion::sample_map) are folded first. Nothing is
    /// chosen if there are not more versions than that.
    pub fn fold(&mut self, versions: usize) -> Reencoding<'_> {
        let index = &self.index;
        let (newest, old) = (index.newest(), &index.versions[..index.versions.len() - 1]);
        // Worst first. A version that was never measured comes first of all, and of equal ones the oldest.
        let mut order: Vec<_> = old.iter().collect();
        order.sort_by_key(|version| version.facts.sample_map);
        let too_many = index.versions.len().saturating_sub(versions.max(1));
        let folded = &order[..too_many.min(order.len())];
        let of_folded = |segment: &Segment| folded.iter().any(|version| segment.is_of(version));
        let segments = index.segments.iter().enumerate();
        let chosen = segments.filter(|(_, segment)| of_folded(segment)).map(|(s, _)| (s, None));
        let chosen = chosen.collect();
        let (model, layout) = (Arc::clone(&newest.model), index.layout.clone());
        let factors = index.manifest.factors;
        let (keep_missing, measured, is_new) = (false, Vec::new(), false);
        Reencoding { writer: self, model, layout, is_new, factors, chosen, keep_missing, measured }
    }
}

impl Reencoding<'_> {
    /// Sets whether rows whose vectors are neither stored nor pushed keep their codes and their model. The default is
    /// false: such rows are an error.
    pub fn keep_missing(mut self, keep: bool) -> Self {
        self.keep_missing = keep;
        self
    }

    /// Records the mean average precision of models on a sample ([`IndexWriter::fold`] uses it).
    pub fn measured(mut self, maps: impl IntoIterator<Item = (HasherId, f64)>) -> Self {
        self.measured.extend(maps.into_iter().map(|(id, map)| (id.to_string(), map)));
        self
    }

    /// Number of rows to encode again.
    pub fn rows(&self) -> u64 {
        self.chosen.keys().map(|s| self.writer.index.segments[*s].len()).sum()
    }

    /// Number of these rows whose vectors are neither stored nor pushed so far.
    pub fn missing(&self) -> u64 {
        let index = &self.writer.index;
        let left = |(s, given): (&usize, &Option<GivenCodes>)| {
            let segment = &index.segments[*s];
            segment.len() - available(index, segment, given.as_ref()).len()
        };
        self.chosen.iter().map(left).sum()
    }

    /// Encodes the rows with these ids again. Rows that are not chosen are ignored.
    ///
    /// # Errors
    ///
    /// Fails if the numbers of ids and rows differ, if the rows have another dimension than the model, if a value is not
    /// finite or too large, if the ids of the index are names, or if its ids are damaged.
    pub fn push_with_ids<T: Element>(&mut self, rows: Rows<'_, T>, ids: &[u64]) -> Result<()> {
        self.writer.index.check_kind(false)?;
        self.push(rows, ids.len(), |segment, i| Ok(segment.find(ids[i])))
    }

    /// Encodes the rows with these names again. Rows that are not chosen are ignored.
    ///
    /// # Errors
    ///
    /// Fails as [`Reencoding::push_with_ids`], or if the ids of the index are whole numbers.
    pub fn push_with_names<T: Element, S: AsRef<str>>(
        &mut self,
        rows: Rows<'_, T>,
        names: &[S],
    ) -> Result<()> {
        self.writer.index.check_kind(true)?;
        self.push(rows, names.len(), |segment, i| segment.find_name(names[i].as_ref(), true))
    }

    fn push<T: Element>(
        &mut self,
        rows: Rows<'_, T>,
        ids: usize,
        find: impl Fn(&Segment, usize) -> Result<Option<usize>>,
    ) -> Result<()> {
        if ids != rows.len() {
            let why = format!("there are {ids} ids: give one for each row");
            return Err(Error::setting("rows", rows.len(), why));
        }
        let (index, layout) = (&self.writer.index, &self.layout);
        let mut codes = None;
        for (s, given) in &mut self.chosen {
            let segment = &index.segments[*s];
            segment.arrays.verify_ids(&crate::Pool::current())?;
            for i in 0..rows.len() {
                let Some(row) = find(segment, i)? else { continue };
                // Encoded at the first row that is chosen: a source may have many batches without one.
                let codes = match &mut codes {
                    Some(codes) => codes,
                    none => none.insert(match layout.factors {
                        Some(_) => self.model.encode_with_factors(rows)?,
                        None => self.model.encode(rows)?,
                    }),
                };
                let all = segment.arrays.ids.len();
                given.get_or_insert_with(|| GivenCodes::new(all, layout)).set(row, codes, i);
            }
        }
        Ok(())
    }

    /// Makes the change. Returns the number of rows that were encoded again.
    ///
    /// # Errors
    ///
    /// Fails if the vectors of rows are missing and [`Reencoding::keep_missing`] is not set, if a file of these rows is
    /// damaged (all checksums are verified first), or if a file cannot be written. Then the index is unchanged.
    pub fn commit(self) -> Result<u64> {
        let missing = self.missing();
        if missing > 0 && !self.keep_missing {
            return Err(self.writer.index.no_vectors(missing));
        }
        let Self { writer, model, layout, is_new, factors, chosen, measured, .. } = self;
        if !is_new && chosen.is_empty() {
            return Ok(0);
        }
        let mut encoded = 0;
        writer.change(|index, manifest, journal| {
            let segments = || chosen.keys().map(|s| &index.segments[*s]);
            index.check_segments(segments())?;
            if is_new {
                let number = number(&index.folder, &mut manifest.next_number)?;
                let facts = VersionFacts {
                    model: model.id().to_string(),
                    number: Some(number),
                    sample_map: None,
                };
                let name = facts.file();
                journal.add([name.clone()])?;
                disk::write_new(&index.folder.join(name), &model.to_bytes())?;
                manifest.factors = factors;
                manifest.add_version(facts);
            }
            for (id, map) in measured {
                let of = manifest.versions.iter_mut().find(|version| version.model == id);
                of.into_iter().for_each(|version| version.set_map(map));
            }
            let mut parts = Vec::new();
            // Segments that are replaced as a whole, and rows that leave the others.
            let (mut replaced, mut left) = (BTreeSet::new(), BTreeMap::new());
            for (s, given) in &chosen {
                let (segment, given) = (&index.segments[*s], given.as_ref());
                let rows = available(index, segment, given);
                encoded += rows.len();
                if rows.len() == segment.len() {
                    replaced.insert(*s);
                } else if !rows.is_empty() {
                    left.insert(*s, rows.clone());
                }
                parts.push(Chosen { segment, rows, given });
            }
            let new = rewrite(index, manifest, journal, &parts, &Coding::Again(&model, &layout))?;
            mark(index, manifest, journal, left)?;
            let mut s = 0..;
            manifest.segments.retain(|_| s.next().is_none_or(|s| !replaced.contains(&s)));
            let named = manifest.model_of_new();
            manifest.segments.extend(new.into_iter().map(|facts| super::manifest::SegmentFacts {
                model: named.clone(),
                settled: true,
                ..facts
            }));
            Ok(())
        })?;
        Ok(encoded)
    }
}

/// The rows of a segment whose vectors are stored or were pushed.
fn available(index: &Index, segment: &Segment, given: Option<&GivenCodes>) -> IdSet {
    match (index.vectors(), given) {
        (Some(_), _) => segment.live_rows(),
        (None, Some(given)) => given.rows.clone(),
        (None, None) => IdSet::new(),
    }
}
