//! Decay against its definition: a dense weighted scatter in double precision. Promises 1 to 5 with decay are tested with
//! those without, in promises.rs and memory.rs.

mod weighted;

use faer::Mat;
use frosh::{Config, Error, Hasher, Method, Rows, Sketch, Sketcher};
use weighted::{check, dense, weights};

const DIM: usize = 10;
const HALF_LIVES: [u64; 3] = [50, 300, 5000];

fn rows(n: usize, seed: u64) -> Vec<f32> {
    weighted::changing_rows(n, DIM, seed)
}

fn learn(config: Config, data: &[f32]) -> Sketch {
    let mut sketcher = Sketcher::new(config).unwrap();
    for batch in data.chunks(37 * DIM) {
        sketcher.push(Rows::new(batch, DIM).unwrap()).unwrap();
    }
    sketcher.finish()
}

#[test]
fn a_sketch_is_that_of_the_weighted_rows_and_its_certificate_holds() {
    let n = 500;
    let data = rows(n, 1);
    // OSH, and FROSH before its first compressed block, have blocks of l/2 rows.
    for method in [Method::Osh, Method::Frosh, Method::FroshSparse] {
        for half_life in HALF_LIVES {
            for l in [4, 8, 24] {
                let n = if method == Method::Osh { n } else { 16 * l };
                let config = Config::new(DIM).method(method).sketch_rows(l).half_life(half_life);
                let sketch = learn(config, &data[..n * DIM]);
                let weights = weights(n, usize::MAX, l / 2, half_life, 0);
                let what = format!("{method} l = {l}, half-life {half_life}");
                check(&sketch, &data[..n * DIM], &weights, &what);
                // Rows of ten dimensions fit into the upper half of a sketch of 24 rows.
                let share = sketch.certificate().removed / sketch.certificate().mass;
                assert_eq!(share > 1e-6, l < 2 * DIM, "{what}: {share}");
                assert_eq!((sketch.half_life(), sketch.clock()), (Some(half_life), n as u64));
            }
        }
    }
}

#[test]
fn mean_and_weight_are_exact_and_the_scatter_is_close_where_rows_are_compressed() {
    let (n, block) = (9_000, 64);
    let data = rows(n, 2);
    for method in [Method::Frosh, Method::FroshSparse, Method::Lsh] {
        for half_life in [200, 3000] {
            let config = Config::new(DIM).sketch_rows(32).method(method).half_life(half_life);
            let lsh = method == Method::Lsh;
            let sketch = learn(if lsh { config } else { config.block_rows(block) }, &data);
            let weights = weights(n, usize::MAX, block, half_life, 0);
            let (total, mean, exact) = dense(&data, DIM, &weights);
            assert!((sketch.weight() / total - 1.0).abs() < 1e-12, "{method} {half_life}");
            for (got, want) in sketch.mean().iter().zip(&mean) {
                assert!((got - want).abs() < 1e-6, "{method}: {got} {want}");
            }
            if lsh {
                continue;
            }
            let b = sketch.sketched();
            let b = Mat::from_fn(b.len() / DIM, DIM, |i, c| f64::from(b[i * DIM + c]));
            let gram = b.transpose() * &b;
            let error = (&gram - &exact).norm_l2() / exact.norm_l2();
            // Compression blurs single blocks, of which about 4 or 70 count here.
            let most = if half_life == 200 { 0.5 } else { 0.15 };
            assert!(error < most, "{method} {half_life}: {error}");
            // The scatter without decay is far from it: the strong column is another one at each tenth of the stream.
            let (_, _, plain) = dense(&data, DIM, &vec![total / n as f64; n]);
            assert!((&plain - &exact).norm_l2() / exact.norm_l2() > 2.0 * error, "{method}");
        }
    }
}

#[test]
fn merges_in_any_tree_are_those_of_the_weighted_rows() {
    let counts = [120usize, 230, 60];
    let parts: Vec<Vec<f32>> = (0u64..).zip(counts).map(|(seed, n)| rows(n, seed + 5)).collect();
    let data = parts.concat();
    for half_life in HALF_LIVES {
        for l in [4, 8, 24] {
            // The first ends at 1,120, the second at 230, the third at 300.
            let clocks = [1000u64, 0, 240];
            let sketches: Vec<Sketch> = (0..3)
                .map(|w| {
                    let config = Config::new(DIM).method(Method::Osh).sketch_rows(l);
                    learn(config.half_life(half_life).clock(clocks[w]).worker(w as u64), &parts[w])
                })
                .collect();
            let ends: Vec<u64> = sketches.iter().map(Sketch::clock).collect();
            assert_eq!(ends, [1120, 230, 300]);
            let all: Vec<f64> = (0..3)
                .flat_map(|w| weights(counts[w], usize::MAX, l / 2, half_life, 1120 - ends[w]))
                .collect();
            let [a, b, c] = [&sketches[0], &sketches[1], &sketches[2]];
            let pair = |x, y| Sketch::merge([x, y]).unwrap();
            let trees = [
                Sketch::merge([a, b, c]).unwrap(),
                pair(&pair(a, b), c),
                pair(a, &pair(b, c)),
                pair(&pair(a, c), b),
            ];
            for (number, tree) in trees.iter().enumerate() {
                let what = format!("half-life {half_life}, l = {l}, tree {number}");
                assert_eq!((tree.clock(), tree.half_life()), (1120, Some(half_life)), "{what}");
                check(tree, &data, &all, &what);
            }
            // The order of arguments does not matter, and the sample is the same in every tree.
            let reversed = Sketch::merge([c, b, a]).unwrap();
            assert_eq!(reversed.to_bytes(), trees[0].to_bytes());
        }
    }
}

#[test]
fn a_stream_in_two_parts_counts_as_one_stream() {
    let (n, half_life, l) = (400usize, 100, 24);
    let data = rows(n, 9);
    let config = |worker| {
        Config::new(DIM).method(Method::Osh).sketch_rows(l).half_life(half_life).worker(worker)
    };
    let whole = learn(config(0), &data);
    // Cut at a block's start: the weights are the same.
    let (first, second) = data.split_at(240 * DIM);
    let first = learn(config(0), first);
    let second = learn(config(1).clock(first.clock()), second);
    let merged = Sketch::merge([&first, &second]).unwrap();
    assert_eq!((merged.clock(), merged.rows()), (whole.clock(), whole.rows()));
    assert!((merged.weight() / whole.weight() - 1.0).abs() < 1e-12);
    for (a, b) in merged.mean().iter().zip(whole.mean()) {
        assert!((a - b).abs() < 1e-6, "{a} {b}");
    }
    assert!((merged.certificate().mass / whole.certificate().mass - 1.0).abs() < 1e-5);
    // An empty sketch adds nothing, whatever its clock.
    let empty = learn(config(7).clock(1 << 40), &[]);
    let same = Sketch::merge([&merged, &empty]).unwrap();
    assert_eq!((same.clock(), same.weight()), (merged.clock(), merged.weight()));
    assert_eq!(same.sketched(), merged.sketched());
}

#[test]
fn a_long_half_life_changes_next_to_nothing_and_a_short_one_forgets() {
    let n = 2000;
    let data = rows(n, 3);
    let config = || Config::new(DIM).method(Method::Osh).sketch_rows(24).block_rows(32);
    let plain = learn(config(), &data);
    let long = learn(config().half_life(1 << 62), &data);
    assert!((long.weight() - n as f64).abs() < 1e-6);
    assert_eq!(plain.mean(), long.mean());
    let difference = |a: &Sketch, b: &Sketch| {
        let [a, b] = [a.spectrum(), b.spectrum()];
        a.iter().zip(&b).map(|(x, y)| (x - y).abs()).sum::<f64>() / a.iter().sum::<f64>()
    };
    assert!(difference(&plain, &long) < 1e-6);
    // A half-life of one row: only the last block counts.
    let short = learn(config().half_life(1), &data);
    let last = 2000 % 12;
    let (total, mean, _) = dense(&data[(n - last) * DIM..], DIM, &vec![1.0; last]);
    assert!((short.weight() - total).abs() < 2.0 * 12.0 / 256.0, "{}", short.weight());
    for (got, want) in short.mean().iter().zip(&mean) {
        assert!((got - want).abs() < 0.05, "{got} {want}");
    }
    short.hasher(6).unwrap();
}

#[test]
fn a_model_of_decayed_rows_has_the_recent_directions() {
    // At first columns 0 and 1 vary, later columns 8 and 9.
    let n = 6000;
    let mut data = rows(n, 4);
    for (i, row) in data.chunks_exact_mut(DIM).enumerate() {
        let strong = if i < n / 2 { [0, 1] } else { [8, 9] };
        for c in strong {
            row[c] = 20.0 * (row[c] - row[c].floor() - 0.5);
        }
    }
    let share = |hasher: &Hasher| -> f32 {
        let recent = |k: usize| hasher.direction(k)[8..].iter().map(|x| x * x).sum::<f32>();
        (0..2).map(recent).sum::<f32>() / 2.0
    };
    let config = || Config::new(DIM).sketch_rows(8);
    let [plain, decayed] =
        [config(), config().half_life(500)].map(|config| learn(config, &data).hasher(2).unwrap());
    assert!(share(&plain) < 0.9 && share(&decayed) > 0.99, "{} {}", share(&plain), share(&decayed));
}

#[test]
fn files_keep_the_state_and_files_without_decay_do_not_change() {
    let data = rows(300, 6);
    for method in [Method::Frosh, Method::Osh, Method::Lsh] {
        let config = Config::new(DIM).sketch_rows(8).method(method).half_life(77).clock(5);
        let sketch = learn(config.clone(), &data);
        let bytes = sketch.to_bytes();
        let loaded = Sketch::from_bytes(&bytes).unwrap();
        assert_eq!(loaded.to_bytes(), bytes);
        assert_eq!((loaded.half_life(), loaded.clock()), (Some(77), 305));
        assert_eq!(loaded.weight(), sketch.weight());
        // Programs that do not know decay refuse the file.
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(text(&bytes).contains(r#""version":"2""#));
        let plain = text(&learn(Config::new(DIM).sketch_rows(8).method(method), &data).to_bytes());
        assert!(plain.contains(r#""version":"1""#));
        for name in ["half_life", "clock", "weight"] {
            assert!(!plain.contains(&format!("{name:?}")), "{name}");
        }
    }
}

#[test]
fn impossible_half_lives_and_clocks_are_refused() {
    let refused = |config: Config| match Sketcher::new(config).unwrap_err() {
        error @ Error::Setting { .. } => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(refused(Config::new(4).half_life(0)).starts_with("half_life = 0"));
    assert!(refused(Config::new(4).half_life(u64::MAX)).starts_with("half_life = 1844674407"));
    assert!(refused(Config::new(4).clock(9)).starts_with("clock = 9"));
    assert!(refused(Config::new(4).half_life(5).clock(u64::MAX)).starts_with("clock = 1844"));
    let of = |config: Config| Sketcher::new(config.sketch_rows(8)).unwrap().finish();
    let one = of(Config::new(4).half_life(10));
    for (other, right) in [(Config::new(4), "none"), (Config::new(4).half_life(11), "11")] {
        match Sketch::merge([&one, &of(other)]) {
            Err(Error::Merge { what, left, right: got }) => {
                assert_eq!((what, &left[..], &got[..]), ("the half-life", "10", right));
            }
            other => panic!("{other:?}"),
        }
    }
}
