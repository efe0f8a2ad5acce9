//! The subject of a certificate as text, as RFC 4514 writes it.

use super::der::{SEQUENCE, element, expect};

const OBJECT_IDENTIFIER: u8 = 0x06;
const SET: u8 = 0x31;

/// The attribute types that RFC 4514 names, without STREET, which no server has.
const NAMES: [(&[u8], &str); 8] = [
    (&[0x55, 4, 3], "CN"),
    (&[0x55, 4, 6], "C"),
    (&[0x55, 4, 7], "L"),
    (&[0x55, 4, 8], "ST"),
    (&[0x55, 4, 10], "O"),
    (&[0x55, 4, 11], "OU"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
    (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
];

/// Returns a name in DER, `SEQUENCE OF SET OF SEQUENCE { type, value }`, as text. None if it is
/// malformed.
pub(super) fn subject(mut name: &[u8]) -> Option<String> {
    let mut parts = Vec::new();
    while !name.is_empty() {
        let (part, rest) = expect(SET, name)?;
        parts.push(relative_name(part)?);
        name = rest;
    }
    // The text starts with the last part.
    parts.reverse();
    Some(parts.join(","))
}

fn relative_name(mut part: &[u8]) -> Option<String> {
    let mut attributes = Vec::new();
    while !part.is_empty() {
        let (attribute, rest) = expect(SEQUENCE, part)?;
        let (kind, value) = expect(OBJECT_IDENTIFIER, attribute)?;
        let (_, value, _) = element(value)?;
        let value = escaped(&String::from_utf8_lossy(value));
        attributes.push(format!("{}={value}", attribute_type(kind)));
        part = rest;
    }
    Some(attributes.join("+"))
}

/// Returns the name of an attribute type, or its numbers: `1.2.840.113549`.
fn attribute_type(kind: &[u8]) -> String {
    if let Some((_, name)) = NAMES.iter().find(|(known, _)| *known == kind) {
        return (*name).to_owned();
    }
    let mut numbers = Vec::new();
    let mut number = 0_u64;
    for byte in kind {
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            // The first has two numbers in it.
            if numbers.is_empty() {
                let first = (number / 40).min(2);
                numbers.push(first.to_string());
                number -= first * 40;
            }
            numbers.push(number.to_string());
            number = 0;
        }
    }
    numbers.join(".")
}

fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for character in value.chars() {
        if matches!(character, '"' | '+' | ',' | ';' | '<' | '>' | '\\') {
            text.push('\\');
        }
        text.push(character);
    }
    text
}
