//! The paper's evaluation, from one command: its figures, its table, and its claims, with a page to read.

#![deny(missing_docs)]

mod results;

pub use results::{Machine, Record, Results, Run};
