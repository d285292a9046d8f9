use super::*;
use crate::batch::Values;
use crate::columns::tests::{
    DIM, Format, ROWS, check as same, expected, fixture, message, read_all, refused,
};

#[test]
fn feather_files_are_read() {
    for name in ["plain.feather", "lz4.feather", "zstd.feather"] {
        same(&fixture(name), Format::Arrow, Kind::F32, &expected(0..ROWS, true));
    }
}

#[test]
fn buffers_are_found_behind_columns_of_every_type() {
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
        assert_eq!(source.take_left_out(), [0, 9, 30, 39, 60, 69].map(|row| row..row + 1));
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
fn cut_files_are_reported_as_cut_short() {
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

/// An Arrow file with one column, a list of u8, whose rows have these lengths.
fn file_of(lengths: impl IntoIterator<Item = usize>) -> tempfile::NamedTempFile {
    use arrow_array::{LargeListArray, RecordBatch, UInt8Array};
    use arrow_buffer::OffsetBuffer;
    use arrow_schema::{DataType, Field, Schema};
    let offsets = OffsetBuffer::<i64>::from_lengths(lengths);
    let items = UInt8Array::from(vec![0; offsets.last() as usize]);
    let item = Arc::new(Field::new("item", DataType::UInt8, false));
    let lists = LargeListArray::new(item.clone(), offsets, Arc::new(items), None);
    let schema = Schema::new(vec![Field::new("v", DataType::LargeList(item), false)]);
    let batch = RecordBatch::try_new(Arc::new(schema.clone()), vec![Arc::new(lists)]).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut writer = FileWriter::try_new(file.reopen().unwrap(), &schema).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    file
}

#[test]
fn long_rows_are_read_a_few_at_a_time() {
    // Their mean says that all of the 40 MB are one step.
    let file = file_of(std::iter::repeat_n(1 << 20, 40).chain(std::iter::repeat_n(1, 1 << 20)));
    let index = Index::new(file.reopen().unwrap()).unwrap();
    let column = Column::choose(&index.schema, None).unwrap();
    let chunks = index.chunks(&column).unwrap();
    let file = Arc::new(index.file);
    let mut reader = ColumnReader::new(&file, &chunks[0], &column, 0).unwrap();
    let mut rows = 0;
    while let Some(lists) = reader.next().unwrap() {
        assert!(lists.items.len() <= 16 << 20, "{} values at once", lists.items.len());
        rows += lists.rows();
    }
    assert_eq!(rows, 40 + (1 << 20));
}

#[test]
fn a_row_that_is_too_long_is_refused_before_it_is_read() {
    let file = file_of([4, (1 << 24) + 1]);
    let why = refused(file.path(), Format::Arrow, None);
    assert_eq!(why, "f: has a row of 16777217 values, expected 1 to 16777216");
}
