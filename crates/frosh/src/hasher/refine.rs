//! Refines the directions of the sketch with the sample of rows. Not in the paper.
//!
//! **Equation.** A sketch of l = 2r rows keeps r directions; the shrinks subtract the rest. If the spectrum is flat, the
//! rest is large: on sentence embeddings, 56 directions lost a seventh of their variance. The sample has lost
//! nothing, but has few rows. With B the sketch of n rows, C the second moments of the sample and a the share of the
//! mass that the shrinks removed,
//!
//! ```text
//! M = B'B / n + a C
//! ```
//!
//! combines both. One step of subspace iteration starts from the directions V of the sketch. The result is the best
//! r directions for M in the span of V and M V (Rayleigh-Ritz). B'B V lies in the span of V, so only C V adds to the
//! span.
//!
//! **Where we differ.** The paper uses V, and so do all rotations but [`Refined`](crate::Rotation::Refined). If the
//! shrinks removed nothing, a is 0 and V does not change.
//!
//! **Cost.** Three products of s sampled rows with r directions (ITQ needs one), s (2r)^2 for their moments, and an
//! eigenproblem of order 2r.

use crate::linalg::{self, product, single, tall_product};
use crate::pool::Pool;
use crate::sketch::Sketch;
use crate::sketch::frequent_directions::square_norm;
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, Par};

/// Directions that are shorter than this, relative to C V, are rounding error of the sampled rows.
const NOISE: f64 = 1e-4;
/// Dimensions that one task works on.
const PIECE: usize = 64;
/// Sampled rows that are read, or converted to double precision, at a time.
const ROWS: usize = 512;

impl Sketch {
    /// Refines the principal directions `old`, along which the sketch has scatter `values`. Returns the new directions, and
    /// the projections of the sampled rows on them.
    pub(crate) fn refined(
        &self,
        pool: &Pool,
        old: MatRef<'_, f64>,
        values: &[f64],
    ) -> (Mat<f64>, Mat<f32>) {
        self.refined_to(pool, old, values, old.ncols())
    }

    /// The same, with at most `count` new directions: they may be more than the old ones, up to twice as many.
    pub(crate) fn refined_to(
        &self,
        pool: &Pool,
        old: MatRef<'_, f64>,
        values: &[f64],
        count: usize,
    ) -> (Mat<f64>, Mat<f32>) {
        let along_old = self.sample_along(pool, usize::MAX, single(old).as_ref());
        let new = self.outside(pool, old, along_old.as_ref());
        let along_new = self.sample_along(pool, usize::MAX, single(new.as_ref()).as_ref());
        let (r, both) = (old.ncols(), old.ncols() + new.ncols());

        // M restricted to these directions; only the lower triangle is computed.
        let mut moments = Mat::<f64>::zeros(both, both);
        let samples = along_old.nrows();
        let mut part = Mat::<f64>::zeros(ROWS.min(samples), both);
        for from in (0..samples).step_by(ROWS) {
            let count = ROWS.min(samples - from);
            for j in 0..both {
                let column = match j.checked_sub(r) {
                    None => along_old.col_as_slice(j),
                    Some(j) => along_new.col_as_slice(j),
                };
                let to = part.col_as_slice_mut(j).iter_mut();
                to.zip(&column[from..from + count]).for_each(|(to, x)| *to = f64::from(*x));
            }
            linalg::add_gram(pool, moments.as_mut(), part.subrows(0, count).transpose());
        }
        drop(part);
        let weight = self.lost() / samples as f64;
        moments *= faer::Scale(weight);
        let rows = self.weight();
        for (j, value) in values.iter().enumerate() {
            moments[(j, j)] += value / rows;
        }
        let kept = self.sketch_along(new.as_ref());
        let kept = product(kept.transpose(), kept.as_ref());
        for j in 0..new.ncols() {
            for i in 0..new.ncols() {
                moments[(r + i, r + j)] += kept[(i, j)] / rows;
            }
        }

        let (_, best) = linalg::eigen(moments.as_ref());
        let count = count.min(both);
        let (from_old, from_new) = best.subcols(0, count).split_at_row(r);
        let mut vectors = Mat::zeros(self.dim, count);
        pool.each(linalg::row_pieces(vectors.as_mut(), PIECE), |(from, mut to)| {
            let rows = to.nrows();
            matmul(to.as_mut(), Accum::Replace, old.subrows(from, rows), from_old, 1.0, Par::Seq);
            matmul(to, Accum::Add, new.subrows(from, rows), from_new, 1.0, Par::Seq);
        });
        let mut along = Mat::zeros(samples, count);
        let (from_old, from_new) = (single(from_old), single(from_new));
        pool.each(linalg::row_pieces(along.as_mut(), ROWS), |(from, mut to)| {
            let (a, b) = (along_old.subrows(from, to.nrows()), along_new.subrows(from, to.nrows()));
            matmul(to.as_mut(), Accum::Replace, a, &from_old, 1.0, Par::Seq);
            matmul(to, Accum::Add, b, &from_new, 1.0, Par::Seq);
        });
        (vectors, along)
    }

    /// The share of the mass that the shrinks removed.
    fn lost(&self) -> f64 {
        let (mass, kept) = (self.directions.inserted(), square_norm(self.sketched()));
        if mass > 0.0 { (1.0 - kept / mass).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// An orthonormal basis of the part of C V outside the span of V, without directions that are rounding error.
    fn outside(&self, pool: &Pool, v: MatRef<'_, f64>, along: MatRef<'_, f32>) -> Mat<f64> {
        let (d, r) = v.shape();
        // Only the span matters, so scaling by a power of two prevents overflow and underflow of the products.
        let unit = 2f32.powi(-(along.norm_max().max(f32::MIN_POSITIVE).log2() as i32));
        let along = along * faer::Scale(unit);
        let mut moved = Mat::<f32>::zeros(d, r);
        let sample = self.reservoir.part(&self.mean, self.fit_rows(usize::MAX));
        // Every task reads its own columns of all rows.
        pool.each(linalg::row_pieces(moved.as_mut(), PIECE), |(from, mut to)| {
            let width = to.nrows();
            let mut rows = vec![0f32; ROWS.min(sample.len()) * width];
            for first in (0..sample.len()).step_by(ROWS) {
                let count = ROWS.min(sample.len() - first);
                let rows = sample.read(first..first + count, from..from + width, &mut rows);
                let rows = MatRef::from_column_major_slice(rows, width, count);
                let along = along.subrows(first, count);
                matmul(to.as_mut(), Accum::Add, rows, along, 1.0, Par::Seq);
            }
        });
        let mut moved = Mat::from_fn(d, r, |i, j| f64::from(moved[(i, j)]));
        let total = moved.squared_norm_l2();
        // Projected out twice: if C V lies nearly in the span of V, one pass leaves an error above rounding.
        for _ in 0..2 {
            let inside = tall_product(pool, v.transpose(), moved.as_ref());
            pool.each(linalg::row_pieces(moved.as_mut(), PIECE), |(from, to)| {
                let v = v.subrows(from, to.nrows());
                matmul(to, Accum::Add, v, inside.as_ref(), -1.0, Par::Seq);
            });
        }
        let mut gram = Mat::zeros(r, r);
        linalg::add_gram(pool, gram.as_mut(), moved.transpose());
        let (squares, vectors) = linalg::eigen(gram.as_ref());
        let kept = squares.iter().take_while(|s| **s > NOISE * NOISE * total).count();
        let scaled = Mat::from_fn(r, kept, |i, j| vectors[(i, j)] / squares[j].sqrt());
        linalg::thin_q(tall_product(pool, moved.as_ref(), scaled.as_ref()))
    }

    /// The product of B with the columns of `w`.
    fn sketch_along(&self, w: MatRef<'_, f64>) -> Mat<f64> {
        let n = self.sketched().len() / self.dim;
        let rows = MatRef::from_row_major_slice(self.sketched(), n, self.dim);
        let along = product(rows, single(w).as_ref());
        Mat::from_fn(n, w.ncols(), |i, j| f64::from(along[(i, j)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream};
    use crate::{Config, Method, Rows, Sketcher};

    /// Independent normal coordinates with slowly decreasing variances and mean 3.
    fn flat(n: usize, d: usize) -> Vec<f32> {
        let mut stream = Stream::new(5, Purpose::Sample, 0, 0);
        let value = |e: usize, z: f64| (z / (1.0 + (e % d) as f64).powf(0.4) + 3.0) as f32;
        (0..n * d).map(|e| value(e, stream.normal())).collect()
    }

    fn sketch(data: &[f32], d: usize, l: usize, method: Method) -> Sketch {
        let config = Config::new(d).sketch_rows(l).block_rows(256).method(method);
        let mut sketcher = Sketcher::new(config.reservoir_rows(600)).unwrap();
        sketcher.push(Rows::new(data, d).unwrap()).unwrap();
        sketcher.finish()
    }

    fn sampled(sketch: &Sketch) -> Mat<f64> {
        let part = sketch.reservoir.part(&sketch.mean, sketch.fit_rows(usize::MAX));
        let mut rows = vec![0f32; part.len() * sketch.dim];
        part.read(0..part.len(), 0..sketch.dim, &mut rows);
        Mat::from_fn(part.len(), sketch.dim, |i, j| f64::from(rows[i * sketch.dim + j]))
    }

    fn captured(moments: &Mat<f64>, w: &Mat<f64>) -> f64 {
        let each = w.transpose() * moments * w;
        (0..w.ncols()).map(|j| each[(j, j)]).sum()
    }

    fn assert_orthonormal(w: &Mat<f64>) {
        let error = w.transpose() * w - Mat::<f64>::identity(w.ncols(), w.ncols());
        assert!(error.norm_max() < 1e-9, "{}", error.norm_max());
    }

    /// Compares with the definition: the dense M, the step from V, and Rayleigh-Ritz in the span.
    #[test]
    fn directions_are_the_best_of_the_span() {
        for (d, l, method) in [(40, 24, Method::Frosh), (40, 40, Method::Osh), (9, 12, Method::Osh)]
        {
            let data = flat(2000, d);
            let sketch = sketch(&data, d, l, method);
            let r = l / 2;
            let principal = sketch.principal(&Pool::ONE, r);
            let b = Mat::from_fn(sketch.sketched().len() / d, d, |i, j| {
                f64::from(sketch.sketched()[i * d + j])
            });
            let x = sampled(&sketch);
            let (inside, sample) = (b.transpose() * &b, x.transpose() * &x);
            let lost = 1.0 - inside.diagonal().column_vector().sum() / sketch.certificate().mass;
            let m = Mat::from_fn(d, d, |i, j| {
                inside[(i, j)] / 2000.0 + lost * sample[(i, j)] / x.nrows() as f64
            });
            let step = &m * &principal.vectors;
            let span = Mat::from_fn(d, r + r.min(d - r), |i, j| {
                if j < r { principal.vectors[(i, j)] } else { step[(i, j - r)] }
            });
            let span = linalg::thin_q(span);
            let ritz = linalg::eigen((span.transpose() * &m * &span).as_ref()).0;
            let want: f64 = ritz[..r].iter().sum();

            let pool = Pool::new(3).unwrap();
            let (w, along) = sketch.refined(&pool, principal.vectors.as_ref(), &principal.values);
            assert_orthonormal(&w);
            let got = captured(&m, &w);
            assert!((got / want - 1.0).abs() < 1e-5, "d = {d}, l = {l}: {got} against {want}");
            let error = Mat::from_fn(x.nrows(), r, |i, j| f64::from(along[(i, j)])) - &x * &w;
            assert!(error.norm_max() < 1e-4, "{}", error.norm_max());
            let alone = sketch.refined(&Pool::ONE, principal.vectors.as_ref(), &principal.values);
            assert_eq!((w, along), alone);
        }
    }

    #[test]
    fn a_flat_spectrum_is_captured_better() {
        let (n, d, r) = (6000, 96, 16);
        let data = flat(n, d);
        let sketch = sketch(&data, d, 2 * r, Method::Frosh);
        let centred = Mat::from_fn(n, d, |i, j| f64::from(data[i * d + j]) - sketch.mean[j]);
        let moments = centred.transpose() * &centred;
        let best: f64 = linalg::eigen(moments.as_ref()).0[..r].iter().sum();
        let principal = sketch.principal(&Pool::ONE, r);
        let (w, _) = sketch.refined(&Pool::ONE, principal.vectors.as_ref(), &principal.values);
        let [before, after] = [&principal.vectors, &w].map(|w| captured(&moments, w) / best);
        assert!(before < 0.95 && after > 0.5 + before / 2.0, "{before} to {after} of the best");
    }

    #[test]
    fn the_span_does_not_change_if_nothing_was_lost() {
        // Fewer rows than the sketch holds, as many directions as dimensions, and rows that are all equal.
        for (data, d, l) in [(flat(20, 30), 30, 40), (flat(500, 8), 8, 16), (vec![2.0; 800], 8, 8)]
        {
            let sketch = sketch(&data, d, l, Method::Osh);
            let r = (l / 2).min(d);
            let principal = sketch.principal(&Pool::ONE, r);
            let (w, _) = sketch.refined(&Pool::ONE, principal.vectors.as_ref(), &principal.values);
            assert_orthonormal(&w);
            let inside = principal.vectors.transpose() * &w;
            let kept: f64 = inside.squared_norm_l2();
            assert!((kept - r as f64).abs() < 1e-6, "d = {d}, l = {l}: {kept} of {r}");
        }
    }
}
