//! The formats, and how the format of a file is found: from its first bytes, or from its name.
//!
//! A file that begins with the magic number of `.npy`, `.npz`, Parquet, Arrow or HDF5 has that format, whatever its
//! name. An Arrow stream begins with four bytes `FF`, which other files may do too, so that it is known by its name.
//! `vecs`, big-ann, CSV, LIBSVM and raw files have no magic number, so that the name decides, as for JSON Lines, word
//! vectors and safetensors. The name `.txt` tells nothing; such a file is word vectors or a table of numbers, by its
//! first lines. The magic number of idx is weak (two zeros and two small numbers), and is considered only if the name
//! tells no format.

use crate::error::{Fault, Hint};
use crate::idx;
use std::path::Path;

/// A file format; each can be read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// NumPy array.
    Npy,
    /// NumPy archive of arrays (zip).
    Npz,
    /// `.fvecs`: rows of `f32`, each after its dimension.
    Fvecs,
    /// `.bvecs`: rows of bytes, each after its dimension.
    Bvecs,
    /// `.ivecs`: rows of 32-bit integers, each after its dimension.
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
    /// Arrow IPC file (Feather) or stream.
    Arrow,
    /// HDF5, as ann-benchmarks uses it.
    Hdf5,
    /// safetensors, as Hugging Face uses it.
    Safetensors,
    /// idx, as MNIST uses it.
    Idx,
    /// JSON Lines: a JSON object or array on each line.
    Jsonl,
    /// Word vectors as text: GloVe, word2vec, fastText.
    Words,
    /// LIBSVM text.
    Libsvm,
    /// Comma-separated text.
    Csv,
    /// Tab-separated text.
    Tsv,
    /// Values without a header; `f32` unless [`Options::kind`](crate::Options::kind) is set.
    Raw,
}

use Format::{
    Arrow, Bvecs, Csv, F16bin, Fbin, Fvecs, Hdf5, I8bin, Idx, Ivecs, Jsonl, Libsvm, Npy, Npz,
    Parquet, Raw, Safetensors, Tsv, U8bin, Words,
};

/// Every format, its name, and the file extensions that stand for it.
const TABLE: [(Format, &str, &[&str]); 20] = [
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
    (Safetensors, "safetensors", &["safetensors"]),
    (Idx, "idx", &["idx", "idx1-ubyte", "idx2-ubyte", "idx3-ubyte"]),
    (Jsonl, "jsonl", &["jsonl", "ndjson"]),
    (Words, "words", &["words", "vec", "glove"]),
    (Libsvm, "libsvm", &["libsvm", "svm", "svmlight"]),
    (Csv, "csv", &["csv"]),
    (Tsv, "tsv", &["tsv"]),
    (Raw, "raw", &["raw", "f32"]),
];

impl Format {
    /// All formats.
    pub fn all() -> impl Iterator<Item = Format> {
        TABLE.iter().map(|row| row.0)
    }

    /// Its name, such as `npy`.
    pub fn name(self) -> &'static str {
        // A test checks that every format is in the table.
        TABLE.iter().find(|row| row.0 == self).map_or("", |row| row.1)
    }

    /// The format that a file's name stands for, with or without `.gz` or `.zst` at its end.
    pub fn of_name(path: &Path) -> Option<Format> {
        let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
        let name = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst")).unwrap_or(&name);
        let matches = |extension: &&str| {
            // A hyphen, because MNIST's files are named train-images-idx3-ubyte.
            name.strip_suffix(*extension).is_some_and(|stem| stem.ends_with(['.', '-']))
        };
        TABLE.iter().find(|row| row.2.iter().any(matches)).map(|row| row.0)
    }

    /// The format of a file with these first bytes and this name.
    pub(crate) fn detect(head: &[u8], path: &Path) -> Result<Format, Fault> {
        let by_magic = match head {
            [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => Some(Npy),
            [b'P', b'K', 3, 4, ..] => Some(Npz),
            [b'P', b'A', b'R', b'1', ..] => Some(Parquet),
            [b'A', b'R', b'R', b'O', b'W', b'1', ..] => Some(Arrow),
            [0x89, b'H', b'D', b'F', ..] => Some(Hdf5),
            _ => None,
        };
        if let Some(format) = by_magic {
            return Ok(format);
        }
        match Format::of_name(path) {
            Some(Arrow) if head.starts_with(&[0xFF; 4]) => Ok(Arrow),
            Some(format @ (Npy | Npz | Parquet | Arrow | Hdf5)) => Err(Fault::file(format!(
                "is named as {}, but begins with {:02x?}, not with that format's magic number: it is \
                 damaged, or of another format",
                format.name(),
                &head[..head.len().min(6)]
            ))
            .hint(Hint::ChooseFormat)),
            Some(format) => Ok(format),
            None if idx::is_head(head) => Ok(Idx),
            None => Err(Fault::file(format!(
                "neither its first bytes nor its name tell its format, which may be {}",
                Format::all().map(Format::name).collect::<Vec<_>>().join(", ")
            ))
            .hint(Hint::ChooseFormat)),
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
            format!("{name:?} is not a format; use one of {}", known.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_found_by_its_name() {
        for format in Format::all() {
            assert_eq!(format.name().parse(), Ok(format));
            let path = format!("some.thing.{format}");
            assert_eq!(Format::of_name(Path::new(&path)), Some(format));
            assert_eq!(Format::of_name(Path::new(&(path + ".gz"))), Some(format));
        }
        assert!("nonsense".parse::<Format>().is_err());
    }

    #[test]
    fn magic_numbers_come_before_the_name_and_the_name_before_idx() {
        let detect = |head: &[u8], name: &str| Format::detect(head, Path::new(name));
        assert_eq!(detect(b"\x93NUMPY\x01\0", "a.parquet").ok(), Some(Npy));
        assert_eq!(detect(&[0, 0, 8, 3, 0, 0], "a.fbin").ok(), Some(Fbin));
        assert_eq!(detect(&[0, 0, 8, 3, 0, 0], "unnamed").ok(), Some(Idx));
        assert_eq!(detect(&[0, 0, 8, 3], "t10k-images-idx3-ubyte.gz").ok(), Some(Idx));
        assert_eq!(detect(b"1,2,3", "a.CSV").ok(), Some(Csv));
        assert!(detect(b"1,2,3", "a.npy").is_err());
        assert!(detect(b"1,2,3", "a.unknown").is_err());
        assert!(detect(b"", "npy").is_err());
        assert_eq!(detect(b"\xFF\xFF\xFF\xFF\x10\0\0\0", "data.arrow").ok(), Some(Arrow));
        assert_eq!(detect(b"\xFF\xFF\xFF\xFF\x10\0\0\0", "data.fbin").ok(), Some(Fbin));
        assert!(detect(b"\xFF\xFF\xFF\xFF\x10\0\0\0", "data").is_err());
    }
}
