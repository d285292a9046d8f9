//! What the system does to the program: pipes, signals, limits, full devices, odd names.
#![cfg(target_os = "linux")]

mod common;
use common::{command, files, json, ok, run, values, write_npy};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn shell(folder: &Path, script: &str) -> Output {
    let script = script.replace("frosh ", &format!("{} ", env!("CARGO_BIN_EXE_frosh")));
    Command::new("sh").current_dir(folder).args(["-c", &script]).output().unwrap()
}

/// Waits for an end, which must come within a minute.
fn ends(mut child: Child) -> Output {
    let clock = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if clock.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("it hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

#[test]
fn a_pipe_is_read_once() {
    let dir = tempfile::tempdir().unwrap();
    write_npy(&dir.path().join("a.npy"), &values(400, 8, 1), 8);
    ok(dir.path(), "train a.npy --bits 8 -o model --quiet");
    ok(dir.path(), "encode model a.npy -o codes --quiet");
    std::fs::write(dir.path().join("ids"), "1\n2\n3\n").unwrap();
    let text = "1 2:3\n".repeat(9);
    std::fs::write(dir.path().join("a.libsvm"), text).unwrap();
    assert!(Command::new("mkfifo").arg(dir.path().join("pipe")).status().unwrap().success());
    for (content, arguments, said) in [
        ("a.npy", "inspect pipe", "vectors"),
        ("a.npy", "inspect pipe --json", "\"rows\":400"),
        (
            "a.libsvm",
            "inspect pipe --format libsvm",
            "a stream is not read twice; set the dimension with --dim",
        ),
        ("a.libsvm", "inspect pipe --format libsvm --dim 2", "vectors"),
        ("ids", "search model codes --queries a.npy -k 1 --only pipe", "distance"),
        (
            "a.npy",
            "search model codes --queries a.npy -k 1 --rerank pipe",
            "save it as a file first",
        ),
    ] {
        for _ in 0..3 {
            let mut program = command(dir.path(), arguments);
            let child = program.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let feed = Command::new("sh")
                .current_dir(dir.path())
                .args(["-c", &format!("cat {content} > pipe")])
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let output = ends(child);
            ends(feed);
            let all = [output.stdout, output.stderr].concat();
            let all = String::from_utf8_lossy(&all);
            assert!(all.contains(said), "frosh {arguments}: {all}");
        }
    }
}

#[test]
fn a_standard_error_that_is_full_or_closed_is_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    write_npy(&dir.path().join("a.npy"), &values(400, 8, 1), 8);
    for script in [
        "frosh inspect missing 2>/dev/full",
        "frosh inspect missing 2>&-",
        "frosh train a.npy --bits 9 -o x 2>/dev/full",
    ] {
        let output = shell(dir.path(), script);
        assert_eq!(output.status.code(), Some(1), "{script}");
    }
    assert_eq!(shell(dir.path(), "frosh serve 2>/dev/full").status.code(), Some(2));
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    write_npy(&dir.path().join("a.npy"), &values(20_000, 8, 1), 8);
    let before = files(dir.path());
    for job in ["convert a.npy x.fbin", "train a.npy --bits 8 -o x", "sketch a.npy -o x"] {
        let output = shell(dir.path(), &format!("ulimit -f 1; frosh {job}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{job}: {said}");
        assert!(said.contains("File too large") && said.contains('x'), "{job}: {said}");
        assert_eq!(files(dir.path()), before, "{job}");
    }
}

#[test]
fn a_signal_ends_it_with_the_number_that_shells_expect() {
    let dir = tempfile::tempdir().unwrap();
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        // Standard input stays open, so that it waits with its output begun.
        let mut child = command(dir.path(), "convert - x.npy --dim 4")
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut input, &[0; 64]).unwrap();
        let clock = Instant::now();
        while files(dir.path()).is_empty() {
            assert!(clock.elapsed() < Duration::from_secs(60), "it does not begin");
            std::thread::sleep(Duration::from_millis(5));
        }
        let id = child.id().to_string();
        Command::new("kill").args([&format!("-{signal}"), &id]).status().unwrap();
        let output = ends(child);
        assert_eq!(output.status.code(), Some(code), "{signal}: {:?}", output.status.signal());
        assert!(files(dir.path()).is_empty(), "{signal}");
    }
}

/// Starts a job on a stream that stays open, feeds it, and waits until a refreshed model or a checkpoint is there.
fn started(folder: &Path, job: &str, rows: usize, sign: &str) -> (Child, std::process::ChildStdin) {
    let mut child = command(folder, job)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let bytes: Vec<u8> = values(rows, 8, 1).iter().flat_map(|x| x.to_le_bytes()).collect();
    std::io::Write::write_all(&mut input, &bytes).unwrap();
    let clock = Instant::now();
    while !folder.join(sign).exists() {
        assert!(clock.elapsed() < Duration::from_secs(60), "it does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    (child, input)
}

fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
}

#[test]
fn an_interrupt_ends_an_endless_stream_and_keeps_what_was_learned() {
    let dir = tempfile::tempdir().unwrap();
    // Two batches of 2 MB and a part of a third one, which stays in the reader unless the stream ends.
    let (batch, rows) = ((2 << 20) / 32, 200_000);
    let stream = "- --dim 8 --format raw --raw-type f32";
    let train = format!("train {stream} --bits 8 --refresh-every 65536 -o model.frosh --json");
    for ended in [false, true] {
        let _ = std::fs::remove_file(dir.path().join("model.frosh"));
        let (child, input) = started(dir.path(), &train, rows, "model.frosh");
        signal(&child, "-INT");
        if ended {
            drop(input);
        }
        let output = ends(child);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{said}");
        assert!(said.contains("Ctrl-C again stops at once"), "{said}");
        assert!(said.contains("model.frosh was learned from the"), "{said}");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["interrupted"], true);
        let learned = report["rows"].as_u64().unwrap() as usize;
        if ended {
            assert_eq!(learned, rows);
        } else {
            assert!(learned > 0 && learned.is_multiple_of(batch), "{learned}");
        }
        // The model is the one of these rows.
        let all: Vec<f32> = values(rows, 8, 1);
        write_npy(&dir.path().join("same.npy"), &all[..learned * 8], 8);
        ok(dir.path(), "train same.npy --bits 8 -o same.frosh --force --quiet");
        let read = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
        assert!(read("model.frosh") == read("same.frosh"), "{learned} rows");
    }
    assert_eq!(files(dir.path()), ["model.frosh", "same.frosh", "same.npy"]);
}

#[test]
fn a_second_interrupt_stops_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let job = "sketch - --dim 8 --format raw --raw-type f32 -o x.sketch";
    let mut child = command(dir.path(), job)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, &[0; 3 << 20]).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    signal(&child, "-INT");
    std::thread::sleep(Duration::from_millis(50));
    signal(&child, "-INT");
    let output = ends(child);
    assert_eq!(output.status.code(), Some(130));
    assert!(files(dir.path()).is_empty(), "{:?}", files(dir.path()));
}

#[test]
fn an_interrupt_keeps_the_checkpoint_and_the_same_command_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    write_npy(&dir.path().join("a.npy"), &values(400_000, 16, 1), 16);
    let job =
        "train a.npy --bits 16 --method osh --sketch-rows 64 --checkpoint state -o model.frosh";
    let mut program = command(dir.path(), job);
    let child = program.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let clock = Instant::now();
    while !dir.path().join("state").exists() {
        assert!(clock.elapsed() < Duration::from_secs(60), "it does not begin");
        std::thread::sleep(Duration::from_millis(2));
    }
    signal(&child, "-INT");
    let output = ends(child);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("the state is kept in state, and the same command goes on"), "{said}");
    assert!(!dir.path().join("model.frosh").exists());
    let report = json(dir.path(), job);
    assert!(report["resumed_at"].as_u64().unwrap() > 0);
    assert_eq!(report["rows"], 400_000);
}

#[test]
fn names_may_be_any_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let name = OsStr::from_bytes(b"caf\xe9.npy");
    write_npy(&dir.path().join(name), &values(400, 8, 1), 8);
    write_npy(&dir.path().join("plain.npy"), &values(400, 8, 1), 8);
    let frosh = |arguments: &str| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_frosh"));
        program.current_dir(dir.path());
        for word in arguments.split(' ') {
            program.arg(if word == "NAME" { name } else { OsStr::new(word) });
        }
        let output = program.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "frosh {arguments}: {said}");
    };
    frosh("inspect NAME");
    frosh("train NAME --bits 8 -o model");
    frosh("sketch NAME -o sketch");
    frosh("encode model NAME -o codes");
    frosh("search model codes --queries NAME -k 1 --rerank NAME");
    frosh("eval model --base NAME");
    frosh("convert NAME plain.npy x.csv");
    frosh("index build model NAME -o index");
    frosh("index add index NAME");
    frosh("index search index --queries NAME -k 1");
    ok(dir.path(), "train plain.npy --bits 8 -o other --quiet");
    let bytes = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    assert!(bytes("model") == bytes("other"));
}

#[test]
fn text_from_files_does_not_steer_the_terminal() {
    let dir = tempfile::tempdir().unwrap();
    write_npy(&dir.path().join("a.npy"), &values(9, 4, 1), 4);
    let name = "v\x1b[31m\u{9b}2J\rend";
    for file in ["a.parquet", "a.arrow", "a.h5", "a.npz"] {
        let mut program = command(dir.path(), &format!("convert a.npy {file} --quiet"));
        assert!(program.args(["--name", name]).status().unwrap().success());
        for arguments in [
            format!("inspect {file}"),
            format!("inspect {file} --json"),
            format!("train {file} --column missing -o x"),
            format!("train {file} --dataset missing -o x"),
        ] {
            let output = run(dir.path(), &arguments);
            let all = [output.stdout, output.stderr].concat();
            let all = String::from_utf8(all).unwrap();
            let steers = |c: char| c.is_control() && c != '\n';
            assert!(!all.contains(steers), "frosh {arguments}: {all:?}");
        }
        let told = ok(dir.path(), &format!("inspect {file}"));
        assert!(told.contains("\\u{1b}[31m\\u{9b}2J\\rend"), "{told}");
        let names = json(dir.path(), &format!("inspect {file}"))["content"].to_string();
        assert!(names.contains("2J"), "{names}");
    }
    let odd = dir.path().join("od\x1b[31md.npy");
    std::fs::write(&odd, "no array").unwrap();
    let mut program = command(dir.path(), "inspect");
    let output = program.arg(&odd).output().unwrap();
    assert!(!output.stderr.contains(&0x1b), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn codes_are_held_once() {
    let dir = tempfile::tempdir().unwrap();
    write_npy(&dir.path().join("a.npy"), &values(300, 4, 1), 4);
    ok(dir.path(), "train a.npy --bits 4 --sketch-rows 8 -o model --quiet");
    // 40 million codes of a byte, of rows of 4 bytes that take no room on the disk.
    let rows = 40_000_000u64;
    let file = std::fs::File::create(dir.path().join("b.u8bin")).unwrap();
    let head = [(rows as u32).to_le_bytes(), 4u32.to_le_bytes()].concat();
    std::os::unix::fs::FileExt::write_all_at(&file, &head, 0).unwrap();
    file.set_len(8 + 4 * rows).unwrap();
    let job = "encode model b.u8bin -o codes --threads 1 --quiet";
    let peak = |job: &str| {
        let mut child = command(dir.path(), job).spawn().unwrap();
        let status = format!("/proc/{}/status", child.id());
        let mut peak = 0u64;
        while child.try_wait().unwrap().is_none() {
            let text = std::fs::read_to_string(&status).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with("VmHWM"));
            let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
            peak = peak.max(kilobytes.unwrap_or(0));
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(child.wait().unwrap().success());
        peak * 1024
    };
    // What the program takes anyway, with its batches; then the codes, once.
    let base = peak(&job.replace("b.u8bin", "a.npy").replace("codes", "few"));
    let all = peak(job);
    println!("{base} bytes without codes, {all} with {rows}");
    assert!(all < base + rows + rows / 2, "{base} bytes without codes, {all} with {rows}");
    assert_eq!(json(dir.path(), "inspect codes")["rows"].as_u64(), Some(rows));
}

#[test]
fn a_skipped_test_says_so_past_the_capture_of_output() {
    const NAME: &str = "a_skipped_test_says_so_past_the_capture_of_output";
    if std::env::var_os("FROSH_TEST_SKIPS").is_some() {
        return common::skipped("as an example");
    }
    let itself = std::env::current_exe().unwrap();
    let mut again = Command::new(itself);
    let output = again.args(["--exact", NAME]).env("FROSH_TEST_SKIPS", "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("SKIPPED ") && said.ends_with(": as an example\n"), "{said:?}");
}

/// An intrinsic that is used in a closure is not inlined, because a closure has none of the features of the function
/// around it. Each instruction is then a call, and a loop takes fifty times as long. The symbols of the program show
/// it.
#[test]
fn no_vector_instruction_is_a_call() {
    if cfg!(debug_assertions) || !cfg!(target_arch = "x86_64") {
        return common::skipped("only release builds for x86-64 are looked at");
    }
    let program = std::fs::read(env!("CARGO_BIN_EXE_frosh")).unwrap();
    // Symbols of both manglings have their parts with their lengths before them.
    let after = |name: &'static str| {
        let found = program.windows(name.len()).enumerate().filter(|(_, x)| *x == name.as_bytes());
        found.map(|(at, _)| {
            let rest = &program[at + name.len()..];
            let end = rest.iter().position(|byte| !byte.is_ascii_graphic()).unwrap_or(0);
            String::from_utf8_lossy(&rest[..end]).into_owned()
        })
    };
    assert!(after("5frosh4arch").count() > 0, "the program has no symbols");
    // The standard library asks the CPU for its features by a call.
    let called: Vec<String> =
        after("9core_arch3x86").filter(|rest| !rest.starts_with("5xsave")).collect();
    assert!(called.is_empty(), "{called:?}");
}
