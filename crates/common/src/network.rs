//! IP networks (CIDR): parses those in rules and controls (what operators set at run time), and the addresses in
//! requests' descriptors that are matched with them.

use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use thiserror::Error;

/// The number of bits before the address in an IPv4-mapped IPv6 address.
const MAPPED_BITS: u8 = 96;

/// An IP network: an address with its host bits zero, and a prefix length. IPv4-mapped IPv6 is IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Network {
    address: IpAddr,
    prefix_len: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NetworkError {
    #[error("'{0}' is no network: write an address such as 203.0.113.7, or 10.0.0.0/8")]
    Invalid(String),
    #[error("the prefix of '{text}' is longer than {max} bits")]
    PrefixTooLong { text: String, max: u8 },
    #[error("'{text}' has bits set after its prefix: write {meant}")]
    HostBits { text: String, meant: Network },
}

impl Network {
    /// Parses a network of a rule or a control: `10.0.0.0/8`, `2001:db8::/32`, or an address, of full length.
    pub fn parse(text: &str) -> Result<Network, NetworkError> {
        let invalid = || NetworkError::Invalid(text.chars().take(80).collect());
        let (address, prefix) = split(text);
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        let max = address_bits(address);
        let prefix_len = match prefix {
            None => max,
            Some(prefix) => prefix_len(prefix).ok_or_else(invalid)?,
        };
        let Some(meant) = Network::new(address, prefix_len) else {
            return Err(NetworkError::PrefixTooLong { text: text.to_owned(), max });
        };
        // An IPv4-mapped network is one of IPv4, with the same bits.
        match prefix_len == max || bits(address) & !mask(prefix_len, max) == 0 {
            true => Ok(meant),
            false => Err(NetworkError::HostBits { text: text.to_owned(), meant }),
        }
    }

    /// Reads a value that a request sends: an address, without brackets, a port and the zone of IPv6, or
    /// a network. Bits after the prefix are ignored: `10.1.2.3/8` is `10.0.0.0/8`. Does not allocate.
    pub fn from_value(text: &str) -> Option<Network> {
        // Most are IPv4 addresses.
        let ipv4 = ipv4(text).map(Network::from);
        ipv4.or_else(|| Network::from_other_value(text))
    }

    /// Reads a value as [`from_value`](Self::from_value) does, if it is not just an IPv4 address.
    pub fn from_other_value(text: &str) -> Option<Network> {
        match split(text) {
            (address, Some(prefix)) => Network::new(address.parse().ok()?, prefix_len(prefix)?),
            (address, None) => {
                let address = value_address(address)?;
                Network::new(address, address_bits(address))
            }
        }
    }

    /// The network of an address, with its host bits zero; none if the prefix is too long.
    pub fn new(address: IpAddr, prefix_len: u8) -> Option<Network> {
        let max = address_bits(address);
        if prefix_len > max {
            return None;
        }
        let bits = bits(address) & mask(prefix_len, max);
        let address = match address {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(bits as u32)),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(bits)),
        };
        let mapped = match address {
            IpAddr::V6(v6) if prefix_len >= MAPPED_BITS => v6.to_ipv4_mapped(),
            _ => None,
        };
        Some(match mapped {
            Some(v4) => Network { address: v4.into(), prefix_len: prefix_len - MAPPED_BITS },
            None => Network { address, prefix_len },
        })
    }

    /// Returns whether another network, or address, lies in this one. No network of IPv6 contains one of IPv4.
    pub fn contains(&self, other: &Network) -> bool {
        self.address.is_ipv4() == other.address.is_ipv4()
            && self.prefix_len <= other.prefix_len
            && other.truncate(self.prefix_len, self.prefix_len) == *self
    }

    /// Returns the network of these prefix lengths that contains this one; itself, if its own prefix is shorter.
    pub fn truncate(&self, prefix_v4: u8, prefix_v6: u8) -> Network {
        let prefix_len = if self.address.is_ipv4() { prefix_v4 } else { prefix_v6 };
        if prefix_len >= self.prefix_len {
            return *self;
        }
        Network::new(self.address, prefix_len).unwrap_or(*self)
    }

    /// Returns whether a text is the canonical one. Does not allocate.
    pub fn is_text(&self, text: &str) -> bool {
        let mut rest = Expected(text);
        write!(rest, "{self}").is_ok() && rest.0.is_empty()
    }

    pub fn prefix_len(&self) -> u8 {
        self.prefix_len
    }

    /// The first address: all bits after the prefix are zero.
    pub fn address(&self) -> IpAddr {
        self.address
    }
}

impl From<Ipv4Addr> for Network {
    fn from(address: Ipv4Addr) -> Network {
        Network { address: address.into(), prefix_len: 32 }
    }
}

/// The canonical text: `10.0.0.0/8`, `2001:db8::/32`; of a network of full length, the address.
impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)?;
        match self.prefix_len == address_bits(self.address) {
            true => Ok(()),
            false => write!(f, "/{}", self.prefix_len),
        }
    }
}

/// What is left of a text, while a value is written that may be equal to it.
struct Expected<'t>(&'t str);

impl fmt::Write for Expected<'_> {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        self.0 = self.0.strip_prefix(part).ok_or(fmt::Error)?;
        Ok(())
    }
}

fn address_bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_bits().into(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// The bits of a prefix, of an address of `max` bits.
fn mask(prefix_len: u8, max: u8) -> u128 {
    !u128::MAX.checked_shr(u32::from(prefix_len) + 128 - u32::from(max)).unwrap_or(0)
}

fn split(text: &str) -> (&str, Option<&str>) {
    text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)))
}

/// Reads a prefix length: digits without a sign or a leading zero.
fn prefix_len(text: &str) -> Option<u8> {
    let is_number = text == "0" || text.starts_with(|c: char| matches!(c, '1'..='9'));
    is_number.then(|| text.parse().ok())?
}

/// Reads an IPv4 address as std does, but in fewer instructions: most values that are compared with networks are one.
pub fn ipv4(text: &str) -> Option<Ipv4Addr> {
    let (mut rest, mut bits) = (text.as_bytes(), 0);
    for end in [&b"."[..], b".", b".", b""] {
        let (octet, after) = octet(rest)?;
        bits = bits << 8 | octet;
        rest = after.strip_prefix(end)?;
    }
    rest.is_empty().then(|| Ipv4Addr::from_bits(bits))
}

/// Reads a number up to 255 without a leading zero. Returns it, and what is after it.
fn octet(text: &[u8]) -> Option<(u32, &[u8])> {
    let digit = |at: usize| {
        let digit = text.get(at)?.wrapping_sub(b'0');
        (digit < 10).then_some(u32::from(digit))
    };
    let first = digit(0)?;
    let Some(second) = digit(1) else { return Some((first, text.get(1..)?)) };
    if first == 0 {
        return None;
    }
    let Some(third) = digit(2) else { return Some((first * 10 + second, text.get(2..)?)) };
    let octet = first * 100 + second * 10 + third;
    (octet <= 255).then_some((octet, text.get(3..)?))
}

fn value_address(text: &str) -> Option<IpAddr> {
    if let Some(rest) = text.strip_prefix('[') {
        let (address, after) = rest.split_once(']')?;
        let is_whole = after.is_empty() || after.strip_prefix(':').is_some_and(is_port);
        return is_whole.then(|| ipv6(address))?;
    }
    match text.split_once(':') {
        Some((address, port)) if is_port(port) => {
            address.parse::<Ipv4Addr>().ok().map(IpAddr::from)
        }
        _ => ipv6(text),
    }
}

/// Reads an IPv6 address, without its zone.
fn ipv6(text: &str) -> Option<IpAddr> {
    let address = match text.split_once('%') {
        Some((_, "")) => return None,
        Some((address, _)) => address,
        None => text,
    };
    address.parse::<Ipv6Addr>().ok().map(IpAddr::from)
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn network(text: &str) -> Network {
        Network::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn value(text: &str) -> Option<String> {
        Network::from_value(text).map(|network| network.to_string())
    }

    #[test]
    fn networks_have_one_text() {
        for (text, canonical) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("203.0.113.7", "203.0.113.7"),
            ("203.0.113.7/32", "203.0.113.7"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("2001:DB8:0::/32", "2001:db8::/32"),
            ("2001:db8::1/128", "2001:db8::1"),
            ("::/0", "::/0"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:10.1.2.3", "10.1.2.3"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
        ] {
            assert_eq!(network(text).to_string(), canonical);
            assert_eq!(network(canonical), network(text));
        }
    }

    #[test]
    fn errors_name_the_cause() {
        for (text, error) in [
            ("10.0.0.1/8", "'10.0.0.1/8' has bits set after its prefix: write 10.0.0.0/8"),
            (
                "2001:db8::1/64",
                "'2001:db8::1/64' has bits set after its prefix: write 2001:db8::/64",
            ),
            (
                "::ffff:10.0.0.1/104",
                "'::ffff:10.0.0.1/104' has bits set after its prefix: write 10.0.0.0/8",
            ),
            ("10.0.0.0/33", "the prefix of '10.0.0.0/33' is longer than 32 bits"),
            ("::/129", "the prefix of '::/129' is longer than 128 bits"),
            (
                "10.0.0/8",
                "'10.0.0/8' is no network: write an address such as 203.0.113.7, or 10.0.0.0/8",
            ),
        ] {
            assert_eq!(Network::parse(text).unwrap_err().to_string(), error);
        }
        for text in
            ["", "x", "10.0.0.0/", "10.0.0.0/+8", "10.0.0.0/08", "10.0.0.0/256", "010.0.0.0/8"]
        {
            assert_eq!(Network::parse(text), Err(NetworkError::Invalid(text.to_owned())));
        }
        // What a value may have, a rule may not.
        for text in ["[::1]", "10.0.0.1:80", "fe80::1%eth0", "10.*"] {
            assert_eq!(Network::parse(text), Err(NetworkError::Invalid(text.to_owned())));
        }
    }

    #[test]
    fn values_are_addresses_in_all_their_forms_or_networks() {
        for (text, read) in [
            ("10.1.2.3", "10.1.2.3"),
            ("10.1.2.3:8080", "10.1.2.3"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("fe80::1%eth0", "fe80::1"),
            ("[fe80::1%eth0]:80", "fe80::1"),
            ("::ffff:10.1.2.3", "10.1.2.3"),
            ("[::ffff:10.1.2.3]:80", "10.1.2.3"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("10.1.2.3/32", "10.1.2.3"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("::1", "::1"),
            ("::", "::"),
        ] {
            assert_eq!(value(text).as_deref(), Some(read), "{text}");
        }
        for text in [
            "",
            "ann",
            "10.1.2",
            "10.1.2.3:",
            "10.1.2.3:http",
            "10.1.2.3:65536",
            "10.1.2.3/33",
            "10.1.2.3/8/8",
            "10.1.2.3:80/8",
            "[10.1.2.3]",
            "[::1",
            "[::1]80",
            "::1%",
            "1:2",
            "010.1.2.3",
        ] {
            assert_eq!(value(text), None, "{text}");
        }
    }

    #[test]
    fn networks_contain_what_lies_in_them() {
        let contains = |outer, inner| network(outer).contains(&network(inner));
        assert!(contains("10.0.0.0/8", "10.255.255.255"));
        assert!(contains("10.0.0.0/8", "10.1.0.0/16"));
        assert!(contains("10.0.0.0/8", "10.0.0.0/8"));
        assert!(contains("0.0.0.0/0", "10.0.0.0/8"));
        assert!(contains("::/0", "2001:db8::1"));
        assert!(!contains("10.0.0.0/8", "11.0.0.0"));
        assert!(!contains("10.1.0.0/16", "10.0.0.0/8"));
        assert!(!contains("::/0", "10.0.0.0/8"));
        assert!(!contains("0.0.0.0/0", "::"));
    }

    #[test]
    fn a_network_is_truncated_to_the_prefix_of_its_kind() {
        let truncated = |text| network(text).truncate(24, 64).to_string();
        assert_eq!(truncated("203.0.113.7"), "203.0.113.0/24");
        assert_eq!(truncated("203.0.0.0/16"), "203.0.0.0/16");
        assert_eq!(truncated("2001:db8::1"), "2001:db8::/64");
        assert_eq!(network("::1").truncate(0, 0).to_string(), "::/0");
    }

    /// Any network: the first bit of the length decides whether it is one of IPv4.
    fn any_network() -> impl Strategy<Value = Network> {
        let v4 =
            (any::<u32>(), 0..=32_u8).prop_map(|(bits, len)| (Ipv4Addr::from(bits).into(), len));
        let v6 =
            (any::<u128>(), 0..=128_u8).prop_map(|(bits, len)| (Ipv6Addr::from(bits).into(), len));
        prop_oneof![v4, v6]
            .prop_map(|(address, len): (IpAddr, u8)| Network::new(address, len).unwrap())
    }

    /// The bits of a prefix, one by one.
    fn prefix(network: &Network) -> (bool, Vec<bool>) {
        let octets = match network.address() {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        let bits =
            octets.iter().flat_map(|octet| (0..8).map(move |bit| octet >> (7 - bit) & 1 == 1));
        (network.address().is_ipv4(), bits.take(network.prefix_len().into()).collect())
    }

    proptest! {
        #[test]
        fn texts_are_read_again(network in any_network()) {
            prop_assert_eq!(Network::parse(&network.to_string()), Ok(network));
            prop_assert_eq!(Network::from_value(&network.to_string()), Some(network));
            prop_assert!(network.is_text(&network.to_string()));
            for other in [format!("{network} "), format!("0{network}"), String::new()] {
                prop_assert!(!network.is_text(&other));
            }
        }

        #[test]
        fn a_network_contains_what_has_its_prefix(outer in any_network(), inner in any_network()) {
            let (v4, bits) = prefix(&outer);
            let has_prefix = |inner: &Network| {
                let (inner_v4, inner_bits) = prefix(inner);
                v4 == inner_v4 && inner_bits.starts_with(&bits)
            };
            prop_assert_eq!(outer.contains(&inner), has_prefix(&inner));
            // Random networks rarely contain each other.
            let nested = inner.truncate(outer.prefix_len(), outer.prefix_len());
            prop_assert!(nested.contains(&inner));
            prop_assert_eq!(outer.contains(&nested), has_prefix(&nested));
        }

        #[test]
        fn bits_after_the_prefix_of_a_value_are_ignored(bits in any::<u32>(), len in 0..=32_u8) {
            let address = Ipv4Addr::from(bits);
            let value = Network::from_value(&format!("{address}/{len}"));
            prop_assert_eq!(value, Network::new(address.into(), len));
            match Network::parse(&format!("{address}/{len}")) {
                Ok(network) => prop_assert_eq!(network.address(), IpAddr::from(address)),
                Err(NetworkError::HostBits { meant, .. }) => prop_assert_eq!(Some(meant), value),
                Err(other) => prop_assert!(false, "{}", other),
            }
        }

        #[test]
        fn ipv4_addresses_are_those_of_the_standard_library(
            text in "[0-9]{0,4}(\\.[0-9]{0,3}){2,4}|((25[0-9]|1?[0-9]{1,2})\\.){3}(25[0-9]|1?[0-9]{1,2})|\\PC{0,16}",
        ) {
            prop_assert_eq!(ipv4(&text), text.parse().ok(), "{}", text);
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,20}|[0-9a-f:.%/\\[\\]]{0,20}") {
            let _ = (Network::parse(&text), Network::from_value(&text));
        }
    }
}
