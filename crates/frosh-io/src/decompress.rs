//! Decompression of gzip and Zstandard files, which are known by their first bytes. Several members or
//! frames in a row are one stream, as for the command-line tools.

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result};

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    Gzip,
    Zstandard,
}

impl Compression {
    /// The compression of a file that begins with these bytes.
    pub(crate) fn detect(head: &[u8]) -> Option<Self> {
        match head {
            [0x1f, 0x8b, ..] => Some(Compression::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Compression::Zstandard),
            // A skippable frame may come first.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Compression::Zstandard),
            _ => None,
        }
    }

    /// The decompressed stream.
    pub(crate) fn decompress(self, compressed: impl Read + Send + 'static) -> Box<dyn Read + Send> {
        let compressed = BufReader::with_capacity(1 << 17, compressed);
        match self {
            Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(compressed)),
            Compression::Zstandard => {
                Box::new(ZstdFrames { compressed, frame: FrameDecoder::new() })
            }
        }
    }
}

/// Zstandard frames, one after the other.
struct ZstdFrames<R> {
    compressed: BufReader<R>,
    frame: FrameDecoder,
}

impl<R: Read> ZstdFrames<R> {
    /// Begins the next frame; false at the end.
    fn next_frame(&mut self) -> Result<bool> {
        loop {
            if self.compressed.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.frame.reset(&mut self.compressed) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut skipped = (&mut self.compressed).take(length.into());
                    std::io::copy(&mut skipped, &mut std::io::sink())?;
                }
                Err(e) => return Err(damaged(e)),
            }
        }
    }

    /// Verifies the checksum of the frame that has just ended.
    fn check(&self) -> Result<()> {
        match (self.frame.get_checksum_from_data(), self.frame.get_calculated_checksum()) {
            (Some(stored), Some(found)) if stored != found => Err(Error::new(
                ErrorKind::InvalidData,
                "the Zstandard checksum does not match: damaged",
            )),
            _ => Ok(()),
        }
    }
}

fn damaged(e: FrameDecoderError) -> Error {
    Error::new(ErrorKind::InvalidData, format!("cut short or damaged as a Zstandard file ({e})"))
}

impl<R: Read> Read for ZstdFrames<R> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        loop {
            if self.frame.can_collect() > 0 {
                return self.frame.read(buf);
            }
            if self.frame.is_finished() {
                if self.frame.blocks_decoded() > 0 {
                    self.check()?;
                }
                if !self.next_frame()? {
                    return Ok(0);
                }
            }
            self.frame
                .decode_blocks(&mut self.compressed, BlockDecodingStrategy::UptoBlocks(1))
                .map_err(damaged)?;
        }
    }
}
