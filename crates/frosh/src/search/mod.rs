//! Finding neighbours by their codes.
//!
//! | type | is |
//! |---|---|
//! | [`Codes`] | packed codes of rows, with the id of the model that made them |
//! | [`Queries`] | queries made ready: their codes, and their projections for float rankings |
//! | [`Ranking`] | how codes are compared with a query: Hamming, asymmetric, estimated distance |
//! | [`MultiIndex`] | hash tables over parts of the codes, for Hamming search of large collections |
//! | [`IdSet`] | a set of row numbers or ids, to search among them only |

pub(crate) mod codes;
pub(crate) mod hamming;
pub(crate) mod ranking;
mod serialization;

pub use codes::{Codes, HasherId, Neighbour};
pub use hamming::{IdSet, MultiIndex};
pub use ranking::{Queries, Ranking, Scored};
