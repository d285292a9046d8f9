//! An index folder: codes, ids and what else a search needs, on disk, for many readers and one writer.
//!
//! | file | holds |
//! |---|---|
//! | `index.json` | which of the other files count; replaced as a whole with every change |
//! | `model.frosh` | the [`Hasher`] |
//! | `000001.codes.npy`, `.factors.npy`, `.ids.npy`, `.vectors.npy` | a segment: rows that were added together |
//! | `000002.removed` | which rows of a segment were removed (a Roaring bitmap) |
//! | `000001.checksums.npy` | checksums of the blocks of its arrays, where one has several |
//! | `lock` | held by the writer |
//! | `journal` | while a writer is at work: the files that it makes and removes |
//!
//! **Safe at any moment.** Files are written and synced before `index.json` names them, and never changed after
//! that. A writer that is killed leaves the index as it was before the change, or as it is after it; what it
//! left unfinished is removed by the next writer. A reader sees the index as it was when it was opened, however
//! much is added, removed or compacted meanwhile; it opens it again to see what is new.
//!
//! **A change is made when `index.json` is renamed into place.** An error means that nothing was changed; after
//! the rename nothing is an error any more. If the folder cannot be synced then, or files that are of no use cannot
//! be removed, the change is made all the same, the files of before stay, and the next writer tries again: so
//! whichever `index.json` a power failure leaves, the files that it names are there.
//!
//! **Nothing that is not ours is touched.** An index is made in a folder that is new or empty, or that holds only
//! what the `journal` of an unfinished build names. Only files that `index.json` or the journal names are ever
//! removed, and no file that is there is opened for writing, whatever it is called.
//!
//! **Damage is found when it is read.** Arrays are compared with their checksums when a search or a writer first
//! reads them: codes, factors and ids as a whole, vectors by the blocks that are touched; of an index that was
//! written before there were checksums of blocks, all vectors of a segment when the first is asked for. That costs
//! once what reading them costs, and nothing later. [`Index::verify`] turns it off for readers. Whatever is
//! rewritten (compacted) is read as a whole and compared first.
//!
//! **Ids** are the caller's 64-bit numbers, each at most once; without any, rows are numbered in the order in
//! which they were added. Removing a row does not change the ids of others, and numbers are not used again.
//!
//! **Where we differ** from the paper, which ends with the codes.
//!
//! **Cost.** Opening maps the files and reads headers, the sets of removed rows and arrays of a few pages. A search costs
//! what it costs on [`Codes`](crate::Codes); removed rows cost what a filter costs, until [`IndexWriter::compact`].
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
mod manifest;
#[cfg(test)]
mod safety_tests;
mod seal;
mod segment;
#[cfg(test)]
mod tests;
mod writer;

use crate::error::{Error, Result};
use crate::hasher::Hasher;
use crate::names::names;
use crate::pool::Pool;
use crate::rows::{Element, Rows};
use crate::search::codes::HasherId;
use crate::search::options::{Hit, Search, keep_nearest};
use crate::search::ranking::{Queries, Ranking};
use crate::search::rerank::Rerank;
use column::Form;
use journal::Journal;
use manifest::Manifest;
use segment::Segment;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use writer::{IndexWriter, NewRows};

const MODEL: &str = "model.frosh";
const LOCK: &str = "lock";
/// What the names of files end with that are called after a number.
const ENDINGS: [&str; 7] = [
    "codes.npy",
    "factors.npy",
    "ids.npy",
    "vectors.npy",
    "checksums.npy",
    "removed",
    manifest::NAME,
];
/// How often a reader looks again, when files that it was told of were compacted away.
const ATTEMPTS: usize = 8;

/// How an index keeps vectors, to put what was found in exact order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoredVectors {
    /// Single precision.
    F32,
    /// Half precision: exact for bytes, and enough for most embeddings.
    F16,
}

names!(StoredVectors, "type of stored vectors", F32 => "f32", F16 => "f16");

/// What the arrays of every segment look like.
#[derive(Clone, Debug)]
struct Layout {
    hasher: HasherId,
    bits: usize,
    dim: usize,
    /// Bytes of a row's factors, if they are kept.
    factors: Option<usize>,
    vectors: Option<StoredVectors>,
}

impl Layout {
    fn codes(&self) -> Form {
        Form::bytes("codes", self.bits.div_ceil(8))
    }
    fn factors(&self) -> Option<Form> {
        self.factors.map(|bytes| Form::bytes("factors", bytes))
    }
    fn vectors(&self) -> Option<Form> {
        self.vectors.map(|stored| stored.form(self.dim))
    }
    /// The arrays of a segment, in the order in which their checksums lie.
    fn arrays(&self, ids_listed: bool) -> Vec<Form> {
        let ids = ids_listed.then(Form::ids);
        [Some(self.codes()), self.factors(), self.vectors(), ids].into_iter().flatten().collect()
    }
}

/// The number that a file is called after.
fn number_of(name: &str) -> Option<u64> {
    let (text, ending) = name.split_once('.')?;
    let number = text.parse().ok()?;
    (ENDINGS.contains(&ending) && text == format!("{number:06}")).then_some(number)
}

/// Whether a writer calls files so that it makes and removes. Others are called so too: this alone is no reason
/// to remove one.
fn is_ours(name: &str) -> bool {
    number_of(name).is_some() || name == MODEL
}

/// An index folder as it was when it was opened.
pub struct Index {
    folder: PathBuf,
    hasher: Hasher,
    layout: Layout,
    manifest: Manifest,
    segments: Vec<Arc<Segment>>,
    /// Whether what is read is compared with its checksums, the first time.
    verify: bool,
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Index({}, {} rows)", self.folder.display(), self.len())
    }
}

impl Index {
    /// Opens the index in a folder, to read from it.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let manifest = Manifest::load(folder)?;
            let generation = manifest.generation;
            match Self::with(folder, manifest, None) {
                // A writer may have replaced the files between two of our steps: then there is a newer manifest.
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

    /// The index of this manifest. What is open already, in the index `before` the last change, is taken from it.
    fn with(folder: &Path, manifest: Manifest, before: Option<&Self>) -> Result<Self> {
        let path = folder.join(MODEL);
        let hasher = match before {
            Some(before) => before.hasher.clone(),
            None => Hasher::load(&path)?,
        };
        if hasher.id().to_string() != manifest.model {
            let (got, want) = (hasher.id(), &manifest.model);
            let why = format!("is model {got}, but the index was built with model {want}");
            return Err(Error::File { path: Some(path), why });
        }
        let layout = Layout {
            hasher: hasher.id(),
            bits: hasher.bits(),
            dim: hasher.dim(),
            factors: manifest.factors.then(|| hasher.factor_bytes()),
            vectors: manifest.vectors,
        };
        let opened = before.map_or(&[][..], |before| &before.segments);
        let opened: HashMap<u64, &Arc<Segment>> =
            opened.iter().map(|segment| (segment.facts.number, segment)).collect();
        let open = |facts: &manifest::SegmentFacts| match opened.get(&facts.number) {
            Some(segment) if segment.facts == *facts => Ok(Arc::clone(segment)),
            same => {
                let same = same.map(|segment| &***segment);
                Segment::open(folder, facts.clone(), &layout, same).map(Arc::new)
            }
        };
        let segments = manifest.segments.iter().map(open).collect::<Result<_>>()?;
        Ok(Self { folder: folder.to_owned(), hasher, layout, manifest, segments, verify: true })
    }

    /// Whether arrays are compared with their checksums when they are first read, which is the default. Without
    /// it, answers from a damaged index may be wrong. [`Index::check`] always compares.
    pub fn verify(mut self, verify: bool) -> Self {
        self.verify = verify;
        self
    }

    /// The model that made its codes.
    pub fn hasher(&self) -> &Hasher {
        &self.hasher
    }

    /// How many rows can be found.
    pub fn len(&self) -> u64 {
        self.segments.iter().map(|segment| segment.len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Rows that were removed and still take space, until the index is compacted.
    pub fn removed(&self) -> u64 {
        self.segments.iter().map(|segment| segment.removed.len()).sum()
    }

    /// How many parts it is kept in: one for each time that rows were added, until it is compacted.
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// How many times it was changed.
    pub fn generation(&self) -> u64 {
        self.manifest.generation
    }

    /// Whether codes have factors, for [`Ranking::Estimated`].
    pub fn has_factors(&self) -> bool {
        self.layout.factors.is_some()
    }

    /// How vectors are kept, if they are.
    pub fn vectors(&self) -> Option<StoredVectors> {
        self.layout.vectors
    }

    /// Bytes that each row takes on disk: code, factors, vector; an id takes eight more where ids do not count up.
    pub fn bytes_per_row(&self) -> usize {
        let forms = [Some(self.layout.codes()), self.layout.factors(), self.layout.vectors()];
        forms.iter().flatten().map(Form::width).sum()
    }

    /// Whether a row of this id can be found.
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

    /// Reads every file and compares checksums, also of what was read before or is not read by a search.
    pub fn check(&self) -> Result<()> {
        self.segments.iter().try_for_each(|segment| segment.check(&self.folder))
    }

    /// The names of all files of its segments.
    fn files(&self) -> BTreeSet<String> {
        self.segments.iter().flat_map(|segment| segment.files(&self.layout)).collect()
    }

    /// Names of files in the folder that are not part of the index, nor of a change that is being made: they were
    /// put there by somebody else, or left by a version of frosh that kept no journal. Nothing removes them.
    pub fn other_files(&self) -> Result<Vec<String>> {
        let (files, journal) = (self.files(), Journal::load(&self.folder).ok());
        let known = |name: &str| {
            let fixed = [MODEL, LOCK, manifest::NAME, journal::NAME].contains(&name);
            fixed
                || files.contains(name)
                || journal.as_ref().is_some_and(|journal| journal.names(name))
        };
        let mut others = disk::names(&self.folder)?;
        others.retain(|name| !known(name));
        others.sort_unstable();
        Ok(others)
    }

    /// The `k` nearest rows for each query, nearest first: [`Index::search`] with its defaults.
    pub fn nearest<T: Element>(&self, queries: Rows<'_, T>, k: usize) -> Result<Vec<Vec<Hit>>> {
        self.search(queries, &Search::nearest(k))
    }

    /// Searches the index for query vectors: one list of hits for each, nearest first, equal distances by id. Where the
    /// index stores vectors, candidates are put in exact order ([`Search::rerank`]).
    ///
    /// Queries of another dimension are refused, and so are options that need what the index does not store.
    pub fn search<T: Element>(
        &self,
        queries: Rows<'_, T>,
        search: &Search<'_>,
    ) -> Result<Vec<Vec<Hit>>> {
        let projected = self.hasher.queries(queries)?;
        let default = if search.radius.is_some() || self.layout.vectors.is_none() {
            0
        } else {
            self.hasher.oversample()
        };
        let oversample = search.rerank.unwrap_or(default);
        if oversample == 0 {
            return self.by_codes(&projected, search);
        }
        if self.layout.vectors.is_none() {
            let why = "stores no vectors, which exact distances need: build it with them".into();
            return Err(Error::File { path: Some(self.folder.clone()), why });
        }
        let wide = Search { k: search.k.saturating_mul(oversample), ..search.clone() };
        let candidates = self.by_codes(&projected, &wide)?;
        let pool = Pool::current();
        if self.verify {
            self.segments.iter().try_for_each(|segment| segment.arrays.verify_ids(&pool))?;
        }
        let mut rerank = Rerank::new(queries, self.hasher.metric(), &candidates)?;
        rerank.fetch(&pool, |id, out| self.vector(id, out))?;
        Ok(rerank.finish(search.k))
    }

    /// Searches in the order of the codes.
    fn by_codes(&self, queries: &Queries, search: &Search<'_>) -> Result<Vec<Vec<Hit>>> {
        let ranking = search.ranking_of(Some(queries.ranking()), self.has_factors())?;
        let search = Search { rerank: None, ranking: Some(ranking), ..search.clone() };
        let mut all = vec![Vec::new(); queries.len()];
        for segment in &self.segments {
            let arrays = &segment.arrays;
            if self.verify {
                arrays.verify(&Pool::current(), ranking == Ranking::Estimated)?;
            }
            let allowed = segment.allowed(search.filter);
            let search = Search { filter: allowed.as_deref(), ..search.clone() };
            let found = arrays.codes.search(queries, &search)?;
            for (all, found) in all.iter_mut().zip(found) {
                let named = |hit: Hit| Hit { id: arrays.ids.of(hit.id as usize), ..hit };
                all.extend(found.into_iter().map(named));
            }
        }
        all.iter_mut().for_each(|hits| keep_nearest(hits, search.k));
        Ok(all)
    }

    /// The vector that is kept for an id; whether there is one.
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
