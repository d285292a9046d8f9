//! Hamming distances of one query to rows as they are stored, and the search for rows nearer than a limit.
//!
//! The loops are written once, over [`RowBlock`]: an instruction set has one for each width of rows that it is good at.
//! All other widths, and the rows that do not fill a block, go to the scalar twins in [`words`].

mod words;

use super::isa::{Isa, dispatch_bytes, dispatch_popcnt};
use super::vector::{ByteVector, Distances, RowBlock, RowKernel};

pub(crate) use words::distance;
use words::{listed, masked};

/// Rows of a group: [`seek`] compares all of them with the limit before it branches.
pub(crate) const GROUP_ROWS: usize = 32;

/// Sequential streams that [`seek`] interleaves.
const STREAMS: usize = 4;

/// Registers of distances in a group, at most.
const GROUP_BLOCKS: usize = GROUP_ROWS / 4;

/// The order in which [`seek`] reads the groups of a table: four streams, one in each quarter of the table, are
/// interleaved, since caches and memory deliver several streams faster than one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupOrder {
    /// Groups; the last may be smaller.
    groups: usize,
    /// Groups that are whole.
    whole: usize,
}

impl GroupOrder {
    pub(crate) fn new(table: Table<'_>) -> Self {
        Self { groups: table.len().div_ceil(GROUP_ROWS), whole: table.len() / GROUP_ROWS }
    }

    /// The first row of the group at a position of this order.
    #[inline(always)]
    pub(crate) fn first_row(&self, position: usize) -> usize {
        let quarter = self.whole / STREAMS;
        let group = if position < STREAMS * quarter {
            position % STREAMS * quarter + position / STREAMS
        } else {
            position
        };
        group * GROUP_ROWS
    }
}

/// Codes one after the other, `width` bytes each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table<'a> {
    data: &'a [u8],
    width: usize,
}

impl<'a> Table<'a> {
    /// Whole rows of `width` bytes.
    pub(crate) fn new(data: &'a [u8], width: usize) -> Self {
        assert!(width > 0 && data.len().is_multiple_of(width), "whole rows");
        Self { data, width }
    }

    pub(crate) fn len(&self) -> usize {
        self.data.len() / self.width
    }

    pub(crate) fn width(&self) -> usize {
        self.width
    }

    pub(crate) fn data(&self) -> &'a [u8] {
        self.data
    }

    pub(crate) fn row(&self, i: usize) -> &'a [u8] {
        &self.data[i * self.width..(i + 1) * self.width]
    }

    /// Rows `from..to`.
    pub(crate) fn part(&self, from: usize, to: usize) -> Self {
        Self { data: &self.data[from * self.width..to * self.width], width: self.width }
    }
}

/// Writes the distance of every row of the table.
#[inline]
pub(crate) fn distances(isa: Isa, query: &[u8], table: Table<'_>, out: &mut [u32]) {
    assert!(query.len() == table.width && out.len() == table.len());
    dispatch_bytes!(isa, distances_by or distances_plain(
        query: &[u8], table: Table<'_>, out: &mut [u32]
    ) -> ())
}

/// Writes the distances of those of the 64 rows after `first` whose bit is set.
#[inline]
pub(crate) fn masked_distances(
    isa: Isa,
    query: &[u8],
    table: Table<'_>,
    first: usize,
    mask: u64,
    out: &mut [u32; 64],
) {
    assert!(query.len() == table.width);
    dispatch_popcnt!(isa, masked(
        query: &[u8], table: Table<'_>, first: usize, mask: u64, out: &mut [u32; 64]
    ) -> ())
}

/// Replaces what is in `out` by the distances of these rows.
#[inline]
pub(crate) fn listed_distances(
    isa: Isa,
    query: &[u8],
    table: Table<'_>,
    rows: &[u32],
    out: &mut Vec<u32>,
) {
    assert!(query.len() == table.width);
    dispatch_popcnt!(isa, listed(
        query: &[u8], table: Table<'_>, rows: &[u32], out: &mut Vec<u32>
    ) -> ())
}

/// Searches the groups of [`GROUP_ROWS`] rows in [`GroupOrder`], from position `from` on, for the first with a row nearer
/// than `limit`. Returns its position, and a bit for each such row in it.
#[inline]
pub(crate) fn seek(
    isa: Isa,
    query: &[u8],
    table: Table<'_>,
    from: usize,
    limit: u32,
) -> Option<(usize, u64)> {
    assert!(query.len() == table.width);
    dispatch_bytes!(isa, seek_by or seek_plain(
        query: &[u8], table: Table<'_>, from: usize, limit: u32
    ) -> Option<(usize, u64)>)
}

// The twins are not inlined, so that the functions above are small and are.

#[inline(never)]
fn distances_plain(query: &[u8], table: Table<'_>, out: &mut [u32]) {
    words::distances(query, table, out);
}

#[inline(never)]
fn seek_plain(query: &[u8], table: Table<'_>, from: usize, limit: u32) -> Option<(usize, u64)> {
    words::seek(query, table, from, limit)
}

/// The arguments of [`distances`].
struct Each<'a> {
    query: &'a [u8],
    table: Table<'a>,
    out: &'a mut [u32],
}

#[inline(always)]
unsafe fn distances_by<B: ByteVector>(query: &[u8], table: Table<'_>, out: &mut [u32]) {
    // Checked a second time, so that the compiler knows the table's width where it knows the query's.
    assert!(query.len() == table.width && out.len() == table.len());
    // SAFETY: the caller has the features.
    unsafe { B::with_row_block(query.len(), Each { query, table, out }) }
}

impl RowKernel for Each<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<R: RowBlock>(self) {
        let Self { query, table, out } = self;
        let whole = table.len() / R::Distances::ROWS * R::Distances::ROWS;
        // SAFETY: the caller has the features; rows up to `whole` are in the table, and `out` is as long.
        unsafe {
            let block = R::new(query);
            for i in (0..whole).step_by(R::Distances::ROWS) {
                let distances = block.distances(table.data.as_ptr().add(i * table.width));
                distances.store(out.as_mut_ptr().add(i));
            }
        }
        words::distances(query, table.part(whole, table.len()), &mut out[whole..]);
    }

    #[inline(always)]
    fn plain(self) {
        words::distances(self.query, self.table, self.out);
    }
}

/// The arguments of [`seek`].
struct Seek<'a> {
    query: &'a [u8],
    table: Table<'a>,
    from: usize,
    limit: u32,
}

#[inline(always)]
unsafe fn seek_by<B: ByteVector>(
    query: &[u8],
    table: Table<'_>,
    from: usize,
    limit: u32,
) -> Option<(usize, u64)> {
    // See `distances_by`.
    assert!(query.len() == table.width);
    // SAFETY: the caller has the features.
    unsafe { B::with_row_block(query.len(), Seek { query, table, from, limit }) }
}

impl RowKernel for Seek<'_> {
    type Output = Option<(usize, u64)>;

    #[inline(always)]
    unsafe fn run<R: RowBlock>(self) -> Option<(usize, u64)> {
        let Self { query, table, from, limit } = self;
        let order = GroupOrder::new(table);
        // SAFETY: the caller has the features; only whole groups of the table are read.
        unsafe {
            let block = R::new(query);
            let limits = R::Distances::splat(limit);
            for position in from..order.whole {
                let rows = table.data.as_ptr().add(order.first_row(position) * table.width);
                let mut blocks = [limits; GROUP_BLOCKS];
                let blocks = &mut blocks[..GROUP_ROWS / R::Distances::ROWS];
                for (i, distances) in blocks.iter_mut().enumerate() {
                    *distances = block.distances(rows.add(i * R::Distances::ROWS * table.width));
                }
                let mask = R::Distances::below(blocks, limits);
                if mask != 0 {
                    return Some((position, mask));
                }
            }
        }
        words::seek(query, table, from.max(order.whole), limit)
    }

    #[inline(always)]
    fn plain(self) -> Option<(usize, u64)> {
        words::seek(self.query, self.table, self.from, self.limit)
    }
}
