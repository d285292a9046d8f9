//! Batches of queries: rows are transposed into nibble planes once, and then compared with four queries at a time.
//!
//! [`nibble_planes`] has the layout and the kernels. One lookup gives the distances of a nibble for a register of rows and
//! two queries. Counting bits of stored rows takes more than twice as many instructions, and sums across registers at the
//! end. Transposing the rows costs as much as about ten queries.
//!
//! **Early exit.** In a far row about half of the bits differ. So the limit predicts after how many planes all rows of a
//! group exceed it ([`early`]). Most groups are pruned after these planes.

use crate::arch::Isa;
use crate::arch::hamming::Table;
use crate::arch::nibble_planes::{
    self, BYTE_LIMIT, LINE_ROWS, Line, Lookups, Near, PACKED_PLANES, PairTables,
};

/// The lookup tables of four queries, plane by plane.
pub(crate) struct Quad {
    tables: Vec<PairTables>,
}

impl Quad {
    /// Bytes of tables for each byte of a query.
    pub(crate) const BYTES: usize = 16;

    /// Builds the tables of up to four queries.
    pub(crate) fn new(queries: Table<'_>) -> Self {
        assert!(queries.len() <= 4);
        let mut tables = vec![[[0; 16]; 2]; 2 * queries.width()];
        for q in 0..queries.len() {
            for (byte, pair) in queries.row(q).iter().zip(tables.chunks_exact_mut(2)) {
                for (table, nibble) in pair.iter_mut().zip([byte & 15, byte >> 4]) {
                    for (x, entry) in (0..).zip(&mut table[q / 2]) {
                        *entry |= ((x ^ nibble).count_ones() as u8) << (4 * (q % 2));
                    }
                }
            }
        }
        Self { tables }
    }
}

/// A block of rows as nibble planes. All blocks must have the same width.
#[derive(Default)]
pub(crate) struct Planes {
    lines: Vec<Line>,
    rows: usize,
    /// [`early`] for each limit.
    early: Vec<usize>,
}

impl Planes {
    /// Transposes the rows of a table. Replaces the previous block.
    pub(crate) fn transpose(&mut self, isa: Isa, table: Table<'_>) {
        let lines = table.len().div_ceil(LINE_ROWS) * 2 * table.width();
        self.lines.resize(lines, Line([0; LINE_ROWS]));
        self.rows = table.len();
        if self.early.is_empty() {
            self.early = (0..=BYTE_LIMIT).map(|limit| early(limit, 2 * table.width())).collect();
        }
        nibble_planes::transpose(isa, table, &mut self.lines);
    }

    /// For each of up to four queries, a bit mask of the rows of a group whose sum stays below 255. The sum of a row begins
    /// at its start. Two neighbouring planes must not add more than 255 together.
    pub(crate) fn below(
        &self,
        isa: Isa,
        lookups: &Lookups,
        group: usize,
        starts: &[Line; 4],
        queries: usize,
    ) -> [u64; 4] {
        let lines = &self.lines[group * lookups.len()..][..lookups.len()];
        nibble_planes::below_255(isa, lookups, lines, starts, queries)
    }

    /// Finds the first group of [`LINE_ROWS`] rows, from group `from` on, in which a row is below the limit of a query.
    /// Missing queries have the limit 0.
    pub(crate) fn seek(
        &self,
        isa: Isa,
        quad: &Quad,
        from: usize,
        limits: [u32; 4],
    ) -> Option<Near> {
        let early = |limit: u32| self.early[limit.min(BYTE_LIMIT) as usize];
        let early = limits.into_iter().map(early).max().unwrap_or(0);
        let mut near = nibble_planes::seek(isa, &quad.tables, &self.lines, from, limits, early)?;
        let end = (near.group + 1) * LINE_ROWS;
        if end > self.rows {
            let filled = u64::MAX >> (end - self.rows);
            near.masks = near.masks.map(|mask| mask & filled);
        }
        Some(near)
    }
}

/// Number of planes after which all 256 sums of a group (64 rows, 4 queries) have reached the limit with probability 0.9,
/// if each bit of a far row differs with probability 1/2. That is the smallest number of bits b with
/// b/2 - 3.3 sqrt(b)/2 >= limit, as nibbles.
fn early(limit: u32, planes: usize) -> usize {
    let root = (3.3 + (3.3f32 * 3.3 + 8.0 * limit as f32).sqrt()) / 2.0;
    let enough = PACKED_PLANES * (root * root / (4 * PACKED_PLANES) as f32).ceil() as usize;
    // An early check costs time. It is not worth it if it can save only a few planes.
    if enough + planes / 16 < planes { enough } else { planes }
}
