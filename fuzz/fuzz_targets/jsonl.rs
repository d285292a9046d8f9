#![no_main]
// The first byte chooses the field, and whether bad rows are left out.

use frosh_fuzz::io;
use frosh_io::{Format, Options};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((first, bytes)) = bytes.split_first() else { return };
    let column = match first >> 1 & 3 {
        0 | 3 => None,
        1 => Some("emb".to_owned()),
        _ => Some("doc.emb".to_owned()),
    };
    let format = Some(Format::Jsonl);
    io::run(bytes, &Options { format, column, skip_bad: first & 1 != 0, ..Options::default() });
});
