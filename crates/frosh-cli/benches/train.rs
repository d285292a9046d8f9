//! `cargo bench -p frosh-cli --bench train`: what reading from files costs, and what a second thread gains.
//!
//! Prints the wall time of the whole program over a file in the page cache on one thread and on two, beside the same sketch
//! of rows in memory; its peak memory at 2 and at 4 GB; its speed on bytes against floats; and the part of it that
//! more threads do not make faster, with what that predicts for many cores. Files that are named after `--` (`-- a.parquet
//! b.parquet`) are trained on too. Needs 6 GB of disk and 5 GB of memory; `-- --small` takes a tenth.

use frosh::{Config, Method, Pool, Rotation, Rows, Sketch, Sketcher};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const DIM: usize = 960;
const REPEATS: usize = 3;
const THREADS: [usize; 2] = [1, 2];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let small = arguments.iter().any(|a| a == "--small");
    let files = arguments.iter().filter(|a| !a.starts_with("--")).map(PathBuf::from);
    let dir = tempfile::tempdir().expect("a temporary folder");
    let rows = 2_000_000_000 / (4 * DIM) / if small { 10 } else { 1 };
    let (two, four) = (dir.path().join("two.npy"), dir.path().join("four.npy"));
    write(&two, rows, DIM, 4);
    println!("{rows} rows of {DIM} dimensions, f32; seconds, best of {REPEATS}\n");
    println!(
        "                 in memory        program          program/memory   program, 2 threads"
    );
    println!("method   bits   1 thread 2 thr.  1 thread 2 thr.  1 thr.   2 thr.   over 1");
    let values = read(&two);
    let mut scaling = String::new();
    for (method, bits) in [("frosh", 32), ("frosh", 64), ("frosh", 128), ("osh", 32)] {
        let (mut memory, mut program) = ([f64::INFINITY; 2], [const { None::<Run> }; 2]);
        for _ in 0..REPEATS {
            for (i, threads) in THREADS.into_iter().enumerate() {
                memory[i] = memory[i].min(from_memory(&values, method, bits, threads));
                let run = run(&two, method, bits, threads);
                if program[i].as_ref().is_none_or(|best| run.seconds < best.seconds) {
                    program[i] = Some(run);
                }
            }
        }
        let [Some(one), Some(both)] = program else { return };
        println!(
            "{method:<8}{bits:>5}{:>10.3}{:>8.3}{:>9.3}{:>8.3}{:>8.2}{:>9.2}{:>9.2}",
            memory[0],
            memory[1],
            one.seconds,
            both.seconds,
            one.seconds / memory[0],
            both.seconds / memory[1],
            one.seconds / both.seconds
        );
        if method == "frosh" {
            scaling += &predict(bits, &values, &one, &both);
        }
    }
    println!("goals: program/memory at most 1.25; 2 threads over 1 at least 1.8\n");
    drop(values);
    println!(
        "The parts of `train`, and what they predict. Learning divides among the cores, and so does the fit but for a serial"
    );
    println!(
        "part; the last merges come one after another. In brackets: merges and the serial part of the fit, and all that is serial.\n{scaling}"
    );

    for path in files {
        let best = |threads| {
            let runs = (0..REPEATS).map(|_| run(&path, "frosh", 64, threads).seconds);
            runs.fold(f64::INFINITY, f64::min)
        };
        let (one, both) = (best(1), best(2));
        println!(
            "{}: 64 bits, 1 thread {one:.3} s, 2 threads {both:.3} s, ratio {:.2}",
            path.display(),
            one / both
        );
    }

    write(&four, 2 * rows, DIM, 4);
    let [at_two, at_four] = [&two, &four].map(|path| run(path, "frosh", 64, 2).peak);
    let reservoir = 16_384 * (DIM * 2 + 28);
    println!("peak memory of the program on 2 threads, nothing of it mapped files:");
    println!(
        "  {:.1} MB over the first file, {:.1} MB over one of twice the size",
        mb(at_two),
        mb(at_four)
    );
    println!("  goal: below 64 MB and the sample ({:.1} MB)\n", mb(reservoir));

    let (bytes, floats) = (dir.path().join("u8.npy"), dir.path().join("f32.npy"));
    let rows = 500_000 / if small { 10 } else { 1 };
    write(&bytes, rows, 784, 1);
    write(&floats, rows, 784, 4);
    let best = |path: &Path| {
        let runs = (0..REPEATS).map(|_| run(path, "frosh", 64, 2).seconds);
        runs.fold(f64::INFINITY, f64::min)
    };
    let (bytes, floats) = (best(&bytes), best(&floats));
    println!("{rows} rows of 784 dimensions: u8 {bytes:.3} s, f32 {floats:.3} s");
    println!("u8 over f32, time for each row (goal: at most 1): {:.2}", bytes / floats);
}

/// Seconds on 8, 32 and 128 cores, and the shares in which most cores are idle, for this file and a hundred times as many
/// rows.
fn predict(bits: usize, values: &[f32], one: &Run, both: &Run) -> String {
    let config = |worker| Config::new(DIM).sketch_rows(2 * bits).reservoir_rows(0).worker(worker);
    let run_rows = config(0).resolved_run_rows().expect("good settings");
    let rows = values.len().min(run_rows as usize * DIM);
    let part = |worker| sketch(config(worker), &values[..rows], 1);
    let parts = [part(0), part(1)];
    let merge = best_of(10, || {
        Pool::ONE.install(|| Sketch::merge(&parts)).expect("sketches that fit");
    });
    let serial_fit = serial_part_of_a_fit(bits, values);
    // Starting, opening files and writing the model.
    let rest = both.seconds - both.learn - both.solve;
    let mut text = format!(
        "{bits} bits, 1 thread: learning {:.3} s, the fit {:.3} s; 2 threads: {:.3} s, {:.3} s, all else {rest:.3} s; serial in \
         the fit {:.1} ms; one merge {:.2} ms\n",
        one.learn,
        one.solve,
        both.learn,
        both.solve,
        serial_fit * 1e3,
        merge * 1e3
    );
    for factor in [1, 100] {
        let runs = (factor * values.len() / DIM) as f64 / run_rows as f64;
        let gigabytes = (factor * values.len() * 4) as f64 / 1e9;
        text += &format!("  {gigabytes:.0} GB, {runs:.0} runs:");
        for cores in [8.0f64, 32.0, 128.0] {
            let learn = one.learn * factor as f64 * (runs / cores).ceil() * cores / runs / cores;
            let fit = (one.solve - serial_fit).max(0.0) / cores;
            let solve = serial_fit + runs.log2().ceil() * merge;
            let all = rest + solve + fit + learn;
            let share = |part: f64| 100.0 * part / all;
            text += &format!(
                "  {cores:.0} cores {all:.2} s ({:.1} %, {:.1} %)",
                share(solve),
                share(rest + solve)
            );
        }
        text.push('\n');
    }
    text
}

/// Seconds of a fit that more threads do not make shorter: what a fit with one rotation takes on two threads beyond
/// half of its time on one. In it the directions, the rotation and the scales come one after another. A fit that
/// chooses among rotations does other work meanwhile, so its own times on one and two threads would not show it.
fn serial_part_of_a_fit(bits: usize, values: &[f32]) -> f64 {
    let rows = values.len().min(100_000 * DIM);
    let sketch = sketch(Config::new(DIM).sketch_rows(2 * bits), &values[..rows], 2);
    let [one, two] = THREADS.map(|threads| {
        let pool = Pool::new(threads).expect("threads");
        best_of(20, || {
            pool.install(|| sketch.hasher_with(bits, Rotation::Refined)).expect("enough rows");
        })
    });
    (2.0 * two - one).clamp(0.0, one)
}

/// The shortest of some runs, in seconds.
fn best_of(runs: usize, work: impl Fn()) -> f64 {
    let one = |_| {
        let clock = Instant::now();
        work();
        clock.elapsed().as_secs_f64()
    };
    (0..runs).map(one).fold(f64::INFINITY, f64::min)
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

fn sketch(config: Config, values: &[f32], threads: usize) -> Sketch {
    let pool = Pool::new(threads).expect("threads");
    let mut sketcher = pool.install(|| Sketcher::new(config)).expect("good settings");
    sketcher.push(Rows::new(values, DIM).expect("whole rows")).expect("good rows");
    sketcher.finish()
}

/// Seconds for a model of rows in memory.
fn from_memory(values: &[f32], method: &str, bits: usize, threads: usize) -> f64 {
    let clock = Instant::now();
    let method: Method = method.parse().expect("a method");
    let sketch = sketch(Config::new(DIM).method(method).sketch_rows(2 * bits), values, threads);
    Pool::new(threads).expect("threads").install(|| sketch.hasher(bits)).expect("enough rows");
    clock.elapsed().as_secs_f64()
}

/// What one run of the program took.
struct Run {
    seconds: f64,
    /// Seconds of reading and learning.
    learn: f64,
    /// Seconds of making the model.
    solve: f64,
    /// Peak resident bytes.
    peak: usize,
}

/// Runs the program.
fn run(path: &Path, method: &str, bits: usize, threads: usize) -> Run {
    let model = std::env::temp_dir().join(format!("frosh-bench-{}.frosh", std::process::id()));
    let clock = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_frosh"))
        .arg("train")
        .arg(path)
        .args(["--method", method, "--bits", &bits.to_string()])
        .args(["--threads", &threads.to_string(), "--json", "--force", "-o"])
        .arg(&model)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    let seconds = loop {
        // The high-water mark only rises, so the last look before the end has it but for the last moment.
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let mark = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = mark.and_then(|m| m.trim().trim_end_matches(" kB").parse::<usize>().ok());
        peak = peak.max(kilobytes.unwrap_or(0) * 1024);
        if child.try_wait().expect("a child").is_some() {
            break clock.elapsed().as_secs_f64();
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let output = child.wait_with_output().expect("its report");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a report");
    let of = |name: &str| report["seconds"][name].as_f64().unwrap_or(f64::NAN);
    let _ = std::fs::remove_file(model);
    Run { seconds, learn: of("read") + of("sketch"), solve: of("solve"), peak }
}
