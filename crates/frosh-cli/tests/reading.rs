//! Files as people have them, through the options of the program.

mod common;
use common::{json, ok, run};
use std::path::Path;

fn fixture(name: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../frosh-io/tests/fixtures/tools");
    Path::new(folder).join(name).canonicalize().unwrap().to_str().unwrap().to_owned()
}

/// What the program says of a failure.
fn refusal(folder: &Path, arguments: &str) -> String {
    let output = run(folder, arguments);
    assert_eq!(output.status.code(), Some(1), "frosh {arguments}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn the_same_rows_from_every_file_give_the_same_model() {
    let dir = tempfile::tempdir().unwrap();
    let model = |arguments: &str| {
        ok(dir.path(), &format!("train {arguments} --bits 4 -o model.frosh --force --quiet"));
        std::fs::read(dir.path().join("model.frosh")).unwrap()
    };
    let first = model(&fixture("one.safetensors"));
    for (name, options) in [
        ("datasets", ""),
        ("datasets", "--column emb"),
        ("polars.arrow", ""),
        ("polars.parquet", ""),
        ("duckdb.jsonl", "--column emb"),
        ("glove.8d.txt", ""),
        ("polars_columns.parquet", "--columns f*"),
        ("polars_columns.csv", "--columns 1-8"),
        ("pandas_columns.csv", "--columns f*"),
        ("nested.arrow", "--column doc.emb"),
    ] {
        let arguments = format!("{} {options}", fixture(name));
        assert!(model(&arguments) == first, "{name} {options}");
    }
}

#[test]
fn inspect_lists_tensors_and_columns() {
    let dir = tempfile::tempdir().unwrap();
    let content =
        |name: &str| json(dir.path(), &format!("inspect {}", fixture(name)))["content"].clone();
    assert_eq!(content("several.safetensors")[0], "double (30 x 8 of f64)");
    assert_eq!(content("polars_columns.parquet")[2], "f0 (f32)");
    let facts =
        json(dir.path(), &format!("inspect {} --columns f*", fixture("polars_columns.arrow")));
    assert_eq!(facts["dim"], 8, "{facts}");
}

#[test]
fn messages_name_the_options() {
    let dir = tempfile::tempdir().unwrap();
    let train = |name: &str| refusal(dir.path(), &format!("train {} -o x", fixture(name)));
    let why = train("polars_columns.csv");
    assert!(why.contains("--columns, such as 'f*' or 2-101"), "{why}");
    assert!(train("several.safetensors").contains("choose one with --dataset"));
    std::fs::write(dir.path().join("a.pkl"), b"\x80\x04\x95\x10\0\0\0\0\0\0\0]\x94.").unwrap();
    let why = refusal(dir.path(), "train a.pkl -o x");
    assert!(why.contains("a.pkl: is a pickle") && why.contains("numpy.save("), "{why}");
    let both = format!("train {} --columns f* --column emb -o x", fixture("nested.arrow"));
    assert_eq!(run(dir.path(), &both).status.code(), Some(2));
}
