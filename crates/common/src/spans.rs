//! Spans of requests.

/// The target of the spans that are exported, and of nothing else.
pub const TARGET: &str = "weir::trace";
