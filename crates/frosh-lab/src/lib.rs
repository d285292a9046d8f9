//! The paper's evaluation, from one command: its figures, its table, and its claims, with a page to read.

#![deny(missing_docs)]

mod claims;
mod paper;
mod plot;
mod report;
mod results;
#[cfg(test)]
mod sample;
mod summary;
mod text;

pub use claims::{Claim, OnData, Verdict, claims};
pub use report::{figures, page};
pub use results::{Machine, Record, Results, Run};
