//! `cargo bench -p frosh-cli --bench train`: what reading from files costs.
//!
//! Prints the wall time of the whole program over a file in the page cache as a multiple of the same
//! sketch of rows in memory, its peak memory at 2 and at 4 GB, and its speed on bytes against floats.
//! Needs 6 GB of disk and 5 GB of memory; `-- --small` takes a tenth.

use frosh::{Config, Rows, Sketcher};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const DIM: usize = 960;
const BITS: usize = 64;
const REPEATS: usize = 5;

fn main() {
    let small = std::env::args().any(|a| a == "--small");
    let dir = tempfile::tempdir().expect("a temporary folder");
    let rows = 2_000_000_000 / (4 * DIM) / if small { 10 } else { 1 };
    let (two, four) = (dir.path().join("two.npy"), dir.path().join("four.npy"));
    write(&two, rows, DIM, 4);
    write(&four, 2 * rows, DIM, 4);

    println!("{rows} rows of {DIM} dimensions, f32, {BITS} bits; best of {REPEATS}\n");
    let values = read(&two);
    let (mut memory, mut program) = (f64::INFINITY, f64::INFINITY);
    let mut peak = 0;
    for _ in 0..REPEATS {
        memory = memory.min(from_memory(&values));
        let (seconds, bytes) = run(&[&two]);
        program = program.min(seconds);
        peak = peak.max(bytes);
    }
    drop(values);
    println!("the sketch and its model, rows in memory, one thread: {memory:.3} s");
    println!("the whole program, file in the page cache:           {program:.3} s");
    println!("ratio (target: at most 2): {:.2}\n", program / memory);

    let at_four = run(&[&four]).1;
    let reservoir = 4096 * DIM * 2;
    println!("peak memory of the program, nothing of it mapped files:");
    println!(
        "  {:.1} MB over the first file, {:.1} MB over one of twice the size",
        mb(peak),
        mb(at_four)
    );
    println!("  target: below 64 MB and the reservoir ({:.1} MB)\n", mb(reservoir));

    let (bytes, floats) = (dir.path().join("u8.npy"), dir.path().join("f32.npy"));
    let rows = 500_000 / if small { 10 } else { 1 };
    write(&bytes, rows, 784, 1);
    write(&floats, rows, 784, 4);
    let best = |path: &Path| (0..REPEATS).map(|_| run(&[path]).0).fold(f64::INFINITY, f64::min);
    let (bytes, floats) = (best(&bytes), best(&floats));
    println!("{rows} rows of 784 dimensions: u8 {bytes:.3} s, f32 {floats:.3} s");
    println!("u8 over f32, time for each row (target: at most 1): {:.2}", bytes / floats);
}

fn mb(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}

/// A `.npy` file of floats or bytes whose columns differ in size.
fn write(path: &Path, rows: usize, dim: usize, bytes: usize) {
    let descr = if bytes == 4 { "<f4" } else { "|u1" };
    let mut header =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({rows}, {dim}), }}");
    header = format!("{header:<117}\n");
    let file = std::fs::File::create(path).expect("a file");
    let mut file = std::io::BufWriter::with_capacity(1 << 20, file);
    file.write_all(b"\x93NUMPY\x01\x00").expect("space on the disk");
    file.write_all(&(header.len() as u16).to_le_bytes()).expect("space on the disk");
    file.write_all(header.as_bytes()).expect("space on the disk");
    let mut state = 1u64;
    let mut row = vec![0u8; dim * bytes];
    for _ in 0..rows {
        for (i, to) in row.chunks_exact_mut(bytes).enumerate() {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let scale = 1.0 / (1.0 + i as f32 / 16.0).sqrt();
            let value = (state >> 40) as f32 / (1 << 24) as f32 * 255.0 * scale;
            match bytes {
                4 => to.copy_from_slice(&value.floor().to_le_bytes()),
                _ => to[0] = value as u8,
            }
        }
        file.write_all(&row).expect("space on the disk");
    }
    file.flush().expect("space on the disk");
}

fn read(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).expect("the file just written");
    bytes[128..].chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

fn from_memory(values: &[f32]) -> f64 {
    let clock = Instant::now();
    let config = Config::new(DIM).sketch_rows(2 * BITS);
    let mut sketcher = Sketcher::new(config).expect("good settings");
    sketcher.push(Rows::new(values, DIM).expect("whole rows")).expect("good rows");
    sketcher.finish().hasher(BITS).expect("enough rows");
    clock.elapsed().as_secs_f64()
}

/// Seconds and peak resident bytes of the program.
fn run(paths: &[&Path]) -> (f64, usize) {
    let model = paths[0].with_extension("frosh");
    let clock = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_frosh"))
        .arg("train")
        .args(paths)
        .args(["--bits", &BITS.to_string(), "--quiet", "-o"])
        .arg(&model)
        .stdout(Stdio::null())
        .spawn()
        .expect("the program runs");
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    loop {
        // The high-water mark only rises, so the last look before the end has it but for the last moment.
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let mark = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = mark.and_then(|m| m.trim().trim_end_matches(" kB").parse::<usize>().ok());
        peak = peak.max(kilobytes.unwrap_or(0) * 1024);
        if child.try_wait().expect("a child").is_some() {
            return (clock.elapsed().as_secs_f64(), peak);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
