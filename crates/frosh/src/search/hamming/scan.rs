//! The exact scan: compares every row with every query.
//!
//! The search is split into tasks. A task has some of the queries and some of the rows. It reads its rows in blocks that
//! fit a cache and compares each block with all its queries, so each row is read from memory once. A few queries are
//! compared with the stored rows ([`seek`]); many are compared with rows transposed into nibble [planes](super::planes).
//! Tasks with the same queries share the k-th smallest distance, which prunes rows in the other tasks.

use super::best::{Best, Neighbour, nearest};
use super::planes::{Planes, Quad};
use crate::arch::Isa;
use crate::arch::hamming::{GroupOrder, Table, masked_distances, seek};
use crate::arch::nibble_planes::LINE_ROWS;
use crate::pool::Pool;
use roaring::RoaringTreemap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// Smallest number of queries for which transposing the rows is faster.
pub(super) const MIN_PLANE_QUERIES: usize = 16;
/// If each thread gets at least this many queries, queries are split among threads; otherwise rows are.
const MIN_THREAD_QUERIES: usize = 64;
/// Smallest number of rows of a task, if rows are split.
const MIN_TASK_ROWS: usize = 1 << 14;
/// Bytes of a block of stored rows: half of a first-level cache.
const BLOCK_BYTES: usize = 1 << 14;
/// Bytes of a block for a single query, which reads each row once: large enough for the streams of [`GroupOrder`].
const SINGLE_QUERY_BLOCK_BYTES: usize = 1 << 20;
/// Bytes of a block of transposed rows. It fits the second-level cache together with the lookup tables.
const PLANE_BLOCK_BYTES: usize = 1 << 16;
/// Bytes of the queries' lookup tables in a task: half of the second-level cache.
const LOOKUP_BYTES: usize = 1 << 18;

/// An exact Hamming search: for each query the `k` nearest rows of `table`, among the allowed rows with a distance below
/// `limit`.
pub(crate) struct Scan<'a> {
    pub(crate) table: Table<'a>,
    pub(crate) queries: Table<'a>,
    pub(crate) k: usize,
    pub(crate) limit: u32,
    pub(crate) allowed: Option<&'a RoaringTreemap>,
}

/// The rows of a task.
#[derive(Clone)]
enum Rows {
    /// All rows in a range.
    Range(Range<usize>),
    /// The allowed rows whose rank in the set is in a range.
    Filtered(Range<u64>),
}

/// Row numbers of a block.
enum Ids<'a> {
    Consecutive(usize),
    List(&'a [u64]),
}

impl Ids<'_> {
    fn of(&self, row: usize) -> u64 {
        match self {
            Ids::Consecutive(first) => (first + row) as u64,
            Ids::List(list) => list[row],
        }
    }
}

impl Scan<'_> {
    /// Runs the search. Returns one list for each query, sorted by distance, then by row number.
    pub(crate) fn search(&self, pool: &Pool) -> Vec<Vec<Neighbour>> {
        self.search_with(Isa::detect(), pool)
    }

    pub(super) fn search_with(&self, isa: Isa, pool: &Pool) -> Vec<Vec<Neighbour>> {
        assert_eq!(self.table.width(), self.queries.width());
        let count = self.queries.len();
        if self.k == 0 || self.limit == 0 || self.table.len() == 0 || count == 0 {
            return vec![Vec::new(); count];
        }
        let (chunk, spans) = self.split(pool.threads());
        let limits: Vec<AtomicU32> = (0..count).map(|_| AtomicU32::new(u32::MAX)).collect();
        let found: Vec<Mutex<Vec<Neighbour>>> = (0..count).map(|_| Mutex::default()).collect();
        let chunks = (0..count).step_by(chunk).map(|q| q..count.min(q + chunk));
        let tasks = chunks.flat_map(|q| spans.iter().map(move |rows| (q.clone(), rows.clone())));
        pool.each(tasks.collect(), |(queries, rows)| {
            let bests = self.run_task(isa, queries.clone(), rows, &limits[queries.clone()]);
            for (best, found) in bests.into_iter().zip(&found[queries]) {
                found.lock().expect("no thread panics").append(&mut best.into_kept());
            }
        });
        let found = found.into_iter();
        found.map(|found| nearest(found.into_inner().expect("as above"), self.k)).collect()
    }

    /// Splits the search: the number of queries of a task, and the rows of each task.
    fn split(&self, threads: usize) -> (usize, Vec<Rows>) {
        let (count, rows) = (self.queries.len(), self.table.len());
        let max_queries =
            (LOOKUP_BYTES / (Quad::BYTES * self.queries.width())).max(MIN_THREAD_QUERIES);
        let split_queries = count >= MIN_THREAD_QUERIES * threads;
        let chunks =
            count.div_ceil(max_queries).next_multiple_of(if split_queries { threads } else { 1 });
        let chunk = count.div_ceil(chunks).next_multiple_of(4);
        let pieces = |total: usize| {
            let pieces = if split_queries || threads == 1 { 1 } else { 4 * threads };
            let size = total.div_ceil(pieces).max(MIN_TASK_ROWS);
            (0..total).step_by(size).map(move |from| from..total.min(from + size))
        };
        let Some(allowed) = self.allowed else {
            return (chunk, pieces(rows).map(Rows::Range).collect());
        };
        // Copying an allowed row out of the table costs about as much as comparing it with eight queries.
        let filtered = allowed.rank(rows as u64 - 1);
        if filtered as f64 * (count + 8) as f64 >= rows as f64 * count as f64 {
            return (chunk, pieces(rows).map(Rows::Range).collect());
        }
        let ranks = |r: Range<usize>| Rows::Filtered(r.start as u64..r.end as u64);
        (chunk, pieces(filtered as usize).map(ranks).collect())
    }

    /// Compares some queries with some rows. `limits` are shared with the other tasks of these queries.
    fn run_task(
        &self,
        isa: Isa,
        queries: Range<usize>,
        rows: Rows,
        limits: &[AtomicU32],
    ) -> Vec<Best> {
        let width = self.table.width();
        let queries = self.queries.part(queries.start, queries.end);
        let use_planes = isa.has_nibble_lookup() && queries.len() >= MIN_PLANE_QUERIES;
        let mut task = Task {
            isa,
            queries,
            bests: (0..queries.len()).map(|_| Best::new(self.k, 8 * width, self.limit)).collect(),
            quads: Vec::new(),
            planes: Planes::default(),
            allowed: None,
        };
        if use_planes {
            let quads = (0..queries.len()).step_by(4);
            task.quads =
                quads.map(|q| Quad::new(queries.part(q, queries.len().min(q + 4)))).collect();
        }
        let height = match (use_planes, queries.len()) {
            (true, _) => (PLANE_BLOCK_BYTES / (2 * width * LINE_ROWS)).max(1) * LINE_ROWS,
            (_, 1) => (SINGLE_QUERY_BLOCK_BYTES / width).max(1),
            _ => (BLOCK_BYTES / width).max(64),
        };
        match rows {
            Rows::Range(rows) => {
                task.allowed = self.allowed;
                for from in rows.clone().step_by(height) {
                    let block = self.table.part(from, rows.end.min(from + height));
                    task.compare_block(block, Ids::Consecutive(from), limits);
                }
            }
            Rows::Filtered(ranks) => {
                let allowed = self.allowed.expect("rows are filtered from a set");
                let mut ids = allowed.iter();
                ids.advance_to(allowed.select(ranks.start).expect("a rank of the set"));
                let (mut list, mut bytes) = (Vec::new(), Vec::new());
                let mut left = (ranks.end - ranks.start) as usize;
                while left > 0 {
                    list.clear();
                    list.extend(ids.by_ref().take(height.min(left)));
                    left -= list.len();
                    bytes.clear();
                    for id in &list {
                        bytes.extend_from_slice(self.table.row(*id as usize));
                    }
                    task.compare_block(Table::new(&bytes, width), Ids::List(&list), limits);
                }
            }
        }
        task.bests
    }
}

/// State of a task.
struct Task<'a> {
    isa: Isa,
    queries: Table<'a>,
    bests: Vec<Best>,
    /// The queries in groups of four, if rows are transposed; otherwise empty.
    quads: Vec<Quad>,
    planes: Planes,
    /// The filter, if blocks also contain rows that are not allowed.
    allowed: Option<&'a RoaringTreemap>,
}

impl Task<'_> {
    /// Compares a block of rows with all queries.
    fn compare_block(&mut self, block: Table<'_>, ids: Ids<'_>, limits: &[AtomicU32]) {
        for (best, limit) in self.bests.iter_mut().zip(limits) {
            // Rows of other tasks may have larger ids, so a row here that ties with their k-th must be kept.
            best.lower_limit(limit.load(Ordering::Relaxed).saturating_add(1));
        }
        if self.quads.is_empty() {
            for q in 0..self.bests.len() {
                self.compare_stored(q, block, &ids);
            }
        } else {
            self.planes.transpose(self.isa, block);
            for q in 0..self.quads.len() {
                self.compare_planes(q, &ids);
            }
        }
        for (best, limit) in self.bests.iter().zip(limits) {
            if let Some(kth) = best.kth_distance() {
                limit.fetch_min(kth, Ordering::Relaxed);
            }
        }
    }

    /// Compares query `q` with the stored rows of a block.
    fn compare_stored(&mut self, q: usize, block: Table<'_>, ids: &Ids<'_>) {
        let query = self.queries.row(q);
        let order = GroupOrder::new(block);
        let before = self.bests[q].limit();
        let (mut limit, mut from) = (before, 0);
        while limit > 0
            && let Some((position, mask)) = seek(self.isa, query, block, from, limit)
        {
            let first = order.first_row(position);
            let mut distances = [0; 64];
            masked_distances(self.isa, query, block, first, mask, &mut distances);
            let near = |best: &Best| best.block_limit(before);
            self.add_rows(q, first, mask, |row| distances[row], ids, near);
            limit = near(&self.bests[q]);
            from = position + 1;
        }
    }

    /// Compares four queries with the transposed rows of a block.
    fn compare_planes(&mut self, quad: usize, ids: &Ids<'_>) {
        let queries = 4 * quad..self.bests.len().min(4 * quad + 4);
        let limits = |bests: &[Best]| {
            let mut limits = [0; 4];
            for (limit, best) in limits.iter_mut().zip(&bests[queries.clone()]) {
                *limit = best.limit();
            }
            limits
        };
        let mut now = limits(&self.bests);
        let mut from = 0;
        while now != [0; 4] {
            let Some(near) = self.planes.seek(self.isa, &self.quads[quad], from, now) else {
                break;
            };
            for (i, mask) in near.masks.into_iter().enumerate().take(queries.len()) {
                let first = near.group * LINE_ROWS;
                let distance = |row| near.distance(i, row);
                self.add_rows(4 * quad + i, first, mask, distance, ids, Best::limit);
            }
            from = near.group + 1;
            now = limits(&self.bests);
        }
    }

    /// Adds the rows `first + i` whose bit i is set in the mask, if the distance is below the limit and the row is allowed.
    #[inline]
    fn add_rows(
        &mut self,
        q: usize,
        first: usize,
        mut mask: u64,
        distance: impl Fn(usize) -> u32,
        ids: &Ids<'_>,
        limit: impl Fn(&Best) -> u32,
    ) {
        let best = &mut self.bests[q];
        while mask != 0 {
            let i = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            let (id, distance) = (ids.of(first + i), distance(i));
            if distance < limit(best) && self.allowed.is_none_or(|set| set.contains(id)) {
                best.add(distance, id);
            }
        }
    }
}
