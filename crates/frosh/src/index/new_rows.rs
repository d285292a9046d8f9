//! Rows that are being added to an index: encoded, written to segments, and visible after [`NewRows::commit`].

use super::manifest::{self};
use super::names::check_name;
use super::segment::{self, Segment};
use super::segment_writer::{NewPart, SegmentWriter};
use super::writer::{IndexWriter, MAX_SEGMENT_ROWS, mark, number};
use super::{Index, Layout, StoredVectors, disk};
use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::rows::{Element, Rows};
use crate::search::codes::Codes;
use crate::search::hamming::IdSet;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The largest half-precision number.
const LARGEST_F16: f64 = 65504.0;

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
    pub(super) writer: &'w mut IndexWriter,
    pub(super) pool: Pool,
    pub(super) replace: bool,
    /// Whether the ids of these rows are names; `None` before the first row.
    pub(super) names: Option<bool>,
    pub(super) current: Option<SegmentWriter>,
    pub(super) done: Vec<manifest::SegmentFacts>,
    pub(super) next_id: Option<u64>,
    /// The largest id of these rows.
    pub(super) largest: Option<u64>,
    pub(super) next_number: u64,
    /// The bytes of a learner and the number of rows that it has seen.
    pub(super) learner: Option<(Vec<u8>, u64)>,
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
        let ids = self.automatic(rows.len())?;
        self.push_with_ids(rows, &ids)
    }

    /// The next automatic ids.
    fn automatic(&mut self, rows: usize) -> Result<Vec<u64>> {
        let enough = |first: &u64| first.checked_add(rows as u64).is_some();
        // Where no numbers are left after the largest id that there ever was, rows may still be numbered on from the
        // largest that is there: the others were removed.
        let first = self.next_id.filter(enough).or_else(|| self.after_largest()).or(self.next_id);
        self.next_id = first;
        let end = first.and_then(|first| first.checked_add(rows as u64));
        let (Some(first), Some(end)) = (first, end) else {
            let largest = first.map_or(u64::MAX, |first| first.saturating_sub(1));
            return Err(Error::File {
                path: Some(self.writer.index.folder.clone()),
                why: format!(
                    "rows without ids are numbered on from the largest id, and after {largest} \
                     there are not {rows} numbers: give ids for these rows"
                ),
            });
        };
        Ok((first..end).collect())
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
    /// finite or too large (above 65504 for [`StoredVectors::F16`]), if other rows have names, or if a file cannot be
    /// written.
    pub fn push_with_ids<T: Element>(&mut self, rows: Rows<'_, T>, ids: &[u64]) -> Result<()> {
        self.set_kind(false)?;
        self.push_rows(rows, ids, &[])
    }

    /// Adds rows whose ids are these names, one for each row. A name has 1 to 65,536 bytes. The rows are numbered as by
    /// [`NewRows::push`]; hits have the numbers, and [`Index::name`] returns their names.
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
    /// new.push_with_names(rows.slice(0..2), &["a.jpg", "b.jpg"])?;
    /// new.commit()?;
    ///
    /// let mut new = writer.add().replace(true);
    /// new.push_with_names(rows.slice(5..6), &["a.jpg"])?;
    /// assert_eq!(new.commit()?, 1); // one row was replaced
    /// assert_eq!(writer.remove_names(&["b.jpg", "c.jpg"])?, 1);
    /// assert_eq!((writer.index().len(), writer.index().find("b.jpg")?), (1, None));
    /// # Ok::<(), frosh::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails as [`NewRows::push_with_ids`], if a name is empty or too long, or if other rows have whole numbers as ids.
    pub fn push_with_names<T: Element, S: AsRef<str>>(
        &mut self,
        rows: Rows<'_, T>,
        names: &[S],
    ) -> Result<()> {
        self.set_kind(true)?;
        let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        names.iter().enumerate().try_for_each(|(row, name)| check_name(row, name))?;
        let ids = self.automatic(names.len())?;
        self.push_rows(rows, &ids, &names)
    }

    /// Whether ids are names, from the first row on. Fails if those of other rows are of the other kind.
    fn set_kind(&mut self, names: bool) -> Result<()> {
        let index = &self.writer.index;
        index.check_kind(names)?;
        if self.names.is_some_and(|before| before != names) {
            let why = "some of the rows being added have names and some numbers: all must be alike";
            return Err(Error::File { path: Some(index.folder.clone()), why: why.into() });
        }
        self.names = Some(names);
        Ok(())
    }

    /// The layout of the index after these rows are added.
    fn layout(index: &Index, names: Option<bool>) -> Layout {
        Layout { names: names.unwrap_or(index.layout.names), ..index.layout.clone() }
    }

    /// Adds rows. `names` is empty if they have none.
    fn push_rows<T: Element>(
        &mut self,
        rows: Rows<'_, T>,
        ids: &[u64],
        names: &[&str],
    ) -> Result<()> {
        if ids.len() != rows.len() {
            let why = format!("there are {} ids: give one for each row", ids.len());
            return Err(Error::setting("rows", rows.len(), why));
        }
        let index = &self.writer.index;
        let codes = match index.layout.factors {
            Some(_) => self.pool.install(|| index.model().encode_with_factors(rows))?,
            None => self.pool.install(|| index.model().encode(rows))?,
        };
        let vectors = index.layout.vectors.map(|stored| stored.bytes(rows)).transpose()?;
        let mut at = 0;
        while at < ids.len() {
            if self.current.as_ref().is_some_and(|segment| segment.rows() >= MAX_SEGMENT_ROWS) {
                self.end_segment()?;
            }
            let segment = match &mut self.current {
                Some(segment) => segment,
                empty => {
                    let (index, journal) = (&self.writer.index, &mut self.writer.journal);
                    let layout = Self::layout(index, self.names);
                    let number = number(&index.folder, &mut self.next_number)?;
                    journal.add(segment::names(number, &layout))?;
                    empty.insert(SegmentWriter::create(&index.folder, number, &layout)?)
                }
            };
            let room = usize::try_from(MAX_SEGMENT_ROWS - segment.rows()).unwrap_or(usize::MAX);
            let end = ids.len().min(at.saturating_add(room));
            let part = cut(&codes, vectors.as_deref(), ids, at..end);
            segment.push(NewPart { names: names.get(at..end).unwrap_or(&[]), ..part })?;
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
        let (next_number, replace, names) = (self.next_number, self.replace, self.names);
        let mut replaced = 0;
        let (pool, learner) = (self.pool.clone(), self.learner.take());
        self.writer.change(|index, manifest, journal| {
            manifest.next_number = next_number;
            manifest.next_id = next_id;
            if let Some((bytes, rows)) = learner {
                let number = number(&index.folder, &mut manifest.next_number)?;
                let facts = manifest::LearnerFacts { number, rows };
                journal.add([facts.file()])?;
                disk::write_new(&index.folder.join(facts.file()), &bytes)?;
                manifest.learner = Some(facts);
            }
            let layout = Self::layout(index, names);
            manifest.names = layout.names;
            let mut opened: Vec<Segment> = Vec::new();
            let mut dead: BTreeMap<usize, IdSet> = BTreeMap::new();
            let settled = index.is_built_from_the_models_rows(&new);
            for facts in new {
                let facts =
                    manifest::SegmentFacts { model: manifest.model_of_new(), settled, ..facts };
                let version = index.newest();
                let segment = Segment::open(&index.folder, facts, version, &layout, None)?;
                if segment.arrays.names.is_some() {
                    by_name(index, &opened, &segment, replace, &mut dead)?;
                    opened.push(segment);
                    continue;
                }
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

impl Index {
    /// Whether these are the first rows of the index, and so few that the model can have been learned from them. Such rows
    /// belong to the first version. Other rows came after it was made, and the next version encodes them again.
    fn is_built_from_the_models_rows(&self, new: &[manifest::SegmentFacts]) -> bool {
        let rows = new.iter().map(|facts| facts.rows).sum::<u64>();
        self.manifest.generation == 0 && rows <= self.model().rows()
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

/// Finds the rows of the index that have the names of the rows of a new segment, and adds them to `dead` if they are to be
/// replaced. Fails if they are not, or if another new segment has one of these names.
fn by_name(
    index: &Index,
    opened: &[Segment],
    new: &Segment,
    replace: bool,
    dead: &mut BTreeMap<usize, IdSet>,
) -> Result<()> {
    let twice = |segment: &Segment, row: u64| match &segment.arrays.names {
        Some(names) => match names.of(row as usize, true) {
            Ok(name) => Error::DuplicateName { name: name.to_owned() },
            Err(error) => error,
        },
        None => Error::DuplicateId { id: row },
    };
    let common =
        |segment: &Segment| match segment.arrays.names.as_ref().zip(new.arrays.names.as_ref()) {
            Some((theirs, ours)) => theirs.common(ours, true),
            None => Ok(IdSet::new()),
        };
    for other in opened {
        if let Some(row) = common(other)?.min() {
            return Err(twice(other, row));
        }
    }
    for (s, old) in index.segments.iter().enumerate() {
        let rows = common(old)? - &old.removed;
        match rows.min() {
            None => {}
            Some(row) if !replace => return Err(twice(old, row)),
            Some(_) => *dead.entry(s).or_default() |= rows,
        }
    }
    Ok(())
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
        names: &[],
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
