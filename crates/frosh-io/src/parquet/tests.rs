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
