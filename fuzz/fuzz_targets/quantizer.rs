#![no_main]

use frosh_fuzz::{parts, uses};
use libfuzzer_sys::{fuzz_mutator, fuzz_target};

fuzz_target!(|bytes: &[u8]| uses::quantizer(bytes));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    parts::mutate(data, size, max_size, seed)
});
