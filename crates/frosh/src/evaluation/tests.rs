//! Compares evaluations with measures computed from a full sort.

use super::*;
use crate::random::{Purpose, Stream};
use crate::search::codes::HasherId;
use proptest::prelude::*;

/// Codes whose bits are 1 with probability 1 / `rare`.
fn codes(n: usize, bits: usize, rare: u64, seed: u64) -> Codes {
    let mut random = Stream::new(seed, Purpose::Sample, 0, 0);
    let mut data = vec![0u8; n * bits.div_ceil(8)];
    for row in data.chunks_exact_mut(bits.div_ceil(8)) {
        for k in 0..bits {
            row[k / 8] |= u8::from(random.below(rare) == 0) << (k % 8);
        }
    }
    Codes::new(bits, HasherId(1), data)
}

/// `length` distinct ids below `n` for each query, in random order.
fn lists(queries: usize, n: usize, length: usize, seed: u64) -> Vec<Vec<u64>> {
    let mut random = Stream::new(seed, Purpose::Sample, 1, 0);
    let one = |_| {
        let mut ids: Vec<u64> = (0..n as u64).collect();
        for i in (1..n).rev() {
            ids.swap(i, random.below(i as u64 + 1) as usize);
        }
        ids.truncate(length);
        ids
    };
    (0..queries).map(one).collect()
}

/// All base rows by (distance, id).
fn ranking(queries: &Codes, q: usize, base: &Codes) -> Vec<(u32, u64)> {
    let mut all: Vec<(u32, u64)> =
        (0..base.len()).map(|i| (queries.distance(q, base, i).unwrap(), i as u64)).collect();
    all.sort_unstable();
    all
}

fn tally(ranking: &[(u32, u64)], bits: usize, relevant: impl Fn(u64) -> bool) -> Tally {
    let mut tally = Tally::new(bits);
    ranking.iter().for_each(|(d, id)| tally.add(*d as usize, relevant(*id)));
    tally
}

/// Probability that an item is among the first `k` with ties in random order.
fn chance(ranking: &[(u32, u64)], id: u64, k: usize) -> f64 {
    let distance = ranking.iter().find(|r| r.1 == id).unwrap().0;
    let nearer = ranking.iter().filter(|r| r.0 < distance).count() as f64;
    let equal = ranking.iter().filter(|r| r.0 == distance).count() as f64;
    ((k as f64 - nearer) / equal).clamp(0.0, 1.0)
}

#[test]
fn every_measure_equals_its_definition() {
    for (queries, n, bits, rare) in [(1, 50, 8, 2), (20, 2500, 12, 3), (35, 4500, 130, 2)] {
        let (q, base) = (codes(queries, bits, rare, 1), codes(n, bits, rare, 2));
        let truth = Truth::TopShare(0.1);
        let relevant = lists(queries, n, n / 5, 3);
        let evaluation = Evaluation::by_neighbours(&q, &base, truth, &relevant).unwrap();
        let rankings: Vec<_> = (0..queries).map(|i| ranking(&q, i, &base)).collect();
        let tallies: Vec<Tally> = rankings
            .iter()
            .zip(&relevant)
            .map(|(r, ids)| tally(r, bits, |id| ids[..n / 10].contains(&id)))
            .collect();
        let mut pooled = Tally::new(bits);
        tallies.iter().for_each(|t| pooled.merge(t));
        let mean = |measure: fn(&Tally) -> Option<f64>| {
            tallies.iter().map(|t| measure(t).unwrap()).sum::<f64>() / queries as f64
        };
        assert_eq!(evaluation.map(), mean(Tally::average_precision));
        assert_eq!(evaluation.interpolated(), mean(Tally::interpolated));
        assert_eq!(evaluation.pooled_area(), pooled.area().unwrap());
        assert_eq!(evaluation.curve(), pooled.curve());
        assert_eq!((evaluation.pooled(), evaluation.tally(0)), (&pooled, &tallies[0]));
        assert_eq!((evaluation.queries(), evaluation.scored()), (queries, queries));
        assert_eq!((evaluation.base(), evaluation.bits()), (n, bits));
        for k in [1, 3, n / 10, n / 5] {
            let hits: f64 = rankings
                .iter()
                .zip(&relevant)
                .map(|(r, ids)| ids[..k].iter().map(|id| chance(r, *id, k)).sum::<f64>())
                .sum();
            let want = hits / (k * queries) as f64;
            assert!((evaluation.recall(k).unwrap() - want).abs() < 1e-12);
            for candidates in [0, 1, k, 2 * k + 7, n, n + 9] {
                let nearest = base.nearest(&q, candidates).unwrap();
                let hits = nearest.iter().zip(&relevant).map(|(found, ids)| {
                    found.iter().filter(|found| ids[..k].contains(&found.id)).count()
                });
                let want = hits.sum::<usize>() as f64 / (k * queries) as f64;
                assert_eq!(evaluation.recall_after_reranking(k, candidates), Some(want));
            }
        }
        assert_eq!((evaluation.recall(0), evaluation.recall(n / 5 + 1)), (None, None));
    }
}

/// Every order of `n` things (Heap's algorithm).
fn orders(n: usize) -> Vec<Vec<usize>> {
    fn heap(k: usize, order: &mut [usize], all: &mut Vec<Vec<usize>>) {
        if k <= 1 {
            return all.push(order.to_vec());
        }
        for i in 0..k {
            heap(k - 1, order, all);
            order.swap(if k.is_multiple_of(2) { i } else { 0 }, k - 1);
        }
    }
    let mut all = Vec::new();
    heap(n, &mut (0..n).collect::<Vec<_>>(), &mut all);
    all
}

/// Slow, from the definition: every order of the base is sorted by distance (a stable sort, so that each
/// order of the ties comes up equally often), and precision and recall are averaged over all of them.
#[test]
fn precision_and_recall_by_number_returned_are_means_over_all_orders_of_ties() {
    let (queries, n, bits) = (5, 6, 2);
    let all = orders(n);
    assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), 720);
    for seed in 0..8 {
        let (q, base) = (codes(queries, bits, 2, seed), codes(n, bits, 2, 100 + seed));
        // Labels give queries different numbers of relevant rows, and some of them none.
        let of_queries: Vec<u32> = (0..queries as u32).map(|i| i % 4).collect();
        let of_base = [0, 1, 0, 2, 0, 1];
        let evaluation = Evaluation::by_labels(&q, &base, &of_queries, &of_base).unwrap();
        for k in 1..=n + 2 {
            let (mut precision, mut recall, mut scored) = (0.0, 0.0, 0.0);
            for (i, label) in of_queries.iter().enumerate() {
                let total = of_base.iter().filter(|l| *l == label).count();
                if total == 0 {
                    continue;
                }
                scored += 1.0;
                for order in &all {
                    let mut ranked = order.clone();
                    ranked.sort_by_key(|row| q.distance(i, &base, *row).unwrap());
                    let hits = ranked.iter().take(k).filter(|row| of_base[**row] == *label).count();
                    precision += hits as f64 / k.min(n) as f64 / all.len() as f64;
                    recall += hits as f64 / total as f64 / all.len() as f64;
                }
            }
            let got = (evaluation.precision(k).unwrap(), evaluation.relevant_recall(k).unwrap());
            assert!((got.0 - precision / scored).abs() < 1e-9, "{k}: {got:?}");
            assert!((got.1 - recall / scored).abs() < 1e-9, "{k}: {got:?}");
        }
        assert_eq!((evaluation.precision(0), evaluation.relevant_recall(0)), (None, None));
    }
}

#[test]
fn labels_say_what_is_relevant() {
    let (q, base) = (codes(30, 16, 2, 4), codes(3000, 16, 2, 5));
    let mut random = Stream::new(6, Purpose::Sample, 0, 0);
    let mut labels = |n, kinds| (0..n).map(|_| random.below(kinds) as u32).collect::<Vec<u32>>();
    // Label 4 has no base rows.
    let (mut of_queries, of_base) = (labels(30, 4), labels(3000, 4));
    of_queries[7] = 4;
    let evaluation = Evaluation::by_labels(&q, &base, &of_queries, &of_base).unwrap();
    let tallies: Vec<Tally> = (0..30)
        .map(|i| tally(&ranking(&q, i, &base), 16, |id| of_base[id as usize] == of_queries[i]))
        .collect();
    let sum: f64 = tallies.iter().filter_map(Tally::average_precision).sum();
    assert_eq!(evaluation.map(), sum / 29.0);
    for k in [1, 7, 100, 3000, 5000] {
        let share = |i: usize| {
            let ranking = ranking(&q, i, &base);
            let own = (0..3000u64).filter(|id| of_base[*id as usize] == of_queries[i]);
            own.map(|id| chance(&ranking, id, k)).sum::<f64>() / k.min(3000) as f64
        };
        let want = (0..30).filter(|i| *i != 7).map(share).sum::<f64>() / 29.0;
        assert!((evaluation.precision(k).unwrap() - want).abs() < 1e-12);
    }
    assert_eq!(evaluation.precision(0), None);
    assert_eq!((evaluation.queries(), evaluation.scored()), (30, 29));
    assert_eq!(evaluation.pooled().items().iter().sum::<u64>(), 30 * 3000);
    assert_eq!((evaluation.recall(5), evaluation.recall_after_reranking(5, 50)), (None, None));
    assert_eq!(evaluation.truth(), Truth::Labels);
}

#[test]
fn codes_that_keep_the_order_are_perfect() {
    // Row i of the base differs from the query in i bits.
    let unary = |n: usize| {
        (0..n).map(|i| u8::MAX.checked_shr(8 - i as u32).unwrap_or(0)).collect::<Vec<u8>>()
    };
    let base = Codes::new(8, HasherId(1), unary(9));
    let query = Codes::new(8, HasherId(1), vec![0]);
    let nearest = vec![(0..9).collect::<Vec<u64>>()];
    let evaluation = Evaluation::by_neighbours(&query, &base, Truth::Nearest(4), &nearest).unwrap();
    assert!((evaluation.map() - 1.0).abs() < 1e-15);
    assert_eq!(evaluation.interpolated(), 1.0);
    assert_eq!(evaluation.recall(3), Some(1.0));
    assert_eq!(evaluation.recall(100), Some(1.0));
    assert_eq!(evaluation.recall_after_reranking(4, 3), Some(0.75));
    assert_eq!(evaluation.curve().len(), 9);
}

#[test]
fn one_thread_and_many_give_the_same_numbers() {
    let (q, base) = (codes(70, 32, 3, 7), codes(5000, 32, 3, 8));
    let relevant = lists(70, 5000, 100, 9);
    let score = |pool: &Pool| {
        let measure = || Evaluation::by_neighbours(&q, &base, Truth::Nearest(100), &relevant);
        let e = pool.install(measure).unwrap();
        (e.map(), e.pooled_area(), e.interpolated(), e.recall(10), e.curve())
    };
    let one = score(&Pool::ONE);
    for threads in [2, 3, 7] {
        assert_eq!(score(&Pool::new(threads).unwrap()), one);
    }
}

#[test]
fn truths_have_names_and_sizes() {
    let names = [
        (Truth::TopShare(0.02), "nearest 2 %"),
        (Truth::TopShare(0.07), "nearest 7 %"),
        (Truth::TopShare(0.001), "nearest 0.1 %"),
        (Truth::Nearest(100), "nearest 100"),
        (Truth::Labels, "same label"),
    ];
    for (truth, name) in names {
        assert_eq!(truth.to_string(), name);
    }
    for n in 0..100_000usize {
        assert_eq!(Truth::TopShare(0.02).count(n), n / 50);
    }
    assert_eq!(Truth::TopShare(0.29).count(100), 29);
    assert_eq!(Truth::TopShare(7.0).count(10), 10);
    assert_eq!(Truth::TopShare(f64::NAN).count(10), 0);
    assert_eq!((Truth::Nearest(5).count(3), Truth::Labels.count(3)), (3, 0));
}

#[test]
fn what_does_not_fit_is_refused_with_its_number() {
    let (q, base) = (codes(2, 8, 2, 10), codes(40, 8, 2, 11));
    let refuse = |truth, ids: &[Vec<u64>]| match Evaluation::by_neighbours(&q, &base, truth, ids) {
        Err(e @ Error::Setting { .. }) => e.to_string(),
        other => panic!("{other:?}"),
    };
    let two = Truth::Nearest(2);
    assert!(refuse(two, &[vec![0, 1]]).contains("there are 2 queries"));
    assert!(refuse(two, &[vec![0, 1], vec![0]]).contains("needs 2 (query 1)"));
    assert!(
        refuse(two, &[vec![0, 1], vec![3, 40]]).contains("40 is not possible: the base has 40")
    );
    assert!(refuse(two, &[vec![5, 1, 5], vec![0, 1]]).contains("twice (query 0)"));
    assert!(refuse(Truth::TopShare(0.02), &[vec![0], vec![0]]).contains("names no neighbours"));
    assert!(refuse(Truth::Labels, &[vec![0], vec![0]]).contains("names no neighbours"));

    let labels = |a: &[u32], b: &[u32]| Evaluation::by_labels(&q, &base, a, b);
    assert!(labels(&[1], &[0; 40]).is_err());
    assert!(labels(&[1, 2], &[0; 39]).is_err());
    assert!(labels(&[1, 2], &[0; 40]).unwrap_err().to_string().contains("none of them"));
    assert!(labels(&[1, 0], &[0; 40]).is_ok());

    let other = Codes::new(8, HasherId(2), vec![0, 0]);
    let mixed = Evaluation::by_labels(&other, &base, &[0, 0], &[0; 40]);
    assert!(matches!(mixed, Err(Error::OtherHasher { .. })));
    let ids = [vec![0, 1], vec![0, 1]];
    let mixed = Evaluation::by_neighbours(&other, &base, two, &ids);
    assert!(matches!(mixed, Err(Error::OtherHasher { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn measures_stay_between_0_and_1_and_recall_grows(
        bits in 1usize..80,
        n in 1usize..120,
        seed in any::<u64>(),
    ) {
        let (q, base) = (codes(3, bits, 2, seed), codes(n, bits, 2, seed ^ 1));
        let relevant = lists(3, n, n, seed);
        let k = n.div_ceil(3);
        let e = Evaluation::by_neighbours(&q, &base, Truth::Nearest(k), &relevant).unwrap();
        for measure in [e.map(), e.pooled_area(), e.interpolated(), e.recall(k).unwrap()] {
            prop_assert!((0.0..=1.0 + 1e-12).contains(&measure));
        }
        let reached: Vec<f64> =
            (0..=n).map(|r| e.recall_after_reranking(k, r).unwrap()).collect();
        prop_assert!(reached.is_sorted());
        prop_assert_eq!((reached[0], reached[n]), (0.0, 1.0));
        prop_assert_eq!(e.recall(n), Some(1.0));
    }
}
