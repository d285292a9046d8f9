//! Arrow files (also called Feather version 2) and Arrow streams with vectors in a list column.
//!
//! Layout of a stream: messages, each `FF FF FF FF`, a length, metadata of that length (a flatbuffer), and a
//! body. The first message is the schema; then come record batches and dictionaries; a length of 0 ends it.
//! The metadata of a record batch says where in its body the buffers of each column are: for a list column
//! the bits that tell nulls, where each list begins, and the same bits and the values of the items. A file is
//! a stream between `ARROW1` and `ARROW1`, with a list of its messages (the footer) before the second.
//!
//! Reading looks at the metadata of all batches first (so the number of rows is known), then reads only the
//! buffers of the one column, about 1 MiB at a time, however long the batches are; lz4, and zstd if it is
//! built in, are decompressed as they are read. Skipping costs nothing in what is not compressed. Of
//! `arrow-ipc` only the parsing of the metadata is used: its readers load whole batches, and reserve what
//! compressed buffers claim to become. Not read: Feather version 1, big-endian files, streams from before
//! 2019 (Arrow 0.14).
//!
//! Writing makes an uncompressed file with one column, a list of a fixed size without nulls, in batches of
//! about 4 MiB.

mod index;
mod part;

use crate::batch::{Kind, Values};
use crate::columns::{Blocks, Chunks, Column, Lists, Reader, guard, rows_in};
use crate::error::Fault;
use crate::source::{Sink, Source};
use arrow_ipc::writer::FileWriter;
use arrow_schema::ArrowError;
use index::{Index, Part};
use part::PartReader;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Arc;

/// Values of a batch written, in bytes.
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
        let parts = index.parts(&column)?;
        let rows = parts.iter().map(|part| part.rows).sum();
        if rows == 0 {
            return Err("holds no rows".into());
        }
        let file = Arc::new(index.file);
        let chunks = Parts { file, column: column.clone(), parts, part: 0, row: 0, reader: None };
        Ok(Box::new(Reader::new(chunks, &column, rows, skip_bad)?) as Box<dyn Source>)
    })
}

/// The columns and their types.
pub(crate) fn describe(path: &Path) -> Result<Vec<(String, String)>, Fault> {
    guard(|| Ok(crate::columns::describe(&Index::new(File::open(path)?)?.schema)))
}

/// The column in all record batches.
struct Parts {
    file: Arc<File>,
    column: Column,
    parts: Vec<Part>,
    /// The present batch, and the row in it to begin with.
    part: usize,
    row: u64,
    /// What reads the present batch, once it is begun; gone after a fault.
    reader: Option<PartReader>,
}

impl Chunks for Parts {
    fn next(&mut self) -> Result<Option<Lists>, Fault> {
        guard(|| {
            while let Some(part) = self.parts.get(self.part) {
                let mut reader = match self.reader.take() {
                    Some(reader) => reader,
                    None => PartReader::new(&self.file, part, &self.column, self.row)?,
                };
                if let Some(lists) = reader.next()? {
                    self.reader = Some(reader);
                    return Ok(Some(lists));
                }
                self.part += 1;
                self.row = 0;
            }
            Ok(None)
        })
    }

    fn seek(&mut self, mut row: u64) -> Result<(), Fault> {
        self.reader = None;
        self.part = 0;
        // A batch passed over costs nothing.
        while let Some(part) = self.parts.get(self.part).filter(|part| part.rows <= row) {
            row -= part.rows;
            self.part += 1;
        }
        self.row = row;
        Ok(())
    }
}

/// Writes an Arrow file with one column of vectors.
pub(crate) fn sink(
    file: File,
    kind: Kind,
    dim: usize,
    column: &str,
) -> Result<impl Sink + use<>, Fault> {
    let rows = rows_in(BATCH, dim.saturating_mul(kind.bytes()));
    let blocks = Blocks::new(kind, dim, column, rows)?;
    let writer = FileWriter::try_new_buffered(file, &blocks.schema()).map_err(unwritten)?;
    Ok(Writer { blocks, writer })
}

struct Writer {
    blocks: Blocks,
    writer: FileWriter<BufWriter<File>>,
}

impl Sink for Writer {
    fn write(&mut self, values: &Values) -> Result<(), Fault> {
        self.blocks.add(values, |batch| self.writer.write(&batch).map_err(unwritten))
    }

    fn finish(&mut self) -> Result<(), Fault> {
        if let Some(batch) = self.blocks.rest()? {
            self.writer.write(&batch).map_err(unwritten)?;
        }
        self.writer.finish().map_err(unwritten)?;
        self.writer.flush().map_err(unwritten)
    }
}

fn unwritten(error: ArrowError) -> Fault {
    match error {
        ArrowError::IoError(_, io) => Fault::Io(io),
        other => Fault::File(format!("cannot be written: {other}")),
    }
}

#[cfg(test)]
mod tests;
