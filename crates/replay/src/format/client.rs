//! The address of the client, as Envoy's action `remote_address` sends it.

use crate::template::{Filter, host};

/// The field of the client's address.
pub(crate) const CLIENT: &str = "client_address";

/// What a log has as `X-Forwarded-For`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Header {
    /// As the proxy sends it on, with the address that it saw at the end: Envoy's logs.
    Sent,
    /// As it came: the logs of Apache and nginx.
    Received,
}

/// The client's address: the one that the proxy saw, or with trusted hops the one that has so many after it. These
/// are the items of `X-Forwarded-For` and the address that the proxy saw, which is the last of them.
pub(super) fn client<'t>(
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
