//! Word vectors as text: one word and its vector on each line, with blanks between (GloVe); word2vec and
//! fastText put the number of words and the dimension on a line before.
//!
//! ```text
//! 400000 3              optional
//! the 0.1 -0.2 3e-4
//! . . . 0.4 0.5 0.6     a word may have blanks in it
//! # 0.7 0.8 0.9         not a comment
//! ```
//!
//! - The words are left out, unless they are chosen as ids; rows are numbered as the lines are.
//! - Without the first line, the dimension is the number of values of the first word.
//! - Values are read in single precision (`f32`).
//!
//! Cost: the text is read once. Memory is the longest line and the batch.

use crate::error::{Fault, Hint, Reason};
use crate::flat::checked_dim;
use crate::format::Format;
use crate::source::{MAX_DIM, Sink, Source};
use crate::text::{
    LineFormat, Lines, OwnedId, Print, Printer, TextSink, TextSource, number, quoted,
};
use std::io::{Read, Write};

/// Reads the vectors of words.
pub(crate) fn open(
    reader: Box<dyn Read + Send>,
    id: Option<&str>,
) -> Result<impl Source + use<>, Fault> {
    if let Some(id) = id.filter(|id| *id != ID) {
        return Err(Fault::file(format!("has no column {id:?}; columns: {ID:?} (the words)"))
            .hint(Hint::ChooseIdColumn));
    }
    let mut lines = Lines::new(reader).with_comments_as_rows();
    if !lines.next()? {
        return Err("is empty, expected words and their vectors".into());
    }
    let dim = match counts(lines.line()) {
        // A word that is a number, with a vector of one value, looks the same.
        Some(dim) => {
            if !lines.next()? {
                return Err("announces words, but holds none".into());
            }
            checked_dim(dim)?
        }
        None => dimension(lines.line()),
    };
    if !(1..=MAX_DIM).contains(&dim) {
        let why = format!("{dim} values follow the word, expected 1 to {MAX_DIM}");
        return Err(lines.fault(0, why));
    }
    let source = TextSource::new(Words { dim }, lines, dim);
    Ok(if id.is_some() { source.with_ids() } else { source })
}

/// The name of the column of words.
const ID: &str = "word";

/// Writes rows as text, with `row` and its number as the word of each.
pub(crate) fn sink(writer: impl Write, dim: usize) -> impl Sink {
    TextSink::new(Words { dim }, writer, dim)
}

/// The format of a text file that begins so: word vectors, or a table of numbers. `None` for other text.
pub(crate) fn detect(head: &[u8]) -> Option<Format> {
    let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let first = lines.next()?;
    let second = lines.next();
    let all = fields(first).count();
    let numbers = fields(first).rev().take_while(|field| number(field).is_some()).count();
    let announced = counts(first).filter(|dim| {
        // The second line may be cut where the bytes to look at end.
        second.is_some_and(|line| fields(line).count() as u64 == dim + 1)
    });
    if announced.is_some() || (numbers >= 2 && numbers < all) {
        Some(Format::Words)
    } else if numbers == all && all > 0 || first.contains(&b',') && first.is_ascii() {
        Some(Format::Csv)
    } else {
        None
    }
}

/// The dimension in a line with the number of words and the dimension.
fn counts(line: &[u8]) -> Option<u64> {
    let whole = |field: &[u8]| std::str::from_utf8(field).ok()?.parse::<u64>().ok();
    let mut fields = fields(line);
    match (fields.next().and_then(whole), fields.next().and_then(whole), fields.next()) {
        (Some(_), Some(dim), None) => Some(dim),
        _ => None,
    }
}

/// How many values follow the word.
fn dimension(line: &[u8]) -> usize {
    let numbers = fields(line).rev().take_while(|field| number(field).is_some()).count();
    // The word itself may be a number.
    numbers.min(fields(line).count().saturating_sub(1))
}

fn fields(line: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|field| !field.is_empty())
}

struct Words {
    dim: usize,
}

impl LineFormat for Words {
    /// The word: what comes before the values, without the blanks around it.
    fn id(&self, line: &[u8]) -> Option<OwnedId> {
        let mut rest = line.trim_ascii_end();
        for _ in 0..self.dim {
            let blank = rest.iter().rposition(|byte| matches!(byte, b' ' | b'\t'))?;
            rest = rest[..blank].trim_ascii_end();
        }
        Some(OwnedId::Text(rest.trim_ascii().to_vec()))
    }

    fn parse(&self, line: &[u8], dim: usize, out: &mut Vec<f32>) -> Result<(), Reason> {
        let start = out.len();
        let mut fields = fields(line);
        // From the end, since the word may have blanks in it.
        for field in fields.by_ref().rev().take(dim) {
            let place = dim - 1 - (out.len() - start);
            let value = number(field)
                .ok_or_else(|| format!("value {place} is {}, expected a number", quoted(field)))?;
            out.push(value);
        }
        let got = out.len() - start;
        out[start..].reverse();
        let word: Vec<&[u8]> = fields.take(64).collect();
        // A word of blanks leaves no field, but the line begins with them.
        let has_word =
            !word.is_empty() || line.first().is_some_and(|byte| byte.is_ascii_whitespace());
        if got < dim || !has_word {
            let values = if has_word { got } else { got.saturating_sub(1) };
            return Err(format!("has a word and {values} values, expected {dim} values").into());
        }
        // Numbers behind the first part of the word are more likely values of a longer vector.
        if word.len() > 1 && word[1..].iter().all(|part| number(part).is_some()) {
            let values = dim + word.len() - 1;
            return Err(format!("has at least {values} values, expected {dim}").into());
        }
        Ok(())
    }

    fn print<T: Print, W: Write>(&self, row: &[T], printer: &mut Printer<W>) -> Result<(), Fault> {
        printer.row_name();
        for value in row {
            printer.byte(b' ');
            printer.value(*value);
            printer.flush_if_full()?;
        }
        printer.byte(b'\n');
        printer.flush_if_full()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tests::{byte_by_byte, read_all, whole};

    fn read(text: &str) -> Result<(usize, Vec<f32>), String> {
        let all = read_all(open(whole(text.as_bytes()), None));
        assert_eq!(all, read_all(open(byte_by_byte(text.as_bytes()), None)), "{text:?}");
        all
    }

    #[test]
    fn words_are_left_out() {
        let text = "the 0.5 1 -2\n# 1 2 3\n\u{a0} 4 5 6\n7 8 9 1e1\n. . . 1 1 1 \r\n 2 2 2";
        let rows = [0.5, 1., -2., 1., 2., 3., 4., 5., 6., 8., 9., 10., 1., 1., 1., 2., 2., 2.];
        assert_eq!(read(text).unwrap(), (3, rows.to_vec()));
        assert_eq!(read(&format!("6 3\n{text}")).unwrap(), (3, rows.to_vec()));
        assert_eq!(read("1 2 3\n4 5 6\n").unwrap(), (2, vec![2., 3., 5., 6.]));
        assert_eq!(read("a b c 1 2\n").unwrap(), (2, vec![1., 2.]));
    }

    #[test]
    fn lines_that_are_wrong_are_named() {
        for (text, why) in [
            ("", "is empty"),
            ("3 2\n", "holds none"),
            ("a\n", "0 values follow the word"),
            ("a b c\n", "0 values follow the word"),
            ("1 99999999999\na 1\n", "expected 1 to 16777216"),
            ("1 0\na 1\n", "expected 1 to 16777216"),
            ("a 1 2\nb 1\n", "x, row 1: value 0 is \"b\", expected a number (line 2)"),
            ("a 1 2\n1\n", "x, row 1: has a word and 0 values, expected 2 values (line 2)"),
            ("a 1 2\nb 1 2 3\n", "x, row 1: has at least 3 values, expected 2 (line 2)"),
            ("a 1 2\nb 1 x\n", "x, row 1: value 1 is \"x\", expected a number (line 2)"),
        ] {
            let got = read(text).unwrap_err();
            assert!(got.contains(why), "{text:?}: {got}");
        }
    }

    #[test]
    fn text_files_are_told_apart() {
        for (text, format) in [
            ("the 0.5 1 -2\nof 1 2 3\n", Some(Format::Words)),
            (", 0.5 1 -2\n", Some(Format::Words)),
            ("2 3\nthe 0.5 1 -2\n", Some(Format::Words)),
            ("2 3\n0.5 1\n", Some(Format::Csv)),
            ("1 2 3\n", Some(Format::Csv)),
            ("1,2,3\n", Some(Format::Csv)),
            ("a,b\n1,2\n", Some(Format::Csv)),
            ("some words of a story\n", None),
            ("", None),
            ("\0\0\0", None),
        ] {
            assert_eq!(detect(text.as_bytes()), format, "{text:?}");
        }
    }
}
