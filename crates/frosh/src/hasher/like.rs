//! A hasher like an old one: new directions, turned so that few bits of the codes change. Not in the paper.
//!
//! **Equation.** With V the refined directions of the new sketch, Z = (X - mean) V for the sampled rows X, and T their
//! signs under the old hasher,
//!
//! ```text
//! R = polar(Z' T)                    the rotation whose projections Z R fit the old signs best
//! R <- polar(Z' sign(Z R))           some rounds of ITQ from there
//! W = V R
//! ```
//!
//! Without rounds the fewest bits change. Each round fits the new rows better, and changes more bits. After 50 rounds codes
//! are as good as those of a new hasher (measured: within .003 of MAP).
//!
//! **When.** Codes of the two hashers still do not compare: their ids differ, and mixing them loses more than keeping
//! the old hasher. It is for those who update codes in place, and pay for each bit that changes.
//!
//! **Cost.** That of a fit with the refined rotation, and a product of the sampled rows with the old directions.

use super::choice::{self, Directions, Truth};
use super::{Hasher, Rotation, rotation};
use crate::drift;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::pool::Pool;
use crate::rows::Rows;
use crate::search::ranking::Ranking;
use crate::sketch::config::Method;
use crate::sketch::{Principal, Sketch, products};
use faer::{Mat, MatRef};

/// Sampled rows that flipped bits are counted on, at most.
const COUNTED_ROWS: usize = 512;

impl Sketch {
    /// Fits a hasher of as many bits as `old`, turned so that few bits of the codes of `old` change. `rounds` of ITQ
    /// then fit it to the sampled rows: 0 for the fewest changed bits, 3 for few, 50 for codes as good as those of a
    /// new hasher.
    ///
    /// The two hashers have different ids, and codes of one cannot be searched with the other.
    /// [`flipped_bits`](Sketch::flipped_bits) says how many bits change.
    ///
    /// # Errors
    ///
    /// [`Error::Mismatch`] if dimension or metric of hasher and sketch differ. [`Error::Rotation`] for LSH, and if the
    /// sketch has no sample. [`Error::Empty`] and [`Error::Bits`] as [`Sketch::hasher`].
    ///
    /// ```
    /// use frosh::{Config, Rows, Sketcher};
    /// # let mut state = 1u64;
    /// # let mut next = || { state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407); (state >> 40) as f32 / 16777216.0 - 0.5 };
    /// # let data: Vec<f32> = (0..32 * 4000).map(|i| next() / (1 + i % 32) as f32).collect();
    /// let mut sketcher = Sketcher::new(Config::new(32))?;
    /// sketcher.push(Rows::new(&data[..32 * 2000], 32)?)?;
    /// let old = sketcher.sketch().hasher(8)?;
    /// sketcher.push(Rows::new(&data[32 * 2000..], 32)?)?;
    /// let sketch = sketcher.finish();
    /// let (like, new) = (sketch.hasher_like(&old, 3)?, sketch.hasher(8)?);
    /// assert!(sketch.flipped_bits(&old, &like)? <= sketch.flipped_bits(&old, &new)?);
    /// # Ok::<(), frosh::Error>(())
    /// ```
    pub fn hasher_like(&self, old: &Hasher, rounds: usize) -> Result<Hasher> {
        drift::check(&Model::from(old), self)?;
        if self.method == Method::Lsh {
            return Err(Error::Rotation {
                rotation: "refined",
                needs: "learned directions, and LSH has none".into(),
                advice: "hashers of LSH with equal seeds differ in their means only",
            });
        }
        let bits = old.bits();
        self.check_bits(bits, Rotation::Refined)?;
        let pool = &Pool::current();
        let rotated = || {
            let Principal { vectors, values, rank } = self.principal(pool, bits);
            let (v, along) = self.refined(pool, vectors.as_ref(), &values);
            drop(vectors);
            let signs = self.old_signs(pool, old);
            let r = pool.in_rayon(|| {
                let start = rotation::procrustes(along.as_ref(), signs.as_ref());
                let start =
                    start.unwrap_or_else(|| rotation::random(bits, &mut self.rotation_stream()));
                rotation::itq_from(along.as_ref(), start, rounds)
            });
            (Directions { v, along, values, rank }, r)
        };
        let ((directions, r), truth) = pool.join(rotated, || Truth::new(self, pool));
        // The ranking in use stays as it is, and so does the size of a code.
        let bytes = old.factor_bytes().max(1);
        let kind = match old.ranking() {
            Ranking::Estimated => (Ranking::Estimated, bytes),
            _ => (Ranking::Asymmetric, 0),
        };
        let rotations = [(Rotation::Refined, r)];
        Ok(choice::best(self, pool, directions, truth, &rotations, &[kind], bytes))
    }

    /// The signs of the sampled rows that fits use, under a hasher: 1 or -1.
    fn old_signs(&self, pool: &Pool, old: &Hasher) -> Mat<f32> {
        let w = MatRef::from_column_major_slice(&old.directions, self.dim, old.bits());
        let range = self.fit_rows(usize::MAX);
        let rows = range.len();
        let parts = self.reservoir.map_parts(pool, &old.mean, range, |rows| {
            let mut products = products(w, rows);
            products.iter_mut().for_each(|x| *x = if *x > 0.0 { 1.0 } else { -1.0 });
            products
        });
        MatRef::from_row_major_slice(&parts.concat(), rows, old.bits()).to_owned()
    }

    /// The share of bits that differ between the codes of two hashers, measured on sampled rows that fits do not use, if
    /// there are any.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if the numbers of bits differ, or if the sketch has no sample. [`Error::Dimension`] if the
    /// hashers are of rows of another dimension.
    pub fn flipped_bits(&self, old: &Hasher, new: &Hasher) -> Result<f64> {
        if old.bits() != new.bits() {
            let why =
                format!("the other hasher has {}, and bits are compared one by one", old.bits());
            return Err(Error::setting("bits", new.bits(), why));
        }
        let rows = match self.held_out() {
            0 => self.reservoir.len().min(COUNTED_ROWS),
            held_out => held_out,
        };
        if rows == 0 {
            let why = "flipped bits are counted on sampled rows; sketch with a reservoir";
            return Err(Error::setting("sampled rows", 0, why));
        }
        let zero = vec![0.0; self.dim];
        let sample =
            self.reservoir.map_parts(&Pool::current(), &zero, 0..rows, <[f32]>::to_vec).concat();
        let sample = Rows::new(&sample, self.dim)?;
        let (a, b) = (old.encode(sample)?, new.encode(sample)?);
        let flips = a.as_bytes().iter().zip(b.as_bytes()).map(|(a, b)| (a ^ b).count_ones());
        Ok(f64::from(flips.sum::<u32>()) / (rows * old.bits()) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream};
    use crate::{Config, Metric, Sketcher};

    const DIM: usize = 40;
    const BITS: usize = 16;

    /// Rows with a decreasing spectrum, whose axes turn with `phase`.
    fn rows(n: usize, phase: f64, seed: u64) -> Vec<f32> {
        let mut stream = Stream::new(seed, Purpose::Sample, 0, 0);
        let mut data = Vec::with_capacity(n * DIM);
        for _ in 0..n {
            let z: Vec<f64> =
                (0..DIM).map(|c| stream.normal() * 4.0 / (1.0 + c as f64).powf(0.8)).collect();
            for c in 0..DIM {
                // A rotation of neighbouring columns.
                let other = if c % 2 == 0 { z[c + 1] } else { -z[c - 1] };
                data.push((phase.cos() * z[c] + phase.sin() * other + 1.0 + phase) as f32);
            }
        }
        data
    }

    fn sketch(config: Config, data: &[f32]) -> Sketch {
        let mut sketcher = Sketcher::new(config).unwrap();
        sketcher.push(Rows::new(data, DIM).unwrap()).unwrap();
        sketcher.finish()
    }

    fn config() -> Config {
        Config::new(DIM).sketch_rows(2 * BITS)
    }

    #[test]
    fn a_hasher_like_the_old_one_flips_fewer_bits_than_a_new_one() {
        let old = sketch(config(), &rows(5000, 0.0, 1)).hasher(BITS).unwrap();
        let now = sketch(config(), &rows(5000, 0.3, 2));
        let new = now.flipped_bits(&old, &now.hasher(BITS).unwrap()).unwrap();
        let flips = [0, 3, 50].map(|rounds| {
            let like = now.hasher_like(&old, rounds).unwrap();
            assert_eq!((like.bits(), like.factor_bytes()), (BITS, old.factor_bytes()));
            assert_eq!(like.ranking(), old.ranking());
            let w = Mat::from_fn(DIM, BITS, |i, k| f64::from(like.direction(k)[i]));
            let error = w.transpose() * &w - Mat::<f64>::identity(BITS, BITS);
            assert!(error.norm_max() < 1e-5, "{}", error.norm_max());
            assert_ne!(like.id(), old.id());
            now.flipped_bits(&old, &like).unwrap()
        });
        assert!(flips[0] <= flips[1] && flips[1] < flips[2], "{flips:?}");
        assert!(flips[1] < 0.5 * new, "{flips:?} {new}");
        assert!(flips[0] > 0.0);
        // Other rows of the same stream: the directions differ by chance only.
        let same = sketch(config(), &rows(5000, 0.0, 3));
        let like = same.hasher_like(&old, 0).unwrap();
        let by_chance = same.flipped_bits(&old, &like).unwrap();
        assert!(by_chance < 0.5 * new, "{by_chance} {new}");
    }

    /// The definition, for one bit: the rotation is a sign, so that the old sign is kept.
    #[test]
    fn one_bit_keeps_its_sign() {
        let data = rows(3000, 0.0, 4);
        let config = Config::new(DIM).sketch_rows(8);
        let old = sketch(config.clone(), &data).hasher(1).unwrap();
        let like = sketch(config, &rows(3000, 0.05, 5)).hasher_like(&old, 0).unwrap();
        let along: f32 = old.direction(0).iter().zip(like.direction(0)).map(|(a, b)| a * b).sum();
        assert!(along > 0.9, "{along}");
    }

    #[test]
    fn the_start_is_the_best_rotation_for_the_old_signs() {
        let old = sketch(config(), &rows(3000, 0.0, 6)).hasher(BITS).unwrap();
        let now = sketch(config(), &rows(3000, 0.2, 7));
        let like = now.hasher_like(&old, 0).unwrap();
        let pool = &Pool::ONE;
        let signs = now.old_signs(pool, &old);
        let agreement = |w: MatRef<'_, f32>| -> f64 {
            let along = now.sample_along(pool, usize::MAX, w);
            let pairs = along.col_iter().zip(signs.col_iter());
            pairs
                .map(|(a, s)| a.iter().zip(s.iter()).map(|(a, s)| f64::from(a * s)).sum::<f64>())
                .sum()
        };
        let w = Mat::from_fn(DIM, BITS, |i, k| like.direction(k)[i]);
        let best = agreement(w.as_ref());
        // Small rotations of any two directions agree less: a maximum of the Procrustes problem.
        for (a, b) in [(0, 1), (2, 9), (5, 15), (14, 15)] {
            for angle in [-0.05f32, 0.05] {
                let turned = Mat::from_fn(DIM, BITS, |i, k| match k {
                    _ if k == a => angle.cos() * w[(i, a)] - angle.sin() * w[(i, b)],
                    _ if k == b => angle.sin() * w[(i, a)] + angle.cos() * w[(i, b)],
                    _ => w[(i, k)],
                });
                assert!(agreement(turned.as_ref()) < best, "{a} {b} {angle}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let data = rows(2000, 0.0, 8);
        let sketched = sketch(config(), &data);
        let old = sketched.hasher(BITS).unwrap();
        let refused = |sketch: &Sketch| sketch.hasher_like(&old, 3).unwrap_err().to_string();
        let cosine = sketch(config().metric(Metric::Cosine), &data);
        assert!(refused(&cosine).contains("metric is l2 in the model and cosine in the sketch"));
        let lsh = sketch(config().method(Method::Lsh), &data);
        assert!(refused(&lsh).contains("method"));
        let short = sketch(Config::new(DIM).sketch_rows(8), &data);
        assert!(refused(&short).starts_with("16 bits need 16 directions"));
        let bare = sketch(config().reservoir_rows(0), &data);
        assert!(refused(&bare).contains("needs a reservoir of rows"));
        assert!(bare.flipped_bits(&old, &old).unwrap_err().to_string().contains("sampled rows"));
        let other = sketched.hasher(8).unwrap();
        let error = sketched.flipped_bits(&old, &other).unwrap_err().to_string();
        assert!(error.starts_with("bits = 8") && error.contains("16"), "{error}");
        let lsh_model = lsh.hasher(BITS).unwrap();
        assert!(lsh.hasher_like(&lsh_model, 3).unwrap_err().to_string().contains("LSH has none"));
        assert_eq!(sketched.flipped_bits(&old, &old).unwrap(), 0.0);
    }
}
