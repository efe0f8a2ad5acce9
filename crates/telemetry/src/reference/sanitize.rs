//! Replaces the characters that the reference replaces in names.

/// Replaces `:` and `|`, which separate the parts of a line, and the dots of IPv4 addresses, which
/// would be levels, by underscores. Control characters too: a line feed would end the line.
pub fn sanitize(name: &mut String) {
    let needs = |c: char| matches!(c, ':' | '|') || c.is_control();
    if !name.contains(needs) && !name.contains(|c: char| c.is_ascii_digit()) {
        return;
    }
    let mut bytes = std::mem::take(name).into_bytes();
    for byte in &mut bytes {
        if matches!(byte, b':' | b'|') || byte.is_ascii_control() {
            *byte = b'_';
        }
    }
    let mut at = 0;
    while at < bytes.len() {
        match address_length(&bytes[at..]) {
            Some(length) => {
                for byte in &mut bytes[at..at + length] {
                    if *byte == b'.' {
                        *byte = b'_';
                    }
                }
                at += length;
            }
            None => at += 1,
        }
    }
    // Only ASCII bytes were replaced, by ASCII.
    *name = String::from_utf8_lossy(&bytes).into_owned();
}

/// Returns the length of the IPv4 address that the text starts with: four numbers of up to three digits.
fn address_length(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    for part in 0..4 {
        if part > 0 {
            if text.get(at) != Some(&b'.') {
                return None;
            }
            at += 1;
        }
        let digits = text[at..].iter().take(3).take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return None;
        }
        at += digits;
    }
    Some(at)
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
