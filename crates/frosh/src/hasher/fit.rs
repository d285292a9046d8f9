//! Fitting: the hasher of a sketch, with a given rotation or with the one that is chosen on the sample.

use super::estimator::Scales;
use super::rotation;
use super::{Facts, Hasher, ITQ_ROUNDS, Rotation, choice};
use crate::error::{Error, Result};
use crate::linalg;
use crate::pool::Pool;
use crate::random::{Purpose, Stream};
use crate::sketch::config::{Config, Method};
use crate::sketch::{Principal, Sketch};
use faer::{Mat, MatRef};

/// Sampled rows for each bit that the refined rotation needs by default.
const ROWS_PER_BIT: usize = 8;
/// A mean that is longer than this many standard deviations is subtracted from every value. For a shorter one, single
/// precision still resolves a 60,000th of a standard deviation.
const LARGE_MEAN: f64 = 256.0;

/// The factor of the gain: 1 for orthonormal directions, 1 / bits for the Gaussian directions of LSH.
pub(super) fn share(method: Method, bits: usize) -> f64 {
    if method == Method::Lsh { 1.0 / bits as f64 } else { 1.0 }
}

/// Rejects a number of bits or a rotation that is impossible for such a sketch.
fn check_request(
    method: Method,
    dim: usize,
    sketch_rows: usize,
    sampled: bool,
    bits: usize,
    rotation: Rotation,
) -> Result<()> {
    if bits == 0 {
        return Err(Error::setting("bits", 0, "a code has at least 1 bit"));
    }
    let reject = |limit, limit_name, advice| Err(Error::Bits { bits, limit, limit_name, advice });
    if method == Method::Lsh {
        let most = 1 << 16;
        if bits > most {
            return reject(most, "LSH", "ask for fewer bits");
        }
        if rotation != Rotation::None {
            return Err(Error::Rotation {
                rotation: rotation.as_str(),
                needs: "learned directions, and LSH has none".into(),
                advice: "use none",
            });
        }
        return Ok(());
    }
    if bits > dim {
        return reject(dim, "the dimension of the rows", "ask for fewer bits");
    }
    if bits > sketch_rows / 2 {
        let advice = "sketch again with at least twice as many sketch rows as bits";
        return reject(sketch_rows / 2, "half the sketch rows", advice);
    }
    if matches!(rotation, Rotation::Itq | Rotation::Refined | Rotation::RefinedRandom) && !sampled {
        return Err(Error::Rotation {
            rotation: rotation.as_str(),
            needs: "a reservoir of rows, and this sketch has none".into(),
            advice: "use random or isotropic, or sketch again with a reservoir",
        });
    }
    Ok(())
}

impl Config {
    /// Checks, before any row is read, whether a hasher of `bits` bits can be fitted. `None` means the default
    /// rotation.
    ///
    /// # Errors
    ///
    /// The errors of [`Sketch::hasher_with`]: [`Error::Setting`], [`Error::Bits`] or [`Error::Rotation`].
    ///
    /// ```
    /// use frosh::Config;
    /// assert!(Config::new(384).sketch_rows(128).check_hasher(64, None).is_ok());
    /// let error = Config::new(384).sketch_rows(128).check_hasher(100, None).unwrap_err();
    /// assert!(error.to_string().contains("half the sketch rows allows 64"));
    /// ```
    pub fn check_hasher(&self, bits: usize, rotation: Option<Rotation>) -> Result<()> {
        let sampled = self.reservoir_rows > 0;
        // The default rotation is always possible, so one that needs no sample stands for it.
        let default = if self.method == Method::Lsh { Rotation::None } else { Rotation::Random };
        let rotation = rotation.unwrap_or(default);
        check_request(self.method, self.dim, self.sketch_rows, sampled, bits, rotation)
    }
}

impl Sketch {
    /// Fits a hasher of `bits` bits. Rotation, ranking and bytes of factors are chosen by measuring them on the sample
    /// ([`Hasher::choice`]).
    ///
    /// # Errors
    ///
    /// [`Error::Empty`] if the sketch has no rows. [`Error::Setting`] for 0 bits. [`Error::Bits`] if there are more bits
    /// than dimensions or than half the sketch rows.
    ///
    /// ```
    /// use frosh::{Config, Rows, Sketcher};
    /// # let data: Vec<f32> = (0..6400).map(|i| ((i * 31) % 101) as f32).collect();
    /// let mut sketcher = Sketcher::new(Config::new(32))?;
    /// sketcher.push(Rows::new(&data, 32)?)?;
    /// let sketch = sketcher.finish();
    /// let [short, long] = [sketch.hasher(8)?, sketch.hasher(32)?]; // several models from one sketch
    /// assert_eq!((short.bits(), long.bits()), (8, 32));
    /// assert!(sketch.hasher(33).is_err()); // more bits than dimensions
    /// # Ok::<(), frosh::Error>(())
    /// ```
    pub fn hasher(&self, bits: usize) -> Result<Hasher> {
        self.hasher_of_size(bits, 0)
    }

    /// The same with this many bytes of factors; 0 leaves the choice to the fit.
    pub(crate) fn hasher_of_size(&self, bits: usize, factor_bytes: usize) -> Result<Hasher> {
        if self.method == Method::Lsh {
            return self.hasher_with(bits, Rotation::None);
        }
        let few = self.reservoir.len() < ROWS_PER_BIT * bits;
        self.check_bits(bits, Rotation::Random)?;
        if few {
            return self.hasher_with(bits, Rotation::Random);
        }
        choice::chosen(self, &Pool::current(), bits, factor_bytes)
    }

    /// Fits a hasher of `bits` bits with the given rotation. For LSH, whose directions are already
    /// random, the rotation must be [`Rotation::None`].
    ///
    /// # Errors
    ///
    /// Those of [`Sketch::hasher`], and [`Error::Rotation`] if ITQ or refined is requested and the sketch has no sample,
    /// or any rotation for LSH.
    ///
    /// ```
    /// # use frosh::{Config, Rotation, Rows, Sketcher};
    /// # let data: Vec<f32> = (0..6400).map(|i| ((i * 31) % 101) as f32).collect();
    /// let mut sketcher = Sketcher::new(Config::new(32).reservoir_rows(0))?;
    /// sketcher.push(Rows::new(&data, 32)?)?;
    /// let sketch = sketcher.finish();
    /// assert!(sketch.hasher_with(16, Rotation::Itq).is_err()); // needs a sample
    /// let hasher = sketch.hasher_with(16, Rotation::Isotropic)?;
    /// # Ok::<(), frosh::Error>(())
    /// ```
    pub fn hasher_with(&self, bits: usize, rotation: Rotation) -> Result<Hasher> {
        self.check_bits(bits, rotation)?;
        let pool = &Pool::current();
        let (w, values, rank) = if self.method == Method::Lsh {
            (self.gaussian(bits), Vec::new(), 0)
        } else {
            let Principal { vectors, values, rank } = self.principal(pool, bits);
            (self.rotated(pool, vectors, &values, rotation), values, rank)
        };
        Ok(self.fitted(pool, w, &values, rank, rotation, 1))
    }

    /// The hasher of the directions in the columns of `w`, with this many bytes of factors.
    pub(super) fn fitted(
        &self,
        pool: &Pool,
        w: Mat<f64>,
        values: &[f64],
        rank: usize,
        rotation: Rotation,
        factor_bytes: usize,
    ) -> Hasher {
        let w = linalg::single(w.as_ref());
        let scales = self.scales(pool, w.as_ref(), share(self.method, w.ncols()))[factor_bytes - 1];
        self.assembled(w.as_ref(), values, rank, rotation, scales)
    }

    /// The same with scales of the distance estimator that are known.
    pub(super) fn assembled(
        &self,
        w: MatRef<'_, f32>,
        values: &[f64],
        rank: usize,
        rotation: Rotation,
        scales: Option<Scales>,
    ) -> Hasher {
        let bits = w.ncols();
        let deviation = (values.iter().sum::<f64>() / (bits as f64 * self.weight())).sqrt();
        let length = self.mean.iter().map(|m| m * m).sum::<f64>().sqrt();
        let facts = Facts {
            dim: self.dim,
            bits,
            metric: self.metric,
            method: self.method,
            rotation,
            seed: self.seed,
            rows: self.rows,
            rank,
            exact_centre: length > LARGE_MEAN * deviation,
        };
        let directions = w.col_iter().flat_map(|column| column.iter().copied()).collect();
        Hasher::assemble(facts, self.mean.clone(), directions, scales)
    }

    pub(super) fn check_bits(&self, bits: usize, rotation: Rotation) -> Result<()> {
        if self.rows == 0 && bits > 0 {
            return Err(Error::Empty);
        }
        let sampled = self.reservoir.len() > 0;
        check_request(self.method, self.dim, self.sketch_rows(), sampled, bits, rotation)
    }

    /// W of LSH: independent standard normal entries.
    fn gaussian(&self, bits: usize) -> Mat<f64> {
        let mut w = Mat::zeros(self.dim, bits);
        for k in 0..bits {
            let mut stream = Stream::new(self.seed, Purpose::Lsh, 0, k as u64);
            w.col_mut(k).iter_mut().for_each(|x| *x = stream.normal());
        }
        w
    }

    /// W = V R.
    fn rotated(
        &self,
        pool: &Pool,
        mut v: Mat<f64>,
        values: &[f64],
        rotation: Rotation,
    ) -> Mat<f64> {
        let r = v.ncols();
        let stream = &mut self.rotation_stream();
        let rotation = match rotation {
            Rotation::None => return v,
            Rotation::Random => rotation::random(r, stream),
            Rotation::Isotropic => rotation::isotropic(values, stream),
            Rotation::RefinedRandom => {
                v = self.refined(pool, v.as_ref(), values).0;
                rotation::random(r, stream)
            }
            Rotation::Itq | Rotation::Refined => {
                let sample;
                if rotation == Rotation::Refined {
                    (v, sample) = self.refined(pool, v.as_ref(), values);
                } else {
                    let v = linalg::single(v.as_ref());
                    sample = self.sample_along(pool, usize::MAX, v.as_ref());
                }
                pool.in_rayon(|| rotation::itq(sample.as_ref(), stream, ITQ_ROUNDS))
            }
        };
        linalg::tall_product(pool, v.as_ref(), rotation.as_ref())
    }
}
