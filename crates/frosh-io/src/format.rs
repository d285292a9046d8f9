//! Which format a file is of: from its first bytes, or from its name.
//!
//! Formats with a strong magic number are known by it, whatever the file is called. The others
//! (`vecs`, big-ann, CSV, LIBSVM, raw) have none, so the name tells. idx's magic is weak (two zeros and
//! two small numbers) and counts only where the name tells nothing.

use crate::error::Fault;
use crate::idx;
use std::path::Path;

/// A format that can be read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// NumPy array.
    Npy,
    /// NumPy archive of arrays.
    Npz,
    /// Rows of `f32`, each after its dimension.
    Fvecs,
    /// Rows of bytes, each after its dimension.
    Bvecs,
    /// Rows of 32-bit integers, each after its dimension.
    Ivecs,
    /// big-ann, `f32`.
    Fbin,
    /// big-ann, half precision.
    F16bin,
    /// big-ann, bytes.
    U8bin,
    /// big-ann, signed bytes.
    I8bin,
    /// Apache Parquet.
    Parquet,
    /// Arrow IPC file (Feather).
    Arrow,
    /// HDF5, as ann-benchmarks has it.
    Hdf5,
    /// idx, as MNIST has it.
    Idx,
    /// LIBSVM text.
    Libsvm,
    /// Comma-separated text.
    Csv,
    /// Tab-separated text.
    Tsv,
    /// Values without a header; `f32` unless `--type` says otherwise.
    Raw,
}

use Format::{
    Arrow, Bvecs, Csv, F16bin, Fbin, Fvecs, Hdf5, I8bin, Idx, Ivecs, Libsvm, Npy, Npz, Parquet,
    Raw, Tsv, U8bin,
};

/// Every format: its name, and the endings of file names that mean it.
const TABLE: [(Format, &str, &[&str]); 17] = [
    (Npy, "npy", &["npy"]),
    (Npz, "npz", &["npz"]),
    (Fvecs, "fvecs", &["fvecs"]),
    (Bvecs, "bvecs", &["bvecs"]),
    (Ivecs, "ivecs", &["ivecs"]),
    (Fbin, "fbin", &["fbin"]),
    (F16bin, "f16bin", &["f16bin"]),
    (U8bin, "u8bin", &["u8bin"]),
    (I8bin, "i8bin", &["i8bin"]),
    (Parquet, "parquet", &["parquet", "pq"]),
    (Arrow, "arrow", &["arrow", "feather", "ipc"]),
    (Hdf5, "hdf5", &["hdf5", "h5"]),
    (Idx, "idx", &["idx", "idx1-ubyte", "idx2-ubyte", "idx3-ubyte"]),
    (Libsvm, "libsvm", &["libsvm", "svm", "svmlight"]),
    (Csv, "csv", &["csv"]),
    (Tsv, "tsv", &["tsv"]),
    (Raw, "raw", &["raw", "f32"]),
];

impl Format {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Format> {
        TABLE.iter().map(|row| row.0)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        // Every format is in the table: a test goes through them.
        TABLE.iter().find(|row| row.0 == self).map_or("", |row| row.1)
    }

    /// The format that a file's name tells, endings of compression left aside.
    pub fn of_name(path: &Path) -> Option<Format> {
        let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
        let name = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst")).unwrap_or(&name);
        let ends = |ending: &&str| {
            // MNIST's own files are named train-images-idx3-ubyte.
            name.strip_suffix(*ending).is_some_and(|stem| stem.ends_with(['.', '-']))
        };
        TABLE.iter().find(|row| row.2.iter().any(ends)).map(|row| row.0)
    }

    /// The format of a file that begins so and is called so.
    pub(crate) fn detect(head: &[u8], path: &Path) -> Result<Format, Fault> {
        let strong = match head {
            [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => Some(Npy),
            [b'P', b'K', 3, 4, ..] => Some(Npz),
            [b'P', b'A', b'R', b'1', ..] => Some(Parquet),
            [b'A', b'R', b'R', b'O', b'W', b'1', ..] => Some(Arrow),
            [0x89, b'H', b'D', b'F', ..] => Some(Hdf5),
            _ => None,
        };
        if let Some(format) = strong {
            return Ok(format);
        }
        match Format::of_name(path) {
            Some(format @ (Npy | Npz | Parquet | Arrow | Hdf5)) => Err(Fault::File(format!(
                "is named as {}, but begins with {:02x?}, not with that format's magic number: it is \
                 damaged, or of another format (choose with --format)",
                format.name(),
                &head[..head.len().min(6)]
            ))),
            Some(format) => Ok(format),
            None if idx::begins(head) => Ok(Idx),
            None => Err(Fault::File(format!(
                "is of no format known by its first bytes or its name: choose one with --format ({})",
                Format::all().map(Format::name).collect::<Vec<_>>().join(", ")
            ))),
        }
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Format {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        TABLE.iter().find(|row| row.1 == name).map(|row| row.0).ok_or_else(|| {
            let known: Vec<_> = TABLE.iter().map(|row| row.1).collect();
            format!("{name:?} is no format; use one of {}", known.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_there_and_back() {
        for format in Format::all() {
            assert_eq!(format.name().parse(), Ok(format));
            let path = format!("some.thing.{format}");
            assert_eq!(Format::of_name(Path::new(&path)), Some(format));
            assert_eq!(Format::of_name(Path::new(&(path + ".gz"))), Some(format));
        }
        assert!("nonsense".parse::<Format>().is_err());
    }

    #[test]
    fn content_goes_before_the_name_and_the_name_before_weak_magic() {
        let detect = |head: &[u8], name: &str| Format::detect(head, Path::new(name));
        assert_eq!(detect(b"\x93NUMPY\x01\0", "a.parquet").ok(), Some(Npy));
        assert_eq!(detect(&[0, 0, 8, 3, 0, 0], "a.fbin").ok(), Some(Fbin));
        assert_eq!(detect(&[0, 0, 8, 3, 0, 0], "unnamed").ok(), Some(Idx));
        assert_eq!(detect(&[0, 0, 8, 3], "t10k-images-idx3-ubyte.gz").ok(), Some(Idx));
        assert_eq!(detect(b"1,2,3", "a.CSV").ok(), Some(Csv));
        assert!(detect(b"1,2,3", "a.npy").is_err());
        assert!(detect(b"1,2,3", "a.unknown").is_err());
        assert!(detect(b"", "npy").is_err());
    }
}
