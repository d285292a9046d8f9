//! LIBSVM text (also called svmlight): one row per line, only the values that are not zero.
//!
//! ```text
//! label index:value index:value ... # comment
//! 1 3:0.5 7:2
//! 0 qid:4 1:1e-3        a row of a ranking task: qid is ignored
//! 0                     a row of zeros
//! ```
//!
//! - Indices count from 1 and ascend within a row. Index 0, a repeated index and indices out of order are
//!   refused.
//! - Rows become dense. The text does not tell its dimension: it is given to [`open`], or found by
//!   [`largest_index`] in a separate pass.
//! - The label (one number, or several with commas between) is checked and ignored; it may be missing.
//! - Values are read in single precision (`f32`); a number that is too large becomes infinite.
//! - Blank lines and lines that begin with `#` are not rows: a row of zeros has at least its label.
//!
//! Cost: the text is read once (twice without a dimension). Memory is the longest line and the batch of
//! dense rows, which is kept to about 64 MiB or one row.

use crate::error::{Fault, Hint, Reason};
use crate::source::{MAX_DIM, Sink, Source};
use crate::text::{LineFormat, Lines, Print, Printer, TextSink, TextSource, number, quoted};
use memchr::memchr;
use std::io::{Read, Write};

/// Reads rows of this dimension, which must be given: [`largest_index`] finds it, but a stream can be
/// read only once.
pub(crate) fn open(reader: Box<dyn Read + Send>, dim: Option<usize>) -> Result<impl Source, Fault> {
    let dim = dim.ok_or_else(|| {
        Fault::file("LIBSVM text does not tell its dimension, and none is set")
            .hint(Hint::SetDimension)
    })?;
    if dim == 0 || dim > MAX_DIM {
        let why = format!("the dimension is set to {dim}, expected 1 to {MAX_DIM}");
        return Err(Fault::file(why).hint(Hint::CheckDimension));
    }
    let mut lines = Lines::new(reader);
    if !lines.next()? {
        return Err("is empty, expected rows of LIBSVM text".into());
    }
    Ok(TextSource::new(Libsvm, lines, dim))
}

/// Reads the whole text for its largest index: the smallest dimension that holds all of its rows.
pub(crate) fn largest_index(reader: Box<dyn Read + Send>) -> Result<usize, Fault> {
    let mut lines = Lines::new(reader);
    let mut largest = 0;
    let mut row = 0;
    while lines.next()? {
        for_pairs(lines.line(), |index, _| {
            if index > MAX_DIM {
                return Err(
                    format!("index {index}, but at most {MAX_DIM} dimensions are taken").into()
                );
            }
            largest = largest.max(index);
            Ok(())
        })
        .map_err(|reason| lines.fault(row, reason))?;
        row += 1;
    }
    match (largest, row) {
        (0, 0) => Err("is empty, expected rows of LIBSVM text".into()),
        (0, _) => Err(Fault::file("no row holds an index, so that the dimension is unknown")
            .hint(Hint::SetDimension)),
        _ => Ok(largest),
    }
}

/// Writes rows as text, with the label 0. Zeros of either sign are left out, so that minus zero is read
/// back as zero. Columns at the end that hold only zeros do not appear in the text: to read such a file,
/// set the dimension. Values are printed as in CSV.
pub(crate) fn sink(writer: impl Write, dim: usize) -> impl Sink {
    TextSink::new(Libsvm, writer, dim)
}

struct Libsvm;

impl LineFormat for Libsvm {
    fn parse(&self, line: &[u8], dim: usize, out: &mut Vec<f32>) -> Result<(), Reason> {
        let start = out.len();
        out.resize(start + dim, 0.0);
        let row = &mut out[start..];
        for_pairs(line, |index, text| {
            // Indices count from 1, as for_pairs has checked.
            let Some(place) = row.get_mut(index - 1) else {
                let why = format!("index {index}, but the dimension is {dim}");
                return Err(Reason::with_hint(why, Hint::CheckDimension));
            };
            *place = number(text).ok_or_else(|| {
                format!("value of index {index} is {}, expected a number", quoted(text))
            })?;
            Ok(())
        })
    }

    fn print<T: Print, W: Write>(&self, row: &[T], printer: &mut Printer<W>) -> Result<(), Fault> {
        printer.byte(b'0');
        for (column, value) in row.iter().enumerate() {
            if !value.is_zero() {
                printer.byte(b' ');
                printer.index(column + 1);
                printer.byte(b':');
                printer.value(*value);
                printer.flush_if_full()?;
            }
        }
        printer.byte(b'\n');
        printer.flush_if_full()
    }
}

/// Calls `each` with every index of a line, in order, and the text of its value. Checks that indices
/// ascend from 1.
fn for_pairs(
    line: &[u8],
    mut each: impl FnMut(usize, &[u8]) -> Result<(), Reason>,
) -> Result<(), Reason> {
    let line = &line[..memchr(b'#', line).unwrap_or(line.len())];
    let fields = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|field| !field.is_empty());
    let mut last = 0;
    for (place, field) in fields.enumerate() {
        let Some(colon) = memchr(b':', field) else {
            if place == 0 && is_label(field) {
                continue;
            }
            let expected = if place == 0 { "a label (a number)" } else { "index:value" };
            return Err(format!("{} found, expected {expected}", quoted(field)).into());
        };
        let (name, text) = (&field[..colon], &field[colon + 1..]);
        if name == b"qid" {
            continue;
        }
        let index = parse_index(name)
            .ok_or_else(|| format!("{} found, expected index:value", quoted(field)))?;
        if index == 0 {
            return Err("index 0, but indices count from 1; write it again so (scikit-learn: \
                        zero_based=False)"
                .into());
        }
        if index <= last {
            return Err(
                format!("index {index} comes after index {last}, but they must ascend").into()
            );
        }
        last = index;
        each(index, text)?;
    }
    Ok(())
}

fn is_label(text: &[u8]) -> bool {
    text.split(|byte| *byte == b',').all(|part| number(part).is_some())
}

/// Digits only. An index too large for `usize` becomes its largest value, which is above every dimension.
fn parse_index(text: &[u8]) -> Option<usize> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    digits.then(|| {
        text.iter().fold(0usize, |n, d| n.saturating_mul(10).saturating_add(usize::from(d - b'0')))
    })
}

#[cfg(test)]
mod tests;
