//! Decompression of gzip and Zstandard. Whole files are known by their first bytes; Parquet pages and Arrow
//! buffers are given to [`unzstd`]. Several members or frames in a row are one stream, as for the
//! command-line tools.

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, DEFAULT_MAX_WINDOW_SIZE, FrameDecoder};
use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result};

/// Compressed data inside a file may claim this decompressed size in any case. Writers make pages of about a
/// megabyte.
const ACCEPTED: u64 = 1 << 28;
/// The largest compression ratio of larger data.
const RATIO: u64 = 64;

/// The largest decompressed size that `stored` bytes inside a file may claim. Decompressors may need that
/// much memory.
pub(crate) fn largest_claim(stored: u64) -> u64 {
    ACCEPTED.max(stored.saturating_mul(RATIO))
}

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
        let compressed = BufReader::with_capacity(BUFFER, compressed);
        match self {
            Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(compressed)),
            Compression::Zstandard => {
                Box::new(ZstdFrames::new(compressed, DEFAULT_MAX_WINDOW_SIZE))
            }
        }
    }
}

/// The most memory for the decompressed data of several columns at once, in a file of this length.
pub(crate) fn largest_total(file: u64) -> u64 {
    2 * largest_claim(file)
}

/// Decompresses `stored` bytes of Zstandard frames inside a file, which claim `claimed` bytes. A frame that was
/// compressed in one call has its whole content as its window, so that the limit of whole files would be too small.
pub(crate) fn unzstd<R: Read + Send>(
    compressed: R,
    stored: u64,
    claimed: u64,
) -> impl Read + Send + use<R> {
    let capacity = stored.clamp(1, BUFFER as u64) as usize;
    // Encoders that do not know the length have windows of up to 8 MiB.
    let max_window = largest_claim(stored).min(claimed.max(8 << 20));
    ZstdFrames::new(BufReader::with_capacity(capacity, compressed), max_window)
}

/// Compressed bytes that are read at once.
const BUFFER: usize = 1 << 17;

/// Zstandard frames, one after the other.
struct ZstdFrames<R> {
    compressed: BufReader<R>,
    frame: FrameDecoder,
    /// The largest window that is accepted. The decoder keeps so many bytes in memory.
    max_window: u64,
}

impl<R: Read> ZstdFrames<R> {
    fn new(compressed: BufReader<R>, max_window: u64) -> Self {
        Self { compressed, frame: FrameDecoder::new(), max_window }
    }

    /// Begins the next frame; false at the end.
    fn next_frame(&mut self) -> Result<bool> {
        loop {
            if self.compressed.fill_buf()?.is_empty() {
                return Ok(false);
            }
            // Not reset but made anew: a reset allocates the window that a frame claims, whereas the window of
            // a new decoder grows with what is decompressed.
            self.frame = FrameDecoder::new();
            self.frame.set_max_window_size(self.max_window);
            match self.frame.init(&mut self.compressed) {
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
    Error::new(ErrorKind::InvalidData, format!("Zstandard data is cut short or damaged ({e})"))
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

#[cfg(test)]
mod tests {
    use super::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    /// The header of a frame whose window is its whole content, which it claims to be this long.
    fn header(claim: u64) -> Vec<u8> {
        [&[0x28, 0xb5, 0x2f, 0xfd, 0xe0][..], &claim.to_le_bytes()].concat()
    }

    #[test]
    fn zstd_inside_files_is_decompressed_or_refused() {
        let plain: Vec<u8> = (0..300_000u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
        let packed = compress_to_vec(&plain[..], CompressionLevel::Fastest);
        let stored = packed.len() as u64;
        let mut got = Vec::new();
        unzstd(&packed[..], stored, u64::MAX).read_to_end(&mut got).unwrap();
        assert!(got == plain);
        for cut in [1, 4, 5, 8, packed.len() / 2, packed.len() - 1] {
            let read = unzstd(&packed[..cut], stored, u64::MAX).read_to_end(&mut Vec::new());
            assert_eq!(read.unwrap_err().kind(), ErrorKind::InvalidData, "cut to {cut}");
        }
        // No bytes are no frames.
        assert_eq!(unzstd(&[][..], 0, 0).read(&mut [0; 9]).unwrap(), 0);
    }

    #[test]
    fn a_window_that_is_too_large_is_refused() {
        let read = |claim, stored| {
            // One block that repeats a byte 100 times.
            let frame = [header(claim), vec![0x23, 0x03, 0, 7]].concat();
            unzstd(&frame[..], stored, claim).read_to_end(&mut Vec::new())
        };
        // A claim that is accepted takes no memory: only 100 bytes are there.
        assert_eq!(read(1 << 28, 20).unwrap(), 100);
        assert_eq!(read(1 << 36, 1 << 30).unwrap(), 100);
        for claim in [(1 << 28) + 1, 1 << 40, u64::MAX] {
            assert!(read(claim, 20).unwrap_err().to_string().contains("damaged"));
        }
    }
}
