//! The whole way from vectors to neighbours, verb by verb, as a person would go it.

mod common;
use common::{json, ok, values, write_npy};
use serde_json::Value;
use std::path::Path;

const DIM: usize = 32;

fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    write_npy(&dir.path().join("base.npy"), &values(3000, DIM, 1), DIM);
    write_npy(&dir.path().join("queries.npy"), &values(20, DIM, 2), DIM);
    dir
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn from_vectors_to_neighbours() {
    let dir = folder();
    let trained = json(dir.path(), "train base.npy --bits 16 -o model.frosh");
    for (name, value) in [("rows", 3000), ("dim", 32), ("bits", 16), ("sketch_rows", 32)] {
        assert_eq!(trained[name], value, "{name}");
    }
    assert_eq!(trained["method"], "frosh");
    for part in ["total", "read", "sketch", "solve"] {
        assert!(trained["seconds"][part].is_f64(), "{part}");
    }
    let coded = json(dir.path(), "encode model.frosh base.npy --no-factors -o codes.frosh");
    assert_eq!((coded["rows"].as_u64(), coded["bytes_per_row"].as_u64()), (Some(3000), Some(2)));
    assert_eq!(coded["model"], trained["id"]);

    // Plain codes hold the same bytes as the file that knows its model.
    ok(dir.path(), "encode model.frosh base.npy -o codes.npy --quiet");
    let codes = frosh::Codes::load(dir.path().join("codes.frosh")).unwrap();
    let plain = std::fs::read(dir.path().join("codes.npy")).unwrap();
    assert_eq!(&plain[128..], codes.as_bytes());

    // The library finds what the program finds.
    let text = ok(
        dir.path(),
        "search model.frosh codes.frosh --queries queries.npy -k 7 --rank hamming --json",
    );
    let model = frosh::Hasher::load(dir.path().join("model.frosh")).unwrap();
    let queries = values(20, DIM, 2);
    let asked = model.encode(frosh::Rows::new(&queries, DIM).unwrap()).unwrap();
    let found = codes.nearest(&asked, 7).unwrap();
    let lines = lines(&text);
    assert_eq!(lines.len(), 20);
    for (q, (line, found)) in lines.iter().zip(&found).enumerate() {
        assert_eq!(line["query"], q);
        let ids: Vec<u64> = found.iter().map(|n| n.id).collect();
        let distances: Vec<u32> = found.iter().map(|n| n.distance as u32).collect();
        assert_eq!(line["ids"], serde_json::json!(ids));
        assert_eq!(line["distances"], serde_json::json!(distances));
    }
    let text = ok(dir.path(), "search model.frosh codes.frosh --queries queries.npy -k 7");
    assert_eq!(text.lines().count(), 1 + 20 * 7);
}

#[test]
fn with_every_row_a_candidate_reranking_is_exact_search() {
    let dir = folder();
    ok(dir.path(), "train base.npy --bits 16 -o model.frosh --quiet");
    ok(dir.path(), "encode model.frosh base.npy -o codes.frosh --quiet");
    // Also from formats that are read in other ways.
    ok(dir.path(), "convert base.npy base.parquet --quiet");
    ok(dir.path(), "convert base.npy base.csv --quiet");
    let (base, queries) = (values(3000, DIM, 1), values(20, DIM, 2));
    for file in ["base.npy", "base.parquet", "base.csv"] {
        let text = ok(
            dir.path(),
            &format!(
                "search model.frosh codes.frosh --queries queries.npy -k 5 --rerank {file} \
                 --oversample 600 --json"
            ),
        );
        for (line, query) in lines(&text).iter().zip(queries.chunks(DIM)) {
            let distance = |row: &[f32]| -> f64 {
                row.iter().zip(query).map(|(x, q)| (f64::from(*x) - f64::from(*q)).powi(2)).sum()
            };
            let mut all: Vec<(f64, usize)> =
                base.chunks(DIM).map(distance).enumerate().map(|(i, d)| (d, i)).collect();
            all.sort_by(|a, b| a.partial_cmp(b).unwrap());
            let ids: Vec<usize> = all[..5].iter().map(|a| a.1).collect();
            assert_eq!(line["ids"], serde_json::json!(ids), "{file}");
            let first = line["distances"][0].as_f64().unwrap();
            assert!((first - all[0].0).abs() < 1e-9);
        }
    }
}

#[test]
fn worker_numbers_from_rows_need_no_numbers_and_no_order() {
    let dir = tempfile::tempdir().unwrap();
    for part in 0..3 {
        let values = common::values(300 + part, 8, part as u64);
        common::write_npy(&dir.path().join(format!("{part}.npy")), &values, 8);
        let job = format!("sketch {part}.npy --sketch-rows 8 --worker auto -o {part}.sketch");
        let report = common::json(dir.path(), &job);
        // The number in the report is the one that makes the same sketch when it is given.
        let number = report["worker"].as_u64().unwrap();
        ok(
            dir.path(),
            &format!("sketch {part}.npy --sketch-rows 8 --worker {number} -o given.sketch -q"),
        );
        let bytes = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
        assert_eq!(bytes(&format!("{part}.sketch")), bytes("given.sketch"));
    }
    ok(dir.path(), "merge 0.sketch 1.sketch 2.sketch -o a.sketch -q");
    ok(dir.path(), "merge 2.sketch 0.sketch 1.sketch -o b.sketch -q");
    let bytes = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    assert_eq!(bytes("a.sketch"), bytes("b.sketch"));
    let refused = common::run(dir.path(), "sketch 0.npy --worker some -o x.sketch");
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("a whole number from 0, or auto"));
}

#[test]
fn workers_sketches_merge_into_one_model() {
    let dir = folder();
    let all = values(3000, DIM, 1);
    write_npy(&dir.path().join("1.npy"), &all[..1000 * DIM], DIM);
    write_npy(&dir.path().join("2.npy"), &all[1000 * DIM..], DIM);
    ok(dir.path(), "sketch 1.npy --worker 1 --sketch-rows 32 -o 1.sketch --quiet");
    let two = json(dir.path(), "sketch 2.npy --worker 2 --sketch-rows 32 -o 2.sketch");
    assert_eq!((two["rows"].as_u64(), two["worker"].as_u64()), (Some(2000), Some(2)));
    let merged = json(dir.path(), "merge 1.sketch 2.sketch -o all.sketch");
    assert_eq!(merged["rows"], 3000);
    assert_eq!(merged["workers"], serde_json::json!([1, 2]));
    let fitted = json(dir.path(), "fit all.sketch --bits 16 --rotation random -o model.frosh");
    assert_eq!((fitted["rows"].as_u64(), fitted["bits"].as_u64()), (Some(3000), Some(16)));
    assert_eq!(fitted["rotation"], "random");
    let told = json(dir.path(), "inspect all.sketch");
    assert_eq!(told["rows_seen"], 3000);
    assert!(told["captured_energy"]["16"].as_f64().unwrap() > 0.5);
}

#[test]
fn evaluation_agrees_with_the_library_and_knows_perfect_codes() {
    let dir = folder();
    ok(dir.path(), "train base.npy --bits 32 -o model.frosh --quiet");
    let result = json(
        dir.path(),
        "eval model.frosh --base base.npy --queries queries.npy -k 1,10 --oversample 300",
    );
    assert_eq!(result["queries"], 20);
    assert_eq!(result["base"], 3000);
    assert_eq!(result["truth"], "nearest 2 %");
    let map = result["map"].as_f64().unwrap();
    assert!(map > 0.1 && map < 1.0, "{map}");
    // 10 x 300 candidates are all rows: nothing can be missed.
    assert_eq!(result["recall_reranked"]["10"], 1.0);
    // Held-out queries are not in the base.
    let result =
        json(dir.path(), "eval model.frosh --base base.npy --held-out 50 --truth 10 -k 10");
    assert_eq!((result["queries"].as_u64(), result["base"].as_u64()), (Some(50), Some(2950)));
    assert_eq!(result["truth"], "nearest 10");
    // Queries that are rows of the base find themselves first.
    let result = json(dir.path(), "eval model.frosh --base base.npy --queries base.npy -k 1");
    assert!(result["recall"]["1"].as_f64().unwrap() > 0.99);
}

#[test]
fn labels_say_what_is_relevant() {
    let dir = folder();
    ok(dir.path(), "train base.npy --bits 16 -o model.frosh --quiet");
    let (base, queries) = (values(3000, DIM, 1), values(20, DIM, 2));
    // Two classes, by the sign of the first value: the first bits know them well.
    let classes = |rows: &[f32]| -> Vec<i64> {
        rows.chunks(DIM).map(|row| if row[0] > 0.0 { 700 } else { -1 }).collect()
    };
    let write = |name: &str, labels: &[i64]| {
        let text: String = labels.iter().map(|label| format!("{label}\n")).collect();
        std::fs::write(dir.path().join(name), text).unwrap();
    };
    let (of_base, of_queries) = (classes(&base), classes(&queries));
    write("base.txt", &of_base);
    write("queries.txt", &of_queries);
    write("1.txt", &of_base[..1000]);
    write("2.txt", &of_base[1000..]);
    let eval = "eval model.frosh --base base.npy -k 1,50";
    let own = format!("{eval} --queries queries.npy --query-labels queries.txt --labels");
    let result = json(dir.path(), &format!("{own} base.txt"));
    assert_eq!(result["truth"], "labels");
    assert!(result["recall"].is_null() && result["oversample"].is_null(), "{result}");
    let parts = json(dir.path(), &format!("{own} 1.txt 2.txt"));
    assert_eq!(result["rankings"], parts["rankings"]);

    // The library, asked for the same.
    let hasher = frosh::Hasher::load(dir.path().join("model.frosh")).unwrap();
    let rows = frosh::Rows::new(&base, DIM).unwrap();
    let codes = hasher.encode_with_factors(rows).unwrap();
    let asked = hasher.queries(frosh::Rows::new(&queries, DIM).unwrap()).unwrap();
    let number = |labels: &[i64]| labels.iter().map(|l| u32::from(*l > 0)).collect::<Vec<u32>>();
    let (of_base, of_queries) = (number(&of_base), number(&of_queries));
    let want = frosh::Evaluation::by_labels(asked.codes(), &codes, &of_queries, &of_base);
    let want = want.unwrap();
    // The parser of JSON may be off in the last digit.
    let near = |got: &Value, want: f64| (got.as_f64().unwrap() - want).abs() < 1e-12;
    assert!(near(&result["rankings"][0]["map"], want.map()));
    assert!(near(&result["rankings"][0]["precision"]["50"], want.precision(50).unwrap()));
    assert!(want.map() > 0.6, "{}", want.map());
    for (i, ranking) in [(1, frosh::Ranking::Asymmetric), (2, frosh::Ranking::Estimated)] {
        let want =
            frosh::RankedEvaluation::by_labels(&asked, &codes, ranking, &of_queries, &of_base)
                .unwrap();
        assert!(near(&result["rankings"][i]["map"], want.map()));
        assert!(near(&result["rankings"][i]["precision"]["1"], want.precision(1).unwrap()));
    }
    // Held-out rows take their labels with them.
    let held = json(dir.path(), &format!("{eval} --labels base.txt --held-out 100"));
    assert_eq!((held["queries"].as_u64(), held["base"].as_u64()), (Some(100), Some(2900)));
    assert!((held["map"].as_f64().unwrap() - want.map()).abs() < 0.1, "{held}");
    let text = ok(dir.path(), &format!("{eval} --labels base.txt"));
    assert!(text.contains("same label") && text.contains("precision@50"), "{text}");
    assert!(!text.contains("recall"), "{text}");
}

#[test]
fn inspect_knows_every_kind_of_file() {
    let dir = folder();
    ok(dir.path(), "train base.npy --bits 16 -o model.frosh --quiet");
    ok(dir.path(), "encode model.frosh base.npy -o codes.frosh --quiet");
    ok(dir.path(), "sketch base.npy -o base.sketch --quiet");
    ok(dir.path(), "convert base.npy base.hdf5 --quiet");
    let kind = |file: &str| {
        let text = ok(dir.path(), &format!("inspect {file}"));
        assert!(text.lines().count() > 4, "{text}");
        json(dir.path(), &format!("inspect {file}"))["kind"].as_str().unwrap().to_owned()
    };
    assert_eq!(kind("model.frosh"), "model");
    assert_eq!(kind("codes.frosh"), "codes");
    assert_eq!(kind("base.sketch"), "sketch");
    assert_eq!(kind("base.npy"), "vectors");
    let told = json(dir.path(), "inspect base.hdf5");
    assert_eq!((told["rows"].as_u64(), told["dim"].as_u64()), (Some(3000), Some(32)));
    assert!(told["content"][0].as_str().unwrap().contains("train"));
}

#[test]
fn one_thread_and_many_write_the_same_model() {
    let dir = folder();
    ok(dir.path(), "train base.npy --bits 16 --threads 1 -o one --quiet");
    ok(dir.path(), "train base.npy --bits 16 --threads 3 -o three --quiet");
    let bytes = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    assert!(bytes("one") == bytes("three"));
}

#[test]
fn the_demonstration_runs_and_writes_its_page() {
    let dir = tempfile::tempdir().unwrap();
    let told = json(dir.path(), "demo --rows 4000 --bits 32");
    let names: Vec<_> =
        told["methods"].as_array().unwrap().iter().map(|m| m["method"].as_str().unwrap()).collect();
    assert_eq!(names, ["LSH", "OSH", "FROSH", "DFROSH", "quantiser"]);
    let page = std::fs::read_to_string(dir.path().join("frosh-demo.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("DFROSH") && !page.contains("http"));
    let text = ok(dir.path(), "demo --rows 4000 --bits 32");
    assert!(text.contains("frosh train YOUR.npy"), "{text}");
}

#[test]
fn completions_and_manual_are_made() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        assert!(ok(dir.path(), &format!("completions {shell}")).contains("frosh"));
    }
    ok(dir.path(), "man pages");
    assert!(Path::new(&dir.path().join("pages/frosh-train.1")).exists());
    assert!(ok(dir.path(), "man").contains("frosh"));
}

#[test]
fn every_verb_has_help_with_an_example() {
    let dir = tempfile::tempdir().unwrap();
    let verbs = "demo train sketch merge fit encode search eval calibrate drift inspect convert completions man";
    for verb in verbs.split(' ') {
        let text = ok(dir.path(), &format!("{verb} --help"));
        assert!(text.contains("Example") && text.contains(&format!("frosh {verb}")), "{text}");
    }
}

/// Without options, `encode` keeps what the model's ranking needs, `search` uses that ranking, and `inspect` shows why.
#[test]
fn the_model_chooses_and_every_verb_follows() {
    let dir = folder();
    let trained = json(dir.path(), "train base.npy --bits 16 -o model.frosh");
    let choice = &trained["choice"];
    assert_eq!(trained["ranking"], choice["ranking"]);
    assert_eq!(choice["measured"].as_array().unwrap().len(), 6);
    let forecast = &choice["forecast"];
    assert!(forecast["reranked"].as_f64().unwrap() >= 0.9, "{forecast}");
    let shown = json(dir.path(), "inspect model.frosh");
    assert_eq!((&shown["choice"], &shown["ranking"]), (choice, &trained["ranking"]));
    assert!(ok(dir.path(), "inspect model.frosh").contains("chosen"));
    let coded = json(dir.path(), "encode model.frosh base.npy -o codes.frosh");
    let bytes = 2 + choice["factor_bytes"].as_u64().unwrap();
    assert_eq!(coded["bytes_per_row"].as_u64(), Some(bytes));
    assert_eq!(trained["bytes_per_row"].as_u64(), Some(bytes));
    let rank = choice["ranking"].as_str().unwrap();
    let search = "search model.frosh codes.frosh --queries queries.npy --json";
    assert_eq!(ok(dir.path(), search), ok(dir.path(), &format!("{search} --rank {rank}")));
    let over = forecast["oversample"].as_u64().unwrap();
    let again = format!("{search} --rerank base.npy");
    assert_eq!(ok(dir.path(), &again), ok(dir.path(), &format!("{again} --oversample {over}")));
    // An index follows the model too.
    ok(dir.path(), "index build model.frosh base.npy --vectors f32 -o index --quiet");
    let search = "index search index --queries queries.npy --json";
    assert_eq!(ok(dir.path(), search), ok(dir.path(), &format!("{search} --oversample {over}")));
    // `train` says what to expect.
    let told = ok(dir.path(), "train base.npy --bits 16 -o again.frosh");
    assert!(told.contains("expect recall@10 of ") && told.contains("--oversample"), "{told}");
}

#[test]
fn codes_with_factors_are_ranked_by_estimated_distance() {
    let dir = folder();
    ok(dir.path(), "train base.npy --bits 16 -o model.frosh --quiet");
    let coded = json(dir.path(), "encode model.frosh base.npy --factors -o codes.frosh");
    assert_eq!(coded["bytes_per_row"], 3);
    let text = ok(
        dir.path(),
        "search model.frosh codes.frosh --queries queries.npy -k 7 --rank estimated --json",
    );
    let model = frosh::Hasher::load(dir.path().join("model.frosh")).unwrap();
    let codes = frosh::Codes::load(dir.path().join("codes.frosh")).unwrap();
    let queries = values(20, DIM, 2);
    let asked = model.queries(frosh::Rows::new(&queries, DIM).unwrap()).unwrap();
    let found = codes.nearest(&asked, 7).unwrap();
    for (line, found) in lines(&text).iter().zip(&found) {
        let ids: Vec<u64> = found.iter().map(|n| n.id).collect();
        assert_eq!(line["ids"], serde_json::json!(ids));
    }
    // Plain codes cannot be ranked so, nor can .npy hold factors.
    ok(dir.path(), "encode model.frosh base.npy --no-factors -o plain.frosh --quiet");
    let refused = common::run(
        dir.path(),
        "search model.frosh plain.frosh --queries queries.npy --rank estimated",
    );
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no factors"));
    let refused = common::run(dir.path(), "encode model.frosh base.npy --factors -o x.npy");
    assert_eq!(refused.status.code(), Some(1));
}

#[test]
fn calibration_reaches_the_recall_that_it_promises() {
    let dir = folder();
    ok(dir.path(), "sketch base.npy --sketch-rows 64 -o base.sketch --quiet");
    let told = json(
        dir.path(),
        "calibrate base.sketch --base base.npy --held-out 100 --bits 16,32 --recall 0.9 -k 5",
    );
    assert_eq!(told["table"].as_array().unwrap().len(), 6);
    for line in told["table"].as_array().unwrap() {
        ok(dir.path(), &format!("fit base.sketch --bits {} -o m --force --quiet", line["bits"]));
        let ranking = line["ranking"].as_str().unwrap();
        let recall = |oversample: u64| {
            let result = json(
                dir.path(),
                &format!(
                    "eval m --base base.npy --held-out 100 -k 5 --rank {ranking} --oversample {oversample}"
                ),
            );
            result["recall_reranked"]["5"].as_f64().unwrap()
        };
        let oversample = line["oversample"].as_u64().unwrap();
        let (reached, error) =
            (line["recall_reranked"].as_f64().unwrap(), line["standard_error"].as_f64().unwrap());
        assert!(reached - error >= 0.9 && recall(oversample) >= reached - 1e-9, "{line}");
        // The recall of a query is between 0 and 1, which bounds the error of 100 queries.
        let most = 0.5 / 99f64.sqrt();
        assert!(error > 0.0 && error <= most, "{line}");
        let bare = line["candidates_on_these_queries"].as_u64().unwrap();
        assert!(bare < line["candidates"].as_u64().unwrap() || bare == 5, "{line}");
        // And fewer would not do.
        assert!(oversample == 1 || recall(oversample - 1) < 0.9 + most, "{line}");
    }
    let text = ok(
        dir.path(),
        "calibrate base.sketch --base base.npy --held-out 100 --bits 16 --recall 0.9 -k 5",
    );
    assert!(text.contains("standard error of a recall measured with 100 queries"), "{text}");
    assert!(text.contains("reach 0.9 plus this error"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let choice = &told["choice"];
    assert!(choice["oversample"].as_u64().unwrap() <= 20, "{choice}");
}

#[test]
fn calibration_compares_bits_and_bytes_of_one_sketch() {
    let dir = folder();
    ok(dir.path(), "sketch base.npy --bytes 8 -o base.sketch --quiet");
    let calibrate = "calibrate base.sketch --base base.npy --held-out 100";
    let sizes = |arguments: &str| -> Vec<(String, u64)> {
        let told = json(dir.path(), &format!("{calibrate} {arguments}"));
        let size = |line: &Value| {
            (line["kind"].as_str().unwrap().to_owned(), line["bits"].as_u64().unwrap())
        };
        told["table"].as_array().unwrap().iter().map(size).collect()
    };
    let named = |kind: &str, bits| (kind.to_owned(), bits);
    assert_eq!(sizes("--bytes 4,8"), [named("additive", 32), named("additive", 64)]);
    let both = sizes("--bytes 4 --bits 16 --rank estimated");
    assert_eq!(both, [named("signs", 16), named("additive", 32)]);
    // What is chosen is named by the option that gives it.
    let text = ok(dir.path(), &format!("{calibrate} --bytes 8"));
    assert!(text.contains("choice: --bytes 8 --rank estimated --oversample"), "{text}");
    assert!(!text.contains("--factors"), "{text}");
    // A model has one size.
    ok(dir.path(), "fit base.sketch --bytes 4 -o model --quiet");
    let refused = common::run(dir.path(), "calibrate model --base base.npy --bytes 8");
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && why.contains("give a sketch"), "{why}");
}

/// What is measured are the codes that `encode` writes with the same effort.
#[test]
fn eval_and_calibrate_take_the_effort_of_the_encoding() {
    let dir = folder();
    ok(dir.path(), "train base.npy --bytes 4 -o model --quiet");
    let map = |effort: &str| {
        let told =
            json(dir.path(), &format!("eval model --base base.npy --queries queries.npy {effort}"));
        told["rankings"][0]["map"].as_f64().unwrap()
    };
    let maps = ["--effort 1", "", "--effort 32"].map(map);
    assert!(maps[0] != maps[1] && maps[1] != maps[2], "{maps:?}");
    assert_eq!(maps[1], map("--effort 8"));
    let recall = |effort: &str| {
        let told = json(
            dir.path(),
            &format!("calibrate model --base base.npy --queries queries.npy {effort}"),
        );
        told["table"][0]["recall"].as_f64().unwrap()
    };
    assert!(recall("--effort 1") != recall(""));
    let refused = common::run(dir.path(), "eval model --base base.npy --effort 33");
    assert_eq!(refused.status.code(), Some(2));
}
