//! Vectors of aarch64.

pub(crate) mod neon;
