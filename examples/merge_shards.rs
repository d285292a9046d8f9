//! Vectors on several machines: each learns from its own shard, and only sketches travel (DFROSH).
//!
//! ```text
//! cargo run --release --example merge_shards
//! ```
//!
//! A sketch has l rows and a sample, whatever the size of its shard. Sketches merge in any order and in any tree, and the
//! inputs stay as they are. Each worker has a number of its own, so that their random choices are independent.

use frosh::{Config, Rows, Sketch, Sketcher};

mod common;
use common::{DIM, vectors};

fn main() -> frosh::Result<()> {
    let config = Config::new(DIM).sketch_rows(128).seed(7);

    // On each machine:
    let mut received = Vec::new();
    for worker in 0..4u64 {
        let shard = vectors(5_000 + 1_000 * worker as usize, worker as u32);
        let mut sketcher = Sketcher::new(config.clone().worker(worker))?;
        sketcher.push(Rows::new(&shard, DIM)?)?;
        // These bytes are all that a machine sends.
        received.push(sketcher.finish().to_bytes());
    }

    // On the machine that collects them:
    let sketches: Vec<Sketch> =
        received.iter().map(|bytes| Sketch::from_bytes(bytes)).collect::<frosh::Result<_>>()?;
    let merged = Sketch::merge(&sketches)?;
    let hasher = merged.hasher(64)?;
    println!(
        "{} rows from workers {:?}; {} bytes received from each",
        merged.rows(),
        merged.workers(),
        received[0].len()
    );

    // The model goes back to the machines, which encode their shards. The codes of all shards are comparable.
    let codes = hasher.encode(Rows::new(&vectors(5_000, 0), DIM)?)?;
    println!("model {} gives {} codes of {} bits", hasher.id(), codes.len(), codes.bits());
    Ok(())
}
