//! idx (MNIST): two zero bytes, the element type, the number of axes, each axis as a big-endian 32-bit
//! integer, then the values, big-endian. The first axis counts rows, the others are flattened.
//!
//! Cost: none beyond reading.

use crate::batch::{Kind, Values};
use crate::bigann::write_values;
use crate::error::Fault;
use crate::flat::{Bytes, Flat, Layout, Stored, checked_dim};
use crate::source::Sink;
use std::io::{Read, Seek, SeekFrom, Write};

/// Whether this may be the beginning of an idx file.
pub(crate) fn begins(head: &[u8]) -> bool {
    matches!(head, [0, 0, kind, axes, ..] if stored(*kind).is_some() && (1..=8).contains(axes))
}

fn stored(code: u8) -> Option<Stored> {
    Some(match code {
        0x08 => Stored::As(Kind::U8),
        0x09 => Stored::As(Kind::I8),
        0x0b => Stored::I16,
        0x0c => Stored::I32,
        0x0d => Stored::As(Kind::F32),
        0x0e => Stored::As(Kind::F64),
        _ => return None,
    })
}

/// Opens an idx file.
pub(crate) fn open(mut bytes: Bytes) -> Result<Flat, Fault> {
    let mut head = [0u8; 4];
    bytes.read_exact(&mut head)?;
    let [0, 0, code, axes @ 1..=8] = head else {
        return Err(Fault::File(format!(
            "is no idx file: it begins with {head:02x?}, expected two zeros, a type and 1 to 8 axes"
        )));
    };
    let stored = stored(code)
        .ok_or_else(|| Fault::File(format!("has the unknown idx element type {code:#04x}")))?;
    let mut axis = || -> Result<u64, Fault> {
        let mut length = [0u8; 4];
        bytes.read_exact(&mut length)?;
        Ok(u32::from_be_bytes(length).into())
    };
    let rows = axis()?;
    let mut dim = 1u64;
    for _ in 1..axes {
        dim = dim.saturating_mul(axis()?);
    }
    let layout = Layout { stored, big_endian: true };
    Flat::new(bytes, layout, checked_dim(dim)?, Some(rows))
}

/// Writes bytes as an idx file of two axes.
pub(crate) struct IdxSink<W> {
    writer: W,
    dim: usize,
    rows: u64,
}

impl<W: Write + Seek> IdxSink<W> {
    pub(crate) fn new(mut writer: W, dim: usize) -> Result<Self, Fault> {
        writer.write_all(&[0; 12])?;
        Ok(Self { writer, dim, rows: 0 })
    }
}

impl<W: Write + Seek> Sink for IdxSink<W> {
    fn write(&mut self, values: &Values) -> Result<(), Fault> {
        self.rows += (values.len() / self.dim) as u64;
        write_values(&mut self.writer, values)
    }

    fn finish(&mut self) -> Result<(), Fault> {
        let rows = u32::try_from(self.rows)
            .map_err(|_| "would need more than 2^32 rows, which this format cannot say")?;
        self.writer.seek(SeekFrom::Start(0))?;
        self.writer.write_all(&[0, 0, 0x08, 2])?;
        self.writer.write_all(&rows.to_be_bytes())?;
        // At most MAX_DIM, so it fits.
        self.writer.write_all(&(self.dim as u32).to_be_bytes())?;
        Ok(self.writer.flush()?)
    }
}
