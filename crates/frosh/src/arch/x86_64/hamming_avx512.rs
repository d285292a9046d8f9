//! The kernels for AVX-512 with VPOPCNTDQ: eight words of codes are counted by one instruction, and a line of
//! [`planes`](crate::search::hamming::planes) is one register.

use crate::search::hamming::kernel::{GROUP, Table, Turns, distances_plain, seek_plain};
use crate::search::hamming::planes::{
    Bytes, Line, Lookups, Near, Quad, ROWS, below_255_by, seek_planes_by,
};
use core::arch::x86_64::*;

/// How the distances of eight rows are had; all need AVX-512 and eight readable rows.
trait Eight: Copy {
    unsafe fn new(query: &[u8]) -> Self;
    /// The distances of the eight rows at `at`, as words.
    unsafe fn eight(&self, at: *const u8) -> __m512i;
}

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

impl Eight for Rows8 {
    #[inline(always)]
    unsafe fn new(query: &[u8]) -> Self {
        // SAFETY: the caller has AVX-512 and a query of 8 bytes.
        Self(unsafe { _mm512_set1_epi64(query.as_ptr().cast::<i64>().read_unaligned()) })
    }
    #[inline(always)]
    unsafe fn eight(&self, at: *const u8) -> __m512i {
        // SAFETY: the caller points at eight rows, 64 bytes.
        unsafe { differing(self.0, at) }
    }
}

/// Rows of 16 bytes.
#[derive(Clone, Copy)]
struct Rows16(__m512i);

impl Eight for Rows16 {
    #[inline(always)]
    unsafe fn new(query: &[u8]) -> Self {
        // SAFETY: the caller has AVX-512 and a query of 16 bytes.
        Self(unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(query.as_ptr().cast())) })
    }
    #[inline(always)]
    unsafe fn eight(&self, at: *const u8) -> __m512i {
        // SAFETY: the caller points at eight rows, 128 bytes.
        unsafe { pairs(differing(self.0, at), differing(self.0, at.add(64))) }
    }
}

/// Rows of 32 bytes.
#[derive(Clone, Copy)]
struct Rows32(__m512i);

impl Eight for Rows32 {
    #[inline(always)]
    unsafe fn new(query: &[u8]) -> Self {
        // SAFETY: the caller has AVX-512 and a query of 32 bytes.
        Self(unsafe { _mm512_broadcast_i64x4(_mm256_loadu_si256(query.as_ptr().cast())) })
    }
    #[inline(always)]
    unsafe fn eight(&self, at: *const u8) -> __m512i {
        // SAFETY: the caller points at eight rows, 256 bytes.
        unsafe {
            let two = |i: usize| differing(self.0, at.add(64 * i));
            pairs(pairs(two(0), two(1)), pairs(two(2), two(3)))
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
}

impl Eight for Rows64 {
    #[inline(always)]
    unsafe fn new(query: &[u8]) -> Self {
        Self { query: query.as_ptr(), width: query.len() }
    }
    #[inline(always)]
    unsafe fn eight(&self, at: *const u8) -> __m512i {
        // SAFETY: the caller points at eight rows.
        unsafe {
            let row = |i: usize| self.row(at.add(i * self.width));
            let four = |i: usize| pairs(pairs(row(i), row(i + 1)), pairs(row(i + 2), row(i + 3)));
            pairs(four(0), four(4))
        }
    }
}

#[inline(always)]
unsafe fn distances_by<E: Eight>(query: &[u8], table: Table<'_>, out: &mut [u32]) {
    let whole = table.len() / 8 * 8;
    // SAFETY: rows up to `whole` are in the table, `out` is as long.
    unsafe {
        let query = E::new(query);
        for i in (0..whole).step_by(8) {
            let eight = query.eight(table.data().as_ptr().add(i * table.width()));
            _mm256_storeu_si256(out.as_mut_ptr().add(i).cast(), _mm512_cvtepi64_epi32(eight));
        }
    }
    distances_plain(query, table.part(whole, table.len()), &mut out[whole..]);
}

/// [`crate::search::hamming::kernel::distances`], for a query as wide as the table and one place for each row.
#[target_feature(enable = "avx512f,avx512bw,avx512vpopcntdq,avx2,popcnt")]
pub(crate) unsafe fn distances(query: &[u8], table: Table<'_>, out: &mut [u32]) {
    assert!(query.len() == table.width() && out.len() == table.len());
    // SAFETY: the instructions are the caller's promise, the lengths were checked, and each kind has its width.
    unsafe {
        match query.len() {
            8 => distances_by::<Rows8>(query, table, out),
            16 => distances_by::<Rows16>(query, table, out),
            32 => distances_by::<Rows32>(query, table, out),
            width if width.is_multiple_of(64) => distances_by::<Rows64>(query, table, out),
            _ => distances_plain(query, table, out),
        }
    }
}

#[inline(always)]
unsafe fn seek_by<E: Eight>(
    query: &[u8],
    table: Table<'_>,
    from: usize,
    limit: u32,
) -> Option<(usize, u64)> {
    let turns = Turns::new(table);
    // SAFETY: the loop stays among whole groups of the table.
    unsafe {
        let near = E::new(query);
        let limits = _mm512_set1_epi64(i64::from(limit));
        for turn in from..turns.whole {
            let at = table.data().as_ptr().add(turns.first(turn) * table.width());
            let mut mask = 0;
            for i in 0..GROUP / 8 {
                let eight = near.eight(at.add(8 * i * table.width()));
                mask |= u64::from(_mm512_cmplt_epu64_mask(eight, limits)) << (8 * i);
            }
            if mask != 0 {
                return Some((turn, mask));
            }
        }
    }
    seek_plain(query, table, from.max(turns.whole), limit)
}

/// [`crate::search::hamming::kernel::seek`], for a query as wide as the table.
#[target_feature(enable = "avx512f,avx512bw,avx512vpopcntdq,avx2,popcnt")]
pub(crate) unsafe fn seek(
    query: &[u8],
    table: Table<'_>,
    from: usize,
    limit: u32,
) -> Option<(usize, u64)> {
    assert!(query.len() == table.width());
    // SAFETY: the instructions are the caller's promise, the length was checked, and each kind has its width.
    unsafe {
        match query.len() {
            8 => seek_by::<Rows8>(query, table, from, limit),
            16 => seek_by::<Rows16>(query, table, from, limit),
            32 => seek_by::<Rows32>(query, table, from, limit),
            width if width.is_multiple_of(64) => seek_by::<Rows64>(query, table, from, limit),
            _ => seek_plain(query, table, from, limit),
        }
    }
}

impl Bytes for __m512i {
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
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: see `look_up`.
        unsafe { _mm512_add_epi8(self, other) }
    }
    #[inline(always)]
    unsafe fn add_up(self, other: Self) -> Self {
        // SAFETY: see `look_up`.
        unsafe { _mm512_adds_epu8(self, other) }
    }
    #[inline(always)]
    unsafe fn halves(self) -> [Self; 2] {
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
        let mut line = Line([0; ROWS]);
        // SAFETY: a line is a register.
        unsafe { _mm512_store_si512(line.0.as_mut_ptr().cast(), self) };
        line
    }
    #[inline(always)]
    unsafe fn near(self) -> u64 {
        // SAFETY: the caller has AVX-512 with BW.
        unsafe { _mm512_cmpneq_epu8_mask(self, _mm512_set1_epi8(-1)) }
    }
}

/// [`crate::search::hamming::planes::Planes::seek`]
#[target_feature(enable = "avx512f,avx512bw,avx2")]
pub(crate) unsafe fn seek_planes(
    quad: &Quad,
    planes: &[Line],
    from: usize,
    limits: [u32; 4],
    early: usize,
) -> Option<Near> {
    // SAFETY: the instructions are the caller's promise.
    unsafe { seek_planes_by::<__m512i>(quad, planes, from, limits, early) }
}

/// [`crate::search::hamming::planes::Planes::below`], for the first `N` queries.
#[target_feature(enable = "avx512f,avx512bw,avx2")]
pub(crate) unsafe fn below_255<const N: usize>(
    lookups: &Lookups,
    planes: &[Line],
    starts: &[Line; 4],
) -> [u64; 4] {
    // SAFETY: the instructions are the caller's promise.
    unsafe { below_255_by::<__m512i, N>(lookups, planes, starts) }
}
