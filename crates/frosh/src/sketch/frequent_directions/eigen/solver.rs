//! The largest half of the eigenpairs of a small dense symmetric matrix.
//!
//! What it is: for the Gram matrix `G` of a full sketch, of order `n`, the `n/2 + 1` largest
//! eigenvalues and the eigenvectors of the `n/2` largest, which is all that the shrink of
//! Frequent Directions reads of `G`.
//!
//! Algorithm: `G = Q T Q'` with `T` tridiagonal ([`super::householder`]); the wanted eigenpairs
//! `T z = t z` by bisection and inverse iteration ([`super::tridiagonal`]); `u = Q z`. This is
//! the scheme of LAPACK's `syevx`; see Golub and Van Loan, Matrix Computations, 8.2 to 8.4, and
//! Parlett, The Symmetric Eigenvalue Problem, chapters 3, 4 and 7.
//!
//! Where it differs, and why: divide and conquer, as in faer's `self_adjoint_evd`, computes and
//! transforms all `n` vectors and spends most of its time on products of `n` x `n` matrices.
//! Bisection and inverse iteration cost `O(n)` a pair, fill vector registers with as many pairs
//! as there are lanes, and never touch the unwanted half. What they lack is a guarantee for
//! clustered eigenvalues. So each vector is tested, and if one fails beyond repair `T` goes to
//! faer's divide and conquer after all. All is done in `f64`: it is faster here than the `f32`
//! divide and conquer it replaces, and values well below `1e-7` of the largest stay meaningful.
//!
//! Cost: about `2/3 n^3` multiply-adds for `T`, `n^3/2` for `Q z`, `27 n^2` steps of bisection;
//! measured 0.07, 0.31 and 1.7 ms for `n` = 64, 128 and 256 on one Zen 3 core, against 0.25, 1.1
//! and 4.3 ms for all pairs from faer in `f32`. Memory: `8 n^2 + 470 n` bytes, 0.64 MB for 256.
//!
//! What makes it robust: powers of two are taken out of `G` and `T`, so squares neither overflow nor vanish. Each value
//! and vector is computed by itself, in a fixed order of operations: equal input gives equal bytes on one
//! machine, for any number of threads. Input that is not finite is reported as NaN.

use super::householder::{COLUMNS, Tile, back, block, reduce};
use super::tridiagonal::{
    BATCH, BISECTED, Factor, Iteration, SOLVED, Tridiagonal, Wide, largest, random,
};
use crate::arch::{F64Vector, F64x4, Isa, LANES, with_f64s};
use crate::pool::Pool;
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::evd::{
    ComputeEigenvectors, self_adjoint_evd_scratch, tridiagonal_self_adjoint_evd,
};
use faer::{Col, ColRef, Mat, MatRef, Par};

/// Orders below which other threads do not help.
const MIN_PARALLEL_ORDER: usize = 96;
/// Added to `e^2` so that it is never zero; as an entry of `T` it would be 1e-20.
const SPLIT: f64 = 1e-40;

/// Workspace for matrices of one order; nothing is allocated after [`Eigen::new`] but in
/// [`Eigen::divide_and_conquer`].
#[derive(Clone, Debug)]
pub(crate) struct Eigen {
    n: usize,
    /// The power of two taken out of the matrix, which keeps squares away from the ends of `f64`.
    scale: f64,
    /// The lower triangle in 4 x 4 tiles, later the reflectors.
    tiles: Vec<Tile>,
    /// Four vectors.
    work: Vec<f64>,
    /// The tridiagonal matrix and what bisection reads of it.
    d: Vec<f64>,
    e: Vec<f64>,
    minus: Vec<f64>,
    values: Vec<[F64x4; BISECTED]>,
    start: Vec<f64>,
    factors: Vec<Factor>,
    x: Vec<Wide>,
    /// The eigenvectors, column by column, each padded to whole lanes.
    z: Vec<f64>,
}

impl Eigen {
    /// A workspace for matrices of order `n`.
    pub(crate) fn new(n: usize) -> Self {
        assert!(n > 0, "the matrix has rows");
        let (nb, k) = (n.div_ceil(LANES), n / 2);
        let mut seed = 0;
        Self {
            n,
            scale: 1.0,
            tiles: vec![Tile([[0.0; LANES]; LANES]); nb * (nb + 1) / 2],
            work: vec![0.0; 4 * nb * LANES + SLACK],
            d: vec![0.0; n],
            e: vec![0.0; n],
            minus: vec![0.0; n],
            values: vec![[[0.0; LANES]; BISECTED]; (k + 1).div_ceil(BISECTED * LANES)],
            start: (0..n).map(|_| random(&mut seed)).collect(),
            factors: vec![Factor::default(); n],
            x: vec![[[0.0; LANES]; SOLVED]; n],
            z: vec![0.0; k * nb * LANES + SLACK],
        }
    }

    /// Heap bytes held.
    pub(crate) fn bytes(&self) -> usize {
        let flat = [&self.work, &self.d, &self.e, &self.minus, &self.start, &self.z];
        flat.iter().map(|x| size_of_val(x.as_slice())).sum::<usize>()
            + size_of_val(self.tiles.as_slice())
            + size_of_val(self.values.as_slice())
            + size_of_val(self.factors.as_slice())
            + size_of_val(self.x.as_slice())
    }

    /// Begins with a new matrix whose largest diagonal entry is `largest`.
    pub(crate) fn begin(&mut self, largest: f64) {
        self.scale = power_of_two(largest.abs());
    }

    /// Column `j` of the matrix from the diagonal down. It is kept backwards: column `j` becomes row
    /// `n - 1 - j`, contiguous in both.
    pub(crate) fn set_column<T: Copy + Into<f64>>(&mut self, j: usize, column: &[T]) {
        let (n, f) = (self.n, self.scale.recip());
        assert!(column.len() == n - j, "column {j} has {} entries below", n - j);
        let (b, r) = ((n - 1 - j) / LANES, (n - 1 - j) % LANES);
        for (tile, x) in self.tiles[block(b)].iter_mut().zip(column.rchunks(LANES)) {
            let mut row = [0.0; LANES];
            for (row, x) in row.iter_mut().zip(x.iter().rev()) {
                *row = (*x).into() * f;
            }
            tile.0[r] = row;
        }
    }

    /// The `n / 2 + 1` largest eigenvalues of the matrix whose columns were set, descending, and the
    /// eigenvectors of the first `n / 2` as columns. If an entry is not finite, all values are NaN
    /// and all vectors zero.
    pub(crate) fn solve(&mut self, pool: &Pool) -> (&[f64], MatRef<'_, f64>) {
        // Small ones are done before another thread has woken.
        let pool = if self.n < MIN_PARALLEL_ORDER { &Pool::ONE } else { pool };
        with_f64s!(Isa::detect(), s => self.solve_with(s, pool))
    }

    fn solve_with<S: F64Vector>(&mut self, s: S, pool: &Pool) -> (&[f64], MatRef<'_, f64>) {
        self.mirror();
        let scale = self.scale * self.tridiagonalise(s);
        if scale.is_finite() {
            self.bisect(s, pool);
            if !self.iterate(s, pool) {
                self.divide_and_conquer();
            }
            self.transform(s, pool);
        } else {
            self.z.fill(0.0);
        }
        self.finish(scale)
    }

    /// The first eigenvectors that [`Eigen::solve`] found, times `scales`, in single precision. They
    /// take the place of the originals, so this can be asked once.
    pub(crate) fn scaled_vectors(&mut self, scales: &[f64], weights: &[f64]) -> MatRef<'_, f32> {
        let (n, k, stride) = (self.n, self.n / 2, self.n.next_multiple_of(LANES));
        let z = aligned(&mut self.z, k * stride / LANES).as_flattened_mut();
        // Each number is read before anything is written at or after it. Products are rounded once.
        let words: &mut [u32] = bytemuck::cast_slice_mut(z);
        for (c, scale) in scales.iter().enumerate() {
            for i in 0..n {
                let from = 2 * (c * stride + i);
                let value: f64 = bytemuck::cast([words[from], words[from + 1]]);
                let weight = weights.get(i).copied().unwrap_or(1.0);
                words[c * n + i] = ((value * (scale * weight)) as f32).to_bits();
            }
        }
        let floats: &[f32] = bytemuck::cast_slice(words);
        MatRef::from_column_major_slice(&floats[..n * scales.len()], n, scales.len())
    }

    /// Completes the tiles on the diagonal, of which columns filled the lower half.
    fn mirror(&mut self) {
        let n = self.n;
        for b in 0..n.div_ceil(LANES) {
            let tile = &mut self.tiles[block(b)][b].0;
            let lower = *tile;
            for (r, row) in tile.iter_mut().enumerate() {
                for l in r + 1..LANES {
                    row[l] = if b * LANES + l < n { lower[l][r] } else { 0.0 };
                }
            }
        }
    }

    /// Reduces to `T`, scaled to a norm of at most one; returns the factor taken out, or NaN.
    fn tridiagonalise<S: F64Vector>(&mut self, s: S) -> f64 {
        let Self { n, tiles, work, d, e, minus, .. } = self;
        s.run(
            #[inline(always)]
            || reduce(s, tiles, aligned(work, 4 * n.div_ceil(LANES)), d, e),
        );
        e[*n - 1] = 0.0;
        if !d.iter().chain(&*e).all(|x| x.is_finite()) {
            return f64::NAN;
        }
        let (mut norm, mut before) = (0.0_f64, 0.0);
        for (d, e) in d.iter().zip(&*e) {
            norm = norm.max(d.abs() + e.abs() + before);
            before = e.abs();
        }
        if norm == 0.0 {
            return 0.0;
        }
        // Gershgorin's bound on every |eigenvalue|, rounded up to a power of two.
        let norm = 2.0 * power_of_two(norm);
        let mut before = 0.0;
        for ((d, e), minus) in d.iter_mut().zip(e).zip(minus) {
            *d /= norm;
            *e /= norm;
            *minus = -(before * before + SPLIT);
            before = *e;
        }
        norm
    }

    fn bisect<S: F64Vector>(&mut self, s: S, pool: &Pool) {
        let Self { d, minus, values, .. } = self;
        let share = values.len().div_ceil(pool.threads());
        pool.each(values.chunks_mut(share).enumerate().collect(), |(part, values)| {
            s.run(
                #[inline(always)]
                || largest(s, d, minus, part * share * BISECTED * LANES, values),
            );
        });
    }

    fn iterate<S: F64Vector>(&mut self, s: S, pool: &Pool) -> bool {
        let Self { n, d, e, values, start, factors, x, work, z, .. } = self;
        let (nb, k) = (n.div_ceil(LANES), *n / 2);
        let (t, start) = (Tridiagonal { d, e }, &start[..]);
        let values = &values.as_flattened().as_flattened()[..k];
        let z = aligned(z, k * nb);
        let mut own = Iteration { factors, x, start, spare: aligned(work, nb) };
        let share = k.div_ceil(pool.threads()).next_multiple_of(BATCH).max(BATCH);
        let mut parts = z.chunks_mut(share * nb).zip(values.chunks(share)).enumerate();
        let first = parts.next();
        // The first part is worked on in the buffers that are there; others bring their own.
        let others = || {
            pool.each(parts.collect(), |(part, (z, values))| {
                let (mut factors, mut x) =
                    (vec![Factor::default(); *n], vec![[[0.0; LANES]; SOLVED]; *n]);
                let mut iteration =
                    Iteration { factors: &mut factors, x: &mut x, start, spare: &mut [] };
                s.run(
                    #[inline(always)]
                    || iteration.solve(s, t, part * share, values, z),
                );
            });
        };
        let here = || {
            if let Some((_, (z, values))) = first {
                s.run(
                    #[inline(always)]
                    || own.solve(s, t, 0, values, z),
                );
            }
            own
        };
        let (mut own, ()) = pool.join(here, others);
        s.run(
            #[inline(always)]
            || own.settle_all(s, t, values, z),
        )
    }

    /// The slow way to the eigenpairs of `T`, for spectra on which inverse iteration gives up.
    #[cold]
    fn divide_and_conquer(&mut self) {
        let (n, k, nb) = (self.n, self.n / 2, self.n.div_ceil(LANES));
        let params = Default::default();
        let scratch =
            self_adjoint_evd_scratch::<f64>(n, ComputeEigenvectors::Yes, Par::Seq, params);
        let (mut values, mut vectors) = (Col::zeros(n), Mat::zeros(n, n));
        let done = tridiagonal_self_adjoint_evd(
            ColRef::from_slice(&self.d).as_diagonal(),
            ColRef::from_slice(&self.e).as_diagonal(),
            values.as_diagonal_mut(),
            Some(vectors.as_mut()),
            Par::Seq,
            MemStack::new(&mut MemBuffer::new(scratch)),
            params,
        );
        if done.is_err() {
            // 30 n^2 steps of QR did not converge, which has not been seen on finite numbers;
            // what inverse iteration left is then the better answer.
            return;
        }
        let ascending = values.iter().rev();
        for (to, from) in
            self.values.as_flattened_mut().as_flattened_mut()[..=k].iter_mut().zip(ascending)
        {
            *to = *from;
        }
        // A vector that failed may have left NaN in the padding.
        self.z.fill(0.0);
        for (t, z) in aligned(&mut self.z, k * nb).chunks_exact_mut(nb).enumerate() {
            let z = z.as_flattened_mut().iter_mut();
            for (z, u) in z.zip(vectors.col(n - 1 - t).iter()) {
                *z = *u;
            }
        }
    }

    fn transform<S: F64Vector>(&mut self, s: S, pool: &Pool) {
        let Self { n, tiles, z, .. } = self;
        let (nb, k) = (n.div_ceil(LANES), *n / 2);
        // Two parts for each thread: one that comes later, from other work, still finds some.
        let parts = if pool.threads() > 1 { 2 * pool.threads() } else { 1 };
        let share = k.div_ceil(parts).next_multiple_of(COLUMNS).max(COLUMNS);
        pool.each(aligned(z, k * nb).chunks_mut(share * nb).collect(), |z| {
            s.run(
                #[inline(always)]
                || back(s, tiles, nb, z),
            );
        });
    }

    fn finish(&mut self, scale: f64) -> (&[f64], MatRef<'_, f64>) {
        let (n, k, stride) = (self.n, self.n / 2, self.n.next_multiple_of(LANES));
        let values = &mut self.values.as_flattened_mut().as_flattened_mut()[..=k];
        for value in &mut *values {
            *value *= scale;
        }
        let z = aligned(&mut self.z, k * stride / LANES).as_flattened_mut();
        for column in z.chunks_exact_mut(stride) {
            column[..n].reverse();
        }
        (values, MatRef::from_column_major_slice_with_stride(z, n, k, stride))
    }
}

/// Numbers that [`aligned`] may skip.
const SLACK: usize = 7;

/// `len` lanes of `x` from its first cache line on; a lane across two lines costs double.
fn aligned(x: &mut [f64], len: usize) -> &mut [F64x4] {
    let skip = x.as_ptr().align_offset(64).min(SLACK);
    x[skip..skip + len * LANES].as_chunks_mut().0
}

/// The power of two at or below a positive number, or one.
fn power_of_two(x: f64) -> f64 {
    if x.is_normal() { f64::from_bits(x.to_bits() & (0x7ff << 52)) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::portable::PortableF64;

    impl Eigen {
        fn set<T: Copy + Into<f64>>(&mut self, gram: MatRef<'_, T>) {
            assert!(gram.nrows() == self.n && gram.ncols() == self.n);
            self.begin((0..self.n).fold(0.0, |a: f64, i| a.max(gram[(i, i)].into().abs())));
            for j in 0..self.n {
                let column: Vec<T> = (j..self.n).map(|i| gram[(i, j)]).collect();
                self.set_column(j, &column);
            }
        }

        fn largest_half<T: Copy + Into<f64>>(
            &mut self,
            gram: MatRef<'_, T>,
        ) -> (&[f64], MatRef<'_, f64>) {
            self.set(gram);
            self.solve(&Pool::ONE)
        }

        fn largest_half_with<S: F64Vector, T: Copy + Into<f64>>(
            &mut self,
            s: S,
            gram: MatRef<'_, T>,
        ) -> (&[f64], MatRef<'_, f64>) {
            self.set(gram);
            self.solve_with(s, &Pool::ONE)
        }
    }

    #[test]
    fn any_number_of_threads_gives_the_same_bytes() {
        for n in [96, 130, 257] {
            let g = spectrum(n, |i| 1.0 / (1.0 + i));
            let solve = |threads| {
                let mut eigen = Eigen::new(n);
                eigen.set(g.as_ref());
                let (values, vectors) = eigen.solve(&Pool::new(threads).unwrap());
                (values.to_vec(), vectors.to_owned())
            };
            let one = solve(1);
            assert!([2, 3, 7].map(solve).iter().all(|many| *many == one), "{n}");
        }
    }

    #[test]
    fn scaled_vectors_are_the_vectors_scaled() {
        for n in [2, 7, 64] {
            let mut eigen = Eigen::new(n);
            let (_, u) = eigen.largest_half(spectrum(n, |i| 1.0 / (1.0 + i)).as_ref());
            let u = u.to_owned();
            let scales: Vec<f64> = (0..n / 2).map(|i| 1.0 + i as f64).collect();
            let scaled = eigen.scaled_vectors(&scales, &[0.5]);
            for j in 0..n / 2 {
                for i in 0..n {
                    let weight = if i == 0 { 0.5 } else { 1.0 };
                    assert_eq!(scaled[(i, j)], (u[(i, j)] * scales[j] * weight) as f32);
                }
            }
        }
    }
    use faer::{Side, concat};
    use proptest::prelude::*;

    fn noise(rows: usize, columns: usize) -> Mat<f64> {
        let mut seed = (rows * 1000 + columns) as u64;
        Mat::from_fn(rows, columns, |_, _| random(&mut seed))
    }

    /// Rows of noise whose columns are weighted: the Gram matrix has about this spectrum.
    fn spectrum(n: usize, weight: impl Fn(f64) -> f64) -> Mat<f64> {
        let mut x = noise(n, 2 * n);
        for (j, column) in x.as_mut().col_iter_mut().enumerate() {
            let w = weight(j as f64 / (2 * n) as f64);
            column.iter_mut().for_each(|x| *x *= w);
        }
        &x * x.transpose()
    }

    fn tridiagonal(n: usize, d: impl Fn(usize) -> f64, e: impl Fn(usize) -> f64) -> Mat<f64> {
        Mat::from_fn(n, n, |i, j| match i.abs_diff(j) {
            0 => d(i),
            1 => e(i.min(j)),
            _ => 0.0,
        })
    }

    fn judge(g: &Mat<f64>, values: &[f64], u: MatRef<'_, f64>) {
        let (n, k) = (g.nrows(), g.nrows() / 2);
        let truth = g.self_adjoint_eigen(Side::Lower).unwrap();
        let norm = truth.S().column_vector().norm_max();
        let tolerance = 4e-16 * norm * (n as f64 + 20.0);
        assert_eq!((values.len(), u.nrows(), u.ncols()), (k + 1, n, k));
        for (i, value) in values.iter().enumerate() {
            let error = (value - truth.S()[n - 1 - i]).abs();
            assert!(error <= tolerance, "value {i} of {n}: {error:e} > {tolerance:e}");
        }
        let gu = g * u;
        for (j, value) in values[..k].iter().enumerate() {
            let residual = (gu.col(j) - u.col(j) * faer::Scale(*value)).norm_l2();
            assert!(residual <= tolerance, "vector {j} of {n}: {residual:e} > {tolerance:e}");
        }
        if k > 0 {
            let off = (u.transpose() * u - Mat::<f64>::identity(k, k)).norm_max();
            assert!(off <= 3e-9, "order {n}: orthogonal to {off:e}");
        }
    }

    /// Judges both twins and the way round inverse iteration; says whether that was needed.
    fn check(g: &Mat<f64>) -> bool {
        let mut eigen = Eigen::new(g.nrows());
        let (values, vectors) = eigen.largest_half(g.as_ref());
        judge(g, values, vectors);
        let values = values.to_vec();
        let (plain, vectors) = eigen.largest_half_with(PortableF64, g.as_ref());
        judge(g, plain, vectors);
        let norm = values[0].abs().max(values[values.len() - 1].abs());
        for (a, b) in values.iter().zip(plain) {
            assert!((a - b).abs() <= 1e-13 * norm * (1.0 + g.nrows() as f64 / 64.0));
        }
        eigen.set(g.as_ref());
        eigen.mirror();
        let scale = eigen.scale * eigen.tridiagonalise(PortableF64);
        eigen.bisect(PortableF64, &Pool::ONE);
        let needed = !eigen.iterate(PortableF64, &Pool::ONE);
        eigen.divide_and_conquer();
        eigen.transform(PortableF64, &Pool::ONE);
        let (values, vectors) = eigen.finish(scale);
        judge(g, values, vectors);
        needed
    }

    #[test]
    fn spectra_of_sketches() {
        for n in [1, 2, 3, 4, 5, 7, 8, 64, 100, 257] {
            assert!(!check(&spectrum(n, |_| 1.0)));
            assert!(!check(&spectrum(n, |t| 1.0 / (0.01 + t))));
            assert!(!check(&spectrum(n, |t| 10.0_f64.powf(-6.0 * t))));
            // An arrow: the rows of the last shrink are orthogonal, the new ones are not.
            let x = noise(n - n / 2, n / 2);
            let old = tridiagonal(n / 2, |i| 40.0 / (1.0 + i as f64), |_| 0.0);
            let new = spectrum(n - n / 2, |_| 1.0);
            check(&concat![[old, x.transpose()], [x, new]]);
        }
    }

    #[test]
    fn clusters_and_rank() {
        for n in [2, 3, 5, 7, 64, 100, 257] {
            check(&Mat::zeros(n, n));
            check(&Mat::identity(n, n));
            check(&Mat::from_fn(n, n, |i, j| (1 + i) as f64 * (1 + j) as f64));
            check(&spectrum(n, |t| f64::from(u8::from(t < 0.1))));
            let x = noise(n, 300);
            let x = Mat::from_fn(n, 300, |i, j| x[(i / 4, j)]);
            check(&(&x * x.transpose()));
            let (block, size) = (spectrum(n.div_ceil(3), |_| 1.0), n.div_ceil(3));
            check(&Mat::from_fn(n, n, |i, j| {
                if i / size == j / size { block[(i % size, j % size)] } else { 0.0 }
            }));
        }
    }

    #[test]
    fn wilkinson_matrices_alone_and_glued() {
        for n in [21, 105, 210] {
            check(&tridiagonal(n, |i| (i as f64 - (n / 2) as f64).abs(), |_| 1.0));
            for glue in [0.0, 1e-14, 1e-8, 1e-4] {
                let d = |i| ((i % 21) as f64 - 10.0).abs();
                check(&tridiagonal(n, d, |i| if i % 21 == 20 { glue } else { 1.0 }));
            }
        }
    }

    #[test]
    fn scale_and_precision_of_the_input() {
        let g = spectrum(64, |_| 1.0);
        for scale in [1e-30, 1e30, 1e-150, 1e150] {
            check(&(&g * faer::Scale(scale)));
        }
        let single = Mat::from_fn(64, 64, |i, j| if i < j { f32::NAN } else { g[(i, j)] as f32 });
        let double = Mat::from_fn(64, 64, |i, j| f64::from(single[(i.max(j), i.min(j))]));
        let (mut a, mut b) = (Eigen::new(64), Eigen::new(64));
        b.largest_half(Mat::<f64>::identity(64, 64).as_ref());
        let (a, b) = (a.largest_half(single.as_ref()), b.largest_half(double.as_ref()));
        assert!(a.0 == b.0 && a.1 == b.1, "only the lower triangle counts, and no history");
    }

    #[test]
    fn what_is_not_finite_is_reported() {
        for bad in [f64::NAN, f64::INFINITY] {
            for at in [(0, 0), (63, 0), (40, 20), (63, 63)] {
                let mut g = spectrum(64, |_| 1.0);
                g[at] = bad;
                let mut eigen = Eigen::new(64);
                let (values, vectors) = eigen.largest_half(g.as_ref());
                assert!(values.iter().all(|x| x.is_nan()) && vectors.norm_max() == 0.0);
            }
        }
    }

    #[test]
    fn memory_is_as_documented() {
        assert!(Eigen::new(256).bytes() <= 8 * 256 * 256 + 480 * 256);
    }

    proptest! {
        /// Small integers make ties, zero rows and exact splits common.
        #[test]
        fn small_integers(n in 1_usize..40, rank in 1_usize..12, seed in any::<u64>()) {
            let mut seed = seed;
            let x = Mat::from_fn(n, rank, |_, _| (2.0 * random(&mut seed)).round());
            check(&(&x * x.transpose()));
        }
    }
}
