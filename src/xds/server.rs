//! The endpoint of the management server: URL, TLS and headers.

use std::path::Path;
use std::time::Duration;

use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tonic::metadata::{Ascii, MetadataKey, MetadataMap, MetadataValue};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::{Options, Tls};

/// The interval of TCP keepalive probes. Unlike HTTP/2 pings, no server objects to them.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);
/// The timeout of a ping, unless the next ping is sooner.
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Creates the endpoint. Certificates are read each time, because they may have been renewed.
///
/// # Errors
/// A setting is invalid, or a file is unusable. The message names the setting and the fix.
pub fn endpoint(options: &Options) -> Result<Endpoint, String> {
    let url = &options.url;
    let (scheme, host) = match url.split_once("://") {
        Some(("http", host)) => ("http", host),
        Some(("https", host)) => ("https", host),
        // Schemes of Go's client that select a resolver; weir resolves all names the same way.
        Some(("dns", host)) => ("", host.trim_start_matches('/')),
        Some(("passthrough", host)) => ("", host.trim_start_matches('/')),
        Some((scheme, _)) => {
            return Err(format!(
                "rules.xds.url is {url:?}: the scheme {scheme} is not supported; write host:port"
            ));
        }
        None => ("", url.as_str()),
    };
    let host = host.trim_end_matches('/');
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    let tls = options.tls.enabled || scheme == "https";
    let wanted = "write host:port, such as localhost:18000 or [::1]:18000";
    let endpoint =
        Endpoint::from_shared(format!("{}://{host}", if tls { "https" } else { "http" }));
    let mut endpoint = match endpoint {
        Ok(endpoint) if has_port => endpoint,
        Ok(_) => return Err(format!("rules.xds.url is {url:?}: there is no port; {wanted}")),
        Err(_) => return Err(format!("rules.xds.url is {url:?}; {wanted}")),
    };
    endpoint = endpoint.connect_timeout(options.connect_timeout).tcp_keepalive(Some(TCP_KEEPALIVE));
    if !options.keepalive.is_zero() {
        endpoint = endpoint
            .http2_keep_alive_interval(options.keepalive)
            .keep_alive_timeout(options.keepalive.min(PING_TIMEOUT));
    }
    if !tls {
        return Ok(endpoint);
    }
    let config = config(&options.tls, &endpoint)?;
    endpoint.tls_config(config).map_err(|error| {
        let error = super::with_causes(&error);
        match &options.tls.cert {
            // Both files are readable, so they do not belong together.
            Some(cert) => format!(
                "rules.xds.tls.cert and rules.xds.tls.key cannot be used: {error}; \
                 name a certificate ({}) and its key",
                cert.display()
            ),
            None => format!("rules.xds.tls: {error}; see rules.xds.url"),
        }
    })
}

fn config(tls: &Tls, endpoint: &Endpoint) -> Result<ClientTlsConfig, String> {
    let mut config = ClientTlsConfig::new();
    config = match &tls.ca {
        Some(path) => config.ca_certificate(Certificate::from_pem(certificates("ca", path)?)),
        None => {
            config = config.with_native_roots();
            // Tried separately, for an error of its own.
            endpoint.clone().tls_config(config.clone()).map_err(|error| {
                format!(
                    "rules.xds.tls: the system's certificates cannot be used: {}; \
                     install them, or name a file of certificates in rules.xds.tls.ca",
                    super::with_causes(&error)
                )
            })?;
            config
        }
    };
    if !tls.server_name.is_empty() {
        if ServerName::try_from(tls.server_name.as_str()).is_err() {
            return Err(format!(
                "rules.xds.tls.server_name is {:?}; write a DNS name of the server's certificate",
                tls.server_name
            ));
        }
        config = config.domain_name(&tls.server_name);
    }
    match (&tls.cert, &tls.key) {
        (None, None) => Ok(config),
        (Some(cert), Some(key)) => {
            let cert = certificates("cert", cert)?;
            let pem = read("key", key)?;
            if let Err(error) = PrivateKeyDer::from_pem_slice(&pem) {
                return Err(unusable("key", key, &error, "a private key in PEM"));
            }
            Ok(config.identity(Identity::from_pem(cert, pem)))
        }
        (Some(_), None) => {
            Err("rules.xds.tls.cert is set without rules.xds.tls.key; name the key too".into())
        }
        (None, Some(_)) => {
            Err("rules.xds.tls.key is set without rules.xds.tls.cert; name the certificate too"
                .into())
        }
    }
}

/// Reads a file with at least one certificate.
fn certificates(setting: &str, path: &Path) -> Result<Vec<u8>, String> {
    let pem = read(setting, path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let wanted = "certificates in PEM";
    match all {
        Ok(all) if all.is_empty() => Err(unusable(setting, path, &"it has none", wanted)),
        Ok(_) => Ok(pem),
        Err(error) => Err(unusable(setting, path, &error, wanted)),
    }
}

fn read(setting: &str, path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path)
        .map_err(|error| unusable(setting, path, &error, "an existing file that weir may read"))
}

fn unusable(setting: &str, path: &Path, error: &dyn std::fmt::Display, wanted: &str) -> String {
    format!("rules.xds.tls.{setting} names {}: {error}; name {wanted}", path.display())
}

/// Parses headers, `name: value`.
///
/// # Errors
/// A header is invalid. The message never contains a value, which may be secret.
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

    fn options(url: &str) -> Options {
        Options { url: url.into(), ..Options::default() }
    }

    fn uri(options: &Options) -> Result<String, String> {
        endpoint(options).map(|endpoint| endpoint.uri().to_string())
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
            let error = uri(&options(url)).unwrap_err();
            assert!(error.starts_with("rules.xds.url is ") && error.contains(cause), "{error}");
        }
    }

    /// A directory with a certificate and its key, another key, and nonsense.
    fn files() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let own = rcgen::generate_simple_self_signed(["weir".to_owned()]).unwrap();
        let write = |name: &str, text: String| std::fs::write(dir.path().join(name), text).unwrap();
        write("cert", own.cert.pem());
        write("key", own.signing_key.serialize_pem());
        write("other", rcgen::KeyPair::generate().unwrap().serialize_pem());
        write("nonsense", "hello".into());
        write("cut", own.cert.pem().replace("-----END", "-----"));
        dir
    }

    #[test]
    fn unusable_files_are_named() {
        let dir = files();
        let tried = |ca: &str, cert: &str, key: &str| {
            let path = |name: &str| (!name.is_empty()).then(|| dir.path().join(name));
            let tls = Tls {
                enabled: true,
                ca: path(ca),
                cert: path(cert),
                key: path(key),
                ..Tls::default()
            };
            uri(&Options { tls, ..options("localhost:1") })
        };
        assert_eq!(tried("cert", "cert", "key").as_deref(), Ok("https://localhost:1/"));
        for (files, setting, cause) in [
            (("none", "", ""), "ca", "No such file"),
            (("nonsense", "", ""), "ca", "it has none; name certificates"),
            (("key", "", ""), "ca", "it has none; name certificates"),
            (("cut", "", ""), "ca", "name certificates"),
            (("cert", "key", "key"), "cert", "name certificates"),
            (("cert", "cert", "none"), "key", "No such file"),
            (("cert", "cert", "nonsense"), "key", "name a private key"),
            (("cert", "cert", "other"), "cert and rules.xds.tls.key", "and its key"),
            (("cert", "cert", ""), "cert", "name the key too"),
            (("cert", "", "key"), "key", "name the certificate too"),
        ] {
            let error = tried(files.0, files.1, files.2).unwrap_err();
            let names_setting = error.starts_with(&format!("rules.xds.tls.{setting} "));
            assert!(names_setting && error.contains(cause), "{files:?} {error}");
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
