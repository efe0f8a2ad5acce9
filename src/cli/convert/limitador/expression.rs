//! The conditions and variables of Limitador that have an equivalent in rules.

/// An entry of a request's descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place<'t> {
    /// The number of the descriptor, from 0.
    pub descriptor: usize,
    pub key: &'t str,
}

/// Parses `key == 'value'`, in either order.
pub(super) fn condition(text: &str) -> Option<(Place<'_>, &str)> {
    let text = text.trim();
    if text.starts_with(['\'', '"']) {
        let (literal, place) = text.rsplit_once("==")?;
        return Some((variable(place)?, unquoted(literal)?));
    }
    let (place, literal) = text.split_once("==")?;
    Some((variable(place)?, unquoted(literal)?))
}

/// Parses `descriptors[0].key`, `descriptors[0]['key']`, or a key alone, as older versions have it.
pub(super) fn variable(text: &str) -> Option<Place<'_>> {
    let text = text.trim();
    let Some(rest) = text.strip_prefix("descriptors[") else {
        let is_key = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c));
        return is_key.then_some(Place { descriptor: 0, key: text });
    };
    let (number, rest) = rest.split_once(']')?;
    let descriptor = number.trim().parse().ok()?;
    let key = match rest.strip_prefix('.') {
        Some(key) => {
            // A dot or an operator would be part of an expression.
            key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_').then_some(key)?
        }
        None => unquoted(rest.strip_prefix('[')?.strip_suffix(']')?)?,
    };
    (!key.is_empty()).then_some(Place { descriptor, key })
}

/// Returns the content of a literal without escapes.
fn unquoted(text: &str) -> Option<&str> {
    let text = text.trim();
    ['\'', '"'].into_iter().find_map(|quote| {
        let content = text.strip_prefix(quote)?.strip_suffix(quote)?;
        (!content.contains([quote, '\\'])).then_some(content)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equality_with_a_literal_is_parsed() {
        let found =
            |text| condition(text).map(|(place, value)| (place.descriptor, place.key, value));
        for (text, wanted) in [
            ("descriptors[0].user == 'ann'", (0, "user", "ann")),
            ("descriptors[1]['req.method']==\"GET\"", (1, "req.method", "GET")),
            ("req.method == 'a == b'", (0, "req.method", "a == b")),
            ("'GET' == req.method", (0, "req.method", "GET")),
        ] {
            assert_eq!(found(text), Some(wanted), "{text}");
        }
        for text in [
            "a != 'b'",
            "a == b",
            "a == 'b' || c == 'd'",
            "a == 'b' && c == 'd'",
            "a == 'it\\'s'",
            "descriptors[0].a.b == 'c'",
            "descriptors[0].a.startsWith('/x')",
            "descriptors[x].a == 'b'",
            "size(a) == '1'",
            "a == '",
            "",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
    }
}
