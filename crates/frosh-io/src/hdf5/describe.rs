//! Parses the messages of a data set's header: its shape, its element type, its storage and its filters.

use super::bytes::{Cursor, UNDEFINED, damaged, unsupported};
use super::header::{self, Message};
use crate::batch::Kind;
use crate::error::Fault;
use crate::layout::{Layout, Stored};

/// A data set's description.
pub(super) struct Description {
    /// Current size of every dimension.
    pub(super) shape: Vec<u64>,
    /// Largest size of every dimension; [`UNDEFINED`] is no limit.
    pub(super) limits: Vec<u64>,
    pub(super) element: Element,
}

/// An element type.
pub(super) struct Element {
    /// Its name for messages.
    pub(super) name: String,
    /// How to read it, if it is supported.
    pub(super) number: Option<Layout>,
}

/// How the values are stored.
pub(super) enum DataLayout {
    /// In the object header.
    Compact(Vec<u8>),
    /// One after the other.
    Contiguous { at: u64, len: u64 },
    /// In chunks of this shape. With `unfiltered_edges`, chunks that reach over the end of the data set are
    /// not filtered.
    Chunked { shape: Vec<u64>, index: ChunkIndex, at: u64, unfiltered_edges: bool },
}

/// How the addresses of chunks are stored.
pub(super) enum ChunkIndex {
    /// A B-tree of version 1.
    BTree,
    /// There is only one chunk; with filters, its stored size and filter mask.
    Single(Option<(u64, u32)>),
    /// Chunks are stored one after the other.
    Implicit,
    FixedArray,
    ExtensibleArray,
}

/// A filter that was applied to chunks when they were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filter {
    Deflate,
    /// Transposes the bytes of values: all first bytes, then all second bytes, and so on. Holds the size of a value.
    Shuffle(usize),
    /// A checksum at the end.
    Fletcher32,
}

/// Parses shape and element type; `None` if the object is not a data set.
pub(super) fn description(messages: &[Message]) -> Result<Option<Description>, Fault> {
    if !messages.iter().any(|message| message.kind == header::LAYOUT) {
        return Ok(None);
    }
    let space = header::find(messages, header::DATASPACE)?;
    let space = space.ok_or_else(|| damaged("a data set", "its shape is missing"))?;
    let (shape, limits) = dataspace(space)?;
    let element = match header::find(messages, header::DATATYPE) {
        Ok(Some(body)) => element(body)?,
        Ok(None) => return Err(damaged("a data set", "its element type is missing")),
        Err(_) => Element { name: "a named type".into(), number: None },
    };
    Ok(Some(Description { shape, limits, element }))
}

/// The current and the largest shape.
fn dataspace(body: &[u8]) -> Result<(Vec<u64>, Vec<u64>), Fault> {
    let mut cursor = Cursor::new(body, "a data set's shape");
    let (version, rank, flags) = (cursor.u8()?, cursor.u8()?, cursor.u8()?);
    match version {
        1 => cursor.skip(5)?,
        2 => cursor.skip(1)?,
        _ => return Err(unsupported(format!("version {version} of data set shapes"))),
    }
    let mut sizes = || (0..rank).map(|_| cursor.u64()).collect::<Result<Vec<_>, _>>();
    let shape = sizes()?;
    let limits = if flags & 1 != 0 { sizes()? } else { shape.clone() };
    Ok((shape, limits))
}

fn element(body: &[u8]) -> Result<Element, Fault> {
    let mut cursor = Cursor::new(body, "an element type");
    let (class, flags) = (cursor.u8()? & 15, cursor.uint(3)?);
    let size = cursor.u32()?;
    let big_endian = flags & 1 != 0;
    let (name, stored) = match class {
        0 => {
            let signed = flags & 8 != 0;
            let (offset, bits) = (cursor.u16()?, cursor.u16()?);
            let stored = match (size, signed) {
                // Integers that do not fill their bytes are not supported.
                _ if offset != 0 || u32::from(bits) != size.saturating_mul(8) => None,
                (1, true) => Some(Stored::As(Kind::I8)),
                (1, false) => Some(Stored::As(Kind::U8)),
                (2, true) => Some(Stored::I16),
                (2, false) => Some(Stored::U16),
                (4, true) => Some(Stored::I32),
                (4, false) => Some(Stored::U32),
                _ => None,
            };
            (format!("{}{bits}", if signed { 'i' } else { 'u' }), stored)
        }
        1 => {
            let (offset, bits) = (cursor.u16()?, cursor.u16()?);
            let fields = (cursor.u8()?, cursor.u8()?, cursor.u8()?, cursor.u8()?, cursor.u32()?);
            // Position and size of the exponent, position and size of the mantissa, bias: those of IEEE 754.
            // Bit 6 of the flags marks VAX byte order.
            let stored = match (size, fields) {
                _ if offset != 0 || flags & 64 != 0 => None,
                (2, (10, 5, 0, 10, 15)) => Some(Stored::As(Kind::F16)),
                (4, (23, 8, 0, 23, 127)) => Some(Stored::As(Kind::F32)),
                (8, (52, 11, 0, 52, 1023)) => Some(Stored::As(Kind::F64)),
                _ => None,
            };
            let odd = if stored.is_none() && size <= 8 { " of an unusual form" } else { "" };
            (format!("f{bits}{odd}"), stored)
        }
        other => {
            let names = [
                "time",
                "string",
                "bits",
                "opaque",
                "compound",
                "reference",
                "enum",
                "sequence",
                "array",
                "complex",
            ];
            let name = names.get(usize::from(other) - 2).copied().unwrap_or("unknown type");
            (name.to_string(), None)
        }
    };
    Ok(Element { name, number: stored.map(|stored| Layout { stored, big_endian }) })
}

/// Parses how the values are stored.
pub(super) fn data_layout(messages: &[Message]) -> Result<DataLayout, Fault> {
    if messages.iter().any(|message| message.kind == header::EXTERNAL) {
        return Err(unsupported("external storage (values in other files)"));
    }
    let what = "a data set's layout";
    let body = header::find(messages, header::LAYOUT)?;
    let mut cursor = Cursor::new(body.unwrap_or_default(), what);
    let version = cursor.u8()?;
    if matches!(version, 1 | 2) {
        return data_layout_before_3(cursor);
    }
    let class = cursor.u8()?;
    match (version, class) {
        (3..=5, 0) => {
            let len = cursor.u16()?;
            Ok(DataLayout::Compact(cursor.take(len.into())?.to_vec()))
        }
        (3..=5, 1) => Ok(DataLayout::Contiguous { at: cursor.u64()?, len: cursor.u64()? }),
        (3, 2) => {
            let rank = cursor.u8()?;
            let at = cursor.u64()?;
            // The last size is that of a value.
            let shape = (1..rank).map(|_| cursor.uint(4)).collect::<Result<_, _>>()?;
            Ok(DataLayout::Chunked { shape, index: ChunkIndex::BTree, at, unfiltered_edges: false })
        }
        (4 | 5, 2) => {
            let (flags, rank, width) = (cursor.u8()?, cursor.u8()?, cursor.u8()?);
            if !(1..=8).contains(&width) {
                return Err(damaged(what, "sizes of chunks have no or too many bytes"));
            }
            let shape = (1..rank).map(|_| cursor.uint(width.into())).collect::<Result<_, _>>()?;
            cursor.skip(width.into())?;
            let index = match cursor.u8()? {
                1 if flags & 2 != 0 => ChunkIndex::Single(Some((cursor.u64()?, cursor.u32()?))),
                1 => ChunkIndex::Single(None),
                2 => ChunkIndex::Implicit,
                3 => {
                    cursor.skip(1)?;
                    ChunkIndex::FixedArray
                }
                4 => {
                    cursor.skip(5)?;
                    ChunkIndex::ExtensibleArray
                }
                5 => {
                    return Err(unsupported(
                        "a chunk index for data sets that can grow in both dimensions (B-tree version 2)",
                    ));
                }
                other => return Err(unsupported(format!("chunk index {other}"))),
            };
            Ok(DataLayout::Chunked {
                shape,
                index,
                at: cursor.u64()?,
                unfiltered_edges: flags & 1 != 0,
            })
        }
        (4 | 5, 3) => Err(unsupported("a virtual data set")),
        _ => Err(unsupported(format!("version {version}, class {class} of data set layouts"))),
    }
}

/// Versions 1 and 2, which HDF5 wrote before 1.6.3.
fn data_layout_before_3(mut cursor: Cursor<'_>) -> Result<DataLayout, Fault> {
    let (rank, class) = (cursor.u8()?, cursor.u8()?);
    cursor.skip(5)?;
    let at = if class == 0 { UNDEFINED } else { cursor.u64()? };
    let mut shape = (0..rank).map(|_| cursor.uint(4)).collect::<Result<Vec<_>, _>>()?;
    match class {
        0 => {
            let len = cursor.u32()?;
            Ok(DataLayout::Compact(cursor.take(len as usize)?.to_vec()))
        }
        // The length is not stored: it follows from the shape.
        1 => Ok(DataLayout::Contiguous { at, len: u64::MAX }),
        2 => {
            // The last size is that of a value.
            shape.pop();
            Ok(DataLayout::Chunked { shape, index: ChunkIndex::BTree, at, unfiltered_edges: false })
        }
        _ => Err(unsupported(format!("class {class} of the older data set layouts"))),
    }
}

/// Parses the filters, in the order in which they were applied.
pub(super) fn filters(messages: &[Message]) -> Result<Vec<Filter>, Fault> {
    let Some(body) = header::find(messages, header::FILTERS)? else { return Ok(Vec::new()) };
    let mut cursor = Cursor::new(body, "a data set's filters");
    let (version, count) = (cursor.u8()?, cursor.u8()?);
    match version {
        1 => cursor.skip(6)?,
        2 => {}
        _ => return Err(unsupported(format!("version {version} of filter lists"))),
    }
    let mut filters = Vec::new();
    for _ in 0..count {
        let id = cursor.u16()?;
        // In version 2, filters that HDF5 defines have no name.
        let name = if version == 1 || id >= 256 { cursor.u16()? } else { 0 };
        cursor.skip(2)?;
        let values = cursor.u16()?;
        cursor.skip(name.into())?;
        let values = (0..values).map(|_| cursor.u32()).collect::<Result<Vec<_>, _>>()?;
        // Version 1 pads to multiples of 8 bytes; names are padded already.
        if version == 1 && values.len() % 2 == 1 {
            cursor.skip(4)?;
        }
        filters.push(match (id, values.first()) {
            (1, _) => Filter::Deflate,
            (2, Some(&width)) => Filter::Shuffle(width as usize),
            (3, _) => Filter::Fletcher32,
            _ => {
                let names = [
                    (4, "szip"),
                    (5, "n-bit"),
                    (6, "scale-offset"),
                    (32000, "LZF"),
                    (32001, "Blosc"),
                ];
                let name = names.iter().find(|known| known.0 == id).map_or("", |known| known.1);
                return Err(unsupported(format!("the compression filter {id} {name}").trim_end()));
            }
        });
    }
    Ok(filters)
}
