//! A segment: rows that were added together, ordered by id. It is written once; rows that are removed later are
//! told by a set beside it.
//!
//! Since rows lie in the order of their ids, the first of equally near rows is the one with the smallest id,
//! and a row is found by its id in log2(rows) steps. Ids that count up by one take no space.

use super::column::{self, Column, Form};
use super::manifest::{Checksums, Removed, SegmentFacts};
use super::{Layout, StoredVectors};
use crate::bytes::Bytes;
use crate::codes::Codes;
use crate::error::{Error, Result};
use crate::factors::Beside;
use crate::hamming::IdSet;
use crate::whole::Whole;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The path of a segment's array.
fn path(folder: &Path, number: u64, form: Form) -> PathBuf {
    folder.join(format!("{number:06}.{}.npy", form.name))
}

/// The path of a set of removed rows.
pub(super) fn removed_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:06}.removed"))
}

/// Ids of rows, ascending.
#[derive(Clone)]
pub(super) enum Ids {
    /// Counting up by one from here, so many.
    Run(u64, usize),
    /// As little-endian numbers.
    Listed(Bytes),
}

impl Ids {
    pub(super) fn len(&self) -> usize {
        match self {
            Ids::Run(_, rows) => *rows,
            Ids::Listed(bytes) => bytes.len() / 8,
        }
    }

    pub(super) fn of(&self, row: usize) -> u64 {
        match self {
            Ids::Run(first, _) => first + row as u64,
            Ids::Listed(bytes) => {
                u64::from_le_bytes(bytes[8 * row..8 * row + 8].try_into().expect("eight bytes"))
            }
        }
    }

    /// The first row whose id is at least `id`.
    fn lower_bound(&self, id: u64) -> usize {
        let (mut low, mut high) = (0, self.len());
        if let Ids::Run(first, rows) = self {
            return usize::try_from(id.saturating_sub(*first)).map_or(*rows, |row| row.min(*rows));
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if self.of(middle) < id { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// The row of an id.
    pub(super) fn find(&self, id: u64) -> Option<usize> {
        let row = self.lower_bound(id);
        (row < self.len() && self.of(row) == id).then_some(row)
    }

    /// The rows whose ids may be among those of `other`.
    fn shared(&self, other: &Ids) -> Range<usize> {
        if self.len() == 0 || other.len() == 0 {
            return 0..0;
        }
        let (low, high) = (other.of(0), other.of(other.len() - 1));
        let from = self.lower_bound(low);
        let to = high.checked_add(1).map_or(self.len(), |end| self.lower_bound(end));
        from..to.max(from)
    }

    /// Rows here whose ids are also in `other`.
    pub(super) fn common<'a>(&'a self, other: &'a Ids) -> impl Iterator<Item = usize> + 'a {
        let (mine, theirs) = (self.shared(other), other.shared(self));
        // Look up the fewer among the more.
        let swap = theirs.len() < mine.len();
        let look = if swap { theirs } else { mine };
        look.filter_map(move |row| {
            if swap { self.find(other.of(row)) } else { other.find(self.of(row)).map(|_| row) }
        })
    }
}

/// An open segment.
pub(super) struct Segment {
    pub(super) facts: SegmentFacts,
    pub(super) codes: Codes,
    pub(super) ids: Ids,
    pub(super) vectors: Option<Bytes>,
    /// Removed rows.
    pub(super) removed: IdSet,
    /// The other rows; none if no row was removed.
    live: Option<IdSet>,
}

impl Segment {
    pub(super) fn open(folder: &Path, facts: SegmentFacts, layout: &Layout) -> Result<Self> {
        let wrong = |why: &str| Error::File {
            path: Some(folder.join(super::manifest::NAME)),
            why: format!("contradicts itself in segment {}: {why}", facts.number),
        };
        let rows = usize::try_from(facts.rows).map_err(|_| wrong("too many rows"))?;
        let map = |form| column::map(&path(folder, facts.number, form), form, facts.rows);
        let mut codes = Codes::new(layout.bits, layout.hasher, map(layout.codes())?);
        codes.factors = match layout.factors() {
            Some(form) => Some(Beside { bytes: form.width(), data: map(form)? }),
            None => None,
        };
        let ids = match facts.first_id {
            Some(first) if first.checked_add(facts.rows.saturating_sub(1)).is_some() => {
                Ids::Run(first, rows)
            }
            Some(_) => return Err(wrong("ids beyond the largest number")),
            None => Ids::Listed(map(Form::ids())?),
        };
        let vectors = layout.vectors().map(map).transpose()?;
        let removed = match &facts.removed {
            Some(removed) => load_removed(folder, removed, facts.rows)?,
            None => IdSet::new(),
        };
        let mut segment = Self { facts, codes, ids, vectors, removed, live: None };
        segment.set_live();
        Ok(segment)
    }

    fn set_live(&mut self) {
        self.live = (!self.removed.is_empty()).then(|| {
            let mut live = IdSet::new();
            live.insert_range(0..self.facts.rows);
            live - &self.removed
        });
    }

    /// Rows that are not removed.
    pub(super) fn len(&self) -> u64 {
        self.facts.rows - self.removed.len()
    }

    /// The row of an id, if it is there and was not removed.
    pub(super) fn find(&self, id: u64) -> Option<usize> {
        self.ids.find(id).filter(|row| !self.removed.contains(*row as u64))
    }

    /// The rows that may be found, of those whose ids are in `among`; none means all.
    pub(super) fn allowed(&self, among: Option<&IdSet>) -> Option<std::borrow::Cow<'_, IdSet>> {
        let Some(among) = among else {
            return self.live.as_ref().map(std::borrow::Cow::Borrowed);
        };
        let mut rows = IdSet::new();
        if self.ids.len() > 0 {
            let (low, high) = (self.ids.of(0), self.ids.of(self.ids.len() - 1));
            let below = low.checked_sub(1).map_or(0, |below| among.rank(below));
            // Ids of a damaged file may be out of order.
            if among.rank(high).saturating_sub(below) < self.facts.rows {
                let mut wanted = among.iter();
                wanted.advance_to(low);
                rows.extend(
                    wanted
                        .take_while(|id| *id <= high)
                        .filter_map(|id| self.ids.find(id).map(|row| row as u64)),
                );
            } else {
                let rows_of = 0..self.ids.len();
                rows.extend(rows_of.filter(|r| among.contains(self.ids.of(*r))).map(|r| r as u64));
            }
        }
        Some(std::borrow::Cow::Owned(rows - &self.removed))
    }

    /// Removes rows, besides those that are: writes the set, and changes what this segment says of itself.
    pub(super) fn remove(&mut self, folder: &Path, number: u64, rows: &IdSet) -> Result<()> {
        self.removed |= rows;
        let path = removed_path(folder, number);
        let mut bytes = Vec::new();
        let io = |source| Error::Io { path: path.clone(), source };
        self.removed.serialize_into(&mut bytes).map_err(io)?;
        let whole = Whole::begin(&path)?;
        std::io::Write::write_all(&mut whole.file(), &bytes).map_err(io)?;
        whole.commit()?;
        let checksum = column::checksum(&bytes);
        self.facts.removed = Some(Removed { number, rows: self.removed.len(), checksum });
        self.set_live();
        Ok(())
    }

    /// Reads everything and compares checksums and order.
    pub(super) fn check(&self, folder: &Path) -> Result<()> {
        let sums = &self.facts.checksums;
        let wrong = |name: &str, why: &str| Error::File {
            path: Some(folder.join(format!("{:06}.{name}.npy", self.facts.number))),
            why: format!("{why}: it is damaged; build the index again"),
        };
        let test = |name: &str, bytes: Option<&Bytes>, sum: Option<&String>| match (bytes, sum) {
            (Some(bytes), Some(sum)) if column::checksum(bytes) != *sum => {
                Err(wrong(name, "its checksum does not fit its content"))
            }
            _ => Ok(()),
        };
        test("codes", Some(&self.codes.data), Some(&sums.codes))?;
        let factors = self.codes.factors.as_ref().map(|factors| &factors.data);
        test("factors", factors, sums.factors.as_ref())?;
        test("vectors", self.vectors.as_ref(), sums.vectors.as_ref())?;
        if let Ids::Listed(bytes) = &self.ids {
            test("ids", Some(bytes), sums.ids.as_ref())?;
            if (1..self.ids.len()).any(|row| self.ids.of(row - 1) >= self.ids.of(row)) {
                return Err(wrong("ids", "its ids are not in ascending order"));
            }
        }
        Ok(())
    }
}

fn load_removed(folder: &Path, removed: &Removed, rows: u64) -> Result<IdSet> {
    let path = removed_path(folder, removed.number);
    let bytes = std::fs::read(&path).map_err(|source| Error::Io { path: path.clone(), source })?;
    let damaged = || Error::File { path: Some(path.clone()), why: "is damaged".into() };
    if column::checksum(&bytes) != removed.checksum {
        return Err(damaged());
    }
    let set = IdSet::deserialize_from(&bytes[..]).map_err(|_| damaged())?;
    if set.len() != removed.rows || set.max().is_some_and(|row| row >= rows) {
        return Err(damaged());
    }
    Ok(set)
}

/// A segment in the making.
pub(super) struct SegmentWriter {
    folder: PathBuf,
    number: u64,
    codes: Column,
    factors: Option<Column>,
    vectors: Option<Column>,
    ids: IdWriter,
}

/// Ids, as a run for as long as they are one.
enum IdWriter {
    Run { first: u64, rows: u64 },
    Listed { column: Box<Column>, last: u64, ascending: bool, rows: u64 },
}

/// Some rows: their ids, codes, factors and vectors, each array one row after the other.
#[derive(Clone, Copy)]
pub(super) struct NewPart<'a> {
    pub(super) ids: &'a [u64],
    pub(super) codes: &'a [u8],
    pub(super) factors: &'a [u8],
    pub(super) vectors: &'a [u8],
}

impl SegmentWriter {
    pub(super) fn create(folder: &Path, number: u64, layout: &Layout) -> Result<Self> {
        let column = |form| Column::create(path(folder, number, form), form);
        Ok(Self {
            folder: folder.to_owned(),
            number,
            codes: column(layout.codes())?,
            factors: layout.factors().map(column).transpose()?,
            vectors: layout.vectors().map(column).transpose()?,
            ids: IdWriter::Run { first: 0, rows: 0 },
        })
    }

    pub(super) fn rows(&self) -> u64 {
        match &self.ids {
            IdWriter::Run { rows, .. } | IdWriter::Listed { rows, .. } => *rows,
        }
    }

    pub(super) fn push(&mut self, part: NewPart<'_>) -> Result<()> {
        self.codes.write(part.codes)?;
        if let Some(column) = &mut self.factors {
            column.write(part.factors)?;
        }
        if let Some(column) = &mut self.vectors {
            column.write(part.vectors)?;
        }
        part.ids.iter().try_for_each(|id| self.push_id(*id))
    }

    fn push_id(&mut self, id: u64) -> Result<()> {
        match &mut self.ids {
            IdWriter::Run { first, rows: rows @ 0 } => {
                (*first, *rows) = (id, 1);
            }
            IdWriter::Run { first, rows } if first.checked_add(*rows) == Some(id) => *rows += 1,
            IdWriter::Run { first, rows } => {
                // The run ends here: from now on ids are written, those so far first.
                let form = Form::ids();
                let column = Column::create(path(&self.folder, self.number, form), form)?;
                let mut column = Box::new(column);
                for row in 0..*rows {
                    column.write(&(*first + row).to_le_bytes())?;
                }
                let last = *first + (*rows - 1);
                self.ids = IdWriter::Listed { column, last, ascending: true, rows: *rows };
                return self.push_id(id);
            }
            IdWriter::Listed { column, last, ascending, rows } => {
                *ascending &= id > *last;
                *last = id;
                *rows += 1;
                column.write(&id.to_le_bytes())?;
            }
        }
        Ok(())
    }

    /// Completes the files. Rows that did not come in the order of their ids are put in it.
    pub(super) fn finish(self) -> Result<SegmentFacts> {
        let rows = self.rows();
        let (first_id, id_column, order) = match self.ids {
            IdWriter::Run { first, .. } => (Some(first), None, None),
            IdWriter::Listed { column, ascending: true, .. } => (None, Some(*column), None),
            IdWriter::Listed { column, rows, .. } => {
                let ids_path = column.path().to_owned();
                column.finish()?;
                let ids = Ids::Listed(column::map(&ids_path, Form::ids(), rows)?);
                let mut order: Vec<(u64, usize)> =
                    (0..ids.len()).map(|row| (ids.of(row), row)).collect();
                order.sort_unstable();
                if let Some(pair) = order.windows(2).find(|pair| pair[0].0 == pair[1].0) {
                    return Err(Error::DuplicateId { id: pair[0].0 });
                }
                let mut column = Column::create(ids_path, Form::ids())?;
                order.iter().try_for_each(|(id, _)| column.write(&id.to_le_bytes()))?;
                (None, Some(column), Some(order))
            }
        };
        let finish = |column: Column| match &order {
            None => column.finish(),
            Some(order) => reordered(column, rows, order),
        };
        let checksums = Checksums {
            codes: finish(self.codes)?,
            factors: self.factors.map(finish).transpose()?,
            vectors: self.vectors.map(finish).transpose()?,
            ids: id_column.map(Column::finish).transpose()?,
        };
        Ok(SegmentFacts { number: self.number, rows, first_id, checksums, removed: None })
    }
}

/// Writes a column again, its rows in another order.
fn reordered(column: Column, rows: u64, order: &[(u64, usize)]) -> Result<String> {
    let (path, form) = (column.path().to_owned(), column.form());
    column.finish()?;
    let old = column::map(&path, form, rows)?;
    // The old file lives on as a mapping only.
    std::fs::remove_file(&path).map_err(|source| Error::Io { path: path.clone(), source })?;
    let mut column = Column::create(path, form)?;
    let width = form.width();
    order.iter().try_for_each(|(_, row)| column.write(&old[row * width..(row + 1) * width]))?;
    column.finish()
}

impl StoredVectors {
    pub(super) fn form(self, dim: usize) -> Form {
        match self {
            StoredVectors::F32 => Form::vectors("<f4", 4, dim),
            StoredVectors::F16 => Form::vectors("<f2", 2, dim),
        }
    }
}
