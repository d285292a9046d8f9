//! A segment: rows that were added together, sorted by id. Its arrays are written once. Rows that are removed later are in
//! a separate file, the set of removed rows.
//!
//! Arrays are verified by their checksums when they are first read (`seal.rs`).
//!
//! Rows are sorted by id. So the search order of equal distances, by row, is also the order by id, and a row is found by
//! its id with a binary search. Consecutive ids take no space.

use super::column::{self, Form};
use super::manifest::{Removed, SegmentFacts};
use super::names::Names;
use super::seal::{self, Seal};
use super::version::Version;
use super::{Layout, StoredVectors, disk};
use crate::error::{Error, Result};
use crate::hasher::estimator::FactorColumn;
use crate::pool::Pool;
use crate::search::codes::Codes;
use crate::search::hamming::IdSet;
use crate::storage::mapped::Bytes;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// File name of an array of a segment.
pub(super) fn name(number: u64, form: Form) -> String {
    format!("{number:06}.{}.npy", form.name)
}

/// File name of a set of removed rows.
pub(super) fn removed_name(number: u64) -> String {
    format!("{number:06}.removed")
}

/// Names of all files that a segment can have.
pub(super) fn names(number: u64, layout: &Layout) -> Vec<String> {
    let forms = layout.arrays(true).into_iter().chain([Form::checksums()]);
    forms.map(|form| name(number, form)).collect()
}

/// Ids of rows, ascending.
#[derive(Clone)]
pub(super) enum Ids {
    /// Consecutive ids: the first one and their number.
    Consecutive(u64, usize),
    /// Ids from a file, as little-endian numbers.
    Stored(Bytes),
}

impl Ids {
    pub(super) fn len(&self) -> usize {
        match self {
            Ids::Consecutive(_, rows) => *rows,
            Ids::Stored(bytes) => bytes.len() / 8,
        }
    }

    pub(super) fn of(&self, row: usize) -> u64 {
        match self {
            Ids::Consecutive(first, _) => first + row as u64,
            Ids::Stored(bytes) => {
                u64::from_le_bytes(bytes[8 * row..8 * row + 8].try_into().expect("eight bytes"))
            }
        }
    }

    /// The first row whose id is at least `id`.
    fn lower_bound(&self, id: u64) -> usize {
        let (mut low, mut high) = (0, self.len());
        if let Ids::Consecutive(first, rows) = self {
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

    /// The rows whose ids are in the id range of `other`.
    fn overlap(&self, other: &Ids) -> Range<usize> {
        if self.len() == 0 || other.len() == 0 {
            return 0..0;
        }
        let (low, high) = (other.of(0), other.of(other.len() - 1));
        let from = self.lower_bound(low);
        let to = high.checked_add(1).map_or(self.len(), |end| self.lower_bound(end));
        from..to.max(from)
    }

    /// The rows of `self` whose ids are also in `other`.
    pub(super) fn common<'a>(&'a self, other: &'a Ids) -> impl Iterator<Item = usize> + 'a {
        let (mine, theirs) = (self.overlap(other), other.overlap(self));
        // Look up the ids of the smaller range in the other.
        let swap = theirs.len() < mine.len();
        let fewer = if swap { theirs } else { mine };
        fewer.filter_map(move |row| {
            if swap { self.find(other.of(row)) } else { other.find(self.of(row)).map(|_| row) }
        })
    }
}

/// The arrays of a segment, which never change, and their checksums.
pub(super) struct Arrays {
    pub(super) codes: Codes,
    pub(super) ids: Ids,
    pub(super) vectors: Option<Bytes>,
    pub(super) names: Option<Names>,
    codes_seal: Seal,
    factors_seal: Option<Seal>,
    ids_seal: Option<Seal>,
    vectors_seal: Option<Seal>,
    /// The file of block checksums, if there is one.
    blocks: Option<Bytes>,
}

impl Arrays {
    fn open(folder: &Path, facts: &SegmentFacts, layout: &Layout) -> Result<Self> {
        let wrong = |why: &str| Error::File {
            path: Some(folder.join(super::manifest::NAME)),
            why: format!("contradicts itself in segment {}: {why}", facts.number),
        };
        let rows = usize::try_from(facts.rows).map_err(|_| wrong("too many rows"))?;
        let path = |form| folder.join(name(facts.number, form));
        let map = |form| column::map(&path(form), form, facts.rows);
        let mut codes = layout.empty.with_data(map(layout.codes())?);
        codes.factors = match layout.factors() {
            Some(form) => Some(FactorColumn { bytes: form.width(), data: map(form)? }),
            None => None,
        };
        let ids = match facts.first_id {
            Some(first) if first.checked_add(facts.rows.saturating_sub(1)).is_some() => {
                Ids::Consecutive(first, rows)
            }
            Some(_) => return Err(wrong("ids beyond the largest number")),
            None => Ids::Stored(map(Form::ids())?),
        };
        let vectors = layout.vectors().map(map).transpose()?;
        let name_bytes = match (layout.names, facts.name_bytes) {
            (true, None) => return Err(wrong("its rows have no names")),
            (false, Some(_)) => return Err(wrong("its rows have names")),
            (_, bytes) => bytes,
        };
        let name_arrays = match name_bytes {
            Some(bytes) => {
                let names = column::map(&path(Form::names()), Form::names(), bytes)?;
                Some((names, map(Form::name_ends())?, map(Form::name_lookup())?))
            }
            None => None,
        };
        // The arrays were mapped, so their lengths do not overflow.
        let forms = layout.arrays(facts.first_id.is_none());
        let length = |form: &Form| match name_bytes {
            Some(bytes) if form.name == Form::names().name => seal::blocks(bytes),
            _ => seal::blocks(facts.rows * form.width() as u64),
        };
        let blocks = match facts.checksums.blocks {
            Some(_) => {
                let form = Form::checksums();
                Some(column::map(&path(form), form, forms.iter().map(length).sum())?)
            }
            None => None,
        };
        let mut at = 0;
        let mut seals = forms.iter().map(|form| {
            let from = 8 * at as usize;
            at += length(form);
            match (&blocks, facts.checksums.of(form.name)) {
                (Some(sums), _) => Ok(Seal::blocks(path(*form), sums.slice(from..8 * at as usize))),
                (None, Some(sum)) => Ok(Seal::whole(path(*form), sum.clone())),
                (None, None) => Err(wrong("an array has no checksum")),
            }
        });
        // In the order of `Layout::arrays`.
        let mut next = |there: bool| there.then(|| seals.next()).flatten().transpose();
        let missing = || wrong("an array is missing");
        let codes_seal = next(true)?.ok_or_else(missing)?;
        let factors_seal = next(codes.factors.is_some())?;
        let vectors_seal = next(vectors.is_some())?;
        let ids_seal = next(facts.first_id.is_none())?;
        let names = match name_arrays {
            Some((bytes, ends, lookup)) => Some(Names {
                bytes,
                ends,
                lookup,
                bytes_seal: next(true)?.ok_or_else(missing)?,
                ends_seal: next(true)?.ok_or_else(missing)?,
                lookup_seal: next(true)?.ok_or_else(missing)?,
            }),
            None => None,
        };
        Ok(Self {
            codes_seal,
            factors_seal,
            vectors_seal,
            ids_seal,
            names,
            blocks: blocks.clone(),
            codes,
            ids,
            vectors,
        })
    }

    fn stored_ids(&self) -> Option<(&Seal, &Bytes)> {
        match (&self.ids, &self.ids_seal) {
            (Ids::Stored(bytes), Some(seal)) => Some((seal, bytes)),
            _ => None,
        }
    }

    fn factors(&self) -> Option<(&Seal, &Bytes)> {
        let bytes = self.codes.factors.as_ref().map(|factors| &factors.data);
        self.factors_seal.as_ref().zip(bytes)
    }

    /// Verifies the arrays that a search reads: codes, ids and, if `factors` is true, factors.
    pub(super) fn verify(&self, pool: &Pool, factors: bool) -> Result<()> {
        let codes = (&self.codes_seal, &self.codes.data);
        let factors = if factors { self.factors() } else { None };
        let arrays: Vec<_> =
            [Some(codes), factors, self.stored_ids()].into_iter().flatten().collect();
        seal::verify_all(pool, &arrays)
    }

    /// Whether codes and factors are verified.
    #[cfg(test)]
    pub(super) fn was_verified(&self) -> bool {
        self.codes_seal.was_verified() && self.factors_seal.as_ref().is_none_or(Seal::was_verified)
    }

    /// Verifies the ids.
    pub(super) fn verify_ids(&self, pool: &Pool) -> Result<()> {
        self.stored_ids().map_or(Ok(()), |ids| seal::verify_all(pool, &[ids]))
    }

    /// Whether the id range of this segment overlaps `low..=high`. If so, all ids are verified; otherwise only the
    /// blocks of the first and the last id.
    pub(super) fn may_have(&self, pool: &Pool, low: u64, high: u64) -> Result<bool> {
        let rows = self.ids.len();
        if rows == 0 {
            return Ok(false);
        }
        if let Some((seal, bytes)) = self.stored_ids() {
            seal.verify(bytes, 0..8)?;
            seal.verify(bytes, bytes.len() - 8..bytes.len())?;
        }
        let may = low <= self.ids.of(rows - 1) && self.ids.of(0) <= high;
        if may {
            self.verify_ids(pool)?;
        }
        Ok(may)
    }

    /// The vector of a row, of `width` bytes. Verifies its blocks first if `verify` is true.
    pub(super) fn vector(&self, row: usize, width: usize, verify: bool) -> Result<Option<&[u8]>> {
        let Some((bytes, seal)) = self.vectors.as_ref().zip(self.vectors_seal.as_ref()) else {
            return Ok(None);
        };
        let range = row * width..(row + 1) * width;
        if verify {
            seal.verify(bytes, range.clone())?;
        }
        Ok(Some(&bytes[range]))
    }
}

/// An open segment.
pub(super) struct Segment {
    pub(super) facts: SegmentFacts,
    /// The version that encoded it.
    pub(super) version: Arc<Version>,
    pub(super) arrays: Arc<Arrays>,
    /// Removed rows.
    pub(super) removed: IdSet,
    /// The rows that are not removed; `None` if no row is removed.
    live: Option<IdSet>,
}

impl Segment {
    /// Opens a segment. `before` is the same segment before the change, if it is open; its arrays are reused.
    pub(super) fn open(
        folder: &Path,
        facts: SegmentFacts,
        version: &Arc<Version>,
        layout: &Layout,
        before: Option<&Segment>,
    ) -> Result<Self> {
        let arrays = match before {
            Some(before) => before.arrays.clone(),
            None => Arc::new(Arrays::open(folder, &facts, layout)?),
        };
        let version = Arc::clone(version);
        let removed = match &facts.removed {
            Some(removed) => load_removed(folder, removed, facts.rows)?,
            None => IdSet::new(),
        };
        let mut segment = Self { facts, version, arrays, removed, live: None };
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

    /// The rows that are not removed.
    pub(super) fn live_rows(&self) -> IdSet {
        let all = || (0..self.facts.rows).collect();
        self.live.clone().unwrap_or_else(all)
    }

    /// Whether this version encoded it.
    pub(super) fn is_of(&self, version: &Version) -> bool {
        self.version.facts.model == version.facts.model
    }

    /// The names of its files.
    pub(super) fn files(&self) -> impl Iterator<Item = String> {
        let facts = &self.facts;
        let blocks = facts.checksums.blocks.as_ref().map(|_| Form::checksums());
        let layout = Layout { names: facts.name_bytes.is_some(), ..self.version.layout.clone() };
        let arrays = layout.arrays(facts.first_id.is_none()).into_iter().chain(blocks);
        let removed = facts.removed.as_ref().map(|removed| removed_name(removed.number));
        arrays.map(|form| name(facts.number, form)).chain(removed)
    }

    /// The names of its files whose number is not in `kept`.
    pub(super) fn files_without(&self, kept: &BTreeSet<u64>) -> Vec<String> {
        let removed = self.facts.removed.as_ref().map(|removed| removed.number);
        if [Some(self.facts.number), removed].iter().flatten().all(|number| kept.contains(number)) {
            return Vec::new();
        }
        let other = |name: &String| super::number_of(name).is_some_and(|n| !kept.contains(&n));
        self.files().filter(other).collect()
    }

    /// Rows that are not removed.
    pub(super) fn len(&self) -> u64 {
        self.facts.rows - self.removed.len()
    }

    /// The row of an id, if the segment has it and it is not removed.
    pub(super) fn find(&self, id: u64) -> Option<usize> {
        self.arrays.ids.find(id).filter(|row| !self.removed.contains(*row as u64))
    }

    /// The row of a name, if the segment has it and it is not removed.
    pub(super) fn find_name(&self, name: &str, verify: bool) -> Result<Option<usize>> {
        let Some(names) = &self.arrays.names else { return Ok(None) };
        let row = names.find(name, verify)?;
        Ok(row.filter(|row| !self.removed.contains(*row as u64)))
    }

    /// The rows that a search may return: not removed, and with an id in `among` if it is given. `None` means all rows.
    pub(super) fn allowed(&self, among: Option<&IdSet>) -> Option<std::borrow::Cow<'_, IdSet>> {
        let Some(among) = among else {
            return self.live.as_ref().map(std::borrow::Cow::Borrowed);
        };
        let (mut rows, ids) = (IdSet::new(), &self.arrays.ids);
        if ids.len() > 0 {
            let (low, high) = (ids.of(0), ids.of(ids.len() - 1));
            let below = low.checked_sub(1).map_or(0, |below| among.rank(below));
            // The ids of a damaged file may be unsorted, so the subtraction must not overflow.
            if among.rank(high).saturating_sub(below) < self.facts.rows {
                let mut wanted = among.iter();
                wanted.advance_to(low);
                rows.extend(
                    wanted
                        .take_while(|id| *id <= high)
                        .filter_map(|id| ids.find(id).map(|row| row as u64)),
                );
            } else {
                let rows_of = 0..ids.len();
                rows.extend(rows_of.filter(|r| among.contains(ids.of(*r))).map(|r| r as u64));
            }
        }
        Some(std::borrow::Cow::Owned(rows - &self.removed))
    }

    /// Writes a new set of removed rows that also contains `rows`. Returns its entry in the manifest.
    pub(super) fn remove(&self, folder: &Path, number: u64, rows: &IdSet) -> Result<Removed> {
        let removed = &self.removed | rows;
        let path = folder.join(removed_name(number));
        let mut bytes = Vec::new();
        let io = |source| Error::Io { path: path.clone(), source };
        removed.serialize_into(&mut bytes).map_err(io)?;
        disk::write_new(&path, &bytes)?;
        Ok(Removed { number, rows: removed.len(), checksum: column::checksum(&bytes) })
    }

    /// Reads all arrays again and checks the checksums and the order of the ids.
    pub(super) fn check(&self, folder: &Path) -> Result<()> {
        let (sums, arrays) = (&self.facts.checksums, &self.arrays);
        let path = |form| folder.join(name(self.facts.number, form));
        let test = |seal: Option<&Seal>, bytes: Option<&[u8]>, sum: Option<&String>| match (
            seal, bytes, sum,
        ) {
            (Some(seal), Some(bytes), Some(sum)) if column::checksum(bytes) != *sum => {
                Err(seal.damaged())
            }
            _ => Ok(()),
        };
        test(Some(&arrays.codes_seal), Some(&arrays.codes.data), Some(&sums.codes))?;
        let factors = arrays.codes.factors.as_ref().map(|factors| &*factors.data);
        test(arrays.factors_seal.as_ref(), factors, sums.factors.as_ref())?;
        test(arrays.vectors_seal.as_ref(), arrays.vectors.as_deref(), sums.vectors.as_ref())?;
        if let Ids::Stored(bytes) = &arrays.ids {
            test(arrays.ids_seal.as_ref(), Some(bytes), sums.ids.as_ref())?;
            let ids = &arrays.ids;
            if (1..ids.len()).any(|row| ids.of(row - 1) >= ids.of(row)) {
                let why =
                    "its ids are not in ascending order: it is damaged; build the index again";
                return Err(Error::File { path: Some(path(Form::ids())), why: why.into() });
            }
        }
        if let Some(names) = &arrays.names {
            test(Some(&names.bytes_seal), Some(&names.bytes), sums.names.as_ref())?;
            test(Some(&names.ends_seal), Some(&names.ends), sums.name_ends.as_ref())?;
            test(Some(&names.lookup_seal), Some(&names.lookup), sums.name_lookup.as_ref())?;
            names.check()?;
        }
        match (&arrays.blocks, &sums.blocks) {
            (Some(bytes), Some(sum)) if column::checksum(bytes) != *sum => {
                Err(Error::File { path: Some(path(Form::checksums())), why: seal::DAMAGED.into() })
            }
            _ => Ok(()),
        }
    }
}

fn load_removed(folder: &Path, removed: &Removed, rows: u64) -> Result<IdSet> {
    let path = folder.join(removed_name(removed.number));
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

impl StoredVectors {
    pub(super) fn form(self, dim: usize) -> Form {
        match self {
            StoredVectors::F32 => Form::vectors("<f4", 4, dim),
            StoredVectors::F16 => Form::vectors("<f2", 2, dim),
        }
    }
}
