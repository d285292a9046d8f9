//! The metadata of an Arrow file: its schema, and where its record batches and the buffers of a column are.

use crate::columns::{Column, damaged};
use crate::error::Fault;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::{
    CompressionType, Endianness, Message, MessageHeader, MetadataVersion, RecordBatch,
    root_as_footer, root_as_message,
};
use arrow_schema::{DataType, Schema, UnionMode};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

const MAGIC: &[u8; 6] = b"ARROW1";
const CONTINUED: [u8; 4] = [0xFF; 4];
/// The longest metadata that is read. Real files have some dozens of bytes for each column or record batch.
const LONGEST: u64 = 1 << 28;

/// The metadata of a file.
pub(super) struct Index {
    pub(super) file: File,
    pub(super) schema: Schema,
    /// The record batches.
    batches: Vec<MessageSpan>,
    length: u64,
}

/// Where a message is in the file.
struct MessageSpan {
    /// Position of its metadata, behind the length.
    metadata: u64,
    metadata_len: usize,
    /// Position of its body.
    body: u64,
    body_len: u64,
}

/// The part of a column that is in one record batch.
#[derive(Clone, Copy)]
pub(super) struct ColumnChunk {
    pub(super) rows: u64,
    /// Number of values in all rows.
    pub(super) items: u64,
    /// The validity bitmap of the rows.
    pub(super) nulls: Option<Span>,
    /// The offsets of the rows.
    pub(super) offsets: Option<Span>,
    /// The validity bitmap of the values.
    pub(super) item_nulls: Option<Span>,
    /// The values.
    pub(super) values: Span,
    pub(super) codec: Codec,
}

/// A range of bytes in the file.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) pos: u64,
    pub(super) len: u64,
}

/// How the buffers are compressed.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Codec {
    None,
    Lz4,
    Zstd,
}

impl Index {
    pub(super) fn new(mut file: File) -> Result<Self, Fault> {
        let length = file.metadata()?.len();
        let mut start = [0; 8];
        let got = length.min(8) as usize;
        file.read_exact(&mut start[..got])?;
        if start.starts_with(MAGIC) {
            Self::from_file(file, length)
        } else if start.starts_with(b"FEA1") {
            Err("is a Feather file of version 1, which is not supported; rewrite it, for example with \
                 pyarrow.feather.write_feather, as version 2"
                .into())
        } else if start.starts_with(&CONTINUED) {
            Self::from_stream(file, length)
        } else {
            Err("is not an Arrow file: it begins neither with ARROW1 nor with a message".into())
        }
    }

    /// A file: the footer at its end lists the record batches.
    fn from_file(mut file: File, length: u64) -> Result<Self, Fault> {
        const CUT: &str = "is cut short or damaged: an Arrow file ends with ARROW1";
        let mut tail = [0; 10];
        let tail_at = length.checked_sub(10 + 8).ok_or(CUT)? + 8;
        file.seek(SeekFrom::Start(tail_at))?;
        file.read_exact(&mut tail)?;
        if !tail.ends_with(MAGIC) {
            return Err(CUT.into());
        }
        let footer_len = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
        let footer_at = tail_at
            .checked_sub(footer_len)
            .ok_or_else(|| damaged("its footer is longer than the file"))?;
        check_metadata_len(footer_len)?;
        let footer = bytes(&mut file, footer_at, footer_len as usize)?;
        let footer = root_as_footer(&footer).map_err(damaged)?;
        let schema = footer.schema().ok_or_else(|| damaged("it has no schema"))?;
        let schema = read_schema(schema)?;
        let mut index = Self { file, schema, batches: Vec::new(), length };
        for block in footer.recordBatches().iter().flatten() {
            let pos = u64::try_from(block.offset()).map_err(damaged)?;
            let (span, kind) =
                index.message(pos)?.ok_or_else(|| damaged("a record batch is missing"))?;
            if kind != MessageHeader::RecordBatch {
                return Err(damaged("its footer lists a message that is not a record batch"));
            }
            index.batches.push(span);
        }
        Ok(index)
    }

    /// A stream: one message after the other.
    fn from_stream(file: File, length: u64) -> Result<Self, Fault> {
        let mut index = Self { file, schema: Schema::empty(), batches: Vec::new(), length };
        let (span, kind) = index.message(0)?.ok_or("is an Arrow stream without a schema")?;
        if kind != MessageHeader::Schema {
            return Err(damaged("an Arrow stream begins with a schema"));
        }
        let metadata = bytes(&mut index.file, span.metadata, span.metadata_len)?;
        let schema = root_as_message(&metadata).map_err(damaged)?.header_as_schema();
        index.schema = read_schema(schema.ok_or_else(|| damaged("it has no schema"))?)?;
        let mut pos = span.body + span.body_len;
        // This ends: each message takes at least the bytes of its length.
        while let Some((span, kind)) = index.message(pos)? {
            pos = span.body + span.body_len;
            match kind {
                MessageHeader::RecordBatch => index.batches.push(span),
                MessageHeader::DictionaryBatch => {} // Lists of numbers have no dictionary.
                _ => return Err(damaged("a message is neither a record batch nor a dictionary")),
            }
        }
        Ok(index)
    }

    /// The message at `pos` and its kind; `None` at the end. Checks that it is within the file.
    fn message(&mut self, pos: u64) -> Result<Option<(MessageSpan, MessageHeader)>, Fault> {
        const CUT: &str = "is cut short or damaged: a message reaches beyond its end";
        if pos == self.length {
            return Ok(None);
        }
        let left = self.length.checked_sub(pos).ok_or(CUT)?;
        let head = bytes(&mut self.file, pos, left.min(8) as usize)?;
        // Older files have no continuation marker before the length.
        let (before, len) = match head.strip_prefix(&CONTINUED) {
            Some(len) => (8, len),
            None => (4, &head[..]),
        };
        let len: [u8; 4] = len.first_chunk().copied().ok_or(CUT)?;
        let metadata_len = u64::from(u32::from_le_bytes(len));
        if metadata_len == 0 {
            return Ok(None);
        }
        let metadata = pos + before;
        if metadata_len > self.length - metadata {
            return Err(CUT.into());
        }
        check_metadata_len(metadata_len)?;
        let content = bytes(&mut self.file, metadata, metadata_len as usize)?;
        let message = parse(&content)?;
        let body = metadata + metadata_len;
        let body_len = u64::try_from(message.bodyLength()).map_err(damaged)?;
        if body_len > self.length - body {
            return Err(CUT.into());
        }
        let metadata_len = metadata_len as usize;
        let span = MessageSpan { metadata, metadata_len, body, body_len };
        Ok(Some((span, message.header_type())))
    }

    /// The column in each of the record batches.
    pub(super) fn chunks(&self, column: &Column) -> Result<Vec<ColumnChunk>, Fault> {
        let mut file = &self.file;
        self.batches
            .iter()
            .map(|span| {
                let content = bytes(&mut file, span.metadata, span.metadata_len)?;
                let message = parse(&content)?;
                let batch = message
                    .header_as_record_batch()
                    .ok_or_else(|| damaged("a record batch is missing"))?;
                self.chunk(column, batch, span, message.version())
            })
            .collect()
    }

    fn chunk(
        &self,
        column: &Column,
        batch: RecordBatch<'_>,
        message: &MessageSpan,
        version: MetadataVersion,
    ) -> Result<ColumnChunk, Fault> {
        let too_few = || damaged("a record batch has fewer buffers than its columns need");
        let codec = match batch.compression().map(|c| c.codec()) {
            None => Codec::None,
            Some(CompressionType::LZ4_FRAME) => Codec::Lz4,
            Some(CompressionType::ZSTD) => Codec::Zstd,
            Some(other) => return Err(damaged(format_args!("unknown compression {}", other.0))),
        };
        // Nodes (length and null count) and buffers are in the order of the columns.
        let mut views = batch.variadicBufferCounts().into_iter().flatten();
        let mut before = Counts::default();
        for field in &self.schema.fields()[..column.index] {
            before.add(field.data_type(), version, &mut views).ok_or_else(too_few)?;
        }
        let nodes = batch.nodes().ok_or_else(too_few)?;
        let buffers = batch.buffers().ok_or_else(too_few)?;
        let node = |i| {
            let node = (i < nodes.len()).then(|| nodes.get(i)).ok_or_else(too_few)?;
            let length = u64::try_from(node.length()).map_err(damaged)?;
            Ok::<_, Fault>((length, node.null_count() != 0))
        };
        let span = |i| {
            let buffer = (i < buffers.len()).then(|| buffers.get(i)).ok_or_else(too_few)?;
            let offset = u64::try_from(buffer.offset()).map_err(damaged)?;
            let len = u64::try_from(buffer.length()).map_err(damaged)?;
            match offset.checked_add(len) {
                Some(end) if end <= message.body_len => {
                    Ok(Span { pos: message.body + offset, len })
                }
                _ => Err(damaged("a buffer reaches beyond its record batch")),
            }
        };
        let (rows, has_nulls) = node(before.nodes)?;
        let (items, has_item_nulls) = node(before.nodes + 1)?;
        if u64::try_from(batch.length()).ok() != Some(rows) {
            return Err(damaged("a column is not as long as its record batch"));
        }
        let first = before.buffers;
        let fixed = matches!(column.list, DataType::FixedSizeList(..));
        let next = first + if fixed { 1 } else { 2 };
        let chunk = ColumnChunk {
            rows,
            items,
            nulls: if has_nulls { Some(span(first)?) } else { None },
            offsets: if fixed { None } else { Some(span(first + 1)?) },
            item_nulls: if has_item_nulls { Some(span(next)?) } else { None },
            values: span(next + 1)?,
            codec,
        };
        if rows > u64::MAX >> 16 || items > u64::MAX >> 16 {
            return Err(damaged("a record batch claims too many rows"));
        }
        Ok(chunk)
    }
}

/// Refuses very long metadata. A sparse file may be long without taking space on the disk, so that comparing
/// with its size is not enough.
fn check_metadata_len(length: u64) -> Result<(), Fault> {
    if length > LONGEST {
        return Err(
            format!("has {length} bytes of metadata, and at most {LONGEST} are read").into()
        );
    }
    Ok(())
}

/// Reads `len` bytes at `pos`. Callers have checked that they are within the file.
fn bytes(file: &mut (impl Read + Seek), pos: u64, len: usize) -> Result<Vec<u8>, Fault> {
    let mut bytes = vec![0; len];
    file.seek(SeekFrom::Start(pos))?;
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn parse(metadata: &[u8]) -> Result<Message<'_>, Fault> {
    root_as_message(metadata).map_err(damaged)
}

fn read_schema(schema: arrow_ipc::Schema<'_>) -> Result<Schema, Fault> {
    if schema.endianness() != Endianness::Little {
        return Err(
            "is big-endian, which is not supported; rewrite it on the machine it is from".into()
        );
    }
    try_fb_to_schema(schema).map_err(damaged)
}

/// Number of nodes and buffers that some columns have.
#[derive(Default)]
struct Counts {
    nodes: usize,
    buffers: usize,
}

impl Counts {
    /// Adds a column of this type. `views` are the numbers of data buffers of the view columns.
    fn add(
        &mut self,
        data_type: &DataType,
        version: MetadataVersion,
        views: &mut impl Iterator<Item = i64>,
    ) -> Option<()> {
        self.nodes += 1;
        self.buffers += match data_type {
            DataType::Null | DataType::RunEndEncoded(..) => 0,
            DataType::Struct(_) | DataType::FixedSizeList(..) => 1,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => 3,
            DataType::ListView(_) | DataType::LargeListView(_) => 3,
            DataType::Utf8View | DataType::BinaryView => {
                usize::try_from(views.next()?).ok()?.checked_add(2)?
            }
            DataType::Union(_, mode) => {
                // Unions had a validity bitmap up to version 4.
                usize::from(*mode == UnionMode::Dense)
                    + if version < MetadataVersion::V5 { 2 } else { 1 }
            }
            _ => 2,
        };
        match data_type {
            DataType::List(item)
            | DataType::LargeList(item)
            | DataType::ListView(item)
            | DataType::LargeListView(item)
            | DataType::FixedSizeList(item, _)
            | DataType::Map(item, _) => self.add(item.data_type(), version, views)?,
            DataType::Struct(fields) => {
                for field in fields {
                    self.add(field.data_type(), version, views)?;
                }
            }
            DataType::Union(fields, _) => {
                for (_, field) in fields.iter() {
                    self.add(field.data_type(), version, views)?;
                }
            }
            DataType::RunEndEncoded(ends, values) => {
                self.add(ends.data_type(), version, views)?;
                self.add(values.data_type(), version, views)?;
            }
            _ => {}
        }
        Some(())
    }
}
