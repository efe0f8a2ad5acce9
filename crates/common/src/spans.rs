//! The trace and span ids of the recorded request that a thread handles: log lines have them, to be found by trace.
//!
//! Requests take turns on a thread, so the thread handles a request only while it polls it: see [`enter`].

use std::cell::Cell;
use std::marker::PhantomData;

/// The target of the spans that are exported, and of nothing else.
pub const TARGET: &str = "weir::trace";

/// The ids of the span of a recorded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceIds {
    pub trace: u128,
    pub span: u64,
}

impl TraceIds {
    /// Returns the trace's id as 32 hexadecimal digits.
    pub fn trace_id(&self) -> String {
        format!("{:032x}", self.trace)
    }

    /// Returns the span's id as 16 hexadecimal digits.
    pub fn span_id(&self) -> String {
        format!("{:016x}", self.span)
    }

    /// Returns the names and the values of the ids in a log line.
    pub fn fields(&self) -> [(&'static str, String); 2] {
        [("trace_id", self.trace_id()), ("span_id", self.span_id())]
    }
}

thread_local! {
    static CURRENT: Cell<Option<TraceIds>> = const { Cell::new(None) };
}

/// Returns the ids of the recorded request that this thread handles now, if it handles one.
pub fn current() -> Option<TraceIds> {
    CURRENT.get()
}

/// Marks that this thread handles a recorded request until the result is dropped: its log lines have these ids.
///
/// ```
/// # use weir_common::spans::{TraceIds, current, enter};
/// let entered = enter(TraceIds { trace: 1, span: 2 });
/// assert_eq!(current().unwrap().span_id(), "0000000000000002");
/// drop(entered);
/// assert_eq!(current(), None);
/// ```
pub fn enter(ids: TraceIds) -> Entered {
    Entered { before: CURRENT.replace(Some(ids)), not_send: PhantomData }
}

/// Handles a request until it is dropped.
#[derive(Debug)]
#[must_use = "the thread handles the request until this is dropped"]
pub struct Entered {
    before: Option<TraceIds>,
    /// Keeps this value on its thread.
    not_send: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.before);
    }
}
