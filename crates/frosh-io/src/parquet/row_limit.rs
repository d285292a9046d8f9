//! Refuses rows that are too long before the crate decodes them, so that memory stays bounded: a few bytes
//! of Parquet can stand for any number of values, since equal levels and equal values are stored as one run.
//!
//! The crate decodes whole rows, as many as it is asked for. The lengths of rows are given by the
//! repetition levels (`levels.rs`).

use super::levels::{Lengths, Levels};
use super::page_table::Start;
use super::pages::CheckedFile;
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
                held_back: None,
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
    /// Gives the dictionary, if it is not before the first of these pages. It is given before the first page that needs it:
    /// many writers begin with a dictionary, and give it up after a megabyte.
    dictionary_page: Option<SerializedPageReader<CheckedFile>>,
    /// The page that comes after the dictionary.
    held_back: Option<Page>,
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
        if let Some(page) = self.held_back.take() {
            return Ok(Some(page));
        }
        let page = self.pages.get_next_page()?.map(|page| self.prepare(page)).transpose()?;
        let needs_dictionary = page.as_ref().is_some_and(|page| {
            matches!(page.encoding(), Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY)
        });
        match self.dictionary_page.take_if(|_| needs_dictionary) {
            None => Ok(page),
            Some(mut dictionary) => {
                self.held_back = page;
                dictionary.get_next_page()?.map(|page| self.prepare(page)).transpose()
            }
        }
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        if let Some(page) = &self.held_back {
            let num_levels = Some(page.num_values() as usize);
            return Ok(Some(PageMetadata { num_rows: None, num_levels, is_dict: false }));
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
        self.pages.supports_deferred_dictionary()
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
}
