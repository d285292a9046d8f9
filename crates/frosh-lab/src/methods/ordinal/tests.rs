//! The ordinal loss against its definition.

use super::*;
use crate::random::Random;

fn example(count: usize, dims: usize) -> Ordinal {
    let y = linalg::gaussian(&mut Random::new(4, 4), count, dims);
    let distances = Mat::from_fn(count, count, |i, j| {
        (0..dims).map(|k| (y[(i, k)] - y[(j, k)]).powi(2)).sum::<f64>().sqrt()
    });
    Ordinal::new(y, &distances)
}

#[test]
fn the_logistic_function_is_that_of_the_system() {
    for i in -4000..4000 {
        let x = f64::from(i) * 0.0123;
        let want = 1.0 / (1.0 + (-x).exp());
        assert!((logistic(x) / want - 1.0).abs() < 1e-14, "{x}");
    }
    assert!(logistic(1e6) == 1.0 && logistic(-1e6) < 1e-300 && logistic(0.0) == 0.5);
}

#[test]
fn the_loss_is_the_mean_over_triplets_of_the_definition() {
    let (ordinal, r) = (example(24, 5), 3);
    let w = linalg::random_orthonormal(&mut Random::new(1, 1), 5, r);
    let h = ordinal.codes(w.as_ref());
    let dot = |a: usize, b: usize| (0..r).map(|k| h[(a, k)] * h[(b, k)]).sum::<f64>();
    let (mut sum, mut count) = (0.0, 0);
    for a in [2usize, 9] {
        let near: Vec<_> = ordinal.order[a].clone();
        for (i, si) in &near[..NEAR] {
            for (j, sj) in &near {
                if sj < si {
                    let x = dot(a, *j as usize) - dot(a, *i as usize);
                    sum += 1.0 / (1.0 + (-x / (r as f64).sqrt()).exp());
                    count += 1;
                }
            }
        }
    }
    assert!((ordinal.loss(w.as_ref(), &[2, 9]) - sum / f64::from(count)).abs() < 1e-12);
}

#[test]
fn the_gradient_is_that_of_finite_differences() {
    let ordinal = example(30, 6);
    let w = linalg::random_orthonormal(&mut Random::new(2, 1), 6, 4);
    let anchors = [0, 7, 19];
    let (loss, gradient) = ordinal.gradient(w.as_ref(), &anchors);
    assert!((loss - ordinal.loss(w.as_ref(), &anchors)).abs() < 1e-14);
    let step = 1e-6;
    for (i, k) in [(0, 0), (1, 3), (5, 2), (3, 1)] {
        let at = |by: f64| {
            let mut moved = w.clone();
            moved[(i, k)] += by;
            ordinal.loss(moved.as_ref(), &anchors)
        };
        let slope = (at(step) - at(-step)) / (2.0 * step);
        assert!((slope - gradient[(i, k)]).abs() < 1e-8, "{slope} {}", gradient[(i, k)]);
    }
}

#[test]
fn descent_lowers_the_loss_and_keeps_w_orthonormal() {
    let ordinal = example(60, 8);
    let all: Vec<usize> = (0..60).collect();
    let start = linalg::random_orthonormal(&mut Random::new(3, 1), 8, 5);
    let before = ordinal.loss(start.as_ref(), &all);
    let w = ordinal.descend(start, 60, 60).unwrap();
    assert!(ordinal.loss(w.as_ref(), &all) < before);
    let gram = w.transpose() * &w;
    for i in 0..5 {
        for j in 0..5 {
            assert!((gram[(i, j)] - f64::from(u8::from(i == j))).abs() < 1e-12);
        }
    }
}
