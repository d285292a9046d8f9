//! AVX2 and AVX-512 registers as [`Vector`]s.

use crate::arch::{MAGNITUDE, Vector};
use core::arch::x86_64::*;

macro_rules! vector {
    ($t:ty, $lanes:literal, $load:ident, $store:ident, $set1:ident, $add:ident, $sub:ident,
     $mul:ident, $fmadd:ident, $fnmadd:ident, $positive:expr, $max_bits:expr) => {
        impl Vector for $t {
            const LANES: usize = $lanes;
            #[inline(always)]
            unsafe fn load(from: *const f32) -> Self {
                // SAFETY: the caller points at enough floats and has the instruction set.
                unsafe { $load(from) }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut f32) {
                // SAFETY: as for `load`.
                unsafe { $store(to, self) }
            }
            #[inline(always)]
            unsafe fn splat(value: f32) -> Self {
                // SAFETY: the caller has the instruction set; so below.
                unsafe { $set1(value) }
            }
            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                // SAFETY: see `splat`.
                unsafe { $add(self, other) }
            }
            #[inline(always)]
            unsafe fn sub(self, other: Self) -> Self {
                // SAFETY: see `splat`.
                unsafe { $sub(self, other) }
            }
            #[inline(always)]
            unsafe fn mul(self, other: Self) -> Self {
                // SAFETY: see `splat`.
                unsafe { $mul(self, other) }
            }
            #[inline(always)]
            unsafe fn mul_add(self, factor: Self, addend: Self) -> Self {
                // SAFETY: see `splat`.
                unsafe { $fmadd(self, factor, addend) }
            }
            #[inline(always)]
            unsafe fn neg_mul_add(self, factor: Self, addend: Self) -> Self {
                // SAFETY: see `splat`.
                unsafe { $fnmadd(self, factor, addend) }
            }
            #[inline(always)]
            unsafe fn max_bits(self, x: Self) -> Self {
                $max_bits(self, x)
            }
            #[inline(always)]
            unsafe fn largest(self) -> u32 {
                let mut lanes = [0f32; $lanes];
                // SAFETY: `lanes` has room for the register.
                unsafe { $store(lanes.as_mut_ptr(), self) };
                lanes.iter().fold(0, |m, x| m.max(x.to_bits()))
            }
            #[inline(always)]
            unsafe fn positive(self) -> u32 {
                $positive(self)
            }
            #[inline(always)]
            unsafe fn prefetch(at: *const f32) {
                // SAFETY: a prefetch never faults.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
            }
        }
    };
}

vector!(
    __m256,
    8,
    _mm256_loadu_ps,
    _mm256_storeu_ps,
    _mm256_set1_ps,
    _mm256_add_ps,
    _mm256_sub_ps,
    _mm256_mul_ps,
    _mm256_fmadd_ps,
    _mm256_fnmadd_ps,
    // SAFETY: the caller has AVX2.
    |v| unsafe {
        _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(v, _mm256_setzero_ps())).cast_unsigned()
    },
    // SAFETY: the caller has AVX2.
    |m, x| unsafe {
        let bits =
            _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(MAGNITUDE.cast_signed()));
        _mm256_castsi256_ps(_mm256_max_epu32(_mm256_castps_si256(m), bits))
    }
);

vector!(
    __m512,
    16,
    _mm512_loadu_ps,
    _mm512_storeu_ps,
    _mm512_set1_ps,
    _mm512_add_ps,
    _mm512_sub_ps,
    _mm512_mul_ps,
    _mm512_fmadd_ps,
    _mm512_fnmadd_ps,
    // SAFETY: the caller has AVX-512.
    |v| unsafe { u32::from(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(v, _mm512_setzero_ps())) },
    // SAFETY: the caller has AVX-512.
    |m, x| unsafe {
        let bits =
            _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(MAGNITUDE.cast_signed()));
        _mm512_castsi512_ps(_mm512_max_epu32(_mm512_castps_si512(m), bits))
    }
);
