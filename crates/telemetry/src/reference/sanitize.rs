//! Replaces the characters in names of statistics that envoyproxy/ratelimit (the reference) replaces.

use std::sync::LazyLock;

use regex::{Captures, Regex};

/// An IPv4 address: four numbers of up to three digits.
static ADDRESS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"[0-9]{1,3}(\.[0-9]{1,3}){3}").ok());

/// Replaces `:` and `|`, which separate the parts of a StatsD line, and the dots of IPv4 addresses, which
/// would be levels, by underscores. Control characters too: a line feed would end the line.
pub fn sanitize(name: &mut String) {
    let is_replaced = |c: char| matches!(c, ':' | '|') || c.is_ascii_control();
    if name.contains(is_replaced) {
        *name = name.replace(is_replaced, "_");
    }
    // Most names have no digits.
    if name.contains(|c: char| c.is_ascii_digit())
        && let Some(address) = &*ADDRESS
    {
        let replaced = address.replace_all(name, |found: &Captures<'_>| found[0].replace('.', "_"));
        *name = replaced.into_owned();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_and_addresses_have_underscores() {
        for (name, wanted) in [
            ("d.key_value", "d.key_value"),
            ("d.key_a:b|c", "d.key_a_b_c"),
            ("d.ip_10.0.0.1", "d.ip_10_0_0_1"),
            ("d.ip_10.0.0.1.hits", "d.ip_10_0_0_1.hits"),
            ("d.10.0.0.1/8.9.9.9.9", "d.10_0_0_1/8_9_9_9.9"),
            ("d.1234.1.1.12345", "d.1234_1_1_12345"),
            ("d.v_1.2.3", "d.v_1.2.3"),
            ("d.www.example.com", "d.www.example.com"),
            ("d.k_a\nb\u{e9}", "d.k_a_b\u{e9}"),
            ("1.2", "1.2"),
            ("", ""),
        ] {
            let mut name = name.to_owned();
            sanitize(&mut name);
            assert_eq!(name, wanted);
        }
    }
}
