//! Multi-index hashing. [`MultiIndex`] has the definition and the cost.

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

/// Largest number of bits of a substring.
const MAX_SUBSTRING_BITS: usize = 24;
/// Buckets that are looked up together, so that the prefetches overlap.
const LOOKUP_BATCH: usize = 64;
/// Nanoseconds of looking up a bucket, of comparing a candidate, and of scanning a byte of a code for a single query and
/// for a query in a batch. Measured on Zen 3 with 10 million codes; only their ratios matter.
const LOOKUP_NS: f64 = 12.0;
const COMPARE_NS: f64 = 12.0;
const SCAN_BYTE_NS: f64 = 0.07;
const SCAN_BYTE_BATCH_NS: f64 = 0.02;

/// Multi-index hashing: hash tables over substrings of [`Codes`], which find exact neighbours by Hamming distance without
/// a scan if the neighbours are near.
///
/// **Definition.** Each code is cut into m substrings. Each substring has a hash table, which maps a value to a bucket of
/// rows. Let two codes differ in at most r = m a + j bits, 0 <= j < m. Then one of the first j + 1 substrings differs in
/// at most a bits, or one of the others in at most a - 1 bits. Otherwise the codes would differ in at least
/// (j + 1)(a + 1) + (m - j - 1) a = r + 1 bits. The search takes the steps (a, j) for a = 0, 1, ... and j = 0, ..., m - 1.
/// Step (a, j) looks up all values of substring j that differ from the query's in a bits. After step (a, j) all codes
/// within distance m a + j are known. The search ends when k of them are known. (Norouzi, Punjani, Fleet: *Fast Exact
/// Search in Hamming Space with Multi-Index Hashing*, 2014.)
///
/// **Where we differ.** A row can be in the buckets of several steps. Its code shows which step finds it first, so a query
/// needs no bitmap of visited rows. A table is an array of the rows, sorted by value, and an array of offsets. The cost of
/// a step is estimated before the step. If the total would exceed the cost of a scan, the query is answered by a scan. So
/// a query takes at most about twice as long as [`Codes::nearest`]. The hits are the same, ties included.
///
/// **Cost.** A substring has about log2(n) bits for n rows, at most 24. Memory: 4 m bytes a row, and 4 bytes for each
/// possible value of each substring. The speed-up is large if the k-th smallest distance is small (clusters, duplicates),
/// and there is none if the codes look random. At 64 bits and 10 million codes, it is fast for a k-th smallest distance of
/// up to about 8.
///
/// ```
/// use frosh::{Config, MultiIndex, Rows, Sketcher};
/// # let rows: Vec<f32> = (0..32_000).map(|i| ((i * 7919) % 113) as f32).collect();
/// # let mut sketcher = Sketcher::new(Config::new(32).sketch_rows(32))?;
/// # sketcher.push(Rows::new(&rows, 32)?)?;
/// # let codes = sketcher.finish().hasher(16)?.encode(Rows::new(&rows, 32)?)?;
/// let index = MultiIndex::new(&codes)?;
/// assert_eq!(index.nearest(&codes, 3)?, codes.nearest(&codes, 3)?);
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Debug)]
pub struct MultiIndex<'a> {
    codes: &'a Codes,
    tables: Vec<SubstringTable>,
}

/// The hash table of one substring.
#[derive(Debug)]
struct SubstringTable {
    /// The first bit of the substring, and its number of bits.
    from: usize,
    bits: usize,
    /// For each value, the start of its bucket in `rows`; then the end of the last bucket.
    offsets: Vec<u32>,
    /// Row numbers, sorted by value, then by number.
    rows: Vec<u32>,
}

impl<'a> MultiIndex<'a> {
    /// Builds the tables.
    ///
    /// # Errors
    ///
    /// Fails if there are 2^32 codes or more.
    pub fn new(codes: &'a Codes) -> Result<Self> {
        codes.check_bits()?;
        let rows = codes.len();
        if u32::try_from(rows).is_err() {
            return Err(Error::setting("rows", rows, "an index holds fewer than 2^32 codes"));
        }
        Ok(Self::build(&Pool::current(), codes))
    }

    /// [`MultiIndex::new`] without the check of the number of codes.
    pub(super) fn build(pool: &Pool, codes: &'a Codes) -> Self {
        let (rows, bits) = (codes.len(), codes.bits());
        let wanted = (rows.max(2) as f64).log2().clamp(8.0, MAX_SUBSTRING_BITS as f64);
        let count =
            ((bits as f64 / wanted).round() as usize).max(bits.div_ceil(MAX_SUBSTRING_BITS));
        let cuts: Vec<usize> = (0..=count).map(|j| (j * bits).div_ceil(count)).collect();
        let mut tables: Vec<SubstringTable> = cuts
            .windows(2)
            .map(|cut| SubstringTable {
                from: cut[0],
                bits: cut[1] - cut[0],
                offsets: Vec::new(),
                rows: Vec::new(),
            })
            .collect();
        pool.each(tables.iter_mut().collect(), |table| table.fill(codes.table()));
        Self { codes, tables }
    }

    /// Bytes of memory of the tables, without the codes.
    pub fn bytes(&self) -> usize {
        self.tables.iter().map(|s| 4 * (s.offsets.len() + s.rows.len())).sum()
    }

    /// Finds the `k` nearest codes for each query by Hamming distance.
    ///
    /// # Errors
    ///
    /// Fails if the queries are of another model.
    pub fn nearest(&self, queries: &impl QuerySet, k: usize) -> Result<Vec<Vec<Hit>>> {
        self.search(queries, &Search::nearest(k).ranking(Ranking::Hamming))
    }

    /// Searches by Hamming distance. The hits are those of [`Codes::search`] with [`Ranking::Hamming`].
    ///
    /// # Errors
    ///
    /// Fails if the queries are of another model, if the options have another ranking, or if re-ranking is requested.
    pub fn search(&self, queries: &impl QuerySet, search: &Search<'_>) -> Result<Vec<Vec<Hit>>> {
        let queries = queries.query_codes();
        self.codes.check_same_hasher(queries)?;
        search.check_no_rerank()?;
        search.check_probe(false)?;
        if let Some(ranking) = search.ranking.filter(|ranking| *ranking != Ranking::Hamming) {
            return Err(Error::Ranking {
                ranking: ranking.as_str(),
                needs: "a scan of the codes, and hash tables serve Hamming distances only",
                advice: "search the codes themselves",
            });
        }
        let (isa, pool) = (Isa::detect(), Pool::current());
        let Search { k, filter, .. } = *search;
        let (found, _) = self.search_table(isa, &pool, queries.table(), k, search.limit(), filter);
        let hit = |n: Neighbour| Hit { id: n.id, distance: n.distance.into() };
        Ok(found.into_iter().map(|list| list.into_iter().map(hit).collect()).collect())
    }

    /// Searches for each query. Also returns the number of queries that the scan answered.
    pub(super) fn search_table(
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
        let scan_cost =
            table.data().len() as f64 * if many { SCAN_BYTE_BATCH_NS } else { SCAN_BYTE_NS };
        let mut found: Vec<Option<Vec<Neighbour>>> = vec![None; queries.len()];
        if k == 0 || limit == 0 {
            return (vec![Vec::new(); queries.len()], 0);
        }
        let tasks = found.iter_mut().enumerate().collect();
        pool.each(tasks, |(q, found): (usize, &mut Option<Vec<Neighbour>>)| {
            *found = self.look_up(isa, queries.row(q), k, limit, allowed, scan_cost);
        });
        let scanned: Vec<usize> = (0..found.len()).filter(|q| found[*q].is_none()).collect();
        let bytes: Vec<u8> = scanned.iter().flat_map(|q| queries.row(*q)).copied().collect();
        let queries = Table::new(&bytes, table.width());
        let scan = Scan { table, queries, k, limit, allowed };
        for (q, list) in scanned.iter().zip(scan.search_with(isa, pool)) {
            found[*q] = Some(list);
        }
        (found.into_iter().flatten().collect(), scanned.len())
    }

    /// Finds the `k` nearest of the allowed rows below `limit` with the tables. Returns `None` if the cost would exceed
    /// `max_cost` nanoseconds.
    fn look_up(
        &self,
        isa: Isa,
        query: &[u8],
        k: usize,
        limit: u32,
        allowed: Option<&IdSet>,
        max_cost: f64,
    ) -> Option<Vec<Neighbour>> {
        let (table, rows) = (self.codes.table(), self.codes.len());
        if k >= rows && limit as usize > self.codes.bits() {
            return None;
        }
        let mut best = BinaryHeap::new();
        let (mut candidates, mut distances) = (Vec::new(), Vec::new());
        let mut spent = 0.0;
        let longest = self.tables.iter().map(|s| s.bits).max().unwrap_or(0);
        for radius in 0..=longest {
            for (j, substring) in self.tables.iter().enumerate() {
                let values = binomial(substring.bits, radius);
                let rows_each = rows as f64 / (substring.offsets.len() - 1) as f64;
                if spent + values * (LOOKUP_NS + rows_each * COMPARE_NS) > max_cost {
                    return None;
                }
                spent += values * LOOKUP_NS;
                let mut flips = FlipMasks::new(substring.bits, radius);
                let value = substring.value(query);
                loop {
                    candidates.clear();
                    if !substring.look_up(table, value, &mut flips, &mut candidates) {
                        break;
                    }
                    spent += candidates.len() as f64 * COMPARE_NS;
                    if spent > max_cost {
                        return None;
                    }
                    listed_distances(isa, query, table, &candidates, &mut distances);
                    for (&id, &distance) in candidates.iter().zip(&distances) {
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
                let complete_radius = (radius * self.tables.len() + j) as u32;
                let worst = best.peek().filter(|_| best.len() == k);
                if complete_radius + 1 >= limit
                    || worst.is_some_and(|worst| worst.distance <= complete_radius)
                {
                    return Some(best.into_sorted_vec());
                }
            }
        }
        Some(best.into_sorted_vec())
    }

    /// Whether step (`radius`, `j`) is the first to find this row.
    fn is_first(&self, row: &[u8], query: &[u8], radius: u32, j: usize) -> bool {
        self.tables.iter().enumerate().all(|(i, s)| {
            let distance = (s.value(row) ^ s.value(query)).count_ones();
            if i < j { distance > radius } else { distance >= radius }
        })
    }
}

impl SubstringTable {
    fn fill(&mut self, table: Table<'_>) {
        self.offsets = vec![0; (1 << self.bits) + 1];
        for i in 0..table.len() {
            let v = self.value(table.row(i)) as usize;
            self.offsets[v + 1] += 1;
        }
        for v in 1..self.offsets.len() {
            self.offsets[v] += self.offsets[v - 1];
        }
        // Inserting rows moves each offset from the start of its bucket to the end, which is the start of the next one.
        // The rotation below restores the starts.
        self.rows = vec![0; table.len()];
        for i in 0..table.len() {
            let v = self.value(table.row(i)) as usize;
            self.rows[self.offsets[v] as usize] = i as u32;
            self.offsets[v] += 1;
        }
        self.offsets.rotate_right(1);
        self.offsets[0] = 0;
    }

    /// The value of this substring in a code.
    #[inline]
    fn value(&self, code: &[u8]) -> u32 {
        let first = self.from / 8;
        let word = match code[first..].first_chunk::<4>() {
            Some(bytes) => u32::from_le_bytes(*bytes),
            None => code[first..].iter().rev().fold(0, |word, b| word << 8 | u32::from(*b)),
        };
        // A substring has at most 24 bits and starts at most 7 bits into its first byte, so 32 bits hold it.
        word >> (self.from % 8) & ((1 << self.bits) - 1)
    }

    /// Appends the rows of the next [`LOOKUP_BATCH`] buckets. Returns false if no bucket is left.
    fn look_up(
        &self,
        table: Table<'_>,
        value: u32,
        flips: &mut FlipMasks,
        candidates: &mut Vec<u32>,
    ) -> bool {
        let mut values = [0; LOOKUP_BATCH];
        let mut count = 0;
        while count < LOOKUP_BATCH
            && let Some(flip) = flips.next()
        {
            let v = (value ^ flip) as usize;
            prefetch(&self.offsets, v);
            values[count] = v;
            count += 1;
        }
        let mut spans = [(0, 0); LOOKUP_BATCH];
        for (span, v) in spans.iter_mut().zip(&values[..count]) {
            *span = (self.offsets[*v] as usize, self.offsets[v + 1] as usize);
            prefetch(&self.rows, span.0);
        }
        for (from, to) in &spans[..count] {
            for row in &self.rows[*from..*to] {
                prefetch(table.data(), *row as usize * table.width());
                candidates.push(*row);
            }
        }
        count > 0
    }
}

/// Iterates over all numbers below 2^`bits` with a given number of ones, ascending. XOR with such a mask flips that many
/// bits.
struct FlipMasks {
    next: Option<u32>,
    end: u32,
}

impl FlipMasks {
    fn new(bits: usize, ones: usize) -> Self {
        Self { next: (ones <= bits).then(|| (1 << ones) - 1), end: 1 << bits }
    }
}

impl Iterator for FlipMasks {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let now = self.next?;
        // Moves the highest bit of the lowest run of ones up by one, and the other bits of the run to the bottom.
        let low = now & now.wrapping_neg();
        let up = now + low;
        let next = up | ((now ^ up) / low.max(1)) >> 2;
        self.next = (now > 0 && next < self.end).then_some(next);
        Some(now)
    }
}

/// Binomial coefficient: the number of values of `bits` bits with `ones` ones.
fn binomial(bits: usize, ones: usize) -> f64 {
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
                assert_eq!(FlipMasks::new(bits, ones).collect::<Vec<_>>(), want);
                assert_eq!(binomial(bits, ones), want.len() as f64);
            }
        }
        assert_eq!(
            FlipMasks::new(MAX_SUBSTRING_BITS, MAX_SUBSTRING_BITS).collect::<Vec<_>>(),
            [(1 << MAX_SUBSTRING_BITS) - 1]
        );
    }

    fn codes(bits: usize, data: Vec<u8>) -> Codes {
        Codes::new(bits, HasherId(1), data)
    }

    /// Codes near a few centres, some of them equal, and queries near the same centres.
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
        fn hits_are_those_of_the_scan(
            (base, queries) in clustered(), k in 0usize..30, radius in 0u32..200, some in any::<bool>(),
        ) {
            let third: IdSet = (0..400).step_by(3).collect();
            let allowed = some.then_some(&third);
            for limit in [u32::MAX, radius] {
                let table = base.table();
                let scan = Scan { table, queries: queries.table(), k, limit, allowed };
                let want = scan.search(&Pool::ONE);
                for pool in [Pool::ONE, Pool::new(3).unwrap()] {
                    let index = MultiIndex::build(&pool, &base);
                    for isa in Isa::every() {
                        let got = index.search_table(isa, &pool, queries.table(), k, limit, allowed).0;
                        prop_assert_eq!(&got, &want);
                        let tables_serve = k > 0 && limit > 0 && (k < base.len() || limit as usize <= base.bits());
                        for (q, want) in want.iter().enumerate().filter(|_| tables_serve) {
                            // Without a limit on the cost, the tables answer queries on small sets too.
                            let found = index.look_up(isa, queries.row(q), k, limit, allowed, f64::MAX);
                            prop_assert_eq!(found.as_ref(), Some(want));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn equal_codes_are_sorted_by_id() {
        let base = codes(64, [[0u8; 8], [1; 8], [0; 8]].concat().repeat(500));
        let index = MultiIndex::new(&base).unwrap();
        let query = codes(64, vec![0; 8]);
        let found =
            index.look_up(Isa::detect(), query.row(0), 7, u32::MAX, None, f64::MAX).unwrap();
        assert_eq!(found.iter().map(|hit| hit.id).collect::<Vec<_>>(), [0, 2, 3, 5, 6, 8, 9]);
        assert_eq!(index.nearest(&query, 7).unwrap(), base.nearest(&query, 7).unwrap());
    }

    #[test]
    fn options_are_those_of_the_scan_and_unsupported_ones_are_errors() {
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
