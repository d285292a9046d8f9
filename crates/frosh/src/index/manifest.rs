//! `index.json`, the manifest: lists the files of an index. It is replaced atomically, after all files that it lists are on
//! disk. So it is valid whenever a writer is stopped.

use super::{StoredVectors, disk};
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;

/// Name of the file.
pub(super) const NAME: &str = "index.json";
const FORMAT: &str = "frosh-index";
/// The newest version that is read.
const VERSION: u64 = 3;
/// The version of an index with names, and of one with several models or a learner.
const WITH_NAMES: u64 = 2;
const WITH_MODELS: u64 = 3;
/// Largest size of a manifest. No index has so many segments that its manifest is longer.
const MAX_BYTES: u64 = 1 << 28;

/// The content of `index.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    /// Incremented by each change.
    pub(super) generation: u64,
    /// Id of the newest model, which encodes new rows.
    pub(super) model: String,
    /// The models, oldest first; empty if there is one, in `model.frosh`. A program that does not know this list would
    /// search rows with a model that did not encode them; so an index that has it is of version 3.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) versions: Vec<VersionFacts>,
    /// Whether codes have factors.
    pub(super) factors: bool,
    /// The precision of the stored vectors, if there are any.
    pub(super) vectors: Option<StoredVectors>,
    /// Whether the ids of the rows are names. Version 1 has no names, and a program that knows only that version would
    /// lose them; so an index with names is of version 2.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) names: bool,
    /// The learner that is saved with the rows. A program that does not know it would lose it; so an index that has one is
    /// of version 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) learner: Option<LearnerFacts>,
    /// The next automatic id; `None` when the largest id is in use.
    pub(super) next_id: Option<u64>,
    /// The number of the next file.
    pub(super) next_number: u64,
    pub(super) segments: Vec<SegmentFacts>,
}

/// A model of the index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct VersionFacts {
    /// Its id.
    pub(super) model: String,
    /// The number in the name of its file; `None` for `model.frosh`.
    pub(super) number: Option<u64>,
    /// Mean average precision on the sample of the last refresh, in millionths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sample_map: Option<u32>,
}

impl VersionFacts {
    /// Mean average precision on the sample of the last refresh.
    pub(super) fn map(&self) -> Option<f64> {
        self.sample_map.map(|millionths| f64::from(millionths) / 1e6)
    }

    pub(super) fn set_map(&mut self, map: f64) {
        self.sample_map = Some((map.clamp(0.0, 1.0) * 1e6).round() as u32);
    }
}

/// A file with the state of a learner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LearnerFacts {
    /// The number in the name of its file.
    pub(super) number: u64,
    /// Rows that it has seen.
    pub(super) rows: u64,
}

/// A segment: rows that were added together, in the order of their ids.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SegmentFacts {
    /// The number in the names of its files.
    pub(super) number: u64,
    pub(super) rows: u64,
    /// The first id, if the ids are consecutive. Otherwise `None`: the ids are in a file.
    pub(super) first_id: Option<u64>,
    /// Id of the model that encoded it; `None` if the index has a single model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<String>,
    /// Whether the next version leaves these rows as they are: they were there when their version was made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) settled: bool,
    /// Bytes of all names, if the rows have names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) name_bytes: Option<u64>,
    pub(super) checksums: Checksums,
    pub(super) removed: Option<Removed>,
}

/// Checksums of a segment's arrays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Checksums {
    pub(super) codes: String,
    pub(super) factors: Option<String>,
    pub(super) ids: Option<String>,
    pub(super) vectors: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) names: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) name_ends: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) name_lookup: Option<String>,
    /// Checksum of the file of block checksums; `None` if every array is a single block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) blocks: Option<String>,
}

impl Checksums {
    /// The checksum of an array by its name.
    pub(super) fn of(&self, name: &str) -> Option<&String> {
        match name {
            "codes" => Some(&self.codes),
            "factors" => self.factors.as_ref(),
            "ids" => self.ids.as_ref(),
            "vectors" => self.vectors.as_ref(),
            "names" => self.names.as_ref(),
            "name_ends" => self.name_ends.as_ref(),
            "name_lookup" => self.name_lookup.as_ref(),
            _ => None,
        }
    }
}

/// A file of row numbers that were removed from a segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Removed {
    pub(super) number: u64,
    pub(super) rows: u64,
    pub(super) checksum: String,
}

#[derive(Serialize, Deserialize)]
struct Envelope {
    format: String,
    version: u64,
    checksum: String,
    content: serde_json::Value,
}

impl Manifest {
    pub(super) fn load(folder: &Path) -> Result<Self> {
        let path = folder.join(NAME);
        let wrong = |why: String| Error::File { path: Some(path.clone()), why };
        let file = std::fs::File::open(&path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound if folder.is_dir() => Error::File {
                path: Some(folder.to_owned()),
                why: "is no index: it has no index.json (was its building cut short?); build it"
                    .into(),
            },
            _ => Error::Io { path: folder.to_owned(), source },
        })?;
        let mut text = Vec::new();
        let read = file.take(MAX_BYTES + 1).read_to_end(&mut text);
        read.map_err(|source| Error::Io { path: path.clone(), source })?;
        if text.len() as u64 > MAX_BYTES {
            return Err(wrong(format!("is longer than {MAX_BYTES} bytes: it is damaged")));
        }
        let damaged = |e: serde_json::Error| wrong(format!("is damaged ({e})"));
        let envelope: Envelope = serde_json::from_slice(&text).map_err(damaged)?;
        if envelope.format != FORMAT {
            return Err(wrong(format!("is of format {:?}, expected {FORMAT:?}", envelope.format)));
        }
        if !(1..=VERSION).contains(&envelope.version) {
            return Err(wrong(format!(
                "is of version {}, and this frosh reads up to version {VERSION}: use a newer frosh",
                envelope.version
            )));
        }
        if super::column::checksum(envelope.content.to_string().as_bytes()) != envelope.checksum {
            return Err(wrong("its checksum does not fit its content: it is damaged".into()));
        }
        serde_json::from_value(envelope.content).map_err(damaged)
    }

    /// The numbers of all listed files.
    pub(super) fn numbers(&self) -> BTreeSet<u64> {
        let removed = |facts: &SegmentFacts| facts.removed.as_ref().map(|removed| removed.number);
        let segments = self.segments.iter().flat_map(|facts| [Some(facts.number), removed(facts)]);
        let models = self.versions.iter().map(|version| version.number);
        let learner = self.learner.iter().map(|learner| Some(learner.number));
        segments.chain(models).chain(learner).flatten().collect()
    }

    /// Whether `model.frosh` is a file of the index.
    pub(super) fn has_first_model(&self) -> bool {
        self.all_versions().iter().any(|version| version.number.is_none())
    }

    /// The models, oldest first.
    pub(super) fn all_versions(&self) -> Vec<VersionFacts> {
        match &self.versions[..] {
            [] => vec![VersionFacts { model: self.model.clone(), number: None, sample_map: None }],
            versions => versions.to_vec(),
        }
    }

    /// Adds a model, which encodes new rows from now on. From now on segments name their models.
    pub(super) fn add_version(&mut self, new: VersionFacts) {
        let mut versions = self.all_versions();
        for segment in &mut self.segments {
            segment.model.get_or_insert_with(|| self.model.clone());
        }
        self.model.clone_from(&new.model);
        versions.retain(|version| version.model != new.model);
        versions.push(new);
        self.versions = versions;
    }

    /// Drops the models that encoded no segment, except the newest.
    pub(super) fn drop_unused_versions(&mut self) {
        let used: BTreeSet<&String> =
            self.segments.iter().filter_map(|segment| segment.model.as_ref()).collect();
        let newest = &self.model;
        self.versions.retain(|version| version.model == *newest || used.contains(&version.model));
    }

    /// What new segments say about their model.
    pub(super) fn model_of_new(&self) -> Option<String> {
        (!self.versions.is_empty()).then(|| self.model.clone())
    }

    /// Replaces the manifest: writes it under the name `temporary`, then renames it. On success readers find the new
    /// manifest; on failure they find the old one.
    pub(super) fn save(&self, folder: &Path, temporary: &str) -> Result<()> {
        let path = folder.join(NAME);
        let failed = |source: std::io::Error| Error::Io { path: path.clone(), source };
        let content = serde_json::to_value(self).map_err(|e| failed(e.into()))?;
        let checksum = super::column::checksum(content.to_string().as_bytes());
        let version = match (self.versions.is_empty() && self.learner.is_none(), self.names) {
            (false, _) => WITH_MODELS,
            (true, true) => WITH_NAMES,
            (true, false) => 1,
        };
        let envelope = Envelope { format: FORMAT.into(), version, checksum, content };
        let mut text = serde_json::to_vec_pretty(&envelope).map_err(|e| failed(e.into()))?;
        text.push(b'\n');
        let temporary = folder.join(temporary);
        disk::write_new(&temporary, &text)?;
        let renamed = disk::rename(&temporary, &path);
        // A network file system may report a failure although it has renamed the file.
        renamed.or_else(|error| match Self::load(folder) {
            Ok(there) if there.generation == self.generation => Ok(()),
            _ => Err(error),
        })
    }
}
