//! Refuses Parquet files whose schema is nested so deeply that the crate, which follows it by recursion, would
//! run out of stack: that ends a program and cannot be caught.
//!
//! The metadata at the end of a file is a Thrift structure in the compact protocol. Its second field is the
//! schema: a list of elements, depth first, each of which says how many of the following ones are its
//! children. Only that list is looked at here.

use crate::columns::damaged;
use crate::error::Fault;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

/// The deepest nesting taken. Real schemas have a handful of levels.
const MAX_DEPTH: usize = 100;

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
    let mut footer = vec![0; footer_len as usize];
    file.seek(SeekFrom::Start(tail_at - footer_len))?;
    file.read_exact(&mut footer)?;
    match (Thrift { bytes: &footer }).schema_depth() {
        Some(depth) if depth <= MAX_DEPTH => Ok(()),
        Some(_) => Err(format!("has columns nested more than {MAX_DEPTH} deep").into()),
        None => Err(damaged("its schema cannot be read")),
    }
}

/// Types of fields; 0 ends a structure.
const END: u8 = 0;
const INT: u8 = 5;
const BYTES: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// Bytes in Thrift's compact protocol. All methods give `None` for what is not.
struct Thrift<'a> {
    bytes: &'a [u8],
}

impl Thrift<'_> {
    /// How deep the schema of a file's metadata is; too deep ones are not followed to their end.
    fn schema_depth(&mut self) -> Option<usize> {
        let (mut last, mut deepest) = (0, None);
        loop {
            match self.field(&mut last) {
                Some((2, LIST)) if deepest.is_none() => deepest = Some(self.elements()?),
                Some((2, _)) => return None, // Not a list, or a second schema.
                Some((_, kind)) if kind != END && self.pass(kind, 0).is_some() => {}
                // The end, or something odd: what is not the schema, the crate may judge.
                _ => return deepest,
            }
        }
    }

    /// How deep the elements of a schema go.
    fn elements(&mut self) -> Option<usize> {
        let (elements, kind) = self.list()?;
        if kind != STRUCT {
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

    /// The next field of a structure: its number and its type.
    fn field(&mut self, last: &mut i16) -> Option<(i16, u8)> {
        let head = self.byte()?;
        let kind = head & 15;
        if kind != END {
            *last = match head >> 4 {
                0 => self.signed()? as i16,
                step => last.checked_add(i16::from(step))?,
            };
        }
        Some((*last, kind))
    }

    /// How many elements a list has, and their type.
    fn list(&mut self) -> Option<(u64, u8)> {
        let head = self.byte()?;
        let size = if head >> 4 == 15 { self.number()? } else { u64::from(head >> 4) };
        Some((size, head & 15))
    }

    /// Passes over a value in a field.
    fn pass(&mut self, kind: u8, depth: usize) -> Option<()> {
        if depth > MAX_DEPTH {
            return None;
        }
        match kind {
            1 | 2 => {} // The type says true or false.
            3 => drop(self.byte()?),
            4..=6 => drop(self.number()?),
            7 => drop(self.take(8)?),
            BYTES => {
                let length = self.number()?;
                self.take(length)?;
            }
            LIST | 10 => {
                let (size, kind) = self.list()?;
                for _ in 0..size {
                    // Within a list, true and false take a byte: so every step takes one at least.
                    self.pass(if kind < 3 { 3 } else { kind }, depth + 1)?;
                }
            }
            STRUCT => {
                let mut last = 0;
                loop {
                    match self.field(&mut last)? {
                        (_, END) => break,
                        (_, kind) => self.pass(kind, depth + 1)?,
                    }
                }
            }
            _ => return None, // Parquet has no maps in its metadata.
        }
        Some(())
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    fn take(&mut self, length: u64) -> Option<()> {
        self.bytes = self.bytes.get(usize::try_from(length).ok()?..)?;
        Some(())
    }

    /// A number: seven bits in each byte, the lowest first.
    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Some(number);
            }
        }
        None
    }

    /// A signed number, which is folded: 0, -1, 1, -2 and so on.
    fn signed(&mut self) -> Option<i64> {
        let folded = self.number()?;
        Some((folded >> 1) as i64 ^ -((folded & 1) as i64))
    }
}
