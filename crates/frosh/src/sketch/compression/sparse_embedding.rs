//! The sparse embedding: each row is multiplied by a random sign and added to one of q random buckets.
//!
//! **Equation.** Phi_{k,i} = s_i if h_i = k, else 0, with random signs s_i and buckets h_i. E[Phi'Phi] = I. It is
//! the compression of SpFD (Teng and Chu, 2018), and not in the paper.
//!
//! **Differences from the SRHT.** It needs no transform and no power of two. Its error follows the same law with a
//! slightly larger constant, because buckets fill unevenly.
//!
//! **Cost.** One addition a value; q rows of memory.

use crate::random::{Address, Purpose};

/// Bucket and sign of each row of sub-block number `index` of the run.
pub(crate) fn buckets(at: Address, index: u64, p: usize, q: usize) -> Vec<(u32, f32)> {
    let mut stream = at.stream(Purpose::Buckets, index);
    let mut signs = vec![0.0; p];
    stream.fill_signs(&mut signs);
    signs.into_iter().map(|s| (stream.below(q as u64) as u32, s)).collect()
}
