//! The rows of a quantiser's codes in the order of their cells, and bounds for runs of them.
//!
//! Rows of one cell are neighbours and form a run. Within a run, rows are sorted by their distance r from the cell. For a
//! query with projections v, at the distance D = |v - cell|, and a row with decoded projections c,
//!
//! ```text
//! score = |y - phi|^2 - |v|^2 + |v - c|^2 + (tau - |c|^2),      |v - c| >= |D - r|
//! ```
//!
//! by the triangle inequality. So rows whose r is too far from D cannot be among the k best: they are the ends of the
//! run, and often the whole run.

use super::QuantizedTables;
use crate::arch::nibble_planes::{LINE_ROWS, Line};
use crate::pool::Pool;
use crate::quantizer::{Decoder, Place};
use crate::search::codes::Codes;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// Number of cells.
pub(super) const CELLS: usize = 256;
/// Row number of the places that fill up a group.
pub(super) const NO_ROW: u32 = u32::MAX;
/// Rows that a task decodes.
const TASK_ROWS: usize = 4096;

/// The rows of codes in the order of their cells.
#[derive(Debug)]
pub(super) struct CellOrder {
    /// Row numbers; each run begins at a new group.
    pub(super) rows: Vec<u32>,
    /// The run of each cell.
    pub(super) runs: Vec<Run>,
    /// For each group, a line for each byte of the code but the cell.
    pub(super) lines: Vec<Line>,
    /// The smallest and the largest distance from the cell in each group.
    radii: Vec<[f32; 2]>,
}

/// The rows of a cell.
#[derive(Debug)]
pub(super) struct Run {
    /// Number of rows.
    pub(super) rows: usize,
    pub(super) groups: Range<usize>,
    /// The smallest tau - |c|^2.
    excess: f32,
    /// The smallest and the largest distance from the cell.
    radii: [f32; 2],
}

impl Run {
    /// A number that |v - c|^2 + (tau - |c|^2) is not below for any row, for a query at `distance` = |v - cell|. Infinity
    /// for a run without rows.
    pub(super) fn floor(&self, distance: f64) -> f64 {
        let [smallest, largest] = self.radii.map(f64::from);
        let gap = (distance - largest).max(smallest - distance).max(0.0);
        gap * gap + f64::from(self.excess)
    }
}

/// Queries that score every row in the time in which the order of the rows is made: 75 to 90 of them at 8 to 32 bytes.
pub(crate) const ORDER_QUERIES: usize = 80;

/// The order of some codes, made when it pays. Copies of the codes share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct CellOrderCache(Arc<Cached>);

#[derive(Debug, Default)]
struct Cached {
    order: OnceLock<CellOrder>,
    /// Queries so far.
    queries: AtomicUsize,
}

impl PartialEq for CellOrderCache {
    /// The order follows from the codes.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for CellOrderCache {}

impl CellOrderCache {
    pub(super) fn get(&self, codes: &Codes, tables: &QuantizedTables, pool: &Pool) -> &CellOrder {
        self.0.order.get_or_init(|| CellOrder::new(codes, &tables.decoder, pool))
    }

    /// Whether so many more queries should be searched by the order. It is not made for the first few queries, which may
    /// be the only ones: as many as score every row in the time that it takes.
    pub(super) fn pays(&self, queries: usize) -> bool {
        self.0.order.get().is_some() || {
            let before = self.0.queries.fetch_add(queries, Relaxed);
            before.saturating_add(queries) >= ORDER_QUERIES
        }
    }
}

impl CellOrder {
    fn new(codes: &Codes, decoder: &Decoder, pool: &Pool) -> Self {
        let (data, width) = (codes.as_bytes(), codes.bytes_per_row());
        let mut places = vec![Place::default(); codes.len()];
        let jobs = places.chunks_mut(TASK_ROWS).zip(data.chunks(TASK_ROWS * width)).collect();
        pool.each(jobs, |(places, codes): (&mut [Place], &[u8])| {
            decoder.places(codes, width, places);
        });
        let mut members: Vec<Vec<u32>> = vec![Vec::new(); CELLS];
        for (row, code) in (0..).zip(data.chunks_exact(width)) {
            members[usize::from(code[0])].push(row);
        }
        let (mut groups, mut runs) = (0, Vec::with_capacity(CELLS));
        for own in &members {
            let range = groups..groups + own.len().div_ceil(LINE_ROWS);
            groups = range.end;
            let own_places = own.iter().map(|row| places[*row as usize]);
            let (mut excess, mut radii) = (f32::INFINITY, [f32::MAX, 0.0]);
            for place in own_places {
                excess = excess.min(place.excess);
                radii = [radii[0].min(place.radius), radii[1].max(place.radius)];
            }
            runs.push(Run { rows: own.len(), groups: range, excess, radii });
        }
        let mut rows = vec![NO_ROW; groups * LINE_ROWS];
        let mut lines = vec![Line([0; LINE_ROWS]); groups * (width - 1)];
        let mut radii = vec![[0f32; 2]; groups];
        let (mut rows_left, mut lines_left, mut radii_left) =
            (&mut rows[..], &mut lines[..], &mut radii[..]);
        let mut jobs = Vec::with_capacity(CELLS);
        for (own, run) in members.into_iter().zip(&runs) {
            let count = run.groups.len();
            let (rows, lines, radii);
            (rows, rows_left) = rows_left.split_at_mut(count * LINE_ROWS);
            (lines, lines_left) = lines_left.split_at_mut(count * (width - 1));
            (radii, radii_left) = radii_left.split_at_mut(count);
            jobs.push((own, rows, lines, radii));
        }
        pool.each(jobs, |(mut own, rows, lines, radii)| {
            let radius = |row: &u32| places[*row as usize].radius;
            own.sort_unstable_by(|a, b| radius(a).total_cmp(&radius(b)).then(a.cmp(b)));
            rows[..own.len()].copy_from_slice(&own);
            for ((group, lines), radii) in
                own.chunks(LINE_ROWS).zip(lines.chunks_exact_mut(width - 1)).zip(radii)
            {
                *radii = [radius(&group[0]), radius(&group[group.len() - 1])];
                for (at, row) in group.iter().enumerate() {
                    let code = &data[*row as usize * width..][1..width];
                    for (line, byte) in lines.iter_mut().zip(code) {
                        line.0[at] = *byte;
                    }
                }
            }
        });
        Self { rows, runs, lines, radii }
    }

    /// The rows of a cell.
    pub(super) fn rows_of(&self, cell: usize) -> &[u32] {
        let run = &self.runs[cell];
        &self.rows[run.groups.start * LINE_ROWS..][..run.rows]
    }

    /// The groups of a run that can have rows with a score of at most `limit`. `distance` is |v - cell|, and `outside` the
    /// squared length of the query that its projections do not have.
    pub(super) fn near_groups(
        &self,
        run: &Run,
        limit: f64,
        distance: f64,
        outside: f64,
    ) -> Range<usize> {
        let rest = limit - outside - f64::from(run.excess);
        if rest < 0.0 {
            return run.groups.start..run.groups.start;
        }
        let (nearest, farthest) = (distance - rest.sqrt(), distance + rest.sqrt());
        let radii = &self.radii[run.groups.clone()];
        let from = radii.partition_point(|[_, largest]| f64::from(*largest) < nearest);
        let to = radii.partition_point(|[smallest, _]| f64::from(*smallest) <= farthest);
        run.groups.start + from..run.groups.start + to.max(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_queries_make_no_order_and_many_at_once_do() {
        let cache = CellOrderCache::default();
        assert!((1..ORDER_QUERIES).all(|_| !cache.pays(1)));
        // Copies of the codes count together.
        assert!(cache.clone().pays(1) && cache.pays(1));
        assert!(CellOrderCache::default().pays(ORDER_QUERIES));
    }
}
