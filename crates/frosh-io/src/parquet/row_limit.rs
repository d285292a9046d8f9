//! Refuses rows that are too long before the crate decodes them, so that memory stays bounded: a few bytes
//! of Parquet can stand for any number of values, since equal levels and equal values are stored as one run.
//!
//! The crate decodes whole rows, as many as it is asked for. The lengths of rows are given by the
//! repetition levels: one for each value, 0 where a row begins. They are stored as runs, which are counted
//! here without being expanded.

use super::page_table::Start;
use super::pages::CheckedFile;
use super::thrift::varint;
use crate::decompress::{largest_claim, largest_total, unzstd};
use ::parquet::arrow::arrow_reader::RowGroups;
use ::parquet::basic::{Compression, Encoding, Type};
use ::parquet::column::page::{Page, PageIterator, PageMetadata, PageReader};
use ::parquet::errors::{ParquetError, Result};
use ::parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};
use ::parquet::file::reader::Length as _;
use ::parquet::file::serialized_reader::SerializedPageReader;
use ::parquet::schema::types::ColumnDescriptor;
use bytes::Bytes;
use std::io::Read;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// The limit for the length of rows. A longer row is an error, and its length is recorded.
#[derive(Clone)]
pub(super) struct RowLimit {
    /// The most values that a row may have.
    pub(super) most: usize,
    /// The length of a row that had more, as far as it was counted; 0 if none had.
    exceeded: Arc<AtomicUsize>,
    /// If pages of `DELTA_BYTE_ARRAY` are refused: whether one was found.
    prefixes: Option<Arc<AtomicBool>>,
}

impl RowLimit {
    pub(super) fn new(most: usize) -> Self {
        Self { most, exceeded: Arc::default(), prefixes: None }
    }

    /// Refuses pages of values that are stored as what they differ from the one before: each may be as long as its page.
    pub(super) fn without_prefixes(mut self) -> Self {
        self.prefixes = Some(Arc::default());
        self
    }

    /// Whether such a page was refused.
    pub(super) fn found_prefixes(&self) -> bool {
        self.prefixes.as_ref().is_some_and(|found| found.load(Ordering::Relaxed))
    }

    /// The length of a row that was too long, if there was one.
    pub(super) fn exceeded(&self) -> Option<usize> {
        Some(self.exceeded.load(Ordering::Relaxed)).filter(|length| *length > 0)
    }
}

/// The memory that the pages of all columns take at once. A small file may have many columns, each with a page
/// that is large when it is decompressed.
#[derive(Clone)]
struct PageBytes {
    most: u64,
    used: Arc<AtomicU64>,
}

/// Some row groups of a file, whose pages are checked.
pub(super) struct CheckedGroups {
    pub(super) file: Arc<CheckedFile>,
    pub(super) meta: Arc<ParquetMetaData>,
    /// Numbers of the row groups.
    pub(super) groups: Vec<usize>,
    pub(super) limit: RowLimit,
    bytes: PageBytes,
    /// Where to begin in the first of them, if not at its first page.
    start: Option<Start>,
}

impl CheckedGroups {
    pub(super) fn new(
        file: Arc<CheckedFile>,
        meta: Arc<ParquetMetaData>,
        groups: Vec<usize>,
        limit: RowLimit,
    ) -> Self {
        let bytes = PageBytes { most: largest_total(file.len()), used: Arc::default() };
        Self { file, meta, groups, limit, bytes, start: None }
    }

    /// Begins at this page of the first row group. Only for a single column.
    pub(super) fn from(mut self, start: Option<Start>) -> Self {
        self.start = start;
        self
    }
}

impl RowGroups for CheckedGroups {
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
            bytes: self.bytes.clone(),
            start: self.start.clone(),
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
    file: Arc<CheckedFile>,
    meta: Arc<ParquetMetaData>,
    groups: std::vec::IntoIter<usize>,
    column: usize,
    limit: RowLimit,
    bytes: PageBytes,
    /// Where to begin in the next row group.
    start: Option<Start>,
}

impl ColumnChunks {
    /// The pages in a part of the file.
    fn pages(
        &self,
        chunk: &ColumnChunkMetaData,
        part: &Range<u64>,
        rows: usize,
    ) -> Result<SerializedPageReader<CheckedFile>> {
        let length = part.end.saturating_sub(part.start);
        let (at, length) = (i64::try_from(part.start)?, i64::try_from(length)?);
        let chunk = chunk.clone().into_builder();
        let chunk = chunk.set_dictionary_page_offset(None).set_data_page_offset(at);
        let chunk = chunk.set_total_compressed_size(length).build()?;
        SerializedPageReader::new(self.file.clone(), &chunk, rows, None)
    }
}

impl Iterator for ColumnChunks {
    type Item = Result<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        let group = self.meta.row_group(self.groups.next()?);
        let mut chunk = group.column(self.column).clone();
        let width = width(chunk.column_descr());
        let lists = chunk.column_descr().max_rep_level() > 0;
        // The crate's decompressor for zstd is a C library. Here the crate is told that the pages are not
        // compressed, and they are decompressed when it hands them on.
        let zstd = matches!(chunk.compression(), Compression::ZSTD(_));
        if zstd {
            let plain = chunk.into_builder().set_compression(Compression::UNCOMPRESSED).build();
            chunk = match plain {
                Ok(plain) => plain,
                Err(error) => return Some(Err(error)),
            };
        }
        let rows = group.num_rows() as usize;
        let start = self.start.take();
        let (pages, dictionary_page) = match &start {
            None => (SerializedPageReader::new(self.file.clone(), &chunk, rows, None), Ok(None)),
            Some(start) => {
                let dictionary = start.dictionary.as_ref();
                let dictionary = dictionary.map(|part| self.pages(&chunk, part, rows));
                (self.pages(&chunk, &start.pages, rows), dictionary.transpose())
            }
        };
        let checked = pages.and_then(|pages| Ok((pages, dictionary_page?)));
        let checked = checked.map(|(pages, dictionary_page)| {
            let row = start.as_ref().map_or(0, |start| start.before as usize);
            let rest = start.map(|start| start.rest as usize);
            let lengths = Lengths { row };
            let (limit, bytes) = (self.limit.clone(), self.bytes.clone());
            let (page, dictionary) = (0, 0);
            Box::new(CheckedPages {
                pages,
                dictionary_page,
                rest,
                zstd,
                lists,
                width,
                lengths,
                limit,
                bytes,
                page,
                dictionary,
            }) as _
        });
        Some(checked)
    }
}

impl PageIterator for ColumnChunks {}

/// Least size of a value in a dictionary.
fn width(column: &ColumnDescriptor) -> usize {
    match column.physical_type() {
        Type::INT32 | Type::FLOAT => 4,
        Type::INT64 | Type::DOUBLE => 8,
        Type::FIXED_LEN_BYTE_ARRAY => usize::try_from(column.type_length()).unwrap_or(1),
        _ => 1,
    }
}

/// The pages of a column in one row group.
struct CheckedPages {
    pages: SerializedPageReader<CheckedFile>,
    /// Gives the dictionary, if it is not before the first of these pages.
    dictionary_page: Option<SerializedPageReader<CheckedFile>>,
    /// Values at the start of the next page that must belong to a row of the page before, if that is known.
    rest: Option<usize>,
    /// Whether they are compressed with zstd.
    zstd: bool,
    /// Whether the column holds lists, so that the pages have repetition levels.
    lists: bool,
    /// Least size of a value in the dictionary.
    width: usize,
    lengths: Lengths,
    limit: RowLimit,
    bytes: PageBytes,
    /// Bytes of the last page, and of the dictionary.
    page: u64,
    dictionary: u64,
}

impl Drop for CheckedPages {
    fn drop(&mut self) {
        self.bytes.used.fetch_sub(self.page + self.dictionary, Ordering::Relaxed);
    }
}

impl CheckedPages {
    /// Counts the memory of a page, in place of the one before.
    fn count(&mut self, page: &Page) -> Result<()> {
        let size = page.buffer().len() as u64;
        let held = match page {
            Page::DictionaryPage { .. } => &mut self.dictionary,
            _ => &mut self.page,
        };
        let before = std::mem::replace(held, size);
        self.bytes.used.fetch_sub(before, Ordering::Relaxed);
        let used = self.bytes.used.fetch_add(size, Ordering::Relaxed) + size;
        if used > self.bytes.most {
            let why = format!("the pages of its columns take {used} bytes at once");
            return Err(ParquetError::General(why));
        }
        Ok(())
    }

    /// Decompresses a page if it must be, and checks it.
    fn prepare(&mut self, mut page: Page) -> Result<Page> {
        if self.zstd {
            decompress(&mut page)?;
        }
        self.count(&page)?;
        self.check(&page)?;
        Ok(page)
    }

    fn check(&mut self, page: &Page) -> Result<()> {
        if let Some(found) = &self.limit.prefixes
            && let Page::DataPage { encoding: Encoding::DELTA_BYTE_ARRAY, .. }
            | Page::DataPageV2 { encoding: Encoding::DELTA_BYTE_ARRAY, .. } = page
        {
            found.store(true, Ordering::Relaxed);
            return Err(ParquetError::General("a page of DELTA_BYTE_ARRAY".into()));
        }
        let (levels, values) = match page {
            Page::DictionaryPage { buf, num_values, .. } => {
                // The crate allocates memory for as many values as are claimed.
                let needed = (*num_values as usize).saturating_mul(self.width);
                if needed > buf.len() {
                    return Err(ParquetError::General(format!(
                        "a dictionary of {} bytes claims to hold {num_values} values",
                        buf.len()
                    )));
                }
                return Ok(());
            }
            _ if !self.lists => return Ok(()),
            Page::DataPage { buf, num_values, rep_level_encoding, .. } => {
                let levels = match rep_level_encoding {
                    // The levels come after their length.
                    Encoding::RLE => buf.split_first_chunk().and_then(|(length, rest)| {
                        Some(Levels::Runs(rest.get(..u32::from_le_bytes(*length) as usize)?))
                    }),
                    _ => Some(Levels::Bits(buf)),
                };
                (levels, *num_values as usize)
            }
            Page::DataPageV2 { buf, num_values, rep_levels_byte_len, .. } => {
                // In pages of version 2 no row continues on the next page.
                self.lengths.row = 0;
                let levels = buf.get(..*rep_levels_byte_len as usize).map(Levels::Runs);
                (levels, *num_values as usize)
            }
        };
        let levels = levels.ok_or_else(|| {
            ParquetError::General("a page is shorter than its repetition levels".into())
        })?;
        if let Some(rest) = self.rest.take()
            && levels.leading(values) != rest
        {
            return Err(ParquetError::General("rows before this range differ in length".into()));
        }
        let longest = self.lengths.count(levels, values);
        if longest > self.limit.most {
            self.limit.exceeded.fetch_max(longest, Ordering::Relaxed);
            return Err(ParquetError::General(format!("a row has {longest} values or more")));
        }
        Ok(())
    }
}

/// Decompresses a page of zstd. In pages of version 2 the levels come first, and are not compressed.
fn decompress(page: &mut Page) -> Result<()> {
    let (buf, levels) = match page {
        Page::DataPage { buf, .. } | Page::DictionaryPage { buf, .. } => (buf, 0),
        Page::DataPageV2 { is_compressed: false, .. } => return Ok(()),
        Page::DataPageV2 { buf, def_levels_byte_len, rep_levels_byte_len, .. } => {
            (buf, *def_levels_byte_len as usize + *rep_levels_byte_len as usize)
        }
    };
    let Some((levels, compressed)) = buf.split_at_checked(levels) else {
        return Err(ParquetError::General("a page is shorter than its levels".into()));
    };
    let stored = compressed.len() as u64;
    let most = largest_claim(stored);
    let mut plain = levels.to_vec();
    // One byte more than is accepted, so that more can be told from just as much.
    let got = unzstd(compressed, stored, most).take(most + 1).read_to_end(&mut plain)?;
    if got as u64 > most {
        let why = format!("a page of {stored} bytes holds more than {most} bytes of values");
        return Err(ParquetError::General(why));
    }
    *buf = Bytes::from(plain);
    Ok(())
}

impl PageReader for CheckedPages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = match self.dictionary_page.take() {
            Some(mut pages) => pages.get_next_page()?,
            None => self.pages.get_next_page()?,
        };
        page.map(|page| self.prepare(page)).transpose()
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        if let Some(pages) = &mut self.dictionary_page {
            return pages.peek_next_page();
        }
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        // Only pages that hold whole rows are skipped.
        self.lengths.row = 0;
        self.rest = None;
        self.pages.skip_next_page()
    }

    fn supports_deferred_dictionary(&self) -> bool {
        self.dictionary_page.is_none() && self.pages.supports_deferred_dictionary()
    }

    fn take_deferred_dictionary(&mut self) -> Result<Option<Page>> {
        self.pages.take_deferred_dictionary()?.map(|page| self.prepare(page)).transpose()
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.pages.at_record_boundary()
    }
}

impl Iterator for CheckedPages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

/// Repetition levels of one bit each, as a page stores them.
enum Levels<'a> {
    /// Runs of equal levels, and runs of bit-packed levels.
    Runs(&'a [u8]),
    /// Bit-packed: eight levels in each byte.
    Bits(&'a [u8]),
}

impl Levels<'_> {
    /// Number of levels before the first 0, of `values` levels.
    fn leading(&self, values: usize) -> usize {
        let bits = |bits: &[u8]| {
            let ones = bits.iter().map(|byte| byte.trailing_ones() as usize);
            let full = ones.clone().take_while(|ones| *ones == 8).count();
            8 * full + ones.skip(full).next().unwrap_or(0)
        };
        let (mut rest, mut leading) = match self {
            Levels::Bits(packed) => return bits(packed).min(values),
            Levels::Runs(runs) => (*runs, 0),
        };
        while leading < values
            && let Some(head) = varint(&mut rest)
        {
            let count = usize::try_from(head >> 1).unwrap_or(usize::MAX);
            let (run, ones) = if head & 1 == 1 {
                let packed = &rest[..rest.len().min(count)];
                rest = &rest[packed.len()..];
                (8 * packed.len(), bits(packed))
            } else {
                let Some((level, after)) = rest.split_first() else { break };
                rest = after;
                (count, if *level == 0 { 0 } else { count })
            };
            leading = leading.saturating_add(ones);
            if ones < run {
                break;
            }
        }
        leading.min(values)
    }
}

/// Counts the lengths of rows by their repetition levels.
#[derive(Default)]
struct Lengths {
    /// Length so far of the last row.
    row: usize,
}

impl Lengths {
    /// Counts `values` levels, and returns the length of the longest row among them. If levels are missing,
    /// the crate will report it.
    fn count(&mut self, levels: Levels<'_>, mut values: usize) -> usize {
        let mut longest = 0;
        let mut rest = match levels {
            Levels::Bits(bits) => return self.bits(bits, values),
            Levels::Runs(runs) => runs,
        };
        while values > 0
            && let Some(head) = varint(&mut rest)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_decompresses_to_too_much_is_refused() {
        // Each block repeats a byte 128 Ki times, in four bytes.
        let bomb = |blocks: usize| {
            let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0x70];
            for block in 1..=blocks {
                let head = (1u32 << 20) | 2 | u32::from(block == blocks);
                frame.extend(&head.to_le_bytes()[..3]);
                frame.push(7);
            }
            Page::DictionaryPage {
                buf: frame.into(),
                num_values: 1,
                encoding: Encoding::PLAIN,
                is_sorted: false,
            }
        };
        let mut page = bomb(16);
        decompress(&mut page).unwrap();
        assert_eq!(page.buffer().len(), 16 << 17);
        let why = decompress(&mut bomb(2049)).unwrap_err().to_string();
        assert!(why.contains("holds more than 268435456 bytes"), "{why}");
    }

    #[test]
    fn row_lengths_are_counted_from_repetition_levels() {
        let of = |levels: Levels<'_>, values| {
            let mut lengths = Lengths::default();
            (lengths.count(levels, values), lengths.row)
        };
        // A row of 400,000,000 values: level 0, then 399,999,999 times level 1.
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
        assert_eq!(lengths.count(Levels::Runs(&[6, 1, 4, 0]), 5), 10);
        assert_eq!(lengths.row, 1);
    }

    #[test]
    fn levels_before_the_first_row_are_counted() {
        let runs = |runs: &[u8], values| Levels::Runs(runs).leading(values);
        assert_eq!(runs(&[2, 0, 6, 1], 4), 0);
        assert_eq!(runs(&[6, 1, 2, 0], 4), 3);
        assert_eq!(runs(&[6, 1, 4, 1], 4), 4);
        // Bit-packed levels: eight and two more ones, then a run.
        assert_eq!(runs(&[5, 0xFF, 0b1111_1011, 2, 0], 17), 10);
        assert_eq!(runs(&[3, 0xFF, 6, 1, 2, 0], 12), 11);
        assert_eq!(Levels::Bits(&[0xFF, 0b0000_0111]).leading(16), 11);
        assert_eq!(Levels::Bits(&[0xFF]).leading(5), 5);
        assert_eq!(runs(&[], 9), 0);
    }
}
