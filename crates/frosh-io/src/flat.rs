//! Rows that are stored one after the other, all of the same length: what `.npy`, big-ann, `vecs`, idx and
//! raw files are after their headers.
//!
//! Cost: each batch is read straight into its memory. Bytes are swapped in place, and 16- and 32-bit
//! integers are widened, only where a file has them.

use crate::batch::Values;
use crate::byte_source::ByteSource;
use crate::error::{Fault, Hint};
use crate::layout::{Layout, STEP, write_values};
use crate::source::{Cutting, MAX_DIM, Places, Shape, Sink, Source};
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;

/// Checks the dimension in a header.
pub(crate) fn checked_dim(dim: u64) -> Result<usize, Fault> {
    match usize::try_from(dim) {
        Ok(dim @ 1..=MAX_DIM) => Ok(dim),
        _ => Err(Fault::file(format!(
            "its header says rows of {dim} dimensions, expected 1 to {MAX_DIM}: it is damaged, or of \
             another format"
        ))
        .hint(Hint::ChooseFormat)),
    }
}

/// Reads rows of equal length.
pub(crate) struct Flat {
    bytes: ByteSource,
    layout: Layout,
    shape: Shape,
    /// Number of the next row.
    row: u64,
    /// Number of the row to stop before, if it is known.
    end: Option<u64>,
    /// Bytes before the values of each row: in the `vecs` formats, the dimension; else none.
    prefix: usize,
    scratch: Vec<u8>,
}

impl Flat {
    /// Rows without a prefix. `rows` is the number of rows in the header, which is checked against the size.
    pub(crate) fn new(
        bytes: ByteSource,
        layout: Layout,
        dim: usize,
        rows: Option<u64>,
    ) -> Result<Self, Fault> {
        Self::prefixed(bytes, layout, dim, rows, 0)
    }

    /// Rows with a prefix of 4 bytes: their dimension, as a little-endian 32-bit integer.
    pub(crate) fn prefixed(
        bytes: ByteSource,
        layout: Layout,
        dim: usize,
        rows: Option<u64>,
        prefix: usize,
    ) -> Result<Self, Fault> {
        // Cannot overflow: the dimension is at most MAX_DIM.
        let row_bytes = (dim * layout.stored.bytes() + prefix) as u64;
        let rows = match (rows, bytes.left()) {
            (Some(rows), Some(left))
                if u128::from(rows) * u128::from(row_bytes) > u128::from(left) =>
            {
                return Err(Fault::file(format!(
                    "its header says {rows} rows of {dim} dimensions, which take {} bytes, but only \
                     {left} follow: it is cut short or damaged",
                    u128::from(rows) * u128::from(row_bytes)
                )));
            }
            (Some(rows), _) => Some(rows),
            (None, Some(left)) if left % row_bytes != 0 => {
                let why = format!(
                    "has {left} bytes, which are not a whole number of rows of {dim} dimensions \
                     ({row_bytes} bytes each): it is cut short"
                );
                return Err(match prefix {
                    0 => Fault::file(why + ", or has another dimension").hint(Hint::CheckDimension),
                    _ => Fault::file(why + ", or its rows differ in length"),
                });
            }
            (None, left) => left.map(|left| left / row_bytes),
        };
        let shape = Shape { dim, kind: layout.stored.kind(), rows };
        Ok(Self { bytes, layout, shape, row: 0, end: rows, prefix, scratch: Vec::new() })
    }

    /// How many rows to read if at most `limit` are asked for.
    fn expected(&self, limit: usize) -> usize {
        match self.end {
            Some(end) => limit.min(usize::try_from(end - self.row).unwrap_or(limit)),
            None => limit,
        }
    }

    /// Reads up to `rows` rows of `row_bytes` into the scratch buffer; returns how many there were.
    fn read_rows(&mut self, rows: usize, row_bytes: usize) -> Result<usize, Fault> {
        let all = rows * row_bytes;
        self.scratch.truncate(all);
        let mut filled = 0;
        while filled < all {
            if filled == self.scratch.len() {
                self.scratch.resize(all.min(filled + STEP), 0);
            }
            match self.bytes.read(&mut self.scratch[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        let whole = filled / row_bytes;
        if filled % row_bytes != 0 || (whole < rows && self.shape.rows.is_some()) {
            let row = self.row + whole as u64;
            return Err(Fault::row(
                row,
                "the data ends within this row or before it: it is cut short",
            ));
        }
        self.scratch.truncate(filled);
        Ok(whole)
    }
}

impl Source for Flat {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn read(&mut self, limit: usize, values: &mut Values) -> Result<usize, Fault> {
        let dim = self.shape.dim;
        let size = self.layout.stored.bytes();
        let mut rows = self.expected(limit);
        if rows == 0 {
            values.clear(self.shape.kind);
            self.bytes.finish()?;
            return Ok(0);
        }
        if self.prefix == 0 && self.shape.rows.is_some() {
            let mut counted = Counted { bytes: &mut self.bytes, got: 0 };
            match self.layout.read(&mut counted, rows * dim, values, &mut self.scratch) {
                Err(Fault::Io(e)) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
                    // The same row whatever the size of the batch.
                    return Err(Fault::file(format!(
                        "ends before the end of row {}, but its header says {} rows: it is cut short",
                        self.row + counted.got / (dim * size) as u64,
                        self.shape.rows.unwrap_or(0)
                    )));
                }
                other => other?,
            }
        } else {
            let row_bytes = dim * size + self.prefix;
            rows = self.read_rows(rows, row_bytes)?;
            values.clear(self.shape.kind);
            for (i, bytes) in self.scratch.chunks_exact_mut(row_bytes).enumerate() {
                let (prefix, bytes) = bytes.split_at_mut(self.prefix);
                if let Ok(prefix) = <[u8; 4]>::try_from(&*prefix) {
                    let got = u32::from_le_bytes(prefix);
                    if got as usize != dim {
                        let row = self.row + i as u64;
                        let why = format!("has dimension {got}, expected {dim} as in row 0");
                        return Err(Fault::row(row, why));
                    }
                }
                self.layout.to_native(bytes);
                self.layout.append(bytes, values);
            }
        }
        self.row += rows as u64;
        Ok(rows)
    }

    fn cutting(&self) -> Option<Cutting> {
        let rows = self.shape.rows.filter(|_| self.bytes.left().is_some())?;
        Some(Cutting { rows, places: Places::Multiples(1) })
    }

    fn select(&mut self, rows: Range<u64>) -> Result<(), Fault> {
        self.skip(rows.start - self.row)?;
        self.end = Some(rows.end);
        Ok(())
    }

    fn skip(&mut self, rows: u64) -> Result<(), Fault> {
        let rows = self.shape.rows.map_or(rows, |all| rows.min(all - self.row));
        let row_bytes = (self.shape.dim * self.layout.stored.bytes() + self.prefix) as u64;
        let bytes = rows.checked_mul(row_bytes).ok_or("is larger than files can be")?;
        self.bytes.skip(bytes)?;
        self.row += rows;
        Ok(())
    }
}

/// Counts the bytes that are read.
struct Counted<'a> {
    bytes: &'a mut ByteSource,
    got: u64,
}

impl Read for Counted<'_> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let got = self.bytes.read(to)?;
        self.got += got as u64;
        Ok(got)
    }
}

/// Makes the header for a number of rows; its length is always the same.
type Header = Box<dyn Fn(u64) -> Result<Vec<u8>, Fault>>;

/// Writes rows of equal length after a header with their number, which is known and written at the end.
pub(crate) struct FlatSink<W> {
    writer: W,
    dim: usize,
    rows: u64,
    header: Header,
}

impl<W: Write + Seek> FlatSink<W> {
    pub(crate) fn new(
        mut writer: W,
        dim: usize,
        header: impl Fn(u64) -> Result<Vec<u8>, Fault> + 'static,
    ) -> Result<Self, Fault> {
        // Zeros until the end, so that an unfinished file is not taken for a whole one.
        writer.write_all(&vec![0; header(0)?.len()])?;
        Ok(Self { writer, dim, rows: 0, header: Box::new(header) })
    }
}

impl<W: Write + Seek> Sink for FlatSink<W> {
    fn write(&mut self, values: &Values) -> Result<(), Fault> {
        self.rows += (values.len() / self.dim) as u64;
        write_values(&mut self.writer, values)
    }

    fn finish(&mut self) -> Result<(), Fault> {
        self.writer.seek(SeekFrom::Start(0))?;
        self.writer.write_all(&(self.header)(self.rows)?)?;
        Ok(self.writer.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Kind;
    use crate::byte_source::Ending;
    use crate::layout::Stored;
    use std::io::Cursor;

    fn stream(bytes: Vec<u8>) -> ByteSource {
        ByteSource::Stream(Box::new(Cursor::new(bytes)), Ending::Open)
    }

    #[test]
    fn a_stream_that_ends_early_takes_no_memory_for_what_is_missing() {
        for (stored, rows, prefix) in [
            (Stored::As(Kind::F64), Some(64), 0),
            (Stored::I32, Some(64), 0),
            (Stored::As(Kind::F32), None, 4),
        ] {
            let layout = Layout::little_endian(stored);
            let mut flat =
                Flat::prefixed(stream(vec![0; 100]), layout, MAX_DIM, rows, prefix).unwrap();
            let mut values = Values::empty(stored.kind());
            assert!(flat.read(64, &mut values).is_err());
            assert!(values.bytes().len().max(flat.scratch.capacity()) <= STEP, "{stored:?}");
        }
    }

    #[test]
    fn rows_longer_than_a_step_are_read_whole() {
        let dim = STEP / 4 + 1;
        let row: Vec<u8> = (0..dim as u32).flat_map(u32::to_le_bytes).collect();
        let layout = Layout::little_endian(Stored::I32);
        let mut flat = Flat::new(stream(row.clone()), layout, dim, Some(1)).unwrap();
        let mut values = Values::empty(Kind::F64);
        assert_eq!(flat.read(9, &mut values).unwrap(), 1);
        assert!(values.to_f64().iter().zip(0..).all(|(x, i)| *x == f64::from(i)));
        let layout = Layout::little_endian(Stored::As(Kind::F32));
        let mut flat = Flat::new(stream(row.clone()), layout, dim, Some(1)).unwrap();
        assert_eq!(flat.read(9, &mut values).unwrap(), 1);
        assert!(values.bytes() == row);
        let prefixed = [&(dim as u32).to_le_bytes()[..], &row].concat();
        let mut flat = Flat::prefixed(stream(prefixed), layout, dim, None, 4).unwrap();
        assert_eq!(flat.read(9, &mut values).unwrap(), 1);
        assert!(values.bytes() == row);
    }
}
