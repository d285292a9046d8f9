//! Ends the process, and so reports the input, when more memory is taken than any small file should need.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// The most memory in use at once, in bytes. A row may have 2^24 values, and a few bytes of Parquet can be such a row: then
/// its values, and three levels and places for each, are in memory.
pub const LIMIT: usize = 1 << 30;

static USED: AtomicUsize = AtomicUsize::new(0);

struct Watched;

#[global_allocator]
static WATCHED: Watched = Watched;

fn taken(size: usize) {
    let before = USED.fetch_add(size, Relaxed);
    if before.saturating_add(size) > LIMIT {
        // Forgotten first, so that the message and the report can be made.
        USED.store(0, Relaxed);
        eprintln!("{size} bytes asked for, beside {before} in use: above the limit of {LIMIT}");
        eprintln!("{}", std::backtrace::Backtrace::force_capture());
        std::process::abort();
    }
}

fn given_back(size: usize) {
    USED.fetch_sub(size, Relaxed);
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        taken(size);
        given_back(layout.size());
        // SAFETY: the caller keeps the contract.
        unsafe { System.realloc(at, layout, size) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        given_back(layout.size());
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Waits until a reading thread that was left alone has given its memory back.
pub fn settle() {
    for _ in 0..2000 {
        if USED.load(Relaxed) < 32 << 20 {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
