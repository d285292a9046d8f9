//! Sums over the nibbles of codes, for many queries: transposed rows, looked up in registers.
//!
//! **Layout.** A group is 64 neighbouring rows. Nibble `j` of its rows is one [`Line`] of 64 bytes, so a group of codes of
//! `b` bytes is `2 b` lines, its nibble planes. What nibble `j` adds to a row's sum, for one query, is a function of its
//! sixteen values: a table that fits a register, so that one lookup (`vpshufb`, `tbl`) serves a whole register of rows.
//!
//! **Saturation.** Sums are bytes that start at `255 - limit` and saturate at 255: a row is nearer than the limit
//! exactly if its sum ends below 255, and a group can be left as soon as all its sums are 255. Limits above 255 do not
//! fit; there, sums of bytes are added to larger numbers every 60 planes.
//!
//! **Two queries in a lookup.** A nibble differs in at most 4 bits, so three planes differ in at most 12, which fits four
//! bits: [`seek`] looks up the counts of two queries at once, one in each nibble of the table's entries.

use super::hamming::Table;
use super::isa::{Isa, dispatch_bytes, dispatch_popcnt};
use super::vector::ByteVector;

/// Rows of a group: those of a [`Line`].
pub(crate) const LINE_ROWS: usize = 64;
/// Limits above this do not fit sums of bytes.
pub(crate) const BYTE_LIMIT: u32 = 255;
/// Planes whose differing bits fit a nibble: each adds at most 4.
pub(crate) const PACKED_PLANES: usize = 3;
/// Planes whose differing bits fit a byte.
const BYTE_PLANES: usize = 60;
/// Planes after which [`below_255`] checks whether a group can be left.
const CHECK_PLANES: usize = 16;

/// One nibble of each row of a group.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [u8; LINE_ROWS]);

/// For each plane and each of four queries: what the sixteen values of a nibble add.
pub(crate) type Lookups = Vec<[[u8; 16]; 4]>;

/// For one plane and two pairs of queries: in how many bits the sixteen values of a nibble differ from the queries'. The
/// lower nibble of an entry is for the first of a pair, the upper for the second.
pub(crate) type PairTables = [[u8; 16]; 2];

/// What [`seek`] found.
pub(crate) struct Near {
    pub(crate) group: usize,
    /// For each query, a bit for each row that is nearer than its limit.
    pub(crate) masks: [u64; 4],
    /// What is known of all rows.
    sums: Sums,
}

#[expect(clippy::large_enum_variant, reason = "the larger one is what nearly all groups have")]
enum Sums {
    /// For each query the sums, and where they started.
    Bytes([Line; 4], [u8; 4]),
    Distances(Box<[[u32; LINE_ROWS]; 4]>),
}

impl Near {
    /// The distance between a query and a row whose bit is set.
    pub(crate) fn distance(&self, query: usize, row: usize) -> u32 {
        match &self.sums {
            Sums::Bytes(sums, starts) => u32::from(sums[query].0[row] - starts[query]),
            Sums::Distances(distances) => distances[query][row],
        }
    }
}

/// Transposes rows into nibble planes, group by group; rows that are missing in the last group are 0.
pub(crate) fn transpose(isa: Isa, table: Table<'_>, planes: &mut [Line]) {
    dispatch_popcnt!(isa, transpose_plain(table: Table<'_>, planes: &mut [Line]) -> ())
}

/// Searches the groups from number `from` on for the first with a row nearer to one of four queries than its limit.
/// After `early` planes it is checked whether a group can be left.
#[inline]
pub(crate) fn seek(
    isa: Isa,
    tables: &[PairTables],
    planes: &[Line],
    from: usize,
    limits: [u32; 4],
    early: usize,
) -> Option<Near> {
    dispatch_bytes!(isa, seek_by or seek_plain(
        tables: &[PairTables], planes: &[Line], from: usize, limits: [u32; 4], early: usize
    ) -> Option<Near>)
}

/// For the first `queries` queries, a bit for each row of the group whose sum ends below 255; the other masks may be
/// anything. Sums begin at `starts`. No two neighbouring planes may add more than 255 together.
#[inline]
pub(crate) fn below_255(
    isa: Isa,
    lookups: &Lookups,
    planes: &[Line],
    starts: &[Line; 4],
    queries: usize,
) -> [u64; 4] {
    if queries == 1 {
        dispatch_bytes!(isa, below_255_one or below_255_plain(
            lookups: &Lookups, planes: &[Line], starts: &[Line; 4]
        ) -> [u64; 4])
    } else {
        dispatch_bytes!(isa, below_255_four or below_255_plain(
            lookups: &Lookups, planes: &[Line], starts: &[Line; 4]
        ) -> [u64; 4])
    }
}

/// Writes where the sums of a group's rows start: for each row `at + a * by[0] + b * by[1]`, rounded down and clamped to a
/// byte. Returns a bit for each row where it is below 0 or not a number.
#[inline]
pub(crate) fn starts(
    isa: Isa,
    [a, b]: [&[f32; LINE_ROWS]; 2],
    at: f32,
    by: [f32; 2],
    out: &mut Line,
) -> u64 {
    match isa.bytes() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: both tokens prove AVX2.
        super::isa::ByteSet::Avx2(_) | super::isa::ByteSet::Avx512(_) => unsafe {
            super::x86_64::avx2::starts(a, b, at, by, out)
        },
        _ => starts_plain(a, b, at, by, out),
    }
}

/// Adds the differing bits of some planes to the sums of each row and query.
#[inline(always)]
unsafe fn add_differing<B: ByteVector>(sums: &mut [B; 4], tables: &[PairTables], planes: &[Line]) {
    let (tables, last) = tables.as_chunks::<PACKED_PLANES>();
    let (planes, rest) = planes.as_chunks::<PACKED_PLANES>();
    for ([a, b, c], lines) in tables.iter().zip(planes) {
        for pair in 0..2 {
            // SAFETY: the caller has the features; so below.
            unsafe {
                let [x, y, z] = B::reload(lines);
                let two = B::load(x).look_up(&a[pair]).add(B::load(y).look_up(&b[pair]));
                add_packed(sums, pair, two.add(B::load(z).look_up(&c[pair])));
            }
        }
    }
    for (tables, line) in last.iter().zip(rest) {
        for (pair, table) in tables.iter().enumerate() {
            // SAFETY: see above.
            unsafe { add_packed(sums, pair, B::load(line).look_up(table)) };
        }
    }
}

/// Adds the counts of a pair of queries.
#[inline(always)]
unsafe fn add_packed<B: ByteVector>(sums: &mut [B; 4], pair: usize, packed: B) {
    // SAFETY: the caller has the features.
    unsafe {
        let [low, high] = packed.nibbles();
        sums[2 * pair] = sums[2 * pair].saturating_add(low);
        sums[2 * pair + 1] = sums[2 * pair + 1].saturating_add(high);
    }
}

/// Adds what the tables say of some planes to the sums of each row and query. The number of planes is even, and no two
/// neighbours may add more than 255 together.
#[inline(always)]
unsafe fn add_lookups<B: ByteVector, const N: usize>(
    sums: &mut [B; N],
    tables: &[[[u8; 16]; 4]],
    planes: &[Line],
) {
    let (tables, planes) = (tables.as_chunks::<2>().0, planes.as_chunks::<2>().0);
    for ([low, high], lines) in tables.iter().zip(planes) {
        // SAFETY: the caller has the features.
        unsafe {
            let rows = [B::load(&lines[0]), B::load(&lines[1])];
            for (q, sum) in sums.iter_mut().enumerate() {
                *sum = sum.saturating_add(rows[0].look_up(&low[q]).add(rows[1].look_up(&high[q])));
            }
        }
    }
}

#[inline(always)]
unsafe fn store<B: ByteVector>(sums: [B; 4]) -> [Line; 4] {
    let [a, b, c, d] = sums;
    // SAFETY: the caller has the features.
    unsafe { [a.store(), b.store(), c.store(), d.store()] }
}

/// Whether every sum has reached 255.
#[inline(always)]
unsafe fn all_far<B: ByteVector, const N: usize>(sums: &[B; N]) -> bool {
    let mut all = sums[0];
    // SAFETY: the caller has the features.
    unsafe {
        for sum in &sums[1..] {
            all = all.and(*sum);
        }
        all.not_255() == 0
    }
}

#[inline(always)]
unsafe fn seek_by<B: ByteVector>(
    tables: &[PairTables],
    planes: &[Line],
    from: usize,
    limits: [u32; 4],
    early: usize,
) -> Option<Near> {
    if limits.iter().any(|limit| *limit > BYTE_LIMIT) {
        // SAFETY: the caller has the features.
        return unsafe { seek_far_by::<B>(tables, planes, from, limits) };
    }
    let starts = limits.map(|limit| (BYTE_LIMIT - limit) as u8);
    let (first, second) = tables.split_at(early);
    for (group, lines) in planes.chunks_exact(tables.len()).enumerate().skip(from) {
        let (near, rest) = lines.split_at(early);
        // SAFETY: the caller has the features.
        unsafe {
            let mut sums = [B::splat(0); 4];
            for (sum, start) in sums.iter_mut().zip(starts) {
                *sum = B::splat(start);
            }
            add_differing(&mut sums, first, near);
            if all_far(&sums) {
                continue;
            }
            if !rest.is_empty() {
                add_differing(&mut sums, second, rest);
                if all_far(&sums) {
                    continue;
                }
            }
            let mut masks = [0; 4];
            for (mask, sum) in masks.iter_mut().zip(sums) {
                *mask = sum.not_255();
            }
            return Some(Near { group, masks, sums: Sums::Bytes(store(sums), starts) });
        }
    }
    None
}

/// The same for limits that do not fit bytes.
#[inline(always)]
unsafe fn seek_far_by<B: ByteVector>(
    tables: &[PairTables],
    planes: &[Line],
    from: usize,
    limits: [u32; 4],
) -> Option<Near> {
    'groups: for (group, lines) in planes.chunks_exact(tables.len()).enumerate().skip(from) {
        let mut totals = [[0u32; LINE_ROWS]; 4];
        let mut nearest = [u32::MAX; 4];
        for (tables, planes) in tables.chunks(BYTE_PLANES).zip(lines.chunks(BYTE_PLANES)) {
            // SAFETY: the caller has the features.
            let sums = unsafe {
                let mut sums = [B::splat(0); 4];
                add_differing(&mut sums, tables, planes);
                store(sums)
            };
            for ((totals, sums), nearest) in totals.iter_mut().zip(&sums).zip(&mut nearest) {
                for (total, sum) in totals.iter_mut().zip(&sums.0) {
                    *total += u32::from(*sum);
                }
                *nearest = totals.iter().copied().min().unwrap_or(0);
            }
            if nearest.iter().zip(limits).all(|(nearest, limit)| *nearest >= limit) {
                continue 'groups;
            }
        }
        return Some(from_distances(group, totals, limits));
    }
    None
}

#[inline(always)]
fn from_distances(group: usize, distances: [[u32; LINE_ROWS]; 4], limits: [u32; 4]) -> Near {
    let near = |q: usize| {
        let rows = distances[q].iter().enumerate();
        rows.fold(0, |mask, (row, distance)| mask | u64::from(*distance < limits[q]) << row)
    };
    let masks = std::array::from_fn(near);
    Near { group, masks, sums: Sums::Distances(Box::new(distances)) }
}

/// The scalar twin of [`seek`], which leaves no group early.
#[inline(never)]
fn seek_plain(
    tables: &[PairTables],
    planes: &[Line],
    from: usize,
    limits: [u32; 4],
    _: usize,
) -> Option<Near> {
    for (group, lines) in planes.chunks_exact(tables.len()).enumerate().skip(from) {
        let distances: [[u32; LINE_ROWS]; 4] = std::array::from_fn(|q| {
            std::array::from_fn(|row| {
                let planes = lines.iter().zip(tables);
                let both = planes.map(|(line, tables)| tables[q / 2][line.0[row] as usize]);
                both.map(|both| u32::from(both >> (4 * (q % 2)) & 15)).sum()
            })
        });
        let near = from_distances(group, distances, limits);
        if near.masks != [0; 4] {
            return Some(near);
        }
    }
    None
}

#[inline(always)]
unsafe fn below_255_one<B: ByteVector>(
    lookups: &Lookups,
    planes: &[Line],
    starts: &[Line; 4],
) -> [u64; 4] {
    // SAFETY: the caller has the features.
    unsafe { below_255_by::<B, 1>(lookups, planes, starts) }
}

#[inline(always)]
unsafe fn below_255_four<B: ByteVector>(
    lookups: &Lookups,
    planes: &[Line],
    starts: &[Line; 4],
) -> [u64; 4] {
    // SAFETY: the caller has the features.
    unsafe { below_255_by::<B, 4>(lookups, planes, starts) }
}

/// [`below_255`] for the first `N` queries.
#[inline(always)]
unsafe fn below_255_by<B: ByteVector, const N: usize>(
    lookups: &Lookups,
    planes: &[Line],
    starts: &[Line; 4],
) -> [u64; 4] {
    let mut masks = [0; 4];
    // SAFETY: the caller has the features.
    unsafe {
        let mut sums = [B::splat(0); N];
        for (sum, start) in sums.iter_mut().zip(starts) {
            *sum = B::load(start);
        }
        for (tables, planes) in lookups.chunks(CHECK_PLANES).zip(planes.chunks(CHECK_PLANES)) {
            add_lookups(&mut sums, tables, planes);
            if all_far(&sums) {
                return masks;
            }
        }
        for (mask, sum) in masks.iter_mut().zip(sums) {
            *mask = sum.not_255();
        }
    }
    masks
}

/// The scalar twin of [`below_255`].
#[inline(never)]
fn below_255_plain(lookups: &Lookups, planes: &[Line], starts: &[Line; 4]) -> [u64; 4] {
    std::array::from_fn(|q| {
        (0..LINE_ROWS).fold(0, |mask, row| {
            let sum = planes.iter().zip(lookups).fold(starts[q].0[row], |sum, (line, tables)| {
                sum.saturating_add(tables[q][line.0[row] as usize])
            });
            mask | u64::from(sum < 255) << row
        })
    })
}

/// The scalar twin of [`starts`].
fn starts_plain(
    a: &[f32; LINE_ROWS],
    b: &[f32; LINE_ROWS],
    at: f32,
    by: [f32; 2],
    out: &mut Line,
) -> u64 {
    let mut mask = 0;
    for (row, out) in out.0.iter_mut().enumerate() {
        let start = at + a[row] * by[0] + b[row] * by[1];
        // The cast clamps, and makes 0 of what is not a number.
        *out = start as u8;
        mask |= u64::from(start < 0.0 || start.is_nan()) << row;
    }
    mask
}

/// [`transpose`]: compilers vectorise it well.
#[inline(always)]
fn transpose_plain(table: Table<'_>, planes: &mut [Line]) {
    let width = table.width();
    for (g, planes) in planes.chunks_exact_mut(2 * width).enumerate() {
        let rows = table.part(g * LINE_ROWS, table.len().min((g + 1) * LINE_ROWS));
        for (w, planes) in planes.chunks_mut(16).enumerate() {
            // Word `w` of row 8 o + i is words[i][o].
            let mut words = [[0u64; 8]; 8];
            for (r, row) in rows.data().chunks_exact(width).enumerate() {
                words[r % 8][r / 8] = match row[8 * w..].first_chunk::<8>() {
                    Some(bytes) => u64::from_le_bytes(*bytes),
                    None => row[8 * w..].iter().rev().fold(0, |x, b| x << 8 | u64::from(*b)),
                };
            }
            swap_blocks::<4>(&mut words, 0x0000_0000_ffff_ffff);
            swap_blocks::<2>(&mut words, 0x0000_ffff_0000_ffff);
            swap_blocks::<1>(&mut words, 0x00ff_00ff_00ff_00ff);
            for (pair, words) in planes.chunks_exact_mut(2).zip(&words) {
                for (o, word) in words.iter().enumerate() {
                    const LOW: u64 = 0x0f0f_0f0f_0f0f_0f0f;
                    pair[0].0[8 * o..8 * o + 8].copy_from_slice(&(word & LOW).to_le_bytes());
                    pair[1].0[8 * o..8 * o + 8].copy_from_slice(&(word >> 4 & LOW).to_le_bytes());
                }
            }
        }
    }
}

/// One of the three steps that transpose squares of 8 x 8 bytes: off-diagonal blocks of `SIZE` x `SIZE` bytes are swapped.
#[inline(always)]
fn swap_blocks<const SIZE: usize>(words: &mut [[u64; 8]; 8], low: u64) {
    for i in (0..8).filter(|i| i & SIZE == 0) {
        let (upper, lower) = words.split_at_mut(i + SIZE);
        for (a, b) in upper[i].iter_mut().zip(&mut lower[0]) {
            let both = (*a >> (8 * SIZE) ^ *b) & low;
            *a ^= both << (8 * SIZE);
            *b ^= both;
        }
    }
}

#[cfg(test)]
mod tests;
