//! Turns a panic in a library that reads files into an ordinary fault.
//!
//! The Parquet and Arrow crates return errors for most damaged files, but some of their checks are
//! assertions. A file must never end the program, so that calls into them go through [`guard`].
//!
//! The process-wide panic hook prints a message before a panic can be caught. The first call of [`guard`]
//! therefore installs a hook that prints nothing while the panicking thread is inside [`guard`], and
//! otherwise calls the previous hook. This needs unwinding: a program built with `panic = "abort"` still
//! ends at a panic.

use crate::error::Fault;
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Whether this thread is inside [`guard`].
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`; a panic becomes a fault of the file. Values that `work` was changing must not be used after
/// a panic.
pub(crate) fn guard<T>(work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = take_hook();
        set_hook(Box::new(move |info| {
            if !INSIDE.get() {
                previous(info);
            }
        }));
    });
    let outer = INSIDE.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    INSIDE.set(outer);
    result.unwrap_or_else(|panic| Err(Fault::file(format!("is damaged: {}", reason(&*panic)))))
}

/// The first line of the panic's message.
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
        let Err(Fault::File(reason)) = guard::<()>(|| panic!("offset {} is wrong\nmore", 7)) else {
            panic!("no fault");
        };
        assert_eq!(reason.text, "is damaged: offset 7 is wrong");
        assert!(!INSIDE.get());
    }
}
