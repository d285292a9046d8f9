//! The scan or the tables of a [`MultiIndex`], whichever is faster for the work at hand.
//!
//! Which one is depends on the codes (how near the k-th neighbour is), their number and the machine, so it is
//! measured: some queries are answered by the scan. If what is left would take it much longer than making tables
//! does, they are made and tried on some more queries; the faster one answers the rest. Both give the same
//! answers, so the choice is not seen in them.
//!
//! **Cost.** At worst that of the scan and, only where it is a fraction of that, of making the tables.

use super::MultiIndex;
use crate::error::Result;
use crate::pool::Pool;
use crate::search::codes::{Codes, Neighbour};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Queries that each way is tried on.
const TRIAL: usize = 64;
/// Making tables must look so many times cheaper than what is left of the scan.
const GAIN: u32 = 3;
/// Time to put a row into one table, on one thread: sorting by counting, with one cache miss or two.
const BUILD: Duration = Duration::from_nanos(25);

impl Codes {
    /// What [`Codes::nearest_on`] gives, by a [`MultiIndex`] where trials show that it pays to make one: for many
    /// queries against many codes. It may take some 4 bytes a row for each 24 bits of a code, while it works.
    pub fn nearest_by_cost(
        &self,
        pool: &Pool,
        queries: &Codes,
        k: usize,
    ) -> Result<Vec<Vec<Neighbour>>> {
        self.check_same_hasher(queries)?;
        let count = queries.len();
        let tables = u32::try_from(self.bits().div_ceil(24)).unwrap_or(u32::MAX);
        let rows = u32::try_from(self.len()).unwrap_or(u32::MAX);
        if count < 4 * TRIAL || rows == u32::MAX {
            return self.nearest_on(pool, queries, k);
        }
        let clock = Instant::now();
        let mut found = self.nearest_on(pool, &part(queries, 0..TRIAL), k)?;
        let scan = clock.elapsed();
        let left = (count - TRIAL).div_ceil(TRIAL) as u32;
        let build = BUILD.saturating_mul(rows).saturating_mul(tables) / pool.threads() as u32;
        if scan.saturating_mul(left) < build.saturating_mul(GAIN) {
            found.extend(self.nearest_on(pool, &part(queries, TRIAL..count), k)?);
            return Ok(found);
        }
        let index = MultiIndex::new(self, pool)?;
        let clock = Instant::now();
        found.extend(index.nearest_on(pool, self, &part(queries, TRIAL..2 * TRIAL), k)?);
        let rest = part(queries, 2 * TRIAL..count);
        found.extend(match clock.elapsed() < scan {
            true => index.nearest_on(pool, self, &rest, k)?,
            false => self.nearest_on(pool, &rest, k)?,
        });
        Ok(found)
    }
}

/// Some of the codes.
fn part(codes: &Codes, rows: Range<usize>) -> Codes {
    let width = codes.bytes_per_row();
    let bytes = codes.as_bytes()[rows.start * width..rows.end * width].to_vec();
    Codes::new(codes.bits(), codes.hasher(), bytes)
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
            let got = base.nearest_by_cost(&Pool::ONE, &asked, 5).unwrap();
            assert_eq!(got, base.nearest_on(&Pool::ONE, &asked, 5).unwrap());
        }
    }
}
