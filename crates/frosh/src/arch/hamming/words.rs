//! The scalar twins: `count_ones` on words of 64 bits.
//!
//! They are the definition that every instruction set is tested against, and what runs where there is no vector kernel.
//! For rows of up to 39 bytes the compiler knows the number of words.

use super::{GROUP_ROWS, GroupOrder, Table};

/// Bits in which two rows differ.
pub(crate) fn distance(a: &[u8], b: &[u8]) -> u32 {
    assert_eq!(a.len(), b.len());
    let (a_words, a_rest) = a.as_chunks::<8>();
    let (b_words, b_rest) = b.as_chunks::<8>();
    let words = a_words.iter().zip(b_words);
    let whole: u32 =
        words.map(|(x, y)| (u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y)).count_ones()).sum();
    whole + a_rest.iter().zip(b_rest).map(|(x, y)| (x ^ y).count_ones()).sum::<u32>()
}

#[inline(always)]
pub(super) fn distances(query: &[u8], table: Table<'_>, out: &mut [u32]) {
    by_words!(table.width, distances_by(query, table, out))
}

#[inline(always)]
pub(super) fn masked(query: &[u8], table: Table<'_>, first: usize, mask: u64, out: &mut [u32; 64]) {
    by_words!(table.width, masked_by(query, table, first, mask, out))
}

#[inline(always)]
pub(super) fn listed(query: &[u8], table: Table<'_>, rows: &[u32], out: &mut Vec<u32>) {
    out.clear();
    by_words!(table.width, listed_by(query, table, rows, out))
}

#[inline(always)]
pub(super) fn seek(
    query: &[u8],
    table: Table<'_>,
    from: usize,
    limit: u32,
) -> Option<(usize, u64)> {
    by_words!(table.width, seek_by(query, table, from, limit))
}

/// Calls the copy of `$kernel` for the number of whole words in a row, and for whether there are bytes after them.
macro_rules! by_words {
    ($width:expr, $kernel:ident ( $($arg:expr),* )) => {
        match ($width / 8, $width % 8 != 0) {
            (0, _) => $kernel::<0, true>($($arg),*),
            (1, false) => $kernel::<1, false>($($arg),*),
            (1, true) => $kernel::<1, true>($($arg),*),
            (2, false) => $kernel::<2, false>($($arg),*),
            (2, true) => $kernel::<2, true>($($arg),*),
            (3, false) => $kernel::<3, false>($($arg),*),
            (3, true) => $kernel::<3, true>($($arg),*),
            (4, false) => $kernel::<4, false>($($arg),*),
            (4, true) => $kernel::<4, true>($($arg),*),
            _ => $kernel::<DYNAMIC, true>($($arg),*),
        }
    };
}
use by_words;

/// A number of words that is known at run time only.
const DYNAMIC: usize = usize::MAX;
/// Words of a query, where their number is known at compile time.
const MAX_WORDS: usize = 5;

/// A query as `WHOLE` words of 64 bits, and a last one for the bytes after them if `REST`.
struct Words<'a, const WHOLE: usize, const REST: bool> {
    query: &'a [u8],
    words: [u64; MAX_WORDS],
}

impl<'a, const WHOLE: usize, const REST: bool> Words<'a, WHOLE, REST> {
    #[inline(always)]
    fn new(query: &'a [u8]) -> Self {
        let mut words = [0; MAX_WORDS];
        for (word, bytes) in words.iter_mut().zip(query.chunks(8)) {
            *word = rest(bytes);
        }
        Self { query, words }
    }

    /// The distance of the first row, which is shorter than a word. It is loaded with bytes of the rows after it, which are
    /// shifted out: this is faster than to put a word together from bytes.
    #[inline(always)]
    fn short(&self, rows: &[u8], width: usize) -> u32 {
        match rows.first_chunk::<8>() {
            Some(bytes) => {
                let spare = 64 - 8 * width as u32;
                ((u64::from_le_bytes(*bytes) ^ self.words[0]) << (spare % 64)).count_ones()
            }
            None => self.distance(&rows[..width]),
        }
    }

    #[inline(always)]
    fn distance(&self, row: &[u8]) -> u32 {
        if WHOLE == DYNAMIC {
            return distance(self.query, row);
        }
        let whole = row.as_chunks::<8>().0;
        let mut sum = 0;
        for (word, bytes) in self.words.iter().zip(&whole[..WHOLE]) {
            sum += (word ^ u64::from_le_bytes(*bytes)).count_ones();
        }
        if REST {
            // The last eight bytes, without those that were counted before.
            let word = match row.last_chunk::<8>() {
                Some(last) if WHOLE > 0 => {
                    u64::from_le_bytes(*last) >> (8 * (8 - row.len() % 8) % 64)
                }
                _ => rest(row),
            };
            sum += (self.words[WHOLE] ^ word).count_ones();
        }
        sum
    }
}

/// Up to eight bytes as a word.
#[inline(always)]
fn rest(bytes: &[u8]) -> u64 {
    let n = bytes.len();
    if let (Some(low), Some(high)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let high = u64::from(u32::from_le_bytes(*high));
        return u64::from(u32::from_le_bytes(*low)) | high << (8 * (n - 4));
    }
    bytes.iter().rev().fold(0, |word, b| word << 8 | u64::from(*b))
}

#[inline(always)]
fn distances_by<const WHOLE: usize, const REST: bool>(
    query: &[u8],
    table: Table<'_>,
    out: &mut [u32],
) {
    let words = Words::<WHOLE, REST>::new(query);
    for (out, row) in out.iter_mut().zip(table.data.chunks_exact(table.width)) {
        *out = words.distance(row);
    }
}

#[inline(always)]
fn masked_by<const WHOLE: usize, const REST: bool>(
    query: &[u8],
    table: Table<'_>,
    first: usize,
    mask: u64,
    out: &mut [u32; 64],
) {
    let words = Words::<WHOLE, REST>::new(query);
    let mut mask = mask;
    while mask != 0 {
        let i = mask.trailing_zeros() as usize;
        out[i] = words.distance(table.row(first + i));
        mask &= mask - 1;
    }
}

#[inline(always)]
fn listed_by<const WHOLE: usize, const REST: bool>(
    query: &[u8],
    table: Table<'_>,
    rows: &[u32],
    out: &mut Vec<u32>,
) {
    let words = Words::<WHOLE, REST>::new(query);
    out.extend(rows.iter().map(|row| words.distance(table.row(*row as usize))));
}

#[inline(always)]
fn seek_by<const WHOLE: usize, const REST: bool>(
    query: &[u8],
    table: Table<'_>,
    from: usize,
    limit: u32,
) -> Option<(usize, u64)> {
    let words = Words::<WHOLE, REST>::new(query);
    let order = GroupOrder::new(table);
    for position in from..order.groups {
        let rows = &table.data[order.first_row(position) * table.width..];
        let group = &rows[..rows.len().min(GROUP_ROWS * table.width)];
        let mut nearest = u32::MAX;
        if WHOLE == 0 {
            for at in (0..group.len()).step_by(table.width) {
                nearest = nearest.min(words.short(&rows[at..], table.width));
            }
        } else {
            for row in group.chunks_exact(table.width) {
                nearest = nearest.min(words.distance(row));
            }
        }
        if nearest < limit {
            let rows = group.chunks_exact(table.width).enumerate();
            let mask = rows.fold(0, |m, (i, row)| m | u64::from(words.distance(row) < limit) << i);
            return Some((position, mask));
        }
    }
    None
}
