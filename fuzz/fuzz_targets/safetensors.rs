#![no_main]

use frosh_fuzz::io;
use frosh_io::Format;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| io::run_all(bytes, Format::Safetensors));
