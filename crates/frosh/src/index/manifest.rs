//! `index.json`: which files make up an index. It is replaced as a whole, after everything that it names is on
//! disk; so what it says is always true, whenever the writer was stopped.

use super::{StoredVectors, disk};
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;

/// Name of the file.
pub(super) const NAME: &str = "index.json";
const FORMAT: &str = "frosh-index";
/// The version written, and the newest that is read.
const VERSION: u64 = 1;
/// No index has so many segments that its manifest would be longer.
const LONGEST: u64 = 1 << 28;

/// What an index is made of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Manifest {
    /// Grows by one with every change.
    pub(super) generation: u64,
    /// Id of the hasher in `model.frosh`.
    pub(super) model: String,
    /// Whether codes have factors.
    pub(super) factors: bool,
    /// How vectors are kept, if they are.
    pub(super) vectors: Option<StoredVectors>,
    /// The id of the next row that is added without one; none when they are used up.
    pub(super) next_id: Option<u64>,
    /// The number of the next file.
    pub(super) next_number: u64,
    pub(super) segments: Vec<SegmentFacts>,
}

/// A segment: rows that were added together, in the order of their ids.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SegmentFacts {
    /// What its files are called after.
    pub(super) number: u64,
    pub(super) rows: u64,
    /// The first id, where they count up by one; else they are in a file.
    pub(super) first_id: Option<u64>,
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
    /// Of the file that has the checksums of the arrays' blocks; none where every array is one block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) blocks: Option<String>,
}

impl Checksums {
    /// The checksum of the array that is called so.
    pub(super) fn of(&self, name: &str) -> Option<&String> {
        match name {
            "codes" => Some(&self.codes),
            "factors" => self.factors.as_ref(),
            "ids" => self.ids.as_ref(),
            "vectors" => self.vectors.as_ref(),
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
        let read = file.take(LONGEST + 1).read_to_end(&mut text);
        read.map_err(|source| Error::Io { path: path.clone(), source })?;
        if text.len() as u64 > LONGEST {
            return Err(wrong(format!("is longer than {LONGEST} bytes: it is damaged")));
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

    /// The numbers of all files that count.
    pub(super) fn numbers(&self) -> BTreeSet<u64> {
        let removed = |facts: &SegmentFacts| facts.removed.as_ref().map(|removed| removed.number);
        self.segments
            .iter()
            .flat_map(|facts| [Some(facts.number), removed(facts)])
            .flatten()
            .collect()
    }

    /// Replaces the manifest; when this returns, readers find the new one. It is written under the name
    /// `temporary` first. After an error they find the old one.
    pub(super) fn save(&self, folder: &Path, temporary: &str) -> Result<()> {
        let path = folder.join(NAME);
        let failed = |source: std::io::Error| Error::Io { path: path.clone(), source };
        let content = serde_json::to_value(self).map_err(|e| failed(e.into()))?;
        let checksum = super::column::checksum(content.to_string().as_bytes());
        let envelope = Envelope { format: FORMAT.into(), version: VERSION, checksum, content };
        let mut text = serde_json::to_vec_pretty(&envelope).map_err(|e| failed(e.into()))?;
        text.push(b'\n');
        let temporary = folder.join(temporary);
        disk::write_new(&temporary, &text)?;
        let renamed = disk::rename(&temporary, &path);
        // A file server may have done what it reports as failed.
        renamed.or_else(|error| match Self::load(folder) {
            Ok(there) if there.generation == self.generation => Ok(()),
            _ => Err(error),
        })
    }
}
