//! What several versions of the model cost a search.
//!
//! Run it with `cargo bench -p frosh --bench versions`. It builds two indexes of the same made rows (a million by
//! default, codes of 64 bits with factors, no vectors). The rows change: other columns vary most in each tenth. One
//! index has a single model, which was learned from all rows. The other has ten versions, one for each tenth. It
//! searches both with one query and with batches, by estimated distance, and prints the times and their ratio. The
//! limit for batches is 1.5.
//!
//! Both are timed in turns. The shortest of the times is printed, and the same of processor time (Linux), which other
//! work on the machine changes less. Options: `--rows N`, `--versions N`, `--dim N`, `--bytes N` (a quantiser of so
//! many bytes instead of 64 bits), `--clusters N` (rows in so many clusters, whose rows are nearly equally far from a
//! query), `--rounds N`, `--threads N`, `--folder DIR`.

use frosh::{Config, Index, IndexWriter, Model, Pool, Ranking, Rows, Search, Sketcher};
use std::path::Path;
use std::time::Instant;

const BITS: usize = 64;
/// Rows that a model is learned from.
const LEARNED: usize = 100_000;
const BATCHES: [usize; 4] = [1, 10, 100, 1000];

struct Options {
    rows: usize,
    versions: usize,
    dim: usize,
    bytes: Option<usize>,
    clusters: u64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut options = Options { rows: 1_000_000, versions: 10, dim: 128, bytes: None, clusters: 0 };
    let (mut rounds, mut threads, mut place) = (9, 1, std::env::temp_dir());
    // `cargo bench` passes --bench.
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    while let (Some(option), Some(value)) = (args.next(), args.next()) {
        match option.as_str() {
            "--rows" => options.rows = value.parse()?,
            "--versions" => options.versions = value.parse()?,
            "--dim" => options.dim = value.parse()?,
            "--bytes" => options.bytes = Some(value.parse()?),
            "--clusters" => options.clusters = value.parse()?,
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
        // From all parts in turn.
        let parts: Vec<Vec<f32>> = (0..options.versions)
            .map(|part| values(count, options.dim, 99 + part as u64, part, &options))
            .collect();
        let row = |i: usize| &parts[i % options.versions][i * options.dim..][..options.dim];
        let queries: Vec<f32> = (0..count).flat_map(row).copied().collect();
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

/// Builds an index of equal parts, with one model of all or with one for each.
fn build(folder: &Path, options: &Options, versions: usize) -> frosh::Result<()> {
    let dim = options.dim;
    let parts: Vec<Vec<f32>> = (0..options.versions)
        .map(|number| values(options.rows / options.versions, dim, number as u64, number, options))
        .collect();
    let model = |parts: &[Vec<f32>]| -> frosh::Result<Model> {
        let config = Config::new(dim);
        let mut sketcher = Sketcher::new(match options.bytes {
            Some(bytes) => config.for_quantizer(bytes),
            None => config.sketch_rows(2 * BITS),
        })?;
        for rows in parts {
            let learned = rows.len().min(LEARNED / parts.len() * dim);
            sketcher.push(Rows::new(&rows[..learned], dim)?)?;
        }
        match options.bytes {
            Some(bytes) => sketcher.finish().quantizer(bytes).map(Model::from),
            None => sketcher.finish().hasher(BITS).map(Model::from),
        }
    };
    let of = |number: usize| if versions == 1 { &parts[..] } else { &parts[number..=number] };
    let mut writer = IndexWriter::create(folder, model(of(0))?, options.bytes.is_none(), None)?;
    for (number, rows) in parts.iter().enumerate() {
        if number > 0 && versions > 1 {
            writer.refresh(model(of(number))?)?.keep_missing(true).commit()?;
        }
        let mut new = writer.add();
        new.push(Rows::new(rows, dim)?)?;
        new.commit()?;
    }
    // One part for each version.
    writer.compact_to(versions)
}

/// Rows that look random. The columns that vary most move with the part, and so does the mean.
fn values(rows: usize, dim: usize, seed: u64, part: usize, options: &Options) -> Vec<f32> {
    let mut state = seed + 1;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let shift = part * dim / (2 * options.versions);
    let scales: Vec<f32> =
        (0..dim).map(|column| 1.0 / (1.0 + ((column + shift) % dim) as f32 / 8.0)).collect();
    let mut all = Vec::with_capacity(rows * dim);
    for _ in 0..rows {
        let cluster = ((next() + 1.0) * 1e6) as u64 % options.clusters.max(1);
        for (column, scale) in (0u64..).zip(&scales) {
            // The sum of three is nearly normal.
            let noise = next() + next() + next();
            let centre = (cluster * 31 + column * 17 + cluster * column) % 23;
            let centre = if options.clusters > 0 { centre as f32 / 2.0 } else { 0.0 };
            all.push(scale * (centre + noise + 0.1));
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
