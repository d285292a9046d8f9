//! LIBSVM text (also called svmlight): one row per line, only the values that are not zero.
//!
//! ```text
//! label index:value index:value ... # comment
//! 1 3:0.5 7:2
//! 0 qid:4 1:1e-3        a row of a ranking task: qid is passed over
//! 0                     a row of zeros
//! ```
//!
//! - Indices count from 1 and ascend within a row; index 0, an index given twice and indices out of order
//!   are refused.
//! - Rows become dense. The text does not tell its dimension: it is given to [`open`], or found by
//!   [`largest_index`] in a pass of its own.
//! - The label (one number, or several with commas between) is checked and passed over; it may be missing.
//! - Values are read in single precision (`f32`); what is too large for it becomes infinite.
//! - Blank lines and lines that begin with `#` are no rows: a row of zeros has at least its label.
//! - Rows that are skipped are not looked into.
//!
//! Cost: the text is read once (twice without a dimension). Memory is the longest line and the batch of
//! dense rows, which is kept to about 64 MiB however wide they are.

use crate::batch::{Kind, Values};
use crate::error::Fault;
use crate::for_values;
use crate::source::{MAX_DIM, Shape, Sink, Source};
use crate::text::{Lines, Print, Printer, batch_rows, number, shown};
use memchr::memchr;
use std::io::{Read, Write};

/// Reads rows of this dimension. Without one it cannot begin: a stream is not read twice, see
/// [`largest_index`].
pub(crate) fn open(reader: Box<dyn Read + Send>, dim: Option<usize>) -> Result<impl Source, Fault> {
    let dim = dim.ok_or("LIBSVM text does not tell its dimension; pass --dim")?;
    if dim == 0 || dim > MAX_DIM {
        return Err(format!("dimension {dim} asked for, expected 1 to {MAX_DIM}").into());
    }
    let mut lines = Lines::new(reader);
    if !lines.next()? {
        return Err("is empty, expected rows of LIBSVM text".into());
    }
    lines.keep();
    Ok(Libsvm { lines, dim, row: 0 })
}

/// Reads the whole text for its largest index: the least dimension that holds all of its rows.
pub(crate) fn largest_index(reader: Box<dyn Read + Send>) -> Result<usize, Fault> {
    let mut lines = Lines::new(reader);
    let mut largest = 0;
    let mut row = 0;
    while lines.next()? {
        for_pairs(lines.line(), |index, _| {
            if index > MAX_DIM {
                return Err(format!("index {index}, but at most {MAX_DIM} dimensions are taken"));
            }
            largest = largest.max(index);
            Ok(())
        })
        .map_err(|why| lines.fault(row, &why))?;
        row += 1;
    }
    match (largest, row) {
        (0, 0) => Err("is empty, expected rows of LIBSVM text".into()),
        (0, _) => Err("no row holds an index, so that the dimension is unknown; pass --dim".into()),
        _ => Ok(largest),
    }
}

struct Libsvm {
    lines: Lines,
    dim: usize,
    /// Number of the next row.
    row: u64,
}

impl Source for Libsvm {
    fn shape(&self) -> Shape {
        Shape { dim: self.dim, kind: Kind::F32, rows: None }
    }

    fn read(&mut self, limit: usize, values: &mut Values) -> Result<usize, Fault> {
        values.clear(Kind::F32);
        let Values::F32(out) = values else { unreachable!("made so by clear") };
        let limit = batch_rows(limit, self.dim);
        let mut rows = 0;
        while rows < limit && self.lines.next()? {
            parse_row(self.lines.line(), self.dim, out)
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

/// Appends one dense row.
fn parse_row(line: &[u8], dim: usize, out: &mut Vec<f32>) -> Result<(), String> {
    let start = out.len();
    out.resize(start + dim, 0.0);
    let row = &mut out[start..];
    for_pairs(line, |index, text| {
        // Indices count from 1, which for_pairs has made sure of.
        let Some(place) = row.get_mut(index - 1) else {
            return Err(format!("index {index}, but --dim is {dim}"));
        };
        *place = number(text).ok_or_else(|| {
            format!("value of index {index} is {}, expected a number", shown(text))
        })?;
        Ok(())
    })
}

/// Gives the pairs of a line in order: an index, at least 1 and above the one before, and the text of its
/// value.
fn for_pairs(
    line: &[u8],
    mut each: impl FnMut(usize, &[u8]) -> Result<(), String>,
) -> Result<(), String> {
    let line = &line[..memchr(b'#', line).unwrap_or(line.len())];
    let fields = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|field| !field.is_empty());
    let mut last = 0;
    for (place, field) in fields.enumerate() {
        let Some(colon) = memchr(b':', field) else {
            if place == 0 && is_label(field) {
                continue;
            }
            let expected = if place == 0 { "a label (a number)" } else { "index:value" };
            return Err(format!("{} found, expected {expected}", shown(field)));
        };
        let (name, text) = (&field[..colon], &field[colon + 1..]);
        if name == b"qid" {
            continue;
        }
        let index = parse_index(name)
            .ok_or_else(|| format!("{} found, expected index:value", shown(field)))?;
        if index == 0 {
            return Err("index 0, but indices count from 1; write it again so (scikit-learn: \
                        zero_based=False)"
                .into());
        }
        if index <= last {
            return Err(format!("index {index} comes after index {last}, but they must ascend"));
        }
        last = index;
        each(index, text)?;
    }
    Ok(())
}

fn is_label(text: &[u8]) -> bool {
    text.split(|byte| *byte == b',').all(|part| number(part).is_some())
}

/// Digits only; what is beyond counting is the largest there is, and so above every dimension.
fn parse_index(text: &[u8]) -> Option<usize> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    digits.then(|| {
        text.iter().fold(0usize, |n, d| n.saturating_mul(10).saturating_add(usize::from(d - b'0')))
    })
}

/// Writes rows as text, with the label 0. Zeros are left out, whichever their sign, so that minus zero
/// comes back as zero. Where the last columns hold nothing but zeros the text does not show them: read it
/// back with its dimension given. Values are printed as in CSV.
pub(crate) fn sink(writer: impl Write, dim: usize) -> impl Sink {
    LibsvmSink { printer: Printer::new(writer), dim: dim.max(1) }
}

struct LibsvmSink<W> {
    printer: Printer<W>,
    dim: usize,
}

impl<W: Write> LibsvmSink<W> {
    fn rows<T: Print>(&mut self, values: &[T]) -> Result<(), Fault> {
        for row in values.chunks_exact(self.dim) {
            self.printer.byte(b'0');
            for (column, value) in row.iter().enumerate() {
                if !value.is_zero() {
                    self.printer.byte(b' ');
                    self.printer.index(column + 1);
                    self.printer.byte(b':');
                    self.printer.value(*value);
                    self.printer.settle()?;
                }
            }
            self.printer.byte(b'\n');
            self.printer.settle()?;
        }
        Ok(())
    }
}

impl<W: Write> Sink for LibsvmSink<W> {
    fn write(&mut self, values: &Values) -> Result<(), Fault> {
        for_values!(values, v => self.rows(v))
    }

    fn finish(&mut self) -> Result<(), Fault> {
        self.printer.finish()
    }
}

#[cfg(test)]
mod tests;
