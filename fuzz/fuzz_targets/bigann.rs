#![no_main]
// The first byte chooses the format and, for raw values, their type and the dimension.

use frosh_fuzz::io;
use frosh_io::{Format, Kind, Options};
use libfuzzer_sys::fuzz_target;

const FORMATS: [Format; 8] = [
    Format::Fbin,
    Format::F16bin,
    Format::U8bin,
    Format::I8bin,
    Format::Raw,
    Format::Raw,
    Format::Raw,
    Format::Raw,
];

fuzz_target!(|bytes: &[u8]| {
    let Some((first, bytes)) = bytes.split_first() else { return };
    let first = usize::from(*first);
    let format = FORMATS[first % 8];
    let raw = format == Format::Raw;
    let options = Options {
        format: Some(format),
        dim: raw.then_some(first / 64),
        kind: raw.then_some(Kind::ALL[first / 4 % 16 % 5]),
        skip_bad: first & 8 != 0,
        ..Options::default()
    };
    io::run(bytes, &options);
});
