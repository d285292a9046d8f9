//! `.fvecs`, `.bvecs`, `.ivecs`: rows of floats, bytes or 32-bit integers, each after its dimension as a
//! little-endian 32-bit integer. The dimension of every row is checked.
//!
//! Cost: each batch is read at once, and its values are copied once.

use crate::batch::Values;
use crate::byte_source::ByteSource;
use crate::error::Fault;
use crate::flat::{Flat, checked_dim};
use crate::layout::{Layout, Stored, little_endian};
use crate::source::Sink;
use std::io::{Read as _, Write};

/// Opens a file whose values have this type.
pub(crate) fn open(mut bytes: ByteSource, stored: Stored) -> Result<Flat, Fault> {
    let mut head = [0u8; 4];
    bytes.read_exact(&mut head)?;
    let dim = checked_dim(u32::from_le_bytes(head).into())?;
    // The dimension of the first row is read again with its row.
    let bytes = bytes.unread(head.to_vec())?;
    Flat::prefixed(bytes, Layout::little_endian(stored), dim, None, 4)
}

/// Writes such a file. `f64` values are written to `.ivecs`, as 32-bit integers, and must be whole numbers.
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
        // Fits: the dimension is at most MAX_DIM.
        let head = (self.dim as u32).to_le_bytes();
        if let Values::F64(values) = values {
            for row in values.chunks_exact(self.dim) {
                self.writer.write_all(&head)?;
                for &x in row {
                    let whole = x as i32;
                    if f64::from(whole) != x {
                        let why = format!("{x} is not a 32-bit integer; write another format");
                        return Err(Fault::row(self.rows, why));
                    }
                    self.writer.write_all(&whole.to_le_bytes())?;
                }
                self.rows += 1;
            }
            return Ok(());
        }
        let size = values.kind().bytes();
        for row in little_endian(values).chunks_exact(self.dim * size) {
            self.writer.write_all(&head)?;
            self.writer.write_all(row)?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Fault> {
        Ok(self.writer.flush()?)
    }
}
