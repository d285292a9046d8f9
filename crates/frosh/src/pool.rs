//! Thread pools. frosh uses its own rayon pools, never the process-wide one.
//!
//! Work is divided by columns or by row blocks of fixed size, never by the number of threads. So results are the
//! same bytes on one thread and on many.

use crate::error::{Error, Result};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

thread_local! {
    /// The pool of the innermost [`Pool::install`] on this thread.
    static CURRENT: RefCell<Option<Pool>> = const { RefCell::new(None) };
}

/// A pool of threads that work runs on. Clones share the threads. The number of threads does not change results.
///
/// Calls use the pool of the innermost [`Pool::install`] around them, and [`Pool::all`] without one.
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
/// let codes = pool.install(|| hasher.encode(rows))?;
/// assert_eq!(codes, Pool::ONE.install(|| hasher.encode(rows))?);
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
        static ALL: PerProcess<Pool> = PerProcess::new();
        ALL.get(|| {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            // If threads cannot be started, work runs on the calling thread.
            Self::new(cores).unwrap_or(Self::ONE)
        })
    }

    /// Runs `work` with this pool as the current one: calls of this library inside `work` use its threads. `work` itself
    /// runs on the calling thread.
    ///
    /// A [`Sketcher`](crate::Sketcher), an [`ExactSearch`](crate::ExactSearch) and an [`IndexWriter`](crate::IndexWriter)
    /// keep the pool that was current when they were created.
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
        /// Restores the previous pool when it is dropped, also by a panic.
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
    pub(crate) fn in_rayon<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        static SINGLE: PerProcess<Option<rayon::ThreadPool>> = PerProcess::new();
        let single = || SINGLE.get(|| rayon::ThreadPoolBuilder::new().num_threads(1).build().ok());
        match &self.0 {
            Some(pool) => pool.rayon.install(work),
            None => match single() {
                Some(pool) => pool.install(work),
                None => work(),
            },
        }
    }
}

/// A shared value that is made on first use, once in each process. Threads do not survive a `fork`: a child process that
/// used its parent's pool would wait for ever. So the child makes a pool of its own.
struct PerProcess<T: 'static>(Mutex<Option<(u32, &'static T)>>);

impl<T> PerProcess<T> {
    const fn new() -> Self {
        Self(Mutex::new(None))
    }

    fn get(&self, make: impl FnOnce() -> T) -> &'static T {
        let process = std::process::id();
        // A panic in `make` leaves the old value, which is checked like any other.
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *made {
            Some((maker, value)) if maker == process => value,
            _ => {
                let value: &'static T = Box::leak(Box::new(make()));
                *made = Some((process, value));
                value
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_another_process_is_made_anew() {
        static MADE: PerProcess<u32> = PerProcess::new();
        assert_eq!((*MADE.get(|| 1), *MADE.get(|| 2)), (1, 1));
        // As in a child after a fork: the value is of a process with another number.
        let other = MADE.0.lock().unwrap().unwrap().1;
        *MADE.0.lock().unwrap() = Some((std::process::id().wrapping_add(1), other));
        assert_eq!((*MADE.get(|| 3), *MADE.get(|| 4)), (3, 3));
    }
}
