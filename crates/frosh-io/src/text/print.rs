//! Values printed as text, gathered in a buffer before they are written.

use super::BUFFER;
use crate::error::Fault;
use half::f16;
use std::io::Write;

/// Room that is kept free in the buffer: more than the longest printed value takes.
const RESERVE: usize = 64;

/// Collects text in a buffer and writes it in large pieces.
pub(crate) struct Printer<W> {
    writer: W,
    text: Vec<u8>,
    /// Rows that were given a name.
    named: usize,
}

impl<W: Write> Printer<W> {
    pub(super) fn new(writer: W) -> Self {
        Self { writer, text: Vec::with_capacity(BUFFER), named: 0 }
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.text.push(byte);
    }

    pub(crate) fn value(&mut self, value: impl Print) {
        value.print(&mut self.text);
    }

    pub(crate) fn index(&mut self, index: usize) {
        self.text.extend_from_slice(itoa::Buffer::new().format(index).as_bytes());
    }

    /// Prints a name for the next row: `row0`, `row1` and so on. It is not a number, so that the first row is
    /// not taken for a header.
    pub(crate) fn row_name(&mut self) {
        self.text.extend_from_slice(b"row");
        self.index(self.named);
        self.named += 1;
    }

    /// Writes the buffer if it is nearly full. Called after every value, so that the buffer never grows.
    pub(crate) fn flush_if_full(&mut self) -> Result<(), Fault> {
        if self.text.len() >= BUFFER - RESERVE {
            self.writer.write_all(&self.text)?;
            self.text.clear();
        }
        Ok(())
    }

    pub(super) fn finish(&mut self) -> Result<(), Fault> {
        self.writer.write_all(&self.text)?;
        self.text.clear();
        self.writer.flush()?;
        Ok(())
    }
}

/// Prints a value in the fewest digits that read back as the same value.
/// Values that are not finite are `NaN`, `inf` and `-inf`; the sign and payload of a NaN are lost.
pub(crate) trait Print: Copy {
    fn print(self, text: &mut Vec<u8>);

    /// Whether it is zero, of either sign.
    fn is_zero(self) -> bool;
}

macro_rules! print_float {
    ($t:ty, $v:ident => $wide:expr) => {
        impl Print for $t {
            fn print(self, text: &mut Vec<u8>) {
                let $v = self;
                let mut buffer = zmij::Buffer::new();
                let digits = buffer.format($wide).as_bytes();
                // Whole numbers need no fraction.
                text.extend_from_slice(digits.strip_suffix(b".0").unwrap_or(digits));
            }

            fn is_zero(self) -> bool {
                let $v = self;
                $wide == 0.0
            }
        }
    };
}

macro_rules! print_integer {
    ($t:ty) => {
        impl Print for $t {
            fn print(self, text: &mut Vec<u8>) {
                text.extend_from_slice(itoa::Buffer::new().format(self).as_bytes());
            }

            fn is_zero(self) -> bool {
                self == 0
            }
        }
    };
}

// Half precision is printed as the same value in single precision, which every reader of text knows.
print_float!(f16, v => v.to_f32());
print_float!(f32, v => v);
print_float!(f64, v => v);
print_integer!(u8);
print_integer!(i8);

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(value: impl Print) -> String {
        let mut text = Vec::new();
        value.print(&mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn values_are_printed_in_the_fewest_digits() {
        assert_eq!(printed(1.0f32), "1");
        assert_eq!(printed(-0.0f32), "-0");
        assert_eq!(printed(0.1f32), "0.1");
        assert_eq!(printed(f32::MAX), "3.4028235e+38");
        assert_eq!(printed(f32::NAN), "NaN");
        assert_eq!(printed(f32::NEG_INFINITY), "-inf");
        assert_eq!(printed(0.1f64), "0.1");
        assert_eq!(printed(f16::from_f32(0.1)), "0.099975586");
        assert_eq!(printed(200u8), "200");
        assert_eq!(printed(-128i8), "-128");
    }
}
