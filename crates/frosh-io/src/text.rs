//! What the text formats share: one row per line, read in bounded memory and printed through a buffer.
//!
//! A format says how a row is parsed from its line and printed ([`LineFormat`]); [`TextSource`] and
//! [`TextSink`] do the rest.
//!
//! Lines end with LF or CR LF; the last line need not end. Blank lines and lines that begin with `#` are
//! not rows and are skipped anywhere. A UTF-8 byte-order mark is skipped; UTF-16 is refused. Names and
//! comments may be in any encoding that contains ASCII.
//!
//! A reader's buffer has 256 KiB and grows to the longest line; a line above [`MAX_LINE`] is refused.

mod lines;
mod print;

pub(crate) use lines::Lines;
pub(crate) use print::{Print, Printer};

use crate::batch::{Kind, Values, for_values};
use crate::error::{Fault, Reason};
use crate::ids::{IdSink, IdSource, Raw};
use crate::source::{MAX_DIM, Shape, Sink, Source};
use std::io::Write;

/// The longest line taken: a row of the largest dimension with 32 bytes for each value.
const MAX_LINE: usize = 32 * MAX_DIM;

/// Bytes of a reader's buffer at first, and of a writer's buffer.
const BUFFER: usize = 1 << 18;

/// How one text format writes a row in a line.
pub(crate) trait LineFormat: Send {
    /// Appends the `dim` values of the row in `line` to `out`.
    fn parse(&self, line: &[u8], dim: usize, out: &mut Vec<f32>) -> Result<(), Reason>;

    /// The id of the row in `line`, if a column of ids was chosen.
    fn id(&self, _line: &[u8]) -> Option<OwnedId> {
        None
    }

    /// Prints a row and its line end.
    fn print<T: Print, W: Write>(&self, row: &[T], printer: &mut Printer<W>) -> Result<(), Fault>;
}

/// Reads rows from lines, in single precision.
pub(crate) struct TextSource<F> {
    format: F,
    lines: Lines,
    dim: usize,
    /// Number of the next row.
    row: u64,
    /// The ids of the rows of the last read, if ids were chosen.
    ids: Option<LineIds>,
}

/// The id of a row, and the text of it that was taken from the line.
pub(crate) enum OwnedId {
    Null,
    Number(i128),
    Text(Vec<u8>),
    Untyped(Vec<u8>),
    Other(String),
}

impl OwnedId {
    pub(crate) fn raw(&self) -> Raw<'_> {
        match self {
            OwnedId::Null => Raw::Null,
            OwnedId::Number(number) => Raw::Number(*number),
            OwnedId::Text(text) => Raw::Text(text),
            OwnedId::Untyped(text) => Raw::Untyped(text),
            OwnedId::Other(what) => Raw::Other(what),
        }
    }
}

/// The ids of rows that were read, which are looked at when it is known which rows are used.
#[derive(Default)]
struct LineIds {
    /// Number of the first row.
    first: u64,
    /// Ids, and the lines that they are from.
    ids: Vec<(OwnedId, u64)>,
}

impl IdSource for LineIds {
    fn read(&mut self, row: u64, most: usize, sink: &mut IdSink) -> Result<usize, Fault> {
        let from = row.checked_sub(self.first).and_then(|from| self.ids.get(from as usize..));
        let ids = from.unwrap_or(&[]);
        let ids = &ids[..most.min(ids.len())];
        for ((id, line), row) in ids.iter().zip(row..) {
            sink.push(id.raw()).map_err(|reason| lines::at_line(row, reason, *line))?;
        }
        Ok(ids.len())
    }
}

impl<F: LineFormat> TextSource<F> {
    /// Reads rows of `dim` values, from the current line of `lines` on.
    pub(crate) fn new(format: F, mut lines: Lines, dim: usize) -> Self {
        lines.repeat();
        Self { format, lines, dim, row: 0, ids: None }
    }

    /// Reads the ids of rows too.
    pub(crate) fn with_ids(mut self) -> Self {
        self.ids = Some(LineIds::default());
        self
    }
}

impl<F: LineFormat> Source for TextSource<F> {
    fn shape(&self) -> Shape {
        Shape { dim: self.dim, kind: Kind::F32, rows: None }
    }

    fn read(&mut self, limit: usize, values: &mut Values) -> Result<usize, Fault> {
        values.clear(Kind::F32);
        let Values::F32(out) = values else { unreachable!("made so by clear") };
        let limit = batch_rows(limit, self.dim);
        let mut rows = 0;
        if let Some(ids) = &mut self.ids {
            ids.ids.clear();
            ids.first = self.row;
        }
        while rows < limit && self.lines.next()? {
            self.format
                .parse(self.lines.line(), self.dim, out)
                .map_err(|reason| self.lines.fault(self.row, reason))?;
            if let Some(ids) = &mut self.ids {
                let id = self.format.id(self.lines.line()).unwrap_or(OwnedId::Null);
                ids.ids.push((id, self.lines.number()));
            }
            rows += 1;
            self.row += 1;
        }
        Ok(rows)
    }

    /// Rows that are skipped are not parsed.
    fn skip(&mut self, rows: u64) -> Result<(), Fault> {
        self.row += self.lines.skip(rows)?;
        Ok(())
    }

    fn ids(&mut self) -> Option<&mut dyn IdSource> {
        self.ids.as_mut().map(|ids| ids as &mut dyn IdSource)
    }
}

/// Reads an id from each line, without vectors.
pub(crate) struct TextIds<I> {
    id: I,
    lines: Lines,
    row: u64,
}

impl<I: Fn(&[u8]) -> OwnedId + Send> TextIds<I> {
    /// Reads ids from the current line of `lines` on.
    pub(crate) fn new(id: I, mut lines: Lines) -> Self {
        lines.repeat();
        Self { id, lines, row: 0 }
    }
}

impl<I: Fn(&[u8]) -> OwnedId + Send> IdSource for TextIds<I> {
    fn read(&mut self, row: u64, most: usize, sink: &mut IdSink) -> Result<usize, Fault> {
        self.row += self.lines.skip(row - self.row)?;
        let mut got = 0;
        while got < most && self.lines.next()? {
            let id = (self.id)(self.lines.line());
            sink.push(id.raw()).map_err(|reason| self.lines.fault(self.row, reason))?;
            self.row += 1;
            got += 1;
        }
        Ok(got)
    }
}

/// The most rows of dimension `dim` in one batch of at most `limit`. A few bytes of LIBSVM text can stand
/// for a wide row, so that a batch is kept to 64 MiB of values, or one row.
fn batch_rows(limit: usize, dim: usize) -> usize {
    limit.min(MAX_DIM / dim.max(1)).max(1)
}

/// Writes rows as lines.
pub(crate) struct TextSink<F, W> {
    format: F,
    printer: Printer<W>,
    dim: usize,
}

impl<F: LineFormat, W: Write> TextSink<F, W> {
    pub(crate) fn new(format: F, writer: W, dim: usize) -> Self {
        Self { format, printer: Printer::new(writer), dim: dim.max(1) }
    }

    fn rows<T: Print>(&mut self, values: &[T]) -> Result<(), Fault> {
        for row in values.chunks_exact(self.dim) {
            self.format.print(row, &mut self.printer)?;
        }
        Ok(())
    }
}

impl<F: LineFormat, W: Write> Sink for TextSink<F, W> {
    fn write(&mut self, values: &Values) -> Result<(), Fault> {
        for_values!(values, v => self.rows(v))
    }

    fn finish(&mut self) -> Result<(), Fault> {
        self.printer.finish()
    }
}

/// Parses a number in single precision: decimal with or without an exponent, "nan", "inf" or "infinity"
/// in upper or lower case, each with or without a sign. A number that is too large becomes infinite.
pub(crate) fn number(text: &[u8]) -> Option<f32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A piece of a file for a message: quoted, escaped and shortened.
pub(crate) fn quoted(text: &[u8]) -> String {
    const LONGEST: usize = 40;
    if text.len() <= LONGEST {
        format!("{:?}", String::from_utf8_lossy(text))
    } else {
        format!("{:?}...", String::from_utf8_lossy(&text[..LONGEST]))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::io::{ErrorKind, Read};

    /// Gives the bytes one at a time, with an interruption before each.
    struct ByteByByte {
        bytes: Vec<u8>,
        at: usize,
        interrupted: bool,
    }

    impl Read for ByteByByte {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            self.interrupted = !self.interrupted;
            if self.interrupted {
                return Err(ErrorKind::Interrupted.into());
            }
            let (Some(byte), false) = (self.bytes.get(self.at), out.is_empty()) else {
                return Ok(0);
            };
            out[0] = *byte;
            self.at += 1;
            Ok(1)
        }
    }

    pub(crate) fn whole(bytes: &[u8]) -> Box<dyn Read + Send> {
        Box::new(std::io::Cursor::new(bytes.to_vec()))
    }

    pub(crate) fn byte_by_byte(bytes: &[u8]) -> Box<dyn Read + Send> {
        Box::new(ByteByByte { bytes: bytes.to_vec(), at: 0, interrupted: false })
    }

    pub(crate) fn message(fault: Fault) -> String {
        fault.at(std::path::Path::new("x")).to_string()
    }

    /// All rows of a source, read in batches of 3, with its dimension.
    pub(crate) fn read_all(
        source: Result<impl Source, Fault>,
    ) -> Result<(usize, Vec<f32>), String> {
        let mut source = source.map_err(message)?;
        let shape = source.shape();
        let mut all = Vec::new();
        let mut values = Values::empty(shape.kind);
        loop {
            let got = source.read(3, &mut values).map_err(message)?;
            let Values::F32(v) = &values else { panic!("text is f32") };
            assert_eq!(v.len(), got * shape.dim);
            if got == 0 {
                return Ok((shape.dim, all));
            }
            all.extend_from_slice(v);
        }
    }

    #[test]
    fn numbers() {
        for (text, value) in [
            ("1", 1.0),
            ("-0", -0.0),
            ("+1.5", 1.5),
            ("1.", 1.0),
            (".5", 0.5),
            ("1E3", 1000.0),
            ("1e-45", f32::from_bits(1)),
            ("INF", f32::INFINITY),
            ("-Infinity", f32::NEG_INFINITY),
            ("1e99", f32::INFINITY),
        ] {
            assert_eq!(
                number(text.as_bytes()).map(f32::to_bits),
                Some(f32::to_bits(value)),
                "{text}"
            );
        }
        assert!(number(b"NaN").unwrap().is_nan());
        for text in ["", "x", "1,5", "0x10", "1 2", "1_000", "--1", "NA", "e5", "\u{663}"] {
            assert_eq!(number(text.as_bytes()), None, "{text}");
        }
        assert_eq!(number(b"\xFF"), None);
    }

    #[test]
    fn quoted_text_is_escaped_and_short() {
        assert_eq!(quoted(b"a\0\xFF"), "\"a\\0\u{FFFD}\"");
        assert!(quoted(&[b'x'; 10_000]).len() < 50);
    }
}
