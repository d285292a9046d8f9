use super::*;
use crate::columns::tests::{
    DIM, Format, ROWS, check as same, expected, fixture, message, read_all, refused,
};

#[test]
fn feather() {
    for name in ["plain.feather", "lz4.feather"] {
        same(&fixture(name), Format::Arrow, Kind::F32, &expected(0..ROWS, true));
    }
    if cfg!(feature = "zstd") {
        same(&fixture("zstd.feather"), Format::Arrow, Kind::F32, &expected(0..ROWS, true));
    } else {
        let why = refused(&fixture("zstd.feather"), Format::Arrow, None);
        assert!(
            why.contains("is compressed with zstd") && why.contains("--features zstd"),
            "{why}"
        );
    }
}

#[test]
fn every_type_of_column_is_passed_over() {
    for name in ["many_columns", "many_columns_v4", "many_columns_lz4", "stream"] {
        let path = fixture(&format!("{name}.arrow"));
        same(&path, Format::Arrow, Kind::F32, &expected(0..ROWS, true));
    }
}

#[test]
fn nulls_in_compressed_batches() {
    // The rows of the file are three times the same thirty, in batches of 50.
    let path = fixture("null_inside_lz4.feather");
    let good = expected((0..ROWS).filter(|i| ![0, 9].contains(i)), true).repeat(3);
    for limit in [1, 7, 64] {
        let mut source = open(&path, None, true).unwrap();
        assert_eq!(read_all(&mut *source, limit).unwrap(), good);
        assert_eq!(source.left_out(), 6);
    }
    for skip in 0..3 * ROWS {
        let mut source = open(&path, None, false).unwrap();
        source.skip(skip as u64).unwrap();
        let mut values = Values::empty(Kind::F32);
        let got = source.read(1, &mut values);
        if [0, 9].contains(&(skip % ROWS)) {
            assert!(message(got.unwrap_err()).starts_with(&format!("f, row {skip}: ")));
        } else {
            assert_eq!(got.unwrap(), 1);
            let row: Vec<f64> = expected([skip % ROWS], true);
            let Values::F32(values) = &values else { panic!() };
            assert!(values.iter().zip(&row).all(|(&a, &b)| f64::from(a) == b));
            assert_eq!(values.len(), DIM);
        }
    }
}

#[test]
fn cut_files_are_named_so() {
    let whole = std::fs::read(fixture("fixed.arrow")).unwrap();
    let stream = std::fs::read(fixture("stream.arrow")).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    for cut in [&whole[..whole.len() - 1], &whole[..whole.len() / 2], &stream[..stream.len() / 2]] {
        std::fs::write(file.path(), cut).unwrap();
        let why = refused(file.path(), Format::Arrow, None);
        assert!(why.contains("cut short"), "{why}");
    }
    std::fs::write(file.path(), b"FEA1 and more").unwrap();
    assert!(refused(file.path(), Format::Arrow, None).contains("Feather file of version 1"));
}
