#![no_main]

use libfuzzer_sys::fuzz_target;

// The first byte chooses the name, by whose end some formats are known.
fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    let names = ["labels.npy", "labels-idx1-ubyte", "labels.txt", "labels.txt.gz", "labels"];
    frosh_fuzz::io::with_file(names[usize::from(*first) % names.len()], rest, |path| {
        let signed = frosh_io::whole_numbers::<i64>(path);
        let unsigned = frosh_io::whole_numbers::<u64>(path);
        // What fits both types is the same in both.
        if let (Ok(signed), Ok(unsigned)) = (signed, unsigned) {
            assert!(signed.iter().zip(&unsigned).all(|(a, b)| *a as u64 == *b));
            assert_eq!(signed.len(), unsigned.len());
        }
    });
});
