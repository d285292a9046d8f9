//! Finished hash functions: frosh's own, or projections of rows, or of features of rows, by a product.

use crate::error::Result;
use crate::linalg;
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, Par};
use frosh::{Codes, Hasher, HasherId, Rows};
use std::sync::atomic::{AtomicU64, Ordering};

/// Rows that are projected at once.
const BLOCK: usize = 1024;

/// Features of rows: what the rows are turned into before the projection.
pub(crate) trait Features: Send + Sync {
    /// Turns a block of rows into features, row by row.
    fn features(&self, rows: &[f32], par: Par) -> Vec<f32>;
}

/// A finished hash function.
pub(crate) enum Encoder {
    Frosh(Box<Hasher>),
    Linear(Linear),
}

/// Bits are 1 where f(x) W > 0.
pub(crate) struct Linear {
    dim: usize,
    features: Box<dyn Features>,
    /// One column for each bit.
    w: Mat<f32>,
    id: HasherId,
}

impl Encoder {
    pub(crate) fn linear(dim: usize, features: Box<dyn Features>, w: MatRef<'_, f64>) -> Self {
        // Codes of different functions must never be taken for codes of one.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let id = HasherId::foreign((0x6672_6f73_682d_6c61_u128 << 64) | u128::from(number));
        let w = Mat::from_fn(w.nrows(), w.ncols(), |i, j| w[(i, j)] as f32);
        Encoder::Linear(Linear { dim, features, w, id })
    }

    /// The codes of some rows, made on every core.
    pub(crate) fn encode(&self, rows: Rows<'_, f32>) -> Result<Codes> {
        match self {
            Encoder::Frosh(hasher) => Ok(hasher.encode(rows)?),
            Encoder::Linear(linear) => linear.encode(rows),
        }
    }
}

impl Linear {
    fn encode(&self, rows: Rows<'_, f32>) -> Result<Codes> {
        let bits = self.w.ncols();
        let bytes = bits.div_ceil(8);
        let par = Par::rayon(0);
        let mut packed = Vec::with_capacity(rows.len() * bytes);
        let mut projected = vec![0f32; BLOCK * bits];
        for block in rows.as_slice().chunks(BLOCK * self.dim) {
            let count = block.len() / self.dim;
            let features = self.features.features(block, par);
            let features = linalg::rows(&features, self.w.nrows());
            let projected = &mut projected[..count * bits];
            let to = linalg::rows_mut(projected, bits);
            matmul(to, Accum::Replace, features, self.w.as_ref(), 1.0, par);
            for row in projected.chunks_exact(bits) {
                packed.extend(row.chunks(8).map(|eight| {
                    let bit = |(k, x): (usize, &f32)| u8::from(*x > 0.0) << k;
                    eight.iter().enumerate().map(bit).fold(0, |byte, bit| byte | bit)
                }));
            }
        }
        Ok(Codes::from_packed(self.id, bits, packed)?)
    }
}

/// Rows minus their mean.
pub(crate) struct Centred(pub(crate) Vec<f32>);

impl Features for Centred {
    fn features(&self, rows: &[f32], _: Par) -> Vec<f32> {
        let mut out = rows.to_vec();
        for row in out.chunks_exact_mut(self.0.len()) {
            row.iter_mut().zip(&self.0).for_each(|(x, m)| *x -= m);
        }
        out
    }
}
