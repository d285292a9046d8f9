//! Stop and go on: a run that is killed at any moment and started again ends with the same model, byte for
//! byte.

mod common;
use common::{command, files, json, ok, run, values, write_npy};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn killed_at_five_moments_and_resumed_the_model_is_the_same() {
    let dir = tempfile::tempdir().unwrap();
    // Two files, of different types, so that the place to go on from crosses a file's end.
    write_npy(&dir.path().join("a.npy"), &values(90_000, 48, 1), 48);
    write_npy(&dir.path().join("b.npy"), &values(60_000, 48, 2), 48);
    let job = "train a.npy b.npy --method osh --bits 24 --sketch-rows 96 --seed 9";
    let clock = Instant::now();
    ok(dir.path(), &format!("{job} -o whole.frosh --quiet"));
    let whole = clock.elapsed();

    let job = format!("{job} --checkpoint state --checkpoint-every 0 -o parts.frosh");
    let mut kills = 0;
    let mut places = Vec::new();
    for moment in [0.13, 0.19, 0.09, 0.16, 0.11] {
        let mut child =
            command(dir.path(), &job).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(whole.mul_f64(moment).max(Duration::from_millis(20)));
        child.kill().unwrap(); // SIGKILL
        child.wait().unwrap();
        kills += 1;
        if dir.path().join("state").exists() {
            places.push(json(dir.path(), "inspect state")["rows_seen"].as_u64().unwrap());
        }
        assert!(!dir.path().join("parts.frosh").exists(), "it was to be killed before its end");
    }
    assert_eq!(kills, 5);
    assert!(places.is_sorted() && places.last() > places.first(), "no progress: {places:?}");
    let report = json(dir.path(), &job);
    assert_eq!(report["resumed_at"].as_u64(), places.last().copied());
    let bytes = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    assert!(bytes("whole.frosh") == bytes("parts.frosh"), "the models differ");
    assert!(!dir.path().join("state").exists(), "a finished job needs no checkpoint");
    assert_eq!(files(dir.path()), ["a.npy", "b.npy", "parts.frosh", "whole.frosh"]);
}

/// Runs a job until its first checkpoint, `state`, is there, and kills it.
fn killed_after_a_checkpoint(folder: &Path, job: &str) {
    let mut child = command(folder, &format!("{job} --checkpoint state -o x"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    while !folder.join("state").exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before its first checkpoint");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_checkpoint_is_of_one_format_and_type() {
    let dir = tempfile::tempdir().unwrap();
    // Finite as f32 and as i8, and of the same dimension by --dim.
    let bytes: Vec<u8> = values(60_000, 48, 1).iter().flat_map(|x| x.to_le_bytes()).collect();
    std::fs::write(dir.path().join("a.raw"), bytes).unwrap();
    let job = "train a.raw --dim 48 --method osh --bits 24";
    killed_after_a_checkpoint(dir.path(), job);
    for (verb, options, reason) in [
        (
            "train",
            "--raw-type i8 --bits 24",
            r#"a.raw held values of type "f32" then, and "i8" now"#,
        ),
        ("sketch", "--raw-type u8 --sketch-rows 48", r#"a.raw held values of type "f32" then"#),
        ("train", "--format csv --bits 24", "a.raw"),
    ] {
        let arguments =
            format!("{verb} a.raw --dim 48 --method osh {options} --checkpoint state -o x");
        let output = run(dir.path(), &arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments}");
        assert!(said.contains(reason), "{arguments}: {said}");
    }
    // What is said now and was found out then is the same.
    let report =
        json(dir.path(), &format!("{job} --format raw --raw-type f32 --checkpoint state -o x"));
    assert!(report["resumed_at"].as_u64().unwrap() > 0);
    ok(dir.path(), &format!("{job} -o y --quiet"));
    let bytes = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    assert!(bytes("x") == bytes("y"));
}

#[test]
fn a_run_removes_what_killed_ones_left() {
    let dir = tempfile::tempdir().unwrap();
    write_npy(&dir.path().join("a.npy"), &values(40_000, 48, 1), 48);
    let job =
        "train a.npy --method osh --bits 24 --checkpoint state --checkpoint-every 0 -o x --force";
    // Names that look like ours, but are somebody's.
    let theirs = [".frosh-state.tmp", ".frosh-abcdef.tmp", "state.tmp"];
    theirs.iter().for_each(|name| std::fs::write(dir.path().join(name), "theirs").unwrap());
    let left = || files(dir.path()).into_iter().filter(|n| n.starts_with(".frosh-")).count() - 2;
    let clock = Instant::now();
    while left() == 0 {
        assert!(clock.elapsed() < Duration::from_secs(60), "no kill left anything");
        let mut child =
            command(dir.path(), job).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(30 + clock.elapsed().as_millis() as u64 % 50));
        child.kill().unwrap();
        child.wait().unwrap();
        let _ = std::fs::remove_file(dir.path().join("state"));
    }
    ok(dir.path(), &format!("{job} --quiet"));
    assert_eq!(left(), 0, "{:?}", files(dir.path()));
    theirs.iter().for_each(|name| assert!(dir.path().join(name).exists(), "{name}"));
}

#[test]
fn a_checkpoint_that_does_not_fit_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let rows = values(60_000, 48, 1);
    write_npy(&dir.path().join("a.npy"), &rows, 48);
    let written = dir.path().join("a.npy").metadata().unwrap().modified().unwrap();
    write_npy(&dir.path().join("b.npy"), &values(60_000, 48, 2), 48);
    let job = "train a.npy --method osh --bits 24";
    killed_after_a_checkpoint(dir.path(), job);
    let says = |arguments: &str, reason: &str| {
        let output = run(dir.path(), &format!("{arguments} --checkpoint state -o x"));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments}");
        assert!(said.contains(reason) && said.contains("state"), "{arguments}: {said}");
    };
    says(&format!("{job} --seed 4"), "seed was 0 then, and is 4 now");
    says(
        "train a.npy --method osh --bits 12",
        "it was made with --bits 24 (or --sketch-rows 48), and this run has --bits 12",
    );
    says("train a.npy --bits 24", "method was \"osh\" then, and is \"frosh\" now");
    says(&format!("{job} --metric cosine"), "metric was \"l2\" then");
    says("train b.npy --method osh --bits 24", "the content of b.npy has changed");
    says("train a.npy b.npy --method osh --bits 24", "1 files then, and there are 2 now");
    write_npy(&dir.path().join("a.npy"), &rows[48..], 48);
    says(job, "a.npy had 11520128 bytes then, and has 11519936 now");
    write_npy(&dir.path().join("a.npy"), &rows, 48);
    // As it was, but written later: nobody can tell without reading all of it.
    says(job, "a.npy has been modified since");
    let file = std::fs::File::options().append(true).open(dir.path().join("a.npy")).unwrap();
    file.set_modified(written).unwrap();
    let report = json(dir.path(), &format!("{job} --checkpoint state -o x"));
    assert!(report["resumed_at"].as_u64().unwrap() > 0);
    ok(dir.path(), &format!("{job} -o y --quiet"));
    let bytes = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    assert!(bytes("x") == bytes("y"));
}

#[test]
fn a_model_is_refreshed_after_every_so_many_rows_and_ends_the_same() {
    let dir = tempfile::tempdir().unwrap();
    write_npy(&dir.path().join("a.npy"), &values(5000, 16, 1), 16);
    ok(dir.path(), "train a.npy --bits 8 -o plain --quiet");
    ok(dir.path(), "train a.npy --bits 8 --refresh-every 1700 -o fresh --quiet");
    let bytes = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    assert!(bytes("plain") == bytes("fresh"));
    // Where the stream breaks off, the last refreshed model is there: that of the first 3,400 rows.
    let mut broken = values(5000, 16, 1);
    broken[4000 * 16] = f32::NAN;
    write_npy(&dir.path().join("b.npy"), &broken, 16);
    let output = run(dir.path(), "train b.npy --bits 8 --refresh-every 1700 -o fresh --force");
    assert_eq!(output.status.code(), Some(1));
    write_npy(&dir.path().join("c.npy"), &broken[..3400 * 16], 16);
    ok(dir.path(), "train c.npy --bits 8 -o plain --force --quiet");
    assert!(bytes("plain") == bytes("fresh"));
}
