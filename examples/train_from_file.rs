//! Learn a model from a file of vectors, encode the file, and search it.
//!
//! ```text
//! cargo run --release --example train_from_file -- vectors.npy
//! ```
//!
//! Any format that frosh reads will do: .npy, .fvecs, Parquet, Arrow, HDF5, CSV and more. Without a file, the example
//! makes vectors of its own. The file is read twice, once to learn and once to encode; memory does not grow with it.

use frosh::{CodesWriter, Config, Rows, Sketcher};
use frosh_io::{Options, Vectors};

mod common;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let path = match std::env::args().nth(1) {
        Some(path) => path.into(),
        None => common::make_vectors(&folder.path().join("vectors.npy"), 20_000)?,
    };

    // Learn: one pass. Each batch is a few megabytes.
    let vectors = Vectors::open(&[&path], &Options::default())?;
    let bits = 64.min(vectors.dim());
    let mut sketcher = Sketcher::new(Config::new(vectors.dim()).sketch_rows(2 * bits))?;
    let mut batches = vectors.batches();
    while let Some(batch) = batches.next()? {
        batch.feed(&mut sketcher)?;
    }
    let hasher = sketcher.finish().hasher(bits)?;
    hasher.save(folder.path().join("model.frosh"))?;

    // Encode: codes go to a file as they are made.
    let codes_path = folder.path().join("codes.frosh");
    let mut writer = CodesWriter::create(&codes_path, &hasher, false, vectors.rows())?;
    let mut batches = vectors.batches();
    let mut first_row = Vec::new();
    while let Some(batch) = batches.next()? {
        let values = batch.values().to_f64();
        if first_row.is_empty() {
            first_row = values[..vectors.dim()].to_vec();
        }
        writer.push(&hasher.encode(Rows::new(&values, vectors.dim())?)?)?;
    }
    let rows = writer.finish()?;

    // Search: the nearest codes to the first vector. The vector itself comes first.
    let codes = frosh::Codes::load(&codes_path)?;
    let query = hasher.queries(Rows::new(&first_row, vectors.dim())?)?;
    println!("{rows} vectors, {} bytes each. Nearest to row 0:", codes.stored_bytes_per_row());
    for hit in &codes.nearest(&query, 5)?[0] {
        println!("  row {:6}  distance {:.3}", hit.id, hit.distance);
    }
    Ok(())
}
