//! Repetition levels: one for each value, 0 where a row begins. They are counted without being expanded, because a few
//! bytes can stand for any number of equal levels.

use super::thrift::varint;

/// Repetition levels of one bit each, as a page stores them.
pub(super) enum Levels<'a> {
    /// Runs of equal levels, and runs of bit-packed levels.
    Runs(&'a [u8]),
    /// Bit-packed: eight levels in each byte.
    Bits(&'a [u8]),
}

impl Levels<'_> {
    /// Number of levels before the first 0, of `values` levels.
    pub(super) fn leading(&self, values: usize) -> usize {
        let bits = |bits: &[u8]| {
            let full = bits.iter().take_while(|byte| **byte == 0xFF).count();
            8 * full + bits.get(full).map_or(0, |byte| byte.trailing_ones() as usize)
        };
        let (mut rest, mut leading) = match self {
            Levels::Bits(packed) => return bits(packed).min(values),
            Levels::Runs(runs) => (*runs, 0),
        };
        while leading < values
            && let Some(head) = varint(&mut rest)
        {
            let count = usize::try_from(head >> 1).unwrap_or(usize::MAX);
            let (run, ones) = if head & 1 == 1 {
                let packed = &rest[..rest.len().min(count)];
                rest = &rest[packed.len()..];
                (8 * packed.len(), bits(packed))
            } else {
                let Some((level, after)) = rest.split_first() else { break };
                rest = after;
                (count, if *level == 0 { 0 } else { count })
            };
            leading = leading.saturating_add(ones);
            if ones < run {
                break;
            }
        }
        leading.min(values)
    }
}

/// Counts the lengths of rows by their repetition levels.
#[derive(Default)]
pub(super) struct Lengths {
    /// Length so far of the last row.
    pub(super) row: usize,
}

impl Lengths {
    /// Counts `values` levels, and returns the length of the longest row among them. If levels are missing,
    /// the crate will report it.
    pub(super) fn count(&mut self, levels: Levels<'_>, mut values: usize) -> usize {
        let mut longest = 0;
        let mut rest = match levels {
            Levels::Bits(bits) => return self.bits(bits, values),
            Levels::Runs(runs) => runs,
        };
        while values > 0
            && let Some(head) = varint(&mut rest)
        {
            let count = usize::try_from(head >> 1).unwrap_or(usize::MAX);
            if head & 1 == 1 {
                let bits = &rest[..rest.len().min(count)];
                rest = &rest[bits.len()..];
                longest = longest.max(self.bits(bits, values));
                values = values.saturating_sub(8 * bits.len());
            } else if let Some((level, after)) = rest.split_first() {
                rest = after;
                let run = count.min(values);
                values -= run;
                if *level != 0 {
                    self.row = self.row.saturating_add(run);
                } else if run > 0 {
                    self.row = 1;
                }
                longest = longest.max(self.row);
            } else {
                break;
            }
        }
        longest
    }

    fn bits(&mut self, bits: &[u8], values: usize) -> usize {
        let mut longest = 0;
        let (whole, last) = bits.split_at((values / 8).min(bits.len()));
        let last = last.first().map(|byte| (*byte, values % 8));
        for (byte, count) in whole.iter().map(|byte| (*byte, 8)).chain(last) {
            for bit in 0..count {
                self.row = if byte >> bit & 1 == 0 { 1 } else { self.row + 1 };
                longest = longest.max(self.row);
            }
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_lengths_are_counted_from_repetition_levels() {
        let of = |levels: Levels<'_>, values| {
            let mut lengths = Lengths::default();
            (lengths.count(levels, values), lengths.row)
        };
        // A row of 400,000,000 values: level 0, then 399,999,999 times level 1.
        let run = [2, 0, 0xFE, 0x8F, 0xBC, 0xFD, 0x02, 1];
        assert_eq!(of(Levels::Runs(&run), 400_000_000), (400_000_000, 400_000_000));
        assert_eq!(of(Levels::Runs(&run), 5), (5, 5));
        assert_eq!(of(Levels::Runs(&run[..2]), 5), (1, 1));
        // Eight levels at once, the lowest bit first: rows of 3, 4 and (so far) 1.
        assert_eq!(of(Levels::Runs(&[3, 0b0111_0110]), 8), (4, 1));
        assert_eq!(of(Levels::Runs(&[3, 0b0111_0110]), 5), (3, 2));
        assert_eq!(of(Levels::Bits(&[0b0111_0110, 1]), 9), (4, 2));
        assert_eq!(of(Levels::Runs(&[]), 5), (0, 0));
        let mut lengths = Lengths { row: 7 };
        assert_eq!(lengths.count(Levels::Runs(&[6, 1, 4, 0]), 5), 10);
        assert_eq!(lengths.row, 1);
    }

    #[test]
    fn levels_before_the_first_row_are_counted() {
        let runs = |runs: &[u8], values| Levels::Runs(runs).leading(values);
        assert_eq!(runs(&[2, 0, 6, 1], 4), 0);
        assert_eq!(runs(&[6, 1, 2, 0], 4), 3);
        assert_eq!(runs(&[6, 1, 4, 1], 4), 4);
        // Bit-packed levels: eight and two more ones, then a run.
        assert_eq!(runs(&[5, 0xFF, 0b1111_1011, 2, 0], 17), 10);
        assert_eq!(runs(&[3, 0xFF, 6, 1, 2, 0], 12), 11);
        assert_eq!(Levels::Bits(&[0xFF, 0b0000_0111]).leading(16), 11);
        assert_eq!(Levels::Bits(&[0xFF]).leading(5), 5);
        assert_eq!(runs(&[], 9), 0);
    }
}
