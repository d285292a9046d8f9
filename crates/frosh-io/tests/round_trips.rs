//! For every format: what is written is read back as the same rows, and the same rows give the same model.

use frosh::{Config, Sketcher};
use frosh_io::{Format, Kind, Options, Output, Target, Vectors};
use std::path::Path;

const DIM: usize = 12;
const ROWS: usize = 700;

/// Whole numbers from 0 to 100, which every format can hold. No column is zero throughout.
fn number(i: usize) -> f64 {
    ((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as f64 % 101.0
}

fn options(format: Format) -> Options {
    Options { dim: (format == Format::Raw).then_some(DIM), ..Options::default() }
}

fn open(path: &Path, format: Format) -> Vectors {
    Vectors::open(&[path.to_str().unwrap().to_owned()], &options(format)).unwrap()
}

fn values(vectors: &Vectors) -> Vec<f64> {
    let mut all = Vec::new();
    let mut batches = vectors.batches();
    while let Some(batch) = batches.next().unwrap() {
        all.extend(batch.values().to_f64());
    }
    all
}

fn convert(from: &Vectors, to: &Path, format: Format, kind: Kind) {
    let target = Target {
        format,
        kind,
        dim: from.dim(),
        rows: from.rows().or(Some(ROWS as u64)),
        name: None,
    };
    let mut output = Output::create(to, &target).unwrap();
    let mut batches = from.batches();
    while let Some(batch) = batches.next().unwrap() {
        output.write(batch).unwrap();
    }
    output.finish().unwrap();
}

fn model(vectors: &Vectors) -> Vec<u8> {
    let mut sketcher = Sketcher::new(Config::new(DIM).sketch_rows(16).seed(3)).unwrap();
    let mut batches = vectors.batches();
    while let Some(batch) = batches.next().unwrap() {
        batch.feed(&mut sketcher).unwrap();
    }
    sketcher.finish().hasher(8).unwrap().to_bytes()
}

fn first(dir: &Path) -> Vectors {
    let path = dir.join("first.csv");
    let text: String = (0..ROWS)
        .map(|r| {
            let row: Vec<String> = (0..DIM).map(|c| number(r * DIM + c).to_string()).collect();
            row.join(",") + "\n"
        })
        .collect();
    std::fs::write(&path, text).unwrap();
    open(&path, Format::Csv)
}

#[test]
fn every_format_gives_the_same_rows_and_the_same_model() {
    let dir = tempfile::tempdir().unwrap();
    let first = first(dir.path());
    let want: Vec<f64> = (0..ROWS * DIM).map(number).collect();
    assert_eq!(values(&first), want);
    let trained = model(&first);
    for format in Format::all() {
        let there = dir.path().join(format!("there.{format}"));
        convert(&first, &there, format, Kind::F32);
        let read = open(&there, format);
        assert_eq!(read.files()[0].format, format, "{format}");
        assert_eq!(values(&read), want, "{format}");
        assert_eq!(model(&read), trained, "the model from {format}");
        let back = dir.path().join(format!("back-from-{format}.npy"));
        convert(&read, &back, Format::Npy, Kind::F32);
        assert_eq!(values(&open(&back, Format::Npy)), want, "back from {format}");
        // The same content gives the same bytes.
        let again = dir.path().join(format!("again.{format}"));
        convert(&read, &again, format, Kind::F32);
        assert!(std::fs::read(&there).unwrap() == std::fs::read(&again).unwrap(), "{format}");
    }
}

#[test]
fn formats_that_hold_several_element_types_keep_each() {
    let dir = tempfile::tempdir().unwrap();
    let first = first(dir.path());
    let want = values(&first);
    for format in [
        Format::Npy,
        Format::Npz,
        Format::Parquet,
        Format::Arrow,
        Format::Hdf5,
        Format::Safetensors,
    ] {
        for kind in Kind::ALL {
            let path = dir.path().join(format!("{kind}.{format}"));
            convert(&first, &path, format, kind);
            let read = open(&path, format);
            assert_eq!(read.kind(), kind, "{format}");
            assert_eq!(values(&read), want, "{format} of {kind}");
        }
    }
}

#[test]
fn a_value_that_the_type_cannot_hold_is_refused_and_nothing_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.csv");
    std::fs::write(&path, "1,2\n3,256\n").unwrap();
    let from = open(&path, Format::Csv);
    let to = dir.path().join("a.bvecs");
    let target = Target { format: Format::Bvecs, kind: Kind::F32, dim: 2, rows: None, name: None };
    let mut output = Output::create(&to, &target).unwrap();
    let mut batches = from.batches();
    let why = output.write(batches.next().unwrap().unwrap()).unwrap_err().to_string();
    assert!(why.contains("a.csv, row 1: column 1 is 256"), "{why}");
    drop(output);
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn cut_files_are_refused_at_every_length() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("small.csv");
    std::fs::write(&path, "1,2,3\n4,5,6\n7,8,9\n").unwrap();
    let from = open(&path, Format::Csv);
    let target = |format| Target { format, kind: Kind::F32, dim: 3, rows: Some(3), name: None };
    for format in Format::all() {
        // Text that is cut between rows is a shorter text, and raw values between rows are fewer rows.
        if matches!(
            format,
            Format::Csv
                | Format::Tsv
                | Format::Jsonl
                | Format::Words
                | Format::Libsvm
                | Format::Raw
        ) {
            continue;
        }
        let whole = dir.path().join(format!("whole.{format}"));
        let mut output = Output::create(&whole, &target(format)).unwrap();
        let mut batches = from.batches();
        while let Some(batch) = batches.next().unwrap() {
            output.write(batch).unwrap();
        }
        output.finish().unwrap();
        let bytes = std::fs::read(&whole).unwrap();
        let cut = dir.path().join(format!("cut.{format}"));
        for length in 0..bytes.len() {
            std::fs::write(&cut, &bytes[..length]).unwrap();
            let read = || -> frosh_io::Result<usize> {
                let input = [cut.to_str().unwrap().to_owned()];
                let vectors = Vectors::open(&input, &options(format))?;
                let mut batches = vectors.batches();
                let mut seen = 0;
                while let Some(batch) = batches.next()? {
                    seen += batch.len();
                }
                Ok(seen)
            };
            match read() {
                Err(error) => assert!(error.to_string().contains("cut."), "{format}: {error}"),
                // The vecs formats have no count: a cut between rows is a shorter file. Formats with a
                // trailer may hold all rows without its last bytes.
                Ok(rows) => assert!(
                    rows == 3 || matches!(format, Format::Fvecs | Format::Bvecs | Format::Ivecs),
                    "{format} cut to {length} of {} bytes gave {rows} rows",
                    bytes.len()
                ),
            }
        }
    }
}
