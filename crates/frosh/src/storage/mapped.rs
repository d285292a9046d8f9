//! Bytes that are in memory or in a mapped file, read alike.
//!
//! **Why.** Codes of an index folder are searched where they lie: opening takes no time, and pages that no query
//! touches are never read. All of the mapping's `unsafe` is here.
//!
//! **Few mappings.** A process may have 65,530 of them on Linux, and an index of many parts has several files for
//! each part. So files of a few pages are read instead, and so is any file once there are [`MOST`] mappings.
//!
//! **Cost.** None: a slice either way. Clones of mapped bytes share the mapping.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Files of at most so many bytes are read, not mapped.
const SMALL: u64 = 1 << 14;
/// Mappings at most: half of what Linux allows, so that the rest of the process has enough.
const MOST: usize = 1 << 15;
/// Mappings that there are.
static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// Bytes, owned or mapped.
#[derive(Clone)]
pub(crate) enum Bytes {
    Owned(Vec<u8>),
    Mapped(Arc<Mapping>, Range<usize>),
}

/// A mapping that is counted for as long as it is there.
pub(crate) struct Mapping(memmap2::Mmap);

impl Drop for Mapping {
    fn drop(&mut self) {
        MAPPED.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Bytes {
    /// Maps a file, which nobody may change from now on, without its first `from` bytes; or reads it, where that
    /// is better.
    pub(crate) fn map(file: &File, from: usize) -> io::Result<Self> {
        Self::map_at_most(file, from, MOST)
    }

    fn map_at_most(mut file: &File, from: usize, most: usize) -> io::Result<Self> {
        let length = file.metadata()?.len();
        if length <= SMALL.max(from as u64) || MAPPED.load(Ordering::Relaxed) >= most {
            // Reserved in one piece, and never more than the file has.
            let rest = length.saturating_sub(from as u64);
            let size = usize::try_from(rest).map_err(|_| io::ErrorKind::OutOfMemory)?;
            let mut bytes = Vec::new();
            bytes.try_reserve_exact(size).map_err(|_| io::ErrorKind::OutOfMemory)?;
            file.seek(SeekFrom::Start(from as u64))?;
            if file.take(rest).read_to_end(&mut bytes)? < size {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            return Ok(Bytes::Owned(bytes));
        }
        // SAFETY: files of an index are written once, under a name that is not referred to before they are
        // complete, and removed but never changed or shortened; a removed file stays mapped. Somebody who
        // shortens one by other means can stop the process with a signal, as with any mapped file.
        let map = unsafe { memmap2::Mmap::map(file)? };
        MAPPED.fetch_add(1, Ordering::Relaxed);
        let range = from.min(map.len())..map.len();
        Ok(Bytes::Mapped(Arc::new(Mapping(map)), range))
    }

    /// Some of the bytes: of the same mapping, or a copy.
    pub(crate) fn slice(&self, part: Range<usize>) -> Self {
        match self {
            Bytes::Owned(bytes) => Bytes::Owned(bytes[part].to_vec()),
            Bytes::Mapped(map, range) => {
                assert!(part.start <= part.end && part.end <= range.len(), "out of bounds");
                Bytes::Mapped(map.clone(), range.start + part.start..range.start + part.end)
            }
        }
    }

    /// The bytes to append to: a copy, if they were mapped.
    pub(crate) fn to_mut(&mut self) -> &mut Vec<u8> {
        if let Bytes::Mapped(..) = self {
            *self = Bytes::Owned(self.to_vec());
        }
        match self {
            Bytes::Owned(bytes) => bytes,
            Bytes::Mapped(..) => unreachable!("made owned above"),
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Owned(bytes) => bytes,
            Bytes::Mapped(map, range) => &map.0[range.clone()],
        }
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::Owned(bytes)
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Bytes {}

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn mapped_bytes_are_the_files_and_appending_copies_them() {
        let mut file = tempfile::tempfile().unwrap();
        assert!(Bytes::map(&file, 0).unwrap().is_empty());
        let content: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
        file.write_all(b"header, ").unwrap();
        file.write_all(&content).unwrap();
        let mapped = Bytes::map(&file, 8).unwrap();
        assert!(matches!(mapped, Bytes::Mapped(..)));
        assert_eq!(&*mapped, content);
        assert_eq!(&*mapped.slice(5..90_000).slice(1..9), &content[6..14]);
        let mut longer = mapped.clone();
        longer.to_mut().push(b'!');
        assert_eq!((&*mapped, &longer[..content.len()]), (&content[..], &content[..]));
        assert!(Bytes::map(&file, content.len() + 8).unwrap().is_empty());
        assert!(Bytes::map(&file, content.len() + 99).unwrap().is_empty());
        // With as many mappings as there may be, the same bytes are read.
        let read = Bytes::map_at_most(&file, 8, 0).unwrap();
        assert!(matches!(read, Bytes::Owned(_)) && read == mapped);
        assert_eq!(&*read.slice(5..90_000), &content[5..90_000]);
    }

    #[test]
    fn small_files_are_read() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"header, content").unwrap();
        let bytes = Bytes::map(&file, 8).unwrap();
        assert!(matches!(bytes, Bytes::Owned(_)));
        assert_eq!(&*bytes, b"content");
    }
}
