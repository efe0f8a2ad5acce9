//! What is left is sent at the end, and nothing makes the end wait for long.

use std::net::TcpListener;

use super::*;

#[test]
fn spans_are_flushed_at_the_end() {
    let collector = Collector::http();
    let weir = traced(&collector).start();
    ask(weir.grpc, api::user_request(), &[traceparent(&trace_id(1))]);
    stop(weir);
    assert_eq!(collector.spans().len(), 3);
}

#[test]
fn a_collector_that_never_answers_does_not_delay_the_end() {
    // The system accepts connections, and nobody reads them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    for protocol in ["http", "grpc"] {
        let weir = serving(RULES)
            .env("TRACING_ENABLED", "true")
            .env("TRACING_EXPORTER_PROTOCOL", protocol)
            .env("WEIR__METRICS__OTLP__ENABLED", "true")
            .env("WEIR__METRICS__OTLP__PROTOCOL", protocol)
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", &url)
            // An hour: only the bound of the flush ends it.
            .env("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000")
            .start();
        ask(weir.grpc, api::user_request(), &[]);
        stop(weir);
    }
}

#[test]
fn no_collector_does_not_delay_the_end() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for protocol in ["http", "grpc"] {
        let weir = serving(RULES)
            .env("TRACING_ENABLED", "true")
            .env("TRACING_EXPORTER_PROTOCOL", protocol)
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}"))
            .start();
        ask(weir.grpc, api::user_request(), &[]);
        stop(weir);
    }
}
