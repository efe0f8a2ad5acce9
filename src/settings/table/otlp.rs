//! `otlp`: the OpenTelemetry collector, for traces and metrics.

use std::path::PathBuf;
use std::time::Duration;

use super::group;
use crate::settings::format::{Choice, Secret};

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

/// How messages to the collector are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpCompression {
    None,
    Gzip,
}

impl Choice for OtlpCompression {
    const CHOICES: &'static [(&'static str, OtlpCompression)] =
        &[("none", OtlpCompression::None), ("gzip", OtlpCompression::Gzip)];
}

group! {
    /// The OpenTelemetry collector.
    OtlpSettings "otlp" {
        /// URL of the collector for traces and metrics; https is TLS. For HTTP, /v1/traces and
        /// /v1/metrics are added. Empty: port 4318 on localhost for HTTP, 4317 for gRPC.
        endpoint: Option<String> = "", reference ["OTEL_EXPORTER_OTLP_ENDPOINT"];
        /// Request headers: `name=value` each, values percent-encoded.
        headers: Vec<Secret> = "", reference ["OTEL_EXPORTER_OTLP_HEADERS"];
        /// Timeout of a request to the collector.
        timeout: Duration = "10s", reference ["OTEL_EXPORTER_OTLP_TIMEOUT"];
        /// How messages to the collector are compressed.
        compression: OtlpCompression = "none", reference ["OTEL_EXPORTER_OTLP_COMPRESSION"];
        /// PEM file with the CA certificates to trust; empty: the system's.
        ca: Option<PathBuf> = "", reference ["OTEL_EXPORTER_OTLP_CERTIFICATE"];
        /// PEM file with the client certificate, if the collector requires one.
        cert: Option<PathBuf> = "", reference ["OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"];
        /// PEM file with the key of the client certificate.
        key: Option<PathBuf> = "", reference ["OTEL_EXPORTER_OTLP_CLIENT_KEY"];
    }
}
