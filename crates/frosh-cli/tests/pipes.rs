//! An index at the end of a pipe that does not end: it learns, makes new versions of its model, is killed, and goes on.
#![cfg(unix)]

mod common;
use common::{command, files, json, ok, rows_of_kind as rows, run, write_npy};
use serde_json::Value;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const DIM: usize = 32;
const COMMIT: usize = 500;
const STREAM: &str =
    "- --dim 32 --format raw --raw-type f32 --learn --refresh auto --commit-every 500";

/// A folder with an index of 1,000 rows. The stream has rows of the same kind at first, then of another, then of a third.
fn ground() -> (tempfile::TempDir, Vec<f32>) {
    let dir = tempfile::tempdir().unwrap();
    write_npy(&dir.path().join("old.npy"), &rows(1000, 0, 1), DIM);
    write_npy(&dir.path().join("q.npy"), &[rows(20, 1, 3), rows(20, 2, 4)].concat(), DIM);
    ok(dir.path(), "train old.npy --bits 16 -o model --quiet");
    ok(dir.path(), "index build model old.npy -o index --vectors f32 --quiet");
    (dir, [rows(1000, 0, 7), rows(3000, 1, 8), rows(4000, 2, 9)].concat())
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn start(folder: &Path, job: &str) -> Child {
    let mut program = command(folder, job);
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn feed(folder: &Path, job: &str, values: &[f32]) -> Output {
    let mut child = start(folder, job);
    let mut input = child.stdin.take().unwrap();
    let bytes = bytes(values);
    let writer = std::thread::spawn(move || drop(input.write_all(&bytes)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

/// What a search finds, and how many rows each version has.
fn answers(folder: &Path, index: &str) -> (String, Vec<u64>) {
    let found = ok(
        folder,
        &format!("index search {index} --queries q.npy --rank estimated --oversample 0 --json"),
    );
    let info = json(folder, &format!("index info {index} --check"));
    assert_eq!(info["other_files"], serde_json::json!([]));
    let versions = info["versions"].as_array().unwrap();
    (found, versions.iter().map(|version| version["rows"].as_u64().unwrap()).collect())
}

fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir(to).unwrap();
    for name in files(from) {
        std::fs::copy(from.join(&name), to.join(&name)).unwrap();
    }
}

#[test]
fn a_stream_is_added_learned_and_refreshed() {
    let (dir, stream) = ground();
    let here = dir.path();
    let output = feed(here, &format!("index add index {STREAM} --json"), &stream);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.is_empty(), "{said}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (last, commits) = lines.split_last().unwrap();
    assert_eq!((&last["added"], &last["learned_rows"]), (&8000.into(), &9000.into()));
    let committed: Vec<u64> = commits.iter().map(|l| l["committed"].as_u64().unwrap()).collect();
    let every: Vec<u64> = (1..=16).map(|i| i * COMMIT as u64).collect();
    assert_eq!(committed.iter().filter(|c| **c > 0).copied().collect::<Vec<_>>()[..16], every);
    let made = commits.iter().filter(|line| line["refreshed"] == true).count();
    assert!((1..10).contains(&made), "{text}");
    // A stream of the same kind makes no version.
    let before: Vec<bool> = commits
        .iter()
        .filter(|line| line["committed"].as_u64().unwrap() <= 1000)
        .map(|line| line["refreshed"] == true)
        .collect();
    assert!(!before.contains(&true), "{text}");
    let (_, versions) = answers(here, "index");
    assert_eq!((versions.len(), versions.iter().sum::<u64>()), (made + 1, 9000));
    // The sketch is kept: a refresh needs nothing else, and none is due now or only a small one.
    let refresh = json(here, "index refresh index --gap 0.5");
    assert_eq!(refresh["refreshed"], false);
    // Without --refresh the rows are learned, and no version is made.
    let more =
        feed(here, "index add index - --dim 32 --format raw --learn --json", &stream[..DIM * 9]);
    assert!(more.status.success());
    let info = json(here, "index info index");
    assert_eq!((&info["rows"], &info["learned_rows"]), (&9009.into(), &9009.into()));
}

/// The stream is cut at random places by kill -9. Each time it goes on at the rows that the index has. At the end the index
/// answers as one that was never killed.
#[test]
fn killed_at_any_moment_it_goes_on_without_loss() {
    let (dir, stream) = ground();
    let here = dir.path();
    copy(&here.join("index"), &here.join("whole"));
    let clock = Instant::now();
    let output = feed(here, &format!("index add whole {STREAM}"), &stream);
    let time = clock.elapsed();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let want = answers(here, "whole");
    assert!(want.1.len() > 1, "{:?}", want.1);
    for resume in [false, true] {
        copy(&here.join("index"), &here.join("try"));
        let job = format!("index add try {STREAM}{}", if resume { " --resume" } else { "" });
        let (mut kills, mut progress) = (0, std::collections::BTreeSet::new());
        loop {
            let rows = json(here, "index info try --check")["rows"].as_u64().unwrap() as usize;
            let taken = rows - 1000;
            assert!(taken.is_multiple_of(COMMIT), "{taken}");
            progress.insert(taken);
            let from = if resume { 0 } else { taken * DIM };
            // The last run is not killed, and has rows to add.
            let last = stream.len() / DIM - 2 * COMMIT;
            if kills == 12 || taken >= last {
                let output = feed(here, &job, &stream[from..]);
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                break;
            }
            let mut child = start(here, &job);
            let rest = bytes(&stream[from..last.min(taken + 4 * COMMIT) * DIM]);
            let mut input = child.stdin.take().unwrap();
            let writer = std::thread::spawn(move || drop(input.write_all(&rest)));
            std::thread::sleep(time.mul_f64([0.05, 0.2, 0.1, 0.3][kills % 4]));
            let _ = child.kill(); // SIGKILL; it may have ended
            child.wait().unwrap();
            writer.join().unwrap();
            kills += 1;
        }
        assert!(kills >= 2 && progress.len() >= 2, "{kills} kills, at {progress:?}");
        assert!(answers(here, "try") == want, "resume: {resume}");
    }
}

#[test]
fn an_interrupt_commits_what_was_read() {
    let (dir, _) = ground();
    let here = dir.path();
    let mut child =
        start(here, "index add index - --dim 32 --format raw --raw-type f32 --learn --json");
    let mut input = child.stdin.take().unwrap();
    // Two batches of 2 MB, and a part of a third.
    let stream = rows(40_000, 0, 7);
    input.write_all(&bytes(&stream)).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    std::thread::sleep(Duration::from_millis(50));
    drop(input);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("rows read until then were added"), "{said}");
    let info = json(here, "index info index --check");
    assert_eq!(info["rows"], info["learned_rows"]);
    assert!(info["rows"].as_u64().unwrap() > 1000, "{info}");
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let (dir, _) = ground();
    let here = dir.path();
    ok(here, "index build model old.npy -o bare --quiet");
    let before = files(&here.join("bare"));
    let output = run(here, "index add bare old.npy --learn --refresh auto");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("--vectors") && said.contains("--keep-codes"), "{said}");
    assert_eq!(files(&here.join("bare")), before);
    for arguments in [
        "index add bare old.npy --refresh auto",
        "index add bare old.npy --resume",
        "index add bare old.npy --learn --refresh sometimes",
        "index add bare old.npy --learn --commit-every 0",
    ] {
        assert_eq!(run(here, arguments).status.code(), Some(2), "{arguments}");
    }
    // Without vectors the rows keep their codes, and the new model takes those that follow.
    write_npy(&here.join("new.npy"), &rows(4000, 2, 9), DIM);
    ok(
        here,
        "index add bare new.npy --learn --refresh auto --keep-codes --commit-every 1000 --quiet",
    );
    let info = json(here, "index info bare --check");
    assert!(info["versions"].as_array().unwrap().len() > 1, "{info}");
    assert_eq!(info["rows"], 5000);
    // A half-life is set when the sketch begins.
    let output = run(here, "index add bare new.npy --learn --half-life 500");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("cannot be changed"), "{said}");
    ok(here, "index add index new.npy --learn --half-life 500 --quiet");
    ok(here, "index add index new.npy --learn --half-life 500 --quiet");
    // A bad row ends it. What was committed before stays, and the index and its sketch fit each other.
    let mut bad = rows(2000, 2, 10);
    bad[1700 * DIM] = f32::NAN;
    write_npy(&here.join("bad.npy"), &bad, DIM);
    let output = run(here, "index add bare bad.npy --learn --commit-every 500");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("row 1700"), "{said}");
    let info = json(here, "index info bare --check");
    assert_eq!((&info["rows"], &info["learned_rows"]), (&6500.into(), &5500.into()));
}
