//! frosh learns short binary codes for vectors in one pass over a stream, in constant memory, on one
//! machine or on many, and finds neighbours by them.
//!
//! It implements *Making Online Sketching Hashing Even Faster* (FROSH, DFROSH, and the baselines OSH and
//! LSH). The way of a vector:
//!
//! ```text
//! rows ─► centring ─► compression ─► frequent   ─► Sketch ─► Hasher ─► Codes
//!         (running    (SRHT; none    directions    (merges)  (mean, W)  (packed bits)
//!          mean)       for OSH)      (shrink)
//! ```
//!
//! ```
//! use frosh::{Config, Rows, Sketch, Sketcher};
//! # let here: Vec<f32> = (0..9600).map(|i| ((i * 7919) % 113) as f32).collect();
//! # let there: Vec<f32> = (0..6400).map(|i| ((i * 104_729) % 89) as f32).collect();
//! let mut sketcher = Sketcher::new(Config::new(32).sketch_rows(32).seed(7))?;
//! for batch in here.chunks(32 * 100) {
//!     sketcher.push(Rows::new(batch, 32)?)?;
//! }
//! let mut elsewhere = Sketcher::new(Config::new(32).sketch_rows(32).seed(7).worker(1))?;
//! elsewhere.push(Rows::new(&there, 32)?)?;
//!
//! let sketch = Sketch::merge([&sketcher.finish(), &elsewhere.finish()])?;
//! let hasher = sketch.hasher(16)?;
//! let codes = hasher.encode(Rows::new(&here, 32)?)?;
//! let hits = codes.nearest(&hasher.encode(Rows::new(&there[..32], 32)?)?, 10)?;
//! assert_eq!(hits[0].len(), 10);
//! # Ok::<(), frosh::Error>(())
//! ```
//!
//! [`Sketcher`] learns, [`Sketch`] is what was learned, [`Hasher`] is the finished function, [`Codes`]
//! are its bits. All four save to and load from safetensors files.

#![deny(missing_docs, unsafe_code)]

#[expect(unsafe_code, reason = "the inner loops; see its section on safety")]
mod arch;
mod error;
pub mod evaluation;
pub mod hasher;
pub mod index;
mod linalg;
mod names;
#[cfg(test)]
mod oracles;
mod pool;
mod random;
mod rows;
pub mod search;
pub mod sketch;
mod storage;

pub use error::{Error, Result};
#[doc(inline)]
pub use evaluation::{CurvePoint, Evaluation, ExactSearch, Found, RankedEvaluation, Tally, Truth};
#[doc(inline)]
pub use hasher::{Hasher, Rotation};
#[doc(inline)]
pub use index::{Index, IndexWriter, NewRows, StoredVectors};
pub use pool::Pool;
pub use rows::{Element, Metric, Rows};
#[doc(inline)]
pub use search::{Codes, HasherId, IdSet, MultiIndex, Neighbour, Queries, Ranking, Scored};
#[doc(inline)]
pub use sketch::{Certificate, Config, Method, ShrinkIndex, Sketch, Sketcher};
pub use storage::atomic_file::AtomicFile;
pub use storage::formats::AnyFile;
