//! Sums over the nibbles of codes that are stored transposed: bounds for codes of a quantiser.
//!
//! **Layout.** A group is 64 rows. Byte `j` of its rows is one [`Line`], so a line has two nibbles of each row, and a group
//! takes no more memory than its codes. (The planes of [`nibble_planes`](super::nibble_planes) have a byte for each nibble;
//! they are made for one search and thrown away.)
//!
//! **Saturation.** As in [`nibble_planes`](super::nibble_planes): sums are bytes that start at 255 minus a limit and
//! saturate at 255. All rows of a group have the same start.

use super::isa::{Isa, dispatch_bytes};
use super::nibble_planes::{LINE_ROWS, Line};
use super::vector::ByteVector;

/// For each line and each of four queries: what the sixteen values of the low nibble add, and of the high one. The two
/// together add at most 255.
pub(crate) type LineTables = [[[u8; 16]; 2]; 4];

/// Lines after which it is checked whether a group can be left.
const CHECK_LINES: usize = 8;

/// The first group, from 0, in which the sum of a row ends below 255 for one of the first `queries` queries, and a bit for each
/// such row; the other masks may be anything. The number of groups if there is none. `lines` are groups of as many lines as
/// there are tables.
#[inline]
pub(crate) fn first_below_255(
    isa: Isa,
    tables: &[LineTables],
    lines: &[Line],
    starts: [u8; 4],
    queries: usize,
) -> (usize, [u64; 4]) {
    assert!(!tables.is_empty() && lines.len().is_multiple_of(tables.len()));
    match queries {
        1 => dispatch_bytes!(isa, one or plain(
            tables: &[LineTables], lines: &[Line], starts: [u8; 4], queries: usize
        ) -> (usize, [u64; 4])),
        2 => dispatch_bytes!(isa, two or plain(
            tables: &[LineTables], lines: &[Line], starts: [u8; 4], queries: usize
        ) -> (usize, [u64; 4])),
        _ => dispatch_bytes!(isa, four or plain(
            tables: &[LineTables], lines: &[Line], starts: [u8; 4], queries: usize
        ) -> (usize, [u64; 4])),
    }
}

#[inline(always)]
unsafe fn one<B: ByteVector>(
    tables: &[LineTables],
    lines: &[Line],
    starts: [u8; 4],
    _: usize,
) -> (usize, [u64; 4]) {
    // SAFETY: the caller has the features; so below.
    unsafe { below::<B, 1>(tables, lines, starts) }
}

#[inline(always)]
unsafe fn two<B: ByteVector>(
    tables: &[LineTables],
    lines: &[Line],
    starts: [u8; 4],
    _: usize,
) -> (usize, [u64; 4]) {
    // SAFETY: see above.
    unsafe { below::<B, 2>(tables, lines, starts) }
}

#[inline(always)]
unsafe fn four<B: ByteVector>(
    tables: &[LineTables],
    lines: &[Line],
    starts: [u8; 4],
    queries: usize,
) -> (usize, [u64; 4]) {
    // A query that is not there has no rows below 255.
    let starts = std::array::from_fn(|q| if q < queries { starts[q] } else { 255 });
    // SAFETY: see above.
    unsafe { below::<B, 4>(tables, lines, starts) }
}

#[inline(always)]
unsafe fn below<B: ByteVector, const N: usize>(
    tables: &[LineTables],
    lines: &[Line],
    starts: [u8; 4],
) -> (usize, [u64; 4]) {
    // SAFETY: the caller has the features.
    unsafe {
        let mut first = [B::splat(0); N];
        for (sum, start) in first.iter_mut().zip(starts) {
            *sum = B::splat(start);
        }
        for (group, lines) in lines.chunks_exact(tables.len()).enumerate() {
            let mut sums = first;
            let mut left = false;
            for (tables, lines) in tables.chunks(CHECK_LINES).zip(lines.chunks(CHECK_LINES)) {
                for (tables, line) in tables.iter().zip(lines) {
                    let [low, high] = B::load(line).nibbles();
                    for (sum, tables) in sums.iter_mut().zip(tables) {
                        *sum = sum
                            .saturating_add(low.look_up(&tables[0]).add(high.look_up(&tables[1])));
                    }
                }
                let mut all = sums[0];
                for sum in &sums[1..] {
                    all = all.and(*sum);
                }
                left = all.not_255() != 0;
                if !left {
                    break;
                }
            }
            if left {
                let mut masks = [0; 4];
                for (mask, sum) in masks.iter_mut().zip(sums) {
                    *mask = sum.not_255();
                }
                return (group, masks);
            }
        }
    }
    (lines.len() / tables.len(), [0; 4])
}

/// The scalar twin of [`first_below_255`].
#[inline(never)]
fn plain(
    tables: &[LineTables],
    lines: &[Line],
    starts: [u8; 4],
    queries: usize,
) -> (usize, [u64; 4]) {
    for (group, lines) in lines.chunks_exact(tables.len()).enumerate() {
        let masks = std::array::from_fn(|q| {
            (0..LINE_ROWS).fold(0, |mask, row| {
                let sum = lines.iter().zip(tables).fold(starts[q], |sum, (line, tables)| {
                    let (byte, [low, high]) = (usize::from(line.0[row]), &tables[q]);
                    sum.saturating_add(low[byte & 15]).saturating_add(high[byte >> 4])
                });
                mask | u64::from(sum < 255) << row
            })
        });
        if masks[..queries].iter().any(|mask| *mask != 0) {
            return (group, masks);
        }
    }
    (lines.len() / tables.len(), [0; 4])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream};

    #[test]
    fn every_instruction_set_equals_the_definition() {
        let mut stream = Stream::new(3, Purpose::Sample, 0, 0);
        for count in [1, 2, 7, 8, 9, 15, 31] {
            let mut byte = |most: u64| stream.below(most) as u8;
            const GROUPS: usize = 3;
            let lines: Vec<Line> =
                (0..count * GROUPS).map(|_| Line(std::array::from_fn(|_| byte(256)))).collect();
            // Small tables, so that some rows stay below 255, and large ones that saturate at once.
            for most in [3, (255 / count as u64 + 1).min(128), 128] {
                let tables: Vec<LineTables> = (0..count)
                    .map(|_| {
                        std::array::from_fn(|_| {
                            std::array::from_fn(|_| std::array::from_fn(|_| byte(most)))
                        })
                    })
                    .collect();
                let starts = [0, byte(256), 200, 254];
                let masks = |lines: &[Line]| -> [u64; 4] {
                    std::array::from_fn(|q| {
                        let total = |row: usize| {
                            let of = |(line, table): (&Line, &LineTables)| {
                                let x = usize::from(line.0[row]);
                                u32::from(table[q][0][x % 16]) + u32::from(table[q][1][x / 16])
                            };
                            u32::from(starts[q]) + lines.iter().zip(&tables).map(of).sum::<u32>()
                        };
                        (0..LINE_ROWS).map(|row| u64::from(total(row) < 255) << row).sum()
                    })
                };
                for (isa, queries) in
                    Isa::every().into_iter().flat_map(|i| (1..=4).map(move |q| (i, q)))
                {
                    let mut group = 0;
                    while group < GROUPS {
                        let rest = &lines[group * count..];
                        let (next, got) = first_below_255(isa, &tables, rest, starts, queries);
                        for skipped in rest.chunks_exact(count).take(next) {
                            assert_eq!(masks(skipped)[..queries], [0; 4][..queries], "{isa:?}");
                        }
                        group += next + 1;
                        if group <= GROUPS {
                            let want = masks(&lines[(group - 1) * count..][..count]);
                            assert!(want[..queries].iter().any(|mask| *mask != 0));
                            assert_eq!(got[..queries], want[..queries], "{isa:?}, {count} lines");
                        }
                    }
                }
            }
        }
    }
}
