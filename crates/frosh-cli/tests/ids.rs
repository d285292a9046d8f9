//! Rows with ids of their own, numbers and text, and classes with names.

mod common;
use common::{command, json, ok, run, values};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

const DIM: usize = 12;

/// JSON Lines with an id, a class and a vector in each row.
fn jsonl(path: &Path, rows: usize, id: impl Fn(usize) -> String, seed: u64) {
    let values = values(rows, DIM, seed);
    let line = |(i, row): (usize, &[f32])| {
        let class = if row[0] > 0.0 { "up" } else { "down" };
        format!("{{\"id\": {}, \"class\": \"{class}\", \"emb\": {row:?}}}\n", id(i))
    };
    let text: String = values.chunks(DIM).enumerate().map(line).collect();
    std::fs::write(path, text).unwrap();
}

fn ground() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path();
    jsonl(&here.join("a.jsonl"), 400, |i| format!("\"doc {i}\""), 1);
    jsonl(&here.join("b.jsonl"), 30, |i| format!("\"more/{i}\""), 2);
    jsonl(&here.join("n.jsonl"), 400, |i| (7 * i).to_string(), 1);
    ok(here, "train a.jsonl --bits 12 -o model --quiet");
    dir
}

/// The ids that a search finds for each query.
fn ids(here: &Path, arguments: &str) -> Vec<Vec<serde_json::Value>> {
    let text = ok(here, &format!("{arguments} --json"));
    let line = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["ids"].as_array().unwrap().clone()
    };
    text.lines().map(line).collect()
}

fn fails(here: &Path, arguments: &str, parts: &[&str]) {
    let output = run(here, arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{arguments}");
    for part in parts {
        assert!(said.contains(part), "{arguments}: {said:?} should mention {part:?}");
    }
}

#[test]
fn text_ids_through_all_verbs() {
    let dir = ground();
    let here = dir.path();
    ok(here, "index build model a.jsonl --id-column id --vectors f32 -o index --quiet");
    let info = json(here, "index info index --check");
    assert_eq!((&info["ids"], &info["rows"]), (&"text".into(), &400.into()));
    assert!(ok(here, "index info index").contains("text"));
    // Each row finds itself, by its name.
    let found = ids(here, "index search index --queries a.jsonl -k 1 --oversample 50");
    for (i, found) in found.iter().enumerate() {
        assert_eq!(found, &[format!("doc {i}")]);
    }
    let text = ok(here, "index search index --queries a.jsonl -k 1 --oversample 50");
    assert!(text.lines().nth(3).unwrap().starts_with("2\t1\tdoc 2\t"), "{text}");
    // The same rows with numbers as ids are found in the same order.
    ok(here, "index build model n.jsonl --id-column id --vectors f32 -o numbers --quiet");
    assert_eq!(json(here, "index info numbers")["ids"], "number");
    let search = "--queries b.jsonl -k 9";
    let by_name = ids(here, &format!("index search index {search}"));
    let by_number = ids(here, &format!("index search numbers {search}"));
    for (names, numbers) in by_name.iter().flatten().zip(by_number.iter().flatten()) {
        assert_eq!(names.as_str().unwrap(), format!("doc {}", numbers.as_u64().unwrap() / 7));
    }
    // More rows, rows in place of others, rows removed, and filters.
    ok(here, "index add index b.jsonl --id-column id --quiet");
    fails(
        here,
        "index add index b.jsonl --id-column id",
        &["b.jsonl, row 0", "\"more/0\"", "--replace"],
    );
    let replaced = json(here, "index add index b.jsonl --id-column id --replace");
    assert_eq!((&replaced["replaced"], &replaced["rows"]), (&30.into(), &430.into()));
    std::fs::write(here.join("gone.txt"), "doc 7\ndoc 8\nnobody\n").unwrap();
    let removed = json(here, "index remove index --ids more/1,more/2 --ids-file gone.txt");
    assert_eq!((&removed["removed"], &removed["missing"]), (&4.into(), &1.into()));
    std::fs::write(here.join("only.txt"), "doc 3\ndoc 7\nmore/5\n").unwrap();
    let search = "index search index --queries b.jsonl -k 5 --only only.txt";
    let before = ids(here, search);
    let found: std::collections::BTreeSet<&str> =
        before.iter().flatten().map(|id| id.as_str().unwrap()).collect();
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["doc 3", "more/5"]);
    ok(here, "index compact index --quiet");
    assert_eq!(ids(here, search), before);
    json(here, "index info index --check");
}

#[test]
fn ids_of_files_and_wrong_ids() {
    let dir = ground();
    let here = dir.path();
    let lines: String = (0..400).map(|i| format!("row {i}\n")).collect();
    std::fs::write(here.join("ids.txt"), lines).unwrap();
    ok(here, "index build model a.jsonl --ids ids.txt -o texts --quiet");
    assert_eq!(json(here, "index info texts")["ids"], "text");
    ok(here, "index build model a.jsonl --ids a.jsonl --id-column id -o same --quiet");
    fails(
        here,
        "index build model a.jsonl --ids b.jsonl --id-column id -o x",
        &["b.jsonl: 30 ids"],
    );
    fails(
        here,
        "index build model a.jsonl --id-column key -o x",
        &["no field \"key\"", "--id-column"],
    );
    // Kinds are not mixed.
    ok(here, "index build model n.jsonl --id-column id -o numbers --quiet");
    fails(
        here,
        "index add numbers b.jsonl --id-column id",
        &["whole numbers, and these are names"],
    );
    fails(
        here,
        "index add texts n.jsonl --id-column id",
        &["are names, and these are whole numbers"],
    );
    fails(here, "index add texts b.jsonl", &["are names"]);
    fails(here, "index remove numbers --ids cat", &["\"cat\"", "whole numbers"]);
    ok(here, "index add texts n.jsonl --id-column id --id-type text --quiet");
    // Twice, null, a fraction, below zero: with file and row.
    let twice = |i: usize| if i == 9 { "\"doc 4\"".into() } else { format!("\"doc {i}\"") };
    jsonl(&here.join("twice.jsonl"), 20, twice, 3);
    fails(
        here,
        "index build model twice.jsonl --id-column id -o x",
        &["twice.jsonl, row 4", "\"doc 4\"", "two rows", "twice.jsonl, row 9"],
    );
    for (bad, why) in [("null", "null"), ("1.5", "1.5"), ("-2", "-2"), ("\"\"", "empty")] {
        let id = |i: usize| if i == 9 { bad.into() } else { format!("\"{i}\"") };
        jsonl(&here.join("bad.jsonl"), 20, id, 3);
        fails(here, "index build model bad.jsonl --id-column id -o x", &["bad.jsonl, row 9", why]);
    }
    assert!(!here.join("x/index.json").exists());
    fails(here, "index add texts b.jsonl --replace", &["--ids"]);
}

#[test]
fn skipped_rows_take_their_ids_with_them() {
    let dir = ground();
    let here = dir.path();
    let text = std::fs::read_to_string(here.join("b.jsonl")).unwrap();
    let hole = |(i, line): (usize, &str)| match i {
        5 | 6 => "{\"id\": null, \"class\": null, \"emb\": null}\n".to_owned(),
        _ => format!("{line}\n"),
    };
    let text: String = text.lines().enumerate().map(hole).collect();
    std::fs::write(here.join("holes.jsonl"), text).unwrap();
    let built = json(here, "index build model holes.jsonl --id-column id --skip-bad -o index");
    assert_eq!((&built["rows"], &built["left_out"]), (&28.into(), &2.into()));
    let search = "index search index --queries b.jsonl -k 1 --oversample 20";
    let found = ids(here, search);
    assert_eq!(found.len(), 30);
    let all: std::collections::BTreeSet<&str> =
        found.iter().flatten().map(|id| id.as_str().unwrap()).collect();
    assert!(!all.contains("more/5") && !all.contains("more/6"));
    // From standard input, in the same pass.
    let mut add = command(here, "index add index - --format jsonl --id-column id --quiet");
    let file = std::fs::File::open(here.join("a.jsonl")).unwrap();
    assert!(add.stdin(Stdio::from(file)).status().unwrap().success());
    assert_eq!(json(here, "index info index --check")["rows"], 428);
    let eval =
        json(here, "eval model --base holes.jsonl --label-column class --skip-bad --held-out 5");
    assert_eq!((&eval["base"], &eval["left_out"]), (&23.into(), &2.into()));
}

#[test]
fn class_names_give_the_figures_of_class_numbers() {
    let dir = ground();
    let here = dir.path();
    let classes = |name: &str, of: fn(&str) -> &str| {
        let text = std::fs::read_to_string(here.join(name)).unwrap();
        text.lines().map(|line| format!("{}\n", of(line))).collect::<String>()
    };
    let number = |line: &str| if line.contains("\"up\"") { "1" } else { "-2" };
    let name = |line: &str| if line.contains("\"up\"") { "up" } else { "down" };
    std::fs::write(here.join("numbers.txt"), classes("a.jsonl", number)).unwrap();
    std::fs::write(here.join("names.txt"), classes("a.jsonl", name)).unwrap();
    std::fs::write(here.join("q.txt"), classes("b.jsonl", name)).unwrap();
    let map = |arguments: &str| {
        let all = json(here, &format!("eval model --base a.jsonl {arguments}"));
        assert_eq!(all["truth"], "labels");
        (all["map"].as_f64().unwrap(), all["precision"].clone())
    };
    let want = map("--labels numbers.txt");
    assert_eq!(map("--labels names.txt"), want);
    assert_eq!(map("--label-column class"), want);
    assert_eq!(map("--labels a.jsonl --label-column class"), want);
    let want = map("--labels names.txt --queries b.jsonl --query-labels q.txt");
    assert_eq!(map("--label-column class --queries b.jsonl"), want);
    fails(here, "eval model --base a.jsonl --label-column kind", &["no field \"kind\""]);
    fails(here, "eval model --base a.jsonl --labels q.txt", &["labels, expected 400"]);
}

/// Additions of rows with names are killed at random moments: the index has all of their rows or none.
#[test]
fn killed_additions_of_names_leave_the_index_as_before_or_as_after() {
    let dir = ground();
    let here = dir.path();
    jsonl(&here.join("many.jsonl"), 20_000, |i| format!("\"m{i}\""), 4);
    ok(here, "index build model a.jsonl --id-column id -o index --quiet");
    let add = "index add index many.jsonl --id-column id --replace --quiet";
    let start = Instant::now();
    ok(here, add);
    let took = start.elapsed();
    for round in 0..8u32 {
        let mut child = command(here, add).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(took * round / 8 + Duration::from_millis(u64::from(round)));
        // It may have ended.
        let _ = child.kill();
        child.wait().unwrap();
        let info = json(here, "index info index --check");
        assert_eq!(info["rows"], 20_400, "round {round}");
        let found = ids(here, "index search index --queries b.jsonl -k 3");
        assert!(found.iter().flatten().all(|id| id.as_str().is_some()));
    }
    ok(here, "index compact index --quiet");
    let info = json(here, "index info index --check");
    assert_eq!((&info["rows"], &info["parts"]), (&20_400.into(), &1.into()));
    assert!(info["other_files"].as_array().unwrap().is_empty(), "{info}");
}
