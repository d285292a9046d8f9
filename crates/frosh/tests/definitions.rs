//! Compares the stages of learning with slow definitions through the public interface: the sample of rows, the
//! compression of blocks, the mean, and the rank. Expected values never come from the code under test.

// Other test files use the rest of `common`.
#[allow(dead_code)]
mod common;
#[path = "common/sample.rs"]
mod sample;

use common::{Random, dot, learn, planted};
use faer::Mat;
use frosh::{Config, Method, Metric, Pool, Rotation, Sketch};
use sample::sample;

const LEARNERS: [Method; 3] = [Method::Frosh, Method::FroshSparse, Method::Osh];

fn difference(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

fn double(rows: &[f32], dim: usize) -> Vec<Vec<f64>> {
    rows.chunks_exact(dim).map(|row| row.iter().map(|x| f64::from(*x)).collect()).collect()
}

/// The row numbers in the sample of a stream in which row i has the value i.
fn sampled_numbers(rows: usize, most: usize, seed: u64, worker: u64) -> Vec<usize> {
    let data: Vec<f32> = (0..rows).map(|i| i as f32).collect();
    let config = Config::new(1).method(Method::Lsh).reservoir_rows(most);
    let sample = sample(&learn(config.seed(seed).worker(worker), 1, &data));
    let mut numbers: Vec<usize> = sample.rows.iter().map(|row| row[0] as usize).collect();
    numbers.sort_unstable();
    numbers
}

/// Two independent samples of k of n rows share k^2 / n rows, with the variance of the hypergeometric distribution.
#[test]
fn samples_of_different_workers_and_seeds_are_independent() {
    let (n, k) = (4000, 500);
    let [of_n, of_k] = [n as f64, k as f64];
    let expected = of_k * of_k / of_n;
    let deviation = (expected * (1.0 - of_k / of_n).powi(2) * of_n / (of_n - 1.0)).sqrt();
    let addresses = [(7, 0), (7, 1), (7, 2), (8, 0), (9, 1 << 40), (7 + (1 << 40), 0)];
    let samples = addresses.map(|(seed, worker)| sampled_numbers(n, k, seed, worker));
    for (i, a) in samples.iter().enumerate() {
        assert_eq!(a.len(), k);
        assert!(a.windows(2).all(|pair| pair[0] < pair[1]), "a row is sampled twice");
        // In a uniform sample, the mean row number has a standard deviation of slightly less than n / sqrt(12 k).
        let mean = a.iter().sum::<usize>() as f64 / of_k;
        assert!((mean - of_n / 2.0).abs() < 4.0 * of_n / (12.0 * of_k).sqrt(), "{i}: {mean}");
        for (j, b) in samples.iter().enumerate().skip(i + 1) {
            let common = a.iter().filter(|x| b.contains(x)).count() as f64;
            assert!((common - expected).abs() < 5.0 * deviation, "{i} and {j} share {common} rows");
        }
    }
    assert_eq!(samples[0], sampled_numbers(n, k, 7, 0));
}

/// Workers with 1,000, 2,000 and 3,000 rows; the first column of each row is the worker.
#[test]
fn the_merged_sample_is_drawn_from_all_workers_alike() {
    let (dim, k) = (3, 240);
    let mut random = Random(3);
    let parts: Vec<Sketch> = (0..3u64)
        .map(|worker| {
            let rows: Vec<f32> = (0..1000 * (worker as usize + 1) * dim)
                .map(|e| if e % dim == 0 { worker as f32 } else { random.normal() as f32 })
                .collect();
            let config = Config::new(dim).sketch_rows(6).reservoir_rows(k).seed(2).worker(worker);
            learn(config, dim, &rows)
        })
        .collect();
    let merged = sample(&Sketch::merge(&parts).unwrap());
    let mut all: Vec<(u64, Vec<f64>)> = Vec::new();
    for part in &parts {
        let part = sample(part);
        all.extend(part.keys.into_iter().zip(part.rows));
    }
    all.sort_unstable_by_key(|entry| entry.0);
    assert_eq!(merged.keys, all[..k].iter().map(|entry| entry.0).collect::<Vec<_>>());
    let mut counts = [0f64; 3];
    for (row, (_, original)) in merged.rows.iter().zip(&all) {
        // The merge rounds rows a second time: twice the rounding of half precision, relative to the largest entry.
        assert!(difference(row, original) <= 8.0 / 1024.0, "{row:?} {original:?}");
        counts[row[0].round() as usize] += 1.0;
    }
    for (count, share) in counts.iter().zip([1.0 / 6.0, 1.0 / 3.0, 0.5]) {
        let expected = k as f64 * share;
        let deviation = (expected * (1.0 - share)).sqrt();
        assert!((count - expected).abs() < 4.0 * deviation, "{counts:?}");
    }
}

/// Rows far from zero keep their digits in a merge with a worker without rows, in either order.
#[test]
fn an_empty_worker_does_not_change_the_sample() {
    let dim = 3;
    let mut random = Random(10);
    let rows: Vec<f32> = (0..400 * dim).map(|_| (1e4 + random.normal()) as f32).collect();
    let config = |worker| Config::new(dim).sketch_rows(6).reservoir_rows(100).worker(worker);
    let full = learn(config(1), dim, &rows);
    let want = sample(&full);
    for worker in [0, 2] {
        let empty = learn::<f32>(config(worker), dim, &[]);
        let got = sample(&Sketch::merge([&full, &empty]).unwrap());
        assert_eq!(got.keys, want.keys);
        for (got, want) in got.rows.iter().zip(&want.rows) {
            assert!(difference(got, want) < 0.01, "{got:?} {want:?}");
        }
    }
}

/// The merged sketch covers all rows and its certificate holds, in any order of the sizes.
#[test]
fn sketches_of_different_sizes_merge_to_the_smallest() {
    let (n, dim) = (3000, 24);
    let data = planted(n, dim, 6, 3.0, 4).rows;
    let (_, exact) = common::scatter(&data, dim);
    for sizes in [[40, 16, 24], [16, 24, 40], [24, 40, 16]] {
        let parts: Vec<Sketch> = data
            .chunks_exact(n / 3 * dim)
            .zip(sizes)
            .zip(0..)
            .map(|((rows, l), worker)| {
                let config = Config::new(dim).sketch_rows(l).method(Method::Osh).worker(worker);
                learn(config, dim, rows)
            })
            .collect();
        let merged = Sketch::merge(&parts).unwrap();
        assert_eq!((merged.sketch_rows(), merged.rows()), (16, n as u64));
        common::check_certificate(&exact, &merged);
    }
}

/// Half precision has 11 bits: relative to the first row, the error of an entry is at most 2^-11 of the row's largest.
#[test]
fn sampled_rows_have_half_precision() {
    let (n, dim) = (300, 7);
    for (metric, offset, scale) in
        [(Metric::L2, 0.0, 1.0), (Metric::L2, 1e4, 3.0), (Metric::Cosine, 0.0, 1e3)]
    {
        let mut random = Random(5);
        let data: Vec<f32> =
            (0..n * dim).map(|_| (offset + scale * random.normal()) as f32).collect();
        let mut rows = double(&data, dim);
        if metric == Metric::Cosine {
            for row in &mut rows {
                let length = dot(row, row).sqrt();
                row.iter_mut().for_each(|x| *x /= length);
            }
        }
        let config = Config::new(dim).sketch_rows(8).metric(metric).reservoir_rows(100);
        let sample = sample(&learn(config, dim, &data));
        assert_eq!(sample.rows.len(), 100);
        for row in &sample.rows {
            let near =
                |a: &&Vec<f64>, b: &&Vec<f64>| difference(a, row).total_cmp(&difference(b, row));
            let original = rows.iter().min_by(near).unwrap();
            let largest = difference(original, &rows[0]);
            let rounding = 1e-6 * (1.0 + offset + largest);
            let off = difference(row, original);
            assert!(off <= largest / 2048.0 + rounding, "{metric:?}: {off} of {largest}");
        }
    }
}

/// Returns one entry of the compressed Gram matrix for every block of a stream, which shows the transform of the block.
///
/// A block with two nonzero rows, e_1 and e_2, compresses to a Gram matrix with ones on the diagonal. For the SRHT,
/// entry (1, 2) is, up to its sign, w = sum_k (-1)^popcount(rho_k AND (i XOR j)) / q. Over independent samples of
/// q of m rows, w has mean 0 and E w^2 = (m - q) / (q (m - 1)). For the sparse embedding the entry is 1 or -1 if the two
/// rows share a bucket, which has probability 1 / q, else 0. Every block uses its own columns, and the sketch has room
/// for all of them, so one run shows the entry of every block.
fn pair_in_blocks(method: Method, blocks: usize, seed: u64, worker: u64) -> Vec<f64> {
    let (q, m, dim) = (64, 256, 2 * blocks);
    assert!(dim <= q);
    // Rows of zeros until blocks have their full size.
    let before = 32 * m;
    let mut data = vec![0f32; (before + (blocks + 2) * m) * dim];
    for block in 0..blocks {
        let row = before + (block + 1) * m;
        data[(row + 3) * dim + 2 * block] = 1.0;
        data[(row + 8) * dim + 2 * block + 1] = 1.0;
    }
    let config = Config::new(dim).sketch_rows(2 * q).block_rows(m).method(method);
    let learned = [1, 2].map(|threads| {
        let config = config.clone().seed(seed).worker(worker);
        Pool::new(threads).unwrap().install(|| learn(config, dim, &data))
    });
    assert_eq!(learned[0].sketched(), learned[1].sketched());
    let b = double(learned[0].sketched(), dim);
    let gram = |i: usize, j: usize| b.iter().map(|row| row[i] * row[j]).sum::<f64>();
    for i in 0..dim {
        // The subtracted mean is at most 1 / 8192.
        assert!((gram(i, i) - 1.0).abs() < 0.02, "{method:?} {i}: {}", gram(i, i));
        for j in (i + 1..dim).filter(|j| i / 2 != j / 2) {
            assert!(gram(i, j).abs() < 0.02, "{method:?} {i} {j}: {}", gram(i, j));
        }
    }
    (0..blocks).map(|block| gram(2 * block, 2 * block + 1)).collect()
}

#[test]
fn every_block_worker_and_seed_has_its_own_transform() {
    let (q, m, blocks) = (64.0, 256.0, 30);
    let law: f64 = (m - q) / (q * (m - 1.0));
    let runs = [(1, 0), (1, 1), (2, 0)]
        .map(|(seed, worker)| pair_in_blocks(Method::Frosh, blocks, seed, worker));
    let many = (3 * blocks) as f64;
    let all: Vec<f64> = runs.concat();
    // The variance of w^2 is about twice its squared mean, as for a normal distribution.
    let square = all.iter().map(|w| w * w).sum::<f64>() / many;
    assert!((square / law - 1.0).abs() < 4.0 * (2.0 / many).sqrt(), "{square} against {law}");
    let negative = all.iter().filter(|w| **w < 0.0).count() as f64;
    assert!((negative - many / 2.0).abs() < 4.0 * many.sqrt() / 2.0, "{negative} of {many}");
    // w is a multiple of 2 / q, so some are equal up to the sign by chance: about one pair in six, if w is nearly
    // normal. With one sample for all blocks, all pairs would be equal.
    let equal = |a: &[f64], b: &[f64]| {
        let pairs = a.iter().zip(b);
        pairs.filter(|(a, b)| (a.abs() - b.abs()).abs() < 0.01).count()
    };
    for run in &runs {
        let count = equal(run, &run[1..]);
        assert!(count < blocks / 2, "{count} of {blocks} blocks are like the one before");
    }
    for (a, b) in [(0, 1), (0, 2), (1, 2)] {
        let count = equal(&runs[a], &runs[b]);
        assert!(count < blocks / 2, "{count} of {blocks} blocks of {a} are like those of {b}");
    }
}

#[test]
fn rows_of_a_block_share_buckets_with_probability_1_over_q() {
    let (q, blocks) = (64.0, 30);
    let runs: Vec<f64> = (0..12)
        .flat_map(|seed| pair_in_blocks(Method::FroshSparse, blocks, seed, seed % 2))
        .collect();
    assert!(runs.iter().all(|x| x.abs() < 0.02 || (x.abs() - 1.0).abs() < 0.02), "{runs:?}");
    let expected = runs.len() as f64 / q;
    let shared = runs.iter().filter(|x| x.abs() > 0.5).count() as f64;
    assert!((shared - expected).abs() < 4.0 * expected.sqrt(), "{shared} of {}", runs.len());
}

/// Rows far from zero, with a mean that changes from block to block. The mean must be subtracted from compressed blocks,
/// so that the average of B'B over seeds is the scatter. The sketch has room for all directions.
#[test]
fn the_mean_is_subtracted_from_compressed_blocks() {
    let (n, dim, m, seeds) = (3000, 6, 64, 40);
    let mut random = Random(9);
    let data: Vec<f32> = (0..n * dim)
        .map(|e| {
            let drift = 3.0 * (e / dim) as f64 / n as f64;
            (20.0 + drift + random.normal() / (1.0 + (e % dim) as f64)) as f32
        })
        .collect();
    let (mean, exact) = common::scatter(&data, dim);
    for method in LEARNERS {
        let mut average = Mat::<f64>::zeros(dim, dim);
        for seed in 0..seeds {
            let config = Config::new(dim).sketch_rows(16).block_rows(m).method(method).seed(seed);
            // The stream ends at different positions in a block.
            let cut = (n - seed as usize % 20) * dim;
            let sketch = learn(config, dim, &data[..cut]);
            assert!(difference(sketch.mean(), &mean) < 0.03, "{method:?}: {:?}", sketch.mean());
            let b = double(sketch.sketched(), dim);
            let b = Mat::from_fn(b.len(), dim, |i, j| b[i][j]);
            average += b.transpose() * &b * faer::Scale(1.0 / seeds as f64);
        }
        let off = (average - &exact).norm_l2() / exact.norm_l2();
        eprintln!("{method:?}: off by {off:.4}");
        // With 47 blocks of 8 rows and 40 seeds the error is about 2 / sqrt(47 * 8 * 40), plus 0.01 for the ends of
        // streams.
        assert!(off < 0.05, "{method:?}: {off}");
    }
}

/// A stream that ends inside a block: pending rows count, and padding does not.
#[test]
fn a_stream_may_end_anywhere_in_a_block() {
    let (dim, q, m) = (4, 8, 64);
    for method in [Method::Frosh, Method::FroshSparse] {
        for n in [m + 9, m + 16, 2 * m - 1, 2 * m, 2 * m + 1, 2 * m + 17] {
            let mut random = Random(n as u64);
            let data: Vec<f32> = (0..n * dim).map(|_| (5.0 + random.normal()) as f32).collect();
            let (mean, exact) = common::scatter(&data, dim);
            let mut average = Mat::<f64>::zeros(dim, dim);
            let seeds = 400;
            for seed in 0..seeds {
                let config = Config::new(dim).sketch_rows(2 * q).block_rows(m).method(method);
                let sketch = learn(config.seed(seed), dim, &data);
                assert!(difference(sketch.mean(), &mean) < 1e-5, "{method:?} {n}");
                let b = double(sketch.sketched(), dim);
                let b = Mat::from_fn(b.len(), dim, |i, j| b[i][j]);
                average += b.transpose() * &b * faer::Scale(1.0 / seeds as f64);
            }
            // The relative error is at most sqrt(2 / q) for one seed, and a twentieth of that for 400 seeds.
            let off = (average - &exact).norm_l2() / common::trace(&exact);
            assert!(off < 4.0 * (2.0 / (q as f64 * seeds as f64)).sqrt(), "{method:?} {n}: {off}");
        }
    }
}

/// The relative squared error of the sketch of `copies` equal blocks, averaged over seeds.
fn error_of_copies(method: Method, block: &[f32], dim: usize, copies: usize) -> f64 {
    let (q, m, seeds) = (8, block.len() / dim, 60);
    // Zeros until blocks have their full size, and to complete the last block.
    let zeros = vec![0f32; 32 * m * dim];
    let mut data = zeros.clone();
    (0..copies).for_each(|_| data.extend_from_slice(block));
    data.extend_from_slice(&zeros[..2 * m * dim]);
    let exact = common::scatter(block, dim).1;
    let whole = common::trace(&exact).powi(2) + exact.squared_norm_l2();
    let mut sum = 0.0;
    for seed in 0..seeds {
        let config = Config::new(dim).sketch_rows(2 * q).block_rows(m).method(method).seed(seed);
        let b = double(learn(config, dim, &data).sketched(), dim);
        let b = Mat::from_fn(b.len(), dim, |i, j| b[i][j]);
        let mean = b.transpose() * &b * faer::Scale(1.0 / copies as f64);
        sum += (mean - &exact).squared_norm_l2() / whole;
    }
    sum / seeds as f64
}

/// Errors of blocks are independent, so the relative variance of k equal blocks is 1 / k of that of one block. That is
/// 1 / q, times (m - q) / (m - 1) for the SRHT. The sketch has room for all directions, so shrinks lose nothing.
#[test]
fn the_errors_of_blocks_average_out() {
    let (m, dim) = (64, 6);
    let mut random = Random(8);
    let half: Vec<f32> =
        (0..m / 2 * dim).map(|e| (random.normal() / (1.0 + (e % dim) as f64)) as f32).collect();
    // Every row and its negation, in random order: the mean is zero.
    let order = random.permutation(m);
    let block: Vec<f32> = order
        .iter()
        .flat_map(|i| {
            let sign = if i % 2 == 0 { 1.0 } else { -1.0 };
            half[i / 2 * dim..][..dim].iter().map(move |x| x * sign).collect::<Vec<_>>()
        })
        .collect();
    for (method, one) in [(Method::Frosh, 56.0 / 63.0 / 8.0), (Method::FroshSparse, 1.0 / 8.0)] {
        for copies in [1, 4, 16, 64] {
            let error = error_of_copies(method, &block, dim, copies);
            let law = one / copies as f64;
            eprintln!("{method:?}, {copies} copies: {error:.5}, law {law:.5}");
            // The mean of 60 squares, of which few are independent, is within a factor of 1.6. If all blocks had the same
            // error, it would be k times as large.
            assert!((0.6..1.6).contains(&(error / law)), "{method:?} {copies}: {error}, {law}");
        }
    }
}

/// Directions of small variance are found, down to single precision; directions of rounding error are not counted.
#[test]
fn small_directions_count_and_rounding_does_not() {
    let (n, dim) = (24, 8);
    let mut random = Random(6);
    for method in LEARNERS {
        let config = || Config::new(dim).sketch_rows(2 * n).block_rows(64).method(method);
        // Standard deviations from 1 to 1e-5 along the axes.
        let deviation = |j: usize| 10f64.powf(-5.0 * j as f64 / (dim - 1) as f64);
        let data: Vec<f32> =
            (0..n * dim).map(|e| (random.normal() * deviation(e % dim)) as f32).collect();
        let hasher = learn(config(), dim, &data).hasher_with(dim, Rotation::None).unwrap();
        assert_eq!(hasher.rank(), dim, "{method:?}");
        for j in 0..dim {
            let along = hasher.direction(j)[j];
            assert!(along > 0.5, "{method:?}: direction {j} has {along} along its axis");
        }
        // Three directions, none along an axis: all others are rounding error.
        let basis = random.orthonormal(3, dim);
        let flat: Vec<f32> = (0..n)
            .flat_map(|_| {
                let z = [(); 3].map(|()| random.normal());
                let row = (0..dim).map(|j| (0..3).map(|k| z[k] * basis[k][j]).sum::<f64>() as f32);
                row.collect::<Vec<_>>()
            })
            .collect();
        let hasher = learn(config(), dim, &flat).hasher_with(dim, Rotation::None).unwrap();
        assert_eq!(hasher.rank(), 3, "{method:?}");
    }
}

/// A planted direction with a thousandth of the largest standard deviation is found after many shrinks and blocks.
#[test]
fn a_small_direction_survives_a_long_stream() {
    let (n, dim) = (20_000, 32);
    let data = planted(n, dim, 1, 1e4, 7);
    let mut random = Random(70);
    let small = {
        let mut v = random.orthonormal(1, dim).remove(0);
        let along = dot(&v, &data.basis[0]);
        v.iter_mut().zip(&data.basis[0]).for_each(|(x, u)| *x -= along * u);
        let length = dot(&v, &v).sqrt();
        v.iter_mut().for_each(|x| *x /= length);
        v
    };
    let mut rows = data.rows;
    for row in rows.chunks_exact_mut(dim) {
        let z = 5e-3 * random.normal();
        row.iter_mut().zip(&small).for_each(|(x, u)| *x += (z * u) as f32);
    }
    for method in LEARNERS {
        let config = Config::new(dim).sketch_rows(16).block_rows(256).method(method);
        let hasher = learn(config, dim, &rows).hasher_with(2, Rotation::None).unwrap();
        let cosine = common::cosine(&[data.basis[0].clone(), small.clone()], &hasher);
        eprintln!("{method:?}: cosine {cosine:.6}");
        assert!(cosine > 0.99, "{method:?}: {cosine}");
    }
}
