//! An index on disk with ids of your own: add, search, filter, remove.
//!
//! ```text
//! cargo run --release --example index_with_ids
//! ```
//!
//! One process writes, many read. A reader keeps the state it opened. Vectors are stored in half precision here, so that a
//! search can put its candidates in exact order.

use frosh::{Config, IdSet, Index, IndexWriter, Rows, Search, Sketcher, StoredVectors};

mod common;
use common::{DIM, vectors};

fn main() -> frosh::Result<()> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("index");
    let values = vectors(10_000, 1);
    let rows = Rows::new(&values, DIM)?;

    let mut sketcher = Sketcher::new(Config::new(DIM).sketch_rows(128))?;
    sketcher.push(rows)?;
    let hasher = sketcher.finish().hasher(64)?;

    // Write. Nothing is visible before `commit`.
    let mut writer = IndexWriter::create(&path, &hasher, true, Some(StoredVectors::F16))?;
    let ids: Vec<u64> = (0..10_000).map(|row| 1_000_000 + 7 * row).collect();
    let mut new = writer.add();
    new.push_with_ids(rows, &ids)?;
    new.commit()?;
    writer.remove(&[1_000_000])?;

    // Read. The index maps its files: opening it is fast.
    let index = Index::open(&path)?;
    let query = rows.slice(0..1);
    println!("{} vectors, {} bytes each on disk", index.len(), index.bytes_per_row());
    for hit in &index.nearest(query, 3)?[0] {
        println!("  id {}  squared distance {:.3}", hit.id, hit.distance);
    }

    // Only some ids.
    let allowed: IdSet = ids.iter().copied().filter(|id| id % 2 == 0).collect();
    let hits = index.search(query, &Search::nearest(3).filter(&allowed))?;
    assert!(hits[0].iter().all(|hit| hit.id % 2 == 0));
    println!("even ids only: {:?}", hits[0].iter().map(|hit| hit.id).collect::<Vec<_>>());
    Ok(())
}
