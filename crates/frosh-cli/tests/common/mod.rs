//! What the tests of the program share: running it, and small files to run it on.
#![allow(dead_code)] // each test file uses its part

use std::path::Path;
use std::process::{Command, Output};

/// The program, in a folder, with arguments split at blanks.
pub(crate) fn command(folder: &Path, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_frosh"));
    command.current_dir(folder).args(arguments.split_whitespace());
    command
}

/// Runs it.
pub(crate) fn run(folder: &Path, arguments: &str) -> Output {
    command(folder, arguments).output().expect("the program runs")
}

/// Runs it, expects success, returns standard output.
pub(crate) fn ok(folder: &Path, arguments: &str) -> String {
    let output = run(folder, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "frosh {arguments}: {errors}");
    assert!(errors.is_empty(), "frosh {arguments} said on standard error: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// Runs it with `--json`, expects success, returns the one object.
pub(crate) fn json(folder: &Path, arguments: &str) -> serde_json::Value {
    let text = ok(folder, &format!("{arguments} --json"));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in {text}"))
}

/// Numbers that look random and are the same everywhere, from -1 to 1; columns differ in size.
pub(crate) fn values(rows: usize, dim: usize, seed: u64) -> Vec<f32> {
    (0..rows * dim)
        .map(|i| {
            let mut z = (i as u64 ^ (seed << 40)).wrapping_add(0x9e37_79b9_7f4a_7c15);
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let unit = ((z ^ (z >> 31)) >> 40) as f32 / (1 << 23) as f32 - 1.0;
            unit / (1.0 + (i % dim) as f32 / 4.0)
        })
        .collect()
}

/// Rows of 32 dimensions that vary most in one of four groups of columns: streams that change have rows of several kinds.
pub(crate) fn rows_of_kind(rows: usize, kind: usize, seed: u64) -> Vec<f32> {
    const DIM: usize = 32;
    let mut all = values(rows, DIM, seed);
    for (i, x) in all.iter_mut().enumerate() {
        let column = i % DIM;
        *x *= 1.0 + column as f32 / 4.0;
        if column / 8 == kind {
            *x *= 6.0;
        }
    }
    all
}

/// A `.npy` file of `f32`.
pub(crate) fn write_npy(path: &Path, values: &[f32], dim: usize) {
    let shape = format!("({}, {dim})", values.len() / dim);
    std::fs::write(path, npy(&shape, values)).unwrap();
}

/// The bytes of a `.npy` file that claims this shape.
pub(crate) fn npy(shape: &str, values: &[f32]) -> Vec<u8> {
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.bytes());
    values.iter().for_each(|x| bytes.extend(x.to_le_bytes()));
    bytes
}

/// The names of the files in a folder, hidden ones too.
pub(crate) fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Says that a test could not be done, and why, past the capture of output; `.ci/run` counts these lines.
pub(crate) fn skipped(why: &str) {
    use std::io::Write as _;
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "SKIPPED {}: {why}", thread.name().unwrap_or("a test"));
}
