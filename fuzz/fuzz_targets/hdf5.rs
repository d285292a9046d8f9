#![no_main]

use frosh_fuzz::{hdf5, io};
use frosh_io::Format;
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

fuzz_target!(|bytes: &[u8]| io::run_all(bytes, Format::Hdf5));

// Most changes get fitting checksums, so that they reach what the checksums guard.
fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let size = fuzzer_mutate(data, size, max_size);
    if seed % 16 != 0 {
        hdf5::mend(&mut data[..size]);
    }
    size
});
