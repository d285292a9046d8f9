//! Quantisers in SQL, against the library's own results.

use super::{DIM, bytes, column, context, floats, table, text, vectors};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, BinaryArray, Float64Array, Int64Array};
use datafusion::arrow::datatypes::Float64Type;
use datafusion::datasource::MemTable;
use datafusion::prelude::SessionContext;
use frosh::{Config, Model, Ranking, Rows, Search, Sketch, Sketcher};
use std::sync::Arc;

const PARTS: [(u64, usize); 2] = [(1, 800), (2, 700)];

fn sketch(seed: u64, rows: usize) -> Sketch {
    let config = Config::new(DIM).for_quantizer(4).seed(3).worker_from_rows();
    let mut sketcher = Sketcher::new(config).unwrap();
    sketcher.push(Rows::new(&floats(seed, rows), DIM).unwrap()).unwrap();
    sketcher.finish()
}

/// A table `t` with the columns id and v, in two partitions.
fn rows() -> SessionContext {
    let parts = PARTS.map(|(seed, rows)| {
        let ids = Int64Array::from_iter_values((0..rows as i64).map(|i| i + seed as i64 * 1000));
        table(vec![("id", Arc::new(ids)), ("v", vectors(floats(seed, rows)))])
    });
    context(&parts)
}

/// Registers a table `m` with this model.
fn add_model(context: &SessionContext, model: &[u8]) {
    let models = table(vec![("model", Arc::new(BinaryArray::from_vec(vec![model])))]);
    let models = MemTable::try_new(models.schema(), vec![vec![models]]).unwrap();
    let _ = context.deregister_table("m").unwrap();
    context.register_table("m", Arc::new(models)).unwrap();
}

/// Distances of all rows, in their order, to one query.
fn by_the_library(model: &Model, ranking: Ranking, query: &[f32]) -> Vec<f64> {
    let all = PARTS.map(|(seed, rows)| floats(seed, rows)).concat();
    let codes = model.encode(Rows::new(&all, DIM).unwrap()).unwrap();
    let queries = model.queries(Rows::new(query, DIM).unwrap()).unwrap();
    let search = Search::nearest(codes.len()).ranking(ranking);
    let mut hits = codes.search(&queries, &search).unwrap().remove(0);
    hits.sort_by_key(|hit| hit.id);
    hits.iter().map(|hit| hit.distance).collect()
}

fn numbers(column: &ArrayRef) -> Vec<Option<f64>> {
    column.as_primitive::<Float64Type>().iter().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quantiser_has_the_bytes_of_the_library() {
    let context = rows();
    let merged = Sketch::merge(&PARTS.map(|(seed, rows)| sketch(seed, rows))).unwrap();
    let sql = "SELECT frosh_sketch(v, 'bytes=4, seed=3') FROM t";
    assert_eq!(bytes(&context, sql).await.unwrap().unwrap(), merged.to_bytes());
    let quantizer = merged.quantizer(4).unwrap();
    let sql = "SELECT frosh_quantizer(frosh_sketch(v, 'bytes=4, seed=3'), 4) FROM t";
    assert_eq!(bytes(&context, sql).await.unwrap().unwrap(), quantizer.to_bytes());
    add_model(&context, &quantizer.to_bytes());
    let all = PARTS.map(|(seed, rows)| floats(seed, rows)).concat();
    let mut seen = Vec::new();
    for (effort, options) in [(8, ""), (1, ", 'effort=1'"), (32, ", 'effort=32, skip_bad'")] {
        let sql = format!("SELECT frosh_encode(v, model{options}) FROM t, m ORDER BY id");
        let codes = column(&context, &sql).await.unwrap();
        let got: Vec<u8> = codes.as_binary::<i32>().iter().flatten().flatten().copied().collect();
        let want = quantizer.clone().effort(effort).encode(Rows::new(&all, DIM).unwrap()).unwrap();
        assert!(got == want.as_bytes(), "effort {effort}");
        seen.push(got);
    }
    assert!(seen[0] != seen[1] && seen[0] != seen[2], "the effort changes nothing");
    let info = text(&context, "SELECT frosh_info(model) FROM m").await;
    assert_eq!(
        (info["kind"].as_str(), info["bytes_per_row"].as_u64()),
        (Some("quantizer"), Some(4))
    );
    assert_eq!((info["rows"].as_u64(), info["dim"].as_u64()), (Some(1500), Some(DIM as u64)));
    assert_eq!(info["id"].as_str(), Some(&*quantizer.id().to_string()));
}

#[tokio::test(flavor = "multi_thread")]
async fn distances_are_those_of_the_library() {
    let context = rows();
    let merged = Sketch::merge(&PARTS.map(|(seed, rows)| sketch(seed, rows))).unwrap();
    let models = [
        (Model::from(merged.quantizer(5).unwrap()), Ranking::Estimated),
        (Model::from(merged.hasher(12).unwrap()), Ranking::Asymmetric),
    ];
    for (model, ranking) in models {
        add_model(&context, &model.to_bytes());
        let encode =
            "CREATE OR REPLACE TABLE codes AS SELECT id, frosh_encode(v, model) AS code FROM t, m";
        context.sql(encode).await.unwrap().collect().await.unwrap();
        // One query after the other, as a join has them, and two of them in turn within one batch.
        let queries = [17, 640].map(|row| floats(1, 800)[row * DIM..(row + 1) * DIM].to_vec());
        let want = [&queries[0], &queries[1]].map(|query| by_the_library(&model, ranking, query));
        for (id, want) in [1017, 1640].into_iter().zip(&want) {
            let sql = format!(
                "SELECT frosh_distance(c.code, q.v, model) FROM codes c, t q, m WHERE q.id = {id} ORDER BY c.id"
            );
            let got = numbers(&column(&context, &sql).await.unwrap());
            assert_eq!(got, want.iter().copied().map(Some).collect::<Vec<_>>());
        }
        let sql = "SELECT frosh_distance(c.code, q.v, model) FROM codes c, t q, m \
                   WHERE q.id = 1017 + 623 * (c.id % 2) ORDER BY c.id";
        let got = numbers(&column(&context, sql).await.unwrap());
        let each = (0..1500).map(|row| Some(want[(row % 800) % 2][row]));
        assert_eq!(got, each.collect::<Vec<_>>());
        // A literal as the query.
        let values: Vec<String> = queries[0].iter().map(|x| format!("{x:?}")).collect();
        let sql = format!(
            "SELECT frosh_distance(code, arrow_cast([{}], 'List(Float32)'), model) FROM codes, m ORDER BY id",
            values.join(", ")
        );
        let got = numbers(&column(&context, &sql).await.unwrap());
        assert_eq!(got, want[0].iter().copied().map(Some).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nulls_and_wrong_arguments_of_quantisers_are_explained() {
    let context = rows();
    let merged = Sketch::merge(&PARTS.map(|(seed, rows)| sketch(seed, rows))).unwrap();
    let quantizer = merged.quantizer(4).unwrap();
    add_model(&context, &quantizer.to_bytes());
    let sql = "SELECT frosh_distance(CASE WHEN id % 3 = 0 THEN NULL ELSE frosh_encode(v, model) END, v, \
               CASE WHEN id % 3 = 1 THEN NULL ELSE model END) FROM t, m WHERE id < 1030 ORDER BY id";
    let got = column(&context, sql).await.unwrap();
    let got: &Float64Array = got.as_primitive();
    assert!((0..30).all(|row| got.is_null(row) == ((1000 + row) % 3 != 2)), "{got:?}");
    for (sql, said) in [
        ("SELECT frosh_sketch(v, 'bits=8, bytes=8') FROM t", "give one of them"),
        ("SELECT frosh_sketch(v, 'bytes=2') FROM t", "4 to 64"),
        ("SELECT frosh_quantizer(frosh_sketch(v), 3) FROM t", "4 to 64"),
        ("SELECT frosh_quantizer(frosh_sketch(v), -4) FROM t", "-4 bytes"),
        (
            "SELECT frosh_quantizer(frosh_sketch(v), 4, 'rotation=itq') FROM t",
            "no option \"rotation\"",
        ),
        (
            "SELECT frosh_quantizer(frosh_sketch(v), 4) FROM t WHERE id < 1500",
            "a quantiser needs 1024",
        ),
        ("SELECT frosh_quantizer(frosh_sketch(v), 'x') FROM t", "takes a sketch, bytes and a text"),
        ("SELECT frosh_encode(v, model, 'effort=99') FROM t, m", "1 (fastest) to 32"),
        (
            "SELECT frosh_distance(x'0011', v, model) FROM t, m",
            "a code of 2 bytes, and codes of the model have 4",
        ),
        ("SELECT frosh_distance(x'00112233', id, model) FROM t, m", "expected List"),
        ("SELECT frosh_distance(x'00112233', v) FROM t", "takes a code, a vector and a model"),
        ("SELECT frosh_distance(x'00112233', v, x'00') FROM t", "the model"),
        (
            "SELECT frosh_distance(x'00112233', arrow_cast([1.0], 'List(Float32)'), model) FROM m",
            "the vector has 1 values, expected 12",
        ),
    ] {
        let error = column(&context, sql).await.unwrap_err();
        assert!(error.contains(said), "{sql}: {error}");
    }
    let equal = "SELECT frosh_quantizer(frosh_sketch(arrow_cast([1.0, 2.0], 'List(Float32)'), 'bytes=4'), 4) FROM t";
    assert!(column(&context, equal).await.unwrap_err().contains("all equal"));
    let allowed = equal.replace("4) FROM", "4, 'allow_constant') FROM");
    assert!(bytes(&context, &allowed).await.unwrap().is_some());
}
