//! Parses the `http` or `https` URL to which an HTTP client sends its requests.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use http::Uri;

use weir_common::secret::without_login;

/// A URL of scheme `http` or `https`, with a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    url: Uri,
    pub is_tls: bool,
    /// A name or an IP address, without brackets.
    pub host: String,
    pub port: u16,
}

impl Target {
    /// Returns the URL of `/readyz` on a listener's address, as seen on the same machine.
    pub fn local(address: &str) -> Result<Target, String> {
        let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
        let ip = host.trim_matches(['[', ']']).parse::<IpAddr>();
        // A listener on all addresses is reached over loopback.
        let is_any = host.is_empty() || ip.is_ok_and(|ip| ip.is_unspecified());
        let host = if is_any { "127.0.0.1" } else { host };
        format!("http://{host}:{port}/readyz").parse()
    }

    pub fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }

    /// The path and the query, for the request.
    pub fn path(&self) -> &str {
        self.url.path_and_query().map_or("/", |path| path.as_str())
    }

    /// The host and the port, for the header `host`.
    pub fn authority(&self) -> &str {
        authority(&self.url)
    }
}

/// The URL without a login, which may end up in the path.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_login(&self.url.to_string()))
    }
}

const FIX: &str = "write a URL such as http://127.0.0.1:6070/";

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        let url: Uri = text.parse().map_err(|error| format!("{error}; {FIX}"))?;
        let target = Target::try_from(url)?;
        match target.url.authority() {
            Some(authority) if authority.as_str().contains('@') => {
                Err(format!("user names and passwords are not supported; {FIX}"))
            }
            _ => Ok(target),
        }
    }
}

impl TryFrom<Uri> for Target {
    type Error = String;

    /// Reads a URL. Ignores a user name and a password in it.
    fn try_from(url: Uri) -> Result<Target, String> {
        let is_tls = match url.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(other) => return Err(format!("the scheme is {other}, not http or https; {FIX}")),
            None => return Err(format!("there is no scheme, http or https; {FIX}")),
        };
        let host = url.host().unwrap_or_default();
        // A port that is not a number, or too large, is none to this parser.
        let has_port = authority(&url).len() > host.len();
        let port = match url.port_u16() {
            Some(0) | None if has_port => {
                return Err(format!("the port is not a number from 1 to 65535; {FIX}"));
            }
            Some(port) => port,
            None if is_tls => 443,
            None => 80,
        };
        let host = host.trim_matches(['[', ']']).to_owned();
        if host.is_empty() {
            return Err(format!("there is no host; {FIX}"));
        }
        Ok(Target { url, is_tls, host, port })
    }
}

/// Returns the host and the port of a URL, without the login before them.
fn authority(url: &Uri) -> &str {
    let authority = url.authority().map_or("", |authority| authority.as_str());
    authority.rsplit_once('@').map_or(authority, |(_, host)| host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_a_host_and_a_port() {
        for (url, host, port, path) in [
            ("http://127.0.0.1:6070/readyz", "127.0.0.1", 6070, "/readyz"),
            ("http://weir", "weir", 80, "/"),
            ("https://weir.example/livez?a=b", "weir.example", 443, "/livez?a=b"),
            ("http://[::1]:8080/readyz", "::1", 8080, "/readyz"),
        ] {
            let target: Target = url.parse().unwrap();
            assert_eq!((target.host.as_str(), target.port), (host, port), "{url}");
            assert_eq!((target.path(), target.is_tls), (path, url.starts_with("https")), "{url}");
            assert!(url.contains(target.authority()), "{url}");
        }
    }

    #[test]
    fn other_urls_are_refused_with_an_example() {
        for (url, error) in [
            ("", "empty string"),
            ("localhost:8080/readyz", "invalid"),
            ("localhost:8080", "no scheme"),
            ("/readyz", "no scheme"),
            ("ftp://weir/readyz", "scheme is ftp"),
            ("http:///readyz", "invalid"),
            ("http://ann:secret@weir/readyz", "passwords"),
            ("http://weir:http/readyz", "port"),
            ("http://weir:99999/readyz", "port"),
            ("http://weir:/readyz", "port"),
            ("http://weir:0/readyz", "port"),
            ("http://we ir/readyz", "invalid"),
        ] {
            let shown = url.parse::<Target>().unwrap_err();
            assert!(shown.contains(error) && shown.contains("write a URL"), "{url}: {shown}");
        }
    }

    #[test]
    fn a_listener_on_all_addresses_is_asked_over_loopback() {
        for (address, url) in [
            ("127.0.0.1:6070", "http://127.0.0.1:6070/readyz"),
            ("0.0.0.0:7070", "http://127.0.0.1:7070/readyz"),
            ("[::]:6070", "http://127.0.0.1:6070/readyz"),
            (":6070", "http://127.0.0.1:6070/readyz"),
            ("[::1]:6070", "http://[::1]:6070/readyz"),
            ("localhost:6070", "http://localhost:6070/readyz"),
        ] {
            assert_eq!(Target::local(address).unwrap().to_string(), url, "{address}");
        }
        assert!(Target::local("127.0.0.1:0").is_err());
    }
}
