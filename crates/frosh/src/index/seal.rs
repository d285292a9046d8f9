//! Checksums of an array, and how much of it was compared with them.
//!
//! An array is compared block by block, each block once, when something first reads it: codes, factors and ids as
//! a whole, since a search scans them; of vectors only the blocks that hold the rows asked for. Arrays of more
//! than one block have the blocks' checksums in a file of their own (`000001.checksums.npy`). An array without
//! them, as older versions wrote it, is one block with the checksum that `index.json` has.
//!
//! **Cost.** Reading what is about to be read anyway, and xxh3, which is as fast as memory; after that one load
//! for an array, or for a row's blocks.

use super::column;
use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::storage::mapped::Bytes;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a block: a page, so that a few rows of vectors do not cost much more than reading them does. Checksums
/// take a 500th of the space.
pub(super) const BLOCK: usize = 1 << 12;
/// What is said of a file that does not fit its checksum.
pub(super) const DAMAGED: &str =
    "its checksum does not fit its content: it is damaged; build the index again";
/// Blocks that a thread takes at a time.
const SHARE: usize = 256;

/// How many blocks an array of so many bytes has.
pub(super) fn blocks(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK as u64)
}

/// The checksums of an array.
pub(super) struct Seal {
    path: PathBuf,
    sums: Sums,
    /// A bit for each block that was compared.
    seen: Box<[AtomicU64]>,
    /// Whether all were.
    all: AtomicBool,
}

enum Sums {
    /// Of the whole array, as `index.json` has it.
    Whole(String),
    /// Of each block, as little-endian numbers.
    Blocks(Bytes),
}

impl Seal {
    /// An array with one checksum.
    pub(super) fn whole(path: PathBuf, sum: String) -> Self {
        Self::new(path, Sums::Whole(sum), 1)
    }

    /// An array whose blocks have these checksums.
    pub(super) fn blocks(path: PathBuf, sums: Bytes) -> Self {
        let blocks = sums.len() / 8;
        Self::new(path, Sums::Blocks(sums), blocks)
    }

    fn new(path: PathBuf, sums: Sums, blocks: usize) -> Self {
        let seen = (0..blocks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { path, sums, seen, all: AtomicBool::new(false) }
    }

    pub(super) fn damaged(&self) -> Error {
        Error::File { path: Some(self.path.clone()), why: DAMAGED.into() }
    }

    #[cfg(test)]
    pub(super) fn was_verified(&self) -> bool {
        self.all.load(Ordering::Acquire)
    }

    /// How many blocks an array has here.
    fn count(&self) -> usize {
        match &self.sums {
            Sums::Whole(_) => 1,
            Sums::Blocks(sums) => sums.len() / 8,
        }
    }

    /// Whether a block is as it was written.
    fn fits(&self, array: &[u8], block: usize) -> bool {
        match &self.sums {
            Sums::Whole(sum) => column::checksum(array) == *sum,
            Sums::Blocks(sums) => {
                let from = block * BLOCK;
                let bytes = &array[from..array.len().min(from + BLOCK)];
                xxh3_64(bytes).to_le_bytes() == sums[8 * block..8 * block + 8]
            }
        }
    }

    /// Compares the blocks with these bytes of the array, unless they were compared before.
    pub(super) fn verify(&self, array: &[u8], bytes: Range<usize>) -> Result<()> {
        if self.all.load(Ordering::Acquire) || bytes.is_empty() {
            return Ok(());
        }
        let range = match &self.sums {
            Sums::Whole(_) => 0..1,
            Sums::Blocks(_) => bytes.start / BLOCK..bytes.end.div_ceil(BLOCK),
        };
        for block in range {
            let (word, bit) = (&self.seen[block / 64], 1u64 << (block % 64));
            if word.load(Ordering::Relaxed) & bit == 0 {
                if !self.fits(array, block) {
                    return Err(self.damaged());
                }
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

/// Compares all of these arrays, unless they were compared before, on the threads of a pool.
pub(super) fn verify_all(pool: &Pool, arrays: &[(&Seal, &Bytes)]) -> Result<()> {
    let mut jobs = Vec::new();
    for (number, (seal, _)) in arrays.iter().enumerate() {
        if !seal.all.load(Ordering::Acquire) {
            let count = seal.count();
            let share = |from| (number, from..count.min(from + SHARE));
            jobs.extend((0..count).step_by(SHARE).map(share));
        }
    }
    if jobs.is_empty() {
        return Ok(());
    }
    let damaged: Vec<AtomicBool> = arrays.iter().map(|_| AtomicBool::new(false)).collect();
    pool.each(jobs, |(number, range): (usize, Range<usize>)| {
        let (seal, array) = &arrays[number];
        if !range.into_iter().all(|block| seal.fits(array, block)) {
            damaged[number].store(true, Ordering::Relaxed);
        }
    });
    for ((seal, _), damaged) in arrays.iter().zip(&damaged) {
        if damaged.load(Ordering::Relaxed) {
            return Err(seal.damaged());
        }
    }
    arrays.iter().for_each(|(seal, _)| seal.all.store(true, Ordering::Release));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seal(array: &[u8]) -> Seal {
        let sums = array.chunks(BLOCK).flat_map(|block| xxh3_64(block).to_le_bytes());
        Seal::blocks("array.npy".into(), sums.collect::<Vec<u8>>().into())
    }

    #[test]
    fn any_changed_byte_is_found_where_it_is_and_once_seen_blocks_are_not_read_again() {
        let array: Vec<u8> = (0..BLOCK * 200 + 77).map(|i| (i * 7 % 253) as u8).collect();
        let pool = Pool::new(2).unwrap();
        verify_all(&pool, &[(&seal(&array), &array.clone().into())]).unwrap();
        for at in [0, BLOCK - 1, BLOCK, 150 * BLOCK + 5, array.len() - 1] {
            let mut changed = array.clone();
            changed[at] ^= 4;
            let sums = seal(&array);
            assert!(verify_all(&pool, &[(&sums, &changed.clone().into())]).is_err());
            let block = at / BLOCK * BLOCK;
            let end = array.len().min(block + BLOCK);
            assert!(sums.verify(&changed, at..at + 1).is_err());
            assert!(sums.verify(&changed, block.saturating_sub(1)..end).is_err());
            sums.verify(&changed, 0..block).unwrap();
            sums.verify(&changed, end..array.len()).unwrap();
            // The same blocks, and they alone, count as seen.
            sums.verify(&array, block..end).unwrap();
            sums.verify(&changed, 0..array.len()).unwrap();
            let whole = Seal::whole("array.npy".into(), column::checksum(&array));
            assert!(whole.verify(&changed, 3..4).is_err());
            assert!(verify_all(&pool, &[(&whole, &changed.clone().into())]).is_err());
            whole.verify(&array, 3..4).unwrap();
        }
    }
}
