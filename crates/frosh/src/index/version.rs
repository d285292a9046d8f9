//! The versions of an index: the models that encoded its rows, oldest first. The newest one encodes rows that are added.
//!
//! A row is compared with queries of the model that encoded it, and with no others. Estimated distances of different
//! models estimate the same distance, so their hits can be merged.

use super::manifest::{self, Manifest, SegmentFacts, VersionFacts};
use super::segment::Segment;
use super::{Index, Layout, MODEL};
use crate::error::{Error, Result};
use crate::model::Model;
use crate::search::ranking::Ranking;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// A model, and the arrays of the rows that it encoded.
pub(super) struct Version {
    pub(super) facts: VersionFacts,
    pub(super) model: Arc<Model>,
    pub(super) layout: Layout,
}

impl Version {
    /// The name of its model file.
    pub(super) fn file(&self) -> String {
        self.facts.file()
    }

    /// Whether its codes can be ranked by estimated distance.
    pub(super) fn can_estimate(&self) -> bool {
        self.layout.factors.is_some() || self.layout.empty.is_quantized()
    }
}

impl VersionFacts {
    /// The name of the model file.
    pub(super) fn file(&self) -> String {
        match self.number {
            None => MODEL.into(),
            Some(number) => format!("{number:06}.{MODEL}"),
        }
    }
}

/// The arrays of the rows of a model in an index.
pub(super) fn layout(model: &Model, manifest: &Manifest) -> Layout {
    Layout {
        empty: model.no_codes(),
        dim: model.dim(),
        factors: manifest.factors.then(|| model.factor_bytes()).filter(|bytes| *bytes > 0),
        vectors: manifest.vectors,
        names: manifest.names,
    }
}

/// Loads the models that a manifest lists. Takes those that are loaded already from `before`.
pub(super) fn open(
    folder: &Path,
    manifest: &Manifest,
    before: Option<&Index>,
) -> Result<Vec<Arc<Version>>> {
    let mut versions: Vec<Arc<Version>> = Vec::new();
    for facts in manifest.all_versions() {
        let known = before.iter().flat_map(|index| &index.versions);
        let known = known.into_iter().find(|version| version.facts.model == facts.model);
        let path = folder.join(facts.file());
        let model = match known {
            Some(version) => Arc::clone(&version.model),
            None => Arc::new(Model::load(&path)?),
        };
        if model.id().to_string() != facts.model {
            let (got, want) = (model.id(), &facts.model);
            let why = format!("is model {got}, but the index was built with model {want}");
            return Err(Error::File { path: Some(path), why });
        }
        if let Some(first) = versions.first() {
            fits(&first.model, &model).map_err(|why| Error::File { path: Some(path), why })?;
        }
        let layout = layout(&model, manifest);
        versions.push(Arc::new(Version { facts, model, layout }));
    }
    let newest = versions.last().map(|version| &version.facts.model);
    if newest != Some(&manifest.model) {
        return Err(wrong(folder, "its newest version is not that of its model"));
    }
    Ok(versions)
}

/// Finds the version of each segment.
pub(super) struct ByModel<'a>(HashMap<&'a str, &'a Arc<Version>>);

impl<'a> ByModel<'a> {
    pub(super) fn new(versions: &'a [Arc<Version>]) -> Self {
        Self(versions.iter().map(|version| (&*version.facts.model, version)).collect())
    }

    /// The version that encoded a segment. Only an index with a single model has segments that do not name it.
    pub(super) fn of(&self, facts: &SegmentFacts, folder: &Path) -> Result<&'a Arc<Version>> {
        let found = match &facts.model {
            Some(model) => self.0.get(&**model).copied(),
            None if self.0.len() == 1 => self.0.values().next().copied(),
            None => None,
        };
        found.ok_or_else(|| {
            wrong(folder, &format!("it does not list the model of segment {}", facts.number))
        })
    }
}

fn wrong(folder: &Path, why: &str) -> Error {
    let path = Some(folder.join(manifest::NAME));
    Error::File { path, why: format!("contradicts itself: {why}; it is damaged") }
}

/// Whether two models can be versions of one index. Returns the reason if they cannot.
pub(super) fn fits(old: &Model, new: &Model) -> std::result::Result<(), String> {
    if old.dim() != new.dim() {
        let (old, new) = (old.dim(), new.dim());
        return Err(format!(
            "is a model for rows of {new} values, and those of the index have {old}"
        ));
    }
    if old.metric() != new.metric() {
        let (old, new) = (old.metric(), new.metric());
        return Err(format!("is a model for the metric {new}, and that of the index is {old}"));
    }
    Ok(())
}

/// A version of an index: a model, and how many rows it encoded. [`Index::versions`] lists them.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct IndexVersion<'a> {
    /// The model.
    pub model: &'a Model,
    /// Rows that it encoded, without removed ones.
    pub rows: u64,
    /// Those of them that came after the version was made. The next version encodes them again.
    pub rows_since: u64,
    /// Its mean average precision on the sample of the last refresh; `None` if that is not known.
    pub sample_map: Option<f64>,
}

impl Index {
    /// The versions of the index, oldest first. The last one encodes rows that are added.
    ///
    /// ```
    /// # use frosh::{Config, IndexWriter, Rows, Sketcher, StoredVectors};
    /// # let data: Vec<f32> = (0..6400).map(|i| ((i * 31) % 101) as f32).collect();
    /// # let rows = Rows::new(&data, 32)?;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path().join("index");
    /// # let mut sketcher = Sketcher::new(Config::new(32))?;
    /// # sketcher.push(rows)?;
    /// # let hasher = sketcher.finish().hasher(16)?;
    /// # let mut writer = IndexWriter::create(&folder, &hasher, true, Some(StoredVectors::F32))?;
    /// # let mut new = writer.add();
    /// # new.push(rows)?;
    /// # new.commit()?;
    /// let versions = writer.index().versions();
    /// assert_eq!((versions.len(), versions[0].rows), (1, 200));
    /// # Ok::<(), frosh::Error>(())
    /// ```
    pub fn versions(&self) -> Vec<IndexVersion<'_>> {
        let of = |version: &'_ Arc<Version>, wanted: &dyn Fn(&Segment) -> bool| {
            let segments = self.segments.iter().filter(|s| s.is_of(version) && wanted(s));
            segments.map(|segment| segment.len()).sum()
        };
        let version = |version: &'_ Arc<Version>| {
            (of(version, &|_| true), of(version, &|s| !s.facts.settled))
        };
        self.versions
            .iter()
            .map(|v| {
                let (rows, rows_since) = version(v);
                IndexVersion { model: &v.model, rows, rows_since, sample_map: v.facts.map() }
            })
            .collect()
    }

    /// The newest version.
    pub(super) fn newest(&self) -> &Arc<Version> {
        // A manifest lists at least one version.
        &self.versions[self.versions.len() - 1]
    }

    /// The versions that encoded rows of the index; the newest one if there are no rows.
    pub(super) fn live(&self) -> Vec<&Arc<Version>> {
        let has_rows = |version: &&Arc<Version>| {
            self.segments.iter().any(|segment| segment.is_of(version) && segment.len() > 0)
        };
        let live: Vec<_> = self.versions.iter().filter(has_rows).collect();
        if live.is_empty() { vec![self.newest()] } else { live }
    }

    /// Whether [`Ranking::Estimated`] works: every model that encoded rows has stored what it needs.
    pub fn can_estimate(&self) -> bool {
        self.live().iter().all(|version| version.can_estimate())
    }

    /// The ranking of a search that does not set one. With several models it is [`Ranking::Estimated`] where that works,
    /// because other distances of different models are not comparable.
    pub fn ranking(&self) -> Ranking {
        let live = self.live();
        match (self.can_estimate(), &live[..]) {
            (true, [_, _, ..]) => Ranking::Estimated,
            (false, [version]) if version.model.ranking() == Ranking::Estimated => {
                Ranking::Asymmetric
            }
            (_, [version, ..]) => version.model.ranking(),
            (_, []) => Ranking::Hamming,
        }
    }
}
