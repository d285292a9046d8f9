//! One array of a segment: a `.npy` file, so that NumPy opens it too.
//!
//! The header is a function of type and shape, which the manifest knows: reading compares it byte by byte and
//! parses nothing. Values are little-endian.

use crate::bytes::Bytes;
use crate::error::{Error, Result};
use std::fs::File;
use std::io::{BufWriter, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Length of magic, version and header: room for any shape, and values begin at a cache line.
const HEADER: usize = 128;

/// Type and width of an array.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    /// What the file's name ends with, before `.npy`.
    pub(super) name: &'static str,
    /// NumPy's name of the type.
    descr: &'static str,
    /// Bytes of a value.
    item: usize,
    /// Values of a row; none for an array of one axis.
    columns: Option<usize>,
}

impl Form {
    pub(super) fn bytes(name: &'static str, columns: usize) -> Self {
        Self { name, descr: "|u1", item: 1, columns: Some(columns) }
    }
    pub(super) fn ids() -> Self {
        Self { name: "ids", descr: "<u8", item: 8, columns: None }
    }
    pub(super) fn vectors(descr: &'static str, item: usize, dim: usize) -> Self {
        Self { name: "vectors", descr, item, columns: Some(dim) }
    }

    /// Bytes of a row.
    pub(super) fn width(&self) -> usize {
        self.item * self.columns.unwrap_or(1)
    }

    fn header(&self, rows: u64) -> [u8; HEADER] {
        let shape = match self.columns {
            Some(columns) => format!("({rows}, {columns})"),
            None => format!("({rows},)"),
        };
        let text =
            format!("{{'descr': '{}', 'fortran_order': False, 'shape': {shape}, }}", self.descr);
        let mut header = [b' '; HEADER];
        header[..8].copy_from_slice(b"\x93NUMPY\x01\x00");
        header[8..10].copy_from_slice(&(HEADER as u16 - 10).to_le_bytes());
        header[10..10 + text.len()].copy_from_slice(text.as_bytes());
        header[HEADER - 1] = b'\n';
        header
    }
}

/// An array in the making.
pub(super) struct Column {
    form: Form,
    path: PathBuf,
    file: BufWriter<File>,
    hash: Xxh3,
    bytes: u64,
}

impl Column {
    pub(super) fn create(path: PathBuf, form: Form) -> Result<Self> {
        let io = |source| Error::Io { path: path.clone(), source };
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
        let mut file = BufWriter::with_capacity(1 << 18, file.map_err(io)?);
        // No valid header until the array is complete.
        file.write_all(&[0; HEADER]).map_err(io)?;
        Ok(Self { form, path, file, hash: Xxh3::new(), bytes: 0 })
    }

    /// Adds whole rows.
    pub(super) fn write(&mut self, rows: &[u8]) -> Result<()> {
        debug_assert!(rows.len().is_multiple_of(self.form.width()));
        self.hash.update(rows);
        self.bytes += rows.len() as u64;
        self.file.write_all(rows).map_err(|source| Error::Io { path: self.path.clone(), source })
    }

    /// Puts the header in front and syncs; the checksum of the values.
    pub(super) fn finish(mut self) -> Result<String> {
        let rows = self.bytes / self.form.width() as u64;
        let mut done = || {
            self.file.seek(SeekFrom::Start(0))?;
            self.file.write_all(&self.form.header(rows))?;
            self.file.flush()?;
            self.file.get_ref().sync_all()
        };
        done().map_err(|source| Error::Io { path: self.path.clone(), source })?;
        Ok(text(self.hash.digest()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn form(&self) -> Form {
        self.form
    }
}

fn text(digest: u64) -> String {
    format!("xxh3:{digest:016x}")
}

/// The checksum of some bytes, as [`Column::finish`] gives it.
pub(super) fn checksum(bytes: &[u8]) -> String {
    text(xxh3_64(bytes))
}

/// Maps the values of an array of `rows` rows.
pub(super) fn map(path: &Path, form: Form, rows: u64) -> Result<Bytes> {
    let io = |source| Error::Io { path: path.to_owned(), source };
    let file = File::open(path).map_err(io)?;
    let size = rows.checked_mul(form.width() as u64).and_then(|n| n.checked_add(HEADER as u64));
    let got = file.metadata().map_err(io)?.len();
    if size != Some(got) {
        let why = format!(
            "has {got} bytes, but {rows} rows of {} and the header are expected: it is damaged",
            form.width()
        );
        return Err(Error::File { path: Some(path.to_owned()), why });
    }
    let mut header = [0u8; HEADER];
    std::io::Read::read_exact(&mut &file, &mut header).map_err(io)?;
    if header != form.header(rows) {
        let why = "its header does not fit the index: it is damaged".into();
        return Err(Error::File { path: Some(path.to_owned()), why });
    }
    Bytes::map(&file, HEADER).map_err(io)
}
