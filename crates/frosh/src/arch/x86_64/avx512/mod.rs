//! Vectors of 64 bytes.

mod bytes;
mod floats;

pub(crate) use bytes::ByteLine;
