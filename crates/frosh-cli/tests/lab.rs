//! The lab from the command line, on a small file.

mod common;
use common::{files, json, ok, run, values, write_npy};
use serde_json::Value;

const DIM: usize = 32;

fn records(folder: &std::path::Path) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join("out/results.json")).unwrap();
    let results: Value = serde_json::from_str(&text).unwrap();
    results["records"].as_array().unwrap().clone()
}

#[test]
fn experiments_on_a_file_of_one_s_own_can_be_stopped_and_resumed() {
    let dir = tempfile::tempdir().unwrap();
    write_npy(&dir.path().join("mine.npy"), &values(1500, DIM, 1), DIM);
    let with = "--quick --data mine.npy --bits 8,16 --queries 20 --out out";
    let summary = json(dir.path(), &format!("lab precision-recall {with} --repeats 2"));
    // Nine methods, of which plain PCA has nothing to repeat.
    assert_eq!(summary["records"]["precision-recall"], 17);
    assert_eq!(records(dir.path()).len(), 17);

    let again = run(dir.path(), &format!("lab rounds {with}"));
    let errors = String::from_utf8(again.stderr).unwrap();
    assert!(!again.status.success() && errors.contains("--resume"), "{errors}");

    ok(dir.path(), &format!("lab rounds {with} --repeats 1 --resume"));
    ok(dir.path(), &format!("lab train-time {with} --repeats 2 --resume --quiet"));
    let all = records(dir.path());
    let of = |experiment: &str| -> Vec<&Value> {
        all.iter().filter(|r| r["experiment"] == experiment).collect()
    };
    assert_eq!(of("precision-recall").len(), 17);
    for record in of("precision-recall") {
        // From one returned row to all 1,480 of the base, where all that is relevant is found.
        let points: Vec<Vec<f64>> = serde_json::from_value(record["returned"].clone()).unwrap();
        assert_eq!((points[0][0], points[points.len() - 1][0]), (1.0, 1480.0));
        assert!(points.windows(2).all(|w| w[0][0] < w[1][0] && w[0][1] <= w[1][1]));
        let last = &points[points.len() - 1];
        assert!((last[1] - 1.0).abs() < 1e-9 && (last[2] - 29.0 / 1480.0).abs() < 1e-9);
    }
    // Three methods, two lengths, ten rounds.
    assert_eq!(of("rounds").len(), 60);
    for record in of("rounds") {
        assert_eq!(record["data"], "mine");
        let map = record["map"].as_f64().unwrap();
        assert!(map > 0.0 && map <= 1.0);
    }
    for method in ["LSH", "OSH", "FROSH", "DFROSH", "SGH", "OCH-style", "PCA-ITQ"] {
        let times: Vec<_> =
            of("train-time").into_iter().filter(|r| r["method"] == method).collect();
        assert_eq!(times.len(), 4, "{method}");
        assert!(times.iter().all(|r| r["seconds"].as_f64().unwrap() > 0.0 && r["rows"] == 1500));
    }
    // What MAP is measured on is timed as a whole, for the methods that learn a rotation.
    for method in ["OSH", "FROSH", "DFROSH"] {
        let whole = of("whole-training").into_iter().filter(|r| r["method"] == method);
        assert_eq!(whole.count(), 4, "{method}");
    }
    // A reduced run shows numbers, and judges nothing.
    let summary = json(dir.path(), "lab report --out out");
    let claims = summary["claims"].as_array().unwrap();
    let verdict = |claim: &Value| claim["real"]["verdict"].as_str().unwrap().to_owned();
    assert!(
        claims.iter().any(|claim| verdict(claim) == "too-small" && claim["real"]["cells"] != 0)
    );
    assert!(claims.iter().all(|claim| ["too-small", "not-tested"].contains(&&*verdict(claim))));
    let readme = std::fs::read_to_string(dir.path().join("out/README.md")).unwrap();
    assert!(readme.contains("| too small to judge |") && readme.contains("| whole training |"));
    // Once more, and nothing is left to do.
    ok(dir.path(), &format!("lab rounds {with} --repeats 1 --resume --quiet"));
    assert_eq!(records(dir.path()), all);
    for name in [
        "precision-recall.csv",
        "rounds.csv",
        "train-time.csv",
        "whole-training.csv",
        "results.json",
    ] {
        assert!(files(&dir.path().join("out")).contains(&name.to_owned()), "{name}");
    }
}

#[test]
fn data_sets_are_looked_for_and_their_shapes_checked() {
    let dir = tempfile::tempdir().unwrap();
    let text = ok(dir.path(), "lab data --data .");
    assert!(text.contains("gist1m") && text.contains("corpus-texmex"), "{text}");
    std::fs::create_dir(dir.path().join("cifar10-gist512")).unwrap();
    write_npy(&dir.path().join("cifar10-gist512/base.npy"), &values(10, DIM, 1), DIM);
    let sets = json(dir.path(), "lab data --data .");
    let cifar = sets.as_array().unwrap().iter().find(|s| s["name"] == "cifar10-gist").unwrap();
    assert!(cifar["trouble"].as_str().unwrap().contains("60000 rows of 512"), "{cifar}");
    assert!(!run(dir.path(), "lab data --data missing").status.success());
}

#[test]
fn streams_that_change_are_measured_in_the_order_of_a_file_and_by_component() {
    let dir = tempfile::tempdir().unwrap();
    // The columns that vary most change in the middle of the file.
    let mut all = values(3000, DIM, 1);
    for (i, x) in all.iter_mut().enumerate() {
        let (row, column) = (i / DIM, i % DIM);
        *x *= 1.0 + column as f32 / 4.0;
        if column / 8 == 2 * (row / 1500) {
            *x *= 6.0;
        }
    }
    write_npy(&dir.path().join("mine.npy"), &all, DIM);
    let job = "lab streams --quick --data mine.npy --bits 16 --queries 50 --repeats 1 --out out";
    assert_eq!(json(dir.path(), job)["records"]["streams"], 10);
    let all = records(dir.path());
    let of = |order: &str, method: &str, what: &str| {
        let data = format!("mine {order}");
        let record = all.iter().find(|r| r["data"] == *data && r["method"] == method).unwrap();
        record[what].as_f64().unwrap()
    };
    for order in ["file", "axis"] {
        for method in ["versions", "when due"] {
            let encoded = of(order, method, "encoded");
            assert!((1.0..=2.0).contains(&encoded), "{order}, {method}: {encoded}");
        }
        assert_eq!(
            (of(order, "frozen", "versions"), of(order, "versions", "versions")),
            (1.0, 10.0)
        );
    }
    let file = |method: &str| of("file", method, "map");
    let [frozen, again, mixed, versions, due] =
        ["frozen", "encode all", "mixed", "versions", "when due"].map(file);
    println!("{frozen:.3} {again:.3} {mixed:.3} {versions:.3} {due:.3}");
    assert!(versions > frozen + 0.05 && due > frozen + 0.05 && mixed < versions - 0.1);
    assert!(again > frozen);
    let names = files(&dir.path().join("out"));
    assert!(names.contains(&"streams.csv".to_owned()) && names.contains(&"streams.svg".to_owned()));
    assert!(!names.contains(&"streams.tmp".to_owned()), "{names:?}");
    let page = std::fs::read_to_string(dir.path().join("out/report.html")).unwrap();
    assert!(page.contains("mine file") && page.contains("rows encoded for each"));
}

#[test]
fn drift_is_measured_and_missing_sets_are_told_of() {
    let dir = tempfile::tempdir().unwrap();
    write_npy(&dir.path().join("mine.npy"), &values(2600, DIM, 1), DIM);
    let output = run(dir.path(), "lab drift --quick --data mine.npy --bits 8 --out out --json");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("MNIST: skipped, its files are not in --data"), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    // Two orders, fifteen pairs each.
    assert_eq!(report["pairs"].as_array().unwrap().len(), 30);
    assert_eq!(report["scores"][0]["figure"], "gap");
    let scores = report["scores"].as_array().unwrap();
    assert!(scores.iter().all(|s| s["correlation"].as_f64().unwrap().abs() <= 1.0));
    assert_eq!(files(&dir.path().join("out")), ["drift.csv", "drift.svg"]);
    let table = std::fs::read_to_string(dir.path().join("out/drift.csv")).unwrap();
    assert_eq!(table.lines().count(), 31);

    let none = run(dir.path(), "lab drift --out out2");
    assert_eq!(none.status.code(), Some(1));
    assert!(String::from_utf8(none.stderr).unwrap().contains("with --data"));
}
