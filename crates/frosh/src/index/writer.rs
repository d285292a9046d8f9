//! Changes an index: one writer at a time, each change atomic.

use super::journal::{self, Journal};
use super::manifest::{self, Manifest, SegmentFacts};
use super::new_rows::NewRows;
use super::reencoding::MOST_VERSIONS;
use super::rewrite::{Chosen, Coding, rewrite};
use super::segment::{self, Segment};
use super::{ENDINGS, Index, LOCK, MODEL, StoredVectors, disk, is_ours, number_of};
use crate::error::{Error, Result};
use crate::hasher::estimator;
use crate::model::Model;
use crate::pool::Pool;
use crate::search::hamming::IdSet;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Largest number of rows of a segment: row numbers fit 32 bits, and the ids can be sorted in memory.
pub(super) const MAX_SEGMENT_ROWS: u64 = 1 << 27;

/// Changes an index. It holds the lock of the folder until it is dropped.
///
/// Each change ([`NewRows::commit`], [`IndexWriter::remove`], [`IndexWriter::compact`]) is atomic: it is made completely,
/// or the index is unchanged.
///
/// ```
/// use frosh::{Config, IndexWriter, Rows, Sketcher};
/// # let data: Vec<f32> = (0..6400).map(|i| ((i * 31) % 101) as f32).collect();
/// # let rows = Rows::new(&data, 32)?;
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path().join("index");
/// # let mut sketcher = Sketcher::new(Config::new(32))?;
/// # sketcher.push(rows)?;
/// # let hasher = sketcher.finish().hasher(16)?;
/// let mut writer = IndexWriter::create(&folder, &hasher, false, None)?;
/// let mut new = writer.add();
/// new.push(rows)?; // ids 0 to 199
/// new.commit()?;
/// drop(writer); // releases the lock
///
/// let mut writer = IndexWriter::open(&folder)?;
/// assert_eq!(writer.remove(&[3, 4, 1000])?, 2); // id 1000 does not exist
/// writer.compact()?;
/// assert_eq!((writer.index().len(), writer.index().removed()), (198, 0));
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Debug)]
pub struct IndexWriter {
    pub(super) index: Index,
    pub(super) journal: Journal,
    /// The lock is released when this file is closed.
    pub(super) _lock: File,
}

impl IndexWriter {
    /// Starts an index in a folder that is new or empty, or that has an unfinished build. `factors` stores factors, which
    /// [`Ranking::Estimated`](crate::Ranking::Estimated) needs; `vectors` stores the vectors, for re-ranking.
    ///
    /// Readers can open the index after the first committed change. A writer that is dropped before leaves a folder with
    /// only a lock file.
    ///
    /// # Errors
    ///
    /// Fails if the folder has an index or other files, if another process is changing it, if `factors` is true and the
    /// model has none, or if a file cannot be written.
    pub fn create(
        folder: impl AsRef<Path>,
        model: impl Into<Model>,
        factors: bool,
        vectors: Option<StoredVectors>,
    ) -> Result<Self> {
        let (folder, model) = (folder.as_ref(), model.into());
        // The codes of a quantiser hold all that the estimated ranking needs.
        let factors = factors && matches!(model, Model::Hasher(_));
        if factors && !model.has_factors() {
            let advice =
                "fit the model from a sketch with a reservoir of rows, or build without factors";
            return Err(estimator::missing("the model", advice));
        }
        disk::make_folder(folder)?;
        // Checked before the lock is created, so that no lock file is left in a folder with other files.
        unfinished(folder)?;
        let lock = disk::lock(folder, LOCK)?;
        // Checked again, because another process may have built an index meanwhile.
        let mut journal = unfinished(folder)?;
        journal.clean(|_| false, false);
        let manifest = Manifest {
            generation: 0,
            model: model.id().to_string(),
            versions: Vec::new(),
            factors,
            vectors,
            names: false,
            learner: None,
            next_id: Some(0),
            next_number: 1,
            segments: Vec::new(),
        };
        let begun = journal.add([MODEL.to_owned()]).and_then(|()| {
            disk::write_new(&folder.join(MODEL), &model.to_bytes())?;
            Index::with(folder, manifest, None)
        });
        match begun {
            Ok(index) => Ok(Self { index, journal, _lock: lock }),
            Err(error) => {
                journal.clean(|_| false, false);
                Err(error)
            }
        }
    }

    /// Opens an index for changes. Removes the files of a change that was not completed.
    ///
    /// # Errors
    ///
    /// Fails if the folder holds no index, if another process is changing it, or if a file is missing or damaged.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        // Checked before the lock is created, so that no lock file is left in a folder without an index.
        Manifest::load(folder)?;
        let lock = disk::lock(folder, LOCK)?;
        let (index, journal) = (Index::open(folder)?, Journal::load(folder)?);
        let mut writer = Self { index, journal, _lock: lock };
        writer.clean();
        Ok(writer)
    }

    /// The index after the last committed change.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Starts to add rows. They are added when [`NewRows::commit`] returns.
    pub fn add(&mut self) -> NewRows<'_> {
        let next_id = self.index.manifest.next_id;
        let next_number = self.index.manifest.next_number;
        NewRows {
            writer: self,
            pool: Pool::current(),
            replace: false,
            names: None,
            current: None,
            done: Vec::new(),
            next_id,
            largest: None,
            next_number,
            learner: None,
        }
    }

    /// Removes rows by their ids. Returns the number of removed rows. Ids that do not exist are ignored.
    ///
    /// # Errors
    ///
    /// Fails if the ids of a segment are damaged, or if a file cannot be written. Then no row is removed.
    pub fn remove(&mut self, ids: &[u64]) -> Result<u64> {
        if ids.is_empty() {
            return Ok(0);
        }
        self.index.check_kind(false)?;
        let mut dead: BTreeMap<usize, IdSet> = BTreeMap::new();
        let (Some(low), Some(high)) = (ids.iter().min(), ids.iter().max()) else { return Ok(0) };
        for (s, segment) in self.index.segments.iter().enumerate() {
            if segment.arrays.may_have(Pool::all(), *low, *high)? {
                for row in ids.iter().filter_map(|id| segment.find(*id)) {
                    dead.entry(s).or_default().insert(row as u64);
                }
            }
        }
        self.remove_rows(dead)
    }

    /// Removes rows by their names. Returns the number of removed rows. Names that do not exist are ignored.
    ///
    /// # Errors
    ///
    /// Fails if the ids of the index are whole numbers, if the names are damaged, or if a file cannot be written. Then no
    /// row is removed.
    pub fn remove_names<S: AsRef<str>>(&mut self, names: &[S]) -> Result<u64> {
        if names.is_empty() {
            return Ok(0);
        }
        self.index.check_kind(true)?;
        let mut dead: BTreeMap<usize, IdSet> = BTreeMap::new();
        for (s, segment) in self.index.segments.iter().enumerate() {
            for name in names {
                if let Some(row) = segment.find_name(name.as_ref(), true)? {
                    dead.entry(s).or_default().insert(row as u64);
                }
            }
        }
        self.remove_rows(dead)
    }

    /// Removes rows of segments. Returns how many.
    fn remove_rows(&mut self, dead: BTreeMap<usize, IdSet>) -> Result<u64> {
        if dead.is_empty() {
            return Ok(0);
        }
        let removed = dead.values().map(IdSet::len).sum();
        self.change(|index, manifest, journal| mark(index, manifest, journal, dead))?;
        Ok(removed)
    }

    /// Rewrites the rows of each version into one segment (2^27 rows at most; further rows go to further segments), without
    /// the removed rows. Ids and hits stay the same. If there are several versions, rows that came after their version was
    /// made have a segment of their own. If there is one, they make one segment with the other rows, which the next version
    /// then encodes again too. Segments that need no change are not rewritten.
    ///
    /// If the index stores vectors and has more than 10 versions, the worst ones are folded first, in a change of its own
    /// ([`IndexWriter::fold`]). [`IndexWriter::compact_to`] sets another number.
    ///
    /// # Errors
    ///
    /// Fails if a file that is rewritten is damaged (all their checksums are verified first), or if a file cannot be
    /// written. Then the index is unchanged.
    pub fn compact(&mut self) -> Result<()> {
        self.compact_to(MOST_VERSIONS)
    }

    /// Compacts as [`IndexWriter::compact`], and keeps at most this many versions if the index stores vectors.
    ///
    /// # Errors
    ///
    /// As [`IndexWriter::compact`]. If folding succeeded and the rest failed, the versions are folded.
    pub fn compact_to(&mut self, versions: usize) -> Result<()> {
        if self.index.vectors().is_some() {
            self.fold(versions).commit()?;
        }
        let index = &self.index;
        let one_version = index.versions.len() == 1;
        let mut groups: BTreeMap<(&str, bool), Vec<&Arc<Segment>>> = BTreeMap::new();
        for segment in &index.segments {
            let key = (&*segment.version.facts.model, segment.facts.settled && !one_version);
            groups.entry(key).or_default().push(segment);
        }
        if groups.len() == index.segments.len() && index.removed() == 0 {
            return Ok(());
        }
        // In the order in which they are in the manifest.
        let mut groups: Vec<Vec<Arc<Segment>>> =
            groups.into_values().map(|group| group.into_iter().cloned().collect()).collect();
        groups.sort_by_key(|group| group[0].facts.number);
        self.change(|index, manifest, journal| {
            // Verified before anything is written.
            let dense = |group: &[Arc<Segment>]| group.len() == 1 && group[0].removed.is_empty();
            index.check_segments(groups.iter().filter(|group| !dense(group)).flatten())?;
            let mut segments = Vec::new();
            for group in &groups {
                if dense(group) {
                    segments.push(group[0].facts.clone());
                    continue;
                }
                let chosen: Vec<_> = group.iter().map(Chosen::all).collect();
                let coding = Coding::Copy(&group[0].version);
                let model = &group[0].facts.model;
                let settled = group.iter().all(|segment| segment.facts.settled);
                let new = rewrite(index, manifest, journal, &chosen, &coding)?;
                segments.extend(new.into_iter().map(|facts| SegmentFacts {
                    model: model.clone(),
                    settled,
                    ..facts
                }));
            }
            manifest.segments = segments;
            Ok(())
        })
    }

    /// Makes a change: `work` writes the new files and updates the manifest, then the manifest on disk is replaced. On
    /// failure the index is unchanged. Failures after the replacement are not reported, because a caller who sees an error
    /// would repeat the change.
    pub(super) fn change(
        &mut self,
        work: impl FnOnce(&Index, &mut Manifest, &mut Journal) -> Result<()>,
    ) -> Result<()> {
        let (index, journal) = (&self.index, &mut self.journal);
        let folder = &index.folder;
        let mut manifest = index.manifest.clone();
        let done = work(index, &mut manifest, journal).and_then(|()| {
            manifest.drop_unused_versions();
            manifest.generation += 1;
            let temporary = number(folder, &mut manifest.next_number)?;
            let temporary = format!("{temporary:06}.{}", manifest::NAME);
            // Opens the new index first, so that a manifest that cannot be opened is never written.
            let new = Index::with(folder, manifest.clone(), Some(index))?;
            // The old files go to the journal now. After the replacement no manifest lists them.
            let (kept, kept_files) = (manifest.numbers(), Kept::of(&manifest));
            let old = index.segments.iter().flat_map(|segment| segment.files_without(&kept));
            let models = index.versions.iter().map(|version| version.file());
            let learner = index.manifest.learner.iter().map(|learner| learner.file());
            let others = models.chain(learner).filter(|file| !kept_files.has(file));
            journal.add(old.chain(others).chain([temporary.clone()]))?;
            disk::sync(folder)?;
            manifest.save(folder, &temporary)?;
            Ok(new)
        });
        match done {
            Ok(new) => {
                self.index = new;
                // Removes the old files. If one cannot be removed now, the next writer removes it.
                let kept = Kept::of(&self.index.manifest);
                self.journal.clean(|name| kept.has(name), false);
                Ok(())
            }
            Err(error) => {
                self.clean();
                Err(error)
            }
        }
    }

    /// Removes the files that the journal lists and the manifest on disk does not. If this fails, the next writer does it.
    pub(super) fn clean(&mut self) {
        if self.journal.is_empty() {
            return;
        }
        match Manifest::load(&self.index.folder) {
            Ok(manifest) => {
                let kept = Kept::of(&manifest);
                self.journal.clean(|name| kept.has(name), false);
            }
            // Before the first change there is no manifest. The journal stays, so that the files of an unfinished build
            // remain known.
            Err(_) if self.never_there() => {
                self.journal.clean(|name| name == MODEL, true);
            }
            Err(_) => {}
        }
    }

    /// Whether this is a new index without a committed change.
    pub(super) fn never_there(&self) -> bool {
        let manifest = self.index.folder.join(manifest::NAME);
        self.index.manifest.generation == 0 && matches!(manifest.try_exists(), Ok(false))
    }
}

impl Drop for IndexWriter {
    fn drop(&mut self) {
        // A new index without a committed change leaves no files but the lock.
        if self.never_there() {
            self.journal.clean(|_| false, false);
        }
    }
}

/// The files that belong to the index: `model.frosh` if a version uses it, and files with a number that the manifest
/// lists.
struct Kept {
    numbers: BTreeSet<u64>,
    first_model: bool,
}

impl Kept {
    fn of(manifest: &Manifest) -> Self {
        Self { numbers: manifest.numbers(), first_model: manifest.has_first_model() }
    }

    fn has(&self, name: &str) -> bool {
        match name {
            MODEL => self.first_model,
            name => number_of(name).is_some_and(|number| self.numbers.contains(&number)),
        }
    }
}

/// Returns the next number that is not in the name of any file in the folder, and advances `next`.
pub(super) fn number(folder: &Path, next: &mut u64) -> Result<u64> {
    loop {
        let number = *next;
        *next = number.checked_add(1).ok_or_else(|| Error::File {
            path: Some(folder.join(manifest::NAME)),
            why: "has no number left for a file: it is damaged".into(),
        })?;
        let taken =
            |ending| folder.join(format!("{number:06}.{ending}")).symlink_metadata().is_ok();
        if !ENDINGS.iter().any(taken) {
            return Ok(number);
        }
    }
}

/// Marks rows of segments as removed.
pub(super) fn mark(
    index: &Index,
    manifest: &mut Manifest,
    journal: &mut Journal,
    dead: BTreeMap<usize, IdSet>,
) -> Result<()> {
    for (s, rows) in dead {
        let number = number(&index.folder, &mut manifest.next_number)?;
        journal.add([segment::removed_name(number)])?;
        let removed = index.segments[s].remove(&index.folder, number, &rows)?;
        manifest.segments[s].removed = Some(removed);
    }
    Ok(())
}

/// The journal of a folder in which an index can be created: an empty folder, or one with only files that the journal of
/// an unfinished build lists. Fails for any other folder.
fn unfinished(folder: &Path) -> Result<Journal> {
    let refuse = |why: String| Err(Error::File { path: Some(folder.to_owned()), why });
    if folder.join(manifest::NAME).exists() {
        return refuse("there is an index already: add to it, or remove the folder".into());
    }
    let journal = Journal::load(folder)?;
    // A lock file has no content, so an empty file of this name can be used as one.
    let lock = || folder.join(LOCK).symlink_metadata().is_ok_and(|f| f.is_file() && f.len() == 0);
    let known = |name: &str| match name {
        LOCK => lock(),
        journal::NAME => true,
        name => journal.names(name) && is_ours(name),
    };
    match disk::names(folder)?.into_iter().find(|name| !known(name)) {
        Some(name) => {
            refuse(format!("is no empty folder (it holds {name}): an index needs one of its own"))
        }
        None => Ok(journal),
    }
}
