//! Rows turned into planes, for many queries at once.
//!
//! Half byte `j` of 64 neighbouring rows lies together as one line of 64 bytes. The distance that half
//! byte `j` adds, for one query, is a function of its sixteen values: a table that fits a register, so one
//! lookup (`vpshufb`) gives it for 32 rows, and for two queries at once: a half byte adds at most 4, so a byte has room
//! for what three planes add for two queries, four bits each. Counting bits in place takes more than twice
//! as many instructions, and sums across registers at the end. Turning costs as much as some ten queries.
//!
//! **Leaving early.** Sums are bytes that begin at `255 - limit` and stop at 255, so a row is nearer than
//! the limit exactly when its sum ends below 255, and a group of 64 rows is done with as soon as all its
//! sums are 255. Bits of far rows differ about every second time; the planes after which a group is
//! expected to be done with follow from the limit ([`early`]), and are all that most groups need. Limits above 255
//! do not fit; there, bytes are added up to larger numbers every 60 planes.

use super::kernel::{Isa, Set, Table};
#[cfg(target_arch = "aarch64")]
use crate::arch::aarch64::hamming_neon;
#[cfg(target_arch = "x86_64")]
use crate::arch::x86_64::{hamming_avx2, hamming_avx512};

/// Rows of a group: a line of memory for each plane.
pub(crate) const ROWS: usize = 64;
/// Limits above this do not fit sums of bytes.
const LIMIT: u32 = 255;

/// One plane of a group.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [u8; ROWS]);

/// For each plane and each of four queries: what the sixteen half bytes add.
pub(crate) type Lookups = Vec<[[u8; 16]; 4]>;

/// Four queries: for each plane and two of them, the bits in which the sixteen half bytes differ from their own; the
/// second one's in the upper four bits.
pub(crate) struct Quad {
    tables: Vec<[[u8; 16]; 2]>,
}

/// Planes whose differing bits fit four bits: each adds at most 4.
const PACKED: usize = 3;

impl Quad {
    /// Bytes of tables for each byte of a query.
    pub(crate) const BYTES: usize = 16;

    /// Up to four queries; the places of missing ones stay unused.
    pub(crate) fn new(queries: Table<'_>) -> Self {
        assert!(queries.len() <= 4);
        let mut tables = vec![[[0; 16]; 2]; 2 * queries.width()];
        for q in 0..queries.len() {
            for (byte, pair) in queries.row(q).iter().zip(tables.chunks_exact_mut(2)) {
                for (table, half) in pair.iter_mut().zip([byte & 15, byte >> 4]) {
                    for (x, entry) in (0..).zip(&mut table[q / 2]) {
                        *entry |= ((x ^ half).count_ones() as u8) << (4 * (q % 2));
                    }
                }
            }
        }
        Self { tables }
    }
}

/// The rows of a group that are near.
pub(crate) struct Near {
    pub(crate) group: usize,
    /// For each query, a bit for each row that is nearer than its limit.
    pub(crate) masks: [u64; 4],
    /// What is known of all rows.
    sums: Sums,
}

#[expect(clippy::large_enum_variant, reason = "the larger one is what nearly all groups have")]
enum Sums {
    /// Bytes that began at so much.
    Bytes([Line; 4], [u8; 4]),
    Distances(Box<[[u32; ROWS]; 4]>),
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

/// Some rows as planes, always of the same width.
#[derive(Default)]
pub(crate) struct Planes {
    lines: Vec<Line>,
    rows: usize,
    /// What [`early`] gives for each limit.
    early: Vec<usize>,
}

impl Planes {
    /// Turns the rows of a table, in place of those before.
    pub(crate) fn turn(&mut self, isa: Isa, table: Table<'_>) {
        let lines = table.len().div_ceil(ROWS) * 2 * table.width();
        self.lines.resize(lines, Line([0; ROWS]));
        self.rows = table.len();
        if self.early.is_empty() {
            self.early = (0..=LIMIT).map(|limit| early(limit, 2 * table.width())).collect();
        }
        match isa.set() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: an `Isa` exists only where the CPU has it, and AVX-512 comes with AVX2.
            Set::Avx2 | Set::Avx512 => unsafe { hamming_avx2::turn(table, &mut self.lines) },
            _ => turn_plain(table, &mut self.lines),
        }
    }

    /// Of the rows of a group, those whose sums stay below 255, a bit for each, for up to four queries. A sum
    /// begins at the row's own start. No two neighbouring planes may add more than 255 together.
    pub(crate) fn below(
        &self,
        isa: Isa,
        lookups: &Lookups,
        group: usize,
        starts: &[Line; 4],
        queries: usize,
    ) -> [u64; 4] {
        let lines = &self.lines[group * lookups.len()..][..lookups.len()];
        match (isa.set(), queries) {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as in `turn`; so below.
            (Set::Avx2, 1) => unsafe { hamming_avx2::below_255::<1>(lookups, lines, starts) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: see above.
            (Set::Avx2, _) => unsafe { hamming_avx2::below_255::<4>(lookups, lines, starts) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: see above.
            (Set::Avx512, 1) => unsafe { hamming_avx512::below_255::<1>(lookups, lines, starts) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: see above.
            (Set::Avx512, _) => unsafe { hamming_avx512::below_255::<4>(lookups, lines, starts) },
            #[cfg(target_arch = "aarch64")]
            (Set::Neon, 1) => hamming_neon::below_255::<1>(lookups, lines, starts),
            #[cfg(target_arch = "aarch64")]
            (Set::Neon, _) => hamming_neon::below_255::<4>(lookups, lines, starts),
            (Set::Portable, _) => below_plain(lookups, lines, starts),
        }
    }

    /// Looks at groups of [`ROWS`] rows from group `from` on, and stops at the first with a row nearer to one
    /// of the queries than its limit (0 for queries that are missing).
    pub(crate) fn seek(
        &self,
        isa: Isa,
        quad: &Quad,
        from: usize,
        limits: [u32; 4],
    ) -> Option<Near> {
        let early = |limit: u32| self.early[limit.min(LIMIT) as usize];
        let early = limits.into_iter().map(early).max().unwrap_or(0);
        let lines = &self.lines[..];
        let mut near = match isa.set() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as in `turn`.
            Set::Avx2 => unsafe { hamming_avx2::seek_planes(quad, lines, from, limits, early) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as in `turn`.
            Set::Avx512 => unsafe { hamming_avx512::seek_planes(quad, lines, from, limits, early) },
            #[cfg(target_arch = "aarch64")]
            Set::Neon => hamming_neon::seek_planes(quad, lines, from, limits, early),
            Set::Portable => seek_plain(quad, lines, from, limits),
        }?;
        let end = (near.group + 1) * ROWS;
        if end > self.rows {
            let filled = u64::MAX >> (end - self.rows);
            near.masks = near.masks.map(|mask| mask & filled);
        }
        Some(near)
    }
}

/// Planes after which all 256 sums of a group will have reached the limit nine times in ten, if bits of far
/// rows are fair coins: the least b with b/2 - 3.3 sqrt(b)/2 >= limit, as half bytes.
fn early(limit: u32, planes: usize) -> usize {
    let root = (3.3 + (3.3f32 * 3.3 + 8.0 * limit as f32).sqrt()) / 2.0;
    let enough = PACKED * (root * root / (4 * PACKED) as f32).ceil() as usize;
    // Looking twice for the sake of a few planes does not pay.
    if enough + planes / 16 < planes { enough } else { planes }
}

/// The definition of what [`Planes::below`] finds.
fn below_plain(lookups: &Lookups, lines: &[Line], starts: &[Line; 4]) -> [u64; 4] {
    std::array::from_fn(|q| {
        (0..ROWS).fold(0, |mask, row| {
            let sum = lines.iter().zip(lookups).fold(starts[q].0[row], |sum, (line, tables)| {
                sum.saturating_add(tables[q][line.0[row] as usize])
            });
            mask | u64::from(sum < 255) << row
        })
    })
}

/// Bytes at which the sums of a group's rows begin: `at + a * by[0] + b * by[1]` for each row, down to a whole
/// number from 0 to 255; and a bit for each row where it is below 0, or no number.
pub(crate) fn starts(
    isa: Isa,
    [a, b]: [&[f32; ROWS]; 2],
    at: f32,
    by: [f32; 2],
    out: &mut Line,
) -> u64 {
    match isa.set() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as in `Planes::turn`.
        Set::Avx2 | Set::Avx512 => unsafe { hamming_avx2::starts(a, b, at, by, out) },
        _ => starts_plain(a, b, at, by, out),
    }
}

/// A byte for each row of a group. All methods need the instruction set that the type stands for.
pub(crate) trait Bytes: Copy {
    unsafe fn load(line: &Line) -> Self;
    unsafe fn splat(byte: u8) -> Self;
    /// The same lines, for registers that cannot keep them and the sums: they are then loaded again.
    #[inline(always)]
    unsafe fn again<T>(lines: &T) -> &T {
        lines
    }
    /// What the table says of each half byte.
    unsafe fn look_up(self, table: &[u8; 16]) -> Self;
    /// The sums, of which none may be above 255.
    unsafe fn add(self, other: Self) -> Self;
    /// The sums, up to 255.
    unsafe fn add_up(self, other: Self) -> Self;
    /// The lower and the upper four bits of each byte.
    unsafe fn halves(self) -> [Self; 2];
    unsafe fn and(self, other: Self) -> Self;
    unsafe fn store(self) -> Line;
    /// A bit for each byte that is not 255.
    unsafe fn near(self) -> u64;
}

/// Adds, for each row and query, what the half bytes of some planes are looked up to: an even number of planes, of which
/// no two neighbours may add more than 255.
#[inline(always)]
unsafe fn add_planes<B: Bytes, const N: usize>(
    sums: &mut [B; N],
    tables: &[[[u8; 16]; 4]],
    planes: &[Line],
) {
    let (tables, planes) = (tables.as_chunks::<2>().0, planes.as_chunks::<2>().0);
    for ([low, high], lines) in tables.iter().zip(planes) {
        // SAFETY: the caller has the instruction set.
        unsafe {
            let rows = [B::load(&lines[0]), B::load(&lines[1])];
            for (q, sum) in sums.iter_mut().enumerate() {
                *sum = sum.add_up(rows[0].look_up(&low[q]).add(rows[1].look_up(&high[q])));
            }
        }
    }
}

/// Adds, for each row and query, the bits in which some planes differ.
#[inline(always)]
unsafe fn add_differing<B: Bytes>(sums: &mut [B; 4], tables: &[[[u8; 16]; 2]], planes: &[Line]) {
    let (tables, last) = tables.as_chunks::<PACKED>();
    let (planes, rest) = planes.as_chunks::<PACKED>();
    // SAFETY: the caller has the instruction set; so below.
    let add = |sums: &mut [B; 4], pair: usize, packed: B| unsafe {
        let [low, high] = packed.halves();
        sums[2 * pair] = sums[2 * pair].add_up(low);
        sums[2 * pair + 1] = sums[2 * pair + 1].add_up(high);
    };
    for ([a, b, c], lines) in tables.iter().zip(planes) {
        for pair in 0..2 {
            // SAFETY: see above.
            let packed = unsafe {
                let [x, y, z] = B::again(lines);
                let two = B::load(x).look_up(&a[pair]).add(B::load(y).look_up(&b[pair]));
                two.add(B::load(z).look_up(&c[pair]))
            };
            add(sums, pair, packed);
        }
    }
    for (tables, line) in last.iter().zip(rest) {
        for (pair, table) in tables.iter().enumerate() {
            // SAFETY: see above.
            add(sums, pair, unsafe { B::load(line).look_up(table) });
        }
    }
}

/// Whether every sum has reached 255.
#[inline(always)]
unsafe fn all_far<B: Bytes, const N: usize>(sums: &[B; N]) -> bool {
    // SAFETY: the caller has the instruction set.
    unsafe { sums[1..].iter().fold(sums[0], |all, sum| all.and(*sum)).near() == 0 }
}

/// [`Planes::seek`] by registers.
#[inline(always)]
pub(crate) unsafe fn seek_planes_by<B: Bytes>(
    quad: &Quad,
    planes: &[Line],
    from: usize,
    limits: [u32; 4],
    early: usize,
) -> Option<Near> {
    if limits.iter().any(|limit| *limit > LIMIT) {
        // SAFETY: the caller has the instruction set.
        return unsafe { seek_far_by::<B>(quad, planes, from, limits) };
    }
    let starts = limits.map(|limit| (LIMIT - limit) as u8);
    let (first, second) = quad.tables.split_at(early);
    for (group, lines) in planes.chunks_exact(quad.tables.len()).enumerate().skip(from) {
        let (near, rest) = lines.split_at(early);
        // SAFETY: the caller has the instruction set.
        unsafe {
            let mut sums = starts.map(|start| B::splat(start));
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
            let masks = sums.map(|sum| sum.near());
            let sums = Sums::Bytes(sums.map(|sum| sum.store()), starts);
            return Some(Near { group, masks, sums });
        }
    }
    None
}

/// Planes whose sums fit bytes: each adds at most 4.
const BYTES: usize = 60;

/// The same for limits that bytes do not hold: sums of some planes at a time are added up.
#[inline(always)]
unsafe fn seek_far_by<B: Bytes>(
    quad: &Quad,
    planes: &[Line],
    from: usize,
    limits: [u32; 4],
) -> Option<Near> {
    'groups: for (group, lines) in planes.chunks_exact(quad.tables.len()).enumerate().skip(from) {
        let mut totals = [[0u32; ROWS]; 4];
        let mut nearest = [u32::MAX; 4];
        for (tables, planes) in quad.tables.chunks(BYTES).zip(lines.chunks(BYTES)) {
            // SAFETY: the caller has the instruction set.
            let sums = unsafe {
                let mut sums = [B::splat(0); 4];
                add_differing(&mut sums, tables, planes);
                sums.map(|sum| sum.store())
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
        let near = |q: usize| {
            let rows = totals[q].iter().enumerate();
            rows.fold(0, |mask, (row, total)| mask | u64::from(*total < limits[q]) << row)
        };
        let masks = std::array::from_fn(near);
        return Some(Near { group, masks, sums: Sums::Distances(Box::new(totals)) });
    }
    None
}

/// Planes after which it is looked whether a group is done with.
const STRETCH: usize = 16;

/// [`Planes::below`] by registers, for the first `N` queries.
#[inline(always)]
pub(crate) unsafe fn below_255_by<B: Bytes, const N: usize>(
    lookups: &Lookups,
    planes: &[Line],
    starts: &[Line; 4],
) -> [u64; 4] {
    let mut masks = [0; 4];
    // SAFETY: the caller has the instruction set.
    unsafe {
        let mut sums: [B; N] = std::array::from_fn(|q| B::load(&starts[q]));
        for (tables, planes) in lookups.chunks(STRETCH).zip(planes.chunks(STRETCH)) {
            add_planes(&mut sums, tables, planes);
            if all_far(&sums) {
                return masks;
            }
        }
        for (mask, sum) in masks.iter_mut().zip(sums) {
            *mask = sum.near();
        }
    }
    masks
}

fn starts_plain(a: &[f32; ROWS], b: &[f32; ROWS], at: f32, by: [f32; 2], out: &mut Line) -> u64 {
    let mut mask = 0;
    for (row, out) in out.0.iter_mut().enumerate() {
        let start = at + a[row] * by[0] + b[row] * by[1];
        // A cast takes the nearest byte, and 0 for what is no number.
        *out = start as u8;
        mask |= u64::from(start < 0.0 || start.is_nan()) << row;
    }
    mask
}

/// The definition of what [`Planes::seek`] finds.
fn seek_plain(quad: &Quad, planes: &[Line], from: usize, limits: [u32; 4]) -> Option<Near> {
    for (group, lines) in planes.chunks_exact(quad.tables.len()).enumerate().skip(from) {
        let distances: [[u32; ROWS]; 4] = std::array::from_fn(|q| {
            std::array::from_fn(|row| {
                let planes = lines.iter().zip(&quad.tables);
                let both = planes.map(|(line, tables)| tables[q / 2][line.0[row] as usize]);
                both.map(|both| u32::from(both >> (4 * (q % 2)) & 15)).sum()
            })
        });
        let near = |q: usize| {
            let rows = distances[q].iter().enumerate();
            rows.fold(0, |mask, (row, distance)| mask | u64::from(*distance < limits[q]) << row)
        };
        let masks = std::array::from_fn(near);
        if masks != [0; 4] {
            return Some(Near { group, masks, sums: Sums::Distances(Box::new(distances)) });
        }
    }
    None
}

/// Writes the planes of all rows, group by group; rows that are missing in the last one are 0.
#[inline(always)]
pub(crate) fn turn_plain(table: Table<'_>, planes: &mut [Line]) {
    let width = table.width();
    for (g, planes) in planes.chunks_exact_mut(2 * width).enumerate() {
        let rows = table.part(g * ROWS, table.len().min((g + 1) * ROWS));
        for (w, planes) in planes.chunks_mut(16).enumerate() {
            // Word `w` of row 8 o + i is words[i][o].
            let mut words = [[0u64; 8]; 8];
            for (r, row) in rows.data().chunks_exact(width).enumerate() {
                words[r % 8][r / 8] = match row[8 * w..].first_chunk::<8>() {
                    Some(bytes) => u64::from_le_bytes(*bytes),
                    None => row[8 * w..].iter().rev().fold(0, |x, b| x << 8 | u64::from(*b)),
                };
            }
            swap::<4>(&mut words, 0x0000_0000_ffff_ffff);
            swap::<2>(&mut words, 0x0000_ffff_0000_ffff);
            swap::<1>(&mut words, 0x00ff_00ff_00ff_00ff);
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

/// One of the three steps that turn a square of 8 x 8 bytes: blocks of `SIZE` bytes change places.
#[inline(always)]
fn swap<const SIZE: usize>(words: &mut [[u64; 8]; 8], low: u64) {
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
