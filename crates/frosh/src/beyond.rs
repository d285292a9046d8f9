//! What a model needs to know for the [`factors`] of rows, from the sample: their scales, and how much of
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
//! **Where we differ.** RaBitQ rotates all dimensions and leaves nothing out.
//!
//! **Cost.** Products of 1,024 sampled rows with the directions and with 64 of themselves.

use crate::factors::{self, Factors, Scales};
use crate::linalg::product;
use crate::pool::Pool;
use crate::sketch::Sketch;
use faer::{Mat, MatRef};

/// Sampled rows that are looked at.
const ROWS: usize = 1024;
/// How many of them are queries, and how many rows each of them finds.
const QUERIES: usize = 64;
const NEAR: usize = 4;

impl Sketch {
    /// What the factors of rows are made with; none where there is no sample. The directions are the columns of `w`;
    /// `share` is that of [`Factors::new`].
    pub(crate) fn scales(&self, pool: &Pool, w: MatRef<'_, f32>, share: f64) -> Option<Scales> {
        let zero = vec![0f32; self.dim];
        let sample = self.project_sample(pool, ROWS, w, |row, along| {
            (factors::square_norm(row, &zero), along.to_vec())
        });
        // LSH's directions do not divide a row in what they hold and what they leave out.
        let beyond = if share < 1.0 { 0.0 } else { self.beyond(pool, &sample) };
        let all = sample.iter().map(|(square, along)| Factors::new(*square, along, share, beyond));
        Scales::around(&all.collect::<Vec<_>>(), beyond)
    }

    /// Beta, for rows with their squared lengths and what they have along the directions; 0 where the sample is small.
    fn beyond(&self, pool: &Pool, sample: &[(f64, Vec<f32>)]) -> f64 {
        if sample.len() < ROWS {
            return 0.0;
        }
        let queries = self.reservoir.map_parts(pool, &self.mean, QUERIES, <[f32]>::to_vec).concat();
        let queries = MatRef::from_column_major_slice(&queries, self.dim, QUERIES);
        let products = self.sample_along(pool, ROWS, queries);
        let bits = sample[0].1.len();
        let along = Mat::from_fn(bits, ROWS, |k, i| sample[i].1[k]);
        let signs = Mat::from_fn(bits, ROWS, |k, i| if along[(k, i)] > 0.0 { 1f32 } else { -1.0 });
        let asked = along.subcols(0, QUERIES);
        let (inside, sums) = (product(along.transpose(), asked), product(signs.transpose(), asked));
        let rows: Vec<(f64, f64, f64)> =
            sample.iter().map(|(square, u)| parts(*square, u)).collect();
        let (mut above, mut below) = (0f64, 0f64);
        for j in 0..QUERIES {
            let mut found: Vec<(f64, usize)> = (0..ROWS)
                .filter(|i| *i != j)
                .map(|i| (rows[i].0 - 2.0 * rows[i].1 * f64::from(sums[(i, j)]), i))
                .collect();
            found.select_nth_unstable_by(NEAR, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            // In the order of rows, so that sums do not depend on how the nearest were found.
            let mut near: Vec<usize> = found[..NEAR].iter().map(|f| f.1).collect();
            near.sort_unstable();
            for i in near {
                let left_out = f64::from(products[(i, j)]) - f64::from(inside[(i, j)]);
                let predicted = rows[i].1 * f64::from(sums[(i, j)]) * rows[i].2;
                above += left_out * predicted;
                below += predicted * predicted;
            }
        }
        if below > 0.0 { (above / below).clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// A row's squared length, its plain gain, and |x'| / |u|.
fn parts(square: f64, along: &[f32]) -> (f64, f64, f64) {
    let squares = along.iter().map(|u| f64::from(u * u)).sum();
    (square, Factors::new(square, along, 1.0, 0.0).gain, factors::left_out(square, squares))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream};
    use crate::{Config, Hasher, Method, Rotation, Rows, Sketcher};

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
            let got = hasher.scales().unwrap().beyond();
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
        let hasher = sketch(&data, Method::Osh).hasher_with(BITS, Rotation::Random).unwrap();
        let scales = hasher.scales().unwrap();
        let projected = hasher.project(&Pool::ONE, Rows::new(&data, DIM).unwrap()).unwrap();
        let along: Vec<&[f32]> = projected.values.chunks_exact(BITS).collect();
        let mut errors = [0f64; 2];
        // Rows of the same centre.
        for (i, j) in (0..1400).map(|i| (i, i + 100)) {
            let pairs = data[i * DIM..][..DIM].iter().zip(&data[j * DIM..][..DIM]);
            let truth: f64 = pairs.map(|(a, b)| f64::from(a - b).powi(2)).sum();
            let signed = along[i].iter().zip(along[j]).map(|(u, v)| u.signum() * v);
            let sum: f64 = signed.map(f64::from).sum();
            for (error, beyond) in errors.iter_mut().zip([0.0, scales.beyond()]) {
                let gain = Factors::new(projected.square_norms[i], along[i], 1.0, beyond).gain;
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
        assert_eq!(lsh.scales().unwrap().beyond(), 0.0);
        let few = sketch(&data[..900 * DIM], Method::Frosh).hasher(BITS).unwrap();
        assert_eq!(few.scales().unwrap().beyond(), 0.0);
    }
}
