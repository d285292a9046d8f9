#![no_main]
// Tables with a column for each dimension, and vectors within structures. The first byte chooses the format, the
// columns, and whether bad rows are left out.

use frosh_fuzz::io;
use frosh_io::{Columns, Format, Options};
use libfuzzer_sys::fuzz_target;

fn columns(text: &str) -> Option<Columns> {
    Some(text.parse().expect("valid columns"))
}

fuzz_target!(|bytes: &[u8]| {
    let Some((first, bytes)) = bytes.split_first() else { return };
    let format = match first & 3 {
        0 => Format::Parquet,
        1 => Format::Arrow,
        2 => Format::Csv,
        _ => Format::Tsv,
    };
    let chosen = match first >> 3 & 3 {
        _ if first & 3 < 2 && first & 32 != 0 => None,
        0 => columns("f*"),
        1 => columns("s*,long,half"),
        2 => columns("1-3"),
        _ => columns("*"),
    };
    let column = chosen.is_none().then(|| "doc.meta.emb".to_owned());
    let skip_bad = first & 4 != 0;
    let format = Some(format);
    io::run(bytes, &Options { format, column, columns: chosen, skip_bad, ..Options::default() });
});
