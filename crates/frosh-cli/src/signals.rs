//! What the program does when it is told to stop.
//!
//! It removes its unfinished files and ends with 128 and the signal's number, as shells expect: 130 for an interrupt, 143
//! for a termination. A verb that learns may ask for more time (see [`finish_on_interrupt`]): then the first interrupt
//! (Ctrl-C) only ends the reading, and the verb writes what it has learned. The second one stops at once.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Reading goes on for this long after an interrupt. Ctrl-C also stops the program that writes to our pipe: in this time
/// its last rows arrive, and the end of the stream.
const GRACE: Duration = Duration::from_millis(300);

/// Whether a verb wants to finish on an interrupt, and when the interrupt came.
static STATE: Mutex<(bool, Option<Instant>)> = Mutex::new((false, None));

/// While this is there, the first interrupt does not stop the program.
pub(crate) struct FinishOnInterrupt(());

/// Asks that the first interrupt does not stop the program: the caller looks at [`FinishOnInterrupt::is_due`].
pub(crate) fn finish_on_interrupt() -> FinishOnInterrupt {
    with_state(|state| state.0 = true);
    FinishOnInterrupt(())
}

impl FinishOnInterrupt {
    /// Whether an interrupt came, and both it and the moment `since` are long enough ago. `since` is when waiting for data
    /// began: time that was spent learning does not count.
    pub(crate) fn is_due(&self, since: Instant) -> bool {
        with_state(|state| state.1.is_some_and(|when| when.max(since).elapsed() > GRACE))
    }

    /// Whether an interrupt came.
    pub(crate) fn came(&self) -> bool {
        with_state(|state| state.1.is_some())
    }
}

impl Drop for FinishOnInterrupt {
    fn drop(&mut self) {
        with_state(|state| state.0 = false);
    }
}

fn with_state<T>(work: impl FnOnce(&mut (bool, Option<Instant>)) -> T) -> T {
    work(&mut STATE.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// Takes note of an interrupt. True if the program shall stop at once.
fn interrupt() -> bool {
    let first = with_state(|(wanted, when)| {
        let first = *wanted && when.is_none();
        if first {
            *when = Some(Instant::now());
        }
        first
    });
    if first {
        crate::output::complain(
            "interrupted: finishing with the rows read so far; Ctrl-C again stops at once",
        );
    }
    !first
}

/// The end of a verb that was interrupted and did what could be done: with a message, and exit code 130.
#[derive(Debug)]
pub(crate) struct Interrupted(pub(crate) String);

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Interrupted {}

/// Takes care of signals from here on: to be called before there are other threads.
#[cfg(unix)]
pub(crate) fn watch() {
    const STOP: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
    // SAFETY: the set is initialised by sigemptyset before it is used, all signals are valid, and nothing else of this
    // program changes handlers or masks.
    let (set, blocked) = unsafe {
        // A file that grows beyond `ulimit -f` is then an error of the write, which is reported, and no sudden death.
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in STOP {
            libc::sigaddset(&raw mut set, signal);
        }
        // All threads inherit this: only the one that waits for these signals gets them.
        let blocked = libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        (set, blocked == 0)
    };
    if !blocked {
        return;
    }
    let waiting = std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut signal = 0;
        loop {
            // SAFETY: the set is initialised, and the number of the signal has a place of its own.
            while unsafe { libc::sigwait(&raw const set, &raw mut signal) } != 0 {}
            if signal != libc::SIGINT || interrupt() {
                break;
            }
        }
        frosh::AtomicFile::remove_unfinished();
        std::process::exit(128 + signal);
    });
    if waiting.is_err() {
        // Nobody waits: then signals do what they always do.
        // SAFETY: the set is initialised.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()) };
    }
}

/// Takes care of signals from here on. Where no handler can be set, unfinished files stay.
#[cfg(not(unix))]
pub(crate) fn watch() {
    let _ = ctrlc::set_handler(|| {
        if interrupt() {
            frosh::AtomicFile::remove_unfinished();
            std::process::exit(130);
        }
    });
}
