//! Names of rows: ids that are text.
//!
//! An index numbers its rows itself if they have names. A segment then has three more arrays, in the order of its rows:
//!
//! | array | content |
//! |---|---|
//! | `names` | the bytes of all names (UTF-8), one after the other |
//! | `name_ends` | for each row, where its name ends in `names`; it begins where the name before it ends |
//! | `name_lookup` | for each row, the upper half of the xxh3 of its name and, in the lower half, the row; ascending |
//!
//! Names whose hashes are equal are in the order of their bytes in `name_lookup`. So a name is found with a binary search,
//! O(log n) also if somebody chooses names with equal hashes, and one comparison of text is nearly always enough.
//!
//! Arrays are mapped. Their blocks are verified by checksums when they are first read, and what they contain is checked
//! at every use, so that a file that was made to mislead gives an error.

use super::column::{self, Column, Finished, Form};
use super::seal::Seal;
use crate::error::{Error, Result};
use crate::search::hamming::IdSet;
use crate::storage::mapped::Bytes;
use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

/// The longest name, in bytes.
pub(super) const MAX_NAME_BYTES: usize = 1 << 16;

/// The part of a name's hash that `name_lookup` has.
fn hash_of(name: &str) -> u32 {
    (xxh3_64(name.as_bytes()) >> 32) as u32
}

/// Checks that a text can be the name of a row.
pub(super) fn check_name(row: usize, name: &str) -> Result<()> {
    if (1..=MAX_NAME_BYTES).contains(&name.len()) {
        return Ok(());
    }
    let why = format!(
        "the name of row {row} has {} bytes, expected 1 to {MAX_NAME_BYTES}: give another id",
        name.len()
    );
    Err(Error::file(why))
}

/// The names of the rows of a segment.
pub(super) struct Names {
    pub(super) bytes: Bytes,
    pub(super) ends: Bytes,
    pub(super) lookup: Bytes,
    pub(super) bytes_seal: Seal,
    pub(super) ends_seal: Seal,
    pub(super) lookup_seal: Seal,
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().expect("eight bytes"))
}

impl Names {
    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.ends.len() / 8
    }

    /// The name of a row. Verifies the blocks that it reads if `verify` is true.
    pub(super) fn of(&self, row: usize, verify: bool) -> Result<&str> {
        let first = row.saturating_sub(1);
        if verify {
            self.ends_seal.verify(&self.ends, 8 * first..8 * row + 8)?;
        }
        let start = if row == 0 { 0 } else { number(&self.ends, first) };
        let end = number(&self.ends, row);
        let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
        let range = range.filter(|(start, end)| start < end && *end <= self.bytes.len());
        let (start, end) = range.ok_or_else(|| {
            self.ends_seal.fault(&format!(
                "says that the name of row {row} is from byte {start} to {end}, and there are {}",
                self.bytes.len()
            ))
        })?;
        if verify {
            self.bytes_seal.verify(&self.bytes, start..end)?;
        }
        std::str::from_utf8(&self.bytes[start..end])
            .map_err(|_| self.bytes_seal.fault(&format!("the name of row {row} is not UTF-8")))
    }

    /// An entry of `name_lookup`: hash and row.
    fn entry(&self, at: usize, verify: bool) -> Result<(u32, usize)> {
        if verify {
            self.lookup_seal.verify(&self.lookup, 8 * at..8 * at + 8)?;
        }
        let entry = number(&self.lookup, at);
        let row = (entry & u64::from(u32::MAX)) as usize;
        if row >= self.len() {
            let why = format!("lists row {row}, and there are {}", self.len());
            return Err(self.lookup_seal.fault(&why));
        }
        Ok(((entry >> 32) as u32, row))
    }

    /// Compares the name of an entry with another name, in the order of `name_lookup`.
    fn compare(&self, at: usize, hash: u32, name: &str, verify: bool) -> Result<Ordering> {
        let (here, row) = self.entry(at, verify)?;
        Ok(match here.cmp(&hash) {
            Ordering::Equal => self.of(row, verify)?.cmp(name),
            unequal => unequal,
        })
    }

    /// The row of a name.
    pub(super) fn find(&self, name: &str, verify: bool) -> Result<Option<usize>> {
        self.find_from(&mut 0, hash_of(name), name, verify)
    }

    /// The row of a name whose entry is not before `from`. Sets `from` to the first entry that is not before the name. The
    /// steps grow from `from` on, so that names in the order of `name_lookup` are found with few steps.
    fn find_from(
        &self,
        from: &mut usize,
        hash: u32,
        name: &str,
        verify: bool,
    ) -> Result<Option<usize>> {
        let (mut low, mut high, mut step) = (*from, self.len(), 1);
        while low + step < high {
            match self.compare(low + step, hash, name, verify)? {
                Ordering::Less => low += step,
                _ => high = low + step,
            }
            step *= 2;
        }
        while low < high {
            let middle = low + (high - low) / 2;
            match self.compare(middle, hash, name, verify)? {
                Ordering::Less => low = middle + 1,
                _ => high = middle,
            }
        }
        *from = low;
        if low == self.len() || self.compare(low, hash, name, verify)? != Ordering::Equal {
            return Ok(None);
        }
        Ok(Some(self.entry(low, verify)?.1))
    }

    /// The rows of `self` whose names are also in `other`.
    pub(super) fn common(&self, other: &Names, verify: bool) -> Result<IdSet> {
        let (fewer, more) = if other.len() < self.len() { (other, self) } else { (self, other) };
        let (mut rows, mut from) = (IdSet::new(), 0);
        for at in 0..fewer.len() {
            let (hash, row) = fewer.entry(at, verify)?;
            let name = fewer.of(row, verify)?;
            if let Some(found) = more.find_from(&mut from, hash, name, verify)? {
                rows.insert(if std::ptr::eq(fewer, self) { row } else { found } as u64);
            }
        }
        Ok(rows)
    }

    /// Checks that the arrays agree: the names fill `names`, and `name_lookup` has each row once, in order.
    pub(super) fn check(&self) -> Result<()> {
        let end = self.len().checked_sub(1).map_or(0, |last| number(&self.ends, last));
        if end != self.bytes.len() as u64 {
            let why = format!("its last name ends at {end} of {} bytes", self.bytes.len());
            return Err(self.ends_seal.fault(&why));
        }
        (0..self.len()).try_for_each(|row| self.of(row, false).map(drop))?;
        let mut before: Option<(u32, &str)> = None;
        for at in 0..self.len() {
            let (hash, row) = self.entry(at, false)?;
            let name = self.of(row, false)?;
            // Different names, each with its own hash: so no row is listed twice, and all are.
            if hash != hash_of(name) || before.is_some_and(|before| before >= (hash, name)) {
                return Err(self.lookup_seal.fault("its entries are not in order"));
            }
            before = Some((hash, name));
        }
        Ok(())
    }
}

/// Writes the names of a segment.
pub(super) struct NameWriter {
    names: Column,
    ends: Column,
    end: u64,
    rows: u64,
    lookup: PathBuf,
}

/// The arrays of names after they were written.
pub(super) struct FinishedNames {
    /// Bytes of all names.
    pub(super) bytes: u64,
    pub(super) names: Finished,
    pub(super) ends: Finished,
    pub(super) lookup: Finished,
}

impl NameWriter {
    /// Begins the arrays; `path` gives the path of each.
    pub(super) fn create(path: impl Fn(Form) -> PathBuf) -> Result<Self> {
        let column = |form| Column::create(path(form), form);
        let (names, ends) = (column(Form::names())?, column(Form::name_ends())?);
        Ok(Self { names, ends, end: 0, rows: 0, lookup: path(Form::name_lookup()) })
    }

    pub(super) fn push(&mut self, name: &str) -> Result<()> {
        self.names.write(name.as_bytes())?;
        self.end += name.len() as u64;
        self.rows += 1;
        self.ends.write(&self.end.to_le_bytes())
    }

    /// Completes the arrays. Needs 8 bytes of memory for each row, to sort the hashes.
    pub(super) fn finish(self) -> Result<FinishedNames> {
        let (bytes, rows) = (self.end, self.rows);
        let paths = [self.names.path().to_owned(), self.ends.path().to_owned()];
        let (names, ends) = (self.names.finish()?, self.ends.finish()?);
        let written = (column::map(&paths[0], Form::names(), bytes)?, &names);
        let written_ends = (column::map(&paths[1], Form::name_ends(), rows)?, &ends);
        for ((bytes, array), path) in [&written, &written_ends].into_iter().zip(&paths) {
            column::check_written(bytes, &array.whole, path)?;
        }
        let seal = |path: &Path| Seal::whole(path.to_owned(), String::new());
        // Only names are read from it: the lookup is not there yet.
        let all = Names {
            bytes: written.0,
            ends: written_ends.0,
            lookup: Vec::new().into(),
            bytes_seal: seal(&paths[0]),
            ends_seal: seal(&paths[1]),
            lookup_seal: seal(&self.lookup),
        };
        let mut entries = Vec::with_capacity(all.len());
        for row in 0..all.len() {
            entries.push(u64::from(hash_of(all.of(row, false)?)) << 32 | row as u64);
        }
        entries.sort_unstable();
        let name = |entry: &u64| all.of((entry & u64::from(u32::MAX)) as usize, false);
        for same in entries.chunk_by_mut(|a, b| a >> 32 == b >> 32).filter(|same| same.len() > 1) {
            let mut by_name =
                same.iter().map(|entry| Ok((name(entry)?, *entry))).collect::<Result<Vec<_>>>()?;
            by_name.sort_unstable();
            if let Some(pair) = by_name.windows(2).find(|pair| pair[0].0 == pair[1].0) {
                return Err(Error::DuplicateName { name: pair[0].0.to_owned() });
            }
            same.iter_mut().zip(&by_name).for_each(|(to, (_, entry))| *to = *entry);
        }
        let mut lookup = Column::create(self.lookup, Form::name_lookup())?;
        entries.iter().try_for_each(|entry| lookup.write(&entry.to_le_bytes()))?;
        Ok(FinishedNames { bytes, names, ends, lookup: lookup.finish()? })
    }
}
