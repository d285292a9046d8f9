//! Bytes in NEON.
//!
//! **Rows.** `cnt` counts the bits of 16 bytes; sums of neighbours (`addp`) follow until a byte is the distance of a row.
//! A register holds the distances of sixteen rows. There are only rows of 8 and 16 bytes: the others are left to the
//! compiler.
//!
//! **Nibble planes.** `tbl` looks up 16 bytes; a line is four registers.

use crate::arch::nibble_planes::{LINE_ROWS, Line};
use crate::arch::vector::{ByteVector, Distances, RowBlock, RowKernel};
use core::arch::aarch64::*;

/// For each byte of the query, in how many bits the byte at `at` differs from it.
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

/// A bit for each byte that is 255; the others must be 0.
#[inline(always)]
unsafe fn bits(x: uint8x16_t) -> u64 {
    const BITS: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
    // SAFETY: the caller has NEON; the table is a register long.
    unsafe {
        let x = vandq_u8(x, vld1q_u8(BITS.as_ptr()));
        let (low, high) = (vaddv_u8(vget_low_u8(x)), vaddv_u8(vget_high_u8(x)));
        u64::from(low) | u64::from(high) << 8
    }
}

/// Rows of `WIDTH` bytes, 8 or 16. A query of 8 bytes is there twice.
#[derive(Clone, Copy)]
struct Rows<const WIDTH: usize>(uint8x16_t);

impl<const WIDTH: usize> RowBlock for Rows<WIDTH> {
    type Distances = uint8x16_t;
    #[inline(always)]
    unsafe fn new(query: &[u8]) -> Self {
        // SAFETY: the caller's query has `WIDTH` bytes.
        unsafe {
            if WIDTH == 8 {
                let half = vld1_u8(query.as_ptr());
                Self(vcombine_u8(half, half))
            } else {
                Self(vld1q_u8(query.as_ptr()))
            }
        }
    }
    #[inline(always)]
    unsafe fn distances(&self, at: *const u8) -> uint8x16_t {
        // SAFETY: the caller points at sixteen rows of `WIDTH` bytes.
        unsafe { sixteen::<WIDTH>(self.0, at) }
    }
}

/// The distances of sixteen rows, as bytes.
impl Distances for uint8x16_t {
    const ROWS: usize = 16;
    #[inline(always)]
    unsafe fn splat(limit: u32) -> Self {
        // No distance reaches 255.
        let limit = limit.min(255) as u8;
        // SAFETY: the caller has NEON; so below.
        unsafe { vdupq_n_u8(limit) }
    }
    #[inline(always)]
    unsafe fn store(self, out: *mut u32) {
        let mut bytes = [0; 16];
        // SAFETY: the array is a register long.
        unsafe { vst1q_u8(bytes.as_mut_ptr(), self) };
        // SAFETY: the caller has room for sixteen numbers.
        unsafe { out.cast::<[u32; 16]>().write_unaligned(bytes.map(u32::from)) };
    }
    #[inline(always)]
    unsafe fn below(blocks: &[Self], limits: Self) -> u64 {
        // SAFETY: see `splat`.
        unsafe {
            let mut any = vdupq_n_u8(0);
            for block in blocks {
                any = vorrq_u8(any, vcltq_u8(*block, limits));
            }
            let mut mask = 0;
            if vmaxvq_u8(any) != 0 {
                for (i, block) in blocks.iter().enumerate() {
                    mask |= bits(vcltq_u8(*block, limits)) << (Self::ROWS * i);
                }
            }
            mask
        }
    }
}

/// A [`Line`] in four registers.
#[derive(Clone, Copy)]
pub(crate) struct ByteLine([uint8x16_t; 4]);

impl ByteVector for ByteLine {
    #[inline(always)]
    unsafe fn load(line: &Line) -> Self {
        // SAFETY: a line is four registers.
        Self(std::array::from_fn(|i| unsafe { vld1q_u8(line.0.as_ptr().add(16 * i)) }))
    }
    #[inline(always)]
    unsafe fn splat(byte: u8) -> Self {
        // SAFETY: the caller has NEON; so below.
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
    unsafe fn look_up_byte(self, table: &[u8; 256]) -> Self {
        // SAFETY: a table is four times four registers.
        unsafe {
            let part = |i: usize| vld1q_u8_x4(table.as_ptr().add(64 * i));
            let tables = [part(0), part(1), part(2), part(3)];
            Self(self.0.map(|x| {
                // An index beyond a part gives zero, and so does one before it, which wraps around.
                let of =
                    |i: u8| vqtbl4q_u8(tables[usize::from(i)], vsubq_u8(x, vdupq_n_u8(64 * i)));
                vorrq_u8(vorrq_u8(of(0), of(1)), vorrq_u8(of(2), of(3)))
            }))
        }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: see `splat`.
        Self(std::array::from_fn(|i| unsafe { vaddq_u8(self.0[i], other.0[i]) }))
    }
    #[inline(always)]
    unsafe fn saturating_add(self, other: Self) -> Self {
        // SAFETY: see `splat`.
        Self(std::array::from_fn(|i| unsafe { vqaddq_u8(self.0[i], other.0[i]) }))
    }
    #[inline(always)]
    unsafe fn nibbles(self) -> [Self; 2] {
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
        let mut line = Line([0; LINE_ROWS]);
        for (part, x) in line.0.chunks_exact_mut(16).zip(self.0) {
            // SAFETY: a part is a register.
            unsafe { vst1q_u8(part.as_mut_ptr(), x) };
        }
        line
    }
    #[inline(always)]
    unsafe fn not_255(self) -> u64 {
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
    #[inline(always)]
    unsafe fn with_row_block<K: RowKernel>(width: usize, kernel: K) -> K::Output {
        // SAFETY: the caller has NEON, and each type is given the width that it is for.
        unsafe {
            match width {
                8 => kernel.run::<Rows<8>>(),
                16 => kernel.run::<Rows<16>>(),
                _ => kernel.plain(),
            }
        }
    }
}
