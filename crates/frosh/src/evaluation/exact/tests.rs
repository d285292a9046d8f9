//! Compares the search with its definition: all distances in double precision, sorted.

use super::*;
use crate::random::{Purpose, Stream};
use half::f16;
use proptest::prelude::*;

fn stream(seed: u64) -> Stream {
    Stream::new(seed, Purpose::Sample, 0, 0)
}

fn normals(n: usize, seed: u64) -> Vec<f32> {
    let mut stream = stream(seed);
    (0..n).map(|_| stream.normal() as f32).collect()
}

/// A row in double precision, scaled for the metric.
fn seen<T: Element>(row: &[T], metric: Metric) -> Vec<f64> {
    let row: Vec<f64> = row.iter().map(|x| x.to_f64()).collect();
    let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt();
    match metric {
        Metric::Cosine if norm > 0.0 => row.iter().map(|x| x * (1.0 / norm)).collect(),
        _ => row,
    }
}

fn oracle<T: Element>(
    queries: Rows<'_, T>,
    base: Rows<'_, T>,
    k: usize,
    m: Metric,
) -> Vec<Vec<Hit>> {
    let base: Vec<_> = (0..base.len()).map(|i| seen(base.row(i), m)).collect();
    let each = |q: usize| {
        let q = seen(queries.row(q), m);
        let distance = |x: &Vec<f64>| x.iter().zip(&q).map(|(x, q)| (x - q) * (x - q)).sum();
        let mut all: Vec<Hit> =
            base.iter().zip(0..).map(|(x, id)| Hit { distance: distance(x), id }).collect();
        all.sort_by(|a, b| a.distance.total_cmp(&b.distance).then(a.id.cmp(&b.id)));
        all.truncate(k);
        all
    };
    (0..queries.len()).map(each).collect()
}

fn search<T: Element>(
    queries: Rows<'_, T>,
    base: Rows<'_, T>,
    k: usize,
    metric: Metric,
    pool: &Pool,
    batch: usize,
) -> Vec<Vec<Hit>> {
    let mut search = pool.install(|| ExactSearch::new(queries, k, metric)).unwrap();
    for from in (0..base.len()).step_by(batch) {
        search.push(base.slice(from..(from + batch).min(base.len()))).unwrap();
    }
    assert_eq!(search.rows(), base.len() as u64);
    search.finish()
}

/// Checks for the same rows at the same distances, up to rounding.
fn check<T: Element>(queries: &[T], base: &[T], dim: usize, k: usize, metric: Metric) {
    let (queries, base) = (Rows::new(queries, dim).unwrap(), Rows::new(base, dim).unwrap());
    let want = oracle(queries, base, k, metric);
    let got = search(queries, base, k, metric, &Pool::new(2).unwrap(), 333);
    assert_eq!(got.len(), want.len());
    for (q, (got, want)) in got.iter().zip(&want).enumerate() {
        let ids = |f: &[Hit]| f.iter().map(|f| f.id).collect::<Vec<_>>();
        assert_eq!(ids(got), ids(want), "query {q}, {} dimensions, k = {k}, {metric}", dim);
        for (got, want) in got.iter().zip(want) {
            assert!((got.distance - want.distance).abs() <= 1e-13 * want.distance + 1e-15);
        }
    }
}

#[test]
fn the_answer_is_that_of_the_definition() {
    for (dim, queries, n, k) in [
        (1, 3, 500, 7),
        (17, 1, 3000, 1),
        (24, 130, 3000, 60),
        (33, 65, 900, 400),
        (200, 5, 5000, 30),
    ] {
        let seed = dim as u64;
        let (q, base) = (normals(dim * queries, seed), normals(dim * n, seed + 1000));
        check(&q, &base, dim, k, Metric::L2);
        check(&q, &base, dim, k, Metric::Cosine);
        let half = |x: &[f32]| x.iter().map(|x| f16::from_f32(*x)).collect::<Vec<_>>();
        check(&half(&q), &half(&base), dim, k.min(20), Metric::Cosine);
    }
}

#[test]
fn a_large_offset_costs_no_digits() {
    let dim = 24;
    let shift = |x: &[f32], by: f64| x.iter().map(|x| f64::from(*x) + by).collect::<Vec<f64>>();
    let (q, base) = (normals(dim * 20, 1), normals(dim * 4000, 2));
    check(&shift(&q, 1e9), &shift(&base, 1e9), dim, 50, Metric::L2);
    let single = |x: &[f32]| x.iter().map(|x| x + 1e6).collect::<Vec<f32>>();
    check(&single(&q), &single(&base), dim, 50, Metric::L2);
    check(&single(&q), &single(&base), dim, 50, Metric::Cosine);
    // Queries and base are far apart: nothing can be pruned, and the result is still exact.
    check(&shift(&q, -1e5), &shift(&base, 1e5), dim, 50, Metric::L2);
}

#[test]
fn distances_that_single_precision_cannot_tell_apart() {
    let dim = 16;
    let mut random = stream(3);
    // Shells around two points, neither of which is the reference of the product.
    let queries: Vec<f64> = [[3.0; 16], [-2.0; 16]].concat();
    let mut base = Vec::new();
    for i in 0..3000 {
        let direction: Vec<f64> = (0..dim).map(|_| random.normal()).collect();
        let length = direction.iter().map(|x| x * x).sum::<f64>().sqrt();
        let radius = 1.0 + 1e-9 * random.normal();
        let centre = &queries[i % 2 * dim..][..dim];
        base.extend(direction.iter().zip(centre).map(|(x, c)| c + x / length * radius));
    }
    check(&queries, &base, dim, 40, Metric::L2);
}

#[test]
fn tiny_and_huge_values() {
    for scale in [1e-30, 1e-22, 1e-17, 1e14] {
        let make = |n, seed| normals(n, seed).iter().map(|x| f64::from(*x) * scale).collect();
        let (q, base): (Vec<f64>, Vec<f64>) = (make(8 * 5, 4), make(8 * 2500, 5));
        let (q, base) = (Rows::new(&q, 8).unwrap(), Rows::new(&base, 8).unwrap());
        let want = oracle(q, base, 20, Metric::L2);
        let got = search(q, base, 20, Metric::L2, &Pool::ONE, 700);
        for (got, want) in got.iter().flatten().zip(want.iter().flatten()) {
            assert_eq!(got.id, want.id, "scale {scale:e}");
        }
    }
}

#[test]
fn equal_distances_come_by_id() {
    // Few distinct integers: most distances are tied, and exact.
    let mut random = stream(6);
    let mut bytes = |n: usize| (0..n).map(|_| random.below(3) as u8).collect::<Vec<u8>>();
    let (q, base) = (bytes(4 * 70), bytes(4 * 6000));
    for k in [1, 10, 100, 2999] {
        check(&q, &base, 4, k, Metric::L2);
    }
    // Many copies of one row, with and without a scale.
    let base: Vec<f32> = [0.3f32, -0.7, 0.1].repeat(4000);
    check(&[0.1f32, 0.2, 0.9], &base, 3, 100, Metric::L2);
    check(&[0.1f32, 0.2, 0.9], &base, 3, 100, Metric::Cosine);
}

#[test]
fn rows_that_come_nearer_and_nearer() {
    let base: Vec<f32> = (0..5000).rev().flat_map(|i| [i as f32 * 0.1, 1.0]).collect();
    check(&[0.0f32, 0.0, -3.0, 2.0], &base, 2, 12, Metric::L2);
}

#[test]
fn more_neighbours_than_rows_and_none_at_all() {
    let (q, base) = (normals(6, 7), normals(3 * 40, 8));
    check(&q, &base, 3, 40, Metric::L2);
    check(&q, &base, 3, 41, Metric::L2);
    check(&q, &base, 3, usize::MAX, Metric::L2);
    check(&q, &base, 3, 0, Metric::L2);
    check(&[], &base, 3, 5, Metric::L2);
    check(&q, &[], 3, 5, Metric::Cosine);
    check(&[0.0f32; 3], &[0.0; 6], 3, 5, Metric::Cosine);
}

#[test]
fn a_longer_list_begins_with_the_shorter_one() {
    let (q, base) = (normals(8 * 9, 9), normals(8 * 3000, 10));
    let (q, base) = (Rows::new(&q, 8).unwrap(), Rows::new(&base, 8).unwrap());
    let short = search(q, base, 60, Metric::L2, &Pool::ONE, 1000);
    let long = search(q, base, 500, Metric::L2, &Pool::ONE, 1000);
    for (short, long) in short.iter().zip(&long) {
        assert_eq!(short[..], long[..60]);
    }
}

#[test]
fn one_thread_and_many_and_any_batches_give_the_same() {
    let (q, base) = (normals(12 * 150, 11), normals(12 * 5000, 12));
    let (q, base) = (Rows::new(&q, 12).unwrap(), Rows::new(&base, 12).unwrap());
    let want = search(q, base, 100, Metric::Cosine, &Pool::ONE, 5000);
    for (threads, batch) in [(2, 5000), (3, 1), (2, 17), (5, 2049)] {
        let pool = Pool::new(threads).unwrap();
        assert_eq!(search(q, base, 100, Metric::Cosine, &pool, batch), want);
    }
}

#[test]
fn after_a_refused_row_the_stream_stands_before_it() {
    let (q, mut base) = (normals(4 * 3, 13), normals(4 * 6000, 14));
    let want = {
        let (q, base) = (Rows::new(&q, 4).unwrap(), Rows::new(&base[..4 * 5000], 4).unwrap());
        search(q, base, 50, Metric::L2, &Pool::ONE, 5000)
    };
    base[4 * 5000 + 2] = f32::NAN;
    base[4 * 5500] = 1e30;
    let two = Pool::new(2).unwrap();
    let mut search =
        two.install(|| ExactSearch::new(Rows::new(&q, 4).unwrap(), 50, Metric::L2)).unwrap();
    search.push(Rows::new(&base[..4 * 100], 4).unwrap()).unwrap();
    match search.push(Rows::new(&base[4 * 100..], 4).unwrap()) {
        Err(Error::NotFinite { row: 4900, column: 2, .. }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(search.rows(), 5000);
    assert!(matches!(
        search.push(Rows::new(&base[4 * 5001..], 4).unwrap()),
        Err(Error::TooLarge { row: 499, column: 0, .. })
    ));
    let wrong = search.push(Rows::new(&[0f32; 6], 3).unwrap());
    assert!(matches!(wrong, Err(Error::Dimension { expected: 4, got: 3 })));
    let mut clean = ExactSearch::new(Rows::new(&q, 4).unwrap(), 50, Metric::L2).unwrap();
    assert!(clean.push(Rows::new(&base, 4).unwrap()).is_err());
    assert_eq!(clean.finish(), want);
    let bad = [0.0, 1.0, 2.0, f32::INFINITY];
    let refused = ExactSearch::new(Rows::new(&bad, 2).unwrap(), 1, Metric::L2);
    assert!(matches!(refused, Err(Error::NotFinite { row: 1, column: 1, .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Integers, so that there are many ties and both sums are exact.
    #[test]
    fn whole_numbers_in_any_shape(
        (dim, queries, base) in (1usize..9).prop_flat_map(|dim| {
            let rows = move |n| prop::collection::vec(prop::collection::vec(-2i8..3, dim), n);
            (Just(dim), rows(1..5), rows(0..300))
        }),
        k in 0usize..80,
        offset in prop::sample::select(vec![0.0, 1e6, -3e8]),
    ) {
        let flat = |rows: &[Vec<i8>]| -> Vec<f64> {
            rows.iter().flatten().map(|x| f64::from(*x) + offset).collect()
        };
        check(&flat(&queries), &flat(&base), dim, k, Metric::L2);
    }

    /// The lower bound holds for every pair, at any lengths.
    #[test]
    fn nothing_near_is_ruled_out(
        seed in any::<u64>(),
        dim in 1usize..70,
        far in -90i32..20,
        spread in -90i32..20,
    ) {
        let mut random = stream(seed);
        let (far, spread) = (f64::from(far).exp2(), f64::from(spread).exp2());
        let mut rows = |n: usize, at: f64| -> Vec<f64> {
            (0..n * dim).map(|_| at + spread * random.normal()).collect()
        };
        let (queries, base) = (rows(3, 0.0), rows(40, far));
        let (q, b) = (Rows::new(&queries, dim).unwrap(), Rows::new(&base, dim).unwrap());
        let mut search = Pool::ONE.install(|| ExactSearch::new(q, 5, Metric::L2)).unwrap();
        search.load(&b);
        let group = &mut search.groups[0];
        for row in 0..b.len() {
            // A row exactly at the limit must not be pruned.
            for q in 0..3 {
                let query = &queries[q * dim..(q + 1) * dim];
                group.best[q].limit = square_distance(b.row(row), query);
            }
            group.rule_out(b.len(), &search.block);
            prop_assert_eq!(group.near[row], 0b111);
        }
    }
}
