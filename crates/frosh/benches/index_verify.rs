//! What comparing an index with its checksums costs a search.
//!
//! Run it with `cargo bench -p frosh --bench index_verify`. It builds an index of made rows (4 million by
//! default, codes of 64 bits with factors, and vectors of 64 dimensions in half precision), and searches it with one
//! query and with a batch, with and without comparing:
//!
//! - *from disk*: the index is opened, and the system has its files in memory no more;
//! - *from the page cache*: the index is opened, and its files are in memory;
//! - *again*: the same open index is searched a second time.
//!
//! Both ways are timed in turns, searching and re-ranking together. The shortest of the times is printed, and the
//! ratio; and the same of processor time (Linux), which other work on the machine changes less. Options:
//! `--millions N`, `--queries N` (of the batch), `--rounds N`, `--threads N`, `--folder DIR`.

use frosh::{Config, Index, IndexWriter, Pool, Ranking, Rows, Search, Sketcher, StoredVectors};
use std::path::Path;
use std::time::Instant;

const DIM: usize = 64;
const BITS: usize = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut millions, mut batch, mut rounds, mut threads) = (4, 100, 9, 0);
    let mut place = std::env::temp_dir();
    // `cargo bench` passes --bench.
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    while let (Some(option), Some(value)) = (args.next(), args.next()) {
        match option.as_str() {
            "--millions" => millions = value.parse()?,
            "--queries" => batch = value.parse()?,
            "--rounds" => rounds = value.parse()?,
            "--threads" => threads = value.parse()?,
            "--folder" => place = value.into(),
            _ => return Err(format!("unknown option {option}; see the top of the source").into()),
        }
    }
    let folder = tempfile::tempdir_in(place)?;
    let folder = folder.path().join("index");
    let pool = Pool::new(threads)?;
    build(&folder, millions, &pool)?;
    println!(
        "{millions} million rows, {BITS} bits and a byte, vectors of {} bytes; {} threads; estimated ranking, k = 10, \
         40 re-ranked; best of {rounds}",
        2 * DIM,
        pool.threads()
    );
    println!("| queries | index | unverified | verified | ratio | processor | verified | ratio |");
    println!("|--:|---|--:|--:|--:|--:|--:|--:|");
    for count in [1, batch] {
        let queries = values(count, 99);
        for (name, state) in [("from disk", 0), ("from the page cache", 1), ("again", 2)] {
            let mut best = [(f64::MAX, f64::MAX); 2];
            for round in 0..2 * rounds {
                // In turns, and each way first every second time.
                let verify = (round % 2 == 0) == (round / 2 % 2 == 0);
                if state == 0 {
                    forget(&folder)?;
                }
                let mut index = None;
                if state == 2 {
                    let opened = Index::open(&folder)?.verify(verify);
                    search(&opened, &queries, &pool)?;
                    index = Some(opened);
                }
                let (clock, worked) = (Instant::now(), processor());
                let index = match index {
                    Some(index) => index,
                    None => Index::open(&folder)?.verify(verify),
                };
                search(&index, &queries, &pool)?;
                let (time, work) = &mut best[usize::from(verify)];
                *time = time.min(clock.elapsed().as_secs_f64() * 1e3);
                *work = work.min((processor() - worked) * 1e3);
            }
            let [(time, work), (time_verified, work_verified)] = best;
            let (ratio, work_ratio) = (time_verified / time, work_verified / work);
            println!(
                "| {count} | {name} | {time:.2} ms | {time_verified:.2} ms | {ratio:.3} | {work:.2} ms | \
                 {work_verified:.2} ms | {work_ratio:.3} |"
            );
        }
    }
    Ok(())
}

fn search(index: &Index, queries: &[f32], pool: &Pool) -> frosh::Result<()> {
    let rows = Rows::new(queries, DIM)?;
    let search = Search::nearest(10).ranking(Ranking::Estimated).rerank(4);
    std::hint::black_box(pool.install(|| index.search(rows, &search))?);
    Ok(())
}

fn build(folder: &Path, millions: usize, pool: &Pool) -> frosh::Result<()> {
    let mut sketcher = Sketcher::new(Config::new(DIM).sketch_rows(2 * BITS))?;
    let sample = values(20_000, 1);
    sketcher.push(Rows::new(&sample, DIM)?)?;
    let hasher = sketcher.finish().hasher(BITS)?;
    let mut writer = IndexWriter::create(folder, &hasher, true, Some(StoredVectors::F16))?;
    let mut new = pool.install(|| writer.add());
    for part in 0..10 * millions {
        let rows = values(100_000, 2 + part as u64);
        new.push(Rows::new(&rows, DIM)?)?;
    }
    new.commit().map(|_| ())
}

/// Rows that look random, the same every time; the first columns vary most.
fn values(rows: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..rows * DIM).map(|i| next() / (1.0 + (i % DIM) as f32 / 8.0)).collect()
}

/// Seconds that all threads of this process have worked so far; 0 where the system does not tell.
fn processor() -> f64 {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return 0.0 };
    let worked = |thread: std::io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    };
    threads.filter_map(worked).sum::<f64>() / 1e9
}

/// Lets the system forget the files of a folder, by the tool that every Linux has.
fn forget(folder: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let tool = std::process::Command::new("dd")
            .arg(format!("if={}", path.display()))
            .args(["iflag=nocache", "count=0", "status=none"])
            .status()?;
        if !tool.success() {
            eprintln!("{} stays in memory", path.display());
        }
    }
    Ok(())
}
