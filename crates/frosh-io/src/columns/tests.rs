//! Tests that hold for both formats.

use super::*;
use crate::batch::Values;
use crate::error::Error;
use crate::source::{Shape, Sink, Source};
use half::f16;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A format under test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Format {
    Parquet,
    Arrow,
}

pub(crate) const BOTH: [Format; 2] = [Format::Parquet, Format::Arrow];
/// The files made by another program have rows of 8 values, 30 of them.
pub(crate) const DIM: usize = 8;
pub(crate) const ROWS: usize = 30;

impl Format {
    fn end(self) -> &'static str {
        if self == Format::Parquet { "parquet" } else { "arrow" }
    }

    pub(crate) fn open(
        self,
        path: &Path,
        column: Option<&str>,
        skip_bad: bool,
    ) -> Result<Box<dyn Source>, Fault> {
        match self {
            Format::Parquet => crate::parquet::open(path, column, skip_bad),
            Format::Arrow => crate::arrow::open(path, column, skip_bad),
        }
    }

    fn sink(self, path: &Path, kind: Kind, dim: usize) -> Box<dyn Sink> {
        let file = File::create(path).unwrap();
        match self {
            Format::Parquet => {
                Box::new(crate::parquet::sink(file, kind, dim, "vector").unwrap_or_else(panics))
            }
            Format::Arrow => {
                Box::new(crate::arrow::sink(file, kind, dim, "vector").unwrap_or_else(panics))
            }
        }
    }

    fn describe(self, path: &Path) -> Vec<(String, String)> {
        match self {
            Format::Parquet => crate::parquet::describe(path).unwrap(),
            Format::Arrow => crate::arrow::describe(path).unwrap(),
        }
    }
}

fn panics<T>(fault: Fault) -> T {
    panic!("{fault:?}")
}

pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/columns")).join(name)
}

/// The text of a fault in a file called `f`.
pub(crate) fn message(fault: Fault) -> String {
    fault.at(Path::new("f")).to_string()
}

/// The error when the file is opened and read.
pub(crate) fn error(path: &Path, format: Format, column: Option<&str>) -> Error {
    let result = format.open(path, column, false).and_then(|mut s| read_all(&mut *s, 7));
    result.map(|_| ()).expect_err("a fault").at(Path::new("f"))
}

/// The text of that error.
pub(crate) fn refused(path: &Path, format: Format, column: Option<&str>) -> String {
    error(path, format, column).to_string()
}

/// All rows that are left, as `f64`, read `limit` at a time.
pub(crate) fn read_all(source: &mut dyn Source, limit: usize) -> Result<Vec<f64>, Fault> {
    let Shape { dim, kind, .. } = source.shape();
    let mut all = Vec::new();
    let mut values = Values::empty(kind);
    loop {
        let rows = source.read(limit, &mut values)?;
        assert!(rows <= limit);
        assert_eq!(values.len(), rows * dim);
        assert_eq!(values.kind(), kind);
        if rows == 0 {
            return Ok(all);
        }
        all.extend(values.to_f64());
    }
}

/// What rows of the files made by another program hold.
pub(crate) fn expected(rows: impl IntoIterator<Item = usize>, signed: bool) -> Vec<f64> {
    let low = if signed { 20. } else { 0. };
    rows.into_iter()
        .flat_map(|i| (0..DIM).map(move |j| ((i * 7 + j * 3) % 100) as f64 - low))
        .collect()
}

/// Reads such a file in several ways, all of which must give these rows.
pub(crate) fn check(path: &Path, format: Format, kind: Kind, rows: &[f64]) {
    let count = rows.len() / DIM;
    for limit in [1, 3, 7, 11, 1000] {
        let mut source = format.open(path, None, false).unwrap_or_else(panics);
        let shape = Shape { dim: DIM, kind, rows: Some(count as u64) };
        assert_eq!(source.shape(), shape, "{path:?}");
        assert_eq!(read_all(&mut *source, limit).unwrap(), rows, "{path:?}");
        assert!(source.take_left_out().is_empty());
    }
    for skip in 0..count + 3 {
        let mut source = format.open(path, None, false).unwrap();
        source.skip(skip as u64).unwrap();
        let from = skip.min(count);
        let mut values = Values::empty(kind);
        if from < count {
            assert_eq!(source.read(1, &mut values).unwrap(), 1);
            source.skip(4).unwrap();
        }
        let rest = read_all(&mut *source, 9).unwrap();
        assert_eq!(rest, rows[(from + 5).min(count) * DIM..], "{path:?} from {skip}");
    }
}

#[test]
fn files_written_by_other_programs_are_read() {
    for format in BOTH {
        for (item, kind) in [
            ("f16", Kind::F16),
            ("f32", Kind::F32),
            ("f64", Kind::F64),
            ("i8", Kind::I8),
            ("u8", Kind::U8),
            ("i16", Kind::F32),
            ("u16", Kind::F32),
            ("i32", Kind::F64),
            ("u32", Kind::F64),
        ] {
            let path = fixture(&format!("list_{item}.{}", format.end()));
            check(&path, format, kind, &expected(0..ROWS, !item.starts_with('u')));
        }
        for name in ["large", "fixed", "groups", "groups_fixed"] {
            let path = fixture(&format!("{name}.{}", format.end()));
            check(&path, format, Kind::F32, &expected(0..ROWS, true));
        }
    }
}

#[test]
fn nulls_are_refused_or_left_out() {
    for format in BOTH {
        for (name, bad, row) in [
            ("null_list", [7, 20], "f, row 7: is null, expected a vector"),
            ("null_fixed", [7, 20], "f, row 7: is null, expected a vector"),
            ("null_inside", [0, 9], "f, row 0: is null, expected a vector"),
            ("null_inside_fixed", [0, 9], "f, row 0: is null"),
        ] {
            let path = fixture(&format!("{name}.{}", format.end()));
            let refusal = error(&path, format, None);
            assert!(refusal.to_string().starts_with(row), "{refusal}");
            assert_eq!(refusal.hint(), Some(Hint::SkipBadRows));

            let good = expected((0..ROWS).filter(|i| !bad.contains(i)), true);
            for limit in [1, 2, 5, 100] {
                let mut source = format.open(&path, None, true).unwrap();
                assert_eq!(source.shape().rows, None);
                assert_eq!(read_all(&mut *source, limit).unwrap(), good, "{path:?}");
                assert_eq!(source.take_left_out(), bad.map(|row| row as u64..row as u64 + 1));
            }
            // Skipping counts the rows that are left.
            let mut source = format.open(&path, None, true).unwrap();
            source.skip(15).unwrap();
            assert_eq!(read_all(&mut *source, 4).unwrap(), good[15 * DIM..]);
            // Rows that are skipped are not checked.
            let mut source = format.open(&path, None, false).unwrap();
            source.skip(bad[1] as u64 + 1).unwrap();
            assert_eq!(read_all(&mut *source, 4).unwrap(), expected(bad[1] + 1..ROWS, true));
        }
        let path = fixture(&format!("null_inside.{}", format.end()));
        let mut source = format.open(&path, None, false).unwrap();
        source.skip(1).unwrap();
        let refusal = read_all(&mut *source, 100).unwrap_err().at(Path::new("f"));
        assert_eq!(refusal.to_string(), "f, row 9: value 3 is null, expected a number");
        assert_eq!(refusal.hint(), Some(Hint::SkipBadRows));
        let path = fixture(&format!("all_null.{}", format.end()));
        assert!(refused(&path, format, None).starts_with("f, row 0: is null"));
        let why = message(format.open(&path, None, true).map(|_| ()).unwrap_err());
        assert_eq!(why, "f: holds no vectors: all 10 rows are null");
    }
}

#[test]
fn errors_name_what_was_expected_and_found() {
    for format in BOTH {
        let end = format.end();
        let why = |name: &str, column| refused(&fixture(&format!("{name}.{end}")), format, column);
        assert_eq!(why("ragged", None), "f, row 12: has 3 values, expected 8");
        assert_eq!(why("empty_list", None), "f, row 0: has 0 values, expected 1 to 16777216");
        assert_eq!(why("no_rows", None), "f: holds no rows");
        let text = why("no_vectors", None);
        assert!(text.contains("has no column of vectors"), "{text}");
        assert!(text.ends_with("columns: \"id\" (i16)"), "{text}");
        let text = why("two", None);
        assert!(text.contains("several columns of vectors; columns: "), "{text}");
        assert!(text.contains("columns: \"vector\" (list of f32), \"other\" (list of"), "{text}");
        let text = why("two", Some("nothing"));
        assert!(text.contains("has no column \"nothing\"; columns: \"id\" (i16), \"ve"), "{text}");
        let text = why("two", Some("id"));
        assert!(text.contains("column \"id\" is i16, expected a list of numbers"), "{text}");
        for column in [None, Some("nothing"), Some("id")] {
            let hint = error(&fixture(&format!("two.{end}")), format, column).hint();
            assert_eq!(hint, Some(Hint::ChooseColumn));
        }
        for column in ["vector", "other"] {
            let path = fixture(&format!("two.{end}"));
            let mut source = format.open(&path, Some(column), false).unwrap();
            assert_eq!(read_all(&mut *source, 8).unwrap(), expected(0..ROWS, true));
        }
        let columns = format.describe(&fixture(&format!("large.{end}")));
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(columns, [pair("id", "i16"), pair("vector", "list of f32")]);

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for content in [&b""[..], b"PAR1", b"ARROW1", b"\xFF\xFF\xFF\xFF", b"something else"] {
            std::fs::write(&path, content).unwrap();
            refused(&path, format, None);
        }
        assert!(matches!(format.open(&dir.path().join("none"), None, false), Err(Fault::Io(_))));
    }
}

/// Values of every kind, with the extremes.
fn sample(kind: Kind, len: usize) -> Values {
    let mix = |i: usize| (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    match kind {
        Kind::F16 => {
            Values::F16((0..len).map(|i| f16::from_bits(mix(i) as u16 & 0x7BFF)).collect())
        }
        Kind::F32 => Values::F32((0..len).map(|i| mix(i) as f32 / 1e6 - 2000.).collect()),
        Kind::F64 => Values::F64((0..len).map(|i| mix(i) as f64 * 1e-300).collect()),
        Kind::U8 => Values::U8((0..len).map(|i| mix(i) as u8).collect()),
        Kind::I8 => Values::I8((0..len).map(|i| mix(i) as i8).collect()),
    }
}

fn part(values: &Values, from: usize, to: usize) -> Values {
    match values {
        Values::F16(v) => Values::F16(v[from..to].to_vec()),
        Values::F32(v) => Values::F32(v[from..to].to_vec()),
        Values::F64(v) => Values::F64(v[from..to].to_vec()),
        Values::U8(v) => Values::U8(v[from..to].to_vec()),
        Values::I8(v) => Values::I8(v[from..to].to_vec()),
    }
}

/// Writes the rows `step` at a time.
fn write_rows(format: Format, path: &Path, values: &Values, dim: usize, step: usize) {
    let mut sink = format.sink(path, values.kind(), dim);
    let mut from = 0;
    while from < values.len() {
        let to = values.len().min(from + step * dim);
        sink.write(&part(values, from, to)).unwrap();
        from = to;
    }
    sink.finish().unwrap();
}

#[test]
fn round_trips() {
    let dir = tempfile::tempdir().unwrap();
    let (path, other) = (dir.path().join("a"), dir.path().join("b"));
    for format in BOTH {
        for kind in Kind::ALL {
            for (rows, dim) in [(1, 1), (5, 3), (300, 128), (3, 70_000), (70_000, 40), (2, 300_000)]
            {
                let values = sample(kind, rows * dim);
                write_rows(format, &path, &values, dim, rows);
                write_rows(format, &other, &values, dim, rows.div_ceil(7));
                let same = std::fs::read(&path).unwrap() == std::fs::read(&other).unwrap();
                assert!(same, "{format:?} {kind} {rows}x{dim}");

                let mut source = format.open(&path, Some("vector"), false).unwrap();
                let shape = Shape { dim, kind, rows: Some(rows as u64) };
                assert_eq!(source.shape(), shape);
                let mut got = Values::empty(kind);
                let mut from = 0;
                while source.read(1000, &mut got).unwrap() > 0 {
                    assert!(got == part(&values, from, from + got.len()));
                    from += got.len();
                }
                assert_eq!(from, values.len());

                let mut source = format.open(&path, None, false).unwrap();
                source.skip(rows as u64 / 2).unwrap();
                let from = rows / 2 * dim;
                source.read(rows, &mut got).unwrap();
                assert!(got == part(&values, from, values.len()));
            }
        }
    }
}

#[test]
fn sinks_refuse_partial_rows_and_other_element_types() {
    let dir = tempfile::tempdir().unwrap();
    for format in BOTH {
        let mut sink = format.sink(&dir.path().join("a"), Kind::F32, 3);
        assert!(sink.write(&Values::F32(vec![0.; 4])).is_err());
        assert!(sink.write(&Values::F64(vec![0.; 3])).is_err());
        sink.write(&Values::F32(vec![])).unwrap();
        sink.finish().unwrap();
        assert_eq!(refused(&dir.path().join("a"), format, None), "f: holds no rows");
    }
}

/// Opens, reads and skips in a file that may be damaged: there may be faults, nothing else.
fn survive(format: Format, path: &Path) {
    let _ = match format {
        Format::Parquet => crate::parquet::describe(path),
        Format::Arrow => crate::arrow::describe(path),
    };
    if let Ok(mut source) = format.open(path, Some("vector"), true) {
        let _ = read_all(&mut *source, 50);
    }
    if let Ok(mut source) = format.open(path, None, false) {
        let _ = source.skip(11).and_then(|()| read_all(&mut *source, 50));
    }
}

/// The same with a column in a structure, and with columns of numbers.
fn survive_table(format: Format, path: &Path) {
    if let Ok(mut source) = format.open(path, Some("doc.meta.emb"), true) {
        let _ = read_all(&mut *source, 50);
    }
    let columns = "s*,long,half".parse().unwrap();
    let table = |skip_bad| match format {
        Format::Parquet => crate::parquet::open_table(path, &columns, skip_bad),
        Format::Arrow => crate::arrow::open_table(path, &columns, skip_bad),
    };
    if let Ok(mut source) = table(true) {
        let _ = read_all(&mut *source, 50);
    }
    if let Ok(mut source) = table(false) {
        let _ = source.skip(11).and_then(|()| read_all(&mut *source, 50));
    }
}

/// Every truncation and, for every byte, some changes. The file is changed in place, which is faster than
/// to write it anew each time.
fn damage(format: Format, name: &str) {
    damage_every(1, name, |path| survive(format, path));
}

/// The same at every `step`-th byte.
fn damage_every(step: usize, name: &str, survive: impl Fn(&Path)) {
    let whole = std::fs::read(fixture(name)).unwrap();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&whole).unwrap();
    let path = file.path().to_owned();
    let mut put = |at: usize, byte: u8| {
        file.seek(SeekFrom::Start(at as u64)).unwrap();
        file.write_all(&[byte]).unwrap();
    };
    for (at, &byte) in whole.iter().enumerate().step_by(step) {
        for changed in [byte ^ 0x01, byte ^ 0x80, byte ^ 0x7F, 0, 0xFF] {
            put(at, changed);
            survive(&path);
        }
        put(at, byte);
    }
    for len in (0..whole.len()).rev().step_by(step) {
        file.as_file().set_len(len as u64).unwrap();
        survive(&path);
    }
}

#[test]
fn damaged_parquet_never_panics() {
    for name in ["null_inside", "snappy", "dictionary", "page_v2", "split", "list_f16"] {
        damage(Format::Parquet, &format!("{name}.parquet"));
    }
}

#[test]
fn damaged_compressed_parquet_never_panics() {
    for name in ["none", "gzip", "lz4", "brotli", "zstd"] {
        damage(Format::Parquet, &format!("{name}.parquet"));
    }
}

#[test]
fn damaged_arrow_never_panics() {
    for name in [
        "fixed.arrow",
        "null_inside.arrow",
        "null_inside_fixed.arrow",
        "lz4.feather",
        "zstd.feather",
    ] {
        damage(Format::Arrow, name);
    }
}

#[test]
fn damaged_tables_and_structures_never_panic() {
    for format in BOTH {
        for name in ["mixed", "nested_null"] {
            let name = format!("../tools/{name}.{}", format.end());
            damage_every(3, &name, |path| survive_table(format, path));
        }
    }
}

#[test]
fn integers_that_are_too_large_are_refused() {
    use arrow_array::{Int64Array, RecordBatch};
    use std::sync::Arc;
    let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
    let file = tempfile::NamedTempFile::new().unwrap();
    let large = (1i64 << 53) + 1;
    let read = |values: Vec<Option<i64>>| {
        let array = Arc::new(Int64Array::from(values));
        let batch = RecordBatch::try_new(schema.clone(), vec![array]).unwrap();
        let open = File::create(file.path()).unwrap();
        let mut writer = arrow_ipc::writer::FileWriter::try_new(open, &schema).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        let columns = "a".parse().unwrap();
        crate::arrow::open_table(file.path(), &columns, true)
            .and_then(|mut source| read_all(&mut *source, 2))
            .map_err(message)
    };
    let edge = 1i64 << 53;
    let rows = vec![Some(1), None, Some(edge), Some(-edge)];
    assert_eq!(read(rows).unwrap(), [1.0, edge as f64, -edge as f64]);
    for wrong in [large, -large, i64::MIN, i64::MAX] {
        let why = read(vec![Some(1), Some(2), Some(3), Some(wrong)]).unwrap_err();
        assert_eq!(why, "f, row 3: column \"a\" is an integer of more than 53 bits");
    }
}
