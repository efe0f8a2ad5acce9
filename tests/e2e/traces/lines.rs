//! Log lines and exemplars that lead to a trace.

use super::*;
use crate::support::redis;

/// Sends a request that is recorded and one that is not, by gRPC and by `/json`, and returns the lines about their
/// decisions.
fn decision_lines(collector: &Collector, setup: Setup, spans: usize) -> Vec<String> {
    let mut weir = setup.env("WEIR__LOG__LEVEL", "debug").start();
    ask(weir.grpc, api::user_request(), &[traceparent(&trace_id(1))]);
    ask(weir.grpc, api::user_request(), &[]);
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"bob"}]}]}"#;
    let (name, value) = traceparent(&trace_id(2));
    http::ask(weir.http, "POST", "/json", &[(name, &value)], body.as_bytes()).expect("an answer");
    let spans = [trace_id(1), trace_id(2)].map(|id| collector.trace(&id, spans));
    weir.signal("INT");
    weir.wait_until_ended();
    let said = weir.said_in_all();
    let lines: Vec<String> =
        said.lines().filter(|line| line.contains("decision")).map(str::to_owned).collect();
    assert_eq!(lines.len(), 3, "{said}");
    for (line, span) in [(0, named(&spans[0], CALL)), (2, named(&spans[1], "POST /json"))] {
        assert!(lines[line].contains(&span.trace_id()), "{lines:#?}");
        assert!(lines[line].contains(&span.id()), "{lines:#?}");
    }
    assert!(!lines[1].contains("trace_id") && !lines[1].contains("span_id"), "{lines:#?}");
    lines
}

#[test]
fn log_lines_of_recorded_requests_have_the_ids_of_their_spans() {
    for format in ["text", "json", "reference-json"] {
        let collector = Collector::http();
        let lines =
            decision_lines(&collector, traced(&collector).env("WEIR__LOG__FORMAT", format), 3);
        if format == "text" {
            assert!(
                lines[0].contains(&format!(" trace_id={} span_id=", trace_id(1))),
                "{lines:#?}"
            );
        } else {
            let event: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
            assert_eq!(event["trace_id"], trace_id(1));
        }
    }
}

#[test]
fn latencies_have_exemplars_in_open_metrics_only() {
    let collector = Collector::http();
    let weir = traced(&collector).start();
    ask(weir.grpc, api::user_request(), &[traceparent(&trace_id(1))]);
    let body = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"bob"}]}]}"#;
    let (name, value) = traceparent(&trace_id(2));
    http::ask(weir.http, "POST", "/json", &[(name, &value)], body.as_bytes()).expect("an answer");
    let metrics = |accept: &str| {
        http::ask(weir.http, "GET", "/metrics", &[("accept", accept)], b"").expect("metrics").body
    };
    let call = collector.trace(&trace_id(1), 3);
    let call = named(&call, CALL);
    let ids = format!("# {{trace_id=\"{}\",span_id=\"{}\"}} ", call.trace_id(), call.id());
    let page = crate::support::wait_for("an exemplar of the call", || {
        Some(metrics("application/openmetrics-text")).filter(|page| page.contains(&ids))
    });
    let line_of =
        |id: &str| page.lines().find(|line| line.contains(id)).unwrap_or_default().to_owned();
    assert!(
        line_of(&ids)
            .starts_with("weir_request_duration_seconds_bucket{method=\"ShouldRateLimit\"")
    );
    let json = line_of(&trace_id(2));
    assert!(json.starts_with("weir_json_request_duration_seconds_bucket{"), "{page}");
    assert!(!metrics("text/plain").contains("trace_id"));
}

#[test]
fn log_lines_of_requests_that_wait_for_redis_have_the_ids_of_their_spans() {
    let (collector, redis) = (Collector::http(), redis::Server::start());
    let setup = traced(&collector).env("REDIS_URL", format!("127.0.0.1:{}", redis.port()));
    decision_lines(&collector, setup, 4);
}
