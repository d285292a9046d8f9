//! The paper's evaluation, from one command: its figures, its table, and its claims, with a page to read.
//!
//! [`run`] makes the experiments and keeps their [`Results`] in a folder; [`catalogue`] tells which of the paper's data
//! sets are there. `data/` has the sets and their stand-ins, `methods/` what is compared, `experiments/` a file for each
//! figure, `store.rs` the files that are written.

#![deny(missing_docs)]

mod data;
mod error;
mod experiments;
mod linalg;
mod machine;
mod methods;
mod random;
mod results;
mod settings;
mod store;

pub use data::{Found, catalogue};
pub use error::{Error, Result};
pub use experiments::run;
pub use results::{Machine, Record, Results, Run};
pub use settings::{Experiment, Settings};
