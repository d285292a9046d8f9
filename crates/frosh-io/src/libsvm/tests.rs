use super::*;
use crate::batch::{Kind, Values};
use crate::text::tests::{byte_by_byte, message, read_all, whole};
use half::f16;
use proptest::prelude::*;

fn read(text: &[u8], dim: usize) -> Result<Vec<f32>, String> {
    let rows = read_all(open(whole(text), Some(dim)));
    // Compared by their text, in which NaN equals NaN.
    let slow = read_all(open(byte_by_byte(text), Some(dim)));
    assert_eq!(format!("{rows:?}"), format!("{slow:?}"));
    rows.map(|(got, values)| {
        assert_eq!(got, dim);
        values
    })
}

fn largest(text: &[u8]) -> Result<usize, String> {
    let found = largest_index(whole(text)).map_err(message);
    assert_eq!(found, largest_index(byte_by_byte(text)).map_err(message));
    found
}

fn taken(text: &str, dim: usize, values: &[f32]) {
    assert_eq!(read(text.as_bytes(), dim).unwrap(), values, "{text:?}");
}

fn refused(text: &str, why: &str) {
    let got = read(text.as_bytes(), 4).unwrap_err();
    assert!(got.contains(why), "{text:?}: {got}");
}

fn write(values: &Values, dim: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut sink = sink(&mut out, dim);
    sink.write(values).unwrap();
    sink.finish().unwrap();
    drop(sink);
    out
}

#[test]
fn labels_comments_and_sparse_rows() {
    taken("1 1:0.5 3:2\n-1 2:-3\n", 3, &[0.5, 0.0, 2.0, 0.0, -3.0, 0.0]);
    taken("+1 1:1 # note 2:9\r\n\n# none\n0\n\n", 2, &[1.0, 0.0, 0.0, 0.0]);
    taken("1:1\n2:2", 2, &[1.0, 0.0, 0.0, 2.0]);
    taken("3 qid:1 1:1\n", 1, &[1.0]);
    taken("1,2,5 2:1\n", 2, &[0.0, 1.0]);
    taken("\u{feff}0\t1:1e2  2:.5 \n", 2, &[100.0, 0.5]);
    taken("0 1:0 002:inf\n", 2, &[0.0, f32::INFINITY]);
    assert!(read(b"0 1:nan", 1).unwrap()[0].is_nan());
}

#[test]
fn faults_name_row_and_line() {
    refused("", "is empty");
    refused("# only\n\n", "is empty");
    refused("0 1:1\n\n0 200:1\n", "row 1: index 200, but the dimension is 4 (line 3)");
    refused("0 5:1\n", "row 0: index 5, but the dimension is 4");
    refused("0 99999999999999999999999:1\n", "but the dimension is 4");
    refused("0 1:x\n", "row 0: value of index 1 is \"x\", expected a number");
    refused("0 1:\n", "value of index 1 is \"\"");
    refused("0 1:2:3\n", "value of index 1 is \"2:3\"");
    refused("0 0:1\n", "index 0, but indices count from 1");
    refused("0 2:1 2:1\n", "index 2 comes after index 2, but they must ascend");
    refused("0 3:1 2:1\n", "index 2 comes after index 3");
    refused("0 1:1 abc\n", "\"abc\" found, expected index:value");
    refused("0 -1:1\n", "\"-1:1\" found, expected index:value");
    refused("0 :1\n", "expected index:value");
    refused("cat 1:1\n", "\"cat\" found, expected a label");
    refused("1.0 2.0\n", "\"2.0\" found, expected index:value");
    for (dim, why) in [
        (None, "does not tell its dimension"),
        (Some(0), "expected 1 to"),
        (Some(MAX_DIM + 1), "expected 1"),
    ] {
        let got = message(open(whole(b"0 1:1"), dim).err().unwrap());
        assert!(got.contains(why), "{got}");
    }
}

#[test]
fn faults_of_the_dimension_have_a_hint() {
    let hint = |fault: Fault| fault.at(std::path::Path::new("f")).hint();
    let opened = |dim| open(whole(b"0 5:1"), dim);
    assert_eq!(hint(opened(None).err().unwrap()), Some(Hint::SetDimension));
    assert_eq!(hint(opened(Some(0)).err().unwrap()), Some(Hint::CheckDimension));
    let mut values = Values::empty(Kind::F32);
    let fault = opened(Some(4)).ok().unwrap().read(9, &mut values).unwrap_err();
    assert_eq!(hint(fault), Some(Hint::CheckDimension));
    assert_eq!(hint(largest_index(whole(b"0")).unwrap_err()), Some(Hint::SetDimension));
}

#[test]
fn the_largest_index_is_found() {
    assert_eq!(largest(b"0 1:1 7:1\n1\n0 3:1 9:x").unwrap(), 9);
    assert_eq!(largest(b"0 16777216:1").unwrap(), MAX_DIM);
    assert!(
        largest(b"0 1:1\n0 16777217:1").unwrap_err().contains("row 1: index 16777217, but at most")
    );
    assert!(largest(b"").unwrap_err().contains("is empty"));
    assert!(largest(b"0\n0\n").unwrap_err().contains("the dimension is unknown"));
    assert!(largest(b"0 2:1 1:1").unwrap_err().contains("ascend"));
}

#[test]
fn a_file_written_by_another_tool_is_read() {
    let text = include_bytes!("../../tests/fixtures/numpy/rows.libsvm");
    assert_eq!(largest(text).unwrap(), 5);
    let expected: Vec<f32> = (0..35).map(|i| (37 * i % 101) as f32 / 4.0 - 10.0).collect();
    assert_eq!(read(text, 5).unwrap(), expected);
}

#[test]
fn wide_rows_come_one_at_a_time() {
    let text = b"0 16777216:1\n0 1:1\n0\n";
    let mut source = open(whole(text), Some(MAX_DIM)).ok().unwrap();
    let mut values = Values::empty(Kind::F32);
    for _ in 0..3 {
        assert_eq!(source.read(1024, &mut values).unwrap(), 1);
        assert_eq!(values.len(), MAX_DIM);
    }
    assert_eq!(source.read(1024, &mut values).unwrap(), 0);
}

#[test]
fn rows_are_skipped() {
    let text: String = (1..10).map(|i| format!("0 1:{i}\n")).collect();
    let mut source = open(whole(text.as_bytes()), Some(1)).ok().unwrap();
    let mut values = Values::empty(Kind::F32);
    source.skip(7).unwrap();
    assert_eq!(source.read(100, &mut values).unwrap(), 2);
    assert_eq!(values, Values::F32(vec![8.0, 9.0]));
    source.skip(7).unwrap();
    assert_eq!(source.read(100, &mut values).unwrap(), 0);
}

#[test]
fn every_element_type_is_written() {
    let check = |values: Values, text: &str| {
        assert_eq!(String::from_utf8(write(&values, 2)).unwrap(), text);
    };
    check(Values::F32(vec![0.1, -0.0, 0.0, 0.0, 0.0, f32::NAN]), "0 1:0.1\n0\n0 2:NaN\n");
    check(Values::F64(vec![0.0, 1e300]), "0 2:1e+300\n");
    check(Values::F16(vec![f16::ONE, f16::from_f32(0.1)]), "0 1:1 2:0.099975586\n");
    check(Values::U8(vec![0, 255]), "0 2:255\n");
    check(Values::I8(vec![-128, 127]), "0 1:-128 2:127\n");
}

/// The bits that a value has after a round trip: zeros lose their sign, NaN its payload.
fn bits(values: &[f32]) -> Vec<u32> {
    let clean = |v: &f32| match *v {
        v if v.is_nan() => f32::NAN.to_bits(),
        0.0 => 0,
        v => v.to_bits(),
    };
    values.iter().map(clean).collect()
}

proptest! {
    #[test]
    fn round_trip(
        dim in 1usize..9,
        values in proptest::collection::vec(
            prop_oneof![any::<u32>().prop_map(f32::from_bits), Just(0.0), Just(-0.0), Just(f32::MAX), Just(1e-45)],
            9..90,
        ),
    ) {
        let values = values[..values.len() / dim * dim].to_vec();
        let text = write(&Values::F32(values.clone()), dim);
        prop_assert_eq!(bits(&read(&text, dim).unwrap()), bits(&values));
        if let Ok(found) = largest(&text) {
            prop_assert!(found <= dim);
        }
    }

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200), dim in 1usize..50) {
        let _ = read(&bytes, dim);
        let _ = largest(&bytes);
    }

    #[test]
    fn any_likely_bytes(
        bytes in proptest::collection::vec(proptest::sample::select(b"01235.-e:: \t\r\n#qid".to_vec()), 0..80),
        dim in 1usize..50,
    ) {
        let _ = read(&bytes, dim);
        let _ = largest(&bytes);
    }
}
