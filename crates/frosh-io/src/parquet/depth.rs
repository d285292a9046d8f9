//! Refuses Parquet files whose schema is nested too deeply: the crate recurses into it, and a stack overflow
//! ends the program and cannot be caught. Very long metadata, or very many entries, are refused too: the
//! crate allocates memory for all entries before it reads the first.
//!
//! The metadata at the end of a file is a Thrift structure in the compact protocol. Its second field is the
//! schema: a list of elements in depth-first order, each with its number of children. Only that list is
//! parsed here.

use super::thrift::{BYTES, END, INT, LIST, MAX_DEPTH, STRUCT, Thrift};
use crate::columns::damaged;
use crate::error::Fault;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

/// The longest metadata that is read. Real files have some hundred bytes for each column of each row group.
const LONGEST: u64 = 1 << 28;
/// The most entries of a list: elements of the schema, row groups.
const MOST: u64 = 1 << 20;

/// Refuses a file whose schema is too deep or cannot be parsed.
pub(super) fn check(mut file: &File) -> Result<(), Fault> {
    let length = file.metadata()?.len();
    let mut tail = [0; 8];
    let Some(tail_at) = length.checked_sub(8) else {
        return Ok(()); // The crate will report what is wrong; the same below.
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
    /// Depth of the schema in a file's metadata; counting stops above [`MAX_DEPTH`].
    fn schema_depth(&mut self) -> Option<usize> {
        let (mut last, mut deepest) = (0, None);
        loop {
            match self.field(&mut last) {
                Some((2, LIST)) if deepest.is_none() => deepest = Some(self.elements()?),
                Some((2, _)) => return None, // Not a list, or a second schema.
                Some((_, LIST)) => {
                    // Parsed twice: for its length, and to skip it.
                    let (length, _) = Thrift { bytes: self.bytes }.list()?;
                    if length > MOST {
                        return None;
                    }
                    if self.skip(LIST, 0).is_none() {
                        return deepest;
                    }
                }
                Some((_, kind)) if kind != END && self.skip(kind, 0).is_some() => {}
                // The end, or a fault outside of the schema, which the crate will report.
                _ => return deepest,
            }
        }
    }

    /// Depth of the elements of a schema.
    fn elements(&mut self) -> Option<usize> {
        let (elements, kind) = self.list()?;
        if kind != STRUCT || elements > MOST {
            return None;
        }
        // On each level, the number of children that are still to come.
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

    /// Number of children of an element of the schema. The crate identifies fields by their numbers and does
    /// not check their types, so that a field of an unexpected type is refused.
    fn children(&mut self) -> Option<i32> {
        let (mut last, mut children) = (0, 0);
        loop {
            match self.field(&mut last)? {
                (_, END) => return Some(children),
                (5, INT) => children = i32::max(self.signed()? as i32, 0),
                (1..=3 | 5..=9, kind) if kind != INT => return None,
                (4, kind) if kind != BYTES => return None,
                (10, kind) if kind != STRUCT => return None,
                (_, kind) => self.skip(kind, 0)?,
            }
        }
    }
}
