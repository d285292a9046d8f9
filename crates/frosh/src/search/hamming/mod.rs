//! Search by Hamming distance: the k nearest codes, all within a radius, only some rows, and an index.
//!
//! **Definition.** The distance of two codes is the number of bits in which they differ. Of rows that are
//! equally near, the one with the smaller number comes first, so every answer is determined: it does not
//! depend on the number of threads, on how queries are batched, on the instruction set, or on whether the
//! scan or the [`MultiIndex`] gave it.
//!
//! | file | what it does |
//! |---|---|
//! | [`arch::hamming`](crate::arch::hamming) | distances of one query to rows as they are stored; the search for rows below a limit |
//! | [`arch::nibble_planes`](crate::arch::nibble_planes) | the same for four queries and transposed rows |
//! | `planes.rs` | batches of queries: transposed rows and the queries' lookup tables |
//! | `best.rs` | the k nearest so far, by counting |
//! | `scan.rs` | the exact search: blocks, threads, filters |
//! | `multi_index.rs` | tables that spare the scan where neighbours are near |
//! | `adaptive.rs` | whichever of the two is faster |
//!
//! [`arch`](crate::arch) says which kernel each instruction set has. The NEON kernels were run
//! against a model of their instructions only; their speed is not measured.
//!
//! **Where we differ** from the usual scan with a heap: the limit is compared in registers, for 32 or 64
//! rows at once, so rows that are too far cost no branch of their own; what is kept is counted by distance,
//! not sorted. For batches, codes are transposed once for up to a thousand queries, and a group of rows is left
//! as soon as it is certainly too far.
//!
//! **Cost.** A single query takes about the time of reading the codes from memory. In batches, a comparison
//! of 64 bits takes 0.1 to 0.2 ns on a Zen 3 core, one of 256 bits 0.2 to 0.7 (the less, the nearer the
//! k-th neighbour is). Memory: some hundred kilobytes for each thread, and what is found.
//!
//! ```
//! use frosh::{IdSet, Search};
//! # use frosh::{Config, Rows, Sketcher};
//! # let rows: Vec<f32> = (0..3200).map(|i| ((i * 7919) % 113) as f32).collect();
//! # let mut sketcher = Sketcher::new(Config::new(32).sketch_rows(32))?;
//! # sketcher.push(Rows::new(&rows, 32)?)?;
//! # let codes = sketcher.finish().hasher(16)?.encode(Rows::new(&rows, 32)?)?;
//! let nearest = codes.nearest(&codes, 3)?;
//! assert_eq!(nearest[7][0].distance, 0.0);
//! let near = codes.search(&codes, &Search::within(2))?;
//! assert!(near[7].iter().all(|hit| hit.distance <= 2.0));
//! let first: IdSet = (0..10).collect();
//! let among = codes.search(&codes, &Search::nearest(3).filter(&first))?;
//! assert!(among[7].iter().all(|hit| hit.id < 10));
//! # Ok::<(), frosh::Error>(())
//! ```

pub(crate) mod adaptive;
mod best;
mod multi_index;
pub(crate) mod planes;
mod scan;
#[cfg(test)]
mod tests;

pub(crate) use best::Neighbour;
pub use multi_index::MultiIndex;
pub use roaring::RoaringTreemap as IdSet;

pub(crate) use crate::arch::hamming::{Table, distance};
pub(crate) use planes::Planes;
pub(crate) use scan::Scan;
