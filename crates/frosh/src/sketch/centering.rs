//! Online centring: transforms the rows of a stream so that their Gram matrix is the centred scatter, before the
//! mean of the stream is known.
//!
//! **Equation.** For a chunk of h rows after tau earlier rows, Algorithm 1 emits the rows minus the
//! chunk's mean, and one extra row for the difference between the two means. The Gram matrix of all emitted
//! rows is the centred scatter (A - mu)'(A - mu), exactly.
//!
//! **Where we differ.** Let y_i = x_i - phi with phi the mean of the earlier rows, and let s be the sum of the y_i.
//! The chunk must add Y'Y - s s' / (tau + h) to the Gram matrix. The matrix I - 1 1' / (tau + h) has the
//! symmetric square root I - c 1 1', so the h rows
//!
//! ```text
//! g_i = y_i - c s,      c = (1 - sqrt(tau / (tau + h))) / h
//! ```
//!
//! have this Gram matrix, without an extra row. With h = 1 this is the row form `sqrt(tau / (tau + 1)) (x - phi)`;
//! with tau = 0 it subtracts the chunk's own mean. A chunk is one *block* of the compression stage. Blocks
//! start at fixed row numbers of the stream, so batch boundaries do not change the result. A block is only used
//! through a linear map Phi. So the correction is applied when the block is complete:
//! Phi (Y - c 1 s') = Phi Y - c (Phi 1) s'. Each row is read once.
//!
//! **Precision.** A `reference` in single precision is subtracted from each row as it is read. It is the rounded mean
//! before the previous block, or the first row at the start of the stream. The difference between reference and
//! mean is kept in double precision, as is the mean. Sums over one sub-block are single precision, of values that are
//! small after the subtraction; sums over sub-blocks are double precision. So an offset of 1e6 loses no digits, and
//! the mean still changes after billions of rows.
//!
//! **Decay.** With a half-life, tau is the weight of the earlier rows after this block's decay
//! ([`decay`](crate::sketch::decay)). The equations hold for any tau that is not negative.
//!
//! **Cost.** One addition a value; 20 bytes a dimension.

use crate::sketch::decay::Decay;

/// The coefficient c of the equation above.
pub(crate) fn weight(tau: f64, rows: u64) -> f64 {
    let h = rows as f64;
    // 1 - sqrt(tau / (tau + h)), rearranged to avoid cancellation for tau >> h.
    let rest = h / (tau + h);
    rest / (1.0 + (tau / (tau + h)).sqrt()) / h
}

/// The running mean, and the sums of the current block.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Centering {
    /// Rows before the current block.
    pub(crate) before: u64,
    /// Mean of those rows, in double precision.
    pub(crate) mean: Vec<f64>,
    /// The vector that is subtracted from the rows of the current block as they are read.
    pub(crate) reference: Vec<f32>,
    /// Sum of (row - reference) over the rows of the current block that have been absorbed.
    pub(crate) sum: Vec<f64>,
    /// Number of these rows.
    pub(crate) rows: u64,
    /// Half-life and weight, if earlier rows count less.
    pub(crate) decay: Option<Decay>,
}

impl Centering {
    pub(crate) fn new(dim: usize, decay: Option<Decay>) -> Self {
        Self {
            decay,
            before: 0,
            mean: vec![0.0; dim],
            reference: vec![0.0; dim],
            sum: vec![0.0; dim],
            rows: 0,
        }
    }

    /// Empty sums of one block with this reference.
    pub(crate) fn of_block(reference: Vec<f32>) -> Self {
        let sum = vec![0.0; reference.len()];
        Self { mean: Vec::new(), sum, reference, before: 0, rows: 0, decay: None }
    }

    /// What remains of the weights of the earlier rows at the end of the current block; `None` without decay.
    pub(crate) fn factor(&self) -> Option<f64> {
        self.decay.map(|decay| decay.factor(self.rows))
    }

    /// tau: the weight of the earlier rows at the end of the current block. Without decay it is their number.
    fn tau(&self) -> f64 {
        match self.decay {
            Some(decay) => decay.weight * decay.factor(self.rows),
            None => self.before as f64,
        }
    }

    /// Moves the sums of `block` here as those of the current block, and leaves `block` empty.
    pub(crate) fn take_block(&mut self, block: &mut Self) {
        self.reference.copy_from_slice(&block.reference);
        self.sum.copy_from_slice(&block.sum);
        self.rows = block.rows;
        block.sum.fill(0.0);
        block.rows = 0;
    }

    /// The reference of the next block: the mean of the rows before the current block. So the next block can start
    /// before the current one is complete.
    pub(crate) fn next_reference(&self) -> Vec<f32> {
        if self.before == 0 {
            return self.reference.clone();
        }
        self.mean.iter().map(|m| *m as f32).collect()
    }

    /// The vector that remains to be subtracted from every row of the block: g_i = (x_i - reference) - shift.
    pub(crate) fn shift(&self) -> Vec<f32> {
        if self.rows == 0 {
            return vec![0.0; self.sum.len()];
        }
        let c = weight(self.tau(), self.rows);
        let keep = 1.0 - c * self.rows as f64;
        let parts = self.mean.iter().zip(&self.reference).zip(&self.sum);
        parts
            .map(|((mean, reference), sum)| {
                // There is no mean before the first block, and `keep` is 0.
                let rest = if self.before == 0 { 0.0 } else { mean - f64::from(*reference) };
                (keep * rest + c * sum) as f32
            })
            .collect()
    }

    /// Ends the block: adds its rows to the mean, and sets the reference to the mean before them.
    pub(crate) fn close(&mut self) {
        if self.rows == 0 {
            return;
        }
        let tau = self.tau();
        let total = match &mut self.decay {
            Some(decay) => {
                decay.weight = tau + self.rows as f64;
                decay.weight
            }
            None => (self.before + self.rows) as f64,
        };
        let parts = self.mean.iter_mut().zip(&mut self.reference).zip(&mut self.sum);
        for ((mean, reference), sum) in parts {
            let base = f64::from(*reference);
            let rest = if self.before == 0 { 0.0 } else { *mean - base };
            if self.before > 0 {
                *reference = *mean as f32;
            }
            *mean = base + (tau * rest + *sum) / total;
            *sum = 0.0;
        }
        self.before += self.rows;
        self.rows = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The scatter matrix, by definition.
    fn scatter(rows: &[Vec<f64>]) -> Vec<f64> {
        let d = rows[0].len();
        let mean: Vec<f64> =
            (0..d).map(|c| rows.iter().map(|r| r[c]).sum::<f64>() / rows.len() as f64).collect();
        gram(&rows.iter().map(|r| (0..d).map(|c| r[c] - mean[c]).collect()).collect::<Vec<_>>())
    }

    fn gram(rows: &[Vec<f64>]) -> Vec<f64> {
        let d = rows[0].len();
        let mut g = vec![0.0; d * d];
        for r in rows {
            for i in 0..d {
                for j in 0..d {
                    g[i * d + j] += r[i] * r[j];
                }
            }
        }
        g
    }

    /// The module's equation in double precision, for any cut into blocks.
    fn emit(rows: &[Vec<f64>], cuts: &[usize]) -> Vec<Vec<f64>> {
        let d = rows[0].len();
        let (mut out, mut at, mut phi) = (Vec::new(), 0, vec![0.0; d]);
        let mut cuts = cuts.iter().copied().cycle();
        while at < rows.len() {
            let h = cuts.next().unwrap().min(rows.len() - at);
            let block = &rows[at..at + h];
            let c = weight(at as f64, h as u64);
            let s: Vec<f64> = (0..d).map(|k| block.iter().map(|r| r[k] - phi[k]).sum()).collect();
            out.extend(
                block.iter().map(|r| (0..d).map(|k| r[k] - phi[k] - c * s[k]).collect::<Vec<_>>()),
            );
            at += h;
            for k in 0..d {
                phi[k] += s[k] / at as f64;
            }
        }
        out
    }

    fn close_to(a: &[f64], b: &[f64], tolerance: f64) {
        let scale = b.iter().fold(0f64, |m, x| m.max(x.abs()));
        for (x, y) in a.iter().zip(b) {
            assert!((x - y).abs() <= tolerance * scale, "{x} {y} scale {scale}");
        }
    }

    proptest! {
        #[test]
        fn emitted_rows_have_the_centred_scatter_for_any_cut(
            flat in prop::collection::vec(-1.0f64..1.0, 3..120),
            cuts in prop::collection::vec(1usize..9, 1..5),
        ) {
            let rows: Vec<Vec<f64>> = flat.chunks_exact(3).map(<[f64]>::to_vec).collect();
            close_to(&gram(&emit(&rows, &cuts)), &scatter(&rows), 1e-12);
        }
    }

    #[test]
    fn one_row_blocks_are_the_row_form() {
        for tau in [1.0, 2.0, 10.0, 1_000_000_007.0, 0.125] {
            let want = f64::sqrt(tau / (tau + 1.0));
            assert!((1.0 - weight(tau, 1) - want).abs() < 1e-15);
        }
        assert_eq!(weight(0.0, 8), 1.0 / 8.0);
    }

    #[test]
    fn the_mean_still_moves_after_billions_of_rows() {
        let mut c = Centering::new(1, None);
        c.before = 4_000_000_000;
        c.mean[0] = 1.0;
        c.reference[0] = 1.0;
        for _ in 0..1000 {
            c.rows = 64;
            c.sum[0] = 64.0; // every row is 2
            c.reference[0] = 1.0;
            c.close();
        }
        let want = (4e9 + 2.0 * 64_000.0) / (4e9 + 64_000.0);
        assert!((c.mean[0] - want).abs() < 1e-13, "{} {want}", c.mean[0]);
    }

    #[test]
    fn a_large_offset_costs_no_digits() {
        let mut c = Centering::new(1, None);
        let rows: Vec<f32> = (0..4096).map(|i| 1e6 + ((i * 37) % 16) as f32 * 0.0625).collect();
        let mut emitted = Vec::new();
        for (b, block) in rows.chunks(64).enumerate() {
            if b == 0 {
                c.reference[0] = block[0];
            }
            c.sum[0] = block.iter().map(|x| f64::from(x - c.reference[0])).sum();
            c.rows = block.len() as u64;
            let shift = c.shift()[0];
            emitted.extend(block.iter().map(|x| vec![f64::from(x - c.reference[0] - shift)]));
            c.close();
        }
        let exact: Vec<Vec<f64>> = rows.iter().map(|x| vec![f64::from(*x)]).collect();
        close_to(&gram(&emitted), &scatter(&exact), 1e-6);
    }
}
