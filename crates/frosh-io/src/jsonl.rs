//! JSON Lines: one JSON object or array on each line.
//!
//! ```text
//! {"id": 1, "text": "a", "emb": [0.1, 0.2]}     the field may be given; else it is the only array of numbers
//! {"id": 2, "doc": {"emb": [0.1, 0.2]}}         the field doc.emb, if it is given
//! [0.1, 0.2]                                    a line may be the vector itself
//! ```
//!
//! - Values are read in single precision (`f32`). `null` within a vector is taken as NaN, as pandas writes it;
//!   NaN and Infinity, as Python writes them, are taken too. The caller decides whether to accept them.
//! - A row whose vector is null or missing is refused, or left out on request.
//! - Only what is needed is parsed: other values are passed over, and need not be valid JSON beyond quotes and
//!   brackets that match.
//!
//! Cost: the text is read once. Memory is the longest line and the batch. There is no recursion.

use crate::error::{Fault, Hint, Reason};
use crate::ids::IdSource;
use crate::source::{MAX_DIM, Sink, Source};
use crate::text::{
    LineFormat, Lines, OwnedId, Print, Printer, TextIds, TextSink, TextSource, number, quoted,
};
use memchr::memchr2;
use std::io::{Read, Write};

/// Reads the vectors in a field of each line, or lines that are vectors.
pub(crate) fn open(
    reader: Box<dyn Read + Send>,
    field: Option<&str>,
    id: Option<&str>,
    skip_bad: bool,
) -> Result<impl Source + use<>, Fault> {
    let mut lines = Lines::new(reader);
    if !lines.next()? {
        return Err("is empty, expected a JSON object or array on each line".into());
    }
    let line = lines.line();
    let path = choose(line, field).map_err(|reason| lines.fault(0, reason))?;
    let id = id.map(|id| path_of(line, id, Hint::ChooseIdColumn)).transpose();
    let id = id.map_err(|reason| lines.fault(0, reason))?;
    let has_id = id.is_some();
    let jsonl = Jsonl { path, id, skip_bad };
    let vector = jsonl.vector(line).map_err(|reason| lines.fault(0, reason))?;
    let mut dim = 0;
    numbers(vector.unwrap_or(b"null"), |_| dim += 1).map_err(|reason| lines.fault(0, reason))?;
    if !(1..=MAX_DIM).contains(&dim) {
        return Err(lines.fault(0, format!("has {dim} values, expected 1 to {MAX_DIM}")));
    }
    let source = TextSource::new(jsonl, lines, dim);
    Ok(if has_id { source.with_ids() } else { source })
}

/// Reads the ids in a field of each line. Without a name, it is the only field of whole numbers or text, or the line.
pub(crate) fn open_ids(
    reader: Box<dyn Read + Send>,
    field: Option<&str>,
) -> Result<impl IdSource + use<>, Fault> {
    let mut lines = Lines::new(reader);
    if !lines.next()? {
        return Err("is empty, expected JSON on each line".into());
    }
    let line = lines.line();
    let wrong = |reason: Reason| lines.fault(0, reason);
    let path = match field {
        Some(field) => path_of(line, field, Hint::ChooseIdColumn).map_err(wrong)?,
        None if line.trim_ascii_start().first() != Some(&b'{') => Vec::new(),
        None => {
            let mut all = Vec::new();
            let each = |key, value| {
                all.push((key, value));
                true
            };
            fields(line, each).map_err(wrong)?;
            let fits = |value: &[u8]| matches!(id_of(value), OwnedId::Number(_) | OwnedId::Text(_));
            let mut found = all.iter().filter(|(_, value)| fits(value));
            match (found.next(), found.count()) {
                (Some((key, _)), 0) => vec![key.clone()],
                (first, more) => {
                    let count = usize::from(first.is_some()) + more;
                    return Err(crate::ids::choose_one(count, &list(&all)));
                }
            }
        }
    };
    let id = move |line: &[u8]| match lookup(line, &path) {
        Ok(value) => value.map_or(OwnedId::Null, id_of),
        Err(reason) => OwnedId::Other(reason.text),
    };
    Ok(TextIds::new(id, lines))
}

/// The id that a JSON value is.
fn id_of(value: &[u8]) -> OwnedId {
    let whole = |text: &[u8]| std::str::from_utf8(text).ok()?.parse().ok();
    match value.first() {
        Some(b'"') => {
            let mut text = Text { rest: value };
            match text.string().map(|text| (text, std::str::from_utf8(text).is_ok())) {
                Ok((text, true)) => OwnedId::Text(unescaped(text).into_bytes()),
                // As it is: the sink says that it is not UTF-8.
                Ok((text, false)) => OwnedId::Text(text.to_vec()),
                Err(reason) => OwnedId::Other(reason.text),
            }
        }
        _ if value == b"null" => OwnedId::Null,
        Some(b'-' | b'0'..=b'9') => match whole(value) {
            Some(number) => OwnedId::Number(number),
            None => OwnedId::Other(quoted(value)),
        },
        _ => OwnedId::Other(format!("{} ({})", quoted(value), kind(value))),
    }
}

/// Writes each row as an array.
pub(crate) fn sink(writer: impl Write, dim: usize) -> impl Sink {
    TextSink::new(Jsonl { path: Vec::new(), id: None, skip_bad: false }, writer, dim)
}

/// The fields that lead to the vector; none if the line itself is the vector.
fn choose(line: &[u8], field: Option<&str>) -> Result<Vec<String>, Reason> {
    let mut text = Text { rest: line };
    text.skip_blanks();
    match (text.rest.first(), field) {
        (Some(b'['), None) => return Ok(Vec::new()),
        (Some(b'{'), _) => {}
        (Some(b'['), Some(_)) => {
            return Err(Reason::with_hint("is an array, which has no fields", Hint::OmitColumn));
        }
        _ => return Err(format!("{} found, expected a JSON object or array", quoted(line)).into()),
    }
    if let Some(field) = field {
        return path_of(line, field, Hint::ChooseColumn);
    }
    let mut all = Vec::new();
    fields(text.rest, |key, value| {
        all.push((key, value));
        true
    })?;
    let found: Vec<_> = all.iter().filter(|(_, value)| is_vector(value)).cloned().collect();
    match &found[..] {
        [(key, _)] => Ok(vec![key.clone()]),
        [] => {
            let why = format!("has no field that is an array of numbers; {}", list(&all));
            Err(Reason::with_hint(why, Hint::ChooseColumn))
        }
        _ => {
            let why = format!("has several arrays of numbers; {}", list(&found));
            Err(Reason::with_hint(why, Hint::ChooseColumn))
        }
    }
}

/// The fields that lead to a field of this name, or of this path of names with dots between.
fn path_of(line: &[u8], field: &str, hint: Hint) -> Result<Vec<String>, Reason> {
    let object = line.trim_ascii_start();
    if object.first() != Some(&b'{') {
        let why = format!("is not an object, which has no field {field:?}");
        return Err(why.into());
    }
    let mut all = Vec::new();
    fields(object, |key, value| {
        all.push((key, value));
        true
    })?;
    // A key may have dots in it.
    let exact = all.iter().any(|(key, _)| key == field);
    let parts = field.split('.').map(str::to_owned);
    let path = if exact { vec![field.to_owned()] } else { parts.collect() };
    if lookup(line, &path)?.is_none() {
        return Err(Reason::with_hint(format!("has no field {field:?}; {}", list(&all)), hint));
    }
    Ok(path)
}

/// The first fields, for messages.
fn list(fields: &[(String, &[u8])]) -> String {
    const SHOWN: usize = 40;
    let mut names: Vec<_> = fields
        .iter()
        .take(SHOWN)
        .map(|(key, value)| format!("{key:?} ({})", kind(value)))
        .collect();
    if fields.len() > SHOWN {
        names.push(format!("and {} more", fields.len() - SHOWN));
    }
    if names.is_empty() {
        "it has no fields".into()
    } else {
        format!("fields: {}", names.join(", "))
    }
}

/// What a value is, for messages.
fn kind(value: &[u8]) -> &'static str {
    match value.first() {
        Some(b'[') if is_vector(value) => "array of numbers",
        Some(b'[') => "array",
        Some(b'{') => "object",
        Some(b'"') => "text",
        Some(b'n') => "null",
        Some(b't' | b'f') => "true or false",
        _ => "number",
    }
}

fn is_vector(value: &[u8]) -> bool {
    let mut count = 0;
    numbers(value, |_| count += 1).is_ok() && count > 0
}

struct Jsonl {
    /// The fields that lead to the vector.
    path: Vec<String>,
    /// The fields that lead to the id, if ids were chosen.
    id: Option<Vec<String>>,
    skip_bad: bool,
}

impl Jsonl {
    /// The text of a line's vector; `None` if it is null or missing.
    fn vector<'a>(&self, line: &'a [u8]) -> Result<Option<&'a [u8]>, Reason> {
        let found = lookup(line, &self.path)?.filter(|value| *value != b"null");
        if found.is_none() && !self.skip_bad {
            let name = self.path.join(".");
            let why = format!("field {name:?} is null or missing, expected an array of numbers");
            return Err(Reason::with_hint(why, Hint::SkipBadRows));
        }
        Ok(found)
    }
}

impl LineFormat for Jsonl {
    fn id(&self, line: &[u8]) -> Option<OwnedId> {
        Some(match lookup(line, self.id.as_ref()?) {
            Ok(value) => value.map_or(OwnedId::Null, id_of),
            Err(reason) => OwnedId::Other(reason.text),
        })
    }

    fn parse(&self, line: &[u8], dim: usize, out: &mut Vec<f32>) -> Result<(), Reason> {
        let start = out.len();
        let Some(vector) = self.vector(line)? else {
            // Rows that are not finite are left out by the caller.
            out.resize(start + dim, f32::NAN);
            return Ok(());
        };
        let mut count = 0usize;
        numbers(vector, |value| {
            count += 1;
            if count <= dim {
                out.push(value);
            }
        })?;
        if count != dim {
            return Err(format!("has {count} values, expected {dim} as in the first row").into());
        }
        Ok(())
    }

    fn print<T: Print, W: Write>(&self, row: &[T], printer: &mut Printer<W>) -> Result<(), Fault> {
        printer.byte(b'[');
        for (column, value) in row.iter().enumerate() {
            if column > 0 {
                printer.byte(b',');
            }
            printer.value(*value);
            printer.flush_if_full()?;
        }
        printer.byte(b']');
        printer.byte(b'\n');
        Ok(())
    }
}

/// The value at the end of a path of fields, or the line itself. Where a key is repeated, the first counts.
fn lookup<'a>(line: &'a [u8], path: &[String]) -> Result<Option<&'a [u8]>, Reason> {
    let mut here = line.trim_ascii();
    for wanted in path {
        let mut found = None;
        if here.first() != Some(&b'{') {
            return Ok(None);
        }
        fields(here, |key, value| {
            if key == *wanted {
                found = Some(value);
            }
            found.is_none()
        })?;
        let Some(value) = found else { return Ok(None) };
        here = value;
    }
    Ok(Some(here))
}

/// Calls `each` with key and value of every field of an object, until it returns false.
fn fields<'a>(
    object: &'a [u8],
    mut each: impl FnMut(String, &'a [u8]) -> bool,
) -> Result<(), Reason> {
    let mut text = Text { rest: object };
    text.expect(b'{')?;
    if text.take(b'}') {
        return Ok(());
    }
    loop {
        text.skip_blanks();
        let key = unescaped(text.string()?);
        text.expect(b':')?;
        let value = text.value()?;
        if !each(key, value) || !text.take(b',') {
            return Ok(());
        }
    }
}

/// Calls `each` with every value of an array of numbers. Fails if it is something else.
fn numbers(array: &[u8], mut each: impl FnMut(f32)) -> Result<(), Reason> {
    let mut text = Text { rest: array };
    text.skip_blanks();
    if text.rest.first() != Some(&b'[') {
        return Err(format!("{} found, expected an array of numbers", quoted(array)).into());
    }
    text.expect(b'[')?;
    if text.take(b']') {
        return text.end();
    }
    let mut column = 0usize;
    loop {
        text.skip_blanks();
        let length = text.scalar_len();
        let (scalar, rest) = text.rest.split_at(length);
        let value = if scalar == b"null" { Some(f32::NAN) } else { number(scalar) };
        let Some(value) = value else {
            let found = if scalar.is_empty() { rest } else { scalar };
            return Err(if found.is_empty() {
                CUT.into()
            } else {
                format!("value {column} is {}, expected a number", quoted(found)).into()
            });
        };
        each(value);
        column += 1;
        text.rest = rest;
        if !text.take(b',') {
            text.expect(b']')?;
            return text.end();
        }
    }
}

const CUT: &str = "the line ends within a value: each line must be a whole JSON object or array";

/// JSON text that is taken apart from front to back.
struct Text<'a> {
    rest: &'a [u8],
}

impl<'a> Text<'a> {
    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    /// Takes this byte, if it comes next.
    fn take(&mut self, byte: u8) -> bool {
        self.skip_blanks();
        let found = self.rest.first() == Some(&byte);
        self.rest = &self.rest[usize::from(found)..];
        found
    }

    fn expect(&mut self, byte: u8) -> Result<(), Reason> {
        if self.take(byte) {
            Ok(())
        } else if self.rest.is_empty() {
            Err(CUT.into())
        } else {
            Err(format!("{} found, expected {:?}", quoted(self.rest), char::from(byte)).into())
        }
    }

    /// Nothing but blanks may follow.
    fn end(&mut self) -> Result<(), Reason> {
        self.skip_blanks();
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(format!("{} found after the array, expected the end", quoted(self.rest)).into())
    }

    /// Takes a string; returns what is between its quotes.
    fn string(&mut self) -> Result<&'a [u8], Reason> {
        self.expect(b'"')?;
        let mut at = 0;
        while let Some(found) = memchr2(b'"', b'\\', &self.rest[at.min(self.rest.len())..]) {
            let place = at + found;
            if self.rest[place] == b'"' {
                let text = &self.rest[..place];
                self.rest = &self.rest[place + 1..];
                return Ok(text);
            }
            at = place + 2; // The escaped byte is passed over.
        }
        Err(CUT.into())
    }

    /// Length of a number or a word at the front.
    fn scalar_len(&self) -> usize {
        let ends = |byte: &u8| matches!(byte, b',' | b']' | b'}' | b'[' | b'{' | b':' | b'"');
        let end = |byte: &u8| ends(byte) || byte.is_ascii_whitespace();
        self.rest.iter().position(end).unwrap_or(self.rest.len())
    }

    /// Takes any value. Brackets are counted, not matched by kind.
    fn value(&mut self) -> Result<&'a [u8], Reason> {
        self.skip_blanks();
        let whole = self.rest;
        let mut open = 0usize;
        loop {
            match self.rest.first() {
                None => return Err(CUT.into()),
                Some(b'"') => drop(self.string()?),
                Some(b'[' | b'{') => {
                    open += 1;
                    self.rest = &self.rest[1..];
                }
                Some(b']' | b'}') if open > 0 => {
                    open -= 1;
                    self.rest = &self.rest[1..];
                }
                Some(b',' | b':') if open > 0 => self.rest = &self.rest[1..],
                Some(byte) if byte.is_ascii_whitespace() => self.skip_blanks(),
                Some(_) => match self.scalar_len() {
                    0 => {
                        return Err(format!("{} found, expected a value", quoted(self.rest)).into());
                    }
                    length => self.rest = &self.rest[length..],
                },
            }
            if open == 0 {
                return Ok(&whole[..whole.len() - self.rest.len()]);
            }
        }
    }
}

/// A string without its escapes. What is not valid is replaced.
fn unescaped(text: &[u8]) -> String {
    let plain = String::from_utf8_lossy(text);
    if !plain.contains('\\') {
        return plain.into_owned();
    }
    let mut units: Vec<u16> = Vec::new();
    let mut chars = plain.chars();
    while let Some(c) = chars.next() {
        let c = match (c, c == '\\') {
            (_, false) => c,
            _ => match chars.next().unwrap_or('\\') {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'u' => {
                    let digits: String = chars.by_ref().take(4).collect();
                    units.push(u16::from_str_radix(&digits, 16).unwrap_or(0xFFFD));
                    continue;
                }
                other => other,
            },
        };
        units.extend(c.encode_utf16(&mut [0; 2]).iter());
    }
    String::from_utf16_lossy(&units)
}

#[cfg(test)]
mod tests;
