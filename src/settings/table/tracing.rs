//! `tracing` and `otlp`: traces of requests, and the collector that gets them.

use super::group;
use super::tls::ClientFileSettings;
use crate::settings::format::{Choice, Ratio, Secret};

/// The protocol of OTLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpProtocol {
    Http,
    Grpc,
}

impl Choice for OtlpProtocol {
    const CHOICES: &'static [(&'static str, OtlpProtocol)] =
        &[("http", OtlpProtocol::Http), ("grpc", OtlpProtocol::Grpc)];
}

group! {
    /// Traces.
    TracingSettings {
        /// Whether requests are traced: spans go to an OpenTelemetry collector by OTLP.
        enabled: bool = "false";
        /// The protocol of OTLP.
        protocol: OtlpProtocol = "http";
        /// URL of the collector; https is TLS. Empty: http://localhost:4318/v1/traces for HTTP,
        /// http://localhost:4317 for gRPC. To the URL of OTEL_EXPORTER_OTLP_ENDPOINT, /v1/traces is added for HTTP.
        endpoint: Option<String> = "";
        /// The fraction of traces that are recorded, of those that start at weir. Callers decide about
        /// theirs.
        sampling: Ratio = "1";
        /// The attribute `service.name`. If it, the namespace or the instance is not set, that of
        /// OTEL_RESOURCE_ATTRIBUTES is used.
        service_name: String = "RateLimit";
        /// The attribute `service.namespace`.
        service_namespace: String = "";
        /// The attribute `service.instance.id`; empty: a random one.
        instance_id: String = "";
    }
}

group! {
    /// The OpenTelemetry collector.
    OtlpSettings {
        flat files: ClientFileSettings;
        /// Request headers: `name=value` each, values percent-encoded.
        headers: Vec<Secret> = "";
    }
}
