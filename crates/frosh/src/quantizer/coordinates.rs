//! The coordinates of the codebooks, and the sampled rows in them.
//!
//! The directions are turned onto the principal axes of the sampled rows. Those of the largest variance are kept, scaled,
//! and dealt to segments: steps 1 to 3 of `fit.rs`.

use super::codebooks::Codebooks;
use super::fit::MIN_DIRECTIONS;
use crate::hasher::held_out::HeldOut;
use crate::linalg;
use faer::{Mat, MatRef};
use std::ops::Range;

/// Exponent of the scales.
const SCALE_POWER: f64 = 0.25;
/// Smallest scale. Directions without variance must not divide by zero.
const MIN_SCALE: f64 = 1e-3;

/// Sampled rows in the coordinates of the codebooks.
pub(super) struct Sample {
    /// The base of the held-out measure: scaled projections, in the order of the segments.
    pub(super) rows: Vec<f32>,
    /// The queries of the held-out measure: projections, not scaled. A column for each.
    pub(super) queries: Mat<f32>,
    pub(super) scales: Vec<f32>,
    /// Columns of the axes, in the order of the segments.
    order: Vec<usize>,
    /// The principal axes of the sample within the directions, as columns.
    axes: Mat<f64>,
}

impl Sample {
    /// `outside` is the share of the variance that need not be described.
    pub(super) fn new(held: &mut HeldOut, segments: usize, outside: f64) -> Self {
        let base = held.along.as_ref().subrows(0, held.base);
        let k = base.ncols();
        let moments = linalg::product(base.transpose(), base);
        let moments = Mat::from_fn(k, k, |i, j| f64::from(moments[(i, j)]));
        let (values, axes) = linalg::eigen(moments.as_ref());
        // Directions without variance have nothing to code.
        let largest = values.first().copied().unwrap_or(0.0);
        let rank = values.iter().filter(|v| **v > 1e-10 * largest).count().max(1);
        let (mut inside, wanted) = (0.0, (1.0 - outside) * held.squares.iter().sum::<f64>());
        let reached = values.iter().position(|value| {
            inside += value;
            inside >= wanted
        });
        let enough = reached.map_or(values.len(), |i| (i + 1).next_multiple_of(16));
        let rank = rank.min(enough.max(MIN_DIRECTIONS));
        let turned = linalg::product(held.along.as_ref(), linalg::single(axes.as_ref()).as_ref());
        // Only the turned projections are needed from here on.
        held.along = Mat::new();
        let mut near = vec![0f64; rank];
        for (query, rows) in held.relevant.iter().enumerate() {
            for (j, near) in near.iter_mut().enumerate() {
                let own = turned[(held.base + query, j)];
                let column = turned.col_as_slice(j);
                let square = |row: &u32| f64::from(own - column[*row as usize]).powi(2);
                *near += rows.iter().map(square).sum::<f64>();
            }
        }
        let first = near[0].max(f64::MIN_POSITIVE);
        let scale = |w: &f64| (w / first).powf(SCALE_POWER).max(MIN_SCALE);
        let scales: Vec<f64> = near.iter().map(scale).collect();
        let variances: Vec<f64> = values.iter().zip(&scales).map(|(v, s)| v * s * s).collect();
        let order = deal(&variances, segments.min(rank));
        let own: Vec<(usize, f32)> = order.iter().map(|j| (*j, scales[*j] as f32)).collect();
        let row = |i: usize| own.iter().map(move |(j, s)| (i, *j, *s));
        let mut rows = Vec::with_capacity(held.base * rank);
        rows.extend((0..held.base).flat_map(row).map(|(i, j, s)| turned[(i, j)] * s));
        let queries = Mat::from_fn(rank, held.queries, |j, q| turned[(held.base + q, order[j])]);
        let scales = own.iter().map(|(_, s)| *s).collect();
        Self { rows, queries, scales, order, axes }
    }

    /// Some rows and queries with these scales.
    #[cfg(test)]
    pub(super) fn of(rows: Vec<f32>, queries: Mat<f32>, scales: Vec<f32>) -> Self {
        Self { rows, queries, order: (0..scales.len()).collect(), scales, axes: Mat::new() }
    }

    /// The projections of sampled rows, not scaled: of queries, and then of the base. A column for each.
    pub(super) fn projections(&self, range: Range<usize>) -> Mat<f32> {
        let (k, held_out) = (self.scales.len(), self.queries.ncols());
        Mat::from_fn(k, range.len(), |j, i| match (range.start + i).checked_sub(held_out) {
            None => self.queries[(j, range.start + i)],
            Some(row) => self.rows[row * k + j] / self.scales[j],
        })
    }

    /// The directions, each times its scale, and the scales. `v` are the directions before they were turned.
    pub(super) fn directions(&self, dim: usize, v: MatRef<'_, f64>) -> (Vec<f32>, Vec<f32>) {
        let turned = linalg::product(v, self.axes.as_ref());
        let mut directions = Vec::with_capacity(dim * self.order.len());
        for (j, scale) in self.order.iter().zip(&self.scales) {
            let scale = f64::from(*scale);
            directions.extend(turned.col_as_slice(*j).iter().map(|x| (x * scale) as f32));
        }
        (directions, self.scales.clone())
    }
}

/// The coordinates of each segment, one segment after the other. They are dealt from the largest variance to the smallest,
/// each to the segment with the smallest product of variances so far.
fn deal(variances: &[f64], segments: usize) -> Vec<usize> {
    let least = variances.iter().copied().fold(f64::INFINITY, f64::min).max(f64::MIN_POSITIVE);
    let mut order: Vec<usize> = (0..variances.len()).collect();
    order.sort_by(|a, b| variances[*b].total_cmp(&variances[*a]));
    let widths = Codebooks::widths(variances.len(), segments);
    let mut dealt: Vec<(f64, Vec<usize>)> = vec![(0.0, Vec::new()); segments];
    for j in order {
        let open = (0..segments).filter(|s| dealt[*s].1.len() < widths[*s]);
        let to = open.min_by(|a, b| dealt[*a].0.total_cmp(&dealt[*b].0)).unwrap_or(0);
        // The small number deals coordinates without variance evenly.
        dealt[to].0 += (variances[j].max(least) / least).ln() + 1e-6;
        dealt[to].1.push(j);
    }
    dealt.into_iter().flat_map(|(_, own)| own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 256 goes with 2, and 16 with 8: no other pairs of these have products that are as even.
    #[test]
    fn coordinates_are_dealt_so_that_products_of_variances_are_even() {
        assert_eq!(deal(&[256.0, 16.0, 8.0, 2.0], 2), [0, 3, 1, 2]);
        // Whatever their order, and without variance too.
        assert_eq!(deal(&[2.0, 16.0, 256.0, 8.0], 2), [2, 0, 1, 3]);
        assert_eq!(deal(&[0.0; 4], 2), [0, 2, 1, 3]);
    }
}
