//! Reads the address of a Redis server: `host:port`, `redis://…`, `rediss://…`, or the path of a Unix socket.

use crate::settings::format::percent_decoded;
use weir_redis::Endpoint;

#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    pub server: Endpoint,
    pub username: Option<String>,
    pub password: Option<String>,
    pub db: Option<u32>,
    /// Whether to encrypt; none if the scheme leaves it open.
    pub tls: Option<bool>,
}

/// The cause, and what to write instead.
type UrlError = (&'static str, &'static str);

const FORMS: &str = "write host:port, redis://user:password@host:port/0, rediss://… for TLS, \
                     or the path of a Unix socket";

impl Url {
    /// Reads a URL: `host:port`, `redis://`, `rediss://`, a path, or `unix://`.
    pub fn read(text: &str) -> Result<Url, UrlError> {
        let bare = |server| Url { server, username: None, password: None, db: None, tls: None };
        if text.contains('?') {
            return Err((
                "it has options",
                "remove the ? and what follows: settings have the options",
            ));
        }
        let (tls, rest) = match text.split_once("://") {
            None if text.starts_with(['/', '.']) => return Ok(bare(Endpoint::Unix(text.into()))),
            None if text.contains('@') => {
                return Err(("it has a login without a scheme", "write redis:// before it"));
            }
            None => {
                return Ok(bare(read_address(text, None).ok_or(("it is not an address", FORMS))?));
            }
            Some(("unix", path)) if !path.is_empty() => {
                return Ok(bare(Endpoint::Unix(path.into())));
            }
            Some(("redis" | "tcp", rest)) => (false, rest),
            Some(("rediss", rest)) => (true, rest),
            Some(_) => return Err(("it has an unknown scheme", FORMS)),
        };
        // The last @: a password may contain others.
        let (login, place) = rest.rsplit_once('@').unzip();
        let place = place.unwrap_or(rest);
        let (address, db) = place.split_once('/').unwrap_or((place, ""));
        let db = match db {
            "" => None,
            db => Some(db.parse().map_err(|_| ("its database is not a number", FORMS))?),
        };
        let server = read_address(address, Some(6379)).ok_or(("it is not an address", FORMS))?;
        let mut url = Url { db, tls: Some(tls), ..bare(server) };
        if let Some(login) = login {
            let (username, password) = login.split_once(':').unwrap_or((login, ""));
            let decoded = |text| {
                percent_decoded(text)
                    .and_then(|bytes| String::from_utf8(bytes).ok())
                    .ok_or(("it has a % that escapes nothing", "write %25"))
            };
            url.username = Some(decoded(username)?).filter(|text| !text.is_empty());
            url.password = Some(decoded(password)?).filter(|text| !text.is_empty());
        }
        Ok(url)
    }

    pub fn has_login(&self) -> bool {
        self.username.is_some() || self.password.is_some()
    }
}

/// Reads `host:port`, with an IPv6 host in brackets.
fn read_address(text: &str, default_port: Option<u16>) -> Option<Endpoint> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        _ => (text, default_port?),
    };
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_bare = !host.contains([':', '/', '[', ']', ' ']);
    let host = inner.or(is_bare.then_some(host)).filter(|host| !host.is_empty())?;
    (port != 0).then(|| Endpoint::Tcp(host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Endpoint {
        Endpoint::Tcp(host.into(), port)
    }

    #[test]
    fn all_forms_are_read() {
        let read = |text| Url::read(text).map_err(|(what, _)| what).map(|url| url.server);
        assert_eq!(read("redis:6379"), Ok(tcp("redis", 6379)));
        assert_eq!(read("[::1]:6379"), Ok(tcp("::1", 6379)));
        assert_eq!(read("redis://[::1]"), Ok(tcp("::1", 6379)));
        assert_eq!(read("tcp://h:1"), Ok(tcp("h", 1)));
        assert_eq!(read("/run/redis.sock"), Ok(Endpoint::Unix("/run/redis.sock".into())));
        assert_eq!(read("unix:///run/r"), Ok(Endpoint::Unix("/run/r".into())));
        for bad in ["redis", "h:", ":1", "h:99999", "h:0", "::1:6379", "", "a b:1", "http://h:1"] {
            assert!(read(bad).is_err(), "{bad}");
        }
        for bad in ["redis://h/x", "redis://h?db=1", "ann:pw@h:1", "redis://%zz@h", "unix://"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn logins_and_databases_are_read() {
        let url = Url::read("rediss://ann:p%40%c3%a4@w:x@host/3").ok().unwrap();
        assert_eq!(url.username.as_deref(), Some("ann"));
        assert_eq!(url.password.as_deref(), Some("p@ä@w:x"));
        assert_eq!((url.db, url.tls), (Some(3), Some(true)));
        let url = Url::read("redis://:pw@host:1").ok().unwrap();
        assert_eq!((url.username, url.password.as_deref()), (None, Some("pw")));
    }
}
