//! CSV and TSV: one row per line, values separated by a comma, tab, semicolon or blanks.
//!
//! ```text
//! a,b,c          names of the columns: optional
//! 1,2.5,-3e-2
//! "4","5",nan    quotes around a value are removed
//! ```
//!
//! - Values are read in single precision (`f32`); a number that is too large becomes infinite. "nan" and
//!   "inf" are numbers here: whether to accept them is for the caller to decide.
//! - Unless it is given, the separator is the first of tab, semicolon and comma that the first line
//!   contains; without any of them, blanks separate. A run of blanks is one separator. Blanks around another
//!   separator are ignored.
//! - The first line holds names if most of its fields are neither empty nor numbers, or if its fields are the
//!   column numbers 0, 1, 2 and so on.
//! - Every row has as many values as the first. Missing values are refused.
//! - Blank lines and lines that begin with `#` are skipped and do not count as rows.
//! - A quoted field does not reach over the end of its line, unless columns are chosen: then text beside the
//!   vectors may have line ends in it.
//! - If columns are chosen by name, the first line holds names. If they are chosen by position, only their fields
//!   are considered for that.
//! - If a column of ids is chosen, the dimensions are the chosen columns, or all other columns.
//!
//! Cost: the text is read once; nearly all of the time is spent on parsing numbers. Memory is the longest
//! line and the batch.

use crate::chosen::Columns;
use crate::error::{Fault, Hint, Reason};
use crate::ids::IdSource;
use crate::source::{MAX_DIM, Sink, Source};
use crate::text::{
    LineFormat, Lines, OwnedId, Print, Printer, TextIds, TextSink, TextSource, number, quoted,
};
use memchr::{memchr, memchr2};
use std::io::{Read, Write};

/// As the delimiter: runs of blanks and tabs.
const BLANK: u8 = b' ';

/// Reads rows of text: all columns, or those that are chosen. Finds the delimiter, unless it is given, and whether
/// the first line holds names.
pub(crate) fn open(
    reader: Box<dyn Read + Send>,
    delimiter: Option<u8>,
    columns: Option<&Columns>,
    id: Option<&str>,
) -> Result<impl Source + use<>, Fault> {
    match (columns, id) {
        (None, None) => open_all(Lines::new(reader), delimiter),
        _ => open_chosen(Lines::new(reader).with_quotes(), delimiter, columns, id),
    }
}

/// Reads the ids in a column, without vectors. A column that is chosen by its name has a name in the first line. A table of
/// one column has no names.
pub(crate) fn open_ids(
    reader: Box<dyn Read + Send>,
    delimiter: Option<u8>,
    column: Option<&str>,
) -> Result<impl IdSource + use<>, Fault> {
    let mut lines = Lines::new(reader).with_quotes();
    if !lines.next()? {
        return Err("is empty, expected a table".into());
    }
    let delimiter = delimiter.unwrap_or_else(|| find_delimiter(lines.line()));
    let names = names(lines.line(), delimiter);
    let id = match column {
        Some(column) => find_id(&names, column)?,
        // The line as a whole, where blanks do not separate columns.
        None if names.len() == 1 || delimiter == BLANK => 0,
        None => return Err(crate::ids::choose_one(names.len(), &list(&names))),
    };
    if column.is_some_and(|column| position(column).is_none()) && !lines.next()? {
        return Err("holds names of columns, but no rows".into());
    }
    let whole = column.is_none();
    let id = move |line: &[u8]| match whole {
        true => OwnedId::Untyped(field_text(line)),
        false => id_of(line, delimiter, id),
    };
    Ok(TextIds::new(id, lines))
}

/// The position that a name of a column is, if it is one.
fn position(name: &str) -> Option<usize> {
    name.bytes().all(|byte| byte.is_ascii_digit()).then(|| name.parse().ok())?
}

/// The number of the column of ids.
fn find_id(names: &[String], id: &str) -> Result<usize, Fault> {
    let found = match position(id) {
        Some(position) => Some(position).filter(|position| *position < names.len()),
        None => names.iter().position(|name| name == id),
    };
    found.ok_or_else(|| {
        Fault::file(format!("has no column {id:?}; {}", list(names))).hint(Hint::ChooseIdColumn)
    })
}

/// The first columns, for messages.
fn list(names: &[String]) -> String {
    const SHOWN: usize = 40;
    let mut shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("{name:?}")).collect();
    if names.len() > SHOWN {
        shown.push(format!("and {} more", names.len() - SHOWN));
    }
    format!("columns: {}", shown.join(", "))
}

/// The names of the columns, if the line holds names.
fn names(line: &[u8], delimiter: u8) -> Vec<String> {
    Fields::new(line, delimiter)
        .map(|field| String::from_utf8_lossy(unquoted(field)).replace("\"\"", "\""))
        .collect()
}

/// The id in a column of a line.
fn id_of(line: &[u8], delimiter: u8, column: usize) -> OwnedId {
    match Fields::new(line, delimiter).nth(column) {
        Some(field) => OwnedId::Untyped(field_text(field)),
        None => OwnedId::Null,
    }
}

/// The text of a field: without the quotes around it, in which two quotes are one.
fn field_text(field: &[u8]) -> Vec<u8> {
    match field.trim_ascii() {
        [b'"', inner @ .., b'"'] => {
            let mut text = Vec::with_capacity(inner.len());
            let mut quote = false;
            for byte in inner {
                quote = *byte == b'"' && !quote;
                if !quote {
                    text.push(*byte);
                }
            }
            text
        }
        plain => plain.to_vec(),
    }
}

/// Reads the chosen columns.
fn open_chosen(
    mut lines: Lines,
    delimiter: Option<u8>,
    columns: Option<&Columns>,
    id: Option<&str>,
) -> Result<TextSource<Csv>, Fault> {
    if !lines.next()? {
        return Err("is empty, expected a table".into());
    }
    let delimiter = delimiter.unwrap_or_else(|| find_delimiter(lines.line()));
    let names = names(lines.line(), delimiter);
    let id_column = id.map(|id| find_id(&names, id)).transpose()?;
    let chosen = match columns {
        Some(columns) => columns.choose(names.len(), |i| &names[i])?,
        None => (0..names.len()).filter(|i| Some(*i) != id_column).collect(),
    };
    if !(1..=MAX_DIM).contains(&chosen.len()) {
        return Err(format!("{} columns are chosen, expected 1 to {MAX_DIM}", chosen.len()).into());
    }
    let words = chosen.iter().filter(|i| {
        let field = names[**i].as_bytes();
        !field.is_empty() && number(field).is_none()
    });
    let positions = chosen.len() > 2
        && chosen
            .iter()
            .zip(0u32..)
            .all(|(column, i)| number(names[*column].as_bytes()) == Some(i as f32));
    let named = columns.is_some_and(Columns::needs_names)
        || id.is_some_and(|id| position(id).is_none())
        || positions
        || 2 * words.count() > chosen.len();
    if named && !lines.next()? {
        return Err("holds names of columns, but no rows".into());
    }
    let dim = chosen.len();
    let chosen = Some(Chosen { columns: chosen, all: names.len() });
    let source = TextSource::new(Csv { delimiter, chosen, id: id_column }, lines, dim);
    Ok(if id.is_some() { source.with_ids() } else { source })
}

/// Reads all columns.
fn open_all(mut lines: Lines, delimiter: Option<u8>) -> Result<TextSource<Csv>, Fault> {
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
        return Err(lines.fault(0, format!("{}, but at most {MAX_DIM} are taken", values(dim))));
    }
    // A name may contain blanks, so that the names cannot be counted where blanks separate.
    if let Some(names) = names
        && names != dim
        && delimiter != BLANK
    {
        let why = format!("{}, but the first line names {names} columns", values(dim));
        return Err(lines.fault(0, why));
    }
    Ok(TextSource::new(Csv { delimiter, chosen: None, id: None }, lines, dim))
}

/// Writes rows as text, without names: each value in the fewest digits that read back as the same value of
/// its type (half precision: of `f32`).
pub(crate) fn sink(writer: impl Write, dim: usize, delimiter: u8) -> impl Sink {
    TextSink::new(Csv { delimiter, chosen: None, id: None }, writer, dim)
}

struct Csv {
    delimiter: u8,
    /// None for all columns.
    chosen: Option<Chosen>,
    /// The column of ids.
    id: Option<usize>,
}

/// The columns that are read.
struct Chosen {
    /// Their numbers, ascending.
    columns: Vec<usize>,
    /// How many columns there are.
    all: usize,
}

impl Chosen {
    fn parse(&self, line: &[u8], delimiter: u8, out: &mut Vec<f32>) -> Result<(), Reason> {
        let mut fields = Fields::new(line, delimiter);
        let mut at = 0;
        for column in &self.columns {
            let Some(field) = fields.nth(column - at) else {
                return Err(self.wrong_count(line, delimiter));
            };
            at = column + 1;
            out.push(number(unquoted(field)).ok_or_else(|| not_a_number(*column, field))?);
        }
        if at + fields.count() != self.all {
            return Err(self.wrong_count(line, delimiter));
        }
        Ok(())
    }

    fn wrong_count(&self, line: &[u8], delimiter: u8) -> Reason {
        let count = Fields::new(line, delimiter).count();
        format!("{}, expected {} as in the first line", values(count), self.all).into()
    }
}

impl LineFormat for Csv {
    fn id(&self, line: &[u8]) -> Option<OwnedId> {
        Some(id_of(line, self.delimiter, self.id?))
    }

    fn parse(&self, line: &[u8], dim: usize, out: &mut Vec<f32>) -> Result<(), Reason> {
        if let Some(chosen) = &self.chosen {
            return chosen.parse(line, self.delimiter, out);
        }
        let mut fields = Fields::new(line, self.delimiter);
        let before = out.len();
        for (column, field) in fields.by_ref().take(dim).enumerate() {
            out.push(number(unquoted(field)).ok_or_else(|| not_a_number(column, field))?);
        }
        let count = out.len() - before + fields.count();
        if count != dim {
            return Err(format!("{}, expected {dim} as in the first row", values(count)).into());
        }
        Ok(())
    }

    fn print<T: Print, W: Write>(&self, row: &[T], printer: &mut Printer<W>) -> Result<(), Fault> {
        for (column, value) in row.iter().enumerate() {
            if column > 0 {
                printer.byte(self.delimiter);
            }
            printer.value(*value);
            printer.flush_if_full()?;
        }
        printer.byte(b'\n');
        Ok(())
    }
}

fn values(count: usize) -> String {
    if count == 1 { "1 value".into() } else { format!("{count} values") }
}

fn not_a_number(column: usize, field: &[u8]) -> Reason {
    if unquoted(field).is_empty() {
        format!("column {column} is empty, expected a number; fill it in or leave the row out")
            .into()
    } else {
        let why = format!(
            "column {column} is {}, expected a number (with a decimal point); leave out columns that \
             hold other things",
            quoted(field)
        );
        Reason::with_hint(why, Hint::ChooseColumns)
    }
}

/// The fields of one line, still with the quotes and blanks around them.
struct Fields<'a> {
    /// The part of the line that is not split yet; none after the last field.
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

/// Length of the quoted text at the start; 0 if the quote is never closed.
fn quoted_len(text: &[u8]) -> usize {
    let mut at = 1;
    while let Some(found) = memchr(b'"', &text[at..]) {
        at += found + 1;
        // Two quotes are one quote within the text.
        if text.get(at) != Some(&b'"') {
            return at;
        }
        at += 1;
    }
    0
}

/// A field without the blanks and quotes around it.
#[inline]
fn unquoted(field: &[u8]) -> &[u8] {
    let field = field.trim_ascii();
    match field {
        [b'"', inner @ .., b'"'] => inner.trim_ascii(),
        _ => field,
    }
}

/// The delimiter of this line.
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
    // The comma comes last: beside another delimiter it is a decimal comma, which parsing will report.
    *[b'\t', b';', b','].iter().find(|d| seen[usize::from(**d)]).unwrap_or(&BLANK)
}

/// Whether the line holds names rather than values. An empty field is a missing value, not a name, so that
/// a first row with a missing value is not taken for names.
fn is_header(line: &[u8], delimiter: u8) -> bool {
    let numbers = || Fields::new(line, delimiter).map(unquoted).map(number);
    let fields = numbers().count();
    // Programs write column numbers where columns have no names.
    let column_numbers = fields > 2 && numbers().zip(0u32..).all(|(x, i)| x == Some(i as f32));
    // A single word among numbers is more likely a mistake in a row than a name.
    let words = Fields::new(line, delimiter)
        .map(unquoted)
        .filter(|field| !field.is_empty() && number(field).is_none())
        .count();
    column_numbers || 2 * words > fields
}

/// Names that a first column has if it numbers or labels the rows.
const ROW_NAMES: [&str; 4] = ["", "id", "index", "label"];

fn count_names(line: &[u8], delimiter: u8) -> Result<usize, Fault> {
    let mut names = Fields::new(line, delimiter).map(unquoted);
    let first = names.next().map(String::from_utf8_lossy).unwrap_or_default();
    if ROW_NAMES.contains(&first.to_ascii_lowercase().as_str()) {
        return Err(Fault::file(format!(
            "the first column is called {first:?}, so it seems to number or label the rows; write the \
             table again without it (pandas: index=False), or choose the other columns"
        ))
        .hint(Hint::ChooseColumns));
    }
    Ok(1 + names.count())
}

#[cfg(test)]
mod tests;
