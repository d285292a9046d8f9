//! The product inside the shrink, which rotates the old rows to the new ones.
//!
//! After many shrinks a strong row changes very little. A change of less than half a unit in the last place would
//! always be rounded away, and the loss would accumulate over shrinks. Therefore such rows are computed as the old row
//! plus a change, and the sum is rounded up or down at random, with probabilities that make its expectation exact.

use crate::pool::Pool;
use crate::random::mix;
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatMut, MatRef, Par};

/// New row `to` is nearly a multiple of old row `from`.
struct NearMultiple {
    to: usize,
    from: usize,
    factor: f64,
}

/// Largest squared change, relative to the squared length, for random rounding: a change of 2^-15, of which rounding is
/// 2^-9.
const SMALL_CHANGE: f64 = 1.0 / (1u64 << 30) as f64;

/// The new rows that change very little.
fn near_multiples(map: MatRef<'_, f32>, squares: &[f64]) -> Vec<NearMultiple> {
    let of = |to: usize| {
        // The sum excludes the largest term from the start: subtracting it afterwards would cancel small terms.
        let (mut change, mut largest, mut from) = (0.0, 0.0, 0);
        for (j, (x, square)) in map.row(to).iter().zip(squares).enumerate() {
            let mut part = f64::from(*x).powi(2) * square;
            if part > largest {
                std::mem::swap(&mut part, &mut largest);
                from = j;
            }
            change += part;
        }
        let small = change > 0.0 && change < SMALL_CHANGE * largest;
        small.then(|| NearMultiple { to, from, factor: f64::from(map[(to, from)]) })
    };
    (0..map.nrows()).filter_map(of).collect()
}

impl NearMultiple {
    /// Adds the old row to its change, with random rounding.
    fn add(&self, change: &mut [f32], old: &[f32], salt: u64) {
        for (i, (x, old)) in change.iter_mut().zip(old).enumerate() {
            let sum = self.factor * f64::from(*old) + f64::from(*x);
            let noise = mix(sum.to_bits() ^ mix(salt ^ (i as u64) << 16));
            *x = round_at_random(sum, noise);
        }
    }
}

/// One of the two single-precision neighbours of `x`, chosen by the random bits of `noise` so that the expectation is `x`.
fn round_at_random(x: f64, noise: u64) -> f32 {
    // The mantissa of a double has 29 more bits.
    const REST: u64 = (1 << 29) - 1;
    f64::from_bits((x.to_bits() + (noise & REST)) & !REST) as f32
}

/// Replaces the first `map.nrows()` rows of `rows` by `map` times its first `map.ncols()` rows, whose squared lengths are
/// about `squares`. Random rounding is a function of the values and `salt`.
pub(super) fn rotate(
    pool: &Pool,
    map: MatRef<'_, f32>,
    squares: &[f64],
    rows: &mut [f32],
    dim: usize,
    salt: u64,
) {
    let (n_out, n_in) = (map.nrows(), map.ncols());
    let near_multiples = near_multiples(map, squares);
    let mut changes = None;
    if !near_multiples.is_empty() {
        let map = changes.insert(map.to_owned());
        near_multiples.iter().for_each(|c| map[(c.to, c.from)] = 0.0);
    }
    let map = changes.as_ref().map_or(map, Mat::as_ref);
    // Columns of a strip: as many as keep the strip in cache.
    let width = ((1 << 14) / n_in.next_power_of_two()).clamp(64, 512);
    let mut strips: Vec<Vec<&mut [f32]>> = (0..dim.div_ceil(width)).map(|_| Vec::new()).collect();
    for row in rows.chunks_exact_mut(dim).take(n_in) {
        for (strip, part) in strips.iter_mut().zip(row.chunks_mut(width)) {
            strip.push(part);
        }
    }
    // Several strips for each task, so that few buffers are allocated; one task if the work is too small to wake
    // another thread.
    let tasks = if n_in * n_out * dim < 1 << 23 { 1 } else { 2 * pool.threads() };
    let per_task = strips.len().div_ceil(tasks).max(1);
    let tasks: Vec<_> = strips.chunks_mut(per_task).collect();
    let tasks: Vec<_> = tasks.into_iter().enumerate().collect();
    pool.each(tasks, |(task, strips)| {
        let mut old = vec![0f32; n_in * width];
        let mut new = vec![0f32; n_out * width];
        for (number, strip) in strips.iter_mut().enumerate() {
            let w = strip[0].len();
            for (to, from) in old.chunks_exact_mut(w).zip(strip.iter()) {
                to.copy_from_slice(from);
            }
            matmul(
                MatMut::from_row_major_slice_mut(&mut new[..n_out * w], n_out, w),
                Accum::Replace,
                map,
                MatRef::from_row_major_slice(&old[..n_in * w], n_in, w),
                1.0,
                Par::Seq,
            );
            for c in &near_multiples {
                let salt = salt ^ (((task * per_task + number) as u64) << 32 | c.to as u64);
                let change = &mut new[c.to * w..][..w];
                c.add(change, &old[c.from * w..][..w], salt);
            }
            for (to, from) in strip.iter_mut().zip(new.chunks_exact(w)).take(n_out) {
                to.copy_from_slice(from);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_rounding_is_exact_in_expectation() {
        for x in [1.0 + 1e-9, -3.7e5, 1e-3 + 1e-12, -1.0, 0.0, 2.0 - 1e-9] {
            let n = 100_000u64;
            let rounded = |i| f64::from(round_at_random(x, mix(i)));
            let mean = (0..n).map(rounded).sum::<f64>() / n as f64;
            // Five standard deviations of the mean; a single rounding error is at most one unit in the last place.
            let unit = x.abs() * f64::from(f32::EPSILON);
            assert!((mean - x).abs() <= 5.0 * unit / (2.0 * (n as f64).sqrt()), "{x}: {mean}");
            assert!((0..n).all(|i| (rounded(i) - x).abs() <= unit));
        }
    }

    /// A map that moves a strong row by less than a unit in the last place, many times.
    #[test]
    fn small_changes_add_up() {
        let (dim, shrinks) = (70, 4000);
        let step = 2f32.powi(-26);
        let map = Mat::from_fn(1, 2, |_, j| if j == 0 { 1.0 } else { step });
        let mut rows = vec![1f32; 2 * dim];
        let mut squares = vec![dim as f64; 2];
        for salt in 0..shrinks {
            rotate(&Pool::ONE, map.as_ref(), &squares, &mut rows, dim, salt);
            squares[0] = rows[..dim].iter().map(|x| f64::from(*x).powi(2)).sum();
        }
        let got = rows[..dim].iter().map(|x| f64::from(*x) - 1.0).sum::<f64>() / dim as f64;
        let want = shrinks as f64 * f64::from(step);
        // Steps of 2^-23 occur with probability 1/8: five standard deviations of their mean count.
        let deviation = (shrinks as f64 / 8.0 / dim as f64).sqrt() * f64::from(f32::EPSILON);
        assert!((got - want).abs() <= 5.0 * deviation, "{got} instead of {want}");
    }
}
