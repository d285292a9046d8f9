//! Runs on several threads: the model does not depend on threads, files or the way rows are read; bad rows, kills and
//! interrupts are as in one thread; and the codes are as good as those of one run.

mod common;
use common::{command, json, ok, run, skipped, values, write_npy};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const DIM: usize = 24;
const ROWS: usize = 30_000;

fn same(folder: &Path, a: &str, b: &str) {
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    assert!(read(a) == read(b), "{a} and {b} differ");
}

#[test]
fn threads_files_formats_and_pipes_do_not_matter() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path();
    let rows = values(ROWS, DIM, 1);
    write_npy(&folder.join("all.npy"), &rows, DIM);
    // Cut where no run ends.
    for (name, range) in [("a", 0..7001), ("b", 7001..7002), ("c", 7002..ROWS)] {
        write_npy(
            &folder.join(format!("{name}.npy")),
            &rows[range.start * DIM..range.end * DIM],
            DIM,
        );
    }
    for name in ["all.fvecs", "all.parquet", "all.arrow", "all.csv", "all.fbin"] {
        ok(folder, &format!("convert all.npy {name} --quiet"));
    }
    let gz = std::fs::File::create(folder.join("all.npy.gz")).unwrap();
    let packed =
        Command::new("gzip").args(["-1", "-c"]).arg(folder.join("all.npy")).stdout(gz).status();
    assert!(packed.unwrap().success());
    for job in [
        "--sketch-rows 24 --run-rows 2048",
        "--sketch-rows 24 --run-rows 5000 --method osh --half-life 9000",
        "--sketch-rows 20 --run-rows 4096 --method frosh-sparse --metric cosine --seed 5",
    ] {
        let of = |data: &str, more: &str, to: &str| {
            json(folder, &format!("sketch {data} {job} {more} -o {to}"))
        };
        let report = of("all.npy", "--threads 1", "one");
        assert_eq!(report["rows"], ROWS);
        for threads in [2, 3, 5] {
            of("all.npy", &format!("--threads {threads}"), "x");
            same(folder, "x", "one");
        }
        for data in [
            "a.npy b.npy c.npy",
            "all.fvecs",
            "all.parquet",
            "all.arrow",
            "all.csv",
            "all.fbin",
            "all.npy.gz",
        ] {
            of(data, "--threads 3", "x");
            same(folder, "x", "one");
        }
        // Rows in order: a pipe, and bad rows that are looked for.
        let pipe = std::fs::File::open(folder.join("all.npy")).unwrap();
        let mut piped = command(folder, &format!("sketch - {job} -o x --quiet"));
        assert!(piped.stdin(Stdio::from(pipe)).status().unwrap().success());
        same(folder, "x", "one");
        of("all.npy", "--skip-bad", "x");
        same(folder, "x", "one");
    }
    // A hash of the first row as the worker number. Another length of runs is another result.
    let of = |data: &str, run: u64, to: &str| {
        let job = format!("sketch {data} --worker auto --sketch-rows 24 --run-rows {run} -o {to}");
        ok(folder, &format!("{job} --quiet"));
    };
    of("all.npy", 2000, "a.sketch");
    of("all.csv", 2000, "b.sketch");
    same(folder, "a.sketch", "b.sketch");
    of("all.npy", 0, "c.sketch");
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    assert!(read("a.sketch") != read("c.sketch"));
    // Models, also with those in between.
    let job = "train all.npy --bits 12 --run-rows 2048";
    let report = json(folder, &format!("{job} --threads 3 -o a.frosh"));
    assert_eq!(report["threads"], 3);
    ok(folder, &format!("{job} --threads 1 -o b.frosh --quiet"));
    same(folder, "a.frosh", "b.frosh");
    ok(folder, &format!("{job} --refresh-every 20000 -o c.frosh --quiet"));
    same(folder, "a.frosh", "c.frosh");
}

#[test]
fn the_first_bad_row_is_reported_for_any_number_of_threads() {
    let dir = tempfile::tempdir().unwrap();
    let mut rows = values(ROWS, DIM, 2);
    write_npy(&dir.path().join("a.npy"), &rows[..10_000 * DIM], DIM);
    for bad in [17_000, 17_001, 29_999] {
        rows[bad * DIM + 2] = f32::NAN;
    }
    write_npy(&dir.path().join("b.npy"), &rows[10_000 * DIM..], DIM);
    for threads in [1, 2, 5] {
        let job = format!("train a.npy b.npy --bits 8 --run-rows 1000 --threads {threads} -o x");
        let output = run(dir.path(), &job);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(said.contains("b.npy") && said.contains("row 7000"), "{said}");
        assert!(!dir.path().join("x").exists());
    }
    // A file that is shorter than its header says.
    let whole = std::fs::read(dir.path().join("a.npy")).unwrap();
    std::fs::write(dir.path().join("short.npy"), &whole[..whole.len() - 50]).unwrap();
    let said = |threads: usize| {
        let job = format!("train short.npy --bits 8 --run-rows 1000 --threads {threads} -o x");
        String::from_utf8(run(dir.path(), &job).stderr).unwrap()
    };
    assert!(said(3).contains("short.npy"), "{}", said(3));
    assert_eq!(said(3), said(1));
}

#[test]
fn killed_between_runs_and_resumed_the_model_is_the_same() {
    let dir = tempfile::tempdir().unwrap();
    write_npy(&dir.path().join("a.npy"), &values(90_000, 48, 1), 48);
    write_npy(&dir.path().join("b.npy"), &values(60_000, 48, 2), 48);
    let job = "train a.npy b.npy --method osh --bits 24 --sketch-rows 96 --seed 9 --run-rows 3000";
    let clock = Instant::now();
    ok(dir.path(), &format!("{job} -o whole.frosh --quiet"));
    let whole = clock.elapsed();
    let job = format!("{job} --checkpoint state --checkpoint-every 0 -o parts.frosh");
    let mut places = Vec::new();
    for (moment, threads) in [(0.3, 2), (0.4, 3), (0.3, 1), (0.4, 5)] {
        let mut child = command(dir.path(), &format!("{job} --threads {threads}"));
        let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(whole.mul_f64(moment).max(Duration::from_millis(20)));
        child.kill().unwrap(); // SIGKILL
        child.wait().unwrap();
        if dir.path().join("state").exists() {
            places.push(json(dir.path(), "inspect state")["rows_seen"].as_u64().unwrap());
        }
        if dir.path().join("parts.frosh").exists() {
            break; // it was too fast
        }
    }
    assert!(places.is_sorted(), "{places:?}");
    assert!(places.iter().any(|rows| *rows >= 9000), "never in the middle: {places:?}");
    if !dir.path().join("parts.frosh").exists() {
        let report = json(dir.path(), &job);
        assert_eq!(report["resumed_at"].as_u64(), places.last().copied());
    }
    same(dir.path(), "whole.frosh", "parts.frosh");
    // Another length of runs is another job.
    std::fs::write(dir.path().join("parts.frosh"), "").unwrap();
    let mut child = command(dir.path(), &format!("{job} --threads 2 --force"));
    let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while !dir.path().join("state").exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before its first checkpoint");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let other = job.replace("--run-rows 3000", "--run-rows 4000");
    let said = String::from_utf8(run(dir.path(), &format!("{other} --force")).stderr).unwrap();
    assert!(said.contains("run-rows was 3000 then, and is 4000 now"), "{said}");
}

#[cfg(unix)]
#[test]
fn an_interrupt_keeps_the_first_runs_and_the_same_command_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    write_npy(&dir.path().join("a.npy"), &values(200_000, 48, 1), 48);
    let job = "train a.npy --method osh --bits 24 --sketch-rows 96 --run-rows 4000 --threads 3";
    ok(dir.path(), &format!("{job} -o whole.frosh --quiet"));
    let interrupted = |more: &str| {
        let mut child = command(dir.path(), &format!("{job} {more}"));
        let child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(150));
        let id = child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(130), "{said}");
        (String::from_utf8(output.stdout).unwrap(), said)
    };
    let (_, said) = interrupted("--checkpoint state -o parts.frosh");
    assert!(said.contains("the state is kept in state"), "{said}");
    let report = json(dir.path(), &format!("{job} --checkpoint state -o parts.frosh"));
    let at = report["resumed_at"].as_u64().unwrap();
    assert!(at > 0 && at < 200_000, "{at}");
    same(dir.path(), "whole.frosh", "parts.frosh");
    // Without a checkpoint, the model is that of the rows so far: its directions are theirs, and only the sample may be
    // smaller.
    let (report, said) = interrupted("--rotation random -o some.frosh --json");
    assert!(said.contains("some.frosh was learned from the"), "{said}");
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let rows = report["rows"].as_u64().unwrap() as usize;
    assert!(rows > 0 && rows < 200_000, "{rows}");
    write_npy(&dir.path().join("b.npy"), &values(200_000, 48, 1)[..rows * 48], 48);
    let again = job.replace("a.npy", "b.npy");
    ok(dir.path(), &format!("{again} --rotation random -o same.frosh --quiet"));
    let projection = |name: &str| json(dir.path(), &format!("inspect {name}"))["rows_seen"].clone();
    assert_eq!(projection("some.frosh"), projection("same.frosh"));
}

/// MAP and recall@10 of 64 bits on a data set.
fn quality(folder: &Path, data: &Path, options: &str) -> (f64, f64) {
    let data = data.display();
    let seeds = 3;
    let mut sum = (0.0, 0.0);
    for seed in 0..seeds {
        ok(
            folder,
            &format!("train {data} --bits 64 --seed {seed} {options} -o model --force --quiet"),
        );
        let report = json(folder, &format!("eval model --base {data} --held-out 300 -k 10"));
        let (map, recall) =
            (report["map"].as_f64().unwrap(), report["recall"]["10"].as_f64().unwrap());
        sum = (sum.0 + map, sum.1 + recall);
    }
    (sum.0 / f64::from(seeds), sum.1 / f64::from(seeds))
}

#[test]
fn codes_of_many_runs_find_as_much_as_those_of_one() {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let dir = tempfile::tempdir().unwrap();
    for name in ["bigann10k-sift128", "cifar10-gist512", "debian-minilm384", "glove100"] {
        let path = data.join(name).join("base.npy");
        if !path.exists() {
            skipped(&format!("{} is not there", path.display()));
            continue;
        }
        let one = quality(dir.path(), &path, "--run-rows 0");
        let many = quality(dir.path(), &path, "--run-rows 2048");
        eprintln!("{name}: MAP and recall@10 of one run {one:?}, of runs of 2,048 rows {many:?}");
        assert!(many.0 > one.0 - 0.01 && many.1 > one.1 - 0.01, "{name}: {many:?} and {one:?}");
    }
}
