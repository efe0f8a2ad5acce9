//! The span of a round trip, for a request that is recorded.
//!
//! It is a child of the span of its request's charges, which cannot end before it. So it ends when
//! the server has answered, or when the request stops waiting, whichever is first.

use parking_lot::Mutex;
use tracing::Span;

/// A request's span of a round trip.
#[derive(Debug)]
pub(super) struct TripSpan(Mutex<Option<Span>>);

impl TripSpan {
    pub fn new(span: Span) -> TripSpan {
        TripSpan(Mutex::new(Some(span)))
    }

    /// Ends the span, unless it has ended.
    pub fn end(&self, error: Option<&str>) {
        let Some(span) = self.0.lock().take() else { return };
        if let Some(error) = error {
            span.record("error.type", error);
            span.record("otel.status_code", "ERROR");
        }
    }
}
