//! Variables of OpenTelemetry's SDKs.

use super::*;

#[test]
fn attributes_of_the_environment_are_used_where_no_setting_names_one() {
    let attributes = "service.name=theirs,service.namespace=edge,service.instance.id=i-1";
    for (name, wanted) in [(None, "theirs"), (Some("OTEL_SERVICE_NAME"), "ours")] {
        let collector = Collector::http();
        let mut setup = traced(&collector).env("OTEL_RESOURCE_ATTRIBUTES", attributes);
        if let Some(name) = name {
            setup = setup.env(name, "ours");
        }
        let weir = setup.start();
        ask(weir.grpc, api::user_request(), &[traceparent(&trace_id(1))]);
        let spans = collector.trace(&trace_id(1), 3);
        for (attribute, wanted) in [
            ("service.name", wanted),
            ("service.namespace", "edge"),
            ("service.instance.id", "i-1"),
        ] {
            assert_eq!(named(&spans, CALL).process(attribute), wanted, "{attribute}");
        }
    }
}

#[test]
fn without_them_the_name_is_the_references_and_the_instance_is_random() {
    let collector = Collector::http();
    let weir = traced(&collector).start();
    ask(weir.grpc, api::user_request(), &[traceparent(&trace_id(1))]);
    let spans = collector.trace(&trace_id(1), 3);
    let call = named(&spans, CALL);
    assert_eq!(call.process("service.name"), "RateLimit");
    assert_eq!(call.process("service.instance.id").len(), 36);
}

#[test]
fn variables_without_effect_are_named_at_the_start() {
    let weir = serving(RULES)
        .env("OTEL_SDK_DISABLED", "True")
        .env("OTEL_TRACES_EXPORTER", "jaeger")
        .env("OTEL_METRICS_EXPORTER", "none")
        .env("OTEL_TRACES_SAMPLER", "always_on")
        .env("OTEL_PROPAGATORS", "xray")
        .env("OTEL_BSP_SCHEDULE_DELAY", "100")
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        .env("OTEL_EXPORTER_OTLP_COMPRESSION", "deflate")
        .env("OTEL_EXPORTER_OTLP_TRACES_INSECURE", "true")
        .env("OTEL_LOG_LEVEL", "debug")
        .start();
    let said = weir.said();
    for name in [
        "OTEL_SDK_DISABLED has no effect",
        "OTEL_TRACES_EXPORTER has no effect",
        "OTEL_METRICS_EXPORTER has no effect",
        "OTEL_TRACES_SAMPLER has no effect",
        "OTEL_PROPAGATORS has no effect",
        "OTEL_BSP_SCHEDULE_DELAY",
        "OTEL_EXPORTER_OTLP_PROTOCOL has no effect",
        "OTEL_EXPORTER_OTLP_COMPRESSION has no effect",
        "OTEL_EXPORTER_OTLP_TRACES_INSECURE",
        "OTEL_LOG_LEVEL has no effect",
    ] {
        let lines = said.lines().filter(|line| line.contains("settings without effect"));
        let lines = lines.filter(|line| line.contains(name)).count();
        assert_eq!(lines, 1, "{name}: {said}");
    }
}

#[test]
fn they_do_not_turn_traces_on() {
    let collector = Collector::http();
    let weir = serving(RULES)
        .env("OTEL_SDK_DISABLED", "false")
        .env("OTEL_TRACES_EXPORTER", "otlp")
        .env("OTEL_TRACES_SAMPLER", "always_on")
        .env("OTEL_SERVICE_NAME", "limits")
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url())
        .env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", format!("{}/v1/traces", collector.url()))
        .start();
    ask(weir.grpc, api::user_request(), &[traceparent(&trace_id(1))]);
    // It sends what it has.
    stop(weir);
    assert!(collector.spans().is_empty() && collector.attempts().is_empty());
}

#[test]
fn headers_of_traces_win_over_those_of_all_signals() {
    for (collector, protocol) in [(Collector::http(), "http"), (Collector::grpc(None), "grpc")] {
        let weir = traced(&collector)
            .env("TRACING_EXPORTER_PROTOCOL", protocol)
            .env("OTEL_EXPORTER_OTLP_HEADERS", "authorization=all")
            .env("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "authorization=traces")
            .start();
        ask(weir.grpc, api::user_request(), &[traceparent(&trace_id(1))]);
        collector.trace(&trace_id(1), 3);
        assert_eq!(collector.authorizations(), ["traces"], "{protocol}");
    }
}
