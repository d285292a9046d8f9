//! Kernels by intrinsics of x86-64.

pub(crate) mod hamming_avx2;
pub(crate) mod hamming_avx512;
pub(super) mod vectors;
