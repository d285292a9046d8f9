//! Recall of the estimated ranking on synthetic data with outliers.

use frosh::{
    Config, ExactSearch, Method, Metric, RankedEvaluation, Ranking, Rows, Sketcher, Truth,
};

const DIM: usize = 64;

/// Approximately standard normal numbers: sums of twelve uniform numbers.
struct Normal(u64);

impl Normal {
    fn next(&mut self) -> f32 {
        let mut uniform = || {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 40) as f32 / (1 << 24) as f32
        };
        (0..12).map(|_| uniform()).sum::<f32>() - 6.0
    }
}

/// Rows in clusters around forty centres, with decreasing variances. Each row is followed by its negation, so the mean
/// is zero, and a centred row of zeros has nearly no length.
fn clustered(rows: usize, seed: u64) -> Vec<f32> {
    let mut normal = Normal(7);
    let centres: Vec<f32> = (0..40 * DIM).map(|_| normal.next()).collect();
    let mut normal = Normal(seed);
    let mut row = |i: usize| -> Vec<f32> {
        let centre = &centres[i % 40 * DIM..][..DIM];
        let scale = |column: usize| (1.0 + column as f32).powf(-0.4);
        (0..DIM).map(|c| (centre[c] + 0.6 * normal.next()) * scale(c)).collect()
    };
    let pair = |row: Vec<f32>| row.clone().into_iter().chain(row.into_iter().map(|x| -x));
    (0..rows / 2).flat_map(|i| pair(row(i))).collect()
}

/// recall@10 of the estimated ranking of `base` by a model that learned from `rows`.
fn recall(method: Method, bits: usize, rows: &[f32], base: &[f32], queries: &[f32]) -> f64 {
    let of = |data| Rows::new(data, DIM).unwrap();
    let config = Config::new(DIM).method(method).sketch_rows(32).seed(3);
    let mut sketcher = Sketcher::new(config).unwrap();
    sketcher.push(of(rows)).unwrap();
    let hasher = sketcher.finish().hasher(bits).unwrap();
    let mut search = ExactSearch::new(of(queries), 10, Metric::L2).unwrap();
    search.push(of(base)).unwrap();
    let nearest: Vec<Vec<u64>> =
        search.finish().iter().map(|found| found.iter().map(|f| f.id).collect()).collect();
    let codes = hasher.encode_with_factors(of(base)).unwrap();
    let queries = hasher.queries(of(queries)).unwrap();
    let truth = Truth::Nearest(10);
    let measured =
        RankedEvaluation::new(&queries, &codes, Ranking::Estimated, truth, &nearest).unwrap();
    measured.recall(10).unwrap()
}

/// A quantiser range that included the outlier would have too wide steps for all other rows.
#[test]
fn an_outlier_in_a_thousand_rows_does_not_reduce_recall() {
    let (rows, queries) = (clustered(1000, 1), clustered(400, 2));
    // The same base for all, so that only the learned model differs.
    let of = |method, bits, learned: &[f32]| recall(method, bits, learned, &rows, &queries);
    for (method, bits) in [(Method::Frosh, 16), (Method::Lsh, 512)] {
        let mut outlier = rows.clone();
        outlier[333 * DIM..334 * DIM].fill(0.0);
        let (plain, got) = (of(method, bits, &rows), of(method, bits, &outlier));
        assert!(got > plain - 0.015, "{method}, a row of zeros: {got} against {plain}");
    }
    // Huge rows also change the mean and the directions. A row and its negation do not change the mean, and the directions
    // of LSH do not depend on the rows.
    let mut outlier = rows.clone();
    outlier[332 * DIM..334 * DIM].iter_mut().for_each(|x| *x *= 1e4);
    let (plain, got) = (of(Method::Lsh, 512, &rows), of(Method::Lsh, 512, &outlier));
    assert!(got > plain - 0.015, "two huge rows: {got} against {plain}");
}
