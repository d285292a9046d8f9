#![no_main]
// The first byte chooses the format.

use frosh_fuzz::io;
use frosh_io::{Format, Options};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((first, bytes)) = bytes.split_first() else { return };
    let format = Some(if first & 1 == 0 { Format::Csv } else { Format::Tsv });
    io::run(bytes, &Options { format, skip_bad: first & 2 != 0, ..Options::default() });
});
