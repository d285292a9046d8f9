use super::*;
use crate::random::{Purpose, Stream};
use crate::{Config, Metric, Sketcher};

const DIM: usize = 24;

/// Normal coordinates; those of one third of the columns are large. All have the same mean.
fn rows(n: usize, strong: usize, seed: u64) -> Vec<f32> {
    let mut stream = Stream::new(seed, Purpose::Sample, 0, 0);
    let size = |column: usize| if column / 8 == strong { 4.0 } else { 1.0 };
    (0..n * DIM).map(|e| (size(e % DIM) * stream.normal() + 3.0) as f32).collect()
}

fn sketch_of(config: Config, data: &[f32]) -> Sketch {
    let mut sketcher = Sketcher::new(config).unwrap();
    sketcher.push(Rows::new(data, DIM).unwrap()).unwrap();
    sketcher.finish()
}

fn sketch(data: &[f32]) -> Sketch {
    sketch_of(Config::new(DIM).sketch_rows(48), data)
}

/// Sampled rows in the order of the sample.
fn sampled(sketch: &Sketch) -> Vec<Vec<f32>> {
    let zero = vec![0.0; DIM];
    let all = sketch.reservoir.map_parts(&Pool::ONE, &zero, 0..usize::MAX, <[f32]>::to_vec);
    all.concat().chunks_exact(DIM).map(<[f32]>::to_vec).collect()
}

/// Average precision and recall@10 of each query, by definition: distances to all rows, and a full sorted ranking.
fn by_definition(
    model: &Model,
    ranking: Ranking,
    queries: &[Vec<f32>],
    base: &[Vec<f32>],
    relevant: usize,
) -> (Vec<f64>, Vec<f64>) {
    let flat = [base.concat(), queries.concat()];
    let [all, asked] = [0, 1].map(|i| Rows::new(&flat[i], DIM).unwrap());
    let codes = match ranking {
        Ranking::Estimated => model.encode_with_factors(all).unwrap(),
        _ => model.encode(all).unwrap(),
    };
    let options = crate::Search::nearest(base.len()).ranking(ranking);
    let lists = codes.search(&model.queries(asked).unwrap(), &options).unwrap();
    let one = |(query, hits): (&Vec<f32>, &Vec<crate::Hit>)| {
        assert_eq!(hits.len(), base.len());
        let distance = |row: &Vec<f32>| -> f64 {
            row.iter().zip(query).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum()
        };
        let mut exact: Vec<(f64, u64)> = base.iter().map(distance).zip(0..).collect();
        exact.sort_by(|a, b| a.partial_cmp(b).unwrap());
        let near: Vec<u64> = exact[..relevant].iter().map(|x| x.1).collect();
        // Ties of Hamming distances count by their expectation, those of float distances by row number.
        let ties = |a: &crate::Hit, b: &crate::Hit| {
            ranking == Ranking::Hamming && a.distance == b.distance
        };
        let (mut precision, mut recall, mut before, mut found) = (0.0, 0.0, 0.0, 0.0);
        for group in hits.chunk_by(ties) {
            let t = group.len() as f64;
            let count = |list: &[u64]| group.iter().filter(|h| list.contains(&h.id)).count() as f64;
            let (k, first) = (count(&near), count(&near[..K]));
            for i in 0..group.len() {
                // Place i is relevant with chance k / t; the other k - 1 relevant rows are spread over the other places.
                let others = if t > 1.0 { i as f64 * (k - 1.0) / (t - 1.0) } else { 0.0 };
                precision += k / t * (found + 1.0 + others) / (before + i as f64 + 1.0);
                if before as usize + i < K {
                    recall += first / t;
                }
            }
            (before, found) = (before + t, found + k);
        }
        (precision / relevant as f64, recall / K as f64)
    };
    queries.iter().zip(&lists).map(one).unzip()
}

/// The energy in the span of the directions, by Gram-Schmidt in double precision.
fn energy_by_definition(directions: &[f32], base: &[Vec<f32>], mean: &[f64]) -> f64 {
    let mut basis: Vec<Vec<f64>> = Vec::new();
    for direction in directions.chunks_exact(DIM) {
        let mut v: Vec<f64> = direction.iter().map(|x| f64::from(*x)).collect();
        for _ in 0..2 {
            for b in &basis {
                let along: f64 = v.iter().zip(b).map(|(x, y)| x * y).sum();
                v.iter_mut().zip(b).for_each(|(x, y)| *x -= along * y);
            }
        }
        let length = v.iter().map(|x| x * x).sum::<f64>().sqrt();
        basis.push(v.iter().map(|x| x / length).collect());
    }
    let (mut inside, mut total) = (0.0, 0.0);
    for row in base {
        let centred: Vec<f64> = row.iter().zip(mean).map(|(x, m)| f64::from(*x) - m).collect();
        total += centred.iter().map(|x| x * x).sum::<f64>();
        for b in &basis {
            inside += centred.iter().zip(b).map(|(x, y)| x * y).sum::<f64>().powi(2);
        }
    }
    inside / total
}

#[test]
fn figures_equal_the_definitions() {
    let (before, now) = (sketch(&rows(3000, 0, 1)), sketch(&rows(3000, 1, 2)));
    let models = [
        (Model::from(before.hasher(12).unwrap()), Ranking::Estimated),
        (Model::from(before.hasher(12).unwrap()), Ranking::Asymmetric),
        (Model::from(before.hasher_with(12, Rotation::Itq).unwrap()), Ranking::Hamming),
        (Model::from(before.quantizer(4).unwrap()), Ranking::Estimated),
    ];
    let sample = sampled(&now);
    for (old, ranking) in models {
        let got = drift(&old, &now, ranking).unwrap();
        assert_eq!(got.candidate.bits(), old.bits());
        assert_eq!(got.candidate.factor_bytes(), old.factor_bytes());
        assert_eq!((got.queries, got.base, got.independent), (256, 2744, false));
        let (queries, base) = sample.split_at(256);
        let relevant = 54; // 2 % of 2,744
        let of_both = [&old, &got.candidate]
            .map(|model| by_definition(model, ranking, queries, base, relevant));
        let near = |a: f64, b: f64| (a - b).abs() < 1e-6;
        let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
        let [(old_map, old_recall), (new_map, new_recall)] = &of_both;
        assert!(near(got.map, mean(old_map)), "{ranking}: {} {}", got.map, mean(old_map));
        assert!(near(got.refreshed_map, mean(new_map)), "{ranking}");
        assert!(near(got.recall, mean(old_recall)), "{ranking}");
        assert!(near(got.refreshed_recall, mean(new_recall)), "{ranking}");
        let differences: Vec<f64> = new_map.iter().zip(old_map).map(|(a, b)| a - b).collect();
        let gap = mean(&differences);
        let variance = differences.iter().map(|x| (x - gap).powi(2)).sum::<f64>() / 255.0;
        assert!(near(got.gap, gap) && near(got.gap_error, (variance / 256.0).sqrt()), "{ranking}");
        for (model, energy) in [(&old, got.energy), (&got.candidate, got.refreshed_energy)] {
            let directions = match model {
                Model::Hasher(h) => (0..h.bits()).flat_map(|k| h.direction(k)).copied().collect(),
                // All 24 dimensions.
                Model::Quantizer(q) => {
                    assert_eq!(q.directions(), DIM);
                    Mat::<f32>::identity(DIM, DIM)
                        .col_iter()
                        .flat_map(|c| c.iter().copied().collect::<Vec<_>>())
                        .collect::<Vec<f32>>()
                }
            };
            let want = energy_by_definition(&directions, base, now.mean());
            assert!((energy - want).abs() < 1e-5, "{ranking}: {energy} {want}");
        }
    }
}

#[test]
fn energy_of_a_quantiser_is_that_of_its_directions() {
    let wide = 160;
    let mut stream = Stream::new(8, Purpose::Sample, 0, 0);
    let data: Vec<f32> =
        (0..1500 * wide).map(|e| stream.normal() as f32 / (1 + e % wide) as f32).collect();
    let mut sketcher = Sketcher::new(Config::new(wide)).unwrap();
    sketcher.push(Rows::new(&data, wide).unwrap()).unwrap();
    let model = Model::from(sketcher.finish().quantizer(4).unwrap());
    let basis = basis(&model);
    assert_eq!(basis.shape(), (wide, 128));
    let error = basis.transpose() * &basis - Mat::<f32>::identity(128, 128);
    assert!(error.norm_max() < 1e-5);
    // Rows vary most in the first columns, so the directions hold them.
    let first = basis.row(0).iter().map(|x| x * x).sum::<f32>();
    assert!(first > 0.999, "{first}");
}

#[test]
fn a_change_is_noticed_and_an_equal_stream_is_not_a_change() {
    let old = Model::from(sketch(&rows(9000, 0, 3)).hasher(8).unwrap());
    let same = drift(&old, &sketch(&rows(9000, 0, 4)), Ranking::Estimated).unwrap();
    assert!(same.independent);
    assert!(same.gap.abs() < 0.02 && !same.is_due(Drift::DEFAULT_GAP), "{}", same.gap);
    assert!(same.mean_shift < 0.05 && same.energy_drop().abs() < 0.02);
    let changed = drift(&old, &sketch(&rows(9000, 1, 5)), Ranking::Estimated).unwrap();
    assert!(changed.gap > 0.2 && changed.is_due(Drift::DEFAULT_GAP), "{}", changed.gap);
    assert!(changed.energy_drop() > 0.3 && changed.recall < changed.refreshed_recall);
    // The same stream, moved: only the mean changes.
    let moved: Vec<f32> = rows(9000, 0, 4).iter().map(|x| x + 2.0).collect();
    let moved = drift(&old, &sketch(&moved), Ranking::Estimated).unwrap();
    let radius = (8.0f64 * 16.0 + 16.0).sqrt();
    let want = 2.0 * (DIM as f64).sqrt() / radius;
    assert!((moved.mean_shift - want).abs() < 0.03, "{} {want}", moved.mean_shift);
}

#[test]
fn figures_do_not_depend_on_threads() {
    let old = Model::from(sketch(&rows(2000, 0, 1)).hasher(8).unwrap());
    let now = sketch(&rows(2000, 1, 2));
    let on = |threads| {
        let pool = Pool::new(threads).unwrap();
        pool.install(|| drift(&old, &now, Ranking::Estimated).unwrap())
    };
    let (one, three) = (on(1), on(3));
    assert_eq!(one.candidate.id(), three.candidate.id());
    assert_eq!((one.map, one.gap, one.gap_error), (three.map, three.gap, three.gap_error));
    assert_eq!((one.energy, one.mean_shift), (three.energy, three.mean_shift));
}

#[test]
fn what_does_not_fit_is_refused() {
    let old = Model::from(sketch(&rows(2000, 0, 1)).hasher(8).unwrap());
    let refused = |model: &Model, sketch: &Sketch, ranking| {
        drift(model, sketch, ranking).unwrap_err().to_string()
    };
    let (data, estimated) = (rows(2000, 0, 1), Ranking::Estimated);
    let cosine = sketch_of(Config::new(DIM).metric(Metric::Cosine), &data);
    assert!(refused(&old, &cosine, estimated).contains("metric is l2 in the model and cosine"));
    let lsh = sketch_of(Config::new(DIM).method(Method::Lsh), &data);
    assert!(refused(&old, &lsh, estimated).contains("method"));
    let few = sketch_of(Config::new(DIM).reservoir_rows(200), &data);
    assert!(refused(&old, &few, estimated).starts_with("sampled rows = 200"));
    let none = sketch_of(Config::new(DIM).reservoir_rows(0), &data);
    assert!(refused(&old, &none, estimated).starts_with("sampled rows = 0"));
    let short = sketch_of(Config::new(DIM).sketch_rows(8), &data);
    assert!(refused(&old, &short, estimated).contains("half the sketch rows allows 4"));
    let quantizer = Model::from(sketch(&data).quantizer(4).unwrap());
    assert!(refused(&quantizer, &sketch(&data), Ranking::Hamming).contains("quantiser"));
    let mut narrow = Sketcher::new(Config::new(2)).unwrap();
    narrow.push(Rows::new(&[1f32, 2.0], 2).unwrap()).unwrap();
    assert!(refused(&old, &narrow.finish(), estimated).contains("24 in the model and 2"));
    // LSH with LSH works: only the mean can change.
    let hasher = Model::from(lsh.hasher(16).unwrap());
    let measured = drift(&hasher, &lsh, Ranking::Hamming).unwrap();
    assert_eq!((measured.gap, measured.mean_shift), (0.0, 0.0));
}
