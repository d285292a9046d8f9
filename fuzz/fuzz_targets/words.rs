#![no_main]

use frosh_fuzz::io;
use frosh_io::{Format, Options};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    io::run(bytes, &Options { format: Some(Format::Words), ..Options::default() });
});
