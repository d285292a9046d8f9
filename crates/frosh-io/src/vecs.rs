//! `.fvecs`, `.bvecs`, `.ivecs`: rows of floats, bytes or 32-bit integers, each after its dimension as a
//! little-endian 32-bit integer. The dimension of every row is checked.
//!
//! Cost: each batch is read at once and its rows are copied together.

use crate::batch::Values;
use crate::error::Fault;
use crate::flat::{Bytes, Flat, Layout, Stored, checked_dim};
use crate::source::Sink;
use std::io::{Read, Write};

/// Opens a file whose values are stored so.
pub(crate) fn open(mut bytes: Bytes, stored: Stored) -> Result<Flat, Fault> {
    let mut head = [0u8; 4];
    bytes.read_exact(&mut head)?;
    let dim = checked_dim(u32::from_le_bytes(head).into())?;
    // The first row's dimension is read again with its row.
    let bytes = match bytes {
        Bytes::File(mut file, left) => {
            std::io::Seek::seek_relative(&mut file, -4)?;
            Bytes::File(file, left + 4)
        }
        Bytes::Stream(rest, ending) => {
            Bytes::Stream(Box::new(std::io::Cursor::new(head).chain(rest)), ending)
        }
    };
    Flat::prefixed(bytes, Layout::little(stored), dim, None, 4)
}

/// Writes such a file. `.ivecs` take `f64` values that are whole numbers of 32 bits.
pub(crate) struct VecsSink<W> {
    writer: W,
    dim: usize,
    rows: u64,
}

impl<W: Write> VecsSink<W> {
    pub(crate) fn new(writer: W, dim: usize) -> Self {
        Self { writer, dim, rows: 0 }
    }
}

impl<W: Write> Sink for VecsSink<W> {
    fn write(&mut self, values: &Values) -> Result<(), Fault> {
        // At most MAX_DIM, so it fits.
        let head = (self.dim as u32).to_le_bytes();
        if let Values::F64(values) = values {
            for row in values.chunks_exact(self.dim) {
                self.writer.write_all(&head)?;
                for &x in row {
                    let whole = x as i32;
                    if f64::from(whole) != x {
                        let why = format!("{x} is no 32-bit whole number; write another format");
                        return Err(Fault::Row { row: self.rows, why });
                    }
                    self.writer.write_all(&whole.to_le_bytes())?;
                }
                self.rows += 1;
            }
            return Ok(());
        }
        let size = values.kind().bytes();
        let mut bytes = std::borrow::Cow::Borrowed(values.bytes());
        if cfg!(target_endian = "big") {
            Layout::little(Stored::As(values.kind())).to_host(bytes.to_mut());
        }
        for row in bytes.chunks_exact(self.dim * size) {
            self.writer.write_all(&head)?;
            self.writer.write_all(row)?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Fault> {
        Ok(self.writer.flush()?)
    }
}
