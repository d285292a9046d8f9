//! Multi-index hashing: exact neighbours without looking at every code, where near ones exist.
//!
//! **Definition.** Cut the codes into m strings of bits. If two codes differ in at most r = m a + j bits (0
//! <= j < m), then one of the first j + 1 strings differs in at most a bits, or another one in at most a -
//! 1: otherwise they would differ in (j + 1)(a + 1) + (m - j - 1) a = r + 1 bits or more. So with one table
//! per string, from values to rows, look up for a = 0, 1, ... and j = 0, 1, ... all values of string j at
//! distance a from the query's. After step (a, j) every code within m a + j is known; the search ends when
//! k of them are. (Norouzi, Punjani, Fleet, *Fast Exact Search in Hamming Space with Multi-Index Hashing*,
//! 2014.)
//!
//! **Where we differ.** A row that turns up more than once is told from its code (was one of the strings
//! nearer, or as near and earlier?), not from a bitmap of rows, so a query needs no memory that grows with
//! the codes. Tables are plain arrays: offsets of all values, then rows. The cost of each next step is
//! known before it is taken; when it would exceed that of the scan, the scan answers, so a query takes at
//! most about twice as long as [`Codes::nearest`]. Answers are the same, ties included.
//!
//! **Cost.** Strings have about log2(n) bits, at most 24: 4 m bytes a row, and 4 bytes for each value of
//! each string. The gain is large where the k-th neighbour is near (clusters, duplicates), and none where
//! codes look random: at 64 bits and 10 million codes, a k-th distance of up to about 8 is fast.
//!
//! ```
//! use frosh::{Config, MultiIndex, Rows, Sketcher};
//! # let rows: Vec<f32> = (0..32_000).map(|i| ((i * 7919) % 113) as f32).collect();
//! # let mut sketcher = Sketcher::new(Config::new(32).sketch_rows(32))?;
//! # sketcher.push(Rows::new(&rows, 32)?)?;
//! # let codes = sketcher.finish().hasher(16)?.encode(Rows::new(&rows, 32)?)?;
//! let index = MultiIndex::new(&codes)?;
//! assert_eq!(index.nearest(&codes, 3)?, codes.nearest(&codes, 3)?);
//! # Ok::<(), frosh::Error>(())
//! ```

use super::IdSet;
use super::best::Neighbour;
use super::scan::{MIN_PLANE_QUERIES, Scan};
use crate::arch::hamming::{Table, listed_distances};
use crate::arch::{Isa, prefetch};
use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::search::codes::Codes;
use crate::search::options::{Hit, QuerySet, Search};
use crate::search::ranking::Ranking;
use std::collections::BinaryHeap;

/// Bits of a string at most.
const LONGEST: usize = 24;
/// Values that are looked up together, so that their memory accesses overlap.
const TOGETHER: usize = 64;
/// Nanoseconds: of looking up a value, of comparing a row that was found, and of scanning a byte of a code,
/// for one query alone and for one of many. Measured on Zen 3, 10 million codes; only their ratios matter.
const LOOKUP: f64 = 12.0;
const COMPARE: f64 = 12.0;
const SCAN_ALONE: f64 = 0.07;
const SCAN_MANY: f64 = 0.02;

/// Hash tables over [`Codes`] that find exact neighbours by Hamming distance without a scan where they are near.
#[derive(Debug)]
pub struct MultiIndex<'a> {
    codes: &'a Codes,
    strings: Vec<Strings>,
}

/// One string of all codes.
#[derive(Debug)]
struct Strings {
    /// Its first bit, and how many.
    from: usize,
    bits: usize,
    /// Where the rows of each value begin, and the end.
    offsets: Vec<u32>,
    /// Rows by value, then by number.
    rows: Vec<u32>,
}

impl<'a> MultiIndex<'a> {
    /// Builds the tables for some codes, fewer than 2^32.
    pub fn new(codes: &'a Codes) -> Result<Self> {
        let rows = codes.len();
        if u32::try_from(rows).is_err() {
            return Err(Error::setting("rows", rows, "an index holds fewer than 2^32 codes"));
        }
        Ok(Self::build(&Pool::current(), codes))
    }

    /// [`MultiIndex::new`] for a number of codes that was checked.
    pub(super) fn build(pool: &Pool, codes: &'a Codes) -> Self {
        let (rows, bits) = (codes.len(), codes.bits());
        let wanted = (rows.max(2) as f64).log2().clamp(8.0, LONGEST as f64);
        let count = ((bits as f64 / wanted).round() as usize).max(bits.div_ceil(LONGEST));
        let cuts: Vec<usize> = (0..=count).map(|j| (j * bits).div_ceil(count)).collect();
        let mut strings: Vec<Strings> = cuts
            .windows(2)
            .map(|cut| Strings {
                from: cut[0],
                bits: cut[1] - cut[0],
                offsets: Vec::new(),
                rows: Vec::new(),
            })
            .collect();
        pool.each(strings.iter_mut().collect(), |strings| strings.fill(codes.table()));
        Self { codes, strings }
    }

    /// Bytes of memory that the tables take.
    pub fn bytes(&self) -> usize {
        self.strings.iter().map(|s| 4 * (s.offsets.len() + s.rows.len())).sum()
    }

    /// The `k` nearest codes for each query, as [`Codes::nearest`] gives them for queries that are codes.
    pub fn nearest(&self, queries: &impl QuerySet, k: usize) -> Result<Vec<Vec<Hit>>> {
        self.search(queries, &Search::nearest(k).ranking(Ranking::Hamming))
    }

    /// What [`Codes::search`] gives by Hamming distance, which is the only ranking that the tables serve.
    pub fn search(&self, queries: &impl QuerySet, search: &Search<'_>) -> Result<Vec<Vec<Hit>>> {
        let queries = queries.query_codes();
        self.codes.check_same_hasher(queries)?;
        search.check_no_rerank()?;
        if let Some(ranking) = search.ranking.filter(|ranking| *ranking != Ranking::Hamming) {
            return Err(Error::Ranking {
                ranking: ranking.as_str(),
                needs: "a scan of the codes, and hash tables serve Hamming distances only",
                advice: "search the codes themselves",
            });
        }
        let (isa, pool) = (Isa::detect(), Pool::current());
        let Search { k, filter, .. } = *search;
        let (found, _) = self.answer(isa, &pool, queries.table(), k, search.limit(), filter);
        let hit = |n: Neighbour| Hit { id: n.id, distance: n.distance.into() };
        Ok(found.into_iter().map(|list| list.into_iter().map(hit).collect()).collect())
    }

    /// The answers, and how many of them the scan gave.
    pub(super) fn answer(
        &self,
        isa: Isa,
        pool: &Pool,
        queries: Table<'_>,
        k: usize,
        limit: u32,
        allowed: Option<&IdSet>,
    ) -> (Vec<Vec<Neighbour>>, usize) {
        let table = self.codes.table();
        let many = queries.len() >= MIN_PLANE_QUERIES;
        let scan = table.data().len() as f64 * if many { SCAN_MANY } else { SCAN_ALONE };
        let mut found: Vec<Option<Vec<Neighbour>>> = vec![None; queries.len()];
        if k == 0 || limit == 0 {
            return (vec![Vec::new(); queries.len()], 0);
        }
        let jobs = found.iter_mut().enumerate().collect();
        pool.each(jobs, |(q, found): (usize, &mut Option<Vec<Neighbour>>)| {
            *found = self.look_up(isa, queries.row(q), k, limit, allowed, scan);
        });
        let left: Vec<usize> = (0..found.len()).filter(|q| found[*q].is_none()).collect();
        let bytes: Vec<u8> = left.iter().flat_map(|q| queries.row(*q)).copied().collect();
        let queries = Table::new(&bytes, table.width());
        let scan = Scan { table, queries, k, limit, allowed };
        for (q, list) in left.iter().zip(scan.answer_with(isa, pool)) {
            found[*q] = Some(list);
        }
        (found.into_iter().flatten().collect(), left.len())
    }

    /// The `k` nearest of the allowed rows nearer than `limit`, unless the next step would bring the cost above `most`
    /// nanoseconds.
    fn look_up(
        &self,
        isa: Isa,
        query: &[u8],
        k: usize,
        limit: u32,
        allowed: Option<&IdSet>,
        most: f64,
    ) -> Option<Vec<Neighbour>> {
        let (table, rows) = (self.codes.table(), self.codes.len());
        if k >= rows && limit as usize > self.codes.bits() {
            return None;
        }
        let mut best = BinaryHeap::new();
        let (mut near, mut distances) = (Vec::new(), Vec::new());
        let mut spent = 0.0;
        let longest = self.strings.iter().map(|s| s.bits).max().unwrap_or(0);
        for radius in 0..=longest {
            for (j, strings) in self.strings.iter().enumerate() {
                let values = choose(strings.bits, radius);
                let rows_each = rows as f64 / (strings.offsets.len() - 1) as f64;
                if spent + values * (LOOKUP + rows_each * COMPARE) > most {
                    return None;
                }
                spent += values * LOOKUP;
                let mut flips = Flips::new(strings.bits, radius);
                let value = strings.value(query);
                loop {
                    near.clear();
                    if !strings.look_up(table, value, &mut flips, &mut near) {
                        break;
                    }
                    spent += near.len() as f64 * COMPARE;
                    if spent > most {
                        return None;
                    }
                    listed_distances(isa, query, table, &near, &mut distances);
                    for (&id, &distance) in near.iter().zip(&distances) {
                        let found = Neighbour { distance, id: id.into() };
                        let full = best.len() == k;
                        if distance >= limit
                            || full && best.peek().is_some_and(|worst| found > *worst)
                        {
                            continue;
                        }
                        if self.is_first(table.row(id as usize), query, radius as u32, j)
                            && allowed.is_none_or(|set| set.contains(found.id))
                        {
                            best.push(found);
                            if full {
                                best.pop();
                            }
                        }
                    }
                }
                let known = (radius * self.strings.len() + j) as u32;
                let worst = best.peek().filter(|_| best.len() == k);
                if known + 1 >= limit || worst.is_some_and(|worst| worst.distance <= known) {
                    return Some(best.into_sorted_vec());
                }
            }
        }
        Some(best.into_sorted_vec())
    }

    /// Whether step (`radius`, `j`) is the first to find this row.
    fn is_first(&self, row: &[u8], query: &[u8], radius: u32, j: usize) -> bool {
        self.strings.iter().enumerate().all(|(i, s)| {
            let distance = (s.value(row) ^ s.value(query)).count_ones();
            if i < j { distance > radius } else { distance >= radius }
        })
    }
}

impl Strings {
    fn fill(&mut self, table: Table<'_>) {
        self.offsets = vec![0; (1 << self.bits) + 1];
        for i in 0..table.len() {
            let v = self.value(table.row(i)) as usize;
            self.offsets[v + 1] += 1;
        }
        for v in 1..self.offsets.len() {
            self.offsets[v] += self.offsets[v - 1];
        }
        // Each offset runs to the end of its value's rows, which is where the next value's began.
        self.rows = vec![0; table.len()];
        for i in 0..table.len() {
            let v = self.value(table.row(i)) as usize;
            self.rows[self.offsets[v] as usize] = i as u32;
            self.offsets[v] += 1;
        }
        self.offsets.rotate_right(1);
        self.offsets[0] = 0;
    }

    /// This string of a code.
    #[inline]
    fn value(&self, code: &[u8]) -> u32 {
        let first = self.from / 8;
        let word = match code[first..].first_chunk::<4>() {
            Some(bytes) => u32::from_le_bytes(*bytes),
            None => code[first..].iter().rev().fold(0, |word, b| word << 8 | u32::from(*b)),
        };
        // 24 bits and the 7 before them fit 32.
        word >> (self.from % 8) & ((1 << self.bits) - 1)
    }

    /// Adds the rows of the next few values; false when there are no more values.
    fn look_up(
        &self,
        table: Table<'_>,
        value: u32,
        flips: &mut Flips,
        near: &mut Vec<u32>,
    ) -> bool {
        let mut values = [0; TOGETHER];
        let mut count = 0;
        while count < TOGETHER
            && let Some(flip) = flips.next()
        {
            let v = (value ^ flip) as usize;
            prefetch(&self.offsets, v);
            values[count] = v;
            count += 1;
        }
        let mut spans = [(0, 0); TOGETHER];
        for (span, v) in spans.iter_mut().zip(&values[..count]) {
            *span = (self.offsets[*v] as usize, self.offsets[v + 1] as usize);
            prefetch(&self.rows, span.0);
        }
        for (from, to) in &spans[..count] {
            for row in &self.rows[*from..*to] {
                prefetch(table.data(), *row as usize * table.width());
                near.push(*row);
            }
        }
        count > 0
    }
}

/// All numbers below 2^`bits` with a given number of ones, ascending.
struct Flips {
    next: Option<u32>,
    end: u32,
}

impl Flips {
    fn new(bits: usize, ones: usize) -> Self {
        Self { next: (ones <= bits).then(|| (1 << ones) - 1), end: 1 << bits }
    }
}

impl Iterator for Flips {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let now = self.next?;
        // The lowest run of ones: its highest moves up, the others to the bottom.
        let low = now & now.wrapping_neg();
        let up = now + low;
        let next = up | ((now ^ up) / low.max(1)) >> 2;
        self.next = (now > 0 && next < self.end).then_some(next);
        Some(now)
    }
}

/// `ones` of `bits`.
fn choose(bits: usize, ones: usize) -> f64 {
    if ones > bits {
        return 0.0;
    }
    (0..ones).fold(1.0, |c, i| c * (bits - i) as f64 / (i + 1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::codes::HasherId;
    use proptest::prelude::*;

    #[test]
    fn flips_are_all_numbers_with_so_many_ones() {
        for bits in 1..=10 {
            for ones in 0..=bits + 1 {
                let want: Vec<u32> =
                    (0..1 << bits).filter(|x: &u32| x.count_ones() as usize == ones).collect();
                assert_eq!(Flips::new(bits, ones).collect::<Vec<_>>(), want);
                assert_eq!(choose(bits, ones), want.len() as f64);
            }
        }
        assert_eq!(Flips::new(LONGEST, LONGEST).collect::<Vec<_>>(), [(1 << LONGEST) - 1]);
    }

    fn codes(bits: usize, data: Vec<u8>) -> Codes {
        Codes::new(bits, HasherId(1), data)
    }

    /// Codes near a few centres, some of them equal, and queries like them.
    fn clustered() -> impl Strategy<Value = (Codes, Codes)> {
        (1usize..150, 1usize..400, 1usize..12, any::<u64>()).prop_map(|(bits, n, centres, seed)| {
            let mut state = seed | 1;
            let mut word = move || {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                (state >> 33) as usize
            };
            let width = bits.div_ceil(8);
            let centres: Vec<Vec<usize>> =
                (0..centres).map(|_| (0..bits).map(|_| word() & 1).collect()).collect();
            let mut make = |count| {
                let mut data = vec![0u8; count * width];
                for row in data.chunks_exact_mut(width) {
                    let centre = &centres[word() % centres.len()];
                    for (k, bit) in centre.iter().enumerate() {
                        let bit = bit ^ usize::from(word() % 20 == 0);
                        row[k / 8] |= (bit as u8) << (k % 8);
                    }
                }
                codes(bits, data)
            };
            (make(n), make(9))
        })
    }

    proptest! {
        #[test]
        fn answers_are_those_of_the_scan(
            (base, queries) in clustered(), k in 0usize..30, radius in 0u32..200, some in any::<bool>(),
        ) {
            let third: IdSet = (0..400).step_by(3).collect();
            let allowed = some.then_some(&third);
            for limit in [u32::MAX, radius] {
                let table = base.table();
                let scan = Scan { table, queries: queries.table(), k, limit, allowed };
                let want = scan.answer(&Pool::ONE);
                for pool in [Pool::ONE, Pool::new(3).unwrap()] {
                    let index = MultiIndex::build(&pool, &base);
                    for isa in Isa::every() {
                        let got = index.answer(isa, &pool, queries.table(), k, limit, allowed).0;
                        prop_assert_eq!(&got, &want);
                        let tables_serve = k > 0 && limit > 0 && (k < base.len() || limit as usize <= base.bits());
                        for (q, want) in want.iter().enumerate().filter(|_| tables_serve) {
                            // Without a limit on the cost, small sets too are answered by the tables alone.
                            let found = index.look_up(isa, queries.row(q), k, limit, allowed, f64::MAX);
                            prop_assert_eq!(found.as_ref(), Some(want));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn equal_codes_come_by_id() {
        let base = codes(64, [[0u8; 8], [1; 8], [0; 8]].concat().repeat(500));
        let index = MultiIndex::new(&base).unwrap();
        let query = codes(64, vec![0; 8]);
        let found =
            index.look_up(Isa::detect(), query.row(0), 7, u32::MAX, None, f64::MAX).unwrap();
        assert_eq!(found.iter().map(|hit| hit.id).collect::<Vec<_>>(), [0, 2, 3, 5, 6, 8, 9]);
        assert_eq!(index.nearest(&query, 7).unwrap(), base.nearest(&query, 7).unwrap());
    }

    #[test]
    fn options_are_those_of_the_scan_and_what_tables_cannot_do_is_refused() {
        let base = codes(16, vec![7; 40]);
        let index = MultiIndex::new(&base).unwrap();
        for k in [0, 1, 20, 21, usize::MAX] {
            let want = base.nearest(&base, k).unwrap();
            assert_eq!(index.nearest(&base, k).unwrap(), want, "k = {k}");
        }
        let few: IdSet = [3, 8, 99].into_iter().collect();
        for search in [Search::within(2), Search::within(0), Search::nearest(1).filter(&few)] {
            let want = base.search(&base, &search).unwrap();
            assert_eq!(index.search(&base, &search).unwrap(), want, "{search:?}");
        }
        let none = codes(16, Vec::new());
        assert!(index.nearest(&none, 3).unwrap().is_empty());
        let empty = MultiIndex::new(&none).unwrap();
        assert_eq!(empty.nearest(&base, 3).unwrap(), vec![Vec::new(); 20]);
        let other = Codes::new(16, HasherId(2), vec![7; 40]);
        assert!(matches!(index.nearest(&other, 3), Err(Error::OtherHasher { .. })));
        let asymmetric = Search::nearest(3).ranking(Ranking::Asymmetric);
        assert!(matches!(index.search(&base, &asymmetric), Err(Error::Ranking { .. })));
        assert!(index.search(&base, &Search::nearest(3).rerank(2)).is_err());
        assert!(index.bytes() >= 2 * 4 * 20);
    }
}
