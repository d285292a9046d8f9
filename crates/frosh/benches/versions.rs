//! What several versions of the model cost a search.
//!
//! Run it with `cargo bench -p frosh --bench versions`. It builds two indexes of the same made rows (a million by default,
//! codes of 64 bits with factors, no vectors): one with a single model, and one with ten versions that have a tenth of the
//! rows each. It searches both with one query and with batches, by estimated distance, and prints the times and their
//! ratio. The limit for batches is 1.5.
//!
//! Both are timed in turns. The shortest of the times is printed, and the same of processor time (Linux), which other work
//! on the machine changes less. Options: `--rows N`, `--versions N`, `--dim N`, `--bytes N` (a quantiser of so many bytes
//! instead of 64 bits), `--rounds N`, `--threads N`, `--folder DIR`.

use frosh::{Config, Index, IndexWriter, Model, Pool, Ranking, Rows, Search, Sketcher};
use std::path::Path;
use std::time::Instant;

const BITS: usize = 64;
const BATCHES: [usize; 4] = [1, 10, 100, 1000];

struct Options {
    rows: usize,
    versions: usize,
    dim: usize,
    bytes: Option<usize>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut options = Options { rows: 1_000_000, versions: 10, dim: 128, bytes: None };
    let (mut rounds, mut threads, mut place) = (9, 1, std::env::temp_dir());
    // `cargo bench` passes --bench.
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    while let (Some(option), Some(value)) = (args.next(), args.next()) {
        match option.as_str() {
            "--rows" => options.rows = value.parse()?,
            "--versions" => options.versions = value.parse()?,
            "--dim" => options.dim = value.parse()?,
            "--bytes" => options.bytes = Some(value.parse()?),
            "--rounds" => rounds = value.parse()?,
            "--threads" => threads = value.parse()?,
            "--folder" => place = value.into(),
            _ => return Err(format!("unknown option {option}; see the top of the source").into()),
        }
    }
    let folder = tempfile::tempdir_in(place)?;
    let pool = Pool::new(threads)?;
    let paths = [folder.path().join("one"), folder.path().join("many")];
    pool.install(|| build(&paths[0], &options, 1))?;
    pool.install(|| build(&paths[1], &options, options.versions))?;
    let indexes = [Index::open(&paths[0])?, Index::open(&paths[1])?];
    println!(
        "{} rows of {} dimensions, {}; {} versions; {} threads; estimated ranking, k = 10; best of {rounds}",
        options.rows,
        options.dim,
        options.bytes.map_or(format!("{BITS} bits"), |bytes| format!("{bytes} bytes")),
        indexes[1].versions().len(),
        pool.threads()
    );
    println!("| queries | one version | {} | ratio | processor | {0} | ratio |", options.versions);
    println!("|--:|--:|--:|--:|--:|--:|--:|");
    let search = Search::nearest(10).ranking(Ranking::Estimated);
    for count in BATCHES {
        let queries = values(count, options.dim, 99, 0.5);
        let queries = Rows::new(&queries, options.dim)?;
        let mut best = [(f64::MAX, f64::MAX); 2];
        for round in 0..2 * (rounds + 1) {
            let many = (round + round / 2) % 2;
            let (clock, worked) = (Instant::now(), processor());
            let found = pool.install(|| indexes[many].search(queries, &search))?;
            let (time, work) = (clock.elapsed().as_secs_f64() * 1e3, (processor() - worked) * 1e3);
            assert!(found.iter().all(|hits| hits.len() == 10));
            // The first round verifies the arrays and reads them.
            if round >= 2 {
                best[many] = (best[many].0.min(time), best[many].1.min(work));
            }
        }
        let [(one, one_work), (many, many_work)] = best;
        println!(
            "| {count} | {one:.2} ms | {many:.2} ms | {:.2} | {one_work:.2} ms | {many_work:.2} ms | {:.2} |",
            many / one,
            many_work / one_work
        );
    }
    Ok(())
}

/// Builds an index of equal parts, each with a model that was learned from it.
fn build(folder: &Path, options: &Options, versions: usize) -> frosh::Result<()> {
    let dim = options.dim;
    let part = |number: usize, of: usize| {
        let share = (number + 1) as f32 / of as f32;
        values(options.rows / of, dim, number as u64, share)
    };
    let model = |rows: &[f32]| -> frosh::Result<Model> {
        let sketch_rows = options.bytes.map_or(2 * BITS, Config::quantizer_rows);
        let mut sketcher = Sketcher::new(Config::new(dim).sketch_rows(sketch_rows))?;
        let learned = rows.len().min(50_000 * dim);
        sketcher.push(Rows::new(&rows[..learned], dim)?)?;
        match options.bytes {
            Some(bytes) => sketcher.finish().quantizer(bytes).map(Model::from),
            None => sketcher.finish().hasher(BITS).map(Model::from),
        }
    };
    let first = part(0, options.versions);
    let mut writer = IndexWriter::create(folder, model(&first)?, options.bytes.is_none(), None)?;
    for number in 0..options.versions {
        let rows = part(number, options.versions);
        if number > 0 && versions > 1 {
            writer.refresh(model(&rows)?)?.keep_missing(true).commit()?;
        }
        let mut new = writer.add();
        new.push(Rows::new(&rows, dim)?)?;
        new.commit()?;
    }
    // One part for each version.
    writer.compact_to(versions)
}

/// Made rows in clusters, whose middle moves with `share`.
fn values(rows: usize, dim: usize, seed: u64, share: f32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ x >> 31) >> 40
    };
    let mut all = Vec::with_capacity(rows * dim);
    for _ in 0..rows {
        let cluster = next() % 50;
        for column in 0..dim {
            let centre =
                ((cluster * 31 + column as u64 * 17) % 23) as f32 / (4.0 + column as f32 / 8.0);
            let noise = next() as f32 / (1u64 << 24) as f32 - 0.5;
            let drift = share * ((column as u64 * 13) % 7) as f32 / 7.0;
            all.push(centre + noise + drift);
        }
    }
    all
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
