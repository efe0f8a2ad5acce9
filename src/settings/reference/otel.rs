//! Variables of OpenTelemetry that have no effect, and may ask for what weir does anyway.

use crate::settings::Settings;
use crate::settings::table::OtlpProtocol;

/// The propagators whose headers weir reads; it has no baggage to read.
const PROPAGATORS: [&str; 4] = ["tracecontext", "baggage", "b3", "b3multi"];

/// Whether traces are sent by another protocol.
pub(super) fn asks_for_other_protocol(text: &str, settings: &Settings) -> bool {
    match *settings.tracing.protocol {
        OtlpProtocol::Grpc => !text.eq_ignore_ascii_case("grpc"),
        OtlpProtocol::Http => !text.eq_ignore_ascii_case("http/protobuf"),
    }
}

/// Whether the URL decides otherwise about TLS.
pub(super) fn asks_for_other_security(text: &str, settings: &Settings) -> bool {
    let url = settings.tracing.endpoint.as_deref().unwrap_or_default();
    let is_tls = url.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:"));
    is_tls == text.eq_ignore_ascii_case("true")
}

/// Whether the headers of one of the propagators are not read.
pub(super) fn asks_for_other_propagator(text: &str, _: &Settings) -> bool {
    let is_read = |name: &str| PROPAGATORS.iter().any(|read| read.eq_ignore_ascii_case(name));
    !text.split(',').all(|name| is_read(name.trim()))
}
