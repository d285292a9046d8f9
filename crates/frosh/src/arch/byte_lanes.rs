//! Bounds for codes of a quantiser, for 64 queries at a time.
//!
//! [`byte_planes`](super::byte_planes) looks up 64 rows in the table of one query. That takes two instructions with
//! AVX-512, and some seventy with AVX2. Here a row is compared with 64 queries: for each byte of its code, a load
//! brings what that byte adds to the sums of all queries.
//!
//! **Layout.** An entry is a [`Line`] with a byte for each query. There are 256 entries for each line of codes: 112 kB
//! for codes of 8 bytes, and 240 kB for 16 bytes, which stay in the second cache.
//!
//! **Saturation.** As in `byte_planes`: sums start at 255 minus a limit and saturate at 255. Every query has a start of
//! its own. A query that starts at 255 takes no part.

use super::byte_planes::LineTable;
use super::isa::{Isa, dispatch_bytes};
use super::nibble_planes::{LINE_ROWS, Line};
use super::vector::ByteVector;
use std::ops::Range;

/// Queries that are compared together.
pub(crate) const LANES: usize = LINE_ROWS;
/// Values of a byte.
const VALUES: usize = 256;

/// The tables of up to 64 queries, interleaved.
pub(crate) struct LaneTables {
    /// For each line and each value of its byte, an entry.
    entries: Vec<Line>,
}

impl LaneTables {
    /// Zeros, for codes with so many lines.
    pub(crate) fn new(lines: usize) -> Self {
        Self { entries: vec![Line([0; LANES]); lines * VALUES] }
    }

    /// Sets the tables of a query.
    pub(crate) fn set(&mut self, lane: usize, tables: &[LineTable]) {
        assert!(lane < LANES && tables.len() * VALUES == self.entries.len());
        for (entry, byte) in self.entries.iter_mut().zip(tables.as_flattened()) {
            entry.0[lane] = *byte;
        }
    }
}

/// The first of these rows whose sum ends below 255 for a query, and a bit for each such query. The end of `rows` if
/// there is none. `lines` are groups of 64 rows, as in [`byte_planes`](super::byte_planes).
#[inline]
pub(crate) fn first_below_255(
    isa: Isa,
    tables: &LaneTables,
    lines: &[Line],
    rows: Range<usize>,
    starts: &Line,
) -> (usize, u64) {
    let per_group = tables.entries.len() / VALUES;
    assert!(per_group > 0 && rows.end.div_ceil(LINE_ROWS) * per_group <= lines.len());
    let entries = &tables.entries[..];
    dispatch_bytes!(isa, below or plain(
        entries: &[Line], lines: &[Line], rows: Range<usize>, starts: &Line
    ) -> (usize, u64))
}

#[inline(always)]
unsafe fn below<B: ByteVector>(
    entries: &[Line],
    lines: &[Line],
    rows: Range<usize>,
    starts: &Line,
) -> (usize, u64) {
    let per_group = entries.len() / VALUES;
    // SAFETY: the caller has the features; so below.
    let starts = unsafe { B::load(starts) };
    let mut row = rows.start;
    while row < rows.end {
        let group = row / LINE_ROWS;
        let last = rows.end.min((group + 1) * LINE_ROWS);
        let own = &lines[group * per_group..(group + 1) * per_group];
        while row < last {
            let mut sums = starts;
            for (line, entries) in own.iter().zip(entries.chunks_exact(VALUES)) {
                let value = usize::from(line.0[row % LINE_ROWS]);
                // SAFETY: see above.
                sums = unsafe { sums.saturating_add(B::load(&entries[value])) };
            }
            // SAFETY: see above.
            let mask = unsafe { sums.not_255() };
            if mask != 0 {
                return (row, mask);
            }
            row += 1;
        }
    }
    (rows.end, 0)
}

/// The scalar twin.
fn plain(entries: &[Line], lines: &[Line], rows: Range<usize>, starts: &Line) -> (usize, u64) {
    let per_group = entries.len() / VALUES;
    for row in rows.clone() {
        let own = &lines[row / LINE_ROWS * per_group..][..per_group];
        let mask = (0..LANES).fold(0, |mask, lane| {
            let each = own.iter().zip(entries.chunks_exact(VALUES));
            let sum = each.fold(starts.0[lane], |sum, (line, entries)| {
                sum.saturating_add(entries[usize::from(line.0[row % LINE_ROWS])].0[lane])
            });
            mask | u64::from(sum < 255) << lane
        });
        if mask != 0 {
            return (row, mask);
        }
    }
    (rows.end, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream};

    #[test]
    fn every_instruction_set_equals_the_definition() {
        let mut stream = Stream::new(4, Purpose::Sample, 0, 0);
        for (count, groups) in [(1, 3), (2, 1), (7, 4), (15, 2)] {
            let mut byte = |most: u64| stream.below(most) as u8;
            let lines: Vec<Line> =
                (0..count * groups).map(|_| Line(std::array::from_fn(|_| byte(256)))).collect();
            // Small tables, so that many rows stay below 255, and larger ones, of which few do.
            for most in [3, (512 / count as u64 + 1).min(256), 256] {
                let tables: Vec<Vec<LineTable>> = (0..LANES)
                    .map(|_| (0..count).map(|_| std::array::from_fn(|_| byte(most))).collect())
                    .collect();
                // Queries at the end take no part.
                let starts = Line(std::array::from_fn(|q| if q > 60 { 255 } else { byte(255) }));
                let mut lanes = LaneTables::new(count);
                for (lane, tables) in tables.iter().enumerate() {
                    lanes.set(lane, tables);
                }
                let mask = |row: usize| -> u64 {
                    let lines = &lines[row / LINE_ROWS * count..][..count];
                    let total = |query: usize| {
                        let of = |(line, table): (&Line, &LineTable)| {
                            u32::from(table[usize::from(line.0[row % LINE_ROWS])])
                        };
                        u32::from(starts.0[query])
                            + lines.iter().zip(&tables[query]).map(of).sum::<u32>()
                    };
                    (0..LANES).map(|query| u64::from(total(query) < 255) << query).sum()
                };
                for isa in Isa::every() {
                    for rows in [0..groups * LINE_ROWS, 5..groups * LINE_ROWS - 9, 7..7] {
                        let mut row = rows.start;
                        while row < rows.end {
                            let (next, got) =
                                first_below_255(isa, &lanes, &lines, row..rows.end, &starts);
                            assert!((row..next).all(|row| mask(row) == 0), "{isa:?}");
                            if next < rows.end {
                                assert_eq!(got, mask(next), "{isa:?}, {count} lines, row {next}");
                                assert_ne!(got, 0);
                            }
                            row = next + 1;
                        }
                        assert!(rows.is_empty() || row >= rows.end);
                    }
                }
            }
        }
    }
}
