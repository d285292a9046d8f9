//! Changing an index: one writer at a time, and every change whole or not at all.

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

/// Rows of a segment at most: row numbers then fit any table, and sorting one fits in memory.
const LONGEST: u64 = 1 << 27;
/// The largest number of half precision.
const LARGEST_F16: f64 = 65504.0;

/// The one who may change an index. It holds the lock until it is dropped.
#[derive(Debug)]
pub struct IndexWriter {
    index: Index,
    journal: Journal,
    /// Locked for as long as it is open.
    _lock: File,
}

impl IndexWriter {
    /// Begins an index in a new or empty folder, or in one where a build was stopped. It is there for readers with
    /// the first change that is committed; dropped before that, it leaves an empty folder with a lock.
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
        // Before the lock, so that no lock is left in a folder of somebody else's.
        unfinished(folder)?;
        let lock = disk::lock(folder, LOCK)?;
        // Again, since another one may have built an index meanwhile.
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

    /// Opens an index to change it; an error where somebody else does. What a writer that was stopped left
    /// unfinished is removed.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        // Before the lock, so that no lock is left in a folder that holds no index.
        Manifest::load(folder)?;
        let lock = disk::lock(folder, LOCK)?;
        let (index, journal) = (Index::open(folder)?, Journal::load(folder)?);
        let mut writer = Self { index, journal, _lock: lock };
        writer.clean();
        Ok(writer)
    }

    /// The index as it is after the last committed change.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Begins to add rows.
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

    /// Removes rows by their ids; how many there were. Ids that are not there are passed over.
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

    /// Puts all rows into one segment, without those that were removed. Ids and answers stay the same. Everything is
    /// compared with its checksums first: what is damaged is an error, and stays as it is.
    pub fn compact(&mut self) -> Result<()> {
        if self.index.segments.len() <= 1 && self.index.removed() == 0 {
            return Ok(());
        }
        self.change(|index, manifest, journal| {
            // Read anew, however long ago it was read first: the originals will be gone.
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

    /// Makes a change: `work` writes files and says what the manifest shall be; then the manifest is replaced.
    /// After an error everything is as before. After the manifest was replaced nothing is an error: who is told of
    /// one makes the change again.
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
            // Opened before it counts: a manifest that cannot be opened is never written.
            let new = Index::with(folder, manifest.clone(), Some(index))?;
            // Which files the new one does not name any more is known only for as long as the old one is there.
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
                // Files of before the change. What cannot be removed now, the next writer removes.
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

    /// Removes files that the journal names and the manifest on disk does not. Where that fails, the next writer
    /// does it.
    fn clean(&mut self) {
        if self.journal.is_empty() {
            return;
        }
        match Manifest::load(&self.index.folder) {
            Ok(manifest) => {
                let kept = manifest.numbers();
                self.journal.clean(|name| keeps(&kept, name), false);
            }
            // Before the first change there is none, and what a stopped build leaves must be known.
            Err(_) if self.never_there() => {
                self.journal.clean(|name| keeps(&BTreeSet::new(), name), true);
            }
            Err(_) => {}
        }
    }

    /// Whether no change was committed to a new index.
    fn never_there(&self) -> bool {
        let manifest = self.index.folder.join(manifest::NAME);
        self.index.manifest.generation == 0 && matches!(manifest.try_exists(), Ok(false))
    }
}

impl Drop for IndexWriter {
    fn drop(&mut self) {
        // An index that never came to be leaves nothing.
        if self.never_there() {
            self.journal.clean(|_| false, false);
        }
    }
}

/// Whether a file stays: the model, and what has a number that the manifest names.
fn keeps(numbers: &BTreeSet<u64>, name: &str) -> bool {
    name == MODEL || number_of(name).is_some_and(|number| numbers.contains(&number))
}

/// One row of a segment, as it is written to another one.
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

/// Takes the next number that no file in the folder is called after, ours or not.
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

/// Rows that are being added. They are in the index when [`NewRows::commit`] returns, all of them or, after an
/// error or when this is dropped before, none.
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
    /// Whether a row whose id is there takes the place of the one that has it; otherwise that is an error.
    pub fn replace(mut self, replace: bool) -> Self {
        self.replace = replace;
        self
    }

    /// Adds rows, numbered on from the largest id that there ever was. Where too few numbers are left after that, they are
    /// numbered on from the largest id that is there.
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

    /// The number after the largest id of the rows that are there or are being added; none after 2^64 - 1.
    fn after_largest(&self) -> Option<u64> {
        let alive = |segment: &Arc<Segment>| {
            let ids = &segment.arrays.ids;
            let row = (0..ids.len()).rev().find(|row| !segment.removed.contains(*row as u64))?;
            Some(ids.of(row))
        };
        let largest = self.writer.index.segments.iter().filter_map(alive).max().max(self.largest);
        largest.map_or(Some(0), |largest| largest.checked_add(1))
    }

    /// Leaves out the next `count` numbers: rows that are pushed without ids after this do not get them.
    pub fn skip_numbers(&mut self, count: u64) {
        self.next_id = self.next_id.and_then(|next| next.checked_add(count));
    }

    /// Adds rows with these ids, one for each.
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
        // The largest id that there ever was, and one.
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

    /// Makes the rows part of the index; how many rows were replaced.
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
        // Rows that were not committed leave no files.
        if self.next_number > self.writer.index.manifest.next_number {
            self.writer.clean();
        }
    }
}

/// Some of the rows that are added.
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
    /// Rows as they are kept.
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

/// The journal of a folder in which an index may be built: one that is empty, or holds nothing but what a build
/// that was stopped wrote down before it made it.
fn unfinished(folder: &Path) -> Result<Journal> {
    let refuse = |why: String| Err(Error::File { path: Some(folder.to_owned()), why });
    if folder.join(manifest::NAME).exists() {
        return refuse("there is an index already: add to it, or remove the folder".into());
    }
    let journal = Journal::load(folder)?;
    // A lock has no content: an empty file loses nothing by being used as one.
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
