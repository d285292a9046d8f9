//! The exact search: every row is compared with every query, as few bytes moved as possible.
//!
//! Work is cut into tasks, each some queries and some rows. A task goes over its rows in blocks that stay
//! in a cache and shows each block to all its queries, so rows come from memory once. A few
//! queries are compared with rows as they are stored ([`seek`]), many with rows transposed into
//! nibble [planes](super::planes). Tasks with the same queries tell each other how near the k-th row is.

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

/// From so many queries on, it pays to transpose rows.
pub(super) const MIN_PLANE_QUERIES: usize = 16;
/// Queries that each thread must have, before queries are split among threads rather than rows.
const MIN_THREAD_QUERIES: usize = 64;
/// Rows that a task must have, where rows are split.
const MIN_TASK_ROWS: usize = 1 << 14;
/// Bytes of a block of rows as they are stored: half of a first-level cache.
const BLOCK_BYTES: usize = 1 << 14;
/// Bytes of a block for a single query, which reads each row once: large enough for the streams of [`GroupOrder`].
const SINGLE_QUERY_BLOCK_BYTES: usize = 1 << 20;
/// Bytes of a block of transposed rows, which a second-level cache holds beside the lookup tables.
const PLANE_BLOCK_BYTES: usize = 1 << 16;
/// Bytes of the queries' lookup tables in a task: half of the second-level cache.
const LOOKUP_BYTES: usize = 1 << 18;

/// An exact Hamming search: the `k` rows of `table` nearest to each query, of those nearer than `limit` and allowed.
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
    /// These, one after the other.
    Span(Range<usize>),
    /// Allowed ones, by their rank in the set.
    Picked(Range<u64>),
}

/// Row numbers of a block.
enum Ids<'a> {
    From(usize),
    List(&'a [u64]),
}

impl Ids<'_> {
    fn of(&self, row: usize) -> u64 {
        match self {
            Ids::From(first) => (first + row) as u64,
            Ids::List(list) => list[row],
        }
    }
}

impl Scan<'_> {
    /// The answers, in the order of the queries; each ordered by distance, then by row.
    pub(crate) fn answer(&self, pool: &Pool) -> Vec<Vec<Neighbour>> {
        self.answer_with(Isa::detect(), pool)
    }

    pub(super) fn answer_with(&self, isa: Isa, pool: &Pool) -> Vec<Vec<Neighbour>> {
        assert_eq!(self.table.width(), self.queries.width());
        let count = self.queries.len();
        if self.k == 0 || self.limit == 0 || self.table.len() == 0 || count == 0 {
            return vec![Vec::new(); count];
        }
        let (chunk, spans) = self.cut(pool.threads());
        let limits: Vec<AtomicU32> = (0..count).map(|_| AtomicU32::new(u32::MAX)).collect();
        let found: Vec<Mutex<Vec<Neighbour>>> = (0..count).map(|_| Mutex::default()).collect();
        let chunks = (0..count).step_by(chunk).map(|q| q..count.min(q + chunk));
        let tasks = chunks.flat_map(|q| spans.iter().map(move |rows| (q.clone(), rows.clone())));
        pool.each(tasks.collect(), |(queries, rows)| {
            let bests = self.run(isa, queries.clone(), rows, &limits[queries.clone()]);
            for (best, found) in bests.into_iter().zip(&found[queries]) {
                found.lock().expect("no thread panics").append(&mut best.into_kept());
            }
        });
        let found = found.into_iter();
        found.map(|found| nearest(found.into_inner().expect("as above"), self.k)).collect()
    }

    /// Queries of a task, and the pieces that rows are cut into.
    fn cut(&self, threads: usize) -> (usize, Vec<Rows>) {
        let (count, rows) = (self.queries.len(), self.table.len());
        let most = (LOOKUP_BYTES / (Quad::BYTES * self.queries.width())).max(MIN_THREAD_QUERIES);
        let apart = count >= MIN_THREAD_QUERIES * threads;
        let chunks = count.div_ceil(most).next_multiple_of(if apart { threads } else { 1 });
        let chunk = count.div_ceil(chunks).next_multiple_of(4);
        let pieces = |total: usize| {
            let most = if apart || threads == 1 { 1 } else { 4 * threads };
            let size = total.div_ceil(most).max(MIN_TASK_ROWS);
            (0..total).step_by(size).map(move |from| from..total.min(from + size))
        };
        let Some(allowed) = self.allowed else {
            return (chunk, pieces(rows).map(Rows::Span).collect());
        };
        // Picking a row costs about as much as comparing it with eight queries.
        let picked = allowed.rank(rows as u64 - 1);
        if picked as f64 * (count + 8) as f64 >= rows as f64 * count as f64 {
            return (chunk, pieces(rows).map(Rows::Span).collect());
        }
        let ranks = |r: Range<usize>| Rows::Picked(r.start as u64..r.end as u64);
        (chunk, pieces(picked as usize).map(ranks).collect())
    }

    fn run(&self, isa: Isa, queries: Range<usize>, rows: Rows, limits: &[AtomicU32]) -> Vec<Best> {
        let width = self.table.width();
        let queries = self.queries.part(queries.start, queries.end);
        let many = isa.has_nibble_lookup() && queries.len() >= MIN_PLANE_QUERIES;
        let mut work = Work {
            isa,
            queries,
            bests: (0..queries.len()).map(|_| Best::new(self.k, 8 * width, self.limit)).collect(),
            quads: Vec::new(),
            planes: Planes::default(),
            allowed: None,
        };
        if many {
            let quads = (0..queries.len()).step_by(4);
            work.quads =
                quads.map(|q| Quad::new(queries.part(q, queries.len().min(q + 4)))).collect();
        }
        let height = match (many, queries.len()) {
            (true, _) => (PLANE_BLOCK_BYTES / (2 * width * LINE_ROWS)).max(1) * LINE_ROWS,
            (_, 1) => (SINGLE_QUERY_BLOCK_BYTES / width).max(1),
            _ => (BLOCK_BYTES / width).max(64),
        };
        match rows {
            Rows::Span(rows) => {
                work.allowed = self.allowed;
                for from in rows.clone().step_by(height) {
                    let block = self.table.part(from, rows.end.min(from + height));
                    work.see(block, Ids::From(from), limits);
                }
            }
            Rows::Picked(ranks) => {
                let allowed = self.allowed.expect("rows are picked from a set");
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
                    work.see(Table::new(&bytes, width), Ids::List(&list), limits);
                }
            }
        }
        work.bests
    }
}

/// The state of a task.
struct Work<'a> {
    isa: Isa,
    queries: Table<'a>,
    bests: Vec<Best>,
    /// The queries by fours, where rows are transposed.
    quads: Vec<Quad>,
    planes: Planes,
    /// What a row must be in, where blocks hold others too.
    allowed: Option<&'a RoaringTreemap>,
}

impl Work<'_> {
    /// Shows a block to all queries.
    fn see(&mut self, block: Table<'_>, ids: Ids<'_>, limits: &[AtomicU32]) {
        for (best, limit) in self.bests.iter_mut().zip(limits) {
            // Rows of other tasks may have larger ids: what is as near as theirs still counts.
            best.lower(limit.load(Ordering::Relaxed).saturating_add(1));
        }
        if self.quads.is_empty() {
            for q in 0..self.bests.len() {
                self.see_one(q, block, &ids);
            }
        } else {
            self.planes.transpose(self.isa, block);
            for q in 0..self.quads.len() {
                self.see_four(q, &ids);
            }
        }
        for (best, limit) in self.bests.iter().zip(limits) {
            if let Some(reached) = best.reached() {
                limit.fetch_min(reached, Ordering::Relaxed);
            }
        }
    }

    fn see_one(&mut self, q: usize, block: Table<'_>, ids: &Ids<'_>) {
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
            let near = |best: &Best| best.limit_within(before);
            self.take(q, first, mask, |row| distances[row], ids, near);
            limit = near(&self.bests[q]);
            from = position + 1;
        }
    }

    fn see_four(&mut self, quad: usize, ids: &Ids<'_>) {
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
                self.take(4 * quad + i, first, mask, distance, ids, Best::limit);
            }
            from = near.group + 1;
            now = limits(&self.bests);
        }
    }

    /// Adds those rows after `first` whose bit is set and whose distance is below the limit.
    #[inline]
    fn take(
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
