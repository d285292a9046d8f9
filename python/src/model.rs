//! The fitted model: sign bits or a quantiser.

use crate::arrays::{self, matrix, vector};
use crate::codes::{Codes, Queries};
use crate::errors::of_library;
use crate::pools::pool;
use crate::run::{compute, wait};
use frosh::{Element, Hasher, Rows};
use frosh_io::RowConsumer;
use pyo3::exceptions::{PyAttributeError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;
use std::sync::Arc;

/// A fitted model of either kind. It does not change.
#[pyclass(frozen, module = "frosh._native")]
pub(crate) struct Model {
    pub(crate) model: Arc<frosh::Model>,
}

impl Model {
    pub(crate) fn of(model: impl Into<frosh::Model>) -> Self {
        Self { model: Arc::new(model.into()) }
    }

    /// The hasher. What calls this belongs to sign bits alone.
    fn hasher(&self) -> PyResult<&Hasher> {
        let none = || PyAttributeError::new_err("a quantiser has no such attribute");
        self.model.hasher().ok_or_else(none)
    }
}

/// Encodes rows, with factors if asked for.
struct Encode<'a> {
    model: &'a frosh::Model,
    factors: bool,
}

impl RowConsumer for Encode<'_> {
    type Output = frosh::Codes;

    fn consume<T: Element>(self, rows: Rows<'_, T>) -> frosh::Result<frosh::Codes> {
        match self.factors {
            true => self.model.encode_with_factors(rows),
            false => self.model.encode(rows),
        }
    }
}

/// Projects queries.
struct Project<'a>(&'a frosh::Model);

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
        let consumer = Encode { model: &self.model, factors };
        Ok(Codes::of(arrays::feed(array, first, &pool(n_jobs)?, consumer)?))
    }

    /// Codes that this model made, from their packed bytes.
    fn codes_from_packed(&self, py: Python<'_>, bytes: &[u8]) -> PyResult<Codes> {
        compute(py, || {
            self.model.codes_from_packed(bytes.to_vec()).map(Codes::of).map_err(of_library)
        })
    }

    /// The projections of an array's rows, for searching.
    #[pyo3(signature = (array, n_jobs=None))]
    fn queries(&self, array: &Bound<'_, PyAny>, n_jobs: Option<i64>) -> PyResult<Queries> {
        let projected = arrays::feed(array, 0, &pool(n_jobs)?, Project(&self.model))?;
        Ok(Queries { queries: Arc::new(projected) })
    }

    /// The model with another effort of encoding. It makes codes that can be searched together with others.
    fn with_effort(&self, py: Python<'_>, effort: usize) -> PyResult<Self> {
        compute(py, || Ok(Self::of(frosh::Model::clone(&self.model).effort(effort))))
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = compute(py, || Ok(self.model.to_bytes()))?;
        Ok(PyBytes::new(py, &bytes))
    }

    #[staticmethod]
    fn from_bytes(py: Python<'_>, bytes: &[u8]) -> PyResult<Self> {
        compute(py, || frosh::Model::from_bytes(bytes).map(Self::of).map_err(of_library))
    }

    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        compute(py, || self.model.save(path).map_err(of_library))
    }

    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        wait(py, move || frosh::Model::load(path).map(Self::of).map_err(of_library))
    }

    /// `"hasher"` or `"quantizer"`.
    #[getter]
    fn kind(&self) -> &'static str {
        match &*self.model {
            frosh::Model::Quantizer(_) => "quantizer",
            _ => "hasher",
        }
    }

    #[getter]
    fn dim(&self) -> usize {
        self.model.dim()
    }

    #[getter]
    fn bits(&self) -> usize {
        self.model.bits()
    }

    #[getter]
    fn bytes_per_row(&self) -> usize {
        self.model.bytes_per_row()
    }

    /// Number of directions that rows are projected on.
    #[getter]
    fn directions(&self) -> usize {
        match &*self.model {
            frosh::Model::Quantizer(quantizer) => quantizer.directions(),
            other => other.bits(),
        }
    }

    #[getter]
    fn rows(&self) -> u64 {
        self.model.rows()
    }

    #[getter]
    fn seed(&self) -> u64 {
        self.model.seed()
    }

    #[getter]
    fn metric(&self) -> String {
        self.model.metric().to_string()
    }

    #[getter]
    fn ranking(&self) -> String {
        self.model.ranking().to_string()
    }

    #[getter]
    fn oversample(&self) -> usize {
        self.model.oversample()
    }

    #[getter]
    fn has_factors(&self) -> bool {
        self.model.has_factors()
    }

    #[getter]
    fn id(&self) -> String {
        self.model.id().to_string()
    }

    #[getter]
    fn method(&self) -> PyResult<String> {
        Ok(self.hasher()?.method().to_string())
    }

    #[getter]
    fn rotation(&self) -> PyResult<String> {
        Ok(self.hasher()?.rotation().to_string())
    }

    /// The mean that is subtracted.
    fn mean<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mean = match &*self.model {
            frosh::Model::Quantizer(quantizer) => quantizer.mean(),
            _ => self.hasher()?.mean(),
        };
        Ok(vector(py, mean.to_vec()))
    }

    /// The directions, one row for each bit.
    fn components<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let hasher = self.hasher()?;
        let all = (0..hasher.bits()).flat_map(|k| hasher.direction(k).iter().copied()).collect();
        Ok(matrix(py, all, hasher.dim())?.into_any())
    }

    /// What the fit measured, as JSON; `None` if it measured nothing.
    fn choice(&self) -> PyResult<Option<String>> {
        let text = match &*self.model {
            frosh::Model::Quantizer(quantizer) => quantizer.choice().map(serde_json::to_string),
            _ => self.hasher()?.choice().map(serde_json::to_string),
        };
        text.transpose().map_err(|e| PyRuntimeError::new_err(e.to_string()))
    }
}
