//! How fast a quantiser is fitted, encodes and is searched.
//!
//! Run it with `cargo bench -p frosh --bench quantizer`. For codes of 8, 16 and 32 bytes it prints: the seconds of
//! [`Sketch::quantizer`] on one thread and on all, from a finished sketch; encoded rows per second at effort 1 and 8;
//! what the first queries take; and queries per second for the 10 nearest codes, one by one and in batches of 1,000, on
//! one thread and on two. The rows lie in clusters, and both the centres and the rows around them have spectra that
//! fall.
//!
//! `scripts/compare_quantizer.py` runs it beside FAISS on the same rows. Options: `--base FILE --queries FILE --dim D` (raw
//! f32 files in place of made rows), `--rows N`, `--bytes B` (may be repeated), `--only fit|encode|search`, `--json` (one
//! object for each measure), `--hits FILE` (writes the ids of the hits, u32, 10 for each query).

use frosh::{Config, Pool, Quantizer, Queries, Rows, Search, Sketch, Sketcher};
use std::hint::black_box;
use std::time::Instant;

const K: usize = 10;
const TURNS: usize = 3;
/// Queries that are searched one by one.
const SINGLE: usize = 200;
/// Queries that are enough for an order.
const MANY: usize = 100;

#[derive(Default)]
struct Options {
    base: Option<String>,
    queries: Option<String>,
    dim: Option<usize>,
    rows: Option<usize>,
    bytes: Vec<usize>,
    only: Option<String>,
    hits: Option<String>,
    json: bool,
}

fn main() {
    match options().and_then(|options| run(&options)) {
        Ok(()) => {}
        Err(why) => {
            eprintln!("{why}; see the top of the source");
            std::process::exit(2);
        }
    }
}

fn options() -> Result<Options, String> {
    let mut options = Options::default();
    // `cargo bench` passes --bench.
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    while let Some(arg) = args.next() {
        if arg == "--json" {
            options.json = true;
            continue;
        }
        let value = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
        let number = || value.parse::<usize>().map_err(|_| format!("{arg} needs a number"));
        match arg.as_str() {
            "--base" => options.base = Some(value),
            "--queries" => options.queries = Some(value),
            "--dim" => options.dim = Some(number()?),
            "--rows" => options.rows = Some(number()?),
            "--bytes" => options.bytes.push(number()?),
            "--only" => options.only = Some(value),
            "--hits" => options.hits = Some(value),
            _ => return Err(format!("unknown option {arg}")),
        }
    }
    Ok(options)
}

fn run(options: &Options) -> Result<(), String> {
    let dim = options.dim.unwrap_or(960);
    let (base, queries) = match (&options.base, &options.queries) {
        (Some(base), Some(queries)) => (read(base)?, read(queries)?),
        _ => {
            let rows = options.rows.unwrap_or(100_000);
            let mut all = generate(rows + 1000, dim);
            let queries = all.split_off(rows * dim);
            (all, queries)
        }
    };
    let rows = |data| Rows::new(data, dim).map_err(|e| e.to_string());
    let (base, queries) = (rows(&base)?, rows(&queries)?);
    let sizes = if options.bytes.is_empty() { vec![8, 16, 32] } else { options.bytes.clone() };
    let wanted = |part: &str| options.only.as_deref().is_none_or(|only| only == part);
    for bytes in sizes {
        let print = |name: &str, threads: usize, value: f64, unit: &str| {
            if options.json {
                println!(
                    r#"{{"bytes":{bytes},"measure":"{name}","threads":{threads},"value":{value}}}"#
                );
            } else {
                println!("{bytes:>3} bytes  {name:<16} {threads} threads  {value:>12.3} {unit}");
            }
        };
        let sketch = sketch(base, bytes).map_err(|e| e.to_string())?;
        let mut fitted = None;
        for threads in [Pool::all().threads(), 1] {
            if threads == 1 && !wanted("fit") {
                continue;
            }
            let turns = if wanted("fit") { TURNS } else { 1 };
            let best = (0..turns)
                .map(|_| seconds(|| on(threads, || fitted = Some(sketch.quantizer(bytes)))))
                .fold(f64::MAX, f64::min);
            if wanted("fit") {
                print("fit", threads, best, "s");
            }
        }
        let quantizer = fitted.ok_or("nothing fitted")?.map_err(|e| e.to_string())?;
        if wanted("encode") {
            encode(&quantizer, base, &print);
        }
        if wanted("search") {
            let found = search(&quantizer, base, queries, &print)?;
            if let Some(path) = &options.hits {
                let ids: Vec<u8> = found.iter().flat_map(|id| (*id as u32).to_le_bytes()).collect();
                std::fs::write(path, ids).map_err(|e| format!("{path}: {e}"))?;
            }
        }
    }
    Ok(())
}

fn sketch(base: Rows<'_, f32>, bytes: usize) -> frosh::Result<Sketch> {
    let config = Config::new(base.dim()).for_quantizer(bytes);
    let mut sketcher = Sketcher::new(config)?;
    sketcher.push(base)?;
    Ok(sketcher.finish())
}

fn encode(quantizer: &Quantizer, base: Rows<'_, f32>, print: &impl Fn(&str, usize, f64, &str)) {
    let part = base.slice(0..base.len().min(50_000));
    for effort in [1, 8] {
        let quantizer = quantizer.clone().effort(effort);
        for threads in [1, 2] {
            let work = || on(threads, || drop(black_box(quantizer.encode(part))));
            let best = (0..TURNS).map(|_| seconds(work)).fold(f64::MAX, f64::min);
            let name = format!("encode, effort {effort}");
            print(&name, threads, part.len() as f64 / best, "rows/s");
        }
    }
}

/// Measures searches and returns the ids of the hits, [`K`] for each query.
fn search(
    quantizer: &Quantizer,
    base: Rows<'_, f32>,
    queries: Rows<'_, f32>,
    print: &impl Fn(&str, usize, f64, &str),
) -> Result<Vec<u64>, String> {
    let codes = quantizer.encode(base).map_err(|e| e.to_string())?;
    let single: Vec<Queries> = (0..queries.len().min(SINGLE))
        .filter_map(|q| quantizer.queries(queries.slice(q..q + 1)).ok())
        .collect();
    let nearest = Search::nearest(K);
    // The first few queries score every row. Then the rows are ordered by cell, which later queries use.
    for _ in 0..3 {
        let first = || on(1, || drop(codes.search(&single[0], &nearest)));
        print("one of the first queries", 1, 1e3 * seconds(first), "ms");
    }
    let many = quantizer.queries(queries.slice(0..queries.len().min(MANY)));
    let many = many.map_err(|e| e.to_string())?;
    let ordering = || on(1, || drop(codes.search(&many, &nearest)));
    print("many queries and the order", 1, 1e3 * seconds(ordering), "ms");
    let mut found = Vec::new();
    for threads in [1, 2] {
        // The tables of the queries count too: FAISS computes its own inside a search.
        let mut batch = || {
            on(threads, || {
                let all = quantizer.queries(queries);
                found = all.and_then(|all| codes.search(&all, &nearest)).unwrap_or_default();
            })
        };
        let best = (0..TURNS).map(|_| seconds(&mut batch)).fold(f64::MAX, f64::min);
        print("batch", threads, queries.len() as f64 / best, "queries/s");
        let alone = || {
            on(threads, || {
                for q in 0..single.len() {
                    let one = quantizer.queries(queries.slice(q..q + 1));
                    drop(black_box(one.and_then(|one| codes.search(&one, &nearest))));
                }
            })
        };
        let best = (0..TURNS).map(|_| seconds(alone)).fold(f64::MAX, f64::min);
        print("one by one", threads, single.len() as f64 / best, "queries/s");
    }
    Ok(found.iter().flat_map(|hits| hits.iter().map(|hit| hit.id)).collect())
}

fn on<T>(threads: usize, work: impl FnOnce() -> T) -> T {
    Pool::new(threads).expect("threads can be started").install(work)
}

fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

fn read(path: &str) -> Result<Vec<f32>, String> {
    let bytes = std::fs::read(path).map_err(|e| format!("{path}: {e}"))?;
    Ok(bytes.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x)).collect())
}

/// Rows around 1,000 centres. Standard deviations fall as 1 / (1 + j / 16) for centres, and half as fast around them.
fn generate(rows: usize, dim: usize) -> Vec<f32> {
    const CENTRES: usize = 1000;
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    // A sum of four uniform numbers is near enough to normal.
    let mut normal = move || {
        let mut sum = 0.0;
        for _ in 0..4 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            sum += (state >> 40) as f32 / (1 << 24) as f32;
        }
        (sum - 2.0) * 3f32.sqrt()
    };
    let falling = |j: usize, by: f32| 1.0 / (1.0 + j as f32 / by);
    let centres: Vec<f32> = (0..CENTRES * dim).map(|i| normal() * falling(i % dim, 16.0)).collect();
    (0..rows * dim)
        .map(|i| {
            let (row, j) = (i / dim, i % dim);
            centres[row * 7919 % CENTRES * dim + j] + 0.5 * normal() * falling(j, 32.0)
        })
        .collect()
}
