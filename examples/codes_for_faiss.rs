//! Codes for FAISS: a plain .npy array of packed bytes, which `faiss.IndexBinaryFlat` takes as it is.
//!
//! ```text
//! cargo run --release --example codes_for_faiss -- vectors.npy codes.npy
//! ```
//!
//! Bit k of a code is bit k mod 8 of its byte k / 8, as in FAISS and in `numpy.packbits(bitorder="little")`. usearch,
//! pgvector and NumPy's default have the most significant bit first: reverse the bits of each byte for them.

use frosh::{Config, Rows, Sketcher};
use frosh_io::{Format, Kind, Options, Output, Target, Values, Vectors};

mod common;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let mut args = std::env::args().skip(1);
    let vectors_path = match args.next() {
        Some(path) => path.into(),
        None => common::make_vectors(&folder.path().join("vectors.npy"), 20_000)?,
    };
    let codes_path = args.next().map_or_else(|| folder.path().join("codes.npy"), Into::into);

    let vectors = Vectors::open(&[&vectors_path], &Options::default())?;
    let bits = 64.min(vectors.dim() / 8 * 8);
    let mut sketcher = Sketcher::new(Config::new(vectors.dim()).sketch_rows(2 * bits))?;
    let mut batches = vectors.batches();
    while let Some(batch) = batches.next()? {
        batch.feed(&mut sketcher)?;
    }
    let hasher = sketcher.finish().hasher(bits)?;

    let target = Target {
        format: Format::Npy,
        kind: Kind::U8,
        dim: bits / 8,
        rows: vectors.rows(),
        name: None,
    };
    let mut output = Output::create(&codes_path, &target)?;
    let mut batches = vectors.batches();
    while let Some(batch) = batches.next()? {
        let values = batch.values().to_f64();
        let codes = hasher.encode(Rows::new(&values, vectors.dim())?)?;
        output.write_values(&Values::U8(codes.as_bytes().to_vec()), bits / 8)?;
    }
    output.finish()?;
    println!(
        "In Python:
  import faiss, numpy as np
  codes = np.load({codes_path:?})
  index = faiss.IndexBinaryFlat({bits})
  index.add(codes)
  distances, ids = index.search(codes[:5], 10)"
    );
    Ok(())
}
