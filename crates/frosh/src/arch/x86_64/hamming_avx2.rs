//! The kernels for AVX2.
//!
//! **Counting.** A register of 32 bytes is counted by looking up each half byte in a table of sixteen
//! (`vpshufb`), and summed to words (`vpsadbw`). Four rows become a register of four distances; eight such
//! registers are a group, and only their least is compared with the limit.
//!
//! **Planes.** [`seek_planes`] works on turned rows, see [`planes`](crate::search::hamming::planes). A line of them is two registers.

use crate::search::hamming::kernel::{
    GROUP, Table, Turns, distances_plain, listed_plain, seek_plain, some_plain,
};
use crate::search::hamming::planes::{
    Bytes, Line, Lookups, Near, Quad, ROWS, below_255_by, seek_planes_by, turn_plain,
};
use core::arch::x86_64::*;

/// Starts to bring a line into cache; any address will do.
#[inline(always)]
pub(crate) fn fetch(address: *const i8) {
    // SAFETY: a prefetch reads nothing, whatever the address, and every x86-64 has it.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address) }
}

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

/// How the distances of four rows are had; all need AVX2 and four readable rows.
trait Four: Copy {
    unsafe fn new(query: &[u8]) -> Self;
    /// The distances of the four rows at `at`, as words.
    unsafe fn four(&self, at: *const u8) -> __m256i;
}

#[inline(always)]
unsafe fn differing(query: __m256i, at: *const u8) -> __m256i {
    // SAFETY: the caller points at 32 readable bytes and has AVX2.
    unsafe { count_bytes(_mm256_xor_si256(query, _mm256_loadu_si256(at.cast()))) }
}

#[inline(always)]
unsafe fn sums(counts: __m256i) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe { _mm256_sad_epu8(counts, _mm256_setzero_si256()) }
}

/// The sums of neighbouring words, byte by byte: those of `a` and of `b` in turns.
#[inline(always)]
unsafe fn pairs(a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe { _mm256_add_epi8(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b)) }
}

/// Rows of 8 bytes.
#[derive(Clone, Copy)]
struct Rows8(__m256i);

impl Four for Rows8 {
    #[inline(always)]
    unsafe fn new(query: &[u8]) -> Self {
        // SAFETY: the caller has AVX2 and a query of 8 bytes.
        Self(unsafe { _mm256_set1_epi64x(query.as_ptr().cast::<i64>().read_unaligned()) })
    }
    #[inline(always)]
    unsafe fn four(&self, at: *const u8) -> __m256i {
        // SAFETY: the caller points at four rows, 32 bytes.
        unsafe { sums(differing(self.0, at)) }
    }
}

/// Rows of 16 bytes.
#[derive(Clone, Copy)]
struct Rows16(__m256i);

impl Four for Rows16 {
    #[inline(always)]
    unsafe fn new(query: &[u8]) -> Self {
        // SAFETY: the caller has AVX2 and a query of 16 bytes.
        Self(unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(query.as_ptr().cast())) })
    }
    #[inline(always)]
    unsafe fn four(&self, at: *const u8) -> __m256i {
        // SAFETY: the caller points at four rows, 64 bytes.
        unsafe {
            // Both halves of each row are added as bytes first, so that one sum across bytes does for four rows.
            let four = sums(pairs(differing(self.0, at), differing(self.0, at.add(32))));
            _mm256_permute4x64_epi64::<0b11_01_10_00>(four)
        }
    }
}

/// The sums of neighbouring bytes of four rows, eight apart, in eight bytes for each row.
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

impl<const WIDTH: usize> Four for Rows32<WIDTH> {
    #[inline(always)]
    unsafe fn new(query: &[u8]) -> Self {
        Self { query: query.as_ptr(), width: query.len() }
    }
    #[inline(always)]
    unsafe fn four(&self, at: *const u8) -> __m256i {
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

#[inline(always)]
unsafe fn distances_by<F: Four>(query: &[u8], table: Table<'_>, out: &mut [u32]) {
    let whole = table.len() / 4 * 4;
    // SAFETY: rows up to `whole` are in the table, `out` is as long.
    unsafe {
        let query = F::new(query);
        for i in (0..whole).step_by(4) {
            let four = query.four(table.data().as_ptr().add(i * table.width()));
            let order = _mm256_setr_epi32(0, 2, 4, 6, 0, 0, 0, 0);
            let four = _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(four, order));
            _mm_storeu_si128(out.as_mut_ptr().add(i).cast(), four);
        }
    }
    distances_plain(query, table.part(whole, table.len()), &mut out[whole..]);
}

/// [`crate::search::hamming::kernel::distances`], for a query as wide as the table and one place for each row.
#[target_feature(enable = "avx2,popcnt")]
pub(crate) unsafe fn distances(query: &[u8], table: Table<'_>, out: &mut [u32]) {
    assert!(query.len() == table.width() && out.len() == table.len());
    // SAFETY: AVX2 is the caller's promise, the lengths were checked, and each kind has its width.
    unsafe {
        match query.len() {
            8 => distances_by::<Rows8>(query, table, out),
            16 => distances_by::<Rows16>(query, table, out),
            width if width.is_multiple_of(32) => distances_by::<Rows32<0>>(query, table, out),
            _ => distances_plain(query, table, out),
        }
    }
}

/// [`crate::search::hamming::kernel::some`]
#[target_feature(enable = "avx2,popcnt")]
pub(crate) unsafe fn some(
    query: &[u8],
    table: Table<'_>,
    first: usize,
    mask: u64,
    out: &mut [u32; 64],
) {
    some_plain(query, table, first, mask, out);
}

/// [`crate::search::hamming::kernel::listed`]
#[target_feature(enable = "avx2,popcnt")]
pub(crate) unsafe fn listed(query: &[u8], table: Table<'_>, rows: &[u32], out: &mut Vec<u32>) {
    listed_plain(query, table, rows, out);
}

/// A bit for each word of `x` that is below that of `limits`.
#[inline(always)]
unsafe fn below(x: __m256i, limits: __m256i) -> u64 {
    // SAFETY: the caller has AVX2.
    unsafe { _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpgt_epi64(limits, x))) as u64 }
}

#[inline(always)]
unsafe fn seek_by<F: Four>(
    query: &[u8],
    table: Table<'_>,
    from: usize,
    limit: u32,
) -> Option<(usize, u64)> {
    let turns = Turns::new(table);
    // SAFETY: the loop stays among whole groups of the table.
    unsafe {
        let near = F::new(query);
        let limits = _mm256_set1_epi64x(i64::from(limit));
        for turn in from..turns.whole {
            let at = table.data().as_ptr().add(turns.first(turn) * table.width());
            let mut fours = [limits; GROUP / 4];
            let mut nearest = limits;
            for (i, four) in fours.iter_mut().enumerate() {
                *four = near.four(at.add(4 * i * table.width()));
                nearest = _mm256_min_epi32(nearest, *four);
            }
            if below(nearest, limits) != 0 {
                let mut mask = 0;
                for (i, four) in fours.iter().enumerate() {
                    mask |= below(*four, limits) << (4 * i);
                }
                return Some((turn, mask));
            }
        }
    }
    seek_plain(query, table, from.max(turns.whole), limit)
}

/// [`crate::search::hamming::kernel::seek`], for a query as wide as the table.
#[target_feature(enable = "avx2,popcnt")]
pub(crate) unsafe fn seek(
    query: &[u8],
    table: Table<'_>,
    from: usize,
    limit: u32,
) -> Option<(usize, u64)> {
    assert!(query.len() == table.width());
    // SAFETY: AVX2 is the caller's promise, the length was checked, and each kind has its width.
    unsafe {
        match query.len() {
            8 => seek_by::<Rows8>(query, table, from, limit),
            16 => seek_by::<Rows16>(query, table, from, limit),
            32 => seek_by::<Rows32<32>>(query, table, from, limit),
            width if width.is_multiple_of(32) => seek_by::<Rows32<0>>(query, table, from, limit),
            _ => seek_plain(query, table, from, limit),
        }
    }
}

/// Two registers are a line.
#[derive(Clone, Copy)]
struct Two([__m256i; 2]);

impl Bytes for Two {
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
    // Miri runs no assembly; what it checks does not depend on where the compiler keeps the lines.
    #[cfg(not(miri))]
    #[inline(always)]
    unsafe fn again<T>(lines: &T) -> &T {
        let mut at: *const T = lines;
        // Eight registers of sums, six of lines and those in between are more than the sixteen there are. Of the two,
        // the compiler would keep the lines.
        // SAFETY: no instruction; the compiler only forgets where the pointer came from.
        unsafe {
            core::arch::asm!("/* {0} */", inout(reg) at, options(pure, readonly, nostack, preserves_flags));
            &*at
        }
    }
    #[inline(always)]
    unsafe fn look_up(self, table: &[u8; 16]) -> Self {
        // SAFETY: a table is half of a register.
        unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            let [a, b] = self.0;
            Self([_mm256_shuffle_epi8(table, a), _mm256_shuffle_epi8(table, b)])
        }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        let ([a, b], [c, d]) = (self.0, other.0);
        // SAFETY: see `splat`.
        Self(unsafe { [_mm256_add_epi8(a, c), _mm256_add_epi8(b, d)] })
    }
    #[inline(always)]
    unsafe fn add_up(self, other: Self) -> Self {
        let ([a, b], [c, d]) = (self.0, other.0);
        // SAFETY: see `splat`.
        Self(unsafe { [_mm256_adds_epu8(a, c), _mm256_adds_epu8(b, d)] })
    }
    #[inline(always)]
    unsafe fn halves(self) -> [Self; 2] {
        let [a, b] = self.0;
        // SAFETY: see `splat`.
        unsafe {
            let low = _mm256_set1_epi8(15);
            let upper = |x| _mm256_and_si256(_mm256_srli_epi16::<4>(x), low);
            [Self([_mm256_and_si256(a, low), _mm256_and_si256(b, low)]), Self([upper(a), upper(b)])]
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
        let mut line = Line([0; ROWS]);
        let at = line.0.as_mut_ptr().cast::<__m256i>();
        // SAFETY: a line is two registers.
        unsafe {
            _mm256_store_si256(at, self.0[0]);
            _mm256_store_si256(at.add(1), self.0[1]);
        }
        line
    }
    #[inline(always)]
    unsafe fn near(self) -> u64 {
        let far = |x: __m256i| {
            // SAFETY: see `splat`.
            let far = unsafe { _mm256_movemask_epi8(_mm256_cmpeq_epi8(x, _mm256_set1_epi8(-1))) };
            u64::from(far.cast_unsigned())
        };
        !(far(self.0[0]) | far(self.0[1]) << 32)
    }
}

/// [`crate::search::hamming::planes::Planes::seek`]
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn seek_planes(
    quad: &Quad,
    planes: &[Line],
    from: usize,
    limits: [u32; 4],
    early: usize,
) -> Option<Near> {
    // SAFETY: AVX2 is the caller's promise.
    unsafe { seek_planes_by::<Two>(quad, planes, from, limits, early) }
}

/// [`crate::search::hamming::planes::Planes::below`], for the first `N` queries.
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn below_255<const N: usize>(
    lookups: &Lookups,
    planes: &[Line],
    starts: &[Line; 4],
) -> [u64; 4] {
    // SAFETY: AVX2 is the caller's promise.
    unsafe { below_255_by::<Two, N>(lookups, planes, starts) }
}

/// [`crate::search::hamming::planes::starts`]
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn starts(
    a: &[f32; ROWS],
    b: &[f32; ROWS],
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
        // Packing works within halves of registers; the permutation mends the order.
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

/// [`crate::search::hamming::planes::turn_plain`], compiled for AVX2.
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn turn(table: Table<'_>, planes: &mut [Line]) {
    turn_plain(table, planes);
}
