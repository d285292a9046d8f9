//! Search by Hamming distance: the k nearest codes, all within a radius, only some rows, and an index.
//!
//! **Definition.** The distance of two codes is the number of bits in which they differ. Of rows that are
//! equally near, the one with the smaller number comes first, so every answer is determined: it does not
//! depend on the number of threads, on how queries are batched, on the instruction set, or on whether the
//! scan or the [`MultiIndex`] gave it.
//!
//! | file | what it does |
//! |---|---|
//! | `kernel.rs` | distances of one query to rows as they lie; the search for rows below a limit |
//! | `planes.rs` | rows turned into planes of half bytes, for many queries at once |
//! | [`arch`](crate::arch): `hamming_avx2`, `hamming_avx512`, `hamming_neon` | both by intrinsics |
//! | `best.rs` | the k nearest so far, by counting |
//! | `scan.rs` | the exact search: blocks, threads, filters |
//! | `multi_index.rs` | tables that spare the scan where neighbours are near |
//! | `adaptive.rs` | whichever of the two is faster |
//!
//! | kernel | AVX2 | AVX-512 | NEON | portable |
//! |---|---|---|---|---|
//! | one query, rows of 8 or 16 bytes | `vpshufb` | `vpopcntq` | `cnt` | `count_ones` |
//! | one query, rows of 32, 64, 96, ... bytes | `vpshufb` | `vpopcntq` (not 96, 160, ...) | `count_ones` | `count_ones` |
//! | one query, rows of other widths | `count_ones` | `count_ones` | `count_ones` | `count_ones` |
//! | many queries, any width | planes | planes | planes | as one query |
//!
//! AVX-512 means F, BW and VPOPCNTDQ. NEON was run in an emulator only, AVX-512 against a model of its instructions:
//! their answers are tested, their speed is not measured.
//!
//! **Where we differ** from the usual scan with a heap: the limit is compared in registers, for 32 or 64
//! rows at once, so rows that are too far cost no branch of their own; what is kept is counted by distance,
//! not sorted. For batches, codes are turned once for up to a thousand queries, and a group of rows is left
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
pub(crate) mod kernel;
mod multi_index;
pub(crate) mod planes;
mod scan;
#[cfg(test)]
mod tests;

pub(crate) use best::Neighbour;
pub use multi_index::MultiIndex;
pub use roaring::RoaringTreemap as IdSet;

pub(crate) use kernel::{Isa, Table, distance, distances};
pub(crate) use planes::{Line, Lookups, Planes, ROWS, starts};
pub(crate) use scan::Scan;
