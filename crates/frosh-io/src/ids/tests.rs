use super::*;
use crate::{Options, Vectors};
use std::path::{Path, PathBuf};

fn file(name: &str, content: impl AsRef<[u8]>) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    (folder, path)
}

/// All ids of a column beside the vectors, as text.
fn beside(path: &Path, options: &Options) -> Result<(IdType, Vec<String>), String> {
    let vectors = Vectors::open(&[path], options).map_err(|e| e.to_string())?;
    let (mut batches, mut all, mut kind) = (vectors.batches(), Vec::new(), IdType::Number);
    while let Some(batch) = batches.next().map_err(|e| e.to_string())? {
        let ids = batch.ids().expect("a column is chosen");
        assert_eq!(ids.len(), batch.len());
        kind = ids.id_type();
        all.extend((0..ids.len()).map(|i| ids.text(i)));
    }
    Ok((kind, all))
}

fn column(name: &str) -> Options {
    Options { id_column: Some(name.into()), ..Options::default() }
}

fn of(name: &str, content: &[u8], rule: IdRule) -> Result<(IdType, Vec<String>), String> {
    let (_folder, path) = file(name, content);
    let ids = read_ids(&path, None, rule).map_err(|e| e.to_string())?;
    Ok((ids.id_type(), (0..ids.len()).map(|i| ids.text(i)).collect()))
}

fn texts(ids: &[&str]) -> (IdType, Vec<String>) {
    (IdType::Text, ids.iter().map(|id| (*id).to_owned()).collect())
}

fn numbers(ids: &[&str]) -> (IdType, Vec<String>) {
    (IdType::Number, ids.iter().map(|id| (*id).to_owned()).collect())
}

#[test]
fn csv_gives_ids_by_name_and_by_position() {
    let text = "id,f0,f1\ncat,1,2\n\"a \"\"b\"\", c\",3,4\n";
    let (_folder, path) = file("a.csv", text);
    assert_eq!(beside(&path, &column("id")), Ok(texts(&["cat", "a \"b\", c"])));
    assert_eq!(beside(&path, &column("0")), Ok(texts(&["cat", "a \"b\", c"])));
    let why = beside(&path, &column("key")).unwrap_err();
    assert!(why.contains("no column \"key\"; columns: \"id\", \"f0\", \"f1\""), "{why}");
    assert!(beside(&path, &column("9")).unwrap_err().contains("no column"));
    // Without a first line of names, and numbers as ids.
    let (_folder, path) = file("a.tsv", "1.5\t7\t2\n3\t8\t4\n");
    assert_eq!(beside(&path, &column("1")), Ok(numbers(&["7", "8"])));
    let (_folder, path) = file("a.csv", "id,x,y\n1,1,1\nb,1,1\n");
    let why = beside(&path, &column("id")).unwrap_err();
    assert!(why.contains("row 1: column \"id\" is \"b\", expected a whole number"), "{why}");
    let rule = IdRule { convert: Some(IdType::Text), untyped: None };
    let options = Options { id_rule: rule, ..column("id") };
    assert_eq!(beside(&path, &options), Ok(texts(&["1", "b"])));
    let (_folder, path) = file("a.csv", "id,x,y\n007,1,1\n,1,1\n");
    let options =
        Options { id_rule: IdRule { untyped: Some(IdType::Text), ..rule }, ..column("id") };
    assert!(beside(&path, &options).unwrap_err().contains("row 1: column \"id\" is empty"));
}

#[test]
fn json_lines_give_ids_and_bad_ones_are_named_with_their_row() {
    let read = |text: &str, id: &str| {
        let (_folder, path) = file("a.jsonl", text);
        beside(&path, &column(id))
    };
    let line = |id: &str| format!("{{\"e\": [1, 2], \"d\": {{\"id\": {id}}}}}\n");
    let two = |a: &str, b: &str| read(&(line(a) + &line(b)), "d.id");
    assert_eq!(two("\"gr\\u00f6\\\"e\"", "\"b\""), Ok(texts(&["grö\"e", "b"])));
    assert_eq!(two("18446744073709551615", "0"), Ok(numbers(&["18446744073709551615", "0"])));
    for (bad, why) in [
        ("null", "row 1: column \"d.id\" is null"),
        ("-3", "row 1: column \"d.id\" is -3"),
        ("1.5", "row 1: column \"d.id\" is \"1.5\""),
        ("true", "row 1: column \"d.id\" is \"true\" (true or false)"),
        ("[1]", "row 1"),
        ("18446744073709551616", "row 1"),
        ("\"x\"", "is the text \"x\", and those before it are whole numbers"),
    ] {
        let said = two("5", bad).unwrap_err();
        assert!(said.contains(why) && said.contains("line 2"), "{said}");
    }
    assert!(read("{\"e\": [1]}\n", "id").unwrap_err().contains("no field \"id\""));
    // A field that is missing later is null.
    let said = read("{\"e\": [1], \"id\": 1}\n{\"e\": [2]}\n", "id").unwrap_err();
    assert!(said.contains("row 1") && said.contains("null"), "{said}");
}

#[test]
fn ids_of_rows_that_are_left_out_are_not_looked_at() {
    let text = "{\"id\": \"a\", \"e\": [1]}\n{\"id\": null, \"e\": null}\n{\"id\": \"c\", \"e\": [NaN]}\n\
                {\"id\": \"d\", \"e\": [2]}\n";
    let (_folder, path) = file("a.jsonl", text);
    let options = Options { skip_bad: true, ..column("id") };
    assert_eq!(beside(&path, &options), Ok(texts(&["a", "d"])));
}

#[test]
fn files_of_ids() {
    let rule = IdRule::default();
    assert_eq!(of("i.txt", b"3\n# no\n4\n", rule), Ok(numbers(&["3", "4"])));
    assert_eq!(of("i.txt", b"a, b\n4\n", rule), Ok(texts(&["a, b", "4"])));
    assert_eq!(of("i.csv", b"\"a, b\"\n4\n", rule), Ok(texts(&["a, b", "4"])));
    assert_eq!(of("i.jsonl", b"{\"x\": 1.5, \"k\": \"a\"}\n", rule), Ok(texts(&["a"])));
    let text = IdRule { untyped: Some(IdType::Text), ..rule };
    assert_eq!(of("i.txt", b"007\n8\n", text), Ok(texts(&["007", "8"])));
    let number = IdRule { convert: Some(IdType::Number), ..rule };
    assert_eq!(of("i.jsonl", b"{\"k\": \"12\"}\n", number), Ok(numbers(&["12"])));
    for (name, content, why) in [
        ("i.txt", &b"1\nx\n"[..], "row 1"),
        ("i.txt", b"a\n\xFF\n", "not UTF-8"),
        ("i.csv", b"a,b\n1,2\n", "several columns"),
        ("i.jsonl", b"{\"a\": 1, \"b\": 2}\n", "several columns"),
        ("i.jsonl", b"{\"a\": 1.5}\n", "no column"),
        ("i.fvecs", &[1, 0, 0, 0, 0, 0, 0, 0], "fvecs"),
    ] {
        let said = of(name, content, rule).unwrap_err();
        assert!(said.contains(why) && said.contains(name), "{said}");
    }
    assert!(of("i.txt", &[b'x'; MAX_TEXT + 1], rule).unwrap_err().contains("65536"));
    let (_folder, path) = file("i.csv", "k,v\na,1\nb,2\n");
    let ids = read_ids(&path, Some("k"), rule).unwrap();
    assert_eq!((ids.len(), ids.text(1)), (2, "b".into()));
}

#[test]
fn npy_arrays_of_text() {
    let npy = |descr: &str, rows: usize, values: &[u8]| {
        let text =
            format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({rows},), }}\n");
        let length = (text.len() as u16).to_le_bytes();
        [&b"\x93NUMPY\x01\x00"[..], &length, text.as_bytes(), values].concat()
    };
    let wide = |text: &str, big: bool| -> Vec<u8> {
        let units = text.chars().map(|c| c as u32);
        units.flat_map(|c| if big { c.to_be_bytes() } else { c.to_le_bytes() }).collect()
    };
    let rule = IdRule::default();
    let two = Ok(texts(&["gr\u{f6}", "b"]));
    assert_eq!(of("i.npy", &npy("<U3", 2, &wide("gr\u{f6}b\0\0", false)), rule), two);
    assert_eq!(of("i.npy", &npy(">U3", 2, &wide("gr\u{f6}b\0\0", true)), rule), two);
    assert_eq!(of("i.npy", &npy("|S2", 2, b"abc\0"), rule), Ok(texts(&["ab", "c"])));
    assert_eq!(of("i.npy", &npy("|u1", 2, &[7, 9]), rule), Ok(numbers(&["7", "9"])));
    for (content, why) in [
        (npy("|S2", 3, b"abc\0"), "cut short"),
        (npy("|S2", 1, b"abc\0"), "holds more"),
        (npy("|S2", 1, b"\0\0"), "is empty"),
        (npy("|S2", 1, b"\xFF\xFE"), "not UTF-8"),
        (npy("<U1", 1, &[0, 0xD8, 0, 0]), "not a character"),
        (npy("|S99999999999", 1, b""), "texts of"),
        (npy("<f4", 1, &[0; 4]), "whole numbers are needed"),
        (npy("|i1", 1, &[0xFF]), "is -1"),
    ] {
        let said = of("i.npy", &content, rule).unwrap_err();
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn word_vectors_have_words_as_ids() {
    let (_folder, path) = file("glove.8d.txt", "the 1 2 3\n. . . 4 5 6\n# 7 8 9\n");
    assert_eq!(beside(&path, &column("word")), Ok(texts(&["the", ". . .", "#"])));
    assert!(beside(&path, &column("id")).unwrap_err().contains("\"word\""));
}
