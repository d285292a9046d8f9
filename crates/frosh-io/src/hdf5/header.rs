//! The superblock, with which a file begins, and object headers: lists of messages that describe groups and
//! data sets.

use super::bytes::{Cursor, Input, UNDEFINED, damaged, unsupported};
use crate::error::Fault;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

pub(super) const SIGNATURE: &[u8; 8] = b"\x89HDF\r\n\x1a\n";

// The types of messages that are parsed here.
pub(super) const DATASPACE: u16 = 0x01;
pub(super) const LINK_INFO: u16 = 0x02;
pub(super) const DATATYPE: u16 = 0x03;
pub(super) const LINK: u16 = 0x06;
pub(super) const EXTERNAL: u16 = 0x07;
pub(super) const LAYOUT: u16 = 0x08;
pub(super) const FILTERS: u16 = 0x0b;
const CONTINUATION: u16 = 0x10;
pub(super) const SYMBOLS: u16 = 0x11;

/// Flag: the message is stored elsewhere.
const SHARED: u8 = 2;

/// Most blocks of one object header; real files have a handful.
const MAX_BLOCKS: usize = 4096;

/// One message of an object header.
pub(super) struct Message {
    pub(super) kind: u16,
    flags: u8,
    pub(super) body: Vec<u8>,
}

/// Parses the superblock. Returns the file and the address of the root group's header.
pub(super) fn open(mut file: File) -> Result<(Input, u64), Fault> {
    let len = file.metadata()?.len();
    // It is at the start, or behind a user block of 512, 1,024, 2,048, ... bytes.
    let mut base = 0;
    loop {
        let mut head = [0; 8];
        if len.saturating_sub(base) < 8 {
            let why =
                "is not an HDF5 file: no HDF5 signature was found; check the path and the format";
            return Err(why.into());
        }
        file.seek(SeekFrom::Start(base))?;
        file.read_exact(&mut head)?;
        if &head == SIGNATURE {
            break;
        }
        base = if base == 0 { 512 } else { base.saturating_mul(2) };
    }
    let mut input = Input::new(file, base)?;
    let what = "the superblock";
    let version = input.block(8, 1, what)?[0];
    let (sizes, end, root) = match version {
        0 | 1 => {
            // Version 1 has four more bytes before the addresses.
            let extra = 4 * usize::from(version);
            let block = input.block(0, 80 + extra as u64, what)?;
            let mut at = Cursor::new(&block, what);
            at.skip(13)?;
            let sizes = at.take(2)?.to_vec();
            at.skip(9 + extra + 16)?;
            let end = at.u64()?;
            at.skip(16)?;
            (sizes, end, at.u64()?)
        }
        2 | 3 => {
            let sizes = input.block(9, 2, what)?;
            // With other sizes, which are refused below, the checksum is elsewhere.
            let block =
                if sizes == [8, 8] { input.checked_block(0, 48, what)? } else { vec![0; 44] };
            let mut at = Cursor::new(&block, what);
            at.skip(28)?;
            (sizes, at.u64()?, at.u64()?)
        }
        _ => return Err(unsupported(format!("version {version} of the file format"))),
    };
    if sizes != [8, 8] {
        let found = format!("addresses of {} bytes and lengths of {}", sizes[0], sizes[1]);
        return Err(unsupported(format!("{found} instead of 8")));
    }
    // In some files the stored end counts from the superblock, in others from the start of the file.
    let len = input.len();
    if end.saturating_sub(base) > len {
        return Err(Fault::file(format!(
            "is cut short: its HDF5 superblock says {end} bytes, the file has {}; copy it again",
            len + base
        )));
    }
    Ok((input, root))
}

/// Parses the messages of the object header at an address.
pub(super) fn messages(input: &mut Input, at: u64) -> Result<Vec<Message>, Fault> {
    let what = "an object header";
    if at == UNDEFINED {
        return Err(damaged(what, "it has no address"));
    }
    let start = input.block(at, 5, what)?;
    if start.starts_with(b"OHDR") { messages_v2(input, at) } else { messages_v1(input, at) }
}

/// Version 1: blocks without checksums.
fn messages_v1(input: &mut Input, at: u64) -> Result<Vec<Message>, Fault> {
    let what = "an object header";
    let prefix = input.block(at, 16, what)?;
    if prefix[0] != 1 {
        return Err(damaged(what, &format!("its version is {}, expected 1 or 2", prefix[0])));
    }
    let size = Cursor::new(&prefix[8..], what).u32()?;
    let mut found = Vec::new();
    let mut blocks = vec![(at + 16, u64::from(size))];
    let mut next = 0;
    while let Some(&(at, len)) = blocks.get(next) {
        let block = input.block(at, len, what)?;
        let mut cursor = Cursor::new(&block, what);
        while cursor.left() >= 8 {
            let (kind, size, flags) = (cursor.u16()?, cursor.u16()?, cursor.u8()?);
            cursor.skip(3)?;
            add_message(kind, flags, cursor.take(size.into())?, &mut found, &mut blocks)?;
        }
        next += 1;
    }
    Ok(found)
}

/// Version 2: blocks begin with a signature and end with a checksum.
fn messages_v2(input: &mut Input, at: u64) -> Result<Vec<Message>, Fault> {
    let what = "an object header";
    let prefix = input.block(at, 6, what)?;
    let (version, flags) = (prefix[4], prefix[5]);
    if version != 2 {
        return Err(damaged(what, &format!("its version is {version}, expected 1 or 2")));
    }
    // Optional: time stamps and limits for attributes, which are not used here.
    let skipped = 6 + 16 * u64::from(flags >> 5 & 1) + 4 * u64::from(flags >> 4 & 1);
    let size_bytes = 1 << (flags & 3);
    let size = input.block(at.saturating_add(skipped), size_bytes, what)?;
    let size = Cursor::new(&size, what).uint(size_bytes as usize)?;
    let before = (skipped + size_bytes) as usize;
    let len = size.saturating_add(before as u64 + 4);

    let mut found = Vec::new();
    let mut blocks = vec![(at, len)];
    let mut next = 0;
    while let Some(&(at, len)) = blocks.get(next) {
        let block = input.checked_block(at, len, what)?;
        let mut cursor = Cursor::new(&block, what);
        if next == 0 {
            cursor.skip(before)?;
        } else {
            cursor.signature(b"OCHK")?;
        }
        // Size of a message's header. Fewer bytes at the end of a block are unused.
        let header_len = 4 + 2 * usize::from(flags >> 2 & 1);
        while cursor.left() >= header_len {
            let (kind, size, message_flags) = (cursor.u8()?, cursor.u16()?, cursor.u8()?);
            cursor.skip(header_len - 4)?;
            add_message(
                kind.into(),
                message_flags,
                cursor.take(size.into())?,
                &mut found,
                &mut blocks,
            )?;
        }
        next += 1;
    }
    Ok(found)
}

/// Adds a message to `found` if its type is parsed here; a continuation adds a block.
fn add_message(
    kind: u16,
    flags: u8,
    body: &[u8],
    found: &mut Vec<Message>,
    blocks: &mut Vec<(u64, u64)>,
) -> Result<(), Fault> {
    match kind {
        CONTINUATION => {
            let mut cursor = Cursor::new(body, "the continuation of an object header");
            blocks.push((cursor.u64()?, cursor.u64()?));
            if blocks.len() > MAX_BLOCKS {
                return Err(damaged("an object header", "it has too many continuations"));
            }
        }
        DATASPACE | LINK_INFO | DATATYPE | LINK | EXTERNAL | LAYOUT | FILTERS | SYMBOLS => {
            found.push(Message { kind, flags, body: body.to_vec() });
        }
        _ => {}
    }
    Ok(())
}

/// The content of the first message of this type, if there is one.
pub(super) fn find(messages: &[Message], kind: u16) -> Result<Option<&[u8]>, Fault> {
    match messages.iter().find(|message| message.kind == kind) {
        Some(message) if message.flags & SHARED != 0 => {
            Err(unsupported("a named data type or another shared message"))
        }
        Some(message) => Ok(Some(&message.body)),
        None => Ok(None),
    }
}
