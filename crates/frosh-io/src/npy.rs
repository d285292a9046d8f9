//! `.npy` and `.npz`: NumPy's arrays, in format versions 1 to 3, of either byte order, in C and Fortran
//! order.
//!
//! A `.npy` file is the magic `\x93NUMPY`, the version, the length of the header (2 bytes in version 1,
//! 4 later), the header (a Python dictionary with `descr`, `fortran_order` and `shape`), the values.
//! The header is parsed here, and not by a crate: the crate for it allocates what a header claims, and its
//! grammar engine needs an assembler to build.
//!
//! Cost: in C order, none beyond reading. In Fortran order each batch reads a piece of every column and
//! transposes it, so that only a batch is in memory.

use crate::batch::{Kind, Values};
use crate::byte_source::{ByteSource, Ending};
use crate::error::{Fault, Hint};
use crate::flat::{Flat, FlatSink, checked_dim};
use crate::layout::{Layout, Stored, write_values};
use crate::pickle;
use crate::source::{Cutting, Places, Shape, Sink, Source};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;

/// The first bytes of a `.npy` file.
pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";
/// The longest header that is read. NumPy's headers have 128 bytes; only those of structured types, which
/// are refused, are longer.
const MAX_HEADER: usize = 1 << 16;
/// Length of the preamble and header that are written: enough for any shape.
const WRITTEN: usize = 128;

/// A header that was checked.
#[derive(Debug)]
struct Header {
    layout: Layout,
    fortran: bool,
    rows: u64,
    dim: usize,
}

/// A header as it is in the file.
pub(crate) struct Preamble {
    /// The element type, such as `<f4`.
    pub(crate) descr: String,
    fortran: bool,
    /// The length of each axis.
    pub(crate) shape: Vec<u64>,
}

impl Preamble {
    /// The shape, as Python prints it.
    pub(crate) fn shape(&self) -> String {
        let lengths: Vec<String> = self.shape.iter().map(u64::to_string).collect();
        format!("({}{})", lengths.join(", "), if lengths.len() == 1 { "," } else { "" })
    }
}

/// Opens a `.npy` file or stream.
pub(crate) fn open(mut bytes: ByteSource) -> Result<Box<dyn Source>, Fault> {
    let header = parse_header(&read_preamble(&mut bytes)?)?;
    let Header { layout, rows, dim, .. } = header;
    if !header.fortran || dim == 1 || rows <= 1 {
        return Ok(Box::new(Flat::new(bytes, layout, dim, Some(rows))?));
    }
    match bytes {
        ByteSource::File(mut file, left) => {
            let start = file.stream_position()?;
            // Checks the size, as for C order.
            Flat::new(ByteSource::File(file.try_clone()?, left), layout, dim, Some(rows))?;
            Ok(Box::new(FortranSource { file, start, layout, rows, dim, at: 0, end: rows, column: Vec::new() }))
        }
        ByteSource::Stream(..) => Err(
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
        return Err(Fault::file(format!(
            "is not a .npy file: it begins with {:02x?}, expected \\x93NUMPY",
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
            return Err(Fault::file(format!(
                "is of .npy version {version}, and versions 1 to 3 can be read: save it again"
            )));
        }
    };
    if length > MAX_HEADER {
        return Err(Fault::file(format!(
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
        let missing = || Fault::file(format!("its header has no {key:?}: it is damaged"));
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
        None => Err(Fault::file(format!("its header's shape ({shape}) is not made of numbers"))),
    }
}

fn parse_header(preamble: &Preamble) -> Result<Header, Fault> {
    let Preamble { descr, fortran, shape } = preamble;
    let layout = parse_type(descr)?;
    match shape[..] {
        [rows, dim] => Ok(Header { layout, fortran: *fortran, rows, dim: checked_dim(dim)? }),
        _ => Err(Fault::file(format!(
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
            return Err(Fault::file(format!(
                "holds values of type {descr:?}; f2, f4, f8, u1, i1, i2 and i4 can be read: convert \
                 with array.astype('float32')"
            )));
        }
    };
    Ok(Layout { stored, big_endian: order })
}

/// Reads an array in Fortran order, in which columns are stored one after the other.
struct FortranSource {
    file: File,
    start: u64,
    layout: Layout,
    rows: u64,
    dim: usize,
    /// The next row, and the row to stop before.
    at: u64,
    end: u64,
    column: Vec<u8>,
}

impl Source for FortranSource {
    fn shape(&self) -> Shape {
        Shape { dim: self.dim, kind: self.layout.stored.kind(), rows: Some(self.rows) }
    }

    fn read(&mut self, limit: usize, values: &mut Values) -> Result<usize, Fault> {
        let rows = usize::try_from(self.end - self.at).unwrap_or(limit).min(limit);
        let size = self.layout.stored.bytes();
        values.clear(self.layout.stored.kind());
        values.resize(rows * self.dim);
        let mut column = Values::empty(self.layout.stored.kind());
        for j in 0..self.dim {
            // Cannot overflow: the size of the array was checked against the file.
            let place = self.start + (j as u64 * self.rows + self.at) * size as u64;
            self.file.seek(SeekFrom::Start(place))?;
            self.layout.read(&mut self.file, rows, &mut column, &mut self.column)?;
            set_column(&column, values, j, self.dim);
        }
        self.at += rows as u64;
        Ok(rows)
    }

    fn cutting(&self) -> Option<Cutting> {
        Some(Cutting { rows: self.rows, places: Places::Multiples(1) })
    }

    fn select(&mut self, rows: Range<u64>) -> Result<(), Fault> {
        (self.at, self.end) = (rows.start, rows.end);
        Ok(())
    }

    fn skip(&mut self, rows: u64) -> Result<(), Fault> {
        self.at = self.rows.min(self.at.saturating_add(rows));
        Ok(())
    }
}

/// Sets column `j` of rows.
fn set_column(column: &Values, rows: &mut Values, j: usize, dim: usize) {
    fn one<T: Copy>(column: &[T], rows: &mut [T], j: usize, dim: usize) {
        rows.iter_mut().skip(j).step_by(dim).zip(column).for_each(|(to, from)| *to = *from);
    }
    match (column, rows) {
        (Values::F16(c), Values::F16(r)) => one(c, r, j, dim),
        (Values::F32(c), Values::F32(r)) => one(c, r, j, dim),
        (Values::F64(c), Values::F64(r)) => one(c, r, j, dim),
        (Values::U8(c), Values::U8(r)) => one(c, r, j, dim),
        (Values::I8(c), Values::I8(r)) => one(c, r, j, dim),
        _ => unreachable!("both have the same element type"),
    }
}

/// The names of the arrays in a `.npz` file, without `.npy`.
pub(crate) fn names(file: File) -> Result<Vec<String>, Fault> {
    let archive = zip::ZipArchive::new(file).map_err(|e| damaged(&e))?;
    Ok(entries(&archive)?.iter().map(|name| name.trim_end_matches(".npy").to_owned()).collect())
}

fn entries(archive: &zip::ZipArchive<File>) -> Result<Vec<String>, Fault> {
    let names: zip::result::ZipResult<Vec<_>> = archive.file_names().collect();
    let names: Vec<String> =
        names.map_err(|e| damaged(&e))?.into_iter().map(|name| name.into_owned()).collect();
    pickle::refuse_archive(&names)?;
    Ok(names)
}

fn damaged(e: &zip::result::ZipError) -> Fault {
    Fault::file(format!("is not a .npz file, or damaged ({e})"))
}

/// Opens one array of a `.npz` file; if there is only one, its name need not be given.
pub(crate) fn open_npz(file: File, array: Option<&str>) -> Result<Box<dyn Source>, Fault> {
    let mut archive = zip::ZipArchive::new(file.try_clone()?).map_err(|e| damaged(&e))?;
    let names = entries(&archive)?;
    let plain = |name: &str| name.trim_end_matches(".npy").to_owned();
    let list = || names.iter().map(|n| plain(n)).collect::<Vec<_>>().join(", ");
    let index = match (array, &names[..]) {
        (Some(wanted), _) => {
            names.iter().position(|n| n == wanted || plain(n) == wanted).ok_or_else(|| {
                Fault::file(format!("has no array {wanted:?}; it has {}", list()))
                    .hint(Hint::ChooseDataset)
            })?
        }
        (None, [_]) => 0,
        (None, []) => return Err("holds no arrays".into()),
        (None, _) => {
            return Err(
                Fault::file(format!("holds several arrays: {}", list())).hint(Hint::ChooseDataset)
            );
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
            open(ByteSource::File(file, left))
        }
        zip::CompressionMethod::DEFLATE => {
            let inflated = flate2::read::DeflateDecoder::new(file.take(length));
            let checked = Crc32Reader { reader: inflated, crc: flate2::Crc::new(), expected };
            open(ByteSource::Stream(Box::new(checked), Ending::Checksum))
        }
        other => Err(Fault::file(format!("is compressed by {other}, which NumPy does not write"))),
    }
}

/// Verifies the checksum of the bytes that it has read, when it reaches their end.
struct Crc32Reader<R> {
    reader: R,
    crc: flate2::Crc,
    expected: u32,
}

impl<R: Read> Read for Crc32Reader<R> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let got = self.reader.read(buf)?;
        self.crc.update(&buf[..got]);
        if got == 0 && !buf.is_empty() && self.crc.sum() != self.expected {
            let why = "the checksum of the entry does not match: damaged";
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

/// Writes a `.npz` file with one array, uncompressed. The number of rows must be known, because the header
/// comes before them.
pub(crate) struct NpzSink<W: Write + Seek> {
    /// None after [`Sink::finish`].
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
            return Err(Fault::file(format!(
                "got {} rows, expected {} as announced",
                self.rows, self.expected
            )));
        }
        if let Some(zip) = self.zip.take() {
            zip.finish().map_err(std::io::Error::from)?.flush()?;
        }
        Ok(())
    }
}
