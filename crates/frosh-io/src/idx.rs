//! idx (MNIST): two zero bytes, the element type, the number of axes, each axis as a big-endian 32-bit
//! integer, then the values, big-endian. The first axis counts rows, the others are flattened.
//!
//! Cost: none beyond reading.

use crate::batch::Kind;
use crate::bigann::rows32;
use crate::byte_source::ByteSource;
use crate::error::Fault;
use crate::flat::{Flat, FlatSink, checked_dim};
use crate::layout::{Layout, Stored};
use std::io::{Read, Seek, Write};

/// Whether an idx file may begin with these bytes.
pub(crate) fn is_head(head: &[u8]) -> bool {
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

/// The header of an idx file.
pub(crate) struct Head {
    /// The code of the element type.
    pub(crate) code: u8,
    /// The length of each axis.
    pub(crate) axes: Vec<u64>,
}

/// Reads the header.
pub(crate) fn read_head(bytes: &mut ByteSource) -> Result<Head, Fault> {
    let mut head = [0u8; 4];
    bytes.read_exact(&mut head)?;
    let [0, 0, code, count @ 1..=8] = head else {
        return Err(Fault::file(format!(
            "is not an idx file: it begins with {head:02x?}, expected two zeros, a type and 1 to 8 axes"
        )));
    };
    let mut axes = Vec::new();
    for _ in 0..count {
        let mut length = [0u8; 4];
        bytes.read_exact(&mut length)?;
        axes.push(u32::from_be_bytes(length).into());
    }
    Ok(Head { code, axes })
}

/// Opens an idx file.
pub(crate) fn open(mut bytes: ByteSource) -> Result<Flat, Fault> {
    let Head { code, axes } = read_head(&mut bytes)?;
    let stored = stored(code)
        .ok_or_else(|| Fault::file(format!("has the unknown idx element type {code:#04x}")))?;
    let rows = axes[0];
    let dim = axes[1..].iter().fold(1u64, |dim, length| dim.saturating_mul(*length));
    let layout = Layout { stored, big_endian: true };
    Flat::new(bytes, layout, checked_dim(dim)?, Some(rows))
}

/// Writes bytes as an idx file of two axes.
pub(crate) fn sink<W: Write + Seek>(writer: W, dim: usize) -> Result<FlatSink<W>, Fault> {
    FlatSink::new(writer, dim, move |rows| {
        let rows = rows32(rows)?;
        // Fits: the dimension is at most MAX_DIM.
        Ok([[0, 0, 0x08, 2], rows.to_be_bytes(), (dim as u32).to_be_bytes()].concat())
    })
}
