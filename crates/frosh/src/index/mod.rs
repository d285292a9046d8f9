//! Index folders: codes, ids and vectors on disk, for many readers and one writer at a time.
//!
//! | type | purpose |
//! |---|---|
//! | [`Index`] | opens a folder and searches it |
//! | [`IndexWriter`] | creates or opens a folder to add, remove and compact rows; holds its lock |
//! | [`NewRows`] | rows that are being added |
//! | [`Reencoding`] | a new version: rows that are being encoded again |
//! | [`IndexVersion`] | a model of the index, and how many rows it encoded |
//! | [`StoredVectors`] | the precision of stored vectors, which are used for re-ranking |
//!
//! | file | content |
//! |---|---|
//! | `index.json` | the manifest: lists the other files; each change replaces it |
//! | `model.frosh`, `000003.model.frosh` | the first [`Model`], and one of a later version |
//! | `000001.codes.npy`, `.factors.npy`, `.ids.npy`, `.vectors.npy` | a segment: rows that were added together |
//! | `000001.names.npy`, `.name_ends.npy`, `.name_lookup.npy` | the names of a segment's rows, if ids are text |
//! | `000002.removed` | the rows of a segment that were removed (a Roaring bitmap) |
//! | `000001.checksums.npy` | checksums of the blocks of a segment's arrays, if an array has several blocks |
//! | `000004.sketcher` | the state of a learner ([`NewRows::learned`]) |
//! | `lock` | locked by the writer |
//! | `journal` | the files that a running writer creates and removes |
//!
//! # Changes are atomic
//!
//! A writer writes and syncs the new files. Then it renames a new `index.json` into place. This rename is the change.
//! Files that `index.json` lists are never modified.
//!
//! - If a method of the writer fails, the index is unchanged. After the rename nothing is reported as an error. If the
//!   folder cannot be synced then, or an old file cannot be removed, the old files stay until the next writer removes them.
//!   So after a power failure, the files that the surviving `index.json` lists exist.
//! - If a writer is killed, the index is in the state before or after the change. The next writer removes the files that
//!   the killed one left behind.
//! - A reader sees the index as it was when it was opened, whatever a writer does meanwhile. To see later changes, open the
//!   index again.
//!
//! # Files of others are safe
//!
//! An index is created in a folder that is new or empty, or that holds only files that the `journal` of an unfinished build
//! lists. A writer removes only files that `index.json` or the journal lists. It never opens an existing file for writing,
//! except its lock and its journal.
//!
//! # Checksums
//!
//! Arrays are verified when a search or a writer first reads them: codes, factors and ids as a whole, vectors in blocks.
//! In an index from before block checksums, the first read of a vector verifies all vectors of its segment. Verification
//! costs one read of the data, once. [`Index::verify`] turns it off for readers. [`IndexWriter::compact`] verifies all
//! data before it rewrites them.
//!
//! # Ids
//!
//! Ids are 64-bit numbers that the caller chooses. Each id occurs at most once. Rows without ids are numbered in the order
//! in which they are added. Removing a row does not change other ids. Automatic ids are not reused.
//!
//! Ids may be text instead: see [`NewRows::push_with_names`]. All rows of an index have names, or none has. Rows with names
//! are numbered too, in the order in which they are added, and hits have these numbers. [`Index::name`] returns the name of
//! a number, and [`Index::find`] the number of a name. A row that replaces the row of the same name has a new number.
//!
//! # Versions
//!
//! Data change, and a model that was learned from old rows ranks new rows worse and worse. [`IndexWriter::refresh`]
//! adds a model. It encodes the rows that came since the last version again, and all rows that are added from then on.
//! Older rows keep their codes and their model, so a row is encoded twice at most. A search projects the queries once
//! for each model and merges the hits by estimated or exact distance. Codes of different models are never compared with
//! each other. [`IndexWriter::fold`] and [`IndexWriter::compact`] bound the number of versions.
//! [`drift`](crate::drift()) tells when a new model is due.
//!
//! # Cost
//!
//! Opening maps the files and reads the headers, the sets of removed rows and arrays of a few pages. A search costs as
//! much as on [`Codes`]. Removed rows cost as much as a filter, until [`IndexWriter::compact`].
//!
//! The paper does not describe an index on disk.
//!
//! # Example
//!
//! ```
//! use frosh::{Config, Index, IndexWriter, Rows, Sketcher};
//! # let data: Vec<f32> = (0..6400).map(|i| ((i * 31) % 101) as f32).collect();
//! # let rows = Rows::new(&data, 32)?;
//! # let folder = tempfile::tempdir().unwrap();
//! # let folder = folder.path().join("index");
//! # let mut sketcher = Sketcher::new(Config::new(32))?;
//! # sketcher.push(rows)?;
//! let hasher = sketcher.finish().hasher(16)?;
//! let mut writer = IndexWriter::create(&folder, &hasher, true, None)?;
//! let mut new = writer.add();
//! new.push(rows)?;
//! new.commit()?;
//! writer.remove(&[3, 4])?;
//!
//! let index = Index::open(&folder)?;
//! let hits = index.nearest(rows.slice(3..5), 5)?;
//! assert_eq!((index.len(), hits[0].len()), (198, 5));
//! assert!(hits[0].iter().all(|hit| hit.id != 3 && hit.id != 4));
//! # Ok::<(), frosh::Error>(())
//! ```

mod column;
mod disk;
mod journal;
mod learning;
mod manifest;
#[cfg(test)]
mod name_tests;
mod names;
mod new_rows;
mod reencoding;
mod rewrite;
#[cfg(test)]
mod safety_tests;
mod seal;
mod search;
mod segment;
mod segment_writer;
#[cfg(test)]
mod tests;
mod version;
#[cfg(test)]
mod version_tests;
mod writer;

use crate::error::{Error, Result};
use crate::model::Model;
use crate::names::names;
use crate::pool::Pool;
use crate::search::codes::Codes;
use column::Form;
use journal::Journal;
use manifest::Manifest;
use segment::Segment;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use version::{ByModel, Version};

pub use new_rows::NewRows;
pub use reencoding::Reencoding;
pub use version::IndexVersion;
pub use writer::IndexWriter;

const MODEL: &str = "model.frosh";
const LOCK: &str = "lock";
/// Endings of file names that start with a number.
const ENDINGS: [&str; 12] = [
    "codes.npy",
    "factors.npy",
    "ids.npy",
    "vectors.npy",
    "names.npy",
    "name_ends.npy",
    "name_lookup.npy",
    "checksums.npy",
    "removed",
    "sketcher",
    MODEL,
    manifest::NAME,
];
/// How often a reader tries to open the index, if a writer removes files between reading the manifest and opening them.
const OPEN_ATTEMPTS: usize = 8;

/// The precision of the vectors that an index stores for re-ranking.
///
/// ```
/// use frosh::{Config, IndexWriter, Rows, Sketcher, StoredVectors};
/// # let data: Vec<f32> = (0..6400).map(|i| ((i * 31) % 101) as f32).collect();
/// # let rows = Rows::new(&data, 32)?;
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path().join("index");
/// # let mut sketcher = Sketcher::new(Config::new(32))?;
/// # sketcher.push(rows)?;
/// # let hasher = sketcher.finish().hasher(16)?;
/// let mut writer = IndexWriter::create(&folder, &hasher, false, Some(StoredVectors::F16))?;
/// let mut new = writer.add();
/// new.push(rows)?;
/// new.commit()?;
/// let hits = writer.index().nearest(rows.slice(7..8), 1)?; // re-ranked by exact distance
/// assert_eq!(hits[0][0].distance, 0.0);
/// assert_eq!(writer.index().bytes_per_row(), 2 + 2 * 32);
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoredVectors {
    /// Single precision: 4 bytes a value.
    F32,
    /// Half precision: 2 bytes a value. Exact for byte values, and sufficient for most embeddings. Values above 65504 are
    /// rejected.
    F16,
}

names!(StoredVectors, "type of stored vectors", F32 => "f32", F16 => "f16");

/// Types and widths of the arrays of a segment, the same for all segments.
#[derive(Clone, Debug)]
struct Layout {
    /// Codes of the model, without rows.
    empty: Codes,
    dim: usize,
    /// Factor bytes of a row, if factors are stored.
    factors: Option<usize>,
    vectors: Option<StoredVectors>,
    /// Whether ids are names.
    names: bool,
}

impl Layout {
    fn codes(&self) -> Form {
        Form::bytes("codes", self.empty.bytes_per_row())
    }
    fn factors(&self) -> Option<Form> {
        self.factors.map(|bytes| Form::bytes("factors", bytes))
    }
    fn vectors(&self) -> Option<Form> {
        self.vectors.map(|stored| stored.form(self.dim))
    }
    /// The arrays of a segment, in the order of their checksums in the file of block checksums.
    fn arrays(&self, stores_ids: bool) -> Vec<Form> {
        let ids = stores_ids.then(Form::ids);
        let names = [Form::names(), Form::name_ends(), Form::name_lookup()];
        let names = names.into_iter().filter(|_| self.names);
        let arrays = [Some(self.codes()), self.factors(), self.vectors(), ids];
        arrays.into_iter().flatten().chain(names).collect()
    }
}

/// The number at the start of a file name; `None` if it is not the name of a numbered index file.
fn number_of(name: &str) -> Option<u64> {
    let (text, ending) = name.split_once('.')?;
    let number = text.parse().ok()?;
    (ENDINGS.contains(&ending) && text == format!("{number:06}")).then_some(number)
}

/// Whether a writer could create or remove a file of this name. Other programs may use such names too, so the name alone
/// is no reason to remove a file.
fn is_ours(name: &str) -> bool {
    number_of(name).is_some() || name == MODEL
}

/// An open index folder, for searching. It does not change when a writer changes the folder.
///
/// The files are mapped, not read. The [module page](crate::index) describes them.
///
/// ```
/// use frosh::{Config, Index, IndexWriter, Rows, Sketcher};
/// # let data: Vec<f32> = (0..6400).map(|i| ((i * 31) % 101) as f32).collect();
/// # let rows = Rows::new(&data, 32)?;
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path().join("index");
/// # let mut sketcher = Sketcher::new(Config::new(32))?;
/// # sketcher.push(rows)?;
/// # let hasher = sketcher.finish().hasher(16)?;
/// # let mut writer = IndexWriter::create(&folder, &hasher, false, None)?;
/// # let mut new = writer.add();
/// # new.push(rows)?;
/// # new.commit()?;
/// let index = Index::open(&folder)?;
/// assert_eq!((index.len(), index.segments(), index.removed()), (200, 1, 0));
/// assert!(index.contains(199)? && !index.contains(200)?);
/// index.check()?; // reads all files and verifies their checksums
/// # Ok::<(), frosh::Error>(())
/// ```
pub struct Index {
    folder: PathBuf,
    /// The models, oldest first; at least one.
    versions: Vec<Arc<Version>>,
    /// The layout of the newest version.
    layout: Layout,
    manifest: Manifest,
    segments: Vec<Arc<Segment>>,
    /// Whether arrays are verified by their checksums when they are first read.
    verify: bool,
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Index({}, {} rows)", self.folder.display(), self.len())
    }
}

impl Index {
    /// Opens the index in a folder for reading.
    ///
    /// # Errors
    ///
    /// Fails if the folder holds no index, or if a file is missing, damaged or of a newer version.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let mut last = None;
        for _ in 0..OPEN_ATTEMPTS {
            let manifest = Manifest::load(folder)?;
            let generation = manifest.generation;
            match Self::with(folder, manifest, None) {
                // A writer may have removed files after the manifest was read. Then there is a newer manifest.
                Err(Error::Io { source, path })
                    if source.kind() == std::io::ErrorKind::NotFound
                        && Manifest::load(folder)?.generation != generation =>
                {
                    last = Some(Error::Io { source, path });
                }
                other => return other,
            }
        }
        Err(last.unwrap_or_else(|| Error::file("the index changes faster than it can be opened")))
    }

    /// Opens the index that a manifest describes. Takes segments that are already open from `before`, the index before the
    /// change.
    fn with(folder: &Path, manifest: Manifest, before: Option<&Self>) -> Result<Self> {
        let versions = version::open(folder, &manifest, before)?;
        let by_model = ByModel::new(&versions);
        let opened = before.map_or(&[][..], |before| &before.segments);
        let opened: HashMap<u64, &Arc<Segment>> =
            opened.iter().map(|segment| (segment.facts.number, segment)).collect();
        let open = |facts: &manifest::SegmentFacts| match opened.get(&facts.number) {
            Some(segment) if segment.facts == *facts => Ok(Arc::clone(segment)),
            same => {
                let same = same.map(|segment| &***segment);
                let version = by_model.of(facts, folder)?;
                Segment::open(folder, facts.clone(), version, &version.layout, same).map(Arc::new)
            }
        };
        let segments = manifest.segments.iter().map(open).collect::<Result<_>>()?;
        let layout = version::layout(&versions[versions.len() - 1].model, &manifest);
        Ok(Self { folder: folder.to_owned(), versions, layout, manifest, segments, verify: true })
    }

    /// Sets whether arrays are verified by their checksums when they are first read; the default is true. Without it, a
    /// search in a damaged index may return wrong hits. [`Index::check`] always verifies.
    pub fn verify(mut self, verify: bool) -> Self {
        self.verify = verify;
        self
    }

    /// The model that encodes rows that are added: that of the newest version ([`Index::versions`]).
    pub fn model(&self) -> &Model {
        &self.newest().model
    }

    /// Number of rows, without removed ones.
    pub fn len(&self) -> u64 {
        self.segments.iter().map(|segment| segment.len()).sum()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of removed rows that still take space. [`IndexWriter::compact`] drops them.
    pub fn removed(&self) -> u64 {
        self.segments.iter().map(|segment| segment.removed.len()).sum()
    }

    /// Number of segments. Each commit of rows adds at least one; [`IndexWriter::compact`] merges them.
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Number of changes since the index was created.
    pub fn generation(&self) -> u64 {
        self.manifest.generation
    }

    /// Whether the rows have factors, which [`Ranking::Estimated`](crate::Ranking::Estimated) needs.
    pub fn has_factors(&self) -> bool {
        self.layout.factors.is_some()
    }

    /// The precision of the stored vectors; `None` if the index stores none.
    pub fn vectors(&self) -> Option<StoredVectors> {
        self.layout.vectors
    }

    /// Bytes per row on disk: code, factors and vector. Ids take 8 more in segments whose ids are not consecutive. A name
    /// takes its length and 16 bytes.
    pub fn bytes_per_row(&self) -> usize {
        let forms = [Some(self.layout.codes()), self.layout.factors(), self.layout.vectors()];
        forms.iter().flatten().map(Form::width).sum()
    }

    /// Whether the index has a row with this id.
    ///
    /// # Errors
    ///
    /// Fails if the ids are damaged.
    pub fn contains(&self, id: u64) -> Result<bool> {
        for segment in &self.segments {
            if (!self.verify || segment.arrays.may_have(&Pool::ONE, id, id)?)
                && segment.find(id).is_some()
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the ids of the rows are names. An index without rows takes ids of both kinds.
    pub fn has_names(&self) -> bool {
        self.layout.names
    }

    /// The name of the row with this number, which hits have as their `id`. `None` if there is no such row, or if the rows
    /// have no names.
    ///
    /// ```
    /// # use frosh::{Config, IndexWriter, Rows, Sketcher};
    /// # let data: Vec<f32> = (0..6400).map(|i| ((i * 31) % 101) as f32).collect();
    /// # let rows = Rows::new(&data, 32)?;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let folder = folder.path().join("index");
    /// # let mut sketcher = Sketcher::new(Config::new(32))?;
    /// # sketcher.push(rows)?;
    /// # let hasher = sketcher.finish().hasher(16)?;
    /// # let mut writer = IndexWriter::create(&folder, &hasher, false, None)?;
    /// # let mut new = writer.add();
    /// new.push_with_names(rows.slice(0..3), &["cat", "dog", "größe"])?;
    /// # new.commit()?;
    /// # let index = writer.index();
    /// let hits = index.nearest(rows.slice(1..2), 1)?;
    /// assert_eq!(index.name(hits[0][0].id)?, Some("dog"));
    /// assert_eq!(index.find("dog")?, Some(hits[0][0].id));
    /// assert_eq!(index.find("cow")?, None);
    /// # Ok::<(), frosh::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the ids or the names are damaged.
    pub fn name(&self, id: u64) -> Result<Option<&str>> {
        for segment in &self.segments {
            let Some(names) = &segment.arrays.names else { return Ok(None) };
            if self.verify && !segment.arrays.may_have(&Pool::ONE, id, id)? {
                continue;
            }
            if let Some(row) = segment.find(id) {
                return names.of(row, self.verify).map(Some);
            }
        }
        Ok(None)
    }

    /// The number of the row with this name; `None` if there is none. It costs O(log n) for each segment.
    ///
    /// # Errors
    ///
    /// Fails if the names or the ids are damaged.
    pub fn find(&self, name: &str) -> Result<Option<u64>> {
        for segment in &self.segments {
            if let Some(row) = segment.find_name(name, self.verify)? {
                if self.verify {
                    segment.arrays.verify_ids(&Pool::ONE)?;
                }
                return Ok(Some(segment.arrays.ids.of(row)));
            }
        }
        Ok(None)
    }

    /// The numbers of the rows with these names, for [`Search::filter`](crate::Search::filter). Names that do not exist
    /// are ignored.
    ///
    /// # Errors
    ///
    /// Fails if the rows have no names, or if the names or the ids are damaged.
    pub fn find_all<S: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = S>,
    ) -> Result<crate::IdSet> {
        self.check_kind(true)?;
        let mut found = crate::IdSet::new();
        for name in names {
            found.extend(self.find(name.as_ref())?);
        }
        Ok(found)
    }

    /// Fails if the rows have ids of the other kind. An index without rows takes both.
    fn check_kind(&self, names: bool) -> Result<()> {
        if self.segments.is_empty() || names == self.layout.names {
            return Ok(());
        }
        let (have, got) = match names {
            false => ("names", "whole numbers"),
            true => ("whole numbers", "names"),
        };
        Err(Error::File {
            path: Some(self.folder.clone()),
            why: format!(
                "the ids of this index are {have}, and these are {got}: all must be alike"
            ),
        })
    }

    /// Reads all files and verifies their checksums, also of arrays that were verified before.
    ///
    /// # Errors
    ///
    /// Fails if a file is damaged. The error has its path.
    pub fn check(&self) -> Result<()> {
        self.segments.iter().try_for_each(|segment| segment.check(&self.folder))?;
        self.check_learner()
    }

    /// The names of all files of the segments, and of the models.
    fn files(&self) -> BTreeSet<String> {
        let models = self.versions.iter().map(|version| version.file());
        let learner = self.manifest.learner.iter().map(|learner| learner.file());
        let segments = self.segments.iter().flat_map(|segment| segment.files());
        segments.chain(models).chain(learner).collect()
    }

    /// Names of files in the folder that belong neither to the index nor to a change in progress. Another program created
    /// them, or a version of frosh without a journal left them. A writer never removes them.
    ///
    /// # Errors
    ///
    /// Fails if the folder cannot be read.
    pub fn other_files(&self) -> Result<Vec<String>> {
        let (files, journal) = (self.files(), Journal::load(&self.folder).ok());
        let known = |name: &str| {
            let fixed = [LOCK, manifest::NAME, journal::NAME].contains(&name);
            fixed
                || files.contains(name)
                || journal.as_ref().is_some_and(|journal| journal.names(name))
        };
        let mut others = disk::names(&self.folder)?;
        others.retain(|name| !known(name));
        others.sort_unstable();
        Ok(others)
    }
}
