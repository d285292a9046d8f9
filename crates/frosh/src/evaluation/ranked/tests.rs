//! Compares evaluations of float rankings with measures computed from a full sort.

use super::*;
use crate::random::{Purpose, Stream};
use crate::{Config, Hasher, Rows, Sketcher};

const DIM: usize = 12;

fn data(rows: usize, seed: u64) -> Vec<f32> {
    let mut random = Stream::new(seed, Purpose::Sample, 0, 0);
    (0..rows * DIM).map(|i| random.normal() as f32 / (1 + i % DIM) as f32).collect()
}

/// A model, codes of a base, queries, and labels below `kinds` for both.
fn scene(kinds: u64) -> (Codes, Queries, Vec<u32>, Vec<u32>) {
    let (base, asked) = (data(700, 1), data(9, 2));
    let rows = Rows::new(&base, DIM).unwrap();
    let mut sketcher = Sketcher::new(Config::new(DIM)).unwrap();
    sketcher.push(rows).unwrap();
    let hasher: Hasher = sketcher.finish().hasher(8).unwrap();
    let codes = hasher.encode_with_factors(rows).unwrap();
    let queries = hasher.queries(Rows::new(&asked, DIM).unwrap()).unwrap();
    let mut random = Stream::new(3, Purpose::Sample, 0, 0);
    let mut labels = |n: usize| (0..n).map(|_| random.below(kinds) as u32).collect::<Vec<u32>>();
    let (of_base, of_queries) = (labels(700), labels(9));
    (codes, queries, of_base, of_queries)
}

/// Which rows of the ranking are relevant, best first.
fn relevance(
    codes: &Codes,
    queries: &Queries,
    ranking: Ranking,
    q: usize,
    relevant: impl Fn(usize) -> bool,
) -> Vec<bool> {
    let mut scored: Vec<(f32, usize)> = Vec::new();
    codes.scores(queries, q, ranking, 0..codes.len(), |first, scores| {
        scored.extend(scores.iter().copied().zip(first..));
    });
    scored.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    scored.iter().map(|(_, id)| relevant(*id)).collect()
}

fn average_precision(ranked: &[bool]) -> Option<f64> {
    let precision = |i: usize| ranked[..=i].iter().filter(|r| **r).count() as f64 / (i + 1) as f64;
    let hits: Vec<f64> = (0..ranked.len()).filter(|i| ranked[*i]).map(precision).collect();
    (!hits.is_empty()).then(|| hits.iter().sum::<f64>() / hits.len() as f64)
}

fn close(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-12, "{a} is not {b}");
}

fn mean_of(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[test]
fn labels_are_scored_as_a_plain_sort_does() {
    let (codes, queries, of_base, mut of_queries) = scene(4);
    // No row has this label, so the query does not count.
    of_queries[5] = 77;
    for ranking in [Ranking::Hamming, Ranking::Asymmetric, Ranking::Estimated] {
        let measure =
            || RankedEvaluation::by_labels(&queries, &codes, ranking, &of_queries, &of_base);
        let got = Pool::new(2).unwrap().install(measure).unwrap();
        let ranked: Vec<Vec<bool>> = (0..9)
            .map(|q| relevance(&codes, &queries, ranking, q, |id| of_base[id] == of_queries[q]))
            .collect();
        let all: Vec<f64> = ranked.iter().filter_map(|r| average_precision(r)).collect();
        assert_eq!((got.queries(), got.scored(), all.len()), (9, 8, 8));
        close(got.map(), mean_of(&all));
        for k in [1, 10, 100, 700, 9000] {
            let share = |r: &Vec<bool>| {
                let first = &r[..k.min(700)];
                first.iter().filter(|r| **r).count() as f64 / first.len() as f64
            };
            let scored = ranked.iter().enumerate().filter(|(q, _)| *q != 5);
            let want: Vec<f64> = scored.map(|(_, r)| share(r)).collect();
            close(got.precision(k).unwrap(), mean_of(&want));
        }
        assert_eq!((got.truth(), got.precision(0)), (Truth::Labels, None));
        assert_eq!((got.recall(1), got.recall_after_reranking(1, 9)), (None, None));
        assert_eq!(got.candidates_for(1, 0.9), None);
    }
}

#[test]
fn neighbours_are_scored_as_a_plain_sort_does() {
    let (codes, queries, ..) = scene(4);
    let lists: Vec<Vec<u64>> =
        (0..9).map(|q| (0..20).map(|i| (q * 31 + i * 17) % 700).collect()).collect();
    for ranking in [Ranking::Asymmetric, Ranking::Estimated] {
        let truth = Truth::Nearest(15);
        let got = RankedEvaluation::new(&queries, &codes, ranking, truth, &lists);
        let got = got.unwrap();
        let ranked = |first: usize| -> Vec<Vec<bool>> {
            let near = |q: usize, id: usize| lists[q][..first].contains(&(id as u64));
            (0..9).map(|q| relevance(&codes, &queries, ranking, q, |id| near(q, id))).collect()
        };
        let all: Vec<f64> = ranked(15).iter().filter_map(|r| average_precision(r)).collect();
        close(got.map(), mean_of(&all));
        let found = |first: usize, deep: usize, of: usize| -> f64 {
            let hits = |r: &Vec<bool>| r[..deep].iter().filter(|r| **r).count();
            ranked(first).iter().map(hits).sum::<usize>() as f64 / (9 * of) as f64
        };
        close(got.precision(40).unwrap(), found(15, 40, 40));
        close(got.recall(20).unwrap(), found(20, 20, 20));
        close(got.recall_after_reranking(5, 60).unwrap(), found(5, 60, 5));
        assert_eq!(got.recall(21), None);
        // The standard error: from the sum of squares and the square of the sum of the 9 recalls.
        let recalls: Vec<f64> = ranked(5)
            .iter()
            .map(|r| r[..300].iter().filter(|r| **r).count() as f64 / 5.0)
            .collect();
        let (sum, squares) =
            recalls.iter().fold((0.0, 0.0), |(sum, squares), r| (sum + r, squares + r * r));
        let error = ((squares - sum * sum / 9.0) / 8.0 / 9.0).sqrt();
        assert!(error > 0.0);
        close(got.recall_error(5, 300).unwrap(), error);
        close(got.recall_error(5, 700).unwrap(), 0.0);
        assert_eq!(got.recall_error(21, 300), None);
    }
}

#[test]
fn neighbours_that_do_not_fit_are_refused() {
    let (codes, queries, ..) = scene(4);
    let measure = |queries: &Queries, lists: &[Vec<u64>]| {
        let truth = Truth::Nearest(2);
        RankedEvaluation::new(queries, &codes, Ranking::Asymmetric, truth, lists)
    };
    let refused = |lists: &[Vec<u64>]| measure(&queries, lists).unwrap_err().to_string();
    let good = vec![vec![3, 1, 2]; 9];
    assert!(refused(&good[1..]).contains("lists of neighbours = 8"));
    let with = |list: &[u64]| [&good[..8], &[list.to_vec()]].concat();
    assert!(refused(&with(&[1])).contains("neighbours in a list = 1"));
    assert!(refused(&with(&[1, 700])).contains("a row of the base"));
    assert!(
        refused(&with(&[1, 4, 1])).contains("neighbour = 1 is not possible: it is listed twice")
    );
    // As for codes: without queries there is an error, not a recall of 0.
    let rows = Rows::new(&[0f32; 0], DIM).unwrap();
    let base = data(700, 1);
    let mut sketcher = Sketcher::new(Config::new(DIM)).unwrap();
    sketcher.push(Rows::new(&base, DIM).unwrap()).unwrap();
    let none = sketcher.finish().hasher(8).unwrap().queries(rows).unwrap();
    assert!(measure(&none, &[]).unwrap_err().to_string().starts_with("queries = 0 "));
    let found = codes.nearest(&none, 5).unwrap();
    assert!(found.is_empty());

    let measured = measure(&queries, &good).unwrap();
    assert_eq!(
        (measured.candidates_for(2, f64::NAN), measured.candidates_for(0, 0.5)),
        (None, None)
    );
    assert_eq!(measured.candidates_for(2, 9.0), measured.candidates_for(2, 1.0));
    assert_eq!((measured.recall(0), measured.precision(0)), (None, None));
}

#[test]
fn labels_that_do_not_fit_are_refused() {
    let (codes, queries, of_base, of_queries) = scene(4);
    let refused = |a: &[u32], b: &[u32]| {
        RankedEvaluation::by_labels(&queries, &codes, Ranking::Asymmetric, a, b)
            .unwrap_err()
            .to_string()
    };
    assert!(refused(&of_queries[1..], &of_base).contains("query labels = 8"));
    assert!(refused(&of_queries, &of_base[1..]).contains("there are 700 codes"));
    assert!(refused(&[9; 9], &of_base).contains("none of them"));
}
