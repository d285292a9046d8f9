use super::*;
use crate::batch::{Kind, Values};
use crate::source::Shape;
use crate::text::tests::{byte_by_byte, message, read_all, whole};
use half::f16;
use proptest::prelude::*;

fn read(text: &[u8], delimiter: Option<u8>) -> Result<(usize, Vec<f32>), String> {
    let rows = read_all(open(whole(text), delimiter, None, None));
    // Compared by their text, in which NaN equals NaN.
    let slow = read_all(open(byte_by_byte(text), delimiter, None, None));
    assert_eq!(format!("{rows:?}"), format!("{slow:?}"));
    rows
}

fn taken(text: &str, dim: usize, values: &[f32]) {
    assert_eq!(read(text.as_bytes(), None).unwrap(), (dim, values.to_vec()), "{text:?}");
}

fn refused(text: &str, why: &str) {
    let got = read(text.as_bytes(), None).unwrap_err();
    assert!(got.contains(why), "{text:?}: {got}");
}

fn write(values: &Values, dim: usize, delimiter: u8) -> Vec<u8> {
    let mut out = Vec::new();
    let mut sink = sink(&mut out, dim, delimiter);
    sink.write(values).unwrap();
    sink.finish().unwrap();
    drop(sink);
    out
}

#[test]
fn separators_and_names() {
    let six = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    taken("1,2,3\n4,5,6\n", 3, &six);
    taken("1\t2\t3\r\n4\t5\t6", 3, &six);
    taken("1;2;3\n4;5;6\n\n\r\n", 3, &six);
    taken("1 2 3\n4 5 6\n", 3, &six);
    taken("  1  2 3 \n 4 5\t6\t\n", 3, &six);
    taken("1, 2 ,3\n 4,5,\t6 \n", 3, &six);
    taken("1\t 2\t3\n4\t5 \t6\n", 3, &six);
    taken("a,b,c\n1,2,3\n4,5,6\n", 3, &six);
    taken("\"a, the first\",\"b\"\"x\"\"\",3\n1,2,3\n4,5,6\n", 3, &six);
    taken("\u{feff}1,2,3\n\n4,5,6\n", 3, &six);
    taken("\u{feff}x,y,z\n1,2,3\n4,5,6\n", 3, &six);
    taken("# written by hand\n1 2 3\n# more\n4 5 6\n", 3, &six);
    taken("x (in mm) y z\n1 2 3\n4 5 6\n", 3, &six);
    taken("\"1\",\"2\",\" 3 \"\n4, \"5\" ,6\n", 3, &six);
    taken("\"1\" \"2\" 3\n4 5 6\n", 3, &six);
    taken("1\n2\n3\n", 1, &six[..3]);
    taken("name\n1\n2\n3\n", 1, &six[..3]);
    taken("1e0,+2\n.3e1,4.", 2, &six[..4]);
    assert_eq!(read(b"a b\tc\n1\t2\n", Some(b'\t')).unwrap(), (2, vec![1.0, 2.0]));
    // Column numbers in place of names.
    taken("0,1,2\n1,2,3\n4,5,6\n", 3, &six);
    assert_eq!(read(b"1|2\n3|4\n", Some(b'|')).unwrap(), (2, six[..4].to_vec()));
    // Latin-1 names do not disturb.
    assert_eq!(read(b"h\xF6he,b\n1,2\n", None).unwrap(), (2, vec![1.0, 2.0]));
}

#[test]
fn nan_and_infinity_are_numbers() {
    let (dim, values) = read(b"nan,inf\n-INF,1e99\n", None).unwrap();
    assert_eq!(dim, 2);
    assert!(values[0].is_nan());
    assert_eq!(values[1..], [f32::INFINITY, f32::NEG_INFINITY, f32::INFINITY]);
}

#[test]
fn files_written_by_another_tool_are_read() {
    let expected: Vec<f32> = (0..35).map(|i| (37 * i % 101) as f32 / 4.0 - 10.0).collect();
    for text in [
        include_str!("../../tests/fixtures/numpy/plain.csv"),
        include_str!("../../tests/fixtures/numpy/plain.tsv"),
        include_str!("../../tests/fixtures/numpy/header.csv"),
    ] {
        taken(text, 5, &expected);
    }
}

#[test]
fn faults_name_row_and_line() {
    refused("", "is empty");
    refused("\n\n# nothing\n", "is empty");
    refused("a,b\n", "no rows");
    refused("a,b\n\n", "no rows");
    refused("1,2,3\n1,2,3\n\n1,2\n", "row 2: 2 values, expected 3 as in the first row (line 4)");
    refused("x,y\n1,2\n1,2,3\n", "row 1: 3 values, expected 2");
    refused("1,2\n1\n", "row 1: 1 value, expected 2");
    refused("1,2\n1,2,\n", "row 1: 3 values, expected 2");
    refused("x,y,z\n1,2\n", "row 0: 2 values, but the first line names 3 columns");
    refused("1,2\n1,x\n", "row 1: column 1 is \"x\", expected a number");
    refused("1,2\n1,\"x\n", "row 1: column 1 is \"\\\"x\"");
    refused("1,2\n,2\n", "row 1: column 0 is empty");
    refused("1,,2\n1,3,2\n", "row 0: column 1 is empty");
    refused("1,5;2,5\n", "no rows");
    refused("1;2\n1,5;2\n", "column 0 is \"1,5\"");
    refused(",a,b\n0,1,2\n", "index=False");
    refused("id,a,b\n0,1,2\n", "is called \"id\"");
    refused("0x10,2\n3,4\n", "row 0: column 0 is \"0x10\"");
    refused(&format!("1,2\n1,{}\n", "y".repeat(1000)), "yyyy\"..., expected");
}

#[test]
fn rows_that_are_too_wide() {
    let text = "0,".repeat(MAX_DIM) + "0";
    let why = message(open(whole(text.as_bytes()), None, None, None).err().unwrap());
    assert!(why.contains("row 0: 16777217 values, but at most 16777216 are taken"), "{why}");
}

#[test]
fn rows_are_skipped_and_limited() {
    let text: String = (0..10).map(|i| format!("{i},0\n\n")).collect();
    let mut source = open(whole(text.as_bytes()), None, None, None).ok().unwrap();
    assert_eq!(source.shape(), Shape { dim: 2, kind: Kind::F32, rows: None });
    let mut values = Values::empty(Kind::F32);
    source.skip(4).unwrap();
    assert_eq!(source.read(2, &mut values).unwrap(), 2);
    assert_eq!(values, Values::F32(vec![4.0, 0.0, 5.0, 0.0]));
    source.skip(3).unwrap();
    assert_eq!(source.read(usize::MAX, &mut values).unwrap(), 1);
    assert_eq!(values, Values::F32(vec![9.0, 0.0]));
    source.skip(u64::MAX).unwrap();
    assert_eq!(source.read(5, &mut values).unwrap(), 0);

    let mut source = open(whole(b"1\n2\n3\nx\n"), None, None, None).ok().unwrap();
    source.skip(2).unwrap();
    let why = message(source.read(5, &mut values).unwrap_err());
    assert!(why.contains("row 3: column 0 is \"x\"") && why.contains("(line 4)"), "{why}");
}

#[test]
fn every_element_type_is_written() {
    let check = |values: Values, text: &str| {
        assert_eq!(String::from_utf8(write(&values, 2, b',')).unwrap(), text);
    };
    check(Values::F32(vec![0.1, -0.0, 1e10, f32::NAN]), "0.1,-0\n10000000000,NaN\n");
    check(Values::F64(vec![0.1, 1.0 / 3.0]), "0.1,0.3333333333333333\n");
    check(Values::F16(vec![f16::ONE, f16::from_f32(0.1)]), "1,0.099975586\n");
    check(Values::U8(vec![0, 255]), "0,255\n");
    check(Values::I8(vec![-128, 127]), "-128,127\n");
    assert_eq!(write(&Values::F32(vec![1.0, 2.5]), 2, b'\t'), b"1\t2.5\n");
}

#[test]
fn large_files_keep_their_rows() {
    let values: Vec<f32> = (0..300_000).map(|i| (i as f32).sin()).collect();
    let text = write(&Values::F32(values.clone()), 100, b';');
    assert_eq!(read_all(open(whole(&text), None, None, None)).unwrap(), (100, values));
}

/// Any bits, or a value at some edge.
fn any_value() -> impl Strategy<Value = f32> {
    let edges = [0.0, -0.0, f32::MAX, f32::MIN_POSITIVE, 1e-45, f32::NAN, f32::INFINITY, 1.0];
    prop_oneof![any::<u32>().prop_map(f32::from_bits), proptest::sample::select(edges.to_vec())]
}

/// NaN loses its payload in text.
fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| if v.is_nan() { f32::NAN.to_bits() } else { v.to_bits() }).collect()
}

proptest! {
    #[test]
    fn round_trip(
        dim in 1usize..9,
        values in proptest::collection::vec(any_value(), 9..90),
        delimiter in proptest::sample::select(b",\t; ".to_vec()),
    ) {
        let values = values[..values.len() / dim * dim].to_vec();
        let text = write(&Values::F32(values.clone()), dim, delimiter);
        for asked in [None, Some(delimiter)] {
            let (got, back) = read(&text, asked).unwrap();
            prop_assert_eq!(got, dim);
            prop_assert_eq!(bits(&back), bits(&values));
        }
    }

    #[test]
    fn doubles_round_trip(raw in any::<u64>()) {
        let value = f64::from_bits(raw);
        let text = write(&Values::F64(vec![value]), 1, b',');
        let back: f64 = std::str::from_utf8(&text).unwrap().trim().parse().unwrap();
        prop_assert!(back.to_bits() == raw || (back.is_nan() && value.is_nan()));
    }

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200), delimiter: Option<u8>) {
        let _ = read(&bytes, delimiter);
    }

    #[test]
    fn any_likely_bytes(
        bytes in proptest::collection::vec(proptest::sample::select(b"01.-e,; \t\"\r\n#anif".to_vec()), 0..80),
        delimiter in proptest::sample::select(vec![None, Some(b','), Some(b'\t'), Some(b' '), Some(b'"')]),
    ) {
        let _ = read(&bytes, delimiter);
    }
}

fn chosen(text: &str, columns: &str) -> Result<(usize, Vec<f32>), String> {
    let columns: Columns = columns.parse().unwrap();
    read_all(open(whole(text.as_bytes()), None, Some(&columns), None))
}

#[test]
fn columns_are_chosen_by_name_or_position() {
    let text = "id,\"the, text\",f0,x,f1\n7,\"a, \"\"b\"\"\nc\",1,,2\n8,d,3,y,4\n";
    let rows = (2, vec![1., 2., 3., 4.]);
    for columns in ["f*", "f1,f0", "2,4", "2,f1", "f?"] {
        assert_eq!(chosen(text, columns).unwrap(), rows, "{columns}");
    }
    assert_eq!(chosen(text, "id").unwrap(), (1, vec![7., 8.]));
    let plain = "doc1,hello,1,2\ndoc2,there,3,4\n";
    assert_eq!(chosen(plain, "2-3").unwrap(), rows);
    assert_eq!(chosen("\t0\t1\t2\n0\t5\t6\t7\n", "1-3").unwrap(), (3, vec![5., 6., 7.]));
    for (text, columns, why) in [
        (
            text,
            "g*",
            "x: has no column \"g*\"; columns: \"id\", \"the, text\", \"f0\", \"x\", \"f1\"",
        ),
        (text, "2-5", "x: has 5 columns (0 to 4), but column 5 is chosen"),
        (text, "x", "x, row 0: column 3 is empty"),
        ("a,b\n", "a", "no rows"),
        ("", "a", "is empty"),
        ("a,b\n1\n", "b", "x, row 0: 1 value, expected 2 as in the first line (line 2)"),
        ("a,b\n1,2,3\n", "a", "x, row 0: 3 values, expected 2 as in the first line (line 2)"),
    ] {
        let got = chosen(text, columns).unwrap_err();
        assert!(got.contains(why), "{columns}: {got}");
    }
}
