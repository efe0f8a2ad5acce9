//! The tracing spans of one round trip to Redis: one for each traced request that shares it.

use std::borrow::Cow;
use std::sync::Arc;

use redis::{Arg, Cmd, Pipeline};
use tracing::field::Empty;
use tracing::{Span, info_span};

use crate::batch::CommandBatch;
use crate::options::Endpoint;
use crate::pending_charge::{Reply, TripSpan};
use weir_common::spans::TARGET;

/// The spans of the traced requests that share a round trip. A connection that is abandoned ends them.
pub(super) struct TripSpans(Vec<(Arc<Reply>, Arc<TripSpan>)>);

impl TripSpans {
    /// Starts the span of each recorded request of a batch that still waits.
    #[cold]
    pub fn start(batch: &CommandBatch, pipeline: &Pipeline, server: &Endpoint) -> TripSpans {
        let operation = operation(pipeline);
        let (address, port) = match server {
            Endpoint::Tcp(host, port) => (Cow::Borrowed(host.as_str()), Some(i64::from(*port))),
            Endpoint::Unix(path) => (path.to_string_lossy(), None),
        };
        let integer = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let start = |parent: &Span| {
            let span = info_span!(
                target: TARGET,
                parent: parent,
                "round_trip",
                otel.name = &*operation,
                otel.kind = "client",
                otel.status_code = Empty,
                db.system.name = "redis",
                db.operation.name = &*operation,
                db.operation.batch.size = (pipeline.len() > 1).then_some(integer(pipeline.len())),
                server.address = &*address,
                server.port = port,
                // Of all requests that share the round trip.
                rate_limit.round_trip.charges = integer(batch.len().0),
                error.type = Empty,
            );
            Arc::new(TripSpan::new(span))
        };
        let spans = batch.recorded.iter();
        TripSpans(spans.filter_map(|reply| Some((reply.clone(), reply.add_trip(start)?))).collect())
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

/// Returns the name of the commands if all are the same, and whether they are a pipeline.
fn operation(pipeline: &Pipeline) -> String {
    let name = |command: &Cmd| match command.args_iter().next() {
        Some(Arg::Simple(name)) => String::from_utf8_lossy(name).into_owned(),
        _ => String::new(),
    };
    let mut names = pipeline.cmd_iter().map(name);
    let first = names.next().unwrap_or_default();
    match pipeline.len() {
        1 => first,
        _ if names.all(|name| name == first) => format!("PIPELINE {first}"),
        _ => "PIPELINE".to_owned(),
    }
}
