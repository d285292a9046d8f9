//! The threads that work is done on: a pool of our own, never the process-wide one.
//!
//! Work is cut the same way for any number of threads (columns, fixed row blocks), so results are
//! the same bytes on one thread and on many.

use crate::error::{Error, Result};
use std::sync::{Arc, OnceLock};

/// A number of threads. Cloning shares them.
///
/// ```
/// use frosh::Pool;
/// assert_eq!(Pool::new(2)?.threads(), 2);
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pool(Option<Arc<rayon::ThreadPool>>);

impl Pool {
    /// The calling thread alone.
    pub const ONE: Pool = Pool(None);

    /// A pool of `threads` threads; 0 means one for every core.
    pub fn new(threads: usize) -> Result<Self> {
        match threads {
            0 => Ok(Self::all().clone()),
            1 => Ok(Self::ONE),
            _ => rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .thread_name(|i| format!("frosh-{i}"))
                .build()
                .map(|pool| Self(Some(Arc::new(pool))))
                .map_err(|e| Error::Threads { threads, why: e.to_string() }),
        }
    }

    /// One thread for every core, made once and shared.
    pub fn all() -> &'static Self {
        static ALL: OnceLock<Pool> = OnceLock::new();
        ALL.get_or_init(|| {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            // Where threads cannot be had, the calling one does the work.
            Self::new(cores).unwrap_or(Self::ONE)
        })
    }

    /// How many threads.
    pub fn threads(&self) -> usize {
        self.0.as_ref().map_or(1, |pool| pool.current_num_threads())
    }

    /// Runs `work` on every item, in any order.
    pub(crate) fn each<I: Send>(&self, items: Vec<I>, work: impl Fn(I) + Sync + Send) {
        use rayon::prelude::*;
        match &self.0 {
            Some(pool) if items.len() > 1 => pool.install(|| items.into_par_iter().for_each(work)),
            _ => items.into_iter().for_each(work),
        }
    }

    /// Runs two jobs, side by side where there are threads for it.
    pub(crate) fn join<A: Send, B: Send>(
        &self,
        a: impl FnOnce() -> A + Send,
        b: impl FnOnce() -> B + Send,
    ) -> (A, B) {
        match &self.0 {
            Some(pool) => pool.install(|| rayon::join(a, b)),
            None => (a(), b()),
        }
    }

    /// Runs `work` once on every thread, with the thread's number.
    pub(crate) fn on_every(&self, work: impl Fn(usize) + Sync) {
        match &self.0 {
            Some(pool) => {
                pool.broadcast(|context| work(context.index()));
            }
            None => work(0),
        }
    }

    /// Waits for what another thread of the pool will do, and does shares of work that others offer meanwhile.
    pub(crate) fn help_until(&self, done: impl Fn() -> bool) {
        while !done() {
            if rayon::yield_now() != Some(rayon::Yield::Executed) {
                std::thread::yield_now();
            }
        }
    }

    /// Runs `work` on a thread of the pool, where further calls cost least.
    pub(crate) fn enter<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match &self.0 {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }

    /// Runs `work` inside a rayon pool of this size, for code that uses rayon itself.
    pub(crate) fn install<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        static ALONE: OnceLock<Option<rayon::ThreadPool>> = OnceLock::new();
        let alone =
            || ALONE.get_or_init(|| rayon::ThreadPoolBuilder::new().num_threads(1).build().ok());
        match &self.0 {
            Some(pool) => pool.install(work),
            None => match alone() {
                Some(pool) => pool.install(work),
                None => work(),
            },
        }
    }
}
