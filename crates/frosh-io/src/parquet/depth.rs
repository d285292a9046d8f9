//! Refuses Parquet files whose schema is nested so deeply that the crate, which follows it by recursion, would
//! run out of stack: that ends a program and cannot be caught. The same holds for memory, so metadata that are very long,
//! or claim very many entries, are refused too: the crate makes room for all entries before it reads the first.
//!
//! The metadata at the end of a file is a Thrift structure in the compact protocol. Its second field is the
//! schema: a list of elements, depth first, each of which says how many of the following ones are its
//! children. Only that list is looked at here.

use super::thrift::{BYTES, END, INT, LIST, MAX_DEPTH, STRUCT, Thrift};
use crate::columns::damaged;
use crate::error::Fault;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

/// The longest metadata that are read. Real ones have some hundred bytes for each column of each row group.
const LONGEST: u64 = 1 << 28;
/// The most entries of a list: elements of the schema, row groups.
const MOST: u64 = 1 << 20;

/// Faults if the schema is too deep, or cannot be followed.
pub(super) fn check(mut file: &File) -> Result<(), Fault> {
    let length = file.metadata()?.len();
    let mut tail = [0; 8];
    let Some(tail_at) = length.checked_sub(8) else {
        return Ok(()); // The crate will say what is wrong with it; the same below.
    };
    file.seek(SeekFrom::Start(tail_at))?;
    file.read_exact(&mut tail)?;
    let footer_len = u64::from(u32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]));
    if !tail.ends_with(b"PAR1") || footer_len > tail_at {
        return Ok(());
    }
    if footer_len > LONGEST {
        return Err(
            format!("has {footer_len} bytes of metadata, and at most {LONGEST} are read").into()
        );
    }
    let mut footer = vec![0; footer_len as usize];
    file.seek(SeekFrom::Start(tail_at - footer_len))?;
    file.read_exact(&mut footer)?;
    match (Thrift { bytes: &footer }).schema_depth() {
        Some(depth) if depth <= MAX_DEPTH => Ok(()),
        Some(_) => Err(format!("has columns nested more than {MAX_DEPTH} deep").into()),
        None => Err(damaged("its metadata cannot be read")),
    }
}

impl Thrift<'_> {
    /// How deep the schema of a file's metadata is; too deep ones are not followed to their end.
    fn schema_depth(&mut self) -> Option<usize> {
        let (mut last, mut deepest) = (0, None);
        loop {
            match self.field(&mut last) {
                Some((2, LIST)) if deepest.is_none() => deepest = Some(self.elements()?),
                Some((2, _)) => return None, // Not a list, or a second schema.
                Some((_, LIST)) => {
                    // Looked at twice: for its length, and to pass over it.
                    let (length, _) = Thrift { bytes: self.bytes }.list()?;
                    if length > MOST {
                        return None;
                    }
                    if self.pass(LIST, 0).is_none() {
                        return deepest;
                    }
                }
                Some((_, kind)) if kind != END && self.pass(kind, 0).is_some() => {}
                // The end, or something odd: what is not the schema, the crate may judge.
                _ => return deepest,
            }
        }
    }

    /// How deep the elements of a schema go.
    fn elements(&mut self) -> Option<usize> {
        let (elements, kind) = self.list()?;
        if kind != STRUCT || elements > MOST {
            return None;
        }
        // How many children are to come, on each level.
        let mut open: Vec<i32> = Vec::new();
        let mut deepest = 0;
        for _ in 0..elements {
            if let Some(children) = open.last_mut() {
                *children -= 1;
            }
            open.push(self.children()?);
            deepest = deepest.max(open.len());
            if deepest > MAX_DEPTH {
                break;
            }
            while open.last() == Some(&0) {
                open.pop();
            }
        }
        Some(deepest)
    }

    /// How many children an element of the schema has. The crate goes by the numbers of the fields and
    /// trusts their types, so a field of another type than it expects is refused.
    fn children(&mut self) -> Option<i32> {
        let (mut last, mut children) = (0, 0);
        loop {
            match self.field(&mut last)? {
                (_, END) => return Some(children),
                (5, INT) => children = i32::max(self.signed()? as i32, 0),
                (1..=3 | 5..=9, kind) if kind != INT => return None,
                (4, kind) if kind != BYTES => return None,
                (10, kind) if kind != STRUCT => return None,
                (_, kind) => self.pass(kind, 0)?,
            }
        }
    }
}
