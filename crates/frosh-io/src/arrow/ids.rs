//! Ids in a column of an Arrow file or stream: integers or text.
//!
//! Text is stored as offsets and bytes (`Utf8`, `LargeUtf8`) or as views (`Utf8View`), which have short texts in
//! themselves and refer to one of several buffers for others. Offsets and bytes are read in order. Buffers of views are
//! read where the views point; if they are compressed, they are in memory while their record batch is read, and larger
//! ones than 256 MiB are refused.

use super::column_reader::{Bitmap, BufferReader, BufferSource, FileRange, offset};
use super::index::{Codec, IdChunk, Index, Span};
use crate::columns::{choose_ids, damaged, guard};
use crate::error::Fault;
use crate::ids::{IdSink, IdSource, IdType, MAX_TEXT, Raw};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

/// Rows that are read in one step.
const STEP: usize = 1 << 10;
/// Bytes of text that are read in one step, unless a single text is longer.
const STEP_BYTES: u64 = 1 << 20;
/// Bytes around a text that views point to are read with it.
const WINDOW: usize = 1 << 18;
/// Most bytes of compressed buffers of views in memory.
const MOST_LOADED: u64 = 1 << 28;

/// Opens the column of this name, or the only one that can be ids.
pub(crate) fn open_ids(path: &Path, column: Option<&str>) -> Result<Box<dyn IdSource>, Fault> {
    guard(|| {
        let index = Index::new(File::open(path)?)?;
        let fits = |data_type: &DataType| match data_type {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
            other => other.is_integer(),
        };
        let (root, names) = choose_ids(&index.schema, column, fits)?;
        let (data_type, chunks) = index.id_chunks(root, &names)?;
        let file = Arc::new(index.file);
        let (chunk, at) = (0, 0);
        Ok(Box::new(ArrowIds { file, data_type, chunks, chunk, start: 0, at, reader: None })
            as Box<dyn IdSource>)
    })
}

/// Reads the ids of all record batches.
struct ArrowIds {
    file: Arc<File>,
    data_type: DataType,
    chunks: Vec<IdChunk>,
    /// Number of the current chunk, of its first row, and of the next row in it.
    chunk: usize,
    start: u64,
    at: u64,
    reader: Option<ChunkReader>,
}

impl IdSource for ArrowIds {
    fn id_type(&self) -> Option<IdType> {
        Some(if self.data_type.is_integer() { IdType::Number } else { IdType::Text })
    }

    fn read(&mut self, row: u64, most: usize, sink: &mut IdSink) -> Result<usize, Fault> {
        let mut done = 0;
        guard(|| {
            while done < most
                && let Some(chunk) = self.chunks.get(self.chunk)
            {
                let wanted = row + done as u64 - self.start;
                if wanted >= chunk.rows {
                    self.start += chunk.rows;
                    (self.chunk, self.at, self.reader) = (self.chunk + 1, 0, None);
                    continue;
                }
                // Taken out, so that a reader that failed is not used again.
                let mut reader = match self.reader.take() {
                    Some(reader) => reader,
                    None => ChunkReader::new(&self.file, chunk, &self.data_type, self.at)?,
                };
                if wanted > self.at {
                    reader.skip(wanted - self.at)?;
                    self.at = wanted;
                }
                let count = (chunk.rows - wanted).min((most - done).min(STEP) as u64) as usize;
                reader.read(count, row + done as u64, sink)?;
                self.reader = Some(reader);
                self.at += count as u64;
                done += count;
            }
            Ok(done)
        })
    }
}

/// Reads the ids of a record batch.
struct ChunkReader {
    nulls: Vec<Bitmap>,
    values: Values,
}

enum Values {
    Numbers {
        values: BufferReader,
        width: usize,
        signed: bool,
    },
    /// `last` is where the next text begins, and `at` the next byte of `text`.
    Offsets {
        offsets: BufferReader,
        wide: bool,
        last: u64,
        text: BufferReader,
        at: u64,
    },
    Views {
        views: BufferReader,
        buffers: Vec<ViewBuffer>,
    },
}

impl ChunkReader {
    /// Reads from row `from` on.
    fn new(
        file: &Arc<File>,
        chunk: &IdChunk,
        data_type: &DataType,
        from: u64,
    ) -> Result<Self, Fault> {
        let open = |span: Span, need| BufferReader::new(file, span, chunk.codec, need);
        let buffer = |i: usize| {
            chunk.buffers.get(i).copied().ok_or_else(|| damaged("a column lacks a buffer"))
        };
        let nulls = chunk
            .nulls
            .iter()
            .map(|span| Ok(Bitmap { bytes: open(*span, chunk.rows.div_ceil(8))?, at: 0, last: 0 }));
        let nulls = nulls.collect::<Result<_, Fault>>()?;
        let values = match data_type {
            DataType::Utf8 | DataType::LargeUtf8 => {
                let wide = *data_type == DataType::LargeUtf8;
                let width = if wide { 8 } else { 4 };
                let mut offsets = open(buffer(0)?, (chunk.rows + 1) * width)?;
                let last = offset(&offsets.read(width as usize)?, wide)?;
                Values::Offsets { offsets, wide, last, text: open(buffer(1)?, 0)?, at: 0 }
            }
            DataType::Utf8View => {
                let views = open(buffer(0)?, chunk.rows.saturating_mul(16))?;
                let buffers = chunk.buffers[1..].iter();
                let view = |span: &Span| ViewBuffer::new(file.clone(), *span, chunk.codec);
                Values::Views { views, buffers: buffers.map(view).collect() }
            }
            other => {
                let width = other.primitive_width().unwrap_or(1);
                let values = open(buffer(0)?, chunk.rows.saturating_mul(width as u64))?;
                Values::Numbers { values, width, signed: other.is_signed_integer() }
            }
        };
        let mut reader = Self { nulls, values };
        reader.skip(from)?;
        Ok(reader)
    }

    fn skip(&mut self, rows: u64) -> Result<(), Fault> {
        if rows == 0 {
            return Ok(());
        }
        for nulls in &mut self.nulls {
            nulls.skip(rows)?;
        }
        match &mut self.values {
            Values::Numbers { values, width, .. } => values.skip(rows * *width as u64),
            Values::Views { views, .. } => views.skip(rows * 16),
            Values::Offsets { offsets, wide, last, .. } => {
                let width = if *wide { 8 } else { 4 };
                offsets.skip((rows - 1) * width)?;
                *last = offset(&offsets.read(width as usize)?, *wide)?;
                Ok(())
            }
        }
    }

    /// Gives `count` ids to the sink; the first is that of row `row` of the file.
    fn read(&mut self, count: usize, row: u64, sink: &mut IdSink) -> Result<(), Fault> {
        let mut nulls = None;
        for bitmap in &mut self.nulls {
            nulls = NullBuffer::union(nulls.as_ref(), Some(&bitmap.read(count)?));
        }
        let is_null = |i: usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(i));
        let mut give = |i: usize, raw: Raw<'_>| {
            let raw = if is_null(i) { Raw::Null } else { raw };
            sink.push(raw).map_err(|reason| Fault::row(row + i as u64, reason))
        };
        let long = |length: u64| format!("a text of {length} bytes (more than {MAX_TEXT})");
        match &mut self.values {
            Values::Numbers { values, width, signed } => {
                let bytes = values.read(count * *width)?;
                for (i, value) in bytes.chunks_exact(*width).enumerate() {
                    let mut wide = [0; 8];
                    wide[..*width].copy_from_slice(value);
                    let value = u64::from_le_bytes(wide);
                    let spare = 64 - 8 * *width as u32;
                    // Shifting left and arithmetically right extends the sign.
                    give(
                        i,
                        Raw::Number(match signed {
                            true => ((value << spare).cast_signed() >> spare).into(),
                            false => value.into(),
                        }),
                    )?;
                }
            }
            Values::Offsets { offsets, wide, last, text, at } => {
                let width = if *wide { 8 } else { 4 };
                let bytes = offsets.read(count * width)?;
                let ends = bytes.chunks_exact(width).map(|bytes| offset(bytes, *wide));
                let ends = ends.collect::<Result<Vec<u64>, Fault>>()?;
                let mut i = 0;
                while i < count {
                    // The rows up to `to`, whose text is read at once.
                    let (first, mut to, mut end) = (*last, i, *last);
                    while to < count && (to == i || ends[to].saturating_sub(first) <= STEP_BYTES) {
                        if ends[to] < end {
                            return Err(damaged("a text ends before it begins"));
                        }
                        end = ends[to];
                        to += 1;
                    }
                    let gap = first.checked_sub(*at).ok_or_else(|| damaged("texts overlap"))?;
                    text.skip(gap)?;
                    *at = end;
                    if to == i + 1 && end - first > MAX_TEXT as u64 {
                        text.skip(end - first)?;
                        give(i, Raw::Other(&long(end - first)))?;
                    } else {
                        let all = text.read((end - first) as usize)?;
                        let mut from = 0;
                        for (j, end) in ends[i..to].iter().enumerate() {
                            let until = (end - first) as usize;
                            give(i + j, Raw::Text(&all[from..until]))?;
                            from = until;
                        }
                    }
                    (*last, i) = (end, to);
                }
            }
            Values::Views { views, buffers } => {
                let mut loaded = buffers.iter().map(ViewBuffer::loaded).sum();
                let bytes = views.read(count * 16)?;
                for (i, view) in bytes.as_chunks::<16>().0.iter().enumerate() {
                    let part = |at: usize| {
                        u32::from_le_bytes([view[at], view[at + 1], view[at + 2], view[at + 3]])
                    };
                    let length = part(0) as usize;
                    if is_null(i) {
                        give(i, Raw::Null)?;
                    } else if length <= 12 {
                        give(i, Raw::Text(&view[4..4 + length]))?;
                    } else if length > MAX_TEXT {
                        give(i, Raw::Other(&long(length as u64)))?;
                    } else {
                        let buffer = buffers.get_mut(part(8) as usize);
                        let buffer =
                            buffer.ok_or_else(|| damaged("a view refers to a missing buffer"))?;
                        let text = buffer.text(part(12).into(), length, &mut loaded)?;
                        give(i, Raw::Text(text))?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// A buffer that views point to.
struct ViewBuffer {
    file: Arc<File>,
    span: Span,
    codec: Codec,
    /// Some bytes of it, or all if it is compressed, and where they begin.
    bytes: Vec<u8>,
    start: u64,
    /// The length of a compressed buffer that is in memory; 0 for others.
    loaded: u64,
}

impl ViewBuffer {
    fn new(file: Arc<File>, span: Span, codec: Codec) -> Self {
        Self { file, span, codec, bytes: Vec::new(), start: 0, loaded: 0 }
    }

    fn loaded(&self) -> u64 {
        self.loaded
    }

    /// The text from byte `from` on. `loaded` is what compressed buffers take in memory.
    fn text(&mut self, from: u64, length: usize, loaded: &mut u64) -> Result<&[u8], Fault> {
        let beyond = || damaged("a view reaches beyond its buffer");
        let end = from + length as u64;
        if from < self.start || end > self.start + self.bytes.len() as u64 {
            if self.loaded > 0 {
                return Err(beyond());
            }
            let reader = BufferReader::new(&self.file, self.span, self.codec, end)?;
            let claimed = reader.left;
            match reader.source {
                BufferSource::File(FileRange { file, pos, left }) => {
                    let size = left.saturating_sub(from).min(WINDOW as u64);
                    let mut range = FileRange { file, pos: pos + from, left: size };
                    self.bytes.clear();
                    range.read_to_end(&mut self.bytes)?;
                    self.start = from;
                }
                BufferSource::Decompressor(_) => {
                    *loaded = loaded.saturating_add(claimed);
                    if *loaded > MOST_LOADED {
                        return Err(Fault::file(format!(
                            "has {loaded} bytes of compressed text in a record batch, and at most {MOST_LOADED} \
                             are read: write it without compression, or in smaller record batches"
                        )));
                    }
                    let mut reader = reader;
                    self.bytes = reader.read(claimed as usize)?.to_vec();
                    self.loaded = claimed;
                }
            }
        }
        let at = (from - self.start) as usize;
        self.bytes.get(at..at + length).ok_or_else(beyond)
    }
}
