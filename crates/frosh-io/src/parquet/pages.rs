//! Refuses pages that claim to be far larger than they are: the crate allocates what a page's header claims,
//! up to 2 GB, before it decompresses a byte.
//!
//! A page begins with a header, a Thrift structure whose second field is the decompressed size of the page
//! and whose third is its size in the file. The crate reads only headers through [`ChunkReader::get_read`],
//! so that the check is made there; it reads the pages themselves through [`ChunkReader::get_bytes`].

use super::thrift::{END, INT, STRUCT, Thrift};
use crate::decompress::largest_claim;
use ::parquet::errors::{ParquetError, Result};
use ::parquet::file::reader::{ChunkReader, Length};
use bytes::Bytes;
use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};

/// Bytes that are read at first: enough for headers without long statistics.
const SHORT: u64 = 256;
/// The longest header that is read.
const LONGEST: u64 = 1 << 14;

/// A file whose page headers are checked before the crate parses them.
pub(super) struct CheckedFile(pub(super) File);

impl Length for CheckedFile {
    fn len(&self) -> u64 {
        self.0.len()
    }
}

impl ChunkReader for CheckedFile {
    type T = Header;

    fn get_read(&self, start: u64) -> Result<Header> {
        Ok(Header { file: self.0.try_clone()?, start, bytes: None })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.len()) {
            return Err(ParquetError::EOF("a page reaches beyond the end of the file".into()));
        }
        self.0.get_bytes(start, length)
    }
}

/// A reader for the header of a page, which is checked by the first read.
pub(super) struct Header {
    file: File,
    start: u64,
    bytes: Option<Cursor<Vec<u8>>>,
}

impl Read for Header {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if let Some(bytes) = &mut self.bytes {
            return bytes.read(to);
        }
        let header = read_header(&self.file, self.start)?;
        let damaged = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let (values, stored) = sizes(&mut Thrift { bytes: &header })
            .ok_or_else(|| damaged("a page's header cannot be read".into()))?;
        let most = largest_claim(u64::try_from(stored).unwrap_or(0));
        if u64::try_from(values).is_ok_and(|values| values > most) {
            let why = format!("a page of {stored} bytes claims to hold {values} bytes of values");
            return Err(damaged(why));
        }
        self.bytes.insert(Cursor::new(header)).read(to)
    }
}

/// The bytes from the start of a page's header on, enough to parse it.
pub(super) fn read_header(mut file: &File, start: u64) -> io::Result<Vec<u8>> {
    let mut header = Vec::new();
    // Nearly all headers are short. Of a long one the rest is read too.
    for most in [SHORT, LONGEST] {
        file.seek(SeekFrom::Start(start + header.len() as u64))?;
        file.take(most - header.len() as u64).read_to_end(&mut header)?;
        if (header.len() as u64) < most || (Thrift { bytes: &header }).skip(STRUCT, 0).is_some() {
            break;
        }
    }
    Ok(header)
}

/// Decompressed size of a page and its size in the file. If a field is repeated, the largest of the first and
/// the smallest of the second.
fn sizes(header: &mut Thrift<'_>) -> Option<(i64, i64)> {
    let (mut last, mut values, mut stored) = (0, 0, i64::MAX);
    loop {
        match header.field(&mut last)? {
            (_, END) => return Some((values, stored)),
            (2, INT) => values = values.max(header.signed()?),
            (3, INT) => stored = stored.min(header.signed()?),
            (2 | 3, _) => return None,
            (_, kind) => header.skip(kind, 0)?,
        }
    }
}
