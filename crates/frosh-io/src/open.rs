//! Opening one file: unpack it, find its format, read its header.

use crate::batch::Kind;
use crate::decompress::Packing;
use crate::error::Fault;
use crate::flat::{Bytes, Ending, Stored};
use crate::format::Format;
use crate::source::Source;
use crate::{arrow, bigann, csv, hdf5, idx, libsvm, npy, parquet, vecs};
use std::fs::File;
use std::io::{Cursor, Read, Seek};
use std::path::Path;

/// What the caller knows about the files; by default nothing.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The format, where neither content nor name shall decide.
    pub format: Option<Format>,
    /// The column with the vectors (Parquet, Arrow).
    pub column: Option<String>,
    /// The data set (HDF5) or array (`.npz`).
    pub dataset: Option<String>,
    /// The dimension, for formats that do not tell (raw, LIBSVM).
    pub dim: Option<usize>,
    /// The element type of raw values.
    pub kind: Option<Kind>,
    /// Leave out rows that cannot be used (nulls, NaN, infinity, huge values).
    pub skip_bad: bool,
}

/// Standard input, as a path.
pub(crate) const STDIN: &str = "-";

/// What is known once a file's first bytes were seen.
pub(crate) struct Looked {
    pub(crate) format: Format,
    pub(crate) packed: bool,
    pub(crate) again: bool,
    pub(crate) bytes: Bytes,
}

/// Looks at the first bytes, and unpacks where needed.
pub(crate) fn look(path: &Path, options: &Options) -> Result<Looked, Fault> {
    look_or(path, options, None)
}

/// As [`look`], with a format for files that neither their content nor their name tells.
pub(crate) fn look_or(
    path: &Path,
    options: &Options,
    otherwise: Option<Format>,
) -> Result<Looked, Fault> {
    let stdin = path.as_os_str() == STDIN;
    let mut bytes = if stdin {
        Bytes::Stream(Box::new(std::io::stdin()), Ending::Open)
    } else {
        let file = File::open(path)?;
        if file.metadata()?.is_dir() {
            return Err("is a folder where a file was expected".into());
        }
        // A pipe or a device has no size to hold a header against.
        if file.metadata()?.is_file() {
            Bytes::file(file)?
        } else {
            Bytes::Stream(Box::new(file), Ending::Open)
        }
    };
    let again = bytes.left().is_some();
    let mut head = first(&mut bytes)?;
    if head.is_empty() {
        return Err("is empty: it has no rows".into());
    }
    let packing = Packing::detect(&head);
    if let Some(packing) = packing {
        let mut inner = Bytes::Stream(packing.unpack(rewind(bytes, head)?), Ending::Checked);
        head = first(&mut inner)?;
        bytes = inner;
        if head.is_empty() {
            return Err("is empty once unpacked: it has no rows".into());
        }
    }
    let format = match options.format {
        Some(format) => format,
        None => match Format::detect(&head, path) {
            Err(_) if stdin => Format::Raw,
            Err(why) if Format::of_name(path).is_none() => otherwise.ok_or(why)?,
            other => other?,
        },
    };
    Ok(Looked { format, packed: packing.is_some(), again, bytes: rewind(bytes, head)? })
}

/// Up to 8 bytes from the front.
fn first(bytes: &mut Bytes) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(8);
    bytes.take(8).read_to_end(&mut head)?;
    Ok(head)
}

/// Puts the front back.
fn rewind(bytes: Bytes, head: Vec<u8>) -> std::io::Result<Bytes> {
    Ok(match bytes {
        Bytes::File(mut file, _) => {
            file.rewind()?;
            Bytes::file(file)?
        }
        Bytes::Stream(rest, ending) => {
            Bytes::Stream(Box::new(Cursor::new(head).chain(rest)), ending)
        }
    })
}

/// A file whose header was read.
pub(crate) struct Opened {
    pub(crate) format: Format,
    pub(crate) packed: bool,
    /// Whether it can be opened again: not standard input, nor a pipe.
    pub(crate) again: bool,
    pub(crate) source: Box<dyn Source>,
}

/// Opens a file for reading its rows.
pub(crate) fn open(path: &Path, options: &Options) -> Result<Opened, Fault> {
    let Looked { format, packed, again, bytes } = look(path, options)?;
    let needs_file = || match &bytes {
        Bytes::File(file, _) => Ok(file.try_clone()?),
        Bytes::Stream(..) => Err(Fault::File(format!(
            "{format} cannot be read from a stream: unpack it, or save it as a file first"
        ))),
    };
    let column = options.column.as_deref();
    let dataset = options.dataset.as_deref();
    let source: Box<dyn Source> = match format {
        Format::Npy => npy::open(bytes)?,
        Format::Npz => npy::open_npz(needs_file()?, dataset)?,
        Format::Fvecs => Box::new(vecs::open(bytes, Stored::As(Kind::F32))?),
        Format::Bvecs => Box::new(vecs::open(bytes, Stored::As(Kind::U8))?),
        Format::Ivecs => Box::new(vecs::open(bytes, Stored::I32)?),
        Format::Fbin => Box::new(bigann::open(bytes, Kind::F32)?),
        Format::F16bin => Box::new(bigann::open(bytes, Kind::F16)?),
        Format::U8bin => Box::new(bigann::open(bytes, Kind::U8)?),
        Format::I8bin => Box::new(bigann::open(bytes, Kind::I8)?),
        Format::Parquet => {
            needs_file()?;
            parquet::open(path, column, options.skip_bad)?
        }
        Format::Arrow => {
            needs_file()?;
            arrow::open(path, column, options.skip_bad)?
        }
        Format::Hdf5 => {
            needs_file()?;
            Box::new(hdf5::open(path, dataset)?)
        }
        Format::Idx => Box::new(idx::open(bytes)?),
        Format::Libsvm => Box::new(libsvm::open(Box::new(bytes), options.dim)?),
        Format::Csv => Box::new(csv::open(Box::new(bytes), None)?),
        Format::Tsv => Box::new(csv::open(Box::new(bytes), Some(b'\t'))?),
        Format::Raw => {
            let dim = options.dim.ok_or(
                "is taken as raw values, which have no header: say the dimension with --dim, or the \
                 format with --format",
            )?;
            Box::new(bigann::open_raw(bytes, options.kind.unwrap_or(Kind::F32), dim)?)
        }
    };
    let dim = source.shape().dim;
    if let Some(wanted) = options.dim.filter(|wanted| *wanted != dim) {
        return Err(Fault::File(format!("has rows of {dim} dimensions, but --dim says {wanted}")));
    }
    Ok(Opened { format, packed, again, source })
}
