//! Spans at a collector, by OTLP.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use tonic::metadata::{MetadataKey, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Status};
use weir::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use weir::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use weir::proto::weir::budget::v1 as pb;
use weir::proto::weir::budget::v1::budget_service_client::BudgetServiceClient;

use crate::support::collector::{Collector, RecordedSpan};
use crate::support::weir::{Setup, Weir, serving};
use crate::support::{api, envoy, http};

mod exit;
mod lines;
mod round_trips;
mod tls;
mod variables;

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 2 }
  - key: unlimited
    rate_limit: { unlimited: true }
";

const SPAN: &str = "00f067aa0ba902b7";

/// A service with tracing on, whose own requests are not sampled.
fn traced(collector: &Collector) -> Setup {
    serving(RULES)
        .env("TRACING_ENABLED", "true")
        .env("TRACING_SAMPLING_RATE", "0")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url())
}

/// A trace ID that ends in a number.
fn trace_id(number: usize) -> String {
    format!("4bf92f3577b34da6a3ce929d{number:08x}")
}

/// The header of a caller that records its trace.
fn traceparent(trace_id: &str) -> (&'static str, String) {
    ("traceparent", format!("00-{trace_id}-{SPAN}-01"))
}

async fn send(
    channel: Channel,
    request: RateLimitRequest,
    headers: &[(&'static str, String)],
) -> Result<(), Status> {
    let mut request = Request::new(request);
    for (name, value) in headers {
        let value = MetadataValue::try_from(value).expect("a header");
        request.metadata_mut().append(MetadataKey::from_static(name), value);
    }
    RateLimitServiceClient::new(channel).should_rate_limit(request).await.map(drop)
}

#[tokio::main(flavor = "current_thread")]
async fn ask(to: SocketAddr, request: RateLimitRequest, headers: &[(&'static str, String)]) {
    send(api::channel(to).await, request, headers).await.expect("an answer");
}

/// Returns the span of that name in a trace.
fn named<'a>(spans: &'a [RecordedSpan], name: &str) -> &'a RecordedSpan {
    let found = spans.iter().find(|recorded| recorded.span.name == name);
    found.unwrap_or_else(|| panic!("no {name} in {spans:#?}"))
}

const CALL: &str = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const DECIDE: &str = "rate_limit.decide";
const CHARGE: &str = "rate_limit.charge";

/// Checks that each span of a request is the child of the one before, and the first that of the caller.
fn check_chain(spans: &[RecordedSpan], server: &str) {
    let [call, decide, charge] = [server, DECIDE, CHARGE].map(|name| named(spans, name));
    assert_eq!(spans.len(), 3, "{spans:#?}");
    assert_eq!(call.parent(), SPAN);
    assert_eq!(decide.parent(), call.id());
    assert_eq!(charge.parent(), decide.id());
}

/// Checks the addresses of a span of a server.
fn check_ends(recorded: &RecordedSpan, server: SocketAddr) {
    assert_eq!(recorded.attribute("client.address"), server.ip().to_string());
    assert_eq!(recorded.attribute("server.address"), server.ip().to_string());
    assert_eq!(recorded.integer("server.port"), Some(server.port().into()));
}

#[test]
fn spans_reach_the_collector_by_http_and_grpc() {
    for (collector, protocol) in [(Collector::http(), "http"), (Collector::grpc(None), "grpc")] {
        let weir = traced(&collector)
            .env("TRACING_EXPORTER_PROTOCOL", protocol)
            .env("TRACING_SERVICE_NAME", "limits")
            .env("TRACING_SERVICE_NAMESPACE", "edge")
            .env("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc")
            .env(
                "OTEL_RESOURCE_ATTRIBUTES",
                "service.name=others,service.instance.id=i-1,cloud.region=eu-1",
            )
            // Spans do not depend on what is logged.
            .env("LOG_LEVEL", "warn")
            .start();
        let state = ("tracestate", "vendor=1".to_owned());
        for request in 0..3 {
            ask(weir.grpc, api::user_request(), &[traceparent(&trace_id(request)), state.clone()]);
        }
        let spans = collector.trace(&trace_id(2), 3);
        check_chain(&spans, CALL);
        let [call, decide, charge] = [CALL, DECIDE, CHARGE].map(|name| named(&spans, name));
        assert_eq!(call.attribute("rpc.response.status_code"), "OK");
        assert_eq!(call.attribute("rpc.system.name"), "grpc");
        assert_eq!(call.attribute("rpc.method"), CALL);
        for deprecated in ["rpc.system", "rpc.service", "rpc.grpc.status_code"] {
            assert_eq!(call.attribute(deprecated), "", "{deprecated}");
        }
        check_ends(call, weir.grpc);
        assert_eq!(call.span.trace_state, "vendor=1");
        assert_eq!(decide.attribute("domain"), "shop");
        assert_eq!(decide.attribute("rate_limit.rules"), "user");
        assert_eq!(decide.attribute("rate_limit.over_limit_rules"), "user");
        assert_eq!(decide.attribute("rate_limit.outcome"), "over_limit");
        assert_eq!(decide.integer("rate_limit.descriptors"), Some(1));
        assert_eq!(decide.attribute("rate_limit.rule"), "user");
        assert_eq!(decide.integer("rate_limit.limit.requests"), Some(2));
        assert_eq!(decide.integer("rate_limit.remaining"), Some(0));
        assert_eq!(decide.integer("rate_limit.used"), Some(2));
        assert!(decide.integer("rate_limit.retry_after_ms").unwrap() > 0);
        assert_eq!(charge.integer("rate_limit.keys"), Some(1));
        assert_eq!(charge.attribute("rate_limit.answered_by"), "store");
        assert!(call.span.start_time_unix_nano <= charge.span.start_time_unix_nano);
        assert!(charge.span.end_time_unix_nano <= call.span.end_time_unix_nano);
        let first = collector.trace(&trace_id(0), 3);
        let decide = named(&first, DECIDE);
        assert_eq!(decide.attribute("rate_limit.outcome"), "ok");
        let [used, remaining] = ["used", "remaining"].map(|name| format!("rate_limit.{name}"));
        assert_eq!((decide.integer(&used), decide.integer(&remaining)), (Some(1), Some(1)));
        assert_eq!(decide.integer("rate_limit.retry_after_ms"), None);
        // Values of descriptors often identify people.
        let all = format!("{spans:?}");
        assert!(!all.contains("\"ann\"") && !all.contains("user=ann"), "{all}");

        assert_eq!(call.process("service.name"), "limits");
        assert_eq!(call.process("service.namespace"), "edge");
        assert_eq!(call.process("cloud.region"), "eu-1");
        assert_eq!(call.process("service.instance.id"), "i-1");
        assert_eq!(call.process("telemetry.sdk.name"), "opentelemetry");
        assert!(collector.authorizations().iter().all(|sent| sent == "Bearer abc"));
    }
}

#[test]
fn callers_decide_which_requests_are_recorded() {
    let collector = Collector::http();
    let weir = traced(&collector).start();
    let b3 =
        |number: usize, decision: &str| ("b3", format!("{}-{SPAN}-{decision}", trace_id(number)));
    let multiple = |number: usize, decision: &str| {
        vec![
            ("x-b3-traceid", trace_id(number)),
            ("x-b3-spanid", SPAN.to_owned()),
            ("x-b3-sampled", decision.to_owned()),
        ]
    };
    let unsampled = format!("00-{}-{SPAN}-00", trace_id(1));
    for headers in [
        vec![("traceparent", unsampled)],
        vec![("traceparent", format!("00-{}-{SPAN}-1", trace_id(2)))],
        vec![b3(3, "0")],
        multiple(4, "0"),
        vec![("b3", "0".to_owned())],
        vec![("b3", "-".to_owned())],
        vec![],
        vec![traceparent(&trace_id(5))],
        vec![b3(6, "1")],
        multiple(7, "1"),
        // The last: all before it have been sent when it arrives.
        vec![traceparent(&trace_id(8)), b3(9, "1")],
    ] {
        ask(weir.grpc, api::user_request(), &headers);
    }
    collector.trace(&trace_id(8), 3);
    let mut traces: BTreeMap<String, Vec<RecordedSpan>> = BTreeMap::new();
    for span in collector.spans() {
        traces.entry(span.trace_id()).or_default().push(span);
    }
    let wanted: BTreeSet<String> = [5, 6, 7, 8].map(trace_id).into();
    assert_eq!(traces.keys().cloned().collect::<BTreeSet<_>>(), wanted);
    for spans in traces.values() {
        check_chain(spans, CALL);
    }
}

#[test]
fn requests_without_a_caller_are_sampled() {
    let collector = Collector::http();
    let weir = traced(&collector).env("TRACING_SAMPLING_RATE", "1").start();
    ask(weir.grpc, api::user_request(), &[("traceparent", "no context".to_owned())]);
    let spans = crate::support::wait_for("spans", || {
        Some(collector.spans()).filter(|spans| spans.len() == 3)
    });
    assert_eq!(named(&spans, CALL).parent(), "");
    let traces: BTreeSet<_> = spans.iter().map(RecordedSpan::trace_id).collect();
    assert_eq!(traces.len(), 1, "{spans:#?}");
}

#[test]
fn json_requests_have_spans_and_errors_are_marked() {
    let collector = Collector::http();
    let weir = traced(&collector).start();
    let post = |number: usize, body: &str| {
        let (name, value) = traceparent(&trace_id(number));
        http::ask(weir.http, "POST", "/json", &[(name, &value)], body.as_bytes())
            .expect("an answer")
    };
    let good = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"ann"}]}]}"#;
    assert_eq!(post(1, good).status, 200);
    assert_eq!(post(2, r#"{"domain":"shop"}"#).status, 400);
    let spans = collector.trace(&trace_id(1), 3);
    check_chain(&spans, "POST /json");
    assert_eq!(named(&spans, "POST /json").integer("http.response.status_code"), Some(200));
    check_ends(named(&spans, "POST /json"), weir.http);
    let spans = collector.trace(&trace_id(2), 2);
    assert_eq!(named(&spans, "POST /json").integer("http.response.status_code"), Some(400));
    let decide = named(&spans, DECIDE);
    assert_eq!(decide.attribute("rate_limit.outcome"), "error");
    assert_eq!(decide.attribute("error.type"), "invalid_request");
    let status = decide.span.status.as_ref().unwrap();
    assert_eq!(status.code(), StatusCode::Error);
    assert_eq!(status.message, "rate limit descriptor list must not be empty");
}

#[test]
fn calls_of_budgets_have_spans() {
    let collector = Collector::http();
    let weir = traced(&collector).start();
    let name = "weir.budget.v1.BudgetService/Reserve";
    reserve(weir.grpc, 1, "shop").expect("an answer");
    let spans = collector.trace(&trace_id(1), 3);
    check_chain(&spans, name);
    assert_eq!(named(&spans, name).attribute("rpc.response.status_code"), "OK");
    check_ends(named(&spans, name), weir.grpc);
    reserve(weir.grpc, 2, "").expect_err("an invalid request");
    let spans = collector.trace(&trace_id(2), 2);
    assert_eq!(named(&spans, name).attribute("rpc.response.status_code"), "INVALID_ARGUMENT");

    let (header, value) = traceparent(&trace_id(3));
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"ann"}]}]}"#;
    let path = "/v1/budget/reserve";
    let answer = http::ask(weir.http, "POST", path, &[(header, &value)], body.as_bytes());
    assert_eq!(answer.expect("an answer").status, 200);
    check_chain(&collector.trace(&trace_id(3), 3), "POST /v1/budget/reserve");
    let count = r#"weir_budget_request_duration_seconds_count{path="/v1/budget/reserve"}"#;
    assert_eq!(weir.metric(count), 1);
}

/// Reserves one hit.
#[tokio::main(flavor = "current_thread")]
async fn reserve(to: SocketAddr, trace: usize, domain: &str) -> Result<(), Status> {
    let entry = pb::Entry { key: "user".into(), value: "ann".into() };
    let descriptors = vec![pb::Descriptor { entries: vec![entry] }];
    let request =
        pb::ReserveRequest { domain: domain.into(), descriptors, id: String::new(), amount: 1 };
    let mut request = Request::new(request);
    let (name, value) = traceparent(&trace_id(trace));
    let value = MetadataValue::try_from(&value).expect("a header");
    request.metadata_mut().insert(MetadataKey::from_static(name), value);
    BudgetServiceClient::new(api::channel(to).await).reserve(request).await.map(drop)
}

#[test]
fn a_failing_store_is_an_error_of_its_span() {
    let collector = Collector::http();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut weir = traced(&collector).env("REDIS_URL", address.to_string()).start_unhealthy();
    weir.until_said("rules are loaded").expect("it runs");
    fail(weir.grpc);
    let spans = collector.trace(&trace_id(1), 3);
    check_chain(&spans, CALL);
    for name in [CALL, DECIDE, CHARGE] {
        assert_eq!(named(&spans, name).span.status.as_ref().unwrap().code(), StatusCode::Error);
    }
    assert_eq!(named(&spans, CALL).attribute("rpc.response.status_code"), "UNKNOWN");
    assert_eq!(named(&spans, CALL).attribute("error.type"), "UNKNOWN");
    assert_eq!(named(&spans, DECIDE).attribute("error.type"), "Unavailable");
}

#[tokio::main(flavor = "current_thread")]
async fn fail(to: SocketAddr) {
    let headers = [traceparent(&trace_id(1))];
    let channel = api::channel(to).await;
    send(channel, api::user_request(), &headers).await.expect_err("an error");
}

#[test]
fn spans_are_children_of_envoys() {
    let collector = Collector::grpc(None);
    let weir = serving("domain: edge\ndescriptors:\n  - key: service\n    rate_limit: { unit: year, requests_per_unit: 9 }\n")
        .env("TRACING_ENABLED", "true")
        .env("TRACING_SAMPLING_RATE", "0")
        .env("TRACING_EXPORTER_PROTOCOL", "grpc")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url())
        .start();
    let envoy = envoy::tracing_to(&weir, collector.address);
    assert_eq!(http::get(envoy.address, "/").status, 200);
    let call = crate::support::wait_for("the span of weir's call", || {
        collector.spans().into_iter().find(|recorded| recorded.span.name == CALL)
    });
    let spans = crate::support::wait_for("Envoy's spans", || {
        let mut spans = collector.spans();
        spans.retain(|recorded| recorded.trace_id() == call.trace_id());
        spans.iter().any(|recorded| recorded.id() == call.parent()).then_some(spans)
    });
    let caller = spans.iter().find(|recorded| recorded.id() == call.parent()).unwrap();
    assert_eq!(caller.process("service.name"), "envoy");
    assert_eq!(named(&spans, DECIDE).parent(), call.id());
}

#[test]
fn spans_are_sent_again_when_the_collector_recovers() {
    for collector in [Collector::http(), Collector::grpc(None)] {
        let protocol = if collector.is_http { "http" } else { "grpc" };
        let weir = traced(&collector).env("TRACING_EXPORTER_PROTOCOL", protocol).start();
        collector.refuse(1);
        ask(weir.grpc, api::user_request(), &[traceparent(&trace_id(1))]);
        collector.wait_until_refused();
        collector.trace(&trace_id(1), 3);
        assert_eq!(weir.metric("weir_trace_batches_failed_total"), 0);
    }
}

#[test]
fn batches_are_counted_and_failures_are_logged() {
    for collector in [Collector::http(), Collector::grpc(None)] {
        let protocol = if collector.is_http { "http" } else { "grpc" };
        let mut weir = traced(&collector).env("TRACING_EXPORTER_PROTOCOL", protocol).start();
        collector.refuse(100);
        ask(weir.grpc, api::user_request(), &[traceparent(&trace_id(1))]);
        let said = weir.until_said("cannot export telemetry").expect("it runs");
        let cause = if collector.is_http { "status 503" } else { "Unavailable" };
        assert!(said.contains(cause) && said.contains("suppressed=0"), "{said}");
        collector.refuse(0);
        ask(weir.grpc, api::user_request(), &[traceparent(&trace_id(2))]);
        collector.trace(&trace_id(2), 3);
        crate::support::wait_for("both are counted", || {
            let count = |name: &str| weir.metric(&format!("weir_trace_batches_{name}_total"));
            ((count("failed"), count("sent")) == (1, 1)).then_some(())
        });
    }
}

#[test]
fn a_collector_that_asks_to_wait_gets_no_spans() {
    for (collector, protocol) in [(Collector::http(), "http"), (Collector::grpc(None), "grpc")] {
        let weir = traced(&collector).env("TRACING_EXPORTER_PROTOCOL", protocol).start();
        // Longer than any wait that it does not ask for.
        let wait = Duration::from_secs(3);
        collector.refuse_for(wait);
        ask(weir.grpc, api::user_request(), &[traceparent(&trace_id(1))]);
        collector.wait_until_refused();
        collector.trace(&trace_id(1), 3);
        let attempts = collector.attempts();
        let [first, second] = attempts[..] else { panic!("{attempts:?}") };
        assert!(second - first >= wait, "{:?}", second - first);
    }
}

#[test]
fn the_end_does_not_wait_for_as_long_as_a_collector_asks() {
    for (collector, protocol) in [(Collector::http(), "http"), (Collector::grpc(None), "grpc")] {
        for signal in ["TERM", "INT"] {
            let weir = traced(&collector)
                .env("TRACING_EXPORTER_PROTOCOL", protocol)
                // SIGTERM waits for it, whatever the collector does.
                .env("WEIR__DRAIN__DELAY", "0")
                .start();
            let attempts = collector.attempts().len();
            collector.refuse_for(Duration::from_secs(60));
            ask(weir.grpc, api::user_request(), &[traceparent(&trace_id(1))]);
            collector.wait_until_refused();
            let start = Instant::now();
            stop_by(weir, signal);
            assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
            assert_eq!(collector.attempts().len(), attempts + 1);
        }
    }
}

#[test]
fn messages_are_compressed_on_request() {
    for (collector, protocol) in [(Collector::http(), "http"), (Collector::grpc(None), "grpc")] {
        let weir = traced(&collector)
            .env("TRACING_EXPORTER_PROTOCOL", protocol)
            .env("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
            .start();
        ask(weir.grpc, api::user_request(), &[traceparent(&trace_id(1))]);
        check_chain(&collector.trace(&trace_id(1), 3), CALL);
        assert_eq!(collector.encodings(), ["gzip"], "{protocol}");
    }
}

#[test]
fn tracing_off_sends_nothing() {
    let collector = Collector::http();
    let weir = traced(&collector).env("TRACING_ENABLED", "false").start();
    ask(weir.grpc, api::user_request(), &[traceparent(&trace_id(1))]);
    stop(weir);
    assert!(collector.attempts().is_empty());
}

/// Stops a service, which must end by itself.
fn stop(weir: Weir) {
    stop_by(weir, "INT");
}

fn stop_by(mut weir: Weir, signal: &str) {
    weir.signal(signal);
    assert_eq!(weir.wait_until_ended().code(), Some(0), "{}", weir.said());
}
