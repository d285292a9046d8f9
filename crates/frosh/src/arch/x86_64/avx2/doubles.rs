//! Four `f64` in AVX2 and FMA.
//!
//! Left alone, LLVM compiles the fused loops of the eigensolver to scalar code or 128-bit vectors, which is three to six
//! times slower. Results differ from the portable twin's only by the roundings that a fused multiply-add saves.
#![expect(
    clippy::undocumented_unsafe_blocks,
    reason = "one reason for all: the token exists only where the CPU has AVX2 and FMA"
)]

use crate::arch::isa::Avx2Fma;
use crate::arch::vector::{EXPONENT, F64Vector, F64x4, LANES, RECIPROCAL};
use core::arch::x86_64::*;

#[target_feature(enable = "avx2,fma")]
fn enabled<R>(f: impl FnOnce() -> R) -> R {
    f()
}

// SAFETY of every block below: the token exists only where the CPU has AVX2 and FMA; loads and stores
// go through references to exactly 32 bytes and need no alignment.
#[rustfmt::skip]
impl F64Vector for Avx2Fma {
    type V = __m256d;
    #[inline(always)] fn run<R>(self, f: impl FnOnce() -> R) -> R { unsafe { enabled(f) } }
    #[inline(always)] fn splat(self, x: f64) -> __m256d { unsafe { _mm256_set1_pd(x) } }
    #[inline(always)] fn load(self, x: &F64x4) -> __m256d { unsafe { _mm256_loadu_pd(x.as_ptr()) } }
    #[inline(always)] fn store(self, x: __m256d, to: &mut F64x4) { unsafe { _mm256_storeu_pd(to.as_mut_ptr(), x) } }
    #[inline(always)] fn add(self, a: __m256d, b: __m256d) -> __m256d { unsafe { _mm256_add_pd(a, b) } }
    #[inline(always)] fn sub(self, a: __m256d, b: __m256d) -> __m256d { unsafe { _mm256_sub_pd(a, b) } }
    #[inline(always)] fn mul(self, a: __m256d, b: __m256d) -> __m256d { unsafe { _mm256_mul_pd(a, b) } }
    #[inline(always)] fn div(self, a: __m256d, b: __m256d) -> __m256d { unsafe { _mm256_div_pd(a, b) } }
    #[inline(always)] fn fma(self, a: __m256d, b: __m256d, c: __m256d) -> __m256d { unsafe { _mm256_fmadd_pd(a, b, c) } }
    #[inline(always)] fn fnma(self, a: __m256d, b: __m256d, c: __m256d) -> __m256d { unsafe { _mm256_fnmadd_pd(a, b, c) } }
    #[inline(always)] fn abs(self, a: __m256d) -> __m256d { unsafe { _mm256_andnot_pd(_mm256_set1_pd(-0.0), a) } }
    #[inline(always)] fn max(self, a: __m256d, b: __m256d) -> __m256d { unsafe { _mm256_max_pd(a, b) } }
    #[inline(always)] fn lt(self, a: __m256d, b: __m256d) -> __m256d { unsafe { _mm256_cmp_pd::<_CMP_LT_OQ>(a, b) } }
    #[inline(always)] fn select(self, m: __m256d, a: __m256d, b: __m256d) -> __m256d { unsafe { _mm256_blendv_pd(b, a, m) } }
    #[inline(always)] fn sums(self, x: [__m256d; LANES]) -> __m256d {
        unsafe {
            let (ab, cd) = (_mm256_hadd_pd(x[0], x[1]), _mm256_hadd_pd(x[2], x[3]));
            let crossed = _mm256_permute2f128_pd::<0x21>(ab, cd);
            _mm256_add_pd(_mm256_blend_pd::<0b1100>(ab, cd), crossed)
        }
    }
    #[inline(always)] fn count_sign_change(self, count: __m256d, a: __m256d, b: __m256d) -> __m256d {
        unsafe {
            let differ = _mm256_srli_epi64::<63>(_mm256_castpd_si256(_mm256_xor_pd(a, b)));
            _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(count), differ))
        }
    }
    #[inline(always)] fn to_unit(self, a: __m256d) -> __m256d {
        unsafe {
            let e = _mm256_and_si256(_mm256_castpd_si256(a), _mm256_set1_epi64x(EXPONENT as i64));
            _mm256_castsi256_pd(_mm256_sub_epi64(_mm256_set1_epi64x(RECIPROCAL as i64), e))
        }
    }
}
