//! Vectors of x86-64.

use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

/// Implements [`F32Vector`](crate::arch::vector::F32Vector) for a register type, by the intrinsics of its width.
macro_rules! f32_vector {
    ($t:ty, $lanes:literal, $load:ident, $store:ident, $set1:ident, $add:ident, $sub:ident,
     $mul:ident, $fmadd:ident, $fnmadd:ident, $positive:expr, $max_bits:expr) => {
        impl $crate::arch::vector::F32Vector for $t {
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
                $crate::arch::x86_64::prefetch(at.cast());
            }
        }
    };
}

pub(crate) mod avx2;
pub(crate) mod avx512;

/// Prefetches the cache line at any address into all levels of cache.
#[inline(always)]
pub(crate) fn prefetch(address: *const i8) {
    // SAFETY: a prefetch reads nothing, whatever the address, and every x86-64 has it.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address) }
}
