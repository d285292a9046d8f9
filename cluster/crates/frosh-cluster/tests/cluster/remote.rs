//! A scheduler and three executors, as separate processes.

use crate::data::{self, fails, ok};
use crate::local::local;
use crate::nodes::Cluster;
use arrow_array::types::Float32Type;

#[test]
fn a_cluster_trains_encodes_and_searches_with_the_bytes_of_one_machine() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let vectors = path.join("vectors");
    std::fs::create_dir(&vectors).unwrap();
    let files = data::files(&vectors, &[3000, 2500, 3100, 40, 2800, 3000, 1200, 2900, 3000], 48);
    let (sketch, model) = data::by_the_program(path, &files, &["--sketch-rows", "64"], "32");
    let cluster = Cluster::start(path, 3);
    let trained = path.join("cluster.frosh");
    let mut train = cluster.client("train");
    train.arg(&vectors).args([
        "--column",
        "embedding",
        "--bits",
        "32",
        "--timeout",
        "120",
        "--json",
        "-o",
    ]);
    let report = ok(train.arg(&trained).arg("--sketch").arg(path.join("cluster.sketch")));
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!((report["rows"].as_u64(), report["files"].as_u64()), (Some(21_540), Some(9)));
    assert!(std::fs::read(path.join("cluster.sketch")).unwrap() == sketch);
    assert!(std::fs::read(&trained).unwrap() == model);
    let partials = cluster.partials();
    assert!(
        partials.iter().all(|count| *count > 0),
        "partial aggregates of the executors: {partials:?}"
    );
    assert_eq!(partials.iter().sum::<usize>(), 9, "{partials:?}");
    println!("partial aggregates on each executor: {partials:?}");

    let (there, here) = (path.join("codes-there"), path.join("codes-here"));
    ok(cluster
        .client("encode")
        .arg(&trained)
        .arg(&vectors)
        .args(["-q", "--timeout", "120", "-o"])
        .arg(&there));
    ok(local("encode").arg(&trained).arg(&vectors).args(["-q", "-o"]).arg(&here));
    for i in 0..files.len() {
        let name = format!("part-{i}.parquet");
        assert!(data::codes(&there.join(&name)) == data::codes(&here.join(&name)), "{name}");
    }
    let queries = path.join("queries.parquet");
    data::write::<Float32Type>(&queries, 0, &data::made_up(77, 3, 48), 48);
    let mut search = cluster.client("search");
    search.arg(&trained).arg(&there).arg("--queries").arg(&queries).args([
        "--json",
        "--timeout",
        "120",
    ]);
    let found = ok(&mut search);
    assert_eq!(
        found,
        ok(local("search").arg(&trained).arg(&here).arg("--queries").arg(&queries).arg("--json"))
    );
    assert_eq!(serde_json::from_str::<Vec<serde_json::Value>>(&found).unwrap().len(), 30);

    // A quantiser.
    let learning = ["--sketch-rows", "128", "--reservoir", "1100"];
    let (_, model) = data::fitted_by_the_program(path, &files, &learning, ["--bytes", "5"]);
    let quantizer = path.join("quantizer.frosh");
    let mut train = cluster.client("train");
    train.arg(&vectors).args([
        "--bytes",
        "5",
        "--reservoir",
        "1100",
        "--timeout",
        "120",
        "-q",
        "-o",
    ]);
    ok(train.arg(&quantizer));
    assert!(std::fs::read(&quantizer).unwrap() == model);
    let (there, here) = (path.join("quantized-there"), path.join("quantized-here"));
    let mut encode = cluster.client("encode");
    ok(encode.arg(&quantizer).arg(&vectors).args(["-q", "--timeout", "120", "-o"]).arg(&there));
    ok(local("encode").arg(&quantizer).arg(&vectors).args(["-q", "-o"]).arg(&here));
    for i in 0..files.len() {
        let name = format!("part-{i}.parquet");
        assert!(data::codes(&there.join(&name)) == data::codes(&here.join(&name)), "{name}");
    }
    let mut search = cluster.client("search");
    search.arg(&quantizer).arg(&there).arg("--queries").arg(&queries);
    let found = ok(search.args(["--json", "--timeout", "120"]));
    let mut search = local("search");
    let search = search.arg(&quantizer).arg(&here).arg("--queries").arg(&queries);
    assert_eq!(found, ok(search.arg("--json")));
    assert_eq!(serde_json::from_str::<Vec<serde_json::Value>>(&found).unwrap().len(), 30);

    // A model for each tenant, by SQL.
    let sql = "SELECT id % 3 AS tenant, frosh_info(frosh_model(frosh_sketch(embedding, 'bits=8'), 8)) AS model \
               FROM t GROUP BY id % 3 ORDER BY tenant";
    let table = format!("t={}", vectors.display());
    let tenants =
        ok(cluster.client("sql").args(["--json", "--timeout", "120", "--table", &table, sql]));
    assert_eq!(tenants, ok(local("sql").args(["--json", "--table", &table, sql])));
    assert_eq!(serde_json::from_str::<Vec<serde_json::Value>>(&tenants).unwrap().len(), 3);

    // Errors of an executor reach the client.
    let mut values = data::made_up(1, 2000, 48);
    values[1234 * 48] = f32::INFINITY;
    data::write::<Float32Type>(&path.join("bad.parquet"), 0, &values, 48);
    let mut train = cluster.client("train");
    let said = fails(
        train.arg(path.join("bad.parquet")).args(["--timeout", "120", "-o"]).arg(path.join("x")),
        1,
    );
    assert!(
        said.contains("row 1234 of its partition") && said.contains("value 0 is inf"),
        "{said}"
    );
}

#[test]
fn a_cluster_without_executors_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(folder.path(), 0);
    let said = fails(cluster.client("train").args(["x.parquet", "-o", "m"]), 1);
    assert!(
        said.contains("no executor has joined the scheduler")
            && said.contains("frosh-cluster executor"),
        "{said}"
    );
}
