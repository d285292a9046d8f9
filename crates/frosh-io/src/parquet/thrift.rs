//! Thrift's compact protocol: the part that is needed to check a file before the crate reads it.

/// The deepest nesting that is accepted. Real files have a handful of levels.
pub(super) const MAX_DEPTH: usize = 100;

/// Types of fields; [`END`] ends a structure.
pub(super) const END: u8 = 0;
pub(super) const INT: u8 = 5;
pub(super) const BYTES: u8 = 8;
pub(super) const LIST: u8 = 9;
pub(super) const STRUCT: u8 = 12;

/// Parses bytes in Thrift's compact protocol. All methods return `None` where the bytes break its rules.
pub(super) struct Thrift<'a> {
    pub(super) bytes: &'a [u8],
}

impl Thrift<'_> {
    /// The next field of a structure: its number and its type.
    pub(super) fn field(&mut self, last: &mut i16) -> Option<(i16, u8)> {
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
    pub(super) fn list(&mut self) -> Option<(u64, u8)> {
        let head = self.byte()?;
        let size = if head >> 4 == 15 { self.number()? } else { u64::from(head >> 4) };
        Some((size, head & 15))
    }

    /// Skips a value of this type.
    pub(super) fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        if depth > MAX_DEPTH {
            return None;
        }
        match kind {
            1 | 2 => {} // True and false have no bytes beyond the type.
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
                    // In a list, true and false take a byte each, so that every element takes at least one byte.
                    self.skip(if kind < 3 { 3 } else { kind }, depth + 1)?;
                }
            }
            STRUCT => {
                let mut last = 0;
                loop {
                    match self.field(&mut last)? {
                        (_, END) => break,
                        (_, kind) => self.skip(kind, depth + 1)?,
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

    fn number(&mut self) -> Option<u64> {
        varint(&mut self.bytes)
    }

    /// A signed number, zigzag-encoded: 0, -1, 1, -2 and so on.
    pub(super) fn signed(&mut self) -> Option<i64> {
        let zigzag = self.number()?;
        Some((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64))
    }
}

/// Takes a variable-length number from the front: seven bits in each byte, the lowest first.
pub(super) fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 127) << shift;
        if *byte < 128 {
            return Some(number);
        }
    }
    None
}
