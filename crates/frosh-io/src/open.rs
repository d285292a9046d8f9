//! Opening one file: decompress it, find its format, read its header.

use crate::batch::Kind;
use crate::byte_source::{ByteSource, Ending};
use crate::chosen::Columns;
use crate::decompress::Compression;
use crate::error::{Fault, Hint};
use crate::format::Format;
use crate::ids::{IdRule, WithIds};
use crate::layout::Stored;
use crate::source::Source;
use crate::{
    arrow, bigann, csv, hdf5, idx, jsonl, libsvm, npy, parquet, pickle, safetensors, vecs, words,
};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// What the caller knows about the files, and how they are to be read; by default nothing.
///
/// ```
/// use frosh_io::{Kind, Options};
///
/// // Raw values have no header: their dimension and type must be given.
/// let options = Options { dim: Some(768), kind: Some(Kind::F16), ..Options::default() };
/// # let _ = options;
/// ```
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The format; without it, content and name of each file decide.
    pub format: Option<Format>,
    /// The column with the vectors (Parquet, Arrow) or the field (JSON Lines); within structures its path, with
    /// dots between the names.
    pub column: Option<String>,
    /// The columns that are the dimensions (Parquet, Arrow, CSV, TSV).
    pub columns: Option<Columns>,
    /// The data set (HDF5), array (`.npz`) or tensor (safetensors).
    pub dataset: Option<String>,
    /// The dimension, for formats that do not tell (raw, LIBSVM).
    pub dim: Option<usize>,
    /// The element type of raw values; `f32` by default.
    pub kind: Option<Kind>,
    /// The column of ids beside the vectors (Parquet, Arrow, CSV, TSV; field in JSON Lines; `word` of word vectors). In CSV
    /// and TSV a number is a position from 0, and without [`Options::columns`] all other columns are dimensions.
    pub id_column: Option<String>,
    /// How the ids are taken.
    pub id_rule: IdRule,
    /// Leave out rows that cannot be used (nulls, NaN, infinity, huge values) instead of stopping at them.
    pub skip_bad: bool,
}

/// Standard input, as a path.
pub(crate) const STDIN: &str = "-";

/// Bytes at the start of a file that its format is found by.
const HEAD: u64 = 8;

/// Bytes at the start of a `.txt` file that its format is found by: two rows, unless they are very long.
const LINES: u64 = 1 << 18;

/// Whether the name ends in `.txt`, before the ending of a compressed file.
fn is_txt(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let name = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst")).unwrap_or(&name);
    name.ends_with(".txt")
}

/// What is known after the first bytes of a file were read.
pub(crate) struct Detected {
    pub(crate) format: Format,
    /// Whether the file is compressed as a whole.
    pub(crate) compressed: bool,
    /// Whether it can be opened again: standard input and pipes cannot.
    pub(crate) rereadable: bool,
    /// All bytes of the file, decompressed.
    pub(crate) bytes: ByteSource,
}

/// Reads the first bytes of a file to find out its compression and format.
pub(crate) fn detect(path: &Path, options: &Options) -> Result<Detected, Fault> {
    detect_or(path, options, None)
}

/// As [`detect`], with a format for files whose content and name tell none.
pub(crate) fn detect_or(
    path: &Path,
    options: &Options,
    default: Option<Format>,
) -> Result<Detected, Fault> {
    let stdin = path.as_os_str() == STDIN;
    let mut bytes = if stdin {
        ByteSource::Stream(Box::new(std::io::stdin()), Ending::Open)
    } else {
        let file = File::open(path)?;
        if file.metadata()?.is_dir() {
            return Err("is a folder where a file was expected".into());
        }
        // A pipe or a device has no size that a header could be checked against.
        if file.metadata()?.is_file() {
            ByteSource::file(file)?
        } else {
            ByteSource::Stream(Box::new(file), Ending::Open)
        }
    };
    let rereadable = bytes.left().is_some();
    let mut head = read_head(&mut bytes)?;
    if head.is_empty() {
        return Err("is empty: it has no rows".into());
    }
    let compression = Compression::detect(&head);
    if let Some(compression) = compression {
        let plain = compression.decompress(bytes.unread(head)?);
        bytes = ByteSource::Stream(plain, Ending::Checksum);
        head = read_head(&mut bytes)?;
        if head.is_empty() {
            return Err("is empty once decompressed: it has no rows".into());
        }
    }
    let format = match options.format {
        Some(format) => format,
        None => match Format::detect(&head, path) {
            Err(_) if stdin => Format::Raw,
            Err(why) if Format::of_name(path).is_none() => {
                pickle::refuse(&head, path)?;
                let mut by_lines = None;
                if default.is_none() && is_txt(path) {
                    bytes.by_ref().take(LINES - HEAD).read_to_end(&mut head)?;
                    by_lines = words::detect(&head);
                }
                default.or(by_lines).ok_or(why)?
            }
            other => other?,
        },
    };
    let compressed = compression.is_some();
    Ok(Detected { format, compressed, rereadable, bytes: bytes.unread(head)? })
}

fn read_head(bytes: &mut ByteSource) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(HEAD as usize);
    bytes.take(HEAD).read_to_end(&mut head)?;
    Ok(head)
}

/// A file whose header was read.
pub(crate) struct Opened {
    pub(crate) format: Format,
    pub(crate) compressed: bool,
    pub(crate) rereadable: bool,
    pub(crate) source: Box<dyn Source>,
}

/// Opens a file for reading its rows.
pub(crate) fn open(path: &Path, options: &Options) -> Result<Opened, Fault> {
    let Detected { format, compressed, rereadable, bytes } = detect(path, options)?;
    let seekable = || match &bytes {
        ByteSource::File(file, _) => Ok(file.try_clone()?),
        ByteSource::Stream(..) => Err(Fault::file(format!(
            "{format} cannot be read from a stream: decompress it, or save it as a file first"
        ))),
    };
    let column = options.column.as_deref();
    let dataset = options.dataset.as_deref();
    let id = options.id_column.as_deref();
    let mut source: Box<dyn Source> = match format {
        Format::Npy => npy::open(bytes)?,
        Format::Npz => npy::open_npz(seekable()?, dataset)?,
        Format::Fvecs => Box::new(vecs::open(bytes, Stored::As(Kind::F32))?),
        Format::Bvecs => Box::new(vecs::open(bytes, Stored::As(Kind::U8))?),
        Format::Ivecs => Box::new(vecs::open(bytes, Stored::I32)?),
        Format::Fbin => Box::new(bigann::open(bytes, Kind::F32)?),
        Format::F16bin => Box::new(bigann::open(bytes, Kind::F16)?),
        Format::U8bin => Box::new(bigann::open(bytes, Kind::U8)?),
        Format::I8bin => Box::new(bigann::open(bytes, Kind::I8)?),
        Format::Parquet => {
            seekable()?;
            match &options.columns {
                None => parquet::open(path, column, options.skip_bad)?,
                Some(columns) => parquet::open_table(path, columns, options.skip_bad)?,
            }
        }
        Format::Arrow => {
            seekable()?;
            match &options.columns {
                None => arrow::open(path, column, options.skip_bad)?,
                Some(columns) => arrow::open_table(path, columns, options.skip_bad)?,
            }
        }
        Format::Hdf5 => {
            seekable()?;
            Box::new(hdf5::open(path, dataset)?)
        }
        Format::Safetensors => Box::new(safetensors::open(bytes, dataset)?),
        Format::Idx => Box::new(idx::open(bytes)?),
        Format::Jsonl => Box::new(jsonl::open(Box::new(bytes), column, id, options.skip_bad)?),
        Format::Words => Box::new(words::open(Box::new(bytes), id)?),
        Format::Libsvm => Box::new(libsvm::open(Box::new(bytes), options.dim)?),
        Format::Csv => Box::new(csv::open(Box::new(bytes), None, options.columns.as_ref(), id)?),
        Format::Tsv => {
            Box::new(csv::open(Box::new(bytes), Some(b'\t'), options.columns.as_ref(), id)?)
        }
        Format::Raw => {
            let dim = options.dim.ok_or_else(|| {
                Fault::file("is taken as raw values, which have no header, and no dimension is set")
                    .hint(Hint::SetDimensionOrFormat)
            })?;
            Box::new(bigann::open_raw(bytes, options.kind.unwrap_or(Kind::F32), dim)?)
        }
    };
    if let Some(id) = id.filter(|_| source.ids().is_none()) {
        let ids = match format {
            Format::Parquet => parquet::open_ids(path, Some(id))?,
            Format::Arrow => arrow::open_ids(path, Some(id))?,
            _ => {
                return Err(Fault::file(format!(
                    "is of format {format}, which has no column {id:?}: ids are read from columns of Parquet, \
                     Arrow, CSV, TSV and JSON Lines, or from a file of their own"
                )));
            }
        };
        source = Box::new(WithIds { source, ids });
    }
    let dim = source.shape().dim;
    if let Some(wanted) = options.dim.filter(|wanted| *wanted != dim) {
        let why = format!("has rows of {dim} dimensions, but the dimension is set to {wanted}");
        return Err(Fault::file(why).hint(Hint::CheckDimension));
    }
    Ok(Opened { format, compressed, rereadable, source })
}
