//! Compares the sub-block evaluation with the dense matrix Phi, and checks the statistics of Phi.

use super::*;
use crate::random::{Address, Purpose, Stream};
use faer::Mat;

/// Phi, unscaled, from the definition: entry (k, i).
fn dense(kind: Kind, q: usize, m: usize, seed: u64, worker: u64, trial: u64) -> Mat<f64> {
    let p = srht::height(q, m);
    let at = Address { seed, worker, run: 0 };
    let mut phi = Mat::zeros(q, m);
    let first = trial * (m / p) as u64;
    match kind {
        Kind::Srht => {
            let rho = srht::sample(at, trial, q, m);
            let signs: Vec<f32> =
                (0..m / p).flat_map(|b| srht::signs(at, first + b as u64, p)).collect();
            for k in 0..q {
                for i in 0..m {
                    let h =
                        if (rho[k] & i as u32).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
                    phi[(k, i)] = h * f64::from(signs[i]);
                }
            }
        }
        Kind::Sparse => {
            for b in 0..m / p {
                let buckets = sparse_embedding::buckets(at, first + b as u64, p, q);
                for (i, (h, s)) in buckets.into_iter().enumerate() {
                    phi[(h as usize, b * p + i)] = f64::from(s);
                }
            }
        }
    }
    phi
}

fn whole_numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut stream = Stream::new(seed, Purpose::Lsh, 9, 9);
    (0..n).map(|_| stream.below(41) as f32 - 20.0).collect()
}

/// Compares a compressed block with the product of the dense matrix. All values are integers, so both are exact
/// and must be equal.
fn compare(kind: Kind, q: usize, m: usize, d: usize, rows: usize, cuts: usize, pool: &Pool) {
    let mut block = Block::new(kind, d, q, m, 5, 3);
    block.trial = 2;
    let p = block.p;
    let mut data = whole_numbers(rows * d, (q * m + d) as u64);
    let live = if rows.is_multiple_of(p) { p } else { rows % p };
    let padded = rows.next_multiple_of(p);
    let mut centering = Centering::new(d, None);
    let reference = whole_numbers(d, 77);
    centering.reference.copy_from_slice(&reference);
    // Padding rows are zero after the reference is subtracted.
    for _ in rows..padded {
        data.extend_from_slice(&reference);
    }
    let count = padded / p;
    let mut at = 0;
    while at < count {
        let now = cuts.min(count - at);
        let live = if at + now == count { live } else { p };
        block.absorb(
            (pool, pool.threads()),
            &data[at * p * d..(at + now) * p * d],
            live,
            true,
            &mut centering,
        );
        at += now;
    }
    let phi = dense(kind, q, m, 5, 3, 2);
    for k in 0..q {
        for c in 0..d {
            let want: f64 =
                (0..rows).map(|i| phi[(k, i)] * f64::from(data[i * d + c] - reference[c])).sum();
            assert_eq!(f64::from(block.acc[k * d + c]), want, "{kind:?} q={q} m={m} k={k} c={c}");
        }
        let ones: f64 = (0..rows).map(|i| phi[(k, i)]).sum();
        assert_eq!(block.tally[k] as f64, ones);
    }
    assert_eq!(centering.rows, rows as u64);
    for c in 0..d {
        let sum: f64 = (0..rows).map(|i| f64::from(data[i * d + c] - reference[c])).sum();
        assert_eq!(centering.sum[c], sum);
    }
}

#[test]
fn sub_blocks_add_up_to_the_dense_transform() {
    let pools = [Pool::ONE, Pool::new(3).unwrap()];
    for kind in [Kind::Srht, Kind::Sparse] {
        for q in [1usize, 2, 3, 8, 12, 32, 50] {
            let least = q.next_power_of_two().max(2);
            for c in 0..4 {
                let m = least << c;
                for (rows, d) in [(m, 3), (m, 150), (m - m / 3, 7), (1, 2)] {
                    compare(kind, q, m, d, rows.max(1), 2, &pools[c % 2]);
                }
            }
        }
    }
}

#[test]
fn the_cut_into_calls_changes_nothing() {
    for cuts in [1, 2, 3, 100] {
        compare(Kind::Srht, 12, 128, 70, 128, cuts, &Pool::ONE);
        compare(Kind::Sparse, 12, 128, 70, 128, cuts, &Pool::ONE);
    }
}

#[test]
fn sampling_all_rows_loses_nothing() {
    for q in [2, 8, 32] {
        let phi = dense(Kind::Srht, q, q, 1, 0, 0);
        let gram = phi.transpose() * &phi;
        for i in 0..q {
            for j in 0..q {
                assert_eq!(gram[(i, j)] / q as f64, f64::from(u8::from(i == j)));
            }
        }
    }
}

/// E Phi'Phi = I: the mean over many trials, for each entry, within five standard deviations.
#[test]
fn on_average_the_gram_matrix_is_kept() {
    let (q, m, trials) = (4, 16, 4000u64);
    for kind in [Kind::Srht, Kind::Sparse] {
        let scale = if kind == Kind::Srht { 1.0 / q as f64 } else { 1.0 };
        let mut mean = Mat::<f64>::zeros(m, m);
        for t in 0..trials {
            let phi = dense(kind, q, m, 11, 0, t);
            mean += phi.transpose() * &phi * faer::Scale(scale / trials as f64);
        }
        // Off-diagonal entries of one trial have variance at most 1 / q.
        let tolerance = 5.0 / ((q as u64 * trials) as f64).sqrt();
        for i in 0..m {
            for j in 0..m {
                let want = f64::from(u8::from(i == j));
                let got = mean[(i, j)];
                assert!((got - want).abs() <= tolerance, "{kind:?} {i} {j}: {got}");
            }
        }
    }
}

/// Squared error of one trial, and of the mean of `trials`, as a multiple of tr^2 + |M|^2.
fn error(kind: Kind, f: &Mat<f64>, q: usize, trials: u64, seed: u64, fresh: bool) -> f64 {
    let m = f.nrows();
    let exact = f.transpose() * f;
    let scale = if kind == Kind::Srht { 1.0 / q as f64 } else { 1.0 };
    let mut mean = Mat::<f64>::zeros(f.ncols(), f.ncols());
    for t in 0..trials {
        let phi = dense(kind, q, m, seed, 0, if fresh { t } else { 0 });
        let small = phi * f;
        mean += small.transpose() * &small * faer::Scale(scale / trials as f64);
    }
    let trace: f64 = (0..f.ncols()).map(|i| exact[(i, i)]).sum();
    (mean - &exact).squared_norm_l2() / (trace * trace + exact.squared_norm_l2())
}

fn rows_of_normals(m: usize, d: usize) -> Mat<f64> {
    let mut stream = Stream::new(3, Purpose::Lsh, 0, 0);
    let mut f = Mat::zeros(m, d);
    for j in 0..d {
        for i in 0..m {
            f[(i, j)] = stream.normal() / (1.0 + j as f64);
        }
    }
    f
}

/// E |F'Phi'Phi F - F'F|^2 = (tr^2 + |M|^2) / q * (m - q) / (m - 1), within 10 %.
#[test]
fn the_error_of_one_block_follows_its_law() {
    let (m, d, repeats) = (64, 6, 1500);
    let f = rows_of_normals(m, d);
    for q in [8, 16, 32] {
        let seeds = 0..repeats;
        let mean: f64 =
            seeds.map(|s| error(Kind::Srht, &f, q, 1, s, true)).sum::<f64>() / repeats as f64;
        let law = (m - q) as f64 / (m - 1) as f64 / q as f64;
        assert!((mean / law - 1.0).abs() < 0.1, "q = {q}: {mean} against {law}");
    }
}

#[test]
fn fresh_randomness_averages_out_and_reused_randomness_does_not() {
    let f = rows_of_normals(64, 6);
    for kind in [Kind::Srht, Kind::Sparse] {
        let mean = |trials, fresh| {
            (0..60).map(|s| error(kind, &f, 8, trials, s, fresh)).sum::<f64>() / 60.0
        };
        let (one, many) = (mean(1, true), mean(25, true));
        // The squared error falls by 25; four standard deviations of a mean of 60 such squares are 60 %.
        assert!((one / many / 25.0 - 1.0).abs() < 0.6, "{kind:?}: {one} {many}");
        let reused = mean(25, false);
        assert!(one / reused < 2.0, "reusing one transform must not average: {one} {reused}");
    }
}

#[test]
fn heights_are_powers_of_two_within_the_block() {
    for (q, m, p) in [(1, 2, 2), (2, 64, 4), (32, 4096, 64), (33, 4096, 64)] {
        assert_eq!(srht::height(q, m), p, "q = {q}");
    }
    assert_eq!(srht::height(64, 4096), 64);
    assert_eq!(srht::height(100, 4096), 64);
    assert_eq!(srht::height(128, 128), 128);
    assert_eq!(srht::height(8, 8), 8);
}

#[test]
fn panels_cover_all_columns_for_any_number_of_threads() {
    for (dim, p, threads) in [(1, 2, 1), (960, 64, 1), (960, 64, 2), (25_600, 128, 2), (70, 64, 8)]
    {
        for kind in [Kind::Srht, Kind::Sparse] {
            let width = panel_width(kind, dim, p, threads);
            assert!(width >= 1 && (width.is_multiple_of(64)), "{dim} {p} {threads}: {width}");
        }
    }
}

/// Blocks of one stream, as (first row, rows, whether compressed), until `rows` rows.
fn sizes(q: usize, m: usize, rows: u64) -> Vec<(u64, u64, bool)> {
    let mut block = Block::new(Kind::Srht, 1, q, m, 0, 0).growing();
    let (mut before, mut blocks) = (0, Vec::new());
    while before < rows {
        block.begin(before);
        let size = if block.uncompressed { q } else { block.m } as u64;
        blocks.push((before, size, !block.uncompressed));
        before += size;
    }
    blocks
}

#[test]
fn blocks_grow_with_the_row_number() {
    let shapes = [(1, 4), (8, 64), (12, 4096), (64, 4096), (100, 1 << 16)];
    let growth = GROWTH;
    for (q, m) in shapes {
        let blocks = sizes(q, m, 40 * m as u64);
        let p = srht::height(q, m) as u64;
        for (before, size, compressed) in &blocks {
            if *compressed {
                assert!(size.is_power_of_two() && *size >= 2 * p && *size <= m as u64);
                assert!(growth * size <= *before, "{size} rows after {before}");
                assert!(*size == m as u64 || 2 * growth * size > *before, "as large as may be");
            } else {
                assert!(*before < growth * 2 * p, "not compressed after {before} rows");
            }
        }
        assert!(blocks.windows(2).all(|pair| pair[0].2 <= pair[1].2), "once compressed, always");
        assert_eq!(blocks.last().unwrap().1, m as u64);
        // The error bound for every n: the squared shares of the compressed blocks sum to at most 1 / (2 g), plus
        // one block if n is just after its end.
        let mut squares = 0.0;
        for (before, size, compressed) in blocks {
            squares += if compressed { (size * size) as f64 } else { 0.0 };
            let n = (before + size) as f64;
            let law = 0.5 / growth as f64 + 1.0 / (growth * growth) as f64;
            assert!(squares / (n * n) <= law, "q = {q}, m = {m}, n = {n}: {}", squares / (n * n));
        }
    }
}

#[test]
fn equal_blocks_are_counted_to_where_the_size_changes() {
    let mut block = Block::new(Kind::Srht, 1, 8, 256, 0, 0).growing();
    let blocks: Vec<_> = sizes(8, 256, 9000).into_iter().filter(|block| block.2).collect();
    for (i, (before, size, _)) in blocks.iter().enumerate() {
        block.begin(*before);
        let want = blocks[i..].iter().take_while(|b| b.1 == *size).count().min(5);
        if i + 5 < blocks.len() {
            assert_eq!(block.equal_blocks(*before, 5), want, "after {before} rows");
        }
    }
}
