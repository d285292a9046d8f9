//! Bounds on scores: prunes rows with byte arithmetic before they are scored in floats.
//!
//! **Bound.** A query has the projections v. A code has the signed sum S, which is at most |v|_1. Let D = |v|_1 - S be the
//! deficit. D is a sum of one term for each nibble of the code, and a term has one of 16 values, none negative. The values
//! are divided by a unit w and rounded down to bytes. Then 16 values fit one register, and one lookup and one saturating
//! addition add a term for 32 rows ([`Planes`]). The sum of the bytes is at most D / w. Let the limit be the k-th smallest
//! score so far. Only rows with
//!
//! ```text
//! D < |v|_1 + limit                                             (asymmetric)
//! D < |v|_1 - (|x - phi|^2 + |y - phi|^2 - limit) / 2g          (estimated)
//! ```
//!
//! can have a smaller score. The second bound differs from row to row. So the sum of a row starts at 255 minus its bound
//! in units, and a row is pruned if its sum saturates at 255. Rows that are not pruned are scored exactly, so the hits are
//! the same as without bounds, bit for bit.
//!
//! **Rounding.** Exact scores are floats and have rounding errors. The bounds are widened by more than these errors.
//!
//! **Where we differ.** 4-bit product quantisation uses the same lookups, but ranks by the rounded sums and needs
//! re-ranking.
//!
//! **Cost.** 64 bits on a Zen 3 core (`search_speed`): in batches 0.3 ns for a row and query (asymmetric) or 0.6 ns
//! (estimated, which computes a start for each row). A single query takes 2.6 or 3.8 ns a row, because rows are transposed
//! for this query alone.

use super::score::Scorer;
use super::{Best, Queries, Ranking, Scored};
use crate::arch::Isa;
use crate::arch::hamming::Table;
use crate::arch::nibble_planes::{LINE_ROWS, Line, Lookups, starts};
use crate::search::codes::Codes;
use crate::search::hamming::Planes;
use std::ops::Range;

/// Queries in a task, which share the transposed rows.
pub(super) const BATCH_QUERIES: usize = 64;
/// Largest code in bytes. Longer codes have so many terms that the rounding makes the bound useless.
const MAX_CODE_BYTES: usize = 64;
/// Bytes of a block of transposed rows. It fits the second-level cache together with the lookup tables.
const PLANE_BLOCK_BYTES: usize = 1 << 16;
/// Smallest number of rows that are scored exactly first, to get a limit.
const MIN_SCORED_ROWS: usize = 1024;
/// The largest bound of the sampled rows, in units. It is below 255, so that few other rows have a bound above 255.
const TARGET_BOUND: f64 = 230.0;
/// Largest error of a sum of floats, relative to |v|_1.
const SUM_ERROR: f64 = 2e-5;
/// Largest relative error of a rounded float.
const ROUNDING: f64 = 2e-6;

/// Whether pruning by bounds is faster than scoring every row.
pub(super) fn is_faster(codes: &Codes, k: usize) -> bool {
    Isa::detect().has_nibble_lookup()
        && codes.bytes_per_row() <= MAX_CODE_BYTES
        && codes.len() / 8 >= k.max(MIN_SCORED_ROWS / 2)
}

/// Finds the best rows in `rows` for each query in `batch`.
pub(super) fn search<'a>(
    codes: &Codes,
    queries: &Queries,
    batch: Range<usize>,
    scorers: Vec<Scorer<'_>>,
    rows: Range<usize>,
    best: impl Fn(usize) -> Best<'a>,
) -> Vec<Vec<Scored>> {
    let isa = Isa::detect();
    let width = codes.bytes_per_row();
    let mut bests: Vec<Best<'_>> = batch.clone().map(best).collect();
    let scored = MIN_SCORED_ROWS.max(4 * bests.first().map_or(0, |best| best.k));
    // Without limits at the start, some rows are scored to get them.
    let limited = bests.iter().all(|best| best.limit < f32::INFINITY);
    let first = if limited { rows.start } else { rows.end.min(rows.start + scored) };
    for (best, scorer) in bests.iter_mut().zip(&scorers) {
        best.offer_range(scorer, rows.start..first);
    }
    let mut quads: Vec<QueryQuad> =
        (0..batch.len().div_ceil(4)).map(|_| QueryQuad::new(width)).collect();
    let (mut planes, mut terms) = (Planes::default(), RowTerms::default());
    let height = (PLANE_BLOCK_BYTES / (2 * width * LINE_ROWS)).max(1) * LINE_ROWS;
    for from in (first..rows.end).step_by(height) {
        let to = rows.end.min(from + height);
        planes.transpose(isa, Table::new(&codes.as_bytes()[from * width..to * width], width));
        terms.fill(codes, queries, &scorers[0], from..to);
        for (f, quad) in quads.iter_mut().enumerate() {
            let here = 4 * f..batch.len().min(4 * f + 4);
            for q in here.clone() {
                bests[q].prune();
                let values = queries.projections(batch.start + q);
                quad.fit_unit(
                    q - here.start,
                    values,
                    &terms,
                    bests[q].limit,
                    scorers[q].square_norm(),
                );
            }
            for group in 0..(to - from).div_ceil(LINE_ROWS) {
                let row = from + group * LINE_ROWS;
                let filled = u64::MAX >> (LINE_ROWS - LINE_ROWS.min(to - row));
                let masks = quad.unpruned(isa, &planes, &terms, group, here.len());
                for (q, mask) in here.clone().zip(masks) {
                    let mut mask = mask & filled;
                    if mask == 0 {
                        continue;
                    }
                    let limit = bests[q].limit;
                    while mask != 0 {
                        let id = row + mask.trailing_zeros() as usize;
                        mask &= mask - 1;
                        bests[q].offer(scorers[q].score(id), id as u64);
                    }
                    if bests[q].limit < limit {
                        quad.set_limit(q - here.start, bests[q].limit, scorers[q].square_norm());
                    }
                }
            }
        }
    }
    bests.into_iter().map(Best::finish).collect()
}

/// The terms of the bounds that depend on the row, for the rows of a block: |x - phi|^2 / 2g and 1 / 2g. Empty for the
/// asymmetric ranking.
#[derive(Default)]
struct RowTerms {
    estimated: bool,
    squares: Vec<[f32; LINE_ROWS]>,
    inverses: Vec<[f32; LINE_ROWS]>,
}

impl RowTerms {
    fn fill(&mut self, codes: &Codes, queries: &Queries, scorer: &Scorer<'_>, rows: Range<usize>) {
        let (Ranking::Estimated, Some(factors), Some(values)) =
            (scorer.ranking(), &codes.factors, &queries.tables)
        else {
            return;
        };
        self.estimated = true;
        let groups = rows.len().div_ceil(LINE_ROWS);
        self.squares.resize(groups, [0.0; LINE_ROWS]);
        self.inverses.resize(groups, [0.0; LINE_ROWS]);
        let all = self.squares.as_flattened_mut().iter_mut().zip(self.inverses.as_flattened_mut());
        for ((square, inverse), (norm, gain)) in all.zip(factors.from(rows.start)) {
            let (norm, gain) = (values[0][norm], values[1][gain]);
            // A gain of 0 gives infinity or NaN. The bound is then infinite, which is correct, or NaN, and a row whose
            // bound is NaN is not pruned.
            *inverse = 0.5 / gain;
            *square = norm * norm * *inverse;
        }
    }
}

/// Four queries: their lookup tables in units, and how the starts of the sums are computed.
struct QueryQuad {
    lookups: Lookups,
    scales: [Scale; 4],
    lines: [Line; 4],
}

/// The unit of one query, and the start of its sums.
#[derive(Clone, Copy)]
struct Scale {
    estimated: bool,
    /// |v|_1.
    l1_norm: f64,
    /// The unit w, and the largest bound for which it was chosen; both 0 at first.
    unit: f64,
    largest: f64,
    /// The sum of a row starts at `start` plus `weights` times its two [`RowTerms`].
    start: f32,
    weights: [f32; 2],
}

impl QueryQuad {
    fn new(width: usize) -> Self {
        let none = Scale {
            estimated: false,
            l1_norm: 0.0,
            unit: 0.0,
            largest: 0.0,
            // Queries that are missing: every row is pruned.
            start: 255.0,
            weights: [0.0; 2],
        };
        Self {
            lookups: vec![[[0; 16]; 4]; 2 * width],
            scales: [none; 4],
            lines: [Line([255; LINE_ROWS]); 4],
        }
    }

    /// Sets the limit of query `q`. Chooses a new unit if the largest bound has changed much.
    fn fit_unit(
        &mut self,
        q: usize,
        values: &[f32],
        terms: &RowTerms,
        limit: f32,
        square_norm: f32,
    ) {
        let scale = &mut self.scales[q];
        scale.estimated = terms.estimated;
        scale.l1_norm = values.iter().map(|v| f64::from(v.abs())).sum();
        let largest = scale.largest_bound(terms, limit, square_norm);
        // A largest bound of 0 is usual: then all rows of the block are too far. The first unit must be set for it, too.
        let fits = (0.7 * scale.largest..=1.05 * scale.largest).contains(&largest);
        if scale.unit == 0.0 || !fits {
            scale.largest = largest;
            scale.unit = largest.max(1e-6 * scale.l1_norm).max(f64::MIN_POSITIVE) / TARGET_BOUND;
            let per = (1.0 - ROUNDING) / scale.unit;
            for (tables, values) in self.lookups.iter_mut().zip(values.chunks(4)) {
                tables[q] = std::array::from_fn(|nibble| {
                    // A bit that differs from the sign of its projection lowers the sum by twice the magnitude.
                    let against = |(bit, v): (usize, &f32)| {
                        if (nibble >> bit & 1 == 1) == (*v > 0.0) {
                            0.0
                        } else {
                            f64::from(v.abs())
                        }
                    };
                    let deficit = 2.0 * values.iter().enumerate().map(against).sum::<f64>();
                    // The kernel adds two terms without saturation, so that two must not exceed 255.
                    (deficit * per).min(127.0) as u8
                });
            }
        }
        self.set_limit(q, limit, square_norm);
    }

    /// Computes the starts of query `q` for a new limit, in the same unit.
    fn set_limit(&mut self, q: usize, limit: f32, square_norm: f32) {
        let scale = &mut self.scales[q];
        let [plain, per_inverse] = scale.bound(limit, square_norm);
        scale.start = (255.0 - plain / scale.unit) as f32;
        scale.weights =
            [(1.0 - ROUNDING) / scale.unit, -per_inverse / scale.unit].map(|x| x as f32);
        if !scale.estimated {
            self.lines[q] = Line([scale.start as u8; LINE_ROWS]);
        }
    }

    /// The rows of a group that are not pruned, as one bit mask for each query.
    fn unpruned(
        &mut self,
        isa: Isa,
        planes: &Planes,
        terms: &RowTerms,
        group: usize,
        queries: usize,
    ) -> [u64; 4] {
        let mut overflowed = [0; 4];
        let scales = self.scales[..queries].iter().zip(&mut self.lines);
        for ((scale, line), overflowed) in scales.zip(&mut overflowed) {
            if scale.estimated {
                let rows = [&terms.squares[group], &terms.inverses[group]];
                *overflowed = starts(isa, rows, scale.start, scale.weights, line);
            } else if scale.start.is_nan() || scale.start < 0.0 {
                *overflowed = u64::MAX;
            }
        }
        let mut near = planes.below(isa, &self.lookups, group, &self.lines, queries);
        near.iter_mut().zip(overflowed).for_each(|(near, overflowed)| *near |= overflowed);
        near
    }
}

impl Scale {
    /// The bound of D as two coefficients [a, b]. It is a for the asymmetric ranking. For the estimated ranking it is
    /// a - square + b * inverse, with the two [`RowTerms`] of the row.
    fn bound(&self, limit: f32, square_norm: f32) -> [f64; 2] {
        let (l1_norm, limit, square_norm) =
            (self.l1_norm * (1.0 + SUM_ERROR), f64::from(limit), f64::from(square_norm));
        if !self.estimated {
            return [l1_norm + limit + ROUNDING * limit.abs(), 0.0];
        }
        let rest = limit - square_norm * (1.0 - ROUNDING);
        [l1_norm, rest + ROUNDING * rest.abs()]
    }

    /// The largest bound of a sample of the rows in the block, at most 2 |v|_1, which D never exceeds.
    fn largest_bound(&self, terms: &RowTerms, limit: f32, square_norm: f32) -> f64 {
        let [plain, per_inverse] = self.bound(limit, square_norm);
        let mut largest = plain;
        if self.estimated {
            let squares = terms.squares.as_flattened().iter().step_by(61);
            let rows = squares.zip(terms.inverses.as_flattened().iter().step_by(61));
            let of = |(s, i): (&f32, &f32)| plain - f64::from(*s) + per_inverse * f64::from(*i);
            largest = rows.map(of).filter(|x| x.is_finite()).fold(0.0, f64::max);
        }
        largest.clamp(0.0, 2.0 * self.l1_norm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_all_too_far_are_pruned_from_the_first_block_on() {
        let isa = Isa::detect();
        if !isa.has_nibble_lookup() {
            return;
        }
        let codes: Vec<u8> = (0..8 * LINE_ROWS).map(|i| (i * 37 % 251) as u8).collect();
        let mut planes = Planes::default();
        planes.transpose(isa, Table::new(&codes, 8));
        // With a norm of 9 and a gain of 1, no distance is below 81 + 4 - 2 |v|_1 = 53.
        let terms = RowTerms {
            estimated: true,
            squares: vec![[40.5; LINE_ROWS]],
            inverses: vec![[0.5; LINE_ROWS]],
        };
        let values = [0.25; 64];
        for (limit, none) in [(50.0, true), (86.0, false)] {
            let mut quad = QueryQuad::new(8);
            quad.fit_unit(0, &values, &terms, limit, 4.0);
            let [near, ..] = quad.unpruned(isa, &planes, &terms, 0, 1);
            assert_eq!(near == 0, none, "limit {limit}: {near:x}");
        }
    }
}
