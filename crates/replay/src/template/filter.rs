//! The filters of `--descriptor` of `weir replay`, which take a part of a field's value: `{x_forwarded_for|last|host}`.

const MAX_FILTERS: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    /// The first item of a comma-separated list.
    First,
    /// The item that has N others after it: 0 is the last.
    Hop(usize),
    /// An address without its port and brackets.
    Host,
}

impl Filter {
    /// Parses the filters after the name of a field, with `|` between them.
    pub fn parse_all(text: &str) -> Result<Vec<Filter>, String> {
        let filters: Vec<Filter> = text.split('|').map(Filter::parse).collect::<Result<_, _>>()?;
        match filters.len() {
            0..=MAX_FILTERS => Ok(filters),
            count => Err(format!("there are {count} filters: write at most {MAX_FILTERS}")),
        }
    }

    fn parse(text: &str) -> Result<Filter, String> {
        let filter = match text.trim() {
            "first" => Some(Filter::First),
            "last" => Some(Filter::Hop(0)),
            "host" => Some(Filter::Host),
            other => other.strip_prefix("hop:").and_then(|hop| hop.parse().ok()).map(Filter::Hop),
        };
        filter.ok_or_else(|| {
            format!(
                "there is no filter `{text}`: write `first` or `last` for an item of a list, `hop:N` \
                 for the one with N items after it, or `host` to drop port and brackets"
            )
        })
    }

    /// The part of a value; none if it has no such item.
    pub fn apply(self, value: &str) -> Option<&str> {
        let part = match self {
            Filter::First => value.split(',').next()?,
            Filter::Hop(number) => value.rsplit(',').nth(number)?,
            Filter::Host => host(value),
        };
        Some(part.trim()).filter(|part| !part.is_empty())
    }
}

/// A host without its port and brackets. An IPv6 address without brackets has no port.
pub(crate) fn host(value: &str) -> &str {
    let value = value.trim();
    if let Some(rest) = value.strip_prefix('[') {
        return rest.split_once(']').map_or(value, |(host, _)| host);
    }
    match value.split_once(':') {
        Some((host, port)) if !port.contains(':') => host,
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filtered(filters: &str, value: &str) -> Option<String> {
        let filters = Filter::parse_all(filters).unwrap();
        let value = filters.iter().try_fold(value, |value, filter| filter.apply(value));
        value.map(str::to_owned)
    }

    #[test]
    fn filters_take_a_part() {
        let list = "203.0.113.7, 198.51.100.2,[2001:db8::1]:443";
        for (filters, value, wanted) in [
            ("first", list, Some("203.0.113.7")),
            ("last", list, Some("[2001:db8::1]:443")),
            ("last|host", list, Some("2001:db8::1")),
            ("hop:0", list, Some("[2001:db8::1]:443")),
            ("hop:1", list, Some("198.51.100.2")),
            ("hop:3", list, None),
            ("last", "a,", None),
            ("last", "a", Some("a")),
            ("host", "203.0.113.7:51000", Some("203.0.113.7")),
            ("host", "203.0.113.7", Some("203.0.113.7")),
            ("host", "2001:db8::1", Some("2001:db8::1")),
            ("host", "shop.example:8080", Some("shop.example")),
            ("host", "", None),
        ] {
            assert_eq!(filtered(filters, value).as_deref(), wanted, "{filters} of {value}");
        }
    }

    #[test]
    fn other_filters_are_errors() {
        for filters in ["", "lst", "hop", "hop:x", "hop:-1", "last|", &"host|".repeat(9)] {
            assert!(Filter::parse_all(filters).is_err(), "{filters}");
        }
    }

    proptest! {
        #[test]
        fn a_part_is_in_the_value(value in "[a:\\[\\], .]{0,20}", hop in 0..4_usize) {
            for filter in [Filter::First, Filter::Hop(hop), Filter::Host] {
                let part = filter.apply(&value);
                prop_assert!(part.is_none_or(|part| value.contains(part) && !part.is_empty()));
            }
        }
    }
}
