//! Writing vectors to one file, which replaces an older one atomically.

use crate::batch::{Batch, Kind, Values};
use crate::bigann::RawSink;
use crate::cast::cast;
use crate::error::{Fault, Hint, Result};
use crate::format::Format;
use crate::npy::NpzSink;
use crate::source::Sink;
use crate::vecs::VecsSink;
use crate::{arrow, bigann, csv, hdf5, idx, jsonl, libsvm, npy, parquet, safetensors, words};
use frosh::AtomicFile;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

/// What kind of file to write.
#[derive(Clone, Debug)]
pub struct Target {
    /// The format; [`Format::of_name`] finds it from a file's name.
    pub format: Format,
    /// The element type; formats that can hold only one element type ignore it.
    pub kind: Kind,
    /// Values per row.
    pub dim: usize,
    /// Number of rows, if it is known. `.npz` needs it.
    pub rows: Option<u64>,
    /// Name of the column, data set or array in the file.
    pub name: Option<String>,
}

impl Target {
    /// The element type that the file will hold.
    pub fn kind(&self) -> Kind {
        match self.format {
            Format::Fvecs | Format::Fbin | Format::Libsvm => Kind::F32,
            Format::F16bin => Kind::F16,
            Format::Bvecs | Format::U8bin | Format::Idx => Kind::U8,
            Format::I8bin => Kind::I8,
            // Batches hold 32-bit integers as f64.
            Format::Ivecs => Kind::F64,
            _ => self.kind,
        }
    }
}

/// Writes a file of vectors.
///
/// The file appears under its name when [`Output::finish`] is called. If it is dropped before, nothing is
/// left behind, and an older file of that name stays as it was.
///
/// ```
/// use frosh_io::{Format, Kind, Options, Output, Target, Values, Vectors};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("vectors.npy");
///
/// let target = Target { format: Format::Npy, kind: Kind::F32, dim: 2, rows: None, name: None };
/// let mut output = Output::create(&path, &target)?;
/// output.write_values(&Values::F32(vec![1.0, 2.0, 3.0, 4.0]), 2)?;
/// output.finish()?;
///
/// let vectors = Vectors::open(&[&path], &Options::default())?;
/// assert_eq!((vectors.rows(), vectors.dim()), (Some(2), 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Output {
    sink: Box<dyn Sink>,
    /// None for standard output.
    file: Option<AtomicFile>,
    path: PathBuf,
    kind: Kind,
    /// Memory for values that are converted.
    converted: Values,
    rows: u64,
}

impl Output {
    /// Begins a file, or standard output (`-`), which takes only formats that are written from front to back.
    pub fn create(path: &Path, target: &Target) -> Result<Self> {
        let kind = target.kind();
        let fault = |fault: Fault| fault.at(path);
        let (sink, file) = if path.as_os_str() == "-" {
            (stream_sink(target).map_err(fault)?, None)
        } else {
            if path.extension().is_some_and(|e| e == "gz" || e == "zst") {
                let why = "files are written uncompressed: leave out the extension, and compress it \
                           afterwards";
                return Err(fault(why.into()));
            }
            let file = AtomicFile::begin(path)?;
            (file_sink(&file, target).map_err(fault)?, Some(file))
        };
        let converted = Values::empty(kind);
        Ok(Self { sink, file, path: path.to_owned(), kind, converted, rows: 0 })
    }

    /// Writes the rows of a batch, converted to the target's element type.
    pub fn write(&mut self, batch: &Batch) -> Result<()> {
        if batch.values.kind() == self.kind {
            return self.write_values(&batch.values, batch.dim);
        }
        let mut values = std::mem::replace(&mut self.converted, Values::empty(self.kind));
        let done = cast(&batch.values, self.kind, batch.dim, batch.first, &mut values)
            .map_err(|fault| fault.at(&batch.path));
        let done = done.and_then(|()| self.write_values(&values, batch.dim));
        self.converted = values;
        done
    }

    /// Writes whole rows of `dim` values, which have the element type of [`Target::kind()`].
    pub fn write_values(&mut self, values: &Values, dim: usize) -> Result<()> {
        self.rows += (values.len() / dim) as u64;
        self.sink.write(values).map_err(|fault| fault.at(&self.path))
    }

    /// Number of rows written.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Completes the file and gives it its name, in place of an older file.
    pub fn finish(mut self) -> Result<()> {
        self.sink.finish().map_err(|fault| fault.at(&self.path))?;
        // Closes the sink's handle before the file is renamed.
        drop(self.sink);
        Ok(self.file.map_or(Ok(()), AtomicFile::commit)?)
    }
}

/// A sink for standard output.
fn stream_sink(target: &Target) -> std::result::Result<Box<dyn Sink>, Fault> {
    let out = BufWriter::with_capacity(1 << 16, std::io::stdout());
    let dim = target.dim;
    Ok(match target.format {
        Format::Raw => Box::new(RawSink(out)),
        Format::Csv => Box::new(csv::sink(out, dim, b',')),
        Format::Tsv => Box::new(csv::sink(out, dim, b'\t')),
        Format::Libsvm => Box::new(libsvm::sink(out, dim)),
        Format::Jsonl => Box::new(jsonl::sink(out, dim)),
        Format::Words => Box::new(words::sink(out, dim)),
        Format::Fvecs | Format::Bvecs | Format::Ivecs => Box::new(VecsSink::new(out, dim)),
        other => {
            return Err(Fault::file(format!(
                "{other} cannot be written to standard output, only raw, csv, tsv, libsvm, jsonl, words and \
                 the vecs formats: write a file, or another format"
            ))
            .hint(Hint::ChooseOutputFormat));
        }
    })
}

/// A sink for a file.
fn file_sink(file: &AtomicFile, target: &Target) -> std::result::Result<Box<dyn Sink>, Fault> {
    let file = file.file().try_clone()?;
    let (kind, dim) = (target.kind(), target.dim);
    let name = target.name.as_deref();
    let buffered = |file| BufWriter::with_capacity(1 << 18, file);
    Ok(match target.format {
        Format::Npy => Box::new(npy::sink(buffered(file), kind, dim)?),
        Format::Npz => {
            let name = name.unwrap_or("vectors");
            Box::new(NpzSink::new(buffered(file), kind, dim, target.rows, name)?)
        }
        Format::Fvecs | Format::Bvecs | Format::Ivecs => {
            Box::new(VecsSink::new(buffered(file), dim))
        }
        Format::Fbin | Format::F16bin | Format::U8bin | Format::I8bin => {
            Box::new(bigann::sink(buffered(file), dim)?)
        }
        Format::Idx => Box::new(idx::sink(buffered(file), dim)?),
        Format::Raw => Box::new(RawSink(buffered(file))),
        Format::Csv => Box::new(csv::sink(buffered(file), dim, b',')),
        Format::Tsv => Box::new(csv::sink(buffered(file), dim, b'\t')),
        Format::Libsvm => Box::new(libsvm::sink(buffered(file), dim)),
        Format::Jsonl => Box::new(jsonl::sink(buffered(file), dim)),
        Format::Words => Box::new(words::sink(buffered(file), dim)),
        Format::Safetensors => {
            Box::new(safetensors::sink(buffered(file), kind, dim, name.unwrap_or("vectors"))?)
        }
        Format::Parquet => Box::new(parquet::sink(file, kind, dim, name.unwrap_or("vector"))?),
        Format::Arrow => Box::new(arrow::sink(file, kind, dim, name.unwrap_or("vector"))?),
        Format::Hdf5 => Box::new(hdf5::sink(file, kind, dim, name.unwrap_or("train"))?),
    })
}
