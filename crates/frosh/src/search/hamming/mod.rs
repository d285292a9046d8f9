//! Search by Hamming distance: the k nearest codes, or all codes within a radius, with or without a filter.
//!
//! **Definition.** The distance of two codes is the number of bits that differ. Rows of equal distance are sorted by row
//! number, so the hits are unique. They do not depend on the number of threads, the batching of queries, the instruction
//! set, or the choice between the scan and the [`MultiIndex`].
//!
//! | file | purpose |
//! |---|---|
//! | [`arch::hamming`](crate::arch::hamming) | kernels: one query against stored rows; finds rows below a limit |
//! | [`arch::nibble_planes`](crate::arch::nibble_planes) | kernels: four queries against transposed rows |
//! | `planes.rs` | transposed rows, and the lookup tables of queries |
//! | `best.rs` | the k nearest rows so far, counted by distance |
//! | `scan.rs` | the exact scan: blocks, threads, filters |
//! | `multi_index.rs` | multi-index hashing |
//! | `adaptive.rs` | chooses the scan or multi-index hashing by a trial |
//!
//! [`arch`](crate::arch) lists the kernels of each instruction set. The NEON kernels were only tested against a model of
//! their instructions. Their speed is not measured.
//!
//! **Where we differ** from the usual scan with a heap: the limit is compared in registers for 32 or 64 rows at once, so
//! rows above the limit need no branch of their own. Kept rows are counted by distance, not sorted. In a batch, rows are
//! transposed once for up to a thousand queries, and a group of rows is pruned as soon as all its rows exceed the limit.
//!
//! **Cost.** A single query takes about the time of reading the codes from memory. In batches on a Zen 3 core, a
//! comparison takes 0.1 to 0.2 ns at 64 bits and 0.2 to 0.7 ns at 256 bits; it is faster if the k-th smallest distance is
//! small. Memory: some hundred kilobytes for each thread, and the kept rows.

pub(crate) mod adaptive;
mod best;
mod multi_index;
pub(crate) mod planes;
mod scan;
#[cfg(test)]
mod tests;

pub(crate) use best::Neighbour;
pub use multi_index::MultiIndex;
/// A set of row numbers or ids, for [`Search::filter`](crate::Search::filter): the compressed bitmap
/// [`RoaringTreemap`](roaring::RoaringTreemap) of the `roaring` crate, under another name.
///
/// ```
/// use frosh::IdSet;
/// let mut ids: IdSet = (0..10).step_by(2).collect();
/// ids.insert(7);
/// assert!(ids.contains(7) && !ids.contains(1));
/// assert_eq!(ids.len(), 6);
/// ```
pub use roaring::RoaringTreemap as IdSet;

pub(crate) use crate::arch::hamming::{Table, distance};
pub(crate) use planes::Planes;
pub(crate) use scan::Scan;
