//! NumPy arrays as rows, without copying, and results as NumPy arrays.

use crate::errors::of_library;
use crate::run::compute;
use frosh::{Element, Pool, Rows};
use frosh_io::RowConsumer;
use half::{bf16, f16};
use numpy::{
    PyArray1, PyArray2, PyArrayDescrMethods, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::slice::from_raw_parts;

/// The element types of arrays.
#[derive(Clone, Copy)]
enum Kind {
    F16,
    F32,
    F64,
    U8,
    I8,
    /// NumPy has no such type: the Python code passes its bits as `uint16`.
    Bf16,
}

/// A C-contiguous two-dimensional array: where its values are. It does not keep the array alive.
#[derive(Clone, Copy)]
struct Place {
    kind: Kind,
    /// The address of the first value; a number, so that it can go to another thread.
    address: usize,
    rows: usize,
    dim: usize,
}

/// Gives the rows of an array to a consumer, without the interpreter's lock and inside `pool`.
///
/// The array is what the Python code prepares: C-contiguous, aligned, in native byte order, of a supported type. `first` is
/// the number of its first row in the input of the caller, for error messages.
pub(crate) fn feed<C: RowConsumer + Send>(
    array: &Bound<'_, PyAny>,
    first: usize,
    pool: &Pool,
    consumer: C,
) -> PyResult<C::Output>
where
    C::Output: Send,
{
    let array = array
        .cast::<PyUntypedArray>()
        .map_err(|_| PyTypeError::new_err("expected a NumPy array of two dimensions"))?;
    let place = place(array)?;
    compute(array.py(), || {
        // SAFETY: `place` describes `array`, which the caller holds a reference to until this call ends.
        let done = pool.install(|| unsafe { place.feed(consumer) });
        done.map_err(|error| of_library(shifted(error, first)))
    })
}

/// The error with the number of its row in the whole input.
fn shifted(mut error: frosh::Error, first: usize) -> frosh::Error {
    if let frosh::Error::NotFinite { row, .. } | frosh::Error::TooLarge { row, .. } = &mut error {
        *row = row.saturating_add(first);
    }
    error
}

/// Checks an array, and returns where its values are.
fn place(array: &Bound<'_, PyUntypedArray>) -> PyResult<Place> {
    let &[rows, dim] = array.shape() else {
        let got = array.ndim();
        return Err(PyValueError::new_err(format!("expected 2 dimensions, got {got}")));
    };
    let dtype = array.dtype();
    let kind = match (dtype.kind(), dtype.itemsize()) {
        (b'f', 2) => Kind::F16,
        (b'f', 4) => Kind::F32,
        (b'f', 8) => Kind::F64,
        (b'u', 1) => Kind::U8,
        (b'i', 1) => Kind::I8,
        (b'u', 2) => Kind::Bf16,
        _ => return Err(PyTypeError::new_err(format!("cannot read arrays of type {dtype}"))),
    };
    // None for single bytes, which have no order.
    let native = dtype.is_native_byteorder().unwrap_or(true);
    if !native || !array.is_c_contiguous() || !array.is_aligned() {
        let why = "expected a C-contiguous, aligned array in native byte order";
        return Err(PyValueError::new_err(why));
    }
    if dim == 0 {
        return Err(PyValueError::new_err("rows have no values"));
    }
    // SAFETY: a NumPy array has this structure.
    let data = unsafe { (*array.as_array_ptr()).fields.data };
    Ok(Place { kind, address: data as usize, rows, dim })
}

impl Place {
    /// Gives the rows to a consumer.
    ///
    /// # Safety
    ///
    /// The array must stay alive, and must not be resized in place, until this returns.
    unsafe fn feed<C: RowConsumer>(self, consumer: C) -> frosh::Result<C::Output> {
        // SAFETY: as for this function.
        unsafe {
            match self.kind {
                Kind::F16 => self.typed::<f16, C>(consumer),
                Kind::F32 => self.typed::<f32, C>(consumer),
                Kind::F64 => self.typed::<f64, C>(consumer),
                Kind::U8 => self.typed::<u8, C>(consumer),
                Kind::I8 => self.typed::<i8, C>(consumer),
                Kind::Bf16 => self.typed::<bf16, C>(consumer),
            }
        }
    }

    /// # Safety
    ///
    /// As for [`Place::feed`], and `T` is the element type of the array.
    unsafe fn typed<T: Element, C: RowConsumer>(self, consumer: C) -> frosh::Result<C::Output> {
        let values: &[T] = if self.rows == 0 {
            &[]
        } else {
            // SAFETY: `place` has checked that the array is contiguous and aligned, so that it has `rows * dim` values
            // of this size at this address, and every bit pattern is a value of `T`. The caller keeps the array.
            //
            // Another Python thread may write to the array meanwhile, which Rust's rules for shared slices forbid. What
            // it can change here are numbers only: the library uses values of rows in arithmetic and comparisons, never
            // as an address, an index, a length or a loop bound, and its iterations have a fixed limit. So such a race
            // gives a wrong number or a wrong code, as it does in NumPy, and no access outside the array. Python's own
            // code has no way to forbid it, and a copy of every input would cost what this package promises not to pay.
            unsafe { from_raw_parts(self.address as *const T, self.rows * self.dim) }
        };
        consumer.consume(Rows::new(values, self.dim)?)
    }
}

/// A one-dimensional NumPy array of the values, without copying them.
pub(crate) fn vector<T: numpy::Element>(py: Python<'_>, values: Vec<T>) -> Bound<'_, PyAny> {
    PyArray1::from_vec(py, values).into_any()
}

/// A NumPy array of rows of `dim` values.
pub(crate) fn matrix<T: numpy::Element>(
    py: Python<'_>,
    values: Vec<T>,
    dim: usize,
) -> PyResult<Bound<'_, PyArray2<T>>> {
    let rows = values.len() / dim.max(1);
    PyArray1::from_vec(py, values).reshape([rows, dim])
}
