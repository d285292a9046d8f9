//! Writes one contiguous data set: headers of a fixed size, then the rows.
//!
//! The headers are zeros until the end, so that an unfinished file is not taken for an HDF5 file.

use super::bytes::{UNDEFINED, checksum};
use super::header::{DATASPACE, DATATYPE, LAYOUT, LINK, LINK_INFO, SIGNATURE};
use crate::batch::{Kind, Values};
use crate::error::Fault;
use crate::source::{MAX_DIM, Sink};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};

/// Size of a superblock of version 2.
const SUPERBLOCK: usize = 48;

/// Alignment of the first row, for programs that map the file into memory.
const ALIGN: usize = 64;

/// Longest path of the data set, in bytes.
const MAX_NAME: usize = 4096;

// Types of messages that only the writer uses.
const FILL: u16 = 0x05;
const GROUP_INFO: u16 = 0x0a;

struct Hdf5Sink {
    file: File,
    kind: Kind,
    dim: usize,
    /// The names of the groups and of the data set.
    path: Vec<String>,
    /// Bytes of rows so far.
    written: u64,
}

/// Writes a data set with this path to an empty file; slashes separate groups.
pub(crate) fn sink(
    file: File,
    kind: Kind,
    dim: usize,
    dataset: &str,
) -> Result<impl Sink + use<>, Fault> {
    let path: Vec<String> =
        dataset.split('/').filter(|name| !name.is_empty()).map(String::from).collect();
    if path.is_empty()
        || dataset.len() > MAX_NAME
        || dataset.contains('\0')
        || path.iter().any(|name| name == ".")
    {
        return Err(Fault::file(format!(
            "a data set cannot be called `{}`; choose a name such as `train`",
            dataset.escape_debug()
        )));
    }
    if !(1..=MAX_DIM).contains(&dim) {
        return Err(Fault::file(format!("rows have {dim} values, expected 1 to {MAX_DIM}")));
    }
    let mut sink = Hdf5Sink { file, kind, dim, path, written: 0 };
    let room = vec![0; sink.headers().len()];
    sink.file.write_all(&room)?;
    Ok(sink)
}

impl Sink for Hdf5Sink {
    fn write(&mut self, values: &Values) -> Result<(), Fault> {
        let bytes = values.bytes();
        self.file.write_all(bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Fault> {
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&self.headers())?;
        self.file.seek(SeekFrom::End(0))?;
        Ok(self.file.flush()?)
    }
}

impl Hdf5Sink {
    /// All bytes before the rows; their number does not depend on the number of rows.
    fn headers(&self) -> Vec<u8> {
        // Groups first, each with one link to the next object, which follows it.
        let mut objects = Vec::new();
        for name in &self.path {
            let at = SUPERBLOCK + objects.len();
            // The link's own size does not depend on the address in it.
            let len = group(name, 0).len();
            objects.extend(group(name, at + len));
        }
        let len = SUPERBLOCK + objects.len() + self.dataset(0).len();
        let start = len.next_multiple_of(ALIGN);
        objects.extend(self.dataset(start as u64));
        objects.resize(start - SUPERBLOCK, 0);

        let mut all = SIGNATURE.to_vec();
        // Version, sizes of addresses and lengths, no flags.
        all.extend([2, 8, 8, 0]);
        let end = start as u64 + self.written;
        for address in [0, UNDEFINED, end, SUPERBLOCK as u64] {
            all.extend(address.to_le_bytes());
        }
        all.extend(checksum(&all).to_le_bytes());
        all.extend(objects);
        all
    }

    /// The object header of the data set.
    fn dataset(&self, start: u64) -> Vec<u8> {
        let row_bytes = (self.dim * self.kind.bytes()) as u64;
        let rows = self.written / row_bytes;
        // Version 2, two dimensions that cannot grow, an ordinary shape.
        let mut space = vec![2, 2, 0, 1];
        space.extend(rows.to_le_bytes());
        space.extend((self.dim as u64).to_le_bytes());
        // Version 3, contiguous.
        let mut layout = vec![3, 1];
        layout.extend(if self.written == 0 { UNDEFINED } else { start }.to_le_bytes());
        layout.extend(self.written.to_le_bytes());
        object(&[
            (DATASPACE, &space),
            (DATATYPE, &datatype(self.kind)),
            // Version 3: the default fill value, space is allocated when it is written.
            (FILL, &[3, 0x0a]),
            (LAYOUT, &layout),
        ])
    }
}

/// The object header of a group with one member.
fn group(name: &str, member: usize) -> Vec<u8> {
    // Version 0, no flags, and neither a heap nor a tree for links.
    let mut info = vec![0, 0];
    info.extend([0xff; 16]);
    // Version 1; the name is UTF-8 (second byte: bit 4) and its length has 2 bytes (bits 0 and 1).
    let mut link = vec![1, 0x11, 1];
    link.extend((name.len() as u16).to_le_bytes());
    link.extend(name.as_bytes());
    link.extend((member as u64).to_le_bytes());
    object(&[(LINK_INFO, &info), (GROUP_INFO, &[0, 0]), (LINK, &link)])
}

/// An object header of version 2 with these messages.
fn object(messages: &[(u16, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (kind, content) in messages {
        body.push(*kind as u8);
        body.extend((content.len() as u16).to_le_bytes());
        body.push(0);
        body.extend(*content);
    }
    // Version 2; the size has 4 bytes.
    let mut all = b"OHDR\x02\x02".to_vec();
    all.extend((body.len() as u32).to_le_bytes());
    all.extend(body);
    all.extend(checksum(&all).to_le_bytes());
    all
}

/// The message for an element type, in this machine's byte order, in which the rows are written.
fn datatype(kind: Kind) -> Vec<u8> {
    let big = u8::from(cfg!(target_endian = "big"));
    let bits = 8 * kind.bytes() as u8;
    // Version 1 and class (0 integer, 1 float), three bytes of flags, size, first bit, number of bits.
    // A float's flags say that the mantissa has a hidden 1, and where the sign is.
    let (class, flags, float): (u8, [u8; 2], &[u8]) = match kind {
        Kind::U8 => (0, [0, 0], &[]),
        Kind::I8 => (0, [8, 0], &[]),
        // Position and size of the exponent, position and size of the mantissa, bias.
        Kind::F16 => (1, [0x20 | big, bits - 1], &[10, 5, 0, 10, 15, 0, 0, 0]),
        Kind::F32 => (1, [0x20 | big, bits - 1], &[23, 8, 0, 23, 127, 0, 0, 0]),
        Kind::F64 => (1, [0x20 | big, bits - 1], &[52, 11, 0, 52, 0xff, 3, 0, 0]),
    };
    let mut message = vec![0x10 | class, flags[0], flags[1], 0];
    message.extend((kind.bytes() as u32).to_le_bytes());
    message.extend([0, 0, bits, 0]);
    message.extend(float);
    message
}
