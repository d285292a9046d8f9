//! Tests of the numbered promises in docs/design.md. Promise 3 (memory) needs its own allocator, and is tested in
//! memory.rs.

use frosh::{
    Codes, Config, Error, Hasher, Method, Metric, Pool, RangeRows, Rotation, Rows, ShrinkIndex,
    Sketch, Sketcher,
};
use proptest::prelude::*;
use std::ops::Range;

const METHODS: [Method; 4] = [Method::Frosh, Method::FroshSparse, Method::Osh, Method::Lsh];

/// Rows with a nonzero mean and a decreasing spectrum.
fn rows(n: usize, dim: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 24) as f32 - 0.3
    };
    (0..n * dim).map(|e| next() / (1.0 + (e % dim) as f32).sqrt()).collect()
}

fn config(dim: usize, method: Method) -> Config {
    Config::new(dim).sketch_rows(12).block_rows(32).method(method).seed(5).reservoir_rows(50)
}

/// The same with the default block size: blocks grow with the row number.
fn growing(dim: usize, method: Method) -> Config {
    Config::new(dim).sketch_rows(12).method(method).seed(5).reservoir_rows(50)
}

/// Sampled rows that are stored as bytes: more than half precision has room for.
const SAMPLE_OF_BYTES: usize = 1 << 25;

/// The configurations with and without a half-life, in runs of a few blocks, and with a sample of bytes.
fn variants(configs: impl Iterator<Item = Config>) -> impl Iterator<Item = Config> {
    configs.flat_map(|config| {
        let decayed = config.clone().half_life(70).clock(9);
        let bytes = decayed.clone().run_rows(70).reservoir_rows(SAMPLE_OF_BYTES);
        [config.clone().run_rows(64), config, decayed.clone().run_rows(50), decayed, bytes]
    })
}

fn learn(config: &Config, data: &[f32], cuts: &[usize]) -> Sketcher {
    let mut sketcher = Sketcher::new(config.clone()).unwrap();
    let dim = sketcher.dim();
    let mut rest = data;
    let mut cuts = cuts.iter().cycle();
    while !rest.is_empty() {
        let (now, later) = rest.split_at((cuts.next().unwrap() * dim).min(rest.len()));
        sketcher.push(Rows::new(now, dim).unwrap()).unwrap();
        rest = later;
    }
    sketcher
}

/// Learns from `cuts[0]` rows as a batch, and from the others by ranges, which are read in batches of `cuts` rows.
fn learn_ranges(config: &Config, data: &[f32], cuts: &[usize]) -> Sketcher {
    let mut sketcher = Sketcher::new(config.clone()).unwrap();
    let all = Rows::new(data, sketcher.dim()).unwrap();
    let first = if cuts.len() > 1 { cuts[0].min(all.len()) } else { 0 };
    sketcher.push(all.slice(0..first)).unwrap();
    let read = |range: Range<u64>, rows: &mut RangeRows<'_>| {
        let mut cuts = cuts.iter().cycle();
        let (mut from, end) = (range.start as usize, range.end as usize);
        while from < end {
            let to = end.min(from + cuts.next().unwrap());
            rows.push(all.slice(from..to))?;
            from = to;
        }
        Ok::<(), Error>(())
    };
    sketcher.learn_ranges((all.len() - first) as u64, read, |_| Ok(())).unwrap();
    sketcher
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn promise_1_batches_and_threads_do_not_matter(
        n in 1usize..900,
        dim in prop::sample::select(vec![1usize, 3, 17, 70]),
        method in prop::sample::select(METHODS.to_vec()),
        metric in prop::sample::select(vec![Metric::L2, Metric::Cosine]),
        l in prop::sample::select(vec![2usize, 6, 12, 16]),
        fixed in any::<bool>(),
        half_life in prop::option::of(1u64..2000),
        run_rows in prop::option::of(1u64..400),
        bytes in any::<bool>(),
        cuts in prop::collection::vec(1usize..130, 1..6),
        threads in 1usize..6,
        seed in any::<u64>(),
    ) {
        let data = rows(n, dim, seed);
        let config = if fixed { config(dim, method) } else { growing(dim, method) };
        let mut config = config.metric(metric).sketch_rows(l).seed(seed);
        if let Some(rows) = half_life {
            config = config.half_life(rows);
        }
        if let Some(rows) = run_rows {
            config = config.run_rows(rows);
        }
        if bytes {
            config = config.reservoir_rows(SAMPLE_OF_BYTES);
        }
        let whole = Pool::ONE.install(|| learn(&config, &data, &[n]));
        let pool = Pool::new(threads).unwrap();
        let cut = pool.install(|| learn(&config, &data, &cuts));
        prop_assert_eq!(whole.to_bytes(), cut.to_bytes());
        // One batch, of which threads take a run each; and ranges that threads read themselves.
        let at_once = pool.install(|| learn(&config, &data, &[n]));
        prop_assert_eq!(whole.to_bytes(), at_once.to_bytes());
        let ranges = pool.install(|| learn_ranges(&config, &data, &cuts));
        prop_assert_eq!(whole.to_bytes(), ranges.to_bytes());
        prop_assert_eq!(whole.finish().to_bytes(), cut.finish().to_bytes());
    }
}

#[test]
fn promise_1_holds_for_many_sketchers_on_the_same_threads() {
    let (n, dim) = (9_000, 40);
    let data = rows(n, dim, 5);
    let config = Config::new(dim).sketch_rows(24).block_rows(256);
    let config = config.half_life(4000);
    let want = Pool::ONE.install(|| learn(&config, &data, &[n])).to_bytes();
    // All of them use the shared pool.
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert_eq!(learn(&config, &data, &[n]).to_bytes(), want);
                }
            });
        }
    });
}

#[test]
fn promise_1_holds_for_real_sizes_on_one_thread_and_many() {
    let (n, dim) = (9_000, 300);
    let data = rows(n, dim, 3);
    let configs = |method| {
        let config = Config::new(dim).sketch_rows(64).block_rows(1024).method(method);
        [(method, config.clone()), (method, config.half_life(3000))]
    };
    for (method, config) in METHODS.into_iter().flat_map(configs) {
        let on = |threads, cuts: &[usize]| {
            Pool::new(threads).unwrap().install(|| learn(&config, &data, cuts)).finish()
        };
        let (one, two, many) = (on(1, &[n]), on(2, &[n]), on(3, &[1000, 7, 2500]));
        assert_eq!(one.to_bytes(), two.to_bytes(), "{method:?}");
        assert_eq!(one.to_bytes(), many.to_bytes(), "{method:?}");
        let three = Pool::new(3).unwrap();
        let a = Pool::ONE.install(|| one.hasher(32)).unwrap();
        let b = three.install(|| many.hasher(32)).unwrap();
        assert_eq!(a.to_bytes(), b.to_bytes());
        let batch = Rows::new(&data, dim).unwrap();
        let codes = Pool::ONE.install(|| a.encode(batch)).unwrap();
        assert_eq!(codes, three.install(|| a.encode(batch)).unwrap());
        for i in [0, 1, 191, 192, 5000, n - 1] {
            let alone = a.encode(batch.slice(i..i + 1)).unwrap();
            assert_eq!(alone.row(0), codes.row(i), "a code depends on its row alone");
        }
    }
}

#[test]
fn promise_1_element_types_do_not_matter() {
    let dim = 21;
    let bytes: Vec<u8> = (0..500 * dim).map(|i| (i * i % 251) as u8).collect();
    let floats: Vec<f32> = bytes.iter().map(|x| f32::from(*x)).collect();
    let doubles: Vec<f64> = bytes.iter().map(|x| f64::from(*x)).collect();
    for method in METHODS {
        let mut a = Sketcher::new(config(dim, method)).unwrap();
        let mut b = a.clone();
        let mut c = a.clone();
        a.push(Rows::new(&bytes, dim).unwrap()).unwrap();
        b.push(Rows::new(&floats, dim).unwrap()).unwrap();
        c.push(Rows::new(&doubles, dim).unwrap()).unwrap();
        assert_eq!(a.to_bytes(), b.to_bytes());
        assert_eq!(a.to_bytes(), c.to_bytes());
    }
}

#[test]
fn promise_2_asking_changes_nothing() {
    let dim = 9;
    let data = rows(333, dim, 1);
    let configs = METHODS.iter().flat_map(|m| [config(dim, *m), growing(dim, *m)]);
    for config in variants(configs) {
        let quiet = learn(&config, &data, &[333]);
        let mut asked = Sketcher::new(config.clone()).unwrap();
        for (i, row) in data.chunks_exact(dim).enumerate() {
            asked.push(Rows::new(row, dim).unwrap()).unwrap();
            let sketch = asked.sketch();
            assert_eq!(sketch.rows(), i as u64 + 1);
            if i % 50 == 0 {
                sketch.hasher(4).unwrap();
            }
            // A sketch in the middle equals that of a stream that ends here.
            if i % 37 == 0 {
                assert_eq!(sketch.to_bytes(), asked.clone().finish().to_bytes());
            }
        }
        assert_eq!(asked.to_bytes(), quiet.to_bytes(), "{config:?}");
    }
}

/// A'A of centred rows in double precision.
fn scatter(data: &[f32], dim: usize) -> faer::Mat<f64> {
    let n = data.len() / dim;
    let mean: Vec<f64> = (0..dim)
        .map(|c| (0..n).map(|i| f64::from(data[i * dim + c])).sum::<f64>() / n as f64)
        .collect();
    let a = faer::Mat::from_fn(n, dim, |i, c| f64::from(data[i * dim + c]) - mean[c]);
    a.transpose() * &a
}

#[test]
fn rows_up_to_half_the_sketch_are_kept_exactly_by_every_method() {
    let dim = 8;
    for method in [Method::Frosh, Method::FroshSparse, Method::Osh] {
        for l in [6, 12, 100] {
            for n in 1..=l / 2 {
                let data = rows(n, dim, n as u64);
                let sketch = learn(&config(dim, method).sketch_rows(l).block_rows(64), &data, &[2]);
                let sketch = sketch.finish();
                let b = faer::Mat::from_fn(sketch.sketched().len() / dim, dim, |i, c| {
                    f64::from(sketch.sketched()[i * dim + c])
                });
                let exact = scatter(&data, dim);
                let error = (b.transpose() * &b - &exact).norm_l2();
                assert!(error <= 1e-6 * exact.norm_l2() + 1e-12, "{method:?} l={l} n={n}: {error}");
            }
        }
    }
}

#[test]
fn promise_4_merging_borrows_works_in_any_tree_and_refuses_what_does_not_fit() {
    let dim = 10;
    for config in variants(METHODS.iter().map(|m| config(dim, *m))) {
        let parts: Vec<Sketch> = (0..4)
            .map(|w| learn(&config.clone().worker(w), &rows(50 + 70 * w as usize, dim, w), &[64]))
            .map(Sketcher::finish)
            .collect();
        let before: Vec<Vec<u8>> = parts.iter().map(Sketch::to_bytes).collect();
        let flat = Sketch::merge(&parts).unwrap();
        let reversed = Sketch::merge(parts.iter().rev()).unwrap();
        assert_eq!(flat.to_bytes(), reversed.to_bytes(), "the order of arguments does not matter");
        let left = Sketch::merge([&parts[0], &parts[2]]).unwrap();
        let right = Sketch::merge([&parts[3], &parts[1]]).unwrap();
        let tree = Sketch::merge([&left, &right]).unwrap();
        assert_eq!(before, parts.iter().map(Sketch::to_bytes).collect::<Vec<_>>());
        assert_eq!((flat.rows(), flat.workers()), (tree.rows(), tree.workers()));
        assert_eq!(flat.reservoir_rows(), tree.reservoir_rows());
        for (a, b) in flat.mean().iter().zip(tree.mean()) {
            assert!((a - b).abs() <= 1e-12);
        }
        assert_eq!(Sketch::merge([&parts[1]]).unwrap().to_bytes(), before[1]);
        assert!((flat.weight() / tree.weight() - 1.0).abs() < 1e-12);
        assert_eq!(flat.clock(), tree.clock());
        let empty = Sketcher::new(config.worker(9)).unwrap().finish();
        let with_empty = Sketch::merge([&parts[1], &empty]).unwrap();
        assert_eq!(with_empty.sketched(), parts[1].sketched());
        assert_eq!(with_empty.mean(), parts[1].mean());
    }
    let one = Sketcher::new(config(10, Method::Frosh)).unwrap().finish();
    let other = |config: Config| Sketcher::new(config).unwrap().finish();
    for (bad, left, right) in [
        (other(config(11, Method::Frosh)), "10", "11"),
        (other(config(10, Method::Frosh).metric(Metric::Cosine)), "l2", "cosine"),
        (other(config(10, Method::Lsh)), "frosh or osh", "lsh"),
        (other(config(10, Method::Osh).shrink_index(ShrinkIndex::Half)), "half-plus-one", "half"),
        (other(config(10, Method::Frosh).half_life(30)), "none", "30"),
    ] {
        match Sketch::merge([&one, &bad]) {
            Err(Error::Merge { left: l, right: r, .. }) => {
                assert_eq!((&l[..], &r[..]), (left, right))
            }
            other => panic!("{other:?}"),
        }
    }
    let small = other(config(10, Method::Frosh).sketch_rows(6));
    assert_eq!(Sketch::merge([&one, &small]).unwrap().sketch_rows(), 6);
}

#[test]
fn promise_5_a_saved_sketcher_resumes_bit_for_bit() {
    let dim = 7;
    let data = rows(300, dim, 8);
    let configs = METHODS.iter().flat_map(|m| [config(dim, *m), growing(dim, *m).sketch_rows(8)]);
    for config in variants(configs) {
        let whole = learn(&config, &data, &[300]);
        for stop in (0..300).step_by(11) {
            let first = learn(&config, &data[..stop * dim], &[64]);
            let mut resumed = Sketcher::from_bytes(&first.to_bytes()).unwrap();
            assert_eq!(resumed.to_bytes(), first.to_bytes());
            resumed.push(Rows::new(&data[stop * dim..], dim).unwrap()).unwrap();
            assert_eq!(resumed.to_bytes(), whole.to_bytes(), "{config:?} stopped at {stop}");
        }
    }
}

#[test]
fn promise_6_numbers_come_with_their_guarantee() {
    let dim = 20;
    let data = rows(1000, dim, 4);
    let exact = scatter(&data, dim);
    let total: f64 = (0..dim).map(|i| exact[(i, i)]).sum();
    for method in [Method::Frosh, Method::FroshSparse, Method::Osh] {
        let sketcher = learn(&config(dim, method), &data, &[128]);
        assert!(sketcher.bytes() > 12 * dim * 4);
        let sketch = sketcher.finish();
        assert_eq!(sketch.rows(), 1000);
        assert!(sketch.bytes() > 0);
        let certificate = sketch.certificate();
        assert_eq!(certificate.compressed, method != Method::Osh);
        assert!(certificate.removed > 0.0);
        let kept: f64 = sketch.spectrum().iter().sum();
        // c Delta <= inserted mass - kept mass, with or without compression.
        assert!(7.0 * certificate.removed <= (certificate.mass - kept) * (1.0 + 1e-5));
        if method == Method::Osh {
            assert!((certificate.mass / total - 1.0).abs() < 1e-5);
            let b = sketch.sketched();
            let b = faer::Mat::from_fn(b.len() / dim, dim, |i, c| f64::from(b[i * dim + c]));
            let lost = (&exact - b.transpose() * &b).self_adjoint_eigenvalues(faer::Side::Lower);
            let lost = lost.unwrap();
            assert!(lost[dim - 1] <= certificate.removed + 1e-5 * total);
            assert!(lost[0] >= -1e-5 * total);
        }
    }
}

#[test]
fn promise_6_a_certificate_says_whether_any_part_was_compressed() {
    let dim = 20;
    let learned = |config: Config, n| learn(&config, &rows(n, dim, 4), &[128]).finish();
    let osh = learned(config(dim, Method::Osh).worker(1), 1000);
    let frosh = learned(config(dim, Method::Frosh).worker(2), 1000);
    assert!(!osh.certificate().compressed && frosh.certificate().compressed);
    for parts in [[&osh, &frosh], [&frosh, &osh]] {
        let merged = Sketch::merge(parts).unwrap();
        assert!(merged.certificate().compressed);
        let loaded = Sketch::from_bytes(&merged.to_bytes()).unwrap();
        assert!(loaded.certificate().compressed, "the file says it too");
    }
    // Streams this short are not compressed.
    let few = learned(growing(dim, Method::Frosh), 60);
    assert!(!few.certificate().compressed);
    assert!(!Sketch::from_bytes(&few.to_bytes()).unwrap().certificate().compressed);
}

#[test]
fn promise_7_bits_are_the_signs_of_centred_projections_least_significant_first() {
    let dim = 13;
    let data = rows(400, dim, 6);
    for (method, rotation, bits) in [
        (Method::Frosh, Rotation::Random, 6),
        (Method::Osh, Rotation::None, 5),
        (Method::Frosh, Rotation::Isotropic, 3),
        (Method::Frosh, Rotation::Itq, 6),
        (Method::Frosh, Rotation::Refined, 6),
        (Method::Lsh, Rotation::None, 70),
    ] {
        let sketch = learn(&config(dim, method), &data, &[100]).finish();
        let hasher = sketch.hasher_with(bits, rotation).unwrap();
        let codes = hasher.encode(Rows::new(&data, dim).unwrap()).unwrap();
        assert_eq!(codes.as_bytes().len(), 400 * bits.div_ceil(8));
        let mut close = 0;
        for (i, row) in data.chunks_exact(dim).enumerate() {
            for k in 0..bits {
                let projection: f64 = (0..dim)
                    .map(|c| {
                        (f64::from(row[c]) - hasher.mean()[c]) * f64::from(hasher.direction(k)[c])
                    })
                    .sum();
                if projection.abs() < 1e-5 {
                    close += 1; // single precision may round these either way
                } else {
                    let byte = codes.as_bytes()[i * bits.div_ceil(8) + k / 8];
                    assert_eq!(byte >> (k % 8) & 1 == 1, projection > 0.0, "row {i} bit {k}");
                    assert_eq!(codes.bit(i, k), projection > 0.0);
                }
            }
            let past = codes.row(i).last().unwrap() >> (bits % 8);
            assert!(bits % 8 == 0 || past == 0, "bits past the end are 0");
        }
        assert!(close < 30);
        // The mean itself projects to zero, which is bit 0.
        let flat = Sketcher::new(config(dim, method)).map(|mut s| {
            s.push(Rows::new(&vec![2.0f32; 3 * dim], dim).unwrap()).unwrap();
            s.finish().hasher(5).unwrap()
        });
        let zeros = flat.unwrap().encode(Rows::new(&vec![2.0f32; dim], dim).unwrap()).unwrap();
        assert_eq!(zeros.as_bytes(), [0]);
    }
}

#[test]
fn promise_8_codes_know_their_hasher() {
    let dim = 6;
    let data = rows(100, dim, 2);
    let sketch = learn(&config(dim, Method::Frosh), &data, &[100]).finish();
    let (a, b) = (sketch.hasher(4).unwrap(), sketch.hasher_with(4, Rotation::None).unwrap());
    assert_ne!(a.id(), b.id());
    let batch = Rows::new(&data, dim).unwrap();
    let (x, y) = (a.encode(batch).unwrap(), b.encode(batch).unwrap());
    assert!(matches!(x.distance(0, &y, 0), Err(Error::OtherHasher { .. })));
    assert!(matches!(x.nearest(&y, 3), Err(Error::OtherHasher { .. })));
    let again = Codes::from_bytes(&x.to_bytes()).unwrap();
    assert_eq!(again.hasher(), a.id());
    assert_eq!(Hasher::from_bytes(&a.to_bytes()).unwrap().id(), a.id());
    assert_eq!(x.nearest(&again, 1).unwrap()[7][0].distance, 0.0);
}
