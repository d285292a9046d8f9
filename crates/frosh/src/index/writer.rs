//! Changes an index: one writer at a time, each change atomic.

use super::journal::{self, Journal};
use super::manifest::{self, Manifest};
use super::segment::{self, NewPart, Segment, SegmentWriter};
use super::{ENDINGS, Index, LOCK, Layout, MODEL, StoredVectors, disk, is_ours, number_of};
use crate::error::{Error, Result};
use crate::hasher::Hasher;
use crate::hasher::estimator;
use crate::pool::Pool;
use crate::rows::{Element, Rows};
use crate::search::codes::Codes;
use crate::search::hamming::IdSet;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Largest number of rows of a segment: row numbers fit 32 bits, and the ids can be sorted in memory.
const LONGEST: u64 = 1 << 27;
/// The largest half-precision number.
const LARGEST_F16: f64 = 65504.0;

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
    index: Index,
    journal: Journal,
    /// The lock is released when this file is closed.
    _lock: File,
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
        hasher: &Hasher,
        factors: bool,
        vectors: Option<StoredVectors>,
    ) -> Result<Self> {
        let folder = folder.as_ref();
        if factors && !hasher.has_factors() {
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
            model: hasher.id().to_string(),
            factors,
            vectors,
            next_id: Some(0),
            next_number: 1,
            segments: Vec::new(),
        };
        let begun = journal.add([MODEL.to_owned()]).and_then(|()| {
            disk::write_new(&folder.join(MODEL), &hasher.to_bytes())?;
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
            current: None,
            done: Vec::new(),
            next_id,
            largest: None,
            next_number,
        }
    }

    /// Removes rows by their ids. Returns the number of removed rows. Ids that do not exist are ignored.
    ///
    /// # Errors
    ///
    /// Fails if the ids of a segment are damaged, or if a file cannot be written. Then no row is removed.
    pub fn remove(&mut self, ids: &[u64]) -> Result<u64> {
        let mut dead: BTreeMap<usize, IdSet> = BTreeMap::new();
        let (Some(low), Some(high)) = (ids.iter().min(), ids.iter().max()) else { return Ok(0) };
        for (s, segment) in self.index.segments.iter().enumerate() {
            if segment.arrays.may_have(Pool::all(), *low, *high)? {
                for row in ids.iter().filter_map(|id| segment.find(*id)) {
                    dead.entry(s).or_default().insert(row as u64);
                }
            }
        }
        if dead.is_empty() {
            return Ok(0);
        }
        let removed = dead.values().map(IdSet::len).sum();
        self.change(|index, manifest, journal| mark(index, manifest, journal, dead))?;
        Ok(removed)
    }

    /// Rewrites all rows into one segment (2^27 rows at most; further rows go to further segments), without the removed
    /// rows. Ids and hits stay the same.
    ///
    /// # Errors
    ///
    /// Fails if a file is damaged (all checksums are verified first), or if a file cannot be written. Then the index is
    /// unchanged.
    pub fn compact(&mut self) -> Result<()> {
        if self.index.segments.len() <= 1 && self.index.removed() == 0 {
            return Ok(());
        }
        self.change(|index, manifest, journal| {
            // Verifies all data again, even if they were verified before, because the old files will be removed.
            index.check()?;
            let folder = index.folder.clone();
            let mut create = || -> Result<SegmentWriter> {
                let number = number(&folder, &mut manifest.next_number)?;
                journal.add(segment::names(number, &index.layout))?;
                SegmentWriter::create(&folder, number, &index.layout)
            };
            let mut writers = vec![create()?];
            let segments = &index.segments;
            let next = |s: usize, from: usize| {
                let (segment, ids) = (&segments[s], &segments[s].arrays.ids);
                let row = (from..ids.len()).find(|r| !segment.removed.contains(*r as u64))?;
                Some(Reverse((ids.of(row), s, row)))
            };
            let mut heap: BinaryHeap<_> = (0..segments.len()).filter_map(|s| next(s, 0)).collect();
            while let Some(Reverse((id, s, row))) = heap.pop() {
                if writers.last().is_some_and(|w| w.rows() >= LONGEST) {
                    writers.push(create()?);
                }
                let part = part(&segments[s], &index.layout, row, std::slice::from_ref(&id));
                if let Some(writer) = writers.last_mut() {
                    writer.push(part)?;
                }
                heap.extend(next(s, row + 1));
            }
            manifest.segments = writers
                .into_iter()
                .filter(|writer| writer.rows() > 0)
                .map(SegmentWriter::finish)
                .collect::<Result<_>>()?;
            Ok(())
        })
    }

    /// Makes a change: `work` writes the new files and updates the manifest, then the manifest on disk is replaced. On
    /// failure the index is unchanged. Failures after the replacement are not reported, because a caller who sees an error
    /// would repeat the change.
    fn change(
        &mut self,
        work: impl FnOnce(&Index, &mut Manifest, &mut Journal) -> Result<()>,
    ) -> Result<()> {
        let (index, journal) = (&self.index, &mut self.journal);
        let folder = &index.folder;
        let mut manifest = index.manifest.clone();
        let done = work(index, &mut manifest, journal).and_then(|()| {
            manifest.generation += 1;
            let temporary = number(folder, &mut manifest.next_number)?;
            let temporary = format!("{temporary:06}.{}", manifest::NAME);
            // Opens the new index first, so that a manifest that cannot be opened is never written.
            let new = Index::with(folder, manifest.clone(), Some(index))?;
            // The old files go to the journal now. After the replacement no manifest lists them.
            let kept = manifest.numbers();
            let old = index
                .segments
                .iter()
                .flat_map(|segment| segment.files_without(&kept, &index.layout));
            journal.add(old.chain([temporary.clone()]))?;
            disk::sync(folder)?;
            manifest.save(folder, &temporary)?;
            Ok(new)
        });
        match done {
            Ok(new) => {
                self.index = new;
                // Removes the old files. If one cannot be removed now, the next writer removes it.
                let kept = self.index.manifest.numbers();
                self.journal.clean(|name| keeps(&kept, name), false);
                Ok(())
            }
            Err(error) => {
                self.clean();
                Err(error)
            }
        }
    }

    /// Removes the files that the journal lists and the manifest on disk does not. If this fails, the next writer does it.
    fn clean(&mut self) {
        if self.journal.is_empty() {
            return;
        }
        match Manifest::load(&self.index.folder) {
            Ok(manifest) => {
                let kept = manifest.numbers();
                self.journal.clean(|name| keeps(&kept, name), false);
            }
            // Before the first change there is no manifest. The journal stays, so that the files of an unfinished build
            // remain known.
            Err(_) if self.never_there() => {
                self.journal.clean(|name| keeps(&BTreeSet::new(), name), true);
            }
            Err(_) => {}
        }
    }

    /// Whether this is a new index without a committed change.
    fn never_there(&self) -> bool {
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

/// Whether a file belongs to the index: the model, and files with a number that the manifest lists.
fn keeps(numbers: &BTreeSet<u64>, name: &str) -> bool {
    name == MODEL || number_of(name).is_some_and(|number| numbers.contains(&number))
}

/// One row of a segment, for writing it to another segment.
fn part<'a>(segment: &'a Segment, layout: &Layout, row: usize, ids: &'a [u64]) -> NewPart<'a> {
    let cut = |bytes: &'a [u8], width: usize| &bytes[row * width..(row + 1) * width];
    let arrays = &segment.arrays;
    NewPart {
        ids,
        codes: arrays.codes.row(row),
        factors: arrays.codes.factors.as_ref().map_or(&[], |f| cut(&f.data, f.bytes)),
        vectors: match (&arrays.vectors, layout.vectors()) {
            (Some(bytes), Some(form)) => cut(bytes, form.width()),
            _ => &[],
        },
    }
}

/// Returns the next number that is not in the name of any file in the folder, and advances `next`.
fn number(folder: &Path, next: &mut u64) -> Result<u64> {
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
fn mark(
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

/// Rows that are being added to an index.
///
/// [`NewRows::commit`] adds all of them at once. If it fails, or if this is dropped before, no row is added.
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
/// let mut new = writer.add();
/// new.push_with_ids(rows.slice(0..2), &[70, 50])?;
/// new.push(rows.slice(2..4))?; // ids 71 and 72
/// new.commit()?;
///
/// let mut new = writer.add().replace(true);
/// new.push_with_ids(rows.slice(9..10), &[50])?;
/// assert_eq!(new.commit()?, 1); // one row was replaced
/// assert!(writer.index().contains(72)? && writer.index().len() == 4);
/// # Ok::<(), frosh::Error>(())
/// ```
pub struct NewRows<'w> {
    writer: &'w mut IndexWriter,
    pool: Pool,
    replace: bool,
    current: Option<SegmentWriter>,
    done: Vec<manifest::SegmentFacts>,
    next_id: Option<u64>,
    /// The largest id of these rows.
    largest: Option<u64>,
    next_number: u64,
}

impl std::fmt::Debug for NewRows<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NewRows({:?})", self.writer.index)
    }
}

impl NewRows<'_> {
    /// Sets whether a new row replaces the row with the same id. The default is false: such a row is an error.
    pub fn replace(mut self, replace: bool) -> Self {
        self.replace = replace;
        self
    }

    /// Adds rows with automatic ids, which continue from the largest id that was ever used. If too few numbers are left
    /// after that, they continue from the largest id that exists.
    ///
    /// # Errors
    ///
    /// Fails as [`NewRows::push_with_ids`], or if there are not enough ids left.
    pub fn push<T: Element>(&mut self, rows: Rows<'_, T>) -> Result<()> {
        let enough = |first: &u64| first.checked_add(rows.len() as u64).is_some();
        // Where no numbers are left after the largest id that there ever was, rows may still be numbered on from the
        // largest that is there: the others were removed.
        let first = self.next_id.filter(enough).or_else(|| self.after_largest()).or(self.next_id);
        self.next_id = first;
        let end = first.and_then(|first| first.checked_add(rows.len() as u64));
        let (Some(first), Some(end)) = (first, end) else {
            let largest = first.map_or(u64::MAX, |first| first.saturating_sub(1));
            return Err(Error::File {
                path: Some(self.writer.index.folder.clone()),
                why: format!(
                    "rows without ids are numbered on from the largest id, and after {largest} \
                     there are not {} numbers: give ids for these rows",
                    rows.len()
                ),
            });
        };
        let ids: Vec<u64> = (first..end).collect();
        self.push_with_ids(rows, &ids)
    }

    /// The number after the largest id of the rows that exist or are being added; `None` after 2^64 - 1.
    fn after_largest(&self) -> Option<u64> {
        let alive = |segment: &Arc<Segment>| {
            let ids = &segment.arrays.ids;
            let row = (0..ids.len()).rev().find(|row| !segment.removed.contains(*row as u64))?;
            Some(ids.of(row))
        };
        let largest = self.writer.index.segments.iter().filter_map(alive).max().max(self.largest);
        largest.map_or(Some(0), |largest| largest.checked_add(1))
    }

    /// Skips the next `count` numbers: rows that are pushed without ids after this do not get them.
    pub fn skip_numbers(&mut self, count: u64) {
        self.next_id = self.next_id.and_then(|next| next.checked_add(count));
    }

    /// Adds rows with these ids, one for each row.
    ///
    /// # Errors
    ///
    /// Fails if the numbers of ids and rows differ, if the rows have another dimension than the model, if a value is not
    /// finite or too large (above 65504 for [`StoredVectors::F16`]), or if a file cannot be written.
    pub fn push_with_ids<T: Element>(&mut self, rows: Rows<'_, T>, ids: &[u64]) -> Result<()> {
        if ids.len() != rows.len() {
            let why = format!("there are {} ids: give one for each row", ids.len());
            return Err(Error::setting("rows", rows.len(), why));
        }
        let index = &self.writer.index;
        let codes = match index.layout.factors {
            Some(_) => self.pool.install(|| index.hasher.encode_with_factors(rows))?,
            None => self.pool.install(|| index.hasher.encode(rows))?,
        };
        let vectors = index.layout.vectors.map(|stored| stored.bytes(rows)).transpose()?;
        let mut at = 0;
        while at < ids.len() {
            if self.current.as_ref().is_some_and(|segment| segment.rows() >= LONGEST) {
                self.end_segment()?;
            }
            let segment = match &mut self.current {
                Some(segment) => segment,
                empty => {
                    let (index, journal) = (&self.writer.index, &mut self.writer.journal);
                    let number = number(&index.folder, &mut self.next_number)?;
                    journal.add(segment::names(number, &index.layout))?;
                    empty.insert(SegmentWriter::create(&index.folder, number, &index.layout)?)
                }
            };
            let room = usize::try_from(LONGEST - segment.rows()).unwrap_or(usize::MAX);
            let end = ids.len().min(at.saturating_add(room));
            segment.push(cut(&codes, vectors.as_deref(), ids, at..end))?;
            at = end;
        }
        // One more than the largest id that was ever used.
        let largest = ids.iter().max().copied();
        self.largest = self.largest.max(largest);
        let after = largest.map_or(Some(0), |largest| largest.checked_add(1));
        self.next_id = self.next_id.zip(after).map(|(a, b)| a.max(b));
        Ok(())
    }

    fn end_segment(&mut self) -> Result<()> {
        if let Some(segment) = self.current.take() {
            self.done.push(segment.finish()?);
        }
        Ok(())
    }

    /// Adds the rows to the index. Returns the number of rows that were replaced.
    ///
    /// # Errors
    ///
    /// Fails if two new rows have the same id, if an id exists and [`NewRows::replace`] is not set, if the ids of a segment
    /// are damaged, or if a file cannot be written. Then no row is added.
    pub fn commit(mut self) -> Result<u64> {
        self.end_segment()?;
        let (new, next_id) = (std::mem::take(&mut self.done), self.next_id);
        let (next_number, replace) = (self.next_number, self.replace);
        let mut replaced = 0;
        let pool = self.pool.clone();
        self.writer.change(|index, manifest, journal| {
            manifest.next_number = next_number;
            manifest.next_id = next_id;
            let mut opened: Vec<Segment> = Vec::new();
            let mut dead: BTreeMap<usize, IdSet> = BTreeMap::new();
            for facts in new {
                let segment = Segment::open(&index.folder, facts, &index.layout, None)?;
                let ids = &segment.arrays.ids;
                for other in &opened {
                    if let Some(row) = ids.common(&other.arrays.ids).next() {
                        return Err(Error::DuplicateId { id: ids.of(row) });
                    }
                }
                let (low, high) = (ids.of(0), ids.of(ids.len() - 1));
                for (s, old) in index.segments.iter().enumerate() {
                    if !old.arrays.may_have(&pool, low, high)? {
                        continue;
                    }
                    let alive = |row: &usize| !old.removed.contains(*row as u64);
                    for row in old.arrays.ids.common(ids).filter(alive) {
                        if !replace {
                            return Err(Error::DuplicateId { id: old.arrays.ids.of(row) });
                        }
                        dead.entry(s).or_default().insert(row as u64);
                    }
                }
                opened.push(segment);
            }
            replaced = dead.values().map(IdSet::len).sum();
            mark(index, manifest, journal, dead)?;
            manifest.segments.extend(opened.into_iter().map(|segment| segment.facts));
            Ok(())
        })?;
        Ok(replaced)
    }
}

impl Drop for NewRows<'_> {
    fn drop(&mut self) {
        // Removes the files of rows that were not committed.
        if self.next_number > self.writer.index.manifest.next_number {
            self.writer.clean();
        }
    }
}

/// A range of the rows that are being added.
fn cut<'a>(
    codes: &'a Codes,
    vectors: Option<&'a [u8]>,
    ids: &'a [u64],
    range: std::ops::Range<usize>,
) -> NewPart<'a> {
    let part = |bytes: &'a [u8], width: usize| &bytes[range.start * width..range.end * width];
    NewPart {
        ids: &ids[range.clone()],
        codes: part(codes.as_bytes(), codes.bytes_per_row()),
        factors: codes.factors.as_ref().map_or(&[], |f| part(&f.data, f.bytes)),
        vectors: vectors.map_or(&[], |bytes| part(bytes, bytes.len() / ids.len())),
    }
}

impl StoredVectors {
    /// The bytes of rows in this precision.
    fn bytes<T: Element>(self, rows: Rows<'_, T>) -> Result<Vec<u8>> {
        let dim = rows.dim();
        let mut bytes = Vec::with_capacity(rows.len() * self.form(dim).width());
        let (zeros, mut row) = (vec![0f32; dim], vec![0f32; dim]);
        for i in 0..rows.len() {
            T::centre(rows.row(i), 1.0, &zeros, &mut row);
            match self {
                StoredVectors::F32 => row.iter().for_each(|x| bytes.extend(x.to_le_bytes())),
                StoredVectors::F16 => {
                    if let Some(column) = row.iter().position(|x| f64::from(x.abs()) > LARGEST_F16)
                    {
                        let value = row[column].into();
                        return Err(Error::TooLarge { row: i, column, value, limit: LARGEST_F16 });
                    }
                    row.iter().for_each(|x| bytes.extend(half::f16::from_f32(*x).to_le_bytes()));
                }
            }
        }
        Ok(bytes)
    }
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
