//! Other notations of networks, which lists of other programs have: what to write instead.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir_common::network::{Network, NetworkError};

/// The maximum number of networks that are listed for a range.
const MAX_NETWORKS: usize = 4;

/// Returns whether a text that is no network is meant as one.
pub(super) fn is_meant_as_network(text: &str) -> bool {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(inner) = unquoted(text) {
        return Network::from_value(inner).is_some() || is_meant_as_network(inner);
    }
    if range(text).is_some() {
        return true;
    }
    match text.split_once('/') {
        Some((address, prefix)) => {
            let is_dotted = || address.split('.').all(is_number) && is_number(prefix);
            address.parse::<IpAddr>().is_ok() || !address.is_empty() && is_dotted()
        }
        None => text.split('.').count() == 4 && text.split('.').all(is_number),
    }
}

/// Returns what to write for a text that is meant as a network, if that is known.
pub(super) fn replacement(text: &str) -> Option<String> {
    let text = text.trim_end_matches([',', ';']);
    let text = unquoted(text).unwrap_or(text);
    match Network::parse(text) {
        Ok(network) | Err(NetworkError::HostBits { meant: network, .. }) => {
            return Some(network.to_string());
        }
        Err(_) => {}
    }
    if let Some((first, last)) = range(text) {
        let known = networks(first, last);
        return Some(known.unwrap_or_else(|| "the networks that the range consists of".to_owned()));
    }
    let (address, mask) = text.split_once('/')?;
    let (address, mask): (Ipv4Addr, Ipv4Addr) = (address.parse().ok()?, mask.parse().ok()?);
    let prefix_len = mask.to_bits().leading_ones();
    let is_mask = mask.to_bits().count_ones() == prefix_len;
    let network = Network::new(address.into(), u8::try_from(prefix_len).ok()?)?;
    is_mask.then(|| network.to_string())
}

/// Returns what is between quotes.
fn unquoted(text: &str) -> Option<&str> {
    let quoted = |quote| text.strip_prefix(quote)?.strip_suffix(quote);
    ['"', '\'', '`'].into_iter().find_map(quoted)
}

/// Returns the first and the last address of a range.
fn range(text: &str) -> Option<(IpAddr, IpAddr)> {
    let (first, last) = text.split_once('-')?;
    Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
}

/// Returns the networks that a range consists of, if they are few.
fn networks(first: IpAddr, last: IpAddr) -> Option<String> {
    let (mut start, last, bits) = match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            (first.to_bits().into(), last.to_bits().into(), 32)
        }
        (IpAddr::V6(first), IpAddr::V6(last)) => (first.to_bits(), last.to_bits(), 128),
        _ => return None,
    };
    let mut found: Vec<String> = Vec::new();
    while start <= last && found.len() < MAX_NETWORKS {
        // The bits that all addresses of the largest network at the start have apart from the prefix.
        let host_bits = |len: u32| u128::MAX.checked_shr(128 - len).unwrap_or(0);
        let fits = |len: &u32| start & host_bits(*len) == 0 && start | host_bits(*len) <= last;
        let len = (0..=bits).rev().find(fits)?;
        let address: IpAddr = match bits {
            32 => Ipv4Addr::from_bits(u32::try_from(start).ok()?).into(),
            _ => Ipv6Addr::from_bits(start).into(),
        };
        found.push(Network::new(address, u8::try_from(bits - len).ok()?)?.to_string());
        match (start | host_bits(len)).checked_add(1) {
            Some(next) if next <= last => start = next,
            _ => return Some(found.join(" and ")),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_notations_have_a_replacement() {
        for (text, written) in [
            ("10.0.0.0/255.0.0.0", Some("10.0.0.0/8")),
            ("10.1.2.3/255.255.255.255", Some("10.1.2.3")),
            ("10.1.2.3/0.0.0.0", Some("0.0.0.0/0")),
            ("10.0.0.0/255.0.255.0", None),
            ("10.0.0.0/0.255.255.255", None),
            ("\"10.1.2.3/8\"", Some("10.0.0.0/8")),
            ("'::1';", Some("::1")),
            ("1.2.3.0-1.2.3.255", Some("1.2.3.0/24")),
            ("0.0.0.0 - 255.255.255.255", Some("0.0.0.0/0")),
            ("::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Some("::/0")),
            ("255.255.255.254-255.255.255.255", Some("255.255.255.254/31")),
            ("::1-::2", Some("::1 and ::2")),
            ("1.2.3.4-1.2.3.4", Some("1.2.3.4")),
            ("1.2.3.1-1.2.3.254", Some("the networks that the range consists of")),
            ("1.2.3.4-1.2.3.3", Some("the networks that the range consists of")),
            ("1.2.3.4-::1", Some("the networks that the range consists of")),
            ("10.0.0/8", None),
            ("ann", None),
        ] {
            assert_eq!(replacement(text).as_deref(), written, "{text}");
        }
    }

    #[test]
    fn a_range_is_all_of_its_networks() {
        for (first, last) in [(5_u32, 7), (0, 8), (3, 12), (1, 1), (16, 31), (7, 8)] {
            let address = |bits| IpAddr::from(Ipv4Addr::from_bits(bits));
            let shown = networks(address(first), address(last)).unwrap();
            let listed: Vec<Network> =
                shown.split(" and ").map(|text| Network::parse(text).unwrap()).collect();
            for bits in 0..40 {
                let address = Network::from(Ipv4Addr::from_bits(bits));
                let count = listed.iter().filter(|network| network.contains(&address)).count();
                assert_eq!(count, usize::from((first..=last).contains(&bits)), "{shown}: {bits}");
            }
        }
    }
}
