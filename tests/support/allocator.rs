//! An allocator that counts the allocations of the current thread; the test harness has other threads.

#![expect(unsafe_code, reason = "an allocator cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    /// The bytes allocated now, and the peak. What another thread frees stays counted.
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

fn allocated(size: usize) {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
    LIVE.set(LIVE.get().wrapping_add(size));
    PEAK.set(PEAK.get().max(LIVE.get()));
}

fn freed(size: usize) {
    LIVE.set(LIVE.get().saturating_sub(size));
}

// SAFETY: every call is passed unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocated(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        freed(layout.size());
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        freed(layout.size());
        allocated(size);
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Returns the number of allocations that `run` makes.
#[allow(dead_code, reason = "not every test counts them")]
pub fn allocations(run: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.get();
    run();
    ALLOCATIONS.get() - before
}

/// Returns the result of `run`, and the number of bytes that it leaves allocated.
#[allow(dead_code, reason = "not every test counts them")]
pub fn kept<T>(run: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.get();
    let result = run();
    (result, LIVE.get().saturating_sub(before))
}

/// Returns the peak number of bytes that `run` has allocated at one time.
#[allow(dead_code, reason = "not every test counts them")]
pub fn peak(run: impl FnOnce()) -> usize {
    let before = LIVE.get();
    PEAK.set(before);
    run();
    PEAK.get() - before
}
