//! Addresses of hosts that weir connects to.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::lookup_host;

/// Returns the addresses of a host, in the order to try them. Those of `localhost` are of both families, even if the
/// system knows one only: a server may listen on either.
///
/// # Errors
///
/// The host has no address.
pub async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let found = lookup_host((host, port)).await.map(Iterator::collect);
    if !host.eq_ignore_ascii_case("localhost") {
        return found;
    }
    let mut addresses: Vec<SocketAddr> = found.unwrap_or_default();
    for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
        if !addresses.iter().any(|address| address.ip() == ip) {
            // Before the others: the last error is reported, and that of a family which the system lacks says nothing.
            addresses.insert(0, (ip, port).into());
        }
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn localhost_is_of_both_families_and_other_hosts_are_as_they_are() {
        for name in ["localhost", "LOCALHOST"] {
            let addresses = resolve(name, 5).await.unwrap();
            for wanted in ["127.0.0.1:5", "[::1]:5"] {
                let is_wanted = |address: &&SocketAddr| address.to_string() == wanted;
                assert_eq!(addresses.iter().filter(is_wanted).count(), 1, "{addresses:?}");
            }
        }
        assert_eq!(resolve("127.0.0.1", 5).await.unwrap(), ["127.0.0.1:5".parse().unwrap()]);
        assert_eq!(resolve("::1", 5).await.unwrap(), ["[::1]:5".parse().unwrap()]);
    }
}
