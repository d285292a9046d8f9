//! `.fbin`, `.f16bin`, `.u8bin`, `.i8bin` (big-ann benchmarks): rows and dimension as two little-endian
//! 32-bit integers, then the values. And raw values without any header.
//!
//! Cost: none beyond reading.

use crate::batch::{Kind, Values};
use crate::error::Fault;
use crate::flat::{Bytes, Flat, FlatSink, Layout, Stored, checked_dim, write_values};
use crate::source::Sink;
use std::io::{Read, Seek, Write};

/// Opens a big-ann file of this kind.
pub(crate) fn open(mut bytes: Bytes, kind: Kind) -> Result<Flat, Fault> {
    let mut head = [0u8; 8];
    bytes.read_exact(&mut head)?;
    let [a, b, c, d, e, f, g, h] = head;
    let rows = u64::from(u32::from_le_bytes([a, b, c, d]));
    let dim = checked_dim(u32::from_le_bytes([e, f, g, h]).into())?;
    if let Some(left) = bytes.left() {
        let expected = u128::from(rows) * (dim * kind.bytes()) as u128;
        if expected < u128::from(left) {
            return Err(Fault::File(format!(
                "its header says {rows} rows of {dim} dimensions, which take {expected} bytes as {kind}, \
                 but {left} follow: is it of another format (choose with --format)?"
            )));
        }
    }
    Flat::new(bytes, Layout::little(Stored::As(kind)), dim, Some(rows))
}

/// Opens values without a header.
pub(crate) fn open_raw(bytes: Bytes, kind: Kind, dim: usize) -> Result<Flat, Fault> {
    Flat::new(bytes, Layout::little(Stored::As(kind)), checked_dim(dim as u64)?, None)
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
        // At most MAX_DIM, so it fits.
        Ok([rows.to_le_bytes(), (dim as u32).to_le_bytes()].concat())
    })
}

/// A number of rows for a format that has 32 bits for it.
pub(crate) fn rows32(rows: u64) -> Result<u32, Fault> {
    u32::try_from(rows)
        .map_err(|_| "would need more than 2^32 rows, which this format cannot say".into())
}
