//! `tracing`: traces of requests.

use super::{OtlpProtocol, group};
use crate::settings::format::Ratio;

group! {
    /// Traces.
    TracingSettings "tracing" {
        /// Whether requests are traced: spans go to an OpenTelemetry collector by OTLP.
        enabled: bool = "false", reference ["TRACING_ENABLED"];
        /// The protocol of OTLP.
        protocol: OtlpProtocol = "http", reference ["TRACING_EXPORTER_PROTOCOL"];
        /// URL of the collector; https is TLS. Empty: http://localhost:4318/v1/traces for HTTP,
        /// http://localhost:4317 for gRPC. To the URL of OTEL_EXPORTER_OTLP_ENDPOINT, /v1/traces is added for HTTP.
        endpoint: Option<String> = "",
            reference ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];
        /// The fraction of traces that are recorded, of those that start at weir. Callers decide about
        /// theirs.
        sampling: Ratio = "1", reference ["TRACING_SAMPLING_RATE"];
        /// The attribute `service.name`. If it, the namespace or the instance is not set, that of
        /// OTEL_RESOURCE_ATTRIBUTES is used.
        service_name: String = "RateLimit", reference ["OTEL_SERVICE_NAME", "TRACING_SERVICE_NAME"];
        /// The attribute `service.namespace`.
        service_namespace: String = "", reference ["TRACING_SERVICE_NAMESPACE"];
        /// The attribute `service.instance.id`; empty: a random one.
        instance_id: String = "", reference ["TRACING_SERVICE_INSTANCE_ID"];
    }
}
