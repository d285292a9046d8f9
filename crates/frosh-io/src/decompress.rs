//! gzip and Zstandard streams, known by their first bytes. Several members or frames in a row are one
//! stream, as their command-line tools have it.

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result};

/// How a compressed file is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    Gzip,
    Zstandard,
}

impl Packing {
    /// The packing of a file that begins so.
    pub(crate) fn detect(head: &[u8]) -> Option<Self> {
        match head {
            [0x1f, 0x8b, ..] => Some(Packing::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Packing::Zstandard),
            // A skippable frame, which may come first.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Packing::Zstandard),
            _ => None,
        }
    }

    /// The unpacked stream.
    pub(crate) fn unpack(self, packed: impl Read + Send + 'static) -> Box<dyn Read + Send> {
        let packed = BufReader::with_capacity(1 << 17, packed);
        match self {
            Packing::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(packed)),
            Packing::Zstandard => Box::new(Frames { packed, frame: FrameDecoder::new() }),
        }
    }
}

/// Zstandard frames, one after the other.
struct Frames<R> {
    packed: BufReader<R>,
    frame: FrameDecoder,
}

impl<R: Read> Frames<R> {
    /// Begins the next frame; false when there is none.
    fn next_frame(&mut self) -> Result<bool> {
        loop {
            if self.packed.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.frame.reset(&mut self.packed) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut skipped = (&mut self.packed).take(length.into());
                    std::io::copy(&mut skipped, &mut std::io::sink())?;
                }
                Err(e) => return Err(damaged(e)),
            }
        }
    }

    /// Whether the frame that just ended is what was packed.
    fn check(&self) -> Result<()> {
        match (self.frame.get_checksum_from_data(), self.frame.get_calculated_checksum()) {
            (Some(stored), Some(found)) if stored != found => Err(Error::new(
                ErrorKind::InvalidData,
                "the Zstandard checksum does not fit: damaged",
            )),
            _ => Ok(()),
        }
    }
}

fn damaged(e: FrameDecoderError) -> Error {
    Error::new(ErrorKind::InvalidData, format!("cut short or damaged as a Zstandard file ({e})"))
}

impl<R: Read> Read for Frames<R> {
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
                .decode_blocks(&mut self.packed, BlockDecodingStrategy::UptoBlocks(1))
                .map_err(damaged)?;
        }
    }
}
