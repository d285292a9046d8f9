//! Four `f64` lanes, in AVX2 + FMA where the CPU has them and in plain Rust elsewhere.
//!
//! LLVM leaves the fused loops of the eigensolver scalar or in 128-bit pieces (measured:
//! three to six times slower), so they are written once against [`Simd`] and compiled twice. The
//! twins differ only by the roundings that a fused multiply-add saves.
//!
//! Safety: this is the only file of the solver with `unsafe`. A value of type [`Avx2`] exists
//! only after run-time detection, which is what makes its methods sound to call.
#![allow(unsafe_code)]

/// Lanes per vector; the tiles are `W` x `W`.
pub(crate) const W: usize = 4;
/// Four neighbouring numbers in memory.
pub(crate) type Lane = [f64; W];

/// The operations the kernels need; masks and counts live in the bits of a `V`.
pub(crate) trait Simd: Copy + Send + Sync {
    type V: Copy;
    /// Runs `f` where this instruction set is enabled, so that everything inlines into it.
    fn run<R>(self, f: impl FnOnce() -> R) -> R;
    fn splat(self, x: f64) -> Self::V;
    fn load(self, x: &Lane) -> Self::V;
    fn store(self, x: Self::V, to: &mut Lane);
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `c - a * b`.
    fn fnma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    fn abs(self, a: Self::V) -> Self::V;
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// A mask of `a < b`.
    fn lt(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a` where the mask holds, else `b`.
    fn select(self, mask: Self::V, a: Self::V, b: Self::V) -> Self::V;
    /// The sums over the lanes of four vectors.
    fn sums(self, x: [Self::V; W]) -> Self::V;
    /// Adds one to the integer lanes of `count` where `a` and `b` differ in sign.
    fn count_sign_change(self, count: Self::V, a: Self::V, b: Self::V) -> Self::V;
    /// The power of two that brings `a` into [1, 2); 2^1023 if `a` is zero or subnormal.
    fn to_unit(self, a: Self::V) -> Self::V;
}

const EXPONENT: u64 = 0x7ff0_0000_0000_0000;
/// Of a power of two with biased exponent `e` the reciprocal has `2046 - e`, finite down to 0.
const TOP: u64 = 2046 << 52;

/// The twin for every CPU.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

#[inline(always)]
fn each(f: impl Fn(usize) -> f64) -> Lane {
    [f(0), f(1), f(2), f(3)]
}

#[rustfmt::skip]
impl Simd for Portable {
    type V = Lane;
    #[inline(always)] fn run<R>(self, f: impl FnOnce() -> R) -> R { f() }
    #[inline(always)] fn splat(self, x: f64) -> Lane { [x; W] }
    #[inline(always)] fn load(self, x: &Lane) -> Lane { *x }
    #[inline(always)] fn store(self, x: Lane, to: &mut Lane) { *to = x }
    #[inline(always)] fn add(self, a: Lane, b: Lane) -> Lane { each(|i| a[i] + b[i]) }
    #[inline(always)] fn sub(self, a: Lane, b: Lane) -> Lane { each(|i| a[i] - b[i]) }
    #[inline(always)] fn mul(self, a: Lane, b: Lane) -> Lane { each(|i| a[i] * b[i]) }
    #[inline(always)] fn div(self, a: Lane, b: Lane) -> Lane { each(|i| a[i] / b[i]) }
    #[inline(always)] fn fma(self, a: Lane, b: Lane, c: Lane) -> Lane { each(|i| a[i] * b[i] + c[i]) }
    #[inline(always)] fn fnma(self, a: Lane, b: Lane, c: Lane) -> Lane { each(|i| c[i] - a[i] * b[i]) }
    #[inline(always)] fn abs(self, a: Lane) -> Lane { each(|i| a[i].abs()) }
    #[inline(always)] fn max(self, a: Lane, b: Lane) -> Lane { each(|i| if a[i] > b[i] { a[i] } else { b[i] }) }
    #[inline(always)] fn lt(self, a: Lane, b: Lane) -> Lane { each(|i| f64::from_bits(0u64.wrapping_sub(u64::from(a[i] < b[i])))) }
    #[inline(always)] fn select(self, m: Lane, a: Lane, b: Lane) -> Lane { each(|i| if m[i].is_sign_negative() { a[i] } else { b[i] }) }
    #[inline(always)] fn sums(self, x: [Lane; W]) -> Lane { each(|i| (x[i][0] + x[i][1]) + (x[i][2] + x[i][3])) }
    #[inline(always)] fn count_sign_change(self, count: Lane, a: Lane, b: Lane) -> Lane {
        each(|i| f64::from_bits(count[i].to_bits() + ((a[i].to_bits() ^ b[i].to_bits()) >> 63)))
    }
    #[inline(always)] fn to_unit(self, a: Lane) -> Lane { each(|i| f64::from_bits(TOP - (a[i].to_bits() & EXPONENT))) }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;

#[cfg(target_arch = "x86_64")]
#[expect(
    clippy::undocumented_unsafe_blocks,
    reason = "one reason for all: a token exists only where the CPU has AVX2 and FMA"
)]
mod avx2 {
    use super::{EXPONENT, Lane, Simd, TOP, W};
    use std::arch::x86_64::*;

    /// Proof that this CPU has AVX2 and FMA.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx2(());

    impl Avx2 {
        pub(crate) fn detect() -> Option<Self> {
            (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"))
                .then_some(Self(()))
        }
    }

    #[target_feature(enable = "avx2,fma")]
    fn enabled<R>(f: impl FnOnce() -> R) -> R {
        f()
    }

    // SAFETY of every block below: `self` exists only if `detect` found AVX2 and FMA; loads and
    // stores go through references to exactly 32 bytes and ask for no alignment.
    #[rustfmt::skip]
    impl Simd for Avx2 {
        type V = __m256d;
        #[inline(always)] fn run<R>(self, f: impl FnOnce() -> R) -> R { unsafe { enabled(f) } }
        #[inline(always)] fn splat(self, x: f64) -> __m256d { unsafe { _mm256_set1_pd(x) } }
        #[inline(always)] fn load(self, x: &Lane) -> __m256d { unsafe { _mm256_loadu_pd(x.as_ptr()) } }
        #[inline(always)] fn store(self, x: __m256d, to: &mut Lane) { unsafe { _mm256_storeu_pd(to.as_mut_ptr(), x) } }
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
        #[inline(always)] fn sums(self, x: [__m256d; W]) -> __m256d {
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
                _mm256_castsi256_pd(_mm256_sub_epi64(_mm256_set1_epi64x(TOP as i64), e))
            }
        }
    }
}
