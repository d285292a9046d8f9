//! Sixteen floats in a register.

use crate::arch::vector::MAGNITUDE;
use core::arch::x86_64::*;

f32_vector!(
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
