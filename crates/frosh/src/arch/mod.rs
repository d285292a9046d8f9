//! The inner loops: every intrinsic and nearly all `unsafe` code of the crate. Elsewhere, only `storage/mapped.rs` may
//! use it (`unsafe_code` is denied).
//!
//! # Kernels
//!
//! | kernel | does | AVX-512 | AVX2 | NEON | portable |
//! |---|---|---|---|---|---|
//! | [`hadamard`] | one sub-block of the SRHT | yes | yes | portable | yes |
//! | [`scatter`] | one sub-block of the sparse embedding | yes | yes | portable | yes |
//! | [`project`] | projection and sign bits of rows | yes | yes | portable | yes |
//! | [`elementwise`] | the largest magnitude of a row; bytes less a reference | yes | yes | portable | yes |
//! | eigensolver (`sketch/frequent_directions/eigen`) | eigenpairs of a small matrix | AVX2 | yes | portable | yes |
//! | [`hamming`], rows of 8 and 16 bytes | distances of a query to rows | `vpopcntq` | `vpshufb` | `cnt` | `count_ones` |
//! | [`hamming`], rows of 32, 64, 96, ... bytes | the same | `vpopcntq` (not 96, 160, ...) | `vpshufb` | `count_ones` | `count_ones` |
//! | [`hamming`], other widths, and picked rows | the same | `popcnt` | `popcnt` | `count_ones` | `count_ones` |
//! | [`nibble_planes`] | distances and bounds, for many queries | `vpshufb` | `vpshufb` | `tbl` | scalar |
//! | [`byte_planes`] | bounds for codes of a quantiser | `vpermi2b` | `vpshufb` | `tbl` | scalar |
//! | [`byte_lanes`] | the same, for 64 queries | `vpaddusb` | `vpaddusb` | `uqadd` | scalar |
//! | [`byte_products`] | products of rows and words as bytes | `vpdpbusd` | `vpmaddubsw` | portable | yes |
//! | [`sixteen`] | beam search, distances | yes | yes | portable | yes |
//!
//! Which features each column needs is in [`isa`]; it differs by kind of element.
//!
//! # Layout
//!
//! | file | holds |
//! |---|---|
//! | `isa.rs` | [`Isa`]: detection, the tokens that prove it, and the macros that call a kernel compiled for them |
//! | `vector.rs` | the vector traits, one for each kind of element |
//! | `portable.rs` | vectors in plain Rust |
//! | `x86_64/avx2/`, `x86_64/avx512/`, `aarch64/neon.rs` | vectors by intrinsics: `floats`, `doubles`, `bytes` |
//! | the other files | one kernel each: its safe function, its loops over a vector trait, and its tests |
//!
//! # A new kernel
//!
//! Write `unsafe fn run<V: F32Vector>(...)` with `#[inline(always)]`, and so for all that it calls. What is not inlined
//! is compiled without the features, and each of its intrinsics becomes a call. This happens to closures (`map`,
//! `fold`, `from_fn`), which cannot be marked so: no closure may use a vector. Write a safe function that takes an
//! [`Isa`], checks every length that the loops rely on, and ends with `dispatch_f32!` (or `dispatch_bytes!`, which also
//! takes a scalar twin). Write a test that runs `Isa::every_and_scalar` (or `Isa::every`) against the definition.
//!
//! # Safety
//!
//! Two things can go wrong: an instruction that the CPU does not have, and memory that is not there.
//!
//! - *Instructions.* A token such as [`isa::Avx2Fma`] can be made in one place only, [`isa`], after the CPU was asked
//!   for its features. The macros `dispatch_*` match on a token before they call a function with `target_feature`
//!   attributes. Everything else with intrinsics is reached through such a function; "the caller has the features" in a
//!   comment means this.
//! - *Memory.* The safe function of each kernel asserts the lengths. Loops below it index by what was asserted. Prefetches
//!   may have any address.
//!
//! # Same bytes
//!
//! [`hadamard`] and [`scatter`] only add, subtract, and multiply by ±1, so a fused multiply-add rounds as the two steps
//! do, and every instruction set gives the same bytes. [`hamming`], [`nibble_planes`] and [`byte_products`] are exact.
//! [`project`] and the eigensolver multiply: there, bytes are the same for one instruction set.
#![cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    expect(dead_code, reason = "vectors of bytes are used on these only")
)]

#[cfg(target_arch = "aarch64")]
pub(crate) mod aarch64;
pub(crate) mod byte_lanes;
pub(crate) mod byte_planes;
pub(crate) mod byte_products;
pub(crate) mod elementwise;
pub(crate) mod hadamard;
pub(crate) mod hamming;
pub(crate) mod isa;
pub(crate) mod nibble_planes;
pub(crate) mod portable;
pub(crate) mod project;
pub(crate) mod scatter;
pub(crate) mod sixteen;
pub(crate) mod vector;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86_64;

pub(crate) use elementwise::{
    below_and_equal, buckets, bytes_minus, halves_minus, i8_minus, magnitude_bits, scores,
    u8_minus, usable,
};
pub(crate) use isa::{F64Set, Isa, with_f64s};
pub(crate) use vector::{F64Vector, F64x4, LANES};

/// Prefetches item `i`, where the CPU can; `i` may lie outside.
#[inline(always)]
pub(crate) fn prefetch<T>(items: &[T], i: usize) {
    #[cfg(target_arch = "x86_64")]
    x86_64::prefetch(items.as_ptr().wrapping_add(i).cast());
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (items, i);
}

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
