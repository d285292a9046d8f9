//! `cargo bench -p frosh-cli --bench encode`: what several threads gain where files are read, encoded and converted.
//!
//! For each file, prints the seconds for reading alone, for `encode` and for `convert`, on one thread and on two, and the
//! ratios. Reading alone is the limit of the other two. Files are in the page cache. The bench makes a `.npy` file of 1 GB
//! and the same as Parquet, uncompressed; arguments that are files are measured too. Needs 3 GB of disk; `-- --small` takes
//! a tenth.

use frosh_io::{Format, Kind, Options, Output, RangeReader, Target, Values, Vectors};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

const DIM: usize = 768;
const BYTES: usize = 1_000_000_000;
const REPEATS: usize = 5;
/// Rows that are made and written at a time.
const WRITTEN_ROWS: usize = 1024;

fn main() {
    let small = std::env::args().any(|a| a == "--small");
    let dir = tempfile::tempdir().expect("a temporary folder");
    let rows = BYTES / (4 * DIM) / if small { 10 } else { 1 };
    let npy = dir.path().join("plain.npy");
    write(&npy, rows);
    let parquet = dir.path().join("plain.parquet");
    frosh(&["convert".as_ref(), &npy, &parquet], 0);
    let mut files = vec![npy, parquet];
    files.extend(std::env::args().skip(1).map(PathBuf::from).filter(|path| path.is_file()));

    println!(
        "seconds on one and on two threads, best of {REPEATS}; every file in the page cache\n"
    );
    println!("{:<24}{:>18}{:>26}{:>26}", "", "reading alone", "encode, 64 bits", "convert to .npy");
    for file in files {
        let (model, codes, copy) =
            (dir.path().join("model"), dir.path().join("codes"), dir.path().join("copy.npy"));
        let bits: [&Path; 4] =
            ["--bits".as_ref(), "64".as_ref(), "--force".as_ref(), "-o".as_ref()];
        frosh(&[&["train".as_ref(), &*file][..], &bits, &[&model]].concat(), 0);
        let vectors = Vectors::open(&[&file], &Options::default()).expect("a file of vectors");
        let reading = best(|threads| read(&vectors, threads));
        let encode = best(|threads| {
            frosh(&["encode".as_ref(), &model, &file, "-o".as_ref(), &codes], threads)
        });
        let convert = best(|threads| frosh(&["convert".as_ref(), &file, &copy], threads));
        let show = |[one, two]: [f64; 2]| format!("{one:.3} {two:.3} {:.2}x", one / two);
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        println!("{name:<24}{:>18}{:>26}{:>26}", show(reading), show(encode), show(convert));
        let (rows, limit) = (vectors.rows().unwrap_or(0) as f64, encode[1] / reading[1]);
        println!(
            "{:<24}encode on two threads: {:.0} rows a second, {limit:.2} times reading alone",
            "",
            rows / encode[1]
        );
    }
}

/// The shortest time on one thread and on two, measured in turns.
fn best(run: impl Fn(usize) -> f64) -> [f64; 2] {
    let mut best = [f64::INFINITY; 2];
    for _ in 0..REPEATS {
        for (threads, best) in [1, 2].into_iter().zip(&mut best) {
            *best = best.min(run(threads));
        }
    }
    best
}

/// Seconds of the program.
fn frosh(args: &[&Path], threads: usize) -> f64 {
    let clock = Instant::now();
    let mut command = Command::new(env!("CARGO_BIN_EXE_frosh"));
    command.args(args).args(["--quiet", "--threads", &threads.to_string()]);
    assert!(command.status().expect("the program runs").success());
    clock.elapsed().as_secs_f64()
}

/// Seconds for reading all rows.
fn read(vectors: &Vectors, threads: usize) -> f64 {
    let clock = Instant::now();
    let pieces = Mutex::new(vectors.pieces(8 << 20));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut reader: RangeReader = vectors.ranges().expect("a file that can be cut");
                loop {
                    let piece = pieces.lock().expect("no thread panics").next();
                    let Some(piece) = piece else { break };
                    reader.start(piece);
                    while reader.next().expect("a good file").is_some() {}
                }
            });
        }
    });
    clock.elapsed().as_secs_f64()
}

/// A `.npy` file of floats whose columns differ in size.
fn write(path: &Path, rows: usize) {
    let target = Target {
        format: Format::Npy,
        kind: Kind::F32,
        dim: DIM,
        rows: Some(rows as u64),
        name: None,
    };
    let mut file = Output::create(path, &target).expect("a file");
    let mut state = 1u64;
    let mut value = |i: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32 / (1 << 24) as f32 - 0.5) / (1.0 + i as f32 / 16.0).sqrt()
    };
    for first in (0..rows).step_by(WRITTEN_ROWS) {
        let count = WRITTEN_ROWS.min(rows - first);
        let values = (0..count * DIM).map(|i| value(i % DIM)).collect();
        file.write_values(&Values::F32(values), DIM).expect("space on the disk");
    }
    file.finish().expect("space on the disk");
}
