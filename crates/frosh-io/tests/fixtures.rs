//! Files written by other tools (NumPy, pyarrow, h5py, gzip, zstd), read as they were meant. The scripts
//! beside the files made them.

use frosh_io::{Hint, Kind, Options, Values, Vectors};
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn read(path: &Path, options: &Options) -> frosh_io::Result<(usize, Option<u64>, Kind, Vec<f64>)> {
    let vectors = Vectors::open(&[path.to_str().unwrap().to_owned()], options)?;
    let mut all = Vec::new();
    let mut batches = vectors.batches();
    while let Some(batch) = batches.next()? {
        all.extend(batch.values().to_f64());
    }
    Ok((vectors.dim(), vectors.rows(), vectors.kind(), all))
}

#[test]
fn files_written_by_numpy_and_other_tools_are_read() {
    let folder = folder("numpy");
    let text = std::fs::read_to_string(folder.join("expected.json")).unwrap();
    let expected: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut checked = 0;
    for (name, facts) in expected["files"].as_object().unwrap() {
        let path = folder.join(name);
        let check = |array: &str, dataset: Option<&str>| {
            let want: Vec<f64> = expected["arrays"][array]
                .as_array()
                .unwrap()
                .iter()
                .flat_map(|row| row.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()))
                .collect();
            let options = Options { dataset: dataset.map(str::to_owned), ..Options::default() };
            let (dim, _, _, got) = read(&path, &options).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(dim, 5, "{name}");
            assert_eq!(got, want, "{name}");
        };
        if name == "empty.npy" {
            // A file without rows can be opened; it is for the caller to refuse it.
            assert_eq!(read(&path, &Options::default()).unwrap().1, Some(0));
        } else if facts["refused"].is_string() {
            let refused = read(&path, &Options::default());
            assert!(refused.is_err(), "{name} must be refused: {}", facts["refused"]);
            assert!(refused.unwrap_err().to_string().contains(name.as_str()));
        } else if let Some(members) = facts["members"].as_object() {
            for (member, array) in members {
                check(array.as_str().unwrap(), Some(member));
            }
            match members.values().next() {
                Some(array) if members.len() == 1 => check(array.as_str().unwrap(), None),
                _ => {
                    let error = read(&path, &Options::default()).unwrap_err();
                    assert_eq!(error.hint(), Some(Hint::ChooseDataset), "{error}");
                }
            }
        } else {
            check(facts["array"].as_str().unwrap(), None);
        }
        checked += 1;
    }
    assert!(checked > 35, "only {checked} files");
}

#[test]
fn element_types_are_kept_or_widened_without_loss() {
    let kind = |name: &str| read(&folder("numpy").join(name), &Options::default()).unwrap().2;
    assert_eq!(kind("f2_be.npy"), Kind::F16);
    assert_eq!(kind("f4_le.npy"), Kind::F32);
    assert_eq!(kind("f8_be.npy"), Kind::F64);
    assert_eq!(kind("u1.npy"), Kind::U8);
    assert_eq!(kind("i1.npy"), Kind::I8);
    assert_eq!(kind("i2_be.npy"), Kind::F32);
    assert_eq!(kind("i4_le.npy"), Kind::F64);
    assert_eq!(kind("images-idx3-ubyte.gz"), Kind::U8);
    assert_eq!(kind("vectors.f16bin"), Kind::F16);
}

#[test]
fn several_files_are_one_stream_in_sorted_order() {
    let dir = tempfile::tempdir().unwrap();
    let source = folder("numpy");
    for (from, to) in [("f4_le.npy", "b.npy"), ("f8_be.npy", "a.npy"), ("vectors.fvecs", "c.fvecs")]
    {
        std::fs::copy(source.join(from), dir.path().join(to)).unwrap();
    }
    std::fs::write(dir.path().join("notes.md"), "not vectors").unwrap();
    std::fs::write(dir.path().join(".hidden.npy"), "not vectors").unwrap();
    let open = |inputs: &[String]| Vectors::open(inputs, &Options::default()).unwrap();
    let all = open(&[dir.path().to_str().unwrap().to_owned()]);
    let names: Vec<_> =
        all.files().iter().map(|f| f.path.file_name().unwrap().to_owned()).collect();
    assert_eq!(names, ["a.npy", "b.npy", "c.fvecs"]);
    assert_eq!(all.rows(), Some(21));
    let pattern = open(&[dir.path().join("*.npy").to_str().unwrap().to_owned()]);
    assert_eq!(pattern.rows(), Some(14));
    // From any row on, across files.
    let rows = |from: u64| {
        let mut batches = all.batches_from(from);
        let mut out: Vec<f64> = Vec::new();
        while let Some(batch) = batches.next().unwrap() {
            out.extend(batch.values().to_f64());
        }
        out
    };
    let everything = rows(0);
    assert_eq!(everything.len(), 21 * 5);
    for from in [1, 6, 7, 8, 14, 20, 21, 30] {
        assert_eq!(rows(from), &everything[(from as usize * 5).min(105)..], "from row {from}");
    }
    // Single rows by number.
    let ids = [0u64, 3, 6, 7, 13, 14, 20];
    let mut seen = Vec::new();
    all.visit(&ids, |id, row| {
        assert_eq!(row, &everything[id as usize * 5..][..5], "row {id}");
        seen.push(id);
    })
    .unwrap();
    assert_eq!(seen, ids);
    assert!(all.visit(&[21], |_, _| {}).unwrap_err().to_string().contains("only 21 rows"));
}

#[test]
fn a_dimension_that_differs_names_both_files() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.csv"), "1,2\n").unwrap();
    std::fs::write(dir.path().join("b.csv"), "1,2,3\n").unwrap();
    let input = [dir.path().to_str().unwrap().to_owned()];
    let why = Vectors::open(&input, &Options::default()).err().unwrap().to_string();
    assert!(why.contains("a.csv") && why.contains("b.csv"), "{why}");
    assert!(why.contains('2') && why.contains('3'), "{why}");
}

#[test]
fn bad_rows_are_left_out_and_counted_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.csv");
    std::fs::write(&path, "nan,2\n1,2\n3,inf\n5,6\n7,1e30\n").unwrap();
    let options = Options { skip_bad: true, ..Options::default() };
    let vectors = Vectors::open(&[path.to_str().unwrap().to_owned()], &options).unwrap();
    assert_eq!(vectors.rows(), None);
    let mut batches = vectors.batches();
    let batch = batches.next().unwrap().unwrap();
    assert_eq!(batch.values(), &Values::F32(vec![1.0, 2.0, 5.0, 6.0]));
    assert!(batches.next().unwrap().is_none());
    assert_eq!(batches.left_out(), 3);
    assert_eq!(batches.take_left_out(), [0..1, 2..3, 4..5]);
    assert!(batches.take_left_out().is_empty());
    let mut later = vectors.batches_from(1);
    assert_eq!(later.next().unwrap().unwrap().values(), &Values::F32(vec![5.0, 6.0]));
}

#[test]
fn rows_keep_their_numbers_where_bad_ones_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let files = [
        write("a.csv", "1,1\nnan,2\n3,3\n"),
        write("b.csv", "nan,0\nnan,0\n"),
        write("c.csv", "6,6\n7,7\n8,inf\n"),
    ];
    let options = Options { skip_bad: true, ..Options::default() };
    let vectors = Vectors::open(&files, &options).unwrap();
    let mut batches = vectors.batches();
    let (mut numbers, mut left_out) = (Vec::new(), Vec::new());
    while let Some(batch) = batches.next().unwrap() {
        let values = batch.values().to_f64();
        for (rows, first) in batch.runs() {
            numbers.extend(
                rows.clone().map(|row| (first + (row - rows.start) as u64, values[2 * row])),
            );
        }
        left_out.extend(batches.take_left_out().into_iter().flatten());
    }
    left_out.extend(batches.take_left_out().into_iter().flatten());
    // From row 5 on, a row's values tell its number.
    assert_eq!(numbers, [(0, 1.0), (2, 3.0), (5, 6.0), (6, 7.0)]);
    assert_eq!(left_out, [1, 3, 4, 7]);
    let mut visited = Vec::new();
    vectors.visit(&[1, 2, 4, 6, 7], |id, row| visited.push((id, row[0]))).unwrap();
    assert_eq!(visited, [(2, 3.0), (6, 7.0)]);
    let error = vectors.visit(&[2, 8], |_, _| ()).unwrap_err();
    assert!(
        error.to_string().contains("row 8") && error.to_string().contains("only 8 rows"),
        "{error}"
    );
}

#[test]
fn compressed_files_with_a_wrong_checksum_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    // Where the checksum of the content stands: before the length in gzip, last in Zstandard, and in the
    // directory of an archive, 16 bytes after its mark.
    let mark = |bytes: &[u8]| bytes.windows(4).position(|w| w == b"PK\x01\x02").unwrap() + 16;
    for (name, place) in [
        ("images-idx3-ubyte.gz", (|b: &[u8]| b.len() - 8) as fn(&[u8]) -> usize),
        ("f4_le.npy.zst", |b| b.len() - 1),
        ("compressed.npz", mark),
    ] {
        let mut bytes = std::fs::read(folder("numpy").join(name)).unwrap();
        let place = place(&bytes);
        bytes[place] ^= 1;
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let why = read(&path, &Options::default()).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(why.contains(name), "{name} was taken: {why}");
    }
}
