//! What the messages of a data set's header tell: its shape, its element type, where its values lie
//! and through which filters they went.

use super::bytes::{Cursor, NOWHERE, damaged, unread};
use super::header::{self, Message};
use crate::batch::Kind;
use crate::error::Fault;

/// A data set's description.
pub(super) struct Description {
    /// Extent of every dimension now.
    pub(super) shape: Vec<u64>,
    /// Extent that every dimension may grow to; all ones: any.
    pub(super) limits: Vec<u64>,
    pub(super) element: Element,
}

/// An element type.
pub(super) struct Element {
    /// Its name for messages.
    pub(super) name: String,
    /// How to read it, if it is one of the numbers that are read.
    pub(super) number: Option<Number>,
}

/// A number as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) form: Form,
    pub(super) big_endian: bool,
}

/// The stored numbers that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Read as they are.
    Same(Kind),
    /// Widened to `f32`.
    I16,
    /// Widened to `f32`.
    U16,
    /// Widened to `f64`.
    I32,
    /// Widened to `f64`.
    U32,
}

impl Form {
    /// Bytes of one stored value.
    pub(super) fn bytes(self) -> usize {
        match self {
            Form::Same(kind) => kind.bytes(),
            Form::I16 | Form::U16 => 2,
            Form::I32 | Form::U32 => 4,
        }
    }

    /// The kind it is read as.
    pub(super) fn kind(self) -> Kind {
        match self {
            Form::Same(kind) => kind,
            Form::I16 | Form::U16 => Kind::F32,
            Form::I32 | Form::U32 => Kind::F64,
        }
    }
}

/// Where the values lie.
pub(super) enum Layout {
    /// In the header itself.
    Compact(Vec<u8>),
    /// In one piece of the file.
    Contiguous { at: u64, len: u64 },
    /// In chunks of this shape, all of the same size.
    Chunked { shape: Vec<u64>, index: Index, at: u64, plain_edges: bool },
}

/// How the chunks are found.
pub(super) enum Index {
    /// A tree of the older kind.
    Tree,
    /// There is but one; with filters, its stored size and the filters left out.
    Single(Option<(u64, u32)>),
    /// One behind the other.
    Implicit,
    /// A table of fixed length.
    Fixed,
    /// A table that can grow.
    Growing,
}

/// A step that chunks went through when they were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filter {
    Deflate,
    /// Bytes of the values regrouped: all first bytes, all second bytes, ...; with the bytes per value.
    Shuffle(usize),
    /// A checksum at the end.
    Fletcher32,
}

/// Reads shape and type; `None` if these are not the messages of a data set.
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

/// The shape, and the shape that it may grow to.
fn dataspace(body: &[u8]) -> Result<(Vec<u64>, Vec<u64>), Fault> {
    let mut cursor = Cursor::new(body, "a data set's shape");
    let (version, rank, flags) = (cursor.u8()?, cursor.u8()?, cursor.u8()?);
    match version {
        1 => cursor.skip(5)?,
        2 => cursor.skip(1)?,
        _ => return Err(unread(format!("version {version} of data set shapes"))),
    }
    let mut extents = || (0..rank).map(|_| cursor.u64()).collect::<Result<Vec<_>, _>>();
    let shape = extents()?;
    let limits = if flags & 1 != 0 { extents()? } else { shape.clone() };
    Ok((shape, limits))
}

fn element(body: &[u8]) -> Result<Element, Fault> {
    let mut cursor = Cursor::new(body, "an element type");
    let (class, flags) = (cursor.u8()? & 15, cursor.uint(3)?);
    let size = cursor.u32()?;
    let big_endian = flags & 1 != 0;
    let (name, form) = match class {
        0 => {
            let signed = flags & 8 != 0;
            let (offset, bits) = (cursor.u16()?, cursor.u16()?);
            let form = match (size, signed) {
                // Numbers that fill only a part of their bytes are rare enough to be refused.
                _ if offset != 0 || u32::from(bits) != size.saturating_mul(8) => None,
                (1, true) => Some(Form::Same(Kind::I8)),
                (1, false) => Some(Form::Same(Kind::U8)),
                (2, true) => Some(Form::I16),
                (2, false) => Some(Form::U16),
                (4, true) => Some(Form::I32),
                (4, false) => Some(Form::U32),
                _ => None,
            };
            (format!("{}{bits}", if signed { 'i' } else { 'u' }), form)
        }
        1 => {
            let (offset, bits) = (cursor.u16()?, cursor.u16()?);
            let fields = (cursor.u8()?, cursor.u8()?, cursor.u8()?, cursor.u8()?, cursor.u32()?);
            // Place and size of the exponent, place and size of the mantissa, bias: as IEEE 754 has
            // them. Bit 6 of the flags marks the VAX's order of bytes.
            let form = match (size, fields) {
                _ if offset != 0 || flags & 64 != 0 => None,
                (2, (10, 5, 0, 10, 15)) => Some(Form::Same(Kind::F16)),
                (4, (23, 8, 0, 23, 127)) => Some(Form::Same(Kind::F32)),
                (8, (52, 11, 0, 52, 1023)) => Some(Form::Same(Kind::F64)),
                _ => None,
            };
            let odd = if form.is_none() && size <= 8 { " of an unusual form" } else { "" };
            (format!("f{bits}{odd}"), form)
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
    Ok(Element { name, number: form.map(|form| Number { form, big_endian }) })
}

/// Reads where the values lie.
pub(super) fn layout(messages: &[Message]) -> Result<Layout, Fault> {
    if messages.iter().any(|message| message.kind == header::EXTERNAL) {
        return Err(unread("values kept in other files"));
    }
    let what = "a data set's layout";
    let body = header::find(messages, header::LAYOUT)?;
    let mut cursor = Cursor::new(body.unwrap_or_default(), what);
    let version = cursor.u8()?;
    if matches!(version, 1 | 2) {
        return older_layout(cursor);
    }
    let class = cursor.u8()?;
    match (version, class) {
        (3..=5, 0) => {
            let len = cursor.u16()?;
            Ok(Layout::Compact(cursor.take(len.into())?.to_vec()))
        }
        (3..=5, 1) => Ok(Layout::Contiguous { at: cursor.u64()?, len: cursor.u64()? }),
        (3, 2) => {
            let rank = cursor.u8()?;
            let at = cursor.u64()?;
            // The last extent is the size of a value.
            let shape = (1..rank).map(|_| cursor.uint(4)).collect::<Result<_, _>>()?;
            Ok(Layout::Chunked { shape, index: Index::Tree, at, plain_edges: false })
        }
        (4 | 5, 2) => {
            let (flags, rank, width) = (cursor.u8()?, cursor.u8()?, cursor.u8()?);
            if !(1..=8).contains(&width) {
                return Err(damaged(what, "extents of chunks have no or too many bytes"));
            }
            let shape = (1..rank).map(|_| cursor.uint(width.into())).collect::<Result<_, _>>()?;
            cursor.skip(width.into())?;
            let index = match cursor.u8()? {
                1 if flags & 2 != 0 => Index::Single(Some((cursor.u64()?, cursor.u32()?))),
                1 => Index::Single(None),
                2 => Index::Implicit,
                3 => {
                    cursor.skip(1)?;
                    Index::Fixed
                }
                4 => {
                    cursor.skip(5)?;
                    Index::Growing
                }
                5 => return Err(unread("chunks that can grow both ways in the newer form")),
                other => return Err(unread(format!("chunk index {other}"))),
            };
            Ok(Layout::Chunked { shape, index, at: cursor.u64()?, plain_edges: flags & 1 != 0 })
        }
        (4 | 5, 3) => Err(unread("a virtual data set, put together from others")),
        _ => Err(unread(format!("version {version}, class {class} of data set layouts"))),
    }
}

/// Versions 1 and 2, which HDF5 wrote before 1.6.3.
fn older_layout(mut cursor: Cursor<'_>) -> Result<Layout, Fault> {
    let (extents, class) = (cursor.u8()?, cursor.u8()?);
    cursor.skip(5)?;
    let at = if class == 0 { NOWHERE } else { cursor.u64()? };
    let mut shape = (0..extents).map(|_| cursor.uint(4)).collect::<Result<Vec<_>, _>>()?;
    match class {
        0 => {
            let len = cursor.u32()?;
            Ok(Layout::Compact(cursor.take(len as usize)?.to_vec()))
        }
        // How long it is, only the shape tells.
        1 => Ok(Layout::Contiguous { at, len: u64::MAX }),
        2 => {
            // The last extent is the size of a value.
            shape.pop();
            Ok(Layout::Chunked { shape, index: Index::Tree, at, plain_edges: false })
        }
        _ => Err(unread(format!("class {class} of the older data set layouts"))),
    }
}

/// Reads the filters, in the order they were applied.
pub(super) fn filters(messages: &[Message]) -> Result<Vec<Filter>, Fault> {
    let Some(body) = header::find(messages, header::FILTERS)? else { return Ok(Vec::new()) };
    let mut cursor = Cursor::new(body, "a data set's filters");
    let (version, count) = (cursor.u8()?, cursor.u8()?);
    match version {
        1 => cursor.skip(6)?,
        2 => {}
        _ => return Err(unread(format!("version {version} of filter lists"))),
    }
    let mut filters = Vec::new();
    for _ in 0..count {
        let id = cursor.u16()?;
        // In version 2, filters that everyone knows have no name.
        let name = if version == 1 || id >= 256 { cursor.u16()? } else { 0 };
        cursor.skip(2)?;
        let values = cursor.u16()?;
        cursor.skip(name.into())?;
        let values = (0..values).map(|_| cursor.u32()).collect::<Result<Vec<_>, _>>()?;
        // Version 1 keeps to multiples of 8 bytes; its names have that length already.
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
                return Err(unread(format!("the compression filter {id} {name}").trim_end()));
            }
        });
    }
    Ok(filters)
}
