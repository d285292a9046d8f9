use super::*;
use crate::hasher::held_out::TARGET;
use crate::{Config, ExactSearch, Metric, RankedEvaluation, Rows, Search, Sketcher, Truth};

const DIM: usize = 24;

/// Rows around centres whose columns have decreasing variances; lengths differ.
fn rows(n: usize, seed: u64) -> Vec<f32> {
    let mut centres = Stream::new(7, Purpose::Sample, 0, 0);
    let centres: Vec<f64> = (0..300 * DIM).map(|_| centres.normal()).collect();
    let mut noise = Stream::new(seed, Purpose::Sample, 1, 0);
    let mut row = |i: usize| -> Vec<f32> {
        let length = 1.0 + (i % 7) as f64 / 3.0;
        let value = |k: usize, z: f64| {
            length * (centres[i % 300 * DIM + k] + 0.5 * z) / (1.0 + k as f64).sqrt()
        };
        (0..DIM).map(|k| value(k, noise.normal()) as f32).collect()
    };
    (0..n).flat_map(|i| row(i * 31)).collect()
}

fn sketch(data: &[f32], sampled: usize) -> Sketch {
    let config = Config::new(DIM).sketch_rows(32).reservoir_rows(sampled);
    let mut sketcher = Sketcher::new(config).unwrap();
    sketcher.push(Rows::new(data, DIM).unwrap()).unwrap();
    sketcher.finish()
}

/// The figures equal those of a model that encodes the base and ranks it for the held-out rows.
#[test]
fn figures_equal_those_of_a_search_by_the_model() {
    let data = rows(3000, 1);
    let sketch = sketch(&data, 3000);
    let hasher = sketch.hasher(16).unwrap();
    let choice = hasher.choice().unwrap();
    let queries = sketch.held_out();
    assert_eq!(queries, 375);
    let sample = sketch.reservoir.map_parts(&Pool::ONE, &[0.0; DIM], 0..3000, <[f32]>::to_vec);
    let sample = sample.concat();
    let (asked, base) = sample.split_at(queries * DIM);
    let of = |data| Rows::new(data, DIM).unwrap();
    let mut exact = ExactSearch::new(of(asked), 100, Metric::L2).unwrap();
    exact.push(of(base)).unwrap();
    let nearest: Vec<Vec<u64>> =
        exact.finish().iter().map(|list| list.iter().map(|hit| hit.id).collect()).collect();
    for measured in &choice.measured {
        if (measured.rotation, measured.factor_bytes.max(1))
            != (choice.rotation, choice.factor_bytes.max(1))
        {
            continue;
        }
        let codes = hasher.encode_with_factors(of(base)).unwrap();
        let prepared = hasher.queries(of(asked)).unwrap();
        // 2 % of 2,625 rows.
        let truth = Truth::Nearest(53);
        let ranking = measured.ranking;
        let want = RankedEvaluation::new(&prepared, &codes, ranking, truth, &nearest).unwrap();
        // Rows with equal codes and no factors are tied: here they count half, there by row number.
        let tolerance = if ranking == Ranking::Asymmetric { 0.02 } else { 0.001 };
        let off = (measured.map - want.map()).abs();
        assert!(off < tolerance, "{measured:?}: MAP {}", want.map());
        if measured.ranking == choice.ranking {
            // The base has 2,625 of 3,000 rows: 8.75 neighbours, between 8 and 10.
            let (low, high) = (want.recall(8).unwrap(), want.recall(10).unwrap());
            let (low, high) = (low.min(high) - 0.003, low.max(high) + 0.003);
            let recall = choice.forecast.recall;
            assert!((low..=high).contains(&recall), "{recall} not in {low} to {high}");
            assert!(choice.forecast.measured);
        }
    }
}

/// What a fit expects is what searches of other rows of the same kind find: within three standard errors of both sides.
#[test]
fn the_forecast_holds_for_fresh_queries() {
    let (data, asked) = (rows(20_000, 1), rows(400, 2));
    let hasher = sketch(&data, 16_384).hasher(16).unwrap();
    let forecast = &hasher.choice().unwrap().forecast;
    let (base, queries) = (Rows::new(&data, DIM).unwrap(), Rows::new(&asked, DIM).unwrap());
    let mut exact = ExactSearch::new(queries, 10, Metric::L2).unwrap();
    exact.push(base).unwrap();
    let exact = exact.finish();
    let codes = hasher.encode_with_factors(base).unwrap();
    let recall = |candidates: usize| {
        let found =
            codes.search(&hasher.queries(queries).unwrap(), &Search::nearest(candidates)).unwrap();
        let one = |(found, exact): (&Vec<crate::Hit>, &Vec<crate::Hit>)| {
            exact.iter().filter(|hit| found.iter().any(|other| other.id == hit.id)).count()
        };
        found.iter().zip(&exact).map(one).sum::<usize>() as f64 / 4000.0
    };
    let margin = 3.0 * 2f64.sqrt() * forecast.standard_error;
    let (plain, wide) = (recall(10), recall(10 * forecast.oversample));
    assert!((plain - forecast.recall).abs() < margin, "{plain}: {forecast:?}");
    assert!((wide - forecast.reranked).abs() < margin, "{wide}: {forecast:?}");
    assert!(forecast.reranked >= TARGET && hasher.oversample() == forecast.oversample);
}

#[test]
fn the_cheapest_alternative_near_the_best_is_chosen() {
    let all =
        |figures: [[f64; 2]; 6]| -> Vec<Measured> {
            let rotations = [Rotation::Refined, Rotation::RefinedRandom];
            let kinds =
                rotations.into_iter().flat_map(|rotation| KINDS.map(|kind| (rotation, kind)));
            let one = |((rotation, (ranking, factor_bytes)), [map, recall]): (_, [f64; 2])| {
                Measured { rotation, ranking, factor_bytes, map, recall }
            };
            kinds.zip(figures).map(one).collect()
        };
    // Two bytes gain too little over one byte; the second rotation is better in recall than it is worse in MAP.
    let some = all([[0.5, 0.3], [0.8, 0.3], [0.81, 0.3], [0.5, 0.4], [0.79, 0.4], [0.792, 0.401]]);
    assert_eq!(choose(&some), 4);
    // No factors if they bring nothing.
    assert_eq!(choose(&all([[0.8, 0.4]; 6])), 0);
    // Two bytes if they bring much.
    let two = all([[0.5, 0.3], [0.6, 0.3], [0.8, 0.5], [0.5, 0.3], [0.6, 0.3], [0.7, 0.4]]);
    assert_eq!(choose(&two), 2);
}

#[test]
fn positions_count_smaller_scores_and_half_of_the_equal_ones() {
    let scores = [3.0, 1.0, 2.0, 2.0, 2.0, 9.0];
    let mut positions = Positions::default();
    assert_eq!(positions.of(&scores, &[1, 3, 0, 5]), [0.0, 2.0, 4.0, 5.0]);
    assert_eq!(positions.of(&scores, &[2]), [2.0]);
}

#[test]
fn the_record_is_kept_in_files_and_is_not_part_of_the_id() {
    let data = rows(2000, 3);
    let sketch = sketch(&data, 2000);
    let hasher = sketch.hasher(12).unwrap();
    let again = Hasher::from_bytes(&hasher.to_bytes()).unwrap();
    assert_eq!((again.choice(), again.id()), (hasher.choice(), hasher.id()));
    let choice = hasher.choice().unwrap();
    let given = sketch.hasher_with(12, choice.rotation).unwrap();
    assert!(given.choice().is_none());
    if choice.factor_bytes < 2 {
        assert_eq!(given.id(), hasher.id());
    }
    // Threads do not change what is chosen.
    let one = Pool::ONE.install(|| sketch.hasher(12)).unwrap();
    assert!(one.to_bytes() == hasher.to_bytes());
}

#[test]
fn small_samples_are_not_measured() {
    let data = rows(900, 4);
    let few = sketch(&data, 900).hasher(8).unwrap();
    assert!(few.choice().is_none() && few.rotation() == Rotation::Refined);
    let fewer = sketch(&data[..100 * DIM], 100).hasher(16).unwrap();
    assert!(fewer.choice().is_none() && fewer.rotation() == Rotation::Random);
}
