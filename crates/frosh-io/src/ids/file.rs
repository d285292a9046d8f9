//! Files of ids alone, one for each row of a data set.

use super::{IdRule, IdSink, IdSource, Ids, MAX_TEXT, Raw};
use crate::byte_source::ByteSource;
use crate::error::{Fault, Hint};
use crate::format::Format;
use crate::open::{self, Options};
use crate::text::Lines;
use crate::{arrow, csv, jsonl, npy, parquet, whole_numbers};
use std::io::Read;
use std::path::Path;

/// Ids that are read in one step.
const STEP: usize = 1 << 12;

/// Reads a file of ids or class labels, one for each row of a data set: whole numbers or text.
///
/// Files are `.npy` arrays of integers or of fixed-width text, idx, text with one id per line, or one column of Parquet,
/// Arrow, CSV, TSV or JSON Lines. `column` names it; without it the file must have only one column that can be ids. The ids
/// are in memory.
///
/// ```
/// use frosh_io::{IdRule, Ids, read_ids};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("ids.txt");
/// std::fs::write(&path, "cat\ndog\n")?;
/// let Ids::Names(names) = read_ids(&path, None, IdRule::default())? else { panic!("text") };
/// assert_eq!((names.len(), names.get(1)), (2, "dog"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read_ids(path: &Path, column: Option<&str>, rule: IdRule) -> crate::Result<Ids> {
    let ids = read(path, column, rule).map_err(|fault| fault.at(path))?;
    if ids.is_empty() {
        return Err(Fault::file("holds no ids").at(path));
    }
    Ok(ids)
}

fn read(path: &Path, column: Option<&str>, rule: IdRule) -> Result<Ids, Fault> {
    let detected = open::detect_or(path, &Options::default(), Some(Format::Csv))
        .map_err(Fault::without_hint)?;
    let mut sink = IdSink::new(rule, column);
    let bytes = detected.bytes;
    let seekable = || match bytes {
        ByteSource::File(..) => Ok(()),
        ByteSource::Stream(..) => {
            let format = detected.format;
            Err(Fault::file(format!("{format} cannot be read from a stream: decompress it first")))
        }
    };
    let table = [Format::Csv, Format::Tsv].map(Some).contains(&Format::of_name(path));
    let no_columns = |what: &str| match column {
        None => Ok(()),
        Some(_) => {
            let why = format!("is {what}, which has no columns, and a column is chosen");
            Err(Fault::file(why))
        }
    };
    let mut source: Box<dyn IdSource> = match detected.format {
        Format::Npy => {
            no_columns("an array")?;
            return read_npy(bytes, sink);
        }
        Format::Idx => {
            no_columns("an array")?;
            return numbers(whole_numbers::read_idx::<i128>(bytes)?, sink);
        }
        Format::Parquet => {
            seekable()?;
            parquet::open_ids(path, column)?
        }
        Format::Arrow => {
            seekable()?;
            arrow::open_ids(path, column)?
        }
        Format::Jsonl => Box::new(jsonl::open_ids(Box::new(bytes), column)?),
        Format::Csv | Format::Tsv if column.is_some() || table => {
            let delimiter = (detected.format == Format::Tsv).then_some(b'\t');
            Box::new(csv::open_ids(Box::new(bytes), delimiter, column)?)
        }
        Format::Csv | Format::Tsv => {
            read_lines(Box::new(bytes), &mut sink)?;
            return Ok(sink.take());
        }
        other => {
            return Err(Fault::file(format!(
                "is of format {other}, and ids are read from npy, idx, text, CSV, TSV, JSON Lines, Parquet or \
                 Arrow"
            )));
        }
    };
    let mut row = 0;
    loop {
        let got = source.read(row, STEP, &mut sink)?;
        row += got as u64;
        if got < STEP {
            return Ok(sink.take());
        }
    }
}

/// One id on each line.
fn read_lines(reader: Box<dyn Read + Send>, sink: &mut IdSink) -> Result<(), Fault> {
    let mut lines = Lines::new(reader);
    let mut row = 0;
    while lines.next()? {
        let id = Raw::Untyped(lines.line().trim_ascii());
        sink.push(id).map_err(|reason| lines.fault(row, reason))?;
        row += 1;
    }
    Ok(())
}

fn numbers(all: Vec<i128>, mut sink: IdSink) -> Result<Ids, Fault> {
    for (row, id) in all.into_iter().enumerate() {
        sink.push(Raw::Number(id)).map_err(|reason| Fault::row(row as u64, reason))?;
    }
    Ok(sink.take())
}

fn read_npy(mut bytes: ByteSource, mut sink: IdSink) -> Result<Ids, Fault> {
    let preamble = npy::read_preamble(&mut bytes)?;
    let (big_endian, name) = npy::split_order(&preamble.descr);
    let width = |name: &str| name.get(1..)?.parse::<usize>().ok();
    let text = name.chars().next().filter(|kind| matches!(kind, 'U' | 'S')).zip(width(name));
    let Some((kind, width)) = text else {
        return numbers(whole_numbers::read_npy_values::<i128>(bytes, &preamble)?, sink);
    };
    let unit = if kind == 'U' { 4 } else { 1 };
    // A text of 64 KiB may have so many characters at most.
    if !(1..=MAX_TEXT).contains(&width) {
        let why = format!("holds texts of {width} characters, expected 1 to {MAX_TEXT}");
        return Err(Fault::file(why));
    }
    let rows = whole_numbers::rows_of(&preamble)?;
    let mut item = vec![0u8; unit * width];
    let mut name = Vec::new();
    for row in 0..rows {
        bytes.read_exact(&mut item)?;
        name.clear();
        if kind == 'S' {
            name.extend_from_slice(&item);
        } else {
            for unit in item.as_chunks::<4>().0 {
                let unit =
                    if big_endian { u32::from_be_bytes(*unit) } else { u32::from_le_bytes(*unit) };
                let c = char::from_u32(unit).ok_or_else(|| {
                    Fault::row(row, format!("{unit:#x} is not a character: the file is damaged"))
                })?;
                name.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        // NumPy fills up with zeros.
        let length = name.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let pushed = sink.push(Raw::Text(&name[..length]));
        pushed.map_err(|reason| Fault::row(row, reason))?;
    }
    if bytes.read(&mut [0])? > 0 {
        return Err(format!("announces {rows} texts, and holds more").into());
    }
    Ok(sink.take())
}

/// The fault of a file with several columns, or none, that could hold ids.
pub(crate) fn choose_one(found: usize, list: &str) -> Fault {
    let what = if found == 0 { "no column" } else { "several columns" };
    let why = format!("has {what} of whole numbers or text; {list}");
    Fault::file(why).hint(Hint::ChooseIdColumn)
}
