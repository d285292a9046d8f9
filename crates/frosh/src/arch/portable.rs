//! Vectors in plain Rust, for every CPU. Compilers make of them SSE2 on x86-64 and NEON on aarch64.
//!
//! `f32` itself is a vector of one lane: it serves the last columns, and it is the scalar twin that tests compare with.
//! There is no portable [`ByteVector`](super::vector::ByteVector): kernels on bytes have scalar twins of their own.

use super::vector::{EXPONENT, F32Vector, F64Vector, F64x4, LANES, MAGNITUDE, RECIPROCAL};

impl F32Vector for f32 {
    const LANES: usize = 1;
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller points at one readable float.
        unsafe { from.read() }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller points at one writable float.
        unsafe { to.write(self) }
    }
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        value
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        self + other
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        self - other
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        self * other
    }
    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, addend: Self) -> Self {
        self * factor + addend
    }
    #[inline(always)]
    unsafe fn neg_mul_add(self, factor: Self, addend: Self) -> Self {
        addend - self * factor
    }
    #[inline(always)]
    unsafe fn max_bits(self, x: Self) -> Self {
        f32::from_bits(self.to_bits().max(x.to_bits() & MAGNITUDE))
    }
    #[inline(always)]
    unsafe fn largest(self) -> u32 {
        self.to_bits()
    }
    #[inline(always)]
    unsafe fn positive(self) -> u32 {
        u32::from(self > 0.0)
    }
}

/// Four floats.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct F32x4([f32; 4]);

impl F32x4 {
    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        Self(std::array::from_fn(|i| f(self.0[i], other.0[i])))
    }
}

impl F32Vector for F32x4 {
    const LANES: usize = 4;
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller points at four readable floats.
        Self(unsafe { from.cast::<[f32; 4]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller points at four writable floats.
        unsafe { to.cast::<[f32; 4]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Self([value; 4])
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        self.zip(other, |a, b| a - b)
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        self.zip(other, |a, b| a * b)
    }
    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, addend: Self) -> Self {
        self.zip(factor, |a, b| a * b).zip(addend, |p, c| p + c)
    }
    #[inline(always)]
    unsafe fn neg_mul_add(self, factor: Self, addend: Self) -> Self {
        self.zip(factor, |a, b| a * b).zip(addend, |p, c| c - p)
    }
    #[inline(always)]
    unsafe fn max_bits(self, x: Self) -> Self {
        self.zip(x, |m, x| f32::from_bits(m.to_bits().max(x.to_bits() & MAGNITUDE)))
    }
    #[inline(always)]
    unsafe fn largest(self) -> u32 {
        self.0.iter().fold(0, |m, x| m.max(x.to_bits()))
    }
    #[inline(always)]
    unsafe fn positive(self) -> u32 {
        self.0.iter().enumerate().fold(0, |bits, (i, x)| bits | u32::from(*x > 0.0) << i)
    }
}

/// Vectors of `f64` as arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortableF64;

#[inline(always)]
fn each(f: impl Fn(usize) -> f64) -> F64x4 {
    [f(0), f(1), f(2), f(3)]
}

#[rustfmt::skip]
impl F64Vector for PortableF64 {
    type V = F64x4;
    #[inline(always)] fn run<R>(self, f: impl FnOnce() -> R) -> R { f() }
    #[inline(always)] fn splat(self, x: f64) -> F64x4 { [x; LANES] }
    #[inline(always)] fn load(self, x: &F64x4) -> F64x4 { *x }
    #[inline(always)] fn store(self, x: F64x4, to: &mut F64x4) { *to = x }
    #[inline(always)] fn add(self, a: F64x4, b: F64x4) -> F64x4 { each(|i| a[i] + b[i]) }
    #[inline(always)] fn sub(self, a: F64x4, b: F64x4) -> F64x4 { each(|i| a[i] - b[i]) }
    #[inline(always)] fn mul(self, a: F64x4, b: F64x4) -> F64x4 { each(|i| a[i] * b[i]) }
    #[inline(always)] fn div(self, a: F64x4, b: F64x4) -> F64x4 { each(|i| a[i] / b[i]) }
    #[inline(always)] fn fma(self, a: F64x4, b: F64x4, c: F64x4) -> F64x4 { each(|i| a[i] * b[i] + c[i]) }
    #[inline(always)] fn fnma(self, a: F64x4, b: F64x4, c: F64x4) -> F64x4 { each(|i| c[i] - a[i] * b[i]) }
    #[inline(always)] fn abs(self, a: F64x4) -> F64x4 { each(|i| a[i].abs()) }
    #[inline(always)] fn max(self, a: F64x4, b: F64x4) -> F64x4 { each(|i| if a[i] > b[i] { a[i] } else { b[i] }) }
    #[inline(always)] fn lt(self, a: F64x4, b: F64x4) -> F64x4 { each(|i| f64::from_bits(0u64.wrapping_sub(u64::from(a[i] < b[i])))) }
    #[inline(always)] fn select(self, m: F64x4, a: F64x4, b: F64x4) -> F64x4 { each(|i| if m[i].is_sign_negative() { a[i] } else { b[i] }) }
    #[inline(always)] fn sums(self, x: [F64x4; LANES]) -> F64x4 { each(|i| (x[i][0] + x[i][1]) + (x[i][2] + x[i][3])) }
    #[inline(always)] fn count_sign_change(self, count: F64x4, a: F64x4, b: F64x4) -> F64x4 {
        each(|i| f64::from_bits(count[i].to_bits() + ((a[i].to_bits() ^ b[i].to_bits()) >> 63)))
    }
    #[inline(always)] fn to_unit(self, a: F64x4) -> F64x4 { each(|i| f64::from_bits(RECIPROCAL - (a[i].to_bits() & EXPONENT))) }
}
