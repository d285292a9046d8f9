//! Reads blocks of an HDF5 file, numbers in a block, and the checksum of a block.

use crate::error::Fault;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

/// The undefined address: nothing is stored. As a size it means no limit.
pub(super) const UNDEFINED: u64 = u64::MAX;

/// The largest metadata block that is read: names of a group, or addresses of chunks.
const LARGEST: u64 = 1 << 26;

/// The file; addresses count from its superblock.
pub(super) struct Input {
    file: File,
    base: u64,
    len: u64,
    /// Bytes of metadata that may still be read: a few times the file, as some blocks are read more than once.
    /// Without a limit, a damaged file with circular references would be read without end.
    budget: u64,
}

impl Input {
    /// The file from `base` on, which is the position of its superblock.
    pub(super) fn new(file: File, base: u64) -> Result<Self, Fault> {
        let len = file.metadata()?.len().saturating_sub(base);
        Ok(Self { file, base, len, budget: len.saturating_mul(4).saturating_add(1 << 16) })
    }

    /// Bytes from the superblock to the end of the file.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Whether these bytes are within the file.
    pub(super) fn has(&self, at: u64, len: u64) -> bool {
        at.checked_add(len).is_some_and(|end| end <= self.len)
    }

    /// Reads a metadata block; `what` is its name for messages.
    pub(super) fn block(&mut self, at: u64, len: u64, what: &str) -> Result<Vec<u8>, Fault> {
        if !self.has(at, len) {
            return Err(damaged(what, "it is beyond the end of the file"));
        }
        // A sparse file may be long without taking space on the disk.
        if len > LARGEST {
            return Err(damaged(
                what,
                &format!("it has {len} bytes, and at most {LARGEST} are read"),
            ));
        }
        self.budget = self
            .budget
            .checked_sub(len)
            .ok_or_else(|| damaged(what, "the parts of the file refer to each other in circles"))?;
        let mut block = vec![0; len as usize];
        self.fill(at, &mut block)?;
        Ok(block)
    }

    /// Reads a metadata block that ends with a checksum; verifies the checksum and removes it.
    pub(super) fn checked_block(
        &mut self,
        at: u64,
        len: u64,
        what: &str,
    ) -> Result<Vec<u8>, Fault> {
        let mut block = self.block(at, len, what)?;
        let sum = block.split_off(block.len().saturating_sub(4));
        if sum != checksum(&block).to_le_bytes() {
            return Err(damaged(what, "its checksum does not match its content"));
        }
        Ok(block)
    }

    /// Reads data.
    pub(super) fn fill(&mut self, at: u64, out: &mut [u8]) -> Result<(), Fault> {
        self.file.seek(SeekFrom::Start(self.base.saturating_add(at)))?;
        Ok(self.file.read_exact(out)?)
    }
}

/// The fault of a file that breaks the format's rules.
pub(super) fn damaged(what: &str, why: &str) -> Fault {
    Fault::file(format!("the HDF5 file is damaged or cut short, in {what}: {why}; make it again"))
}

/// The fault of a file that uses an unsupported feature of the format.
pub(super) fn unsupported(what: impl std::fmt::Display) -> Fault {
    Fault::file(format!(
        "the HDF5 file uses {what}, which is not supported; rewrite it with h5repack or h5py"
    ))
}

/// Parses little-endian numbers from a block, one after the other.
pub(super) struct Cursor<'a> {
    left: &'a [u8],
    what: &'static str,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(block: &'a [u8], what: &'static str) -> Self {
        Self { left: block, what }
    }

    /// Number of bytes that are left.
    pub(super) fn left(&self) -> usize {
        self.left.len()
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], Fault> {
        match self.left.split_at_checked(len) {
            Some((head, tail)) => {
                self.left = tail;
                Ok(head)
            }
            None => Err(damaged(self.what, "it ends too early")),
        }
    }

    pub(super) fn skip(&mut self, len: usize) -> Result<(), Fault> {
        self.take(len).map(|_| ())
    }

    /// A number of `len` bytes, at most 8.
    pub(super) fn uint(&mut self, len: usize) -> Result<u64, Fault> {
        let bytes = self.take(len)?;
        Ok(bytes.iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte)))
    }

    pub(super) fn u8(&mut self) -> Result<u8, Fault> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn u16(&mut self) -> Result<u16, Fault> {
        self.uint(2).map(|n| n as u16)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Fault> {
        self.uint(4).map(|n| n as u32)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Fault> {
        self.uint(8)
    }

    /// Checks the four letters that a structure begins with.
    pub(super) fn signature(&mut self, expected: &[u8; 4]) -> Result<(), Fault> {
        if self.take(4)? != expected {
            let why = format!("it does not begin with {}", expected.escape_ascii());
            return Err(damaged(self.what, &why));
        }
        Ok(())
    }
}

/// The checksum of HDF5 metadata: Bob Jenkins' hash `lookup3`.
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    let start = 0xdead_beef_u32.wrapping_add(bytes.len() as u32);
    let [mut a, mut b, mut c] = [start; 3];
    let mut groups = bytes.chunks(12).peekable();
    while let Some(group) = groups.next() {
        let mut padded = [0; 12];
        padded[..group.len()].copy_from_slice(group);
        let word = |i: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| padded[4 * i + byte]));
        a = a.wrapping_add(word(0));
        b = b.wrapping_add(word(1));
        c = c.wrapping_add(word(2));
        if groups.peek().is_some() {
            // lookup3's `mix`, written as six steps that rotate the names of the three words.
            for turn in [4, 6, 8, 16, 19, 4] {
                a = a.wrapping_sub(c) ^ c.rotate_left(turn);
                c = c.wrapping_add(b);
                [a, b, c] = [b, c, a];
            }
        } else {
            // lookup3's `final`, in the same way.
            for turn in [14, 11, 25, 16, 4, 14, 24] {
                c = (c ^ b).wrapping_sub(b.rotate_left(turn));
                [a, b, c] = [b, c, a];
            }
            // After seven rotations the word that was changed last is in `b`.
            c = b;
        }
    }
    c
}
