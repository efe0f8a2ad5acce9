//! Values that look as if they were meant as a pattern that weir does not have.

use weir_common::network::{Network, NetworkError};

/// The key under which Envoy sends networks: its values are compared as text, as they should be.
const NETWORK_KEY: &str = "masked_remote_address";

/// What a value looks like, with a suggestion.
pub(super) fn looks_like(key: &str, value: &str) -> Option<(&'static str, String)> {
    if is_network(value) && key != NETWORK_KEY {
        return Some(("a network (CIDR)", network_help(value)));
    }
    if is_regex(value) {
        let help = "only `*` is special: it matches any number of characters, such as `/api/*`; a \
                    regular expression can be an action of Envoy (header_value_match)";
        return Some(("a regular expression", help.to_owned()));
    }
    None
}

/// Whether the text is an address and a length, such as `10.0.0.0/8`.
fn is_network(text: &str) -> bool {
    let is = matches!(Network::parse(text), Ok(_) | Err(NetworkError::HostBits { .. }));
    is && text.contains('/')
}

/// What to write instead of a network.
fn network_help(text: &str) -> String {
    match Network::parse(text) {
        Ok(network) | Err(NetworkError::HostBits { meant: network, .. }) => {
            format!("write `network: {network}`, which matches the addresses in it")
        }
        Err(_) => "write `network:` instead of `value:`".to_owned(),
    }
}

/// Whether the text has what only a regular expression has. `.*` alone is not enough: `10.0.*` is a
/// good wildcard.
fn is_regex(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_word = |b: u8| b.is_ascii_alphanumeric();
    let byte = |at: usize| bytes.get(at).copied();
    let ends_token = |at: usize| byte(at).is_none_or(|b| !is_word(b));
    let is_quantifier = |at: usize| matches!(byte(at), Some(b'+' | b'*' | b'?' | b'{'));
    if bytes.len() > 1 && bytes[0] == b'^' {
        return true;
    }
    let found = (0..bytes.len()).any(|at| match bytes[at] {
        b'\\' => match byte(at + 1) {
            Some(b'd' | b'w' | b's' | b'D' | b'W' | b'S' | b'b') => ends_token(at + 2),
            Some(next) => matches!(next, b'.' | b'/' | b'-' | b'(' | b'[' | b'?'),
            None => false,
        },
        b'.' => {
            let is_wild = matches!(byte(at + 1), Some(b'*' | b'+'));
            is_wild && at.checked_sub(1).and_then(byte).is_none_or(|b| b"/([|)=".contains(&b))
        }
        b'(' => {
            matches!((byte(at + 1), byte(at + 2)), (Some(b'?'), Some(b':' | b'i' | b'=' | b'!')))
        }
        b')' | b']' => is_quantifier(at + 1) && has_opening(bytes, at),
        _ => false,
    });
    let alternatives = || {
        let group = text.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
        group.is_some_and(|(group, _)| group.contains('|'))
    };
    found || alternatives()
}

/// Whether the bracket that closes at `at` was opened.
fn has_opening(bytes: &[u8], at: usize) -> bool {
    bytes[..at].contains(if bytes[at] == b')' { &b'(' } else { &b'[' })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_recognized() {
        for value in [
            "^/api",
            "^/api/.*$",
            ".*",
            ".+",
            "/api/.*",
            "/api/.+/x",
            r"/v\d+/x",
            r"\d",
            r"a\.b",
            r"\w+@x",
            "[0-9]+",
            "/[^/]+/x",
            "(a|b)",
            "/(users|shops)/1",
            "(?i)curl",
            "(ab)?",
            "x=.*",
        ] {
            assert_eq!(
                looks_like("k", value).map(|found| found.0),
                Some("a regular expression"),
                "{value}"
            );
        }
        for value in ["10.0.0.0/8", "10.1.2.3/32", "::/0", "2001:db8::/32"] {
            assert_eq!(
                looks_like("k", value).map(|found| found.0),
                Some("a network (CIDR)"),
                "{value}"
            );
            assert_eq!(looks_like("masked_remote_address", value), None);
        }
    }

    #[test]
    fn ordinary_values_are_not() {
        for value in [
            "",
            "*",
            "/api/*",
            "10.0.*",
            "*.txt",
            "example.*",
            "v1.*",
            "a.b.c",
            "/a.b/*",
            "10/8",
            "1.2.3/8",
            "10.0.0.0/33",
            "US$",
            "a+b@example.com",
            "/search?q=a",
            "a|b",
            "f(x)",
            "a[1]",
            r"C:\data",
            "^",
            "test/policy/rule/0",
            "Mozilla/5.0 (X11; Linux)",
            "price(usd)",
            "{id}",
            "/users/{id}",
            "50%",
        ] {
            assert_eq!(looks_like("k", value), None, "{value}");
        }
    }

    #[test]
    fn a_network_is_written_with_its_own_key() {
        let help = |value| looks_like("k", value).unwrap().1;
        assert!(help("10.0.0.0/8").starts_with("write `network: 10.0.0.0/8`"));
        assert!(help("10.1.2.3/12").starts_with("write `network: 10.0.0.0/12`"));
        assert!(help("2001:db8::/24").starts_with("write `network: 2001:d00::/24`"));
    }
}
