#![no_main]

use frosh_io::{IdRule, IdType, Ids, Options, Vectors, read_ids};
use libfuzzer_sys::fuzz_target;

// The first byte chooses the name, by whose end some formats are known, and how ids are taken.
fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    let names = ["a.npy", "a.txt", "a.csv", "a.tsv", "a.jsonl", "a.parquet", "a.arrow", "a.vec"];
    let rules = [
        IdRule::default(),
        IdRule { convert: Some(IdType::Text), untyped: None },
        IdRule { convert: Some(IdType::Number), untyped: None },
        IdRule { convert: None, untyped: Some(IdType::Text) },
    ];
    let (name, rule) = (names[usize::from(first % 8)], rules[usize::from(first / 8 % 4)]);
    frosh_fuzz::io::with_file(name, rest, |path| {
        for column in [None, Some("id"), Some("0"), Some("d.id"), Some("word")] {
            if let Ok(Ids::Names(names)) = read_ids(path, column, rule) {
                assert!(names.iter().all(|name| (1..=1 << 16).contains(&name.len())));
            }
            let id_column = column.map(str::to_owned);
            let options = Options { id_column, id_rule: rule, skip_bad: true, ..Options::default() };
            let Ok(vectors) = Vectors::open(&[path], &options) else { continue };
            let mut batches = vectors.batches();
            while let Ok(Some(batch)) = batches.next() {
                // Each row that is used has one id.
                assert!(batch.ids().is_none_or(|ids| ids.len() == batch.len()));
            }
        }
    });
});
