//! Reduction of a symmetric matrix to tridiagonal form by Householder reflections, and back.
//!
//! `T = Q' A Q` with `Q = H_{n-1} ... H_2` and `H_m = I - u u'`, `|u|^2 = 2` or `u = 0`, where
//! `H_m` clears row `m` left of its subdiagonal entry and touches coordinates below `m` only
//! (Golub and Van Loan, Matrix Computations, 8.3.1, run from the last row up so that every row
//! starts at column 0). With `y = A u` and `w = y - (u'y / 2) u` the update is
//! `A <- A - u w' - w u'`.
//!
//! Where it differs from LAPACK's `sytrd`: the update of one step and the product `A u` of the
//! next are one pass over the lower triangle, each element being loaded once and used for its
//! row and for its column (4 multiply-adds per load and store; Howell et al., "Cache efficient
//! bidiagonalization using BLAS 2.5 operators", ACM TOMS 34, 2008, fuse in the same spirit).
//! There is no panel and no general matrix product, whose overhead dominates at these sizes.
//!
//! The triangle is stored as 4 x 4 tiles, block row after block row, so that a pass reads one
//! stream, `A` takes half the memory, and four reflectors lie together for the way back: they
//! are applied as `I - U L^-1 U'` with `L` the unit lower triangle of `U'U` (the UT transform,
//! Joffrain et al., ACM TOMS 32, 2006).
//!
//! Cost: `2/3 n^3` multiply-adds forward, `n^2` per vector back; `4 n^2` bytes.

use crate::arch::{F64Vector, F64x4, LANES};
use std::ops::Range;

/// A 4 x 4 piece of the matrix, row by row; cache-line aligned so that no load straddles lines.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct Tile(pub(crate) [F64x4; LANES]);

/// Columns of vectors that share one visit of four reflectors: they stay in the first cache.
pub(crate) const COLUMNS: usize = 8;
/// Squared entries whose sum is below this are zero beside a matrix of norm about one.
const NOTHING: f64 = 1e-280;

/// Where the tiles of block row `b` are; the last of them is the diagonal tile.
#[inline(always)]
pub(crate) fn block(b: usize) -> Range<usize> {
    let start = b * (b + 1) / 2;
    start..start + b + 1
}

#[inline(always)]
pub(crate) fn dot<S: F64Vector>(s: S, a: &[F64x4], b: &[F64x4]) -> f64 {
    let mut acc = [s.splat(0.0); LANES];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        for i in 0..LANES {
            acc[i] = s.fma(s.load(&a[i]), s.load(&b[i]), acc[i]);
        }
    }
    for (a, b) in a_rest.iter().zip(b_rest) {
        acc[0] = s.fma(s.load(a), s.load(b), acc[0]);
    }
    let mut sums = [0.0; LANES];
    s.store(s.sums(acc), &mut sums);
    (sums[0] + sums[1]) + (sums[2] + sums[3])
}

/// Reduces the matrix in `tiles` to the diagonal `d` and the subdiagonal `e`, leaving in row `m`
/// of `tiles` the vector of `H_m`. `work` holds four vectors; diagonal tiles come in mirrored.
#[inline(always)]
pub(crate) fn reduce<S: F64Vector>(
    s: S,
    tiles: &mut [Tile],
    work: &mut [F64x4],
    d: &mut [f64],
    e: &mut [f64],
) {
    let n = d.len();
    let nb = n.div_ceil(LANES);
    let (mut v, rest) = work.split_at_mut(nb);
    let (w, rest) = rest.split_at_mut(nb);
    let (mut u, y) = rest.split_at_mut(nb);
    v.fill([0.0; LANES]);
    w.fill([0.0; LANES]);
    for m in (0..n).rev() {
        // Row `m` is brought up to date ahead of the pass: the next reflector comes from it.
        let (b, r, len) = (m / LANES, m % LANES, m.div_ceil(LANES));
        let (vm, wm) = (s.splat(v[b][r]), s.splat(w[b][r]));
        u.fill([0.0; LANES]);
        for (((t, u), v), w) in tiles[block(b)].iter().zip(&mut *u).zip(&*v).zip(&*w) {
            s.store(s.fnma(wm, s.load(v), s.fnma(vm, s.load(w), s.load(&t.0[r]))), u);
        }
        d[m] = u[b][r];
        // Zeros from `m` on keep the finished rows of a shared block row out of the pass.
        u[b][r..].fill(0.0);
        (v[b][r], w[b][r]) = (0.0, 0.0);
        if m > 0 {
            e[m - 1] = reflector(s, m - 1, &mut u[..len]);
        }
        for (t, u) in tiles[block(b)].iter_mut().zip(&*u) {
            t.0[r] = *u;
        }
        y[..len].fill([0.0; LANES]);
        pass(s, &mut tiles[..len * (len + 1) / 2], v, w, u, y);
        if m % LANES != 0 {
            y[len - 1][m % LANES..].fill(0.0);
        }
        let h = s.splat(-0.5 * dot(s, &u[..len], &y[..len]));
        for ((w, y), u) in w[..len].iter_mut().zip(&y[..len]).zip(&u[..len]) {
            s.store(s.fma(h, s.load(u), s.load(y)), w);
        }
        std::mem::swap(&mut v, &mut u);
    }
}

/// Turns `u` into the vector that reflects it onto coordinate `last`; returns what stands there.
#[inline(always)]
fn reflector<S: F64Vector>(s: S, last: usize, u: &mut [F64x4]) -> f64 {
    let alpha = std::mem::take(&mut u[last / LANES][last % LANES]);
    let rest = dot(s, u, u);
    if rest <= NOTHING {
        u.fill([0.0; LANES]);
        return alpha;
    }
    let norm = (alpha * alpha + rest).sqrt();
    u[last / LANES][last % LANES] = alpha + norm.copysign(alpha);
    let f = s.splat((norm * (norm + alpha.abs())).sqrt().recip());
    for u in u {
        s.store(s.mul(f, s.load(u)), u);
    }
    -norm.copysign(alpha)
}

/// `A <- A - v w' - w v'` and `y <- y + A u` in one sweep of the lower triangle.
#[inline(always)]
fn pass<S: F64Vector>(
    s: S,
    mut tiles: &mut [Tile],
    v: &[F64x4],
    w: &[F64x4],
    u: &[F64x4],
    y: &mut [F64x4],
) {
    let mut b = 0;
    while let Some((row, rest)) = tiles.split_at_mut_checked(b + 1) {
        tiles = rest;
        let (head, diagonal) = row.split_at_mut(b);
        let (above, here) = y.split_at_mut(b);
        let (vb, wb, ub) = (v[b], w[b], u[b]);
        let zero = s.splat(0.0);
        let (mut vi, mut wi, mut ui, mut acc) =
            ([zero; LANES], [zero; LANES], [zero; LANES], [zero; LANES]);
        for r in 0..LANES {
            (vi[r], wi[r], ui[r]) = (s.splat(vb[r]), s.splat(wb[r]), s.splat(ub[r]));
        }
        for ((((t, v), w), u), y) in head.iter_mut().zip(v).zip(w).zip(u).zip(above) {
            let (v, w, u, mut down) = (s.load(v), s.load(w), s.load(u), s.load(y));
            for (r, t) in t.0.iter_mut().enumerate() {
                let a = s.fnma(wi[r], v, s.fnma(vi[r], w, s.load(t)));
                s.store(a, t);
                down = s.fma(a, ui[r], down);
                acc[r] = s.fma(a, u, acc[r]);
            }
            s.store(down, y);
        }
        // The diagonal tile holds both its halves: rows alone give the whole product.
        let (v, w, u) = (s.load(&vb), s.load(&wb), s.load(&ub));
        for (r, t) in diagonal[0].0.iter_mut().enumerate() {
            let a = s.fnma(wi[r], v, s.fnma(vi[r], w, s.load(t)));
            s.store(a, t);
            acc[r] = s.fma(a, u, acc[r]);
        }
        s.store(s.add(s.load(&here[0]), s.sums(acc)), &mut here[0]);
        b += 1;
    }
}

/// Replaces the columns of `z`, of `nb` lanes each, by `Q z`.
#[inline(always)]
pub(crate) fn back<S: F64Vector>(s: S, tiles: &[Tile], nb: usize, z: &mut [F64x4]) {
    for z in z.chunks_mut(COLUMNS * nb) {
        for b in 0..nb {
            let tiles = &tiles[block(b)];
            let lower = lower(s, tiles);
            let mut pairs = z.chunks_exact_mut(2 * nb);
            for pair in &mut pairs {
                let (x, y) = pair.split_at_mut(nb);
                reflect(s, tiles, &lower, [&mut x[..b + 1], &mut y[..b + 1]]);
            }
            if let Some(x) = pairs.into_remainder().get_mut(..b + 1) {
                reflect(s, tiles, &lower, [x]);
            }
        }
    }
}

/// The inner products of four reflectors that stand below the diagonal of `U'U`, by rows.
#[inline(always)]
fn lower<S: F64Vector>(s: S, tiles: &[Tile]) -> [F64x4; 2] {
    let zero = s.splat(0.0);
    let (mut near, mut far) = ([zero; LANES], [zero; LANES]);
    for Tile(t) in tiles {
        let (a, b, c, d) = (s.load(&t[0]), s.load(&t[1]), s.load(&t[2]), s.load(&t[3]));
        near[0] = s.fma(a, b, near[0]);
        near[1] = s.fma(a, c, near[1]);
        near[2] = s.fma(b, c, near[2]);
        far[0] = s.fma(a, d, far[0]);
        far[1] = s.fma(b, d, far[1]);
        far[2] = s.fma(c, d, far[2]);
    }
    let mut lower = [[0.0; LANES]; 2];
    s.store(s.sums(near), &mut lower[0]);
    s.store(s.sums(far), &mut lower[1]);
    lower
}

/// Applies four reflectors, the first of them first, to `C` columns.
#[inline(always)]
fn reflect<S: F64Vector, const C: usize>(
    s: S,
    tiles: &[Tile],
    lower: &[F64x4; 2],
    mut z: [&mut [F64x4]; C],
) {
    let zero = s.splat(0.0);
    let mut acc = [[zero; LANES]; C];
    for (i, Tile(t)) in tiles.iter().enumerate() {
        for (acc, z) in acc.iter_mut().zip(&z) {
            let z = s.load(&z[i]);
            for r in 0..LANES {
                acc[r] = s.fma(s.load(&t[r]), z, acc[r]);
            }
        }
    }
    let ([ba, ca, cb, _], [da, db, dc, _]) = (lower[0], lower[1]);
    let mut f = [[zero; LANES]; C];
    for (f, acc) in f.iter_mut().zip(acc) {
        let mut sums = [0.0; LANES];
        s.store(s.sums(acc), &mut sums);
        let [a, b, c, d] = sums;
        let b = b - ba * a;
        let c = (c - ca * a) - cb * b;
        let d = (d - da * a - db * b) - dc * c;
        *f = [s.splat(a), s.splat(b), s.splat(c), s.splat(d)];
    }
    for (i, Tile(t)) in tiles.iter().enumerate() {
        for (c, z) in z.iter_mut().enumerate() {
            let mut x = s.load(&z[i]);
            for r in 0..LANES {
                x = s.fnma(s.load(&t[r]), f[c][r], x);
            }
            s.store(x, &mut z[i]);
        }
    }
}
