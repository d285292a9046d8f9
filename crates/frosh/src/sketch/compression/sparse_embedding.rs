//! The sparse embedding: every row, with a random sign, is added to one of q buckets.
//!
//! **Equation.** Phi_{k,i} = s_i if h_i = k, else 0 (Teng and Chu's SpFD, called SpFD in the
//! literature on frequent directions; not in the paper). E[Phi'Phi] = I.
//!
//! **Where it differs from the SRHT.** No transform at all and no power of two needed; one addition
//! per value. Its error has the same law with a slightly larger constant, since buckets fill unevenly.
//!
//! **Cost.** One addition per value; q rows of memory.

use crate::random::{Purpose, Stream};

/// Bucket and sign of each row of sub-block number `index` of the worker's stream.
pub(crate) fn buckets(seed: u64, worker: u64, index: u64, p: usize, q: usize) -> Vec<(u32, f32)> {
    let mut stream = Stream::new(seed, Purpose::Buckets, worker, index);
    let mut signs = vec![0.0; p];
    stream.fill_signs(&mut signs);
    signs.into_iter().map(|s| (stream.below(q as u64) as u32, s)).collect()
}
