//! Checksums of an array, and which of its blocks are verified.
//!
//! Each block of an array is verified once, when it is first read. A search scans codes, factors and ids, so these arrays
//! are verified as a whole. Of vectors, only the blocks of the rows that are read are verified. The block checksums of
//! arrays with more than one block are in a file (`000001.checksums.npy`). Older versions wrote no block checksums; their
//! arrays count as one block, whose checksum is in `index.json`.
//!
//! **Cost.** One read of the data, which the caller is about to read anyway, and xxh3, which is as fast as memory. Later
//! reads cost one load for an array, or for the blocks of a row.

use super::column;
use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::storage::mapped::Bytes;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of a block: one page, so that verifying a few vectors costs little more than reading them. The checksums take
/// 1/512 of the space.
pub(super) const BLOCK: usize = 1 << 12;
/// Error text for a file whose checksum is wrong.
pub(super) const DAMAGED: &str =
    "its checksum does not fit its content: it is damaged; build the index again";
/// Blocks that one task verifies.
const BLOCKS_PER_TASK: usize = 256;

/// Number of blocks of an array.
pub(super) fn blocks(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK as u64)
}

/// The checksums of an array, and a record of the verified blocks.
pub(super) struct Seal {
    path: PathBuf,
    sums: Sums,
    /// One bit for each verified block.
    verified: Box<[AtomicU64]>,
    /// Whether all blocks are verified.
    all_verified: AtomicBool,
}

enum Sums {
    /// The checksum of the whole array, from `index.json`.
    Whole(String),
    /// The checksums of the blocks, as little-endian numbers.
    Blocks(Bytes),
}

impl Seal {
    /// For an array with one checksum.
    pub(super) fn whole(path: PathBuf, sum: String) -> Self {
        Self::new(path, Sums::Whole(sum), 1)
    }

    /// For an array with block checksums.
    pub(super) fn blocks(path: PathBuf, sums: Bytes) -> Self {
        let blocks = sums.len() / 8;
        Self::new(path, Sums::Blocks(sums), blocks)
    }

    fn new(path: PathBuf, sums: Sums, blocks: usize) -> Self {
        let verified = (0..blocks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { path, sums, verified, all_verified: AtomicBool::new(false) }
    }

    pub(super) fn damaged(&self) -> Error {
        Error::File { path: Some(self.path.clone()), why: DAMAGED.into() }
    }

    /// An error of the array for another reason than its checksum.
    pub(super) fn fault(&self, why: &str) -> Error {
        let why = format!("{why}: it is damaged; build the index again");
        Error::File { path: Some(self.path.clone()), why }
    }

    #[cfg(test)]
    pub(super) fn was_verified(&self) -> bool {
        self.all_verified.load(Ordering::Acquire)
    }

    /// Number of blocks.
    fn count(&self) -> usize {
        match &self.sums {
            Sums::Whole(_) => 1,
            Sums::Blocks(sums) => sums.len() / 8,
        }
    }

    /// Whether the checksum of a block is right.
    fn is_intact(&self, array: &[u8], block: usize) -> bool {
        match &self.sums {
            Sums::Whole(sum) => column::checksum(array) == *sum,
            Sums::Blocks(sums) => {
                let from = block * BLOCK;
                let bytes = &array[from..array.len().min(from + BLOCK)];
                xxh3_64(bytes).to_le_bytes() == sums[8 * block..8 * block + 8]
            }
        }
    }

    /// Verifies the blocks that contain these bytes of the array, unless they are verified already.
    pub(super) fn verify(&self, array: &[u8], bytes: Range<usize>) -> Result<()> {
        if self.all_verified.load(Ordering::Acquire) || bytes.is_empty() {
            return Ok(());
        }
        let range = match &self.sums {
            Sums::Whole(_) => 0..1,
            Sums::Blocks(_) => bytes.start / BLOCK..bytes.end.div_ceil(BLOCK),
        };
        for block in range {
            let (word, bit) = (&self.verified[block / 64], 1u64 << (block % 64));
            if word.load(Ordering::Relaxed) & bit == 0 {
                if !self.is_intact(array, block) {
                    return Err(self.damaged());
                }
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

/// Verifies whole arrays on the threads of a pool, unless they are verified already.
pub(super) fn verify_all(pool: &Pool, arrays: &[(&Seal, &Bytes)]) -> Result<()> {
    let mut tasks = Vec::new();
    for (number, (seal, _)) in arrays.iter().enumerate() {
        if !seal.all_verified.load(Ordering::Acquire) {
            let count = seal.count();
            let task = |from| (number, from..count.min(from + BLOCKS_PER_TASK));
            tasks.extend((0..count).step_by(BLOCKS_PER_TASK).map(task));
        }
    }
    if tasks.is_empty() {
        return Ok(());
    }
    let damaged: Vec<AtomicBool> = arrays.iter().map(|_| AtomicBool::new(false)).collect();
    pool.each(tasks, |(number, range): (usize, Range<usize>)| {
        let (seal, array) = &arrays[number];
        if !range.into_iter().all(|block| seal.is_intact(array, block)) {
            damaged[number].store(true, Ordering::Relaxed);
        }
    });
    for ((seal, _), damaged) in arrays.iter().zip(&damaged) {
        if damaged.load(Ordering::Relaxed) {
            return Err(seal.damaged());
        }
    }
    arrays.iter().for_each(|(seal, _)| seal.all_verified.store(true, Ordering::Release));
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
    fn changed_bytes_are_found_in_their_block_and_verified_blocks_are_not_read_again() {
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
            // Exactly the blocks that were read count as verified.
            sums.verify(&array, block..end).unwrap();
            sums.verify(&changed, 0..array.len()).unwrap();
            let whole = Seal::whole("array.npy".into(), column::checksum(&array));
            assert!(whole.verify(&changed, 3..4).is_err());
            assert!(verify_all(&pool, &[(&whole, &changed.clone().into())]).is_err());
            whole.verify(&array, 3..4).unwrap();
        }
    }
}
