//! Distances of one query to many rows, and the search for rows nearer than a limit.
//!
//! The plain versions here are the definition that every instruction set is tested against, and what
//! runs where there is no better one. Their inner loop is `count_ones` on 64-bit words, with the number
//! of words known to the compiler for rows of up to 39 bytes. On x86-64 the same source is compiled a second
//! time with POPCNT; AVX2, AVX-512 and NEON take over for some widths.

#[cfg(target_arch = "aarch64")]
use crate::arch::aarch64::hamming_neon;
#[cfg(target_arch = "x86_64")]
use crate::arch::x86_64::{hamming_avx2, hamming_avx512};

/// Rows that [`seek`] looks at before it decides whether to stop.
pub(crate) const GROUP: usize = 32;

/// Places in a table that [`seek`] looks at in turns.
const PLACES: usize = 4;

/// The order in which [`seek`] looks at the groups of a table: one from each quarter of it in turns, since caches and
/// memory deliver several streams faster than one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turns {
    /// Groups, the last may be smaller.
    pub(crate) groups: usize,
    /// Groups that are whole.
    pub(crate) whole: usize,
}

impl Turns {
    pub(crate) fn new(table: Table<'_>) -> Self {
        Self { groups: table.len().div_ceil(GROUP), whole: table.len() / GROUP }
    }

    /// The first row of the group whose turn it is.
    #[inline(always)]
    pub(crate) fn first(&self, turn: usize) -> usize {
        let part = self.whole / PLACES;
        let group = if turn < PLACES * part { turn % PLACES * part + turn / PLACES } else { turn };
        group * GROUP
    }
}

/// Codes that lie one after the other, `width` bytes each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table<'a> {
    data: &'a [u8],
    width: usize,
}

impl<'a> Table<'a> {
    /// Whole rows of `width` bytes.
    pub(crate) fn new(data: &'a [u8], width: usize) -> Self {
        assert!(width > 0 && data.len().is_multiple_of(width), "whole rows");
        Self { data, width }
    }

    pub(crate) fn len(&self) -> usize {
        self.data.len() / self.width
    }

    pub(crate) fn width(&self) -> usize {
        self.width
    }

    pub(crate) fn data(&self) -> &'a [u8] {
        self.data
    }

    pub(crate) fn row(&self, i: usize) -> &'a [u8] {
        &self.data[i * self.width..(i + 1) * self.width]
    }

    /// Rows `from..to`.
    pub(crate) fn part(&self, from: usize, to: usize) -> Self {
        Self { data: &self.data[from * self.width..to * self.width], width: self.width }
    }
}

/// An instruction set that this CPU has; holding one is the proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Isa(Set);

/// The instruction sets that there are kernels for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Set {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Isa {
    /// The best one here.
    pub(crate) fn detect() -> Self {
        #[cfg(target_arch = "aarch64")]
        return Self(Set::Neon);
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt") {
            let wide = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vpopcntdq");
            return Self(if wide { Set::Avx512 } else { Set::Avx2 });
        }
        #[cfg(not(target_arch = "aarch64"))]
        Self(Set::Portable)
    }

    /// Every one that this CPU can run, for tests that compare them.
    #[cfg(test)]
    pub(crate) fn every() -> Vec<Self> {
        let mut sets = vec![Self(Set::Portable)];
        #[cfg(target_arch = "x86_64")]
        if Self::detect() == Self(Set::Avx512) {
            sets.push(Self(Set::Avx2));
        }
        if Self::detect() != sets[0] {
            sets.push(Self::detect());
        }
        sets
    }

    /// Which it is.
    pub(crate) fn set(self) -> Set {
        self.0
    }

    /// Whether it can look up sixteen values in a register, which [`super::planes`] needs.
    pub(crate) fn looks_up(self) -> bool {
        self.0 != Set::Portable
    }
}

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

/// Writes the distance of every row of the table.
pub(crate) fn distances(isa: Isa, query: &[u8], table: Table<'_>, out: &mut [u32]) {
    assert!(query.len() == table.width && out.len() == table.len());
    match isa.0 {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an `Isa` exists only where the CPU has it; the lengths were checked above.
        Set::Avx2 => unsafe { hamming_avx2::distances(query, table, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Set::Avx512 => unsafe { hamming_avx512::distances(query, table, out) },
        #[cfg(target_arch = "aarch64")]
        Set::Neon => hamming_neon::distances(query, table, out),
        Set::Portable => distances_plain(query, table, out),
    }
}

/// Writes the distances of those of the 64 rows after `first` whose bit is set.
pub(crate) fn some(
    isa: Isa,
    query: &[u8],
    table: Table<'_>,
    first: usize,
    mask: u64,
    out: &mut [u32; 64],
) {
    match isa.0 {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an `Isa` exists only where the CPU has it.
        Set::Avx2 | Set::Avx512 => unsafe { hamming_avx2::some(query, table, first, mask, out) },
        _ => some_plain(query, table, first, mask, out),
    }
}

/// Starts to bring an item into cache, where the CPU can be asked to.
#[inline(always)]
pub(crate) fn fetch<T>(items: &[T], i: usize) {
    #[cfg(target_arch = "x86_64")]
    hamming_avx2::fetch(items.as_ptr().wrapping_add(i).cast());
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (items, i);
}

/// Puts the distances of these rows into `out`, in place of what it held.
pub(crate) fn listed(isa: Isa, query: &[u8], table: Table<'_>, rows: &[u32], out: &mut Vec<u32>) {
    assert!(query.len() == table.width);
    match isa.0 {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an `Isa` exists only where the CPU has it.
        Set::Avx2 | Set::Avx512 => unsafe { hamming_avx2::listed(query, table, rows, out) },
        _ => listed_plain(query, table, rows, out),
    }
}

/// Looks at groups of [`GROUP`] rows (the last may be smaller) in the order of [`Turns`], from turn `from` on, and stops
/// at the first with a row nearer than `limit`: its turn, and a bit for each such row in it.
pub(crate) fn seek(
    isa: Isa,
    query: &[u8],
    table: Table<'_>,
    from: usize,
    limit: u32,
) -> Option<(usize, u64)> {
    assert!(query.len() == table.width);
    match isa.0 {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an `Isa` exists only where the CPU has it; the length was checked above.
        Set::Avx2 => unsafe { hamming_avx2::seek(query, table, from, limit) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Set::Avx512 => unsafe { hamming_avx512::seek(query, table, from, limit) },
        #[cfg(target_arch = "aarch64")]
        Set::Neon => hamming_neon::seek(query, table, from, limit),
        Set::Portable => seek_plain(query, table, from, limit),
    }
}

#[inline(always)]
pub(crate) fn distances_plain(query: &[u8], table: Table<'_>, out: &mut [u32]) {
    by_words!(table.width, each_plain(query, table, out))
}

#[inline(always)]
pub(crate) fn some_plain(
    query: &[u8],
    table: Table<'_>,
    first: usize,
    mask: u64,
    out: &mut [u32; 64],
) {
    by_words!(table.width, marked_plain(query, table, first, mask, out))
}

#[inline(always)]
pub(crate) fn listed_plain(query: &[u8], table: Table<'_>, rows: &[u32], out: &mut Vec<u32>) {
    out.clear();
    by_words!(table.width, picked_plain(query, table, rows, out))
}

#[inline(always)]
pub(crate) fn seek_plain(
    query: &[u8],
    table: Table<'_>,
    from: usize,
    limit: u32,
) -> Option<(usize, u64)> {
    by_words!(table.width, find_plain(query, table, from, limit))
}

/// Calls the function for the number of whole words in a row and for whether bytes are left over.
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
            _ => $kernel::<MANY, true>($($arg),*),
        }
    };
}
use by_words;

/// Stands for a number of words that the compiler does not know.
const MANY: usize = usize::MAX;
/// Words of a query that are kept ready where their number is known.
const FEW: usize = 5;

/// A query as words, the left-over bytes as the last one.
struct Words<'a, const WHOLE: usize, const REST: bool> {
    query: &'a [u8],
    words: [u64; FEW],
}

impl<'a, const WHOLE: usize, const REST: bool> Words<'a, WHOLE, REST> {
    #[inline(always)]
    fn new(query: &'a [u8]) -> Self {
        let mut words = [0; FEW];
        for (word, bytes) in words.iter_mut().zip(query.chunks(8)) {
            *word = rest(bytes);
        }
        Self { query, words }
    }

    /// The distance of the first row, of fewer than eight bytes.
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
        if WHOLE == MANY {
            return distance(self.query, row);
        }
        let whole = row.as_chunks::<8>().0;
        let mut sum = 0;
        for (word, bytes) in self.words.iter().zip(&whole[..WHOLE]) {
            sum += (word ^ u64::from_le_bytes(*bytes)).count_ones();
        }
        if REST {
            // The last eight bytes, less those that were counted; a short row is put together.
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
fn each_plain<const WHOLE: usize, const REST: bool>(
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
fn marked_plain<const WHOLE: usize, const REST: bool>(
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
fn picked_plain<const WHOLE: usize, const REST: bool>(
    query: &[u8],
    table: Table<'_>,
    rows: &[u32],
    out: &mut Vec<u32>,
) {
    let words = Words::<WHOLE, REST>::new(query);
    out.extend(rows.iter().map(|row| words.distance(table.row(*row as usize))));
}

#[inline(always)]
fn find_plain<const WHOLE: usize, const REST: bool>(
    query: &[u8],
    table: Table<'_>,
    from: usize,
    limit: u32,
) -> Option<(usize, u64)> {
    let words = Words::<WHOLE, REST>::new(query);
    let turns = Turns::new(table);
    for turn in from..turns.groups {
        let rows = &table.data[turns.first(turn) * table.width..];
        let group = &rows[..rows.len().min(GROUP * table.width)];
        let mut nearest = u32::MAX;
        if WHOLE == 0 {
            // Short rows are had with those after them, which is faster than putting them together.
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
            return Some((turn, mask));
        }
    }
    None
}
