//! What the fuzz targets share: an allocator that watches over memory, reading of vector files with
//! checks of what was read, and mutation of files that carry checksums.

pub mod hdf5;
pub mod index;
pub mod io;
pub mod memory;
pub mod parts;
pub mod random;
pub mod uses;
