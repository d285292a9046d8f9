//! Finding neighbours by their codes.
//!
//! | type | is |
//! |---|---|
//! | [`Codes`] | packed codes of rows, with the id of the model that made them |
//! | [`CodesWriter`] | writes a file of codes batch by batch, in constant memory |
//! | [`Queries`] | queries made ready: their codes, and their projections for float rankings |
//! | [`Search`] | what to look for: k nearest or a radius, ranking, filter, re-ranking |
//! | [`Hit`] | a row that was found: its id and its distance |
//! | [`Ranking`] | how codes are compared with a query: Hamming, asymmetric, estimated distance |
//! | [`Rerank`] | exact distances of candidates, from their vectors |
//! | [`MultiIndex`] | hash tables over parts of the codes, for Hamming search of large collections |
//! | [`IdSet`] | a set of row numbers or ids, to search among them only |
//!
//! [`Codes::search`], [`MultiIndex::search`] and [`Index::search`](crate::Index::search) take the same options and return the
//! same hits. `nearest(&queries, k)` is the short form.

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
