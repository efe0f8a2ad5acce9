//! Metrics at a collector.

use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, metric};

use super::*;
use crate::support::collector::{attribute, find_metric, sum};
use crate::support::wait_for;

#[test]
fn metrics_reach_the_collector_by_http_and_grpc() {
    for (collector, protocol) in [(Collector::http(), "http"), (Collector::grpc(None), "grpc")] {
        let weir = serving(RULES)
            .env("WEIR__METRICS__OTLP__ENABLED", "true")
            .env("WEIR__METRICS__OTLP__PROTOCOL", protocol)
            .env("WEIR__METRICS__OTLP__INTERVAL", "20ms")
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url())
            .env("OTEL_EXPORTER_OTLP_HEADERS", "authorization=abc")
            .start();
        for _ in 0..3 {
            ask(weir.grpc, api::user_request(), &[]);
        }
        let export = wait_for("the requests are exported", || {
            let exports = collector.metrics();
            exports.into_iter().find(|export| {
                find_metric(export, "weir_rule_hits").is_some_and(|hits| sum(hits) == 3)
            })
        });
        let resource = export.resource_metrics[0].resource.as_ref().unwrap();
        assert_eq!(attribute(&resource.attributes, "service.name"), "RateLimit");
        let Some(metric::Data::Sum(hits)) = &find_metric(&export, "weir_rule_hits").unwrap().data
        else {
            panic!("a counter is a sum")
        };
        assert_eq!(hits.aggregation_temporality(), AggregationTemporality::Cumulative);
        let point = &hits.data_points[0];
        assert_eq!(attribute(&point.attributes, "domain"), "shop");
        assert!(point.start_time_unix_nano > 0);
        assert!(point.start_time_unix_nano < point.time_unix_nano);
        assert!(collector.authorizations().iter().all(|sent| sent == "abc"));
    }
}

#[test]
fn metrics_are_sent_once_more_at_the_end() {
    let collector = Collector::http();
    let weir = serving(RULES)
        .env("WEIR__METRICS__OTLP__ENABLED", "true")
        .env("WEIR__METRICS__OTLP__INTERVAL", "1h")
        .env("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", format!("{}/v1/metrics", collector.url()))
        .start();
    ask(weir.grpc, api::user_request(), &[]);
    assert!(collector.metrics().is_empty());
    stop(weir);
    let exports = collector.metrics();
    assert_eq!(exports.len(), 1);
    assert_eq!(sum(find_metric(&exports[0], "weir_rule_hits").unwrap()), 1);
}

#[test]
fn failures_are_counted() {
    let collector = Collector::http();
    let weir = serving(RULES)
        .env("WEIR__METRICS__OTLP__ENABLED", "true")
        .env("WEIR__METRICS__OTLP__INTERVAL", "10ms")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url())
        .start();
    collector.refuse(1);
    collector.wait_until_refused();
    let count = "weir_otlp_export_failures_total{signal=\"metrics\"}";
    wait_for("the failure is counted", || (weir.metric(count) > 0).then_some(()));
}

#[test]
fn metrics_are_compressed_on_request() {
    for (collector, protocol) in [(Collector::http(), "http"), (Collector::grpc(None), "grpc")] {
        let weir = serving(RULES)
            .env("WEIR__METRICS__OTLP__ENABLED", "true")
            .env("WEIR__METRICS__OTLP__PROTOCOL", protocol)
            .env("WEIR__METRICS__OTLP__INTERVAL", "1h")
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url())
            .env("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
            .start();
        ask(weir.grpc, api::user_request(), &[]);
        stop(weir);
        let exports = collector.metrics();
        let [export] = &exports[..] else { panic!("{protocol}: {exports:?}") };
        assert_eq!(sum(find_metric(export, "weir_rule_hits").unwrap()), 1);
        assert_eq!(collector.encodings(), ["gzip"], "{protocol}");
    }
}

#[test]
fn a_collector_that_asks_to_wait_gets_no_metrics() {
    for (collector, protocol) in [(Collector::http(), "http"), (Collector::grpc(None), "grpc")] {
        let _weir = serving(RULES)
            .env("WEIR__METRICS__OTLP__ENABLED", "true")
            .env("WEIR__METRICS__OTLP__PROTOCOL", protocol)
            .env("WEIR__METRICS__OTLP__INTERVAL", "20ms")
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url())
            .start();
        // Longer than any wait that it does not ask for.
        let wait = Duration::from_secs(3);
        collector.refuse_for(wait);
        collector.wait_until_refused();
        let refused = collector.attempts().len();
        let next =
            wait_for("metrics are sent again", || collector.attempts().get(refused).copied());
        let waited = next - collector.attempts()[refused - 1];
        assert!(waited >= wait, "{protocol}: {waited:?}");
    }
}
