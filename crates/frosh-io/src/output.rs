//! Writing vectors: one file, whole or not at all.

use crate::batch::{Batch, Kind, Values};
use crate::bigann::RawSink;
use crate::cast::cast;
use crate::error::{Error, Fault, Result};
use crate::format::Format;
use crate::npy::NpzSink;
use crate::source::Sink;
use crate::vecs::VecsSink;
use crate::{arrow, bigann, csv, hdf5, idx, libsvm, npy, parquet};
use frosh::AtomicFile;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

/// What to write.
#[derive(Clone, Debug)]
pub struct Target {
    /// The format; [`Format::of_name`] finds it from a file's name.
    pub format: Format,
    /// The element type wanted; the formats that can hold only one decide themselves.
    pub kind: Kind,
    /// Values per row.
    pub dim: usize,
    /// Rows, where they are known: `.npz` needs them.
    pub rows: Option<u64>,
    /// Name of the column, data set or array inside the file.
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
            // 32-bit integers travel as f64, which holds them all.
            Format::Ivecs => Kind::F64,
            _ => self.kind,
        }
    }
}

/// A file of vectors that is being written. Dropped before [`Output::finish`], it leaves nothing behind.
pub struct Output {
    sink: Box<dyn Sink>,
    /// None when it goes to standard output.
    whole: Option<AtomicFile>,
    path: PathBuf,
    kind: Kind,
    cast: Values,
    rows: u64,
}

impl Output {
    /// Begins a file, or standard output (`-`), which takes the formats that need no way back.
    pub fn create(path: &Path, target: &Target) -> Result<Self> {
        let kind = target.kind();
        let fault = |fault: Fault| fault.at(path);
        let (sink, whole) = if path.as_os_str() == "-" {
            (stream(target).map_err(fault)?, None)
        } else {
            let packed = path.extension().is_some_and(|e| e == "gz" || e == "zst");
            if packed {
                let why =
                    "files are written as they are: leave out the ending, and pack it afterwards";
                return Err(Error::File { path: path.to_owned(), why: why.into() });
            }
            let whole = AtomicFile::begin(path)?;
            (seekable(&whole, target).map_err(fault)?, Some(whole))
        };
        Ok(Self { sink, whole, path: path.to_owned(), kind, cast: Values::empty(kind), rows: 0 })
    }

    /// Takes the rows of a batch.
    pub fn write(&mut self, batch: &Batch) -> Result<()> {
        if batch.values.kind() == self.kind {
            return self.write_values(&batch.values, batch.dim);
        }
        let mut values = std::mem::replace(&mut self.cast, Values::empty(self.kind));
        let done = cast(&batch.values, self.kind, batch.dim, batch.first, &mut values)
            .map_err(|fault| fault.at(&batch.path));
        let done = done.and_then(|()| self.write_values(&values, batch.dim));
        self.cast = values;
        done
    }

    /// Takes whole rows of `dim` values, of the target's kind.
    pub fn write_values(&mut self, values: &Values, dim: usize) -> Result<()> {
        self.rows += (values.len() / dim) as u64;
        self.sink.write(values).map_err(|fault| fault.at(&self.path))
    }

    /// Rows taken.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Completes the file and gives it its name.
    pub fn finish(mut self) -> Result<()> {
        self.sink.finish().map_err(|fault| fault.at(&self.path))?;
        // Open handles are given up before the file is renamed.
        drop(self.sink);
        Ok(self.whole.map_or(Ok(()), AtomicFile::commit)?)
    }
}

/// Formats that are written from front to back.
fn stream(target: &Target) -> std::result::Result<Box<dyn Sink>, Fault> {
    let out = BufWriter::with_capacity(1 << 16, std::io::stdout());
    let dim = target.dim;
    Ok(match target.format {
        Format::Raw => Box::new(RawSink(out)),
        Format::Csv => Box::new(csv::sink(out, dim, b',')),
        Format::Tsv => Box::new(csv::sink(out, dim, b'\t')),
        Format::Libsvm => Box::new(libsvm::sink(out, dim)),
        Format::Fvecs | Format::Bvecs | Format::Ivecs => Box::new(VecsSink::new(out, dim)),
        other => {
            return Err(Fault::File(format!(
                "{other} cannot be written to standard output: choose raw, csv, tsv, libsvm or a vecs \
                 format with --to, or write a file"
            )));
        }
    })
}

fn seekable(whole: &AtomicFile, target: &Target) -> std::result::Result<Box<dyn Sink>, Fault> {
    let file = whole.file().try_clone()?;
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
        Format::Parquet => Box::new(parquet::sink(file, kind, dim, name.unwrap_or("vector"))?),
        Format::Arrow => Box::new(arrow::sink(file, kind, dim, name.unwrap_or("vector"))?),
        Format::Hdf5 => Box::new(hdf5::sink(file, kind, dim, name.unwrap_or("train"))?),
    })
}
