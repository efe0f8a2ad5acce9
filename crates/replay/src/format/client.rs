//! Finds the client's address in a proxy's access log, from the peer's address and `X-Forwarded-For` as Envoy does.

use super::json::Json;
use crate::rows::{Fields, Rows};
use crate::template::{Filter, host};

/// The field of a row that gets the address.
pub(crate) const CLIENT: &str = "client_address";

/// Reads JSON lines that Envoy writes under Istio or Envoy Gateway, and sets the client's address.
#[derive(Debug)]
pub(crate) struct ProxyJson {
    json: Json,
    /// The indices of three fields: the client's address, `X-Forwarded-For`, and the peer's address.
    client: Option<[usize; 3]>,
    hops: Option<usize>,
}

impl ProxyJson {
    pub fn new([forwarded, remote]: [&str; 2], fields: &Fields, hops: Option<usize>) -> ProxyJson {
        let index = |name: &str| fields.index(fields.key(name).as_bytes());
        let client = || Some([index(CLIENT)?, index(forwarded)?, index(remote)?]);
        ProxyJson { json: Json::default(), client: client(), hops }
    }

    pub fn read(&mut self, line: &[u8], fields: &Fields, rows: &mut Rows) -> Result<(), String> {
        self.json.read(line, fields, rows)?;
        let Some([field, forwarded, remote]) = self.client else { return Ok(()) };
        // Such a log may have a dash for a missing value.
        let value = |field| rows.get(field).filter(|value| *value != "-");
        let address = client(value(forwarded), Header::Sent, value(remote), self.hops);
        if let Some(address) = address.map(str::to_owned) {
            rows.set_text(field, &address);
        }
        Ok(())
    }
}

/// Which `X-Forwarded-For` a log has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// As the proxy sends it on, with the address that it saw at the end: Envoy's logs.
    Sent,
    /// As it came: the logs of Apache and nginx.
    Received,
}

/// The client's address: the one that the proxy saw. With trusted hops it is the one with that many after it, of the
/// items of `X-Forwarded-For` and the address that the proxy saw.
pub(crate) fn client<'t>(
    forwarded: Option<&'t str>,
    header: Header,
    remote: Option<&'t str>,
    hops: Option<usize>,
) -> Option<&'t str> {
    let hop = |number| forwarded.and_then(|list| Filter::Hop(number).apply(list));
    let found = match (hops, header) {
        (Some(0), Header::Received) => remote,
        (Some(number), Header::Received) => hop(number - 1).or(remote),
        (Some(number), Header::Sent) => hop(number).or(remote),
        (None, _) => remote.or_else(|| hop(0)),
    };
    found.map(host).filter(|address| !address.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_is_found_as_envoy_does() {
        let list = Some("192.0.2.1, 192.0.2.2, 192.0.2.3");
        for (forwarded, remote, hops, wanted) in [
            (list, None, None, Some("192.0.2.3")),
            (list, None, Some(0), Some("192.0.2.3")),
            (list, None, Some(2), Some("192.0.2.1")),
            (list, None, Some(3), None),
            (list, Some("192.0.2.9:1"), Some(3), Some("192.0.2.9")),
            (list, Some("[2001:db8::1]:1"), None, Some("2001:db8::1")),
            (None, Some("192.0.2.9"), Some(1), Some("192.0.2.9")),
            (None, None, None, None),
        ] {
            assert_eq!(client(forwarded, Header::Sent, remote, hops), wanted);
        }
    }

    #[test]
    fn hops_are_counted_from_the_peer_if_the_header_lacks_it() {
        // A client may send the first item itself.
        let (list, peer) = (Some("6.6.6.6, 203.0.113.7"), Some("10.0.0.9"));
        for (forwarded, remote, hops, wanted) in [
            (list, peer, None, peer),
            (list, peer, Some(0), peer),
            (list, peer, Some(1), Some("203.0.113.7")),
            (list, peer, Some(2), Some("6.6.6.6")),
            (list, peer, Some(3), peer),
            (list, None, None, Some("203.0.113.7")),
            (list, None, Some(0), None),
            (list, None, Some(1), Some("203.0.113.7")),
            (None, peer, Some(1), peer),
        ] {
            assert_eq!(client(forwarded, Header::Received, remote, hops), wanted);
        }
    }
}
