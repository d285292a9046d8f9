#![no_main]
// The first byte gives the dimension; with 0 it is found in the text.

use frosh_fuzz::io;
use frosh_io::{Format, Options};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((first, bytes)) = bytes.split_first() else { return };
    let dim = Some(usize::from(first & 0x7f)).filter(|dim| *dim > 0);
    let skip_bad = first & 0x80 != 0;
    io::run(bytes, &Options { format: Some(Format::Libsvm), dim, skip_bad, ..Options::default() });
});
