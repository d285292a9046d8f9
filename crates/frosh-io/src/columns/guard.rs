//! Turns a panic inside a library that reads files into an ordinary fault.
//!
//! The Parquet and Arrow libraries return errors for most damaged files, but not for all: some of their
//! checks are assertions. A file must never end the program, so calls into them go through [`guard`].
//!
//! A panic is announced on standard error by the process-wide panic hook before it can be caught. The
//! first call of [`guard`] therefore puts a hook in front of the present one, which keeps silent while
//! the same thread is inside [`guard`] and otherwise hands over to the hook that was there. This needs
//! unwinding: in a program built with `panic = "abort"` a panic still ends it.

use crate::error::Fault;
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Whether this thread is inside [`guard`].
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`; if it panics, that is the file's fault. What `work` was changing must not be used
/// afterwards.
pub(crate) fn guard<T>(work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            if !INSIDE.get() {
                before(info);
            }
        }));
    });
    let outer = INSIDE.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    INSIDE.set(outer);
    result.unwrap_or_else(|panic| Err(Fault::File(format!("is damaged: {}", reason(&*panic)))))
}

/// What the panic said, in one line.
fn reason(panic: &(dyn Any + Send)) -> String {
    let text = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text.as_str(),
        _ => "its content makes no sense",
    };
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_become_faults() {
        assert_eq!(guard(|| Ok(3)).unwrap(), 3);
        let Err(Fault::File(why)) = guard::<()>(|| panic!("offset {} is wrong\nmore", 7)) else {
            panic!("no fault");
        };
        assert_eq!(why, "is damaged: offset 7 is wrong");
        assert!(!INSIDE.get());
    }
}
