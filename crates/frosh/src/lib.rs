//! frosh learns short binary codes for vectors, in one pass over a stream and in memory that does not grow
//! with the stream. It searches the codes by Hamming distance, or by an estimate of the true distance.
//!
//! # Types by task
//!
//! | task | types |
//! |---|---|
//! | describe a batch of rows | [`Rows`], [`Element`], [`Metric`] |
//! | learn from a stream | [`Config`], [`Method`], [`ShrinkIndex`], [`Sketcher`], [`RangeRows`], [`Finished`] |
//! | keep and merge what was learned | [`Sketch`], [`Certificate`] |
//! | fit a model of sign bits and encode rows | [`Hasher`], [`Rotation`], [`Codes`], [`CodesWriter`], [`HasherId`] |
//! | fit a model with more accuracy a byte | [`Quantizer`]; [`Model`] is either of both |
//! | search codes | [`Search`], [`QuerySet`], [`Queries`], [`Ranking`], [`Hit`], [`MultiIndex`], [`IdSet`], [`Rerank`] |
//! | keep a changing collection on disk | [`Index`], [`IndexWriter`], [`NewRows`], [`StoredVectors`] |
//! | measure quality | [`ExactSearch`], [`Truth`], [`Evaluation`], [`RankedEvaluation`], [`Tally`], [`CurvePoint`] |
//! | open a file of unknown kind | [`AnyFile`] |
//! | choose threads, handle errors | [`Pool`], [`Error`], [`Result`] |
//!
//! The modules are [`sketch`] (learning and merging), [`hasher`] (sign bits), [`quantizer`], [`search`], [`index`]
//! (index folders) and [`evaluation`]. Each module page has the equations and the differences from the paper.
//!
//! # Example
//!
//! Two machines learn from their own rows. Their sketches are merged, a model of 16 bits is fitted, and the
//! codes are searched.
//!
//! ```
//! use frosh::{Config, Rows, Sketch, Sketcher};
//! # let here: Vec<f32> = (0..9600).map(|i| ((i * 7919) % 113) as f32).collect();
//! # let there: Vec<f32> = (0..6400).map(|i| ((i * 104_729) % 89) as f32).collect();
//! let dim = 32;
//! let config = Config::new(dim).sketch_rows(32).seed(7);
//!
//! // Machine 0: batches of any size.
//! let mut sketcher = Sketcher::new(config.clone().worker(0))?;
//! for batch in here.chunks(100 * dim) {
//!     sketcher.push(Rows::new(batch, dim)?)?;
//! }
//! // Machine 1: the same settings, another worker number.
//! let mut other = Sketcher::new(config.worker(1))?;
//! other.push(Rows::new(&there, dim)?)?;
//!
//! let sketch = Sketch::merge([&sketcher.finish(), &other.finish()])?;
//! let hasher = sketch.hasher(16)?; // 16 bits: 2 bytes a row
//! let codes = hasher.encode(Rows::new(&here, dim)?)?;
//! let queries = hasher.encode(Rows::new(&there[..3 * dim], dim)?)?;
//! let hits = codes.nearest(&queries, 10)?;
//! assert_eq!((hits.len(), hits[0].len()), (3, 10));
//! # Ok::<(), frosh::Error>(())
//! ```
//!
//! # The pipeline
//!
//! ```text
//! rows ─► centring ─► compression ─► frequent   ─► Sketch ─► Hasher ─► Codes
//!         (running    (SRHT; none    directions    (merges)  (mean, W)  (packed bits)
//!          mean)       for OSH)      (shrink)
//! ```
//!
//! [`Sketcher`], [`Sketch`], [`Hasher`] and [`Codes`] save to and load from
//! [safetensors](https://huggingface.co/docs/safetensors) files. Results are the same bytes for any cut into
//! batches and any number of threads, on one build and one instruction set (AVX-512, AVX2, NEON, portable).
//!
//! # Costs
//!
//! n rows of d values; r bits; l sketch rows, at least 2 r; m rows in a compressed block, at most about 4 d;
//! s sampled rows, 16,384 by default.
//!
//! | stage | time | memory |
//! |---|---|---|
//! | learning, FROSH | O(n d log l + n d l² / m) | 12 l d for each thread, 3 l d for each doubling beyond 64 MB, s (2 d + 28) bytes at most |
//! | learning, OSH | O(n d l) | the same |
//! | merging k sketches | O(k d l²) | one more sketch: 4 l d bytes |
//! | fitting | O(d l² + l³ + s d r), and O(s r² + r³) for each of 16 rounds of ITQ | a few matrices of d r doubles, and of s r floats |
//! | encoding | 2 d r operations a row | r / 8 bytes a row, and 1 byte with factors |
//! | searching, Hamming | O(n r) bit operations a query; far groups of rows are pruned early | the codes, and k hits a query |
//! | searching, multi-index | less than the scan where the k-th neighbour is near | 4 bytes for each row and table |
//! | searching, float queries | a bound for each code, r / 8 table look-ups for each code that the bound does not prune | 128 r bytes a query |
//! | re-ranking | d multiplications a candidate, and one read of its vector | 8 d bytes a query, 28 bytes a candidate |
//! | exact neighbours | 2 d operations a pair | 12 d + 20 k bytes a query |
//!
//! # Features
//!
//! The crate has no Cargo features. Instruction sets are detected at run time.
//!
//! # The paper
//!
//! frosh implements FROSH, DFROSH and the baselines OSH and LSH of
//!
//! > Xixian Chen, Haiqin Yang, Shenglin Zhao, Irwin King, Michael R. Lyu: *Making Online Sketching Hashing Even
//! > Faster*. IEEE Transactions on Knowledge and Data Engineering; [arXiv:2010.04948](https://arxiv.org/abs/2010.04948), 2020.
//!
//! "The paper" means this one. Algorithm 1 (FROSH) is [`Sketcher`], Algorithm 2 (faster frequent directions) is
//! the compression and the shrink in [`sketch`], Algorithm 3 (DFROSH) is [`Sketch::merge`]. `docs/algorithms.md` in
//! the repository has all definitions, with an errata list of the paper.

#![deny(missing_docs, unsafe_code)]

#[expect(unsafe_code, reason = "the inner loops; see its section on safety")]
mod arch;
mod drift;
mod error;
pub mod evaluation;
pub mod hasher;
pub mod index;
mod linalg;
mod model;
mod names;
#[cfg(test)]
mod oracles;
mod pool;
pub mod quantizer;
mod random;
mod rows;
pub mod search;
pub mod sketch;
mod storage;

pub use drift::{Drift, drift};
pub use error::{Error, Result};
#[doc(inline)]
pub use evaluation::{CurvePoint, Evaluation, ExactSearch, RankedEvaluation, Tally, Truth};
#[doc(inline)]
pub use hasher::{Choice, Forecast, Hasher, Measured, Rotation};
#[doc(inline)]
pub use index::{Index, IndexVersion, IndexWriter, NewRows, Reencoding, StoredVectors};
pub use model::Model;
pub use pool::Pool;
#[doc(inline)]
pub use quantizer::{Quantizer, QuantizerChoice};
pub use rows::{Element, Metric, Rows};
#[doc(inline)]
pub use search::{
    Codes, CodesWriter, HasherId, Hit, IdSet, MultiIndex, Queries, QuerySet, Ranking, Rerank,
    Search,
};
#[doc(inline)]
pub use sketch::{Certificate, Config, Finished, Method, RangeRows, ShrinkIndex, Sketch, Sketcher};
pub use storage::formats::AnyFile;

// Not part of the documented API: the other crates of the workspace replace files in the same way.
#[doc(hidden)]
pub use storage::atomic_file::AtomicFile;
