//! Index folders.

use crate::arrays;
use crate::codes::{Asked, Found, found};
use crate::errors::of_library;
use crate::model::Model;
use crate::pools::pool;
use crate::run::{compute, wait};
use frosh::{Element, Hit, IndexWriter, NewRows, Rows, StoredVectors};
use frosh_io::RowConsumer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::time::Duration;

/// An open index.
enum Open {
    Reading(Box<frosh::Index>),
    /// Holds the lock of the folder.
    Writing(Box<IndexWriter>),
    Closed,
}

impl Open {
    fn index(&self) -> PyResult<&frosh::Index> {
        match self {
            Open::Reading(index) => Ok(index),
            Open::Writing(writer) => Ok(writer.index()),
            Open::Closed => Err(PyValueError::new_err("the index is closed")),
        }
    }

    fn writer(&mut self) -> PyResult<&mut IndexWriter> {
        match self {
            Open::Writing(writer) => Ok(writer),
            Open::Closed => Err(PyValueError::new_err("the index is closed")),
            Open::Reading(_) => Err(PyValueError::new_err(
                "the index is open for reading only: open it with mode=\"a\" to change it",
            )),
        }
    }
}

/// An index folder.
#[pyclass(frozen, module = "frosh._native")]
pub(crate) struct Index {
    open: RwLock<Open>,
}

impl Index {
    fn of(open: Open) -> Self {
        Self { open: RwLock::new(open) }
    }

    fn read(&self) -> PyResult<RwLockReadGuard<'_, Open>> {
        self.open.read().map_err(|_| failed())
    }

    fn write(&self) -> PyResult<RwLockWriteGuard<'_, Open>> {
        self.open.write().map_err(|_| failed())
    }

    /// Asks the index something.
    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        question: impl FnOnce(&frosh::Index) -> PyResult<T> + Send,
    ) -> PyResult<T> {
        compute(py, || question(self.read()?.index()?))
    }
}

/// Ids of rows: whole numbers or names.
#[derive(FromPyObject)]
enum Ids {
    Numbers(Vec<u64>),
    Names(Vec<String>),
}

/// Adds rows, with their ids if they have some.
struct Add<'a, 'w> {
    new: &'a mut NewRows<'w>,
    ids: Option<&'a Ids>,
}

impl RowConsumer for Add<'_, '_> {
    type Output = ();

    fn consume<T: Element>(self, rows: Rows<'_, T>) -> frosh::Result<()> {
        match self.ids {
            Some(Ids::Numbers(ids)) => self.new.push_with_ids(rows, ids),
            Some(Ids::Names(names)) => self.new.push_with_names(rows, names),
            None => self.new.push(rows),
        }
    }
}

/// Hits of an index, and the names of all hits if the rows have names.
type NamedHits = (Vec<Vec<Hit>>, Option<Vec<String>>);

/// Searches with an array of queries.
struct Ask<'a> {
    index: &'a Index,
    asked: &'a mut Asked,
    /// Names that the search is limited to.
    among: Option<&'a [String]>,
}

impl RowConsumer for Ask<'_> {
    type Output = PyResult<NamedHits>;

    fn consume<T: Element>(self, rows: Rows<'_, T>) -> frosh::Result<Self::Output> {
        let open = match self.index.read() {
            Ok(open) => open,
            Err(error) => return Ok(Err(error)),
        };
        let index = match open.index() {
            Ok(index) => index,
            Err(error) => return Ok(Err(error)),
        };
        if let Some(names) = self.among {
            self.asked.filter = Some(index.find_all(names)?);
        }
        let hits = index.search(rows, &self.asked.search())?;
        if !index.has_names() {
            return Ok(Ok((hits, None)));
        }
        let name = |hit: &Hit| Ok(index.name(hit.id)?.unwrap_or_default().to_owned());
        let names = hits.iter().flatten().map(name).collect::<frosh::Result<_>>()?;
        Ok(Ok((hits, Some(names))))
    }
}

#[pymethods]
impl Index {
    #[staticmethod]
    #[pyo3(signature = (path, model, factors, vectors=None))]
    fn create(
        py: Python<'_>,
        path: PathBuf,
        model: &Bound<'_, Model>,
        factors: bool,
        vectors: Option<&str>,
    ) -> PyResult<Self> {
        let vectors: Option<StoredVectors> =
            vectors.map(str::parse).transpose().map_err(of_library)?;
        let model = &model.get().model;
        compute(py, || {
            let writer =
                IndexWriter::create(path, &**model, factors, vectors).map_err(of_library)?;
            Ok(Self::of(Open::Writing(Box::new(writer))))
        })
    }

    #[staticmethod]
    #[pyo3(signature = (path, writable=false, verify=true))]
    fn open(py: Python<'_>, path: PathBuf, writable: bool, verify: bool) -> PyResult<Self> {
        wait(py, move || {
            let open = match writable {
                true => Open::Writing(Box::new(IndexWriter::open(path).map_err(of_library)?)),
                false => {
                    let index = frosh::Index::open(path).map_err(of_library)?;
                    Open::Reading(Box::new(index.verify(verify)))
                }
            };
            Ok(Self::of(open))
        })
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        compute(py, || {
            *self.write()? = Open::Closed;
            Ok(())
        })
    }

    /// Adds rows, all or none. The iterator gives tuples: the number of the first row for errors, an array, and its ids
    /// or `None`. Returns the number of rows that were replaced.
    #[pyo3(signature = (pieces, replace=false, n_jobs=None))]
    fn add(
        &self,
        py: Python<'_>,
        pieces: &Bound<'_, PyAny>,
        replace: bool,
        n_jobs: Option<i64>,
    ) -> PyResult<u64> {
        let pool = pool(n_jobs)?;
        // Another thread may hold the lock without the interpreter's: waiting for it here must not keep the latter.
        let mut open = loop {
            match self.open.try_write() {
                Ok(open) => break open,
                Err(TryLockError::Poisoned(_)) => return Err(failed()),
                Err(TryLockError::WouldBlock) => {
                    py.detach(|| std::thread::sleep(Duration::from_millis(5)));
                    py.check_signals()?;
                }
            }
        };
        let writer = open.writer()?;
        let mut new = pool.install(|| writer.add()).replace(replace);
        for piece in pieces.try_iter()? {
            let piece = piece?;
            let (first, array, ids): (usize, Bound<'_, PyAny>, Option<Ids>) = piece.extract()?;
            let consumer = Add { new: &mut new, ids: ids.as_ref() };
            arrays::feed(&array, first, &pool, consumer)?;
            py.check_signals()?;
        }
        compute(py, || new.commit().map_err(of_library))
    }

    /// Removes rows by their ids; ids that do not exist are ignored. Returns the number of rows that were removed.
    fn remove(&self, py: Python<'_>, ids: Ids) -> PyResult<u64> {
        compute(py, || {
            let mut open = self.write()?;
            let writer = open.writer()?;
            match &ids {
                Ids::Numbers(ids) => writer.remove(ids).map_err(of_library),
                Ids::Names(names) => writer.remove_names(names).map_err(of_library),
            }
        })
    }

    /// Rewrites all rows into one segment, without removed ones.
    fn compact(&self, py: Python<'_>) -> PyResult<()> {
        compute(py, || self.write()?.writer()?.compact().map_err(of_library))
    }

    #[pyo3(signature = (queries, *, k=None, radius=None, ranking=None, filter=None, rerank=None, n_jobs=None))]
    #[allow(clippy::too_many_arguments)] // options, all by name
    fn search<'py>(
        &self,
        py: Python<'py>,
        queries: &Bound<'py, PyAny>,
        k: Option<usize>,
        radius: Option<u32>,
        ranking: Option<&str>,
        filter: Option<Ids>,
        rerank: Option<usize>,
        n_jobs: Option<i64>,
    ) -> PyResult<(Found<'py>, Option<Vec<String>>)> {
        let (numbers, names) = match filter {
            Some(Ids::Numbers(numbers)) => (Some(numbers), None),
            Some(Ids::Names(names)) => (None, Some(names)),
            None => (None, None),
        };
        let mut asked = Asked::new(k, radius, ranking, numbers, rerank)?;
        let ask = Ask { index: self, asked: &mut asked, among: names.as_deref() };
        let (hits, names) = arrays::feed(queries, 0, &pool(n_jobs)?, ask)??;
        Ok((found(py, hits), names))
    }

    fn contains(&self, py: Python<'_>, id: u64) -> PyResult<bool> {
        self.ask(py, |index| index.contains(id).map_err(of_library))
    }

    fn contains_name(&self, py: Python<'_>, name: String) -> PyResult<bool> {
        self.ask(py, |index| Ok(index.find(&name).map_err(of_library)?.is_some()))
    }

    fn has_names(&self, py: Python<'_>) -> PyResult<bool> {
        self.ask(py, |index| Ok(index.has_names()))
    }

    /// Verifies all checksums.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.ask(py, |index| index.check().map_err(of_library))
    }

    fn model(&self, py: Python<'_>) -> PyResult<Model> {
        self.ask(py, |index| Ok(Model::of(index.model())))
    }

    /// (rows, removed, segments, generation, factors, vectors, bytes per row, writable).
    #[allow(clippy::type_complexity)] // read in one place
    fn facts(
        &self,
        py: Python<'_>,
    ) -> PyResult<(u64, u64, usize, u64, bool, Option<String>, usize, bool)> {
        compute(py, || {
            let open = self.read()?;
            let (index, writable) = (open.index()?, matches!(*open, Open::Writing(_)));
            Ok((
                index.len(),
                index.removed(),
                index.segments(),
                index.generation(),
                index.has_factors(),
                index.vectors().map(|vectors| vectors.to_string()),
                index.bytes_per_row(),
                writable,
            ))
        })
    }
}

fn failed() -> PyErr {
    PyValueError::new_err("an earlier error left this index closed")
}
