#![no_main]
// The first byte chooses the format.

use frosh_fuzz::io;
use frosh_io::{Format, Options};
use libfuzzer_sys::fuzz_target;

const FORMATS: [Format; 3] = [Format::Fvecs, Format::Bvecs, Format::Ivecs];

fuzz_target!(|bytes: &[u8]| {
    let Some((first, bytes)) = bytes.split_first() else { return };
    let format = Some(FORMATS[usize::from(*first) % 3]);
    io::run(bytes, &Options { format, skip_bad: first & 0x80 != 0, ..Options::default() });
});
