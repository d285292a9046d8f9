//! Sums over the bytes of codes that are stored transposed: bounds for codes of a quantiser.
//!
//! **Layout.** A group is 64 rows. Byte `j` of its rows is one [`Line`], so a group takes no more memory than its codes.
//!
//! **Look-up.** A byte chooses one of 256 entries. AVX-512 with VBMI looks up 64 bytes in 128 entries with one
//! instruction, so two of them will do; other instruction sets put it together from smaller tables.
//!
//! **Saturation.** As in [`nibble_planes`](super::nibble_planes): sums are bytes that start at 255 minus a limit and
//! saturate at 255. All rows of a group have the same start.

use super::isa::{Isa, dispatch_bytes};
use super::nibble_planes::{LINE_ROWS, Line};
use super::prefetch;
use super::vector::ByteVector;

/// For one line: what each value of the byte adds.
pub(crate) type LineTable = [u8; 256];

/// Groups that are scanned together, so that a table is loaded once for all of them.
pub(crate) const BLOCK_GROUPS: usize = 4;
/// Lines after which it is checked whether a block can be left.
const CHECK_LINES: usize = 8;

/// The first group of the first block in which the sum of a row ends below 255, and for each group of this block a bit for
/// each such row. The number of groups if there is none. `lines` are groups of as many lines as there are tables; every
/// [`BLOCK_GROUPS`] of them are a block.
#[inline]
pub(crate) fn first_below_255(
    isa: Isa,
    tables: &[LineTable],
    lines: &[Line],
    start: u8,
) -> (usize, [u64; BLOCK_GROUPS]) {
    assert!(!tables.is_empty() && lines.len().is_multiple_of(tables.len()));
    dispatch_bytes!(isa, below or plain(
        tables: &[LineTable], lines: &[Line], start: u8
    ) -> (usize, [u64; BLOCK_GROUPS]))
}

#[inline(always)]
unsafe fn below<B: ByteVector>(
    tables: &[LineTable],
    lines: &[Line],
    start: u8,
) -> (usize, [u64; BLOCK_GROUPS]) {
    let per_group = tables.len();
    let blocks = lines.chunks_exact(per_group * BLOCK_GROUPS);
    let (rest, mut group) = (blocks.remainder(), 0);
    for lines in blocks {
        // SAFETY: the caller has the features; so below.
        let masks = unsafe { block::<B, BLOCK_GROUPS>(tables, lines, start) };
        if masks != [0; BLOCK_GROUPS] {
            return (group, masks);
        }
        group += BLOCK_GROUPS;
    }
    let mut masks = [0; BLOCK_GROUPS];
    for (mask, lines) in masks.iter_mut().zip(rest.chunks_exact(per_group)) {
        // SAFETY: see above.
        [*mask] = unsafe { block::<B, 1>(tables, lines, start) };
    }
    match masks == [0; BLOCK_GROUPS] {
        true => (lines.len() / per_group, masks),
        false => (group, masks),
    }
}

/// For each group, a bit for each row whose sum ends below 255.
#[inline(always)]
unsafe fn block<B: ByteVector, const N: usize>(
    tables: &[LineTable],
    lines: &[Line],
    start: u8,
) -> [u64; N] {
    let per_group = tables.len();
    // SAFETY: the caller has the features.
    unsafe {
        let mut sums = [B::splat(start); N];
        for (first, tables) in (0..).step_by(CHECK_LINES).zip(tables.chunks(CHECK_LINES)) {
            for (line, table) in (first..).zip(tables) {
                for (group, sum) in sums.iter_mut().enumerate() {
                    let at = group * per_group + line;
                    // The lines of the next block. A block is read in several streams, which the hardware follows less
                    // well.
                    prefetch(lines, at + N * per_group);
                    let bytes = B::load(&lines[at]);
                    *sum = sum.saturating_add(bytes.look_up_byte(table));
                }
            }
            let mut all = sums[0];
            for sum in &sums[1..] {
                all = all.and(*sum);
            }
            if all.not_255() == 0 {
                return [0; N];
            }
        }
        let mut masks = [0; N];
        for (mask, sum) in masks.iter_mut().zip(sums) {
            *mask = sum.not_255();
        }
        masks
    }
}

/// The scalar twin of [`first_below_255`].
#[inline(never)]
fn plain(tables: &[LineTable], lines: &[Line], start: u8) -> (usize, [u64; BLOCK_GROUPS]) {
    for (block, lines) in lines.chunks(tables.len() * BLOCK_GROUPS).enumerate() {
        let mut masks = [0; BLOCK_GROUPS];
        for (mask, lines) in masks.iter_mut().zip(lines.chunks_exact(tables.len())) {
            *mask = (0..LINE_ROWS).fold(0, |mask, row| {
                let sum = lines.iter().zip(tables).fold(start, |sum, (line, table)| {
                    sum.saturating_add(table[usize::from(line.0[row])])
                });
                mask | u64::from(sum < 255) << row
            });
        }
        if masks != [0; BLOCK_GROUPS] {
            return (block * BLOCK_GROUPS, masks);
        }
    }
    (lines.len() / tables.len(), [0; BLOCK_GROUPS])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream};

    #[test]
    fn every_instruction_set_equals_the_definition() {
        let mut stream = Stream::new(3, Purpose::Sample, 0, 0);
        for (count, groups) in [(1, 9), (2, 3), (7, 4), (8, 6), (9, 8), (15, 1), (31, 11)] {
            let mut byte = |most: u64| stream.below(most) as u8;
            let lines: Vec<Line> =
                (0..count * groups).map(|_| Line(std::array::from_fn(|_| byte(256)))).collect();
            // Small tables, so that some rows stay below 255, and large ones that saturate at once.
            for most in [3, (512 / count as u64 + 1).min(256), 256] {
                let tables: Vec<LineTable> =
                    (0..count).map(|_| std::array::from_fn(|_| byte(most))).collect();
                let mask = |group: usize, start: u8| -> u64 {
                    let lines = &lines[group * count..][..count];
                    let total = |row: usize| {
                        let of = |(line, table): (&Line, &LineTable)| {
                            u32::from(table[usize::from(line.0[row])])
                        };
                        u32::from(start) + lines.iter().zip(&tables).map(of).sum::<u32>()
                    };
                    (0..LINE_ROWS).map(|row| u64::from(total(row) < 255) << row).sum()
                };
                for (isa, start) in
                    Isa::every().into_iter().flat_map(|i| [0, 100, 200, 254].map(|s| (i, s)))
                {
                    let mut group = 0;
                    while group < groups {
                        let rest = &lines[group * count..];
                        let (next, got) = first_below_255(isa, &tables, rest, start);
                        assert!((group..group + next).all(|g| mask(g, start) == 0), "{isa:?}");
                        group += next;
                        assert!(group <= groups && next % BLOCK_GROUPS == 0 || group == groups);
                        if group < groups {
                            assert_ne!(got, [0; BLOCK_GROUPS]);
                        }
                        for got in got {
                            let want = if group < groups { mask(group, start) } else { 0 };
                            assert_eq!(got, want, "{isa:?}, {count} lines, start {start}");
                            group += 1;
                        }
                    }
                }
            }
        }
    }
}
