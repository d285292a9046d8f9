//! The stored bytes of a data set's rows, wherever they lie: in the header, in one piece, in chunks.

use super::bytes::{Input, NOWHERE, damaged};
use super::describe::{Filter, Index, Layout};
use super::index::{self, Chunk, Grid};
use crate::error::Fault;
use crate::source::MAX_DIM;
use flate2::read::ZlibDecoder;
use std::io::Read;

/// The largest row of chunks that is unpacked: it is held in memory.
const MAX_BAND: u64 = 1 << 28;

/// The most bytes of a chunk that are read at once, unless it is a single row.
const AT_ONCE: u64 = 16 << 20;

/// Where rows are read from.
pub(super) enum Storage {
    Compact(Vec<u8>),
    Contiguous { at: u64 },
    Chunked(Chunked),
}

/// Rows in chunks. All chunks beside each other are a band; its rows are read together.
pub(super) struct Chunked {
    chunks: Vec<Chunk>,
    grid: Grid,
    filters: Vec<Filter>,
    /// Chunks that reach over the data set's end were not filtered.
    plain_edges: bool,
    /// Bytes of a row in a chunk.
    chunk_row: usize,
    /// The unpacked chunks of one band, if there are filters, and which band.
    band: Option<u64>,
    unpacked: Vec<Vec<u8>>,
    scratch: Vec<u8>,
}

impl Storage {
    /// Checks that the rows can be there at all. `width` is the size of a value.
    pub(super) fn new(
        input: &mut Input,
        layout: Layout,
        filters: Vec<Filter>,
        shape: [u64; 2],
        limits: &[u64],
        width: usize,
    ) -> Result<Self, Fault> {
        let what = "a data set";
        let bytes = size(shape, width)
            .ok_or_else(|| damaged(what, "its size is beyond what any file can hold"))?;
        let short = |has: u64| {
            let why = format!("its rows take {bytes} bytes, but only {has} are kept for them");
            Err(damaged(what, &why))
        };
        match layout {
            Layout::Compact(data) if (data.len() as u64) < bytes => short(data.len() as u64),
            Layout::Compact(data) => Ok(Storage::Compact(data)),
            Layout::Contiguous { .. } if bytes == 0 => Ok(Storage::Contiguous { at: 0 }),
            Layout::Contiguous { at: NOWHERE, .. } => Err(unwritten(0)),
            Layout::Contiguous { len, .. } if len < bytes => short(len),
            Layout::Contiguous { at, .. } if !input.has(at, bytes) => {
                Err(damaged(what, "its values lie beyond the end of the file"))
            }
            Layout::Contiguous { at, .. } => Ok(Storage::Contiguous { at }),
            Layout::Chunked { shape: chunk, index, at, plain_edges } => {
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
                Chunked::new(input, index, at, grid, filters, plain_edges).map(Storage::Chunked)
            }
        }
    }

    /// Prepares to read rows from `row` on: how many, at most `want`, can be read at once. These rows
    /// are there.
    pub(super) fn ready(&mut self, input: &mut Input, row: u64, want: u64) -> Result<u64, Fault> {
        match self {
            Storage::Compact(_) | Storage::Contiguous { .. } => Ok(want),
            Storage::Chunked(chunked) => {
                chunked.ready(input, row)?;
                let rows = chunked.grid.chunk[0];
                // Chunks may be wider than rows, and are read as wide as they are.
                let most = (AT_ONCE / chunked.chunk_row as u64).max(1);
                Ok(want.min(rows - row % rows).min(most))
            }
        }
    }

    /// Reads whole rows, `row_bytes` each, from `row` on; `ready` has allowed as many.
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

/// Bytes of a rectangle of values.
fn size([rows, columns]: [u64; 2], width: usize) -> Option<u64> {
    rows.checked_mul(columns)?.checked_mul(width as u64)
}

fn unwritten(row: u64) -> Fault {
    let why = "was never written: the HDF5 file has no bytes for it; write all rows of the data set, or \
               cut it down to those that are written";
    Fault::Row { row, why: why.into() }
}

impl Chunked {
    fn new(
        input: &mut Input,
        index: Index,
        at: u64,
        grid: Grid,
        filters: Vec<Filter>,
        plain_edges: bool,
    ) -> Result<Self, Fault> {
        let across = grid.shape[1].div_ceil(grid.chunk[1]);
        if grid.filtered && across.checked_mul(grid.bytes).is_none_or(|band| band > MAX_BAND) {
            return Err(Fault::File(format!(
                "its chunks hold {} rows each, too many to be unpacked in memory (256 MiB at most); \
                 rewrite it with chunks of fewer rows, with h5repack or h5py",
                grid.chunk[0]
            )));
        }
        let chunk_row = usize::try_from(grid.bytes / grid.chunk[0]).unwrap_or(usize::MAX);
        if grid.chunk[1] > MAX_DIM as u64 {
            return Err(damaged("a data set", "its chunks are wider than any row"));
        }
        let chunks = index::chunks(input, index, at, &grid)?;
        Ok(Self {
            chunks,
            grid,
            filters,
            plain_edges,
            chunk_row,
            band: None,
            unpacked: Vec::new(),
            scratch: Vec::new(),
        })
    }

    /// The chunks of the band that a row is in.
    fn band(&self, row: u64) -> Result<&[Chunk], Fault> {
        let band = row / self.grid.chunk[0];
        let from = self.chunks.partition_point(|chunk| chunk.place < (band, 0));
        let across = self.grid.shape[1].div_ceil(self.grid.chunk[1]) as usize;
        let chunks = self.chunks.get(from..from.saturating_add(across)).unwrap_or_default();
        let complete = (0..).zip(chunks).all(|(column, chunk)| chunk.place == (band, column));
        if chunks.is_empty() || !complete { Err(unwritten(row)) } else { Ok(chunks) }
    }

    /// Makes sure that the chunks of the row's band are there, and unpacks them if need be.
    fn ready(&mut self, input: &mut Input, row: u64) -> Result<(), Fault> {
        let number = row / self.grid.chunk[0];
        if self.band == Some(number) {
            return Ok(());
        }
        let band = self.band(row)?;
        for chunk in band {
            // Filters may make a chunk a little longer than it is.
            let whole = match self.grid.filtered {
                true => chunk.len <= self.grid.bytes + self.grid.bytes / 8 + 4096,
                false => chunk.len == self.grid.bytes,
            };
            if !whole || !input.has(chunk.at, chunk.len) {
                let why = "its chunk is of the wrong size or lies beyond the end of the HDF5 file; \
                           make the file again";
                return Err(Fault::Row { row, why: why.into() });
            }
        }
        if self.grid.filtered {
            let band = band.to_vec();
            self.band = None;
            self.unpacked.clear();
            for chunk in band {
                let data = self.unpack(input, chunk).map_err(|why| Fault::Row {
                    row,
                    why: format!("its chunk cannot be unpacked: {why}; make the HDF5 file again"),
                })?;
                self.unpacked.push(data);
            }
        }
        self.band = Some(number);
        Ok(())
    }

    fn fill(
        &mut self,
        input: &mut Input,
        row: u64,
        row_bytes: usize,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let skipped = (row % self.grid.chunk[0]) as usize * self.chunk_row;
        let len = out.len() / row_bytes * self.chunk_row;
        // Filtered chunks are unpacked already; others are read now, and straight to where they belong if
        // they are as wide as the rows.
        let mut scratch = std::mem::take(&mut self.scratch);
        let chunks = if self.grid.filtered { &[] } else { self.band(row)? };
        if let ([chunk], true) = (chunks, self.chunk_row == row_bytes) {
            return input.fill(chunk.at + skipped as u64, out);
        }
        if !self.grid.filtered {
            scratch.resize(len, 0);
        }
        for (n, start) in (0..row_bytes).step_by(self.chunk_row).enumerate() {
            let part = match chunks.get(n) {
                Some(chunk) => {
                    input.fill(chunk.at + skipped as u64, &mut scratch)?;
                    &scratch[..]
                }
                None => &self.unpacked[n][skipped..][..len],
            };
            // The last chunk may be wider than what is left of the row.
            let width = self.chunk_row.min(row_bytes - start);
            for (to, from) in out.chunks_exact_mut(row_bytes).zip(part.chunks_exact(self.chunk_row))
            {
                to[start..start + width].copy_from_slice(&from[..width]);
            }
        }
        self.scratch = scratch;
        Ok(())
    }

    /// Undoes the filters, the last one first.
    fn unpack(&self, input: &mut Input, chunk: Chunk) -> Result<Vec<u8>, String> {
        let mut data = vec![0; chunk.len as usize];
        input.fill(chunk.at, &mut data).map_err(|_| "the file cannot be read to its end")?;
        let [rows, columns] = [chunk.place.0, chunk.place.1];
        let edge = rows.saturating_add(1).saturating_mul(self.grid.chunk[0]) > self.grid.shape[0]
            || columns.saturating_add(1).saturating_mul(self.grid.chunk[1]) > self.grid.shape[1];
        if !(self.plain_edges && edge) {
            for (n, filter) in self.filters.iter().enumerate().rev() {
                if chunk.without.checked_shr(n as u32).unwrap_or(0) & 1 == 0 {
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

/// Undoes one filter; `expected` is the size of the unpacked chunk.
fn undo(filter: Filter, mut data: Vec<u8>, expected: u64) -> Result<Vec<u8>, String> {
    match filter {
        Filter::Deflate => {
            // A checksum may follow the values; more than that is not read.
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
                return Err("its checksum does not fit its content".into());
            }
            Ok(data)
        }
    }
}

/// Fletcher's checksum, over big-endian pairs of bytes.
fn fletcher32(data: &[u8]) -> u32 {
    let (mut low, mut high) = (0_u32, 0_u32);
    // So many pairs cannot overflow the sums.
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
