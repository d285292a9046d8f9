//! The extension module `frosh._native`: what the Python package calls.
//!
//! The Python code in `package/frosh` turns any input into C-contiguous arrays of a type that the library reads, in
//! pieces. The functions here take one piece at a time: so a signal is handled between two pieces, and memory does not
//! grow with the input. Long computations that cannot be cut into pieces run in [`run::wait`].
//!
//! The interpreter's lock is released in every computation. No function here keeps the lock while it waits for a mutex.

mod arrays;
mod arrow;
mod codes;
mod errors;
mod evaluate;
mod index;
mod model;
mod pools;
mod reader;
mod run;
mod sketch;

/// What the Python package calls.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::arrow::{Block, Blocks, arrow_blocks};
    #[pymodule_export]
    use crate::codes::{Codes, Queries};
    #[pymodule_export]
    use crate::evaluate::{ExactSearch, held_out, measure};
    #[pymodule_export]
    use crate::index::Index;
    #[pymodule_export]
    use crate::model::Model;
    #[pymodule_export]
    use crate::pools::threads;
    #[pymodule_export]
    use crate::reader::Reader;
    #[pymodule_export]
    use crate::sketch::{Sketch, quantizer_rows};
}
