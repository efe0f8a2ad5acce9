//! Parses the address of the gRPC server to which `weir hit` sends requests.

use std::str::FromStr;

use weir_api::grpc_client;

const WANTED: &str = "write host:port, such as localhost:8081 or [::1]:8081, or unix:/path";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    /// `host:port`, or `unix:` and a path.
    pub(super) authority: String,
    pub(super) is_tls: bool,
}

impl FromStr for ServerAddress {
    type Err = String;

    /// Ignores `dns://` and `passthrough://`, by which gRPC clients in Go select a resolver.
    fn from_str(text: &str) -> Result<ServerAddress, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return match path.is_empty() {
                true => Err(format!("there is no path; {WANTED}")),
                false => Ok(ServerAddress { authority: format!("unix:{path}"), is_tls: false }),
            };
        }
        let (is_tls, rest) = match text.split_once("://") {
            None => (false, text),
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some(("dns" | "passthrough", rest)) => (false, rest.trim_start_matches('/')),
            Some((scheme, _)) => {
                return Err(format!("the scheme {scheme} is not supported; {WANTED}"));
            }
        };
        let rest = rest.trim_end_matches('/');
        let Some((host, port)) = rest.rsplit_once(':') else {
            return Err(format!("there is no port; {WANTED}"));
        };
        if !port.parse::<u16>().is_ok_and(|port| port > 0) {
            return Err(format!("the port is not a number from 1 to 65535; {WANTED}"));
        }
        // Go's clients connect to this machine if there is no host.
        let host = if host.is_empty() { "localhost" } else { host };
        let authority = format!("{host}:{port}");
        match grpc_client::endpoint(&authority, false) {
            Ok(_) if !host.contains(['/', '@']) => Ok(ServerAddress { authority, is_tls }),
            _ => Err(format!("it is not an address; {WANTED}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_go_clients_and_urls() {
        for (text, authority, is_tls) in [
            ("localhost:8081", "localhost:8081", false),
            (":8081", "localhost:8081", false),
            ("[::1]:8081", "[::1]:8081", false),
            ("dns:///weir:1", "weir:1", false),
            ("passthrough:///10.0.0.1:1", "10.0.0.1:1", false),
            ("http://weir:1/", "weir:1", false),
            ("https://weir:1", "weir:1", true),
            ("unix:/run/weir.sock", "unix:/run/weir.sock", false),
            ("unix:///run/weir.sock", "unix:/run/weir.sock", false),
        ] {
            let authority = authority.to_owned();
            assert_eq!(text.parse(), Ok(ServerAddress { authority, is_tls }), "{text}");
        }
        for (text, cause) in [
            ("", "no port"),
            ("weir", "no port"),
            ("weir:http", "port is not a number"),
            ("weir:0", "port is not a number"),
            ("ftp://weir:1", "scheme ftp"),
            ("we ir:1", "not an address"),
            ("http://ann@weir:1", "not an address"),
            ("http://weir/a:1", "not an address"),
            ("unix:", "no path"),
        ] {
            let error = text.parse::<ServerAddress>().unwrap_err();
            assert!(error.contains(cause) && error.contains("host:port"), "{text}: {error}");
        }
    }
}
