//! Reads the part of a column that is in one record batch, some rows at a time.

use super::index::{Codec, ColumnChunk, NumberChunk, Span};
use crate::columns::{Column, Lists, Offsets, damaged, rows_in};
use crate::decompress::unzstd;
use crate::error::Fault;
use crate::source::MAX_DIM;
use arrow_array::types::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{ArrayRef, PrimitiveArray};
use arrow_buffer::{BooleanBuffer, Buffer, MutableBuffer, NullBuffer, ScalarBuffer};
use arrow_schema::DataType;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::sync::Arc;

/// Bytes of values that are read in one step.
const STEP: usize = 1 << 20;
/// Most rows read in one step.
const STEP_ROWS: usize = 1 << 16;
/// Most bytes of values in a step of several rows. Rows may be much longer than their mean.
const MOST: usize = 16 * STEP;
/// Most bytes by which a buffer grows at once: a compressed buffer may hold less than it claims.
const GROWTH: usize = 16 << 20;

/// A compressed buffer of at most this size is decompressed at once where many columns are read together.
const SMALL: u64 = 2 << 20;

/// Reads a column chunk.
pub(super) struct ColumnReader {
    /// Rows that are left.
    left: u64,
    /// Rows per step.
    step: usize,
    nulls: Vec<Bitmap>,
    lengths: Lengths,
    /// Number of the next value in `values` and `item_nulls`.
    item: u64,
    item_nulls: Option<Bitmap>,
    values: BufferReader,
    item_type: DataType,
    item_bytes: usize,
}

/// How long the rows are.
enum Lengths {
    /// All the same.
    Fixed(usize),
    /// From one offset to the next. `wide` offsets have 64 bits. `last` is where the next row begins; `ahead`
    /// are the ends of the following rows, as far as they were read.
    Variable { offsets: BufferReader, wide: bool, last: u64, ahead: VecDeque<u64> },
}

impl ColumnReader {
    /// Reads from row `from` on.
    pub(super) fn new(
        file: &Arc<File>,
        chunk: &ColumnChunk,
        column: &Column,
        from: u64,
    ) -> Result<Self, Fault> {
        let item_type = column.item.clone();
        let item_bytes = item_type.primitive_width().unwrap_or(1);
        let open = |span, need| BufferReader::new(file, span, chunk.codec, need);
        let open_bits = |span, bits: u64| {
            Ok::<_, Fault>(Bitmap { bytes: open(span, bits.div_ceil(8))?, at: 0, last: 0 })
        };
        let lengths = match (column.fixed_size()?, chunk.offsets) {
            (Some(dim), _) => {
                if chunk.rows.checked_mul(dim as u64).is_none_or(|items| items > chunk.items) {
                    return Err(damaged("a record batch has fewer values than its rows need"));
                }
                Lengths::Fixed(dim)
            }
            (None, Some(span)) => {
                let wide = matches!(column.list, DataType::LargeList(_));
                let width = if wide { 8 } else { 4 };
                let mut offsets = open(span, (chunk.rows + 1) * width)?;
                offsets.skip(from * width)?;
                let last = offset(&offsets.read(width as usize)?, wide)?;
                Lengths::Variable { offsets, wide, last, ahead: VecDeque::new() }
            }
            (None, None) => return Err(damaged("a list column has no offsets")),
        };
        // Lengths differ only in bad files, so that the mean is a good estimate.
        let row_bytes = (chunk.items / chunk.rows.max(1)).saturating_mul(item_bytes as u64);
        let step = rows_in(STEP, usize::try_from(row_bytes).unwrap_or(usize::MAX)).min(STEP_ROWS);
        let mut reader = Self {
            left: chunk.rows.saturating_sub(from),
            step,
            nulls: chunk
                .nulls
                .iter()
                .map(|span| open_bits(*span, chunk.rows))
                .collect::<Result<_, _>>()?,
            lengths,
            item: 0,
            item_nulls: chunk.item_nulls.map(|span| open_bits(span, chunk.items)).transpose()?,
            values: open(chunk.values, chunk.items.saturating_mul(item_bytes as u64))?,
            item_type,
            item_bytes,
        };
        for nulls in &mut reader.nulls {
            nulls.skip(from)?;
        }
        if let Lengths::Fixed(dim) = reader.lengths {
            reader.skip_items(from * dim as u64)?;
        }
        Ok(reader)
    }

    /// The next rows; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Lists>, Fault> {
        let rows = self.left.min(self.step as u64) as usize;
        if rows == 0 {
            return Ok(None);
        }
        let (offsets, items) = match &mut self.lengths {
            Lengths::Fixed(size) => (Offsets::Fixed { size: *size, rows }, rows * *size),
            Lengths::Variable { offsets, wide, last, ahead } => {
                let width = if *wide { 8 } else { 4 };
                let bytes = offsets.read(rows.saturating_sub(ahead.len()) * width)?;
                for bytes in bytes.chunks_exact(width) {
                    ahead.push_back(offset(bytes, *wide)?);
                }
                let (first, most) = (*last, (MOST / self.item_bytes) as u64);
                let mut ends = vec![0];
                while let Some(end) = ahead.front().copied() {
                    let length = end.checked_sub(*last);
                    let length = length.ok_or_else(|| damaged("a list ends before it begins"))?;
                    if length > MAX_DIM as u64 {
                        let why = format!("has a row of {length} values, expected 1 to {MAX_DIM}");
                        return Err(why.into());
                    }
                    if ends.len() > 1 && end - first > most {
                        break;
                    }
                    ahead.pop_front();
                    *last = end;
                    ends.push((end - first) as i64);
                }
                let items = usize::try_from(*last - first).map_err(damaged)?;
                let gap = first.checked_sub(self.item);
                self.skip_items(gap.ok_or_else(|| damaged("lists overlap"))?)?;
                (Offsets::Long(ScalarBuffer::from(ends)), items)
            }
        };
        let rows = offsets.rows();
        self.left -= rows as u64;
        let mut nulls = None;
        for bitmap in &mut self.nulls {
            nulls = NullBuffer::union(nulls.as_ref(), Some(&bitmap.read(rows)?));
        }
        let items = self.items(items)?;
        Ok(Some(Lists { offsets, nulls, items }))
    }

    fn skip_items(&mut self, items: u64) -> Result<(), Fault> {
        self.item += items;
        if let Some(nulls) = &mut self.item_nulls {
            nulls.skip(items)?;
        }
        self.values.skip(items.saturating_mul(self.item_bytes as u64))
    }

    /// The next `items` values.
    fn items(&mut self, items: usize) -> Result<ArrayRef, Fault> {
        self.item += items as u64;
        let nulls = self.item_nulls.as_mut().map(|nulls| nulls.read(items)).transpose()?;
        let bytes =
            items.checked_mul(self.item_bytes).ok_or_else(|| damaged("a list is too long"))?;
        number_array(&self.item_type, self.values.read(bytes)?, items, nulls)
    }
}

/// Reads a column of numbers in one record batch.
pub(super) struct NumberReader {
    nulls: Option<Bitmap>,
    values: BufferReader,
    data_type: DataType,
    width: usize,
}

impl NumberReader {
    /// Reads the `rows` values from row `from` on.
    pub(super) fn new(
        file: &Arc<File>,
        chunk: NumberChunk,
        codec: Codec,
        data_type: &DataType,
        rows: u64,
        from: u64,
    ) -> Result<Self, Fault> {
        let width = data_type.primitive_width().unwrap_or(1);
        let mut values =
            BufferReader::new(file, chunk.values, codec, rows.saturating_mul(width as u64))?
                .loaded_if_small()?;
        values.skip(from.saturating_mul(width as u64))?;
        let nulls = match chunk.nulls {
            None => None,
            Some(span) => {
                let bytes =
                    BufferReader::new(file, span, codec, rows.div_ceil(8))?.loaded_if_small()?;
                let mut nulls = Bitmap { bytes, at: 0, last: 0 };
                nulls.skip(from)?;
                Some(nulls)
            }
        };
        Ok(Self { nulls, values, data_type: data_type.clone(), width })
    }

    /// Decompressed bytes that its buffers claim to hold.
    pub(super) fn claimed(&self) -> u64 {
        let nulls = self.nulls.as_ref().map_or(0, |nulls| nulls.bytes.claimed());
        self.values.claimed().saturating_add(nulls)
    }

    /// The next `rows` values.
    pub(super) fn read(&mut self, rows: usize) -> Result<ArrayRef, Fault> {
        let nulls = self.nulls.as_mut().map(|nulls| nulls.read(rows)).transpose()?;
        number_array(&self.data_type, self.values.read(rows * self.width)?, rows, nulls)
    }
}

/// An array of numbers.
fn number_array(
    data_type: &DataType,
    values: Buffer,
    items: usize,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, Fault> {
    /// An array of the type `$t`.
    macro_rules! array {
        ($t:ty) => {
            Arc::new(PrimitiveArray::<$t>::new(ScalarBuffer::new(values, 0, items), nulls))
        };
    }
    Ok(match data_type {
        DataType::Float16 => array!(Float16Type),
        DataType::Float32 => array!(Float32Type),
        DataType::Float64 => array!(Float64Type),
        DataType::Int8 => array!(Int8Type),
        DataType::Int16 => array!(Int16Type),
        DataType::Int32 => array!(Int32Type),
        DataType::UInt8 => array!(UInt8Type),
        DataType::UInt16 => array!(UInt16Type),
        DataType::Int64 => array!(Int64Type),
        DataType::UInt32 => array!(UInt32Type),
        DataType::UInt64 => array!(UInt64Type),
        _ => return Err(damaged("the column does not hold numbers")),
    })
}

/// Parses an offset.
pub(super) fn offset(bytes: &[u8], wide: bool) -> Result<u64, Fault> {
    let offset = match (wide, bytes.first_chunk(), bytes.first_chunk()) {
        (true, Some(&bytes), _) => i64::from_le_bytes(bytes),
        (false, _, Some(&bytes)) => i64::from(i32::from_le_bytes(bytes)),
        _ => -1,
    };
    u64::try_from(offset).map_err(|_| damaged("a list has a negative offset"))
}

/// Reads a buffer of a record batch from front to back, and decompresses it.
pub(super) struct BufferReader {
    pub(super) source: BufferSource,
    /// Bytes that are left.
    pub(super) left: u64,
}

pub(super) enum BufferSource {
    /// Uncompressed.
    File(FileRange),
    Decompressor(Box<dyn Read + Send>),
}

impl BufferReader {
    /// Opens a buffer, which must have `need` bytes.
    pub(super) fn new(
        file: &Arc<File>,
        span: Span,
        codec: Codec,
        need: u64,
    ) -> Result<Self, Fault> {
        let mut range = FileRange { file: file.clone(), pos: span.pos, left: span.len };
        let mut left = span.len;
        let mut compressed = false;
        // With a codec, a buffer begins with its decompressed length, or -1 if it is not compressed.
        if codec != Codec::None && left > 0 {
            let mut length = [0; 8];
            range.read_exact(&mut length)?;
            compressed = i64::from_le_bytes(length) != -1;
            left = if compressed { u64::from_le_bytes(length) } else { left - 8 };
            // An lz4 frame has a compression ratio below 256.
            if compressed && codec == Codec::Lz4 && left > span.len.saturating_mul(256) {
                return Err(damaged("a compressed buffer claims an impossible length"));
            }
        }
        if left < need {
            return Err(damaged(format_args!("a buffer has {left} bytes, expected {need}")));
        }
        let source = match codec {
            _ if !compressed => BufferSource::File(range),
            Codec::Zstd => BufferSource::Decompressor(Box::new(unzstd(range, span.len, left))),
            _ => {
                let decoder = lz4_flex::frame::FrameDecoder::new(BufReader::new(range));
                BufferSource::Decompressor(Box::new(decoder))
            }
        };
        Ok(Self { source, left })
    }

    /// Decompressed bytes that are left, as the buffer claims; 0 if it is not compressed.
    fn claimed(&self) -> u64 {
        match self.source {
            BufferSource::File(_) => 0,
            BufferSource::Decompressor(_) => self.left,
        }
    }

    /// Decompresses a small buffer at once. A decompressor may need far more memory than the buffer, which adds
    /// up where many columns are read together.
    fn loaded_if_small(mut self) -> Result<Self, Fault> {
        if (1..=SMALL).contains(&self.claimed()) {
            let left = self.left;
            let bytes = self.read(left as usize)?;
            let bytes = std::io::Cursor::new(bytes.to_vec());
            self = Self { source: BufferSource::Decompressor(Box::new(bytes)), left };
        }
        Ok(self)
    }

    /// Counts bytes as read; refuses more than are left.
    fn advance(&mut self, bytes: u64) -> Result<(), Fault> {
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or_else(|| damaged("a list reaches beyond its values"))?;
        Ok(())
    }

    pub(super) fn read(&mut self, bytes: usize) -> Result<Buffer, Fault> {
        self.advance(bytes as u64)?;
        let mut buffer = MutableBuffer::from_len_zeroed(bytes.min(GROWTH));
        let mut from = 0;
        while from < bytes {
            let done = match &mut self.source {
                BufferSource::File(range) => range.read_exact(&mut buffer[from..]),
                BufferSource::Decompressor(stream) => stream.read_exact(&mut buffer[from..]),
            };
            done.map_err(read_fault)?;
            from = buffer.len();
            buffer.resize(bytes.min(from.saturating_add(GROWTH)), 0);
        }
        Ok(buffer.into())
    }

    pub(super) fn skip(&mut self, bytes: u64) -> Result<(), Fault> {
        self.advance(bytes)?;
        match &mut self.source {
            BufferSource::File(range) => {
                range.pos += bytes;
                range.left -= bytes;
            }
            BufferSource::Decompressor(stream) => {
                let skipped = std::io::copy(&mut stream.take(bytes), &mut std::io::sink());
                if skipped.map_err(read_fault)? < bytes {
                    return Err(damaged("a compressed buffer is shorter than it claims"));
                }
            }
        }
        Ok(())
    }
}

/// Distinguishes errors of a decompressor, which mean a damaged file, from those of the operating system.
fn read_fault(error: std::io::Error) -> Fault {
    use std::io::ErrorKind::{InvalidData, InvalidInput, Other, UnexpectedEof};
    match error.kind() {
        InvalidData | InvalidInput | Other | UnexpectedEof => damaged(error),
        _ => Fault::Io(error),
    }
}

/// A range of a file. Several can be read in turns: each has its own position.
pub(super) struct FileRange {
    pub(super) file: Arc<File>,
    pub(super) pos: u64,
    pub(super) left: u64,
}

impl Read for FileRange {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let most = self.left.min(bytes.len() as u64) as usize;
        let mut file = &*self.file;
        file.seek(SeekFrom::Start(self.pos))?;
        let got = file.read(&mut bytes[..most])?;
        self.pos += got as u64;
        self.left -= got as u64;
        Ok(got)
    }
}

/// Reads a validity bitmap from front to back, lowest bit of each byte first.
pub(super) struct Bitmap {
    pub(super) bytes: BufferReader,
    /// Number of the next bit.
    pub(super) at: u64,
    /// The byte that holds the next bit, unless that is the first bit of its byte.
    pub(super) last: u8,
}

impl Bitmap {
    pub(super) fn read(&mut self, bits: usize) -> Result<NullBuffer, Fault> {
        let before = (self.at % 8) as usize;
        let whole = (before + bits).div_ceil(8);
        let buffer = if before == 0 {
            self.bytes.read(whole)?
        } else {
            let rest = self.bytes.read(whole.saturating_sub(1))?;
            let mut joined = MutableBuffer::with_capacity(whole);
            joined.push(self.last);
            joined.extend_from_slice(&rest);
            joined.into()
        };
        self.at += bits as u64;
        self.last = buffer.last().copied().unwrap_or(self.last);
        Ok(NullBuffer::new(BooleanBuffer::new(buffer, before, bits)))
    }

    pub(super) fn skip(&mut self, bits: u64) -> Result<(), Fault> {
        let have = self.at.div_ceil(8);
        self.at = self.at.checked_add(bits).ok_or_else(|| damaged("a list is too long"))?;
        if let Some(more) = self.at.div_ceil(8).checked_sub(have + 1) {
            self.bytes.skip(more)?;
            self.last = self.bytes.read(1)?[0];
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_grows_with_what_is_there_not_with_what_is_claimed() {
        let claims = |stream: Box<dyn Read + Send>| BufferReader {
            source: BufferSource::Decompressor(stream),
            left: u64::MAX,
        };
        assert!(claims(Box::new(std::io::empty())).read(1 << 50).is_err());
        let long = claims(Box::new(std::io::repeat(7))).read(2 * GROWTH + 3).unwrap();
        assert!(long.len() == 2 * GROWTH + 3 && long.iter().all(|byte| *byte == 7));
        assert!(claims(Box::new(std::io::empty())).read(0).unwrap().is_empty());
    }
}
