//! Kernels by intrinsics of aarch64.

pub(crate) mod hamming_neon;
