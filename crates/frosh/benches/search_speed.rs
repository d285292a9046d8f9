//! How fast codes are searched, beside the least that any scan must do: reading every code once.
//!
//! Run it with `cargo bench -p frosh --bench search_speed`. For codes of 64, 128 and 256 bits, 1
//! and 10 million of them, it prints for each k and number of threads: single queries per second, the
//! bandwidth of a single query as a share of that of a plain sum over the same memory, and queries per
//! second in batches of 1,000; then how a [`MultiIndex`] compares; and at the end how float queries
//! (asymmetric and estimated ranking) compare with Hamming search. The codes are clustered: a hundred
//! copies of each of many random codes, every bit flipped with probability 1/16; queries are made the same
//! way.
//!
//! Times are the best of a few, taken in turns. Options: `--codes FILE.npy --queries FILE.npy`
//! (two-dimensional arrays of bytes, in place of made codes), `--bits BITS`, `--millions N`, `--threads N`
//! (each may be repeated), `--json` (one object for each cell, to standard output).

use frosh::{Codes, Config, Hasher, HasherId, MultiIndex, Pool, Ranking, Rows, Search, Sketcher};
use std::hint::black_box;
use std::time::Instant;

const BATCH: usize = 1000;
const KS: [usize; 2] = [10, 100];
/// Queries whose distances are summed, so that a script can compare them with another tool's.
const CHECKED: usize = 100;

#[derive(Default)]
struct Options {
    codes: Option<String>,
    queries: Option<String>,
    bits: Vec<usize>,
    millions: Vec<usize>,
    threads: Vec<usize>,
    json: bool,
}

fn main() {
    let mut options = Options::default();
    // `cargo bench` passes --bench.
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    while let Some(arg) = args.next() {
        if arg == "--json" {
            options.json = true;
            continue;
        }
        let Some(value) = args.next() else { return eprintln!("{arg} needs a value") };
        let list = match arg.as_str() {
            "--codes" => {
                options.codes = Some(value);
                continue;
            }
            "--queries" => {
                options.queries = Some(value);
                continue;
            }
            "--bits" => &mut options.bits,
            "--millions" => &mut options.millions,
            "--threads" => &mut options.threads,
            _ => return eprintln!("unknown option {arg}; see the top of the source"),
        };
        match value.parse() {
            Ok(number) => list.push(number),
            Err(_) => return eprintln!("{arg} needs a number"),
        }
    }
    let or = |list: &[usize], usual: &[usize]| {
        if list.is_empty() { usual.to_vec() } else { list.to_vec() }
    };
    let threads = or(&options.threads, &[1, 2]);
    if let (Some(codes), Some(queries)) = (&options.codes, &options.queries) {
        match (read_npy(codes), read_npy(queries)) {
            (Ok(codes), Ok(queries)) => measure(&codes, &queries, &threads, options.json),
            (Err(why), _) | (_, Err(why)) => eprintln!("{why}"),
        }
        return;
    }
    for bits in or(&options.bits, &[64, 128, 256]) {
        for millions in or(&options.millions, &[1, 10]) {
            let (codes, queries) = make(bits, millions * 1_000_000);
            measure(&codes, &queries, &threads, options.json);
        }
    }
    if !options.json {
        compare_rankings(&or(&options.bits, &[64, 128, 256]));
    }
}

/// Any hasher's id: codes from elsewhere need one.
fn hasher() -> HasherId {
    let rows: Vec<f32> = (0..256).map(|i| (i * 31 % 17) as f32).collect();
    let mut sketcher = Sketcher::new(Config::new(4).sketch_rows(8)).expect("good settings");
    sketcher.push(Rows::new(&rows, 4).expect("whole rows")).expect("good rows");
    let hasher = sketcher.finish().hasher(2).expect("two bits of four");
    hasher.encode(Rows::new(&rows, 4).expect("whole rows")).expect("good rows").hasher()
}

fn make(bits: usize, count: usize) -> (Codes, Codes) {
    let mut state = 1u64;
    let mut word = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    };
    let words = bits / 64;
    let centres: Vec<u64> = (0..(count / 100).max(1) * words).map(|_| word()).collect();
    let mut rows = |count: usize| {
        let mut data = Vec::with_capacity(count * bits / 8);
        for _ in 0..count {
            let centre = word() as usize % (centres.len() / words);
            for part in &centres[centre * words..][..words] {
                let flips = word() & word() & word() & word();
                data.extend_from_slice(&(part ^ flips).to_le_bytes());
            }
        }
        Codes::from_packed(hasher(), bits, data).expect("whole words")
    };
    (rows(count), rows(BATCH))
}

/// A two-dimensional array of bytes in NumPy's format.
fn read_npy(path: &str) -> Result<Codes, String> {
    let bytes = std::fs::read(path).map_err(|e| format!("{path}: {e}"))?;
    let bad = || format!("{path}: not a two-dimensional .npy array of bytes");
    let length = match bytes.get(..10).ok_or_else(bad)? {
        [0x93, b'N', b'U', b'M', b'P', b'Y', 1, _, low, high] => u16::from_le_bytes([*low, *high]),
        _ => return Err(bad()),
    };
    let (header, data) = bytes[10..].split_at_checked(length.into()).ok_or_else(bad)?;
    let header = String::from_utf8_lossy(header);
    let shape = header.split(['(', ')']).nth(1).ok_or_else(bad)?;
    let width: usize =
        shape.split(',').nth(1).and_then(|x| x.trim().parse().ok()).ok_or_else(bad)?;
    if !header.contains("|u1") || header.contains("True") {
        return Err(bad());
    }
    Codes::from_packed(hasher(), 8 * width, data.to_vec()).map_err(|e| format!("{path}: {e}"))
}

fn part(codes: &Codes, from: usize, rows: usize) -> Codes {
    let width = codes.bytes_per_row();
    let data = codes.as_bytes()[from * width..][..rows * width].to_vec();
    Codes::from_packed(codes.hasher(), codes.bits(), data).expect("whole rows")
}

fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

/// The sum of all words, on some threads.
fn floor(codes: &Codes, threads: usize) -> f64 {
    let (words, _) = codes.as_bytes().as_chunks::<8>();
    let sum = |words: &[[u8; 8]]| {
        words.iter().fold(0u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)))
    };
    let share = words.len().div_ceil(threads).max(1);
    let mut best = f64::MAX;
    for _ in 0..3 {
        best = best.min(seconds(|| {
            std::thread::scope(|scope| {
                let mut parts = words.chunks(share);
                let own = parts.next();
                for part in parts {
                    scope.spawn(move || black_box(sum(part)));
                }
                black_box(own.map(sum));
            });
        }));
    }
    best
}

fn measure(codes: &Codes, queries: &Codes, threads: &[usize], json: bool) {
    let (bits, count) = (codes.bits(), codes.len());
    if !json {
        println!(
            "\n{bits} bits, {count} codes\n    k  threads  single q/s  codes/s (G)  of the floor's \
             bandwidth  batch q/s  codes/s (G)"
        );
    }
    let singles: Vec<Codes> = (0..queries.len().min(40)).map(|q| part(queries, q, 1)).collect();
    for k in KS {
        for &threads in threads {
            let pool = Pool::new(threads).expect("threads");
            let (mut read, mut single, mut batch) = (f64::MAX, f64::MAX, f64::MAX);
            for turn in 0..3 {
                read = read.min(floor(codes, threads));
                let start = Instant::now();
                for query in &singles {
                    single = single.min(seconds(|| {
                        black_box(
                            pool.install(|| codes.search(query, &scan(k))).expect("one hasher"),
                        );
                    }));
                    if start.elapsed().as_secs_f64() > 0.1 {
                        break;
                    }
                }
                if turn == 0 || batch < 0.5 {
                    batch = batch.min(seconds(|| {
                        black_box(
                            pool.install(|| codes.search(queries, &scan(k))).expect("one hasher"),
                        );
                    }));
                }
            }
            let checked = part(queries, 0, queries.len().min(CHECKED));
            let found = pool.install(|| codes.search(&checked, &scan(k))).expect("one hasher");
            let sum: u64 = found.iter().flatten().map(|hit| hit.distance as u64).sum();
            let rate = queries.len() as f64 / batch;
            let giga = count as f64 / 1e9;
            if json {
                println!(
                    "{{\"bits\":{bits},\"codes\":{count},\"k\":{k},\"threads\":{threads},\
                     \"single_per_second\":{},\"batch\":{},\"batch_per_second\":{rate},\
                     \"bandwidth_share\":{},\"sum_of_distances\":{sum}}}",
                    1.0 / single,
                    queries.len(),
                    read / single
                );
            } else {
                println!(
                    "{k:5} {threads:8} {:11.1} {:12.2} {:25.0} % {rate:9.0} {:12.1}",
                    1.0 / single,
                    giga / single,
                    100.0 * read / single,
                    giga * rate
                );
            }
        }
    }
    if !json {
        compare_index(codes, queries);
    }
}

/// The k nearest codes by a scan, whatever hash tables would do.
fn scan(k: usize) -> Search<'static> {
    Search::nearest(k).scan_only()
}

/// The index beside the scan, for k = 10 on one thread.
fn compare_index(codes: &Codes, queries: &Codes) {
    let mut index = None;
    let build = seconds(|| index = MultiIndex::new(codes).ok());
    let Some(index) = index else { return };
    let some = part(queries, 0, queries.len().min(CHECKED));
    let (mut scanned, mut found) = (Vec::new(), Vec::new());
    let mut rates = Vec::new();
    for size in [1, some.len()] {
        let (mut by_scan, mut by_index) = (0.0, 0.0);
        for q in (0..20.min(some.len())).step_by(size) {
            let asked = part(&some, q, size);
            Pool::ONE.install(|| {
                by_scan += seconds(|| scanned = codes.search(&asked, &scan(10)).expect("ours"));
                by_index += seconds(|| found = index.nearest(&asked, 10).expect("ours"));
            });
            assert_eq!(scanned, found);
        }
        rates.push(by_scan / by_index);
    }
    println!(
        "  multi-index: made in {build:.1} s, {} MB; single queries x{:.1}, batches of {} x{:.1}",
        index.bytes() / 1_000_000,
        rates[0],
        some.len(),
        rates[1]
    );
}

/// Float queries beside Hamming search, for k = 10 on one thread: a million clustered vectors.
fn compare_rankings(bits: &[usize]) {
    const DIM: usize = 256;
    const ROWS: usize = 1_000_000;
    let mut state = 7u64;
    let mut normal = move || {
        // The sum of four uniform numbers is near enough.
        (0..4).fold(-2.0f32, |sum, _| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            sum + (state >> 40) as f32 / (1u64 << 24) as f32
        })
    };
    let centres: Vec<f32> = (0..500 * DIM).map(|_| normal()).collect();
    let mut draw = 0usize;
    let mut make = |rows: usize| -> Vec<f32> {
        (0..rows)
            .flat_map(|_| {
                draw = draw.wrapping_mul(25_173).wrapping_add(13_849) % 65_536;
                let centre = &centres[draw % 500 * DIM..][..DIM];
                (0..DIM)
                    .map(|j| (centre[j] + normal()) / (1.0 + j as f32).sqrt())
                    .collect::<Vec<_>>()
            })
            .collect()
    };
    let learned = make(20_000);
    let learned = Rows::new(&learned, DIM).expect("whole rows");
    let queries = make(BATCH);
    let queries = Rows::new(&queries, DIM).expect("whole rows");
    let hashers: Vec<Hasher> = bits
        .iter()
        .map(|bits| {
            let mut sketcher =
                Sketcher::new(Config::new(DIM).sketch_rows(2 * bits)).expect("good settings");
            sketcher.push(learned).expect("good rows");
            sketcher.finish().hasher(*bits).expect("fewer bits than dimensions")
        })
        .collect();
    let mut codes: Vec<Option<Codes>> = vec![None; bits.len()];
    for _ in 0..ROWS / 10_000 {
        let rows = make(10_000);
        let rows = Rows::new(&rows, DIM).expect("whole rows");
        for (codes, hasher) in codes.iter_mut().zip(&hashers) {
            let more = hasher.encode_with_factors(rows).expect("good rows");
            match codes {
                Some(codes) => codes.append(&more).expect("one hasher"),
                None => *codes = Some(more),
            }
        }
    }
    println!(
        "\na million clustered vectors, k = 10, one thread: G codes/s for single queries and in batches"
    );
    println!("   bits  hamming           asymmetric        estimated");
    for (hasher, codes) in hashers.iter().zip(codes.iter().flatten()) {
        let asked = hasher.queries(queries).expect("good rows");
        let single = hasher.queries(queries.slice(0..1)).expect("good rows");
        print!("{:7}", hasher.bits());
        for ranking in [Ranking::Hamming, Ranking::Asymmetric, Ranking::Estimated] {
            let search = Search::nearest(10).ranking(ranking);
            let mut best = [f64::MAX; 2];
            for (best, asked) in best.iter_mut().zip([&single, &asked]) {
                for _ in 0..3 {
                    let time = seconds(|| {
                        black_box(
                            Pool::ONE.install(|| codes.search(asked, &search)).expect("ours"),
                        );
                    });
                    *best = best.min(time / asked.len() as f64);
                }
            }
            let [one, many] = best.map(|time| ROWS as f64 / 1e9 / time);
            print!("  {one:6.2} {many:8.2} ");
        }
        println!();
    }
}
