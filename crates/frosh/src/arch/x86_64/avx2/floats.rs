//! Eight floats in a register.

use crate::arch::vector::MAGNITUDE;
use core::arch::x86_64::*;

f32_vector!(
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
