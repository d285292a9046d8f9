//! `.npy` and `.npz`: NumPy's arrays, format versions 1 to 3, either byte order, C and Fortran order.
//!
//! A `.npy` file is the magic `\x93NUMPY`, the version, the length of the header (2 bytes in version 1,
//! 4 later), the header (a Python dictionary with `descr`, `fortran_order` and `shape`), the values.
//! The header is parsed here and not by a crate: the one there is allocates what a header claims, and its
//! grammar engine needs an assembler to build.
//!
//! Cost: C order, none beyond reading. Fortran order: each batch reads a run of every column and turns it,
//! so that only a batch is in memory.

use crate::batch::{Kind, Values};
use crate::error::Fault;
use crate::flat::{Bytes, Ending, Flat, FlatSink, Layout, Stored, checked_dim, write_values};
use crate::source::{Shape, Sink, Source};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};

/// How a `.npy` file begins.
pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";
/// NumPy's own headers are 128 bytes; structured types, which we refuse, can be longer.
const MAX_HEADER: usize = 1 << 16;
/// Length of the preamble and header that we write: room for any shape.
const WRITTEN: usize = 128;

/// What a header says.
#[derive(Debug)]
struct Header {
    layout: Layout,
    fortran: bool,
    rows: u64,
    dim: usize,
}

/// What stands before the values, as it stands there.
pub(crate) struct Preamble {
    /// The element type, such as `<f4`.
    pub(crate) descr: String,
    fortran: bool,
    /// The length of each axis.
    pub(crate) shape: Vec<u64>,
}

impl Preamble {
    /// The shape, as Python writes it.
    pub(crate) fn shape(&self) -> String {
        let lengths: Vec<String> = self.shape.iter().map(u64::to_string).collect();
        format!("({}{})", lengths.join(", "), if lengths.len() == 1 { "," } else { "" })
    }
}

/// Opens a `.npy` file or stream.
pub(crate) fn open(mut bytes: Bytes) -> Result<Box<dyn Source>, Fault> {
    let header = parse_header(&read_preamble(&mut bytes)?)?;
    let Header { layout, rows, dim, .. } = header;
    if !header.fortran || dim == 1 || rows <= 1 {
        return Ok(Box::new(Flat::new(bytes, layout, dim, Some(rows))?));
    }
    match bytes {
        Bytes::File(mut file, left) => {
            let start = file.stream_position()?;
            // The same check of the size as for C order.
            Flat::new(Bytes::File(file.try_clone()?, left), layout, dim, Some(rows))?;
            Ok(Box::new(Fortran { file, start, layout, rows, dim, at: 0, column: Vec::new() }))
        }
        Bytes::Stream(..) => Err(
            "is in Fortran order, which cannot be read from a stream: decompress it, or save it from a \
             file in C order (numpy.ascontiguousarray)"
                .into(),
        ),
    }
}

/// Reads everything before the values.
pub(crate) fn read_preamble(reader: &mut impl Read) -> Result<Preamble, Fault> {
    let mut head = [0u8; 8];
    reader.read_exact(&mut head)?;
    if &head[..6] != MAGIC {
        return Err(Fault::File(format!(
            "is no .npy file: it begins with {:02x?}, expected \\x93NUMPY",
            &head[..6]
        )));
    }
    let length = match head[6] {
        1 => {
            let mut length = [0u8; 2];
            reader.read_exact(&mut length)?;
            u16::from_le_bytes(length).into()
        }
        2 | 3 => {
            let mut length = [0u8; 4];
            reader.read_exact(&mut length)?;
            u32::from_le_bytes(length) as usize
        }
        version => {
            return Err(Fault::File(format!(
                "is of .npy version {version}, and versions 1 to 3 can be read: save it again"
            )));
        }
    };
    if length > MAX_HEADER {
        return Err(Fault::File(format!(
            "has a header of {length} bytes, and at most {MAX_HEADER} make sense: it is damaged"
        )));
    }
    let mut text = vec![0u8; length];
    reader.read_exact(&mut text)?;
    parse_preamble(&String::from_utf8_lossy(&text))
}

/// Reads the three entries of the dictionary, in any order.
fn parse_preamble(text: &str) -> Result<Preamble, Fault> {
    let entry = |key: &str| -> Result<&str, Fault> {
        let missing = || Fault::File(format!("its header has no {key:?}: it is damaged"));
        let after = [format!("'{key}'"), format!("\"{key}\"")]
            .iter()
            .find_map(|quoted| text.split_once(quoted.as_str()))
            .ok_or_else(missing)?
            .1;
        Ok(after.trim_start().strip_prefix(':').ok_or_else(missing)?.trim_start())
    };
    let descr = parse_descr(entry("descr")?)?.to_owned();
    let fortran = match entry("fortran_order")? {
        t if t.starts_with("True") => true,
        t if t.starts_with("False") => false,
        _ => return Err("its header's fortran_order is neither True nor False".into()),
    };
    let shape = entry("shape")?.strip_prefix('(').and_then(|s| s.split_once(')'));
    let shape = shape.ok_or("its header's shape has no brackets: it is damaged")?.0;
    let lengths: Option<Vec<u64>> = shape
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(|part| part.parse().ok())
        .collect();
    match lengths {
        Some(shape) => Ok(Preamble { descr, fortran, shape }),
        None => Err(Fault::File(format!("its header's shape ({shape}) is not made of numbers"))),
    }
}

fn parse_header(preamble: &Preamble) -> Result<Header, Fault> {
    let Preamble { descr, fortran, shape } = preamble;
    let layout = parse_type(descr)?;
    match shape[..] {
        [rows, dim] => Ok(Header { layout, fortran: *fortran, rows, dim: checked_dim(dim)? }),
        _ => Err(Fault::File(format!(
            "holds an array of {} axes, shape {}, but vectors are the rows of an array of two: \
             reshape it to (rows, dimensions)",
            shape.len(),
            preamble.shape()
        ))),
    }
}

/// The name of the element type, such as `<f4`.
fn parse_descr(text: &str) -> Result<&str, Fault> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'));
    let descr = quote.and_then(|q| text[1..].split_once(q)).map(|(descr, _)| descr);
    descr.ok_or_else(|| {
        "holds a structured array: save its vectors as a plain array of numbers".into()
    })
}

/// A type's byte order (whether it is big-endian) and its name without it.
pub(crate) fn split_order(descr: &str) -> (bool, &str) {
    match descr.as_bytes().first() {
        Some(b'<' | b'|' | b'=') => {
            (cfg!(target_endian = "big") && descr.starts_with('='), &descr[1..])
        }
        Some(b'>') => (true, &descr[1..]),
        _ => (false, descr),
    }
}

fn parse_type(descr: &str) -> Result<Layout, Fault> {
    let (order, name) = split_order(descr);
    let stored = match name {
        "f2" => Stored::As(Kind::F16),
        "f4" => Stored::As(Kind::F32),
        "f8" => Stored::As(Kind::F64),
        "u1" => Stored::As(Kind::U8),
        "i1" => Stored::As(Kind::I8),
        "i2" => Stored::I16,
        "i4" => Stored::I32,
        _ => {
            return Err(Fault::File(format!(
                "holds values of type {descr:?}; f2, f4, f8, u1, i1, i2 and i4 can be read: convert \
                 with array.astype('float32')"
            )));
        }
    };
    Ok(Layout { stored, big_endian: order })
}

/// A file whose columns lie one after the other.
struct Fortran {
    file: File,
    start: u64,
    layout: Layout,
    rows: u64,
    dim: usize,
    at: u64,
    column: Vec<u8>,
}

impl Source for Fortran {
    fn shape(&self) -> Shape {
        Shape { dim: self.dim, kind: self.layout.stored.kind(), rows: Some(self.rows) }
    }

    fn read(&mut self, limit: usize, values: &mut Values) -> Result<usize, Fault> {
        let rows = usize::try_from(self.rows - self.at).unwrap_or(limit).min(limit);
        let size = self.layout.stored.bytes();
        values.clear(self.layout.stored.kind());
        values.resize(rows * self.dim);
        let mut column = Values::empty(self.layout.stored.kind());
        for j in 0..self.dim {
            // Within the file's size, which was checked: no overflow.
            let place = self.start + (j as u64 * self.rows + self.at) * size as u64;
            self.file.seek(SeekFrom::Start(place))?;
            self.layout.read(&mut self.file, rows, &mut column, &mut self.column)?;
            scatter(&column, values, j, self.dim);
        }
        self.at += rows as u64;
        Ok(rows)
    }

    fn skip(&mut self, rows: u64) -> Result<(), Fault> {
        self.at = self.rows.min(self.at.saturating_add(rows));
        Ok(())
    }
}

/// Writes a column into the rows.
fn scatter(column: &Values, rows: &mut Values, j: usize, dim: usize) {
    fn one<T: Copy>(column: &[T], rows: &mut [T], j: usize, dim: usize) {
        rows.iter_mut().skip(j).step_by(dim).zip(column).for_each(|(to, from)| *to = *from);
    }
    match (column, rows) {
        (Values::F16(c), Values::F16(r)) => one(c, r, j, dim),
        (Values::F32(c), Values::F32(r)) => one(c, r, j, dim),
        (Values::F64(c), Values::F64(r)) => one(c, r, j, dim),
        (Values::U8(c), Values::U8(r)) => one(c, r, j, dim),
        (Values::I8(c), Values::I8(r)) => one(c, r, j, dim),
        _ => unreachable!("both were made of the same kind"),
    }
}

/// The arrays of a `.npz` file: names without `.npy`.
pub(crate) fn names(file: File) -> Result<Vec<String>, Fault> {
    let archive = zip::ZipArchive::new(file).map_err(|e| damaged(&e))?;
    Ok(entries(&archive)?.iter().map(|name| name.trim_end_matches(".npy").to_owned()).collect())
}

fn entries(archive: &zip::ZipArchive<File>) -> Result<Vec<String>, Fault> {
    let names: zip::result::ZipResult<Vec<_>> = archive.file_names().collect();
    Ok(names.map_err(|e| damaged(&e))?.into_iter().map(|name| name.into_owned()).collect())
}

fn damaged(e: &zip::result::ZipError) -> Fault {
    Fault::File(format!("is no .npz file, or damaged ({e})"))
}

/// Opens one array of a `.npz` file; the name may be left out when there is just one.
pub(crate) fn open_npz(file: File, array: Option<&str>) -> Result<Box<dyn Source>, Fault> {
    let mut archive = zip::ZipArchive::new(file.try_clone()?).map_err(|e| damaged(&e))?;
    let names = entries(&archive)?;
    let plain = |name: &str| name.trim_end_matches(".npy").to_owned();
    let list = || names.iter().map(|n| plain(n)).collect::<Vec<_>>().join(", ");
    let index = match (array, &names[..]) {
        (Some(wanted), _) => names
            .iter()
            .position(|n| n == wanted || plain(n) == wanted)
            .ok_or_else(|| Fault::File(format!("has no array {wanted:?}; it has {}", list())))?,
        (None, [_]) => 0,
        (None, []) => return Err("holds no arrays".into()),
        (None, _) => {
            return Err(Fault::File(format!("holds {}: choose one with --dataset", list())));
        }
    };
    let entry = archive.by_index_raw(index).map_err(|e| damaged(&e))?;
    let start = entry.data_start().ok_or("has an entry without data: it is damaged")?;
    let (method, length, expected) = (entry.compression(), entry.compressed_size(), entry.crc32());
    drop(entry);
    drop(archive);
    let mut file = file;
    file.seek(SeekFrom::Start(start))?;
    match method {
        zip::CompressionMethod::Stored => {
            let left = file.metadata()?.len().saturating_sub(start).min(length);
            open(Bytes::File(file, left))
        }
        zip::CompressionMethod::DEFLATE => {
            let inflated = flate2::read::DeflateDecoder::new(file.take(length));
            let checked = Summed { reader: inflated, sum: flate2::Crc::new(), expected };
            open(Bytes::Stream(Box::new(checked), Ending::Checked))
        }
        other => Err(Fault::File(format!("is compressed by {other}, which NumPy does not write"))),
    }
}

/// A reader that compares the checksum of what it read at the end.
struct Summed<R> {
    reader: R,
    sum: flate2::Crc,
    expected: u32,
}

impl<R: Read> Read for Summed<R> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let got = self.reader.read(buf)?;
        self.sum.update(&buf[..got]);
        if got == 0 && !buf.is_empty() && self.sum.sum() != self.expected {
            let why = "the checksum of the entry does not fit: damaged";
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, why));
        }
        Ok(got)
    }
}

/// The preamble and header of a C-order array.
fn header(kind: Kind, rows: u64, dim: usize) -> [u8; WRITTEN] {
    let descr = match kind {
        Kind::F16 => "<f2",
        Kind::F32 => "<f4",
        Kind::F64 => "<f8",
        Kind::U8 => "|u1",
        Kind::I8 => "|i1",
    };
    let text =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({rows}, {dim}), }}");
    let mut out = [b' '; WRITTEN];
    out[..6].copy_from_slice(MAGIC);
    out[6..8].copy_from_slice(&[1, 0]);
    out[8..10].copy_from_slice(&(WRITTEN as u16 - 10).to_le_bytes());
    out[10..10 + text.len()].copy_from_slice(text.as_bytes());
    out[WRITTEN - 1] = b'\n';
    out
}

/// Writes a `.npy` file.
pub(crate) fn sink<W: Write + Seek>(
    writer: W,
    kind: Kind,
    dim: usize,
) -> Result<FlatSink<W>, Fault> {
    FlatSink::new(writer, dim, move |rows| Ok(header(kind, rows, dim).to_vec()))
}

/// Writes a `.npz` file with one array, stored as it is. The number of rows must be known, since it
/// stands in front of them.
pub(crate) struct NpzSink<W: Write + Seek> {
    /// None once it is complete.
    zip: Option<zip::ZipWriter<W>>,
    expected: u64,
    dim: usize,
    rows: u64,
}

impl<W: Write + Seek> NpzSink<W> {
    pub(crate) fn new(
        writer: W,
        kind: Kind,
        dim: usize,
        rows: Option<u64>,
        array: &str,
    ) -> Result<Self, Fault> {
        let expected = rows.ok_or(
            "cannot be written before the number of rows is known, which the input does not tell: \
             convert to .npy first",
        )?;
        let mut zip = zip::ZipWriter::new(writer);
        let options = zip::write::SimpleFileOptions::default()
            .compression_method(zip::CompressionMethod::Stored)
            .last_modified_time(zip::DateTime::default())
            .large_file(true);
        zip.start_file(format!("{array}.npy"), options).map_err(std::io::Error::from)?;
        zip.write_all(&header(kind, expected, dim))?;
        Ok(Self { zip: Some(zip), expected, dim, rows: 0 })
    }
}

impl<W: Write + Seek> Sink for NpzSink<W> {
    fn write(&mut self, values: &Values) -> Result<(), Fault> {
        self.rows += (values.len() / self.dim) as u64;
        match &mut self.zip {
            Some(zip) => write_values(zip, values),
            None => Err("is complete already".into()),
        }
    }

    fn finish(&mut self) -> Result<(), Fault> {
        if self.rows != self.expected {
            return Err(Fault::File(format!(
                "got {} rows where {} were announced",
                self.rows, self.expected
            )));
        }
        if let Some(zip) = self.zip.take() {
            zip.finish().map_err(std::io::Error::from)?.flush()?;
        }
        Ok(())
    }
}
