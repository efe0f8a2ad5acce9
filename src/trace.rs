//! OpenTelemetry traces of requests: the caller's context, which requests are recorded, and their spans.
//!
//! Whether a request is recorded is decided before there is a span, so that all others cost little:
//! the caller's decision holds, and requests without one are sampled.
//!
//! The requests of a connection take turns on one task, and `tracing`'s current span is that of a
//! thread. Spans are therefore never entered: a child names its parent. Log lines have the ids of the request
//! that the thread polls: see [`RequestTrace::enter`].

pub mod context;

use std::net::SocketAddr;

use http::HeaderMap;
use opentelemetry::Context;
use opentelemetry::trace::TraceContextExt;
use tonic::Code;
use tracing::field::{Empty, display};
use tracing::{Span, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt;

use self::context::SentTrace;
use weir_common::spans::{Entered, TARGET, TraceIds, enter};
use weir_common::threads::random;

/// The full name of the method that limits rates, and the name of its spans.
pub const SHOULD_RATE_LIMIT: &str = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The addresses of both ends of a connection; none if it is a Unix socket, or they are not known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ends {
    pub client: Option<SocketAddr>,
    pub server: Option<SocketAddr>,
}

impl Ends {
    #[cold]
    fn record(&self, span: &Span) {
        if let Some(client) = self.client {
            span.record("client.address", display(client.ip()));
        }
        if let Some(server) = self.server {
            span.record("server.address", display(server.ip()));
            span.record("server.port", i64::from(server.port()));
        }
    }
}

/// Decides which requests are recorded.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sampler {
    /// The fraction of the requests without a caller's decision; none if tracing is off.
    ratio: Option<f64>,
}

impl Sampler {
    /// Records what callers decided to record, and this fraction of all other requests.
    pub fn new(ratio: f64) -> Sampler {
        Sampler { ratio: Some(ratio) }
    }

    pub fn is_on(&self) -> bool {
        self.ratio.is_some()
    }

    /// Starts the span of a call of a method with these headers, if it is recorded.
    #[inline]
    pub fn start_call(
        &self,
        method: &'static str,
        headers: &HeaderMap,
        ends: &Ends,
    ) -> RequestTrace {
        self.start(headers, ends, || {
            info_span!(
                target: TARGET,
                parent: None,
                "call",
                otel.name = method,
                otel.kind = "server",
                otel.status_code = Empty,
                otel.status_description = Empty,
                rpc.system.name = "grpc",
                rpc.method = method,
                rpc.response.status_code = Empty,
                client.address = Empty,
                server.address = Empty,
                server.port = Empty,
                error.type = Empty,
            )
        })
    }

    /// Starts the span of a request to a path of the API with these headers, if it is recorded.
    pub fn start_json(&self, path: &'static str, headers: &HeaderMap, ends: &Ends) -> RequestTrace {
        self.start(headers, ends, || {
            info_span!(
                target: TARGET,
                parent: None,
                "json",
                otel.name = format!("POST {path}"),
                otel.kind = "server",
                otel.status_code = Empty,
                otel.status_description = Empty,
                http.request.method = "POST",
                http.route = path,
                http.response.status_code = Empty,
                url.path = path,
                client.address = Empty,
                server.address = Empty,
                server.port = Empty,
                error.type = Empty,
            )
        })
    }

    /// Starts a span if tracing is on and the request is recorded.
    #[inline]
    fn start(&self, headers: &HeaderMap, ends: &Ends, span: impl FnOnce() -> Span) -> RequestTrace {
        match self.ratio {
            None => RequestTrace::default(),
            Some(ratio) => start(ratio, headers, ends, span),
        }
    }
}

fn start(
    ratio: f64,
    headers: &HeaderMap,
    ends: &Ends,
    span: impl FnOnce() -> Span,
) -> RequestTrace {
    let caller = SentTrace::of(headers);
    if !caller.sampled.unwrap_or_else(|| random() < ratio) {
        return RequestTrace::default();
    }
    let span = span();
    ends.record(&span);
    if let Some(parent) = caller.span_context(headers) {
        // It fails only if no spans are exported.
        let _ = span.set_parent(Context::new().with_remote_span_context(parent));
    }
    let ids = ids(&span);
    RequestTrace(Some(Box::new(Recorded { span, ids })))
}

/// Returns the ids of a span that has its parent; none if no spans are exported.
fn ids(span: &Span) -> Option<TraceIds> {
    let context = span.context();
    let span = context.span();
    let ids = span.span_context();
    ids.is_valid().then(|| TraceIds {
        trace: u128::from_be_bytes(ids.trace_id().to_bytes()),
        span: u64::from_be_bytes(ids.span_id().to_bytes()),
    })
}

/// The span of a request; none if the request is not recorded. A request that is dropped before its
/// response was recorded counts as cancelled.
#[derive(Debug, Default)]
pub struct RequestTrace(Option<Box<Recorded>>);

#[derive(Debug)]
struct Recorded {
    span: Span,
    ids: Option<TraceIds>,
}

impl RequestTrace {
    #[inline]
    pub fn span(&self) -> Option<&Span> {
        self.0.as_deref().map(|recorded| &recorded.span)
    }

    #[inline]
    pub fn ids(&self) -> Option<TraceIds> {
        self.0.as_deref()?.ids
    }

    /// Marks that this thread handles the request until the result is dropped: its log lines have the ids
    /// of the span.
    #[inline]
    pub fn enter(&self) -> Option<Entered> {
        self.ids().map(enter)
    }

    #[inline]
    pub fn end_call(&mut self, code: Code, message: &str) {
        if let Some(recorded) = self.0.take() {
            end_call(&recorded.span, code, message);
        }
    }

    pub fn end_http(&mut self, status: u16) {
        let Some(recorded) = self.0.take() else { return };
        let span = &recorded.span;
        span.record("http.response.status_code", i64::from(status));
        if status >= 500 {
            span.record("error.type", status.to_string());
            span.record("otel.status_code", "ERROR");
        }
    }
}

#[cold]
fn end_call(span: &Span, code: Code, message: &str) {
    let name = status_name(code);
    span.record("rpc.response.status_code", name);
    // The other codes are errors of the client.
    if is_server_error(code) {
        span.record("error.type", name);
        span.record("otel.status_code", "ERROR");
        span.record("otel.status_description", message);
    }
}

/// Returns whether a status is an error of the server, in the conventions of OpenTelemetry.
fn is_server_error(code: Code) -> bool {
    matches!(
        code,
        Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
    )
}

fn status_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

impl Drop for RequestTrace {
    fn drop(&mut self) {
        if let Some(recorded) = self.0.take() {
            let span = &recorded.span;
            span.record("error.type", "cancelled");
            span.record("otel.status_code", "ERROR");
            span.record("otel.status_description", "the client cancelled the request");
        }
    }
}
