//! Bytes in memory or in a memory-mapped file, with one interface.
//!
//! **Why.** Codes of an index folder are searched in mapped files: opening takes no time, and pages that no query
//! needs are never read. All `unsafe` code of the mapping is here.
//!
//! **Few mappings.** A Linux process can have 65,530 mappings, and an index has several files for each of its
//! parts. So small files are read into memory, and so are all files once there are [`MAX_MAPPINGS`] mappings.
//!
//! **Cost.** None: both are slices. Clones of mapped bytes share the mapping.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Files of at most this many bytes are read, not mapped.
const MAX_READ_BYTES: u64 = 1 << 14;
/// Largest number of mappings: half of the Linux limit, which leaves enough for the rest of the process.
const MAX_MAPPINGS: usize = 1 << 15;
/// Current number of mappings.
static MAPPED: AtomicUsize = AtomicUsize::new(0);

/// Bytes, owned or mapped.
#[derive(Clone)]
pub(crate) enum Bytes {
    Owned(Vec<u8>),
    Mapped(Arc<Mapping>, Range<usize>),
}

/// A mapping. [`MAPPED`] counts it until it is dropped.
pub(crate) struct Mapping(memmap2::Mmap);

impl Drop for Mapping {
    fn drop(&mut self) {
        MAPPED.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Bytes {
    /// Maps a file without its first `from` bytes, or reads it if it is small or there are too many mappings. The file
    /// must not change while it is mapped.
    pub(crate) fn map(file: &File, from: usize) -> io::Result<Self> {
        Self::map_at_most(file, from, MAX_MAPPINGS)
    }

    fn map_at_most(mut file: &File, from: usize, most: usize) -> io::Result<Self> {
        let length = file.metadata()?.len();
        if length <= MAX_READ_BYTES.max(from as u64) || MAPPED.load(Ordering::Relaxed) >= most {
            // One allocation of the exact size.
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
        // SAFETY: files of an index are written once, and are only opened after they are complete. They may be
        // removed, but are never changed or truncated; a removed file stays mapped. If another program truncates a
        // file, the process receives a signal, as with any mapped file.
        let map = unsafe { memmap2::Mmap::map(file)? };
        MAPPED.fetch_add(1, Ordering::Relaxed);
        let range = from.min(map.len())..map.len();
        Ok(Bytes::Mapped(Arc::new(Mapping(map)), range))
    }

    /// A part of the bytes: of the same mapping, or a copy.
    pub(crate) fn slice(&self, part: Range<usize>) -> Self {
        match self {
            Bytes::Owned(bytes) => Bytes::Owned(bytes[part].to_vec()),
            Bytes::Mapped(map, range) => {
                assert!(part.start <= part.end && part.end <= range.len(), "out of bounds");
                Bytes::Mapped(map.clone(), range.start + part.start..range.start + part.end)
            }
        }
    }

    /// The bytes as a vector that can be changed. Mapped bytes are copied first.
    pub(crate) fn to_mut(&mut self) -> &mut Vec<u8> {
        if let Bytes::Mapped(..) = self {
            *self = Bytes::Owned(self.to_vec());
        }
        match self {
            Bytes::Owned(bytes) => bytes,
            Bytes::Mapped(..) => unreachable!("converted to Owned above"),
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
        // With the largest number of mappings reached, the same bytes are read.
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
