//! Rejected input: which values an error reports, and that a stream continues as if it had ended before the bad row.

use frosh::{
    Config, Element, Error, Method, Metric, Pool, Quantizer, Rotation, Rows, Sketch, Sketcher,
};
use half::{bf16, f16};

const METHODS: [Method; 4] = [Method::Frosh, Method::FroshSparse, Method::Osh, Method::Lsh];
const LEARNING: [Method; 3] = [Method::Frosh, Method::FroshSparse, Method::Osh];
const BAD: [f64; 5] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 2e15, -1e20];

trait Number: Element + Into<f64> {
    fn of(x: f64) -> Self;
}
macro_rules! number {
    ($($t:ty, $of:expr);*) => {$(
        impl Number for $t {
            fn of(x: f64) -> Self { $of(x) }
        }
    )*};
}
number!(f32, |x| x as f32; f64, |x| x; f16, f16::from_f64; bf16, bf16::from_f64);

/// Integers up to 100, which are exact in every element type.
fn data<T: Number>(rows: usize, dim: usize) -> Vec<T> {
    let mixed = |i: usize| {
        let x = (i as u64 + 7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (x ^ x >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40
    };
    (0..rows * dim).map(|i| T::of((mixed(i) % 201) as f64 - 100.0)).collect()
}

fn rows<T: Element>(values: &[T], dim: usize) -> Rows<'_, T> {
    Rows::new(values, dim).unwrap()
}

fn learned(config: Config, values: &[f32], dim: usize) -> Sketch {
    let mut sketcher = Sketcher::new(config).unwrap();
    sketcher.push(rows(values, dim)).unwrap();
    sketcher.finish()
}

/// The saved state of a stream after each row.
fn states<T: Element>(config: &Config, values: &[T], dim: usize) -> Vec<Vec<u8>> {
    let mut sketcher = Sketcher::new(config.clone()).unwrap();
    let mut states = vec![sketcher.to_bytes()];
    for row in values.chunks(dim) {
        sketcher.push(rows(row, dim)).unwrap();
        states.push(sketcher.to_bytes());
    }
    states
}

#[track_caller]
fn is_refusal<T: Number>(error: &Error, row: usize, column: usize, bad: T) {
    let bad: f64 = bad.into();
    let got = match *error {
        Error::NotFinite { row, column, value } if !bad.is_finite() => (row, column, value),
        Error::TooLarge { row, column, value, limit } if bad.is_finite() => {
            assert_eq!(limit, f64::from(1u32 << 25).powi(2));
            (row, column, value)
        }
        ref other => panic!("{other:?}"),
    };
    assert_eq!((got.0, got.1, got.2.to_bits()), (row, column, bad.to_bits()));
    assert!(error.to_string().starts_with(&format!("row {row}, column {column}: ")));
}

/// Inserts a bad row before row `at`, in a batch that starts at row `cut`.
#[track_caller]
fn check<T: Number>(config: &Config, good: &[T], cut: usize, at: usize, states: &[Vec<u8>]) {
    let dim = good.len() / (states.len() - 1);
    let column = at % dim;
    let bad = T::of(BAD[at % BAD.len()]);
    let mut row = good[..dim].to_vec();
    row[column] = bad;
    // The error must not report this second bad row.
    let batch = [&good[cut * dim..at * dim], &row, &good[at * dim..], &row].concat();
    let mut sketcher = Sketcher::new(config.clone()).unwrap();
    sketcher.push(rows(&good[..cut * dim], dim)).unwrap();
    let error = sketcher.push(rows(&batch, dim)).unwrap_err();
    is_refusal(&error, at - cut, column, bad);
    let here = format!("{config:?}, batch from {cut}, bad row {at}");
    assert!(sketcher.to_bytes() == states[at], "state after the refusal: {here}");
    sketcher.push(rows(&good[at * dim..], dim)).unwrap();
    assert!(sketcher.to_bytes() == states[good.len() / dim], "going on: {here}");
}

/// Checks every position of a bad row in slightly more than four blocks.
fn check_everywhere<T: Number>(method: Method, metric: Metric) {
    for (l, m, dim) in [(4, 8, 5), (6, 16, 33), (16, 32, 5)] {
        let n = 4 * m + 3;
        let good = data::<T>(n, dim);
        let config = Config::new(dim).method(method).metric(metric).sketch_rows(l).block_rows(m);
        let config = config.reservoir_rows(7).seed(3);
        let states = states(&config, &good, dim);
        for at in 0..=n {
            let pool = Pool::new(1 + usize::from(at % 16 == 0)).unwrap();
            for cut in [0, 1, m / 2, m, 2 * m + 1] {
                if cut <= at {
                    pool.install(|| check(&config, &good, cut, at, &states));
                }
            }
        }
    }
}

#[test]
fn a_bad_row_ends_a_stream_of_f32_just_before_it() {
    for method in METHODS {
        check_everywhere::<f32>(method, Metric::L2);
    }
}

#[test]
fn a_bad_row_ends_a_stream_of_any_element_and_metric_just_before_it() {
    for method in METHODS {
        check_everywhere::<f64>(method, Metric::L2);
        check_everywhere::<f16>(method, Metric::L2);
        check_everywhere::<bf16>(method, Metric::L2);
        check_everywhere::<f32>(method, Metric::Cosine);
        check_everywhere::<f64>(method, Metric::Cosine);
    }
}

#[test]
fn a_bad_row_ends_a_stream_whose_sub_blocks_are_smaller_than_half_the_sketch() {
    let (dim, n) = (5, 750);
    let good = data::<f32>(n, dim);
    for method in METHODS {
        let config = Config::new(dim).method(method).sketch_rows(200).block_rows(128);
        let config = config.reservoir_rows(0);
        let states = states(&config, &good, dim);
        for at in (0..=n).filter(|at| at % 128 < 2 || at % 64 < 2 || at % 13 == 0) {
            Pool::ONE.install(|| check(&config, &good, 0, at, &states));
        }
    }
}

#[test]
fn a_bad_row_deep_inside_a_large_batch_is_found() {
    for (dim, l, m) in [(5, 6, 64), (33, 16, 256)] {
        let n = 6000;
        let good = data::<f32>(n, dim);
        for method in METHODS {
            let config = Config::new(dim).method(method).sketch_rows(l).block_rows(m).seed(1);
            let states = Pool::ONE.install(|| states(&config, &good, dim));
            // On two threads, blocks are compressed in parallel.
            for threads in [1, 2] {
                let check = |cut, at| check(&config, &good, cut, at, &states);
                Pool::new(threads).unwrap().install(|| {
                    for at in [0, m - 1, m, m + 1, 2 * m, 3 * m - 1, 2048, 4096 + 16, 5000, 5999] {
                        check(0, at);
                    }
                    check(3, 2 * m + 1);
                });
            }
        }
    }
}

#[test]
fn a_large_offset_hides_no_value_above_the_limit() {
    let dim = 5;
    let good: Vec<f32> = data::<f32>(70, dim).iter().map(|x| 9e14 + x * 1e10).collect();
    for method in METHODS {
        let config = Config::new(dim).method(method).sketch_rows(6).block_rows(16);
        for at in 0..70 {
            let mut batch = good.clone();
            batch[at * dim + 2] = 1.2e15;
            let mut sketcher = Sketcher::new(config.clone()).unwrap();
            let error = sketcher.push(rows(&batch, dim)).unwrap_err();
            is_refusal(&error, at, 2, 1.2e15f32);
            assert_eq!(sketcher.rows(), at as u64);
        }
    }
}

#[test]
fn rows_of_another_dimension_are_refused_and_change_nothing() {
    for method in METHODS {
        let mut sketcher = Sketcher::new(Config::new(5).method(method).sketch_rows(4)).unwrap();
        for pushed in [0, 3, 40] {
            sketcher.push(rows(&data::<f32>(pushed, 5), 5)).unwrap();
            let before = sketcher.to_bytes();
            let error = sketcher.push(rows(&[f32::NAN; 12], 6)).unwrap_err();
            assert!(matches!(error, Error::Dimension { expected: 5, got: 6 }));
            assert!(error.to_string().contains("5 dimensions, got 6"));
            assert!(sketcher.to_bytes() == before);
        }
    }
}

#[test]
fn values_that_are_no_whole_rows_are_refused() {
    let error = Rows::new(&[1.0f32; 7], 3).unwrap_err();
    assert!(matches!(error, Error::Ragged { length: 7, dim: 3 }));
    assert!(matches!(Rows::new(&[1u8; 7], 0), Err(Error::Ragged { length: 7, dim: 0 })));
}

#[test]
fn impossible_settings_are_refused_by_name_and_value() {
    let base = || Config::new(16).sketch_rows(16);
    let cases = [
        (Config::new(0), "dim", 0),
        (Config::new(usize::MAX), "dim", u64::MAX),
        (base().sketch_rows(0), "sketch_rows", 0),
        (base().sketch_rows(9), "sketch_rows", 9),
        (base().sketch_rows(usize::MAX - 1), "sketch_rows", u64::MAX - 1),
        (base().block_rows(0), "block_rows", 0),
        (base().block_rows(24), "block_rows", 24),
        (base().block_rows(4), "block_rows", 4),
        (base().block_rows(1 << 40), "block_rows", 1 << 40),
    ];
    for (config, setting, value) in cases {
        for method in METHODS {
            let error = Sketcher::new(config.clone().method(method)).unwrap_err();
            assert!(error.to_string().starts_with(&format!("{setting} = {value} ")), "{error}");
            let Error::Setting { name, got, why } = error else { panic!("{error:?}") };
            assert_eq!((name, got, why.is_empty()), (setting, value, false));
        }
    }
}

#[test]
fn a_hasher_of_impossible_bits_is_refused_with_advice() {
    let values = data::<f32>(300, 12);
    for method in LEARNING {
        let sketch = |l| learned(Config::new(12).method(method).sketch_rows(l), &values, 12);
        let error = sketch(8).hasher(0).unwrap_err();
        assert!(matches!(error, Error::Setting { name: "bits", got: 0, .. }));
        let error = sketch(64).hasher(13).unwrap_err();
        assert!(matches!(error, Error::Bits { bits: 13, limit: 12, .. }), "{error:?}");
        assert!(error.to_string().contains("ask for fewer bits"));
        let error = sketch(8).hasher(5).unwrap_err();
        assert!(matches!(error, Error::Bits { bits: 5, limit: 4, .. }), "{error:?}");
        assert!(error.to_string().contains("at least twice as many sketch rows as bits"));
    }
    let lsh = learned(Config::new(12).method(Method::Lsh), &values, 12);
    assert!(matches!(lsh.hasher(usize::MAX), Err(Error::Bits { .. })));
    assert_eq!(lsh.hasher(40).unwrap().bits(), 40);
}

#[test]
fn a_hasher_from_no_rows_is_refused() {
    for method in METHODS {
        let sketch = learned(Config::new(8).method(method), &[], 8);
        assert!(matches!(sketch.hasher(4), Err(Error::Empty)));
        let merged = Sketch::merge([&sketch, &sketch]).unwrap();
        assert!(matches!(merged.hasher(4), Err(Error::Empty)));
    }
}

#[test]
fn a_rotation_without_what_it_needs_is_refused() {
    let values = data::<f32>(300, 8);
    let sketch = learned(Config::new(8).reservoir_rows(0), &values, 8);
    for fitted in [Rotation::Itq, Rotation::Refined] {
        let error = sketch.hasher_with(4, fitted).unwrap_err();
        assert!(matches!(error, Error::Rotation { rotation, .. } if rotation == fitted.as_str()));
        assert!(error.to_string().contains("reservoir"));
    }
    assert_eq!(sketch.hasher(4).unwrap().rotation(), Rotation::Random);
    // The default is refined if the sample has at least eight rows for each bit.
    for (rows, default) in [(31, Rotation::Random), (32, Rotation::Refined)] {
        let sketch = learned(Config::new(8).reservoir_rows(rows), &values, 8);
        assert_eq!(sketch.hasher(4).unwrap().rotation(), default);
    }
    let lsh = learned(Config::new(8).method(Method::Lsh), &values, 8);
    for rotation in [Rotation::Random, Rotation::Isotropic, Rotation::Itq, Rotation::Refined] {
        let error = lsh.hasher_with(4, rotation).unwrap_err();
        assert!(matches!(error, Error::Rotation { .. }));
        assert!(error.to_string().contains(rotation.as_str()), "{error}");
    }
}

#[test]
fn sketches_of_different_things_are_not_merged() {
    let base = || Config::new(8).sketch_rows(8);
    let make = |config, worker, dim| {
        let config: Config = config;
        learned(config.worker(worker), &data(50, dim), dim)
    };
    let first = make(base(), 0, 8);
    let others = [
        (make(Config::new(9).sketch_rows(8), 1, 9), "the dimension", "8", "9"),
        (make(base().metric(Metric::Cosine), 1, 8), "the metric", "l2", "cosine"),
        (make(base().method(Method::Lsh), 1, 8), "the method", "frosh or osh", "lsh"),
    ];
    for (other, property, ours, theirs) in &others {
        for pair in [[&first, other], [other, &first]] {
            let error = Sketch::merge(pair).unwrap_err();
            for part in [property, ours, theirs] {
                assert!(error.to_string().contains(part), "{error}");
            }
            let Error::Merge { what, left, right } = error else { panic!("{error:?}") };
            assert_eq!((&what, &left[..], &right[..]), (property, *ours, *theirs));
        }
    }
    assert!(matches!(Sketch::merge([]), Err(Error::Empty)));
}

#[test]
fn the_first_bad_row_is_named_when_encoding_on_several_threads() {
    fn first_bad<T: Number>(sketch: &Sketch, dim: usize) {
        let hasher = sketch.hasher(4).unwrap();
        let good = data::<T>(5000, dim);
        for pool in [Pool::ONE, Pool::new(4).unwrap()] {
            for at in [0, 191, 192, 2999, 4999] {
                let mut values = good.clone();
                let bad = T::of(BAD[at % 3]);
                for row in [at, (at + 1).min(4999), 4999] {
                    values[row * dim + at % dim] = bad;
                }
                let error = pool.install(|| hasher.encode(rows(&values, dim))).unwrap_err();
                is_refusal(&error, at, at % dim, bad);
            }
            assert_eq!(pool.install(|| hasher.encode(rows(&good, dim))).unwrap().len(), 5000);
        }
        let error = hasher.encode(rows(&good[..dim + 1], dim + 1)).unwrap_err();
        assert!(
            matches!(error, Error::Dimension { expected, got } if (expected, got) == (dim, dim + 1))
        );
    }
    for (dim, metric) in [(5, Metric::L2), (33, Metric::Cosine)] {
        let sketch = learned(Config::new(dim).metric(metric), &data(500, dim), dim);
        first_bad::<f32>(&sketch, dim);
        first_bad::<f64>(&sketch, dim);
        first_bad::<f16>(&sketch, dim);
        first_bad::<bf16>(&sketch, dim);
    }
}

#[test]
fn codes_of_two_hashers_are_not_compared() {
    let values = data::<f32>(300, 8);
    let sketch = learned(Config::new(8), &values, 8);
    let hashers = [Rotation::None, Rotation::Random].map(|r| sketch.hasher_with(4, r).unwrap());
    let [mut a, b] = [0, 1].map(|i| hashers[i].encode(rows(&values, 8)).unwrap());
    let before = a.clone();
    for error in [a.nearest(&b, 1).err(), a.distance(0, &b, 0).err(), a.append(&b).err()] {
        let Some(Error::OtherHasher { left, right }) = error else { panic!("{error:?}") };
        assert_eq!((left, right), (hashers[0].id().to_string(), hashers[1].id().to_string()));
    }
    assert_eq!(a, before);
}

/// The rank that is learned from the values. Also checks the shape of codes.
#[track_caller]
fn rank(method: Method, values: &[f32], dim: usize, bits: usize) -> usize {
    let sketch = learned(Config::new(dim).method(method).sketch_rows(2 * bits), values, dim);
    let ranks = Rotation::NAMES.iter().map(|name| {
        let hasher = sketch.hasher_with(bits, name.parse().unwrap()).unwrap();
        let codes = hasher.encode(rows(values, dim)).unwrap();
        assert_eq!((codes.len(), codes.bits()), (values.len() / dim, bits));
        assert!((0..bits).all(|k| hasher.direction(k).iter().all(|w| w.is_finite())));
        hasher.rank()
    });
    let ranks: Vec<usize> = ranks.collect();
    assert!(ranks.iter().all(|rank| *rank == ranks[0]), "{ranks:?}");
    ranks[0]
}

#[test]
fn n_rows_have_rank_n_minus_1() {
    for method in LEARNING {
        for n in 1..=9 {
            assert_eq!(rank(method, &data(n, 24), 24, 12), n - 1, "{method:?}, {n} rows");
        }
    }
}

#[test]
fn a_short_padded_block_has_directions() {
    // More rows than half the sketch, so the block is padded with zeros; compression may reduce the rank.
    for n in [13, 15, 17] {
        assert_eq!(rank(Method::Osh, &data(n, 24), 24, 12), 12);
        for method in [Method::Frosh, Method::FroshSparse] {
            assert!((6..=12).contains(&rank(method, &data(n, 24), 24, 12)), "{method:?}, {n}");
        }
    }
}

#[test]
fn equal_rows_have_rank_0() {
    for method in LEARNING {
        for n in [2, 7, 50, 3000] {
            let values = [3.0f32, -7.0, 0.5, 1e6, 0.1, 11.0, 0.0, 1e-3].repeat(n);
            assert_eq!(rank(method, &values, 8, 4), 0, "{method:?}, {n} rows");
        }
    }
}

#[test]
fn a_row_of_tiny_values_gives_a_valid_cosine_sketch() {
    for tiny in [1e-37f32, 1e-39, 1e-44] {
        let values = [&data::<f32>(20, 5)[..], &[0.0, tiny, -tiny, 0.0, tiny]].concat();
        let sketch = learned(Config::new(5).metric(Metric::Cosine), &values, 5);
        assert!(sketch.mean().iter().all(|m| m.is_finite()), "{tiny:e}");
        assert!(sketch.sketched().iter().all(|x| x.is_finite()), "{tiny:e}");
    }
}

#[test]
fn data_of_low_rank_has_its_rank() {
    let (dim, n) = (16, 3000);
    let (basis, weights) = (data::<f32>(2, dim), data::<f32>(n, 2));
    let row = |w: &[f32]| (0..dim).map(|c| w[0] * basis[c] + w[1] * basis[dim + c]).collect();
    let values: Vec<f32> = weights.chunks(2).flat_map::<Vec<f32>, _>(row).collect();
    for method in LEARNING {
        assert_eq!(rank(method, &values, dim, 6), 2, "{method:?}");
    }
    let lsh = learned(Config::new(dim).method(Method::Lsh), &values, dim);
    assert_eq!(lsh.hasher(6).unwrap().rank(), 0);
}

/// A file that a fuzzer made. It claims codes of 2^62 bytes and has no predictions: the number of entries overflows.
#[test]
fn a_quantizer_of_more_bytes_than_can_be_counted_is_refused() {
    let file = include_bytes!("fixtures/quantizer-of-2-to-62-bytes.frosh");
    let why = Quantizer::from_bytes(file).unwrap_err().to_string();
    assert!(why.contains("codes of 4611686018427387904 bytes and 0 predictions"), "{why}");
}
