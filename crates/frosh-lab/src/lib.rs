//! The paper's evaluation, from one command: its figures, its table, and its claims, with a page to read.
//!
//! [`run`] makes the experiments and keeps their [`Results`] in a folder; [`catalogue`] tells which of the paper's data
//! sets are there. `data/` has the sets and their stand-ins, `methods/` what is compared, `experiments/` a file for
//! each figure, `streams/` what is measured on streams that change, `store.rs` the files that are written, `claims/`
//! the paper's claims as numbers, `plot.rs` and `report/` the page and its summary.

#![deny(missing_docs)]

mod claims;
mod clock;
mod data;
mod error;
mod experiments;
mod linalg;
mod machine;
mod methods;
mod paper;
mod plot;
mod publish;
mod random;
mod report;
mod results;
#[cfg(test)]
mod sample;
mod settings;
mod store;
mod streams;
mod summary;
mod text;

pub use claims::{Claim, Outcome, Verdict, claims, tally};
pub use data::{Found, catalogue};
pub use error::{Error, Result};
pub use experiments::run;
pub use plot::{CSS as PLOT_CSS, scatter};
pub use publish::{load, publish};
pub use report::{figures, page, readme};
pub use results::{Machine, Record, Results, Run};
pub use settings::{Experiment, Settings};
pub use streams::{Pair, Predictor, Score, drift_predictor};
