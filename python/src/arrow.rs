//! Arrow data of other libraries (pyarrow, polars, DuckDB), by the PyCapsule interface and without copying values.
//!
//! A column of lists becomes a block of rows. NumPy sees a block as an array, by `__array_interface__`, and keeps it
//! alive.

use arrow_array::cast::AsArray;
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::ffi_stream::{ArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::{Array, ArrayRef, make_array};
use arrow_schema::DataType;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods, PyDict};
use std::ffi::CStr;
use std::sync::Mutex;

/// Values of rows: of one list column, or one column of numbers.
#[pyclass(frozen, module = "frosh._native")]
pub(crate) struct Block {
    /// The values, one after the other.
    values: ArrayRef,
    rows: usize,
    /// Values of a row; `None` for a column of numbers.
    dim: Option<usize>,
}

/// Blocks of an Arrow array or stream, read one at a time.
#[pyclass(frozen, module = "frosh._native")]
pub(crate) struct Blocks {
    source: Mutex<Source>,
    column: Option<String>,
}

enum Source {
    One(Option<ArrayRef>),
    Stream(ArrayStreamReader),
}

/// The blocks of an object with `__arrow_c_stream__` or `__arrow_c_array__`.
#[pyfunction]
#[pyo3(signature = (object, column=None))]
pub(crate) fn arrow_blocks(object: &Bound<'_, PyAny>, column: Option<String>) -> PyResult<Blocks> {
    let source = if object.hasattr("__arrow_c_array__")? {
        let pair = object.call_method0("__arrow_c_array__")?;
        let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) = pair
            .extract()
            .map_err(|_| PyTypeError::new_err("__arrow_c_array__ gave no two capsules"))?;
        let schema = pointer::<FFI_ArrowSchema>(&schema, c"arrow_schema")?;
        let array = pointer::<FFI_ArrowArray>(&array, c"arrow_array")?;
        // SAFETY: the capsules hold these structures, by their names. The array is moved out, and what stays behind is
        // marked as released, as the interface asks. The schema stays in its capsule, which outlives this use.
        let data = unsafe { from_ffi(FFI_ArrowArray::from_raw(array), &*schema) };
        Source::One(Some(make_array(data.map_err(of_arrow)?)))
    } else {
        let capsule = object.call_method0("__arrow_c_stream__")?;
        let capsule = capsule
            .cast_into::<PyCapsule>()
            .map_err(|_| PyTypeError::new_err("__arrow_c_stream__ gave no capsule"))?;
        let stream = pointer::<FFI_ArrowArrayStream>(&capsule, c"arrow_array_stream")?;
        // SAFETY: the capsule holds this structure, by its name. It is moved out, and marked as released.
        Source::Stream(unsafe { ArrayStreamReader::from_raw(stream) }.map_err(of_arrow)?)
    };
    Ok(Blocks { source: Mutex::new(source), column })
}

fn pointer<T>(capsule: &Bound<'_, PyCapsule>, name: &CStr) -> PyResult<*mut T> {
    Ok(capsule.pointer_checked(Some(name))?.as_ptr().cast())
}

fn of_arrow(error: arrow_schema::ArrowError) -> PyErr {
    PyValueError::new_err(format!("cannot read the Arrow data: {error}"))
}

#[pymethods]
impl Blocks {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    /// The blocks of the next batch: one for a column of lists, or one for each column of numbers.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Vec<Block>>> {
        let next = py.detach(|| {
            let failed = |_| PyRuntimeError::new_err("the Arrow stream has failed before");
            match &mut *self.source.lock().map_err(failed)? {
                Source::One(array) => Ok(array.take()),
                Source::Stream(stream) => stream.next().transpose().map_err(of_arrow),
            }
        })?;
        next.map(|array| blocks(&array, self.column.as_deref())).transpose()
    }
}

#[pymethods]
impl Block {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let data = self.values.to_data();
        let (code, size) = numbers(data.data_type())
            .ok_or_else(|| PyTypeError::new_err(wrong_type(data.data_type())))?;
        let buffer = &data.buffers()[0];
        // Checked, because the lengths come from another library.
        let (start, length) = (data.offset() * size, data.len() * size);
        if start + length > buffer.len() {
            return Err(PyValueError::new_err("the Arrow data is shorter than its length says"));
        }
        let order = if cfg!(target_endian = "little") { '<' } else { '>' };
        let order = if size == 1 { '|' } else { order };
        let dict = PyDict::new(py);
        match self.dim {
            Some(dim) => dict.set_item("shape", (self.rows, dim))?,
            None => dict.set_item("shape", (self.rows,))?,
        }
        dict.set_item("typestr", format!("{order}{code}{size}"))?;
        dict.set_item("data", (buffer.as_ptr() as usize + start, true))?;
        dict.set_item("version", 3)?;
        Ok(dict)
    }
}

/// The letter and the size of a type of numbers, as NumPy writes them.
fn numbers(kind: &DataType) -> Option<(char, usize)> {
    Some(match kind {
        DataType::Float16 => ('f', 2),
        DataType::Float32 => ('f', 4),
        DataType::Float64 => ('f', 8),
        DataType::Int8 => ('i', 1),
        DataType::Int16 => ('i', 2),
        DataType::Int32 => ('i', 4),
        DataType::Int64 => ('i', 8),
        DataType::UInt8 => ('u', 1),
        DataType::UInt16 => ('u', 2),
        DataType::UInt32 => ('u', 4),
        DataType::UInt64 => ('u', 8),
        _ => return None,
    })
}

fn wrong_type(kind: &DataType) -> String {
    format!("expected lists of numbers, got Arrow data of type {kind}")
}

/// The blocks of an array of lists, or of a structure (a batch of a table) with a column of lists or columns of numbers.
fn blocks(array: &ArrayRef, column: Option<&str>) -> PyResult<Vec<Block>> {
    let DataType::Struct(fields) = array.data_type() else {
        return Ok(vec![lists(array)?]);
    };
    let table = array.as_struct();
    if table.null_count() > 0 {
        return Err(null_row(array));
    }
    let names = || fields.iter().map(|f| f.name().as_str()).collect::<Vec<_>>().join(", ");
    if let Some(name) = column {
        let found = table.column_by_name(name).ok_or_else(|| {
            PyValueError::new_err(format!(
                "there is no column {name:?}: the columns are {}",
                names()
            ))
        })?;
        return Ok(vec![lists(found)?]);
    }
    let is_list = |array: &&ArrayRef| {
        use DataType::{FixedSizeList, LargeList, List};
        matches!(array.data_type(), FixedSizeList(..) | List(_) | LargeList(_))
    };
    let list_columns: Vec<&ArrayRef> = table.columns().iter().filter(is_list).collect();
    match list_columns[..] {
        [only] => Ok(vec![lists(only)?]),
        [] if table.columns().iter().all(|c| numbers(c.data_type()).is_some()) => {
            table.columns().iter().map(number_column).collect()
        }
        _ => Err(PyValueError::new_err(format!(
            "expected one column of lists, or columns of numbers: choose one of {} by its name",
            names()
        ))),
    }
}

fn number_column(array: &ArrayRef) -> PyResult<Block> {
    if array.null_count() > 0 {
        return Err(null_row(array));
    }
    Ok(Block { values: array.clone(), rows: array.len(), dim: None })
}

fn null_row(array: &ArrayRef) -> PyErr {
    let row = (0..array.len()).find(|row| array.is_null(*row)).unwrap_or(0);
    PyValueError::new_err(format!("row {row} is null: fill or remove such rows"))
}

/// The block of a column of lists of equal length.
fn lists(array: &ArrayRef) -> PyResult<Block> {
    if array.null_count() > 0 {
        return Err(null_row(array));
    }
    let rows = array.len();
    let (values, dim) = match array.data_type() {
        DataType::FixedSizeList(_, size) => {
            let list = array.as_fixed_size_list();
            let dim = usize::try_from(*size).unwrap_or(0);
            // The child of a slice is the part that belongs to it.
            let from = list.value_offset_at(0);
            let child = list.values();
            if from + rows * dim > child.len() {
                return Err(PyValueError::new_err(
                    "the Arrow data is shorter than its length says",
                ));
            }
            (child.slice(from, rows * dim), dim)
        }
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let offsets: Vec<i64> = list.value_offsets().iter().map(|o| i64::from(*o)).collect();
            (list.values().clone(), &offsets[..]).equal_lengths(rows)?
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            (list.values().clone(), list.value_offsets()).equal_lengths(rows)?
        }
        other => return Err(PyTypeError::new_err(wrong_type(other))),
    };
    if numbers(values.data_type()).is_none() {
        return Err(PyTypeError::new_err(wrong_type(array.data_type())));
    }
    if values.null_count() > 0 {
        let at = (0..values.len()).find(|i| values.is_null(*i)).unwrap_or(0);
        let (row, column) = (at / dim.max(1), at % dim.max(1));
        let why = format!("row {row}, column {column} is null: fill or remove such rows");
        return Err(PyValueError::new_err(why));
    }
    Ok(Block { values, rows, dim: Some(dim) })
}

trait EqualLengths {
    fn equal_lengths(self, rows: usize) -> PyResult<(ArrayRef, usize)>;
}

impl EqualLengths for (ArrayRef, &[i64]) {
    /// The values of lists that all have the length of the first.
    fn equal_lengths(self, rows: usize) -> PyResult<(ArrayRef, usize)> {
        let (values, offsets) = self;
        if rows == 0 {
            return Ok((values.slice(0, 0), 0));
        }
        let dim = offsets[1] - offsets[0];
        if let Some(row) = offsets.windows(2).position(|pair| pair[1] - pair[0] != dim) {
            let got = offsets[row + 1] - offsets[row];
            let why = format!(
                "row {row} has {got} values, and row 0 has {dim}: all rows need the same number"
            );
            return Err(PyValueError::new_err(why));
        }
        let (from, dim) = (offsets[0] as usize, dim as usize);
        Ok((values.slice(from, rows * dim), dim))
    }
}
