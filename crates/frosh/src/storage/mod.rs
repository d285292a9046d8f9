//! Files: the safetensors container, atomic replacement, mapped memory, and what each kind of file holds.

pub(crate) mod atomic_file;
pub(crate) mod container;
pub(crate) mod formats;
#[expect(unsafe_code, reason = "maps files into memory")]
pub(crate) mod mapped;
