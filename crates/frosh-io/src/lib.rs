//! Vector files as streams of rows, for [`frosh`].
//!
//! [`Vectors`] is one or many files of any of the formats as one stream, read ahead by a thread;
//! [`Output`] writes a file of any of them, whole or not at all.
//!
//! | format | reads | writes |
//! |---|---|---|
//! | `.npy`, `.npz` | f16 f32 f64 u8 i8 i16 i32, versions 1 to 3, both byte orders, C and Fortran order | C order |
//! | `.fvecs` `.bvecs` `.ivecs` | yes | yes |
//! | `.fbin` `.f16bin` `.u8bin` `.i8bin` | yes | yes |
//! | Parquet, Arrow IPC (Feather) | list columns of f16 f32 f64 u8 i8 | a column of fixed-size lists |
//! | HDF5 | 2-d data sets, contiguous or in chunks | one contiguous data set |
//! | idx | all its number types | bytes |
//! | LIBSVM, CSV, TSV | as f32 | yes |
//! | raw | with the dimension | yes |
//!
//! [`whole_numbers()`] reads the classes or ids of rows.
//!
//! Files packed by gzip or Zstandard are unpacked while they are read (not those formats that need to jump:
//! `.npz`, Parquet, Arrow, HDF5).

#![deny(missing_docs)]

mod arrow;
mod batch;
mod bigann;
mod cast;
mod columns;
mod contents;
mod csv;
mod decompress;
mod error;
mod flat;
mod format;
mod hdf5;
mod idx;
mod libsvm;
mod npy;
mod open;
mod output;
mod parquet;
mod source;
mod text;
mod vecs;
mod vectors;
mod visit;
mod whole_numbers;

pub use batch::{Batch, Kind, Values, rows};
pub use contents::contents;
pub use error::{Error, Result, visible};
pub use format::Format;
pub use open::Options;
pub use output::{Output, Target};
pub use vectors::{Batches, FileFacts, Vectors};
pub use whole_numbers::whole_numbers;
