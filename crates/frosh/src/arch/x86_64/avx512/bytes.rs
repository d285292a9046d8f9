//! Bytes in AVX-512.
//!
//! **Rows.** One instruction (`vpopcntq`) counts the bits of eight words. A register holds the distances of eight rows.
//!
//! **Nibble planes.** A line is one register.

use crate::arch::nibble_planes::{LINE_ROWS, Line};
use crate::arch::vector::{ByteVector, Distances, RowBlock, RowKernel};
use core::arch::x86_64::*;

/// For each word of the query, in how many bits the word at `at` differs from it.
#[inline(always)]
unsafe fn differing(query: __m512i, at: *const u8) -> __m512i {
    // SAFETY: the caller points at 64 readable bytes and has AVX-512 with VPOPCNTDQ.
    unsafe { _mm512_popcnt_epi64(_mm512_xor_si512(query, _mm512_loadu_si512(at.cast()))) }
}

/// The sums of neighbouring words: those of `a`, then those of `b`.
#[inline(always)]
unsafe fn pairs(a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: the caller has AVX-512.
    unsafe {
        let even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
        let odd = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
        _mm512_add_epi64(
            _mm512_permutex2var_epi64(a, even, b),
            _mm512_permutex2var_epi64(a, odd, b),
        )
    }
}

/// Rows of 8 bytes.
#[derive(Clone, Copy)]
struct Rows8(__m512i);

impl RowBlock for Rows8 {
    type Distances = __m512i;
    #[inline(always)]
    unsafe fn new(query: &[u8]) -> Self {
        // SAFETY: the caller has AVX-512 and a query of 8 bytes.
        Self(unsafe { _mm512_set1_epi64(query.as_ptr().cast::<i64>().read_unaligned()) })
    }
    #[inline(always)]
    unsafe fn distances(&self, at: *const u8) -> __m512i {
        // SAFETY: the caller points at eight rows, 64 bytes.
        unsafe { differing(self.0, at) }
    }
}

/// Rows of 16 bytes.
#[derive(Clone, Copy)]
struct Rows16(__m512i);

impl RowBlock for Rows16 {
    type Distances = __m512i;
    #[inline(always)]
    unsafe fn new(query: &[u8]) -> Self {
        // SAFETY: the caller has AVX-512 and a query of 16 bytes.
        Self(unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(query.as_ptr().cast())) })
    }
    #[inline(always)]
    unsafe fn distances(&self, at: *const u8) -> __m512i {
        // SAFETY: the caller points at eight rows, 128 bytes.
        unsafe { pairs(differing(self.0, at), differing(self.0, at.add(64))) }
    }
}

/// Rows of 32 bytes.
#[derive(Clone, Copy)]
struct Rows32(__m512i);

impl RowBlock for Rows32 {
    type Distances = __m512i;
    #[inline(always)]
    unsafe fn new(query: &[u8]) -> Self {
        // SAFETY: the caller has AVX-512 and a query of 32 bytes.
        Self(unsafe { _mm512_broadcast_i64x4(_mm256_loadu_si256(query.as_ptr().cast())) })
    }
    #[inline(always)]
    unsafe fn distances(&self, at: *const u8) -> __m512i {
        // SAFETY: the caller points at eight rows, 256 bytes.
        unsafe {
            let first = pairs(differing(self.0, at), differing(self.0, at.add(64)));
            pairs(first, pairs(differing(self.0, at.add(128)), differing(self.0, at.add(192))))
        }
    }
}

/// Rows of a multiple of 64 bytes.
#[derive(Clone, Copy)]
struct Rows64 {
    query: *const u8,
    width: usize,
}

impl Rows64 {
    #[inline(always)]
    unsafe fn row(&self, at: *const u8) -> __m512i {
        // SAFETY: the caller points at a row; the query is as long.
        unsafe {
            let mut total = _mm512_setzero_si512();
            for c in (0..self.width).step_by(64) {
                let query = _mm512_loadu_si512(self.query.add(c).cast());
                total = _mm512_add_epi64(total, differing(query, at.add(c)));
            }
            total
        }
    }
    #[inline(always)]
    unsafe fn four(&self, at: *const u8) -> __m512i {
        // SAFETY: the caller points at four rows.
        unsafe {
            let first = pairs(self.row(at), self.row(at.add(self.width)));
            pairs(first, pairs(self.row(at.add(2 * self.width)), self.row(at.add(3 * self.width))))
        }
    }
}

impl RowBlock for Rows64 {
    type Distances = __m512i;
    #[inline(always)]
    unsafe fn new(query: &[u8]) -> Self {
        Self { query: query.as_ptr(), width: query.len() }
    }
    #[inline(always)]
    unsafe fn distances(&self, at: *const u8) -> __m512i {
        // SAFETY: the caller points at eight rows.
        unsafe { pairs(self.four(at), self.four(at.add(4 * self.width))) }
    }
}

/// The distances of eight rows, as words of 64 bits.
impl Distances for __m512i {
    const ROWS: usize = 8;
    #[inline(always)]
    unsafe fn splat(limit: u32) -> Self {
        // SAFETY: the caller has AVX-512; so below.
        unsafe { _mm512_set1_epi64(i64::from(limit)) }
    }
    #[inline(always)]
    unsafe fn store(self, out: *mut u32) {
        // SAFETY: the caller has room for eight numbers.
        unsafe { _mm256_storeu_si256(out.cast(), _mm512_cvtepi64_epi32(self)) };
    }
    #[inline(always)]
    unsafe fn below(blocks: &[Self], limits: Self) -> u64 {
        let mut mask = 0;
        for (i, block) in blocks.iter().enumerate() {
            // SAFETY: see `splat`.
            let below = unsafe { _mm512_cmplt_epu64_mask(*block, limits) };
            mask |= u64::from(below) << (Self::ROWS * i);
        }
        mask
    }
}

/// A [`Line`] in one register.
pub(crate) type ByteLine = __m512i;

impl ByteVector for ByteLine {
    #[inline(always)]
    unsafe fn load(line: &Line) -> Self {
        // SAFETY: a line is a register; the caller has AVX-512.
        unsafe { _mm512_load_si512(line.0.as_ptr().cast()) }
    }
    #[inline(always)]
    unsafe fn splat(byte: u8) -> Self {
        // SAFETY: the caller has AVX-512.
        unsafe { _mm512_set1_epi8(byte.cast_signed()) }
    }
    #[inline(always)]
    unsafe fn look_up(self, table: &[u8; 16]) -> Self {
        // SAFETY: a table is a quarter of a register; the caller has AVX-512 with BW; so below.
        unsafe {
            let table = _mm_loadu_si128(table.as_ptr().cast::<__m128i>());
            _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), self)
        }
    }
    #[inline(always)]
    unsafe fn look_up_byte(self, table: &[u8; 256]) -> Self {
        let at = table.as_ptr().cast::<__m512i>();
        // SAFETY: a table is four registers; the caller has AVX-512 with BW and VBMI.
        unsafe {
            let part = |i: usize| _mm512_loadu_si512(at.add(i));
            // The upper bit of a byte chooses the half of the table, the others an entry of the half.
            let low = _mm512_permutex2var_epi8(part(0), self, part(1));
            let high = _mm512_permutex2var_epi8(part(2), self, part(3));
            _mm512_mask_blend_epi8(_mm512_movepi8_mask(self), low, high)
        }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: see `look_up`.
        unsafe { _mm512_add_epi8(self, other) }
    }
    #[inline(always)]
    unsafe fn saturating_add(self, other: Self) -> Self {
        // SAFETY: see `look_up`.
        unsafe { _mm512_adds_epu8(self, other) }
    }
    #[inline(always)]
    unsafe fn nibbles(self) -> [Self; 2] {
        // SAFETY: see `look_up`.
        unsafe {
            let low = _mm512_set1_epi8(15);
            let upper = _mm512_and_si512(_mm512_srli_epi16::<4>(self), low);
            [_mm512_and_si512(self, low), upper]
        }
    }
    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        // SAFETY: the caller has AVX-512.
        unsafe { _mm512_and_si512(self, other) }
    }
    #[inline(always)]
    unsafe fn store(self) -> Line {
        let mut line = Line([0; LINE_ROWS]);
        // SAFETY: a line is a register.
        unsafe { _mm512_store_si512(line.0.as_mut_ptr().cast(), self) };
        line
    }
    #[inline(always)]
    unsafe fn not_255(self) -> u64 {
        // SAFETY: the caller has AVX-512 with BW.
        unsafe { _mm512_cmpneq_epu8_mask(self, _mm512_set1_epi8(-1)) }
    }
    #[inline(always)]
    unsafe fn with_row_block<K: RowKernel>(width: usize, kernel: K) -> K::Output {
        // SAFETY: the caller has AVX-512 with VPOPCNTDQ, and each type is given the width that it is for.
        unsafe {
            match width {
                8 => kernel.run::<Rows8>(),
                16 => kernel.run::<Rows16>(),
                32 => kernel.run::<Rows32>(),
                _ if width.is_multiple_of(64) => kernel.run::<Rows64>(),
                _ => kernel.plain(),
            }
        }
    }
}
