//! Refuses requests on the gRPC port that are not gRPC or call unknown methods. The error says what to send instead.

use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::header::CONTENT_TYPE;
use http::{Request, Response, StatusCode};
use tonic::Status;

use super::call::CallContext;
use super::stats::{OtherMethod, Refused, STREAM_QUOTAS};

/// The most characters that an answer and the log quote of what a client sent.
const MAX_SHOWN_CHARS: usize = 100;

/// The packages of Envoy's service before v3.
const OLD_PACKAGES: [&str; 2] = ["/envoy.service.ratelimit.v2.", "/pb.lyft.ratelimit."];

/// Refuses a request that is not a gRPC call.
#[cold]
pub(super) fn refuse_request<S>(
    shared: &CallContext<S>,
    request: &Request<RecvStream>,
    respond: SendResponse<Bytes>,
) {
    let content_type = match request.headers().get(CONTENT_TYPE) {
        Some(content_type) => shown(&String::from_utf8_lossy(content_type.as_bytes())),
        None => "none".to_owned(),
    };
    let method = shown(request.method().as_str());
    let received = format!("{method} with the content type {content_type}");
    let text = format!("received {received}: send POST with application/grpc");
    // As grpc-go answers.
    let mut response = Status::invalid_argument(text).into_http::<()>();
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    refuse(shared, (Refused::ContentType, &received), response, respond);
}

/// Refuses a call of a method that no service has.
#[cold]
pub(super) fn refuse_method<S>(
    shared: &CallContext<S>,
    request: &Request<RecvStream>,
    respond: SendResponse<Bytes>,
) {
    let path = request.uri().path();
    shared.grpc.stats.count_other(OtherMethod::of(path), Duration::ZERO);
    let help = if OLD_PACKAGES.iter().any(|package| path.starts_with(package)) {
        "weir serves v3, envoy.service.ratelimit.v3.RateLimitService: in Envoy, set \
         transport_api_version: V3"
    } else if path == STREAM_QUOTAS {
        "quotas are off: set rlqs.enabled = true"
    } else {
        "gRPC reflection lists the methods that weir serves"
    };
    let path = shown(path);
    let status = Status::unimplemented(format!("unknown method {path}: {help}"));
    refuse(shared, (Refused::Method, &path), status.into_http(), respond);
}

fn refuse<S>(
    shared: &CallContext<S>,
    (refused, received): (Refused, &str),
    response: Response<()>,
    mut respond: SendResponse<Bytes>,
) {
    shared.grpc.stats.count_refused(refused, shared.ends.client, received);
    shared.outbound.hand_over(received.len());
    // It fails only if the client has reset the call.
    let _ = respond.send_response(response, true);
}

/// Returns the start of what a client sent.
fn shown(text: &str) -> String {
    text.chars().take(MAX_SHOWN_CHARS).collect()
}
