//! Groups, the folders in a file: symbol tables in older files, link messages in newer ones.

use super::bytes::{Cursor, Input, UNDEFINED, damaged, unsupported};
use super::header::{self, Message};
use crate::error::Fault;

/// Longest name, in bytes.
const MAX_NAME: usize = 1024;

/// The names in a group and the addresses of their object headers, in order of the names. Soft and external
/// links are left out.
pub(super) fn members(
    input: &mut Input,
    messages: &[Message],
) -> Result<Vec<(String, u64)>, Fault> {
    let mut found = Vec::new();
    if let Some(body) = header::find(messages, header::SYMBOLS)? {
        symbols(input, body, &mut found)?;
    }
    if let Some(body) = header::find(messages, header::LINK_INFO)? {
        let mut cursor = Cursor::new(body, "a group's link info");
        cursor.skip(1)?;
        let flags = cursor.u8()?;
        cursor.skip(if flags & 1 != 0 { 8 } else { 0 })?;
        if cursor.u64()? != UNDEFINED {
            return Err(unsupported("a group with many members (dense links)"));
        }
    }
    for message in messages.iter().filter(|message| message.kind == header::LINK) {
        found.extend(link(&message.body)?);
    }
    found.sort();
    Ok(found)
}

/// Whether these are the messages of a group.
pub(super) fn is_group(messages: &[Message]) -> bool {
    use header::{LINK, LINK_INFO, SYMBOLS};
    messages.iter().any(|message| matches!(message.kind, SYMBOLS | LINK_INFO | LINK))
}

/// Parses a link message; `None` for soft and external links.
fn link(body: &[u8]) -> Result<Option<(String, u64)>, Fault> {
    let mut cursor = Cursor::new(body, "a link");
    cursor.skip(1)?;
    let flags = cursor.u8()?;
    let kind = if flags & 8 != 0 { cursor.u8()? } else { 0 };
    // Optional: creation order and character set.
    cursor.skip(if flags & 4 != 0 { 8 } else { 0 })?;
    cursor.skip(if flags & 16 != 0 { 1 } else { 0 })?;
    let len = cursor.uint(1 << (flags & 3))?;
    let name = cursor.take(usize::try_from(len).unwrap_or(usize::MAX))?;
    if kind != 0 {
        return Ok(None);
    }
    Ok(Some((text(name)?, cursor.u64()?)))
}

/// Parses a name. Its length is limited because names of a damaged file may overlap and take much memory.
fn text(name: &[u8]) -> Result<String, Fault> {
    if name.len() > MAX_NAME {
        return Err(damaged("a group", "a name is longer than 1,024 bytes"));
    }
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// Parses a symbol table: a B-tree of nodes with entries, and a heap with the names.
fn symbols(input: &mut Input, body: &[u8], found: &mut Vec<(String, u64)>) -> Result<(), Fault> {
    let mut cursor = Cursor::new(body, "a symbol table");
    let (tree, heap) = (cursor.u64()?, cursor.u64()?);

    let what = "the heap of a group's names";
    let head = input.block(heap, 32, what)?;
    let mut cursor = Cursor::new(&head, what);
    cursor.signature(b"HEAP")?;
    cursor.skip(4)?;
    let len = cursor.u64()?;
    cursor.skip(8)?;
    let names = input.block(cursor.u64()?, len, what)?;

    let mut nodes = Vec::new();
    btree_leaves(input, tree, 0, 8, |_, child| {
        nodes.push(child);
        Ok(())
    })?;
    let what = "a node of a symbol table";
    for at in nodes {
        let head = input.block(at, 8, what)?;
        let mut cursor = Cursor::new(&head, what);
        cursor.signature(b"SNOD")?;
        cursor.skip(2)?;
        let count = cursor.u16()?;
        let entries = input.block(at.saturating_add(8), 40 * u64::from(count), what)?;
        let mut cursor = Cursor::new(&entries, what);
        for _ in 0..count {
            let (name, object, cached) = (cursor.u64()?, cursor.u64()?, cursor.u32()?);
            cursor.skip(20)?;
            let name = usize::try_from(name).ok().and_then(|from| names.get(from..));
            let name = name.ok_or_else(|| damaged(what, "a name is outside of the heap"))?;
            let name = text(name.split(|&byte| byte == 0).next().unwrap_or_default())?;
            // 2 marks a soft link.
            if cached != 2 {
                found.push((name, object));
            }
        }
    }
    Ok(())
}

/// Walks a B-tree of version 1. Calls `visit` with the key and the address of each entry of its leaves. `kind`
/// is 0 for groups, 1 for chunks.
pub(super) fn btree_leaves(
    input: &mut Input,
    root: u64,
    kind: u8,
    key: usize,
    mut visit: impl FnMut(&[u8], u64) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let what = "a B-tree";
    // Addresses of nodes, and their expected level; the root may have any level.
    let mut nodes = vec![(root, None)];
    while let Some((at, expected)) = nodes.pop() {
        let head = input.block(at, 24, what)?;
        let mut cursor = Cursor::new(&head, what);
        cursor.signature(b"TREE")?;
        let (found, level, count) = (cursor.u8()?, cursor.u8()?, cursor.u16()?);
        if found != kind || expected.is_some_and(|expected| level != expected) {
            return Err(damaged(what, "a node is of the wrong kind or level"));
        }
        let entries =
            input.block(at.saturating_add(24), u64::from(count) * (key as u64 + 8), what)?;
        for entry in entries.chunks_exact(key + 8) {
            let child = Cursor::new(&entry[key..], what).u64()?;
            match level.checked_sub(1) {
                None => visit(&entry[..key], child)?,
                Some(below) => nodes.push((child, Some(below))),
            }
        }
    }
    Ok(())
}
