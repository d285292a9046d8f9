//! What the program does when it is told to stop: it removes its unfinished files, and ends with 128 and the signal's
//! number, as shells have it: 130 for an interrupt, 143 for a termination.

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
        // SAFETY: the set is initialised, and the number of the signal has a place of its own.
        while unsafe { libc::sigwait(&raw const set, &raw mut signal) } != 0 {}
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
        frosh::AtomicFile::remove_unfinished();
        std::process::exit(130);
    });
}
