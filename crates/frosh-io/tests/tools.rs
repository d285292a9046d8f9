//! Files as the tools that people use write them, made by `scripts/make_fixtures.py`.

use frosh_io::{Hint, Kind, Options, Vectors};
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
