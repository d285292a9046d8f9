//! Batches of vectors from files.

use crate::arrays::matrix;
use crate::errors::of_files;
use crate::run::{compute, wait};
use frosh_io::{Batches, Columns, Format, Kind, Options, Values, Vectors};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::ffi::OsString;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long one wait for a batch lasts before signals are handled.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// Batches of rows from files, in order.
#[pyclass(frozen, module = "frosh._native")]
pub(crate) struct Reader {
    batches: Mutex<Batches>,
    /// The process whose thread reads.
    process: u32,
    dim: usize,
    rows: Option<u64>,
    kind: Kind,
    files: Vec<OsString>,
}

/// What one wait for a batch gave.
enum Step {
    Batch(Values, usize),
    Waiting,
    End,
}

fn kind(name: &str) -> PyResult<Kind> {
    let known = Kind::ALL.into_iter().find(|kind| kind.name() == name);
    known.ok_or_else(|| {
        let names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        let why = format!("{name:?} is not an element type; use one of {}", names.join(", "));
        PyValueError::new_err(why)
    })
}

#[pymethods]
impl Reader {
    #[new]
    #[pyo3(signature = (paths, *, format=None, column=None, columns=None, dataset=None, dim=None, dtype=None, skip_bad=false, start=0))]
    #[allow(clippy::too_many_arguments)] // options, all by name
    fn new(
        py: Python<'_>,
        paths: Vec<OsString>,
        format: Option<&str>,
        column: Option<String>,
        columns: Option<&str>,
        dataset: Option<String>,
        dim: Option<usize>,
        dtype: Option<&str>,
        skip_bad: bool,
        start: u64,
    ) -> PyResult<Self> {
        if paths.iter().any(|path| path == "-") {
            // The interpreter reads standard input too.
            return Err(PyValueError::new_err(
                "standard input cannot be read from Python: give a file",
            ));
        }
        let parsed =
            |text: &str| text.parse::<Format>().map_err(|e| PyValueError::new_err(e.to_string()));
        let chosen =
            |text: &str| text.parse::<Columns>().map_err(|e| PyValueError::new_err(e.to_string()));
        let options = Options {
            format: format.map(parsed).transpose()?,
            column,
            columns: columns.map(chosen).transpose()?,
            dataset,
            dim,
            kind: dtype.map(kind).transpose()?,
            skip_bad,
            ..Options::default()
        };
        wait(py, move || {
            let vectors = Vectors::open(&paths, &options).map_err(of_files)?;
            Ok(Self {
                batches: Mutex::new(vectors.batches_from(start)),
                process: std::process::id(),
                dim: vectors.dim(),
                rows: vectors.rows(),
                kind: vectors.kind(),
                files: vectors.files().iter().map(|file| file.path.clone().into()).collect(),
            })
        })
    }

    #[getter]
    fn dim(&self) -> usize {
        self.dim
    }

    #[getter]
    fn rows(&self) -> Option<u64> {
        self.rows
    }

    #[getter]
    fn kind(&self) -> &'static str {
        self.kind.name()
    }

    #[getter]
    fn files(&self) -> Vec<OsString> {
        self.files.clone()
    }

    /// Rows left out so far because they cannot be used.
    #[getter]
    fn left_out(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.batches.lock().map_or(0, |batches| batches.left_out()))
    }

    /// The next rows as an array; `None` at the end.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.process != std::process::id() {
            return Err(PyRuntimeError::new_err(
                "a reader cannot be used in a forked process: open it there",
            ));
        }
        loop {
            match compute(py, || self.step())? {
                Step::Batch(values, dim) => return array(py, values, dim).map(Some),
                Step::Waiting => py.check_signals()?,
                Step::End => return Ok(None),
            }
        }
    }
}

impl Reader {
    fn step(&self) -> PyResult<Step> {
        let mut batches = self
            .batches
            .lock()
            .map_err(|_| PyRuntimeError::new_err("the reader has failed before"))?;
        let start = Instant::now();
        let waited = std::cell::Cell::new(false);
        let stop = || {
            waited.set(start.elapsed() >= ASK_EVERY);
            waited.get()
        };
        match batches.next_unless(stop).map_err(of_files)? {
            // The memory of a batch is filled again, so its values are copied.
            Some(batch) => Ok(Step::Batch(batch.values().clone(), batch.dim())),
            None if waited.get() => Ok(Step::Waiting),
            None => Ok(Step::End),
        }
    }
}

fn array(py: Python<'_>, values: Values, dim: usize) -> PyResult<Bound<'_, PyAny>> {
    Ok(match values {
        Values::F32(values) => matrix(py, values, dim)?.into_any(),
        Values::F64(values) => matrix(py, values, dim)?.into_any(),
        Values::U8(values) => matrix(py, values, dim)?.into_any(),
        Values::I8(values) => matrix(py, values, dim)?.into_any(),
        Values::F16(values) => {
            let bits: Vec<u16> = values.into_iter().map(half::f16::to_bits).collect();
            let bits = matrix(py, bits, dim)?.into_any();
            let viewed = bits.call_method1("view", ("float16",));
            viewed.map_err(|e| PyTypeError::new_err(e.to_string()))?
        }
    })
}
