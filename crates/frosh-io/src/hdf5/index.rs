//! Where the chunks of a data set lie. There are several kinds of index; each becomes one sorted list.
//!
//! A list entry takes 40 bytes. With chunks of the usual size, 16 kB to 1 MB, the list is a few thousandths
//! of the data at most.

use super::bytes::{Cursor, Input, NOWHERE, damaged, unread};
use super::describe::Index;
use super::group;
use crate::error::Fault;

/// The most chunks of a data set: their list takes 40 bytes each. With chunks of 16 kB they hold 128 GB.
const MAX_CHUNKS: usize = 1 << 23;

/// One chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    /// Its place in the grid of chunks: row and column.
    pub(super) place: (u64, u64),
    /// Its address.
    pub(super) at: u64,
    /// Its stored size.
    pub(super) len: u64,
    /// Which filters were left out: one bit each.
    pub(super) without: u32,
}

/// What is known of the chunks before they are looked for.
pub(super) struct Grid {
    /// Rows and columns of a chunk.
    pub(super) chunk: [u64; 2],
    /// Rows and columns of the data set.
    pub(super) shape: [u64; 2],
    /// Rows and columns it may grow to.
    pub(super) limits: [u64; 2],
    /// Bytes of a chunk without filters.
    pub(super) bytes: u64,
    /// Whether chunks are filtered.
    pub(super) filtered: bool,
}

impl Grid {
    /// The place of a chunk that is the n-th of a table.
    fn place(&self, n: u64) -> (u64, u64) {
        let [rows, columns] = [0, 1].map(|i| self.limits[i].div_ceil(self.chunk[i]).max(1));
        if self.limits[1] == NOWHERE {
            // Tables that grow count along the dimension that is unlimited last.
            (n % rows, n / rows)
        } else {
            (n / columns, n % columns)
        }
    }

    /// A whole chunk that was not filtered.
    fn plain(&self, n: u64, at: u64) -> Chunk {
        Chunk { place: self.place(n), at, len: self.bytes, without: 0 }
    }

    /// Adds the entries of a piece of a table, which begins with the `first`-th.
    fn entries(
        &self,
        first: u64,
        table: &[u8],
        width: usize,
        found: &mut Vec<Chunk>,
    ) -> Result<(), Fault> {
        for (n, entry) in (first..).zip(table.chunks_exact(width)) {
            let mut cursor = Cursor::new(entry, "a table of chunks");
            let mut chunk = self.plain(n, cursor.u64()?);
            if self.filtered {
                chunk.len = cursor.uint(width - 12)?;
                chunk.without = cursor.u32()?;
            }
            if chunk.at != NOWHERE {
                found.push(chunk);
                few(found.len() as u64)?;
            }
        }
        Ok(())
    }

    /// Checks the size of a table's entries: an address and, with filters, size (1 to 8 bytes) and filters
    /// left out.
    fn width(&self, width: u8) -> Result<usize, Fault> {
        let fits = if self.filtered { (13..=20).contains(&width) } else { width == 8 };
        if fits {
            Ok(width.into())
        } else {
            Err(damaged("a table of chunks", "entries are of a wrong size"))
        }
    }
}

/// Faults if there are too many chunks.
fn few(chunks: u64) -> Result<(), Fault> {
    if chunks > MAX_CHUNKS as u64 {
        return Err(unread(format!("a data set of more than {MAX_CHUNKS} chunks")));
    }
    Ok(())
}

/// All chunks that the file has, in order of their places.
pub(super) fn chunks(
    input: &mut Input,
    index: Index,
    at: u64,
    grid: &Grid,
) -> Result<Vec<Chunk>, Fault> {
    let mut found = Vec::new();
    match index {
        // Nothing was written.
        _ if at == NOWHERE => {}
        Index::Tree => group::leaves(input, at, 1, 32, |key, at| {
            let mut cursor = Cursor::new(key, "a tree of chunks");
            let (len, without) = (cursor.uint(4)?, cursor.u32()?);
            let place = (cursor.u64()? / grid.chunk[0], cursor.u64()? / grid.chunk[1]);
            found.push(Chunk { place, at, len, without });
            few(found.len() as u64)
        })?,
        Index::Single(None) => found.push(grid.plain(0, at)),
        Index::Single(Some((len, without))) => {
            found.push(Chunk { place: (0, 0), at, len, without });
        }
        Index::Implicit => {
            let [rows, columns] = [0, 1].map(|i| grid.limits[i].div_ceil(grid.chunk[i]));
            let count = rows.checked_mul(columns);
            let len = count.and_then(|count| count.checked_mul(grid.bytes));
            if !len.is_some_and(|len| input.has(at, len)) {
                return Err(damaged("a data set", "its chunks lie beyond the end of the file"));
            }
            few(rows * columns)?;
            found.extend((0..rows * columns).map(|n| grid.plain(n, at + n * grid.bytes)));
        }
        Index::Fixed => fixed(input, at, grid, &mut found)?,
        Index::Growing => growing(input, at, grid, &mut found)?,
    }
    found.sort_unstable_by_key(|chunk| chunk.place);
    Ok(found)
}

/// A table of fixed length: one block of entries or, if there are many, pages of them.
fn fixed(input: &mut Input, at: u64, grid: &Grid, found: &mut Vec<Chunk>) -> Result<(), Fault> {
    let what = "a fixed table of chunks";
    let head = input.summed(at, 28, what)?;
    let mut cursor = Cursor::new(&head, what);
    cursor.signature(b"FAHD")?;
    cursor.skip(2)?;
    let (width, page_bits) = (grid.width(cursor.u8()?)?, cursor.u8()?);
    let (count, block) = (cursor.u64()?, cursor.u64()?);
    if block == NOWHERE {
        return Ok(());
    }
    let piece = Piece { first: 0, count, width, page_bits, used: None };
    page(input, block, 14, b"FADB", piece, grid, found)
}

/// A piece of a table: a run of entries, either behind the block's own few fields or, if they are more
/// than a page, in pages behind it.
struct Piece<'a> {
    first: u64,
    count: u64,
    width: usize,
    page_bits: u8,
    /// Which pages are in use, one bit each, highest first; `None`: the block itself tells.
    used: Option<&'a [u8]>,
}

/// Reads the block at `at`, whose own fields take `prefix` bytes.
fn page(
    input: &mut Input,
    at: u64,
    prefix: u64,
    signature: &[u8; 4],
    piece: Piece<'_>,
    grid: &Grid,
    found: &mut Vec<Chunk>,
) -> Result<(), Fault> {
    let what = "a table of chunks";
    let bytes = |entries: u64| entries.saturating_mul(piece.width as u64);
    let per_page = 1_u64.checked_shl(piece.page_bits.into()).unwrap_or(u64::MAX);
    if piece.count <= per_page {
        let len = bytes(piece.count).saturating_add(prefix + 4);
        let block = input.summed(at, len, what)?;
        Cursor::new(&block, what).signature(signature)?;
        return grid.entries(piece.first, &block[prefix as usize..], piece.width, found);
    }
    let pages = piece.count.div_ceil(per_page);
    let own_bits = if piece.used.is_some() { 0 } else { pages.div_ceil(8) };
    let head = input.summed(at, prefix.saturating_add(own_bits + 4), what)?;
    Cursor::new(&head, what).signature(signature)?;
    let used = piece.used.unwrap_or(&head[prefix as usize..]);
    let mut at = at.saturating_add(prefix + own_bits + 4);
    for n in 0..pages {
        let done = n * per_page;
        let len = bytes(per_page.min(piece.count - done)).saturating_add(4);
        let bits = used.get((n / 8) as usize).copied().unwrap_or(0);
        if bits & 0x80 >> (n % 8) != 0 {
            let entries = input.summed(at, len, what)?;
            grid.entries(piece.first + done, &entries, piece.width, found)?;
        }
        at = at.saturating_add(bytes(per_page).saturating_add(4));
    }
    Ok(())
}

/// A table that can grow: the first few entries, then blocks of them that become larger and larger.
/// Level `n` has 2^(n/2) blocks of `smallest` * 2^((n+1)/2) entries. The index block holds the addresses
/// of the blocks of the first levels; further levels have a block each for these addresses.
fn growing(input: &mut Input, at: u64, grid: &Grid, found: &mut Vec<Chunk>) -> Result<(), Fault> {
    let what = "a growing table of chunks";
    let head = input.summed(at, 72, what)?;
    let mut cursor = Cursor::new(&head, what);
    cursor.signature(b"EAHD")?;
    cursor.skip(2)?;
    let width = grid.width(cursor.u8()?)?;
    let (number_bits, inline, smallest) = (cursor.u8()?, cursor.u8()?, cursor.u8()?);
    let (direct, page_bits) = (cursor.u8()?, cursor.u8()?);
    cursor.skip(48)?;
    let block = cursor.u64()?;
    if block == NOWHERE {
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
    let index = input.summed(block, len, what)?;
    let mut cursor = Cursor::new(&index, what);
    cursor.signature(b"EAIB")?;
    cursor.skip(10)?;
    grid.entries(0, cursor.take(inline_len as usize)?, width, found)?;

    // Every block begins with signature, version, kind, address of the header and its first number.
    let prefix = 14 + u64::from(number_bits.div_ceil(8));
    let mut first = u64::from(inline);
    for level in 0..levels {
        let blocks = 1_u64 << (level / 2);
        let count = u64::from(smallest) << level.div_ceil(2);
        // Bytes that tell which pages of a block are in use, if its level has pages.
        let mut bits = 0;
        let tail = if level < direct_levels {
            cursor.take(8 * blocks as usize)?.to_vec()
        } else {
            let at = cursor.u64()?;
            if at == NOWHERE {
                first = first.saturating_add(blocks.saturating_mul(count));
                continue;
            }
            let pages = count.checked_shr(page_bits.into()).unwrap_or(0);
            bits = if pages > 1 { pages.div_ceil(8) } else { 0 };
            let len = blocks.saturating_mul(bits + 8).saturating_add(prefix + 4);
            let mut block = input.summed(at, len, what)?;
            Cursor::new(&block, what).signature(b"EASB")?;
            block.split_off(prefix as usize)
        };
        let (used, addresses) = tail.split_at((blocks * bits) as usize);
        let mut addresses = Cursor::new(addresses, what);
        for n in 0..blocks {
            let at = addresses.u64()?;
            if at != NOWHERE {
                let used = Some(&used[(n * bits) as usize..]);
                let piece = Piece { first, count, width, page_bits, used };
                page(input, at, prefix, b"EADB", piece, grid, found)?;
            }
            first = first.saturating_add(count);
        }
    }
    Ok(())
}
