//! Compares private parts of the library with their definitions in double precision. Tests of what is public are in
//! `tests/definitions.rs`.

use crate::hasher::estimator::Scales;
use crate::random::{Address, Purpose, Stream};
use crate::sketch::compression::{sparse_embedding, srht};
use crate::{Config, Hasher, Method, Metric, Pool, Rotation, Rows, Sketch, Sketcher};

const DIM: usize = 24;
const BITS: usize = 8;

/// Rows in clusters around this many centres, with slowly decreasing variances and a mean that is not 0.
fn clusters(n: usize, centres: usize, spread: f64) -> Vec<f32> {
    let mut stream = Stream::new(3, Purpose::Sample, 0, 0);
    let centre: Vec<f64> = (0..centres * DIM).map(|_| stream.normal()).collect();
    let value = |e: usize, z: f64| {
        let at = e / DIM % centres * DIM + e % DIM;
        ((centre[at] + spread * z) / (1.0 + (e % DIM) as f64).powf(0.3) + 2.0) as f32
    };
    (0..n * DIM).map(|e| value(e, stream.normal())).collect()
}

fn sketch(config: Config, data: &[f32]) -> Sketch {
    let mut sketcher = Sketcher::new(config).unwrap();
    sketcher.push(Rows::new(data, DIM).unwrap()).unwrap();
    sketcher.finish()
}

fn double(row: &[f32]) -> Vec<f64> {
    row.iter().map(|x| f64::from(*x)).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// A row minus the mean, and its projections.
fn projected(hasher: &Hasher, row: &[f32]) -> (Vec<f64>, Vec<f64>) {
    let centred: Vec<f64> = double(row).iter().zip(hasher.mean()).map(|(x, m)| x - m).collect();
    let along = (0..hasher.bits()).map(|k| dot(&centred, &double(hasher.direction(k)))).collect();
    (centred, along)
}

/// The norm and the gain by their one-line definitions.
fn factors(hasher: &Hasher, row: &[f32], share: f64, residual: f64) -> (f64, f64) {
    let (centred, u) = projected(hasher, row);
    let (square, held) = (dot(&centred, &centred), dot(&u, &u));
    let left_out = ((square - held).max(0.0) / held).sqrt();
    let gain = share * held / u.iter().map(|u| u.abs()).sum::<f64>() * (1.0 + residual * left_out);
    (square.sqrt(), gain)
}

/// Checks that every factor byte is the nearest one: of all byte values, none has a norm nearer to the row's norm, or a
/// ratio nearer to the row's ratio, on a logarithmic scale and up to single precision.
fn check_factor_bytes(hasher: &Hasher, data: &[f32], share: f64) {
    let scales = hasher.scales().unwrap();
    let [norms, gains] = scales.tables();
    let codes = hasher.encode_with_factors(Rows::new(data, DIM).unwrap()).unwrap();
    let bytes = codes.factors.as_ref().unwrap();
    assert_eq!(bytes.bytes, 1);
    let decode = |byte: usize| (f64::from(norms[byte]), f64::from(gains[byte] / norms[byte]));
    let off = |a: f64, b: f64| (a / b).ln().abs();
    let mut used = std::collections::BTreeSet::new();
    for (row, byte) in data.chunks_exact(DIM).zip(bytes.data.iter()) {
        let (norm, gain) = factors(hasher, row, share, scales.residual());
        let (got_norm, got_ratio) = decode(usize::from(*byte));
        for (other_norm, other_ratio) in (1..256).map(decode) {
            assert!(off(got_norm, norm) <= off(other_norm, norm) + 1e-4, "{norm}: {got_norm}");
            let ratio = gain / norm;
            assert!(
                off(got_ratio, ratio) <= off(other_ratio, ratio) + 1e-4,
                "{ratio}: {got_ratio}"
            );
        }
        used.insert(*byte);
    }
    // The ranges must be fitted to such rows; otherwise a few byte values could pass the check.
    assert!(used.len() > 20, "only {} bytes are in use", used.len());
}

#[test]
fn factor_bytes_are_the_nearest_to_their_definition() {
    let data = clusters(1500, 30, 0.2);
    for (method, rotation) in [
        (Method::Frosh, Rotation::Random),
        (Method::Osh, Rotation::Refined),
        (Method::Lsh, Rotation::None),
    ] {
        let config = Config::new(DIM).sketch_rows(2 * BITS).block_rows(64).method(method);
        let hasher = sketch(config, &data).hasher_with(BITS, rotation).unwrap();
        let share = if method == Method::Lsh { 1.0 / BITS as f64 } else { 1.0 };
        check_factor_bytes(&hasher, &data[..400 * DIM], share);
    }
}

/// With given scales, so that the coefficient has an effect whatever the fit chooses.
#[test]
fn factor_bytes_follow_the_coefficient_of_the_model() {
    let data = clusters(1500, 30, 0.2);
    let config = Config::new(DIM).sketch_rows(2 * BITS).block_rows(64);
    let fitted = sketch(config, &data).hasher_with(BITS, Rotation::Random).unwrap();
    let all = |residual: f64| -> (f64, f64) {
        let rows = data.chunks_exact(DIM).map(|row| factors(&fitted, row, 1.0, residual));
        rows.map(|(norm, gain)| gain / norm)
            .fold((f64::INFINITY, 0.0), |(low, high), x| (low.min(x), high.max(x)))
    };
    let mut bytes = Vec::new();
    for coefficient in [0.0, 0.3, 0.6] {
        let mut scales = fitted.scales().unwrap();
        let Scales::Joint { ratio, residual, .. } = &mut scales else { panic!("two bytes") };
        *residual = coefficient;
        // The same range for all three, so that bytes differ by the coefficient only.
        (ratio.low, ratio.high) = (all(0.0).0, all(0.6).1);
        let hasher = Hasher::assemble(
            fitted.facts,
            fitted.mean.clone(),
            fitted.directions.clone(),
            Some(scales),
        );
        check_factor_bytes(&hasher, &data[..400 * DIM], 1.0);
        let codes = hasher.encode_with_factors(Rows::new(&data, DIM).unwrap()).unwrap();
        bytes.push(codes.factors.unwrap().data.to_vec());
    }
    let differ = |a: &[u8], b: &[u8]| a.iter().zip(b).filter(|(a, b)| a != b).count();
    assert!(differ(&bytes[0], &bytes[1]) > 750 && differ(&bytes[1], &bytes[2]) > 750);
}

/// The sample holds rows of the stream, which are read back minus the mean, to half precision.
#[test]
fn sampled_rows_are_rows_of_the_stream() {
    let data = clusters(700, 30, 0.3);
    let mut rows: Vec<Vec<f64>> = data.chunks_exact(DIM).map(double).collect();
    let first = rows[0].clone();
    for metric in [Metric::L2, Metric::Cosine] {
        if metric == Metric::Cosine {
            rows.iter_mut().for_each(|row| {
                let length = dot(row, row).sqrt();
                row.iter_mut().for_each(|x| *x /= length);
            });
        }
        let config = Config::new(DIM).sketch_rows(16).metric(metric).reservoir_rows(300);
        let sketch = sketch(config, &data);
        let far =
            |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        let part = sketch.reservoir.part(&sketch.mean, 0..usize::MAX);
        let mut read = vec![0f32; part.len() * DIM];
        part.read(0..part.len(), 0..DIM, &mut read);
        // Columns and rows of it are the same values.
        let mut some = vec![0f32; 20 * DIM];
        let some = part.read(7..27, 3..DIM, &mut some);
        let own = read[7 * DIM..27 * DIM].chunks_exact(DIM).flat_map(|row| &row[3..]);
        assert!(some.len() == 20 * (DIM - 3) && some.iter().eq(own));
        let pool = Pool::new(2).unwrap();
        let mapped =
            sketch.reservoir.map_parts(&pool, &sketch.mean, 0..usize::MAX, <[f32]>::to_vec);
        assert_eq!(mapped.concat(), read);
        let some =
            sketch.reservoir.map_parts(&pool, &sketch.mean, 0..133, <[f32]>::to_vec).concat();
        assert_eq!(some, read[..133 * DIM]);
        assert_eq!(read.len(), 300 * DIM);
        for row in read.chunks_exact(DIM) {
            let row: Vec<f64> = double(row).iter().zip(&sketch.mean).map(|(x, m)| x + m).collect();
            let near = |a: &&Vec<f64>, b: &&Vec<f64>| far(a, &row).total_cmp(&far(b, &row));
            let original = rows.iter().min_by(near).unwrap();
            let largest = far(original, if metric == Metric::L2 { &first } else { &rows[0] });
            let off = far(&row, original);
            assert!(off <= largest / 2048.0 + 1e-5, "{metric:?}: {off} of {largest}");
        }
    }
}

/// The share of the scatter of the sampled rows along the leading directions, by definition.
#[test]
fn captured_energy_equals_its_definition() {
    let data = clusters(900, 30, 0.3);
    for method in [Method::Frosh, Method::Osh] {
        let config = Config::new(DIM).sketch_rows(16).block_rows(64).method(method);
        let sketch = sketch(config.reservoir_rows(400), &data);
        let hasher = sketch.hasher_with(8, Rotation::None).unwrap();
        let parts = sketch.reservoir.map_parts(&Pool::ONE, &sketch.mean, 0..400, <[f32]>::to_vec);
        let (mut total, mut along) = (0.0, [0f64; 8]);
        for row in parts.concat().chunks_exact(DIM).map(double) {
            total += dot(&row, &row);
            for (k, sum) in along.iter_mut().enumerate() {
                *sum += dot(&row, &double(hasher.direction(k))).powi(2);
            }
        }
        let got = sketch.captured_energy(&[1, 3, 8]).unwrap();
        for (k, got) in [1, 3, 8].into_iter().zip(got) {
            let want = along[..k].iter().sum::<f64>() / total;
            assert!((got - want).abs() < 1e-4, "{method:?} {k}: {got} {want}");
        }
    }
}

/// Calls `check` on the draws of every pair of different addresses (seed, worker, run, number).
fn each_pair<T>(draw: impl Fn(Address, u64) -> T, mut check: impl FnMut(&T, &T, &str)) {
    let addresses = [
        (1, 0, 0, 0),
        (1, 0, 0, 1),
        (1, 0, 0, 2),
        (1, 0, 1, 0),
        (1, 0, 1, 1),
        (1, 0, 1 << 40, 1),
        (1, 1, 0, 0),
        (1, 1, 1, 0),
        (1, 2, 0, 1),
        (2, 0, 0, 0),
        (2, 1, 0, 1),
        (3, 0, 0, 1 << 40),
    ];
    let drawn =
        addresses.map(|(seed, worker, run, number)| draw(Address { seed, worker, run }, number));
    for i in 0..drawn.len() {
        for j in 0..i {
            check(&drawn[i], &drawn[j], &format!("{:?} and {:?}", addresses[i], addresses[j]));
        }
    }
}

/// Two independent samples of q of m rows share q^2 / m rows, with the variance of the hypergeometric distribution.
#[test]
fn samples_of_trials_runs_workers_and_seeds_are_independent() {
    let (q, m) = (512, 4096);
    let [of_q, of_m] = [q as f64, m as f64];
    let expected = of_q * of_q / of_m;
    let deviation = (expected * (1.0 - of_q / of_m).powi(2) * of_m / (of_m - 1.0)).sqrt();
    each_pair(
        |at, trial| srht::sample(at, trial, q, m),
        |a, b, which| {
            let common = a.iter().filter(|x| b.binary_search(x).is_ok()).count() as f64;
            assert!((common - expected).abs() < 5.0 * deviation, "{which} share {common} rows");
        },
    );
}

/// Independent signs agree for half of the rows.
#[test]
fn signs_of_sub_blocks_runs_workers_and_seeds_are_independent() {
    let p = 4096;
    each_pair(
        |at, index| srht::signs(at, index, p),
        |a, b, which| {
            let product: f32 = a.iter().zip(b).map(|(a, b)| a * b).sum();
            assert!(product.abs() < 5.0 * (p as f32).sqrt(), "{which}: {product}");
        },
    );
}

/// Rows of two sub-blocks have the same bucket with probability 1 / q, and equal or opposite signs.
#[test]
fn buckets_of_sub_blocks_runs_workers_and_seeds_are_independent() {
    let (p, q) = (4096, 16);
    let expected = p as f64 / q as f64;
    let deviation = (expected * (1.0 - 1.0 / q as f64)).sqrt();
    each_pair(
        |at, index| sparse_embedding::buckets(at, index, p, q),
        |a, b, which| {
            let pairs = || a.iter().zip(b);
            let common = pairs().filter(|(a, b)| a.0 == b.0).count() as f64;
            assert!((common - expected).abs() < 5.0 * deviation, "{which} share {common} buckets");
            let signs: f32 = pairs().map(|(a, b)| a.1 * b.1).sum();
            assert!(signs.abs() < 5.0 * (p as f32).sqrt(), "{which}: {signs}");
        },
    );
    // All buckets have the same probability.
    let mut counts = vec![0f64; q];
    for (bucket, _) in sparse_embedding::buckets(Address { seed: 5, worker: 0, run: 0 }, 0, p, q) {
        counts[bucket as usize] += 1.0;
    }
    assert!(counts.iter().all(|c| (c - expected).abs() < 5.0 * deviation), "{counts:?}");
}
