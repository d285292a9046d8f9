//! Changing an index: one writer at a time, and every change whole or not at all.

use super::manifest::{self, Manifest};
use super::segment::{NewPart, Segment, SegmentWriter};
use super::{Index, Layout, MODEL, StoredVectors};
use crate::codes::Codes;
use crate::error::{Error, Result};
use crate::factors;
use crate::hamming::IdSet;
use crate::hasher::Hasher;
use crate::pool::Pool;
use crate::rows::{Element, Rows};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashSet};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

const LOCK: &str = "lock";
/// Rows of a segment at most: row numbers then fit any table, and sorting one fits in memory.
const LONGEST: u64 = 1 << 27;
/// The largest number of half precision.
const LARGEST_F16: f64 = 65504.0;

/// The one who may change an index. It holds the lock until it is dropped.
#[derive(Debug)]
pub struct IndexWriter {
    index: Index,
    /// Locked for as long as it is open.
    _lock: File,
}

impl IndexWriter {
    /// Begins an index in a new or empty folder. It is there for readers with the first change that is committed.
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
            return Err(factors::missing("the model", advice));
        }
        std::fs::create_dir_all(folder)
            .map_err(|source| Error::Io { path: folder.to_owned(), source })?;
        let refuse = |why: String| Error::File { path: Some(folder.to_owned()), why };
        if folder.join(manifest::NAME).exists() {
            return Err(refuse(
                "there is an index already: add to it, or remove the folder".into(),
            ));
        }
        if let Some(name) = names(folder)?.into_iter().find(|name| !is_ours(name)) {
            let why =
                format!("is no empty folder (it holds {name}): an index needs one of its own");
            return Err(refuse(why));
        }
        let lock = lock(folder)?;
        // Another one may have built an index while we waited for nothing.
        if folder.join(manifest::NAME).exists() {
            return Err(refuse(
                "there is an index already: add to it, or remove the folder".into(),
            ));
        }
        hasher.save(folder.join(MODEL))?;
        let manifest = Manifest {
            generation: 0,
            model: hasher.id().to_string(),
            factors,
            vectors,
            next_id: Some(0),
            next_number: 1,
            segments: Vec::new(),
        };
        let index = Index::with(folder, manifest)?;
        let writer = Self { index, _lock: lock };
        writer.clean()?;
        Ok(writer)
    }

    /// Opens an index to change it; an error where somebody else does. What a writer that was stopped left
    /// unfinished is removed.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        // Before the lock, so that no lock is left in a folder that holds no index.
        Manifest::load(folder)?;
        let lock = lock(folder)?;
        let writer = Self { index: Index::open(folder)?, _lock: lock };
        writer.clean()?;
        Ok(writer)
    }

    /// The index as it is after the last committed change.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Begins to add rows, encoded on the threads of `pool`.
    pub fn add<'w>(&'w mut self, pool: &Pool) -> NewRows<'w> {
        let next_id = self.index.manifest.next_id;
        let next_number = self.index.manifest.next_number;
        NewRows {
            writer: self,
            pool: pool.clone(),
            replace: false,
            current: None,
            done: Vec::new(),
            next_id,
            next_number,
        }
    }

    /// Removes rows by their ids; how many there were. Ids that are not there are passed over.
    pub fn remove(&mut self, ids: &[u64]) -> Result<u64> {
        let mut dead: BTreeMap<usize, IdSet> = BTreeMap::new();
        for id in ids {
            for (s, segment) in self.index.segments.iter().enumerate() {
                if let Some(row) = segment.find(*id) {
                    dead.entry(s).or_default().insert(row as u64);
                }
            }
        }
        if dead.is_empty() {
            return Ok(0);
        }
        let removed = dead.values().map(IdSet::len).sum();
        self.change(|index, manifest| mark(index, manifest, dead))?;
        Ok(removed)
    }

    /// Puts all rows into one segment, without those that were removed. Ids and answers stay the same.
    pub fn compact(&mut self) -> Result<()> {
        if self.index.segments.len() <= 1 && self.index.removed() == 0 {
            return Ok(());
        }
        self.change(|index, manifest| {
            let folder = index.folder.clone();
            let mut writers =
                vec![SegmentWriter::create(&folder, number(manifest), &index.layout)?];
            let segments = &index.segments;
            let next = |s: usize, from: usize| {
                let segment = &segments[s];
                let row =
                    (from..segment.ids.len()).find(|r| !segment.removed.contains(*r as u64))?;
                Some(Reverse((segment.ids.of(row), s, row)))
            };
            let mut heap: BinaryHeap<_> = (0..segments.len()).filter_map(|s| next(s, 0)).collect();
            while let Some(Reverse((id, s, row))) = heap.pop() {
                if writers.last().is_some_and(|w| w.rows() >= LONGEST) {
                    writers.push(SegmentWriter::create(&folder, number(manifest), &index.layout)?);
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
    /// After an error everything is as before.
    fn change(&mut self, work: impl FnOnce(&Index, &mut Manifest) -> Result<()>) -> Result<()> {
        let mut manifest = self.index.manifest.clone();
        let done = work(&self.index, &mut manifest).and_then(|()| {
            manifest.generation += 1;
            // Opened before it counts: a manifest that cannot be opened is never written.
            let index = Index::with(&self.index.folder, manifest.clone())?;
            sync(&self.index.folder)?;
            manifest.save(&self.index.folder)?;
            Ok(index)
        });
        match done {
            Ok(index) => {
                self.index = index;
                self.clean()
            }
            Err(error) => {
                // What was written for the change is of no use; if it cannot be removed now, the next writer will.
                let _ = self.clean();
                Err(error)
            }
        }
    }

    /// Removes files that the manifest does not name: of changes that were not completed, and of before.
    fn clean(&self) -> Result<()> {
        let folder = &self.index.folder;
        let mut kept: HashSet<u64> = HashSet::new();
        for facts in &self.index.manifest.segments {
            kept.insert(facts.number);
            kept.extend(facts.removed.iter().map(|removed| removed.number));
        }
        for name in names(folder)? {
            let unused = match number_of(&name) {
                Some(number) => !kept.contains(&number),
                None => is_temporary(&name),
            };
            if unused {
                // On some systems a file that is mapped cannot be removed: then a later writer does it.
                let _ = std::fs::remove_file(folder.join(name));
            }
        }
        Ok(())
    }
}

/// One row of a segment, as it is written to another one.
fn part<'a>(segment: &'a Segment, layout: &Layout, row: usize, ids: &'a [u64]) -> NewPart<'a> {
    let cut = |bytes: &'a [u8], width: usize| &bytes[row * width..(row + 1) * width];
    NewPart {
        ids,
        codes: segment.codes.row(row),
        factors: segment.codes.factors.as_ref().map_or(&[], |f| cut(&f.data, f.bytes)),
        vectors: match (&segment.vectors, layout.vectors()) {
            (Some(bytes), Some(form)) => cut(bytes, form.width()),
            _ => &[],
        },
    }
}

/// Takes the next number for a file.
fn number(manifest: &mut Manifest) -> u64 {
    manifest.next_number += 1;
    manifest.next_number - 1
}

/// Marks rows of segments as removed.
fn mark(index: &Index, manifest: &mut Manifest, dead: BTreeMap<usize, IdSet>) -> Result<()> {
    for (s, rows) in dead {
        let facts = manifest.segments[s].clone();
        let number = number(manifest);
        let mut segment = Segment::open(&index.folder, facts, &index.layout)?;
        segment.remove(&index.folder, number, &rows)?;
        manifest.segments[s] = segment.facts;
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

    /// Adds rows, numbered on from the largest id that there ever was.
    pub fn push<T: Element>(&mut self, rows: Rows<'_, T>) -> Result<()> {
        let first = self.next_id;
        let end = first.and_then(|first| first.checked_add(rows.len() as u64));
        let (Some(first), Some(end)) = (first, end) else {
            let why = "the largest id is taken: give ids for new rows";
            return Err(Error::setting("rows", rows.len(), why));
        };
        let ids: Vec<u64> = (first..end).collect();
        self.push_with_ids(rows, &ids)
    }

    /// Adds rows with these ids, one for each.
    pub fn push_with_ids<T: Element>(&mut self, rows: Rows<'_, T>, ids: &[u64]) -> Result<()> {
        if ids.len() != rows.len() {
            let why = format!("there are {} ids: give one for each row", ids.len());
            return Err(Error::setting("rows", rows.len(), why));
        }
        let index = &self.writer.index;
        let codes = match index.layout.factors {
            Some(_) => index.hasher.encode_with_factors(&self.pool, rows)?,
            None => index.hasher.encode_on(&self.pool, rows)?,
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
                    let index = &self.writer.index;
                    let number = self.next_number;
                    self.next_number += 1;
                    empty.insert(SegmentWriter::create(&index.folder, number, &index.layout)?)
                }
            };
            let room = usize::try_from(LONGEST - segment.rows()).unwrap_or(usize::MAX);
            let end = ids.len().min(at.saturating_add(room));
            segment.push(cut(&codes, vectors.as_deref(), ids, at..end))?;
            at = end;
        }
        // The largest id that there ever was, and one.
        let after = ids.iter().max().map_or(Some(0), |largest| largest.checked_add(1));
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
        self.writer.change(|index, manifest| {
            manifest.next_number = next_number;
            manifest.next_id = next_id;
            let mut opened: Vec<Segment> = Vec::new();
            let mut dead: BTreeMap<usize, IdSet> = BTreeMap::new();
            for facts in new {
                let segment = Segment::open(&index.folder, facts.clone(), &index.layout)?;
                for other in &opened {
                    if let Some(row) = segment.ids.common(&other.ids).next() {
                        return Err(Error::DuplicateId { id: segment.ids.of(row) });
                    }
                }
                for (s, old) in index.segments.iter().enumerate() {
                    let alive = |row: &usize| !old.removed.contains(*row as u64);
                    for row in old.ids.common(&segment.ids).filter(alive) {
                        if !replace {
                            return Err(Error::DuplicateId { id: old.ids.of(row) });
                        }
                        dead.entry(s).or_default().insert(row as u64);
                    }
                }
                opened.push(segment);
            }
            replaced = dead.values().map(IdSet::len).sum();
            mark(index, manifest, dead)?;
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
            let _ = self.writer.clean();
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

/// The names of the files in a folder.
fn names(folder: &Path) -> Result<Vec<String>> {
    let io = |source| Error::Io { path: folder.to_owned(), source };
    let entries = std::fs::read_dir(folder).map_err(io)?;
    entries.map(|e| Ok(e.map_err(io)?.file_name().to_string_lossy().into_owned())).collect()
}

/// The number that a file of a segment is called after.
fn number_of(name: &str) -> Option<u64> {
    let (number, rest) = name.split_once('.')?;
    let known = ["codes.npy", "factors.npy", "ids.npy", "vectors.npy", "removed"];
    (known.contains(&rest) && number.len() >= 6).then(|| number.parse().ok())?
}

fn is_temporary(name: &str) -> bool {
    name.starts_with(".frosh-") && name.ends_with(".tmp")
}

/// Whether a file is one that an index leaves in its folder.
fn is_ours(name: &str) -> bool {
    number_of(name).is_some() || is_temporary(name) || [MODEL, LOCK].contains(&name)
}

/// Takes the writer's lock.
fn lock(folder: &Path) -> Result<File> {
    let path: PathBuf = folder.join(LOCK);
    let io = |source| Error::Io { path: path.clone(), source };
    let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(io)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::File {
            path: Some(folder.to_owned()),
            why: "another process is changing this index: try again when it has ended".into(),
        }),
        Err(TryLockError::Error(source)) => Err(io(source)),
    }
}

/// Makes the names of new files last, where folders can be synced.
fn sync(folder: &Path) -> Result<()> {
    #[cfg(unix)]
    {
        let io = |source| Error::Io { path: folder.to_owned(), source };
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(io)?;
    }
    #[cfg(not(unix))]
    let _ = folder;
    Ok(())
}
