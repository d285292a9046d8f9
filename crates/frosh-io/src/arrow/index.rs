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
#[derive(Clone)]
pub(super) struct ColumnChunk {
    pub(super) rows: u64,
    /// Number of values in all rows.
    pub(super) items: u64,
    /// The validity bitmaps of the rows: of the lists, and of the structures around them.
    pub(super) nulls: Vec<Span>,
    /// The offsets of the rows.
    pub(super) offsets: Option<Span>,
    /// The validity bitmap of the values.
    pub(super) item_nulls: Option<Span>,
    /// The values.
    pub(super) values: Span,
    pub(super) codec: Codec,
}

/// The part of a table's columns that is in one record batch.
pub(super) struct TableChunk {
    pub(super) rows: u64,
    pub(super) columns: Vec<NumberChunk>,
    pub(super) codec: Codec,
}

/// The part of a column of numbers that is in one record batch.
#[derive(Clone, Copy)]
pub(super) struct NumberChunk {
    /// The validity bitmap.
    pub(super) nulls: Option<Span>,
    pub(super) values: Span,
}

/// The part of a column of ids that is in one record batch.
pub(super) struct IdChunk {
    pub(super) rows: u64,
    /// The validity bitmaps of the column and of the structures around it.
    pub(super) nulls: Vec<Span>,
    /// The buffers after the validity bitmap: values; offsets and text; or views and what they point to.
    pub(super) buffers: Vec<Span>,
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
        self.each_batch(|batch| self.chunk(column, batch))
    }

    /// The columns of numbers with these numbers in each of the record batches.
    pub(super) fn table_chunks(&self, indices: &[usize]) -> Result<Vec<TableChunk>, Fault> {
        self.each_batch(|batch| {
            let mut views = batch.views();
            let mut before = Counts::default();
            let mut columns = Vec::new();
            let mut next = indices.iter().peekable();
            for (i, field) in self.schema.fields().iter().enumerate() {
                if next.next_if_eq(&&i).is_some() {
                    let (rows, has_nulls) = batch.node(before.nodes)?;
                    batch.check_rows(rows)?;
                    let first = before.buffers;
                    let nulls = if has_nulls { Some(batch.span(first)?) } else { None };
                    columns.push(NumberChunk { nulls, values: batch.span(first + 1)? });
                }
                before.add(field.data_type(), batch.version, &mut views).ok_or_else(too_few)?;
            }
            Ok(TableChunk { rows: batch.rows()?, columns, codec: batch.codec()? })
        })
    }

    fn each_batch<T>(&self, get: impl Fn(Batch<'_>) -> Result<T, Fault>) -> Result<Vec<T>, Fault> {
        let mut file = &self.file;
        self.batches
            .iter()
            .map(|span| {
                let content = bytes(&mut file, span.metadata, span.metadata_len)?;
                let message = parse(&content)?;
                let batch = message
                    .header_as_record_batch()
                    .ok_or_else(|| damaged("a record batch is missing"))?;
                get(Batch { batch, message: span, version: message.version() })
            })
            .collect()
    }

    /// A column of ids in each of the record batches, and its type. `root` is the number of its outermost column, and
    /// `names` are the names on the path to it.
    pub(super) fn id_chunks(
        &self,
        root: usize,
        names: &[String],
    ) -> Result<(DataType, Vec<IdChunk>), Fault> {
        let missing = || damaged("the column is not in the schema");
        let mut path = vec![root];
        let mut data_type = self.schema.fields().get(root).ok_or_else(missing)?.data_type();
        for name in &names[1..] {
            let DataType::Struct(inner) = data_type else { return Err(missing()) };
            let (index, field) = inner.find(name).ok_or_else(missing)?;
            path.push(index);
            data_type = field.data_type();
        }
        let chunks = self.each_batch(|batch| {
            let mut views = batch.views();
            let (before, nulls) = self.locate(&path, &batch, &mut views)?;
            let first = before.buffers + 1;
            let count = match data_type {
                DataType::Utf8 | DataType::LargeUtf8 => 2,
                DataType::Utf8View => {
                    let more = views.next().and_then(|more| usize::try_from(more).ok());
                    more.and_then(|more| more.checked_add(1)).ok_or_else(too_few)?
                }
                _ => 1,
            };
            let end = first.checked_add(count).ok_or_else(too_few)?;
            let buffers = (first..end).map(|i| batch.span(i)).collect::<Result<_, _>>()?;
            Ok(IdChunk { rows: batch.rows()?, nulls, buffers, codec: batch.codec()? })
        })?;
        Ok((data_type.clone(), chunks))
    }

    /// The nodes and buffers before a column, which is given by its number and those of the fields on the path to it, and
    /// the validity bitmaps of it and of the structures around it. Takes the views of the columns before it.
    fn locate(
        &self,
        path: &[usize],
        batch: &Batch<'_>,
        views: &mut impl Iterator<Item = i64>,
    ) -> Result<(Counts, Vec<Span>), Fault> {
        // Nodes (length and null count) and buffers are in the order of the columns; those of a structure come
        // before those of its fields.
        let mut before = Counts::default();
        let mut nulls = Vec::new();
        let mut fields = self.schema.fields();
        for (depth, &index) in path.iter().enumerate() {
            for field in &fields[..index] {
                before.add(field.data_type(), batch.version, views).ok_or_else(too_few)?;
            }
            let (rows, has_nulls) = batch.node(before.nodes)?;
            batch.check_rows(rows)?;
            if has_nulls {
                nulls.push(batch.span(before.buffers)?);
            }
            if depth + 1 < path.len() {
                let DataType::Struct(inner) = fields[index].data_type() else {
                    return Err(damaged("the column is not in the schema"));
                };
                before.nodes += 1;
                before.buffers += 1;
                fields = inner;
            }
        }
        Ok((before, nulls))
    }

    fn chunk(&self, column: &Column, batch: Batch<'_>) -> Result<ColumnChunk, Fault> {
        let (before, nulls) = self.locate(&column.path, &batch, &mut batch.views())?;
        let (items, has_item_nulls) = batch.node(before.nodes + 1)?;
        let first = before.buffers;
        let fixed = matches!(column.list, DataType::FixedSizeList(..));
        let next = first + if fixed { 1 } else { 2 };
        let chunk = ColumnChunk {
            rows: batch.rows()?,
            items,
            nulls,
            offsets: if fixed { None } else { Some(batch.span(first + 1)?) },
            item_nulls: if has_item_nulls { Some(batch.span(next)?) } else { None },
            values: batch.span(next + 1)?,
            codec: batch.codec()?,
        };
        if items > u64::MAX >> 16 {
            return Err(damaged(TOO_MANY));
        }
        Ok(chunk)
    }
}

const TOO_MANY: &str = "a record batch claims too many rows";

fn too_few() -> Fault {
    damaged("a record batch has fewer buffers than its columns need")
}

/// The metadata of a record batch.
struct Batch<'a> {
    batch: RecordBatch<'a>,
    message: &'a MessageSpan,
    version: MetadataVersion,
}

impl<'a> Batch<'a> {
    fn codec(&self) -> Result<Codec, Fault> {
        Ok(match self.batch.compression().map(|c| c.codec()) {
            None => Codec::None,
            Some(CompressionType::LZ4_FRAME) => Codec::Lz4,
            Some(CompressionType::ZSTD) => Codec::Zstd,
            Some(other) => return Err(damaged(format_args!("unknown compression {}", other.0))),
        })
    }

    /// The numbers of data buffers of the view columns.
    fn views(&self) -> impl Iterator<Item = i64> + use<'a> {
        self.batch.variadicBufferCounts().into_iter().flatten()
    }

    fn rows(&self) -> Result<u64, Fault> {
        let rows = u64::try_from(self.batch.length()).map_err(damaged)?;
        if rows > u64::MAX >> 16 { Err(damaged(TOO_MANY)) } else { Ok(rows) }
    }

    fn check_rows(&self, rows: u64) -> Result<(), Fault> {
        if self.rows()? != rows {
            return Err(damaged("a column is not as long as its record batch"));
        }
        Ok(())
    }

    /// Length of node `i`, and whether it has nulls.
    fn node(&self, i: usize) -> Result<(u64, bool), Fault> {
        let nodes = self.batch.nodes().ok_or_else(too_few)?;
        let node = (i < nodes.len()).then(|| nodes.get(i)).ok_or_else(too_few)?;
        let length = u64::try_from(node.length()).map_err(damaged)?;
        Ok((length, node.null_count() != 0))
    }

    /// Where buffer `i` is in the file.
    fn span(&self, i: usize) -> Result<Span, Fault> {
        let buffers = self.batch.buffers().ok_or_else(too_few)?;
        let buffer = (i < buffers.len()).then(|| buffers.get(i)).ok_or_else(too_few)?;
        let offset = u64::try_from(buffer.offset()).map_err(damaged)?;
        let len = u64::try_from(buffer.length()).map_err(damaged)?;
        match offset.checked_add(len) {
            Some(end) if end <= self.message.body_len => {
                Ok(Span { pos: self.message.body + offset, len })
            }
            _ => Err(damaged("a buffer reaches beyond its record batch")),
        }
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
