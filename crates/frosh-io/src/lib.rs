//! Reads and writes files of vectors, for [`frosh`].
//!
//! - [`Vectors`] opens one or many files as one stream of rows. A thread reads ahead, and memory does not
//!   grow with the files.
//! - [`RangeReader`] reads a range of the rows on the calling thread: several threads can share the work of reading.
//! - [`Batch`] holds the rows of one read. [`Batch::feed`] gives them to a [`frosh::Sketcher`], an index or a
//!   search, whatever their element type.
//! - [`Output`] writes a file; it replaces an older one atomically when it is complete.
//! - [`Options::id_column`] chooses the column of ids beside the vectors; [`Batch::ids`] has them.
//! - [`read_ids()`] reads a file of ids or class labels, one for each row; [`whole_numbers()`] one of integers.
//! - An [`Error`] names the file, the row, what was expected and what was found. [`Error::hint`] names the
//!   option that would help.
//!
//! Files are not trusted: a damaged or hostile file is an error, never a panic, and memory grows with what a
//! file holds, not with what its header claims.
//!
//! ```
//! use frosh_io::{Format, Options, Output, Target, Vectors};
//! # let folder = tempfile::tempdir()?;
//! # std::fs::write(folder.path().join("a.csv"), "1,2\n3,4\n5,6\n")?;
//! # let (from, to) = (folder.path().join("a.csv"), folder.path().join("a.npy"));
//!
//! // Converts a file from CSV to .npy.
//! let vectors = Vectors::open(&[&from], &Options::default())?;
//! let target = Target {
//!     format: Format::Npy,
//!     kind: vectors.kind(),
//!     dim: vectors.dim(),
//!     rows: vectors.rows(),
//!     name: None,
//! };
//! let mut output = Output::create(&to, &target)?;
//! let mut batches = vectors.batches();
//! while let Some(batch) = batches.next()? {
//!     output.write(batch)?;
//! }
//! output.finish()?;
//! assert_eq!(Vectors::open(&[&to], &Options::default())?.rows(), Some(3));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Formats
//!
//! | format | reads | writes |
//! |---|---|---|
//! | `.npy`, `.npz` | f16 f32 f64 u8 i8 i16 i32, versions 1 to 3, both byte orders, C and Fortran order | C order |
//! | `.fvecs` `.bvecs` `.ivecs` | yes | yes |
//! | `.fbin` `.f16bin` `.u8bin` `.i8bin` | yes | yes |
//! | Parquet, Arrow IPC (Feather) | list columns of f16 f32 f64 u8 i8, or a column for each dimension | a column of fixed-size lists |
//! | HDF5 | two-dimensional data sets, contiguous or in chunks | one contiguous data set |
//! | safetensors | two-dimensional tensors, also bf16 | one tensor |
//! | idx | all its number types | bytes |
//! | LIBSVM, CSV, TSV | as f32 | yes |
//! | JSON Lines | arrays of numbers, also in a field of objects, as f32 | arrays |
//! | word vectors (GloVe, word2vec text) | as f32, without the words | words `row0` and so on |
//! | raw | if the dimension is given | yes |
//!
//! Files compressed by gzip or Zstandard are decompressed while they are read, but for formats that need
//! random access: `.npz`, Parquet, Arrow, HDF5.
//!
//! # How it is built
//!
//! Each format is a module with a reader, which implements `Source`, and a writer, which implements `Sink`
//! (`source.rs`). Formats share `flat.rs` (rows of equal length), `text.rs` (one row per line) and
//! `columns.rs` (list columns). `open.rs` finds the format of a file, `inputs.rs` the files of a folder or
//! pattern, `batches.rs` reads ahead, and `ranges.rs` reads ranges of rows.

#![deny(missing_docs)]

mod arrow;
mod batch;
mod batches;
mod bigann;
mod byte_source;
mod cast;
mod chosen;
mod columns;
mod contents;
mod csv;
mod decompress;
mod error;
mod flat;
mod format;
mod hdf5;
mod ids;
mod idx;
mod inputs;
mod jsonl;
mod layout;
mod libsvm;
mod npy;
mod open;
mod output;
mod parquet;
mod pickle;
mod ranges;
mod safetensors;
mod source;
mod text;
mod vecs;
mod vectors;
mod visit;
mod whole_numbers;
mod words;

pub use batch::{Batch, Kind, RowConsumer, Values};
pub use batches::Batches;
pub use chosen::Columns;
pub use contents::contents;
pub use error::{Error, Hint, Result, visible};
pub use format::Format;
pub use ids::{IdRule, IdType, Ids, Names, read_ids};
pub use open::Options;
pub use output::{Output, Target};
pub use ranges::RangeReader;
pub use vectors::{FileFacts, Vectors};
pub use whole_numbers::whole_numbers;
