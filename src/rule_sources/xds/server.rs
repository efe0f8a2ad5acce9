//! How to connect to the xDS management server: URL, TLS, headers and timeouts.

use std::sync::Arc;
use std::time::Duration;

use tonic::metadata::{Ascii, MetadataKey, MetadataMap, MetadataValue};
use tonic::transport::Endpoint;

use weir_api::grpc_client;
use weir_client::tls::{ClientCertificates, ClientTlsError};
use weir_common::error::SetupError;
use weir_common::secret::SecretUrl;

/// The timeout of connecting, with TLS.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval of TCP keepalive probes. Unlike HTTP/2 pings, no server objects to them.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);
/// The interval of HTTP/2 pings. Go's servers close a connection that is pinged more often than every five
/// minutes, unless configured otherwise.
const PING_INTERVAL: Duration = Duration::from_secs(360);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Clone, Debug, Default)]
pub struct XdsOptions {
    /// `host:port`.
    pub url: SecretUrl,
    pub node_id: String,
    /// Pairs `key=value`.
    pub node_metadata: Vec<String>,
    /// Pairs `name:value`, sent with every stream.
    pub headers: Vec<String>,
    /// The maximum length of a response, in bytes.
    pub max_message: usize,
    /// The first and the longest wait before weir reconnects.
    pub backoff_min: Duration,
    pub backoff_max: Duration,
    pub backoff_jitter: bool,
    pub tls: XdsTls,
}

#[derive(Clone, Debug, Default)]
pub struct XdsTls {
    pub enabled: bool,
    pub certificates: Arc<ClientCertificates>,
    /// The name that the server's certificate must have; empty for the host of the URL.
    pub server_name: String,
}

/// Checks the options and the files that they name.
pub fn check(options: &XdsOptions) -> Result<(), SetupError> {
    headers(&options.headers).map_err(SetupError::Invalid)?;
    endpoint(options).map(drop)
}

/// Reads where and how to connect, with the certificates as they are now.
pub fn endpoint(options: &XdsOptions) -> Result<Endpoint, SetupError> {
    let url = &options.url;
    let invalid = |cause: &str| SetupError::Invalid(format!("rules.xds.url is {url:?}{cause}"));
    let (scheme, host) = match url.expose().split_once("://") {
        Some((scheme @ ("http" | "https"), host)) => (scheme, host),
        // Schemes of Go's client that select a resolver; weir resolves all names the same way.
        Some(("dns" | "passthrough", host)) => ("", host.trim_start_matches('/')),
        Some((scheme, _)) => {
            let cause = format!(": the scheme {scheme} is not supported; write host:port");
            return Err(invalid(&cause));
        }
        None => ("", url.expose()),
    };
    let host = host.trim_end_matches('/');
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    let tls = options.tls.enabled || scheme == "https";
    let wanted = "write host:port, such as localhost:18000 or [::1]:18000";
    let mut endpoint = match grpc_client::endpoint(host, tls) {
        Ok(endpoint) if has_port => endpoint,
        Ok(_) => return Err(invalid(&format!(": there is no port; {wanted}"))),
        Err(_) => return Err(invalid(&format!("; {wanted}"))),
    };
    endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_keepalive(Some(TCP_KEEPALIVE))
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    if tls { with_tls(endpoint, &options.tls) } else { Ok(endpoint) }
}

fn with_tls(endpoint: Endpoint, tls: &XdsTls) -> Result<Endpoint, SetupError> {
    let pem = tls.certificates.read().map_err(|error| {
        error.map(|error| match error.starts_with("rules.xds.") {
            true => error,
            false => format!("rules.xds.tls: {error}"),
        })
    })?;
    let name = &tls.server_name;
    grpc_client::with_tls(endpoint, &pem, name).map_err(|error| {
        SetupError::Invalid(match error {
            ClientTlsError::Name(_) => format!(
                "rules.xds.tls.server_name is {name:?}; write a DNS name of the server's certificate"
            ),
            ClientTlsError::Certificates(error) => format!("rules.xds.tls: {error}; see rules.xds.url"),
        })
    })
}

/// Parses headers, `name: value`. No error contains a value, which may be secret.
pub fn headers(pairs: &[String]) -> Result<MetadataMap, String> {
    let mut headers = MetadataMap::new();
    for (number, header) in pairs.iter().enumerate() {
        if header.trim().is_empty() {
            continue;
        }
        let error = |cause: &str| {
            let number = number + 1;
            Err(format!("rules.xds.headers: {cause} in part {number}; write name:value"))
        };
        let Some((name, value)) = header.split_once(':') else {
            return error("there is no colon");
        };
        let name = name.trim().to_ascii_lowercase();
        let Ok(key) = name.parse::<MetadataKey<Ascii>>() else {
            return error(&format!("{name:?} is not a header name"));
        };
        let Ok(value) = value.trim().parse::<MetadataValue<Ascii>>() else {
            return error("the value cannot be sent");
        };
        headers.append(key, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(url: &str) -> XdsOptions {
        XdsOptions { url: url.into(), ..XdsOptions::default() }
    }

    fn uri(options: &XdsOptions) -> Result<String, String> {
        Ok(endpoint(options)?.uri().to_string())
    }

    #[test]
    fn urls_of_go_clients_are_accepted() {
        for (url, wanted) in [
            ("localhost:18000", "http://localhost:18000/"),
            ("[::1]:18000", "http://[::1]:18000/"),
            ("dns:///xds.infra:18000", "http://xds.infra:18000/"),
            ("passthrough:///10.0.0.1:1", "http://10.0.0.1:1/"),
            ("http://xds:18000/", "http://xds:18000/"),
        ] {
            assert_eq!(uri(&options(url)).as_deref(), Ok(wanted));
        }
        for (url, cause) in [
            ("", "write host:port"),
            ("localhost", "no port"),
            (":18000", "write host:port"),
            ("local host:1", "write host:port"),
            ("xds://x:1", "scheme xds"),
        ] {
            let error = uri(&options(url)).unwrap_err().to_string();
            assert!(error.starts_with("rules.xds.url is ") && error.contains(cause), "{error}");
        }
    }

    #[test]
    fn headers_are_names_and_values() {
        let pairs = ["Authorization: Bearer a:b", "x-team:weir", ""].map(str::to_owned);
        let headers = headers(&pairs).unwrap();
        assert_eq!(headers.get("authorization").unwrap(), "Bearer a:b");
        assert_eq!(headers.get("x-team").unwrap(), "weir");
        for (header, cause) in [
            ("x", "no colon in part 1"),
            ("a b:secret", "\"a b\" is not a header name"),
            ("x-bin:secret", "is not a header name"),
            ("x:sec\nret", "the value cannot be sent"),
        ] {
            let error = super::headers(&[header.to_owned()]).unwrap_err();
            assert!(error.contains(cause) && !error.contains("ret"), "{error}");
        }
    }
}
