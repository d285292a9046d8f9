//! Class labels and ids: one whole number for each row of a data set.
//!
//! | file | holds |
//! |---|---|
//! | `.npy` | an array of one axis (or of one column) of bool or of integers of any size |
//! | idx | one axis of bytes, signed bytes, 16- or 32-bit integers (MNIST's `-labels-idx1-ubyte`) |
//! | any other | text: one number per line; blank lines and lines that begin with `#` are not rows |
//!
//! All may be compressed by gzip or Zstandard. Numbers that the type asked for cannot hold, and floats, are
//! refused.
//!
//! Cost: memory for the bytes of the file and for the numbers.

use crate::byte_source::ByteSource;
use crate::error::Fault;
use crate::format::Format;
use crate::idx;
use crate::npy;
use crate::open::{self, Options};
use crate::text::{Lines, quoted};
use std::io::Read;
use std::path::Path;

/// Reads a file of integers, one for each row of a data set: class labels or ids.
///
/// Files are `.npy` arrays of integers, idx, or text with one number per line.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("labels.txt");
/// std::fs::write(&path, "3\n-1\n")?;
/// assert_eq!(frosh_io::whole_numbers::<i64>(&path)?, [3, -1]);
/// assert!(frosh_io::whole_numbers::<u64>(&path).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn whole_numbers<T: TryFrom<i128>>(path: &Path) -> crate::Result<Vec<T>> {
    // There are no options that could help: the format is found by content and name alone.
    let numbers = read(path).map_err(|fault| fault.without_hint().at(path))?;
    if numbers.is_empty() {
        return Err(Fault::file("holds no numbers").at(path));
    }
    Ok(numbers)
}

fn read<T: TryFrom<i128>>(path: &Path) -> Result<Vec<T>, Fault> {
    let options = Options::default();
    // Files whose content and name tell no format are text, such as .txt.
    let detected = open::detect_or(path, &options, Some(Format::Csv))?;
    match detected.format {
        Format::Npy => read_npy(detected.bytes),
        Format::Idx => read_idx(detected.bytes),
        Format::Csv | Format::Tsv => read_text(Box::new(detected.bytes)),
        other => {
            Err(format!("is of format {other}, and whole numbers are read from npy, idx or text")
                .into())
        }
    }
}

fn read_npy<T: TryFrom<i128>>(mut bytes: ByteSource) -> Result<Vec<T>, Fault> {
    let preamble = npy::read_preamble(&mut bytes)?;
    read_npy_values(bytes, &preamble)
}

/// Number of rows of an array of one axis, or of one column.
pub(crate) fn rows_of(preamble: &npy::Preamble) -> Result<u64, Fault> {
    match preamble.shape[..] {
        [rows] | [rows, 1] => Ok(rows),
        _ => Err(Fault::file(format!(
            "holds an array of shape {}, expected (rows,): one number for each row",
            preamble.shape()
        ))),
    }
}

/// The values after the header of a `.npy` file.
pub(crate) fn read_npy_values<T: TryFrom<i128>>(
    bytes: ByteSource,
    preamble: &npy::Preamble,
) -> Result<Vec<T>, Fault> {
    let rows = rows_of(preamble)?;
    let (big_endian, name) = npy::split_order(&preamble.descr);
    let Some((width, signed)) = integer(name) else {
        return Err(Fault::file(format!(
            "holds values of type {:?}, and whole numbers are needed: convert with \
             array.astype('int64')",
            preamble.descr
        )));
    };
    values(bytes, rows, width, signed, big_endian)
}

/// Size and signedness of NumPy's integer types.
fn integer(name: &str) -> Option<(usize, bool)> {
    Some(match name {
        "b1" | "u1" => (1, false),
        "i1" => (1, true),
        "u2" => (2, false),
        "i2" => (2, true),
        "u4" => (4, false),
        "i4" => (4, true),
        "u8" => (8, false),
        "i8" => (8, true),
        _ => return None,
    })
}

pub(crate) fn read_idx<T: TryFrom<i128>>(mut bytes: ByteSource) -> Result<Vec<T>, Fault> {
    let idx::Head { code, axes } = idx::read_head(&mut bytes)?;
    let (width, signed) = match code {
        0x08 => (1, false),
        0x09 => (1, true),
        0x0b => (2, true),
        0x0c => (4, true),
        _ => return Err("holds floats, and whole numbers are needed".into()),
    };
    match axes[..] {
        [rows] | [rows, 1] => values(bytes, rows, width, signed, true),
        _ => Err(Fault::file(format!(
            "has axes of lengths {axes:?}, expected one axis: one number for each row"
        ))),
    }
}

/// `rows` integers of `width` bytes, and nothing after them.
fn values<T: TryFrom<i128>>(
    bytes: ByteSource,
    rows: u64,
    width: usize,
    signed: bool,
    big_endian: bool,
) -> Result<Vec<T>, Fault> {
    let mut all = Vec::new();
    // One byte more than announced, to notice a file that is too long. Memory grows with what is there.
    let most = rows.saturating_mul(width as u64).saturating_add(1);
    let mut bytes = bytes;
    bytes.by_ref().take(most).read_to_end(&mut all)?;
    let got = all.len() as u64;
    if got.checked_add(1) != Some(most) {
        let what = if got >= most { "more" } else { "fewer: it is cut short or damaged" };
        return Err(Fault::file(format!(
            "announces {rows} numbers of {width} bytes, and holds {what}"
        )));
    }
    let mut numbers = Vec::with_capacity(all.len() / width);
    for (row, value) in all.chunks_exact(width).enumerate() {
        let mut wide = [0u8; 8];
        wide[..width].copy_from_slice(value);
        if big_endian {
            wide[..width].reverse();
        }
        let value = u64::from_le_bytes(wide);
        let spare = 64 - 8 * width as u32;
        // Shifting left and arithmetically right extends the sign.
        let value =
            if signed { ((value << spare).cast_signed() >> spare).into() } else { value.into() };
        let wrong = |why: String| Fault::row(row as u64, why);
        numbers.push(fitting(value).map_err(wrong)?);
    }
    Ok(numbers)
}

/// Converts a number to the type asked for.
fn fitting<T: TryFrom<i128>>(value: i128) -> Result<T, String> {
    T::try_from(value).map_err(|_| format!("the number {value} is too large, or below zero"))
}

fn read_text<T: TryFrom<i128>>(reader: Box<dyn Read + Send>) -> Result<Vec<T>, Fault> {
    let mut lines = Lines::new(reader);
    let mut numbers = Vec::new();
    while lines.next()? {
        let text = lines.line().trim_ascii();
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        let wrong = || format!("it is {}, expected one whole number per line", quoted(text));
        let number = number.ok_or_else(wrong).and_then(fitting);
        numbers.push(number.map_err(|why| lines.fault(numbers.len() as u64, &why))?);
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn npy(descr: &str, shape: &str, values: &[u8]) -> Vec<u8> {
        let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        let length = (text.len() as u16).to_le_bytes();
        [&b"\x93NUMPY\x01\x00"[..], &length, text.as_bytes(), values].concat()
    }

    fn of(name: &str, bytes: &[u8]) -> Result<Vec<i64>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        whole_numbers(&path).map_err(|e| e.to_string())
    }

    #[test]
    fn integers_of_every_size_and_order() {
        let wide: Vec<u8> = [-1i64, 300, i64::MIN].iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(of("a.npy", &npy("<i8", "(3,)", &wide)), Ok(vec![-1, 300, i64::MIN]));
        assert_eq!(of("a.npy", &npy("|u1", "(2,)", &[7, 255])), Ok(vec![7, 255]));
        assert_eq!(of("a.npy", &npy("|i1", "(2, 1)", &[7, 255])), Ok(vec![7, -1]));
        assert_eq!(of("a.npy", &npy("|b1", "(2,)", &[1, 0])), Ok(vec![1, 0]));
        assert_eq!(of("a.npy", &npy(">i2", "(2,)", &[0, 5, 255, 254])), Ok(vec![5, -2]));
        assert_eq!(of("a.npy", &npy("<u4", "(1,)", &[255; 4])), Ok(vec![4_294_967_295]));
        assert_eq!(of("l-idx1-ubyte", &[0, 0, 8, 1, 0, 0, 0, 2, 9, 200]), Ok(vec![9, 200]));
        let four = [0, 0, 0x0c, 1, 0, 0, 0, 1, 255, 255, 255, 253];
        assert_eq!(of("unnamed", &four), Ok(vec![-3]));
    }

    #[test]
    fn text_has_one_number_per_line() {
        for name in ["l.txt", "l.csv", "labels"] {
            assert_eq!(
                of(name, b"3\n -4 \r\n\n# five\n50000000000\n"),
                Ok(vec![3, -4, 50_000_000_000])
            );
        }
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(b"1\n2\n").unwrap();
        assert_eq!(of("l.txt.gz", &packed.finish().unwrap()), Ok(vec![1, 2]));
    }

    #[test]
    fn errors_name_the_file_the_row_and_what_was_found() {
        let fails = |name: &str, bytes: &[u8], parts: &[&str]| {
            let said = of(name, bytes).unwrap_err();
            for part in parts.iter().chain([&name]) {
                assert!(said.contains(part), "{said:?} should mention {part:?}");
            }
        };
        fails("l.txt", b"1\nfour\n", &["row 1", "four", "whole number", "line 2"]);
        fails("l.txt", b"1\n2,3\n", &["row 1", "2,3"]);
        fails("l.txt", b"1.5\n", &["row 0", "1.5"]);
        fails("l.txt", b"# nothing\n", &["no numbers"]);
        fails("l.txt", b"", &["empty"]);
        fails("l.npy", &npy("<f4", "(1,)", &[0; 4]), &["<f4", "whole numbers"]);
        fails("l.npy", &npy("|u1", "(2, 3)", &[0; 6]), &["(2, 3)", "(rows,)"]);
        fails("l.npy", &npy("|u1", "()", &[0; 1]), &["()", "(rows,)"]);
        fails("l.npy", &npy("|u1", "(5,)", &[0; 4]), &["5 numbers", "cut short"]);
        fails("l.npy", &npy("|u1", "(5,)", &[0; 6]), &["5 numbers", "more"]);
        fails("l.npy", &npy("|u1", "(18446744073709551615,)", &[0; 6]), &["cut short"]);
        fails("l.npy", &npy("<u8", "(1,)", &[255; 8]), &["row 0", "18446744073709551615"]);
        fails("l.npy", b"1\n2\n", &["named as npy"]);
        fails(
            "l.idx",
            &[0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 2, 1, 1, 1, 1],
            &["[1, 2, 2]"],
        );
        fails("l.idx", &[0, 0, 0x0d, 1, 0, 0, 0, 1, 1, 1, 1, 1], &["floats"]);
        fails("l.fvecs", &[1, 0, 0, 0, 0, 0, 0, 0], &["fvecs", "npy, idx or text"]);
        let missing = whole_numbers::<u64>(Path::new("not/there")).unwrap_err().to_string();
        assert!(missing.contains("No such file"), "{missing}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ids.txt");
        std::fs::write(&path, "18446744073709551615\n-1\n").unwrap();
        let said = whole_numbers::<u64>(&path).unwrap_err().to_string();
        assert!(said.contains("row 1") && said.contains("-1"), "{said}");
    }
}
