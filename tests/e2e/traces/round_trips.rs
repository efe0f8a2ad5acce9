//! The spans of round trips to Redis.

use futures_util::future::join_all;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;

use super::*;
use crate::support::redis;

#[test]
fn interleaved_calls_have_their_own_spans() {
    let (collector, redis) = (Collector::grpc(None), redis::Server::start());
    let weir = traced(&collector)
        .env("TRACING_EXPORTER_PROTOCOL", "grpc")
        .env("REDIS_URL", format!("127.0.0.1:{}", redis.port()))
        .env("WEIR__STORE__DENY_LOCALLY_FOR", "0")
        .start();
    call_interleaved(weir.grpc);
    let mut shared = 0;
    for number in 0..CALLS {
        let mut spans = collector.trace(&trace_id(number), 4);
        let at = spans.iter().position(is_client).expect("a span of the round trip");
        let trip = spans.swap_remove(at);
        check_chain(&spans, CALL);
        let charge = named(&spans, CHARGE);
        assert_eq!(trip.parent(), charge.id());
        assert!(charge.span.start_time_unix_nano <= trip.span.start_time_unix_nano);
        assert!(trip.span.end_time_unix_nano <= charge.span.end_time_unix_nano);
        assert_eq!(trip.attribute("db.system.name"), "redis");
        let (name, operation) = (&trip.span.name, trip.attribute("db.operation.name"));
        assert_eq!(*name, operation);
        assert!(
            operation.contains("EVAL") || operation.contains("INCRBY") || operation == "PIPELINE"
        );
        let commands = trip.integer("db.operation.batch.size");
        assert_eq!(commands.is_some_and(|size| size >= 2), operation.starts_with("PIPELINE"));
        assert_eq!(trip.attribute("server.address"), "127.0.0.1");
        assert_eq!(trip.integer("server.port"), Some(redis.port().into()));
        assert_eq!(trip.attribute("error.type"), "");
        shared = shared.max(trip.integer("rate_limit.round_trip.charges").unwrap());
    }
    assert!(shared > 1, "calls at the same time share round trips");
}

fn is_client(recorded: &RecordedSpan) -> bool {
    recorded.span.kind() == SpanKind::Client
}

/// A request that stops waiting ends the span of its round trip, which ends later.
#[test]
fn a_round_trip_that_takes_too_long_is_an_error_of_its_span() {
    let (collector, redis) = (Collector::http(), redis::Server::start());
    let proxy = redis::proxy::Proxy::start(redis.port());
    let weir = traced(&collector)
        .env("REDIS_URL", format!("127.0.0.1:{}", proxy.port()))
        .env("WEIR__STORE__BUDGET", "100ms")
        .start();
    proxy.delay(Duration::from_secs(1));
    fail(weir.grpc);
    let mut spans = collector.trace(&trace_id(1), 4);
    let at = spans.iter().position(is_client).expect("a span of the round trip");
    let trip = spans.swap_remove(at);
    check_chain(&spans, CALL);
    assert_eq!(trip.attribute("error.type"), "TimedOut");
    assert_eq!(trip.span.status.as_ref().unwrap().code(), StatusCode::Error);
    assert!(trip.span.end_time_unix_nano <= named(&spans, CHARGE).span.end_time_unix_nano);
}

const CALLS: usize = 50;

/// Makes calls at the same time on one connection.
#[tokio::main(flavor = "current_thread")]
async fn call_interleaved(to: SocketAddr) {
    let channel = api::channel(to).await;
    let calls = (0..CALLS).map(async |number| {
        let headers = [traceparent(&trace_id(number))];
        send(channel.clone(), api::user_request(), &headers).await.expect("an answer");
    });
    join_all(calls).await;
}
