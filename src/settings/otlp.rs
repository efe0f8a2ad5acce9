//! Converts settings to the options of OTLP, the export of traces to an OpenTelemetry collector.

use http::{HeaderMap, HeaderName, HeaderValue, Uri};

use super::format::percent_decoded;
use super::setting::{Resolved, SettingError};
use super::table::{Settings, TracingSettings};
use weir_telemetry::otlp::{OtlpOptions, OtlpProtocol, OtlpResource};

/// The variable whose URL is for all signals: a path is added to it for HTTP.
const SHARED_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

impl Settings {
    pub fn otlp_options(&self) -> Option<OtlpOptions> {
        // Its errors were reported by `load`.
        self.tracing.enabled.then(|| read(self).ok()).flatten()
    }
}

pub(super) fn read(settings: &Settings) -> Result<OtlpOptions, SettingError> {
    let (tracing, otlp) = (&settings.tracing, &settings.otlp);
    let protocol = *tracing.protocol;
    let default = match protocol {
        OtlpProtocol::Http => "http://localhost:4318",
        OtlpProtocol::Grpc => "http://localhost:4317",
    };
    let endpoint = &tracing.endpoint;
    let is_whole = endpoint.is_some() && endpoint.origin != SHARED_ENDPOINT;
    let mut url = endpoint.as_deref().unwrap_or(default).to_owned();
    if protocol == OtlpProtocol::Http && !is_whole {
        url = url.trim_end_matches('/').to_owned() + "/v1/traces";
    }
    if !is_url(&url) {
        let message = format!("is {:?}", endpoint.shown);
        return Err(endpoint.error(&message, format!("write a URL such as {default}")));
    }
    otlp.files.check()?;
    Ok(OtlpOptions {
        resource: resource(tracing),
        protocol,
        url: url.into(),
        headers: headers(&otlp.headers)?,
        certificates: otlp.files.certificates(),
    })
}

/// Returns the attributes of this process. One that is empty is not set.
fn resource(tracing: &TracingSettings) -> OtlpResource {
    let mut resource = OtlpResource::default();
    for (name, setting) in [
        ("service.name", &tracing.service_name),
        ("service.namespace", &tracing.service_namespace),
        ("service.instance.id", &tracing.instance_id),
    ] {
        let list = if setting.is_default() { &mut resource.defaults } else { &mut resource.set };
        if !setting.is_empty() {
            list.push((name, setting.to_string()));
        }
    }
    resource
}

fn is_url(text: &str) -> bool {
    let Ok(url) = text.parse::<Uri>() else { return false };
    let is_known = matches!(url.scheme_str(), Some("http" | "https"));
    is_known && url.host().is_some_and(|host| !host.is_empty())
}

fn headers(setting: &Resolved<Vec<String>>) -> Result<HeaderMap, SettingError> {
    let read = |header: &String| -> Option<(HeaderName, HeaderValue)> {
        let (name, value) = header.split_once('=')?;
        let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
        let mut value = HeaderValue::from_bytes(&percent_decoded(value.trim())?).ok()?;
        value.set_sensitive(true);
        Some((name, value))
    };
    let headers: Option<HeaderMap> = setting.iter().map(read).collect();
    headers.ok_or_else(|| {
        setting.error("has a part that is not name=value", "write name=value, with commas between")
    })
}
