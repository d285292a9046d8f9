//! The kernels for NEON, which every aarch64 has: rows of 8 and 16 bytes by `cnt`, and
//! [`planes`](crate::search::hamming::planes) by `tbl`. Rows of other widths are left to the compiler.

use crate::search::hamming::kernel::{Table, Turns, distances_plain, seek_plain};
use crate::search::hamming::planes::{
    Bytes, Line, Lookups, Near, Quad, ROWS, below_255_by, seek_planes_by,
};
use core::arch::aarch64::*;

/// Bits in which 16 bytes at `at` differ from the query, byte by byte.
#[inline(always)]
unsafe fn differing(query: uint8x16_t, at: *const u8) -> uint8x16_t {
    // SAFETY: the caller points at 16 readable bytes.
    unsafe { vcntq_u8(veorq_u8(query, vld1q_u8(at))) }
}

/// The distances of sixteen rows of `WIDTH` bytes, 8 or 16, as bytes.
#[inline(always)]
unsafe fn sixteen<const WIDTH: usize>(query: uint8x16_t, at: *const u8) -> uint8x16_t {
    // SAFETY: the caller points at sixteen rows. A row has at most 128 bits, so sums of neighbours stay bytes.
    unsafe {
        let one = |i: usize| differing(query, at.add(16 * i));
        let two = |i: usize| vpaddq_u8(one(i), one(i + 1));
        let four = |i: usize| vpaddq_u8(two(i), two(i + 2));
        let eight = |i: usize| vpaddq_u8(four(i), four(i + 4));
        if WIDTH == 8 { eight(0) } else { vpaddq_u8(eight(0), eight(8)) }
    }
}

/// The query, twice if it is short.
#[inline(always)]
unsafe fn whole<const WIDTH: usize>(query: &[u8]) -> uint8x16_t {
    // SAFETY: the caller's query has `WIDTH` bytes.
    unsafe {
        if WIDTH == 8 {
            let half = vld1_u8(query.as_ptr());
            vcombine_u8(half, half)
        } else {
            vld1q_u8(query.as_ptr())
        }
    }
}

/// A bit for each byte whose highest bit is set, of bytes that are 0 or 255.
#[inline(always)]
unsafe fn bits(x: uint8x16_t) -> u64 {
    const BITS: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
    // SAFETY: NEON is always there; the table is a register.
    unsafe {
        let x = vandq_u8(x, vld1q_u8(BITS.as_ptr()));
        let (low, high) = (vaddv_u8(vget_low_u8(x)), vaddv_u8(vget_high_u8(x)));
        u64::from(low) | u64::from(high) << 8
    }
}

#[inline(always)]
unsafe fn distances_by<const WIDTH: usize>(query: &[u8], table: Table<'_>, out: &mut [u32]) {
    let full = table.len() / 16 * 16;
    // SAFETY: rows up to `full` are in the table, `out` is as long.
    unsafe {
        let query = whole::<WIDTH>(query);
        for i in (0..full).step_by(16) {
            let mut found = [0; 16];
            let near = sixteen::<WIDTH>(query, table.data().as_ptr().add(i * WIDTH));
            vst1q_u8(found.as_mut_ptr(), near);
            out[i..i + 16].copy_from_slice(&found.map(u32::from));
        }
    }
    distances_plain(query, table.part(full, table.len()), &mut out[full..]);
}

/// [`crate::search::hamming::kernel::distances`], for a query as wide as the table and one place for each row.
pub(crate) fn distances(query: &[u8], table: Table<'_>, out: &mut [u32]) {
    assert!(query.len() == table.width() && out.len() == table.len());
    // SAFETY: the lengths were checked, and each kind has its width.
    unsafe {
        match query.len() {
            8 => distances_by::<8>(query, table, out),
            16 => distances_by::<16>(query, table, out),
            _ => distances_plain(query, table, out),
        }
    }
}

#[inline(always)]
unsafe fn seek_by<const WIDTH: usize>(
    query: &[u8],
    table: Table<'_>,
    from: usize,
    limit: u32,
) -> Option<(usize, u64)> {
    let turns = Turns::new(table);
    // SAFETY: the loop stays among whole groups of the table.
    unsafe {
        let near = whole::<WIDTH>(query);
        // No distance reaches 255.
        let limits = vdupq_n_u8(limit.min(255) as u8);
        for turn in from..turns.whole {
            let at = table.data().as_ptr().add(turns.first(turn) * WIDTH);
            let low = vcltq_u8(sixteen::<WIDTH>(near, at), limits);
            let high = vcltq_u8(sixteen::<WIDTH>(near, at.add(16 * WIDTH)), limits);
            if vmaxvq_u8(vorrq_u8(low, high)) != 0 {
                return Some((turn, bits(low) | bits(high) << 16));
            }
        }
    }
    seek_plain(query, table, from.max(turns.whole), limit)
}

/// [`crate::search::hamming::kernel::seek`], for a query as wide as the table.
pub(crate) fn seek(
    query: &[u8],
    table: Table<'_>,
    from: usize,
    limit: u32,
) -> Option<(usize, u64)> {
    assert!(query.len() == table.width());
    // SAFETY: the length was checked, and each kind has its width.
    unsafe {
        match query.len() {
            8 => seek_by::<8>(query, table, from, limit),
            16 => seek_by::<16>(query, table, from, limit),
            _ => seek_plain(query, table, from, limit),
        }
    }
}

/// Four registers are a line.
#[derive(Clone, Copy)]
struct Four([uint8x16_t; 4]);

impl Bytes for Four {
    #[inline(always)]
    unsafe fn load(line: &Line) -> Self {
        // SAFETY: a line is four registers.
        Self(std::array::from_fn(|i| unsafe { vld1q_u8(line.0.as_ptr().add(16 * i)) }))
    }
    #[inline(always)]
    unsafe fn splat(byte: u8) -> Self {
        // SAFETY: NEON is always there; so below.
        Self([unsafe { vdupq_n_u8(byte) }; 4])
    }
    #[inline(always)]
    unsafe fn look_up(self, table: &[u8; 16]) -> Self {
        // SAFETY: a table is a register.
        unsafe {
            let table = vld1q_u8(table.as_ptr());
            Self(self.0.map(|x| vqtbl1q_u8(table, x)))
        }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: see `splat`.
        Self(std::array::from_fn(|i| unsafe { vaddq_u8(self.0[i], other.0[i]) }))
    }
    #[inline(always)]
    unsafe fn add_up(self, other: Self) -> Self {
        // SAFETY: see `splat`.
        Self(std::array::from_fn(|i| unsafe { vqaddq_u8(self.0[i], other.0[i]) }))
    }
    #[inline(always)]
    unsafe fn halves(self) -> [Self; 2] {
        // SAFETY: see `splat`.
        unsafe {
            let low = vdupq_n_u8(15);
            [Self(self.0.map(|x| vandq_u8(x, low))), Self(self.0.map(|x| vshrq_n_u8::<4>(x)))]
        }
    }
    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        // SAFETY: see `splat`.
        Self(std::array::from_fn(|i| unsafe { vandq_u8(self.0[i], other.0[i]) }))
    }
    #[inline(always)]
    unsafe fn store(self) -> Line {
        let mut line = Line([0; ROWS]);
        for (part, x) in line.0.chunks_exact_mut(16).zip(self.0) {
            // SAFETY: a part is a register.
            unsafe { vst1q_u8(part.as_mut_ptr(), x) };
        }
        line
    }
    #[inline(always)]
    unsafe fn near(self) -> u64 {
        // SAFETY: see `splat`.
        unsafe {
            let far = self.0.map(|x| vceqq_u8(x, vdupq_n_u8(255)));
            let all = vandq_u8(vandq_u8(far[0], far[1]), vandq_u8(far[2], far[3]));
            if vminvq_u8(all) == 255 {
                return 0;
            }
            let masks = far.map(|x| bits(vmvnq_u8(x)));
            masks[0] | masks[1] << 16 | masks[2] << 32 | masks[3] << 48
        }
    }
}

/// [`crate::search::hamming::planes::Planes::seek`]
pub(crate) fn seek_planes(
    quad: &Quad,
    planes: &[Line],
    from: usize,
    limits: [u32; 4],
    early: usize,
) -> Option<Near> {
    // SAFETY: NEON is always there.
    unsafe { seek_planes_by::<Four>(quad, planes, from, limits, early) }
}

/// [`crate::search::hamming::planes::Planes::below`], for the first `N` queries.
pub(crate) fn below_255<const N: usize>(
    lookups: &Lookups,
    planes: &[Line],
    starts: &[Line; 4],
) -> [u64; 4] {
    // SAFETY: NEON is always there.
    unsafe { below_255_by::<Four, N>(lookups, planes, starts) }
}
