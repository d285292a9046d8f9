//! Search in codes of a quantiser: rows are ordered by cell, and most are pruned by sums of bytes.
//!
//! The score of a row is a sum of table entries, one for each byte of its code: the cell, the words, the scalar.
//!
//! **Order.** Rows of one cell are neighbours ([`CellOrder`]), so the entry of the cell is the same for a run of rows.
//! Codes are transposed in groups of 64 rows. The order is made once enough queries have been asked, and kept
//! ([`ORDER_QUERIES`](super::cell_order::ORDER_QUERIES)). The first few queries score every row.
//!
//! **Bound.** Each entry is reduced by the smallest of its table, divided by a unit and rounded down to a byte. A row
//! can be among the k best only if the sum of its bytes is below what the limit leaves for its cell. Sums start at 255
//! minus that, and a row is pruned if its sum saturates. Rows that are not pruned are scored exactly, so the hits are
//! the same as without bounds, bit for bit.
//!
//! **Skipped runs.** A run is skipped if nothing is left for its cell, or if the triangle inequality excludes all of
//! its rows ([`CellOrder::near_groups`]).
//!
//! **First limit.** Each query first scores some rows of its best cell, and scans its best cells. The k-th best row of
//! them is the first limit for all others.
//!
//! **Together.** Where a look-up of 64 rows takes many instructions, rows are compared with many queries at a time
//! ([`Together`]).
//!
//! **Threads.** Queries are divided among threads. Where they are fewer than threads and enough rows are left after
//! their best cells, threads share the other cells, each beginning with the limit found so far.
//!
//! **Probing.** [`Search::probe`] searches the best cells of each query only. Only this can lose hits.
//!
//! **Rounding.** Scores are sums of floats and have rounding errors. Limits are widened by more than these errors.
//!
//! **Cost.** A search reads the codes once for each batch of queries. The order takes as much memory as the codes, and 4
//! bytes a row; to make it, all codes are decoded once.

use super::cell_order::{CELLS, CellOrder, NO_ROW, Run};
use super::score::Scorer;
use super::together::Together;
use super::{KNOWN, QuantizedTables, Queries, Ranking, Scored, known};
use crate::arch::Isa;
use crate::arch::byte_lanes::LANES;
use crate::arch::byte_planes::{LineTable, first_below_255};
use crate::arch::nibble_planes::LINE_ROWS;
use crate::pool::Pool;
use crate::search::codes::Codes;
use crate::search::options::{Hit, Search, keep_nearest};
use std::ops::Range;

/// Queries of a task, which read a group of rows together.
const BATCH_QUERIES: usize = LANES;
/// Smallest number of rows for which bounds pay.
const MIN_ROWS: usize = 4096;
/// Lines that are left to scan, from which on the cells of few queries are split among threads: 4 MB, which take
/// several times as long as to wake a thread.
const MIN_SPLIT_LINES: usize = (4 << 20) / LINE_ROWS;
/// Smallest number of rows that a query scores first.
const MIN_SCORED_ROWS: usize = 512;
/// The longest code.
const MAX_BYTES: usize = 64;
/// Cells that a query searches before it shares the others with the batch.
const FIRST_CELLS: usize = 8;
/// The largest limit in units. It is below 255, so that a limit that grows a little still fits.
const TARGET_BOUND: f64 = 240.0;
/// Largest relative error of a score, which is a sum of at most a few hundred floats of either sign.
const ROUNDING: f64 = 1e-5;

/// Whether the order by cell is faster than scoring every row, for so many queries. Only the order can be probed.
pub(super) fn is_faster(codes: &Codes, queries: usize, search: &Search<'_>) -> bool {
    Isa::detect().has_nibble_lookup()
        && codes.len() >= MIN_ROWS
        && codes.len() / 8 >= search.k
        && codes.len() < NO_ROW as usize
        && (codes.cell_order.pays(queries) || search.probe.is_some())
}

/// Finds the best rows for each query.
pub(super) fn search(
    codes: &Codes,
    pool: &Pool,
    queries: &Queries,
    tables: &QuantizedTables,
    search: &Search<'_>,
) -> Vec<Vec<Hit>> {
    let order = codes.cell_order.get(codes, tables, pool);
    // Tasks split the queries. If there are fewer batches than threads, they also split the cells.
    let chunk = queries.len().div_ceil(pool.threads()).clamp(1, BATCH_QUERIES);
    let chunks = queries.len().div_ceil(chunk);
    let parts = pool.threads().div_ceil(chunks.max(1));
    let mut found: Vec<Vec<Vec<Scored>>> = vec![Vec::new(); chunks];
    pool.each(found.iter_mut().enumerate().collect(), |(job, found)| {
        let batch = job * chunk..queries.len().min((job + 1) * chunk);
        let together = !Isa::detect().has_wide_byte_lookup();
        let task = Task { codes, order, queries, tables, search, together };
        *found = task.run(batch, pool, parts);
    });
    let hit = |row: Scored| Hit { id: row.id, distance: row.score.into() };
    let hits = |found: Vec<Scored>| {
        let mut hits: Vec<Hit> = found.into_iter().map(hit).collect();
        keep_nearest(&mut hits, search.k);
        hits
    };
    found.into_iter().flatten().map(hits).collect()
}

/// A batch of queries on some cells.
pub(super) struct Task<'a> {
    pub(super) codes: &'a Codes,
    pub(super) order: &'a CellOrder,
    pub(super) queries: &'a Queries,
    pub(super) tables: &'a QuantizedTables,
    pub(super) search: &'a Search<'a>,
    /// Whether many queries are compared with a row at a time.
    pub(super) together: bool,
}

impl Task<'_> {
    /// The best rows of each query, and perhaps a few more. `parts` threads can share the cells.
    pub(super) fn run(&self, batch: Range<usize>, pool: &Pool, parts: usize) -> Vec<Vec<Scored>> {
        let lines = self.codes.bytes_per_row() - 1;
        let scorer = |q| Scorer::new(self.codes, self.queries, q, Ranking::Estimated);
        let mut all: Vec<Query<'_>> =
            batch.map(|q| Query::new(self, q, scorer(q), lines)).collect();
        for query in &mut all {
            self.search_best_cells(query);
        }
        let left: usize = all.iter().map(|query| query.groups_left(self)).sum();
        if parts == 1 || left * lines < MIN_SPLIT_LINES {
            self.search_cells(&mut all, 0..CELLS);
            return all.into_iter().map(|query| query.best.finish()).collect();
        }
        // Every part begins with the limits found so far.
        let mut jobs: Vec<Vec<Query<'_>>> =
            (1..parts).map(|_| all.iter().map(Query::for_another_thread).collect()).collect();
        jobs.push(all);
        pool.each(jobs.iter_mut().enumerate().collect(), |(part, all): (_, &mut Vec<_>)| {
            // Every part takes each cell whose number has its remainder, so that large runs are spread.
            self.search_cells(all, (part..CELLS).step_by(parts));
        });
        let mut found: Vec<Vec<Scored>> = vec![Vec::new(); jobs[0].len()];
        for all in jobs {
            let own = all.into_iter().map(|query| query.best.finish());
            found.iter_mut().zip(own).for_each(|(found, own)| found.extend(own));
        }
        found
    }

    /// Searches some cells. All queries scan a cell before the next one, while its codes are in the cache.
    fn search_cells(&self, all: &mut [Query<'_>], cells: impl Iterator<Item = usize>) {
        if self.together {
            let mut together = Together::new(self.codes.bytes_per_row() - 1);
            cells.for_each(|cell| together.scan(self, all, cell));
            return;
        }
        for cell in cells {
            for query in all.iter_mut() {
                if query.is_open(self, cell) {
                    self.scan(query, cell);
                }
            }
        }
    }

    /// Searches the cells with the smallest entries for one query, so that it has a good limit for the others.
    fn search_best_cells(&self, query: &mut Query<'_>) {
        let mut order: Vec<usize> = (0..CELLS).filter(|cell| !query.done[*cell]).collect();
        let entry = |query: &Query<'_>, cell: usize| query.cells[cell];
        if order.len() > FIRST_CELLS {
            order.select_nth_unstable_by(FIRST_CELLS - 1, |a, b| {
                entry(query, *a).total_cmp(&entry(query, *b))
            });
            order.truncate(FIRST_CELLS);
        }
        order.sort_unstable_by(|a, b| entry(query, *a).total_cmp(&entry(query, *b)));
        // Exact scores of some rows give the first limit; unless one is known from elsewhere.
        let mut wanted = MIN_SCORED_ROWS.max(4 * query.best.k);
        if query.best.last.score < f32::INFINITY {
            wanted = 0;
        }
        for cell in &order {
            let (from, rows) = (self.order.runs[*cell].groups.start, self.order.rows_of(*cell));
            let first = wanted.next_multiple_of(LINE_ROWS).min(rows.len());
            query.score_rows(self, *cell, 0..first);
            wanted = wanted.saturating_sub(first);
            query.scored_groups = (*cell, from + first.div_ceil(LINE_ROWS));
            if first == rows.len() {
                query.done[*cell] = true;
                continue;
            }
            break;
        }
        for cell in order {
            if query.is_open(self, cell) {
                self.scan(query, cell);
            }
            query.done[cell] = true;
        }
    }

    /// Offers the rows of a cell to a query that has a limit.
    pub(super) fn scan(&self, query: &mut Query<'_>, cell: usize) {
        let (isa, lines) = (Isa::detect(), self.codes.bytes_per_row() - 1);
        let groups = query.near_groups(self, &self.order.runs[cell], cell);
        let (mut group, mut start) = (groups.start, query.start(cell));
        while group < groups.end {
            let rest = &self.order.lines[group * lines..groups.end * lines];
            let (next, masks) = first_below_255(isa, &query.bytes, rest, start);
            group += next;
            let mut lower = false;
            for mask in masks {
                if mask != 0 {
                    lower |= query.offer_group(self, cell, group, mask);
                }
                group += 1;
            }
            if lower {
                start = query.start(cell);
            }
        }
    }
}

/// The k best rows so far. Rows may come in any order.
#[derive(Clone)]
struct BestOfAny {
    k: usize,
    /// The k-th best row at the last prune. Rows after it are rejected.
    last: Scored,
    found: Vec<Scored>,
}

impl BestOfAny {
    /// For `k` of `rows` rows; `known` are k hits from elsewhere, or none.
    fn new(k: usize, rows: usize, known: Vec<Scored>) -> Self {
        let score = if k == 0 { f32::NEG_INFINITY } else { f32::INFINITY };
        let k = if known.is_empty() { k.min(rows) } else { k };
        let mut best = Self { k, last: Scored { score, id: u64::MAX }, found: known };
        best.prune();
        best
    }

    /// Returns whether the limit became lower.
    fn offer(&mut self, new: Scored) -> bool {
        if new.order(&self.last).is_ge() {
            return false;
        }
        self.found.push(new);
        self.found.len() > self.k && self.prune()
    }

    fn prune(&mut self) -> bool {
        if self.k == 0 || self.found.len() < self.k {
            return false;
        }
        self.found.select_nth_unstable_by(self.k - 1, Scored::order);
        self.found.truncate(self.k);
        let lower = self.found[self.k - 1].score < self.last.score;
        self.last = self.found[self.k - 1];
        lower
    }

    fn finish(mut self) -> Vec<Scored> {
        self.prune();
        self.found.retain(|row| row.id != KNOWN);
        self.found.sort_unstable_by(Scored::order);
        self.found
    }
}

/// A query of the batch.
#[derive(Clone)]
pub(super) struct Query<'a> {
    scorer: Scorer<'a>,
    /// What each cell adds to the score, and the least of it.
    cells: Vec<f32>,
    least_cell: f32,
    /// The sum of the smallest entries of all tables but the cells', and of the squared length of the query.
    rest: f64,
    /// The largest magnitude that a score can have, for rounding.
    magnitude: f64,
    /// For each line, the entries less the smallest.
    entries: Vec<[f32; 256]>,
    /// The same in units, rounded down.
    pub(super) bytes: Vec<LineTable>,
    pub(super) unit: f64,
    best: BestOfAny,
    /// For each cell, a score that none of its rows is below.
    floors: Vec<f64>,
    /// |v - cell| for each cell.
    distances: Vec<f64>,
    /// The squared length that the projections do not have.
    outside: f64,
    /// The cells that need not be searched any more.
    done: Vec<bool>,
    /// A cell of which the groups before this one were scored first.
    scored_groups: (usize, usize),
}

impl<'a> Query<'a> {
    fn new(task: &Task<'_>, query: usize, scorer: Scorer<'a>, lines: usize) -> Self {
        let entries = task.tables.of(query);
        let (cells, words) = entries.split_at(CELLS);
        let mut all: Vec<[f32; 256]> = words.as_chunks().0.to_vec();
        all.push(*task.tables.levels);
        debug_assert_eq!(all.len(), lines);
        let least = |table: &[f32]| table.iter().copied().fold(f32::INFINITY, f32::min);
        let magnitude = |x: &f32| f64::from(x.abs());
        let largest = |table: &[f32]| table.iter().map(magnitude).fold(0.0, f64::max);
        let norm = f64::from(scorer.square_norm());
        let rest = norm + all.iter().map(|table| f64::from(least(table))).sum::<f64>();
        let most = largest(cells) + norm + all.iter().map(|table| largest(table)).sum::<f64>();
        for table in &mut all {
            let least = least(table);
            table.iter_mut().for_each(|x| *x -= least);
        }
        let square = task.tables.squares[query];
        let distance = |(cell, entry): (usize, &f32)| {
            task.tables.decoder.cell_distance(cell, square, *entry).max(0.0).sqrt()
        };
        let distances: Vec<f64> = cells.iter().enumerate().map(distance).collect();
        let outside = norm - f64::from(square);
        let runs = task.order.runs.iter().zip(cells.iter().zip(&distances));
        let floors = runs
            .map(|(run, (cell, distance))| {
                (f64::from(*cell) + rest).max(outside + run.floor(*distance))
            })
            .collect();
        Self {
            floors,
            distances,
            outside,
            done: done(task, cells),
            scored_groups: (CELLS, 0),
            scorer,
            least_cell: least(cells),
            cells: cells.to_vec(),
            rest,
            magnitude: most,
            bytes: vec![[0; 256]; all.len()],
            entries: all,
            unit: 0.0,
            best: BestOfAny::new(task.search.k, task.codes.len(), known(task.search, query)),
        }
    }

    /// The same query for other cells, with the rows found so far as a limit only.
    fn for_another_thread(&self) -> Self {
        let mut copy = self.clone();
        copy.best.found.iter_mut().for_each(|row| row.id = KNOWN);
        copy
    }

    /// The number of groups that may have rows below the limit.
    fn groups_left(&self, task: &Task<'_>) -> usize {
        let limit = self.widened_limit();
        let open = (0..CELLS).filter(|cell| !self.done[*cell] && self.floors[*cell] <= limit);
        open.map(|cell| self.near_groups(task, &task.order.runs[cell], cell).len()).sum()
    }

    /// Whether a cell has to be scanned. A cell is scored at once if there is no limit to prune by.
    pub(super) fn is_open(&mut self, task: &Task<'_>, cell: usize) -> bool {
        if self.done[cell] || task.order.runs[cell].rows == 0 {
            return false;
        }
        if self.best.last.score == f32::INFINITY {
            // A filter left fewer than k rows so far.
            let rows = self.scored_rows(task, cell)..task.order.runs[cell].rows;
            self.score_rows(task, cell, rows);
            self.done[cell] = true;
            return false;
        }
        if self.floors[cell] > self.widened_limit() {
            return false;
        }
        self.fit_unit();
        true
    }

    /// The limit, widened by twice the usual margin: distances of cells have rounding errors, too.
    fn widened_limit(&self) -> f64 {
        f64::from(self.best.last.score) + 2.0 * ROUNDING * self.magnitude
    }

    /// The number of rows of a cell that were scored first.
    fn scored_rows(&self, task: &Task<'_>, cell: usize) -> usize {
        let (scored, end) = self.scored_groups;
        let groups = end.saturating_sub(task.order.runs[cell].groups.start);
        if scored == cell { (groups * LINE_ROWS).min(task.order.runs[cell].rows) } else { 0 }
    }

    /// The groups of a run that may have rows below the limit and were not scored first.
    pub(super) fn near_groups(&self, task: &Task<'_>, run: &Run, cell: usize) -> Range<usize> {
        let limit = self.widened_limit();
        let near = task.order.near_groups(run, limit, self.distances[cell], self.outside);
        let (scored, end) = self.scored_groups;
        let start = if scored == cell { near.start.max(end) } else { near.start };
        start.min(near.end)..near.end
    }

    /// Scores some rows of a cell; `rows` begins at a group.
    fn score_rows(&mut self, task: &Task<'_>, cell: usize, rows: Range<usize>) {
        for first in rows.clone().step_by(LINE_ROWS) {
            let count = (rows.end - first).min(LINE_ROWS);
            let group = task.order.runs[cell].groups.start + first / LINE_ROWS;
            self.offer_group(task, cell, group, u64::MAX >> (LINE_ROWS - count));
        }
        self.best.prune();
    }

    /// Scores those rows of a group that have a bit in the mask. Returns whether the limit became lower.
    pub(super) fn offer_group(
        &mut self,
        task: &Task<'_>,
        cell: usize,
        group: usize,
        mut mask: u64,
    ) -> bool {
        let width = task.codes.bytes_per_row();
        let rows = &task.order.rows[group * LINE_ROWS..][..LINE_ROWS];
        let lines = &task.order.lines[group * (width - 1)..][..width - 1];
        let (mut lower, mut code) = (false, [0u8; MAX_BYTES]);
        code[0] = cell as u8;
        while mask != 0 {
            let at = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            if rows[at] == NO_ROW {
                continue;
            }
            // The lines are in the cache. The codes themselves may not be.
            for (byte, line) in code[1..width].iter_mut().zip(lines) {
                *byte = line.0[at];
            }
            let new =
                Scored { score: self.scorer.score_code(&code[..width]), id: u64::from(rows[at]) };
            // The set is checked last because it is slow and few rows are below the limit.
            lower |= new.order(&self.best.last).is_lt()
                && task.search.filter.is_none_or(|set| set.contains(new.id))
                && self.best.offer(new);
        }
        lower
    }

    /// What the limit leaves for the other bytes of the rows of a cell.
    fn budget(&self, cell: usize) -> f64 {
        self.budget_of(self.cells[cell])
    }

    fn budget_of(&self, cell: f32) -> f64 {
        let limit = f64::from(self.best.last.score);
        limit - f64::from(cell) - self.rest + ROUNDING * self.magnitude
    }

    /// Chooses the unit by the largest budget of a cell, and computes the tables; unless the present unit still fits. The
    /// budget of a row never grows, so that it stays below 255 units.
    fn fit_unit(&mut self) {
        let largest =
            self.budget_of(self.least_cell).max(1e-9 * self.magnitude).max(f64::MIN_POSITIVE);
        if largest > 0.7 * TARGET_BOUND * self.unit && self.unit > 0.0 {
            return;
        }
        self.unit = largest / TARGET_BOUND;
        for (bytes, entries) in self.bytes.iter_mut().zip(&self.entries) {
            for (byte, x) in bytes.iter_mut().zip(entries) {
                // The cast rounds down and clamps to 255.
                *byte = (f64::from(*x) * (1.0 - ROUNDING) / self.unit) as u8;
            }
        }
    }

    /// Where the sums of a cell's rows start.
    pub(super) fn start(&self, cell: usize) -> u8 {
        // A row is kept if its sum of bytes is at most the budget in units. The cast clamps to 0 to 255.
        (254.0 - (self.budget(cell) / self.unit).floor()) as u8
    }
}

/// The cells that a query does not search: with a number of cells to probe, all but those with the smallest entries.
fn done(task: &Task<'_>, entries: &[f32]) -> Vec<bool> {
    let Some(probe) = task.search.probe else { return vec![false; CELLS] };
    let mut order: Vec<usize> = (0..CELLS).filter(|cell| task.order.runs[*cell].rows > 0).collect();
    order.sort_unstable_by(|a, b| entries[*a].total_cmp(&entries[*b]));
    let mut done = vec![true; CELLS];
    order.iter().take(probe).for_each(|cell| done[*cell] = false);
    done
}
