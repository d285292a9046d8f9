//! Streams that change: `frosh drift`, `--half-life` and `fit --like`.

mod common;
use common::{json, ok, run, values, write_npy};
use serde_json::Value;
use std::path::Path;

const DIM: usize = 32;

/// Old rows vary most in the first columns, new ones in the last.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let turned = |values: Vec<f32>| -> Vec<f32> {
        values.chunks(DIM).flat_map(|row| row.iter().rev().copied()).collect()
    };
    write_npy(&dir.path().join("old.npy"), &values(4000, DIM, 1), DIM);
    write_npy(&dir.path().join("alike.npy"), &values(4000, DIM, 2), DIM);
    write_npy(&dir.path().join("new.npy"), &turned(values(4000, DIM, 3)), DIM);
    dir
}

/// The report, and the exit code.
fn drift(folder: &Path, arguments: &str) -> (Value, Option<i32>) {
    let output = run(folder, &format!("drift {arguments} --json"));
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.is_empty(), "drift {arguments}: {errors}");
    (serde_json::from_str(&text).unwrap(), output.status.code())
}

#[test]
fn the_exit_code_tells_whether_a_refresh_is_due() {
    let dir = folder();
    ok(dir.path(), "train old.npy --bits 8 -o model.frosh -q");
    let (alike, code) = drift(dir.path(), "model.frosh alike.npy");
    assert_eq!((code, &alike["due"]), (Some(0), &Value::Bool(false)));
    assert!(alike["gap"].as_f64().unwrap() < 0.03, "{alike}");
    let (new, code) = drift(dir.path(), "model.frosh new.npy");
    assert_eq!((code, &new["due"]), (Some(3), &Value::Bool(true)), "{new}");
    let number = |name: &str| new[name].as_f64().unwrap();
    assert!((number("refreshed_map") - number("map") - number("gap")).abs() < 1e-9);
    assert!(number("energy_drop") > 0.1 && number("gap_error") > 0.0);
    assert_eq!((new["rows"].as_u64(), new["queries"].as_u64()), (Some(4000), Some(256)));
    // Another threshold, the same figures.
    let (lenient, code) = drift(dir.path(), "model.frosh new.npy --gap 0.99");
    assert_eq!((code, &lenient["gap"]), (Some(0), &new["gap"]));

    // A sketch of the same rows with the same settings has the same figures, and so has an index with the model.
    ok(dir.path(), "sketch new.npy --sketch-rows 16 -o new.sketch -q");
    ok(dir.path(), "index build model.frosh old.npy -o index -q");
    for arguments in ["model.frosh new.sketch", "index new.npy"] {
        let (same, code) = drift(dir.path(), arguments);
        assert_eq!((code, &same["gap"], &same["energy"]), (Some(3), &new["gap"], &new["energy"]));
    }

    // In words. Quiet says nothing, and keeps the exit code.
    let words = run(dir.path(), "drift model.frosh new.npy");
    let text = String::from_utf8_lossy(&words.stdout);
    assert!(text.contains("a refresh is due: the gap is above 0.04"), "{text}");
    assert_eq!(words.status.code(), Some(3));
    let text = ok(dir.path(), "drift model.frosh alike.npy");
    assert!(text.contains("no refresh is due: the gap is not above 0.04"), "{text}");
    let quiet = run(dir.path(), "drift model.frosh new.npy -q");
    assert_eq!((quiet.status.code(), quiet.stdout.len(), quiet.stderr.len()), (Some(3), 0, 0));
}

#[test]
fn rankings_quantisers_and_checkpoints_are_measured_too() {
    let dir = folder();
    ok(dir.path(), "train old.npy --bits 8 -o signs.frosh -q");
    ok(dir.path(), "train old.npy --bytes 4 -o bytes.frosh -q");
    let (hamming, _) = drift(dir.path(), "signs.frosh new.npy --rank hamming");
    let (estimated, _) = drift(dir.path(), "signs.frosh new.npy --rank estimated");
    assert_eq!(hamming["ranking"], "hamming");
    assert_ne!(hamming["map"], estimated["map"]);
    let (quantised, _) = drift(dir.path(), "bytes.frosh new.npy");
    assert!(quantised["gap"].as_f64().unwrap() > 0.0, "{quantised}");
    // The state of a stream that has not ended.
    let mut sketcher = frosh::Sketcher::new(frosh::Config::new(DIM).sketch_rows(16)).unwrap();
    let rows = values(3000, DIM, 5);
    sketcher.push(frosh::Rows::new(&rows, DIM).unwrap()).unwrap();
    sketcher.save(dir.path().join("state.frosh")).unwrap();
    let (state, code) = drift(dir.path(), "signs.frosh state.frosh");
    assert_eq!((state["rows"].as_u64(), code), (Some(3000), Some(0)));
}

#[test]
fn what_cannot_be_compared_is_an_error_and_not_a_verdict() {
    let dir = folder();
    ok(dir.path(), "train old.npy --bits 8 -o model.frosh -q");
    ok(dir.path(), "sketch new.npy --sketch-rows 8 -o short.sketch -q");
    ok(dir.path(), "sketch new.npy --metric cosine -o cosine.sketch -q");
    ok(dir.path(), "sketch new.npy --reservoir 0 -o none.sketch -q");
    write_npy(&dir.path().join("narrow.npy"), &values(500, 8, 1), 8);
    write_npy(&dir.path().join("few.npy"), &values(100, DIM, 1), DIM);
    for (arguments, code, said) in [
        ("model.frosh short.sketch", 1, "half the sketch rows allows 4"),
        ("model.frosh cosine.sketch", 1, "metric is l2 in the model and cosine in the sketch"),
        ("model.frosh none.sketch", 1, "sampled rows = 0"),
        ("model.frosh few.npy", 1, "sampled rows = 100"),
        ("model.frosh narrow.npy", 1, "32 dimensions"),
        ("model.frosh missing.npy", 1, "missing.npy"),
        ("model.frosh short.sketch none.sketch", 1, "give one sketch, or vectors"),
        ("new.npy old.npy", 1, "is a file of vectors, and the model comes first"),
        ("model.frosh new.npy --gap nan", 2, "a number from 0 to 1"),
        ("model.frosh new.npy --gap -1", 2, "a number from 0 to 1"),
    ] {
        let output = run(dir.path(), &format!("drift {arguments}"));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments}: {errors}");
        assert!(errors.contains(said), "{arguments}: {errors}");
    }
}

#[test]
fn older_rows_count_less_with_a_half_life() {
    let dir = folder();
    let bytes = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    let report = json(dir.path(), "sketch old.npy --half-life 500 --worker 1 -o 1.sketch");
    assert_eq!((report["half_life"].as_u64(), report["clock"].as_u64()), (Some(500), Some(4000)));
    let weight = report["weight"].as_f64().unwrap();
    assert!((weight / (500.0 / 2f64.ln()) - 1.0).abs() < 0.1, "{weight}");
    json(dir.path(), "sketch new.npy --half-life 500 --worker 2 --clock 4000 -o 2.sketch");
    let merged = json(dir.path(), "merge 1.sketch 2.sketch -o all.sketch");
    assert_eq!((merged["clock"].as_u64(), merged["rows"].as_u64()), (Some(8000), Some(8000)));
    let inspected = json(dir.path(), "inspect all.sketch");
    assert_eq!(inspected["half_life"], 500);
    assert_eq!(inspected["weight"], merged["weight"]);
    let text = ok(dir.path(), "inspect all.sketch");
    assert!(text.contains("half life") && text.contains("weight"), "{text}");
    assert!(!ok(dir.path(), "inspect old.npy").contains("half life"));

    // The merged sketch has forgotten the old rows: a model of the new ones is near, one of the old ones is not.
    ok(dir.path(), "train new.npy --bits 8 -o new.frosh -q");
    ok(dir.path(), "train old.npy --bits 8 -o old.frosh -q");
    let gap =
        |model: &str| drift(dir.path(), &format!("{model} all.sketch")).0["gap"].as_f64().unwrap();
    assert!(gap("new.frosh") < 0.04 && gap("old.frosh") > 0.04);

    // Train decays too. Without the option, bytes are as ever.
    ok(dir.path(), "train old.npy --bits 8 --half-life 500 -o decayed.frosh -q");
    assert_ne!(bytes("decayed.frosh"), bytes("old.frosh"));

    // Refused: other half-lives, a clock without one, impossible values.
    ok(dir.path(), "sketch old.npy --worker 3 -o plain.sketch -q");
    let refused = run(dir.path(), "merge 1.sketch plain.sketch -o x.sketch");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1));
    assert!(said.contains("the half-life is 500 in one sketch and none in another"), "{said}");
    for bad in ["0", "-5", "NaN", "1e6", "18446744073709551615"] {
        let output = run(dir.path(), &format!("train old.npy --half-life {bad} -o x.frosh"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{bad}: {said}");
        assert!(said.contains("--half-life"), "{bad}: {said}");
    }
    let output = run(dir.path(), "sketch old.npy --clock 5 -o x.sketch");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_checkpoint_keeps_its_half_life() {
    let dir = folder();
    // A state in the middle of the stream, as a checkpoint without a note would be: the settings are what is compared.
    for (half_life, then) in [(None, "none"), (Some(700), "700")] {
        let mut config = frosh::Config::new(DIM).sketch_rows(16);
        if let Some(rows) = half_life {
            config = config.half_life(rows);
        }
        let mut state = frosh::Sketcher::new(config).unwrap();
        state.set_note(r#"{"settings": {}, "files": [{}]}"#);
        state.save(dir.path().join("state")).unwrap();
        let output =
            run(dir.path(), "train old.npy --bits 8 --half-life 500 --checkpoint state -o x.frosh");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains(&format!("its half-life is {then}, and this run's is 500")),
            "{said}"
        );
    }
}

#[test]
fn a_model_like_the_old_one_changes_few_bits() {
    let dir = folder();
    ok(dir.path(), "train old.npy --bits 8 -o old.frosh -q");
    ok(dir.path(), "sketch alike.npy --sketch-rows 16 -o alike.sketch -q");
    let share = |rounds: u32| {
        let job =
            format!("fit alike.sketch --like old.frosh --rounds {rounds} --force -o like.frosh");
        let report = json(dir.path(), &job);
        assert_eq!(
            (report["bits"].as_u64(), report["rounds"].as_u64()),
            (Some(8), Some(rounds.into()))
        );
        report["flipped_bits"].as_f64().unwrap()
    };
    let (few, more) = (share(0), share(50));
    assert!(few <= more && few < 0.2, "{few} {more}");
    // The share is what encoding shows, on other rows.
    share(0);
    for model in ["old", "like"] {
        ok(dir.path(), &format!("encode {model}.frosh alike.npy -o {model}.npy -q"));
    }
    let bytes = |name: &str| std::fs::read(dir.path().join(name)).unwrap()[128..].to_vec();
    let flips: u32 =
        bytes("old.npy").iter().zip(bytes("like.npy")).map(|(a, b)| (a ^ b).count_ones()).sum();
    let all = f64::from(flips) / (8.0 * 4000.0);
    assert!((all - few).abs() < 0.03, "{all} {few}");
    let text = ok(dir.path(), "fit alike.sketch --like old.frosh --force -o like.frosh");
    assert!(text.contains("% of the bits differ"), "{text}");

    ok(dir.path(), "train old.npy --bytes 4 -o bytes.frosh -q");
    ok(dir.path(), "sketch alike.npy --sketch-rows 8 -o short.sketch -q");
    for (arguments, code, said) in [
        ("fit alike.sketch --like bytes.frosh -o x", 1, "is a quantiser"),
        ("fit alike.sketch --like alike.sketch -o x", 1, "is a sketch, not a model"),
        ("fit short.sketch --like old.frosh -o x", 1, "8 bits need 8 directions"),
        ("fit alike.sketch --like old.frosh --bits 4 -o x", 2, "cannot be used with"),
        ("fit alike.sketch --rounds 4 -o x", 2, "--like"),
        ("fit alike.sketch --like old.frosh -o old.frosh", 1, "is also an input"),
    ] {
        let output = run(dir.path(), arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments}: {errors}");
        assert!(errors.contains(said), "{arguments}: {errors}");
    }
}
