//! Thread pools. frosh uses its own rayon pools, never the process-wide one.
//!
//! Work is divided by columns or by row blocks of fixed size, never by the number of threads. So results are the
//! same bytes on one thread and on many.

use crate::error::{Error, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// A pool of threads that work runs on. Clones share the threads. The number of threads does not change results.
///
/// ```
/// use frosh::{Config, Pool, Rows, Sketcher};
/// # let data: Vec<f32> = (0..16 * 500).map(|i| ((i * i) % 97) as f32).collect();
/// # let mut sketcher = Sketcher::new(Config::new(16))?;
/// # sketcher.push(Rows::new(&data, 16)?)?;
/// # let hasher = sketcher.finish().hasher(8)?;
/// let pool = Pool::new(2)?;
/// assert_eq!(pool.threads(), 2);
/// let rows = Rows::new(&data, 16)?;
/// let codes = hasher.encode_on(&pool, rows)?;
/// assert_eq!(codes.as_bytes(), hasher.encode_on(&Pool::ONE, rows)?.as_bytes());
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pool(Option<Arc<Threads>>);

#[derive(Debug)]
struct Threads {
    rayon: rayon::ThreadPool,
    /// Whether a call of [`Pool::on_every`] is running.
    all_busy: AtomicBool,
}

impl Pool {
    /// No pool: work runs on the calling thread.
    pub const ONE: Pool = Pool(None);

    /// A pool of `threads` threads. 0 gives [`Pool::all`], one thread for every core; 1 gives [`Pool::ONE`].
    ///
    /// # Errors
    ///
    /// [`Error::Threads`] if the system cannot start the threads.
    pub fn new(threads: usize) -> Result<Self> {
        match threads {
            0 => Ok(Self::all().clone()),
            1 => Ok(Self::ONE),
            _ => rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .thread_name(|i| format!("frosh-{i}"))
                .build()
                .map(|rayon| Threads { rayon, all_busy: AtomicBool::new(false) })
                .map(|threads| Self(Some(Arc::new(threads))))
                .map_err(|e| Error::Threads { threads, why: e.to_string() }),
        }
    }

    /// The shared pool with one thread for every core. It is created on first use.
    pub fn all() -> &'static Self {
        static ALL: OnceLock<Pool> = OnceLock::new();
        ALL.get_or_init(|| {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            // If threads cannot be started, work runs on the calling thread.
            Self::new(cores).unwrap_or(Self::ONE)
        })
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.0.as_ref().map_or(1, |pool| pool.rayon.current_num_threads())
    }

    /// Runs `work` on every item, in any order.
    pub(crate) fn each<I: Send>(&self, items: Vec<I>, work: impl Fn(I) + Sync + Send) {
        use rayon::prelude::*;
        match &self.0 {
            Some(pool) if items.len() > 1 => {
                pool.rayon.install(|| items.into_par_iter().for_each(work))
            }
            _ => items.into_iter().for_each(work),
        }
    }

    /// Runs two jobs, in parallel if the pool has threads.
    pub(crate) fn join<A: Send, B: Send>(
        &self,
        a: impl FnOnce() -> A + Send,
        b: impl FnOnce() -> B + Send,
    ) -> (A, B) {
        match &self.0 {
            Some(pool) => pool.rayon.install(|| rayon::join(a, b)),
            None => (a(), b()),
        }
    }

    /// Runs `work` once on every thread, with the thread's number. Does nothing if another call is running: the
    /// parts of two concurrent calls that wait for each other could deadlock.
    pub(crate) fn on_every(&self, work: impl Fn(usize) + Sync) {
        let Some(pool) = &self.0 else { return work(0) };
        if pool.all_busy.swap(true, Ordering::Acquire) {
            return;
        }
        let _reset = ResetOnDrop(&pool.all_busy);
        pool.rayon.broadcast(|context| work(context.index()));
    }

    /// Waits until another thread of the pool has made `done` true, and runs queued jobs of the pool meanwhile.
    pub(crate) fn help_until(&self, done: impl Fn() -> bool) {
        while !done() {
            if rayon::yield_now() != Some(rayon::Yield::Executed) {
                std::thread::yield_now();
            }
        }
    }

    /// Runs `work` on a thread of the pool, so that nested calls need not switch threads.
    pub(crate) fn enter<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match &self.0 {
            Some(pool) => pool.rayon.install(work),
            None => work(),
        }
    }

    /// Runs `work` inside a rayon pool of this size, for code that calls rayon directly.
    pub(crate) fn install<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        static SINGLE: OnceLock<Option<rayon::ThreadPool>> = OnceLock::new();
        let single =
            || SINGLE.get_or_init(|| rayon::ThreadPoolBuilder::new().num_threads(1).build().ok());
        match &self.0 {
            Some(pool) => pool.rayon.install(work),
            None => match single() {
                Some(pool) => pool.install(work),
                None => work(),
            },
        }
    }
}

/// Clears a flag when it is dropped, also by a panic.
struct ResetOnDrop<'a>(&'a AtomicBool);

impl Drop for ResetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
