//! Files that are read in pieces on several threads: the same bytes, errors and lists for any number of threads, and
//! the same as from a file that can only be read from front to back.

mod common;
use common::{files, ok, run, values, write_npy};
use std::io::Write as _;
use std::path::Path;

const DIM: usize = 64;
/// A little more than three pieces of 8 MB.
const ROWS: usize = 100_000;

fn gzip(from: &Path, to: &Path) {
    let file = std::fs::File::create(to).unwrap();
    let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    packed.write_all(&std::fs::read(from).unwrap()).unwrap();
    packed.finish().unwrap();
}

/// Rows, some of which cannot be used, as files that can be cut and as one that cannot, and a model of good ones.
fn folder(bad: &[usize]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let mut rows = values(ROWS, DIM, 5);
    write_npy(&at("good.npy"), &rows[..3000 * DIM], DIM);
    ok(dir.path(), "train good.npy --bits 32 --sketch-rows 64 -o model.frosh --quiet");
    bad.iter().for_each(|row| rows[row * DIM + row % DIM] = f32::NAN);
    write_npy(&at("all.npy"), &rows, DIM);
    gzip(&at("all.npy"), &at("all.npy.gz"));
    // Its first row group is cut.
    ok(dir.path(), "convert all.npy all.parquet --quiet");
    // The same rows in five files.
    let cuts = [0, 10, 40_000, 40_001, 77_777, ROWS];
    let ends = ["npy", "parquet", "fvecs", "arrow", "h5"];
    for (i, end) in ends.iter().enumerate() {
        write_npy(&at("part.npy"), &rows[cuts[i] * DIM..cuts[i + 1] * DIM], DIM);
        ok(dir.path(), &format!("convert part.npy {i}-part.{end} --quiet"));
    }
    dir
}

const SEVERAL: &str = "0-part.npy 1-part.parquet 2-part.fvecs 3-part.arrow 4-part.h5";

fn read(folder: &Path, name: &str) -> Vec<u8> {
    std::fs::read(folder.join(name)).unwrap()
}

#[test]
fn the_same_bytes_on_any_number_of_threads() {
    let dir = folder(&[]);
    let at = dir.path();
    ok(at, "encode model.frosh all.npy.gz -o serial.frosh --factors --quiet");
    ok(at, "encode model.frosh all.npy.gz -o serial.npy --quiet");
    ok(at, "convert all.npy.gz serial.fvecs --quiet");
    for data in ["all.npy", "all.parquet", SEVERAL] {
        for threads in [1, 2, 3, 5] {
            let same = |job: &str, output: &str, want: &str| {
                ok(at, &format!("{job} --threads {threads} --quiet"));
                assert!(read(at, output) == read(at, want), "{job}, {threads} threads");
            };
            let encode = format!("encode model.frosh {data}");
            same(&format!("{encode} -o x.frosh --factors"), "x.frosh", "serial.frosh");
            same(&format!("{encode} -o x.npy"), "x.npy", "serial.npy");
            same(&format!("convert {data} x.fvecs"), "x.fvecs", "serial.fvecs");
        }
    }
    let raw = run(at, "encode model.frosh all.npy -o - --threads 3");
    assert!(raw.stdout == read(at, "serial.npy")[128..]);
    // Two more, with another model: those of a quantiser.
    ok(at, "train good.npy --bytes 8 -o cells.frosh --quiet");
    ok(at, "encode cells.frosh good.npy -o one.frosh --threads 1 --quiet");
    ok(at, "encode cells.frosh good.npy -o five.frosh --threads 5 --quiet");
    assert!(read(at, "one.frosh") == read(at, "five.frosh"));
}

#[test]
fn an_index_and_an_evaluation_are_the_same_on_any_number_of_threads() {
    let dir = folder(&[]);
    let at = dir.path();
    let mut first = None;
    for (i, (data, threads)) in
        [("all.npy.gz", 1), ("all.npy", 1), ("all.npy", 3), (SEVERAL, 2)].into_iter().enumerate()
    {
        let name = format!("index-{i}");
        let build = "index build model.frosh";
        ok(at, &format!("{build} {data} --factors -o {name} --threads {threads} --quiet"));
        let folder = at.join(&name);
        let all: Vec<_> =
            files(&folder).into_iter().map(|file| (read(&folder, &file), file)).collect();
        assert!(*first.get_or_insert(all.clone()) == all, "{data}, {threads} threads");
    }
    let mut first = None;
    for (data, threads) in [("all.npy.gz", 2), ("all.npy", 1), ("all.npy", 5), (SEVERAL, 2)] {
        let eval = "eval model.frosh --held-out 20 -k 10 --base";
        let mut report = common::json(at, &format!("{eval} {data} --threads {threads}"));
        report["seconds"] = 0.into();
        assert_eq!(*first.get_or_insert(report.clone()), report, "{data}, {threads} threads");
    }
}

#[test]
fn the_first_bad_row_is_reported_and_nothing_is_left_behind() {
    let dir = folder(&[61_234, 61_235, 99_999]);
    let at = dir.path();
    let before = files(at);
    for job in ["encode model.frosh DATA -o x.frosh", "index build model.frosh DATA -o x"] {
        let mut first = None;
        for threads in [1, 2, 3, 5] {
            let output =
                run(at, &format!("{} --threads {threads}", job.replace("DATA", "all.npy")));
            assert_eq!(output.status.code(), Some(1), "{job}");
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(said.contains("all.npy, row 61234: column 50 is NaN"), "{job}: {said}");
            assert_eq!(*first.get_or_insert(said.clone()), said, "{job}, {threads} threads");
            assert!(job.starts_with("index") || files(at) == before, "{job}");
        }
        // The row of the file, and not of the stream.
        let output = run(at, &format!("{} --threads 2", job.replace("DATA", SEVERAL)));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("3-part.arrow, row 21233: column 50"), "{job}: {said}");
    }
}

#[test]
fn bad_rows_are_left_out_and_listed_the_same_way() {
    let bad = [0, 9, 39_999, 40_000, 61_234, 61_235, 99_999];
    let dir = folder(&bad);
    let at = dir.path();
    let skip = "--skip-bad --skipped list.txt --quiet";
    let mut first = None;
    for (data, threads) in
        [("all.npy.gz", 2), ("all.npy", 1), ("all.npy", 5), ("all.parquet", 2), (SEVERAL, 3)]
    {
        ok(at, &format!("encode model.frosh {data} -o x.frosh {skip} --threads {threads}"));
        let encoded = (read(at, "x.frosh"), read(at, "list.txt"));
        ok(at, &format!("convert {data} x.npy {skip} --threads {threads}"));
        let converted = (read(at, "x.npy"), read(at, "list.txt"));
        let index = format!("index-{}-{threads}", data.replace(' ', "-"));
        ok(at, &format!("index build model.frosh {data} -o {index} {skip} --threads {threads}"));
        let rows = common::json(at, &format!("index info {index}"))["rows"].clone();
        assert_eq!(rows, ROWS - bad.len());
        let all = (encoded, converted, read(at, "list.txt"));
        assert!(*first.get_or_insert(all.clone()) == all, "{data}, {threads} threads");
    }
    let list = String::from_utf8(first.unwrap().2).unwrap();
    let list: Vec<usize> = list.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(list, bad);
}

#[test]
fn a_file_that_is_cut_short_while_it_is_read_is_an_error() {
    let dir = folder(&[]);
    let at = dir.path();
    // Half of a page is missing in the middle of the values: the metadata at the end is still there.
    let mut parquet = read(at, "all.parquet");
    let middle = parquet.len() / 2;
    parquet.drain(middle..middle + 1000);
    std::fs::write(at.join("torn.parquet"), parquet).unwrap();
    for job in ["encode model.frosh torn.parquet -o x.frosh", "convert torn.parquet x.npy"] {
        for threads in [1, 3] {
            let output = run(at, &format!("{job} --threads {threads}"));
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{job}: {said}");
            assert!(said.starts_with("error: torn.parquet: "), "{job}: {said}");
            assert!(!at.join("x.frosh").exists() && !at.join("x.npy").exists());
        }
    }
}

/// The program may have 700 MB of addresses, and the file has 1.5 GB. It takes no room on the disk.
#[test]
#[cfg(target_os = "linux")]
fn memory_does_not_grow_with_the_file() {
    use std::os::unix::fs::FileExt as _;
    let dir = folder(&[]);
    let rows = 6_000_000;
    let header = common::npy(&format!("({rows}, {DIM})"), &[]);
    let file = std::fs::File::create(dir.path().join("long.npy")).unwrap();
    file.set_len((header.len() + rows * DIM * 4) as u64).unwrap();
    file.write_all_at(&header, 0).unwrap();
    let program = env!("CARGO_BIN_EXE_frosh");
    for job in ["encode model.frosh long.npy -o -", "convert long.npy - --to raw --type u8"] {
        let script = format!("ulimit -v 700000 && exec {program} {job} --threads 2 > /dev/null");
        let output =
            std::process::Command::new("sh").current_dir(dir.path()).args(["-c", &script]).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{job}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
