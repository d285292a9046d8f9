//! Exact neighbours, and measures of a ranking by codes.

use crate::arrays::{self, matrix};
use crate::codes::{Codes, Queries};
use crate::errors::of_library;
use crate::pools::pool;
use crate::run::wait;
use frosh::{Element, Evaluation, Metric, RankedEvaluation, Ranking, Rows, Truth};
use frosh_io::RowConsumer;
use numpy::{PyArray2, PyArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// A search for the exact neighbours of queries.
#[pyclass(frozen, module = "frosh._native")]
pub(crate) struct ExactSearch {
    search: Mutex<Option<frosh::ExactSearch>>,
    n_jobs: Option<i64>,
}

/// Begins a search with these queries.
struct Begin {
    k: usize,
    metric: Metric,
}

impl RowConsumer for Begin {
    type Output = frosh::ExactSearch;

    fn consume<T: Element>(self, rows: Rows<'_, T>) -> frosh::Result<frosh::ExactSearch> {
        frosh::ExactSearch::new(rows, self.k, self.metric)
    }
}

/// Gives rows of the base to the search.
struct Push<'a>(&'a Mutex<Option<frosh::ExactSearch>>);

impl RowConsumer for Push<'_> {
    type Output = bool;

    fn consume<T: Element>(self, rows: Rows<'_, T>) -> frosh::Result<bool> {
        match self.0.lock().ok().as_deref_mut() {
            Some(Some(search)) => search.push(rows).map(|()| true),
            _ => Ok(false),
        }
    }
}

fn over() -> PyErr {
    PyValueError::new_err("the search is over: begin another")
}

#[pymethods]
impl ExactSearch {
    #[new]
    #[pyo3(signature = (queries, k, metric, n_jobs=None))]
    fn new(
        queries: &Bound<'_, PyAny>,
        k: usize,
        metric: &str,
        n_jobs: Option<i64>,
    ) -> PyResult<Self> {
        let metric = metric.parse().map_err(of_library)?;
        let search = arrays::feed(queries, 0, &pool(n_jobs)?, Begin { k, metric })?;
        Ok(Self { search: Mutex::new(Some(search)), n_jobs })
    }

    /// Searches further rows.
    #[pyo3(signature = (array, first=0))]
    fn push(&self, array: &Bound<'_, PyAny>, first: usize) -> PyResult<()> {
        match arrays::feed(array, first, &pool(self.n_jobs)?, Push(&self.search))? {
            true => Ok(()),
            false => Err(over()),
        }
    }

    /// Ids and distances of the nearest rows, one row for each query.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let search = py.detach(|| self.search.lock().ok().and_then(|mut search| search.take()));
        let hits = search.ok_or_else(over)?.finish();
        let k = hits.first().map_or(0, Vec::len);
        let ids: Vec<u64> = hits.iter().flatten().map(|hit| hit.id).collect();
        let distances: Vec<f64> = hits.iter().flatten().map(|hit| hit.distance).collect();
        if k == 0 {
            let ids = PyArray2::<u64>::zeros(py, [hits.len(), 0], false).into_any();
            return Ok((ids, PyArray2::<f64>::zeros(py, [hits.len(), 0], false).into_any()));
        }
        Ok((matrix(py, ids, k)?.into_any(), matrix(py, distances, k)?.into_any()))
    }
}

/// What counts as relevant.
enum Known {
    Neighbours(Truth, Vec<Vec<u64>>),
    Labels { queries: Vec<u32>, base: Vec<u32> },
}

/// What was measured of a ranking.
struct Measured {
    map: f64,
    interpolated: f64,
    precision: Vec<Option<f64>>,
    recall: Vec<Option<f64>>,
    reranked: Vec<Option<f64>>,
    curve: Option<Vec<(f64, f64)>>,
    pooled_area: Option<f64>,
}

/// Measures a ranking. Exact neighbours are given as rows of ids, nearest first, or labels of queries and base.
#[pyfunction]
#[pyo3(signature = (queries, base, ranking, *, ks, oversample, share=None, nearest=None, neighbours=None, labels=None, n_jobs=None))]
#[allow(clippy::too_many_arguments)] // options, all by name
pub(crate) fn measure<'py>(
    py: Python<'py>,
    queries: &Bound<'py, PyAny>,
    base: &Bound<'py, PyAny>,
    ranking: &str,
    ks: Vec<usize>,
    oversample: usize,
    share: Option<f64>,
    nearest: Option<usize>,
    neighbours: Option<&Bound<'py, PyArray2<u64>>>,
    labels: Option<(Vec<u32>, Vec<u32>)>,
    n_jobs: Option<i64>,
) -> PyResult<Bound<'py, PyDict>> {
    let queries = Arc::clone(&queries.cast::<Queries>()?.get().queries);
    let base = Arc::clone(&base.cast::<Codes>()?.get().codes);
    let ranking: Ranking = ranking.parse().map_err(of_library)?;
    let known = match (neighbours, labels) {
        (Some(neighbours), None) => {
            let truth = match (share, nearest) {
                (Some(share), None) => Truth::TopShare(share),
                (None, Some(nearest)) => Truth::Nearest(nearest),
                _ => return Err(PyValueError::new_err("give share or nearest")),
            };
            let lists = neighbours.readonly();
            let lists = lists.as_array().rows().into_iter().map(|row| row.to_vec()).collect();
            Known::Neighbours(truth, lists)
        }
        (None, Some((queries, base))) => Known::Labels { queries, base },
        _ => return Err(PyValueError::new_err("give neighbours or labels")),
    };
    let pool = pool(n_jobs)?;
    let measured = wait(py, move || {
        pool.install(|| one(&queries, &base, ranking, &known, &ks, oversample)).map_err(of_library)
    })?;
    let dict = PyDict::new(py);
    dict.set_item("map", measured.map)?;
    dict.set_item("interpolated", measured.interpolated)?;
    dict.set_item("precision", measured.precision)?;
    dict.set_item("recall", measured.recall)?;
    dict.set_item("recall_reranked", measured.reranked)?;
    dict.set_item("curve", measured.curve)?;
    dict.set_item("pooled_area", measured.pooled_area)?;
    Ok(dict)
}

fn one(
    queries: &frosh::Queries,
    base: &frosh::Codes,
    ranking: Ranking,
    known: &Known,
    ks: &[usize],
    oversample: usize,
) -> frosh::Result<Measured> {
    let each = |f: &dyn Fn(usize) -> Option<f64>| ks.iter().map(|k| f(*k)).collect();
    if ranking == Ranking::Hamming {
        let codes = queries.codes();
        let got = match known {
            Known::Neighbours(truth, lists) => {
                Evaluation::by_neighbours(codes, base, *truth, lists)?
            }
            Known::Labels { queries, base: labels } => {
                Evaluation::by_labels(codes, base, queries, labels)?
            }
        };
        return Ok(Measured {
            map: got.map(),
            interpolated: got.interpolated(),
            precision: each(&|k| got.precision(k)),
            recall: each(&|k| got.recall(k)),
            reranked: each(&|k| match oversample {
                1 => got.recall(k),
                _ => got.recall_after_reranking(k, k.saturating_mul(oversample)),
            }),
            curve: Some(got.curve().iter().map(|p| (p.recall, p.precision)).collect()),
            pooled_area: Some(got.pooled_area()),
        });
    }
    let got = match known {
        Known::Neighbours(truth, lists) => {
            RankedEvaluation::new(queries, base, ranking, *truth, lists)?
        }
        Known::Labels { queries: asked, base: labels } => {
            RankedEvaluation::by_labels(queries, base, ranking, asked, labels)?
        }
    };
    Ok(Measured {
        map: got.map(),
        interpolated: got.interpolated(),
        precision: each(&|k| got.precision(k)),
        recall: each(&|k| got.recall(k)),
        reranked: each(&|k| got.recall_after_reranking(k, k.saturating_mul(oversample))),
        curve: None,
        pooled_area: None,
    })
}

/// Numbers of the rows that `frosh eval` holds out as queries for the same seed, ascending.
#[pyfunction]
pub(crate) fn held_out(rows: u64, count: u64, seed: u64) -> PyResult<Vec<u64>> {
    if count == 0 || count > rows / 2 {
        let why = format!("cannot hold out {count} of {rows} rows as queries, at most half");
        return Err(PyValueError::new_err(why));
    }
    let mut held = BTreeSet::new();
    for draw in 0u64.. {
        if held.len() as u64 == count {
            break;
        }
        let bytes = [seed.to_le_bytes(), draw.to_le_bytes()].concat();
        held.insert(xxhash_rust::xxh3::xxh3_64(&bytes) % rows);
    }
    Ok(held.into_iter().collect())
}
