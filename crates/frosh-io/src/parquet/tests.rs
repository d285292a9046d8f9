use super::*;
use crate::batch::Values;
use crate::columns::tests::{Format, ROWS, check as same, expected, fixture, read_all, refused};

#[test]
fn encodings_and_compressions() {
    for name in [
        "none",
        "snappy",
        "gzip",
        "lz4",
        "brotli",
        "zstd",
        "dictionary",
        "page_v2",
        "checksums",
        "split",
    ] {
        let path = fixture(&format!("{name}.parquet"));
        same(&path, Format::Parquet, Kind::F32, &expected(0..ROWS, true));
    }
}

#[test]
fn other_columns_are_ignored() {
    let path = fixture("many_columns.parquet");
    let mut source = open(&path, Some("vector"), false).unwrap();
    assert_eq!(read_all(&mut *source, 4).unwrap(), expected(0..ROWS, true));
    let columns = describe(&path).unwrap();
    assert!(columns.contains(&("words".into(), "list of text".into())), "{columns:?}");
}

#[test]
fn page_checksums_are_verified() {
    let mut bytes = std::fs::read(fixture("checksums.parquet")).unwrap();
    // Within the page of the vectors, which is the second column.
    let at = bytes.windows(4).rposition(|w| w == 1.0f32.to_le_bytes()).unwrap();
    bytes[at] ^= 1;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let why = refused(file.path(), Format::Parquet, None);
    assert!(why.contains("is damaged") && why.contains("CRC"), "{why}");
}

/// A file without rows whose only column is nested in `depth` groups.
fn nested(depth: usize) -> Vec<u8> {
    // Thrift: fields 3 (repetition), 4 (name) and 5 (children) of a group; a column has 1 (type) instead.
    let group = [0x35, 0, 0x18, 1, b'a', 0x15, 2, 0];
    let column = [0x15, 8, 0x25, 0, 0x18, 1, b'a', 0];
    let mut metadata = vec![0x15, 2, 0x19, 0xFC];
    let mut elements = depth + 1;
    while elements >= 128 {
        metadata.push(elements as u8 | 128);
        elements >>= 7;
    }
    metadata.push(elements as u8);
    metadata.extend(group.repeat(depth));
    metadata.extend(column);
    metadata.extend([0x16, 0, 0x19, 0x0C, 0]);
    let length = (metadata.len() as u32).to_le_bytes();
    [&b"PAR1"[..], &metadata, &length, b"PAR1"].concat()
}

#[test]
fn deep_schemas_do_not_exhaust_the_stack() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), nested(90)).unwrap();
    assert!(refused(file.path(), Format::Parquet, None).contains("has no column of vectors"));
    for depth in [101, 5_000, 1_000_000] {
        std::fs::write(file.path(), nested(depth)).unwrap();
        let why = refused(file.path(), Format::Parquet, None);
        assert_eq!(why, "f: has columns nested more than 100 deep");
    }
    // A second schema, or a number of children of another type, cannot hide it.
    let deep = nested(5_000);
    let list = &deep[6..deep.len() - 8 - 5];
    let twice =
        [&[0x15, 2, 0x19, 0x1C, 0x48, 1, b'a', 0][..], &[0x09, 4], &list[1..], &[0]].concat();
    let odd: Vec<u8> =
        deep[4..deep.len() - 8].iter().map(|&b| if b == 0x35 { 0x36 } else { b }).collect();
    for metadata in [twice, odd] {
        let length = (metadata.len() as u32).to_le_bytes();
        let bytes = [&b"PAR1"[..], &metadata, &length, b"PAR1"].concat();
        std::fs::write(file.path(), bytes).unwrap();
        let why = refused(file.path(), Format::Parquet, None);
        assert_eq!(why, "f: is damaged: its metadata cannot be read");
    }
}

#[test]
fn a_page_that_claims_to_be_huge_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut sink = sink(file.reopen().unwrap(), Kind::F32, 4, "vector").unwrap();
    sink.write(&Values::F32((0..400).map(|x| x as f32).collect())).unwrap();
    sink.finish().unwrap();
    let bytes = std::fs::read(file.path()).unwrap();
    // After the file's first four bytes: field 1, a data page; then field 2, the size of its values.
    assert_eq!(bytes[4..7], [0x15, 0, 0x15]);
    let after = 8 + bytes[7..].iter().position(|b| *b < 128).unwrap();
    let claim = [0xFE, 0xFF, 0xFF, 0xFF, 0x0F];
    let forged = [&bytes[..7], &claim, &bytes[after..]].concat();
    std::fs::write(file.path(), forged).unwrap();
    let why = refused(file.path(), Format::Parquet, None);
    assert!(why.contains("is damaged") && why.contains("claims to hold 2147483647 bytes"), "{why}");
}

/// A file with one row group and one column `v` of lists of f32. Page after page has so many values; most pages begin
/// within a row. Value `i` is `i`. (pyarrow wrote such pages for a long time. Now its pages end with a row.)
fn pages_within_rows(dim: usize, pages: &[usize]) -> Vec<u8> {
    fn varint(mut number: usize) -> Vec<u8> {
        let mut out = Vec::new();
        while number >= 128 {
            out.push(number as u8 | 128);
            number >>= 7;
        }
        out.push(number as u8);
        out
    }
    // A number as Thrift's compact protocol has it.
    let int = |number: usize| varint(number << 1);
    let sized = |bytes: &[u8]| [&(bytes.len() as u32).to_le_bytes()[..], bytes].concat();
    let (mut data, mut values) = (Vec::new(), 0);
    for &count in pages {
        let all = values..values + count;
        values += count;
        // A run of one for each level, and then all levels in one run.
        let repetition: Vec<u8> = all.clone().flat_map(|i| [2, u8::from(i % dim != 0)]).collect();
        let definition = [int(count), vec![1]].concat();
        let plain: Vec<u8> = all.flat_map(|i| (i as f32).to_le_bytes()).collect();
        let content = [sized(&repetition), sized(&definition), plain].concat();
        // The header: 1 the kind, 2 and 3 the size, 5 the number of values and three encodings.
        let (size, count) = (int(content.len()), int(count));
        data.extend([&[0x15, 0, 0x15], &size[..], &[0x15], &size, &[0x2C, 0x15], &count].concat());
        data.extend([0x15, 0, 0x15, 6, 0x15, 6, 0, 0]);
        data.extend(content);
    }
    let group = |name: &str, repetition: u8, more: &[u8]| {
        let name = [&[0x35, repetition, 0x18, name.len() as u8], name.as_bytes()].concat();
        [&name[..], &[0x15, 2], more, &[0]].concat()
    };
    let schema = [
        group("schema", 0, &[]),
        group("v", 0, &[0x15, 6]),
        group("list", 4, &[]),
        [&[0x15, 8, 0x25, 0, 0x18, 4][..], b"item", &[0]].concat(),
    ];
    let path: Vec<u8> = ["v", "list", "item"]
        .iter()
        .flat_map(|part| [&[part.len() as u8], part.as_bytes()].concat())
        .collect();
    let (size, rows) = (int(data.len()), int(values / dim));
    let column = [
        &[0x15, 8, 0x19, 0x15, 0, 0x19, 0x38][..],
        &path,
        &[0x15, 0, 0x16],
        &int(values),
        &[0x16],
        &size,
        &[0x16],
        &size,
        &[0x26],
        &int(4),
        &[0],
    ];
    let metadata = [
        &[0x15, 2, 0x19, 0x4C][..],
        &schema.concat(),
        &[0x16],
        &rows,
        &[0x19, 0x1C, 0x19, 0x1C, 0x26],
        &int(4),
        &[0x1C],
        &column.concat(),
        &[0, 0x16],
        &size,
        &[0x16],
        &rows,
        &[0, 0],
    ]
    .concat();
    let length = (metadata.len() as u32).to_le_bytes();
    [b"PAR1", &data[..], &metadata, &length, b"PAR1"].concat()
}

#[test]
fn pages_that_begin_within_a_row_are_found() {
    const DIM: usize = 7;
    let file = tempfile::NamedTempFile::new().unwrap();
    // Pages of less than a row, of several rows, and ones that begin with a row: 490 values, 70 rows.
    let pages = [10, 3, 1, 14, 5, 2, 100, 90, 20, 1, 1, 1, 50, 63, 70, 7, 33, 19];
    assert_eq!(pages.iter().sum::<usize>(), 490);
    std::fs::write(file.path(), pages_within_rows(DIM, &pages)).unwrap();
    let want = |rows: std::ops::Range<usize>| -> Vec<f32> {
        (rows.start * DIM..rows.end * DIM).map(|i| i as f32).collect()
    };
    for from in 0..70 {
        let mut source = open(file.path(), None, false).unwrap();
        let mut values = Values::empty(Kind::F32);
        for rows in [from / 2..from, from..from + 1, (from + 3).min(70)..70] {
            source.select(rows.start as u64..rows.end as u64).unwrap();
            let got = source.read(100, &mut values).unwrap();
            assert_eq!((got, &values), (rows.len(), &Values::F32(want(rows.clone()))), "{rows:?}");
        }
    }
    let meta = metadata(file.as_file()).unwrap();
    let mut table = PageTable::new(0, DIM, meta.metadata().row_group(0).column(0));
    let found: Vec<_> = (0..70).filter_map(|row| table.find(file.as_file(), row)).collect();
    assert!(found.iter().filter(|found| found.before > 0).count() > 30);
    // With another dimension, rows do not begin where they are expected.
    let mut groups = Groups::new(file.reopen().unwrap(), meta, &[0], Kind::F32, None).unwrap();
    groups.dim = Some(DIM - 1);
    groups.seek_row(40).unwrap();
    let why = groups.next_batch().unwrap_err().at(Path::new("f")).to_string();
    assert!(why.contains("rows before this range differ in length"), "{why}");
}

#[test]
fn rows_are_found_by_the_headers_of_pages() {
    for name in ["pages", "pages_dictionary", "pages_v2"] {
        let file = File::open(fixture(&format!("{name}.parquet"))).unwrap();
        let meta = metadata(&file).unwrap();
        let chunk = meta.metadata().row_group(0).column(1);
        let (start, length) = chunk.byte_range();
        let mut table = PageTable::new(0, 8, chunk);
        assert_eq!(table.find(&file, 0), None, "the first page");
        let mut firsts = std::collections::HashSet::new();
        for row in (0..300).rev() {
            let Some(found) = table.find(&file, row) else { continue };
            assert_eq!(found.pages.end, start + length, "{name}");
            assert_eq!(found.dictionary.is_some(), name == "pages_dictionary");
            assert!(found.skip <= 30, "{name} {row}: {found:?}");
            firsts.insert(found.pages.start);
        }
        assert!(firsts.len() > 5, "{name}: {} pages", firsts.len());
        // Headers that make no sense are left to the crate.
        let mut table = PageTable::new(0, 8, meta.metadata().row_group(0).column(0));
        let empty = tempfile::tempfile().unwrap();
        assert_eq!(table.find(&empty, 7), None);
        assert_eq!(PageTable::new(0, usize::MAX, chunk).find(&file, u64::MAX), None);
    }
}
