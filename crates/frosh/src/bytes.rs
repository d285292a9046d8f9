//! Bytes that are in memory or in a mapped file, read alike.
//!
//! **Why.** Codes of an index folder are searched where they lie: opening takes no time, and pages that no query
//! touches are never read. All of the mapping's `unsafe` is here.
//!
//! **Cost.** None: a slice either way. Clones of mapped bytes share the mapping.

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Bytes, owned or mapped.
#[derive(Clone)]
pub(crate) enum Bytes {
    Owned(Vec<u8>),
    Mapped(Arc<memmap2::Mmap>, Range<usize>),
}

impl Bytes {
    /// Maps a file, which nobody may change from now on, without its first `from` bytes.
    pub(crate) fn map(file: &File, from: usize) -> io::Result<Self> {
        if file.metadata()?.len() <= from as u64 {
            // Nothing to map, and an empty mapping is an error on some systems.
            return Ok(Bytes::Owned(Vec::new()));
        }
        // SAFETY: files of an index are written once, under a name that is not referred to before they are
        // complete, and removed but never changed or shortened; a removed file stays mapped. Somebody who
        // shortens one by other means can stop the process with a signal, as with any mapped file.
        let map = unsafe { memmap2::Mmap::map(file)? };
        let range = from.min(map.len())..map.len();
        Ok(Bytes::Mapped(Arc::new(map), range))
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
            Bytes::Mapped(map, range) => &map[range.clone()],
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
        file.write_all(b"header, content").unwrap();
        let mapped = Bytes::map(&file, 8).unwrap();
        assert_eq!(&*mapped, b"content");
        let mut longer = mapped.clone();
        longer.to_mut().push(b'!');
        assert_eq!((&*mapped, &*longer), (&b"content"[..], &b"content!"[..]));
        assert!(Bytes::map(&file, 15).unwrap().is_empty());
        assert!(Bytes::map(&file, 99).unwrap().is_empty());
    }
}
