//! Files as the tools that people use write them, made by `scripts/make_fixtures.py`.

use frosh_io::{Columns, Format, Hint, IdRule, Ids, Kind, Options, Vectors, read_ids};
use std::path::{Path, PathBuf};

const ROWS: usize = 30;
const DIM: usize = 8;

fn fixture(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tools")).join(name)
}

/// What the script writes: value j of row i.
fn value(i: usize, j: usize) -> f64 {
    ((i * 7 + j * 3) % 100) as f64 - 20.0
}

fn expected() -> Vec<f64> {
    (0..ROWS).flat_map(|i| (0..DIM).map(move |j| value(i, j))).collect()
}

fn read(vectors: &Vectors, from: u64) -> frosh_io::Result<Vec<f64>> {
    let mut all = Vec::new();
    let mut batches = vectors.batches_from(from);
    while let Some(batch) = batches.next()? {
        batch.check()?;
        all.extend(batch.values().to_f64());
    }
    Ok(all)
}

fn open(path: &Path, options: &Options) -> Vectors {
    Vectors::open(&[path], options).unwrap_or_else(|e| panic!("{e}"))
}

/// Reads a file from its start, from other rows on, and by single rows.
fn check(name: &str, options: &Options, kind: Kind) {
    let vectors = open(&fixture(name), options);
    let want = expected();
    assert_eq!((vectors.dim(), vectors.kind()), (DIM, kind), "{name}");
    assert!(vectors.rows().is_none_or(|rows| rows == ROWS as u64), "{name}");
    for from in [0, 1, 10, 11, 29, 30, 40] {
        let got = read(&vectors, from).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(got, want[(from as usize).min(ROWS) * DIM..], "{name} from row {from}");
    }
    let mut seen = Vec::new();
    let visit = vectors.visit(&[0, 9, 10, 25, 29], |id, row| {
        assert_eq!(row, &want[id as usize * DIM..][..DIM], "{name}, row {id}");
        seen.push(id);
    });
    visit.unwrap();
    assert_eq!(seen, [0, 9, 10, 25, 29], "{name}");
}

fn refusal(path: &Path, options: &Options) -> (String, Option<Hint>) {
    let read = Vectors::open(&[path], options).and_then(|vectors| read(&vectors, 0));
    let error = read.expect_err("an error");
    (error.to_string(), error.hint())
}

#[test]
fn parquet_files() {
    for name in ["polars", "polars_array", "duckdb", "duckdb_v2", "datasets"] {
        check(&format!("{name}.parquet"), &Options::default(), Kind::F32);
    }
    for name in ["pandas", "pandas_zstd"] {
        check(&format!("{name}.parquet"), &Options::default(), Kind::F64);
    }
}

#[test]
fn arrow_files_and_streams() {
    for name in ["polars.arrow", "polars_list.arrow", "polars_stream.arrow"] {
        check(name, &Options::default(), Kind::F32);
    }
    check("pandas.feather", &Options::default(), Kind::F64);
}

#[test]
fn a_saved_dataset_is_one_stream() {
    check("datasets", &Options::default(), Kind::F32);
    let vectors = open(&fixture("datasets"), &Options::default());
    let names: Vec<_> =
        vectors.files().iter().map(|f| f.path.file_name().unwrap().to_owned()).collect();
    assert_eq!(names, ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]);
    // Caches beside the data are not data. In other folders the name means nothing.
    let dir = tempfile::tempdir().unwrap();
    let copy = |from: &str, to: &str| {
        std::fs::copy(fixture("datasets").join(from), dir.path().join(to)).unwrap();
    };
    copy(names[0].to_str().unwrap(), "data-00000-of-00001.arrow");
    copy(names[1].to_str().unwrap(), "cache-0123456789abcdef.arrow");
    assert_eq!(open(dir.path(), &Options::default()).rows(), Some(30));
    copy("state.json", "state.json");
    assert_eq!(open(dir.path(), &Options::default()).rows(), Some(15));
}

#[test]
fn safetensors_files() {
    check("one.safetensors", &Options::default(), Kind::F32);
    check("bf16.safetensors", &Options::default(), Kind::F32);
    for (name, kind) in [("half", Kind::F16), ("double", Kind::F64)] {
        let options = Options { dataset: Some(name.into()), ..Options::default() };
        check("several.safetensors", &options, kind);
    }
    let (why, hint) = refusal(&fixture("several.safetensors"), &Options::default());
    assert!(why.contains("\"double\" (30 x 8 of f64), \"half\" (30 x 8 of f16)"), "{why}");
    assert_eq!(hint, Some(Hint::ChooseDataset));
    let contents = frosh_io::contents(&fixture("several.safetensors"), &Options::default());
    let contents = contents.unwrap().unwrap().1;
    assert_eq!(contents, ["double (30 x 8 of f64)", "half (30 x 8 of f16)", "ids (30 of i64)"]);
}

#[test]
fn json_lines() {
    for name in ["pandas.jsonl", "datasets.jsonl", "duckdb.jsonl", "polars.ndjson"] {
        check(name, &Options::default(), Kind::F32);
    }
    let emb = Options { column: Some("emb".into()), ..Options::default() };
    check("pandas.jsonl", &emb, Kind::F32);
    let other = Options { column: Some("text".into()), ..Options::default() };
    assert!(refusal(&fixture("pandas.jsonl"), &other).0.contains("expected an array of numbers"));
}

#[test]
fn word_vectors() {
    for name in ["word2vec.txt", "glove.8d.txt", "fasttext.vec"] {
        check(name, &Options::default(), Kind::F32);
    }
}

fn with_columns(columns: &str) -> Options {
    Options { columns: Some(columns.parse::<Columns>().unwrap()), ..Options::default() }
}

#[test]
fn text_files_are_told_apart_by_their_lines() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    for (text, format) in [
        ("1 2\n3 4\n", Format::Csv),
        ("a,b\n1,2\n3,4\n", Format::Csv),
        ("a 1 2\nb 3 4\n", Format::Words),
        ("2 2\na 1 2\nb 3 4\n", Format::Words),
    ] {
        let vectors = open(&write("a.txt", text), &Options::default());
        assert_eq!(vectors.files()[0].format, format, "{text:?}");
        assert_eq!(read(&vectors, 0).unwrap(), [1.0, 2.0, 3.0, 4.0], "{text:?}");
    }
    let (why, hint) = refusal(&write("story.txt", "once upon a time\n"), &Options::default());
    assert_eq!(hint, Some(Hint::ChooseFormat), "{why}");
    // A folder's text files are not data unless they are named.
    write("b.csv", "5,6\n");
    assert_eq!(read(&open(dir.path(), &Options::default()), 0).unwrap(), [5.0, 6.0]);
}

#[test]
fn a_column_for_each_dimension() {
    for columns in ["f*", "2-9", "f0,f1,f2-f7,3-9"] {
        let options = with_columns(columns);
        if columns.contains("f2-f7") {
            // A range is of positions only.
            let (why, hint) = refusal(&fixture("polars_columns.parquet"), &options);
            assert!(why.contains("has no column \"f2-f7\"; columns: \"id\", \"text\""), "{why}");
            assert_eq!(hint, Some(Hint::ChooseColumns));
            continue;
        }
        check("polars_columns.parquet", &options, Kind::F32);
        check("polars_columns.arrow", &options, Kind::F32);
        check("pandas_columns.parquet", &options, Kind::F64);
    }
    check("polars_columns.csv", &with_columns("f*"), Kind::F32);
    check("polars_columns.csv", &with_columns("1-8"), Kind::F32);
    check("pandas_columns.csv", &with_columns("f*"), Kind::F32);
    check("pandas_columns.csv", &with_columns("3-10"), Kind::F32);
    check("pandas_matrix.csv", &with_columns("1-8"), Kind::F32);
    for name in ["polars_columns.csv", "polars_columns.parquet", "polars_columns.arrow"] {
        let (why, hint) = refusal(&fixture(name), &Options::default());
        assert_eq!(hint, Some(Hint::ChooseColumns), "{why}");
    }
    for name in ["polars_columns.parquet", "polars_columns.arrow"] {
        let (why, hint) = refusal(&fixture(name), &with_columns("*"));
        assert!(why.contains("column \"text\" is text, expected numbers"), "{why}");
        assert_eq!(hint, Some(Hint::ChooseColumns));
    }
}

#[test]
fn columns_of_different_types() {
    let want: Vec<f64> = (0..ROWS)
        .flat_map(|i| {
            (0..DIM).map(move |j| if j == 7 { value(i, j).max(0.0) } else { value(i, j) })
        })
        .collect();
    for name in ["mixed.parquet", "mixed.arrow"] {
        let all = open(&fixture(name), &with_columns("*"));
        assert_eq!((all.dim(), all.kind(), all.rows()), (DIM, Kind::F64, Some(30)), "{name}");
        assert_eq!(read(&all, 0).unwrap(), want, "{name}");
        assert_eq!(read(&all, 13).unwrap(), want[13 * DIM..], "{name}");
        for (columns, kind) in
            [("half", Kind::F16), ("half,tiny,single,short", Kind::F32), ("tiny", Kind::I8)]
        {
            assert_eq!(open(&fixture(name), &with_columns(columns)).kind(), kind, "{columns}");
        }
    }
}

#[test]
fn nulls_in_columns() {
    for name in ["holes.parquet", "holes.arrow"] {
        let (why, hint) = refusal(&fixture(name), &with_columns("a,b"));
        assert!(why.contains("row 5: column \"a\" is null, expected a number"), "{why}");
        assert_eq!(hint, Some(Hint::SkipBadRows));
        let options = Options { skip_bad: true, ..with_columns("a,b") };
        let vectors = open(&fixture(name), &options);
        let rows = (0..ROWS).filter(|i| *i != 5);
        let want: Vec<f64> = rows.flat_map(|i| [i as f64, i as f64]).collect();
        assert_eq!(read(&vectors, 0).unwrap(), want, "{name}");
        assert_eq!(read(&vectors, 20).unwrap(), want[40..], "{name}");
    }
}

#[test]
fn vectors_within_structures() {
    let column = |name: &str| Options { column: Some(name.into()), ..Options::default() };
    for end in ["parquet", "arrow"] {
        let name = format!("nested.{end}");
        check(&name, &column("doc.emb"), Kind::F32);
        check(&name, &column("doc.meta.emb"), Kind::F16);
        let (why, _) = refusal(&fixture(&name), &Options::default());
        assert!(
            why.contains("\"doc\" (structure of 3 fields), \"doc.emb\" (list of f32)"),
            "{why}"
        );
        for wrong in ["doc", "doc.lang", "doc.no", "no.emb", "doc.emb.x", "doc."] {
            let (why, hint) = refusal(&fixture(&name), &column(wrong));
            assert_eq!(hint, Some(Hint::ChooseColumn), "{why}");
        }
        // Row 3 is null; in row 17 the inner structure is.
        let name = format!("nested_null.{end}");
        for (path, bad) in [("doc.emb", vec![3]), ("doc.meta.emb", vec![3, 17])] {
            let (why, hint) = refusal(&fixture(&name), &column(path));
            assert!(why.contains("row 3: is null, expected a vector"), "{why}");
            assert_eq!(hint, Some(Hint::SkipBadRows));
            let options = Options { skip_bad: true, ..column(path) };
            let got = read(&open(&fixture(&name), &options), 0).unwrap();
            let good = (0..ROWS).filter(|i| !bad.contains(i));
            let want: Vec<f64> = good.flat_map(|i| (0..DIM).map(move |j| value(i, j))).collect();
            assert_eq!(got, want, "{path} of {name}");
        }
    }
}

/// The ids of all rows from row `from` on.
fn ids(name: &str, options: &Options, from: u64) -> Vec<String> {
    let vectors = open(&fixture(name), options);
    let (mut all, mut batches) = (Vec::new(), vectors.batches_from(from));
    while let Some(batch) = batches.next().unwrap_or_else(|e| panic!("{e}")) {
        let ids = batch.ids().expect("a column of ids is chosen");
        all.extend((0..ids.len()).map(|i| ids.text(i)));
    }
    all
}

fn id_column(name: &str) -> Options {
    Options { id_column: Some(name.into()), ..Options::default() }
}

#[test]
fn ids_are_read_beside_the_vectors() {
    let texts: Vec<String> = (0..ROWS).map(|i| format!("doc{i}")).collect();
    let numbers: Vec<String> = (0..ROWS).map(|i| i.to_string()).collect();
    let by_text = [
        "polars.parquet",
        "polars_array.parquet",
        "pandas.parquet",
        "pandas_zstd.parquet",
        "datasets.parquet",
        "polars.arrow",
        "polars_list.arrow",
        "polars_stream.arrow",
        "pandas.feather",
        "datasets",
        "pandas.jsonl",
        "datasets.jsonl",
        "polars.ndjson",
    ];
    let by_number = ["duckdb.parquet", "duckdb_v2.parquet", "duckdb.jsonl"];
    let nested = ["nested.parquet", "nested.arrow"];
    let all = by_text.map(|name| (name, &texts, id_column("id"))).into_iter();
    let all = all.chain(by_number.map(|name| (name, &numbers, id_column("id"))));
    let doc = || Options { column: Some("doc.emb".into()), ..id_column("after") };
    let all = all.chain(nested.map(|name| (name, &numbers, doc())));
    for (name, want, options) in all {
        for from in [0, 1, 10, 11, 29, 30] {
            assert_eq!(ids(name, &options, from), want[from as usize..], "{name} from {from}");
        }
    }
    for name in ["polars_columns.parquet", "polars_columns.arrow", "pandas_columns.csv"] {
        let options = Options { columns: Some("f*".parse().unwrap()), ..id_column("id") };
        assert_eq!(ids(name, &options, 3), numbers[3..], "{name}");
    }
    assert_eq!(ids("polars_columns.csv", &id_column("id"), 0), numbers);
    // The same columns as files of ids.
    for name in ["polars.parquet", "pandas.feather", "polars.arrow", "pandas.jsonl"] {
        let ids = read_ids(&fixture(name), Some("id"), IdRule::default()).unwrap();
        let Ids::Names(names) = ids else { panic!("{name}: text") };
        assert!(names.iter().eq(&texts), "{name}");
    }
    let long = read_ids(&fixture("polars.arrow"), Some("text"), IdRule::default()).unwrap();
    assert_eq!((long.len(), long.text(9)), (30, "row 9, said \"9\"\nand more".into()));
    let lang = read_ids(&fixture("nested.arrow"), Some("doc.lang"), IdRule::default()).unwrap();
    assert_eq!((lang.len(), lang.text(29)), (30, "en".into()));
    let lang = read_ids(&fixture("nested.parquet"), Some("doc.lang"), IdRule::default()).unwrap();
    assert_eq!((lang.len(), lang.text(29)), (30, "en".into()));
}

#[test]
fn columns_that_cannot_be_ids_are_refused_and_rows_without_vectors_need_none() {
    for name in ["polars.parquet", "polars.arrow"] {
        for (column, why) in
            [("emb", "expected whole numbers or text"), ("key", "no column \"key\"")]
        {
            let (said, hint) = refusal(&fixture(name), &id_column(column));
            assert!(said.contains(why) && said.contains("\"text\" (text)"), "{said}");
            assert_eq!(hint, Some(Hint::ChooseIdColumn));
        }
        let said = read_ids(&fixture(name), None, IdRule::default()).unwrap_err().to_string();
        assert!(said.contains("several columns"), "{said}");
    }
    let (said, _) = refusal(&fixture("one.safetensors"), &id_column("id"));
    assert!(said.contains("safetensors, which has no column \"id\""), "{said}");
    for name in ["mixed.parquet", "mixed.arrow"] {
        let options = Options { columns: Some("half".parse().unwrap()), ..id_column("single") };
        assert!(refusal(&fixture(name), &options).0.contains("is f32, expected whole"), "{name}");
        // Negative numbers.
        let options = Options { columns: Some("half".parse().unwrap()), ..id_column("int") };
        let said = refusal(&fixture(name), &options).0;
        assert!(said.contains("row 0: column \"int\" is -"), "{said}");
    }
    // A null structure has no id. Its vector is null too.
    for name in ["nested_null.parquet", "nested_null.arrow"] {
        let options = Options { column: Some("doc.emb".into()), ..id_column("doc.lang") };
        assert!(refusal(&fixture(name), &options).0.contains("row 3"), "{name}");
        let options = Options { skip_bad: true, ..options };
        assert_eq!(ids(name, &options, 0), vec!["en"; 29], "{name}");
        let after = Options { id_column: Some("after".into()), ..options };
        let want: Vec<String> = (0..30).filter(|i| *i != 3).map(|i| i.to_string()).collect();
        assert_eq!(ids(name, &after, 0), want, "{name}");
        let said = read_ids(&fixture(name), Some("doc.lang"), IdRule::default()).unwrap_err();
        assert!(said.to_string().contains("row 3: column \"doc.lang\" is null"), "{said}");
    }
}
