//! Vectors of 32 bytes.

mod bytes;
mod doubles;
mod floats;

pub(crate) use bytes::{ByteLine, starts};
