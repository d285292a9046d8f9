//! The lines of a text, read within bounded memory.

use super::{BUFFER, MAX_LINE};
use crate::error::{Fault, Reason};
use memchr::{memchr, memchr_iter};
use std::io::{ErrorKind, Read};

/// Reads the lines of a text that hold rows: all but blank lines and comments.
pub(crate) struct Lines {
    reader: Box<dyn Read + Send>,
    /// `buffer[start..end]` is the current line, `buffer[next..filled]` is what was read beyond it.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    next: usize,
    filled: usize,
    /// Whether `reader` has reached its end.
    ended: bool,
    /// Number of the current line, from 1, as editors count.
    number: u64,
    /// Whether the next call of [`Lines::next`] returns the current line again.
    repeat: bool,
    /// Whether lines that begin with `#` are rows.
    comments_are_rows: bool,
    /// Whether a line end between two quotes is part of the line.
    quotes: bool,
    max_line: usize,
}

impl Lines {
    pub(crate) fn new(reader: Box<dyn Read + Send>) -> Self {
        Self::with_limits(reader, BUFFER, MAX_LINE)
    }

    pub(super) fn with_limits(
        reader: Box<dyn Read + Send>,
        buffer: usize,
        max_line: usize,
    ) -> Self {
        Self {
            reader,
            buffer: vec![0; buffer],
            start: 0,
            end: 0,
            next: 0,
            filled: 0,
            ended: false,
            number: 0,
            repeat: false,
            comments_are_rows: false,
            quotes: false,
            max_line,
        }
    }

    /// Takes lines that begin with `#` as rows.
    pub(crate) fn with_comments_as_rows(mut self) -> Self {
        self.comments_are_rows = true;
        self
    }

    /// Takes line ends between two quotes as part of the line, as CSV does.
    pub(crate) fn with_quotes(mut self) -> Self {
        self.quotes = true;
        self
    }

    /// Moves to the next line that is neither blank nor a comment; false at the end.
    pub(crate) fn next(&mut self) -> Result<bool, Fault> {
        if std::mem::take(&mut self.repeat) {
            return Ok(true);
        }
        while self.next_of_any_kind()? {
            let text = self.line().trim_ascii_start();
            if !text.is_empty() && (text[0] != b'#' || self.comments_are_rows) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Calls [`Lines::next`] up to `count` times; returns how many lines there were.
    pub(crate) fn skip(&mut self, count: u64) -> Result<u64, Fault> {
        let mut done = 0;
        while done < count && self.next()? {
            done += 1;
        }
        Ok(done)
    }

    /// Makes the next call of [`Lines::next`] return the current line again.
    pub(crate) fn repeat(&mut self) {
        self.repeat = true;
    }

    /// The current line, without its line end.
    pub(crate) fn line(&self) -> &[u8] {
        let line = &self.buffer[self.start..self.end];
        line.strip_suffix(b"\r").unwrap_or(line)
    }

    /// A fault of row `row`, which is in the current line.
    pub(crate) fn fault(&self, row: u64, reason: impl Into<Reason>) -> Fault {
        at_line(row, reason, self.number)
    }

    /// Number of the current line, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    fn next_of_any_kind(&mut self) -> Result<bool, Fault> {
        let mut searched = self.next;
        // Whether a quote is open at `searched`, and line ends passed over.
        let (mut open, mut inside) = (false, 0);
        loop {
            let found = memchr(b'\n', &self.buffer[searched..self.filled]);
            if self.quotes {
                let end = found.map_or(self.filled, |found| searched + found);
                open ^= memchr_iter(b'"', &self.buffer[searched..end]).count() % 2 == 1;
            }
            if let Some(found) = found {
                if open {
                    searched += found + 1;
                    inside += 1;
                    continue;
                }
                self.set_line(searched + found, searched + found + 1)?;
                self.number += inside;
                return Ok(true);
            }
            if self.ended {
                let last_line = self.next < self.filled;
                if last_line {
                    self.set_line(self.filled, self.filled)?;
                }
                return Ok(last_line);
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

    /// Reads more text into the buffer, which grows if it is full. Returns how many bytes were read.
    fn fill(&mut self) -> Result<usize, Fault> {
        if self.next > 0 {
            self.buffer.copy_within(self.next..self.filled, 0);
            self.filled -= self.next;
            (self.start, self.end, self.next) = (0, 0, 0);
        }
        if self.filled == self.buffer.len() {
            if self.filled >= self.max_line {
                return Err(Fault::file(format!(
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

/// A fault of a row, which is in this line.
pub(super) fn at_line(row: u64, reason: impl Into<Reason>, line: u64) -> Fault {
    let mut reason = reason.into();
    reason.text += &format!(" (line {line})");
    Fault::row(row, reason)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{byte_by_byte, message, whole};
    use super::*;

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
    fn line_ends_blank_lines_and_comments() {
        let text = b"\xEF\xBB\xBFone\r\n\n \t\r\ntwo\n# no\n  #no\nthree is longer\n\nfour";
        let expected = ["1:one", "4:two", "7:three is longer", "9:four"];
        for buffer in [0, 1, 2, 7, 16, 1000] {
            assert_eq!(lines(whole(text), buffer, 1000).unwrap(), expected);
            assert_eq!(lines(byte_by_byte(text), buffer, 1000).unwrap(), expected);
        }
        assert!(lines(whole(b""), 9, 9).unwrap().is_empty());
        assert!(lines(whole(b"\n\n\n"), 9, 9).unwrap().is_empty());
        assert_eq!(lines(whole(b"\n\nx\n"), 9, 9).unwrap(), ["3:x"]);
        assert!(lines(whole(b"\xFF\xFE1\0"), 9, 9).unwrap_err().contains("UTF-16"));
    }

    #[test]
    fn line_ends_between_quotes_are_part_of_the_line() {
        let text = b"1,\"a\n\"\"b\n\",2\n3,\"c\",4\r\n\"\n\n";
        for reader in [whole(text), byte_by_byte(text)] {
            let mut lines = Lines::with_limits(reader, 1, 1000).with_quotes();
            let mut all = Vec::new();
            while lines.next().unwrap() {
                all.push((lines.number, String::from_utf8_lossy(lines.line()).into_owned()));
            }
            let line = |number, text: &str| (number, text.to_owned());
            // A quote that is never closed reaches to the end.
            let rows = [line(3, "1,\"a\n\"\"b\n\",2"), line(4, "3,\"c\",4"), line(5, "\"\n\n")];
            assert_eq!(all, rows);
        }
    }

    #[test]
    fn long_lines_are_refused_before_the_buffer_grows() {
        let mut lines = Lines::with_limits(Box::new(std::io::repeat(b'1')), 4, 1000);
        let why = message(lines.next().unwrap_err());
        assert!(why.contains("line 1 is longer than 1000 bytes"), "{why}");
        assert!(lines.buffer.capacity() <= 2000);
    }
}
