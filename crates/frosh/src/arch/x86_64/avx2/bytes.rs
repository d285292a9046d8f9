//! Bytes in AVX2.
//!
//! **Rows.** The bits of 32 bytes are counted by looking up each nibble in a table of sixteen (`vpshufb`), then added to
//! words of 64 bits (`vpsadbw`). A register holds the distances of four rows; of the eight registers of a group, only the
//! minimum is compared with the limit.
//!
//! **Nibble planes.** A line is two registers.

use crate::arch::nibble_planes::{LINE_ROWS, Line};
use crate::arch::vector::{ByteVector, Distances, RowBlock, RowKernel};
use core::arch::x86_64::*;

/// Bits in each byte.
#[inline(always)]
unsafe fn count_bytes(x: __m256i) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        let low = _mm256_set1_epi8(0x0f);
        let bits = _mm256_broadcastsi128_si256(_mm_setr_epi8(
            0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4,
        ));
        _mm256_add_epi8(
            _mm256_shuffle_epi8(bits, _mm256_and_si256(x, low)),
            _mm256_shuffle_epi8(bits, _mm256_and_si256(_mm256_srli_epi32::<4>(x), low)),
        )
    }
}

/// For each byte of the query, in how many bits the byte at `at` differs from it.
#[inline(always)]
unsafe fn differing(query: __m256i, at: *const u8) -> __m256i {
    // SAFETY: the caller points at 32 readable bytes and has AVX2.
    unsafe { count_bytes(_mm256_xor_si256(query, _mm256_loadu_si256(at.cast()))) }
}

/// The sum of each eight bytes, as a word of 64 bits.
#[inline(always)]
unsafe fn sums(counts: __m256i) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe { _mm256_sad_epu8(counts, _mm256_setzero_si256()) }
}

/// The sums of neighbouring words, byte by byte; those of `a` and of `b` alternate.
#[inline(always)]
unsafe fn pairs(a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe { _mm256_add_epi8(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b)) }
}

/// Rows of 8 bytes.
#[derive(Clone, Copy)]
struct Rows8(__m256i);

impl RowBlock for Rows8 {
    type Distances = __m256i;
    #[inline(always)]
    unsafe fn new(query: &[u8]) -> Self {
        // SAFETY: the caller has AVX2 and a query of 8 bytes.
        Self(unsafe { _mm256_set1_epi64x(query.as_ptr().cast::<i64>().read_unaligned()) })
    }
    #[inline(always)]
    unsafe fn distances(&self, at: *const u8) -> __m256i {
        // SAFETY: the caller points at four rows, 32 bytes.
        unsafe { sums(differing(self.0, at)) }
    }
}

/// Rows of 16 bytes.
#[derive(Clone, Copy)]
struct Rows16(__m256i);

impl RowBlock for Rows16 {
    type Distances = __m256i;
    #[inline(always)]
    unsafe fn new(query: &[u8]) -> Self {
        // SAFETY: the caller has AVX2 and a query of 16 bytes.
        Self(unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(query.as_ptr().cast())) })
    }
    #[inline(always)]
    unsafe fn distances(&self, at: *const u8) -> __m256i {
        // SAFETY: the caller points at four rows, 64 bytes.
        unsafe {
            // The halves of each row are added as bytes first, so that one sum across bytes is enough for four rows.
            let four = sums(pairs(differing(self.0, at), differing(self.0, at.add(32))));
            _mm256_permute4x64_epi64::<0b11_01_10_00>(four)
        }
    }
}

/// Four rows of 32 counts each become eight counts for each row: those at the same place in its four words are added.
#[inline(always)]
unsafe fn fold(rows: [__m256i; 4]) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        let (ab, cd) = (pairs(rows[0], rows[1]), pairs(rows[2], rows[3]));
        let low = _mm256_permute2x128_si256::<0x20>(ab, cd);
        _mm256_add_epi8(low, _mm256_permute2x128_si256::<0x31>(ab, cd))
    }
}

/// Rows of a multiple of 32 bytes; `WIDTH` is 0 where it is known only at run time.
#[derive(Clone, Copy)]
struct Rows32<const WIDTH: usize> {
    query: *const u8,
    width: usize,
}

impl<const WIDTH: usize> RowBlock for Rows32<WIDTH> {
    type Distances = __m256i;
    #[inline(always)]
    unsafe fn new(query: &[u8]) -> Self {
        Self { query: query.as_ptr(), width: query.len() }
    }
    #[inline(always)]
    unsafe fn distances(&self, at: *const u8) -> __m256i {
        let width = if WIDTH > 0 { WIDTH } else { self.width };
        // SAFETY: the caller points at four rows, the query is as long as one; a byte has at most 8 bits, so the sums
        // of 7 times four of them stay within a byte.
        unsafe {
            let (mut total, mut c) = (_mm256_setzero_si256(), 0);
            while c < width {
                let end = width.min(c + 7 * 32);
                let mut rows = [_mm256_setzero_si256(); 4];
                while c < end {
                    let query = _mm256_loadu_si256(self.query.add(c).cast());
                    for (i, row) in rows.iter_mut().enumerate() {
                        *row = _mm256_add_epi8(*row, differing(query, at.add(i * width + c)));
                    }
                    c += 32;
                }
                total = _mm256_add_epi64(total, sums(fold(rows)));
            }
            total
        }
    }
}

/// A bit for each word of `x` that is below that of `limits`.
#[inline(always)]
unsafe fn below(x: __m256i, limits: __m256i) -> u64 {
    // SAFETY: the caller has AVX2.
    unsafe { _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpgt_epi64(limits, x))) as u64 }
}

/// The distances of four rows, as words of 64 bits whose upper halves are 0.
impl Distances for __m256i {
    const ROWS: usize = 4;
    #[inline(always)]
    unsafe fn splat(limit: u32) -> Self {
        // SAFETY: the caller has AVX2; so below.
        unsafe { _mm256_set1_epi64x(i64::from(limit)) }
    }
    #[inline(always)]
    unsafe fn store(self, out: *mut u32) {
        // SAFETY: the caller has room for four numbers.
        unsafe {
            let order = _mm256_setr_epi32(0, 2, 4, 6, 0, 0, 0, 0);
            let four = _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(self, order));
            _mm_storeu_si128(out.cast(), four);
        }
    }
    #[inline(always)]
    unsafe fn below(blocks: &[Self], limits: Self) -> u64 {
        // SAFETY: see `splat`.
        unsafe {
            let mut nearest = limits;
            for block in blocks {
                nearest = _mm256_min_epi32(nearest, *block);
            }
            let mut mask = 0;
            if below(nearest, limits) != 0 {
                for (i, block) in blocks.iter().enumerate() {
                    mask |= below(*block, limits) << (Self::ROWS * i);
                }
            }
            mask
        }
    }
}

/// A bit for each byte that is 255.
#[inline(always)]
unsafe fn equal_255(x: __m256i) -> u64 {
    // SAFETY: the caller has AVX2.
    let mask = unsafe { _mm256_movemask_epi8(_mm256_cmpeq_epi8(x, _mm256_set1_epi8(-1))) };
    u64::from(mask.cast_unsigned())
}

/// The table's entry for each byte of a register.
#[inline(always)]
unsafe fn look_up_byte(x: __m256i, table: &[u8; 256]) -> __m256i {
    let tables = table.as_chunks::<64>().0;
    // SAFETY: the caller has AVX2.
    unsafe {
        // Bits 4 to 7 choose between halves. A blend looks at the upper bit of a byte only.
        let [a, b, c, d] = [&tables[0], &tables[1], &tables[2], &tables[3]];
        let bit6 = _mm256_slli_epi16::<1>(x);
        let low = _mm256_blendv_epi8(look_up_quarter(x, a), look_up_quarter(x, b), bit6);
        let high = _mm256_blendv_epi8(look_up_quarter(x, c), look_up_quarter(x, d), bit6);
        _mm256_blendv_epi8(low, high, x)
    }
}

/// The entries for bits 0 to 5 of each byte.
#[inline(always)]
unsafe fn look_up_quarter(x: __m256i, table: &[u8; 64]) -> __m256i {
    // SAFETY: sixteen entries are half of a register; the caller has AVX2.
    unsafe {
        let index = _mm256_and_si256(x, _mm256_set1_epi8(15));
        let mut found = [_mm256_setzero_si256(); 4];
        for (found, table) in found.iter_mut().zip(table.as_chunks::<16>().0) {
            let table = _mm_loadu_si128(table.as_ptr().cast());
            *found = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), index);
        }
        let [a, b, c, d] = found;
        let bit4 = _mm256_slli_epi16::<3>(x);
        let (low, high) = (_mm256_blendv_epi8(a, b, bit4), _mm256_blendv_epi8(c, d, bit4));
        _mm256_blendv_epi8(low, high, _mm256_slli_epi16::<2>(x))
    }
}

/// A [`Line`] in two registers.
#[derive(Clone, Copy)]
pub(crate) struct ByteLine([__m256i; 2]);

impl ByteVector for ByteLine {
    #[inline(always)]
    unsafe fn load(line: &Line) -> Self {
        let at = line.0.as_ptr().cast::<__m256i>();
        // SAFETY: a line is two registers; the caller has AVX2.
        Self(unsafe { [_mm256_load_si256(at), _mm256_load_si256(at.add(1))] })
    }
    #[inline(always)]
    unsafe fn splat(byte: u8) -> Self {
        // SAFETY: the caller has AVX2; so below.
        Self([unsafe { _mm256_set1_epi8(byte.cast_signed()) }; 2])
    }
    // Miri runs no assembly, and what it checks does not depend on where the compiler keeps the lines.
    #[cfg(not(miri))]
    #[inline(always)]
    unsafe fn reload<T>(lines: &T) -> &T {
        let mut at: *const T = lines;
        // There are sixteen registers: too few for eight of sums, six of lines and some for intermediate values. The
        // compiler would keep the lines and spill the sums.
        // SAFETY: no instruction; the compiler only forgets where the pointer comes from.
        unsafe {
            core::arch::asm!("/* {0} */", inout(reg) at, options(pure, readonly, nostack, preserves_flags));
            &*at
        }
    }
    #[inline(always)]
    unsafe fn look_up(self, table: &[u8; 16]) -> Self {
        // SAFETY: a table is half of a register; the caller has AVX2.
        unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            let [a, b] = self.0;
            Self([_mm256_shuffle_epi8(table, a), _mm256_shuffle_epi8(table, b)])
        }
    }
    #[inline(always)]
    unsafe fn look_up_byte(self, table: &[u8; 256]) -> Self {
        let [a, b] = self.0;
        // SAFETY: see `look_up`. Not by `map`: the compiler does not inline closures into functions with more features.
        Self(unsafe { [look_up_byte(a, table), look_up_byte(b, table)] })
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        let ([a, b], [c, d]) = (self.0, other.0);
        // SAFETY: see `splat`.
        Self(unsafe { [_mm256_add_epi8(a, c), _mm256_add_epi8(b, d)] })
    }
    #[inline(always)]
    unsafe fn saturating_add(self, other: Self) -> Self {
        let ([a, b], [c, d]) = (self.0, other.0);
        // SAFETY: see `splat`.
        Self(unsafe { [_mm256_adds_epu8(a, c), _mm256_adds_epu8(b, d)] })
    }
    #[inline(always)]
    unsafe fn nibbles(self) -> [Self; 2] {
        let [a, b] = self.0;
        // SAFETY: see `splat`.
        unsafe {
            let low = _mm256_set1_epi8(15);
            let (upper_a, upper_b) = (_mm256_srli_epi16::<4>(a), _mm256_srli_epi16::<4>(b));
            [
                Self([_mm256_and_si256(a, low), _mm256_and_si256(b, low)]),
                Self([_mm256_and_si256(upper_a, low), _mm256_and_si256(upper_b, low)]),
            ]
        }
    }
    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        let ([a, b], [c, d]) = (self.0, other.0);
        // SAFETY: see `splat`.
        Self(unsafe { [_mm256_and_si256(a, c), _mm256_and_si256(b, d)] })
    }
    #[inline(always)]
    unsafe fn store(self) -> Line {
        let mut line = Line([0; LINE_ROWS]);
        let at = line.0.as_mut_ptr().cast::<__m256i>();
        // SAFETY: a line is two registers.
        unsafe {
            _mm256_store_si256(at, self.0[0]);
            _mm256_store_si256(at.add(1), self.0[1]);
        }
        line
    }
    #[inline(always)]
    unsafe fn not_255(self) -> u64 {
        // SAFETY: see `splat`.
        unsafe { !(equal_255(self.0[0]) | equal_255(self.0[1]) << 32) }
    }
    #[inline(always)]
    unsafe fn with_row_block<K: RowKernel>(width: usize, kernel: K) -> K::Output {
        // SAFETY: the caller has AVX2, and each type is given the width that it is for.
        unsafe {
            match width {
                8 => kernel.run::<Rows8>(),
                16 => kernel.run::<Rows16>(),
                32 => kernel.run::<Rows32<32>>(),
                _ if width.is_multiple_of(32) => kernel.run::<Rows32<0>>(),
                _ => kernel.plain(),
            }
        }
    }
}

/// [`nibble_planes::starts`](crate::arch::nibble_planes::starts)
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn starts(
    a: &[f32; LINE_ROWS],
    b: &[f32; LINE_ROWS],
    at: f32,
    by: [f32; 2],
    out: &mut Line,
) -> u64 {
    // SAFETY: AVX2 is the caller's promise; 64 floats are eight registers, a line is two.
    unsafe {
        let (zero, most) = (_mm256_setzero_ps(), _mm256_set1_ps(255.0));
        let (at, by_a, by_b) = (_mm256_set1_ps(at), _mm256_set1_ps(by[0]), _mm256_set1_ps(by[1]));
        let mut bytes = [_mm256_setzero_si256(); 8];
        let mut below = [zero; 8];
        let mut any = zero;
        for i in 0..8 {
            let a = _mm256_mul_ps(_mm256_loadu_ps(a.as_ptr().add(8 * i)), by_a);
            let b = _mm256_mul_ps(_mm256_loadu_ps(b.as_ptr().add(8 * i)), by_b);
            let start = _mm256_add_ps(_mm256_add_ps(at, a), b);
            below[i] = _mm256_cmp_ps::<_CMP_NGE_UQ>(start, zero);
            any = _mm256_or_ps(any, below[i]);
            let start = _mm256_min_ps(_mm256_max_ps(start, zero), most);
            bytes[i] = _mm256_cvttps_epi32(start);
        }
        // Packing works within halves of registers; the permutation restores the order.
        let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        for half in 0..2 {
            let low = _mm256_packs_epi32(bytes[4 * half], bytes[4 * half + 1]);
            let high = _mm256_packs_epi32(bytes[4 * half + 2], bytes[4 * half + 3]);
            let packed = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), order);
            _mm256_store_si256(out.0.as_mut_ptr().cast::<__m256i>().add(half), packed);
        }
        if _mm256_movemask_ps(any) == 0 {
            return 0;
        }
        let bits = below.iter().map(|b| u64::from(_mm256_movemask_ps(*b).cast_unsigned()));
        bits.enumerate().fold(0, |mask, (i, bits)| mask | bits << (8 * i))
    }
}
