//! Variables of OpenTelemetry that have no effect, and may ask for what weir does anyway.

use crate::settings::Settings;
use crate::settings::table::OtlpProtocol;

/// The propagators whose headers weir reads; it has no baggage to read.
const PROPAGATORS: [&str; 4] = ["tracecontext", "baggage", "b3", "b3multi"];

/// Whether one of the signals is sent by another protocol.
pub(super) fn asks_for_other_protocol(text: &str, settings: &Settings) -> bool {
    let asked = match text.to_ascii_lowercase().as_str() {
        "grpc" => Some(OtlpProtocol::Grpc),
        "http/protobuf" => Some(OtlpProtocol::Http),
        _ => None,
    };
    let metrics = &settings.metrics.otlp;
    let metrics = metrics.enabled.then_some(*metrics.protocol);
    [Some(*settings.tracing.protocol), metrics]
        .into_iter()
        .flatten()
        .any(|used| asked != Some(used))
}

/// Whether one of the signals is sent with TLS if the text asks for none, or without if it asks for TLS.
pub(super) fn asks_for_other_security(text: &str, settings: &Settings) -> bool {
    let asks_for_tls = !text.eq_ignore_ascii_case("true");
    let metrics = &settings.metrics.otlp;
    let metrics = metrics.enabled.then_some(metrics.endpoint.as_deref());
    let mut used = [Some(settings.tracing.endpoint.as_deref()), metrics].into_iter().flatten();
    used.any(|own| {
        let url = own.or(settings.otlp.endpoint.as_deref()).unwrap_or_default();
        let is_tls = url.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:"));
        is_tls != asks_for_tls
    })
}

/// Whether the headers of one of the propagators are not read.
pub(super) fn asks_for_other_propagator(text: &str, _: &Settings) -> bool {
    let is_read = |name: &str| PROPAGATORS.iter().any(|read| read.eq_ignore_ascii_case(name));
    !text.split(',').all(|name| is_read(name.trim()))
}
