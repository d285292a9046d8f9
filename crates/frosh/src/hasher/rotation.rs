//! Rotations of the learned directions: `W <- W R` with an orthogonal r x r matrix R.
//!
//! PCA puts most of the variance into few coordinates, but every bit has the same weight in a Hamming distance. A
//! rotation keeps the subspace and spreads the variance over the bits. With V the s x r centred PCA coordinates of a
//! sample and lambda their variances, the choices are
//!
//! ```text
//! random      R is Haar distributed
//! isotropic   all diagonal entries of R' diag(lambda) R are equal
//! itq         min ||B - V R||_F over orthogonal R and sign matrices B
//! refined     itq, with refined directions (`refine.rs`)
//! refined-random  random, with refined directions
//! ```
//!
//! **Where we differ** from the literature. Isotropic hashing (Kong and Li, 2012) uses plane rotations, at most r - 1
//! of them, in place of lift-and-projection or a gradient flow. ITQ (Gong and Lazebnik, 2011) takes the polar factor of
//! V'B in place of an SVD of B'V, which is the same matrix in about half the time. It also extrapolates: it takes the
//! polar factor of V'B + m (V'B - C), with C the V'B of the round before and m = .85 ([`MOMENTUM`]). Sixteen such
//! rounds end at or below the objective of 50 without, on the sample and on other rows (six data sets, 64 and 128
//! bits). m = 1 needed fewer rounds still, and m = 1.2 did not converge. ITQ sums over fixed blocks of rows in a fixed
//! order, so the result does not depend on the number of threads.
//!
//! **Cost.** r^3 for random and isotropic; s r^2 + r^3 for each round of ITQ.

use crate::hasher::polar::Polar;
use crate::linalg;
use crate::names::names;
use crate::random::Stream;
use faer::Accum::Replace;
use faer::linalg::matmul::matmul;
use faer::{Mat, MatRef, Par, unzip, zip};
use rayon::prelude::*;

/// How the principal directions are rotated before signs are taken.
///
/// ```
/// use frosh::{Config, Rotation, Rows, Sketcher};
/// # let data: Vec<f32> = (0..6400).map(|i| ((i * 31) % 101) as f32).collect();
/// # let mut sketcher = Sketcher::new(Config::new(32))?;
/// # sketcher.push(Rows::new(&data, 32)?)?;
/// let sketch = sketcher.finish();
/// let hasher = sketch.hasher_with(16, "itq".parse()?)?;
/// assert_eq!(hasher.rotation(), Rotation::Itq);
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rotation {
    /// No rotation, as the paper prints it. Bits of small variance count as much as those of large variance, so
    /// more bits can make codes worse.
    None,
    /// A uniformly random rotation. Needs no data. O(r^3) time for r bits.
    Random,
    /// A rotation after which all bits have the same variance (isotropic hashing). Needs the eigenvalues only.
    /// O(r^3) time.
    Isotropic,
    /// Iterative quantisation (ITQ): rotates the sampled rows towards the corners of a cube. O(s r^2 + r^3) time
    /// for each of at most 16 rounds, with s sampled rows.
    Itq,
    /// ITQ with directions that were first refined by the sample. They capture more variance than those of the
    /// sketch if the spectrum is flat. Takes two more products of the sample with r directions than ITQ, and an
    /// eigenproblem of order 2r.
    Refined,
    /// A random rotation of the refined directions. It often finds the nearest rows better than ITQ, and keeps the order
    /// of far rows worse.
    RefinedRandom,
}

names!(
    Rotation,
    "rotation",
    None => "none",
    Random => "random",
    Isotropic => "isotropic",
    Itq => "itq",
    Refined => "refined",
    RefinedRandom => "refined-random"
);

/// A Haar-distributed orthogonal matrix: Q of the QR factorisation of a Gaussian matrix.
pub(crate) fn random(r: usize, stream: &mut Stream) -> Mat<f64> {
    // An explicit loop fixes the order of the draws: column by column.
    let mut a = Mat::zeros(r, r);
    for j in 0..r {
        for i in 0..r {
            a[(i, j)] = stream.normal();
        }
    }
    linalg::thin_q(a)
}

/// A rotation R that makes all diagonal entries of `R' diag(eigenvalues) R` equal.
///
/// Starts from a random rotation. Each step rotates the plane of the largest and the
/// smallest diagonal entry until the one nearer to the mean is equal to it.
/// Eigenvalues must not be negative; if none is positive, R is the random rotation.
pub(crate) fn isotropic(eigenvalues: &[f64], stream: &mut Stream) -> Mat<f64> {
    /// Largest accepted difference of a diagonal entry from the mean, relative to the mean.
    const TOLERANCE: f64 = 1e-11;
    let r = eigenvalues.len();
    let mut rotation = random(r, stream);
    let max = eigenvalues.iter().copied().fold(0.0, f64::max);
    if !(max > 0.0 && max.is_finite()) {
        return rotation;
    }
    // Division by the maximum prevents overflow of the sum; then values are scaled to mean 1.
    let mean = eigenvalues.iter().map(|x| x / max).sum::<f64>() / r as f64;
    let lambda: Vec<f64> = eigenvalues.iter().map(|x| x / max / mean).collect();
    let mut scaled = Mat::zeros(r, r);
    let mut sigma = Mat::zeros(r, r);
    // One pass is exact up to rounding; the next pass corrects the rounding error.
    for _ in 0..4 {
        scaled.copy_from(&rotation);
        for column in scaled.col_iter_mut() {
            for (x, l) in column.iter_mut().zip(&lambda) {
                *x *= l;
            }
        }
        let left = rotation.transpose();
        matmul(&mut sigma, Replace, left, &scaled, 1.0, Par::Seq);
        let mut steps = 0;
        while steps < r && equalise(&mut sigma, &mut rotation, TOLERANCE) {
            steps += 1;
        }
        if steps == 0 {
            break;
        }
    }
    rotation
}

/// One Givens rotation of [`isotropic`]; false if all diagonal entries are 1.
fn equalise(sigma: &mut Mat<f64>, rotation: &mut Mat<f64>, tolerance: f64) -> bool {
    let r = sigma.nrows();
    let excess = |i: usize| sigma[(i, i)] - 1.0;
    let (mut high, mut low) = (0, 0);
    for i in 1..r {
        if excess(i) > excess(high) {
            high = i;
        }
        if excess(i) < excess(low) {
            low = i;
        }
    }
    let (above, below) = (excess(high), excess(low));
    if !(above.max(-below) > tolerance && above > 0.0 && below < 0.0) {
        return false;
    }
    // Entry i becomes 1; entry j stays on its side of 1, since the trace does not change.
    let (i, j) = if above <= -below { (high, low) } else { (low, high) };
    let (near, far, cross) = (excess(i), excess(j), sigma[(i, j)]);
    // The smaller root of far t^2 - 2 cross t + near = 0, in a form without cancellation.
    // It is real, because `near` and `far` have opposite signs.
    let root = (cross * cross - near * far).sqrt();
    let t = near / (cross + root.copysign(cross));
    let cos = 1.0 / (1.0 + t * t).sqrt();
    let sin = t * cos;
    rotate_columns(rotation, i, j, cos, sin);
    rotate_columns(sigma, i, j, cos, sin);
    for k in 0..r {
        let (x, y) = (sigma[(i, k)], sigma[(j, k)]);
        sigma[(i, k)] = cos * x - sin * y;
        sigma[(j, k)] = sin * x + cos * y;
    }
    // Set exactly, so that every step reduces the number of entries that differ from 1.
    sigma[(i, i)] = 1.0;
    true
}

/// Columns (x, y) become (cos x - sin y, sin x + cos y).
fn rotate_columns(a: &mut Mat<f64>, i: usize, j: usize, cos: f64, sin: f64) {
    for k in 0..a.nrows() {
        let (x, y) = (a[(k, i)], a[(k, j)]);
        a[(k, i)] = cos * x - sin * y;
        a[(k, j)] = sin * x + cos * y;
    }
}

/// Rows of a block of [`itq`]. It fixes the order of the sums, so another value would change results.
const BLOCK: usize = 512;

/// Sampled rows that one task works on, with scratch memory.
struct Block<'a> {
    points: MatRef<'a, f32>,
    signs: Mat<f32>,
    product: Mat<f32>,
}

impl Block<'_> {
    /// Sets `product` to V' sign(V R) for these rows.
    fn update(&mut self, rotation: &Mat<f32>) {
        let signs = &mut self.signs;
        matmul(&mut *signs, Replace, self.points, rotation, 1.0, Par::Seq);
        for j in 0..signs.ncols() {
            for x in signs.col_as_slice_mut(j) {
                *x = if *x >= 0.0 { 1.0 } else { -1.0 };
            }
        }
        let left = self.points.transpose();
        matmul(&mut self.product, Replace, left, &*signs, 1.0, Par::Seq);
    }
}

/// How far ITQ extrapolates. A larger number takes fewer rounds, up to about 1; then the rounds stop converging.
const MOMENTUM: f64 = 0.85;

/// Iterative quantisation of `sample`: rows V, centred and projected.
///
/// Each round computes the nearest cube corners `B = sign(V R)`, with 0 counted as +1,
/// and then the rotation R that minimises `||B - V R||_F`, the orthogonal polar factor
/// of V'B, extrapolated by [`MOMENTUM`] in all rounds but the last. Stops early at a fixed point.
pub(crate) fn itq(sample: MatRef<'_, f32>, stream: &mut Stream, iterations: usize) -> Mat<f64> {
    rounds(sample, random(sample.ncols(), stream), iterations, MOMENTUM)
}

/// The orthogonal R that minimises `||T - V R||_F` for given signs T: the polar factor of V'T. `None` if V'T is zero.
pub(crate) fn procrustes(sample: MatRef<'_, f32>, signs: MatRef<'_, f32>) -> Option<Mat<f64>> {
    let (s, r) = sample.shape();
    let mut sum = Mat::<f64>::zeros(r, r);
    for start in (0..s).step_by(BLOCK) {
        let rows = BLOCK.min(s - start);
        let left = sample.subrows(start, rows).transpose();
        let part = linalg::product(left, signs.subrows(start, rows));
        zip!(&mut sum, &part).for_each(|unzip!(x, y)| *x += f64::from(*y));
    }
    let mut rotation = Mat::zeros(r, r);
    Polar::new(r).factor(&sum, &mut rotation).then_some(rotation)
}

/// Iterative quantisation that starts from a given rotation, without extrapolation: no round increases the objective, and
/// few rounds stay near the start.
pub(crate) fn itq_from(sample: MatRef<'_, f32>, rotation: Mat<f64>, iterations: usize) -> Mat<f64> {
    rounds(sample, rotation, iterations, 0.0)
}

fn rounds(
    sample: MatRef<'_, f32>,
    mut rotation: Mat<f64>,
    iterations: usize,
    momentum: f64,
) -> Mat<f64> {
    let (s, r) = sample.shape();
    if s == 0 || r == 0 {
        return rotation;
    }
    let mut blocks: Vec<Block<'_>> = (0..s)
        .step_by(BLOCK)
        .map(|start| {
            let points = sample.subrows(start, BLOCK.min(s - start));
            Block { points, signs: Mat::zeros(points.nrows(), r), product: Mat::zeros(r, r) }
        })
        .collect();
    let mut single = Mat::<f32>::zeros(r, r);
    let mut sum = Mat::<f64>::zeros(r, r);
    let mut last = Mat::<f64>::zeros(r, r);
    let mut target = Mat::<f64>::zeros(r, r);
    let mut polar = Polar::new(r);
    for round in 0..iterations {
        zip!(&mut single, &rotation).for_each(|unzip!(x, y)| *x = *y as f32);
        let tasks = blocks.par_iter_mut();
        tasks.for_each(|block| block.update(&single));
        sum.fill(0.0);
        // Always in block order. Within a block, single precision is sufficient.
        for block in &blocks {
            zip!(&mut sum, &block.product).for_each(|unzip!(x, y)| *x += f64::from(*y));
        }
        // The first round has no round before it. The last one is not extrapolated, so that it ends in a minimum over R.
        let further = if round == 0 || round + 1 == iterations { 0.0 } else { momentum };
        let extrapolated = |now: &f64, before: &f64| now + further * (now - before);
        zip!(&mut target, &sum, &last).for_each(|unzip!(t, x, y)| *t = extrapolated(x, y));
        // Equal sums would stay equal in all further rounds. If all sums are zero, there is nothing to fit.
        if !polar.factor(&target, &mut rotation) || sum == last {
            break;
        }
        last.copy_from(&sum);
    }
    rotation
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;

    fn stream(index: u64) -> Stream {
        Stream::new(11, Purpose::Rotation, 0, index)
    }

    fn assert_orthogonal(q: &Mat<f64>) {
        let error = q.transpose() * q - Mat::<f64>::identity(q.nrows(), q.nrows());
        assert!(error.norm_max() < 1e-10, "{}", error.norm_max());
    }

    /// Points around 20 centres, with variances that fall like a power law.
    fn cloud(s: usize, r: usize) -> Mat<f32> {
        let mut stream = Stream::new(11, Purpose::Sample, 0, r as u64);
        let centres = Mat::<f64>::from_fn(20, r, |_, _| stream.normal());
        let own: Vec<usize> = (0..s).map(|_| stream.below(20) as usize).collect();
        Mat::from_fn(s, r, |i, j| {
            ((stream.normal() + centres[(own[i], j)]) / (j as f64 + 1.0).sqrt()) as f32
        })
    }

    /// `||B - V R||_F` squared, in double precision.
    fn itq_objective(sample: MatRef<'_, f32>, rotation: &Mat<f64>) -> f64 {
        let (s, r) = sample.shape();
        let v = Mat::from_fn(s, r, |i, j| f64::from(sample[(i, j)]));
        let vr = v * rotation;
        // In each coordinate, the nearest corner is at distance |1 - |x||.
        vr.col_iter().flat_map(|c| c.iter()).map(|x| (1.0 - x.abs()).powi(2)).sum()
    }

    #[test]
    fn names_parse_to_their_variants() {
        for name in Rotation::NAMES {
            assert_eq!(name.parse::<Rotation>().unwrap().as_str(), *name);
        }
        let error = "ITQ".parse::<Rotation>().unwrap_err().to_string();
        assert_eq!(
            error,
            "\"ITQ\" is not a rotation; use one of none, random, isotropic, itq, refined, refined-random"
        );
    }

    #[test]
    fn random_is_orthogonal() {
        for r in [0, 1, 2, 3, 31, 64, 130] {
            let q = random(r, &mut stream(0));
            assert_eq!(q.shape(), (r, r));
            assert_orthogonal(&q);
            assert_eq!(q, random(r, &mut stream(0)));
            assert!(r < 2 || q != random(r, &mut stream(2)));
        }
    }

    /// Under the Haar distribution an entry x has E x = 0, E x^2 = 1/r and
    /// E x^4 = 3/(r (r + 2)), and the trace has mean 0 and variance 1.
    #[test]
    fn random_is_haar() {
        let (r, n) = (8, 20_000);
        let (mut sum, mut squares) = (Mat::<f64>::zeros(r, r), Mat::<f64>::zeros(r, r));
        let (mut trace, mut negative) = (0.0, 0);
        for seed in 0..n {
            let q = random(r, &mut stream(seed));
            zip!(&mut sum, &q).for_each(|unzip!(s, x)| *s += x);
            zip!(&mut squares, &q).for_each(|unzip!(s, x)| *s += x * x);
            trace += q.diagonal().column_vector().sum();
            negative += u32::from(q.determinant() < 0.0);
        }
        let (r, n) = (r as f64, n as f64);
        let (mean, square) = (&sum * faer::Scale(1.0 / n), &squares * faer::Scale(1.0 / n));
        assert!(mean.norm_max() < 4.0 * (1.0 / r / n).sqrt());
        let variance = 3.0 / (r * (r + 2.0)) - 1.0 / (r * r);
        let error = square - Mat::full(8, 8, 1.0 / r);
        assert!(error.norm_max() < 4.0 * (variance / n).sqrt());
        // Without the sign rule the trace is biased and the determinant fixed.
        assert!((trace / n).abs() < 4.0 / n.sqrt());
        assert!((f64::from(negative) - n / 2.0).abs() < 2.0 * n.sqrt());
    }

    #[test]
    fn isotropic_equalises() {
        let law = |r: usize, f: fn(f64) -> f64| (0..r).map(|i| f(i as f64)).collect::<Vec<_>>();
        let mut spike = vec![0.0; 200];
        spike[3] = 1e300;
        for (case, lambda) in [
            vec![],
            vec![3.0],
            vec![0.0],
            vec![0.0; 9],
            vec![2.5; 40],
            vec![1.0, 0.0],
            vec![1e-310, 3e-310, 0.0],
            vec![f64::MAX; 3],
            spike,
            law(64, |i| 1.0 / (1.0 + i)),
            law(128, |i| 0.5f64.powf(i)),
            law(256, |i| 1e9f64.powf(-i / 256.0)),
            law(100, |i| if i < 50.0 { 1.0 } else { 1.0 + 1e-9 }),
        ]
        .into_iter()
        .enumerate()
        {
            let r = isotropic(&lambda, &mut stream(1));
            assert_orthogonal(&r);
            assert_eq!(r, isotropic(&lambda, &mut stream(1)));
            let max = lambda.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
            let mean = lambda.iter().map(|x| x / max).sum::<f64>() / lambda.len() as f64;
            for column in r.col_iter() {
                let entry: f64 = column.iter().zip(&lambda).map(|(x, l)| x * x * (l / max)).sum();
                assert!((entry - mean).abs() <= 1e-9 * mean, "case {case}: {entry} {mean}");
            }
        }
    }

    #[test]
    fn rounds_without_extrapolation_never_increase_the_objective() {
        for (s, r) in [(1500, 24), (700, 5), (40, 64)] {
            let v = cloud(s, r);
            let start = random(r, &mut stream(2));
            let mut last = itq_objective(v.as_ref(), &start);
            for iterations in 1..=10 {
                let q = itq_from(v.as_ref(), start.clone(), iterations);
                assert_orthogonal(&q);
                let now = itq_objective(v.as_ref(), &q);
                // The tolerance is for signs in single precision.
                assert!(now <= last * (1.0 + 1e-6), "{now} after {last}");
                assert!(iterations > 1 || now < 0.999 * last);
                last = now;
            }
        }
    }

    /// Sixteen rounds with extrapolation reach what 32 without reach, on average over several starts.
    #[test]
    fn extrapolation_saves_rounds() {
        for (s, r) in [(1500, 24), (3000, 48)] {
            let v = cloud(s, r);
            let (mut plain, mut fast, mut before) = (0.0, 0.0, 0.0);
            for start in 0..6 {
                let first = random(r, &mut stream(start));
                before += itq_objective(v.as_ref(), &first);
                let q = itq(v.as_ref(), &mut stream(start), 16);
                assert_orthogonal(&q);
                fast += itq_objective(v.as_ref(), &q);
                plain += itq_objective(v.as_ref(), &itq_from(v.as_ref(), first, 32));
            }
            assert!(plain < before && fast <= plain, "{r} bits: {before} {plain} {fast}");
        }
    }

    #[test]
    fn itq_is_the_same_for_any_threads_and_strides() {
        let v = cloud(2000, 48);
        let rows = v.transpose().to_owned();
        let run = |threads: usize, points: MatRef<'_, f32>| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            pool.unwrap().install(|| itq(points, &mut stream(3), 8))
        };
        let one = run(1, v.as_ref());
        assert_eq!(one, run(3, v.as_ref()));
        let one_by_rows = run(1, rows.transpose());
        assert_eq!(one_by_rows, run(3, rows.transpose()));
        // Another memory layout may sum in another order, so results are close but not equal.
        let (a, b) = (itq_objective(v.as_ref(), &one), itq_objective(v.as_ref(), &one_by_rows));
        assert!((a - b).abs() < 1e-2 * a);
        let reversed = run(1, v.as_ref().reverse_rows());
        assert_orthogonal(&reversed);
    }

    #[test]
    fn itq_survives_degenerate_samples() {
        let v = cloud(600, 12);
        let flat = Mat::from_fn(600, 12, |i, j| v[(i, j % 4)]);
        let one = Mat::from_fn(1, 12, |_, j| j as f32);
        let huge = Mat::full(5, 12, f32::MAX);
        for sample in [flat, one, huge, Mat::zeros(600, 12), Mat::zeros(0, 12), Mat::zeros(9, 0)] {
            assert_orthogonal(&itq(sample.as_ref(), &mut stream(4), 50));
        }
        let start = random(12, &mut stream(4));
        assert_eq!(start, itq(v.as_ref(), &mut stream(4), 0));
        assert_eq!(start, itq(Mat::zeros(3, 12).as_ref(), &mut stream(4), 50));
    }
}
