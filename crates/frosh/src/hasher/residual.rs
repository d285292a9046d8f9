//! Fits the distance [`estimator`] on sampled rows: quantiser ranges, and how much of
//! the cross term lies beyond the directions.
//!
//! **Equation.** With x' and y' what the directions leave out of two centred rows, the cross term <x', y'> is near zero on
//! average, and the estimate of a distance leaves it out. Not so for rows that are near each other: who agrees along the
//! directions tends to agree beyond them. The coefficient
//!
//! ```text
//! beta = sum <x', y'> p / sum p^2,    p = g S |x'| / |u|
//! ```
//!
//! over pairs of sampled rows that the estimate itself calls nearest (4 of 1,024 for each of 64) is how much of it goes
//! along with g S. Pairs must be chosen by the estimate, since that is what a search does: chosen by their true distance they
//! would promise too much. The gain of a row becomes g (1 + beta |x'| / |u|).
//!
//! **On trial.** The slope helps at the top of the list, where near-duplicates are, and costs further down, where pairs
//! agree less beyond the directions than along them. Which of both counts more depends on the rows. So 128 further
//! sampled rows ask for the others with the slope, with half of it and without it (`trial.rs`), and what has the best
//! mean of recall@10 and recall@100 stays.
//!
//! **Where we differ.** RaBitQ rotates all dimensions and leaves nothing out.
//!
//! **Cost.** Products of 2,048 sampled rows with the directions and with 128 of themselves, and of 1,024 with 64.

use crate::hasher::estimator::{self, Factors, Scales};
use crate::hasher::trial::{self, Trial};
use crate::linalg::{self, product};
use crate::pool::Pool;
use crate::sketch::Sketch;
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, Par};

/// Sampled rows that the slope is learned from.
const ROWS: usize = 1024;
/// How many of them are queries, and how many rows each of them finds.
const QUERIES: usize = 64;
const NEAR: usize = 4;
/// Rows whose signed sums are computed together.
const PIECE: usize = 512;
/// How many neighbours the estimate should find: as many as a page of results shows, and as many as are re-ranked.
const DEPTHS: [usize; 2] = [10, 100];

/// What is known of a sampled row: its squared length, its plain gain, and |x'| / |u|.
#[derive(Clone, Copy)]
struct Known {
    square: f64,
    gain: f64,
    left_out: f64,
}

impl Known {
    fn new(square: f64, along: &[f32], share: f64) -> Self {
        let squares = along.iter().map(|u| f64::from(u * u)).sum();
        let gain = Factors::new(square, along, share, 0.0).gain;
        Self { square, gain, left_out: estimator::left_out(square, squares) }
    }

    fn factors(&self, residual: f64) -> Factors {
        Factors { norm: self.square.sqrt(), gain: self.gain * (1.0 + residual * self.left_out) }
    }
}

/// Scales for rows like these.
fn scales_around(rows: &[Known], residual: f64) -> Option<Scales> {
    Scales::around(&rows.iter().map(|row| row.factors(residual)).collect::<Vec<_>>(), residual)
}

impl Sketch {
    /// What the factors of rows are made with; none where there is no sample. The directions are the columns of `w`;
    /// `share` is that of [`Factors::new`].
    pub(crate) fn scales(&self, pool: &Pool, w: MatRef<'_, f32>, share: f64) -> Option<Scales> {
        self.scales_for(pool, w, share, &DEPTHS)
    }

    /// The same, for who asks for so many neighbours.
    fn scales_for(
        &self,
        pool: &Pool,
        w: MatRef<'_, f32>,
        share: f64,
        depths: &[usize],
    ) -> Option<Scales> {
        // LSH's directions do not divide a row in what they hold and what they leave out.
        if share < 1.0 || self.reservoir.len() < ROWS {
            let zero = vec![0f32; self.dim];
            let rows = self.project_sample(pool, trial::ROWS, w, |row, along| {
                Known::new(estimator::square_norm(row, &zero), along, share)
            });
            return scales_around(&rows, 0.0);
        }
        let (rows, along) = self.known_rows(pool, w, share);
        let slope = self.slope(pool, &rows, along.as_ref());
        let slope = if slope > 0.0 {
            self.tried(pool, &rows, along.as_ref(), slope, depths)
        } else {
            slope
        };
        scales_around(&rows, slope)
    }

    /// What is known of sampled rows, and what they have along the directions, a column for each.
    fn known_rows(&self, pool: &Pool, w: MatRef<'_, f32>, share: f64) -> (Vec<Known>, Mat<f32>) {
        let zero = vec![0f32; self.dim];
        let sample = self.project_sample(pool, trial::ROWS, w, |row, along| {
            (Known::new(estimator::square_norm(row, &zero), along, share), along.to_vec())
        });
        let (rows, along): (Vec<Known>, Vec<Vec<f32>>) = sample.into_iter().unzip();
        let along = Mat::from_fn(w.ncols(), rows.len(), |k, i| along[i][k]);
        (rows, along)
    }

    /// Beta, from pairs of rows that the estimate calls near.
    fn slope(&self, pool: &Pool, rows: &[Known], along: MatRef<'_, f32>) -> f64 {
        let along = along.subcols(0, ROWS);
        let queries = self.reservoir.map_parts(pool, &self.mean, QUERIES, <[f32]>::to_vec).concat();
        let queries = MatRef::from_column_major_slice(&queries, self.dim, QUERIES);
        let products = self.sample_along(pool, ROWS, queries);
        let asked = along.subcols(0, QUERIES);
        let inside = product(along.transpose(), asked);
        let sums = signed_sums(pool, along, asked);
        let (mut above, mut below) = (0f64, 0f64);
        for j in 0..QUERIES {
            let mut found: Vec<(f64, usize)> = (0..ROWS)
                .filter(|i| *i != j)
                .map(|i| (rows[i].square - 2.0 * rows[i].gain * f64::from(sums[(i, j)]), i))
                .collect();
            found.select_nth_unstable_by(NEAR, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            // In the order of rows, so that sums do not depend on how the nearest were found.
            let mut near: Vec<usize> = found[..NEAR].iter().map(|f| f.1).collect();
            near.sort_unstable();
            for i in near {
                let left_out = f64::from(products[(i, j)]) - f64::from(inside[(i, j)]);
                let predicted = rows[i].gain * f64::from(sums[(i, j)]) * rows[i].left_out;
                above += left_out * predicted;
                below += predicted * predicted;
            }
        }
        if below > 0.0 { (above / below).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// The slope, half of it or none: whichever finds most of the exact neighbours of further sampled rows.
    fn tried(
        &self,
        pool: &Pool,
        rows: &[Known],
        along: MatRef<'_, f32>,
        slope: f64,
        depths: &[usize],
    ) -> f64 {
        let asking = QUERIES..QUERIES + trial::QUERIES;
        let Some(trial) = Trial::new(self, pool, asking, depths) else { return slope };
        let asked = along.subcols(trial.asking().start, trial.asking().len());
        let sums = signed_sums(pool, along, asked);
        let slopes = [slope, slope / 2.0, 0.0];
        let scores = slopes.map(|slope| {
            // By the factors as a byte holds them.
            let Some(scales) = scales_around(rows, slope) else { return Vec::new() };
            let tables = scales.tables();
            let kept = |row: &Known| {
                let mut byte = [0u8];
                scales.encode(row.factors(slope), &mut byte);
                tables.each_ref().map(|table| table[usize::from(byte[0])])
            };
            let kept: Vec<[f32; 2]> = rows.iter().map(kept).collect();
            trial.recall(pool, |query, out| {
                let sums = sums.col_as_slice(query);
                for ((out, [norm, gain]), sum) in out.iter_mut().zip(&kept).zip(sums) {
                    *out = norm * norm - 2.0 * gain * sum;
                }
            })
        });
        slopes[trial::choose(&scores)]
    }
}

/// S of every row (rows of the result) for every query (columns): the sums of the queries' values along the directions,
/// with the signs of the row's.
fn signed_sums(pool: &Pool, along: MatRef<'_, f32>, asked: MatRef<'_, f32>) -> Mat<f32> {
    let (bits, n) = along.shape();
    let mut sums = Mat::zeros(n, asked.ncols());
    pool.each(linalg::row_pieces(sums.as_mut(), PIECE), |(from, to)| {
        let sign = |k, i| if along[(k, from + i)] > 0.0 { 1f32 } else { -1.0 };
        let signs = Mat::from_fn(bits, to.nrows(), sign);
        matmul(to, Accum::Replace, signs.transpose(), asked, 1.0, Par::Seq);
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

    /// 1,500 rows about so many centres; with 1,500 centres every row is by itself.
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

    /// The slope before it is tried.
    fn learned(sketch: &Sketch, hasher: &Hasher) -> f64 {
        let (rows, along) = sketch.known_rows(&Pool::ONE, columns(hasher), 1.0);
        sketch.slope(&Pool::ONE, &rows, along.as_ref())
    }

    fn columns(hasher: &Hasher) -> MatRef<'_, f32> {
        MatRef::from_column_major_slice(&hasher.directions, hasher.dim(), hasher.bits())
    }

    /// The definition, row by row.
    fn slowly(sketch: &Sketch, hasher: &Hasher) -> f64 {
        let sample = sketch.reservoir.map_parts(&Pool::ONE, &sketch.mean, ROWS, <[f32]>::to_vec);
        let double = |x: &f32| f64::from(*x);
        let sample: Vec<f64> = sample.concat().iter().map(double).collect();
        let x: Vec<&[f64]> = sample.chunks(DIM).collect();
        let w: Vec<Vec<f64>> =
            (0..BITS).map(|k| hasher.direction(k).iter().map(double).collect()).collect();
        let u: Vec<Vec<f64>> = x.iter().map(|x| w.iter().map(|w| dot(x, w)).collect()).collect();
        let (mut above, mut below) = (0.0, 0.0);
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
                above += left_out * p;
                below += p * p;
            }
        }
        above / below
    }

    #[test]
    fn near_rows_agree_beyond_the_directions_as_much_as_they_do() {
        let found = [(1500, 0.0), (100, 0.3), (30, 0.1)].map(|(centres, spread)| {
            let sketch = sketch(&rows(centres, spread), Method::Frosh);
            let hasher = sketch.hasher_with(BITS, Rotation::Random).unwrap();
            let got = learned(&sketch, &hasher);
            let want = slowly(&sketch, &hasher).clamp(0.0, 1.0);
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
    fn lsh_and_small_samples_have_nothing_beyond() {
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

    /// The recall of a model with these scales, for queries that it has not seen.
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

    /// The slope brings near-duplicates to the top, and what comes behind them out of order.
    #[test]
    fn the_choice_follows_the_depth() {
        // All rows are sampled; one in five is.
        for (rows, groups, shallow, deep) in [(4000, 400, 10, 100), (20_000, 400, 50, 500)] {
            let base = duplicates(rows, groups, 4);
            let mut sketcher = Sketcher::new(Config::new(WIDE).sketch_rows(32)).unwrap();
            sketcher.push(Rows::new(&base, WIDE).unwrap()).unwrap();
            let sketch = sketcher.finish();
            let hasher = sketch.hasher(16).unwrap();
            let pool = Pool::new(3).unwrap();
            let [on, off] = [shallow, deep].map(|depth| {
                let chosen = sketch.scales_for(&pool, columns(&hasher), 1.0, &[depth]).unwrap();
                let again = sketch.scales_for(&Pool::ONE, columns(&hasher), 1.0, &[depth]);
                assert_eq!(again, Some(chosen), "threads do not matter");
                chosen
            });
            assert_eq!(on.residual(), learned(&sketch, &hasher), "{rows} rows, depth {shallow}");
            assert_eq!(off.residual(), 0.0, "{rows} rows, depth {deep}");
            // What the sample said is true of the whole base.
            let queries = duplicates(400, groups, 5);
            let recall = |scales, k| recall(&hasher, scales, &base, &queries, k);
            let at_top = [on, off].map(|scales| recall(scales, shallow));
            let behind = [on, off].map(|scales| recall(scales, deep));
            assert!(at_top[0] > at_top[1] && behind[0] < behind[1], "{at_top:?} {behind:?}");
        }
    }
}
