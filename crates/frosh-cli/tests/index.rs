//! `frosh index` as a person uses it: build, add, remove, search, compact; killed at any moment; wrong inputs.

mod common;
use common::{command, files, json, ok, run, values, write_npy};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

const DIM: usize = 24;

/// A folder with vectors, queries and a model of 16 bits.
fn ground(rows: usize) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    write_npy(&dir.path().join("a.npy"), &values(rows, DIM, 1), DIM);
    write_npy(&dir.path().join("b.npy"), &values(300, DIM, 2), DIM);
    write_npy(&dir.path().join("q.npy"), &values(5, DIM, 3), DIM);
    ok(dir.path(), "train a.npy --bits 16 -o model --quiet");
    dir
}

fn numbers(path: &Path, ids: impl IntoIterator<Item = u64>) {
    let lines: Vec<String> = ids.into_iter().map(|id| id.to_string()).collect();
    std::fs::write(path, lines.join("\n")).unwrap();
}

/// The ids that a search finds, query by query.
fn ids(folder: &Path, arguments: &str) -> Vec<Vec<u64>> {
    let text = ok(folder, &format!("{arguments} --json"));
    let line = |line: &str| -> Vec<u64> {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
    };
    text.lines().map(line).collect()
}

#[test]
fn an_index_finds_what_a_search_of_the_codes_finds() {
    let dir = ground(2000);
    let here = dir.path();
    ok(here, "encode model a.npy --factors -o codes --quiet");
    let built = json(here, "index build model a.npy -o index --vectors f32");
    assert_eq!(
        (&built["added"], &built["bytes_per_row"]),
        (&2000.into(), &(2 + 1 + 4 * 24).into())
    );
    for rank in ["hamming", "asymmetric", "estimated"] {
        let plain = ids(here, &format!("search model codes --queries q.npy --rank {rank} -k 7"));
        let found = format!("index search index --queries q.npy --rank {rank} -k 7 --oversample 0");
        assert_eq!(ids(here, &found), plain, "{rank}");
    }
    assert_eq!(
        ids(here, "index search index --queries q.npy --radius 3"),
        ids(here, "search model codes --queries q.npy --radius 3")
    );
    let exact = "search model codes --queries q.npy --rank estimated --rerank a.npy --oversample 9";
    let found = ids(here, "index search index --queries q.npy --oversample 9");
    assert_eq!(found, ids(here, exact));

    // Rows with ids of one's own, some in place of others; some removed; nothing else changes.
    numbers(&here.join("ids.txt"), (0..300).map(|i| 100_000 - 7 * i));
    let added = json(here, "index add index b.npy --ids ids.txt");
    assert_eq!((&added["rows"], &added["parts"]), (&2300.into(), &2.into()));
    let replaced = json(here, "index add index b.npy --ids ids.txt --replace");
    assert_eq!((&replaced["rows"], &replaced["replaced"]), (&2300.into(), &300.into()));
    let own = ids(here, "index search index --queries b.npy -k 1 --oversample 50");
    assert_eq!(own, (0..300).map(|i| vec![100_000 - 7 * i]).collect::<Vec<_>>());
    let gone: Vec<String> = found.iter().flatten().map(ToString::to_string).collect();
    let removed = json(here, &format!("index remove index --ids {},555555", gone.join(",")));
    assert_eq!(removed["missing"], 1);
    let search = "index search index --queries q.npy -k 20";
    let after = ids(here, search);
    assert!(after.iter().flatten().all(|id| !found.iter().flatten().any(|gone| gone == id)));
    numbers(&here.join("few.txt"), [3, 5, 8, 100_000, 77_777]);
    let few = ids(here, &format!("{search} --only few.txt"));
    assert!(
        few.iter().all(
            |found| !found.is_empty() && found.iter().all(|id| [3, 5, 8, 100_000].contains(id))
        )
    );
    let compacted = json(here, "index compact index");
    assert_eq!((&compacted["parts"], &compacted["parts_before"]), (&1.into(), &3.into()));
    assert_eq!(ids(here, search), after);
    let info = json(here, "index info index --check");
    assert_eq!((&info["removed"], &info["checked"]), (&0.into(), &true.into()));
    assert_eq!(json(here, "inspect index")["kind"], "index");
    assert_eq!(
        files(&here.join("index")).iter().filter(|name| name.ends_with(".npy")).count(),
        5,
        "codes, factors, ids, vectors and checksums of one part"
    );
}

/// Everything in a folder and below it: names and contents.
fn everything(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for name in files(folder) {
        let path = folder.join(&name);
        if path.is_dir() {
            let inner = everything(&path).into_iter();
            all.extend(inner.map(|(inner, bytes)| (format!("{name}/{inner}"), bytes)));
        } else {
            all.push((name, std::fs::read(path).unwrap()));
        }
    }
    all
}

/// Files that are called like ours are not ours: a build into their folder is refused, and so is an input that
/// lies in the folder of an index.
#[test]
fn files_of_the_users_are_never_removed_or_overwritten() {
    let dir = ground(400);
    let here = dir.path();
    let folder = here.join("D");
    std::fs::create_dir(&folder).unwrap();
    for name in ["20260101.vectors.npy", "20260102.vectors.npy"] {
        std::fs::copy(here.join("a.npy"), folder.join(name)).unwrap();
    }
    std::fs::write(folder.join("000001.removed"), "mine").unwrap();
    std::fs::write(folder.join(".frosh-1.tmp"), "mine").unwrap();
    let before = everything(&folder);
    for arguments in [
        "index build model D/*.npy -o D",
        "index build model a.npy -o D",
        "index build model D -o D",
    ] {
        let output = run(here, arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments}: {said}");
        assert!(said.contains("an index needs"), "{arguments}: {said}");
        assert_eq!(everything(&folder), before, "{arguments}");
    }
    // The model of the README's name, where the index would have its own.
    let home = here.join("home");
    std::fs::create_dir(&home).unwrap();
    std::fs::copy(here.join("model"), home.join("model.frosh")).unwrap();
    let before = everything(&home);
    for model in ["model", "home/model.frosh"] {
        let output = run(here, &format!("index build {model} a.npy -o home"));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains("model.frosh"), "{said}");
        assert_eq!(everything(&home), before);
    }
    // Inputs within an index, which a later change may remove.
    ok(here, "index build model a.npy -o index --vectors f32 --quiet");
    numbers(&here.join("index/gone.txt"), [1, 2]);
    std::fs::copy(here.join("b.npy"), here.join("index/b.npy")).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(here.join("index/b.npy"), here.join("link.npy")).unwrap();
    #[cfg(not(unix))]
    std::fs::copy(here.join("index/b.npy"), here.join("index/link.npy")).unwrap();
    let before = everything(&here.join("index"));
    for arguments in [
        "index add index index/000001.vectors.npy",
        "index add index index/b.npy",
        "index add index link.npy",
        "index add index b.npy --ids index/gone.txt",
        "index remove index --ids-file index/gone.txt",
    ] {
        let output = run(here, arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments}: {said}");
        assert!(said.contains("lies in the folder of the index"), "{arguments}: {said}");
        assert_eq!(everything(&here.join("index")), before, "{arguments}");
    }
    // What others put there stays through all changes, and is told.
    ok(here, "index add index b.npy --quiet");
    ok(here, "index remove index --ids 5 --quiet");
    ok(here, "index compact index --quiet");
    let info = json(here, "index info index");
    assert_eq!(info["other_files"], serde_json::json!(["b.npy", "gone.txt"]));
    assert!(ok(here, "index info index").contains("b.npy and 1 more"));
}

/// An output is never an input: not under another name for it either.
#[test]
fn no_verb_overwrites_its_inputs() {
    let dir = ground(600);
    let here = dir.path();
    std::fs::create_dir(here.join("in")).unwrap();
    std::fs::copy(here.join("a.npy"), here.join("in/a.npy")).unwrap();
    ok(here, "sketch a.npy -o one.sketch --quiet");
    ok(here, "sketch b.npy --worker 1 -o two.sketch --quiet");
    ok(here, "convert a.npy a.fvecs --quiet");
    let links: &[(&str, &str)] = &[("a.npy", "la.npy"), ("model", "lm"), ("one.sketch", "ls")];
    for (file, link) in links {
        #[cfg(unix)]
        std::os::unix::fs::symlink(file, here.join(link)).unwrap();
        #[cfg(not(unix))]
        std::fs::copy(here.join(file), here.join(link)).unwrap();
    }
    let before = everything(here);
    let mut cases: Vec<String> = [
        "train a.npy -o a.npy",
        "train b.npy a.npy -o ./a.npy",
        "train in -o in/a.npy",
        "train in/*.npy -o in/a.npy",
        "train a.npy -o new --checkpoint a.npy",
        "sketch a.npy -o a.npy",
        "sketch a.npy -o new --checkpoint a.npy",
        "merge one.sketch two.sketch -o two.sketch",
        "fit one.sketch --bits 8 -o one.sketch",
        "encode model a.npy -o a.npy",
        "encode model a.npy -o model",
        "encode model in -o in/a.npy",
        "convert a.npy a.npy",
        "convert in in/a.npy",
        "convert a.fvecs ./a.fvecs",
    ]
    .map(String::from)
    .to_vec();
    if cfg!(unix) {
        cases.extend(
            [
                "train a.npy -o la.npy",
                "train la.npy -o a.npy",
                "encode lm a.npy -o model",
                "convert la.npy a.npy",
                "fit ls --bits 8 -o one.sketch",
                "merge ls two.sketch -o one.sketch",
            ]
            .map(String::from),
        );
    }
    for arguments in cases {
        let output = run(here, &arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments}: {said}");
        assert!(said.contains("is also an input"), "{arguments}: {said}");
        assert!(everything(here) == before, "{arguments}");
    }
}

/// A change that was made is a success, even if nobody can be told of it.
#[test]
#[cfg(target_os = "linux")]
fn a_change_that_was_made_is_no_failure() {
    let dir = ground(500);
    let here = dir.path();
    ok(here, "index build model a.npy -o index --quiet");
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    for (arguments, rows) in [
        ("index add index b.npy", 800),
        ("index remove index --ids 3,4", 798),
        ("index compact index", 798),
    ] {
        let output = command(here, arguments).stdout(full()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && said.contains("done, but"), "{arguments}: {said}");
        assert_eq!(json(here, "index info index --check")["rows"], rows, "{arguments}");
    }
}

#[test]
fn a_search_of_damaged_arrays_is_an_error_and_compacting_keeps_them() {
    let dir = ground(3000);
    let here = dir.path();
    ok(here, "index build model a.npy -o index --vectors f32 --quiet");
    ok(here, "index remove index --ids 7 --quiet");
    let search = "index search index --queries q.npy -k 3";
    let sound = ok(here, search);
    for name in ["codes", "factors", "vectors"] {
        let path = here.join(format!("index/000001.{name}.npy"));
        let whole = std::fs::read(&path).unwrap();
        let mut changed = whole.clone();
        // All of a vector that is found, so that it is read for certain.
        let found = ids(here, search)[0][0] as usize;
        let at = 128 + found * (whole.len() - 128) / 3000;
        changed[at] ^= 0x40;
        std::fs::write(&path, &changed).unwrap();
        for arguments in [search, "index compact index"] {
            let output = run(here, arguments);
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{name}, {arguments}: {said}");
            assert!(said.contains(&format!("000001.{name}.npy")), "{said}");
            assert!(output.stdout.is_empty(), "{arguments}");
        }
        assert!(std::fs::read(&path).unwrap() == changed, "{name}");
        ok(here, &format!("{search} --no-verify"));
        std::fs::write(&path, &whole).unwrap();
        assert_eq!(ok(here, search), sound);
    }
    ok(here, "index compact index --quiet");
    assert_eq!(ok(here, search), sound);
}

/// Killed while it adds, removes or compacts, an index is as before the change or as after it.
#[test]
fn killed_at_any_moment_an_index_is_as_before_or_as_after() {
    let dir = ground(120_000);
    let here = dir.path();
    numbers(&here.join("gone.txt"), (0..120_000).step_by(3));
    let mut kills = 0;
    // A build that is killed leaves no index, and can be started again.
    let clock = Instant::now();
    ok(here, "index build model a.npy -o whole --vectors f32 --quiet");
    let whole = clock.elapsed();
    for moment in [0.02, 0.2, 0.5, 0.8] {
        kill_after(here, "index build model a.npy -o index --vectors f32", whole.mul_f64(moment));
        kills += 1;
        if here.join("index/index.json").exists() {
            assert_eq!(json(here, "index info index --check")["rows"], 120_000);
            std::fs::remove_dir_all(here.join("index")).unwrap();
        }
    }
    ok(here, "index build model a.npy -o index --vectors f32 --quiet");
    let (mut rows, mut seen) = (120_000, std::collections::BTreeSet::new());
    for round in 0..12 {
        let (job, change) = match round % 3 {
            0 => ("index add index a.npy", 120_000),
            1 => ("index remove index --ids-file gone.txt", 0),
            _ => ("index compact index", 0),
        };
        let share = 0.05 + 0.9 * f64::from(round) / 12.0;
        kill_after(here, job, whole.mul_f64(share / if change == 0 { 8.0 } else { 1.0 }));
        kills += 1;
        let info = json(here, "index info index --check");
        let got = info["rows"].as_i64().unwrap();
        let possible = match round % 3 {
            1 => [rows, rows - 40_000],
            _ => [rows, rows + change],
        };
        assert!(possible.contains(&got), "{job}: {got} rows, expected one of {possible:?}");
        seen.insert((round % 3, got == rows));
        rows = got;
        // It can be searched, and changed.
        assert_eq!(ids(here, "index search index --queries q.npy -k 3").len(), 5);
    }
    assert_eq!(kills, 16);
    assert!(
        seen.iter().any(|(_, unchanged)| *unchanged),
        "no kill came before the change was made"
    );
    // What is left after the next change is what the index names, and nothing of the killed ones.
    ok(here, "index compact index --quiet");
    ok(here, "index add index b.npy --quiet");
    let names = files(&here.join("index"));
    let parts = json(here, "index info index --check")["parts"].as_u64().unwrap() as usize;
    let count = |end: &str| names.iter().filter(|name| name.ends_with(end)).count();
    assert_eq!(
        (count(".codes.npy"), count(".vectors.npy"), count(".tmp")),
        (parts, parts, 0),
        "{names:?}"
    );
    let info = json(here, "index info index");
    assert_eq!(info["other_files"], serde_json::json!([]));
    assert!(!names.iter().any(|name| name == "journal"), "{names:?}");
}

fn kill_after(folder: &Path, arguments: &str, time: Duration) {
    let mut child =
        command(folder, arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(time);
    let _ = child.kill(); // SIGKILL; it may have ended
    child.wait().unwrap();
}

#[test]
fn wrong_inputs_are_named_and_change_nothing() {
    let dir = ground(500);
    let here = dir.path();
    ok(here, "index build model a.npy -o index --no-factors --quiet");
    write_npy(&here.join("wide.npy"), &values(3, 7, 1), 7);
    let mut bad = values(3, DIM, 1);
    bad[DIM + 2] = f32::NAN;
    write_npy(&here.join("bad.npy"), &bad, DIM);
    numbers(&here.join("two.txt"), [1, 2]);
    numbers(&here.join("twice.txt"), (0..300).map(|i| 1000 + i % 299));
    numbers(&here.join("ids.txt"), (0..500).map(|i| if i == 7 { 7 } else { 2000 + i }));
    std::fs::write(here.join("words.txt"), "one\ntwo\n").unwrap();
    std::fs::create_dir(here.join("full")).unwrap();
    std::fs::write(here.join("full/mine.txt"), "x").unwrap();
    ok(here, "train a.npy --bits 8 --reservoir 0 -o bare --quiet");
    let before =
        (files(&here.join("index")), std::fs::read(here.join("index/index.json")).unwrap());
    for (arguments, parts) in [
        ("index build model a.npy -o index", &["index:", "already", "add to it"][..]),
        ("index build model a.npy -o full", &["full:", "mine.txt"]),
        ("index build bare a.npy --factors -o new", &["bare", "--factors"]),
        ("index build model wide.npy -o new", &["24 dimensions", "wide.npy", "7"]),
        ("index build model none.npy -o new", &["none.npy"]),
        ("index add nothing a.npy", &["nothing", "No such file"]),
        ("index add full a.npy", &["full:", "no index"]),
        ("index add index wide.npy", &["24 dimensions", "wide.npy", "7"]),
        ("index add index bad.npy", &["bad.npy", "row 1", "column 2"]),
        ("index add index b.npy --ids two.txt", &["two.txt: 2 ids", "300 rows"]),
        ("index add index b.npy --ids words.txt", &["words.txt", "row 0", "one"]),
        (
            "index add index b.npy --ids twice.txt",
            &["twice.txt, row 0: id 1000", "two rows", "row 299"],
        ),
        (
            "index add index a.npy --ids ids.txt",
            &["ids.txt, row 7: id 7 is there already", "give --replace"],
        ),
        ("index remove index --ids-file words.txt", &["words.txt", "row 0"]),
        ("index search index --queries wide.npy", &["24 dimensions", "wide.npy"]),
        (
            "index search index --queries q.npy --rank estimated",
            &["--no-factors", "--rank asymmetric"],
        ),
        ("index search full --queries q.npy", &["full:", "no index"]),
        ("index info full", &["full:", "no index"]),
        ("index compact full", &["full:", "no index"]),
    ] {
        let output = run(here, arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments}: {said}");
        for part in parts {
            assert!(said.contains(part), "{arguments}: {said:?} should mention {part:?}");
        }
        assert_eq!(said.lines().count(), 1, "{arguments}: {said}");
    }
    // Who gave --replace is not told to give it.
    let output = run(here, "index add index b.npy --ids twice.txt --replace");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("id 1000 is given to two rows") && !said.contains("replace"), "{said}");
    for arguments in [
        "index search index --queries q.npy -k 0",
        "index remove index",
        "index add index b.npy --replace",
    ] {
        assert_eq!(run(here, arguments).status.code(), Some(2), "{arguments}");
    }
    let after = (files(&here.join("index")), std::fs::read(here.join("index/index.json")).unwrap());
    assert!(before == after, "{:?} was {:?}", after.0, before.0);
    // More than there are, nothing allowed, everything within reach.
    let all =
        |arguments: &str| ids(here, &format!("index search index --queries q.npy {arguments}"));
    assert!(all("-k 9999").iter().all(|found| found.len() == 500));
    assert!(all("--radius 4000000000").iter().all(|found| found.len() == 500));
    numbers(&here.join("none.txt"), [123_456_789]);
    assert_eq!(all("--only none.txt"), vec![Vec::<u64>::new(); 5]);
}
