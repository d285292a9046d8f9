//! Several files as one stream of rows.

use crate::batch::Kind;
use crate::batches::{Batches, Reader};
use crate::error::{Error, Fault, Hint, Result};
use crate::format::Format;
use crate::ids::IdType;
use crate::inputs::expand;
use crate::open::{self, Opened, Options, STDIN};
use crate::ranges::Shared;
use crate::source::{Cutting, Shape, Source};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// What is known of one file of a stream.
#[derive(Clone, Debug)]
pub struct FileFacts {
    /// Its path; `-` is standard input.
    pub path: PathBuf,
    /// Its format.
    pub format: Format,
    /// Whether it is compressed as a whole, by gzip or Zstandard.
    pub compressed: bool,
    /// Whether it can be read more than once: standard input and pipes cannot.
    pub rereadable: bool,
    /// Its size in bytes, if it is an ordinary file.
    pub bytes: Option<u64>,
    /// Values per row.
    pub dim: usize,
    /// Element type of its batches.
    pub kind: Kind,
    /// Number of rows, if its header or its size gives it.
    pub rows: Option<u64>,
    /// Where it can be cut into ranges of rows, if it can.
    pub(crate) cutting: Option<Cutting>,
    /// The type of its ids, if it has some and its schema gives their type.
    pub(crate) id_type: Option<IdType>,
}

/// One or many files as one stream of rows.
///
/// An input is a file, a folder (all files in it and below it whose names tell a format), a pattern such as
/// `part-*.npy`, or `-` for standard input. The files of a folder or pattern are sorted. All files must
/// have the same dimension; formats and element types may differ.
///
/// ```
/// use frosh::{Config, Sketcher};
/// use frosh_io::{Options, Vectors};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a.csv");
/// # std::fs::write(&path, "1,2\n3,4\n5,6\n").unwrap();
///
/// let vectors = Vectors::open(&[path], &Options::default())?;
/// assert_eq!(vectors.dim(), 2);
///
/// let mut sketcher = Sketcher::new(Config::new(vectors.dim()).sketch_rows(4))?;
/// let mut batches = vectors.batches();
/// while let Some(batch) = batches.next()? {
///     batch.feed(&mut sketcher)?;
/// }
/// assert_eq!(sketcher.rows(), 3);
/// # Ok::<(), frosh_io::Error>(())
/// ```
pub struct Vectors {
    /// The files and the options.
    pub(crate) shared: Arc<Shared>,
    /// Open sources of files that cannot be opened a second time (standard input, pipes).
    opened: Mutex<HashMap<PathBuf, Box<dyn Source>>>,
}

impl Vectors {
    /// Finds the files and reads their headers. LIBSVM text without a dimension is read once in full.
    pub fn open(inputs: &[impl AsRef<OsStr>], options: &Options) -> Result<Self> {
        let paths = expand(inputs)?;
        let mut options = options.clone();
        let mut files: Vec<FileFacts> = Vec::with_capacity(paths.len());
        let mut opened = HashMap::new();
        find_libsvm_dim(&paths, &mut options)?;
        for path in paths {
            let Opened { format, compressed, rereadable, mut source } =
                open::open(&path, &options).map_err(|fault| fault.at(&path))?;
            let Shape { dim, kind, rows } = source.shape();
            let cutting = source.cutting().filter(|_| rereadable);
            let id_type = source.ids().and_then(|ids| ids.id_type());
            if !rereadable && opened.insert(path.clone(), source).is_some() {
                return Err(Error::usage(format!("{} can be read only once", path.display())));
            }
            if let Some(first) = files.first().filter(|first| first.dim != dim) {
                let (first, expected) = (first.path.clone(), first.dim);
                return Err(Error::Dimension { first, expected, other: path, got: dim });
            }
            let bytes = std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file);
            let bytes = bytes.map(|m| m.len());
            files.push(FileFacts {
                path,
                format,
                compressed,
                rereadable,
                bytes,
                dim,
                kind,
                rows,
                cutting,
                id_type,
            });
        }
        if options.column.is_some() && options.columns.is_some() {
            return Err(Error::usage(
                "one column with vectors and columns of numbers are both chosen",
            ));
        }
        // An option that no file has a use for is a mistake.
        let none_is = |formats: &[Format]| !files.iter().any(|file| formats.contains(&file.format));
        if options.column.is_some() && none_is(&[Format::Parquet, Format::Arrow, Format::Jsonl]) {
            let why = "a column is chosen, but no file is Parquet, Arrow or JSON Lines".into();
            return Err(Error::Usage { why, hint: Some(Hint::OmitColumn) });
        }
        if options.columns.is_some()
            && none_is(&[Format::Parquet, Format::Arrow, Format::Csv, Format::Tsv])
        {
            let why = "columns are chosen, but no file is Parquet, Arrow, CSV or TSV".into();
            return Err(Error::Usage { why, hint: Some(Hint::OmitColumns) });
        }
        if options.dataset.is_some() && none_is(&[Format::Hdf5, Format::Npz, Format::Safetensors]) {
            let why = "a data set is chosen, but no file is HDF5, .npz or safetensors".into();
            return Err(Error::Usage { why, hint: Some(Hint::OmitDataset) });
        }
        Ok(Self { shared: Arc::new(Shared::new(files, options)), opened: Mutex::new(opened) })
    }

    /// The files, in the order of the stream.
    pub fn files(&self) -> &[FileFacts] {
        &self.shared.files
    }

    /// Values per row.
    pub fn dim(&self) -> usize {
        self.files()[0].dim
    }

    /// Element type of the first file.
    pub fn kind(&self) -> Kind {
        self.files()[0].kind
    }

    /// Number of rows of all files, if it is known before reading. With
    /// [`Options::skip_bad`](crate::Options::skip_bad) it is not.
    pub fn rows(&self) -> Option<u64> {
        if self.options().skip_bad {
            return None;
        }
        self.files().iter().map(|file| file.rows).sum()
    }

    pub(crate) fn options(&self) -> &Options {
        &self.shared.options
    }

    /// Reads all rows, in a thread of its own.
    pub fn batches(&self) -> Batches {
        self.batches_from(0)
    }

    /// Reads the rows from number `row` on.
    pub fn batches_from(&self, row: u64) -> Batches {
        let opened =
            self.opened.lock().map(|mut opened| std::mem::take(&mut *opened)).unwrap_or_default();
        let (files, options) = (self.files().to_vec(), self.options().clone());
        Batches::start(Reader { files, options, opened, skip: row })
    }
}

/// Sets the dimension to the largest index in all LIBSVM files, unless it is set.
fn find_libsvm_dim(paths: &[PathBuf], options: &mut Options) -> Result<()> {
    if options.dim.is_some() {
        return Ok(());
    }
    let mut largest = None;
    for path in paths.iter().filter(|path| path.as_os_str() != STDIN) {
        let named = Format::of_name(path) == Some(Format::Libsvm);
        if options.format == Some(Format::Libsvm) || (options.format.is_none() && named) {
            let detected = open::detect(path, options).map_err(|fault| fault.at(path))?;
            if !detected.rereadable {
                let why = "LIBSVM text does not tell its dimension, and a stream is not read twice";
                return Err(Fault::file(why).hint(Hint::SetDimension).at(path));
            }
            let index = crate::libsvm::largest_index(Box::new(detected.bytes));
            largest = largest.max(Some(index.map_err(|fault| fault.at(path))?));
        }
    }
    options.dim = largest;
    Ok(())
}
