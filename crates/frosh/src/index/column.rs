//! One array of a segment, as a `.npy` file that NumPy can open too.
//!
//! The header follows from type and shape, which the manifest has. So a reader compares the header byte by byte and parses
//! nothing. Values are little-endian.

use super::disk;
use super::seal::BLOCK;
use crate::error::{Error, Result};
use crate::storage::mapped::Bytes;
use std::fs::File;
use std::io::{Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Length of magic, version and header. Any shape fits, and the values start at a cache line.
const HEADER: usize = 128;
/// Bytes that are buffered before they are written: whole blocks.
const BUFFER: usize = 64 * BLOCK;

/// Type and width of an array.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    /// The part of the file name before `.npy`.
    pub(super) name: &'static str,
    /// NumPy's name of the type.
    descr: &'static str,
    /// Bytes of a value.
    item: usize,
    /// Values per row; `None` for a one-dimensional array.
    columns: Option<usize>,
}

impl Form {
    pub(super) fn bytes(name: &'static str, columns: usize) -> Self {
        Self { name, descr: "|u1", item: 1, columns: Some(columns) }
    }
    pub(super) fn ids() -> Self {
        Self { name: "ids", descr: "<u8", item: 8, columns: None }
    }
    /// Checksums of the blocks of a segment's arrays.
    pub(super) fn checksums() -> Self {
        Self { name: "checksums", descr: "<u8", item: 8, columns: None }
    }
    /// The bytes of the names of rows.
    pub(super) fn names() -> Self {
        Self { name: "names", descr: "|u1", item: 1, columns: None }
    }
    /// Where the names of rows end.
    pub(super) fn name_ends() -> Self {
        Self { name: "name_ends", descr: "<u8", item: 8, columns: None }
    }
    /// Hashes of names and their rows.
    pub(super) fn name_lookup() -> Self {
        Self { name: "name_lookup", descr: "<u8", item: 8, columns: None }
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

/// Writes an array.
pub(super) struct Column {
    form: Form,
    path: PathBuf,
    file: File,
    /// Bytes that are not written yet.
    buffer: Vec<u8>,
    hash: Xxh3,
    /// Checksums of the blocks that were written.
    blocks: Vec<u64>,
    bytes: u64,
}

/// The checksums of a complete array.
pub(super) struct Finished {
    pub(super) whole: String,
    pub(super) blocks: Vec<u64>,
}

impl Column {
    pub(super) fn create(path: PathBuf, form: Form) -> Result<Self> {
        let mut file = disk::create(&path)?;
        // No valid header until the array is complete.
        disk::write(&mut file, &path, &[0; HEADER])?;
        let (buffer, hash, blocks) = (Vec::new(), Xxh3::new(), Vec::new());
        Ok(Self { form, path, file, buffer, hash, blocks, bytes: 0 })
    }

    /// Appends whole rows.
    pub(super) fn write(&mut self, rows: &[u8]) -> Result<()> {
        debug_assert!(rows.len().is_multiple_of(self.form.width()));
        self.bytes += rows.len() as u64;
        self.buffer.extend_from_slice(rows);
        if self.buffer.len() >= BUFFER {
            self.flush(self.buffer.len() / BLOCK * BLOCK)?;
        }
        Ok(())
    }

    /// Writes the first bytes of the buffer: whole blocks, or the end of the array.
    fn flush(&mut self, length: usize) -> Result<()> {
        let bytes = &self.buffer[..length];
        self.hash.update(bytes);
        self.blocks.extend(bytes.chunks(BLOCK).map(xxh3_64));
        disk::write(&mut self.file, &self.path, bytes)?;
        self.buffer.drain(..length);
        Ok(())
    }

    /// Writes the header and syncs the file. Returns the checksums of the values.
    pub(super) fn finish(mut self) -> Result<Finished> {
        self.flush(self.buffer.len())?;
        let rows = self.bytes / self.form.width() as u64;
        let path = &self.path;
        let start = self.file.seek(SeekFrom::Start(0));
        start.map_err(|source| Error::Io { path: path.clone(), source })?;
        disk::write(&mut self.file, path, &self.form.header(rows))?;
        disk::sync_file(&self.file, path)?;
        Ok(Finished { whole: text(self.hash.digest()), blocks: self.blocks })
    }

    /// Completes the array, maps it and removes its file name, so that the rows can be written again in another order.
    /// Fails if the bytes on disk differ from those written.
    pub(super) fn read_back(self) -> Result<Bytes> {
        let (path, form, rows) =
            (self.path.clone(), self.form, self.bytes / self.form.width() as u64);
        let written = self.finish()?.whole;
        let bytes = map(&path, form, rows)?;
        check_written(&bytes, &written, &path)?;
        // The mapping stays valid after the file name is removed.
        disk::remove(&path)?;
        Ok(bytes)
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

/// The checksum of some bytes, in the form of [`Finished::whole`].
pub(super) fn checksum(bytes: &[u8]) -> String {
    text(xxh3_64(bytes))
}

/// Fails if the bytes of a file differ from those that were written to it, which have this checksum.
pub(super) fn check_written(bytes: &[u8], written: &str, path: &Path) -> Result<()> {
    if checksum(bytes) != written {
        let why = "is not read as it was written: the disk or the memory is damaged".into();
        return Err(Error::File { path: Some(path.to_owned()), why });
    }
    Ok(())
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
