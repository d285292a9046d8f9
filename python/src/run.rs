//! Computing without the interpreter's lock.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Time between two questions whether a signal came.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// Runs short work without the interpreter's lock. A panic, which would be an error of frosh, becomes a `RuntimeError`.
pub(crate) fn compute<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> PyResult<T> + Send,
) -> PyResult<T> {
    py.detach(|| catch_unwind(AssertUnwindSafe(work))).unwrap_or_else(|panic| Err(told(&*panic)))
}

/// Runs long work on a thread of its own, and asks for signals meanwhile. After Ctrl-C the call ends at once with
/// `KeyboardInterrupt`. The thread then computes to its end, and its result is dropped: so the work must own what it uses.
pub(crate) fn wait<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> PyResult<T> + Send + 'static,
) -> PyResult<T> {
    let (send, result) = sync_channel(1);
    let body = move || {
        // Fails if the caller was interrupted and does not wait any more.
        let _ = send.send(catch_unwind(AssertUnwindSafe(work)));
    };
    let started = std::thread::Builder::new().name("frosh-work".into()).spawn(body);
    started.map_err(|e| PyRuntimeError::new_err(format!("cannot start a thread: {e}")))?;
    // A receiver is not `Sync`, which `detach` asks of what it borrows: it goes in and comes back.
    let mut result = result;
    loop {
        let (back, got) = py.detach(move || {
            let got = result.recv_timeout(ASK_EVERY);
            (result, got)
        });
        result = back;
        match got {
            Ok(done) => return done.unwrap_or_else(|panic| Err(told(&*panic))),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("the computing thread stopped unexpectedly"));
            }
        }
    }
}

/// The exception for a panic.
fn told(panic: &(dyn Any + Send)) -> PyErr {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    PyRuntimeError::new_err(format!("frosh has an error of its own, please report it: {text}"))
}
