//! `otlp`: the OpenTelemetry collector.

use std::path::PathBuf;

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

group! {
    /// The OpenTelemetry collector.
    OtlpSettings "otlp" {
        /// Request headers: `name=value` each, values percent-encoded.
        headers: Vec<Secret> = "", reference ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"];
        /// PEM file with the CA certificates to trust; empty: the system's.
        ca: Option<PathBuf> = "", reference ["OTEL_EXPORTER_OTLP_CERTIFICATE"];
        /// PEM file with the client certificate, if the collector requires one.
        cert: Option<PathBuf> = "", reference ["OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"];
        /// PEM file with the key of the client certificate.
        key: Option<PathBuf> = "", reference ["OTEL_EXPORTER_OTLP_CLIENT_KEY"];
    }
}
