//! SGH against direct computations.

use super::*;
use crate::methods::encoder::Features as _;

fn example(n: usize, dim: usize) -> (Vec<f32>, Sgh) {
    let mut rows = vec![0f32; n * dim];
    Random::new(8, 1).normals(&mut rows);
    rows.chunks_exact_mut(dim).for_each(|row| {
        row[0] = 3.0 * row[0] + 5.0;
        row[1] *= 2.0;
    });
    let (rows_seen, seed) = (n as u64, 3);
    let task = Task {
        rows: rows_seen,
        dim,
        seed,
        no_rotation: false,
        learned_rotation: true,
        timed: false,
    };
    let mut sgh = Sgh::new(&task, vec![8]);
    for _ in 0..2 {
        // In uneven batches.
        rows.chunks(377 * dim).for_each(|batch| sgh.push(batch).unwrap());
        sgh.end_pass().unwrap();
    }
    (rows, sgh)
}

fn p_and_q(x: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let (alpha, beta) = weights();
    let u = (-x.iter().map(|x| x * x).sum::<f64>() / RHO).exp();
    let mut p: Vec<f64> = x.iter().map(|x| alpha * u * x).collect();
    p.push(beta * u);
    let mut q = p.clone();
    p.push(1.0);
    q.push(-1.0);
    (p, q)
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[test]
fn the_factors_reproduce_the_similarity_up_to_the_error_of_the_chord() {
    let e = std::f64::consts::E;
    let chord = |t: f64| (e * e - 1.0) / (2.0 * e) * t + (e * e + 1.0) / (2.0 * e);
    // The chord is furthest from e^t where the slopes agree.
    let worst = 1f64.sinh().ln();
    let most = 2.0 / e * (chord(worst) - worst.exp());
    for i in 0..=40 {
        let angle = f64::from(i) * std::f64::consts::PI / 40.0;
        let (x, y) = ([1.0, 0.0], [angle.cos(), angle.sin()]);
        let square: f64 = x.iter().zip(&y).map(|(a, b)| (a - b) * (a - b)).sum();
        let similarity = 2.0 * (-square / RHO).exp() - 1.0;
        let got = dot(&p_and_q(&x).0, &p_and_q(&y).1);
        let error = 2.0 / e * (chord(angle.cos()) - angle.cos().exp());
        assert!((got - similarity - error).abs() < 1e-12);
        assert!((0.0..=most + 1e-12).contains(&(error + 1e-13)), "{error} {most}");
    }
}

#[test]
fn the_graph_is_that_of_a_direct_computation() {
    let (n, dim) = (900, 6);
    let (rows, sgh) = example(n, dim);
    let mut unit = rows.clone();
    sgh.kernel.normalise(&mut unit);
    let k = Shared(sgh.kernel.clone()).features(&rows, Par::Seq);
    let count = sgh.graph.nrows();
    assert_eq!((k.len(), count), (n * 300, 300));
    let (mut p, mut q) = (Mat::zeros(n, dim + 2), Mat::zeros(n, dim + 2));
    for (i, x) in unit.chunks_exact(dim).enumerate() {
        let x: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
        let (a, b) = p_and_q(&x);
        for j in 0..dim + 2 {
            (p[(i, j)], q[(i, j)]) = (a[j], b[j]);
        }
    }
    // K' S~ K with all n x n similarities.
    let similarities = &p * q.transpose();
    let k = Mat::from_fn(n, count, |i, j| f64::from(k[i * count + j]));
    let want = k.transpose() * similarities * &k;
    let got = &sgh.factor * &sgh.graph * sgh.factor.transpose();
    let size = want.norm_max();
    assert!((&got - &want).norm_max() < 1e-4 * size, "{}", (&got - &want).norm_max() / size);
    assert!((&got - got.transpose()).norm_max() < 1e-9 * size);
    // What was kept of K is what the encoder computes again.
    let kept = Mat::from_fn(n, count, |i, j| f64::from(sgh.k[i * count + j]));
    assert!((kept - k).norm_max() < 1e-5);
}

#[test]
fn its_codes_are_nearer_to_the_similarities_than_random_ones() {
    let (n, dim, bits) = (900, 6, 8);
    let (rows, mut sgh) = example(n, dim);
    let learned = sgh.fit(Method::Sgh, bits).unwrap();
    let random = linalg::gaussian(&mut Random::new(6, 6), dim, bits);
    let mean = sgh.kernel.mean.clone();
    let random =
        Encoder::linear(dim, Box::new(crate::methods::encoder::Centred(mean)), random.as_ref());
    let mut unit = rows.clone();
    sgh.kernel.normalise(&mut unit);
    let loss = |encoder: &Encoder| {
        let codes = encoder.encode(frosh::Rows::new(&rows, dim).unwrap()).unwrap();
        let mut sum = 0.0;
        for i in (0..n).step_by(7) {
            for j in 0..n {
                let (x, y) = (&unit[i * dim..][..dim], &unit[j * dim..][..dim]);
                let square: f32 = x.iter().zip(y).map(|(a, b)| (a - b) * (a - b)).sum();
                let similarity = 2.0 * f64::from(-square / 2.0).exp() - 1.0;
                let distance = f64::from(codes.distance(i, &codes, j).unwrap());
                sum += (similarity - (1.0 - 2.0 * distance / bits as f64)).powi(2);
            }
        }
        sum
    };
    assert!(loss(&learned) < 0.8 * loss(&random), "{} {}", loss(&learned), loss(&random));
}
