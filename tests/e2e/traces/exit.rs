//! What is left is sent at the end, and nothing makes the end wait for long.

use std::io::{Read, Write};
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
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", &url)
            // An hour: only the bound of the flush ends it.
            .env("OTEL_EXPORTER_OTLP_TIMEOUT", "3600000")
            .start();
        ask(weir.grpc, api::user_request(), &[]);
        stop(weir);
    }
}

#[test]
fn a_collector_that_never_answers_costs_the_timeout() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    for protocol in ["http", "grpc"] {
        check_timeout(protocol, &url);
    }
}

#[test]
fn an_answer_without_an_end_costs_the_timeout() {
    let endless = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", endless.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut socket, _) = endless.accept().unwrap();
        let _ = socket.read(&mut [0; 1_024]);
        let _ = socket.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while socket.write_all(b"a").is_ok() {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    check_timeout("http", &url);
}

/// Checks that a batch for a collector is dropped after its timeout.
fn check_timeout(protocol: &str, url: &str) {
    let mut weir = serving(RULES)
        .env("TRACING_ENABLED", "true")
        .env("TRACING_EXPORTER_PROTOCOL", protocol)
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        .env("OTEL_EXPORTER_OTLP_TIMEOUT", "300")
        .start();
    ask(weir.grpc, api::user_request(), &[]);
    let said = weir.until_said("cannot export telemetry").expect("it runs");
    assert!(said.contains("no answer within 300ms"), "{said}");
    assert_eq!(weir.metric("weir_trace_batches_failed_total"), 1);
    stop(weir);
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
