//! k-means with 256 centres, from few coordinates to all.
//!
//! With many coordinates, k-means from random rows ends in a poor local optimum. So it begins with the few coordinates
//! of the largest variance, and the centres found there are the start for more coordinates, up to all of them. (FAISS
//! trains its residual quantiser so; on GloVe the squared error of a code falls by an eighth.)

use super::codebooks::WORDS as CENTRES;
use crate::arch::Isa;
use crate::arch::byte_products::{self, ByteRows, ByteVectors};
use crate::arch::sixteen::{F32x16, Floats, Work16};
use crate::pool::Pool;
use crate::random::Stream;

/// Numbers of coordinates: d^(1/STEPS), d^(2/STEPS) and so on, up to d.
const STEPS: usize = 5;
/// Rounds for each number of coordinates, and for all of them: least squares move the centres again (`least_squares.rs`).
const ROUNDS: usize = 4;
const LAST_ROUNDS: usize = 2;
/// Rows of a task.
const TASK_ROWS: usize = 512;

/// 256 centres of rows of `width` coordinates. The coordinates of the rows are left in another order, which saves a
/// copy of them.
pub(super) fn k_means(
    pool: &Pool,
    rows: &mut [f32],
    width: usize,
    stream: &mut Stream,
) -> Vec<f32> {
    let order = by_variance(rows, width);
    // Rounded once: the first coordinates are the largest ones, so that fewer of them have the same scale.
    let mut bytes = Vec::new();
    bytes.resize_with((rows.len() / width).div_ceil(TASK_ROWS), ByteRows::default);
    let jobs = rows.chunks_mut(TASK_ROWS * width).zip(&mut bytes).collect();
    pool.each(jobs, |(rows, bytes): (&mut [f32], &mut ByteRows)| {
        let mut copy = vec![0f32; width];
        for row in rows.chunks_exact_mut(width) {
            copy.copy_from_slice(row);
            row.iter_mut().zip(&order).for_each(|(x, j)| *x = copy[*j]);
        }
        bytes.load(Isa::detect(), rows, width, 0..width);
    });
    let sorted = &*rows;
    let n = sorted.len() / width;
    let random = |stream: &mut Stream| stream.below(n as u64) as usize;
    let mut centres = vec![0f32; CENTRES * width];
    let mut nearest = vec![0u32; n];
    let mut before = 0;
    for step in 1..=STEPS {
        let used = (width as f64).powf(step as f64 / STEPS as f64).round() as usize;
        let used = used.clamp(1, width);
        if used == before {
            continue;
        }
        if before == 0 {
            for centre in centres.chunks_exact_mut(width) {
                let row = random(stream);
                centre[..used].copy_from_slice(&sorted[row * width..][..used]);
            }
        }
        before = used;
        bytes.iter_mut().for_each(|bytes| bytes.limit(used));
        for _ in 0..if used == width { LAST_ROUNDS } else { ROUNDS } {
            assign(pool, &bytes, width, used, &centres, &mut nearest);
            for empty in update(pool, sorted, width, used, &mut centres, &nearest) {
                // A centre without rows starts again at a random row.
                let row = random(stream);
                centres[empty * width..][..used].copy_from_slice(&sorted[row * width..][..used]);
            }
        }
    }
    let mut found = vec![0f32; centres.len()];
    for (to, from) in found.chunks_exact_mut(width).zip(centres.chunks_exact(width)) {
        order.iter().zip(from).for_each(|(j, x)| to[*j] = *x);
    }
    found
}

/// The nearest centre of each row.
pub(super) fn nearest(pool: &Pool, rows: &[f32], width: usize, centres: &[f32]) -> Vec<u32> {
    let mut bytes = Vec::new();
    bytes.resize_with((rows.len() / width).div_ceil(TASK_ROWS), ByteRows::default);
    let jobs = bytes.iter_mut().zip(rows.chunks(TASK_ROWS * width)).collect();
    pool.each(jobs, |(bytes, rows): (&mut ByteRows, &[f32])| {
        bytes.load(Isa::detect(), rows, width, 0..width);
    });
    let mut nearest = vec![0u32; rows.len() / width];
    assign(pool, &bytes, width, width, centres, &mut nearest);
    nearest
}

/// The coordinates from the largest variance to the smallest, by some of the rows.
fn by_variance(rows: &[f32], width: usize) -> Vec<usize> {
    const ROWS: usize = 4096;
    let some = &rows[..rows.len().min(ROWS * width)];
    let variances = super::train::deviations(some, width);
    let mut order: Vec<usize> = (0..width).collect();
    order.sort_by(|a, b| variances[*b].total_cmp(&variances[*a]));
    order
}

/// Finds the nearest centre of each row by the first `used` coordinates.
fn assign(
    pool: &Pool,
    rows: &[ByteRows],
    width: usize,
    used: usize,
    centres: &[f32],
    nearest: &mut [u32],
) {
    let square = |c: &[f32]| c[..used].iter().map(|x| x * x).sum::<f32>();
    let squares: Vec<f32> = centres.chunks_exact(width).map(square).collect();
    let near: Vec<f32> = centres.chunks_exact(width).flat_map(|c| &c[..used]).copied().collect();
    let near = ByteVectors::new(&near, used);
    let jobs = nearest.chunks_mut(TASK_ROWS).zip(rows).collect();
    pool.each(jobs, |(nearest, rows): (&mut [u32], &ByteRows)| {
        let mut products = vec![0f32; nearest.len() * CENTRES];
        byte_products::products(Isa::detect(), &near, rows, &mut products, CENTRES);
        Isa::detect().sixteens(Nearest { products: &mut products, squares: &squares, nearest });
    });
}

/// Finds the nearest centre of each row by its products with the centres, which are overwritten.
struct Nearest<'a> {
    products: &'a mut [f32],
    /// Squared lengths of the centres.
    squares: &'a [f32],
    nearest: &'a mut [u32],
}

impl Work16 for Nearest<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: F32x16>(self, s: S) {
        let squares = self.squares.as_chunks::<16>().0;
        let rows = self.products.chunks_exact_mut(CENTRES);
        for (products, nearest) in rows.zip(self.nearest) {
            let scores: &mut [Floats] = products.as_chunks_mut::<16>().0;
            let mut least = s.splat(f32::INFINITY);
            for (score, square) in scores.iter_mut().zip(squares) {
                let product = s.load(score);
                let distance = s.sub(s.load(square), s.add(product, product));
                s.store(distance, score);
                least = s.min(least, distance);
            }
            least = s.min(least, s.swap8(least));
            least = s.min(least, s.swap4(least));
            least = s.min(least, s.swap2(least));
            least = s.min(least, s.swap1(least));
            for (i, score) in scores.iter().enumerate() {
                let found = s.equal(s.load(score), least);
                if found != 0 {
                    *nearest = 16 * i as u32 + found.trailing_zeros();
                    break;
                }
            }
        }
    }
}

/// Sets the first `used` coordinates of each centre to the mean of its rows. Returns the centres that have none.
fn update(
    pool: &Pool,
    rows: &[f32],
    width: usize,
    used: usize,
    centres: &mut [f32],
    nearest: &[u32],
) -> Vec<usize> {
    let mut counts = vec![0u32; CENTRES];
    nearest.iter().for_each(|to| counts[*to as usize] += 1);
    // Tasks take sixteen coordinates each, so that the order of a sum is that of the rows.
    let mut sums = vec![vec![[0f32; 16]; CENTRES]; used.div_ceil(16)];
    pool.each(sums.iter_mut().enumerate().collect(), |(piece, sums)| {
        let first = 16 * piece;
        Isa::detect().sixteens(Sums { rows, width, first, nearest, sums });
    });
    for (piece, sums) in sums.iter().enumerate() {
        let first = 16 * piece;
        for ((centre, sums), count) in centres.chunks_exact_mut(width).zip(sums).zip(&counts) {
            if *count > 0 {
                let own = centre[..used].iter_mut().skip(first).zip(sums);
                own.for_each(|(x, sum)| *x = sum / *count as f32);
            }
        }
    }
    (0..CENTRES).filter(|i| counts[*i] == 0).collect()
}

/// Adds sixteen coordinates of each row to the sums of its centre.
struct Sums<'a> {
    rows: &'a [f32],
    width: usize,
    first: usize,
    nearest: &'a [u32],
    sums: &'a mut [Floats],
}

impl Work16 for Sums<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: F32x16>(self, s: S) {
        let Sums { rows, width, first, nearest, sums } = self;
        for (row, to) in rows.chunks_exact(width).zip(nearest) {
            let sum = &mut sums[*to as usize];
            let own = &row[first..];
            match own.first_chunk::<16>() {
                Some(own) => s.store(s.add(s.load(sum), s.load(own)), sum),
                None => sum.iter_mut().zip(own).for_each(|(sum, x)| *sum += x),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;

    fn normal(n: usize, seed: u64) -> Vec<f32> {
        let mut stream = Stream::new(seed, Purpose::Sample, 5, 0);
        (0..n).map(|_| stream.normal() as f32).collect()
    }

    #[test]
    fn rows_go_to_the_nearest_centre_and_centres_to_the_mean_of_their_rows() {
        let (n, width) = (1300, 37);
        let (rows, mut centres) = (normal(n * width, 1), normal(CENTRES * width, 2));
        for used in [1, 16, 20, width] {
            let distance = |row: &[f32], centre: &[f32]| -> f32 {
                row[..used].iter().zip(centre).map(|(x, c)| (x - c) * (x - c)).sum()
            };
            let pool = Pool::new(3).unwrap();
            let mut nearest = vec![0u32; n];
            let mut bytes: Vec<ByteRows> = Vec::new();
            for rows in rows.chunks(TASK_ROWS * width) {
                let mut own = ByteRows::default();
                own.load(Isa::detect(), rows, width, 0..width);
                own.limit(used);
                bytes.push(own);
            }
            assign(&pool, &bytes, width, used, &centres, &mut nearest);
            // What rounding to bytes can change in a product with a centre: half a step of one factor for each value of
            // the other.
            let sum = |x: &[f32]| x[..used].iter().map(|x| x.abs()).sum::<f32>();
            let step =
                |x: &[f32], limit: f32| x.iter().fold(0f32, |most, x| most.max(x.abs())) / limit;
            let error = |row: &[f32], centre: &[f32]| {
                0.5 * (sum(centre) * step(row, 63.0)
                    + (sum(row) + step(row, 2.0)) * step(&centre[..used], 63.0))
            };
            for (row, nearest) in rows.chunks_exact(width).zip(&nearest) {
                let all = centres.chunks_exact(width).map(|centre| error(row, centre));
                let error = all.fold(0f32, f32::max);
                let all = centres.chunks_exact(width).map(|centre| distance(row, centre));
                let least = all.fold(f32::INFINITY, f32::min);
                let got = distance(row, &centres[*nearest as usize * width..][..width]);
                // A distance has two products, and two distances are compared.
                assert!(got <= least + 4.0 * error, "{used} coordinates: {got} and {least}");
            }
            let before = centres.clone();
            let empty = update(&pool, &rows, width, used, &mut centres, &nearest);
            for (i, centre) in centres.chunks_exact(width).enumerate() {
                let own: Vec<&[f32]> = rows
                    .chunks_exact(width)
                    .zip(&nearest)
                    .filter_map(|(row, to)| (*to as usize == i).then_some(row))
                    .collect();
                assert_eq!(own.is_empty(), empty.contains(&i));
                for (j, x) in centre.iter().enumerate() {
                    let mean = own.iter().map(|row| row[j]).sum::<f32>() / own.len() as f32;
                    let kept = own.is_empty() || j >= used;
                    let want = if kept { before[i * width + j] } else { mean };
                    assert!((x - want).abs() < 1e-5, "centre {i}, coordinate {j}");
                }
            }
        }
    }

    #[test]
    fn coordinates_of_the_centres_are_in_the_order_of_the_rows() {
        // Two far groups of rows along the last coordinate, which is the first one to be used.
        let (n, width) = (2000, 9);
        let mut rows = normal(n * width, 3);
        for (i, row) in rows.chunks_exact_mut(width).enumerate() {
            row[width - 1] += if i % 2 == 0 { 100.0 } else { -100.0 };
        }
        let stream = &mut Stream::new(1, Purpose::Codebooks, 0, 0);
        let centres = k_means(&Pool::ONE, &mut rows.clone(), width, stream);
        let nearest = nearest(&Pool::ONE, &rows, width, &centres);
        for (i, to) in nearest.iter().enumerate() {
            let last = centres[*to as usize * width + width - 1];
            assert!((last - if i % 2 == 0 { 100.0 } else { -100.0 }).abs() < 10.0, "{last}");
        }
    }
}
