//! Refuses pages that claim to become far larger than they are: the crate makes room for what a page's header claims,
//! up to 2 GB, before it unpacks a byte.
//!
//! A page begins with a header, a Thrift structure whose second field is the size of the page's values and whose third
//! is their size in the file. The crate asks for readers where it expects headers, and elsewhere too; but only headers does
//! it read through them.

use super::thrift::{END, INT, Thrift};
use ::parquet::errors::{ParquetError, Result};
use ::parquet::file::reader::{ChunkReader, Length};
use bytes::Bytes;
use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};

/// The longest header that is read.
const LONGEST: u64 = 1 << 14;
/// Values of a page, in bytes, that are believed of any page. Writers make pages of about a megabyte.
const BELIEVED: i64 = 1 << 28;
/// How many times its size in the file a larger page may have.
const RATIO: i64 = 64;

/// A file whose pages are looked at before the crate sees them.
pub(super) struct Pages(pub(super) File);

impl Length for Pages {
    fn len(&self) -> u64 {
        self.0.len()
    }
}

impl ChunkReader for Pages {
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

/// The header of a page, looked at when it is first read.
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
        self.file.seek(SeekFrom::Start(self.start))?;
        let mut header = Vec::new();
        (&self.file).take(LONGEST).read_to_end(&mut header)?;
        let damaged = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let (values, stored) = sizes(&mut Thrift { bytes: &header })
            .ok_or_else(|| damaged("a page's header cannot be read".into()))?;
        if values > BELIEVED.max(stored.saturating_mul(RATIO)) {
            let why = format!("a page of {stored} bytes claims to hold {values} bytes of values");
            return Err(damaged(why));
        }
        self.bytes.insert(Cursor::new(header)).read(to)
    }
}

/// The size of a page's values and that in the file: the largest and the smallest that the header claims.
fn sizes(header: &mut Thrift<'_>) -> Option<(i64, i64)> {
    let (mut last, mut values, mut stored) = (0, 0, i64::MAX);
    loop {
        match header.field(&mut last)? {
            (_, END) => return Some((values, stored)),
            (2, INT) => values = values.max(header.signed()?),
            (3, INT) => stored = stored.min(header.signed()?),
            (2 | 3, _) => return None,
            (_, kind) => header.pass(kind, 0)?,
        }
    }
}
