//! Where the bytes of a file come from: the file itself, whose size is known, or a stream.

use crate::error::Fault;
use std::fs::File;
use std::io::{Cursor, Read, Seek, SeekFrom};

/// Bytes that are read from front to back.
pub(crate) enum ByteSource {
    /// A file, and the number of bytes that are left in it.
    File(File, u64),
    /// Standard input, a pipe, or a decompressor.
    Stream(Box<dyn Read + Send>, Ending),
}

/// What follows the last row of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Unknown: standard input may stay open, so that its end is not waited for.
    Open,
    /// A checksum of the decompressed bytes, which is verified when the stream is read to its end.
    Checksum,
}

impl ByteSource {
    /// The rest of a file, from its current position on.
    pub(crate) fn file(mut file: File) -> std::io::Result<Self> {
        let size = file.metadata()?.len();
        let at = file.stream_position()?;
        Ok(ByteSource::File(file, size.saturating_sub(at)))
    }

    /// Number of bytes that are left, where that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        match self {
            ByteSource::File(_, left) => Some(*left),
            ByteSource::Stream(..) => None,
        }
    }

    /// Makes the next read begin with `head`, which are the last bytes that were read.
    pub(crate) fn unread(self, head: Vec<u8>) -> std::io::Result<Self> {
        Ok(match self {
            ByteSource::File(mut file, left) => {
                // Only headers are unread: their length fits.
                file.seek_relative(-(head.len() as i64))?;
                ByteSource::File(file, left + head.len() as u64)
            }
            ByteSource::Stream(rest, ending) => {
                ByteSource::Stream(Box::new(Cursor::new(head).chain(rest)), ending)
            }
        })
    }

    /// Skips bytes; the end may come before.
    pub(crate) fn skip(&mut self, count: u64) -> Result<(), Fault> {
        match self {
            ByteSource::File(file, left) => {
                let count = count.min(*left);
                let step = i64::try_from(count).map_err(|_| "is larger than files can be")?;
                file.seek(SeekFrom::Current(step))?;
                *left -= count;
            }
            ByteSource::Stream(stream, _) => {
                std::io::copy(&mut stream.take(count), &mut std::io::sink())?;
            }
        }
        Ok(())
    }

    /// Called after the last row: reads a stream with a checksum to its end, so that it is verified.
    pub(crate) fn finish(&mut self) -> Result<(), Fault> {
        match self {
            ByteSource::Stream(_, Ending::Checksum) => self.skip(u64::MAX),
            _ => Ok(()),
        }
    }
}

impl Read for ByteSource {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        match self {
            ByteSource::File(file, left) => {
                let got = file.read(buf)?;
                *left = left.saturating_sub(got as u64);
                Ok(got)
            }
            ByteSource::Stream(stream, _) => stream.read(buf),
        }
    }
}
