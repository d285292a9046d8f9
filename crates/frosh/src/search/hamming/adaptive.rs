//! The scan or the tables of a [`MultiIndex`], whichever is faster for the work at hand.
//!
//! Which one is depends on the codes (how near the k-th neighbour is), their number and the machine, so it is
//! measured: some queries are answered by the scan. If what is left would take it much longer than making tables
//! does, they are made and tried on some more queries; the faster one answers the rest. Both give the same
//! answers, so the choice is not seen in them.
//!
//! **Cost.** At worst that of the scan and, only where it is a fraction of that, of making the tables.

use super::best::Neighbour;
use super::multi_index::MultiIndex;
use super::scan::Scan;
use crate::arch::Isa;
use crate::pool::Pool;
use crate::search::codes::Codes;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Queries that each way is tried on.
const TRIAL: usize = 64;
/// Making tables must look so many times cheaper than what is left of the scan.
const GAIN: u32 = 3;
/// Time to put a row into one table, on one thread: sorting by counting, with one cache miss or two.
const BUILD: Duration = Duration::from_nanos(25);

/// The `k` nearest codes, by a [`MultiIndex`] where trials show that it pays to make one: for many queries against many
/// codes. Its tables take some 4 bytes a row for each 24 bits of a code while it works.
pub(crate) fn nearest(pool: &Pool, base: &Codes, queries: &Codes, k: usize) -> Vec<Vec<Neighbour>> {
    let count = queries.len();
    let scan = |part: Range<usize>| {
        let queries = queries.table().part(part.start, part.end);
        Scan { table: base.table(), queries, k, limit: u32::MAX, allowed: None }.answer(pool)
    };
    let tables = u32::try_from(base.bits().div_ceil(24)).unwrap_or(u32::MAX);
    let rows = u32::try_from(base.len()).unwrap_or(u32::MAX);
    if count < 4 * TRIAL || rows == u32::MAX {
        return scan(0..count);
    }
    let clock = Instant::now();
    let mut found = scan(0..TRIAL);
    let scan_time = clock.elapsed();
    let left = (count - TRIAL).div_ceil(TRIAL) as u32;
    let build = BUILD.saturating_mul(rows).saturating_mul(tables) / pool.threads() as u32;
    if scan_time.saturating_mul(left) < build.saturating_mul(GAIN) {
        found.extend(scan(TRIAL..count));
        return found;
    }
    let index = MultiIndex::build(pool, base);
    let look_up = |part: Range<usize>| {
        index
            .answer(
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
    found.extend(look_up(TRIAL..2 * TRIAL));
    let rest = 2 * TRIAL..count;
    found.extend(if clock.elapsed() < scan_time { look_up(rest) } else { scan(rest) });
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::codes::HasherId;

    #[test]
    fn whichever_way_the_answers_are_those_of_the_scan() {
        let mut state = 1u64;
        let mut byte = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8 & 0x11
        };
        // Few rows: the scan; many rows and queries: tables are made and tried.
        for (rows, queries) in [(500, 300), (20_000, 100), (30_000, 3000), (0, 400)] {
            let codes = |n: usize, byte: &mut dyn FnMut() -> u8| {
                Codes::new(32, HasherId(1), (0..4 * n).map(|_| byte()).collect::<Vec<u8>>())
            };
            let (base, asked) = (codes(rows, &mut byte), codes(queries, &mut byte));
            let scan = Scan {
                table: base.table(),
                queries: asked.table(),
                k: 5,
                limit: u32::MAX,
                allowed: None,
            };
            assert_eq!(nearest(&Pool::ONE, &base, &asked, 5), scan.answer(&Pool::ONE));
        }
    }
}
