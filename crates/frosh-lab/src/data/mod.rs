//! Data sets: streams of rows that can be gone through again and again.
//!
//! | file | what |
//! |---|---|
//! | `files.rs` | the paper's sets, and any others, from files |
//! | `synthetic.rs` | the paper's made-up matrix (Figures 2 and 3) |
//! | `stand_in.rs` | made-up data of the shapes of sets that cannot be had |
//! | `ground.rs` | base, queries and exact neighbours, for MAP |

mod files;
mod ground;
mod stand_in;
mod synthetic;

pub(crate) use files::{FileSource, files_below, find};
pub use files::{Found, catalogue};
pub(crate) use ground::{Ground, Memory};
pub(crate) use stand_in::StandIn;
pub(crate) use synthetic::Synthetic;

use crate::error::Result;

/// Bytes of a batch, about: more than caches hold, so that of several learners that are shown a batch one after the
/// other every one reads it from memory, as it would if it were alone.
const BATCH_BYTES: usize = 128 << 20;

/// Rows that can be gone through more than once, in the same order every time.
pub(crate) trait Source {
    fn rows(&self) -> u64;
    fn dim(&self) -> usize;
    /// Calls `take` with the first `end` rows, some at a time.
    fn first(&self, end: u64, take: &mut dyn FnMut(&[f32]) -> Result<()>) -> Result<()>;

    /// Calls `take` with all rows, some at a time.
    fn each(&self, take: &mut dyn FnMut(&[f32]) -> Result<()>) -> Result<()> {
        self.first(self.rows(), take)
    }

    /// How many rows a batch has.
    fn batch_rows(&self) -> usize {
        (BATCH_BYTES / 4 / self.dim()).max(64)
    }
}

/// A data set with its name.
pub(crate) struct DataSet {
    pub(crate) name: String,
    pub(crate) base: Box<dyn Source>,
    /// Queries, where the set has its own; else they are held out of the base.
    pub(crate) queries: Option<Box<dyn Source>>,
}
