//! An index whose data changes: `frosh index refresh`, several versions of a model, and their folding.

mod common;
use common::{command, files, json, ok, rows_of_kind as rows, run, write_npy};
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

const DIM: usize = 32;

/// A folder with rows of two times, queries, and a model of the first time.
fn ground(count: usize) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (rows(count, 0, 1), rows(count, 2, 2));
    write_npy(&dir.path().join("old.npy"), &old, DIM);
    write_npy(&dir.path().join("new.npy"), &new, DIM);
    write_npy(&dir.path().join("all.npy"), &[old, new].concat(), DIM);
    write_npy(&dir.path().join("q.npy"), &[rows(20, 0, 3), rows(20, 2, 4)].concat(), DIM);
    ok(dir.path(), "train old.npy --bits 16 -o model --quiet");
    dir
}

fn ids(folder: &Path, arguments: &str) -> Vec<Vec<u64>> {
    let text = ok(folder, &format!("{arguments} --json"));
    let line = |line: &str| -> Vec<u64> {
        let line: Value = serde_json::from_str(line).unwrap();
        line["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
    };
    text.lines().map(line).collect()
}

fn refused(folder: &Path, arguments: &str) -> String {
    let output = run(folder, arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{arguments}: {said}");
    assert_eq!(said.lines().count(), 1, "{arguments}: {said}");
    said
}

/// The share of the ten nearest rows of `all.npy` that a search finds.
fn recall(folder: &Path, search: &str) -> f64 {
    let exact = ids(folder, "index search exact --queries q.npy --oversample 1000");
    let found = ids(folder, search);
    let hit = |(found, exact): (&Vec<u64>, &Vec<u64>)| {
        found.iter().filter(|id| exact.contains(id)).count()
    };
    found.iter().zip(&exact).map(hit).sum::<usize>() as f64 / (10 * exact.len()) as f64
}

#[test]
fn a_new_version_is_made_only_if_it_is_due_and_finds_more() {
    let dir = ground(3000);
    let here = dir.path();
    ok(here, "index build model all.npy -o exact --vectors f32 --quiet");
    ok(here, "index build model old.npy -o index --vectors f32 --quiet");
    let before = files(&here.join("index"));
    let same = json(here, "index refresh index --rows old.npy");
    assert_eq!((&same["refreshed"], &same["encoded"]), (&false.into(), &0.into()));
    assert!(same["gap"].as_f64().unwrap() < 0.04, "{same}");
    assert_eq!(files(&here.join("index")), before);
    ok(here, "index add index new.npy --quiet");
    let search = "index search index --queries q.npy --oversample 0";
    let stale = recall(here, search);
    // From a sketch as well as from rows.
    ok(here, "sketch all.npy --sketch-rows 32 -o all.sketch --quiet");
    let there = json(here, "index refresh index all.sketch --gap 0.9");
    assert_eq!(there["refreshed"], false);
    let made = json(here, "index refresh index --rows all.npy");
    assert_eq!((&made["refreshed"], &made["encoded"]), (&true.into(), &3000.into()));
    assert!(made["gap"].as_f64().unwrap() > 0.04, "{made}");
    let fresh = recall(here, search);
    assert!(fresh > stale + 0.05, "recall {stale} before and {fresh} after");
    let info = json(here, "index info index --check");
    let versions = info["versions"].as_array().unwrap();
    assert_eq!(versions.len(), 2);
    assert_eq!((&versions[0]["rows"], &versions[1]["rows"]), (&3000.into(), &3000.into()));
    assert!(versions[0]["sample_map"].as_f64() < versions[1]["sample_map"].as_f64());
    assert_eq!(info["model"], versions[1]["model"]);
    assert!(ok(here, "index info index").contains("MAP"));
    // Another time nothing is due; and it can be forced.
    assert_eq!(json(here, "index refresh index all.sketch")["refreshed"], false);
    // Distances that are not comparable are refused with the reason, and allowed on demand.
    for arguments in
        ["--rank hamming --oversample 0", "--rank asymmetric --oversample 0", "--radius 3"]
    {
        let said = refused(here, &format!("index search index --queries q.npy {arguments}"));
        let parts = ["several versions", "estimated", "--mix-versions"];
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        let mixed =
            ids(here, &format!("index search index --queries q.npy {arguments} --mix-versions"));
        assert_eq!(mixed.len(), 40);
    }
    let exact = ids(here, "index search exact --queries q.npy --oversample 1000");
    for rank in ["hamming", "asymmetric", "estimated"] {
        let all = format!("index search index --queries q.npy --rank {rank} --oversample 600");
        assert_eq!(ids(here, &all), exact, "{rank}");
    }
    // Removed rows and filters, text and JSON, work as before.
    let first: Vec<String> = exact.iter().map(|found| found[0].to_string()).collect();
    ok(here, &format!("index remove index --ids {} --quiet", first.join(",")));
    let left = ids(here, search);
    assert!(left.iter().flatten().all(|id| !first.contains(&id.to_string())));
    let compacted = json(here, "index compact index");
    assert_eq!((&compacted["parts"], &compacted["versions"]), (&2.into(), &2.into()));
    assert_eq!(ids(here, search), left);
    let folded = json(here, "index compact index --versions 1");
    assert_eq!(folded["versions"], 1);
    assert!(folded["encoded"].as_u64().unwrap() > 2000);
    let names = files(&here.join("index"));
    assert_eq!(names.iter().filter(|name| name.ends_with("model.frosh")).count(), 1, "{names:?}");
    json(here, "index info index --check");
}

#[test]
fn without_stored_vectors_a_source_or_the_old_codes_serve() {
    let dir = ground(1500);
    let here = dir.path();
    ok(here, "index build model old.npy -o index --quiet");
    let numbers: Vec<String> = (0..1500).map(|i| (100_000 - 7 * i).to_string()).collect();
    std::fs::write(here.join("ids.txt"), numbers.join("\n")).unwrap();
    ok(here, "index add index new.npy --ids ids.txt --quiet");
    let before = files(&here.join("index"));
    let said = refused(here, "index refresh index --rows all.npy");
    assert!(said.contains("1500 rows") && said.contains("--source"), "{said}");
    for (arguments, part) in [
        ("index refresh index", "keeps no sketch"),
        ("index refresh index model", "is a model"),
        ("index refresh index --rows none.npy", "none.npy"),
        ("index refresh index --rows all.npy --ids ids.txt", "--source"),
        ("index refresh index --rows all.npy --source q.npy --ids ids.txt", "1500 ids"),
        ("index refresh nothing --rows all.npy", "nothing"),
        ("index refresh index --rows index/000001.codes.npy", "lies in the folder of the index"),
    ] {
        let said = refused(here, arguments);
        assert!(said.contains(part), "{arguments}: {said}");
    }
    assert_eq!(files(&here.join("index")), before);
    for arguments in ["index refresh", "index refresh index a.sketch --rows all.npy"] {
        assert_eq!(run(here, arguments).status.code(), Some(2), "{arguments}");
    }
    // A source with half of the rows: the others keep their codes only if that is said.
    let half = rows(1500, 2, 2);
    write_npy(&here.join("half.npy"), &half[..750 * DIM], DIM);
    std::fs::write(here.join("half.txt"), numbers[..750].join("\n")).unwrap();
    let source = "index refresh index --rows all.npy --source half.npy --ids half.txt";
    assert!(refused(here, source).contains("750 rows"));
    let made = json(here, &format!("{source} --keep-codes"));
    assert_eq!((&made["encoded"], &made["rows"]), (&750.into(), &3000.into()));
    let rest =
        json(here, "index refresh index --rows all.npy --force --source new.npy --ids ids.txt");
    assert_eq!(rest["encoded"], 750);
    // The vectors of all versions at once.
    write_npy(&here.join("source.npy"), &[rows(1500, 0, 1), rows(1500, 2, 2)].concat(), DIM);
    let all: Vec<String> = (0..1500).map(|i| i.to_string()).chain(numbers).collect();
    std::fs::write(here.join("all.txt"), all.join("\n")).unwrap();
    let kept = json(here, "index compact index --versions 1");
    assert!(kept["versions"].as_u64() > Some(1) && kept["encoded"] == 0, "{kept}");
    let folded = json(here, "index compact index --versions 1 --source source.npy --ids all.txt");
    assert_eq!(folded["versions"], 1, "{folded}");
    let own = ids(here, "index search index --queries new.npy -k 20");
    let found =
        own.iter().enumerate().filter(|(i, found)| found.contains(&(100_000 - 7 * *i as u64)));
    assert!(found.count() > 1200);
}

#[test]
fn killed_at_any_moment_a_refresh_is_made_or_not() {
    let dir = ground(60_000);
    let here = dir.path();
    ok(here, "sketch all.npy --sketch-rows 32 -o all.sketch --quiet");
    ok(here, "index build model old.npy -o index --vectors f32 --quiet");
    ok(here, "index add index new.npy --quiet");
    let job = "index refresh index all.sketch --force";
    let search = "index search index --queries q.npy --rank estimated --oversample 0";
    let copy = |to: &str| {
        let _ = std::fs::remove_dir_all(here.join(to));
        std::fs::create_dir(here.join(to)).unwrap();
        for name in files(&here.join("base")) {
            std::fs::copy(here.join("base").join(&name), here.join(to).join(&name)).unwrap();
        }
    };
    std::fs::rename(here.join("index"), here.join("base")).unwrap();
    copy("index");
    let before = ids(here, search);
    let clock = Instant::now();
    ok(here, &format!("{job} --quiet"));
    let whole = clock.elapsed();
    let after = ids(here, search);
    assert_ne!(before, after);
    let (mut unchanged, mut changed) = (0, 0);
    for moment in 0..14 {
        copy("index");
        let mut child =
            command(here, job).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(
            whole.mul_f64(0.3 + 0.06 * f64::from(moment)) + Duration::from_millis(1),
        );
        let _ = child.kill(); // SIGKILL; it may have ended
        child.wait().unwrap();
        let info = json(here, "index info index --check");
        assert_eq!(info["rows"], 120_000);
        match info["versions"].as_array().unwrap().len() {
            1 => unchanged += 1,
            2 => changed += 1,
            more => panic!("{more} versions"),
        }
        let found = ids(here, search);
        assert!(found == before || found == after, "moment {moment}");
        // The next writer leaves the files of the index and no more; then the refresh can be made.
        ok(here, "index remove index --ids 1 --quiet");
        let info = json(here, "index info index");
        assert_eq!(info["other_files"], serde_json::json!([]));
        assert!(!files(&here.join("index")).iter().any(|name| name == "journal"));
    }
    assert!(unchanged > 0, "{unchanged} kills before the change, {changed} after it");
}
