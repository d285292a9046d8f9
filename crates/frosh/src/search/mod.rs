//! Search: finds the rows nearest to a query by their codes.
//!
//! | type | purpose |
//! |---|---|
//! | [`Codes`] | packed codes of rows, with the id of the model that made them |
//! | [`CodesWriter`] | writes a file of codes batch by batch, in constant memory |
//! | [`HasherId`] | identifies the model that made some codes |
//! | [`Queries`] | encoded queries: codes, projections and squared lengths |
//! | [`Search`] | options: k nearest or a radius, ranking, filter, re-ranking |
//! | [`Hit`] | one result: the id of a row and its distance |
//! | [`Ranking`] | how codes are compared with a query |
//! | [`Rerank`] | computes the exact distances of candidates from their vectors |
//! | [`MultiIndex`] | hash tables over substrings of the codes, for Hamming search in large collections |
//! | [`IdSet`] | a set of row numbers or ids, used as a filter |
//!
//! [`Codes::search`], [`MultiIndex::search`] and [`Index::search`](crate::Index::search) take the same [`Search`] options.
//! `nearest(&queries, k)` is the short form.
//!
//! # Definitions
//!
//! A model has a mean phi and r directions, the columns of W. Bit k of the code of a row x is 1 if u_k > 0, and 0
//! otherwise, with the projections u = W'(x - phi). A query y has the projections v = W'(y - phi). Let
//!
//! ```text
//! S = sum_k s_k v_k,   s_k = +1 if bit k of the code is 1, else -1
//! ```
//!
//! Each ranking sorts the rows by a distance, ascending. Rows of equal distance are sorted by id, so the order is unique.
//!
//! | [`Ranking`] | query | bytes a row | distance | cost of a row |
//! |---|---|---|---|---|
//! | `Hamming` | r bits | r / 8 | number of bits that differ | r bit operations, for 32 or 64 rows at a time; far rows are pruned early |
//! | `Asymmetric` | r floats v | r / 8 | -S | a bound in bytes; r / 8 table look-ups if the bound does not prune the row |
//! | `Estimated` | r floats v, and \|y - phi\|^2 | r / 8, and 1 or 2 of factors | \|x - phi\|^2 + \|y - phi\|^2 - 2 g S, an estimate of \|x - y\|^2 | as asymmetric, with a bound of its own for each row |
//!
//! The factors hold the norm |x - phi| and the gain g of a row (see [`Hasher`](crate::Hasher)). All three rankings read
//! the same codes. The hits do not depend on the number of threads or on the cut into batches. Hamming hits do not depend
//! on the instruction set either, nor on whether a scan or a [`MultiIndex`] found them.
//!
//! # Differences from the paper
//!
//! The paper compares codes by Hamming distance only.
//!
//! # Example
//!
//! ```
//! use frosh::{Config, Ranking, Rows, Search, Sketcher};
//! # let data: Vec<f32> = (0..6400).map(|i| ((i * 31) % 101) as f32).collect();
//! # let rows = Rows::new(&data, 32)?;
//! # let mut sketcher = Sketcher::new(Config::new(32))?;
//! # sketcher.push(rows)?;
//! let hasher = sketcher.finish().hasher(16)?;
//! let codes = hasher.encode_with_factors(rows)?;
//! let queries = hasher.queries(rows.slice(0..3))?;
//! for ranking in [Ranking::Hamming, Ranking::Asymmetric, Ranking::Estimated] {
//!     let hits = codes.search(&queries, &Search::nearest(5).ranking(ranking))?;
//!     assert_eq!((hits.len(), hits[0].len()), (3, 5));
//! }
//! # Ok::<(), frosh::Error>(())
//! ```

pub(crate) mod codes;
mod codes_writer;
pub(crate) mod hamming;
pub(crate) mod options;
pub(crate) mod ranking;
pub(crate) mod rerank;
mod serialization;

pub use codes::{Codes, HasherId};
pub use codes_writer::CodesWriter;
pub use hamming::{IdSet, MultiIndex};
pub use options::{Hit, QuerySet, Search};
pub use ranking::{Queries, Ranking};
pub use rerank::Rerank;
