//! What the text formats share: lines read within bounded memory, numbers read and printed.
//!
//! Lines end with LF or CR LF; the last may end with the file. Lines that are blank, and lines whose
//! first character is `#`, are no rows and are passed over wherever they stand. A UTF-8 byte-order mark
//! is passed over; UTF-16 is refused. Nothing else needs to be UTF-8: names and comments may be in any
//! encoding that keeps ASCII.
//!
//! The memory of a reader is the longest line so far, or 256 KiB; a line above [`MAX_LINE`] is refused.

use crate::error::Fault;
use crate::source::MAX_DIM;
use half::f16;
use memchr::memchr;
use std::io::{ErrorKind, Read, Write};

/// The longest line taken: a row of the largest dimension with 32 bytes for each value.
const MAX_LINE: usize = 32 * MAX_DIM;

/// How much is read at first, and how much is gathered before it is written.
const BUFFER: usize = 1 << 18;

/// The most rows of dimension `dim` for one batch, if `limit` were asked for: few bytes of text can stand
/// for wide rows, so that a batch is kept to about 64 MiB of values (but always one row).
pub(crate) fn batch_rows(limit: usize, dim: usize) -> usize {
    limit.min(MAX_DIM / dim.max(1)).max(1)
}

/// The lines of a text that hold rows.
pub(crate) struct Lines {
    reader: Box<dyn Read + Send>,
    /// `buffer[start..end]` is the current line, `buffer[next..filled]` is read but not yet looked at.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    next: usize,
    filled: usize,
    /// Nothing more will come from `reader`.
    ended: bool,
    /// Number of the current line, from 1, as editors count.
    number: u64,
    /// The current line shall be given out once more.
    again: bool,
    max_line: usize,
}

impl Lines {
    pub(crate) fn new(reader: Box<dyn Read + Send>) -> Self {
        Self::with_limits(reader, BUFFER, MAX_LINE)
    }

    fn with_limits(reader: Box<dyn Read + Send>, buffer: usize, max_line: usize) -> Self {
        Self {
            reader,
            buffer: vec![0; buffer],
            start: 0,
            end: 0,
            next: 0,
            filled: 0,
            ended: false,
            number: 0,
            again: false,
            max_line,
        }
    }

    /// Goes on to the next line that is neither blank nor a comment; false at the end.
    pub(crate) fn next(&mut self) -> Result<bool, Fault> {
        if std::mem::take(&mut self.again) {
            return Ok(true);
        }
        while self.next_of_any_kind()? {
            let text = self.line().trim_ascii_start();
            if !text.is_empty() && text[0] != b'#' {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Goes on as [`Lines::next`] does, over that many lines; the end may come before.
    pub(crate) fn skip(&mut self, count: u64) -> Result<u64, Fault> {
        let mut done = 0;
        while done < count && self.next()? {
            done += 1;
        }
        Ok(done)
    }

    /// Makes the next call of [`Lines::next`] stay at the current line.
    pub(crate) fn keep(&mut self) {
        self.again = true;
    }

    /// The current line, without its end.
    pub(crate) fn line(&self) -> &[u8] {
        let line = &self.buffer[self.start..self.end];
        line.strip_suffix(b"\r").unwrap_or(line)
    }

    /// A fault of the current line, which holds this row.
    pub(crate) fn fault(&self, row: u64, why: &str) -> Fault {
        Fault::Row { row, why: format!("{why} (line {})", self.number) }
    }

    fn next_of_any_kind(&mut self) -> Result<bool, Fault> {
        let mut searched = self.next;
        loop {
            if let Some(found) = memchr(b'\n', &self.buffer[searched..self.filled]) {
                self.set_line(searched + found, searched + found + 1)?;
                return Ok(true);
            }
            if self.ended {
                let some = self.next < self.filled;
                if some {
                    self.set_line(self.filled, self.filled)?;
                }
                return Ok(some);
            }
            let got = self.fill()?;
            searched = self.filled - got;
        }
    }

    fn set_line(&mut self, end: usize, next: usize) -> Result<(), Fault> {
        (self.start, self.end, self.next) = (self.next, end, next);
        self.number += 1;
        if self.number == 1 {
            let line = &self.buffer[self.start..self.end];
            if line.starts_with(b"\xEF\xBB\xBF") {
                self.start += 3;
            } else if line.starts_with(b"\xFF\xFE") || line.starts_with(b"\xFE\xFF") {
                return Err("is text in UTF-16; save it as UTF-8".into());
            }
        }
        Ok(())
    }

    /// Reads more behind what is there, making room where none is left. Returns how much was read.
    fn fill(&mut self) -> Result<usize, Fault> {
        if self.next > 0 {
            self.buffer.copy_within(self.next..self.filled, 0);
            self.filled -= self.next;
            (self.start, self.end, self.next) = (0, 0, 0);
        }
        if self.filled == self.buffer.len() {
            if self.filled >= self.max_line {
                return Err(Fault::File(format!(
                    "line {} is longer than {} bytes, expected one row of numbers; is it a text file?",
                    self.number + 1,
                    self.max_line
                )));
            }
            self.buffer.resize(self.filled.saturating_mul(2).clamp(1, self.max_line), 0);
        }
        loop {
            match self.reader.read(&mut self.buffer[self.filled..]) {
                Ok(got) => {
                    self.ended = got == 0;
                    self.filled += got;
                    return Ok(got);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

/// Reads a number in single precision: decimal with or without an exponent, "nan", "inf" or "infinity"
/// in upper or lower case, each with or without a sign. What is too large becomes infinite.
pub(crate) fn number(text: &[u8]) -> Option<f32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A piece of a file for a message: quoted, control characters made visible, shortened.
pub(crate) fn shown(text: &[u8]) -> String {
    const LONGEST: usize = 40;
    if text.len() <= LONGEST {
        format!("{:?}", String::from_utf8_lossy(text))
    } else {
        format!("{:?}...", String::from_utf8_lossy(&text[..LONGEST]))
    }
}

/// Gathers text and writes it in large pieces.
pub(crate) struct Printer<W> {
    writer: W,
    text: Vec<u8>,
}

impl<W: Write> Printer<W> {
    pub(crate) fn new(writer: W) -> Self {
        Self { writer, text: Vec::with_capacity(BUFFER) }
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.text.push(byte);
    }

    pub(crate) fn value(&mut self, value: impl Print) {
        value.print(&mut self.text);
    }

    pub(crate) fn index(&mut self, index: usize) {
        self.text.extend_from_slice(itoa::Buffer::new().format(index).as_bytes());
    }

    /// Writes what is gathered, if it is worth a call of the system; to be called between values.
    pub(crate) fn settle(&mut self) -> Result<(), Fault> {
        // Room for the longest value, so that the buffer never grows.
        if self.text.len() >= BUFFER - 64 {
            self.writer.write_all(&self.text)?;
            self.text.clear();
        }
        Ok(())
    }

    pub(crate) fn finish(&mut self) -> Result<(), Fault> {
        self.writer.write_all(&self.text)?;
        self.text.clear();
        self.writer.flush()?;
        Ok(())
    }
}

/// Values that can be printed so that they read back as the same value, in as few digits as that takes.
/// What is not finite is `NaN`, `inf` or `-inf`; sign and payload of a NaN are lost.
pub(crate) trait Print: Copy {
    fn print(self, text: &mut Vec<u8>);

    /// Whether it is zero, of whichever sign.
    fn is_zero(self) -> bool;
}

macro_rules! print_float {
    ($t:ty, $v:ident => $wide:expr) => {
        impl Print for $t {
            fn print(self, text: &mut Vec<u8>) {
                let $v = self;
                let mut buffer = zmij::Buffer::new();
                let digits = buffer.format($wide).as_bytes();
                // Whole numbers need no fraction.
                text.extend_from_slice(digits.strip_suffix(b".0").unwrap_or(digits));
            }

            fn is_zero(self) -> bool {
                let $v = self;
                $wide == 0.0
            }
        }
    };
}

macro_rules! print_whole {
    ($t:ty) => {
        impl Print for $t {
            fn print(self, text: &mut Vec<u8>) {
                text.extend_from_slice(itoa::Buffer::new().format(self).as_bytes());
            }

            fn is_zero(self) -> bool {
                self == 0
            }
        }
    };
}

// Half precision is printed as the single precision it widens to: every reader of text knows that.
print_float!(f16, v => v.to_f32());
print_float!(f32, v => v);
print_float!(f64, v => v);
print_whole!(u8);
print_whole!(i8);

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::batch::Values;
    use crate::source::Source;

    /// Gives the bytes one at a time, with an interruption before each.
    pub(crate) struct Drip {
        pub(crate) bytes: Vec<u8>,
        pub(crate) at: usize,
        pub(crate) interrupted: bool,
    }

    impl Read for Drip {
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

    pub(crate) fn drip(bytes: &[u8]) -> Box<dyn Read + Send> {
        Box::new(Drip { bytes: bytes.to_vec(), at: 0, interrupted: false })
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

    fn lines(
        reader: Box<dyn Read + Send>,
        buffer: usize,
        max: usize,
    ) -> Result<Vec<String>, String> {
        let mut lines = Lines::with_limits(reader, buffer, max);
        let mut all = Vec::new();
        while lines.next().map_err(message)? {
            all.push(format!("{}:{}", lines.number, String::from_utf8_lossy(lines.line())));
        }
        Ok(all)
    }

    #[test]
    fn lines_of_all_kinds() {
        let text = b"\xEF\xBB\xBFone\r\n\n \t\r\ntwo\n# no\n  #no\nthree is longer\n\nfour";
        let expected = ["1:one", "4:two", "7:three is longer", "9:four"];
        for buffer in [0, 1, 2, 7, 16, 1000] {
            assert_eq!(lines(whole(text), buffer, 1000).unwrap(), expected);
            assert_eq!(lines(drip(text), buffer, 1000).unwrap(), expected);
        }
        assert!(lines(whole(b""), 9, 9).unwrap().is_empty());
        assert!(lines(whole(b"\n\n\n"), 9, 9).unwrap().is_empty());
        assert_eq!(lines(whole(b"\n\nx\n"), 9, 9).unwrap(), ["3:x"]);
        assert!(lines(whole(b"\xFF\xFE1\0"), 9, 9).unwrap_err().contains("UTF-16"));
    }

    #[test]
    fn long_lines_are_refused_without_growing() {
        let mut lines = Lines::with_limits(Box::new(std::io::repeat(b'1')), 4, 1000);
        let why = message(lines.next().unwrap_err());
        assert!(why.contains("line 1 is longer than 1000 bytes"), "{why}");
        assert!(lines.buffer.capacity() <= 2000);
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

    fn printed(value: impl Print) -> String {
        let mut text = Vec::new();
        value.print(&mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn printing() {
        assert_eq!(printed(1.0f32), "1");
        assert_eq!(printed(-0.0f32), "-0");
        assert_eq!(printed(0.1f32), "0.1");
        assert_eq!(printed(f32::MAX), "3.4028235e+38");
        assert_eq!(printed(f32::NAN), "NaN");
        assert_eq!(printed(f32::NEG_INFINITY), "-inf");
        assert_eq!(printed(0.1f64), "0.1");
        assert_eq!(printed(f16::from_f32(0.1)), "0.099975586");
        assert_eq!(printed(200u8), "200");
        assert_eq!(printed(-128i8), "-128");
    }

    #[test]
    fn messages_are_short() {
        assert_eq!(shown(b"a\0\xFF"), "\"a\\0\u{FFFD}\"");
        assert!(shown(&[b'x'; 10_000]).len() < 50);
    }
}
