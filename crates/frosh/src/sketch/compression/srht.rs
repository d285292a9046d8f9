//! The subsampled randomized Hadamard transform (SRHT) Phi = S H D, evaluated one sub-block at a time.
//!
//! **Equation** (section 3.3 of the paper, zero-based). D is a diagonal of random signs, H the Hadamard matrix of
//! order m, and S picks q of its rows without replacement. The scalings of S and H combine to
//!
//! ```text
//! Phi_{k,i} = (1 / sqrt(q)) (-1)^popcount(rho_k AND i) D_i
//! ```
//!
//! Row i lies in sub-block b = i / p at offset i mod p, so with j = rho_k / p and a = rho_k mod p the
//! sign splits into (-1)^popcount(j AND b) and entry (a, i mod p) of a Hadamard matrix of size p.
//! Each sub-block is transformed independently, and its q sampled rows are added to an accumulator.
//!
//! **Where we differ.** The paper takes p between q/2 and q. We double p if it is 32 or less: one
//! more level of butterflies costs less than the memory traffic of the accumulator that it saves. Signs and samples
//! are functions of (seed, worker, run, trial, sub-block), drawn anew for each trial.
//!
//! **Cost.** log2(p) + q/p additions a value; q + p rows of memory.

use crate::random::{Address, Purpose};

/// Height of a sub-block: a power of two, at most m.
pub(crate) fn height(q: usize, m: usize) -> usize {
    let p = 1 << q.ilog2();
    let p = if p <= 32 { 2 * p } else { p };
    p.min(m)
}

/// The sampled rows rho of one trial.
pub(crate) fn sample(at: Address, trial: u64, q: usize, m: usize) -> Vec<u32> {
    at.stream(Purpose::Sample, trial).distinct(q as u32, m as u32)
}

/// D_b for sub-block number `index` of the run.
pub(crate) fn signs(at: Address, index: u64, p: usize) -> Vec<f32> {
    let mut signs = vec![0.0; p];
    at.stream(Purpose::Signs, index).fill_signs(&mut signs);
    signs
}

/// (-1)^popcount(x).
fn parity(x: u32) -> f32 {
    if x.count_ones().is_multiple_of(2) { 1.0 } else { -1.0 }
}

/// For each sampled row: the row of the transformed sub-block b to add, and its sign.
pub(crate) fn picks(sample: &[u32], b: u32, p: usize) -> Vec<(u32, f32)> {
    let p = p as u32;
    sample.iter().map(|rho| (rho % p, parity((rho / p) & b))).collect()
}

/// Adds the unscaled Phi 1 of a sub-block whose first `live` rows are in use. The centring needs it.
pub(crate) fn tally(tally: &mut [i64], signs: &[f32], picks: &[(u32, f32)], live: usize) {
    let mut h: Vec<i32> = signs.iter().map(|s| *s as i32).collect();
    h[live..].fill(0);
    let mut span = 1;
    while span < h.len() {
        for pair in h.chunks_exact_mut(2 * span) {
            let (low, high) = pair.split_at_mut(span);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        span *= 2;
    }
    for (t, &(a, sign)) in tally.iter_mut().zip(picks) {
        *t += i64::from(sign as i32 * h[a as usize]);
    }
}
