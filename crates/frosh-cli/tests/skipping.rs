//! `--skip-bad`: rows that cannot be used are left out, counted and listed, and the other rows keep their numbers.

mod common;
use common::{command, json, ok, run, values, write_npy};
use serde_json::Value;
use std::path::Path;

const DIM: usize = 16;
const ROWS: usize = 200;
/// At the start, in the middle and at the end.
const BAD: [usize; 5] = [0, 7, 8, 120, 199];

/// Vectors with and without bad rows, and a model of the good ones.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let good = values(ROWS, DIM, 1);
    write_npy(&dir.path().join("good.npy"), &good, DIM);
    let mut bad = good.clone();
    BAD.iter().for_each(|row| bad[row * DIM + 3] = f32::NAN);
    write_npy(&dir.path().join("bad.npy"), &bad, DIM);
    let kept: Vec<f32> = (0..ROWS)
        .filter(|row| !BAD.contains(row))
        .flat_map(|row| good[row * DIM..][..DIM].to_vec())
        .collect();
    write_npy(&dir.path().join("kept.npy"), &kept, DIM);
    let mut queries = good[40 * DIM..46 * DIM].to_vec();
    queries[2 * DIM] = f32::INFINITY;
    write_npy(&dir.path().join("q.npy"), &queries, DIM);
    ok(dir.path(), "train kept.npy --bits 16 --sketch-rows 32 -o model.frosh --quiet");
    dir
}

fn listed(folder: &Path, name: &str) -> Vec<usize> {
    let text = std::fs::read_to_string(folder.join(name)).unwrap();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn read(folder: &Path, name: &str) -> Vec<u8> {
    std::fs::read(folder.join(name)).unwrap()
}

#[test]
fn train_and_sketch_learn_from_the_rest_and_list_what_they_left_out() {
    let dir = folder();
    let job = "bad.npy --sketch-rows 32 --skip-bad --skipped list.txt";
    let report = json(dir.path(), &format!("train {job} --bits 16 -o x.frosh"));
    assert_eq!(report["left_out"], BAD.len());
    assert_eq!(listed(dir.path(), "list.txt"), BAD);
    assert!(read(dir.path(), "x.frosh") == read(dir.path(), "model.frosh"));
    std::fs::remove_file(dir.path().join("list.txt")).unwrap();
    let text = ok(dir.path(), &format!("sketch {job} -o x.sketch"));
    assert!(
        text.contains(
            "5 rows could not be used, left out: rows 0, 7, 8, 120, 199, listed in list.txt"
        ),
        "{text}"
    );
    assert_eq!(listed(dir.path(), "list.txt"), BAD);
}

#[test]
fn codes_of_other_rows_keep_their_places() {
    let dir = folder();
    for factors in ["", "--factors"] {
        let report = json(
            dir.path(),
            &format!(
                "encode model.frosh bad.npy {factors} --skip-bad --skipped list.txt -o bad.codes"
            ),
        );
        assert_eq!((&report["rows"], &report["left_out"]), (&ROWS.into(), &BAD.len().into()));
        assert_eq!(listed(dir.path(), "list.txt"), BAD);
        ok(dir.path(), &format!("encode model.frosh good.npy {factors} -o good.codes --quiet"));
        let load = |name: &str| frosh::Codes::load(dir.path().join(name)).unwrap();
        let (bad, good) = (load("bad.codes"), load("good.codes"));
        assert_eq!((bad.len(), bad.has_factors()), (ROWS, !factors.is_empty()));
        for row in 0..ROWS {
            let expected = if BAD.contains(&row) { &[0, 0][..] } else { good.row(row) };
            assert_eq!(bad.row(row), expected, "row {row}");
        }
    }
    // The plain array and bare bytes are the same codes.
    ok(dir.path(), "encode model.frosh bad.npy --skip-bad -o bad.codes --quiet");
    let text = ok(dir.path(), "encode model.frosh bad.npy --skip-bad -o codes.npy");
    assert!(
        text.contains("5 rows could not be used and have codes of zero bits: rows 0, 7"),
        "{text}"
    );
    let codes = frosh::Codes::load(dir.path().join("bad.codes")).unwrap();
    assert!(read(dir.path(), "codes.npy").ends_with(codes.as_bytes()));
    let bare = run(dir.path(), "encode model.frosh bad.npy --skip-bad -o -");
    assert!(bare.status.success() && bare.stdout == codes.as_bytes());
    let said = String::from_utf8(bare.stderr).unwrap();
    assert!(said.contains("codes of zero bits: rows 0, 7"), "{said}");
}

#[test]
fn an_index_gives_the_numbers_of_left_out_rows_to_no_others() {
    let dir = folder();
    ok(dir.path(), "index build model.frosh good.npy -o all --quiet");
    let bad: Vec<String> = BAD.iter().map(ToString::to_string).collect();
    ok(dir.path(), &format!("index remove all --ids {} --quiet", bad.join(",")));
    let report =
        json(dir.path(), "index build model.frosh bad.npy --skip-bad --skipped list.txt -o rest");
    assert_eq!(
        (&report["added"], &report["left_out"]),
        (&(ROWS - BAD.len()).into(), &BAD.len().into())
    );
    assert_eq!(listed(dir.path(), "list.txt"), BAD);
    // Rows that are added later are numbered on after all rows, the last of which was left out.
    for index in ["all", "rest"] {
        ok(dir.path(), &format!("index add {index} kept.npy --quiet"));
    }
    let search = |index: &str| {
        ok(dir.path(), &format!("index search {index} --queries kept.npy -k 400 --json"))
    };
    assert!(search("all") == search("rest"), "both indexes give the same answers");
    // Ids of one's own: one for each row, those of bad rows unused.
    let ids: String = (0..ROWS).map(|row| format!("{}\n", 1000 + row)).collect();
    std::fs::write(dir.path().join("ids.txt"), &ids).unwrap();
    ok(dir.path(), "index build model.frosh bad.npy --skip-bad --ids ids.txt -o own --quiet");
    let found = lines(&ok(dir.path(), "index search own --queries kept.npy -k 200 --json"));
    let mut found: Vec<u64> =
        found[0]["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
    found.sort_unstable();
    let expected = (0..ROWS).filter(|row| !BAD.contains(row)).map(|row| 1000 + row as u64);
    assert_eq!(found, expected.collect::<Vec<_>>());
    // Ids for the good rows alone are too few.
    std::fs::write(dir.path().join("ids.txt"), "5\n".repeat(ROWS - BAD.len())).unwrap();
    let output =
        run(dir.path(), "index build model.frosh bad.npy --skip-bad --ids ids.txt -o less");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("195 ids"), "{said}");
}

#[test]
fn queries_keep_their_numbers() {
    let dir = folder();
    ok(dir.path(), "encode model.frosh good.npy -o codes.frosh --quiet");
    ok(dir.path(), "index build model.frosh good.npy -o index --quiet");
    for search in ["search model.frosh codes.frosh", "index search index"] {
        let job = format!("{search} --queries q.npy --skip-bad --skipped list.txt -k 3");
        let found = lines(&ok(dir.path(), &format!("{job} --json --quiet")));
        let numbers: Vec<_> = found.iter().map(|line| line["query"].as_u64().unwrap()).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5]);
        assert_eq!(
            (&found[2]["ids"], &found[2]["left_out"]),
            (&Value::Array(vec![]), &true.into())
        );
        assert!(found[3]["ids"].as_array().unwrap().contains(&43.into()), "{}", found[3]);
        assert_eq!(listed(dir.path(), "list.txt"), [2]);
        let output = run(dir.path(), &job);
        let (text, said) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert!(text.contains("\n3\t1\t") && !text.contains("\n2\t"), "{text}");
        assert!(said.contains("1 row could not be used as a query: row 2"), "{said}");
    }
}

#[test]
fn reranking_passes_over_bad_rows() {
    let dir = folder();
    ok(dir.path(), "encode model.frosh bad.npy --skip-bad -o codes.frosh --quiet");
    let job = "search model.frosh codes.frosh --queries kept.npy --rerank bad.npy --skip-bad -k 200 --oversample 1";
    let found = lines(&ok(dir.path(), &format!("{job} --json")));
    for (line, row) in found.iter().zip((0..ROWS).filter(|row| !BAD.contains(row))) {
        let ids: Vec<_> =
            line["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
        assert_eq!((ids.len(), ids[0]), (ROWS - BAD.len(), row as u64));
        assert!(BAD.iter().all(|bad| !ids.contains(&(*bad as u64))));
    }
}

#[test]
fn measures_are_those_of_the_good_rows() {
    let dir = folder();
    let labels: Vec<String> = (0..ROWS).map(|row| (row % 3).to_string()).collect();
    std::fs::write(dir.path().join("labels.txt"), labels.join("\n")).unwrap();
    let kept: Vec<&str> =
        (0..ROWS).filter(|row| !BAD.contains(row)).map(|row| labels[row].as_str()).collect();
    std::fs::write(dir.path().join("kept.txt"), kept.join("\n")).unwrap();
    let plain = |mut report: Value| {
        for name in ["seconds", "left_out", "left_out_queries"] {
            report.as_object_mut().unwrap().remove(name);
        }
        report
    };
    for (job, labelled) in [("eval", ""), ("eval", "--labels"), ("calibrate", "")] {
        let arguments = |data: &str, labels: &str| {
            let labels =
                if labelled.is_empty() { String::new() } else { format!("--labels {labels}") };
            format!("{job} model.frosh --base {data} {labels}")
        };
        let bad = json(
            dir.path(),
            &format!("{} --skip-bad --skipped list.txt", arguments("bad.npy", "labels.txt")),
        );
        assert_eq!(bad["left_out"], BAD.len());
        assert_eq!(listed(dir.path(), "list.txt"), BAD);
        let good = json(dir.path(), &arguments("kept.npy", "kept.txt"));
        assert_eq!(plain(bad), plain(good), "{job} {labelled}");
    }
    let report = json(dir.path(), "eval model.frosh --base bad.npy --queries q.npy --skip-bad");
    assert_eq!((&report["queries"], &report["left_out_queries"]), (&5.into(), &1.into()));
    let text = ok(dir.path(), "eval model.frosh --base bad.npy --queries q.npy --skip-bad");
    assert!(text.contains("5 rows could not be used in the base: rows 0, 7"), "{text}");
    assert!(text.contains("1 query could not be used"), "{text}");
}

#[test]
fn convert_tells_which_rows_are_missing() {
    let dir = folder();
    let text = ok(dir.path(), "convert bad.npy x.fbin --skip-bad --skipped list.txt");
    assert!(text.contains("195 rows of 16 dimensions"), "{text}");
    assert!(
        text.contains(
            "5 rows could not be used and are missing in the output: rows 0, 7, 8, 120, 199"
        ),
        "{text}"
    );
    assert_eq!(listed(dir.path(), "list.txt"), BAD);
    let output = run(dir.path(), "convert bad.npy - --to csv --skip-bad");
    assert!(String::from_utf8_lossy(&output.stderr).contains("missing in the output: rows 0, 7"));
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), ROWS - BAD.len());
}

#[test]
fn nulls_are_left_out_by_their_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../frosh-io/tests/fixtures/columns");
    std::fs::copy(fixtures.join("null_list.parquet"), dir.path().join("nulls.parquet")).unwrap();
    let job =
        "train nulls.parquet --bits 2 --sketch-rows 4 --skip-bad --skipped list.txt -o model.frosh";
    assert_eq!(json(dir.path(), job)["left_out"], 2);
    assert_eq!(listed(dir.path(), "list.txt"), [7, 20]);
    let report = json(dir.path(), "encode model.frosh nulls.parquet --skip-bad -o codes.npy");
    assert_eq!(report["rows"], 30);
    ok(
        dir.path(),
        "index build model.frosh nulls.parquet --skip-bad --no-factors -o index --quiet",
    );
    let found = ok(
        dir.path(),
        "index search index --queries nulls.parquet --skip-bad -k 30 --json --quiet",
    );
    let ids = lines(&found)[0]["ids"].as_array().unwrap().clone();
    assert!(ids.len() == 28 && !ids.contains(&7.into()) && ids.contains(&29.into()), "{ids:?}");
}

#[test]
fn the_list_overwrites_no_other_file_of_the_command() {
    let dir = folder();
    for job in [
        "encode model.frosh bad.npy --skip-bad --skipped bad.npy -o x",
        "encode model.frosh bad.npy --skip-bad --skipped x -o x",
        "train bad.npy --bits 8 --skip-bad --skipped x -o x",
        "convert bad.npy x.csv --skip-bad --skipped bad.npy",
    ] {
        let before = read(dir.path(), "bad.npy");
        let output = run(dir.path(), job);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains("--skipped would overwrite"),
            "{job}: {said}"
        );
        assert!(read(dir.path(), "bad.npy") == before && !dir.path().join("x").exists());
    }
    let output = command(dir.path(), "encode model.frosh bad.npy --skipped list.txt -o x").output();
    assert_eq!(output.unwrap().status.code(), Some(2), "a list needs --skip-bad");
}
