use super::*;
use crate::text::tests::{byte_by_byte, message, read_all, whole};

fn read(text: &str, field: Option<&str>) -> Result<(usize, Vec<f32>), String> {
    let all = read_all(open(whole(text.as_bytes()), field, None, false));
    let again = read_all(open(byte_by_byte(text.as_bytes()), field, None, false));
    // Printed, since NaN is not equal to itself.
    assert_eq!(format!("{all:?}"), format!("{again:?}"), "{text:?}");
    all
}

#[test]
fn the_field_is_found_or_chosen() {
    let text = r#"
{"id": 1, "text": "a \"[1]\" \\", "emb": [0.5, -2e1, 3], "more": {"x": [1], "y": [[2], {}]}, "none": null}
{"emb":[1,2,3],"id":[],"text":"}"}
"#;
    let rows = vec![0.5, -20., 3., 1., 2., 3.];
    assert_eq!(read(text, None).unwrap(), (3, rows.clone()));
    assert_eq!(read(text, Some("emb")).unwrap(), (3, rows.clone()));
    assert_eq!(read("[0.5, -20 ,3]\r\n [1,2,3]", None).unwrap(), (3, rows));
    let nested = r#"{"doc": {"a.b": {"emb": [1, 2]}, "other": [3]}, "doc.other": [4]}"#;
    assert_eq!(read(nested, Some("doc.other")).unwrap(), (1, vec![4.]));
    let deep = r#"{"doc": {"a": {"emb": [1, 2]}}}"#;
    assert_eq!(read(deep, Some("doc.a.emb")).unwrap(), (2, vec![1., 2.]));
    // Escapes in keys.
    let escaped = r#"{"gr\u00f6\u00dfe \ud83d\ude00": [1], "x": [2]}"#;
    assert_eq!(read(escaped, Some("größe 😀")).unwrap(), (1, vec![1.]));
}

#[test]
fn values_that_are_not_numbers() {
    let (dim, values) = read("[1, null, NaN, -Infinity]", None).unwrap();
    assert_eq!((dim, values[0], values[3]), (4, 1., f32::NEG_INFINITY));
    assert!(values[1].is_nan() && values[2].is_nan());
    let two = "{\"emb\": [1, 2]}\n{\"emb\": null}\n{\"id\": 3}\n{\"emb\": [3, 4]}\n";
    let error = open(whole(two.as_bytes()), None, None, false)
        .and_then(|mut source| {
            source.skip(1).and_then(|()| source.read(9, &mut crate::Values::F32(vec![])))
        })
        .unwrap_err();
    let error = error.at(std::path::Path::new("f"));
    let why = "f, row 1: field \"emb\" is null or missing, expected an array of numbers (line 2)";
    assert_eq!((error.to_string().as_str(), error.hint()), (why, Some(Hint::SkipBadRows)));
    let (_, values) = read_all(open(whole(two.as_bytes()), None, None, true)).unwrap();
    assert_eq!((values.len(), values[6], values[7]), (8, 3., 4.));
    assert!(values[2..6].iter().all(|x| x.is_nan()));
}

#[test]
fn lines_that_are_wrong_are_named() {
    for (text, field, why) in [
        ("", None, "is empty"),
        ("1,2\n", None, "x, row 0: \"1,2\" found, expected a JSON object or array (line 1)"),
        ("[\n1,\n2]\n", None, "the line ends within a value"),
        ("{\n\"emb\": [1]}\n", None, "the line ends within a value"),
        ("{\"a\": [1", None, "the line ends within a value"),
        ("{\"a", None, "the line ends within a value"),
        ("{\"a\\", None, "the line ends within a value"),
        ("{\"a\": \"b\\\"", None, "the line ends within a value"),
        ("{\"a\": }", None, "expected a value"),
        ("{a: 1}", None, "expected '\"'"),
        ("[]", None, "has 0 values"),
        ("[[1]]", None, "value 0 is \"[1]]\", expected a number"),
        ("[1 2]", None, "\"2]\" found, expected ']'"),
        ("[1] 2", None, "\"2\" found after the array"),
        ("[1,]", None, "value 1 is \"]\", expected a number"),
        ("[1,", None, "the line ends within a value"),
        ("[\"1\"]", None, "value 0 is \"\\\"1\\\"]\", expected a number"),
        ("[1, 2]\n[1]\n", None, "x, row 1: has 1 values, expected 2 as in the first row (line 2)"),
        ("{\"a\": 1}", None, "has no field that is an array of numbers; fields: \"a\" (number)"),
        (
            "{\"a\": [1], \"b\": [2]}",
            None,
            "several arrays of numbers; fields: \"a\" (array of num",
        ),
        ("{\"a\": [1]}", Some("b"), "has no field \"b\"; fields: \"a\" (array of numbers)"),
        ("{\"a\": [1]}", Some("a.b"), "has no field \"a.b\""),
        ("{\"a\": \"x\"}", Some("a"), "\"\\\"x\\\"\" found, expected an array of numbers"),
        ("{}", None, "it has no fields"),
        ("[1]", Some("a"), "is an array, which has no fields"),
    ] {
        let got = read(text, field).unwrap_err();
        assert!(got.contains(why), "{text:?}: {got}");
    }
}

#[test]
fn deep_nesting_does_not_exhaust_the_stack() {
    for open_brackets in ["[".repeat(1_000_000), "{\"a\":".repeat(1_000_000)] {
        read(&open_brackets, None).unwrap_err();
        let fault = open(whole(format!("{{\"x\": {open_brackets}").as_bytes()), None, None, false);
        message(fault.err().unwrap());
    }
    let closed = format!("{{\"x\": {}{}, \"emb\": [1]}}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(read_all(open(whole(closed.as_bytes()), None, None, false)).unwrap(), (1, vec![1.]));
}
