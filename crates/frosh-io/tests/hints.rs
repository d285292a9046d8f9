//! Every error that an option would help with has its hint, and no error text names a command-line flag.

use frosh_io::{Format, Hint, Kind, Options, Output, Target, Values, Vectors, whole_numbers};
use std::path::{Path, PathBuf};

fn file(folder: &Path, name: &str, content: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, content).unwrap();
    path
}

/// Opens a file and reads it to its end; returns the error's text and hint.
fn refusal(path: &Path, options: &Options) -> (String, Option<Hint>) {
    let read = || -> frosh_io::Result<()> {
        let mut batches = Vectors::open(&[path], options)?.batches();
        while let Some(batch) = batches.next()? {
            batch.check()?;
        }
        Ok(())
    };
    let error = read().expect_err("an error");
    (error.to_string(), error.hint())
}

#[test]
fn errors_have_hints_and_name_no_flags() {
    let dir = tempfile::tempdir().unwrap();
    let dim = |dim| Options { dim: Some(dim), ..Options::default() };
    let column = Options { column: Some("a".into()), ..Options::default() };
    let dataset = Options { dataset: Some("a".into()), ..Options::default() };
    let columns = Options { columns: Some("f*".parse().unwrap()), ..Options::default() };
    let fixture =
        |name: &str| Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures")).join(name);
    let folder = dir.path().join("folder");
    std::fs::create_dir(&folder).unwrap();
    let with = |name: &str, content: &[u8]| file(dir.path(), name, content);
    let cases = [
        (with("a.raw", &[0; 8]), Options::default(), Hint::SetDimensionOrFormat),
        (with("b.raw", &[0; 9]), dim(2), Hint::CheckDimension),
        (with("c.csv", b"1,2\n"), dim(3), Hint::CheckDimension),
        (with("d.libsvm", b"0\n"), Options::default(), Hint::SetDimension),
        (with("e.libsvm", b"0 5:1\n"), dim(4), Hint::CheckDimension),
        (with("f.dat", b"1,2\n"), Options::default(), Hint::ChooseFormat),
        (with("g.npy", b"1,2\n"), Options::default(), Hint::ChooseFormat),
        (with("h.fbin", &[255; 40]), Options::default(), Hint::ChooseFormat),
        (
            with("i.fbin", &[1, 0, 0, 0, 1, 0, 0, 0, 9, 9, 9, 9, 9]),
            Options::default(),
            Hint::ChooseFormat,
        ),
        (folder, Options::default(), Hint::ChooseFormat),
        (with("j.csv", b"1,2\n"), column.clone(), Hint::OmitColumn),
        (with("k.csv", b"1,2\n"), dataset.clone(), Hint::OmitDataset),
        (with("j2.fvecs", &[1, 0, 0, 0, 0, 0, 0, 0]), columns.clone(), Hint::OmitColumns),
        (with("k2.csv", b"id,a\n1,2\n"), Options::default(), Hint::ChooseColumns),
        (with("k3.csv", b"1,2\nx,3\n"), Options::default(), Hint::ChooseColumns),
        (with("k4.csv", b"x,y\n1,3\n"), columns, Hint::ChooseColumns),
        (with("l.csv", b"1,2\n3,nan\n"), Options::default(), Hint::SkipBadRows),
        (with("m.csv", b"1,2\n3,1e30\n"), Options::default(), Hint::SkipBadRows),
        (fixture("columns/two.parquet"), Options::default(), Hint::ChooseColumn),
        (fixture("columns/two.arrow"), column, Hint::ChooseColumn),
        (fixture("hdf5/integers.h5"), Options::default(), Hint::ChooseDataset),
        (fixture("hdf5/ann.h5"), dataset, Hint::ChooseDataset),
    ];
    for (path, options, hint) in cases {
        let (text, got) = refusal(&path, &options);
        assert_eq!(got, Some(hint), "{text}");
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(
            hint == Hint::OmitColumn
                || hint == Hint::OmitColumns
                || hint == Hint::OmitDataset
                || text.contains(name),
            "{text}"
        );
        assert!(!text.contains("--"), "{text}");
        assert!(!hint.to_string().contains("--"), "{hint}");
    }
}

#[test]
fn output_errors_have_hints() {
    let dir = tempfile::tempdir().unwrap();
    let target = |format, kind| Target { format, kind, dim: 2, rows: Some(1), name: None };
    let refused =
        Output::create(Path::new("-"), &target(Format::Parquet, Kind::F32)).err().unwrap();
    assert_eq!(refused.hint(), Some(Hint::ChooseOutputFormat), "{refused}");

    let input = file(dir.path(), "a.csv", b"1,2\n3,4.5\n");
    let vectors = Vectors::open(&[&input], &Options::default()).unwrap();
    let mut batches = vectors.batches();
    let batch = batches.next().unwrap().unwrap();
    let path = dir.path().join("x.u8bin");
    let mut output = Output::create(&path, &target(Format::U8bin, Kind::U8)).unwrap();
    let refused = output.write(batch).unwrap_err();
    assert_eq!(refused.hint(), Some(Hint::ChooseOutputType), "{refused}");
    assert!(refused.to_string().contains("a.csv, row 1: column 1 is 4.5"), "{refused}");
    assert!(output.write_values(&Values::U8(vec![1, 2]), 2).is_ok());
}

#[test]
fn files_of_integers_have_no_options_and_no_hints() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(dir.path(), "labels.npy", b"1\n2\n");
    let error = whole_numbers::<u64>(&path).unwrap_err();
    assert!(error.to_string().contains("labels.npy"), "{error}");
    assert_eq!(error.hint(), None, "{error}");
}
