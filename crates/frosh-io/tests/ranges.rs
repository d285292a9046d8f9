//! Ranges of rows are read as the serial reader reads them: the same rows, numbers, left-out rows and errors.

use frosh_io::{Batch, Columns, Format, Kind, Options, Output, Target, Values, Vectors};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Rows by their numbers, and the numbers of those that were left out. Values as bits, so that NaN can be compared.
#[derive(Clone, Debug, Default, PartialEq)]
struct Found {
    rows: Vec<(u64, Vec<u64>)>,
    ids: Vec<String>,
    left_out: Vec<u64>,
}

impl Found {
    fn add(&mut self, batch: &Batch) {
        let (values, dim) = (batch.values().to_f64(), batch.dim());
        for (rows, first) in batch.runs() {
            for (row, number) in rows.zip(first..) {
                let bits = values[row * dim..][..dim].iter().map(|x| x.to_bits()).collect();
                self.rows.push((number, bits));
            }
        }
        if let Some(ids) = batch.ids() {
            self.ids.extend((0..ids.len()).map(|i| ids.text(i)));
        }
    }

    /// What of it is in a range.
    fn within(&self, range: &Range<u64>) -> Self {
        let rows: Vec<_> = self.rows.iter().filter(|row| range.contains(&row.0)).cloned().collect();
        let first = self.rows.iter().take_while(|row| row.0 < range.start).count();
        let ids = self.ids.iter().skip(first).take(rows.len()).cloned().collect();
        let left_out = self.left_out.iter().filter(|row| range.contains(row)).copied().collect();
        Self { rows, ids, left_out }
    }
}

/// All rows before the end or the first error, and the error.
fn serial(vectors: &Vectors) -> (Found, Option<String>) {
    let (mut found, mut batches) = (Found::default(), vectors.batches());
    let error = loop {
        match batches.next() {
            Ok(Some(batch)) => found.add(batch),
            Ok(None) => break None,
            Err(error) => break Some(error.to_string()),
        }
    };
    found.left_out.extend(batches.take_left_out().into_iter().flatten());
    (found, error)
}

fn range(reader: &mut frosh_io::RangeReader, rows: Range<u64>) -> frosh_io::Result<Found> {
    let mut found = Found::default();
    reader.start(rows);
    while let Some(batch) = reader.next()? {
        assert!(!batch.is_empty());
        found.add(batch);
    }
    found.left_out.extend(reader.take_left_out().into_iter().flatten());
    Ok(found)
}

/// A small generator with a fixed seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Compares random ranges with what the serial reader gives.
fn compare(what: &str, vectors: &Vectors) {
    assert!(vectors.cuttable(), "{what}");
    let all = vectors.stored_rows().unwrap();
    let (want, error) = serial(vectors);
    assert_eq!(error, None, "{what}");
    assert_eq!((want.rows.len() + want.left_out.len()) as u64, all, "{what}");
    let mut random = Random(all ^ 0x5eed);
    // In any order, with one reader for all, and batches of a few rows.
    let row_bytes = vectors.dim() * vectors.kind().bytes();
    for most in [1, 3, 1000] {
        let mut reader = vectors.ranges().unwrap().batch_bytes(most * row_bytes);
        for _ in 0..40 {
            let (a, b) = (random.below(all + 1), random.below(all + 3));
            let rows = a.min(b)..a.max(b);
            let got = range(&mut reader, rows.clone()).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(got, want.within(&rows), "{what} {rows:?}");
        }
        // One after the other, and each half of them left unread.
        for from in (0..all).step_by(7) {
            reader.start(from..all);
            let first = reader.next().unwrap();
            let first = first.map(|batch| batch.runs()[0].1);
            let next = want.rows.iter().map(|row| row.0).find(|row| *row >= from);
            assert_eq!(first, next, "{what} {from}");
        }
    }
    // Pieces of any size are all rows, and the reader that is made for one range reads it too.
    for bytes in [1, 100, 1000, 1 << 20] {
        let (mut got, mut end) = (Found::default(), 0);
        for piece in vectors.pieces(bytes) {
            assert_eq!(piece.start, end, "{what}");
            assert!(piece.end > piece.start, "{what}");
            end = piece.end;
            let more = range(&mut vectors.batches_in(0..0).unwrap(), piece).unwrap();
            got.rows.extend(more.rows);
            got.ids.extend(more.ids);
            got.left_out.extend(more.left_out);
        }
        assert_eq!((end, &got), (all, &want), "{what}");
    }
}

fn open(path: &Path, options: &Options) -> frosh_io::Result<Vectors> {
    Vectors::open(&[path], options)
}

fn fixtures(name: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.is_file());
    files.sort();
    files
}

#[test]
fn files_of_other_tools_in_random_ranges() {
    let (mut checked, mut with_nulls) = (0, 0);
    for path in ["numpy", "columns", "hdf5", "tools"].into_iter().flat_map(fixtures) {
        for skip_bad in [false, true] {
            let column = path.to_string_lossy().contains("two.").then(|| "vector".to_owned());
            let options = Options { skip_bad, column, ..Options::default() };
            let Ok(vectors) = open(&path, &options) else { continue };
            if !vectors.cuttable() || serial(&vectors).1.is_some() {
                continue;
            }
            compare(&path.display().to_string(), &vectors);
            checked += 1;
            with_nulls += usize::from(!serial(&vectors).0.left_out.is_empty());
        }
    }
    assert!(checked > 180 && with_nulls >= 10, "{checked} files, {with_nulls} with nulls");
}

#[test]
fn data_sets_and_tables_in_random_ranges() {
    let mut checked = 0;
    for path in fixtures("hdf5") {
        let Ok(Some((_, names))) = frosh_io::contents(&path, &Options::default()) else { continue };
        for name in names {
            let name = name.split(" (").next().unwrap().to_owned();
            let options = Options { dataset: Some(name.clone()), ..Options::default() };
            let Ok(vectors) = open(&path, &options) else { continue };
            if vectors.cuttable() && serial(&vectors).1.is_none() {
                compare(&format!("{} {name}", path.display()), &vectors);
                checked += 1;
            }
        }
    }
    assert!(checked > 10, "{checked} data sets");
    let mut tables = 0;
    for path in fixtures("tools") {
        for columns in ["f*", "e*", "0-2", "1-3"] {
            let columns: Columns = columns.parse().unwrap();
            let options = Options { columns: Some(columns), skip_bad: true, ..Options::default() };
            let Ok(vectors) = open(&path, &options) else { continue };
            if vectors.cuttable() && serial(&vectors).1.is_none() {
                compare(&path.display().to_string(), &vectors);
                tables += 1;
            }
        }
    }
    assert!(tables >= 4, "{tables} tables");
}

/// Rows with a few that cannot be used.
fn values(rows: usize, dim: usize, bad: &[usize]) -> Values {
    let mut values: Vec<f32> = (0..rows * dim).map(|i| ((i * 7919) % 113) as f32).collect();
    bad.iter().for_each(|row| values[row * dim + row % dim] = f32::NAN);
    Values::F32(values)
}

fn write(path: &Path, values: &Values, dim: usize) {
    let format = Format::of_name(path).unwrap();
    let (kind, rows) = (Kind::F32, Some((values.len() / dim) as u64));
    let target = Target { format, kind, dim, rows, name: None };
    let mut output = Output::create(path, &target).unwrap();
    output.write_values(values, dim).unwrap();
    output.finish().unwrap();
}

const CUT: [&str; 9] =
    ["npy", "npz", "fvecs", "fbin", "parquet", "arrow", "h5", "safetensors", "raw"];

#[test]
fn every_format_of_ours_with_bad_rows_in_random_ranges() {
    let dir = tempfile::tempdir().unwrap();
    let bad = [0, 1, 2, 40, 41, 250, 299];
    for end in CUT {
        let path = dir.path().join(format!("a.{end}"));
        write(&path, &values(300, 5, &bad), 5);
        for skip_bad in [false, true] {
            let dim = (end == "raw").then_some(5);
            let vectors = open(&path, &Options { skip_bad, dim, ..Options::default() }).unwrap();
            compare(end, &vectors);
            let left_out = serial(&vectors).0.left_out;
            assert_eq!(left_out.len(), if skip_bad { bad.len() } else { 0 }, "{end}");
        }
    }
    for end in ["csv", "jsonl", "libsvm"] {
        let path = dir.path().join(format!("a.{end}"));
        write(&path, &values(30, 5, &[]), 5);
        let vectors = open(&path, &Options::default()).unwrap();
        assert!(!vectors.cuttable() && vectors.stored_rows().is_none());
        assert_eq!(vectors.pieces(10).count(), 0);
        let why = vectors.ranges().err().unwrap().to_string();
        assert!(why.contains(&format!("a.{end}")) && why.contains("front to back"), "{why}");
    }
}

#[test]
fn several_files_of_different_formats_are_one_stream() {
    let dir = tempfile::tempdir().unwrap();
    let mut paths = Vec::new();
    for (i, end) in CUT.iter().filter(|end| **end != "raw").enumerate() {
        let path = dir.path().join(format!("{i}.{end}"));
        write(&path, &values(40 + i, 6, &[i]), 6);
        paths.push(path);
        // A file without rows between them.
        let path = dir.path().join(format!("{i}-empty.npy"));
        write(&path, &values(0, 6, &[]), 6);
        paths.push(path);
    }
    for skip_bad in [false, true] {
        let vectors = Vectors::open(&paths, &Options { skip_bad, ..Options::default() }).unwrap();
        compare("several files", &vectors);
        assert!(vectors.pieces(usize::MAX).count() == 8, "no piece has rows of two files");
    }
    let empty = Vectors::open(&paths[1..2], &Options::default()).unwrap();
    assert_eq!((empty.cuttable(), empty.stored_rows()), (true, Some(0)));
    assert_eq!(empty.pieces(1 << 20).count(), 0);
    assert!(empty.batches_in(0..9).unwrap().next().unwrap().is_none());
}

#[test]
fn ids_beside_the_vectors_in_random_ranges() {
    let mut checked = 0;
    for path in ["columns", "tools"].into_iter().flat_map(fixtures) {
        for skip_bad in [false, true] {
            let id_column = Some("id".to_owned());
            let options = Options { skip_bad, id_column, ..Options::default() };
            let Ok(vectors) = open(&path, &options) else { continue };
            if vectors.cuttable() && serial(&vectors).1.is_none() {
                assert!(!serial(&vectors).0.ids.is_empty());
                compare(&path.display().to_string(), &vectors);
                checked += 1;
            }
        }
    }
    assert!(checked > 60, "{checked} files");
}

/// The first error of the pieces in order, and the rows before it.
fn in_pieces(vectors: &Vectors, bytes: usize) -> (Found, Option<String>) {
    let (mut found, mut reader) = (Found::default(), vectors.ranges().unwrap());
    for piece in vectors.pieces(bytes) {
        reader.start(piece);
        loop {
            match reader.next() {
                Ok(Some(batch)) => found.add(batch),
                Ok(None) => break,
                Err(error) => return (found, Some(error.to_string())),
            }
        }
    }
    (found, None)
}

#[test]
fn a_bad_row_of_a_table_is_the_same_error() {
    let mut checked = 0;
    for path in ["columns", "tools"].into_iter().flat_map(fixtures) {
        let Ok(vectors) = open(&path, &Options::default()) else { continue };
        let (before, Some(error)) = serial(&vectors) else { continue };
        if !vectors.cuttable() {
            continue;
        }
        for bytes in [1, 100, 333, 1 << 20] {
            let (got, same) = in_pieces(&vectors, bytes);
            assert_eq!(same.as_ref(), Some(&error), "{}", path.display());
            // A piece may give rows that a larger batch with the bad row would not.
            assert!(got.rows.starts_with(&before.rows), "{}", path.display());
        }
        checked += 1;
    }
    assert!(checked >= 8, "{checked} files");
}

#[test]
fn ranges_behind_a_row_of_another_length_are_refused_or_right() {
    let name = "columns/pages_ragged.parquet";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let vectors = open(&path, &Options::default()).unwrap();
    let mut refused = 0;
    for from in 0..400u64 {
        let got = range(&mut vectors.ranges().unwrap(), from..400);
        let Ok(got) = got else {
            refused += 1;
            assert!(from < 300, "the second row group is whole");
            continue;
        };
        for (row, values) in got.rows {
            let want = |j: u64| ((row * 7 + j * 3) % 100) as f64 - 20.0;
            let want: Vec<u64> = (0..8).map(|j| want(j).to_bits()).collect();
            assert_eq!(values, want, "row {row}, from {from}");
        }
    }
    assert!(refused > 250, "{refused}");
}

#[test]
fn files_that_become_shorter_or_change_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    for end in CUT {
        let path = dir.path().join(format!("a.{end}"));
        write(&path, &values(30_000, 64, &[]), 64);
        let dim = (end == "raw").then_some(64);
        let vectors = open(&path, &Options { dim, ..Options::default() }).unwrap();
        let mut reader = vectors.ranges().unwrap().batch_bytes(1 << 12);
        reader.start(0..30_000);
        assert!(reader.next().unwrap().is_some());
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(file.metadata().unwrap().len() / 2).unwrap();
        let error = loop {
            match reader.next() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("{end}: half of the file is missing"),
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains(&format!("a.{end}")), "{end}: {error}");
        assert!(reader.next().unwrap().is_none(), "{end}: after an error is the end");
        // A reader that opens the file now.
        let mut reader = vectors.batches_in(20_000..20_001).unwrap();
        let error = reader.next().err().unwrap_or_else(|| panic!("{end}")).to_string();
        assert!(error.contains(&format!("a.{end}")), "{end}: {error}");
    }
}

#[test]
fn two_threads_read_the_same_files_at_once() {
    let dir = tempfile::tempdir().unwrap();
    for end in CUT.iter().filter(|end| **end != "raw") {
        let path = dir.path().join(format!("a.{end}"));
        write(&path, &values(5_000, 16, &[]), 16);
        let vectors = open(&path, &Options::default()).unwrap();
        let want = serial(&vectors).0;
        let pieces: Vec<_> = vectors.pieces(3_000).collect();
        let parts: Vec<Vec<(usize, Found)>> = std::thread::scope(|scope| {
            let read = |thread: usize| {
                let mut reader = vectors.ranges().unwrap();
                let mine = pieces.iter().enumerate().skip(thread).step_by(3);
                mine.map(|(i, piece)| (i, range(&mut reader, piece.clone()).unwrap())).collect()
            };
            let threads = [0, 1, 2].map(|thread| scope.spawn(move || read(thread)));
            threads.map(|thread| thread.join().unwrap()).into()
        });
        let mut parts: Vec<_> = parts.into_iter().flatten().collect();
        parts.sort_by_key(|part| part.0);
        let rows: Vec<_> = parts.into_iter().flat_map(|part| part.1.rows).collect();
        assert!(rows == want.rows, "{end}");
    }
}
