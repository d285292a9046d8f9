//! `frosh-cluster local`, against the `frosh` program.

use crate::data::{self, PROGRAM, by_the_program, fails, ok};
use arrow_array::types::{Float16Type, Float32Type};
use half::f16;
use std::path::Path;
use std::process::Command;

pub(crate) fn local(verb: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["local", verb]);
    command
}

#[test]
fn local_training_equals_the_program_on_made_up_vectors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let files = data::files(path, &[3000, 41, 1700, 5000], 48);
    let (sketch, model) =
        by_the_program(path, &files, &["--sketch-rows", "64", "--seed", "5"], "32");
    for threads in ["1", "2", "7"] {
        let mut train = local("train");
        train.arg(path).args([
            "--bits",
            "32",
            "--seed",
            "5",
            "--threads",
            threads,
            "--force",
            "--json",
            "-o",
        ]);
        let report =
            ok(train.arg(path.join("model.frosh")).arg("--sketch").arg(path.join("all.sketch")));
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        assert_eq!((report["rows"].as_u64(), report["files"].as_u64()), (Some(9741), Some(4)));
        assert!(std::fs::read(path.join("all.sketch")).unwrap() == sketch, "{threads} threads");
        assert!(std::fs::read(path.join("model.frosh")).unwrap() == model, "{threads} threads");
    }
    // The same by SQL, in one plan.
    let sql = "SELECT frosh_info(frosh_sketch(embedding, 'bits=32, seed=5')) AS info FROM t";
    let table = format!("t={}", path.join("part-*.parquet").display());
    let printed = ok(local("sql").args(["--json", "--table", &table, sql]));
    let rows: serde_json::Value = serde_json::from_str(&printed).unwrap();
    let info: serde_json::Value = serde_json::from_str(rows[0]["info"].as_str().unwrap()).unwrap();
    assert_eq!((info["rows"].as_u64(), info["parts"].as_u64()), (Some(9741), Some(4)));
    assert_eq!(info["bytes"].as_u64(), Some(sketch.len() as u64));
}

#[test]
fn local_training_equals_the_program_on_sentence_embeddings() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../../shared/data/debian-minilm384/base.npy");
    let Ok(bytes) = std::fs::read(&path) else {
        return data::skipped(&format!("there is no {}", path.display()));
    };
    let body = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = String::from_utf8_lossy(&bytes[10..body]);
    assert!(
        header.contains("'<f2'") && header.contains("False, 'shape': (60355, 384)"),
        "{header}"
    );
    let halves: Vec<f16> =
        bytes[body..].chunks_exact(2).map(|p| f16::from_le_bytes([p[0], p[1]])).collect();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // Five files of unequal lengths.
    let cuts = [0, 20_000, 21_000, 40_000, 52_000, 60_355];
    let mut files = Vec::new();
    for (i, cut) in cuts.windows(2).enumerate() {
        let file = folder.join(format!("{i}.parquet"));
        let rows = &halves[cut[0] * 384..cut[1] * 384];
        data::write::<Float16Type>(&file, cut[0], rows, 384);
        files.push(file);
    }
    let (sketch, model) = by_the_program(folder, &files, &["--sketch-rows", "128"], "64");
    let mut train = local("train");
    train.arg(folder.join("*.parquet")).args(["--column", "embedding", "--bits", "64", "-q", "-o"]);
    ok(train.arg(folder.join("model.frosh")).arg("--sketch").arg(folder.join("all.sketch")));
    assert!(std::fs::read(folder.join("all.sketch")).unwrap() == sketch);
    assert!(std::fs::read(folder.join("model.frosh")).unwrap() == model);
}

#[test]
fn encode_and_search_equal_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let files = data::files(path, &[500, 730], 32);
    let model = path.join("model.frosh");
    ok(local("train").args(&files).args(["--bits", "24", "-q", "-o"]).arg(&model));
    let out = path.join("codes");
    ok(local("encode").arg(&model).args(&files).args(["-q", "-o"]).arg(&out));
    let mut all = Vec::new();
    for (i, file) in files.iter().enumerate() {
        let codes = data::codes(&out.join(format!("part-{i}.parquet")));
        let first = if i == 0 { 0 } else { 500 };
        assert!(codes.iter().enumerate().all(|(row, (id, _))| *id == (first + row) as i64));
        let plain = path.join("plain.npy");
        let mut encode = Command::new(data::frosh());
        encode.args(["encode", "--no-factors", "--column", "embedding", "-q", "-o"]);
        ok(encode.arg(&plain).arg(&model).arg(file));
        let plain = std::fs::read(plain).unwrap();
        let bytes: Vec<u8> = codes.iter().flat_map(|(_, code)| code.clone()).collect();
        assert!(plain.ends_with(&bytes) && bytes.len() == codes.len() * 3);
        all.extend(codes);
    }
    // The first rows of the second file as queries: the nearest by an exhaustive scan.
    let queries = path.join("queries.parquet");
    data::write::<Float32Type>(&queries, 0, &data::made_up(2, 20, 32), 32);
    let mut search = local("search");
    let search =
        search.arg(&model).arg(&out).arg("--queries").arg(&queries).args(["-k", "7", "--json"]);
    let found: Vec<serde_json::Value> = serde_json::from_str(&ok(search)).unwrap();
    assert_eq!(found.len(), 20 * 7);
    for (query, hits) in found.chunks(7).enumerate() {
        let code = &all[500 + query].1;
        let distance = |other: &[u8]| -> u32 {
            code.iter().zip(other).map(|(a, b)| (a ^ b).count_ones()).sum()
        };
        let mut want: Vec<(u32, i64)> =
            all.iter().map(|(id, other)| (distance(other), *id)).collect();
        want.sort_unstable();
        for (hit, (distance, id)) in hits.iter().zip(want) {
            assert_eq!(hit["query"], query);
            assert_eq!(
                (hit["distance"].as_u64(), hit["id"].as_i64()),
                (Some(distance.into()), Some(id))
            );
        }
    }
}

#[test]
fn quantisers_equal_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let files = data::files(path, &[900, 1100], 24);
    let learning = ["--bytes", "6", "--reservoir", "1100", "--seed", "4"];
    let (_, fitted) = data::fitted_by_the_program(path, &files, &learning, ["--bytes", "6"]);
    let model = path.join("model.frosh");
    let mut train = local("train");
    train.args(&files).args(["--bytes", "6", "--reservoir", "1100", "--seed", "4", "--json", "-o"]);
    let report: serde_json::Value = serde_json::from_str(&ok(train.arg(&model))).unwrap();
    assert_eq!((report["bits"].as_u64(), report["bytes_per_row"].as_u64()), (Some(48), Some(6)));
    assert_eq!(report["ranking"], "estimated");
    assert!(std::fs::read(&model).unwrap() == fitted);
    let table = format!("t={}", path.join("part-*.parquet").display());
    let sql = "SELECT frosh_info(frosh_quantizer(frosh_sketch(embedding, 'bytes=6, reservoir=1100, seed=4'), 6)) AS info FROM t";
    let printed = ok(local("sql").args(["--json", "--table", &table, sql]));
    let rows: serde_json::Value = serde_json::from_str(&printed).unwrap();
    let info: serde_json::Value = serde_json::from_str(rows[0]["info"].as_str().unwrap()).unwrap();
    assert_eq!(info["id"], report["id"]);
    for effort in ["1", "8"] {
        let out = path.join(format!("codes-{effort}"));
        ok(local("encode")
            .arg(&model)
            .args(&files)
            .args(["--effort", effort, "-q", "-o"])
            .arg(&out));
        let plain = path.join("plain.npy");
        let mut encode = Command::new(data::frosh());
        encode.args(["encode", "--column", "embedding", "--effort", effort, "-q", "-o"]);
        ok(encode.arg(&plain).arg(&model).args(&files));
        let codes =
            ["part-0", "part-1"].map(|name| data::codes(&out.join(format!("{name}.parquet"))));
        let bytes: Vec<u8> = codes.concat().into_iter().flat_map(|(_, code)| code).collect();
        assert!(bytes.len() == 2000 * 6 && std::fs::read(plain).unwrap().ends_with(&bytes));
    }
    // The nearest codes of 20 queries, more than one job has.
    let queries = path.join("queries.parquet");
    data::write::<Float32Type>(&queries, 0, &data::made_up(2, 20, 24), 24);
    let mut search = local("search");
    let search = search.arg(&model).arg(path.join("codes-8")).arg("--queries").arg(&queries);
    let found: Vec<serde_json::Value> =
        serde_json::from_str(&ok(search.args(["-k", "7", "--json"]))).unwrap();
    let stored = path.join("codes.frosh");
    let mut encode = Command::new(data::frosh());
    ok(encode
        .args(["encode", "--column", "embedding", "-q", "-o"])
        .arg(&stored)
        .arg(&model)
        .args(&files));
    let mut search = Command::new(data::frosh());
    search.arg("search").arg(&model).arg(&stored).arg("--queries").arg(&queries);
    let printed = ok(search.args(["--column", "embedding", "-k", "7", "--json"]));
    let want: Vec<serde_json::Value> =
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((found.len(), want.len()), (20 * 7, 20));
    for (query, hits) in found.chunks(7).enumerate() {
        assert!(hits.iter().all(|hit| hit["query"] == query));
        let ids: Vec<&serde_json::Value> = hits.iter().map(|hit| &hit["id"]).collect();
        assert_eq!(ids, want[query]["ids"].as_array().unwrap().iter().collect::<Vec<_>>());
        assert!(ids.contains(&&(900 + query).into()), "query {query} is a row of the second file");
    }
    for (arguments, code, words) in [
        (vec!["--bytes", "3"], 2, "4..=64"),
        (vec!["--bytes", "8", "--bits", "64"], 2, "cannot be used with"),
        (vec!["--bytes", "8", "--rotation", "itq"], 2, "cannot be used with"),
        (vec!["--bytes", "8", "--reservoir", "100"], 1, "a quantiser needs 1024"),
        (vec!["--bytes", "8", "--method", "lsh"], 1, "LSH learns no directions"),
    ] {
        let mut train = local("train");
        let said = fails(train.args(&files).args(&arguments).arg("-o").arg(path.join("x")), code);
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}

/// The worked example of docs/cluster.md.
#[test]
fn a_folder_of_parquet_becomes_codes_and_a_top_ten_in_sql() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    std::fs::create_dir(path.join("vectors")).unwrap();
    data::files(&path.join("vectors"), &[700, 900], 80);
    let sql = |tables: &[&str], query: &str| {
        let mut command = local("sql");
        for table in tables {
            command.args(["--table", table]);
        }
        ok(command.args(["--json", query]).current_dir(path))
    };
    sql(
        &["vectors=vectors/"],
        "COPY (SELECT frosh_model(frosh_sketch(embedding, 'bits=64'), 64) AS model FROM vectors) TO 'models/model.parquet'",
    );
    sql(
        &["vectors=vectors/", "models=models/"],
        "COPY (SELECT id, frosh_encode(embedding, model) AS code FROM vectors, models) TO 'codes/codes.parquet'",
    );
    let found = sql(
        &["codes=codes/"],
        "SELECT c.id, frosh_hamming(c.code, q.code) AS distance FROM codes c, codes q
         WHERE q.id = 17 ORDER BY distance, c.id LIMIT 10",
    );
    let found: Vec<serde_json::Value> = serde_json::from_str(&found).unwrap();
    assert_eq!((found.len(), &found[0]["id"], &found[0]["distance"]), (10, &17.into(), &0.into()));
    // The same model and codes as the verbs make.
    let model = path.join("model.frosh");
    ok(local("train").arg(path.join("vectors")).args(["--bits", "64", "-q", "-o"]).arg(&model));
    ok(local("encode")
        .arg(&model)
        .arg(path.join("vectors"))
        .args(["-q", "-o"])
        .arg(path.join("verbs")));
    let mut codes = data::codes(&path.join("codes/codes.parquet"));
    codes.sort_unstable();
    let verbs =
        ["part-0", "part-1"].map(|name| data::codes(&path.join(format!("verbs/{name}.parquet"))));
    assert!(codes == verbs.concat());
}

#[test]
fn bad_rows_and_wrong_usage_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let mut values = data::made_up(1, 3000, 16);
    values[2345 * 16 + 7] = f32::NAN;
    let bad = path.join("bad.parquet");
    data::write::<Float32Type>(&bad, 0, &values, 16);
    let model = path.join("model.frosh");
    let train = |arguments: &[&str]| {
        let mut command = local("train");
        command.args(["-o"]).arg(&model).args(["--bits", "8"]).args(arguments);
        command
    };
    let said = fails(train(&[]).arg(&bad), 1);
    assert!(
        said.contains("bad.parquet")
            && said.contains("row 2345 of its partition")
            && said.contains("value 7 is NaN"),
        "{said}"
    );
    assert!(!model.exists());
    let report = ok(train(&["--skip-bad", "--json"]).arg(&bad));
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!((report["rows"].as_u64(), report["left_out"].as_u64()), (Some(2999), Some(1)));
    for (arguments, code, words) in [
        (vec!["train", "nothing.parquet", "-o", "m"], 1, "nothing.parquet"),
        (vec!["train", "-o", "m"], 2, "DATA"),
        (
            vec!["train", bad.to_str().unwrap(), "--column", "id", "-o", "m"],
            1,
            "column id is of type Int64",
        ),
        (
            vec!["train", bad.to_str().unwrap(), "--column", "x", "-o", "m"],
            1,
            "there is no column x; the columns are id",
        ),
        (vec!["train", bad.to_str().unwrap(), bad.to_str().unwrap(), "-o", "m"], 1, "named twice"),
        (vec!["train", bad.to_str().unwrap(), "-o", model.to_str().unwrap()], 1, "--force"),
        (vec!["train", bad.to_str().unwrap(), "--metric", "l7", "-o", "m"], 2, "l7"),
        (vec!["sql", "SELECT frosh_sketch(x) FROM t"], 1, "t"),
        (vec!["sql", "--table", "t", "SELECT 1"], 1, "NAME=DATA"),
        (
            vec![
                "search",
                model.to_str().unwrap(),
                bad.to_str().unwrap(),
                "--queries",
                bad.to_str().unwrap(),
            ],
            1,
            "value 7 is NaN",
        ),
    ] {
        let mut command = Command::new(PROGRAM);
        let said = fails(command.arg("local").args(&arguments).current_dir(path), code);
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
    let said = fails(
        Command::new(PROGRAM).args(["train", "--scheduler", "df://127.0.0.1:1", "x", "-o", "m"]),
        1,
    );
    assert!(said.contains("no frosh-cluster scheduler answers at df://127.0.0.1:1"), "{said}");
    assert!(ok(Command::new(PROGRAM).args(["train", "--help"])).contains("Examples:"));
}
