//! Files: the safetensors container, the file formats, atomic replacement, and memory mapping.

pub(crate) mod atomic_file;
pub(crate) mod container;
pub(crate) mod formats;
#[expect(unsafe_code, reason = "maps files into memory")]
pub(crate) mod mapped;
