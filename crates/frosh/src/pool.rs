//! The threads that work is done on: a pool of our own, never the process-wide one.
//!
//! Work is cut the same way for any number of threads (columns, fixed row blocks), so results are
//! the same bytes on one thread and on many.

use crate::error::{Error, Result};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

thread_local! {
    /// The pool of the innermost [`Pool::install`] on this thread.
    static CURRENT: RefCell<Option<Pool>> = const { RefCell::new(None) };
}

/// A number of threads. Cloning shares them.
///
/// ```
/// use frosh::Pool;
/// assert_eq!(Pool::new(2)?.threads(), 2);
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pool(Option<Arc<Threads>>);

#[derive(Debug)]
struct Threads {
    rayon: rayon::ThreadPool,
    /// Whether [`Pool::on_every`] is at work.
    all_busy: AtomicBool,
}

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
                .map(|rayon| Threads { rayon, all_busy: AtomicBool::new(false) })
                .map(|threads| Self(Some(Arc::new(threads))))
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

    /// Runs `work`, in which every call of this library uses the threads of this pool; elsewhere calls use
    /// [`Pool::all`]. A [`Sketcher`](crate::Sketcher), an [`ExactSearch`](crate::ExactSearch) and an
    /// [`IndexWriter`](crate::IndexWriter) keep the pool that they were made in. `work` itself runs on the calling thread.
    ///
    /// ```
    /// use frosh::{Config, Pool, Rows, Sketcher};
    /// # let values: Vec<f32> = (0..3200).map(|i| ((i * 7919) % 113) as f32).collect();
    /// let codes = Pool::new(2)?.install(|| {
    ///     let mut sketcher = Sketcher::new(Config::new(32).sketch_rows(32))?;
    ///     sketcher.push(Rows::new(&values, 32)?)?;
    ///     sketcher.finish().hasher(16)?.encode(Rows::new(&values, 32)?)
    /// })?;
    /// assert_eq!(codes.len(), 100);
    /// # Ok::<(), frosh::Error>(())
    /// ```
    pub fn install<R>(&self, work: impl FnOnce() -> R) -> R {
        /// Restores the pool of before, even after a panic.
        struct Restore(Option<Pool>);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.set(self.0.take());
            }
        }
        let _restore = Restore(CURRENT.replace(Some(self.clone())));
        work()
    }

    /// The pool of the innermost [`Pool::install`] around this call, or [`Pool::all`].
    pub fn current() -> Self {
        CURRENT.with_borrow(Clone::clone).unwrap_or_else(|| Self::all().clone())
    }

    /// How many threads.
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

    /// Runs two jobs, side by side where there are threads for it.
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

    /// Runs `work` once on every thread, with the thread's number; or does nothing if such work is being done
    /// already. Of two such works that wait for their own parts, each thread could do another one first.
    pub(crate) fn on_every(&self, work: impl Fn(usize) + Sync) {
        let Some(pool) = &self.0 else { return work(0) };
        if pool.all_busy.swap(true, Ordering::Acquire) {
            return;
        }
        let _over = Over(&pool.all_busy);
        pool.rayon.broadcast(|context| work(context.index()));
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
            Some(pool) => pool.rayon.install(work),
            None => work(),
        }
    }

    /// Runs `work` inside a rayon pool of this size, for code that uses rayon itself.
    pub(crate) fn in_rayon<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        static ALONE: OnceLock<Option<rayon::ThreadPool>> = OnceLock::new();
        let alone =
            || ALONE.get_or_init(|| rayon::ThreadPoolBuilder::new().num_threads(1).build().ok());
        match &self.0 {
            Some(pool) => pool.rayon.install(work),
            None => match alone() {
                Some(pool) => pool.install(work),
                None => work(),
            },
        }
    }
}

/// Takes a flag back, even after a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
