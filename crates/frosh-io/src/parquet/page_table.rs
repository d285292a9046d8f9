//! Finds the page of a row within a row group by the headers of the pages, so that a range of rows can be read without
//! decompressing all that is before it.
//!
//! The header of a page tells its size and its number of values. Pages of version 2 also tell their number of rows. In
//! pages of version 1 a row may continue on the next page, and the number of rows is not known. But every row must
//! have the dimension of the file, or reading it is an error. So row `r` of a row group begins at value `r * dim`, unless a
//! row before it is refused. The first page that is read is checked: rows must begin in it where they are expected.
//!
//! The table is not used where null rows are left out, because a null row takes the place of one value.

use super::pages::read_header;
use super::thrift::{END, INT, STRUCT, Thrift};
use ::parquet::file::metadata::ColumnChunkMetaData;
use std::fs::File;
use std::ops::Range;

/// The types of pages.
const DATA: i64 = 0;
const DICTIONARY: i64 = 2;
const DATA_V2: i64 = 3;

/// The pages of a column in one row group, as far as they were looked for.
pub(super) struct PageTable {
    /// The number of the row group.
    pub(super) group: usize,
    /// Values in each row.
    dim: u64,
    /// Where the next header is in the file, and where the pages end.
    next: u64,
    end: u64,
    /// Values before the page at `next`.
    values: u64,
    dictionary: Option<Range<u64>>,
    pages: Vec<Page>,
}

/// A page of values.
struct Page {
    /// Where it is in the file.
    at: u64,
    /// Values before it in the row group.
    values: u64,
}

/// Where to begin reading a row group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Start {
    /// The first page, up to the end of the last one.
    pub(super) pages: Range<u64>,
    /// The page with the dictionary, if there is one.
    pub(super) dictionary: Option<Range<u64>>,
    /// Rows to skip from there. A row that continues from the page before counts.
    pub(super) skip: u64,
    /// Values of such a row on the page before, and on this page.
    pub(super) before: u64,
    pub(super) rest: u64,
}

impl PageTable {
    /// An empty table for the pages of a column chunk, which is within the file.
    pub(super) fn new(group: usize, dim: usize, chunk: &ColumnChunkMetaData) -> Self {
        let (start, length) = chunk.byte_range();
        let end = start.saturating_add(length);
        let dim = (dim as u64).max(1);
        Self { group, dim, next: start, end, values: 0, dictionary: None, pages: Vec::new() }
    }

    /// The page to begin with for a row of the row group; `None` if that is the first one, or if the headers make no sense.
    /// Then the crate reads the row group from its start, and reports what is wrong.
    pub(super) fn find(&mut self, file: &File, row: u64) -> Option<Start> {
        let wanted = row.checked_mul(self.dim)?;
        // This ends: every header has at least one byte.
        while self.values <= wanted && self.next < self.end {
            self.add(file)?;
        }
        let found = self.pages.partition_point(|page| page.values <= wanted).checked_sub(1);
        let page = self.pages.get(found.filter(|found| *found > 0)?)?;
        let before = page.values % self.dim;
        Some(Start {
            pages: page.at..self.end,
            dictionary: self.dictionary.clone(),
            skip: row - page.values / self.dim,
            before,
            rest: if before == 0 { 0 } else { self.dim - before },
        })
    }

    /// Reads the next header.
    fn add(&mut self, file: &File) -> Option<()> {
        let bytes = read_header(file, self.next).ok()?;
        let mut thrift = Thrift { bytes: &bytes };
        let header = Header::parse(&mut thrift)?;
        let length = (bytes.len() - thrift.bytes.len()) as u64;
        let next = self.next.checked_add(length)?.checked_add(header.stored)?;
        if next > self.end {
            return None;
        }
        match header.kind {
            // The dictionary comes first.
            DICTIONARY if self.dictionary.is_none() && self.pages.is_empty() => {
                self.dictionary = Some(self.next..next);
            }
            DICTIONARY => return None,
            DATA | DATA_V2 => {
                self.pages.push(Page { at: self.next, values: self.values });
                let values = match header.rows {
                    Some(rows) => rows.checked_mul(self.dim)?,
                    None => header.values,
                };
                self.values = self.values.checked_add(values)?;
            }
            _ => {} // Pages of other types are passed over.
        }
        self.next = next;
        Some(())
    }
}

/// What the header of a page tells.
#[derive(Debug, PartialEq, Eq)]
struct Header {
    kind: i64,
    /// Its size in the file, without the header.
    stored: u64,
    values: u64,
    /// Only in pages of version 2.
    rows: Option<u64>,
}

impl Header {
    fn parse(thrift: &mut Thrift<'_>) -> Option<Self> {
        let (mut kind, mut stored, mut values, mut rows) = (None, None, 0, None);
        let mut last = 0;
        loop {
            match thrift.field(&mut last)? {
                (_, END) => break,
                (1, INT) => kind = Some(thrift.signed()?),
                (3, INT) => stored = Some(u64::try_from(thrift.signed()?).ok()?),
                (5, STRUCT) => values = numbers(thrift)?[1].unwrap_or(0),
                (8, STRUCT) => {
                    let of_page = numbers(thrift)?;
                    values = of_page[1].unwrap_or(0);
                    rows = of_page[3];
                }
                (_, kind) => thrift.skip(kind, 0)?,
            }
        }
        let (kind, stored) = (kind?, stored?);
        let fits = match kind {
            DATA => rows.is_none(),
            DATA_V2 => rows.is_some(),
            _ => true,
        };
        fits.then_some(Self { kind, stored, values, rows })
    }
}

/// The first three fields of a structure, by their numbers, where they are whole numbers that are not negative.
fn numbers(thrift: &mut Thrift<'_>) -> Option<[Option<u64>; 4]> {
    let (mut found, mut last) = ([None; 4], 0);
    loop {
        match thrift.field(&mut last)? {
            (_, END) => return Some(found),
            (number @ 1..=3, INT) => {
                found[number as usize] = Some(u64::try_from(thrift.signed()?).ok()?);
            }
            (_, kind) => thrift.skip(kind, 1)?,
        }
    }
}
