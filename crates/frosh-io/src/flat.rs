//! Rows that lie one after the other, each as long as the next: what `.npy`, big-ann, idx and raw files
//! are after their headers.
//!
//! Cost: one read of each batch straight into its memory; bytes are swapped in place and 16- and 32-bit
//! integers widened only where the file has them.

use crate::batch::{Kind, Values};
use crate::error::Fault;
use crate::source::{MAX_DIM, Shape, Sink, Source};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};

/// Bytes read at once, so that memory grows with what is there: a stream may end long before its header says.
const STEP: usize = 16 << 20;

/// How a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// As one of the kinds that batches hold.
    As(Kind),
    /// 16-bit integers, widened to `f32`.
    I16,
    /// 32-bit integers, widened to `f64`.
    I32,
}

impl Stored {
    pub(crate) fn bytes(self) -> usize {
        match self {
            Stored::As(kind) => kind.bytes(),
            Stored::I16 => 2,
            Stored::I32 => 4,
        }
    }

    /// The kind of the batches.
    pub(crate) fn kind(self) -> Kind {
        match self {
            Stored::As(kind) => kind,
            Stored::I16 => Kind::F32,
            Stored::I32 => Kind::F64,
        }
    }
}

/// Values as a file stores them: type and byte order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) stored: Stored,
    pub(crate) big_endian: bool,
}

impl Layout {
    pub(crate) fn little(stored: Stored) -> Self {
        Self { stored, big_endian: false }
    }

    /// Reads `count` values from `reader`; `scratch` is used where they must be widened.
    pub(crate) fn read(
        self,
        reader: &mut impl Read,
        count: usize,
        values: &mut Values,
        scratch: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let size = self.stored.bytes();
        let steps =
            (0..count).step_by(STEP / size).map(|from| (from, count.min(from + STEP / size)));
        if let Stored::As(kind) = self.stored {
            // Not cleared before: only new values need to be set to zero, and mostly there are none.
            values.turn_into(kind);
            values.resize(values.len().min(count));
            for (from, to) in steps {
                values.resize(values.len().max(to));
                reader.read_exact(&mut values.bytes_mut()[from * size..to * size])?;
            }
            self.to_host(values.bytes_mut());
        } else {
            values.clear(self.stored.kind());
            for (from, to) in steps {
                scratch.resize((to - from) * size, 0);
                reader.read_exact(scratch)?;
                self.to_host(scratch);
                self.append(scratch, values);
            }
        }
        Ok(())
    }

    /// Appends values that are in memory, already in the host's byte order.
    pub(crate) fn append(self, bytes: &[u8], values: &mut Values) {
        match (self.stored, values) {
            (Stored::I16, Values::F32(v)) => {
                v.extend(
                    bytes.chunks_exact(2).map(|b| f32::from(i16::from_ne_bytes([b[0], b[1]]))),
                );
            }
            (Stored::I32, Values::F64(v)) => v.extend(
                bytes
                    .chunks_exact(4)
                    .map(|b| f64::from(i32::from_ne_bytes([b[0], b[1], b[2], b[3]]))),
            ),
            (_, values) => {
                let before = values.len();
                values.resize(before + bytes.len() / self.stored.bytes());
                let start = before * self.stored.bytes();
                values.bytes_mut()[start..].copy_from_slice(bytes);
            }
        }
    }

    /// Swaps bytes where the file's order is not the host's.
    pub(crate) fn to_host(self, bytes: &mut [u8]) {
        if self.big_endian != cfg!(target_endian = "big") {
            match self.stored.bytes() {
                2 => bytes.chunks_exact_mut(2).for_each(<[u8]>::reverse),
                4 => bytes.chunks_exact_mut(4).for_each(<[u8]>::reverse),
                8 => bytes.chunks_exact_mut(8).for_each(<[u8]>::reverse),
                _ => {}
            }
        }
    }
}

/// Where bytes come from: a file, whose size is known, or a stream.
pub(crate) enum Bytes {
    /// A file and the bytes that are left in it.
    File(File, u64),
    /// What can only be read on.
    Stream(Box<dyn Read + Send>, Ending),
}

/// What follows the last row of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Nobody knows: standard input may stay open, and is not waited for.
    Open,
    /// A checksum of what was unpacked, which is looked at when the stream is read to its end.
    Checked,
}

impl Bytes {
    pub(crate) fn file(mut file: File) -> std::io::Result<Self> {
        let size = file.metadata()?.len();
        let at = file.stream_position()?;
        Ok(Bytes::File(file, size.saturating_sub(at)))
    }

    /// Bytes that are left, where that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        match self {
            Bytes::File(_, left) => Some(*left),
            Bytes::Stream(..) => None,
        }
    }

    fn skip(&mut self, count: u64) -> Result<(), Fault> {
        match self {
            Bytes::File(file, left) => {
                let count = count.min(*left);
                let step = i64::try_from(count).map_err(|_| "is larger than files can be")?;
                file.seek(SeekFrom::Current(step))?;
                *left -= count;
            }
            Bytes::Stream(stream, _) => {
                std::io::copy(&mut stream.take(count), &mut std::io::sink())?;
            }
        }
        Ok(())
    }

    /// After the last row: reads what has a checksum to its end, where it is compared.
    fn finish(&mut self) -> Result<(), Fault> {
        match self {
            Bytes::Stream(_, Ending::Checked) => self.skip(u64::MAX),
            _ => Ok(()),
        }
    }
}

impl Read for Bytes {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Bytes::File(file, left) => {
                let got = file.read(buf)?;
                *left = left.saturating_sub(got as u64);
                Ok(got)
            }
            Bytes::Stream(stream, _) => stream.read(buf),
        }
    }
}

/// A dimension that a header claims, if it is possible.
pub(crate) fn checked_dim(dim: u64) -> Result<usize, Fault> {
    match usize::try_from(dim) {
        Ok(dim @ 1..=MAX_DIM) => Ok(dim),
        _ => Err(Fault::File(format!(
            "says that its rows have {dim} dimensions, but 1 to {MAX_DIM} are possible: \
             it is damaged, or of another format (choose with --format)"
        ))),
    }
}

/// A reader of equal rows.
pub(crate) struct Flat {
    bytes: Bytes,
    layout: Layout,
    shape: Shape,
    /// Rows read.
    at: u64,
    /// Bytes each row has in front of its values: the dimension again, in the `vecs` formats.
    prefix: usize,
    scratch: Vec<u8>,
}

impl Flat {
    /// Rows that begin here. `rows` is what the header says, and is held against what is there.
    pub(crate) fn new(
        bytes: Bytes,
        layout: Layout,
        dim: usize,
        rows: Option<u64>,
    ) -> Result<Self, Fault> {
        Self::prefixed(bytes, layout, dim, rows, 0)
    }

    /// Rows that each begin with their dimension, as a little-endian 32-bit integer.
    pub(crate) fn prefixed(
        bytes: Bytes,
        layout: Layout,
        dim: usize,
        rows: Option<u64>,
        prefix: usize,
    ) -> Result<Self, Fault> {
        // Both are small: no overflow.
        let row = (dim * layout.stored.bytes() + prefix) as u64;
        let rows = match (rows, bytes.left()) {
            (Some(rows), Some(left)) if u128::from(rows) * u128::from(row) > u128::from(left) => {
                return Err(Fault::File(format!(
                    "its header says {rows} rows of {dim} dimensions, which take {} bytes, but only \
                     {left} follow: it is cut short or damaged",
                    u128::from(rows) * u128::from(row)
                )));
            }
            (Some(rows), _) => Some(rows),
            (None, Some(left)) if left % row != 0 => {
                let why = if prefix == 0 { "--dim may be wrong" } else { "its rows may differ" };
                return Err(Fault::File(format!(
                    "has {left} bytes, which are not a whole number of rows of {dim} dimensions \
                     ({row} bytes each): it is cut short, or {why}"
                )));
            }
            (None, left) => left.map(|left| left / row),
        };
        let shape = Shape { dim, kind: layout.stored.kind(), rows };
        Ok(Self { bytes, layout, shape, at: 0, prefix, scratch: Vec::new() })
    }

    /// How many of `limit` rows can be expected.
    fn expected(&self, limit: usize) -> usize {
        match self.shape.rows {
            Some(rows) => limit.min(usize::try_from(rows - self.at).unwrap_or(limit)),
            None => limit,
        }
    }

    /// Reads as many bytes of whole rows as there are, up to `rows`, into the scratch.
    fn read_rows(&mut self, rows: usize, row: usize) -> Result<usize, Fault> {
        let all = rows * row;
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
        let whole = filled / row;
        if filled % row != 0 || (whole < rows && self.shape.rows.is_some()) {
            let row = self.at + whole as u64;
            let why = "the data ends inside this row or before it: it is cut short".into();
            return Err(Fault::Row { row, why });
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
            match self.layout.read(&mut self.bytes, rows * dim, values, &mut self.scratch) {
                Err(Fault::Io(e)) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
                    return Err(Fault::File(format!(
                        "ends between row {} and row {}, but its header says {} rows: it is cut short",
                        self.at,
                        self.at + rows as u64,
                        self.shape.rows.unwrap_or(0)
                    )));
                }
                other => other?,
            }
        } else {
            let row = dim * size + self.prefix;
            rows = self.read_rows(rows, row)?;
            values.clear(self.shape.kind);
            for (i, bytes) in self.scratch.chunks_exact_mut(row).enumerate() {
                let (prefix, bytes) = bytes.split_at_mut(self.prefix);
                if let Ok(prefix) = <[u8; 4]>::try_from(&*prefix) {
                    let got = u32::from_le_bytes(prefix);
                    if got as usize != dim {
                        let row = self.at + i as u64;
                        let why = format!("has dimension {got}, expected {dim} as in row 0");
                        return Err(Fault::Row { row, why });
                    }
                }
                self.layout.to_host(bytes);
                self.layout.append(bytes, values);
            }
        }
        self.at += rows as u64;
        Ok(rows)
    }

    fn skip(&mut self, rows: u64) -> Result<(), Fault> {
        let rows = self.shape.rows.map_or(rows, |all| rows.min(all - self.at));
        let row = (self.shape.dim * self.layout.stored.bytes() + self.prefix) as u64;
        let bytes = rows.checked_mul(row).ok_or("is larger than files can be")?;
        self.bytes.skip(bytes)?;
        self.at += rows;
        Ok(())
    }
}

/// Writes values one after the other, little-endian.
pub(crate) fn write_values(writer: &mut impl Write, values: &Values) -> Result<(), Fault> {
    let mut bytes = std::borrow::Cow::Borrowed(values.bytes());
    if cfg!(target_endian = "big") {
        Layout::little(Stored::As(values.kind())).to_host(bytes.to_mut());
    }
    Ok(writer.write_all(&bytes)?)
}

/// Makes the header for a number of rows; always as long.
type Header = Box<dyn Fn(u64) -> Result<Vec<u8>, Fault>>;

/// Writes equal rows after a header that tells how many there are: it is written again at the end.
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
        // Zeros until the end, so that an unfinished file is none of the format's.
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
    use std::io::Cursor;

    fn stream(bytes: Vec<u8>) -> Bytes {
        Bytes::Stream(Box::new(Cursor::new(bytes)), Ending::Open)
    }

    #[test]
    fn a_stream_that_ends_early_takes_no_memory_for_what_is_missing() {
        for (stored, rows, prefix) in [
            (Stored::As(Kind::F64), Some(64), 0),
            (Stored::I32, Some(64), 0),
            (Stored::As(Kind::F32), None, 4),
        ] {
            let layout = Layout::little(stored);
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
        let layout = Layout::little(Stored::I32);
        let mut flat = Flat::new(stream(row.clone()), layout, dim, Some(1)).unwrap();
        let mut values = Values::empty(Kind::F64);
        assert_eq!(flat.read(9, &mut values).unwrap(), 1);
        assert!(values.to_f64().iter().zip(0..).all(|(x, i)| *x == f64::from(i)));
        let layout = Layout::little(Stored::As(Kind::F32));
        let mut flat = Flat::new(stream(row.clone()), layout, dim, Some(1)).unwrap();
        assert_eq!(flat.read(9, &mut values).unwrap(), 1);
        assert!(values.bytes() == row);
        let prefixed = [&(dim as u32).to_le_bytes()[..], &row].concat();
        let mut flat = Flat::prefixed(stream(prefixed), layout, dim, None, 4).unwrap();
        assert_eq!(flat.read(9, &mut values).unwrap(), 1);
        assert!(values.bytes() == row);
    }
}
