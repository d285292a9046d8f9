//! Checks the bounds of frequent directions with dense matrices in double precision. Rows are single
//! precision, so every bound has a tolerance of [`ROUNDING`] times the mass.

use super::*;
use crate::linalg;
use crate::random::{Purpose, Stream};
use proptest::prelude::*;

const ROUNDING: f64 = 2e-6;

/// A'A in double precision.
fn scatter(rows: &[f32], d: usize) -> Mat<f64> {
    let a = Mat::from_fn(rows.len() / d, d, |i, j| f64::from(rows[i * d + j]));
    a.transpose() * &a
}

fn mass(rows: &[f32]) -> f64 {
    rows.iter().map(|x| f64::from(*x).powi(2)).sum()
}

fn sketch(rows: &[f32], d: usize, l: usize, index: ShrinkIndex) -> FrequentDirections {
    let mut fd = FrequentDirections::new(d, l, index);
    fd.append(&Pool::ONE, rows);
    fd
}

/// Checks every inequality between the inserted rows and the sketch.
fn check_bounds(fd: &FrequentDirections, rows: &[f32], d: usize) {
    let total = mass(rows);
    let slack = ROUNDING * total;
    let (a, b) = (scatter(rows, d), scatter(fd.live(), d));
    let (lost, _) = linalg::eigen((&a - &b).as_ref());
    let c = fd.index().position(fd.capacity()) as f64;
    assert!(lost[d - 1] >= -slack, "A'A - B'B has eigenvalue {}", lost[d - 1]);
    assert!(lost[0] <= fd.removed() + slack, "{} > {}", lost[0], fd.removed());
    assert!(c * fd.removed() <= total - mass(fd.live()) + slack);
    assert!((fd.inserted() - total).abs() <= slack);
    // Robust frequent directions: adding half of Delta to all directions halves the error.
    let half = fd.removed() / 2.0;
    assert!(lost.iter().all(|x| (x - half).abs() <= half + slack));

    let (values, _) = linalg::eigen(a.as_ref());
    let (_, v) = linalg::eigen(b.as_ref());
    for k in 0..(c as usize).min(d) {
        let tail: f64 = values[k..].iter().map(|x| x.max(0.0)).sum();
        assert!(fd.removed() <= tail / (c - k as f64) + slack, "k = {k}");
        let top = v.subcols(0, k);
        let kept = top.transpose() * &a * top;
        let missed = total - (0..k).map(|i| kept[(i, i)]).sum::<f64>();
        assert!(missed <= (1.0 + k as f64 / (c - k as f64)) * tail + slack, "k = {k}");
    }
}

fn normals(n: usize, seed: u64) -> Vec<f32> {
    let mut stream = Stream::new(seed, Purpose::Lsh, 0, 0);
    (0..n).map(|_| stream.normal() as f32).collect()
}

/// The inputs that the bounds are checked on.
fn inputs(d: usize) -> Vec<(&'static str, Vec<f32>)> {
    let n = 12 * d;
    let random = normals(n * d, 1);
    let low: Vec<f32> = {
        let (u, z) = (normals(3 * d, 2), normals(3 * n, 3));
        (0..n * d).map(|e| (0..3).map(|k| z[e / d * 3 + k] * u[k * d + e % d]).sum()).collect()
    };
    let heavy = random.iter().map(|x| x.powi(5)).collect();
    let repeated = (0..n).flat_map(|i| random[(i % 5) * d..][..d].to_vec()).collect();
    // Blocks of rows along new directions: each block could displace the last one.
    let blocks = (0..n * d).map(|e| f32::from(u8::from(e / d / 12 % d == e % d))).collect();
    let falling = (0..n * d).map(|e| random[e] / (1.0 + (e % d) as f32).powi(2)).collect();
    vec![
        ("random", random.clone()),
        ("low rank", low),
        ("heavy tails", heavy),
        ("repeated rows", repeated),
        ("orthogonal blocks", blocks),
        ("falling spectrum", falling),
    ]
}

#[test]
fn bounds_hold_on_every_kind_of_input() {
    for d in [5, 24, 40] {
        for (name, rows) in inputs(d) {
            for l in [2, 6, 16, 32] {
                for index in [ShrinkIndex::HalfPlusOne, ShrinkIndex::Half] {
                    eprintln!("{name} d={d} l={l} {index:?}");
                    check_bounds(&sketch(&rows, d, l, index), &rows, d);
                }
            }
        }
    }
}

#[test]
fn exact_while_the_rank_is_below_c() {
    let d = 30;
    for (rank, l) in [(4, 8), (8, 16), (15, 30)] {
        let u = normals(rank * d, 5);
        let z = normals(500 * rank, 6);
        let rows: Vec<f32> = (0..500 * d)
            .map(|e| (0..rank).map(|k| z[e / d * rank + k] * u[k * d + e % d]).sum())
            .collect();
        let fd = sketch(&rows, d, l, ShrinkIndex::HalfPlusOne);
        assert!(fd.removed() <= ROUNDING * mass(&rows), "removed {}", fd.removed());
        let difference = scatter(&rows, d) - scatter(fd.live(), d);
        assert!(difference.norm_l2() <= 10.0 * ROUNDING * mass(&rows));
    }
}

#[test]
fn rows_are_kept_as_they_are_until_the_buffer_is_full() {
    let rows = normals(16 * 9, 7);
    let fd = sketch(&rows, 9, 16, ShrinkIndex::HalfPlusOne);
    assert_eq!(fd.live(), rows);
    assert_eq!(fd.removed(), 0.0);
}

#[test]
fn a_shrink_frees_half_of_the_buffer() {
    for (index, most) in [(ShrinkIndex::HalfPlusOne, 8), (ShrinkIndex::Half, 7)] {
        let mut fd = sketch(&normals(16 * 40, 8), 40, 16, index);
        fd.shrink(&Pool::ONE);
        assert_eq!(fd.filled(), most);
        // The stored lengths, which the next shrink uses, are those of the rows.
        for (row, length) in fd.live().chunks_exact(40).zip(fd.lengths()) {
            assert!((square_norm(row) - length).abs() <= ROUNDING * fd.lengths()[0]);
        }
        // The rows are orthogonal, as the next shrink assumes.
        let gram = product(
            &Pool::ONE,
            MatRef::from_row_major_slice(fd.live(), most, 40),
            MatRef::from_row_major_slice(fd.live(), most, 40),
            1.0,
        );
        for i in 0..most {
            for j in 0..i {
                assert!(f64::from(gram[(i, j)].abs()) <= ROUNDING * fd.lengths()[0]);
            }
        }
    }
}

#[test]
fn every_row_has_one_stored_length() {
    let d = 5;
    let mut fd = FrequentDirections::new(d, 8, ShrinkIndex::HalfPlusOne);
    for row in normals(100 * d, 12).chunks_exact(d) {
        fd.append(&Pool::ONE, row);
        assert_eq!(fd.lengths.len() + fd.norms.len(), fd.filled());
    }
}

#[test]
fn reusing_stored_lengths_does_not_change_the_result() {
    let (d, l) = (50, 12);
    let rows = normals(120 * d, 9);
    let mut reusing = FrequentDirections::new(d, l, ShrinkIndex::HalfPlusOne);
    let mut recomputing = reusing.clone();
    for block in rows.chunks(6 * d) {
        reusing.append(&Pool::ONE, block);
        recomputing.append(&Pool::ONE, block);
        let live = recomputing.live().to_vec();
        let mass = (recomputing.removed(), recomputing.inserted());
        recomputing = FrequentDirections::resume(d, l, recomputing.index(), live, Vec::new(), mass);
    }
    let difference = scatter(reusing.live(), d) - scatter(recomputing.live(), d);
    assert!(difference.norm_l2() <= 20.0 * ROUNDING * mass(&rows));
    assert!((reusing.removed() - recomputing.removed()).abs() <= ROUNDING * mass(&rows));
}

#[test]
fn wide_rows_are_summed_the_same_way_on_any_number_of_threads() {
    let d = 5000; // several column groups
    let rows = normals(40 * d, 10);
    let one = sketch(&rows, d, 8, ShrinkIndex::HalfPlusOne);
    let mut many = FrequentDirections::new(d, 8, ShrinkIndex::HalfPlusOne);
    many.append(&Pool::new(3).unwrap(), &rows);
    assert_eq!(one.live(), many.live());
    let plain = sketch(&rows[..8 * d], d, 8, ShrinkIndex::HalfPlusOne);
    let all = MatRef::from_row_major_slice(plain.live(), 8, d);
    let gram = product(&Pool::ONE, all, all, 1.0);
    for i in 0..8 {
        for j in 0..8 {
            let exact: f64 = (0..d).map(|k| f64::from(all[(i, k)]) * f64::from(all[(j, k)])).sum();
            assert!((f64::from(gram[(i, j)]) - exact).abs() <= 1e-6 * d as f64);
        }
    }
}

/// The loss of the sketch along its worst direction beyond the certificate, relative to the mass.
fn uncertified(fd: &FrequentDirections, a: &Mat<f64>, d: usize) -> f64 {
    let trace: f64 = (0..d).map(|i| a[(i, i)]).sum();
    let (lost, _) = linalg::eigen((a - scatter(fd.live(), d)).as_ref());
    ((lost[0] - fd.removed()) / trace).max(-lost[d - 1] / trace)
}

/// The documented bound on rounding.
fn rounding_after(shrinks: f64) -> f64 {
    (20.0 + shrinks.sqrt()) * f64::from(f32::EPSILON)
}

/// Every direction fits into the sketch, so nothing may be lost, for any length of the stream.
#[test]
fn the_certificate_holds_after_100_000_shrinks() {
    for (d, strong) in [(4, 0.0), (4, 3e4), (8, 0.0)] {
        let l = 2 * d;
        let mut fd = FrequentDirections::new(d, l, ShrinkIndex::default());
        let mut a = Mat::<f64>::zeros(d, d);
        let mut insert = |rows: &[f32]| {
            fd.append(&Pool::ONE, rows);
            a += scatter(rows, d);
        };
        // A strong direction, which many small rows must not reduce.
        insert(&(0..d).map(|k| strong / (1 + k) as f32).collect::<Vec<_>>());
        let shrinks = 100_000;
        let mut stream = Stream::new(12, Purpose::Lsh, 0, 0);
        for _ in 0..shrinks / 100 {
            let rows: Vec<f32> =
                (0..100 * d * d).map(|e| (stream.normal() / (1 + e % d) as f64) as f32).collect();
            insert(&rows);
        }
        let got = uncertified(&fd, &a, d);
        eprintln!(
            "d = {d}, strong {strong}: {got:.1e} of the mass, {:.1e} certified",
            fd.removed()
        );
        assert!(got <= rounding_after(f64::from(shrinks)), "d = {d}, strong {strong}: {got:e}");
    }
}

/// Squares of such rows overflow or underflow single precision; the rows do not.
#[test]
fn huge_and_tiny_rows_are_not_lost() {
    for (d, power) in
        [(16, 60), (16_384, 50), (16, 50), (16, -50), (16, -75), (600, -80), (16, -120)]
    {
        let (l, n) = (8, 40);
        let rows = normals(n * d, 13);
        let scaled: Vec<f32> = rows.iter().map(|x| x * 2f32.powi(power)).collect();
        let fd = sketch(&scaled, d, l, ShrinkIndex::default());
        let plain = sketch(&rows, d, l, ShrinkIndex::default());
        let back: Vec<f32> = fd.live().iter().map(|x| x * 2f32.powi(-power)).collect();
        assert_eq!(fd.filled(), plain.filled(), "2^{power}, d = {d}");
        let square = 2f64.powi(2 * power);
        assert!(
            (fd.removed() / square / plain.removed() - 1.0).abs() <= 1e-4,
            "2^{power}, d = {d}"
        );
        let (got, want) = (mass(&back), mass(plain.live()));
        assert!((got / want - 1.0).abs() <= 1e-4, "2^{power}, d = {d}: {got} instead of {want}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn scaling_by_powers_of_two_scales_the_sketch(seed in any::<u64>(), power in -20i32..20) {
        let rows = normals(30 * 7, seed);
        let factor = 2f32.powi(power);
        let scaled: Vec<f32> = rows.iter().map(|x| x * factor).collect();
        let (a, b) = (sketch(&rows, 7, 6, ShrinkIndex::default()), sketch(&scaled, 7, 6, ShrinkIndex::default()));
        let back: Vec<f32> = b.live().iter().map(|x| x / factor).collect();
        prop_assert_eq!(a.live(), &back[..]);
    }

    #[test]
    fn rows_of_zeros_change_nothing_but_the_moment_of_a_shrink(seed in any::<u64>(), at in 0usize..20) {
        let d = 6;
        let rows = normals(20 * d, seed);
        let mut padded = rows.clone();
        padded.splice(at * d..at * d, vec![0.0; 3 * d]);
        let fd = sketch(&padded, d, 8, ShrinkIndex::default());
        check_bounds(&fd, &rows, d);
    }

    #[test]
    fn bounds_hold_for_any_order_of_rows(seed in any::<u64>(), cut in 1usize..59) {
        let d = 8;
        let mut rows = normals(60 * d, seed);
        rows.rotate_left(cut * d);
        check_bounds(&sketch(&rows, d, 6, ShrinkIndex::default()), &rows, d);
    }
}
