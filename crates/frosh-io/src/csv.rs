//! CSV and TSV: one row per line, values separated by a comma, tab, semicolon or blanks.
//!
//! ```text
//! a,b,c          names of the columns: optional, recognised by itself
//! 1,2.5,-3e-2
//! "4","5",nan    quotes are taken off
//! ```
//!
//! - Values are read in single precision (`f32`), whatever the number of digits; what is too large for it
//!   becomes infinite. "nan" and "inf" are numbers here: whether to take them is for the caller to say.
//! - The separator, where it is not given, is what is found first in the first line, in this order: tab,
//!   semicolon, comma; else blanks. Blanks separate in runs, and around other separators they are ignored.
//! - The first line holds names if one of its fields is neither empty nor a number. Names that are
//!   numbers ("0,1,2") cannot be told from values, and are read as a row.
//! - Every row has as many values as the first. Missing values are refused.
//! - Blank lines and lines that begin with `#` are passed over, wherever they stand, and do not count as
//!   rows.
//! - A quoted field ends in its line.
//! - Rows that are skipped are not looked into.
//!
//! Cost: the text is read once; nearly all of the time goes into turning digits into numbers. Memory is
//! the longest line and the batch.

use crate::batch::{Kind, Values};
use crate::error::Fault;
use crate::for_values;
use crate::source::{MAX_DIM, Shape, Sink, Source};
use crate::text::{Lines, Print, Printer, batch_rows, number, shown};
use memchr::{memchr, memchr2};
use std::io::{Read, Write};

/// Stands for runs of blanks (and tabs) as the separator.
const BLANK: u8 = b' ';

/// Reads rows of text; finds out about separator and names by itself.
pub(crate) fn open(
    reader: Box<dyn Read + Send>,
    delimiter: Option<u8>,
) -> Result<impl Source, Fault> {
    let mut lines = Lines::new(reader);
    if !lines.next()? {
        return Err("is empty, expected rows of numbers".into());
    }
    let delimiter = delimiter.unwrap_or_else(|| find_delimiter(lines.line()));
    let mut names = None;
    if is_header(lines.line(), delimiter) {
        names = Some(count_names(lines.line(), delimiter)?);
        if !lines.next()? {
            return Err("holds names of columns, but no rows".into());
        }
    }
    let dim = Fields::new(lines.line(), delimiter).count();
    if dim > MAX_DIM {
        return Err(lines.fault(0, &format!("{}, but at most {MAX_DIM} are taken", values(dim))));
    }
    // Names may hold blanks themselves, so that their number tells nothing where blanks separate.
    if let Some(names) = names
        && names != dim
        && delimiter != BLANK
    {
        let why = format!("{}, but the first line names {names} columns", values(dim));
        return Err(lines.fault(0, &why));
    }
    lines.keep();
    Ok(Csv { lines, delimiter, dim, row: 0 })
}

struct Csv {
    lines: Lines,
    delimiter: u8,
    dim: usize,
    /// Number of the next row.
    row: u64,
}

impl Source for Csv {
    fn shape(&self) -> Shape {
        Shape { dim: self.dim, kind: Kind::F32, rows: None }
    }

    fn read(&mut self, limit: usize, values: &mut Values) -> Result<usize, Fault> {
        values.clear(Kind::F32);
        let Values::F32(out) = values else { unreachable!("made so by clear") };
        let limit = batch_rows(limit, self.dim);
        let mut rows = 0;
        while rows < limit && self.lines.next()? {
            parse_row(self.lines.line(), self.delimiter, self.dim, out)
                .map_err(|why| self.lines.fault(self.row, &why))?;
            rows += 1;
            self.row += 1;
        }
        Ok(rows)
    }

    fn skip(&mut self, rows: u64) -> Result<(), Fault> {
        self.row += self.lines.skip(rows)?;
        Ok(())
    }
}

/// Appends the values of one line.
fn parse_row(line: &[u8], delimiter: u8, dim: usize, out: &mut Vec<f32>) -> Result<(), String> {
    let mut fields = Fields::new(line, delimiter);
    let before = out.len();
    for (column, field) in fields.by_ref().take(dim).enumerate() {
        out.push(number(bare(field)).ok_or_else(|| no_number(column, field))?);
    }
    let count = out.len() - before + fields.count();
    if count != dim {
        return Err(format!("{}, expected {dim} as in the first row", values(count)));
    }
    Ok(())
}

fn values(count: usize) -> String {
    if count == 1 { "1 value".into() } else { format!("{count} values") }
}

fn no_number(column: usize, field: &[u8]) -> String {
    if bare(field).is_empty() {
        format!("column {column} is empty, expected a number; fill it in or leave the row out")
    } else {
        format!(
            "column {column} is {}, expected a number (with a decimal point); leave out columns that \
             hold other things",
            shown(field)
        )
    }
}

/// The fields of one line, with the quotes and blanks around them.
struct Fields<'a> {
    /// What is still to be split; none after the last field.
    rest: Option<&'a [u8]>,
    delimiter: u8,
}

impl<'a> Fields<'a> {
    fn new(line: &'a [u8], delimiter: u8) -> Self {
        Self { rest: Some(line), delimiter }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let mut text = self.rest?;
        while let [first, rest @ ..] = text
            && (*first == b' ' || (*first == b'\t' && self.delimiter != b'\t'))
        {
            text = rest;
        }
        if text.is_empty() && self.delimiter == BLANK {
            self.rest = None;
            return None;
        }
        let quoted = if text.first() == Some(&b'"') { quoted_len(text) } else { 0 };
        let found = match self.delimiter {
            BLANK => memchr2(b' ', b'\t', &text[quoted..]),
            delimiter => memchr(delimiter, &text[quoted..]),
        };
        match found {
            Some(found) => {
                self.rest = Some(&text[quoted + found + 1..]);
                Some(&text[..quoted + found])
            }
            None => {
                self.rest = None;
                Some(text)
            }
        }
    }
}

/// Bytes of the quoted piece at the start; none if it is never closed.
fn quoted_len(text: &[u8]) -> usize {
    let mut at = 1;
    while let Some(found) = memchr(b'"', &text[at..]) {
        at += found + 1;
        // Two quotes stand for one that is part of the text.
        if text.get(at) != Some(&b'"') {
            return at;
        }
        at += 1;
    }
    0
}

/// A field without the blanks and quotes around it.
#[inline]
fn bare(field: &[u8]) -> &[u8] {
    let field = field.trim_ascii();
    match field {
        [b'"', inner @ .., b'"'] => inner.trim_ascii(),
        _ => field,
    }
}

/// What separates the fields of this line.
fn find_delimiter(line: &[u8]) -> u8 {
    let mut quoted = false;
    let mut seen = [false; 256];
    for byte in line {
        if *byte == b'"' {
            quoted = !quoted;
        } else if !quoted {
            seen[usize::from(*byte)] = true;
        }
    }
    // The comma comes late: beside another separator it is a decimal comma, which the fault will show.
    *[b'\t', b';', b','].iter().find(|d| seen[usize::from(**d)]).unwrap_or(&BLANK)
}

/// Whether the line holds names rather than values. An empty field is a missing value, not a name: a
/// first row with a gap must not pass for names.
fn is_header(line: &[u8], delimiter: u8) -> bool {
    let numbers = || Fields::new(line, delimiter).map(bare).map(number);
    let fields = numbers().count();
    // Tables without names are written with column numbers in their place: 0, 1, 2 and so on.
    let counted = fields > 2 && numbers().zip(0u32..).all(|(x, i)| x == Some(i as f32));
    // Most must be words: a single one is a mistake in a row rather than a name.
    let words = Fields::new(line, delimiter)
        .map(bare)
        .filter(|field| !field.is_empty() && number(field).is_none())
        .count();
    counted || 2 * words > fields
}

/// Names of first columns that are hardly dimensions.
const ROW_NAMES: [&str; 4] = ["", "id", "index", "label"];

fn count_names(line: &[u8], delimiter: u8) -> Result<usize, Fault> {
    let mut names = Fields::new(line, delimiter).map(bare);
    let first = names.next().map(String::from_utf8_lossy).unwrap_or_default();
    if ROW_NAMES.contains(&first.to_ascii_lowercase().as_str()) {
        return Err(Fault::File(format!(
            "the first column is called {first:?}, which is how tables with row numbers are written; \
             write it again without them (pandas: index=False), or cut the column off"
        )));
    }
    Ok(1 + names.count())
}

/// Writes rows as text, without names: each value in the fewest digits that read back as the same value of
/// its type (half precision: of `f32`).
pub(crate) fn sink(writer: impl Write, dim: usize, delimiter: u8) -> impl Sink {
    CsvSink { printer: Printer::new(writer), dim: dim.max(1), delimiter }
}

struct CsvSink<W> {
    printer: Printer<W>,
    dim: usize,
    delimiter: u8,
}

impl<W: Write> CsvSink<W> {
    fn rows<T: Print>(&mut self, values: &[T]) -> Result<(), Fault> {
        for row in values.chunks_exact(self.dim) {
            for (column, value) in row.iter().enumerate() {
                if column > 0 {
                    self.printer.byte(self.delimiter);
                }
                self.printer.value(*value);
                self.printer.settle()?;
            }
            self.printer.byte(b'\n');
        }
        Ok(())
    }
}

impl<W: Write> Sink for CsvSink<W> {
    fn write(&mut self, values: &Values) -> Result<(), Fault> {
        for_values!(values, v => self.rows(v))
    }

    fn finish(&mut self) -> Result<(), Fault> {
        self.printer.finish()
    }
}

#[cfg(test)]
mod tests;
