//! The address of the client, as Envoy's action `remote_address` sends it.

use crate::template::{Filter, host};

/// The field of the client's address.
pub(crate) const CLIENT: &str = "client_address";

/// The client's address: the one that the proxy saw, or with trusted hops the item of `X-Forwarded-For` that has so
/// many after it. A proxy appends the address that it saw, so without hops that is the last item.
pub(super) fn client<'t>(
    forwarded: Option<&'t str>,
    remote: Option<&'t str>,
    hops: Option<usize>,
) -> Option<&'t str> {
    let hop = |number| forwarded.and_then(|list| Filter::Hop(number).apply(list));
    let found = match hops {
        Some(number) => hop(number).or(remote),
        None => remote.or_else(|| hop(0)),
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
            assert_eq!(client(forwarded, remote, hops), wanted);
        }
    }
}
