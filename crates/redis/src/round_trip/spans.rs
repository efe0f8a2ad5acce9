//! The spans of one round trip, for requests that are recorded.

use std::borrow::Cow;
use std::sync::Arc;

use tracing::field::Empty;
use tracing::{Span, info_span};

use crate::options::Endpoint;
use crate::reply::{Reply, TripSpan};
use weir_common::spans::TARGET;

/// What the spans of one round trip have in common.
pub(super) struct TripInfo<'a> {
    pub server: &'a Endpoint,
    /// The command, if all are the same.
    pub command: Option<&'static str>,
    pub commands: usize,
    /// The charges of all requests that share the round trip.
    pub charges: usize,
}

impl TripInfo<'_> {
    fn start(&self, parent: &Span) -> Span {
        let operation: Cow<'_, str> = match (self.command, self.commands) {
            (Some(command), ..=1) => command.into(),
            (Some(command), _) => format!("PIPELINE {command}").into(),
            (None, _) => "PIPELINE".into(),
        };
        let (address, port) = match self.server {
            Endpoint::Tcp(host, port) => (Cow::Borrowed(host.as_str()), Some(i64::from(*port))),
            Endpoint::Unix(path) => (path.to_string_lossy(), None),
        };
        let integer = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        info_span!(
            target: TARGET,
            parent: parent,
            "round_trip",
            otel.name = &*operation,
            otel.kind = "client",
            otel.status_code = Empty,
            db.system.name = "redis",
            db.operation.name = &*operation,
            db.operation.batch.size = (self.commands > 1).then_some(integer(self.commands)),
            server.address = &*address,
            server.port = port,
            rate_limit.round_trip.charges = integer(self.charges),
            error.type = Empty,
        )
    }
}

/// The spans of the recorded requests that share a round trip. A connection that is abandoned ends them.
pub(super) struct TripSpans(Vec<(Arc<Reply>, Arc<TripSpan>)>);

impl TripSpans {
    /// Starts the span of each request that still waits.
    pub fn start(replies: &[Arc<Reply>], info: &TripInfo<'_>) -> TripSpans {
        let spans = replies.iter().filter_map(|reply| {
            let start = |parent: &Span| Arc::new(TripSpan::new(info.start(parent)));
            Some((reply.clone(), reply.add_trip(start)?))
        });
        TripSpans(spans.collect())
    }

    /// Ends the spans that have not ended. `errors` are the codes of the server's errors, by request.
    pub fn end(mut self, errors: &[(Arc<Reply>, String)]) {
        for (reply, span) in self.0.drain(..) {
            let error = errors.iter().find(|(failed, _)| Arc::ptr_eq(failed, &reply));
            span.end(error.map(|(_, code)| code.as_str()));
        }
    }

    /// Ends the spans that have not ended with one error.
    pub fn fail(mut self, error: &str) {
        self.0.drain(..).for_each(|(_, span)| span.end(Some(error)));
    }
}

impl Drop for TripSpans {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|(_, span)| span.end(Some("TimedOut")));
    }
}
