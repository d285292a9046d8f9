//! Ruling rows out by bytes, before anything is computed in floats.
//!
//! **Bound.** For a query with projections v let D = |v|_1 - S: what a code's signed sum S lacks of the largest
//! possible one. D is a sum over nibbles, each term one of sixteen values that are not negative. In units of
//! a width w, rounded down to bytes, these values fit a register, and one lookup and one saturating addition add a
//! term for 32 rows ([`Planes`]). The result is never above D / w. Only rows with
//!
//! ```text
//! D < |v|_1 + limit                                             (asymmetric)
//! D < |v|_1 - (|x - phi|^2 + |y - phi|^2 - limit) / 2g          (estimated)
//! ```
//!
//! can be better than the k-th best so far, whose score is the limit. The second differs from row to row: sums
//! begin at 255 less the row's own bound, so that once more 255 means "too far". Rows that are not ruled out
//! are scored exactly, so the answer is that of the definition, bit for bit.
//!
//! **Rounding.** Exact scores are floats too: bounds are widened by more than what those can be off.
//!
//! **Where we differ** from quantised look-ups elsewhere (4-bit product quantisation), which rank by the
//! rounded sums and need re-ranking.
//!
//! **Cost.** 64 bits, in batches, on a Zen 3 core (`search_speed`): 0.3 ns for a row and query (asymmetric), 0.6
//! (estimated, whose rows each have their own limit); a single query 2.6 and 3.8, since rows are transposed for it alone.

use super::score::Scorer;
use super::{Best, Queries, Ranking, Scored};
use crate::arch::Isa;
use crate::arch::hamming::Table;
use crate::arch::nibble_planes::{LINE_ROWS, Line, Lookups, starts};
use crate::search::codes::Codes;
use crate::search::hamming::Planes;
use std::ops::Range;

/// Queries that share transposed rows.
pub(super) const BATCH_QUERIES: usize = 64;
/// Bytes of a code, at most: longer ones have so many terms that rounding each down leaves no bound.
const MAX_CODE_BYTES: usize = 64;
/// Bytes of a block of transposed rows, which a second-level cache holds beside the lookup tables.
const PLANE_BLOCK_BYTES: usize = 1 << 16;
/// Rows that are scored exactly first, at least, to have a limit.
const MIN_SCORED_ROWS: usize = 1024;
/// The largest bound of the sampled rows, in units: below 255, so that few other rows exceed that.
const TARGET_BOUND: f64 = 230.0;
/// How far sums of floats may be off, relative to |v|_1.
const SUM_ERROR: f64 = 2e-5;
/// How far a rounded float may be off, relatively.
const ROUNDING: f64 = 2e-6;

/// Whether bounds pay.
pub(super) fn pays(codes: &Codes, k: usize) -> bool {
    Isa::detect().has_nibble_lookup()
        && codes.bytes_per_row() <= MAX_CODE_BYTES
        && codes.len() / 8 >= k.max(MIN_SCORED_ROWS / 2)
}

/// The best of some rows, for some queries.
pub(super) fn search<'a>(
    codes: &Codes,
    queries: &Queries,
    asked: Range<usize>,
    scorers: Vec<Scorer<'_>>,
    rows: Range<usize>,
    best: impl Fn() -> Best<'a>,
) -> Vec<Vec<Scored>> {
    let isa = Isa::detect();
    let width = codes.bytes_per_row();
    let mut bests: Vec<Best<'_>> = asked.clone().map(|_| best()).collect();
    let first =
        rows.end.min(rows.start + MIN_SCORED_ROWS.max(4 * bests.first().map_or(0, |best| best.k)));
    for (best, scorer) in bests.iter_mut().zip(&scorers) {
        best.all(scorer, rows.start..first);
    }
    let mut fours: Vec<Four> = (0..asked.len().div_ceil(4)).map(|_| Four::new(width)).collect();
    let (mut planes, mut bounds) = (Planes::default(), Bounds::default());
    let height = (PLANE_BLOCK_BYTES / (2 * width * LINE_ROWS)).max(1) * LINE_ROWS;
    for from in (first..rows.end).step_by(height) {
        let to = rows.end.min(from + height);
        planes.transpose(isa, Table::new(&codes.as_bytes()[from * width..to * width], width));
        bounds.fill(codes, queries, &scorers[0], from..to);
        for (f, four) in fours.iter_mut().enumerate() {
            let here = 4 * f..asked.len().min(4 * f + 4);
            for q in here.clone() {
                bests[q].prune();
                let values = queries.projections(asked.start + q);
                four.renew(q - here.start, values, &bounds, bests[q].limit, scorers[q].own());
            }
            for group in 0..(to - from).div_ceil(LINE_ROWS) {
                let row = from + group * LINE_ROWS;
                let filled = u64::MAX >> (LINE_ROWS - LINE_ROWS.min(to - row));
                let masks = four.near(isa, &planes, &bounds, group, here.len());
                for (q, mask) in here.clone().zip(masks) {
                    let mut mask = mask & filled;
                    if mask == 0 {
                        continue;
                    }
                    let limit = bests[q].limit;
                    while mask != 0 {
                        let id = row + mask.trailing_zeros() as usize;
                        mask &= mask - 1;
                        bests[q].offer(scorers[q].one(id), id as u64);
                    }
                    if bests[q].limit < limit {
                        four.tighten(q - here.start, bests[q].limit, scorers[q].own());
                    }
                }
            }
        }
    }
    bests.into_iter().map(Best::finish).collect()
}

/// What each row of a block adds to its bound: |x - phi|^2 / 2g and 1 / 2g; nothing for the asymmetric ranking.
#[derive(Default)]
struct Bounds {
    estimated: bool,
    squares: Vec<[f32; LINE_ROWS]>,
    inverses: Vec<[f32; LINE_ROWS]>,
}

impl Bounds {
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
            // A gain of 0 gives infinity or no number: the bound of such a row is then no number, or right.
            *inverse = 0.5 / gain;
            *square = norm * norm * *inverse;
        }
    }
}

/// Four queries: look-ups in units of their widths, and what starts are computed from.
struct Four {
    lookups: Lookups,
    each: [Scale; 4],
    lines: [Line; 4],
}

/// How one query's bound is measured.
#[derive(Clone, Copy)]
struct Scale {
    estimated: bool,
    /// |v|_1.
    most: f64,
    /// The width of a unit, and that of the largest bound when it was chosen; 0 before.
    width: f64,
    largest: f64,
    /// The start of a row's sum: `at`, and what is multiplied by its two numbers.
    at: f32,
    by: [f32; 2],
}

impl Four {
    fn new(width: usize) -> Self {
        let none = Scale {
            estimated: false,
            most: 0.0,
            width: 0.0,
            largest: 0.0,
            // Missing queries: every row is too far.
            at: 255.0,
            by: [0.0; 2],
        };
        Self {
            lookups: vec![[[0; 16]; 4]; 2 * width],
            each: [none; 4],
            lines: [Line([255; LINE_ROWS]); 4],
        }
    }

    /// Fits one query's units to its limit, where that has changed much.
    fn renew(&mut self, q: usize, values: &[f32], bounds: &Bounds, limit: f32, own: f32) {
        let scale = &mut self.each[q];
        scale.estimated = bounds.estimated;
        scale.most = values.iter().map(|v| f64::from(v.abs())).sum();
        let largest = scale.largest_bound(bounds, limit, own);
        if !(0.7 * scale.largest..=1.05 * scale.largest).contains(&largest) {
            scale.largest = largest;
            scale.width = largest.max(1e-6 * scale.most).max(f64::MIN_POSITIVE) / TARGET_BOUND;
            let per = (1.0 - ROUNDING) / scale.width;
            for (tables, values) in self.lookups.iter_mut().zip(values.chunks(4)) {
                tables[q] = std::array::from_fn(|nibble| {
                    // A bit that is against its projection's sign takes twice the magnitude from the sum.
                    let against = |(bit, v): (usize, &f32)| {
                        if (nibble >> bit & 1 == 1) == (*v > 0.0) {
                            0.0
                        } else {
                            f64::from(v.abs())
                        }
                    };
                    let lacks = 2.0 * values.iter().enumerate().map(against).sum::<f64>();
                    // Two of them are added before sums saturate.
                    (lacks * per).min(127.0) as u8
                });
            }
        }
        self.tighten(q, limit, own);
    }

    /// Takes a new limit into account.
    fn tighten(&mut self, q: usize, limit: f32, own: f32) {
        let scale = &mut self.each[q];
        let [plain, per_inverse] = scale.bound(limit, own);
        scale.at = (255.0 - plain / scale.width) as f32;
        scale.by = [(1.0 - ROUNDING) / scale.width, -per_inverse / scale.width].map(|x| x as f32);
        if !scale.estimated {
            self.lines[q] = Line([scale.at as u8; LINE_ROWS]);
        }
    }

    /// Rows of a group that are not ruled out.
    fn near(
        &mut self,
        isa: Isa,
        planes: &Planes,
        bounds: &Bounds,
        group: usize,
        queries: usize,
    ) -> [u64; 4] {
        let mut forced = [0; 4];
        let each = self.each[..queries].iter().zip(&mut self.lines);
        for ((scale, line), forced) in each.zip(&mut forced) {
            if scale.estimated {
                let rows = [&bounds.squares[group], &bounds.inverses[group]];
                *forced = starts(isa, rows, scale.at, scale.by, line);
            } else if scale.at.is_nan() || scale.at < 0.0 {
                *forced = u64::MAX;
            }
        }
        let mut near = planes.below(isa, &self.lookups, group, &self.lines, queries);
        near.iter_mut().zip(forced).for_each(|(near, forced)| *near |= forced);
        near
    }
}

impl Scale {
    /// The bound of D: a number, and what the row's inverse is multiplied by; beside these, the estimated
    /// one lacks the row's square.
    fn bound(&self, limit: f32, own: f32) -> [f64; 2] {
        let (most, limit, own) = (self.most * (1.0 + SUM_ERROR), f64::from(limit), f64::from(own));
        if !self.estimated {
            return [most + limit + ROUNDING * limit.abs(), 0.0];
        }
        let rest = limit - own * (1.0 - ROUNDING);
        [most, rest + ROUNDING * rest.abs()]
    }

    /// About the largest bound of a row in the block, by some of them; D is never above twice |v|_1.
    fn largest_bound(&self, bounds: &Bounds, limit: f32, own: f32) -> f64 {
        let [plain, per_inverse] = self.bound(limit, own);
        let mut largest = plain;
        if self.estimated {
            let squares = bounds.squares.as_flattened().iter().step_by(61);
            let rows = squares.zip(bounds.inverses.as_flattened().iter().step_by(61));
            let of = |(s, i): (&f32, &f32)| plain - f64::from(*s) + per_inverse * f64::from(*i);
            largest = rows.map(of).filter(|x| x.is_finite()).fold(0.0, f64::max);
        }
        largest.clamp(0.0, 2.0 * self.most)
    }
}
