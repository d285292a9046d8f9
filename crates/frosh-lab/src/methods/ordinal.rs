//! The ordinal loss of OCH-style hashing, and descent on it.
//!
//! With landmarks Y (L x D), codes are relaxed to H = tanh(Y W), W'W = I. For a landmark a, one of its 10 most similar
//! landmarks i, and any j that is less similar to a than i, h_a.h_i should exceed h_a.h_j:
//!
//! ```text
//! loss = mean over (a, i, j) of logistic( (h_a.h_j - h_a.h_i) / sqrt(r) )
//! ```
//!
//! The division keeps the argument of one size for all r. The gradient G is projected on the tangent space,
//! T = G - W sym(W'G), and a step is retracted to the polar factor of W - t T, which is
//! (W - t T)(I + t^2 T'T)^(-1/2): one eigenproblem serves all t that Armijo's rule tries.
//!
//! **Cost.** A step with b anchors: b 10 L exponentials for each t, products of L D r, one eigenproblem of size r.

use crate::error::Result;
use crate::linalg;
use faer::{Mat, MatRef};

/// Most similar landmarks that are to stay so, and those that the width of the affinity is taken from.
const NEAR: usize = 10;
const WIDTH_NEAR: usize = 16;
const WIDTH: f64 = 0.35;
/// The share of the promised decrease that a step must bring.
const ARMIJO: f64 = 1e-4;
/// Lengths that a step tries.
const TRIES: usize = 8;

/// Landmarks and the order of their similarities.
pub(super) struct Ordinal {
    y: Mat<f64>,
    /// For each landmark the others, most similar first, with their affinities.
    order: Vec<Vec<(u32, f64)>>,
}

impl Ordinal {
    /// From projected landmarks and the distances between the landmarks as they were.
    pub(super) fn new(y: Mat<f64>, distances: &Mat<f64>) -> Self {
        let count = y.nrows();
        let spread: Vec<f64> = (0..count)
            .map(|i| {
                let mut far: Vec<f64> =
                    (0..count).filter(|j| *j != i).map(|j| distances[(i, j)]).collect();
                far.sort_by(f64::total_cmp);
                far.truncate(WIDTH_NEAR);
                far.iter().sum::<f64>() / far.len().max(1) as f64
            })
            .collect();
        let affinity = |i: usize, j: usize| {
            let sigma = (WIDTH * 0.5 * (spread[i] + spread[j])).max(f64::MIN_POSITIVE);
            let z = distances[(i, j)] / sigma;
            // Logarithms keep the order of densities that are too small for numbers.
            -0.5 * z * z - sigma.ln()
        };
        let order = (0..count)
            .map(|a| {
                let mut others: Vec<(u32, f64)> =
                    (0..count).filter(|j| *j != a).map(|j| (j as u32, affinity(a, j))).collect();
                others.sort_by(|x, y| y.1.total_cmp(&x.1).then(x.0.cmp(&y.0)));
                others
            })
            .collect();
        Self { y, order }
    }

    fn codes(&self, w: MatRef<'_, f64>) -> Mat<f64> {
        let mut h = linalg::product(self.y.as_ref(), w);
        for column in h.col_iter_mut() {
            let Some(column) = column.try_as_col_major_mut() else { continue };
            let column = column.as_slice_mut();
            // tanh x = 2 logistic(2 x) - 1
            pulp::Arch::new().dispatch(
                #[inline(always)]
                || {
                    for x in column {
                        *x = 2.0 * logistic(2.0 * *x) - 1.0;
                    }
                },
            );
        }
        h
    }

    /// The sum of the loss over all triplets of some anchors, and their number. Adds the derivatives by the products
    /// (L x anchors) to `slopes`, where asked for.
    fn triplets(
        &self,
        products: &Mat<f64>,
        anchors: &[usize],
        r: usize,
        mut slopes: Option<&mut Mat<f64>>,
    ) -> (f64, usize) {
        let scale = 1.0 / (r as f64).sqrt();
        let (mut total, mut count) = (0.0, 0);
        // In the order of similarity, so that all that is less similar lies in one piece.
        let (mut sorted, mut pulls) = (Vec::new(), Vec::new());
        for (place, a) in anchors.iter().enumerate() {
            let order = &self.order[*a];
            sorted.clear();
            sorted.extend(order.iter().map(|(j, _)| scale * products[(*j as usize, place)]));
            pulls.clear();
            pulls.resize(order.len(), 0.0);
            for (rank, (_, similar)) in order.iter().take(NEAR).enumerate() {
                // Equal similarities order nothing.
                let from = rank + order[rank..].partition_point(|(_, s)| s >= similar);
                let (sum, pull) = one_against(sorted[rank], &sorted[from..], &mut pulls[from..]);
                total += sum;
                pulls[rank] -= pull;
                count += order.len() - from;
            }
            if let Some(slopes) = &mut slopes {
                for ((j, _), pull) in order.iter().zip(&pulls) {
                    slopes[(*j as usize, place)] += pull;
                }
            }
        }
        (total, count)
    }

    /// Products of all codes with those of the anchors: L x anchors.
    fn products(h: &Mat<f64>, anchors: &[usize]) -> (Mat<f64>, Mat<f64>) {
        let own = Mat::from_fn(anchors.len(), h.ncols(), |p, k| h[(anchors[p], k)]);
        (linalg::product(h.as_ref(), own.transpose()), own)
    }

    /// The loss as seen from some anchors.
    fn loss(&self, w: MatRef<'_, f64>, anchors: &[usize]) -> f64 {
        let h = self.codes(w);
        let (products, _) = Self::products(&h, anchors);
        let (sum, count) = self.triplets(&products, anchors, w.ncols(), None);
        sum / count.max(1) as f64
    }

    /// The loss and its gradient with respect to W.
    fn gradient(&self, w: MatRef<'_, f64>, anchors: &[usize]) -> (f64, Mat<f64>) {
        let h = self.codes(w);
        let (products, own) = Self::products(&h, anchors);
        let mut by_product = Mat::<f64>::zeros(h.nrows(), anchors.len());
        let slopes = Some(&mut by_product);
        let (sum, count) = self.triplets(&products, anchors, w.ncols(), slopes);
        let count = count.max(1) as f64;
        let scale = 1.0 / ((w.ncols() as f64).sqrt() * count);
        // d loss / d H: every code through its products with the anchors, and the anchors through theirs.
        let mut by_code = linalg::product(by_product.as_ref(), own.as_ref());
        let of_anchors = linalg::product(by_product.transpose(), h.as_ref());
        for (place, a) in anchors.iter().enumerate() {
            for k in 0..h.ncols() {
                by_code[(*a, k)] += of_anchors[(place, k)];
            }
        }
        for k in 0..h.ncols() {
            for (g, h) in by_code.col_mut(k).iter_mut().zip(h.col(k).iter()) {
                *g *= scale * (1.0 - h * h);
            }
        }
        (sum / count, linalg::product(self.y.transpose(), by_code.as_ref()))
    }

    /// Descends from `w`, whose columns are orthonormal.
    pub(super) fn descend(&self, mut w: Mat<f64>, steps: usize, batch: usize) -> Result<Mat<f64>> {
        let (count, r) = (self.y.nrows(), w.ncols());
        // How far to go, whatever the length of the gradient: one is a turn of about a right angle of one direction.
        let farthest = (r as f64).sqrt();
        let mut far = 0.1 * farthest;
        for step in 0..steps {
            let batch = batch.min(count);
            let anchors: Vec<usize> = (0..batch).map(|b| (step * batch + b) % count).collect();
            let (loss, g) = self.gradient(w.as_ref(), &anchors);
            let cross = linalg::product(w.transpose(), g.as_ref());
            let symmetric = Mat::from_fn(r, r, |i, j| 0.5 * (cross[(i, j)] + cross[(j, i)]));
            let mut tangent = g - linalg::product(w.as_ref(), symmetric.as_ref());
            let slope = tangent.norm_l2();
            if slope < 1e-12 {
                continue;
            }
            tangent *= faer::Scale(1.0 / slope);
            let gram = linalg::product(tangent.transpose(), tangent.as_ref());
            let (values, u) = linalg::eigen(gram.as_ref())?;
            for _ in 0..TRIES {
                let moved = &w - &tangent * faer::Scale(far);
                let mut shrunk = u.clone();
                for (j, value) in values.iter().enumerate() {
                    let factor = 1.0 / (1.0 + far * far * value.max(0.0)).sqrt();
                    shrunk.col_mut(j).iter_mut().for_each(|x| *x *= factor);
                }
                let root = linalg::product(shrunk.as_ref(), u.transpose());
                let next = linalg::product(moved.as_ref(), root.as_ref());
                if self.loss(next.as_ref(), &anchors) <= loss - ARMIJO * far * slope {
                    w = polished(&next);
                    far = (1.5 * far).min(farthest);
                    break;
                }
                far = (0.5 * far).max(1e-6);
            }
        }
        Ok(w)
    }
}

/// One step of Newton's towards orthonormal columns. The retraction takes W'W = I for granted; without this, rounding
/// would grow from step to step.
fn polished(w: &Mat<f64>) -> Mat<f64> {
    let gram = linalg::product(w.transpose(), w.as_ref());
    let r = w.ncols();
    let mend = Mat::from_fn(r, r, |i, j| f64::from(u8::from(i == j)) * 1.5 - 0.5 * gram[(i, j)]);
    linalg::product(w.as_ref(), mend.as_ref())
}

/// The loss of one similar landmark against all less similar ones, and the sum of its derivatives, which are added to
/// `pulls` one by one.
fn one_against(similar: f64, less: &[f64], pulls: &mut [f64]) -> (f64, f64) {
    const LANES: usize = 8;
    pulp::Arch::new().dispatch(
        #[inline(always)]
        || {
            let (mut sums, mut slopes) = ([0f64; LANES], [0f64; LANES]);
            for (less, pulls) in less.chunks(LANES).zip(pulls.chunks_mut(LANES)) {
                let lanes = sums.iter_mut().zip(&mut slopes);
                for ((x, pull), (sum, slope)) in less.iter().zip(pulls).zip(lanes) {
                    let y = logistic(x - similar);
                    let by = y * (1.0 - y);
                    *sum += y;
                    *slope += by;
                    *pull += by;
                }
            }
            (sums.iter().sum(), slopes.iter().sum())
        },
    )
}

/// 1 / (1 + e^-x), in a form that compiles to vector instructions, which a call of the system's function does not.
#[inline(always)]
fn logistic(x: f64) -> f64 {
    /// Adding and subtracting it rounds to a whole number, which then stands in its last bits.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    let x = (-x).clamp(-700.0, 700.0);
    // e^x = 2^k e^rest with |rest| below ln 2 / 2, where twelve terms of the series are exact to rounding.
    let shifted = x * std::f64::consts::LOG2_E + ROUND;
    let k = shifted - ROUND;
    let rest = (x - k * 6.931_471_803_691_238e-1) - k * 1.908_214_929_270_587_7e-10;
    let mut series = 1.0 / 479_001_600.0;
    for inverse in [
        1.0 / 39_916_800.0,
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5_040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ] {
        series = series * rest + inverse;
    }
    let bits = shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(1023) << 52;
    1.0 / (1.0 + f64::from_bits(bits) * series)
}

#[cfg(test)]
mod tests;
