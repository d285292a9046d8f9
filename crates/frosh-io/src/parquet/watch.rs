//! Looks at every page before the crate decodes it, so that memory stays within bounds: a few bytes of Parquet can stand
//! for any number of values, since equal levels and equal values are stored as one run.
//!
//! The crate decodes whole rows, as many as it is asked for. How long rows are, the repetition levels tell: one for each
//! value, 0 where a row begins. They are stored as runs, which are counted here without being written out.

use super::pages::Pages;
use ::parquet::arrow::arrow_reader::RowGroups;
use ::parquet::basic::{Encoding, Type};
use ::parquet::column::page::{Page, PageIterator, PageMetadata, PageReader};
use ::parquet::errors::{ParquetError, Result};
use ::parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use ::parquet::file::serialized_reader::SerializedPageReader;
use ::parquet::schema::types::ColumnDescriptor;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How long rows may be. A longer one ends the reading, and its length is noted.
#[derive(Clone)]
pub(super) struct Limit {
    /// The most values that a row may have.
    pub(super) most: usize,
    /// The length of a row that had more, as far as it was followed; 0 as long as none had.
    longer: Arc<AtomicUsize>,
}

impl Limit {
    pub(super) fn new(most: usize) -> Self {
        Self { most, longer: Arc::default() }
    }

    /// The length of a row that was too long, if there was one.
    pub(super) fn exceeded(&self) -> Option<usize> {
        Some(self.longer.load(Ordering::Relaxed)).filter(|length| *length > 0)
    }
}

/// Some row groups of a file, whose pages are looked at.
pub(super) struct Watched {
    pub(super) file: Arc<Pages>,
    pub(super) meta: Arc<ParquetMetaData>,
    /// Numbers of the row groups.
    pub(super) groups: Vec<usize>,
    pub(super) limit: Limit,
}

impl RowGroups for Watched {
    fn num_rows(&self) -> usize {
        self.row_groups().map(|group| group.num_rows() as usize).sum()
    }

    fn column_chunks(&self, column: usize) -> Result<Box<dyn PageIterator>> {
        Ok(Box::new(ColumnChunks {
            file: self.file.clone(),
            meta: self.meta.clone(),
            groups: self.groups.clone().into_iter(),
            column,
            limit: self.limit.clone(),
        }))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(self.groups.iter().map(|&group| self.meta.row_group(group)))
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.meta
    }
}

/// The pages of a column, row group after row group.
struct ColumnChunks {
    file: Arc<Pages>,
    meta: Arc<ParquetMetaData>,
    groups: std::vec::IntoIter<usize>,
    column: usize,
    limit: Limit,
}

impl Iterator for ColumnChunks {
    type Item = Result<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        let group = self.meta.row_group(self.groups.next()?);
        let chunk = group.column(self.column);
        let pages =
            SerializedPageReader::new(self.file.clone(), chunk, group.num_rows() as usize, None);
        let watched = pages.map(|pages| {
            let width = width(chunk.column_descr());
            let lengths = Lengths::default();
            Box::new(WatchedPages { pages, width, lengths, limit: self.limit.clone() }) as _
        });
        Some(watched)
    }
}

impl PageIterator for ColumnChunks {}

/// Bytes of a value in a dictionary, at least.
fn width(column: &ColumnDescriptor) -> usize {
    match column.physical_type() {
        Type::INT32 | Type::FLOAT => 4,
        Type::INT64 | Type::DOUBLE => 8,
        Type::FIXED_LEN_BYTE_ARRAY => usize::try_from(column.type_length()).unwrap_or(1),
        _ => 1,
    }
}

/// The pages of a column in one row group.
struct WatchedPages {
    pages: SerializedPageReader<Pages>,
    /// Bytes of a value in the dictionary.
    width: usize,
    lengths: Lengths,
    limit: Limit,
}

impl WatchedPages {
    fn look(&mut self, page: &Page) -> Result<()> {
        let (levels, values) = match page {
            Page::DictionaryPage { buf, num_values, .. } => {
                // The crate makes room for as many values as are claimed.
                let needed = (*num_values as usize).saturating_mul(self.width);
                if needed > buf.len() {
                    return Err(ParquetError::General(format!(
                        "a dictionary of {} bytes claims to hold {num_values} values",
                        buf.len()
                    )));
                }
                return Ok(());
            }
            Page::DataPage { buf, num_values, rep_level_encoding, .. } => {
                let levels = match rep_level_encoding {
                    // The length of the levels comes first.
                    Encoding::RLE => buf.split_first_chunk().and_then(|(length, rest)| {
                        Some(Levels::Runs(rest.get(..u32::from_le_bytes(*length) as usize)?))
                    }),
                    _ => Some(Levels::Bits(buf)),
                };
                (levels, *num_values as usize)
            }
            Page::DataPageV2 { buf, num_values, rep_levels_byte_len, .. } => {
                // Here rows never go on from one page to the next.
                self.lengths.row = 0;
                let levels = buf.get(..*rep_levels_byte_len as usize).map(Levels::Runs);
                (levels, *num_values as usize)
            }
        };
        let levels = levels.ok_or_else(|| {
            ParquetError::General("a page is shorter than its repetition levels".into())
        })?;
        let longest = self.lengths.follow(levels, values);
        if longest > self.limit.most {
            self.limit.longer.fetch_max(longest, Ordering::Relaxed);
            return Err(ParquetError::General(format!("a row has {longest} values or more")));
        }
        Ok(())
    }
}

impl PageReader for WatchedPages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.pages.get_next_page()?;
        page.as_ref().map_or(Ok(()), |page| self.look(page))?;
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        // Only pages that hold whole rows can be passed over.
        self.lengths.row = 0;
        self.pages.skip_next_page()
    }

    fn supports_deferred_dictionary(&self) -> bool {
        self.pages.supports_deferred_dictionary()
    }

    fn take_deferred_dictionary(&mut self) -> Result<Option<Page>> {
        let page = self.pages.take_deferred_dictionary()?;
        page.as_ref().map_or(Ok(()), |page| self.look(page))?;
        Ok(page)
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.pages.at_record_boundary()
    }
}

impl Iterator for WatchedPages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

/// Repetition levels of one bit each, as a page stores them.
enum Levels<'a> {
    /// Runs of equal levels, and of eights of levels.
    Runs(&'a [u8]),
    /// Eight levels in each byte.
    Bits(&'a [u8]),
}

/// Measures rows by their repetition levels.
#[derive(Default)]
struct Lengths {
    /// Values so far of the row that the last level belongs to.
    row: usize,
}

impl Lengths {
    /// Goes on with `values` levels, and returns the length of the longest row among them. Levels that are missing the
    /// crate will miss too.
    fn follow(&mut self, levels: Levels<'_>, mut values: usize) -> usize {
        let mut longest = 0;
        let mut rest = match levels {
            Levels::Bits(bits) => return self.bits(bits, values),
            Levels::Runs(runs) => runs,
        };
        while values > 0
            && let Some(head) = number(&mut rest)
        {
            let count = usize::try_from(head >> 1).unwrap_or(usize::MAX);
            if head & 1 == 1 {
                let bits = &rest[..rest.len().min(count)];
                rest = &rest[bits.len()..];
                longest = longest.max(self.bits(bits, values));
                values = values.saturating_sub(8 * bits.len());
            } else if let Some((level, after)) = rest.split_first() {
                rest = after;
                let run = count.min(values);
                values -= run;
                if *level != 0 {
                    self.row = self.row.saturating_add(run);
                } else if run > 0 {
                    self.row = 1;
                }
                longest = longest.max(self.row);
            } else {
                break;
            }
        }
        longest
    }

    fn bits(&mut self, bits: &[u8], values: usize) -> usize {
        let mut longest = 0;
        let (whole, last) = bits.split_at((values / 8).min(bits.len()));
        let last = last.first().map(|byte| (*byte, values % 8));
        for (byte, count) in whole.iter().map(|byte| (*byte, 8)).chain(last) {
            for bit in 0..count {
                self.row = if byte >> bit & 1 == 0 { 1 } else { self.row + 1 };
                longest = longest.max(self.row);
            }
        }
        longest
    }
}

/// A number: seven bits in each byte, the lowest first.
fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 127) << shift;
        if *byte < 128 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_measured_by_their_levels() {
        let of = |levels: Levels<'_>, values| {
            let mut lengths = Lengths::default();
            (lengths.follow(levels, values), lengths.row)
        };
        // A row of 1 value, then one that goes on: 0, then 1 399,999,999 times.
        let run = [2, 0, 0xFE, 0x8F, 0xBC, 0xFD, 0x02, 1];
        assert_eq!(of(Levels::Runs(&run), 400_000_000), (400_000_000, 400_000_000));
        assert_eq!(of(Levels::Runs(&run), 5), (5, 5));
        assert_eq!(of(Levels::Runs(&run[..2]), 5), (1, 1));
        // Eight levels at once, the lowest bit first: rows of 3, 4 and (so far) 1.
        assert_eq!(of(Levels::Runs(&[3, 0b0111_0110]), 8), (4, 1));
        assert_eq!(of(Levels::Runs(&[3, 0b0111_0110]), 5), (3, 2));
        assert_eq!(of(Levels::Bits(&[0b0111_0110, 1]), 9), (4, 2));
        assert_eq!(of(Levels::Runs(&[]), 5), (0, 0));
        let mut lengths = Lengths { row: 7 };
        assert_eq!(lengths.follow(Levels::Runs(&[6, 1, 4, 0]), 5), 10);
        assert_eq!(lengths.row, 1);
    }
}
