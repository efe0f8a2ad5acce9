//! Traces of requests: the caller's context, which requests are recorded, and their spans.
//!
//! Whether a request is recorded is decided before there is a span, so that all others cost little:
//! the caller's decision holds, and requests without one are sampled.
//!
//! The requests of a connection take turns on one task, and `tracing`'s current span is that of a
//! thread. Spans are therefore never entered: a child names its parent.

pub mod context;

use http::HeaderMap;
use tonic::Code;
use tracing::field::Empty;
use tracing::{Span, info_span};

use self::context::Caller;
use weir_common::random::random;
use weir_common::spans::TARGET;

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

    /// Starts the span of a `ShouldRateLimit` call with these headers, if it is recorded.
    #[inline]
    pub fn start_call(&self, headers: &HeaderMap) -> RequestTrace {
        self.start(headers, || {
            info_span!(
                target: TARGET,
                parent: None,
                "call",
                otel.name = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
                otel.kind = "server",
                otel.status_code = Empty,
                otel.status_description = Empty,
                rpc.system = "grpc",
                rpc.service = "envoy.service.ratelimit.v3.RateLimitService",
                rpc.method = "ShouldRateLimit",
                rpc.grpc.status_code = Empty,
                error.type = Empty,
            )
        })
    }

    /// Starts the span of a request to `/json` with these headers, if it is recorded.
    pub fn start_json(&self, headers: &HeaderMap) -> RequestTrace {
        self.start(headers, || {
            info_span!(
                target: TARGET,
                parent: None,
                "json",
                otel.name = "POST /json",
                otel.kind = "server",
                otel.status_code = Empty,
                otel.status_description = Empty,
                http.request.method = "POST",
                http.route = "/json",
                http.response.status_code = Empty,
                error.type = Empty,
            )
        })
    }

    /// Starts a span if tracing is on and the request is recorded.
    #[inline]
    fn start(&self, headers: &HeaderMap, span: impl FnOnce() -> Span) -> RequestTrace {
        match self.ratio {
            None => RequestTrace::default(),
            Some(ratio) => start(ratio, headers, span),
        }
    }
}

/// Starts a span if its request is recorded.
fn start(ratio: f64, headers: &HeaderMap, span: impl FnOnce() -> Span) -> RequestTrace {
    let caller = Caller::of(headers);
    if !caller.sampled.unwrap_or_else(|| random() < ratio) {
        return RequestTrace::default();
    }
    let span = span();
    continue_trace(&span, &caller, headers);
    RequestTrace(Some(Box::new(span)))
}

/// Makes a span the child of the caller's.
#[cfg(feature = "otlp")]
fn continue_trace(span: &Span, caller: &Caller<'_>, headers: &HeaderMap) {
    use opentelemetry::Context;
    use opentelemetry::trace::TraceContextExt;
    use tracing_opentelemetry::OpenTelemetrySpanExt;

    if let Some(parent) = caller.span_context(headers) {
        // It fails only if no spans are exported.
        let _ = span.set_parent(Context::new().with_remote_span_context(parent));
    }
}

#[cfg(not(feature = "otlp"))]
fn continue_trace(_: &Span, _: &Caller<'_>, _: &HeaderMap) {}

/// The span of a request; none if the request is not recorded. A request that is dropped before its
/// response was recorded counts as cancelled.
#[derive(Debug, Default)]
pub struct RequestTrace(Option<Box<Span>>);

impl RequestTrace {
    /// The span, as a parent.
    #[inline]
    pub fn span(&self) -> Option<&Span> {
        self.0.as_deref()
    }

    /// Ends the span of a call with its status.
    #[inline]
    pub fn end_call(&mut self, code: Code, message: &str) {
        if let Some(span) = self.0.take() {
            end_call(&span, code, message);
        }
    }

    /// Ends the span of an HTTP request with the status of its response.
    pub fn end_http(&mut self, status: u16) {
        let Some(span) = self.0.take() else { return };
        span.record("http.response.status_code", i64::from(status));
        if status >= 500 {
            span.record("error.type", status.to_string());
            span.record("otel.status_code", "ERROR");
        }
    }
}

#[cold]
fn end_call(span: &Span, code: Code, message: &str) {
    span.record("rpc.grpc.status_code", i64::from(code as i32));
    // The other codes are errors of the client.
    if matches!(code, Code::Unknown | Code::Internal | Code::Unavailable | Code::DeadlineExceeded) {
        span.record("error.type", tracing::field::debug(code));
        span.record("otel.status_code", "ERROR");
        span.record("otel.status_description", message);
    }
}

impl Drop for RequestTrace {
    fn drop(&mut self) {
        if let Some(span) = self.0.take() {
            span.record("error.type", "cancelled");
            span.record("otel.status_code", "ERROR");
            span.record("otel.status_description", "the client cancelled the request");
        }
    }
}
