//! Parquet files with vectors in a list column, or with a column for each dimension.
//!
//! Layout: `PAR1`, then row groups (each holds, column after column, pages of values, which are encoded and
//! compressed), then the metadata (schema, and where each column of each row group is), its length, and
//! `PAR1` again.
//!
//! The `parquet` crate reads the pages of the one column, one page at a time, about 1 MiB of values per step. Plain and
//! dictionary encoding and all compressions but LZO are read. Zstd is decompressed here (`row_limit.rs`), since the
//! crate has only a C library for it. Skipping costs nothing for whole row groups. Within the last one, pages are
//! skipped by their headers if all rows must have the same length (`page_table.rs`); otherwise the lengths of the lists
//! are decoded. Types come from Parquet's own schema, not from the Arrow schema that some programs store beside it, so
//! that lists of a fixed size are seen as lists of variable size, whose first row determines the dimension.
//!
//! A file is written with one column, lists of a fixed size without nulls, in row groups of about 16 MiB.
//! Floats are stored plain and uncompressed: general-purpose compressors gain next to nothing on
//! embeddings and cost time in both directions. Bytes are stored through a dictionary, since plain encoding
//! takes four bytes for each.
//!
//! The crate is protected against damaged files: [`guard`] contains its assertions, and schemas too deep for
//! its recursion (`depth.rs`), pages that claim to be far larger than they are (`pages.rs`) and rows that are
//! too long (`row_limit.rs`) are refused before it decodes them. If rows prove longer than the metadata
//! suggests, fewer are read in one step.

mod depth;
mod ids;
mod levels;
mod page_table;
mod pages;
mod row_limit;
mod thrift;

pub(crate) use self::ids::open_ids;

use self::page_table::{PageTable, Start};
use self::pages::CheckedFile;
use self::row_limit::{CheckedGroups, RowLimit};
use crate::batch::Kind;
use crate::chosen::Columns;
use crate::columns::{
    BatchWriter, Column, ListReader, ListSink, ListSource, Lists, Table, TableReader, TableSource,
    damaged, guard, list_schema, rows_in,
};
use crate::error::Fault;
use crate::source::{MAX_DIM, Places, Sink, Source};
use ::parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, RowSelection, RowSelector,
};
use ::parquet::arrow::{ArrowWriter, FieldLevels, ProjectionMask, parquet_to_arrow_field_levels};
use ::parquet::basic::Compression;
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::ColumnChunkMetaData;
use ::parquet::file::properties::{EnabledStatistics, WriterProperties};
use ::parquet::schema::types::SchemaDescriptor;
use arrow_array::cast::AsArray;
use arrow_array::{Array as _, ArrayRef, RecordBatch};
use arrow_buffer::NullBuffer;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Bytes of values that are read in one step.
const STEP: usize = 1 << 20;
/// A step may become this many times as large before fewer rows are read in one step.
const SLACK: usize = 16;
/// Most rows read in one step.
const STEP_ROWS: usize = 1 << 14;
/// Most parts that a row group is cut into where each dimension has a column: finding the first row of a part reads the
/// headers of all pages before it, in every column.
const TABLE_PARTS: u64 = 8;
/// Bytes of values in a row group that is written.
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
        let leaf = list_leaf(meta.parquet_schema(), &column)?;
        let groups = Groups::new(file, meta, &[leaf], column.kind, None)?;
        let rows = groups.rows()?;
        let source = ListSource::new(ListGroups(groups), &column, rows, skip_bad)?;
        Ok(Box::new(source) as Box<dyn Source>)
    })
}

/// The columns and their types.
pub(crate) fn describe(path: &Path) -> Result<Vec<(String, String)>, Fault> {
    let file = File::open(path)?;
    guard(|| Ok(crate::columns::describe(metadata(&file)?.schema())))
}

/// The schema and the positions of the columns.
fn metadata(file: &File) -> Result<ArrowReaderMetadata, Fault> {
    depth::check(file)?;
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    ArrowReaderMetadata::load(file, options).map_err(fault)
}

/// Turns an error of the crate into a fault.
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
        ParquetError::NYI(why) => {
            Fault::file(format!("uses a feature of Parquet that is not supported: {why}"))
        }
        other => damaged(other),
    }
}

/// Opens a Parquet file in which each dimension has a column of its own.
pub(crate) fn open_table(
    path: &Path,
    columns: &Columns,
    skip_bad: bool,
) -> Result<Box<dyn Source>, Fault> {
    let file = File::open(path)?;
    guard(|| {
        let meta = metadata(&file)?;
        let table = Table::choose(meta.schema(), columns)?;
        let schema = meta.parquet_schema();
        let mut leaves = Vec::new();
        for leaf in 0..schema.num_columns() {
            // A column of numbers is the only leaf of its root.
            if table.indices.binary_search(&schema.get_column_root_idx(leaf)).is_ok() {
                leaves.push(leaf);
            }
        }
        if leaves.len() != table.indices.len() {
            return Err(damaged("a column is not in the schema"));
        }
        let groups = Groups::new(file, meta, &leaves, table.kind, Some(table.step()))?;
        let rows = groups.rows()?;
        Ok(Box::new(TableSource::new(TableGroups(groups), table, rows, skip_bad))
            as Box<dyn Source>)
    })
}

/// Reads some columns from all row groups.
struct Groups {
    file: Arc<CheckedFile>,
    meta: ArrowReaderMetadata,
    /// The first column that is read.
    leaf: usize,
    /// The columns, as the crate's reader needs them.
    levels: FieldLevels,
    /// Size of a value in memory.
    value_bytes: usize,
    /// Number of rows up to the end of each row group.
    ends: Vec<u64>,
    /// The next row.
    row: u64,
    /// Rows per step.
    step: usize,
    /// How long rows may be with so many in a step.
    limit: RowLimit,
    /// Reads from the next row on; none after a fault.
    reader: Option<ParquetRecordBatchReader>,
    /// The length of all lists, if that is known. Then rows are found by the headers of pages.
    dim: Option<usize>,
    /// The pages of the row group where the last one was found so.
    table: Option<PageTable>,
}

impl Groups {
    /// Reads these leaves of the schema, `rows` at a time, or as many as the mean length of lists suggests.
    fn new(
        file: File,
        meta: ArrowReaderMetadata,
        leaves: &[usize],
        kind: Kind,
        rows_per_step: Option<usize>,
    ) -> Result<Self, Fault> {
        let length = file.metadata()?.len();
        let schema = meta.parquet_schema();
        let mut ends = Vec::new();
        let (mut rows, mut values) = (0u64, 0u64);
        for group in meta.metadata().row_groups() {
            let here = u64::try_from(group.num_rows());
            let here = here.map_err(|_| damaged("a row group has a negative number of rows"))?;
            rows = rows.checked_add(here).ok_or_else(|| damaged("it claims too many rows"))?;
            ends.push(rows);
            for leaf in leaves {
                let Some(chunk) = group.columns().get(*leaf) else {
                    return Err(damaged("a row group lacks the column"));
                };
                check(chunk, length)?;
                values = values.saturating_add(u64::try_from(chunk.num_values()).unwrap_or(0));
            }
        }
        let mask = ProjectionMask::leaves(schema, leaves.iter().copied());
        let levels = parquet_to_arrow_field_levels(schema, mask, None).map_err(fault)?;
        // The mean length estimates the dimension, to choose how much to read in one step.
        let mean = usize::try_from(values / rows.max(1)).unwrap_or(usize::MAX);
        let (estimated, limit) = step(mean, kind.bytes());
        let step = rows_per_step.unwrap_or(estimated);
        let (file, value_bytes) = (Arc::new(CheckedFile(file)), kind.bytes());
        let leaf = leaves.first().copied().unwrap_or(0);
        let mut groups = Self {
            file,
            meta,
            leaf,
            levels,
            value_bytes,
            ends,
            row: 0,
            step,
            limit,
            reader: None,
            dim: None,
            table: None,
        };
        groups.seek_row(0)?;
        Ok(groups)
    }

    /// Number of rows; a file without rows is refused.
    fn rows(&self) -> Result<u64, Fault> {
        match self.ends.last() {
            None | Some(0) => Err("holds no rows".into()),
            Some(rows) => Ok(*rows),
        }
    }
}

/// The leaf of the schema that holds the values of a column of vectors.
fn list_leaf(schema: &SchemaDescriptor, column: &Column) -> Result<usize, Fault> {
    let fits = |leaf: &usize| {
        let path = schema.column(*leaf);
        schema.get_column_root_idx(*leaf) == column.path[0]
            && path.path().parts().starts_with(&column.names)
    };
    let leaf = (0..schema.num_columns()).find(fits);
    let leaf = leaf.ok_or_else(|| damaged("the column is not in the schema"))?;
    // A list of numbers has one repetition level, by which the lengths of rows are measured.
    if schema.column(leaf).max_rep_level() != 1 {
        return Err(damaged("the column is not a list"));
    }
    Ok(leaf)
}

/// How many rows of `dim` values of `bytes` each to read in one step, and how long rows may then be.
fn step(dim: usize, bytes: usize) -> (usize, RowLimit) {
    let step = rows_in(STEP, dim.saturating_mul(bytes)).min(STEP_ROWS);
    let most = if step == 1 { MAX_DIM } else { (SLACK * STEP / (step * bytes)).min(MAX_DIM) };
    (step, RowLimit::new(most))
}

/// Checks that the crate can read the column of a row group.
fn check(chunk: &ColumnChunkMetaData, length: u64) -> Result<(), Fault> {
    if chunk.compression() == Compression::LZO {
        return Err("is compressed with LZO, which is not supported; rewrite it with snappy".into());
    }
    let start = chunk.dictionary_page_offset().unwrap_or(i64::MAX).min(chunk.data_page_offset());
    let end = start.checked_add(chunk.compressed_size()).and_then(|end| u64::try_from(end).ok());
    match end {
        Some(end) if start >= 0 && chunk.compressed_size() >= 0 && end <= length => Ok(()),
        _ => Err(damaged("a column reaches beyond the end of the file")),
    }
}

impl Groups {
    /// The next rows; `None` at the end.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, Fault> {
        loop {
            // Taken out, so that a reader that failed is not used again.
            let Some(mut reader) = self.reader.take() else {
                return Err(damaged("an earlier read failed"));
            };
            let next = guard(|| {
                let batch = reader.next().transpose().map_err(damaged)?;
                Ok((reader, batch))
            });
            match (next, self.limit.exceeded()) {
                (Ok((reader, batch)), _) => {
                    self.row += batch.as_ref().map_or(0, |batch| batch.num_rows() as u64);
                    self.reader = Some(reader);
                    return Ok(batch);
                }
                (Err(_), Some(length)) if length > MAX_DIM => {
                    return Err(Fault::file(format!(
                        "has a row of at least {length} values, expected 1 to {MAX_DIM}"
                    )));
                }
                // This ends: each time the step becomes smaller, and a step of one row has the largest limit.
                (Err(_), Some(length)) => {
                    (self.step, self.limit) = step(length, self.value_bytes);
                    self.seek_row(self.row)?;
                }
                (Err(fault), None) => return Err(fault),
            }
        }
    }

    /// The row group of a row, and the number of rows before it.
    fn group_of(&self, row: u64) -> (usize, u64) {
        let group = self.ends.partition_point(|&end| end <= row);
        (group, if group == 0 { 0 } else { self.ends[group - 1] })
    }

    /// The page of a row group with this row of it, if rows are found by the headers of pages and it is not the first.
    fn page_of(&mut self, group: usize, row: u64) -> Option<Start> {
        let dim = self.dim.filter(|_| row > 0)?;
        let mut table = match self.table.take() {
            Some(table) if table.group == group => table,
            _ => {
                let group_meta = self.meta.metadata().row_groups().get(group)?;
                PageTable::new(group, dim, group_meta.columns().get(self.leaf)?)
            }
        };
        let start = table.find(&self.file.0, row);
        self.table = Some(table);
        start
    }

    fn seek_row(&mut self, row: u64) -> Result<(), Fault> {
        let (group, before) = self.group_of(row);
        let start = self.page_of(group, row - before);
        let offset = start.as_ref().map_or(row - before, |start| start.skip);
        let offset = usize::try_from(offset).map_err(damaged)?;
        self.reader = None;
        self.row = row;
        self.reader = Some(guard(|| {
            let (file, meta) = (self.file.clone(), self.meta.metadata().clone());
            let wanted_groups = (group..self.ends.len()).collect();
            let limit = self.limit.clone();
            let groups = CheckedGroups::new(file, meta, wanted_groups, limit).from(start);
            let left = self.ends.last().map_or(0, |end| end - row);
            let left = usize::try_from(left).map_err(damaged)?;
            let wanted = (offset > 0).then(|| {
                RowSelection::from(vec![RowSelector::skip(offset), RowSelector::select(left)])
            });
            let levels = &self.levels;
            ParquetRecordBatchReader::try_new_with_row_groups(levels, &groups, self.step, wanted)
                .map_err(fault)
        })?);
        Ok(())
    }
}

/// A column of vectors.
struct ListGroups(Groups);

impl ListReader for ListGroups {
    fn next(&mut self) -> Result<Option<Lists>, Fault> {
        let Some(batch) = self.0.next_batch()? else { return Ok(None) };
        guard(|| {
            let wrong = || damaged("the column is not a list");
            let mut array = batch.columns().first().ok_or_else(wrong)?;
            // A row is null if a structure around it is. Only the fields on the column's path are read, so that
            // each structure has one.
            let mut nulls = None;
            while let Some(outer) = array.as_struct_opt() {
                nulls = NullBuffer::union(nulls.as_ref(), outer.nulls());
                array = outer.columns().first().ok_or_else(wrong)?;
            }
            let mut lists = Lists::new(array).ok_or_else(wrong)?;
            lists.nulls = NullBuffer::union(nulls.as_ref(), lists.nulls.as_ref());
            Ok(Some(lists))
        })
    }

    fn seek(&mut self, row: u64) -> Result<(), Fault> {
        self.0.seek_row(row)
    }

    fn places(&self) -> Places {
        let parts = if self.0.dim.is_some() { u64::MAX } else { 1 };
        Places::Ends { ends: self.0.ends.clone(), parts }
    }

    fn snap(&mut self, row: u64) -> u64 {
        let (group, before) = self.0.group_of(row);
        let start = self.0.page_of(group, row - before).filter(|start| start.before == 0);
        row - start.map_or(0, |start| start.skip)
    }

    fn set_dim(&mut self, dim: usize) {
        self.0.dim = Some(dim);
    }
}

/// A column for each dimension.
struct TableGroups(Groups);

impl TableReader for TableGroups {
    fn next(&mut self) -> Result<Option<Vec<ArrayRef>>, Fault> {
        Ok(self.0.next_batch()?.map(|batch| batch.columns().to_vec()))
    }

    fn seek(&mut self, row: u64) -> Result<(), Fault> {
        self.0.seek_row(row)
    }

    fn places(&self) -> Places {
        Places::Ends { ends: self.0.ends.clone(), parts: TABLE_PARTS }
    }
}

/// Writes a Parquet file with one column of vectors.
pub(crate) fn sink(
    file: File,
    kind: Kind,
    dim: usize,
    column: &str,
) -> Result<impl Sink + use<>, Fault> {
    let schema = list_schema(kind, dim, column)?;
    let row_bytes = dim.saturating_mul(kind.bytes());
    let step = rows_in(STEP, row_bytes);
    // A whole number of steps, so that no step is split between row groups.
    let group = rows_in(GROUP, row_bytes).next_multiple_of(step);
    let properties = WriterProperties::builder()
        .set_compression(Compression::UNCOMPRESSED)
        .set_dictionary_enabled(matches!(kind, Kind::U8 | Kind::I8))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_max_row_group_row_count(Some(group))
        .build();
    let writer = ArrowWriter::try_new(file, schema.clone(), Some(properties)).map_err(fault)?;
    ListSink::new(writer, schema, kind, step)
}

impl BatchWriter for ArrowWriter<File> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), Fault> {
        ArrowWriter::write(self, batch).map_err(fault)
    }

    fn finish(&mut self) -> Result<(), Fault> {
        ArrowWriter::finish(self).map(drop).map_err(fault)
    }
}

#[cfg(test)]
mod tests;
