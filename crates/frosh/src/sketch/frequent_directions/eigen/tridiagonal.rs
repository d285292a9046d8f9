//! The largest eigenpairs of a symmetric tridiagonal matrix `T` of norm at most one.
//!
//! Values: bisection on the number of eigenvalues below `x`, which is the number of sign changes
//! in `p_i = (d_i - x) p_{i-1} - e_{i-1}^2 p_{i-2}`, `p_0 = 1` (Givens 1954; Wilkinson, The
//! Algebraic Eigenvalue Problem, chapter 5). Vectors: inverse iteration through an LU factorisation
//! with row exchanges, two solves from a pseudo-random start, then orthogonalisation against the
//! vectors of close values (Peters and Wilkinson 1971; LAPACK's `stein`).
//!
//! Where it differs from LAPACK's `stebz` and `stein`, and why:
//! - Twelve values are bisected and eight vectors solved at a time, a value to a lane.
//! - The counts use the polynomial itself, scaled by a power of two every eight steps, and not
//!   the quotients `p_i / p_{i-1}`: no division, which would cost four times the rest.
//! - Vectors are orthogonalised against a window of values within 1e-5, not against a cluster
//!   chained together by gaps of 1e-3. This is enough in `f64`: from residuals `r` it follows that
//!   `|z_i' z_j| <= (|r_i| + |r_j|) / |t_i - t_j|`, so that beyond the window the cosine is under
//!   3e-9 when the residual test passes and near 1e-11 as a rule.
//! - The residual of every vector is tested; one that fails is begun again from a start that is
//!   orthogonal to its window, and after four failures the caller is told to use other means.
//!
//! Cost for `k` pairs: `53 n k` short steps of bisection, `O(n k)` of solving, at most `n k^2`
//! multiply-adds of orthogonalisation, reached only if all values are close.

use super::householder::dot;
use crate::arch::{F64Vector, F64x4, LANES};
use std::array::from_fn;

/// Vectors of values that are bisected together: enough to hide the latency of the recurrence.
pub(crate) const BISECTED: usize = 3;
/// Vectors of values that are solved for together in an inverse iteration.
pub(crate) const SOLVED: usize = 2;
/// Values in them.
pub(crate) const BATCH: usize = SOLVED * LANES;
/// One coordinate of a batch of vectors.
pub(crate) type Wide = [F64x4; SOLVED];

/// Half the width of the last interval, and the smallest pivot: the rounding level of `T`.
const LEVEL: f64 = f64::EPSILON / 2.0;
/// Values closer than this have their vectors orthogonalised explicitly.
const WINDOW: f64 = 1e-5;
/// The largest accepted `|T z - t z|`.
const RESIDUAL: f64 = 64.0 * f64::EPSILON;
const ATTEMPTS: usize = 4;

/// A tridiagonal matrix with `e[i]` between `d[i]` and `d[i + 1]`; the last `e` is zero.
#[derive(Clone, Copy)]
pub(crate) struct Tridiagonal<'a> {
    pub(crate) d: &'a [f64],
    pub(crate) e: &'a [f64],
}

/// A row of the factors of `T - t I`: reciprocal pivot, the two entries right of it, the
/// multiplier, and the mask of lanes in which the row changed places with the next.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Factor {
    pivot: Wide,
    first: Wide,
    second: Wide,
    multiplier: Wide,
    swap: Wide,
}

/// A reproducible number in [-1, 1).
pub(crate) fn random(seed: &mut u64) -> f64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
}

/// The largest eigenvalues in descending order but for the first `at`, as many as fit; `minus` holds
/// `-e_{i-1}^2`, kept from zero so that no two neighbours of the sequence vanish together.
#[inline(always)]
pub(crate) fn largest<S: F64Vector>(
    s: S,
    d: &[f64],
    minus: &[f64],
    mut at: usize,
    values: &mut [[F64x4; BISECTED]],
) {
    for values in values {
        let mut index = [s.splat(0.0); BISECTED];
        for index in &mut index {
            // Counts are integers in the bits of a lane; as subnormal numbers they compare alike.
            let ascending = |l| f64::from_bits((d.len() - 1).saturating_sub(at + l) as u64);
            *index = s.load(&[ascending(0), ascending(1), ascending(2), ascending(3)]);
            at += LANES;
        }
        let mut low = [s.splat(-1.0); BISECTED];
        let mut half = 1.0;
        while half > LEVEL {
            let mut x = low;
            for x in &mut x {
                *x = s.add(*x, s.splat(half));
            }
            let count = below(s, d, minus, &x);
            for v in 0..BISECTED {
                low[v] = s.select(s.lt(index[v], count[v]), low[v], x[v]);
            }
            half *= 0.5;
        }
        for (value, low) in values.iter_mut().zip(low) {
            s.store(s.add(low, s.splat(half)), value);
        }
    }
}

/// How many eigenvalues lie below each `x`.
#[inline(always)]
fn below<S: F64Vector>(s: S, d: &[f64], minus: &[f64], x: &[S::V; BISECTED]) -> [S::V; BISECTED] {
    let zero = s.splat(0.0);
    let (mut count, mut before, mut p) =
        ([zero; BISECTED], [zero; BISECTED], [s.splat(1.0); BISECTED]);
    for (d, minus) in d.chunks(8).zip(minus.chunks(8)) {
        for (d, minus) in d.iter().zip(minus) {
            let (d, minus) = (s.splat(*d), s.splat(*minus));
            for v in 0..BISECTED {
                let next = s.fma(s.sub(d, x[v]), p[v], s.mul(minus, before[v]));
                count[v] = s.count_sign_change(count[v], next, p[v]);
                (before[v], p[v]) = (p[v], next);
            }
        }
        for v in 0..BISECTED {
            let f = s.to_unit(s.max(s.abs(p[v]), s.abs(before[v])));
            (before[v], p[v]) = (s.mul(f, before[v]), s.mul(f, p[v]));
        }
    }
    count
}

/// Buffers of the inverse iteration: `n` rows, `n` rows, `n` numbers, the length of a column.
pub(crate) struct Iteration<'a> {
    pub(crate) factors: &'a mut [Factor],
    pub(crate) x: &'a mut [Wide],
    pub(crate) start: &'a [f64],
    pub(crate) spare: &'a mut [F64x4],
}

impl Iteration<'_> {
    /// Solves for the eigenvectors of `values` (descending), the first of which is number `first`, a multiple of
    /// [`BATCH`], into the columns of `z`. They are to be settled.
    #[inline(always)]
    pub(crate) fn solve<S: F64Vector>(
        &mut self,
        s: S,
        t: Tridiagonal<'_>,
        first: usize,
        values: &[f64],
        z: &mut [F64x4],
    ) {
        let (n, nb) = (t.d.len(), t.d.len().div_ceil(LANES));
        for (batch, (values, z)) in values.chunks(BATCH).zip(z.chunks_mut(BATCH * nb)).enumerate() {
            let mut shifts = [values[0]; BATCH];
            shifts[..values.len()].copy_from_slice(values);
            self.factorise(s, t, &shifts);
            for l in 0..BATCH {
                // Every vector starts from its own rotation: equal values need unequal starts.
                let rotation = (first + batch * BATCH + l) % n;
                let (tail, head) = self.start.split_at(rotation);
                for (x, r) in self.x.iter_mut().zip(head.iter().chain(tail)) {
                    x[l / LANES][l % LANES] = *r;
                }
            }
            // A random vector is as random after `L^-1`, so the first solve does without.
            self.solve_upper(s);
            self.solve_lower(s);
            self.solve_upper(s);
            for (l, column) in z.chunks_exact_mut(nb).enumerate() {
                self.column(l, column);
            }
        }
    }

    /// Makes the solved columns of `z` orthonormal; false if a vector has failed the residual test.
    #[inline(always)]
    pub(crate) fn settle_all<S: F64Vector>(
        &mut self,
        s: S,
        t: Tridiagonal<'_>,
        values: &[f64],
        z: &mut [F64x4],
    ) -> bool {
        let nb = self.spare.len();
        let (mut from, mut seed) = (0, 1);
        for (j, &value) in values.iter().enumerate() {
            while values[from] - value > WINDOW {
                from += 1;
            }
            let (done, rest) = z.split_at_mut(j * nb);
            let (done, column) = (&done[from * nb..], &mut rest[..nb]);
            if !self.settle(s, t, value, done, column)
                && !self.retry(s, t, value, done, column, &mut seed)
            {
                return false;
            }
        }
        true
    }

    /// Orthogonalises and normalises `column`, then tests its residual.
    #[inline(always)]
    fn settle<S: F64Vector>(
        &mut self,
        s: S,
        t: Tridiagonal<'_>,
        value: f64,
        done: &[F64x4],
        column: &mut [F64x4],
    ) -> bool {
        normalise(s, column);
        if !done.is_empty() {
            // What is left of a vector after heavy cancellation is not orthogonal yet.
            for _ in 0..3 {
                project(s, done, column);
                if normalise(s, column) > 0.5 {
                    break;
                }
            }
        }
        let (n, z, r) = (t.d.len(), column.as_flattened(), self.spare.as_flattened_mut());
        for ((r, d), z) in r.iter_mut().zip(t.d).zip(z) {
            *r = (d - value) * z;
        }
        for ((r, e), z) in r.iter_mut().zip(t.e).zip(&z[1..n]) {
            *r += e * z;
        }
        for ((r, e), z) in r[1..n].iter_mut().zip(t.e).zip(z) {
            *r += e * z;
        }
        r[n..].fill(0.0);
        dot(s, self.spare, self.spare) <= RESIDUAL * RESIDUAL
    }

    /// Begins one vector again, from starts orthogonal to the vectors of close values.
    #[inline(never)]
    fn retry<S: F64Vector>(
        &mut self,
        s: S,
        t: Tridiagonal<'_>,
        value: f64,
        done: &[F64x4],
        column: &mut [F64x4],
        seed: &mut u64,
    ) -> bool {
        let n = t.d.len();
        s.run(
            #[inline(always)]
            || {
                self.factorise(s, t, &[value; BATCH]);
                (0..ATTEMPTS).any(|_| {
                    column.fill([0.0; LANES]);
                    column.as_flattened_mut()[..n].fill_with(|| random(seed));
                    project(s, done, column);
                    for (x, c) in self.x.iter_mut().zip(column.as_flattened()) {
                        *x = [[*c; LANES]; SOLVED];
                    }
                    self.solve_lower(s);
                    self.solve_upper(s);
                    self.column(0, column);
                    self.settle(s, t, value, done, column)
                })
            },
        )
    }

    /// `P (T - t I) = L U`, a shift `t` to a lane, by elimination with row exchanges.
    #[inline(always)]
    fn factorise<S: F64Vector>(&mut self, s: S, t: Tridiagonal<'_>, shifts: &[f64; BATCH]) {
        let (zero, one, tiny) = (s.splat(0.0), s.splat(1.0), s.splat(LEVEL));
        let (shifts, _) = shifts.as_chunks::<LANES>();
        for (v, shift) in shifts.iter().enumerate() {
            let shift = s.load(shift);
            let mut diagonal = s.sub(s.splat(t.d[0]), shift);
            let mut above = s.splat(t.e[0]);
            for (i, factor) in self.factors.iter_mut().enumerate() {
                let below = s.splat(t.e[i]);
                let (next, next_above) = match t.d.get(i + 1) {
                    Some(d) => (s.sub(s.splat(*d), shift), s.splat(t.e[i + 1])),
                    None => (zero, zero),
                };
                let swap = s.lt(s.abs(diagonal), s.abs(below));
                let pivot = s.select(swap, below, diagonal);
                let pivot = s.div(one, s.select(s.lt(s.abs(pivot), tiny), tiny, pivot));
                let multiplier = s.mul(s.select(swap, diagonal, below), pivot);
                let (first, second) =
                    (s.select(swap, next, above), s.select(swap, next_above, zero));
                diagonal = s.fnma(multiplier, first, s.select(swap, above, next));
                above = s.fnma(multiplier, second, s.select(swap, zero, next_above));
                s.store(pivot, &mut factor.pivot[v]);
                s.store(first, &mut factor.first[v]);
                s.store(second, &mut factor.second[v]);
                s.store(multiplier, &mut factor.multiplier[v]);
                s.store(swap, &mut factor.swap[v]);
            }
        }
    }

    /// `x <- L^-1 P x`, after bringing `x` to size one.
    #[inline(always)]
    fn solve_lower<S: F64Vector>(&mut self, s: S) {
        for v in 0..SOLVED {
            let mut size = s.splat(f64::MIN_POSITIVE);
            for x in &*self.x {
                size = s.max(s.abs(s.load(&x[v])), size);
            }
            let f = s.to_unit(size);
            let mut carry = s.mul(f, s.load(&self.x[0][v]));
            for (i, factor) in self.factors.iter().enumerate() {
                let next = self.x.get(i + 1).map_or(s.splat(0.0), |x| s.mul(f, s.load(&x[v])));
                let swap = s.load(&factor.swap[v]);
                let here = s.select(swap, next, carry);
                carry = s.fnma(s.load(&factor.multiplier[v]), here, s.select(swap, carry, next));
                s.store(here, &mut self.x[i][v]);
            }
        }
    }

    /// `x <- U^-1 x`.
    #[inline(always)]
    fn solve_upper<S: F64Vector>(&mut self, s: S) {
        let (mut near, mut far) = ([s.splat(0.0); SOLVED], [s.splat(0.0); SOLVED]);
        for (factor, x) in self.factors.iter().zip(&mut *self.x).rev() {
            for v in 0..SOLVED {
                let rest = s.fnma(s.load(&factor.second[v]), far[v], s.load(&x[v]));
                let rest = s.fnma(s.load(&factor.first[v]), near[v], rest);
                (far[v], near[v]) = (near[v], s.mul(rest, s.load(&factor.pivot[v])));
                s.store(near[v], &mut x[v]);
            }
        }
    }

    /// Copies lane `l` of the batch into a column, whose padding stays zero.
    #[inline(always)]
    fn column(&self, l: usize, column: &mut [F64x4]) {
        let (column, rest) = column.as_flattened_mut().split_at_mut(self.x.len());
        for (c, x) in column.iter_mut().zip(&*self.x) {
            *c = x[l / LANES][l % LANES];
        }
        rest.fill(0.0);
    }
}

/// Divides `column` by its norm and returns the norm.
#[inline(always)]
fn normalise<S: F64Vector>(s: S, column: &mut [F64x4]) -> f64 {
    let norm = dot(s, column, column).sqrt();
    let f = s.splat(norm.recip());
    for c in column {
        s.store(s.mul(f, s.load(c)), c);
    }
    norm
}

/// Takes from `column` its components along the orthonormal columns of `done`, four at a time.
#[inline(always)]
fn project<S: F64Vector>(s: S, done: &[F64x4], column: &mut [F64x4]) {
    let nb = column.len();
    let mut quads = done.chunks_exact(LANES * nb);
    for quad in &mut quads {
        remove::<S, LANES>(s, from_fn(|i| &quad[i * nb..(i + 1) * nb]), column);
    }
    for one in quads.remainder().chunks_exact(nb) {
        remove(s, [one], column);
    }
}

#[inline(always)]
fn remove<S: F64Vector, const C: usize>(s: S, done: [&[F64x4]; C], column: &mut [F64x4]) {
    let mut acc = [s.splat(0.0); LANES];
    for (i, x) in column.iter().enumerate() {
        let x = s.load(x);
        for c in 0..C {
            acc[c] = s.fma(s.load(&done[c][i]), x, acc[c]);
        }
    }
    let mut sums = [0.0; LANES];
    s.store(s.sums(acc), &mut sums);
    for c in 0..C {
        acc[c] = s.splat(sums[c]);
    }
    for (i, to) in column.iter_mut().enumerate() {
        let mut x = s.load(to);
        for c in 0..C {
            x = s.fnma(acc[c], s.load(&done[c][i]), x);
        }
        s.store(x, to);
    }
}
