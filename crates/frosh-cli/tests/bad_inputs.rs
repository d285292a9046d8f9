//! Bad input and bad luck: each gives its message and exit code 1 (2 for wrong usage), never a panic, and
//! leaves nothing half-written behind.

mod common;
use common::{command, files, npy, ok, run, values, write_npy};
use std::io::Read as _;
use std::path::Path;
use std::process::Stdio;

/// A folder with good and bad files.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let good = values(400, 8, 1);
    write_npy(&at("good.npy"), &good, 8);
    write_npy(&at("wide.npy"), &values(50, 9, 2), 9);
    let mut nan = good.clone();
    nan[7 * 8 + 3] = f32::NAN;
    write_npy(&at("nan.npy"), &nan, 8);
    write_npy(&at("all-nan.npy"), &[f32::NAN; 16], 8);
    let bytes = npy("(400, 8)", &good);
    std::fs::write(at("empty.npy"), []).unwrap();
    std::fs::write(at("cut.npy"), &bytes[..bytes.len() - 5]).unwrap();
    std::fs::write(at("hostile.npy"), npy("(4611686018427387904, 8388608)", &good)).unwrap();
    std::fs::write(at("wrong.npy"), b"this is no NumPy file at all").unwrap();
    std::fs::write(at("hostile.fbin"), [255; 40]).unwrap();
    std::fs::write(at("mixed.fvecs"), {
        let row = |dim: u32| {
            let mut row = dim.to_le_bytes().to_vec();
            (0..dim).for_each(|i| row.extend((i as f32).to_le_bytes()));
            row
        };
        // Three rows of 4, of which the second claims 3: the size fits, the row does not.
        let mut bytes = [row(4), row(4), row(4)].concat();
        bytes[20..24].copy_from_slice(&3u32.to_le_bytes());
        bytes
    })
    .unwrap();
    std::fs::write(at("words.csv"), "1,2\n3,four\n").unwrap();
    std::fs::write(at("unknown.dat"), "1,2\n").unwrap();
    std::fs::write(at("399.txt"), "1\n".repeat(399)).unwrap();
    std::fs::write(at("400.txt"), "1\n".repeat(400)).unwrap();
    std::fs::write(at("words.txt"), "1\ncat\n").unwrap();
    std::fs::create_dir(at("nothing")).unwrap();
    ok(dir.path(), "train good.npy --bits 8 -o model.frosh --quiet");
    ok(dir.path(), "train good.npy --bits 8 --seed 5 -o other.frosh --quiet");
    ok(dir.path(), "sketch good.npy -o good.sketch --quiet");
    ok(dir.path(), "encode other.frosh good.npy -o other-codes.frosh --quiet");
    ok(dir.path(), "encode model.frosh good.npy -o codes.frosh --quiet");
    ok(dir.path(), "index build model.frosh good.npy -o index --quiet");
    let mut state = frosh::Sketcher::new(frosh::Config::new(8)).unwrap();
    state.push(frosh::Rows::new(&good, 8).unwrap()).unwrap();
    state.save(at("state")).unwrap();
    write_npy(&at("equal.npy"), &good[..8].repeat(400), 8);
    ok(dir.path(), "convert good.npy good.fbin --quiet");
    ok(dir.path(), "convert good.npy good.parquet --quiet");
    ok(dir.path(), "convert good.npy good.csv --quiet");
    let model = std::fs::read(at("model.frosh")).unwrap();
    std::fs::write(at("torn.frosh"), &model[..model.len() / 2]).unwrap();
    let place = model.windows(13).position(|w| w == br#""version":"1""#).unwrap();
    let mut later = model.clone();
    later[place + 11] = b'9';
    std::fs::write(at("later.frosh"), later).unwrap();
    let last = model.len() - 1;
    let mut flipped = model;
    flipped[last] ^= 1;
    std::fs::write(at("flipped.frosh"), flipped).unwrap();
    dir
}

/// Arguments, what the message must contain, exit code.
const TABLE: &[(&str, &[&str], i32)] = &[
    ("train missing.npy -o x", &["missing.npy", "No such file"], 1),
    ("train nothing -o x", &["nothing", "no file whose name tells a format"], 1),
    ("train no-*.npy -o x", &["no file matches"], 1),
    ("train empty.npy -o x", &["empty.npy", "is empty"], 1),
    ("train cut.npy -o x", &["cut.npy", "400 rows of 8", "12800 bytes", "12795", "cut short"], 1),
    ("train wrong.npy -o x", &["wrong.npy", "named as npy", "--format"], 1),
    (
        "train hostile.npy -o x",
        &["hostile.npy", "4611686018427387904 rows", "cut short or damaged"],
        1,
    ),
    ("train hostile.fbin -o x", &["hostile.fbin", "4294967295 dimensions"], 1),
    ("train mixed.fvecs --bits 4 -o x", &["mixed.fvecs, row 1: has dimension 3, expected 4"], 1),
    ("train good.npy wide.npy -o x", &["good.npy", "8 dimensions", "wide.npy", "has 9"], 1),
    ("train nan.npy --bits 8 -o x", &["nan.npy, row 7: column 3 is NaN", "--skip-bad"], 1),
    ("train words.csv --bits 2 -o x", &["words.csv, row 1", "four"], 1),
    ("train unknown.dat -o x", &["unknown.dat", "--format"], 1),
    ("train good.parquet --column embedding -o x", &["good.parquet", "embedding", "vector"], 1),
    ("train good.npy --bits 9 -o x", &["9 bits", "8"], 1),
    ("train good.npy --bits 8 --sketch-rows 15 -o x", &["sketch_rows = 15", "even"], 1),
    ("train good.npy --bits 8 -o missing/x", &["missing/x", "No such file"], 1),
    ("train good.npy --bits 8 -o nothing", &["nothing", "is a folder"], 1),
    ("encode model.frosh wide.npy -o x", &["model.frosh", "8 dimensions", "wide.npy", "9"], 1),
    ("encode model.frosh nan.npy -o x.npy", &["nan.npy, row 7: column 3 is NaN"], 1),
    ("encode later.frosh good.npy -o x", &["later.frosh", "version 9", "newer frosh"], 1),
    ("encode torn.frosh good.npy -o x", &["torn.frosh", "cut short or damaged"], 1),
    ("encode flipped.frosh good.npy -o x", &["flipped.frosh", "checksum"], 1),
    (
        "encode good.npy good.npy -o x",
        &["good.npy is a file of vectors", "model comes first: frosh encode"],
        1,
    ),
    ("encode other-codes.frosh good.npy -o x", &["is a codes file", "the model comes first"], 1),
    ("encode good.sketch good.npy -o x", &["is a sketch, not a model", "frosh fit good.sketch"], 1),
    ("encode state good.npy -o x", &["state is a checkpoint", "finish it"], 1),
    (
        "encode model.frosh other.frosh -o x",
        &["other.frosh is a model, but vectors are expected"],
        1,
    ),
    ("train model.frosh -o x", &["model.frosh is a model, but vectors are expected"], 1),
    (
        "search other-codes.frosh other.frosh --queries good.npy",
        &["is a codes file", "model comes first: frosh search MODEL CODES"],
        1,
    ),
    (
        "search model.frosh index --queries good.npy",
        &["index is an index", "frosh index search index"],
        1,
    ),
    (
        "search index model.frosh --queries good.npy",
        &["index is an index", "frosh index search index"],
        1,
    ),
    (
        "search model.frosh other.frosh --queries good.npy",
        &["other.frosh is a model, not codes"],
        1,
    ),
    (
        "search model.frosh good.fbin --queries good.npy",
        &["good.fbin is a file of vectors, not codes"],
        1,
    ),
    (
        "search model.frosh codes.frosh --queries good.sketch",
        &["good.sketch is a sketch, but vectors"],
        1,
    ),
    ("eval good.sketch --base good.npy", &["frosh fit good.sketch"], 1),
    (
        "index search codes.frosh --queries good.npy",
        &["codes file, not an index", "frosh search MODEL"],
        1,
    ),
    (
        "index add model.frosh good.npy",
        &["model.frosh is a model, not an index", "frosh index build"],
        1,
    ),
    (
        "index build good.npy model.frosh -o x",
        &["good.npy is a file of vectors", "model comes first"],
        1,
    ),
    ("index info good.sketch", &["good.sketch is a sketch, not an index"], 1),
    ("merge good.sketch state -o x", &["state is a checkpoint, not a sketch"], 1),
    (
        "fit good.npy -o x",
        &["good.npy is a file of vectors, not a sketch", "frosh sketch good.npy"],
        1,
    ),
    ("train good.npy --bits -8 -o x", &["invalid value '-8' for '--bits", "from 1 to 8192"], 2),
    ("calibrate model.frosh --base good.npy --bits -8", &["invalid value '-8' for '--bits"], 2),
    ("search model.frosh codes.frosh --queries good.npy -k -1", &["'-1' for '-k"], 2),
    ("train equal.npy --bits 8 -o x", &["400 rows that are all equal", "--allow-constant"], 1),
    (
        "train good.npy --bits 8 --seed 3 -o model.frosh",
        &["model.frosh is a model already", "--force"],
        1,
    ),
    ("fit good.sketch --bits 4 -o model.frosh", &["model.frosh is a model already", "--force"], 1),
    ("search model.frosh other-codes.frosh --queries good.npy", &["other-codes.frosh", "model"], 1),
    ("search other.frosh other-codes.frosh --queries good.npy --rerank wide.npy", &["8", "9"], 1),
    ("eval model.frosh --base good.npy --held-out 500", &["good.npy", "500 of 400 rows"], 1),
    ("fit good.sketch --bits 9 -o x", &["good.sketch", "9 bits"], 1),
    ("calibrate good.sketch --base good.npy --bits 9", &["good.sketch", "9 bits"], 1),
    ("train all-nan.npy --bits 8 --skip-bad -o x", &["all-nan.npy", "no rows to learn from"], 1),
    ("train good.npy --bits 8 --block-rows 1073741824 -o x", &["1073741824", "67108864"], 1),
    (
        "eval model.frosh --base good.npy --labels 399.txt",
        &["399.txt: 399 labels, expected 400, one for each row of the base"],
        1,
    ),
    (
        "eval model.frosh --base good.csv --labels 399.txt --queries good.csv --query-labels 400.txt",
        &["399.txt: 399 labels, expected 400, one for each row of the base"],
        1,
    ),
    (
        "eval model.frosh --base good.npy --labels 400.txt --queries good.npy --query-labels 399.txt",
        &["399.txt: 399 labels, expected 400, one for each row of --queries"],
        1,
    ),
    (
        "eval model.frosh --base good.npy --labels 400.txt --queries good.npy",
        &["--query-labels"],
        1,
    ),
    (
        "eval model.frosh --base good.npy --labels words.txt",
        &["words.txt: 2 labels", "expected 400"],
        1,
    ),
    ("eval model.frosh --base good.npy --labels good.npy", &["good.npy", "(400, 8)", "(rows,)"], 1),
    ("eval model.frosh --base good.npy --labels missing.txt", &["missing.txt", "No such file"], 1),
    ("eval model.frosh --base good.npy --labels 400.txt --truth 5", &["--labels", "--truth"], 2),
    ("eval model.frosh --base good.npy --query-labels 400.txt", &["--labels"], 2),
    ("merge model.frosh -o x", &["model.frosh is a model, not a sketch"], 1),
    ("fit model.frosh -o x", &["model.frosh is a model, not a sketch"], 1),
    ("inspect missing", &["missing", "No such file"], 1),
    ("inspect unknown.dat", &["unknown.dat", "--format"], 1),
    ("convert good.npy x.bvecs", &["good.npy, row 0", "u8 cannot hold", "--type"], 1),
    ("convert good.npy - --to npy", &["npy cannot be written to standard output", "--to"], 1),
    (
        "train good.npy --column a -o x",
        &["no file is Parquet, Arrow or JSON Lines", "leave out --column"],
        1,
    ),
    (
        "train good.npy --dataset a -o x",
        &["no file is HDF5, .npz or safetensors", "leave out --dataset"],
        1,
    ),
    ("train good.npy --dim 9 -o x", &["good.npy", "8 dimensions", "set to 9", "check --dim"], 1),
    ("train good.parquet --column id -o x", &["no column \"id\"", "vector", "--column"], 1),
    ("inspect good.parquet --column id", &["no column \"id\"", "vector", "--column"], 1),
    ("convert good.npy x.dat", &["x.dat", "--to"], 1),
    ("convert good.npy x.npy.gz", &["x.npy.gz", "compress it afterwards"], 1),
    ("train good.npy --bits 8 --checkpoint model.frosh -o x", &["model.frosh", "checkpoint"], 1),
    ("train", &["required", "Usage"], 2),
    ("train good.npy", &["--output"], 2),
    ("train good.npy --method best -o x", &["best", "frosh-sparse"], 2),
    ("train good.npy --bits many -o x", &["many"], 2),
    ("serve", &["serve"], 2),
];

#[test]
fn bad_input_gives_its_message_and_exit_code_and_leaves_nothing() {
    let dir = folder();
    let before = files(dir.path());
    for (arguments, wanted, code) in TABLE {
        let output = run(dir.path(), arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(*code), "frosh {arguments}: {said}");
        assert!(!said.contains("panicked"), "frosh {arguments}: {said}");
        for part in *wanted {
            assert!(said.contains(part), "frosh {arguments} should mention {part:?}: {said}");
        }
        if *code == 1 {
            assert_eq!(said.lines().count(), 1, "one line: {said}");
        }
        assert_eq!(files(dir.path()), before, "frosh {arguments} left something behind");
    }
}

#[test]
fn advice_names_only_flags_that_the_verb_has() {
    let dir = folder();
    ok(dir.path(), "encode model.frosh good.npy -o codes.frosh --quiet");
    for arguments in [
        "encode model.frosh nan.npy -o x",
        "search model.frosh codes.frosh --queries nan.npy",
        "eval model.frosh --base nan.npy",
        "index build model.frosh nan.npy --no-factors -o x",
    ] {
        let output = run(dir.path(), arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "frosh {arguments}: {said}");
        assert!(said.contains("nan.npy, row 7: column 3 is NaN"), "frosh {arguments}: {said}");
        assert!(said.contains("; --skip-bad leaves such rows out"), "frosh {arguments}: {said}");
        assert_eq!(said.matches("--").count(), 1, "frosh {arguments}: {said}");
    }
    // The format of labels is found by content and name: --format is for the base.
    std::fs::write(dir.path().join("labels.npy"), "1\n2\n").unwrap();
    let output = run(dir.path(), "eval model.frosh --base good.npy --labels labels.npy");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("labels.npy: is named as npy") && !said.contains("--"), "{said}");
}

#[test]
fn a_model_is_replaced_only_by_force() {
    let dir = folder();
    let read = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    let before = read("model.frosh");
    for job in ["train good.npy --bits 8 --seed 3", "fit good.sketch --bits 4"] {
        assert_eq!(
            run(dir.path(), &format!("{job} -o model.frosh")).status.code(),
            Some(1),
            "{job}"
        );
        assert!(read("model.frosh") == before, "{job}");
        ok(dir.path(), &format!("{job} -o model.frosh --force --quiet"));
        assert!(read("model.frosh") != before, "{job}");
        std::fs::write(dir.path().join("model.frosh"), &before).unwrap();
    }
    // The same model again, and a file that is none.
    ok(dir.path(), "fit good.sketch --bits 8 -o fitted.frosh --quiet");
    ok(dir.path(), "fit good.sketch --bits 8 -o fitted.frosh --quiet");
    std::fs::write(dir.path().join("note.txt"), "x").unwrap();
    ok(dir.path(), "train good.npy --bits 8 -o note.txt --quiet");
}

#[test]
fn equal_rows_are_learned_from_only_on_request() {
    let dir = folder();
    let report = common::json(dir.path(), "train equal.npy --bits 8 --allow-constant -o x.frosh");
    assert_eq!(report["rank"], 0);
    ok(dir.path(), "train equal.npy --bits 8 --method lsh -o lsh.frosh --quiet");
    ok(dir.path(), "sketch equal.npy -o equal.sketch --quiet");
    let output = run(dir.path(), "fit equal.sketch --bits 8 -o y.frosh");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("--allow-constant"), "{said}");
    assert!(!dir.path().join("y.frosh").exists());
    ok(dir.path(), "fit equal.sketch --bits 8 --allow-constant -o y.frosh --quiet");
}

#[test]
fn a_refused_write_keeps_the_file_that_was_there() {
    let dir = folder();
    let model = dir.path().join("model.frosh");
    let before = std::fs::read(&model).unwrap();
    assert_eq!(
        run(dir.path(), "train nan.npy --bits 8 --force -o model.frosh").status.code(),
        Some(1)
    );
    assert_eq!(std::fs::read(&model).unwrap(), before);
}

#[test]
fn bad_rows_are_left_out_where_asked() {
    let dir = folder();
    let report = common::json(dir.path(), "train nan.npy --bits 8 --skip-bad -o x.frosh");
    assert_eq!((report["rows"].as_u64(), report["left_out"].as_u64()), (Some(399), Some(1)));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_and_leaves_nothing() {
    let dir = folder();
    let full = || Stdio::from(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    for arguments in ["convert good.npy - --to csv", "inspect model.frosh", "--help"] {
        let output = command(dir.path(), arguments).stdout(full()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("panicked"), "{said}");
        if arguments != "--help" {
            assert_eq!(output.status.code(), Some(1), "frosh {arguments}: {said}");
            assert!(said.contains("No space left"), "{said}");
        }
    }
    // A small disk of our own, where we may make one.
    let disk = dir.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let mount = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=16k", "tmpfs"])
        .arg(&disk)
        .output();
    if !mount.is_ok_and(|mounted| mounted.status.success()) {
        common::skipped("mounting a small disk is not allowed here");
        return;
    }
    let mut results = Vec::new();
    for arguments in [
        "convert good.npy disk/x.npy",
        "train good.npy --reservoir 4000 --bits 8 \
        --checkpoint disk/state --checkpoint-every 0 -o x",
        "convert good.npy disk/x.parquet",
        "convert good.npy disk/x.hdf5",
    ] {
        // Twice what the disk holds.
        let arguments = arguments.replacen("good.npy", "good.npy good.npy good.npy", 1);
        let output = run(dir.path(), &arguments);
        // A checkpoint from before the disk was full is whole, and stays.
        let left = files(&disk).into_iter().filter(|name| name != "state").collect::<Vec<_>>();
        if disk.join("state").exists() {
            frosh::Sketcher::load(disk.join("state")).unwrap();
        }
        results.push((arguments, output, left));
    }
    let _ = std::process::Command::new("umount").arg(&disk).status();
    for (arguments, output, left) in results {
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "frosh {arguments}: {said}");
        assert!(said.contains("No space left"), "frosh {arguments}: {said}");
        assert!(left.is_empty(), "frosh {arguments} left {left:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_folder_that_may_not_be_written_is_an_error() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = folder();
    let locked = dir.path().join("locked");
    std::fs::create_dir(&locked).unwrap();
    std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(0o555)).unwrap();
    // Nothing is locked for the super-user; for whom there is /proc.
    let target = if std::fs::write(locked.join("try"), "").is_ok() { "/proc" } else { "locked" };
    for verb in
        ["train good.npy --bits 8", "encode model.frosh good.npy", "convert --to npy good.npy"]
    {
        let place = format!("{target}/x");
        let arguments = if verb.starts_with("convert") {
            format!("{verb} {place}")
        } else {
            format!("{verb} -o {place}")
        };
        let output = run(dir.path(), &arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(&place), "{said}");
    }
}

#[test]
fn a_reader_that_stops_is_the_end_and_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    write_npy(&dir.path().join("many.npy"), &values(20_000, 16, 3), 16);
    let mut child = command(dir.path(), "convert many.npy - --to csv")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut start = [0u8; 10];
    child.stdout.take().unwrap().read_exact(&mut start).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn standard_input_needs_its_dimension() {
    let dir = folder();
    let feed = |arguments: &str, bytes: &[u8]| {
        let path = dir.path().join("feed");
        std::fs::write(&path, bytes).unwrap();
        let input = std::fs::File::open(&path).unwrap();
        command(dir.path(), arguments).stdin(input).output().unwrap()
    };
    let raw: Vec<u8> = values(400, 8, 1).iter().flat_map(|x| x.to_le_bytes()).collect();
    let output = feed("train - --bits 8 -o x", &raw);
    assert!(String::from_utf8_lossy(&output.stderr).contains("--dim"));
    let output = feed("train - --bits 8 --dim 8 -o from-stdin.frosh", &raw);
    assert!(output.status.success());
    assert_same(dir.path(), "from-stdin.frosh", "model.frosh");
    let output = feed("train - --bits 8 --dim 8 -o x", &raw[..raw.len() - 3]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("-, row 399") && said.contains("cut short"), "{said}");
    let output = feed("train - --bits 8 --dim 8 --checkpoint c -o x", &raw);
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("standard input cannot be read again")
    );
    let output =
        feed("train - --bits 8 -o x", &std::fs::read(dir.path().join("good.parquet")).unwrap());
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot be read from a stream"));
}

fn assert_same(folder: &Path, a: &str, b: &str) {
    let bytes = |name| std::fs::read(folder.join(name)).unwrap();
    assert!(bytes(a) == bytes(b), "{a} and {b} differ");
}

#[test]
fn an_output_that_is_an_input_is_refused_and_nothing_is_lost() {
    let dir = folder();
    ok(dir.path(), "sketch good.npy -o good.sketch --quiet");
    let bytes = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    let before = ["good.npy", "model.frosh", "good.sketch"].map(bytes);
    for arguments in [
        "train good.npy --bits 8 -o good.npy",
        "train good.npy --bits 8 --checkpoint good.npy -o x",
        "train good.npy --bits 8 --checkpoint new -o new",
        "encode model.frosh good.npy -o good.npy",
        "encode model.frosh good.npy -o model.frosh",
        "fit good.sketch --bits 8 -o good.sketch",
        "merge good.sketch -o good.sketch",
        "convert good.npy good.npy --type f16",
    ] {
        let output = run(dir.path(), arguments);
        assert_eq!(output.status.code(), Some(1), "frosh {arguments}");
    }
    assert!(["good.npy", "model.frosh", "good.sketch"].map(bytes) == before);
    let output = run(dir.path(), "merge good.sketch good.sketch -o x");
    assert!(String::from_utf8_lossy(&output.stderr).contains("would count twice"));
}

#[cfg(unix)]
#[test]
fn a_pipe_by_its_path_is_read_from_its_first_byte() {
    let dir = tempfile::tempdir().unwrap();
    let text = "1,2\n3,4\n5,6\n7,8\n";
    std::fs::write(dir.path().join("a.csv"), text).unwrap();
    let input = Stdio::from(std::fs::File::open(dir.path().join("a.csv")).unwrap());
    let mut cat =
        std::process::Command::new("cat").stdin(input).stdout(Stdio::piped()).spawn().unwrap();
    let output = command(dir.path(), "convert /dev/stdin - --format csv --to csv")
        .stdin(cat.stdout.take().unwrap())
        .output()
        .unwrap();
    cat.wait().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), text);
}
