//! Chooses between the scan and a temporary [`MultiIndex`] for a batch of queries.
//!
//! Which one is faster depends on the codes (the k-th smallest distance), their number and the machine. So it is measured.
//! The scan runs the first queries. If it would need much longer for the remaining queries than building the tables takes,
//! the tables are built and tried on the next queries. The faster one runs the rest. Both return the same hits.
//!
//! **Cost.** At most that of the scan, and that of building the tables, which is a fraction of the scan.

use super::best::Neighbour;
use super::multi_index::MultiIndex;
use super::scan::Scan;
use crate::arch::Isa;
use crate::pool::Pool;
use crate::search::codes::Codes;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Queries of each trial.
const TRIAL_QUERIES: usize = 64;
/// Tables are built if the rest of the scan would take at least this many times as long as building them.
const MIN_GAIN: u32 = 3;
/// Time to insert a row into one table on one thread: a counting sort with one or two cache misses.
const BUILD_TIME_PER_ENTRY: Duration = Duration::from_nanos(25);

/// Finds the `k` nearest codes, with a temporary [`MultiIndex`] if trials show that it is faster. Its tables take about 4
/// bytes a row for each 24 bits of a code.
pub(crate) fn nearest(pool: &Pool, base: &Codes, queries: &Codes, k: usize) -> Vec<Vec<Neighbour>> {
    let count = queries.len();
    let scan = |part: Range<usize>| {
        let queries = queries.table().part(part.start, part.end);
        Scan { table: base.table(), queries, k, limit: u32::MAX, allowed: None }.search(pool)
    };
    let tables = u32::try_from(base.bits().div_ceil(24)).unwrap_or(u32::MAX);
    let rows = u32::try_from(base.len()).unwrap_or(u32::MAX);
    if count < 4 * TRIAL_QUERIES || rows == u32::MAX {
        return scan(0..count);
    }
    let clock = Instant::now();
    let mut found = scan(0..TRIAL_QUERIES);
    let scan_time = clock.elapsed();
    let left = (count - TRIAL_QUERIES).div_ceil(TRIAL_QUERIES) as u32;
    let build =
        BUILD_TIME_PER_ENTRY.saturating_mul(rows).saturating_mul(tables) / pool.threads() as u32;
    if scan_time.saturating_mul(left) < build.saturating_mul(MIN_GAIN) {
        found.extend(scan(TRIAL_QUERIES..count));
        return found;
    }
    let index = MultiIndex::build(pool, base);
    let look_up = |part: Range<usize>| {
        index
            .search_table(
                Isa::detect(),
                pool,
                queries.table().part(part.start, part.end),
                k,
                u32::MAX,
                None,
            )
            .0
    };
    let clock = Instant::now();
    found.extend(look_up(TRIAL_QUERIES..2 * TRIAL_QUERIES));
    let rest = 2 * TRIAL_QUERIES..count;
    found.extend(if clock.elapsed() < scan_time { look_up(rest) } else { scan(rest) });
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::codes::HasherId;

    #[test]
    fn the_hits_are_those_of_the_scan() {
        let mut state = 1u64;
        let mut byte = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8 & 0x11
        };
        // With few rows the scan runs all queries; with many rows and queries the tables are built and tried.
        for (rows, queries) in [(500, 300), (20_000, 100), (30_000, 3000), (0, 400)] {
            let codes = |n: usize, byte: &mut dyn FnMut() -> u8| {
                Codes::new(32, HasherId(1), (0..4 * n).map(|_| byte()).collect::<Vec<u8>>())
            };
            let (base, query_codes) = (codes(rows, &mut byte), codes(queries, &mut byte));
            let scan = Scan {
                table: base.table(),
                queries: query_codes.table(),
                k: 5,
                limit: u32::MAX,
                allowed: None,
            };
            assert_eq!(nearest(&Pool::ONE, &base, &query_codes, 5), scan.search(&Pool::ONE));
        }
    }
}
