//! What the gRPC port cannot serve: HTTP/1, other content types, unknown methods. The client gets a sentence; each kind
//! is counted, and logged once per address and hour.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{Method, Request, StatusCode};
use tonic::Status;

use super::call::{CallContext, is_grpc};
use super::stats::OtherMethod;
use weir_common::metrics::{Counter, MetricFamily, MetricSink, SampleValue};
use weir_common::throttle::Throttles;

const LOG_INTERVAL: Duration = Duration::from_secs(3_600);

/// The most characters of what a client sent in an answer and in the log.
const MAX_SHOWN_CHARS: usize = 100;

/// The packages in which Envoy's service was before v3.
const OLD_PACKAGES: [&str; 2] = ["/envoy.service.ratelimit.v2.", "/pb.lyft.ratelimit."];

const REFUSED: MetricFamily = MetricFamily::counter(
    "grpc_refused",
    "Connections and calls that are not gRPC calls of a served method, by reason",
    &["reason"],
);

/// Why a connection or a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Refused {
    Http1,
    ContentType,
    Method,
}

#[derive(Debug)]
pub(super) struct RefusedCounts {
    counts: [(Refused, &'static str, Counter); 3],
    log: Throttles<(Refused, Option<IpAddr>)>,
}

impl Default for RefusedCounts {
    fn default() -> RefusedCounts {
        RefusedCounts {
            counts: [
                (Refused::Http1, "http1", Counter::default()),
                (Refused::ContentType, "content_type", Counter::default()),
                (Refused::Method, "unknown_method", Counter::default()),
            ],
            log: Throttles::new(LOG_INTERVAL),
        }
    }
}

impl RefusedCounts {
    /// Counts what a client sent, and logs it.
    pub fn note(&self, refused: Refused, peer: Option<SocketAddr>, received: &str) {
        for (_, _, count) in self.counts.iter().filter(|(counted, _, _)| *counted == refused) {
            count.inc();
        }
        let Some(suppressed) = self.log.pass((refused, peer.map(|peer| peer.ip()))) else { return };
        let peer = peer.map(tracing::field::display);
        match refused {
            Refused::Http1 => tracing::warn!(
                peer,
                received,
                suppressed,
                "an HTTP/1 client on the gRPC port: it needs HTTP/2, in Envoy http2_protocol_options"
            ),
            Refused::ContentType => {
                tracing::warn!(peer, received, suppressed, "a call on the gRPC port is not gRPC");
            }
            Refused::Method => {
                tracing::warn!(peer, received, suppressed, "a call of an unknown gRPC method");
            }
        }
    }

    pub fn collect(&self, sink: &mut dyn MetricSink) {
        sink.family(REFUSED);
        for (_, reason, count) in &self.counts {
            sink.sample(&[("reason", reason)], SampleValue::Counter(count.get()));
        }
    }
}

/// Refuses a call that is no call of gRPC.
#[cold]
pub(super) fn refuse_content_type<S>(
    shared: &CallContext<S>,
    head: &Parts,
    respond: SendResponse<Bytes>,
) {
    let content_type = match head.headers.get(CONTENT_TYPE) {
        Some(content_type) => shown(&String::from_utf8_lossy(content_type.as_bytes())),
        None => "none".to_owned(),
    };
    let received = format!("{} with the content type {content_type}", shown(head.method.as_str()));
    let text = format!("received {received}: send POST with application/grpc");
    // As grpc-go answers.
    let mut response = Status::invalid_argument(text).into_http::<()>();
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    refuse(shared, (Refused::ContentType, &received), response, respond);
}

/// Refuses a call that no service answers. Returns where to answer others.
pub(super) fn refuse_unknown<S>(
    shared: &CallContext<S>,
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
) -> Option<(Request<RecvStream>, SendResponse<Bytes>)> {
    let content_type = request.headers().get(CONTENT_TYPE).map(|kind| kind.as_bytes());
    if *request.method() != Method::POST || !content_type.is_some_and(is_grpc) {
        refuse_content_type(shared, &request.into_parts().0, respond);
        return None;
    }
    let (path, method) = (request.uri().path(), OtherMethod::of(request.uri().path()));
    if method.full_name().is_some() {
        return Some((request, respond));
    }
    shared.grpc.stats.count_other(method, Duration::ZERO);
    let help = match OLD_PACKAGES.iter().any(|package| path.starts_with(package)) {
        true => {
            "weir serves v3, envoy.service.ratelimit.v3.RateLimitService: in Envoy, set \
             transport_api_version: V3"
        }
        false => "gRPC reflection lists the methods that weir serves",
    };
    let path = shown(path);
    let status = Status::unimplemented(format!("unknown method {path}: {help}"));
    refuse(shared, (Refused::Method, &path), status.into_http(), respond);
    None
}

fn refuse<S>(
    shared: &CallContext<S>,
    (refused, received): (Refused, &str),
    response: http::Response<()>,
    mut respond: SendResponse<Bytes>,
) {
    shared.grpc.stats.refused.note(refused, shared.ends.client, received);
    shared.outbound.hand_over(received.len());
    // It fails only if the client has reset the call.
    let _ = respond.send_response(response, true);
}

/// Returns the start of what a client sent.
fn shown(text: &str) -> String {
    text.chars().take(MAX_SHOWN_CHARS).collect()
}
