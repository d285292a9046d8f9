//! Learn from a stream that does not end: a fresh model every so often, and a checkpoint to continue from.
//!
//! ```text
//! cargo run --release --example endless_stream
//! ```
//!
//! A `Sketcher` can give a sketch at any moment without changing what it does next. Its file holds its whole state, so a
//! process that is stopped continues where it was, bit for bit. Memory stays the same however long the stream is.

use frosh::{Config, Rows, Sketcher};

mod common;
use common::{DIM, vectors};

/// Rows between two models.
const REFRESH_EVERY: u64 = 10_000;

fn main() -> frosh::Result<()> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (model, checkpoint) = (folder.path().join("model"), folder.path().join("checkpoint"));

    let mut sketcher = Sketcher::new(Config::new(DIM).sketch_rows(128))?;
    for batch_number in 0..30 {
        // In practice: read a message queue or a socket. Batches may have any size.
        let batch = vectors(1_000, batch_number);
        sketcher.push(Rows::new(&batch, DIM)?)?;

        if sketcher.rows().is_multiple_of(REFRESH_EVERY) {
            let hasher = sketcher.sketch().hasher(64)?;
            // Saving replaces the old file atomically: readers see the old model or the new one.
            hasher.save(&model)?;
            sketcher.save(&checkpoint)?;
            println!("{:6} rows: model {}", sketcher.rows(), hasher.id());
        }
        if batch_number == 24 {
            // As if the process had been killed: the rows since the checkpoint are pushed again.
            sketcher = Sketcher::load(&checkpoint)?;
            let lost = vectors(1_000, 20);
            sketcher.push(Rows::new(&lost, DIM)?)?;
            for missed in 21..=24 {
                sketcher.push(Rows::new(&vectors(1_000, missed), DIM)?)?;
            }
            println!("{:6} rows: continued from the checkpoint", sketcher.rows());
        }
    }
    println!("state: {} bytes", sketcher.bytes());
    Ok(())
}
