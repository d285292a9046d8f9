//! Rows of a stream that changes, and the definition that sketches of weighted rows are compared with: a dense weighted
//! scatter in double precision.
#![allow(unreachable_pub)]

use faer::{Mat, Side};
use frosh::Sketch;

/// Numbers between -1/2 and 1/2.
pub fn noise(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..n).map(|_| next()).collect()
}

/// Rows whose mean and strong columns change along the stream.
pub fn changing_rows(n: usize, dim: usize, seed: u64) -> Vec<f32> {
    let value = |i: usize, c: usize, x: f32| {
        let strong = if c == i * dim / n { 6.0 } else { 1.0 };
        x * strong + 3.0 * i as f32 / n as f32 + c as f32
    };
    let noise = noise(n * dim, seed);
    noise.iter().enumerate().map(|(e, x)| value(e / dim, e % dim, *x)).collect()
}

/// Weights of the rows of a stream, `age` rows after its end. All rows of a block have the same; blocks have `block`
/// rows, and end where runs of `run` rows end.
pub fn weights(n: usize, run: usize, block: usize, half_life: u64, age: u64) -> Vec<f64> {
    let weight = |i: usize| {
        let in_run = ((i % run / block + 1) * block).min(run);
        let end = (i - i % run + in_run).min(n);
        ((end as f64 - n as f64 - age as f64) / half_life as f64).exp2()
    };
    (0..n).map(weight).collect()
}

/// Total weight, mean and scatter of weighted rows.
pub fn dense(data: &[f32], dim: usize, weights: &[f64]) -> (f64, Vec<f64>, Mat<f64>) {
    let total: f64 = weights.iter().sum();
    let at = |i: usize, c: usize| f64::from(data[i * dim + c]);
    let mean: Vec<f64> = (0..dim)
        .map(|c| weights.iter().enumerate().map(|(i, w)| w * at(i, c)).sum::<f64>() / total)
        .collect();
    let a = Mat::from_fn(weights.len(), dim, |i, c| weights[i].sqrt() * (at(i, c) - mean[c]));
    (total, mean, a.transpose() * &a)
}

/// Compares weight, mean and mass with the definition, and checks the certificate.
pub fn check(sketch: &Sketch, data: &[f32], weights: &[f64], what: &str) {
    let dim = sketch.dim();
    let (total, mean, exact) = dense(data, dim, weights);
    assert_eq!(sketch.rows() as usize, weights.len(), "{what}");
    assert!((sketch.weight() / total - 1.0).abs() < 1e-12, "{what}: {} {total}", sketch.weight());
    for (got, want) in sketch.mean().iter().zip(&mean) {
        assert!((got - want).abs() < 1e-6, "{what}: mean {got} {want}");
    }
    let mass: f64 = (0..dim).map(|c| exact[(c, c)]).sum();
    let certificate = sketch.certificate();
    assert!(!certificate.compressed, "{what}");
    assert!((certificate.mass / mass - 1.0).abs() < 1e-5, "{what}: {} {mass}", certificate.mass);
    let b = sketch.sketched();
    let b = Mat::from_fn(b.len() / dim, dim, |i, c| f64::from(b[i * dim + c]));
    let lost = (&exact - b.transpose() * &b).self_adjoint_eigenvalues(Side::Lower).unwrap();
    assert!(lost[0] >= -1e-5 * mass, "{what}: {} of {mass}", lost[0]);
    let most = certificate.removed + 1e-5 * mass;
    assert!(lost[dim - 1] <= most, "{what}: {} above {most}", lost[dim - 1]);
}
