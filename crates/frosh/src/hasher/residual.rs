//! Fits the distance [`estimator`] to sampled rows: quantiser ranges and the residual coefficient beta.
//!
//! **Equation.** Let x' and y' be the residuals of two centred rows outside the directions. Their cross term <x', y'> is
//! near zero on average, so a simple estimate omits it. For near rows it is positive: rows that agree along the directions
//! tend to agree outside them. The coefficient
//!
//! ```text
//! beta = sum <x', y'> p / sum p^2,    p = g S |x'| / |u|
//! ```
//!
//! is the least-squares slope of the cross term on p, over pairs of sampled rows that are nearest by the estimate itself
//! (4 of 1,024 rows for each of 64 queries). Pairs are chosen by the estimate because a search ranks by it; pairs that
//! are nearest by the true distance would give a beta that is too large. The gain of a row becomes
//! g (1 + beta |x'| / |u|).
//!
//! **Trial.** beta improves the top of the result list, where near-duplicates are. It makes results further down
//! worse, where pairs agree less outside the directions. Which effect is larger depends on the data. So beta, beta/2 and 0
//! are tried with 128 other sampled rows as queries (`trial.rs`). The one with the best mean of recall@10 and recall@100
//! is used.
//!
//! **Where we differ.** RaBitQ keeps all dimensions, so it has no residual.
//!
//! **Cost.** Products of 2,048 sampled rows with the directions and with 128 of themselves, and of 1,024 with 64. Those of
//! sampled rows with each other are the same for all directions ([`Pairs`]).

use crate::hasher::estimator::{self, Factors, MOST_BYTES, Scales};
use crate::hasher::trial::{self, Trial};
use crate::linalg::{self, product};
use crate::pool::Pool;
use crate::sketch::Sketch;
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, Par};

/// Sampled rows that beta is learned from.
const ROWS: usize = 1024;
/// How many of them are queries, and how many nearest rows of each query are used.
const QUERIES: usize = 64;
const NEAR: usize = 4;
/// Rows whose signed sums one task computes.
const PIECE: usize = 512;
/// Numbers of neighbours for which recall is measured: a typical page of results, and a typical number of candidates to
/// re-rank.
const DEPTHS: [usize; 2] = [10, 100];

/// A sampled row: its squared length, its gain with beta = 0, and |x'| / |u|.
#[derive(Clone, Copy)]
struct SampledRow {
    square: f64,
    gain: f64,
    left_out: f64,
}

impl SampledRow {
    fn new(square: f64, along: &[f32], share: f64) -> Self {
        let squares = along.iter().map(|u| f64::from(u * u)).sum();
        let gain = Factors::new(square, along, share, 0.0).gain;
        Self { square, gain, left_out: estimator::left_out(square, squares) }
    }

    fn factors(&self, residual: f64) -> Factors {
        Factors { norm: self.square.sqrt(), gain: self.gain * (1.0 + residual * self.left_out) }
    }
}

/// Fits the quantiser ranges to these rows.
fn scales_around(rows: &[SampledRow], residual: f64, bytes: usize) -> Option<Scales> {
    let factors: Vec<Factors> = rows.iter().map(|row| row.factors(residual)).collect();
    Scales::around(&factors, residual, bytes)
}

impl Sketch {
    /// Fits the distance estimator for one byte of factors and for two; `None` without a sample. The directions are the
    /// columns of `w`; `share` is that of [`Factors::new`].
    pub(crate) fn scales(
        &self,
        pool: &Pool,
        w: MatRef<'_, f32>,
        share: f64,
    ) -> [Option<Scales>; MOST_BYTES] {
        // The directions of LSH are not orthonormal, so the residual outside them is not defined.
        let pairs = if share < 1.0 { None } else { Pairs::new(self, pool) };
        self.scales_of(pool, w, share, pairs.as_ref())
    }

    /// The same with pairs of rows that are known; without pairs, beta is 0.
    pub(crate) fn scales_of(
        &self,
        pool: &Pool,
        w: MatRef<'_, f32>,
        share: f64,
        pairs: Option<&Pairs>,
    ) -> [Option<Scales>; MOST_BYTES] {
        let both =
            |rows: &[SampledRow], slope| [1, 2].map(|bytes| scales_around(rows, slope, bytes));
        let Some(pairs) = pairs else {
            let zero = vec![0f32; self.dim];
            let rows = self.project_sample(pool, trial::ROWS, w, |row, along| {
                SampledRow::new(estimator::square_norm(row, &zero), along, share)
            });
            return both(&rows, 0.0);
        };
        let (rows, along) = self.sampled_rows(pool, w, share);
        let mut slope = pairs.slope(pool, &rows, along.as_ref());
        if slope > 0.0 {
            slope = pairs.best_slope(pool, &rows, along.as_ref(), slope);
        }
        both(&rows, slope)
    }

    /// The sampled rows, and their projections on the directions: a column for each row.
    fn sampled_rows(
        &self,
        pool: &Pool,
        w: MatRef<'_, f32>,
        share: f64,
    ) -> (Vec<SampledRow>, Mat<f32>) {
        let zero = vec![0f32; self.dim];
        let sample = self.project_sample(pool, trial::ROWS, w, |row, along| {
            (SampledRow::new(estimator::square_norm(row, &zero), along, share), along.to_vec())
        });
        let (rows, along): (Vec<SampledRow>, Vec<Vec<f32>>) = sample.into_iter().unzip();
        let along = Mat::from_fn(w.ncols(), rows.len(), |k, i| along[i][k]);
        (rows, along)
    }
}

/// Pairs of sampled rows that beta is learned from and tried on. They do not depend on the directions.
pub(crate) struct Pairs {
    /// Products of [`ROWS`] rows (rows) with the first [`QUERIES`] of them (columns).
    products: Mat<f32>,
    trial: Option<Trial>,
}

impl Pairs {
    /// `None` if the sample is too small.
    pub(crate) fn new(sketch: &Sketch, pool: &Pool) -> Option<Self> {
        Self::for_depths(sketch, pool, &DEPTHS)
    }

    /// The same for other numbers of neighbours.
    fn for_depths(sketch: &Sketch, pool: &Pool, depths: &[usize]) -> Option<Self> {
        if sketch.fit_rows(ROWS).len() < ROWS {
            return None;
        }
        let part = sketch.reservoir.part(&sketch.mean, sketch.fit_rows(QUERIES));
        let mut queries = vec![0f32; QUERIES * sketch.dim];
        part.read(0..QUERIES, 0..sketch.dim, &mut queries);
        let queries = MatRef::from_column_major_slice(&queries, sketch.dim, QUERIES);
        let products = sketch.sample_along(pool, ROWS, queries);
        let trial = Trial::new(sketch, pool, QUERIES..QUERIES + trial::QUERIES, depths);
        Some(Self { products, trial })
    }

    /// Learns beta from pairs of rows that are nearest by the estimate.
    fn slope(&self, pool: &Pool, rows: &[SampledRow], along: MatRef<'_, f32>) -> f64 {
        let along = along.subcols(0, ROWS);
        let query_projections = along.subcols(0, QUERIES);
        let inside = product(along.transpose(), query_projections);
        let sums = signed_sums(pool, along, query_projections);
        let (mut numerator, mut denominator) = (0f64, 0f64);
        for j in 0..QUERIES {
            let mut found: Vec<(f64, usize)> = (0..ROWS)
                .filter(|i| *i != j)
                .map(|i| (rows[i].square - 2.0 * rows[i].gain * f64::from(sums[(i, j)]), i))
                .collect();
            found.select_nth_unstable_by(NEAR, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            // Sorted by row, so that the order of the sums does not depend on the selection.
            let mut near: Vec<usize> = found[..NEAR].iter().map(|f| f.1).collect();
            near.sort_unstable();
            for i in near {
                let left_out = f64::from(self.products[(i, j)]) - f64::from(inside[(i, j)]);
                let predicted = rows[i].gain * f64::from(sums[(i, j)]) * rows[i].left_out;
                numerator += left_out * predicted;
                denominator += predicted * predicted;
            }
        }
        if denominator > 0.0 { (numerator / denominator).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// `slope`, `slope / 2` or 0: the one with the best recall for other sampled rows as queries.
    fn best_slope(
        &self,
        pool: &Pool,
        rows: &[SampledRow],
        along: MatRef<'_, f32>,
        slope: f64,
    ) -> f64 {
        let Some(trial) = &self.trial else { return slope };
        let sums = signed_sums(pool, along, along.subcols(QUERIES, trial::QUERIES));
        let slopes = [slope, slope / 2.0, 0.0];
        let scores = slopes.map(|slope| {
            // With quantised factors, as a search has them.
            let Some(scales) = scales_around(rows, slope, 1) else { return Vec::new() };
            let tables = scales.tables();
            let quantised = |row: &SampledRow| {
                let mut byte = [0u8];
                scales.encode(row.factors(slope), &mut byte);
                tables.each_ref().map(|table| table[usize::from(byte[0])])
            };
            let quantised: Vec<[f32; 2]> = rows.iter().map(quantised).collect();
            trial.recall(pool, |query, out| {
                let sums = sums.col_as_slice(query);
                for ((out, [norm, gain]), sum) in out.iter_mut().zip(&quantised).zip(sums) {
                    *out = norm * norm - 2.0 * gain * sum;
                }
            })
        });
        slopes[trial::choose(&scores)]
    }
}

/// S of every row (rows of the result) and every query (columns): the sum of the query's projections with the signs of
/// the row's projections.
fn signed_sums(pool: &Pool, along: MatRef<'_, f32>, queries: MatRef<'_, f32>) -> Mat<f32> {
    let (bits, n) = along.shape();
    let mut sums = Mat::zeros(n, queries.ncols());
    pool.each(linalg::row_pieces(sums.as_mut(), PIECE), |(from, to)| {
        let sign = |k, i| if along[(k, from + i)] > 0.0 { 1f32 } else { -1.0 };
        let signs = Mat::from_fn(bits, to.nrows(), sign);
        matmul(to, Accum::Replace, signs.transpose(), queries, 1.0, Par::Seq);
    });
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream};
    use crate::{
        Config, ExactSearch, Hasher, Method, Metric, RankedEvaluation, Ranking, Rotation, Rows,
        Sketcher, Truth,
    };

    const DIM: usize = 24;
    const BITS: usize = 8;

    /// 1,500 rows in clusters around this many centres; with 1,500 centres no two rows share one.
    fn rows(centres: usize, spread: f64) -> Vec<f32> {
        let mut stream = Stream::new(3, Purpose::Sample, 0, 0);
        let centre: Vec<f64> = (0..centres * DIM).map(|_| stream.normal()).collect();
        let value = |e: usize, z: f64| {
            let at = e / DIM % centres * DIM + e % DIM;
            ((centre[at] + spread * z) / (1.0 + (e % DIM) as f64).powf(0.3)) as f32
        };
        (0..1500 * DIM).map(|e| value(e, stream.normal())).collect()
    }

    fn sketch(data: &[f32], method: Method) -> Sketch {
        let config = Config::new(DIM).sketch_rows(2 * BITS).block_rows(64).method(method);
        let mut sketcher = Sketcher::new(config).unwrap();
        sketcher.push(Rows::new(data, DIM).unwrap()).unwrap();
        sketcher.finish()
    }

    fn dot(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(x, y)| x * y).sum()
    }

    /// The learned slope, before the trial.
    fn learned(sketch: &Sketch, hasher: &Hasher) -> f64 {
        let (rows, along) = sketch.sampled_rows(&Pool::ONE, columns(hasher), 1.0);
        let pairs = Pairs::new(sketch, &Pool::ONE).unwrap();
        pairs.slope(&Pool::ONE, &rows, along.as_ref())
    }

    fn columns(hasher: &Hasher) -> MatRef<'_, f32> {
        MatRef::from_column_major_slice(&hasher.directions, hasher.dim(), hasher.bits())
    }

    /// The slope by definition, one row at a time.
    fn slope_by_definition(sketch: &Sketch, hasher: &Hasher) -> f64 {
        let sample = sketch.reservoir.map_parts(
            &Pool::ONE,
            &sketch.mean,
            sketch.fit_rows(ROWS),
            <[f32]>::to_vec,
        );
        let double = |x: &f32| f64::from(*x);
        let sample: Vec<f64> = sample.concat().iter().map(double).collect();
        let x: Vec<&[f64]> = sample.chunks(DIM).collect();
        let w: Vec<Vec<f64>> =
            (0..BITS).map(|k| hasher.direction(k).iter().map(double).collect()).collect();
        let u: Vec<Vec<f64>> = x.iter().map(|x| w.iter().map(|w| dot(x, w)).collect()).collect();
        let (mut numerator, mut denominator) = (0.0, 0.0);
        for y in 0..QUERIES {
            let mut pairs: Vec<[f64; 3]> = (0..ROWS)
                .filter(|i| *i != y)
                .map(|i| {
                    let (square, held) = (dot(x[i], x[i]), dot(&u[i], &u[i]));
                    let gain = held / u[i].iter().map(|u| u.abs()).sum::<f64>();
                    let sum: f64 = u[i].iter().zip(&u[y]).map(|(u, v)| u.signum() * v).sum();
                    let ratio = ((square - held).max(0.0) / held).sqrt();
                    let left_out = dot(x[i], x[y]) - dot(&u[i], &u[y]);
                    [square - 2.0 * gain * sum, left_out, gain * sum * ratio]
                })
                .collect();
            pairs.sort_by(|a, b| a[0].total_cmp(&b[0]));
            for [_, left_out, p] in &pairs[..NEAR] {
                numerator += left_out * p;
                denominator += p * p;
            }
        }
        numerator / denominator
    }

    #[test]
    fn the_slope_equals_its_definition() {
        let found = [(1500, 0.0), (100, 0.3), (30, 0.1)].map(|(centres, spread)| {
            let sketch = sketch(&rows(centres, spread), Method::Frosh);
            let hasher = sketch.hasher_with(BITS, Rotation::Random).unwrap();
            let got = learned(&sketch, &hasher);
            let want = slope_by_definition(&sketch, &hasher).clamp(0.0, 1.0);
            assert!((got - want).abs() < 1e-4, "{centres} centres: {got}, {want} by definition");
            let again = Hasher::from_bytes(&hasher.to_bytes()).unwrap();
            assert_eq!((again.scales(), again.id()), (hasher.scales(), hasher.id()));
            got
        });
        let [alone, loose, tight] = found;
        assert!(alone < 0.05 && loose > 0.2 && tight > loose, "{found:?}");
    }

    #[test]
    fn estimates_of_near_rows_are_nearer_to_the_truth() {
        let data = rows(100, 0.3);
        let sketch = sketch(&data, Method::Osh);
        let hasher = sketch.hasher_with(BITS, Rotation::Random).unwrap();
        let slope = learned(&sketch, &hasher);
        let projected = hasher.project(&Pool::ONE, Rows::new(&data, DIM).unwrap()).unwrap();
        let along: Vec<&[f32]> = projected.values.chunks_exact(BITS).collect();
        let mut errors = [0f64; 2];
        // Rows of the same centre.
        for (i, j) in (0..1400).map(|i| (i, i + 100)) {
            let pairs = data[i * DIM..][..DIM].iter().zip(&data[j * DIM..][..DIM]);
            let truth: f64 = pairs.map(|(a, b)| f64::from(a - b).powi(2)).sum();
            let signed = along[i].iter().zip(along[j]).map(|(u, v)| u.signum() * v);
            let sum: f64 = signed.map(f64::from).sum();
            for (error, residual) in errors.iter_mut().zip([0.0, slope]) {
                let gain = Factors::new(projected.square_norms[i], along[i], 1.0, residual).gain;
                let squares = projected.square_norms[i] + projected.square_norms[j];
                *error += (squares - 2.0 * gain * sum - truth).abs();
            }
        }
        assert!(errors[1] < 0.9 * errors[0], "{errors:?}");
    }

    #[test]
    fn lsh_and_small_samples_have_no_residual_coefficient() {
        let data = rows(30, 0.1);
        let lsh = sketch(&data, Method::Lsh).hasher_with(BITS, Rotation::None).unwrap();
        assert_eq!(lsh.scales().unwrap().residual(), 0.0);
        let few = sketch(&data[..900 * DIM], Method::Frosh).hasher(BITS).unwrap();
        assert_eq!(few.scales().unwrap().residual(), 0.0);
    }

    const WIDE: usize = 64;

    /// Rows in groups of near-duplicates; the groups themselves have no structure.
    fn duplicates(rows: usize, groups: usize, seed: u64) -> Vec<f32> {
        let mut stream = Stream::new(3, Purpose::Sample, 0, 0);
        let centre: Vec<f64> = (0..groups * WIDE).map(|_| stream.normal()).collect();
        let mut stream = Stream::new(seed, Purpose::Sample, 0, 0);
        let value = |e: usize, z: f64| {
            let at = e / WIDE % groups * WIDE + e % WIDE;
            ((centre[at] + 0.3 * z) / (1.0 + (e % WIDE) as f64).powf(0.3)) as f32
        };
        (0..rows * WIDE).map(|e| value(e, stream.normal())).collect()
    }

    /// The recall of a model with these scales, for queries that it was not learned from.
    fn recall(hasher: &Hasher, scales: Scales, base: &[f32], queries: &[f32], k: usize) -> f64 {
        let of = |data| Rows::new(data, WIDE).unwrap();
        let (facts, mean) = (hasher.facts, hasher.mean.clone());
        let hasher = Hasher::assemble(facts, mean, hasher.directions.clone(), Some(scales));
        let mut search = ExactSearch::new(of(queries), k, Metric::L2).unwrap();
        search.push(of(base)).unwrap();
        let ids = |found: &Vec<crate::Hit>| found.iter().map(|f| f.id).collect();
        let nearest: Vec<Vec<u64>> = search.finish().iter().map(ids).collect();
        let codes = hasher.encode_with_factors(of(base)).unwrap();
        let queries = hasher.queries(of(queries)).unwrap();
        let (ranking, truth) = (Ranking::Estimated, Truth::Nearest(k));
        RankedEvaluation::new(&queries, &codes, ranking, truth, &nearest)
            .unwrap()
            .recall(k)
            .unwrap()
    }

    /// The slope improves the order of near-duplicates at the top, and makes the order further down worse.
    #[test]
    fn the_choice_follows_the_depth() {
        // In the first case all rows are sampled, in the second one in five.
        for (rows, groups, shallow, deep) in [(4000, 400, 10, 100), (20_000, 400, 50, 500)] {
            let base = duplicates(rows, groups, 4);
            let mut sketcher = Sketcher::new(Config::new(WIDE).sketch_rows(32)).unwrap();
            sketcher.push(Rows::new(&base, WIDE).unwrap()).unwrap();
            let sketch = sketcher.finish();
            let hasher = sketch.hasher(16).unwrap();
            let pool = Pool::new(3).unwrap();
            let [on, off] = [shallow, deep].map(|depth| {
                let [chosen, again] = [&pool, &Pool::ONE].map(|pool| {
                    let pairs = Pairs::for_depths(&sketch, pool, &[depth]);
                    sketch.scales_of(pool, columns(&hasher), 1.0, pairs.as_ref())[0].unwrap()
                });
                assert_eq!(again, chosen, "threads do not matter");
                chosen
            });
            assert_eq!(on.residual(), learned(&sketch, &hasher), "{rows} rows, depth {shallow}");
            assert_eq!(off.residual(), 0.0, "{rows} rows, depth {deep}");
            // The result on the sample also holds for the entire base.
            let queries = duplicates(400, groups, 5);
            let recall = |scales, k| recall(&hasher, scales, &base, &queries, k);
            let at_top = [on, off].map(|scales| recall(scales, shallow));
            let behind = [on, off].map(|scales| recall(scales, deep));
            assert!(at_top[0] > at_top[1] && behind[0] < behind[1], "{at_top:?} {behind:?}");
        }
    }
}
