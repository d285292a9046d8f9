//! `.fbin`, `.f16bin`, `.u8bin`, `.i8bin` (big-ann benchmarks): number of rows and dimension as two
//! little-endian 32-bit integers, then the values. Also raw values, which have no header.
//!
//! Cost: none beyond reading.

use crate::batch::{Kind, Values};
use crate::byte_source::ByteSource;
use crate::error::{Fault, Hint};
use crate::flat::{Flat, FlatSink, checked_dim};
use crate::layout::{Layout, Stored, write_values};
use crate::source::Sink;
use std::io::{Read, Seek, Write};

/// Opens a big-ann file of this element type.
pub(crate) fn open(mut bytes: ByteSource, kind: Kind) -> Result<Flat, Fault> {
    let mut head = [0u8; 8];
    bytes.read_exact(&mut head)?;
    let [a, b, c, d, e, f, g, h] = head;
    let rows = u64::from(u32::from_le_bytes([a, b, c, d]));
    let dim = checked_dim(u32::from_le_bytes([e, f, g, h]).into())?;
    if let Some(left) = bytes.left() {
        let expected = u128::from(rows) * (dim * kind.bytes()) as u128;
        if expected < u128::from(left) {
            return Err(Fault::file(format!(
                "its header says {rows} rows of {dim} dimensions, which take {expected} bytes as {kind}, \
                 but {left} follow: is it of another format?"
            ))
            .hint(Hint::ChooseFormat));
        }
    }
    Flat::new(bytes, Layout::little_endian(Stored::As(kind)), dim, Some(rows))
}

/// Opens values without a header.
pub(crate) fn open_raw(bytes: ByteSource, kind: Kind, dim: usize) -> Result<Flat, Fault> {
    Flat::new(bytes, Layout::little_endian(Stored::As(kind)), checked_dim(dim as u64)?, None)
}

/// Writes values without a header.
pub(crate) struct RawSink<W>(pub(crate) W);

impl<W: Write> Sink for RawSink<W> {
    fn write(&mut self, values: &Values) -> Result<(), Fault> {
        write_values(&mut self.0, values)
    }

    fn finish(&mut self) -> Result<(), Fault> {
        Ok(self.0.flush()?)
    }
}

/// Writes a big-ann file.
pub(crate) fn sink<W: Write + Seek>(writer: W, dim: usize) -> Result<FlatSink<W>, Fault> {
    FlatSink::new(writer, dim, move |rows| {
        let rows = rows32(rows)?;
        // Fits: the dimension is at most MAX_DIM.
        Ok([rows.to_le_bytes(), (dim as u32).to_le_bytes()].concat())
    })
}

/// The number of rows, for a format that stores it in 32 bits.
pub(crate) fn rows32(rows: u64) -> Result<u32, Fault> {
    u32::try_from(rows).map_err(|_| "has 2^32 rows or more, which this format cannot hold".into())
}
