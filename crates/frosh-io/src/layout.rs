//! How values are stored in binary files, and how they become the values of a batch.

use crate::batch::{Kind, Values};
use crate::error::Fault;
use half::bf16;
use std::borrow::Cow;
use std::io::{Read, Write};

/// Most bytes read at once. Memory grows with what a stream holds, which may be far less than its header says.
pub(crate) const STEP: usize = 16 << 20;

/// The element type of stored values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// One of the element types of batches.
    As(Kind),
    /// The upper half of an `f32`; widened to `f32`.
    Bf16,
    /// Widened to `f32`.
    I16,
    /// Widened to `f32`.
    U16,
    /// Widened to `f64`.
    I32,
    /// Widened to `f64`.
    U32,
}

impl Stored {
    /// Size of one stored value.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Stored::As(kind) => kind.bytes(),
            Stored::Bf16 | Stored::I16 | Stored::U16 => 2,
            Stored::I32 | Stored::U32 => 4,
        }
    }

    /// The element type that it has in a batch.
    pub(crate) fn kind(self) -> Kind {
        match self {
            Stored::As(kind) => kind,
            Stored::Bf16 | Stored::I16 | Stored::U16 => Kind::F32,
            Stored::I32 | Stored::U32 => Kind::F64,
        }
    }

    /// Whether values are copied as they are.
    pub(crate) fn is_kept(self) -> bool {
        matches!(self, Stored::As(_))
    }
}

/// Element type and byte order of stored values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) stored: Stored,
    pub(crate) big_endian: bool,
}

impl Layout {
    pub(crate) fn little_endian(stored: Stored) -> Self {
        Self { stored, big_endian: false }
    }

    /// Replaces `values` by the next `count` values of `reader`. `scratch` is used where they must be widened.
    pub(crate) fn read(
        self,
        reader: &mut impl Read,
        count: usize,
        values: &mut Values,
        scratch: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let size = self.stored.bytes();
        let steps =
            (0..count).step_by(STEP / size).map(|from| (from, count.min(from + STEP / size)));
        if self.stored.is_kept() {
            // Not cleared first: then only new values are set to zero, and mostly there are none.
            values.set_kind(self.stored.kind());
            values.resize(values.len().min(count));
            for (from, to) in steps {
                values.resize(values.len().max(to));
                reader.read_exact(&mut values.bytes_mut()[from * size..to * size])?;
            }
            self.to_native(values.bytes_mut());
        } else {
            values.clear(self.stored.kind());
            for (from, to) in steps {
                scratch.resize((to - from) * size, 0);
                reader.read_exact(scratch)?;
                self.to_native(scratch);
                self.append(scratch, values);
            }
        }
        Ok(())
    }

    /// Appends stored values, which are in this machine's byte order, to values of [`Stored::kind`].
    pub(crate) fn append(self, bytes: &[u8], values: &mut Values) {
        let two = bytes.as_chunks::<2>().0.iter();
        let four = bytes.as_chunks::<4>().0.iter();
        match (self.stored, values) {
            (Stored::Bf16, Values::F32(v)) => {
                v.extend(two.map(|b| f32::from(bf16::from_ne_bytes(*b))));
            }
            (Stored::I16, Values::F32(v)) => {
                v.extend(two.map(|b| f32::from(i16::from_ne_bytes(*b))));
            }
            (Stored::U16, Values::F32(v)) => {
                v.extend(two.map(|b| f32::from(u16::from_ne_bytes(*b))));
            }
            (Stored::I32, Values::F64(v)) => {
                v.extend(four.map(|b| f64::from(i32::from_ne_bytes(*b))));
            }
            (Stored::U32, Values::F64(v)) => {
                v.extend(four.map(|b| f64::from(u32::from_ne_bytes(*b))));
            }
            (stored, values) => {
                let before = values.len();
                values.resize(before + bytes.len() / stored.bytes());
                values.bytes_mut()[before * stored.bytes()..].copy_from_slice(bytes);
            }
        }
    }

    /// Swaps bytes if the stored byte order is not this machine's.
    pub(crate) fn to_native(self, bytes: &mut [u8]) {
        if self.big_endian != cfg!(target_endian = "big") {
            // Constant widths, so that the compiler vectorizes the loops.
            match self.stored.bytes() {
                2 => bytes.as_chunks_mut::<2>().0.iter_mut().for_each(|b| b.reverse()),
                4 => bytes.as_chunks_mut::<4>().0.iter_mut().for_each(|b| b.reverse()),
                8 => bytes.as_chunks_mut::<8>().0.iter_mut().for_each(|b| b.reverse()),
                _ => {}
            }
        }
    }
}

/// The bytes of values, little-endian.
pub(crate) fn little_endian(values: &Values) -> Cow<'_, [u8]> {
    let mut bytes = Cow::Borrowed(values.bytes());
    if cfg!(target_endian = "big") {
        // Swapping is its own inverse.
        Layout::little_endian(Stored::As(values.kind())).to_native(bytes.to_mut());
    }
    bytes
}

/// Writes values, little-endian.
pub(crate) fn write_values(writer: &mut impl Write, values: &Values) -> Result<(), Fault> {
    Ok(writer.write_all(&little_endian(values))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_widened_from_either_byte_order() {
        let read = |stored, big_endian, bytes: &[u8]| {
            let layout = Layout { stored, big_endian };
            let (mut values, mut scratch) = (Values::empty(Kind::U8), Vec::new());
            let count = bytes.len() / stored.bytes();
            layout.read(&mut &bytes[..], count, &mut values, &mut scratch).unwrap();
            values
        };
        let bytes = [1, 0, 0xFE, 0xFF];
        assert_eq!(read(Stored::I16, false, &bytes), Values::F32(vec![1.0, -2.0]));
        assert_eq!(read(Stored::U16, false, &bytes), Values::F32(vec![1.0, 65534.0]));
        assert_eq!(read(Stored::Bf16, false, &[0x80, 0x3F, 0, 0xC0]), Values::F32(vec![1.0, -2.0]));
        assert_eq!(read(Stored::I16, true, &bytes), Values::F32(vec![256.0, -257.0]));
        assert_eq!(read(Stored::I32, true, &[0xFF; 4]), Values::F64(vec![-1.0]));
        assert_eq!(read(Stored::U32, false, &[0xFF; 4]), Values::F64(vec![4_294_967_295.0]));
        let half = read(Stored::As(Kind::F16), true, &[0x3C, 0, 0xC0, 0]);
        assert_eq!(half.to_f64(), [1.0, -2.0]);
        assert_eq!(read(Stored::As(Kind::I8), true, &[255, 3]), Values::I8(vec![-1, 3]));
    }
}
