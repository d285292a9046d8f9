#![no_main]
// The first byte says what follows: packed bytes, or a file that is packed here and must then read as it
// does unpacked.

use flate2::{Compression, write::GzEncoder};
use frosh_fuzz::io;
use frosh_io::{Format, Options};
use libfuzzer_sys::fuzz_target;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use std::io::Write;

const FORMATS: [Format; 4] = [Format::Npy, Format::Fvecs, Format::Csv, Format::Idx];

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory takes everything")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

fuzz_target!(|bytes: &[u8]| {
    let Some((first, bytes)) = bytes.split_first() else { return };
    let options = Options {
        format: Some(FORMATS[usize::from(first >> 4) % 4]),
        skip_bad: first & 0x80 != 0,
        ..Options::default()
    };
    // Several members or frames in a row are one stream.
    let (front, back) = bytes.split_at(bytes.len() / 2);
    let packed = match first & 15 {
        1 => gzip(bytes),
        2 => zstd(bytes),
        3 => [gzip(front), gzip(back)].concat(),
        4 => [zstd(front), zstd(back)].concat(),
        _ => {
            io::run(bytes, &options);
            return;
        }
    };
    // Packed twice is not unpacked twice.
    if matches!(
        bytes,
        [0x1f, 0x8b, ..] | [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..]
    ) {
        return;
    }
    let plain = io::run(bytes, &options);
    let unpacked = io::run(&packed, &options);
    // A file's size tells of damage that a stream does not show before its end; columns one after the other
    // are read from files only.
    if let (Some(plain), Some(unpacked)) = (plain, unpacked) {
        let same = |(a, b): (&f64, &f64)| a == b || a.is_nan() && b.is_nan();
        assert!(plain.len() == unpacked.len() && plain.iter().zip(&unpacked).all(same));
    }
});
