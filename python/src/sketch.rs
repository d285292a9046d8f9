//! The state of learning: a `Sketcher` that takes rows, or a finished `Sketch`.

use crate::arrays::{self, matrix, vector};
use crate::errors::of_library;
use crate::model::Model;
use crate::pools::pool;
use crate::run::{compute, wait};
use frosh::{AnyFile, Config, Element, Method, Metric, Pool, Rotation, Rows, Sketcher};
use frosh_io::RowConsumer;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

/// Settings of a learner before its dimension is known.
#[derive(Clone)]
struct Settings {
    method: Method,
    metric: Metric,
    sketch_rows: Option<usize>,
    block_rows: Option<usize>,
    sample_rows: usize,
    seed: u64,
    worker: u64,
}

impl Settings {
    fn config(&self, dim: usize) -> Config {
        let mut config = Config::new(dim)
            .method(self.method)
            .metric(self.metric)
            .reservoir_rows(self.sample_rows)
            .seed(self.seed)
            .worker(self.worker);
        if let Some(rows) = self.sketch_rows {
            config = config.sketch_rows(rows);
        }
        if let Some(rows) = self.block_rows {
            config = config.block_rows(rows);
        }
        config
    }
}

/// A learner, and its settings that it does not tell itself.
struct Learning {
    sketcher: Box<Sketcher>,
    /// The process that made the pool inside.
    process: u32,
    method: Method,
    metric: Metric,
    seed: u64,
    worker: u64,
}

impl Learning {
    fn new(settings: &Settings, dim: usize) -> frosh::Result<Self> {
        Ok(Self {
            sketcher: Box::new(Sketcher::new(settings.config(dim))?),
            process: std::process::id(),
            method: settings.method,
            metric: settings.metric,
            seed: settings.seed,
            worker: settings.worker,
        })
    }

    /// A learner that was read from a file.
    fn resumed(sketcher: Box<Sketcher>) -> Self {
        let sketch = sketcher.sketch();
        Self {
            sketcher,
            process: std::process::id(),
            method: sketch.method(),
            metric: sketch.metric(),
            seed: sketch.seed(),
            worker: sketch.workers().first().copied().unwrap_or(0),
        }
    }

    /// The learner, with a pool of this process. The threads of a pool do not survive a fork; loading the state takes the
    /// current pool.
    fn here(&mut self) -> frosh::Result<&mut Sketcher> {
        let process = std::process::id();
        if self.process != process {
            *self.sketcher = Sketcher::from_bytes(&self.sketcher.to_bytes())?;
            self.process = process;
        }
        Ok(&mut self.sketcher)
    }
}

/// What a sketch holds.
enum State {
    /// No rows yet, so that the dimension is not known.
    New(Settings),
    /// Learning.
    Learning(Learning),
    /// Merged, or read from a file: it takes no more rows.
    Finished(Arc<frosh::Sketch>),
    /// A panic interrupted a change.
    Broken,
}

/// The state of learning.
#[pyclass(frozen, module = "frosh._native")]
pub(crate) struct Sketch {
    state: Mutex<State>,
    n_jobs: Option<i64>,
}

fn broken() -> PyErr {
    PyRuntimeError::new_err("an earlier error left this sketch without a valid state")
}

/// What is copied out of a state.
enum Copied {
    Sketcher(Box<Sketcher>),
    Sketch(Arc<frosh::Sketch>),
}

/// Gives rows to a learner, which is created for the first ones.
struct Learn<'a>(&'a mut State);

impl RowConsumer for Learn<'_> {
    type Output = ();

    fn consume<T: Element>(self, rows: Rows<'_, T>) -> frosh::Result<()> {
        if let State::New(settings) = self.0 {
            if rows.is_empty() {
                return Ok(());
            }
            *self.0 = State::Learning(Learning::new(settings, rows.dim())?);
        }
        match self.0 {
            State::Learning(learning) => learning.here()?.push(rows),
            State::New(_) | State::Finished(_) | State::Broken => Ok(()),
        }
    }
}

impl Sketch {
    fn of(state: State, n_jobs: Option<i64>) -> Self {
        Self { state: Mutex::new(state), n_jobs }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        match self.state.lock() {
            Ok(state) => state,
            Err(poisoned) => {
                let mut state = poisoned.into_inner();
                *state = State::Broken;
                self.state.clear_poison();
                state
            }
        }
    }

    /// The sketch of all rows so far. The state is copied under the lock; what takes long is done after that, on a thread
    /// that Ctrl-C does not wait for.
    pub(crate) fn sketch(&self, py: Python<'_>) -> PyResult<Arc<frosh::Sketch>> {
        let pool = pool(self.n_jobs)?;
        let copied = compute(py, || match &mut *self.lock() {
            State::New(_) => Err(of_library(frosh::Error::Empty)),
            State::Learning(learning) => {
                let sketcher = pool
                    .install(|| learning.here().map(|sketcher| sketcher.clone()))
                    .map_err(of_library)?;
                Ok(Copied::Sketcher(Box::new(sketcher)))
            }
            State::Finished(sketch) => Ok(Copied::Sketch(Arc::clone(sketch))),
            State::Broken => Err(broken()),
        })?;
        match copied {
            Copied::Sketch(sketch) => Ok(sketch),
            Copied::Sketcher(sketcher) => wait(py, move || Ok(Arc::new(sketcher.finish()))),
        }
    }

    /// Reads the bytes of a finished sketch, or of the state of a learner.
    fn read(bytes: &[u8], pool: &Pool, n_jobs: Option<i64>) -> frosh::Result<Self> {
        let finished = frosh::Sketch::from_bytes(bytes);
        let state = match finished {
            Ok(sketch) => State::Finished(Arc::new(sketch)),
            // Another kind of file: the error of a sketch is told unless it is a learner's state.
            Err(error) => match pool.install(|| Sketcher::from_bytes(bytes)) {
                Ok(sketcher) => State::Learning(Learning::resumed(Box::new(sketcher))),
                Err(_) => return Err(error),
            },
        };
        Ok(Self::of(state, n_jobs))
    }
}

/// The number of sketch rows that a quantiser's codes of `bytes` bytes need.
#[pyfunction]
pub(crate) fn quantizer_rows(bytes: usize) -> usize {
    // A number that no fit allows must not overflow here: the check before the first row refuses it.
    Config::quantizer_rows(bytes.min(1 << 20))
}

#[pymethods]
impl Sketch {
    #[new]
    #[pyo3(signature = (*, method, metric, sketch_rows, block_rows, sample_rows, seed, worker, n_jobs))]
    #[allow(clippy::too_many_arguments)] // one for each setting, all by name
    fn new(
        method: &str,
        metric: &str,
        sketch_rows: Option<usize>,
        block_rows: Option<usize>,
        sample_rows: usize,
        seed: u64,
        worker: u64,
        n_jobs: Option<i64>,
    ) -> PyResult<Self> {
        let settings = Settings {
            method: method.parse().map_err(of_library)?,
            metric: metric.parse().map_err(of_library)?,
            sketch_rows,
            block_rows,
            sample_rows,
            seed,
            worker,
        };
        pool(n_jobs)?;
        // The dimension is not known yet. For any dimension the other sizes have the same limits.
        settings.config(128).resolved_block_rows().map_err(of_library)?;
        Ok(Self::of(State::New(settings), n_jobs))
    }

    /// Learns from an array.
    #[pyo3(signature = (array, first=0))]
    fn update(&self, array: &Bound<'_, PyAny>, first: usize) -> PyResult<()> {
        let pool = pool(self.n_jobs)?;
        arrays::feed(array, first, &pool, Update(self))?.map_err(|why| match why {
            Refused::Finished => PyValueError::new_err(
                "this sketch was merged or read from a file, and takes no more rows: make another Sketch with another \
                 worker number, and merge the two",
            ),
            Refused::Broken => broken(),
        })
    }

    /// Fails if no model of this many bits can be fitted to rows of `dim` values.
    #[pyo3(signature = (dim, bits, rotation=None))]
    fn check_hasher(
        &self,
        py: Python<'_>,
        dim: usize,
        bits: usize,
        rotation: Option<&str>,
    ) -> PyResult<()> {
        let rotation = rotation.map(str::parse).transpose().map_err(of_library)?;
        compute(py, || match &*self.lock() {
            State::New(settings) => {
                let config = settings.config(dim);
                config.resolved_block_rows().map_err(of_library)?;
                config.check_hasher(bits, rotation).map_err(of_library)
            }
            _ => Ok(()),
        })
    }

    /// Fails if no quantiser of this many bytes can be fitted to rows of `dim` values.
    fn check_quantizer(&self, py: Python<'_>, dim: usize, bytes: usize) -> PyResult<()> {
        compute(py, || match &*self.lock() {
            State::New(settings) => {
                let config = settings.config(dim);
                config.resolved_block_rows().map_err(of_library)?;
                config.check_quantizer(bytes).map_err(of_library)
            }
            _ => Ok(()),
        })
    }

    /// Facts as a tuple: (rows, dim, method, metric, sketch rows, block rows, seed, workers, finished), with 0 for what
    /// is not known yet.
    fn facts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        type Facts = (u64, usize, String, String, usize, usize, u64, Vec<u64>, bool);
        let facts: Facts = compute(py, || {
            Ok(match &*self.lock() {
                State::New(s) => {
                    let (method, metric) = (s.method.to_string(), s.metric.to_string());
                    let (l, m) = (s.sketch_rows.unwrap_or(0), s.block_rows.unwrap_or(0));
                    (0, 0, method, metric, l, m, s.seed, vec![s.worker], false)
                }
                State::Learning(learning) => {
                    let sketcher = &learning.sketcher;
                    (
                        sketcher.rows(),
                        sketcher.dim(),
                        learning.method.to_string(),
                        learning.metric.to_string(),
                        sketcher.sketch_rows(),
                        sketcher.block_rows(),
                        learning.seed,
                        vec![learning.worker],
                        false,
                    )
                }
                State::Finished(s) => (
                    s.rows(),
                    s.dim(),
                    s.method().to_string(),
                    s.metric().to_string(),
                    s.sketch_rows(),
                    s.block_rows(),
                    s.seed(),
                    s.workers().to_vec(),
                    true,
                ),
                State::Broken => return Err(broken()),
            })
        })?;
        facts.into_pyobject(py)
    }

    /// The bytes of the sketch file of all rows so far.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let sketch = self.sketch(py)?;
        let bytes = compute(py, || Ok(sketch.to_bytes()))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// The bytes from which learning goes on: those of the learner's state, or of the finished sketch. Empty without rows.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = compute(py, || match &*self.lock() {
            State::New(_) => Ok(Vec::new()),
            State::Learning(learning) => Ok(learning.sketcher.to_bytes()),
            State::Finished(sketch) => Ok(sketch.to_bytes()),
            State::Broken => Err(broken()),
        })?;
        Ok(PyBytes::new(py, &bytes))
    }

    #[staticmethod]
    #[pyo3(signature = (bytes, n_jobs=None))]
    fn from_bytes(py: Python<'_>, bytes: &[u8], n_jobs: Option<i64>) -> PyResult<Self> {
        let pool = pool(n_jobs)?;
        // `bytes` objects do not change, so they can be read without the lock.
        compute(py, || Self::read(bytes, &pool, n_jobs).map_err(of_library))
    }

    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let sketch = self.sketch(py)?;
        compute(py, || sketch.save(path).map_err(of_library))
    }

    #[staticmethod]
    #[pyo3(signature = (path, n_jobs=None))]
    fn load(py: Python<'_>, path: PathBuf, n_jobs: Option<i64>) -> PyResult<Self> {
        let pool = pool(n_jobs)?;
        let state = wait(py, move || {
            let opened = pool.install(|| AnyFile::load(&path)).map_err(of_library)?;
            match opened {
                Some(AnyFile::Sketch(sketch)) => Ok(State::Finished(Arc::new(*sketch))),
                Some(AnyFile::Sketcher(sketcher)) => {
                    Ok(State::Learning(Learning::resumed(sketcher)))
                }
                _ => {
                    let why = format!("{}: is no sketch", path.display());
                    Err(PyValueError::new_err(why))
                }
            }
        })?;
        Ok(Self::of(state, n_jobs))
    }

    /// Merges sketches. They are not changed.
    #[staticmethod]
    #[pyo3(signature = (sketches, n_jobs=None))]
    fn merge(
        py: Python<'_>,
        sketches: Vec<Bound<'_, PyAny>>,
        n_jobs: Option<i64>,
    ) -> PyResult<Self> {
        let mut parts = Vec::with_capacity(sketches.len());
        for sketch in &sketches {
            let sketch = sketch.cast::<Self>().map_err(|_| PyTypeError::new_err("not a sketch"))?;
            parts.push(sketch.get().sketch(py)?);
        }
        let pool = pool(n_jobs)?;
        let merged = wait(py, move || {
            let parts = parts.iter().map(|part| &**part);
            pool.install(|| frosh::Sketch::merge(parts)).map_err(of_library)
        })?;
        Ok(Self::of(State::Finished(Arc::new(merged)), n_jobs))
    }

    /// Fits a model.
    #[pyo3(signature = (bits, rotation=None, n_jobs=None))]
    fn hasher(
        &self,
        py: Python<'_>,
        bits: usize,
        rotation: Option<&str>,
        n_jobs: Option<i64>,
    ) -> PyResult<Model> {
        let rotation: Option<Rotation> =
            rotation.map(str::parse).transpose().map_err(of_library)?;
        let pool = pool(n_jobs.or(self.n_jobs))?;
        let sketch = self.sketch(py)?;
        let hasher = wait(py, move || {
            let fitted = pool.install(|| match rotation {
                Some(rotation) => sketch.hasher_with(bits, rotation),
                None => sketch.hasher(bits),
            });
            fitted.map_err(of_library)
        })?;
        Ok(Model::of(hasher))
    }

    /// Fits a quantiser.
    #[pyo3(signature = (bytes, n_jobs=None))]
    fn quantizer(&self, py: Python<'_>, bytes: usize, n_jobs: Option<i64>) -> PyResult<Model> {
        let pool = pool(n_jobs.or(self.n_jobs))?;
        let sketch = self.sketch(py)?;
        let fitted =
            wait(py, move || pool.install(|| sketch.quantizer(bytes)).map_err(of_library))?;
        Ok(Model::of(fitted))
    }

    /// The finished sketch of all rows so far, which does not change with this one.
    fn finish(&self, py: Python<'_>) -> PyResult<Self> {
        Ok(Self::of(State::Finished(self.sketch(py)?), self.n_jobs))
    }

    /// The mean of all rows.
    fn mean<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(vector(py, self.sketch(py)?.mean().to_vec()))
    }

    /// The sketched rows.
    fn sketched<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let sketch = self.sketch(py)?;
        Ok(matrix(py, sketch.sketched().to_vec(), sketch.dim())?.into_any())
    }

    /// Estimated scatter along the principal directions.
    fn spectrum<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (sketch, pool) = (self.sketch(py)?, pool(self.n_jobs)?);
        Ok(vector(py, wait(py, move || Ok(pool.install(|| sketch.spectrum())))?))
    }

    /// For each k up to `most`: the share of the sampled rows' scatter along the k leading directions; `None` without a
    /// sample.
    fn captured_energy<'py>(
        &self,
        py: Python<'py>,
        most: usize,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (sketch, pool) = (self.sketch(py)?, pool(self.n_jobs)?);
        let ks: Vec<usize> = (1..=most.min(sketch.dim())).collect();
        let shares = wait(py, move || Ok(pool.install(|| sketch.captured_energy(&ks))))?;
        Ok(shares.map(|shares| vector(py, shares)))
    }

    /// (removed, mass, compressed) of the certificate.
    fn certificate(&self, py: Python<'_>) -> PyResult<(f64, f64, bool)> {
        let certificate = self.sketch(py)?.certificate();
        Ok((certificate.removed, certificate.mass, certificate.compressed))
    }
}

/// Why rows were not taken.
enum Refused {
    Finished,
    Broken,
}

/// Locks the state and learns. The lock is taken here, without the interpreter's lock.
struct Update<'a>(&'a Sketch);

impl RowConsumer for Update<'_> {
    type Output = Result<(), Refused>;

    fn consume<T: Element>(self, rows: Rows<'_, T>) -> frosh::Result<Self::Output> {
        let mut state = self.0.lock();
        match &*state {
            State::Finished(_) => return Ok(Err(Refused::Finished)),
            State::Broken => return Ok(Err(Refused::Broken)),
            State::New(_) | State::Learning(..) => {}
        }
        Learn(&mut state).consume(rows).map(Ok)
    }
}
