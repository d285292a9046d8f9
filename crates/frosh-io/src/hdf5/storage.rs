//! Reads the stored bytes of a data set's rows: compact, contiguous or in chunks.

use super::bytes::{Input, UNDEFINED, damaged};
use super::chunk_index::{self, Chunk, Grid};
use super::describe::{ChunkIndex, DataLayout, Filter};
use crate::error::Fault;
use crate::source::MAX_DIM;
use flate2::read::ZlibDecoder;
use std::io::Read;

/// The most bytes of decoded chunks: a row of chunks is decoded together and kept in memory.
const MAX_DECODED: u64 = 1 << 28;

/// Most bytes of a chunk that are read at once, unless a single row has more.
const AT_ONCE: u64 = 16 << 20;

/// How the rows of a data set are stored.
pub(super) enum Storage {
    Compact(Vec<u8>),
    Contiguous { at: u64 },
    Chunked(Chunked),
}

/// Rows in chunks. Rows may be split into several chunks, which form a row of the grid of chunks: a grid row.
pub(super) struct Chunked {
    chunks: Vec<Chunk>,
    grid: Grid,
    filters: Vec<Filter>,
    /// Whether chunks that reach over the end of the data set are not filtered.
    unfiltered_edges: bool,
    /// Bytes of a row in one chunk.
    chunk_row_bytes: usize,
    /// The grid row that was checked and, if there are filters, its decoded chunks.
    current: Option<u64>,
    decoded: Vec<Vec<u8>>,
    scratch: Vec<u8>,
}

impl Storage {
    /// Checks that the file is large enough for the rows. `width` is the size of a value.
    pub(super) fn new(
        input: &mut Input,
        layout: DataLayout,
        filters: Vec<Filter>,
        shape: [u64; 2],
        limits: &[u64],
        width: usize,
    ) -> Result<Self, Fault> {
        let what = "a data set";
        let bytes =
            size(shape, width).ok_or_else(|| damaged(what, "it is larger than any file can be"))?;
        let short = |has: u64| {
            let why = format!("its rows take {bytes} bytes, but only {has} are stored");
            Err(damaged(what, &why))
        };
        match layout {
            DataLayout::Compact(data) if (data.len() as u64) < bytes => short(data.len() as u64),
            DataLayout::Compact(data) => Ok(Storage::Compact(data)),
            DataLayout::Contiguous { .. } if bytes == 0 => Ok(Storage::Contiguous { at: 0 }),
            DataLayout::Contiguous { at: UNDEFINED, .. } => Err(unwritten(0)),
            DataLayout::Contiguous { len, .. } if len < bytes => short(len),
            DataLayout::Contiguous { at, .. } if !input.has(at, bytes) => {
                Err(damaged(what, "its values are beyond the end of the file"))
            }
            DataLayout::Contiguous { at, .. } => Ok(Storage::Contiguous { at }),
            DataLayout::Chunked { shape: chunk, index, at, unfiltered_edges } => {
                let (&[rows, columns], &[most_rows, most_columns]) = (&chunk[..], limits) else {
                    return Err(damaged(what, "its chunks have another number of dimensions"));
                };
                let chunk = [rows, columns];
                let bytes = size(chunk, width).filter(|&bytes| bytes > 0);
                let bytes =
                    bytes.ok_or_else(|| damaged(what, "the size of its chunks is wrong"))?;
                let limits = [most_rows, most_columns];
                let filtered = !filters.is_empty();
                let grid = Grid { chunk, shape, limits, bytes, filtered };
                Chunked::new(input, index, at, grid, filters, unfiltered_edges)
                    .map(Storage::Chunked)
            }
        }
    }

    /// Rows that are decoded together; 1 if each row can be read on its own.
    pub(super) fn unit_rows(&self) -> u64 {
        match self {
            Storage::Chunked(chunked) if chunked.grid.filtered => chunked.grid.chunk[0],
            _ => 1,
        }
    }

    /// Prepares to read up to `want` rows from `row` on, which are within the data set. Returns how many can be
    /// read at once.
    pub(super) fn prepare(&mut self, input: &mut Input, row: u64, want: u64) -> Result<u64, Fault> {
        match self {
            Storage::Compact(_) | Storage::Contiguous { .. } => Ok(want),
            Storage::Chunked(chunked) => {
                chunked.prepare(input, row)?;
                let rows = chunked.grid.chunk[0];
                // A chunk may be wider than the data set, and is read in its full width.
                let most = (AT_ONCE / chunked.chunk_row_bytes as u64).max(1);
                Ok(want.min(rows - row % rows).min(most))
            }
        }
    }

    /// Reads whole rows of `row_bytes` from `row` on, as many as `prepare` has returned.
    pub(super) fn fill(
        &mut self,
        input: &mut Input,
        row: u64,
        row_bytes: usize,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let from = row * row_bytes as u64;
        match self {
            Storage::Compact(data) => {
                out.copy_from_slice(&data[from as usize..][..out.len()]);
                Ok(())
            }
            Storage::Contiguous { at } => input.fill(*at + from, out),
            Storage::Chunked(chunked) => chunked.fill(input, row, row_bytes, out),
        }
    }
}

/// Size of a matrix in bytes.
fn size([rows, columns]: [u64; 2], width: usize) -> Option<u64> {
    rows.checked_mul(columns)?.checked_mul(width as u64)
}

fn unwritten(row: u64) -> Fault {
    let why = "was never written: the HDF5 file has no bytes for it; write all rows of the data set, or \
               shrink it to those that are written";
    Fault::row(row, why)
}

impl Chunked {
    fn new(
        input: &mut Input,
        index: ChunkIndex,
        at: u64,
        grid: Grid,
        filters: Vec<Filter>,
        unfiltered_edges: bool,
    ) -> Result<Self, Fault> {
        let across = grid.shape[1].div_ceil(grid.chunk[1]);
        if grid.filtered && across.checked_mul(grid.bytes).is_none_or(|bytes| bytes > MAX_DECODED) {
            return Err(Fault::file(format!(
                "its chunks hold {} rows each, too many to be decoded in memory (256 MiB at most); \
                 rewrite it with chunks of fewer rows, with h5repack or h5py",
                grid.chunk[0]
            )));
        }
        let chunk_row_bytes = usize::try_from(grid.bytes / grid.chunk[0]).unwrap_or(usize::MAX);
        if grid.chunk[1] > MAX_DIM as u64 {
            return Err(damaged("a data set", "its chunks are wider than any row"));
        }
        let chunks = chunk_index::chunks(input, index, at, &grid)?;
        Ok(Self {
            chunks,
            grid,
            filters,
            unfiltered_edges,
            chunk_row_bytes,
            current: None,
            decoded: Vec::new(),
            scratch: Vec::new(),
        })
    }

    /// The chunks that hold a row, from left to right.
    fn chunks_of(&self, row: u64) -> Result<&[Chunk], Fault> {
        let grid_row = row / self.grid.chunk[0];
        let from = self.chunks.partition_point(|chunk| chunk.position < (grid_row, 0));
        let across = self.grid.shape[1].div_ceil(self.grid.chunk[1]) as usize;
        let chunks = self.chunks.get(from..from.saturating_add(across)).unwrap_or_default();
        let complete =
            (0..).zip(chunks).all(|(column, chunk)| chunk.position == (grid_row, column));
        if chunks.is_empty() || !complete { Err(unwritten(row)) } else { Ok(chunks) }
    }

    /// Checks the chunks that hold a row, and decodes them if there are filters.
    fn prepare(&mut self, input: &mut Input, row: u64) -> Result<(), Fault> {
        let grid_row = row / self.grid.chunk[0];
        if self.current == Some(grid_row) {
            return Ok(());
        }
        let chunks = self.chunks_of(row)?;
        for chunk in chunks {
            // Filters may make a chunk a little longer.
            let plausible = match self.grid.filtered {
                true => chunk.len <= self.grid.bytes + self.grid.bytes / 8 + 4096,
                false => chunk.len == self.grid.bytes,
            };
            if !plausible || !input.has(chunk.at, chunk.len) {
                let why = "its chunk has a wrong size or is beyond the end of the HDF5 file; make the \
                           file again";
                return Err(Fault::row(row, why));
            }
        }
        if self.grid.filtered {
            let chunks = chunks.to_vec();
            self.current = None;
            self.decoded.clear();
            for chunk in chunks {
                let data = self.decode(input, chunk).map_err(|why| {
                    let why =
                        format!("its chunk cannot be decoded: {why}; make the HDF5 file again");
                    Fault::row(row, why)
                })?;
                self.decoded.push(data);
            }
        }
        self.current = Some(grid_row);
        Ok(())
    }

    fn fill(
        &mut self,
        input: &mut Input,
        row: u64,
        row_bytes: usize,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let skipped = (row % self.grid.chunk[0]) as usize * self.chunk_row_bytes;
        let len = out.len() / row_bytes * self.chunk_row_bytes;
        // Filtered chunks are decoded already. Others are read now, straight into `out` if they are as wide as
        // the rows.
        let mut scratch = std::mem::take(&mut self.scratch);
        let chunks = if self.grid.filtered { &[] } else { self.chunks_of(row)? };
        if let ([chunk], true) = (chunks, self.chunk_row_bytes == row_bytes) {
            return input.fill(chunk.at + skipped as u64, out);
        }
        if !self.grid.filtered {
            scratch.resize(len, 0);
        }
        for (n, start) in (0..row_bytes).step_by(self.chunk_row_bytes).enumerate() {
            let part = match chunks.get(n) {
                Some(chunk) => {
                    input.fill(chunk.at + skipped as u64, &mut scratch)?;
                    &scratch[..]
                }
                None => &self.decoded[n][skipped..][..len],
            };
            // The last chunk may be wider than the rest of the row.
            let width = self.chunk_row_bytes.min(row_bytes - start);
            for (to, from) in
                out.chunks_exact_mut(row_bytes).zip(part.chunks_exact(self.chunk_row_bytes))
            {
                to[start..start + width].copy_from_slice(&from[..width]);
            }
        }
        self.scratch = scratch;
        Ok(())
    }

    /// Reads a chunk and undoes the filters, the last one first.
    fn decode(&self, input: &mut Input, chunk: Chunk) -> Result<Vec<u8>, String> {
        let mut data = vec![0; chunk.len as usize];
        input.fill(chunk.at, &mut data).map_err(|_| "the file cannot be read to its end")?;
        let (rows, columns) = chunk.position;
        let edge = rows.saturating_add(1).saturating_mul(self.grid.chunk[0]) > self.grid.shape[0]
            || columns.saturating_add(1).saturating_mul(self.grid.chunk[1]) > self.grid.shape[1];
        if !(self.unfiltered_edges && edge) {
            for (n, filter) in self.filters.iter().enumerate().rev() {
                if chunk.filter_mask.checked_shr(n as u32).unwrap_or(0) & 1 == 0 {
                    data = undo(*filter, data, self.grid.bytes)?;
                }
            }
        }
        if data.len() as u64 != self.grid.bytes {
            return Err(format!("it has {} bytes, expected {}", data.len(), self.grid.bytes));
        }
        Ok(data)
    }
}

/// Undoes one filter; `expected` is the size of the decoded chunk.
fn undo(filter: Filter, mut data: Vec<u8>, expected: u64) -> Result<Vec<u8>, String> {
    match filter {
        Filter::Deflate => {
            // A checksum may follow the values. One byte more is read, to notice a chunk that is too long.
            let mut out = Vec::new();
            let mut decoder = ZlibDecoder::new(&data[..]).take(expected + 5);
            decoder.read_to_end(&mut out).map_err(|e| format!("inflating failed ({e})"))?;
            Ok(out)
        }
        Filter::Shuffle(width) if width > 1 => {
            let count = data.len() / width;
            let mut out = data.clone();
            for byte in 0..width.min(data.len()) {
                let plane = &data[byte * count..][..count];
                for (value, &from) in out.chunks_exact_mut(width).zip(plane) {
                    value[byte] = from;
                }
            }
            Ok(out)
        }
        Filter::Shuffle(_) => Ok(data),
        Filter::Fletcher32 => {
            let Some(end) = data.len().checked_sub(4) else {
                return Err("its checksum is missing".into());
            };
            let sum = data.split_off(end);
            if sum != fletcher32(&data).to_le_bytes() {
                return Err("its checksum does not match its content".into());
            }
            Ok(data)
        }
    }
}

/// Fletcher's checksum, over big-endian pairs of bytes.
fn fletcher32(data: &[u8]) -> u32 {
    let (mut low, mut high) = (0_u32, 0_u32);
    // The sums of 360 pairs cannot overflow.
    for block in data.chunks(2 * 360) {
        for pair in block.chunks(2) {
            low += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
            high += low;
        }
        low = (low & 0xffff) + (low >> 16);
        high = (high & 0xffff) + (high >> 16);
    }
    low = (low & 0xffff) + (low >> 16);
    high = (high & 0xffff) + (high >> 16);
    high << 16 | low
}
