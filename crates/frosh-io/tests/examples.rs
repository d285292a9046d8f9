//! Runs the examples of the project. `cargo test` builds them before it runs the tests.
#![allow(missing_docs)]

use std::process::Command;

#[test]
fn every_example_runs() {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap().parent().unwrap().join("examples");
    for name in
        ["train_from_file", "endless_stream", "merge_shards", "index_with_ids", "codes_for_faiss"]
    {
        let program = folder.join(name).with_extension(std::env::consts::EXE_EXTENSION);
        if !program.exists() {
            // A test that is run alone has no examples built.
            eprintln!(
                "SKIPPED {name}: `cargo test` builds it, `cargo test --test examples` does not"
            );
            continue;
        }
        let done = Command::new(&program).output().unwrap();
        let text = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stderr));
        assert!(text.lines().count() >= 2, "{name}: {text}");
    }
}
