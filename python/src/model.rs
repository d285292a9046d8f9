//! The fitted model.

use crate::arrays::{self, matrix, vector};
use crate::codes::{Codes, Queries};
use crate::errors::of_library;
use crate::pools::pool;
use crate::run::{compute, wait};
use frosh::{Element, Hasher, Rows};
use frosh_io::RowConsumer;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;
use std::sync::Arc;

/// A fitted model. It does not change.
#[pyclass(frozen, module = "frosh._native")]
pub(crate) struct Model {
    pub(crate) hasher: Arc<Hasher>,
}

impl Model {
    pub(crate) fn of(hasher: Hasher) -> Self {
        Self { hasher: Arc::new(hasher) }
    }
}

/// Encodes rows, with factors if asked for.
struct Encode<'a> {
    hasher: &'a Hasher,
    factors: bool,
}

impl RowConsumer for Encode<'_> {
    type Output = frosh::Codes;

    fn consume<T: Element>(self, rows: Rows<'_, T>) -> frosh::Result<frosh::Codes> {
        match self.factors {
            true => self.hasher.encode_with_factors(rows),
            false => self.hasher.encode(rows),
        }
    }
}

/// Projects queries.
struct Project<'a>(&'a Hasher);

impl RowConsumer for Project<'_> {
    type Output = frosh::Queries;

    fn consume<T: Element>(self, rows: Rows<'_, T>) -> frosh::Result<frosh::Queries> {
        self.0.queries(rows)
    }
}

#[pymethods]
impl Model {
    /// The codes of an array's rows, with factors if asked for.
    #[pyo3(signature = (array, first=0, factors=false, n_jobs=None))]
    fn encode(
        &self,
        array: &Bound<'_, PyAny>,
        first: usize,
        factors: bool,
        n_jobs: Option<i64>,
    ) -> PyResult<Codes> {
        let consumer = Encode { hasher: &self.hasher, factors };
        Ok(Codes::of(arrays::feed(array, first, &pool(n_jobs)?, consumer)?))
    }

    /// The projections of an array's rows, for searching.
    #[pyo3(signature = (array, n_jobs=None))]
    fn queries(&self, array: &Bound<'_, PyAny>, n_jobs: Option<i64>) -> PyResult<Queries> {
        let projected = arrays::feed(array, 0, &pool(n_jobs)?, Project(&self.hasher))?;
        Ok(Queries { queries: Arc::new(projected) })
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = compute(py, || Ok(self.hasher.to_bytes()))?;
        Ok(PyBytes::new(py, &bytes))
    }

    #[staticmethod]
    fn from_bytes(py: Python<'_>, bytes: &[u8]) -> PyResult<Self> {
        compute(py, || Hasher::from_bytes(bytes).map(Self::of).map_err(of_library))
    }

    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        compute(py, || self.hasher.save(path).map_err(of_library))
    }

    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        wait(py, move || Hasher::load(path).map(Self::of).map_err(of_library))
    }

    #[getter]
    fn dim(&self) -> usize {
        self.hasher.dim()
    }

    #[getter]
    fn bits(&self) -> usize {
        self.hasher.bits()
    }

    #[getter]
    fn rows(&self) -> u64 {
        self.hasher.rows()
    }

    #[getter]
    fn rank(&self) -> usize {
        self.hasher.rank()
    }

    #[getter]
    fn seed(&self) -> u64 {
        self.hasher.seed()
    }

    #[getter]
    fn method(&self) -> String {
        self.hasher.method().to_string()
    }

    #[getter]
    fn metric(&self) -> String {
        self.hasher.metric().to_string()
    }

    #[getter]
    fn rotation(&self) -> String {
        self.hasher.rotation().to_string()
    }

    #[getter]
    fn ranking(&self) -> String {
        self.hasher.ranking().to_string()
    }

    #[getter]
    fn oversample(&self) -> usize {
        self.hasher.oversample()
    }

    #[getter]
    fn has_factors(&self) -> bool {
        self.hasher.has_factors()
    }

    #[getter]
    fn id(&self) -> String {
        self.hasher.id().to_string()
    }

    /// The mean that is subtracted.
    fn mean<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        vector(py, self.hasher.mean().to_vec())
    }

    /// The directions, one row for each bit.
    fn components<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let hasher = &self.hasher;
        let all = (0..hasher.bits()).flat_map(|k| hasher.direction(k).iter().copied()).collect();
        Ok(matrix(py, all, hasher.dim())?.into_any())
    }

    /// What the fit measured, as JSON; `None` if it chose nothing.
    fn choice(&self) -> PyResult<Option<String>> {
        let text = self.hasher.choice().map(serde_json::to_string).transpose();
        text.map_err(|e| PyRuntimeError::new_err(e.to_string()))
    }
}
