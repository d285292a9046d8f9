//! The three inner loops, written once over a small [`Vector`] trait.
//!
//! | kernel | does | AVX-512 | AVX2 | portable |
//! |---|---|---|---|---|
//! | [`hadamard`] | one sub-block of the SRHT | yes | yes | yes |
//! | [`scatter`] | one sub-block of the sparse embedding | yes | yes | yes |
//! | [`project`] | projection and sign bits of rows | yes | yes | yes |
//!
//! This folder holds all intrinsics and nearly all `unsafe` code of the crate. The public functions
//! of each kernel are safe: they check every length, then pick the widest instruction set that the
//! CPU has, at run time. The portable vector is four floats wide, which compilers can turn into SSE2 on
//! x86-64 and NEON on aarch64. The one-float vector serves the last columns and is the scalar twin
//! that the tests compare with.
//!
//! `hadamard` and `scatter` only add, subtract, and multiply by ±1, so a fused multiply-add rounds
//! as the two steps do and every instruction set gives the same bytes. `project` really multiplies;
//! there, bytes are the same for one instruction set.

#[cfg(target_arch = "aarch64")]
pub(crate) mod aarch64;
pub(crate) mod hadamard;
pub(crate) mod lanes;
pub(crate) mod project;
pub(crate) mod scatter;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86_64;

/// A register of floats. All methods need the instruction set that the type stands for.
pub(crate) trait Vector: Copy {
    /// Floats in the register.
    const LANES: usize;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    unsafe fn splat(value: f32) -> Self;
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    /// `self * factor + addend`
    unsafe fn mul_add(self, factor: Self, addend: Self) -> Self;
    /// `addend - self * factor`
    unsafe fn neg_mul_add(self, factor: Self, addend: Self) -> Self;
    /// Lane by lane the larger of `self` and the magnitude bits of `x`, both seen as integers.
    unsafe fn max_bits(self, x: Self) -> Self;
    /// The largest lane, seen as an integer.
    unsafe fn largest(self) -> u32;
    /// One bit per lane, least significant first: is the lane above zero?
    unsafe fn positive(self) -> u32;
    /// Asks memory for the cache line at `_at`, which may be any address.
    #[inline(always)]
    unsafe fn prefetch(_at: *const f32) {}
}

const MAGNITUDE: u32 = 0x7fff_ffff;

impl Vector for f32 {
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

/// Four floats in plain Rust.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Portable([f32; 4]);

impl Portable {
    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        Self(std::array::from_fn(|i| f(self.0[i], other.0[i])))
    }
}

impl Vector for Portable {
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

/// An instruction set that this CPU has; holding one is the proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Isa(Set);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    #[cfg(test)]
    Scalar,
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Isa {
    /// The best one here.
    pub(crate) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx2") {
                return Self(Set::Avx512);
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                return Self(Set::Avx2);
            }
        }
        Self(Set::Portable)
    }

    /// Every one that this CPU can run, for tests that compare them.
    #[cfg(test)]
    pub(crate) fn every() -> Vec<Self> {
        let all = [
            (Set::Scalar, true),
            (Set::Portable, true),
            #[cfg(target_arch = "x86_64")]
            (Set::Avx2, is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")),
            #[cfg(target_arch = "x86_64")]
            (Set::Avx512, is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx2")),
        ];
        all.into_iter().filter(|(_, here)| *here).map(|(set, _)| Self(set)).collect()
    }
}

/// Calls `$kernel::<V>(args)` compiled for the instruction set that `$isa` stands for.
macro_rules! dispatch {
    ($isa:expr, $kernel:ident ( $($arg:ident : $ty:ty),* ) -> $out:ty) => {{
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        unsafe fn avx2($($arg: $ty),*) -> $out {
            // SAFETY: the caller's promise covers the generic kernel.
            unsafe { $kernel::<core::arch::x86_64::__m256>($($arg),*) }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx2,fma")]
        unsafe fn avx512($($arg: $ty),*) -> $out {
            // SAFETY: as above.
            unsafe { $kernel::<core::arch::x86_64::__m512>($($arg),*) }
        }
        // SAFETY: an `Isa` exists only where the CPU has it; the lengths were checked above.
        unsafe {
            match $isa.0 {
                #[cfg(test)]
                $crate::arch::Set::Scalar => $kernel::<f32>($($arg),*),
                $crate::arch::Set::Portable => $kernel::<$crate::arch::Portable>($($arg),*),
                #[cfg(target_arch = "x86_64")]
                $crate::arch::Set::Avx2 => avx2($($arg),*),
                #[cfg(target_arch = "x86_64")]
                $crate::arch::Set::Avx512 => avx512($($arg),*),
            }
        }
    }};
}
pub(crate) use dispatch;

/// A window of `width` columns on rows that lie `stride` floats apart.
#[derive(Clone, Copy)]
pub(crate) struct Panel<'a> {
    data: &'a [f32],
    stride: usize,
    width: usize,
    rows: usize,
}

impl<'a> Panel<'a> {
    /// Columns `from..from + width` of `rows` rows of `dim` floats.
    pub(crate) fn new(data: &'a [f32], dim: usize, from: usize, width: usize) -> Self {
        assert!(from + width <= dim && data.len().is_multiple_of(dim));
        let rows = data.len() / dim;
        Self { data: &data[from.min(data.len())..], stride: dim, width, rows }
    }

    fn row(&self, i: usize) -> &'a [f32] {
        &self.data[i * self.stride..i * self.stride + self.width]
    }
}

/// The largest magnitude among the values, as bits.
pub(crate) fn magnitude_bits(values: &[f32]) -> u32 {
    dispatch!(Isa::detect(), largest_magnitude(values: &[f32]) -> u32)
}

#[inline(always)]
unsafe fn largest_magnitude<V: Vector>(values: &[f32]) -> u32 {
    let mut wide = [0; 4].map(|_| {
        // SAFETY: the caller has the instruction set; so below.
        unsafe { V::splat(0.0) }
    });
    let mut chunks = values.chunks_exact(4 * V::LANES);
    for chunk in &mut chunks {
        for (w, values) in wide.iter_mut().zip(chunk.chunks_exact(V::LANES)) {
            // SAFETY: as many values as a register has lanes.
            *w = unsafe { w.max_bits(V::load(values.as_ptr())) };
        }
    }
    let tail = chunks.remainder().iter().fold(0, |m, x| m.max(x.to_bits() & MAGNITUDE));
    // SAFETY: see above.
    wide.iter().fold(tail, |m, w| m.max(unsafe { w.largest() }))
}

/// Whether all values are finite and of a magnitude that is taken.
pub(crate) fn usable(values: &[f32]) -> bool {
    magnitude_bits(values) <= crate::rows::LIMIT.to_bits()
}

/// Bytes as floats, less the reference: a plain loop, which compilers turn into each instruction set's own
/// conversion.
macro_rules! bytes_minus {
    ($name:ident, $t:ty) => {
        pub(crate) fn $name(row: &[$t], reference: &[f32], out: &mut [f32]) {
            $name::run(Isa::detect(), row, reference, out);
        }

        mod $name {
            use super::*;

            pub(super) fn run(isa: Isa, row: &[$t], reference: &[f32], out: &mut [f32]) {
                dispatch!(isa, each(row: &[$t], reference: &[f32], out: &mut [f32]) -> ())
            }

            #[inline(always)]
            unsafe fn each<V: Vector>(row: &[$t], reference: &[f32], out: &mut [f32]) {
                for ((o, x), r) in out.iter_mut().zip(row).zip(reference) {
                    *o = f32::from(*x) - r;
                }
            }

            #[test]
            fn every_instruction_set_gives_the_same_bytes() {
                for len in [0, 1, 7, 8, 31, 64, 100] {
                    let row: Vec<$t> = (0..len).map(|i| (i * 37 % 256) as u8 as $t).collect();
                    let reference: Vec<f32> = (0..len).map(|i| i as f32 * 0.3 - 7.0).collect();
                    let want: Vec<f32> =
                        row.iter().zip(&reference).map(|(x, r)| f32::from(*x) - r).collect();
                    for isa in Isa::every() {
                        let mut got = vec![0.0; len];
                        run(isa, &row, &reference, &mut got);
                        assert_eq!(got, want, "{isa:?}");
                    }
                }
            }
        }
    };
}
bytes_minus!(u8_minus, u8);
bytes_minus!(i8_minus, i8);
