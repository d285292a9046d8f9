use super::*;
use crate::hasher::estimator::Scales;
use crate::{Config, Method, Metric, Rotation, Sketcher};

const DIM: usize = 24;

fn data(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    (0..n * DIM)
        .map(|i| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let unit = (state >> 8) as f32 / (1 << 24) as f32 - 0.5;
            unit * 8.0 / (1.0 + (i % DIM) as f32) + 3.0
        })
        .collect()
}

fn hasher(method: Method, metric: Metric, bits: usize) -> Hasher {
    let rows = data(600, 1);
    let config = Config::new(DIM).method(method).metric(metric);
    let mut sketcher = Sketcher::new(config).unwrap();
    sketcher.push(Rows::new(&rows, DIM).unwrap()).unwrap();
    let rotation = if method == Method::Lsh { Rotation::None } else { Rotation::Random };
    sketcher.finish().hasher_with(bits, rotation).unwrap()
}

/// The centred row, and its projections, in double precision.
fn oracle(hasher: &Hasher, row: &[f32]) -> (Vec<f64>, Vec<f64>) {
    let norm = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    let scale = if hasher.metric() == Metric::Cosine { 1.0 / norm } else { 1.0 };
    let centred: Vec<f64> =
        row.iter().zip(hasher.mean()).map(|(x, m)| f64::from(*x) * scale - m).collect();
    let project = |k| -> f64 {
        centred.iter().zip(hasher.direction(k)).map(|(x, w)| x * f64::from(*w)).sum()
    };
    let projections = (0..hasher.bits()).map(project).collect();
    (centred, projections)
}

#[test]
fn scores_equal_their_definitions() {
    for (method, metric, bits) in [
        (Method::Frosh, Metric::L2, 20),
        (Method::Osh, Metric::Cosine, 16),
        (Method::Lsh, Metric::L2, 64),
        (Method::Lsh, Metric::L2, 100),
    ] {
        let hasher = hasher(method, metric, bits);
        let (base, asked) = (data(50, 2), data(3, 3));
        let codes = hasher.encode_with_factors(Rows::new(&base, DIM).unwrap()).unwrap();
        let plain = hasher.encode(Rows::new(&base, DIM).unwrap()).unwrap();
        assert_eq!(codes.as_bytes(), plain.as_bytes());
        let queries = hasher.queries(Rows::new(&asked, DIM).unwrap()).unwrap();
        assert_eq!(queries.codes(), &hasher.encode(Rows::new(&asked, DIM).unwrap()).unwrap());
        let share = if method == Method::Lsh { 1.0 / bits as f64 } else { 1.0 };
        let tables = hasher.scales().unwrap().tables();
        let ends = match hasher.scales().unwrap() {
            Scales::Joint { norm, ratio, .. } => [norm, ratio].map(|scale| (scale.low, scale.high)),
            Scales::Apart { .. } => unreachable!("new scales are joint"),
        };
        assert_eq!(codes.stored_bytes_per_row(), codes.bytes_per_row() + 1);
        for (q, query) in asked.chunks(DIM).enumerate() {
            let (y, v) = oracle(&hasher, query);
            let square = |a: &[f64]| a.iter().map(|x| x * x).sum::<f64>();
            for ranking in [Ranking::Hamming, Ranking::Asymmetric, Ranking::Estimated] {
                codes.scores(&queries, q, ranking, 0..50, |_, scores| {
                    for (i, (score, row)) in scores.iter().zip(base.chunks(DIM)).enumerate() {
                        let (x, u) = oracle(&hasher, row);
                        let s: f64 = u.iter().zip(&v).map(|(u, v)| u.signum() * v).sum();
                        let differ = u.iter().zip(&v).filter(|(u, v)| (**u > 0.0) != (**v > 0.0));
                        let gain = share * square(&u) / u.iter().map(|u| u.abs()).sum::<f64>();
                        let (want, tolerance) = match ranking {
                            Ranking::Hamming => (differ.count() as f64, 0.0),
                            Ranking::Asymmetric => (-s, 1e-4 * square(&v).sqrt()),
                            Ranking::Estimated => {
                                // The decoded factors are near the true ones.
                                let byte = usize::from(codes.factors.as_ref().unwrap().data[i]);
                                let kept = |t: usize| f64::from(tables[t][byte]);
                                // Values outside a scale are clamped to its nearest end.
                                let norm = square(&x).sqrt().clamp(ends[0].0, ends[0].1);
                                let ratio = (gain / square(&x).sqrt()).clamp(ends[1].0, ends[1].1);
                                assert!((kept(0) / norm).ln().abs() < 0.1);
                                assert!((kept(1) / (norm * ratio)).ln().abs() < 0.2);
                                let want = kept(0).powi(2) + square(&y) - 2.0 * kept(1) * s;
                                (want, 1e-4 * (square(&x) + square(&y)))
                            }
                        };
                        let got = f64::from(*score);
                        assert!((got - want).abs() <= tolerance, "{ranking} {i}: {got} {want}");
                    }
                });
            }
        }
    }
}

#[test]
fn ranked_lists_are_the_sorted_scores_for_any_k_and_threads() {
    let hasher = hasher(Method::Frosh, Metric::L2, 20);
    let (base, asked) = (data(9000, 2), data(5, 3));
    // Each row occurs twice, so that scores tie.
    let twice = [&base[..], &base[..]].concat();
    let codes = hasher.encode_with_factors(Rows::new(&twice, DIM).unwrap()).unwrap();
    let queries = hasher.queries(Rows::new(&asked, DIM).unwrap()).unwrap();
    for ranking in [Ranking::Hamming, Ranking::Asymmetric, Ranking::Estimated] {
        for (q, k) in [(0, 0), (1, 1), (2, 10), (3, 777), (4, 20_000)] {
            let mut want = Vec::new();
            codes.scores(&queries, q, ranking, 0..codes.len(), |first, scores| {
                want.extend(scores.iter().zip(first as u64..).map(|(s, id)| (*s, id)));
            });
            want.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            want.truncate(k);
            for threads in [1, 3] {
                let pool = Pool::new(threads).unwrap();
                let search = Search::nearest(k).ranking(ranking);
                let found = pool.install(|| codes.search(&queries, &search)).unwrap();
                let got: Vec<_> = found[q].iter().map(|f| (f.distance as f32, f.id)).collect();
                assert_eq!(got, want, "{ranking} k = {k}, {threads} threads");
            }
        }
    }
}

/// Searches that prune by bounds return the same hits with the same scores, bit for bit.
#[test]
fn bounds_by_bytes_change_no_answer() {
    for (method, metric, bits) in [
        (Method::Frosh, Metric::L2, 20),
        (Method::Osh, Metric::Cosine, 7),
        (Method::Lsh, Metric::L2, 64),
        (Method::Lsh, Metric::L2, 300),
        (Method::Lsh, Metric::Cosine, 512),
        (Method::Lsh, Metric::L2, 600),
    ] {
        let hasher = hasher(method, metric, bits);
        let mut base = data(9000, 2);
        // Ties; rows that equal the mean, whose gain is 0; rows far outside the fitted scales.
        base.copy_within(0..1000 * DIM, 5000 * DIM);
        for (x, m) in base[6500 * DIM..6600 * DIM].iter_mut().zip(hasher.mean().iter().cycle()) {
            *x = *m as f32;
        }
        base[7000 * DIM..7100 * DIM].iter_mut().for_each(|x| *x *= 1e6);
        let mut asked = data(22, 3);
        asked[5 * DIM..6 * DIM].copy_from_slice(&base[6500 * DIM..6501 * DIM]);
        asked[6 * DIM..7 * DIM].copy_from_slice(&base[7000 * DIM..7001 * DIM]);
        let codes = hasher.encode_with_factors(Rows::new(&base, DIM).unwrap()).unwrap();
        let queries = hasher.queries(Rows::new(&asked, DIM).unwrap()).unwrap();
        let some: IdSet = (0..9000).filter(|i| i % 7 == 3 || (6000..8000).contains(i)).collect();
        let few: IdSet = [3, 6555, 7001].into_iter().collect();
        for ranking in [Ranking::Asymmetric, Ranking::Estimated] {
            for (k, allowed) in
                [(1, None), (10, None), (900, None), (25, Some(&some)), (10, Some(&few)), (0, None)]
            {
                for threads in [1, 3] {
                    let pool = Pool::new(threads).unwrap();
                    let search = Search { filter: allowed, ..Search::nearest(k).ranking(ranking) };
                    let found = pool.install(|| codes.search(&queries, &search)).unwrap();
                    for (q, found) in found.iter().enumerate() {
                        let mut want = Vec::new();
                        codes.scores(&queries, q, ranking, 0..codes.len(), |first, scores| {
                            want.extend(scores.iter().zip(first as u64..).map(|(s, id)| (*s, id)));
                        });
                        want.retain(|(_, id)| allowed.is_none_or(|set| set.contains(*id)));
                        want.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
                        want.truncate(k);
                        let got: Vec<_> = found.iter().map(|f| (f.distance as f32, f.id)).collect();
                        assert_eq!(got, want, "{method} {bits} {ranking} k = {k}, query {q}");
                    }
                }
            }
        }
    }
}

#[test]
fn queries_that_are_no_rows_of_the_model_are_refused() {
    let hasher = hasher(Method::Frosh, Metric::L2, 16);
    let ask = |row: &[f32], dim| hasher.queries(Rows::new(row, dim).unwrap());
    let other = ask(&[0.0; DIM + 1], DIM + 1).unwrap_err();
    assert!(matches!(other, crate::Error::Dimension { expected: DIM, got } if got == DIM + 1));
    let mut rows = data(2, 5);
    for bad in [f32::NAN, f32::INFINITY, 1e30] {
        rows[DIM + 3] = bad;
        let refused = ask(&rows, DIM).unwrap_err().to_string();
        assert!(refused.starts_with("row 1, column 3"), "{refused}");
    }
    assert!(ask(&[], DIM).unwrap().is_empty());
}

#[test]
fn what_lacks_factors_is_refused() {
    let rows = data(100, 1);
    let rows = Rows::new(&rows, DIM).unwrap();
    let with = hasher(Method::Frosh, Metric::L2, 16);
    let mut sketcher = Sketcher::new(Config::new(DIM).reservoir_rows(0)).unwrap();
    sketcher.push(rows).unwrap();
    let without = sketcher.finish().hasher(16).unwrap();
    assert!(with.has_factors() && !without.has_factors());
    assert!(matches!(without.encode_with_factors(rows), Err(crate::Error::Factors { .. })));
    let queries = with.queries(rows).unwrap();
    let mut plain = with.encode(rows).unwrap();
    let by = |ranking| Search::nearest(3).ranking(ranking);
    let refused = plain.search(&queries, &by(Ranking::Estimated));
    assert!(matches!(refused, Err(crate::Error::Factors { .. })));
    assert!(plain.search(&queries, &by(Ranking::Asymmetric)).is_ok());
    assert!(plain.append(&with.encode_with_factors(rows).unwrap()).is_err());
    let other = without.encode(rows).unwrap();
    let refused = other.search(&queries, &by(Ranking::Asymmetric));
    assert!(matches!(refused, Err(crate::Error::OtherHasher { .. })));
}
