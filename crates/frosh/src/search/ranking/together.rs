//! Scans of a cell for many queries at a time.
//!
//! Without AVX-512, to look up the bytes of 64 rows for one query takes about seventy instructions a line. To add what
//! a byte of one row contributes to the sums of 64 queries takes two. So the queries of a batch are compared with a row
//! together, if enough of them have to scan the cell. The bounds are the same, and so are the hits.

use super::cells::{Query, Task};
use crate::arch::Isa;
use crate::arch::byte_lanes::{LANES, LaneTables, first_below_255};
use crate::arch::nibble_planes::{LINE_ROWS, Line};

/// Queries from which on a scan of them all is faster than scans of each. With AVX2 and codes of 8 bytes, a row takes
/// 32 processor cycles for 64 queries, and 3.7 for one.
const MIN_QUERIES: usize = 8;

/// The tables of the queries of a batch.
pub(super) struct Together {
    tables: LaneTables,
    /// The units of the tables. Zero if a query has none yet.
    units: [f64; LANES],
}

impl Together {
    /// For codes with so many lines.
    pub(super) fn new(lines: usize) -> Self {
        Self { tables: LaneTables::new(lines), units: [0.0; LANES] }
    }

    /// Offers the rows of a cell to all queries that have to scan it.
    pub(super) fn scan(&mut self, task: &Task<'_>, all: &mut [Query<'_>], cell: usize) {
        let run = &task.order.runs[cell];
        let mut open = Vec::with_capacity(all.len());
        for (lane, query) in all.iter_mut().enumerate() {
            if query.is_open(task, cell) {
                open.push((lane, query.near_groups(task, run, cell)));
            }
        }
        open.retain(|(_, groups)| !groups.is_empty());
        let from = open.iter().map(|(_, groups)| groups.start).min().unwrap_or(0);
        let to = open.iter().map(|(_, groups)| groups.end).max().unwrap_or(0);
        let apart: usize = open.iter().map(|(_, groups)| groups.len()).sum();
        if apart < MIN_QUERIES * (to - from) {
            open.iter().for_each(|(lane, _)| task.scan(&mut all[*lane], cell));
            return;
        }
        let mut starts = Line([u8::MAX; LANES]);
        for (lane, _) in &open {
            let query = &all[*lane];
            if self.units[*lane] != query.unit {
                self.tables.set(*lane, &query.bytes);
                self.units[*lane] = query.unit;
            }
            starts.0[*lane] = query.start(cell);
        }
        let (mut row, end) = (from * LINE_ROWS, to * LINE_ROWS);
        while row < end {
            let (next, mut mask) =
                first_below_255(Isa::detect(), &self.tables, &task.order.lines, row..end, &starts);
            while mask != 0 {
                let lane = mask.trailing_zeros() as usize;
                mask &= mask - 1;
                let bit = 1 << (next % LINE_ROWS);
                if all[lane].offer_group(task, cell, next / LINE_ROWS, bit) {
                    starts.0[lane] = all[lane].start(cell);
                }
            }
            row = next + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream};
    use crate::search::options::Search;
    use crate::{Config, IdSet, Pool, Rows, Sketcher};

    const DIM: usize = 16;

    /// Rows around some centres, which are `spread` times as far apart as the rows of one.
    fn rows(n: usize, spread: f64) -> Vec<f32> {
        let mut stream = Stream::new(5, Purpose::Sample, 3, 0);
        let centres: Vec<f64> = (0..20 * DIM).map(|_| spread * stream.normal()).collect();
        (0..n * DIM)
            .map(|i| (centres[i / DIM % 20 * DIM + i % DIM] + stream.normal()) as f32)
            .collect()
    }

    /// On every machine, whatever its instructions.
    #[test]
    fn queries_together_find_what_they_find_apart() {
        // Without clusters, most queries scan most cells together; with clusters, few queries scan a cell.
        for spread in [0.0, 8.0] {
            let data = rows(9000, spread);
            let all = Rows::new(&data, DIM).unwrap();
            let mut sketcher = Sketcher::new(Config::new(DIM)).unwrap();
            sketcher.push(all).unwrap();
            let quantizer = sketcher.finish().quantizer(8).unwrap();
            let codes = quantizer.encode(all).unwrap();
            let queries = quantizer.queries(all.slice(0..LANES)).unwrap();
            let tables = queries.quantized.as_ref().unwrap();
            let order = codes.cell_order.get(&codes, tables, &Pool::ONE);
            let some: IdSet = (0..9000).filter(|id| id % 100 == 7).collect();
            for (k, filter) in [(1, None), (10, None), (150, None), (10, Some(&some))] {
                let mut search = Search::nearest(k);
                search.filter = filter;
                let run = |together, count| {
                    let (codes, queries, search) = (&codes, &queries, &search);
                    let task = Task { codes, order, queries, tables, search, together };
                    let found = task.run(0..count, &Pool::ONE, 1);
                    let ids = |found: &Vec<_>| -> Vec<(u64, u32)> {
                        let key = |row: &super::super::Scored| (row.id, row.score.to_bits());
                        found.iter().map(key).collect()
                    };
                    found.iter().map(ids).collect::<Vec<_>>()
                };
                for count in [1, MIN_QUERIES, LANES] {
                    let apart = run(false, count);
                    assert!(apart.iter().all(|found| found.len() == k));
                    assert_eq!(run(true, count), apart, "k = {k}, {count} queries");
                }
            }
        }
    }
}
