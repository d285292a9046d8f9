//! Arrow files (also called Feather version 2) and Arrow streams with vectors in a list column, or with a column
//! for each dimension.
//!
//! Layout of a stream: messages, each `FF FF FF FF`, a length, metadata of that length (a flatbuffer), and a
//! body. The first message is the schema; then come record batches and dictionaries; a length of 0 ends it.
//! The metadata of a record batch says where in its body the buffers of each column are. A list column has
//! a validity bitmap (which lists are null), offsets (where each list begins), and the validity bitmap and
//! the values of the items. A file is a stream between `ARROW1` and `ARROW1`, with a list of its messages
//! (the footer) before the second.
//!
//! Opening reads the metadata of all record batches, so that the number of rows is known. Reading then
//! takes only the buffers of the one column, about 1 MiB at a time, however long the record batches are;
//! lz4 and zstd are decompressed on the way. A buffer that was compressed with zstd in one call may refer back
//! to its first byte, so that it is in memory as a whole while it is read. Skipping uncompressed rows costs
//! nothing. Of `arrow-ipc` only the parsing of the metadata is used: its readers load whole record batches,
//! and allocate the decompressed size that buffers claim. Not supported: Feather version 1, big-endian
//! files, and streams from before 2019 (Arrow 0.14).
//!
//! A file is written uncompressed, with one column, lists of a fixed size without nulls, in record batches
//! of about 4 MiB.

mod column_reader;
mod ids;
mod index;

pub(crate) use ids::open_ids;

use crate::batch::Kind;
use crate::chosen::Columns;
use crate::columns::{
    BatchWriter, Column, ListReader, ListSink, ListSource, Lists, Table, TableReader, TableSource,
    damaged, guard, list_schema, rows_in,
};
use crate::decompress::largest_total;
use crate::error::Fault;
use crate::source::{Places, Sink, Source};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, DataType};
use column_reader::{ColumnReader, NumberReader};
use index::{Codec, ColumnChunk, Index, TableChunk};
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

/// Bytes of values in a record batch that is written.
const BATCH: usize = 4 << 20;

/// Opens an Arrow file or stream.
pub(crate) fn open(
    path: &Path,
    column: Option<&str>,
    skip_bad: bool,
) -> Result<Box<dyn Source>, Fault> {
    guard(|| {
        let index = Index::new(File::open(path)?)?;
        let column = Column::choose(&index.schema, column)?;
        let chunks = index.chunks(&column)?;
        let rows = chunks.iter().map(|chunk| chunk.rows).sum();
        if rows == 0 {
            return Err("holds no rows".into());
        }
        let file = Arc::new(index.file);
        let ends = ends(chunks.iter().map(|chunk| chunk.rows));
        let column_of = column.clone();
        let reader =
            ArrowReader { file, column: column_of, chunks, ends, chunk: 0, row: 0, reader: None };
        Ok(Box::new(ListSource::new(reader, &column, rows, skip_bad)?) as Box<dyn Source>)
    })
}

/// Opens an Arrow file or stream in which each dimension has a column of its own.
pub(crate) fn open_table(
    path: &Path,
    columns: &Columns,
    skip_bad: bool,
) -> Result<Box<dyn Source>, Fault> {
    guard(|| {
        let index = Index::new(File::open(path)?)?;
        let table = Table::choose(&index.schema, columns)?;
        let chunks = index.table_chunks(&table.indices)?;
        let rows = chunks.iter().map(|chunk| chunk.rows).sum();
        if rows == 0 {
            return Err("holds no rows".into());
        }
        let types = table.indices.iter().map(|i| index.schema.field(*i).data_type().clone());
        let reader = ArrowTable {
            file: Arc::new(index.file),
            types: types.collect(),
            ends: ends(chunks.iter().map(|chunk| chunk.rows)),
            chunks,
            step: table.step(),
            chunk: 0,
            row: 0,
            columns: Vec::new(),
        };
        Ok(Box::new(TableSource::new(reader, table, rows, skip_bad)) as Box<dyn Source>)
    })
}

/// The columns and their types.
pub(crate) fn describe(path: &Path) -> Result<Vec<(String, String)>, Fault> {
    guard(|| Ok(crate::columns::describe(&Index::new(File::open(path)?)?.schema)))
}

/// Number of rows up to the end of each record batch.
fn ends(rows: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut before = 0u64;
    rows.map(|rows| {
        before = before.saturating_add(rows);
        before
    })
    .collect()
}

/// The record batch of a row, and the number of the row in it.
fn locate(ends: &[u64], row: u64) -> (usize, u64) {
    let chunk = ends.partition_point(|end| *end <= row);
    (chunk, row - if chunk == 0 { 0 } else { ends[chunk - 1] })
}

/// Where a column can be cut: a compressed buffer can only be read from its start.
fn places(ends: &[u64], mut codecs: impl Iterator<Item = Codec>) -> Places {
    match codecs.all(|codec| codec == Codec::None) {
        true => Places::Multiples(1),
        false => Places::Ends { ends: ends.to_vec(), parts: 1 },
    }
}

/// Reads one column from all record batches.
struct ArrowReader {
    file: Arc<File>,
    column: Column,
    chunks: Vec<ColumnChunk>,
    /// Number of rows up to the end of each chunk.
    ends: Vec<u64>,
    /// Number of the current chunk, and the row in it to begin with.
    chunk: usize,
    row: u64,
    /// Reads the current chunk; none before it is begun and after a fault.
    reader: Option<ColumnReader>,
}

impl ListReader for ArrowReader {
    fn next(&mut self) -> Result<Option<Lists>, Fault> {
        guard(|| {
            while let Some(chunk) = self.chunks.get(self.chunk) {
                let mut reader = match self.reader.take() {
                    Some(reader) => reader,
                    None => ColumnReader::new(&self.file, chunk, &self.column, self.row)?,
                };
                if let Some(lists) = reader.next()? {
                    self.reader = Some(reader);
                    return Ok(Some(lists));
                }
                self.chunk += 1;
                self.row = 0;
            }
            Ok(None)
        })
    }

    fn seek(&mut self, row: u64) -> Result<(), Fault> {
        self.reader = None;
        (self.chunk, self.row) = locate(&self.ends, row);
        Ok(())
    }

    fn places(&self) -> Places {
        places(&self.ends, self.chunks.iter().map(|chunk| chunk.codec))
    }
}

/// Reads several columns of numbers from all record batches.
struct ArrowTable {
    file: Arc<File>,
    types: Vec<DataType>,
    chunks: Vec<TableChunk>,
    /// Number of rows up to the end of each chunk.
    ends: Vec<u64>,
    /// Rows per step.
    step: usize,
    /// Number of the current chunk, and the next row in it.
    chunk: usize,
    row: u64,
    /// The columns of the current chunk; none before it is begun and after a fault.
    columns: Vec<NumberReader>,
}

impl TableReader for ArrowTable {
    fn next(&mut self) -> Result<Option<Vec<ArrayRef>>, Fault> {
        guard(|| {
            while let Some(chunk) = self.chunks.get(self.chunk) {
                let left = chunk.rows.saturating_sub(self.row);
                let rows = left.min(self.step as u64) as usize;
                let mut columns = std::mem::take(&mut self.columns);
                if rows == 0 {
                    self.chunk += 1;
                    self.row = 0;
                    continue;
                }
                if columns.is_empty() {
                    let most = largest_total(self.file.metadata()?.len());
                    let mut claimed = 0u64;
                    for (column, data_type) in chunk.columns.iter().zip(&self.types) {
                        let (codec, all) = (chunk.codec, chunk.rows);
                        let reader = NumberReader::new(
                            &self.file, *column, codec, data_type, all, self.row,
                        )?;
                        claimed = claimed.saturating_add(reader.claimed());
                        if claimed > most {
                            let why = format!("its columns claim to hold {claimed} bytes");
                            return Err(damaged(why));
                        }
                        columns.push(reader);
                    }
                }
                let arrays = columns.iter_mut().map(|column| column.read(rows));
                let arrays = arrays.collect::<Result<_, _>>()?;
                self.row += rows as u64;
                self.columns = columns;
                return Ok(Some(arrays));
            }
            Ok(None)
        })
    }

    fn seek(&mut self, row: u64) -> Result<(), Fault> {
        self.columns.clear();
        (self.chunk, self.row) = locate(&self.ends, row);
        Ok(())
    }

    fn places(&self) -> Places {
        places(&self.ends, self.chunks.iter().map(|chunk| chunk.codec))
    }
}

/// Writes an Arrow file with one column of vectors.
pub(crate) fn sink(
    file: File,
    kind: Kind,
    dim: usize,
    column: &str,
) -> Result<impl Sink + use<>, Fault> {
    let schema = list_schema(kind, dim, column)?;
    let rows = rows_in(BATCH, dim.saturating_mul(kind.bytes()));
    let writer = FileWriter::try_new_buffered(file, &schema).map_err(write_fault)?;
    ListSink::new(writer, schema, kind, rows)
}

impl BatchWriter for FileWriter<BufWriter<File>> {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), Fault> {
        FileWriter::write(self, batch).map_err(write_fault)
    }

    fn finish(&mut self) -> Result<(), Fault> {
        FileWriter::finish(self).map_err(write_fault)?;
        self.flush().map_err(write_fault)
    }
}

fn write_fault(error: ArrowError) -> Fault {
    match error {
        ArrowError::IoError(_, io) => Fault::Io(io),
        other => Fault::file(format!("cannot be written: {other}")),
    }
}

#[cfg(test)]
mod tests;
