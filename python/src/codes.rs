//! Packed codes, queries, and searching.

use crate::arrays::{matrix, vector};
use crate::errors::of_library;
use crate::pools::pool;
use crate::run::{compute, wait};
use frosh::{HasherId, Hit, IdSet, Ranking, Search};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;
use std::sync::Arc;

/// Packed codes of rows.
#[pyclass(frozen, module = "frosh._native")]
pub(crate) struct Codes {
    pub(crate) codes: Arc<frosh::Codes>,
}

/// Projected queries.
#[pyclass(frozen, module = "frosh._native")]
pub(crate) struct Queries {
    pub(crate) queries: Arc<frosh::Queries>,
}

/// Hits of a search: the number of hits of each query, and all ids and distances.
pub(crate) type Found<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>);

/// The hits as arrays.
pub(crate) fn found(py: Python<'_>, hits: Vec<Vec<Hit>>) -> Found<'_> {
    let counts: Vec<u64> = hits.iter().map(|list| list.len() as u64).collect();
    let ids: Vec<u64> = hits.iter().flatten().map(|hit| hit.id).collect();
    let distances: Vec<f64> = hits.iter().flatten().map(|hit| hit.distance).collect();
    (vector(py, counts), vector(py, ids), vector(py, distances))
}

/// What a search asks for.
pub(crate) struct Asked {
    k: Option<usize>,
    radius: Option<u32>,
    ranking: Option<Ranking>,
    pub(crate) filter: Option<IdSet>,
    rerank: Option<usize>,
}

impl Asked {
    pub(crate) fn new(
        k: Option<usize>,
        radius: Option<u32>,
        ranking: Option<&str>,
        filter: Option<Vec<u64>>,
        rerank: Option<usize>,
    ) -> PyResult<Self> {
        let ranking = ranking.map(str::parse).transpose().map_err(of_library)?;
        Ok(Self { k, radius, ranking, filter: filter.map(IdSet::from_iter), rerank })
    }

    pub(crate) fn search(&self) -> Search<'_> {
        let mut search = Search::nearest(self.k.unwrap_or(usize::MAX));
        if let Some(radius) = self.radius {
            search = search.radius(radius);
        }
        if let Some(ranking) = self.ranking {
            search = search.ranking(ranking);
        }
        if let Some(filter) = &self.filter {
            search = search.filter(filter);
        }
        if let Some(rerank) = self.rerank {
            search = search.rerank(rerank);
        }
        search
    }
}

impl Codes {
    pub(crate) fn of(codes: frosh::Codes) -> Self {
        Self { codes: Arc::new(codes) }
    }
}

#[pymethods]
impl Codes {
    /// Codes of another hash function: packed bytes, row after row.
    #[staticmethod]
    fn from_packed(py: Python<'_>, bytes: &[u8], bits: usize, id: u128) -> PyResult<Self> {
        compute(py, || {
            let codes = frosh::Codes::from_packed(HasherId::foreign(id), bits, bytes.to_vec());
            codes.map(Self::of).map_err(of_library)
        })
    }

    /// All rows of several codes.
    #[staticmethod]
    fn join(py: Python<'_>, parts: Vec<Bound<'_, PyAny>>) -> PyResult<Self> {
        let wrong = || PyTypeError::new_err("expected codes");
        let parts: Vec<Arc<frosh::Codes>> = parts
            .iter()
            .map(|part| Ok(Arc::clone(&part.cast::<Self>().map_err(|_| wrong())?.get().codes)))
            .collect::<PyResult<_>>()?;
        compute(py, || {
            let (first, rest) =
                parts.split_first().ok_or_else(|| PyValueError::new_err("no codes to join"))?;
            let mut all = frosh::Codes::clone(first);
            rest.iter().try_for_each(|part| all.append(part)).map_err(of_library)?;
            Ok(Self::of(all))
        })
    }

    fn __len__(&self) -> usize {
        self.codes.len()
    }

    #[getter]
    fn bits(&self) -> usize {
        self.codes.bits()
    }

    #[getter]
    fn bytes_per_row(&self) -> usize {
        self.codes.bytes_per_row()
    }

    #[getter]
    fn is_quantized(&self) -> bool {
        self.codes.is_quantized()
    }

    #[getter]
    fn has_factors(&self) -> bool {
        self.codes.has_factors()
    }

    #[getter]
    fn stored_bytes_per_row(&self) -> usize {
        self.codes.stored_bytes_per_row()
    }

    #[getter]
    fn id(&self) -> String {
        self.codes.hasher().to_string()
    }

    /// The packed bytes, one row for each code.
    fn packed<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let bytes = compute(py, || Ok(self.codes.as_bytes().to_vec()))?;
        Ok(matrix(py, bytes, self.codes.bytes_per_row())?.into_any())
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = compute(py, || Ok(self.codes.to_bytes()))?;
        Ok(PyBytes::new(py, &bytes))
    }

    #[staticmethod]
    fn from_bytes(py: Python<'_>, bytes: &[u8]) -> PyResult<Self> {
        compute(py, || frosh::Codes::from_bytes(bytes).map(Self::of).map_err(of_library))
    }

    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        compute(py, || self.codes.save(path).map_err(of_library))
    }

    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        wait(py, move || frosh::Codes::load(path).map(Self::of).map_err(of_library))
    }

    /// Searches. `queries` are `Codes` or `Queries`.
    #[pyo3(signature = (queries, *, k=None, radius=None, ranking=None, filter=None, n_jobs=None))]
    #[allow(clippy::too_many_arguments)] // options, all by name
    fn search<'py>(
        &self,
        py: Python<'py>,
        queries: &Bound<'py, PyAny>,
        k: Option<usize>,
        radius: Option<u32>,
        ranking: Option<&str>,
        filter: Option<Vec<u64>>,
        n_jobs: Option<i64>,
    ) -> PyResult<Found<'py>> {
        let asked = Asked::new(k, radius, ranking, filter, None)?;
        let (pool, base) = (pool(n_jobs)?, Arc::clone(&self.codes));
        let hits = if let Ok(queries) = queries.cast::<Queries>() {
            let queries = Arc::clone(&queries.get().queries);
            wait(py, move || {
                pool.install(|| base.search(&*queries, &asked.search())).map_err(of_library)
            })
        } else if let Ok(queries) = queries.cast::<Codes>() {
            let queries = Arc::clone(&queries.get().codes);
            wait(py, move || {
                pool.install(|| base.search(&*queries, &asked.search())).map_err(of_library)
            })
        } else {
            Err(PyTypeError::new_err("expected codes or queries"))
        }?;
        Ok(found(py, hits))
    }
}

#[pymethods]
impl Queries {
    fn __len__(&self) -> usize {
        self.queries.len()
    }

    #[getter]
    fn ranking(&self) -> String {
        self.queries.ranking().to_string()
    }

    /// The codes of the queries.
    fn codes(&self) -> Codes {
        Codes::of(self.queries.codes().clone())
    }
}
