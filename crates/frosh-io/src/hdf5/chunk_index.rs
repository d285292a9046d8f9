//! Parses the chunk index of a data set. HDF5 has several kinds; each becomes one sorted list.
//!
//! An entry of the list takes 40 bytes. With chunks of the usual size, 16 kB to 1 MB, the list is at most a
//! few thousandths of the data.

use super::bytes::{Cursor, Input, UNDEFINED, damaged, unsupported};
use super::describe::ChunkIndex;
use super::group;
use crate::error::Fault;

/// Most chunks of a data set. With chunks of 16 kB they hold 128 GB.
const MAX_CHUNKS: usize = 1 << 23;

/// One chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    /// Row and column in the grid of chunks.
    pub(super) position: (u64, u64),
    /// Its address.
    pub(super) at: u64,
    /// Its stored size.
    pub(super) len: u64,
    /// Filter mask: bit `i` is set if filter `i` was not applied.
    pub(super) filter_mask: u32,
}

/// The shapes of a data set and its chunks.
pub(super) struct Grid {
    /// Rows and columns of a chunk.
    pub(super) chunk: [u64; 2],
    /// Rows and columns of the data set.
    pub(super) shape: [u64; 2],
    /// Largest number of rows and columns.
    pub(super) limits: [u64; 2],
    /// Size of a decoded chunk.
    pub(super) bytes: u64,
    /// Whether chunks are filtered.
    pub(super) filtered: bool,
}

impl Grid {
    /// The position of the chunk with entry `n` of an array.
    fn position(&self, n: u64) -> (u64, u64) {
        let [rows, columns] = [0, 1].map(|i| self.limits[i].div_ceil(self.chunk[i]).max(1));
        if self.limits[1] == UNDEFINED {
            // In an extensible array the unlimited dimension varies slowest.
            (n % rows, n / rows)
        } else {
            (n / columns, n % columns)
        }
    }

    /// A chunk of full size, with all filters.
    fn full_chunk(&self, n: u64, at: u64) -> Chunk {
        Chunk { position: self.position(n), at, len: self.bytes, filter_mask: 0 }
    }

    /// Adds entries of an array, from entry `first` on.
    fn add_entries(
        &self,
        first: u64,
        entries: &[u8],
        width: usize,
        found: &mut Vec<Chunk>,
    ) -> Result<(), Fault> {
        for (n, entry) in (first..).zip(entries.chunks_exact(width)) {
            let mut cursor = Cursor::new(entry, "an array of chunks");
            let mut chunk = self.full_chunk(n, cursor.u64()?);
            if self.filtered {
                chunk.len = cursor.uint(width - 12)?;
                chunk.filter_mask = cursor.u32()?;
            }
            if chunk.at != UNDEFINED {
                found.push(chunk);
                check_count(found.len() as u64)?;
            }
        }
        Ok(())
    }

    /// Checks the size of an entry: an address and, with filters, stored size (1 to 8 bytes) and filter mask.
    fn entry_width(&self, width: u8) -> Result<usize, Fault> {
        let fits = if self.filtered { (13..=20).contains(&width) } else { width == 8 };
        if fits {
            Ok(width.into())
        } else {
            Err(damaged("an array of chunks", "its entries have a wrong size"))
        }
    }
}

/// Refuses too many chunks.
fn check_count(chunks: u64) -> Result<(), Fault> {
    if chunks > MAX_CHUNKS as u64 {
        return Err(unsupported(format!("a data set of more than {MAX_CHUNKS} chunks")));
    }
    Ok(())
}

/// All chunks of the data set, sorted by position.
pub(super) fn chunks(
    input: &mut Input,
    index: ChunkIndex,
    at: u64,
    grid: &Grid,
) -> Result<Vec<Chunk>, Fault> {
    let mut found = Vec::new();
    match index {
        // Nothing was written.
        _ if at == UNDEFINED => {}
        ChunkIndex::BTree => group::btree_leaves(input, at, 1, 32, |key, at| {
            let mut cursor = Cursor::new(key, "a B-tree of chunks");
            let (len, filter_mask) = (cursor.uint(4)?, cursor.u32()?);
            let position = (cursor.u64()? / grid.chunk[0], cursor.u64()? / grid.chunk[1]);
            found.push(Chunk { position, at, len, filter_mask });
            check_count(found.len() as u64)
        })?,
        ChunkIndex::Single(None) => found.push(grid.full_chunk(0, at)),
        ChunkIndex::Single(Some((len, filter_mask))) => {
            found.push(Chunk { position: (0, 0), at, len, filter_mask });
        }
        ChunkIndex::Implicit => {
            let [rows, columns] = [0, 1].map(|i| grid.limits[i].div_ceil(grid.chunk[i]));
            let count = rows.checked_mul(columns);
            let len = count.and_then(|count| count.checked_mul(grid.bytes));
            if !len.is_some_and(|len| input.has(at, len)) {
                return Err(damaged("a data set", "its chunks are beyond the end of the file"));
            }
            check_count(rows * columns)?;
            found.extend((0..rows * columns).map(|n| grid.full_chunk(n, at + n * grid.bytes)));
        }
        ChunkIndex::FixedArray => fixed_array(input, at, grid, &mut found)?,
        ChunkIndex::ExtensibleArray => extensible_array(input, at, grid, &mut found)?,
    }
    found.sort_unstable_by_key(|chunk| chunk.position);
    Ok(found)
}

/// A fixed array: one block of entries or, if there are many, pages of them.
fn fixed_array(
    input: &mut Input,
    at: u64,
    grid: &Grid,
    found: &mut Vec<Chunk>,
) -> Result<(), Fault> {
    let what = "a fixed array of chunks";
    let head = input.checked_block(at, 28, what)?;
    let mut cursor = Cursor::new(&head, what);
    cursor.signature(b"FAHD")?;
    cursor.skip(2)?;
    let (width, page_bits) = (grid.entry_width(cursor.u8()?)?, cursor.u8()?);
    let (count, block) = (cursor.u64()?, cursor.u64()?);
    if block == UNDEFINED {
        return Ok(());
    }
    let entries = Entries { first: 0, count, width, page_bits, used: None };
    data_block(input, block, 14, b"FADB", entries, grid, found)
}

/// The entries of a data block: in the block itself or, if they do not fit in one page, in pages behind it.
struct Entries<'a> {
    /// Number of the first entry in the array.
    first: u64,
    count: u64,
    width: usize,
    page_bits: u8,
    /// Bitmap of the pages that are in use, highest bit first; `None` if it is in the block.
    used: Option<&'a [u8]>,
}

/// Parses the data block at `at`, whose header has `prefix` bytes.
fn data_block(
    input: &mut Input,
    at: u64,
    prefix: u64,
    signature: &[u8; 4],
    entries: Entries<'_>,
    grid: &Grid,
    found: &mut Vec<Chunk>,
) -> Result<(), Fault> {
    let what = "an array of chunks";
    let bytes = |count: u64| count.saturating_mul(entries.width as u64);
    let per_page = 1_u64.checked_shl(entries.page_bits.into()).unwrap_or(u64::MAX);
    if entries.count <= per_page {
        let len = bytes(entries.count).saturating_add(prefix + 4);
        let block = input.checked_block(at, len, what)?;
        Cursor::new(&block, what).signature(signature)?;
        return grid.add_entries(entries.first, &block[prefix as usize..], entries.width, found);
    }
    let pages = entries.count.div_ceil(per_page);
    let own_bits = if entries.used.is_some() { 0 } else { pages.div_ceil(8) };
    let head = input.checked_block(at, prefix.saturating_add(own_bits + 4), what)?;
    Cursor::new(&head, what).signature(signature)?;
    let used = entries.used.unwrap_or(&head[prefix as usize..]);
    let mut at = at.saturating_add(prefix + own_bits + 4);
    for n in 0..pages {
        let done = n * per_page;
        let len = bytes(per_page.min(entries.count - done)).saturating_add(4);
        let bits = used.get((n / 8) as usize).copied().unwrap_or(0);
        if bits & 0x80 >> (n % 8) != 0 {
            let page = input.checked_block(at, len, what)?;
            grid.add_entries(entries.first + done, &page, entries.width, found)?;
        }
        at = at.saturating_add(bytes(per_page).saturating_add(4));
    }
    Ok(())
}

/// An extensible array. An index block holds the first few entries; the others are in data blocks of growing
/// size: level `n` has 2^(n/2) of them, with `smallest` * 2^((n+1)/2) entries each. The index block holds
/// the addresses of the data blocks of the first levels; each further level has a secondary block with
/// their addresses.
fn extensible_array(
    input: &mut Input,
    at: u64,
    grid: &Grid,
    found: &mut Vec<Chunk>,
) -> Result<(), Fault> {
    let what = "an extensible array of chunks";
    let head = input.checked_block(at, 72, what)?;
    let mut cursor = Cursor::new(&head, what);
    cursor.signature(b"EAHD")?;
    cursor.skip(2)?;
    let width = grid.entry_width(cursor.u8()?)?;
    let (number_bits, inline, smallest) = (cursor.u8()?, cursor.u8()?, cursor.u8()?);
    let (direct, page_bits) = (cursor.u8()?, cursor.u8()?);
    cursor.skip(48)?;
    let block = cursor.u64()?;
    if block == UNDEFINED {
        return Ok(());
    }
    if !smallest.is_power_of_two() || !direct.is_power_of_two() || !(8..=64).contains(&number_bits)
    {
        return Err(damaged(what, "its header has wrong sizes"));
    }
    let levels = 1 + u32::from(number_bits).saturating_sub(smallest.ilog2());
    let direct_levels = (2 * direct.ilog2()).min(levels);
    let direct_blocks = 2 * (u64::from(direct) - 1);
    let level_blocks = u64::from(levels - direct_levels);

    let inline_len = u64::from(inline) * width as u64;
    let len = 14 + inline_len + 8 * (direct_blocks + level_blocks) + 4;
    let index = input.checked_block(block, len, what)?;
    let mut cursor = Cursor::new(&index, what);
    cursor.signature(b"EAIB")?;
    cursor.skip(10)?;
    grid.add_entries(0, cursor.take(inline_len as usize)?, width, found)?;

    // Every block begins with signature, version, kind, address of the array's header and its first entry number.
    let prefix = 14 + u64::from(number_bits.div_ceil(8));
    let mut first = u64::from(inline);
    for level in 0..levels {
        let blocks = 1_u64 << (level / 2);
        let count = u64::from(smallest) << level.div_ceil(2);
        // Bytes of the bitmap of used pages for each data block, if the level has pages.
        let mut bits = 0;
        let tail = if level < direct_levels {
            cursor.take(8 * blocks as usize)?.to_vec()
        } else {
            let at = cursor.u64()?;
            if at == UNDEFINED {
                first = first.saturating_add(blocks.saturating_mul(count));
                continue;
            }
            let pages = count.checked_shr(page_bits.into()).unwrap_or(0);
            bits = if pages > 1 { pages.div_ceil(8) } else { 0 };
            let len = blocks.saturating_mul(bits + 8).saturating_add(prefix + 4);
            let mut block = input.checked_block(at, len, what)?;
            Cursor::new(&block, what).signature(b"EASB")?;
            block.split_off(prefix as usize)
        };
        let (used, addresses) = tail.split_at((blocks * bits) as usize);
        let mut addresses = Cursor::new(addresses, what);
        for n in 0..blocks {
            let at = addresses.u64()?;
            if at != UNDEFINED {
                let used = Some(&used[(n * bits) as usize..]);
                let entries = Entries { first, count, width, page_bits, used };
                data_block(input, at, prefix, b"EADB", entries, grid, found)?;
            }
            first = first.saturating_add(count);
        }
    }
    Ok(())
}
