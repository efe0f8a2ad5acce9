//! The options of OTLP, from settings.

use super::{SettingError, Settings};

/// Checks the settings of traces and metrics by OTLP, if they are enabled.
#[cfg(not(feature = "otlp"))]
pub(super) fn check(settings: &Settings, errors: &mut Vec<SettingError>) {
    for enabled in [&settings.tracing.enabled, &settings.metrics.otlp.enabled] {
        if **enabled {
            let help = "set it to false, or build weir with the feature otlp";
            errors.push(enabled.error("is true, and this build of weir has no OTLP", help));
        }
    }
}

#[cfg(feature = "otlp")]
pub(super) use enabled::check;

#[cfg(feature = "otlp")]
mod enabled {
    use std::sync::Arc;

    use http::{HeaderMap, HeaderName, HeaderValue, Uri};

    use super::{SettingError, Settings};
    use crate::settings::options::pem_file;
    use crate::settings::percent::percent_decoded;
    use crate::settings::setting::Resolved;
    use crate::settings::table::{OtlpCompression, OtlpProtocol, TracingSettings};
    use weir_common::client_tls::{ClientCertificates, ClientFiles};
    use weir_telemetry::otlp::{Destination, MetricsOptions, Options, Protocol, Resource};

    /// Checks the settings of traces and metrics by OTLP, if they are enabled.
    pub fn check(settings: &Settings, errors: &mut Vec<SettingError>) {
        read(settings, errors);
    }

    impl Settings {
        /// Returns what is sent by OTLP, and where to.
        pub fn otlp_options(&self) -> Options {
            // Its errors were reported by `load`.
            read(self, &mut Vec::new())
        }
    }

    fn read(settings: &Settings, errors: &mut Vec<SettingError>) -> Options {
        let (tracing, metrics) = (&settings.tracing, &settings.metrics.otlp);
        let mut destination = |enabled: bool, protocol, endpoint, path| {
            let to = enabled.then(|| destination(settings, protocol, endpoint, path))?;
            to.map_err(|error| errors.push(error)).ok()
        };
        let traces =
            destination(*tracing.enabled, *tracing.protocol, &tracing.endpoint, "/v1/traces");
        let to = destination(*metrics.enabled, *metrics.protocol, &metrics.endpoint, "/v1/metrics");
        if to.is_some() && metrics.interval.is_zero() {
            let help = "write a duration such as 60s, or set metrics.otlp.enabled to false";
            errors.push(metrics.interval.error("is 0", help));
        }
        Options {
            resource: resource(tracing),
            traces,
            metrics: to.map(|to| MetricsOptions { to, interval: *metrics.interval }),
            certificates: Arc::new(ClientCertificates::new(ClientFiles {
                ca: pem_file(&settings.otlp.ca),
                cert: pem_file(&settings.otlp.cert),
                key: pem_file(&settings.otlp.key),
            })),
        }
    }

    /// Returns the attributes of this process. One that is empty is not set.
    fn resource(tracing: &TracingSettings) -> Resource {
        let mut resource = Resource::default();
        for (name, setting) in [
            ("service.name", &tracing.service_name),
            ("service.namespace", &tracing.service_namespace),
            ("service.instance.id", &tracing.instance_id),
        ] {
            let list =
                if setting.is_default() { &mut resource.defaults } else { &mut resource.set };
            if !setting.is_empty() {
                list.push((name, setting.to_string()));
            }
        }
        resource
    }

    /// Returns where one signal is sent to; `path` is added to an endpoint that both signals share.
    fn destination(
        settings: &Settings,
        protocol: OtlpProtocol,
        own: &Resolved<Option<String>>,
        path: &str,
    ) -> Result<Destination, SettingError> {
        let otlp = &settings.otlp;
        let (protocol, default) = match protocol {
            OtlpProtocol::Http => (Protocol::Http, "http://localhost:4318"),
            OtlpProtocol::Grpc => (Protocol::Grpc, "http://localhost:4317"),
        };
        let (setting, url) = match (&own.value, &otlp.endpoint.value) {
            (Some(url), _) => (own, url.clone()),
            (None, shared) => {
                let base = shared.as_deref().unwrap_or(default).trim_end_matches('/');
                let path = if protocol == Protocol::Http { path } else { "" };
                (&otlp.endpoint, format!("{base}{path}"))
            }
        };
        if !is_url(&url) {
            let message = format!("is {:?}", setting.shown);
            return Err(setting.error(&message, format!("write a URL such as {default}")));
        }
        for (file, other) in [(&otlp.cert, &otlp.key), (&otlp.key, &otlp.cert)] {
            if file.is_some() && other.is_none() {
                let help = "set both otlp.cert and otlp.key";
                return Err(file.error("is set, and the other of the pair is not", help));
            }
        }
        Ok(Destination {
            protocol,
            url: url.into(),
            headers: headers(&otlp.headers)?,
            timeout: *otlp.timeout,
            gzip: *otlp.compression == OtlpCompression::Gzip,
        })
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
            setting
                .error("has a part that is not name=value", "write name=value, with commas between")
        })
    }
}
