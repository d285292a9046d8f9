//! Parquet files with vectors in a list column.
//!
//! Layout: `PAR1`, then row groups (each holds, column after column, pages of values, which are encoded and
//! compressed), then the metadata (schema, and where each column of each row group is), its length, and
//! `PAR1` again.
//!
//! Reading goes through the `parquet` crate: only the pages of the one column are read, one page at a time,
//! about 1 MiB of values per step. Plain and dictionary encoding and all compressions but LZO are read; zstd
//! only when it is built in. Skipping passes over whole row groups for nothing, and decodes the lengths of the
//! lists within the last one. Types come from Parquet's own schema, not from the Arrow schema that some
//! programs store beside it; so lists of a fixed size are seen as lists, whose first row tells the size.
//!
//! Writing makes one column, a list of a fixed size without nulls, in row groups of about 16 MiB. Floating
//! point values are stored plainly and without compression: general compressors find next to nothing in
//! embeddings and cost time in both directions. Bytes are stored through a dictionary, since Parquet would
//! otherwise spend four bytes on each.
//!
//! The crate's asserts on damaged files are contained by [`guard`]; schemas too deep for its recursion, and pages that
//! claim to be far larger than they are, are refused before it sees them.

mod depth;
mod pages;
mod thrift;

use self::pages::Pages;
use crate::batch::{Kind, Values};
use crate::columns::{Blocks, Chunks, Column, Lists, NEEDS_ZSTD, Reader, damaged, guard, rows_in};
use crate::error::Fault;
use crate::source::{Sink, Source};
use ::parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use ::parquet::arrow::{ArrowWriter, ProjectionMask};
use ::parquet::basic::Compression;
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::ColumnChunkMetaData;
use ::parquet::file::properties::{EnabledStatistics, WriterProperties};
use std::fs::File;
use std::path::Path;

/// Values read in one step, in bytes.
const STEP: usize = 1 << 20;
/// Most rows read in one step.
const STEP_ROWS: usize = 1 << 14;
/// Values of a row group written, in bytes.
const GROUP: usize = 16 << 20;

/// Opens a Parquet file.
pub(crate) fn open(
    path: &Path,
    column: Option<&str>,
    skip_bad: bool,
) -> Result<Box<dyn Source>, Fault> {
    let file = File::open(path)?;
    guard(|| {
        let meta = metadata(&file)?;
        let column = Column::choose(meta.schema(), column)?;
        let groups = Groups::new(file, meta, &column)?;
        let rows = groups.ends.last().copied().unwrap_or(0);
        if rows == 0 {
            return Err("holds no rows".into());
        }
        Ok(Box::new(Reader::new(groups, &column, rows, skip_bad)?) as Box<dyn Source>)
    })
}

/// The columns and their types.
pub(crate) fn describe(path: &Path) -> Result<Vec<(String, String)>, Fault> {
    let file = File::open(path)?;
    guard(|| Ok(crate::columns::describe(metadata(&file)?.schema())))
}

/// Schema and places of the columns.
fn metadata(file: &File) -> Result<ArrowReaderMetadata, Fault> {
    depth::check(file)?;
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    ArrowReaderMetadata::load(file, options).map_err(fault)
}

/// What the crate says, as a fault.
fn fault(error: ParquetError) -> Fault {
    match error {
        ParquetError::External(inner) => match inner.downcast::<std::io::Error>() {
            Ok(io) if io.kind() == std::io::ErrorKind::InvalidData => damaged(io),
            Ok(io) => Fault::Io(*io),
            Err(other) => damaged(other),
        },
        ParquetError::General(why) | ParquetError::EOF(why) | ParquetError::ArrowError(why) => {
            damaged(why)
        }
        ParquetError::NYI(why) => Fault::File(format!("is of a kind that is not read: {why}")),
        other => damaged(other),
    }
}

/// The row groups of one column.
struct Groups {
    file: File,
    meta: ArrowReaderMetadata,
    column: usize,
    /// Rows up to the end of each row group.
    ends: Vec<u64>,
    /// Rows per step.
    step: usize,
    /// What reads from the present row on; gone after a fault.
    reader: Option<ParquetRecordBatchReader>,
}

impl Groups {
    fn new(file: File, meta: ArrowReaderMetadata, column: &Column) -> Result<Self, Fault> {
        let length = file.metadata()?.len();
        let schema = meta.parquet_schema();
        let leaf = (0..schema.num_columns())
            .find(|&leaf| schema.get_column_root_idx(leaf) == column.index)
            .ok_or_else(|| damaged("the column is not in the schema"))?;
        let mut ends = Vec::new();
        let (mut rows, mut values) = (0u64, 0u64);
        for group in meta.metadata().row_groups() {
            let here = u64::try_from(group.num_rows());
            let here = here.map_err(|_| damaged("a row group has a negative number of rows"))?;
            rows = rows.checked_add(here).ok_or_else(|| damaged("it claims too many rows"))?;
            ends.push(rows);
            let Some(chunk) = group.columns().get(leaf) else {
                return Err(damaged("a row group lacks the column"));
            };
            check(chunk, length)?;
            values = values.saturating_add(u64::try_from(chunk.num_values()).unwrap_or(0));
        }
        // Only a guess at the dimension, to choose how much to read at once.
        let row_bytes = (values / rows.max(1)).saturating_mul(column.kind.bytes() as u64);
        let step = rows_in(STEP, usize::try_from(row_bytes).unwrap_or(usize::MAX)).min(STEP_ROWS);
        let mut groups = Self { file, meta, column: column.index, ends, step, reader: None };
        groups.seek(0)?;
        Ok(groups)
    }
}

/// Whether the crate can read the column of a row group.
fn check(chunk: &ColumnChunkMetaData, length: u64) -> Result<(), Fault> {
    match chunk.compression() {
        Compression::ZSTD(_) if !cfg!(feature = "zstd") => return Err(NEEDS_ZSTD.into()),
        Compression::LZO => {
            return Err("is compressed with LZO, which is not read; rewrite it with snappy".into());
        }
        _ => {}
    }
    let start = chunk.dictionary_page_offset().unwrap_or(i64::MAX).min(chunk.data_page_offset());
    let end = start.checked_add(chunk.compressed_size()).and_then(|end| u64::try_from(end).ok());
    match end {
        Some(end) if start >= 0 && chunk.compressed_size() >= 0 && end <= length => Ok(()),
        _ => Err(damaged("a column reaches beyond the end of the file")),
    }
}

impl Chunks for Groups {
    fn next(&mut self) -> Result<Option<Lists>, Fault> {
        // Taken out, so that a reader that failed is not asked again.
        let Some(mut reader) = self.reader.take() else {
            return Err(damaged("it cannot be read any further"));
        };
        guard(|| {
            let Some(batch) = reader.next().transpose().map_err(damaged)? else {
                self.reader = Some(reader);
                return Ok(None);
            };
            let lists = batch.columns().first().and_then(|array| Lists::new(array));
            let lists = lists.ok_or_else(|| damaged("the column is not a list"))?;
            self.reader = Some(reader);
            Ok(Some(lists))
        })
    }

    fn seek(&mut self, row: u64) -> Result<(), Fault> {
        let group = self.ends.partition_point(|&end| end <= row);
        let before = if group == 0 { 0 } else { self.ends[group - 1] };
        let offset = usize::try_from(row - before).map_err(damaged)?;
        self.reader = None;
        self.reader = Some(guard(|| {
            let file = self.file.try_clone()?;
            let builder =
                ParquetRecordBatchReaderBuilder::new_with_metadata(Pages(file), self.meta.clone());
            let mask = ProjectionMask::roots(builder.parquet_schema(), [self.column]);
            builder
                .with_projection(mask)
                .with_batch_size(self.step)
                .with_row_groups((group..self.ends.len()).collect())
                .with_offset(offset)
                .build()
                .map_err(fault)
        })?);
        Ok(())
    }
}

/// Writes a Parquet file with one column of vectors.
pub(crate) fn sink(
    file: File,
    kind: Kind,
    dim: usize,
    column: &str,
) -> Result<impl Sink + use<>, Fault> {
    let row_bytes = dim.saturating_mul(kind.bytes());
    let step = rows_in(STEP, row_bytes);
    let blocks = Blocks::new(kind, dim, column, step)?;
    // A whole number of steps, so that no step is split between row groups.
    let group = rows_in(GROUP, row_bytes).next_multiple_of(step);
    let properties = WriterProperties::builder()
        .set_compression(Compression::UNCOMPRESSED)
        .set_dictionary_enabled(matches!(kind, Kind::U8 | Kind::I8))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_max_row_group_row_count(Some(group))
        .build();
    let writer = ArrowWriter::try_new(file, blocks.schema(), Some(properties)).map_err(fault)?;
    Ok(Writer { blocks, writer })
}

struct Writer {
    blocks: Blocks,
    writer: ArrowWriter<File>,
}

impl Sink for Writer {
    fn write(&mut self, values: &Values) -> Result<(), Fault> {
        self.blocks.add(values, |batch| self.writer.write(&batch).map_err(fault))
    }

    fn finish(&mut self) -> Result<(), Fault> {
        if let Some(batch) = self.blocks.rest()? {
            self.writer.write(&batch).map_err(fault)?;
        }
        self.writer.finish().map_err(fault)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
