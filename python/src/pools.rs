//! Thread pools by number of threads. Threads do not survive a `fork`, so that a child process makes pools of its own.

use crate::errors::of_library;
use frosh::Pool;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Mutex;

/// More threads than this are a mistake.
const MOST: usize = 1024;

/// The pools of this process, with the process's number.
static POOLS: Mutex<(u32, Vec<(usize, Pool)>)> = Mutex::new((0, Vec::new()));

/// Number of threads that `n_jobs` stands for: every core for `None` and -1, all but one for -2, and so on.
#[pyfunction]
#[pyo3(signature = (n_jobs=None))]
pub(crate) fn threads(n_jobs: Option<i64>) -> PyResult<usize> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let wrong = |why: &str| {
        let got = n_jobs.unwrap_or(0);
        Err(PyValueError::new_err(format!("n_jobs = {got} is not possible: {why}")))
    };
    match n_jobs {
        None => Ok(cores),
        Some(0) => wrong("give a number of threads, or -1 for every core"),
        Some(n) if n < 0 => Ok((cores as i64).saturating_add(1).saturating_add(n).max(1) as usize),
        Some(n) if n as u64 > MOST as u64 => wrong("at most 1024 threads"),
        Some(n) => Ok(n as usize),
    }
}

/// The pool for `n_jobs`.
pub(crate) fn pool(n_jobs: Option<i64>) -> PyResult<Pool> {
    let threads = threads(n_jobs)?;
    let process = std::process::id();
    // If another thread held the lock when this process was forked, it is never released: then pools are not shared.
    let Ok(mut pools) = POOLS.try_lock() else { return Pool::new(threads).map_err(of_library) };
    if pools.0 != process {
        // The threads of the parent's pools do not exist here. Dropping a pool would signal them.
        std::mem::forget(std::mem::take(&mut pools.1));
        pools.0 = process;
    }
    if let Some((_, pool)) = pools.1.iter().find(|(count, _)| *count == threads) {
        return Ok(pool.clone());
    }
    let pool = Pool::new(threads).map_err(of_library)?;
    pools.1.push((threads, pool.clone()));
    Ok(pool)
}
