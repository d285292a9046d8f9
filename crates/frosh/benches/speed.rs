//! How fast frosh is, as multiples of the least that any method must do: reading every row once.
//!
//! Run it with `cargo bench -p frosh --bench speed`. For each shape and code length it
//! prints, from one run on rows in memory: the floor (a plain column-mean pass over the same memory),
//! and FROSH with the SRHT, FROSH with the sparse embedding, and OSH, each up to and including W, as
//! multiples of that floor; OSH over FROSH beside the paper's ratio; then the same on all cores. Last,
//! encoding against a plain faer product of the same shape.
//!
//! Absolute times mean little on a noisy machine; every ratio here is of times that were taken in
//! turns. Options: `--only DIM` (may be repeated), `--bits BITS` (may be repeated), `--no-encode`,
//! `--only-encode`, `--json` (one object for each cell to standard output; training on one thread).

use faer::{Accum, Mat, MatRef, Par};
use frosh::{Config, Method, Pool, Rotation, Rows, Sketcher};
use std::hint::black_box;
use std::time::Instant;

/// Dimension, gigabytes of rows, rows of a block, and the paper's OSH / FROSH at 32, 64, 128 bits.
const SHAPES: [(usize, f64, usize, [f64; 3]); 4] = [
    (512, 0.8, 2048, [12.3, 12.6, 10.5]),
    (784, 0.8, 4096, [11.3, 12.7, 12.0]),
    (960, 0.8, 4096, [10.9, 12.3, 11.6]),
    (25_600, 6.0, 8192, [9.4, 13.9, 19.2]),
];
const BITS: [usize; 3] = [32, 64, 128];
/// Turns; the best of each counts. OSH takes so long that it gets one.
const TURNS: usize = 5;

fn main() {
    let (mut only, mut bits, mut json) = (Vec::new(), Vec::new(), false);
    let (mut encode, mut train) = (true, true);
    // `cargo bench` passes --bench.
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    while let Some(arg) = args.next() {
        let mut number = || args.next().and_then(|x| x.parse::<usize>().ok());
        match (arg.as_str(), &mut only, &mut bits) {
            ("--only", list, _) | ("--bits", _, list) => match number() {
                Some(x) => list.push(x),
                None => return eprintln!("{arg} needs a number"),
            },
            ("--json", ..) => json = true,
            ("--no-encode", ..) => encode = false,
            ("--only-encode", ..) => train = false,
            _ => return eprintln!("unknown option {arg}; see the top of the source"),
        }
    }
    let cores = Pool::all().threads();
    for (dim, gigabytes, block_rows, paper) in SHAPES {
        if !train || (!only.is_empty() && !only.contains(&dim)) {
            continue;
        }
        let rows = (gigabytes * 1e9 / 4.0) as usize / dim;
        let data = generate(rows, dim);
        if !json {
            println!(
                "\nd = {dim}, {rows} rows, m = {block_rows}; in floors, and in brackets the speed of \
                 {cores} cores over one (the floor itself: x{:.2})\n bits   floor ms  FROSH (SRHT)   FROSH (sparse)  OSH             \
                 OSH/FROSH  paper",
                reading_gain(&data, dim, cores)
            );
        }
        for (b, paper) in BITS.into_iter().zip(paper) {
            if bits.is_empty() || bits.contains(&b) {
                let one = measure(&data, dim, block_rows, b, 1);
                let [frosh, sparse, osh] = one.multiples();
                let ratio = osh / frosh;
                if json {
                    println!(
                        "{{\"dim\":{dim},\"bits\":{b},\"rows\":{rows},\"threads\":1,\
                         \"floor_seconds\":{},\"frosh_floors\":{frosh},\"sparse_floors\":{sparse},\
                         \"osh_floors\":{osh},\"osh_over_frosh\":{ratio},\"paper_ratio\":{paper}}}",
                        one.floor
                    );
                    continue;
                }
                let all = measure(&data, dim, block_rows, b, cores);
                let gain = |i: usize| one.seconds[i] / all.seconds[i];
                println!(
                    "{b:5} {:10.1} {frosh:6.2} (x{:4.2}) {sparse:8.2} (x{:4.2}) {osh:8.1} (x{:4.2}) \
                     {ratio:9.1} {paper:6.1}",
                    one.floor * 1e3,
                    gain(0),
                    gain(1),
                    gain(2),
                );
            }
        }
    }
    if encode && (!json || !train) && (only.is_empty() || only.contains(&960)) {
        measure_encoding(json);
    }
}

/// How much faster all cores read the memory than one does: the most that any method can gain.
fn reading_gain(data: &[f32], dim: usize, cores: usize) -> f64 {
    let share = (data.len() / dim).div_ceil(cores) * dim;
    let (mut one, mut all) = (f64::MAX, f64::MAX);
    for _ in 0..TURNS {
        one = one.min(time(|| column_means(data, dim)));
        all = all.min(time(|| {
            std::thread::scope(|scope| {
                for part in data.chunks(share) {
                    scope.spawn(move || black_box(column_means(part, dim)));
                }
            });
        }));
    }
    one / all
}

struct Times {
    floor: f64,
    /// FROSH with the SRHT, with the sparse embedding, OSH.
    seconds: [f64; 3],
}

impl Times {
    fn multiples(&self) -> [f64; 3] {
        self.seconds.map(|s| s / self.floor)
    }
}

fn measure(data: &[f32], dim: usize, block_rows: usize, bits: usize, threads: usize) -> Times {
    let mut times = Times { floor: f64::MAX, seconds: [f64::MAX; 3] };
    for turn in 0..TURNS {
        times.floor = times.floor.min(time(|| column_means(data, dim)));
        for (i, method) in [Method::Frosh, Method::FroshSparse, Method::Osh].into_iter().enumerate()
        {
            if method == Method::Osh && turn > 0 {
                continue;
            }
            let config =
                Config::new(dim).sketch_rows(2 * bits).block_rows(block_rows).method(method);
            let pool = Pool::new(threads).expect("threads");
            let learn = || {
                let mut sketcher = Sketcher::new(config).expect("a valid configuration");
                sketcher.push(Rows::new(data, dim).expect("whole rows")).expect("finite rows");
                sketcher.finish().hasher_with(bits, Rotation::None).expect("W")
            };
            let seconds = time(|| pool.install(learn));
            times.seconds[i] = times.seconds[i].min(seconds);
        }
    }
    times
}

fn time<T>(work: impl FnOnce() -> T) -> f64 {
    let start = Instant::now();
    black_box(work());
    start.elapsed().as_secs_f64()
}

/// The floor: every row is read once.
fn column_means(data: &[f32], dim: usize) -> Vec<f32> {
    let mut sums = vec![0f32; dim];
    for row in data.chunks_exact(dim) {
        for (s, x) in sums.iter_mut().zip(row) {
            *s += x;
        }
    }
    let n = (data.len() / dim) as f32;
    sums.iter().map(|s| s / n).collect()
}

/// Rows with a falling spectrum and a mean, from a small generator: quick, and not what is measured.
fn generate(rows: usize, dim: usize) -> Vec<f32> {
    let scales: Vec<f32> = (0..dim).map(|j| 1.0 / (1.0 + j as f32 / 8.0).sqrt()).collect();
    let mut data = vec![0f32; rows * dim];
    let threads = Pool::all().threads();
    let share = rows.div_ceil(threads) * dim;
    std::thread::scope(|scope| {
        for (t, part) in data.chunks_mut(share).enumerate() {
            let scales = &scales;
            scope.spawn(move || {
                let mut state = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(t as u64 + 1);
                for row in part.chunks_exact_mut(dim) {
                    for (x, s) in row.iter_mut().zip(scales) {
                        state ^= state << 13;
                        state ^= state >> 7;
                        state ^= state << 17;
                        *x = ((state >> 40) as f32 / (1 << 23) as f32 - 0.9) * s;
                    }
                }
            });
        }
    });
    data
}

fn measure_encoding(json: bool) {
    let (dim, rows) = (960, 40_000);
    let data = generate(rows, dim);
    let mut sketcher = Sketcher::new(Config::new(dim)).expect("valid");
    sketcher.push(Rows::new(&data[..4096 * dim], dim).expect("whole rows")).expect("finite");
    let sketch = sketcher.finish();
    if !json {
        println!(
            "\nencoding, d = {dim}, {rows} rows: GFLOP/s, and time as a multiple of faer's product"
        );
        println!(" bits threads   frosh    faer   time / faer's");
    }
    for bits in BITS {
        let hasher = sketch.hasher_with(bits, Rotation::Random).expect("a hasher");
        let w = Mat::<f32>::from_fn(dim, bits, |i, j| hasher.direction(j)[i]);
        let x = MatRef::from_row_major_slice(&data, rows, dim);
        let mut out = Mat::<f32>::zeros(rows, bits);
        for threads in [1, Pool::all().threads()] {
            let pool = Pool::new(threads).expect("threads");
            let par = if threads == 1 { Par::Seq } else { Par::rayon(threads) };
            let (mut ours, mut faers) = (f64::MAX, f64::MAX);
            for _ in 0..TURNS {
                let batch = Rows::new(&data, dim).expect("whole rows");
                ours =
                    ours.min(time(|| pool.install(|| hasher.encode(batch)).expect("finite rows")));
                faers = faers.min(time(|| {
                    faer::linalg::matmul::matmul(
                        out.as_mut(),
                        Accum::Replace,
                        x,
                        w.as_ref(),
                        1.0,
                        par,
                    );
                }));
            }
            if json {
                println!(
                    "{{\"dim\":{dim},\"bits\":{bits},\"threads\":{threads},\"rows\":{rows},\
                     \"rows_per_second\":{}}}",
                    rows as f64 / ours
                );
                continue;
            }
            let gflop = 2e-9 * (rows * dim * bits) as f64;
            println!(
                "{bits:5} {threads:7} {:7.1} {:7.1} {:10.2}",
                gflop / ours,
                gflop / faers,
                ours / faers
            );
        }
    }
}
