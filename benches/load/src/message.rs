//! Requests that are encoded once, with placeholders for the key number, and the decoding of the overall code
//! of a response.

use anyhow::{Context, Result, bail};
use prost::encoding::encode_varint;

/// The placeholder for the key number in a descriptor's value.
const HOLE: &str = "{N}";

/// The path of the method.
pub const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Ok,
    OverLimit,
}

impl Decision {
    /// Decodes `overall_code` from an encoded `RateLimitResponse`.
    pub fn read(message: &[u8]) -> Option<Self> {
        match first_varint_field(message, 1)? {
            1 => Some(Self::Ok),
            2 => Some(Self::OverLimit),
            _ => None,
        }
    }
}

/// A protobuf message with placeholders for the digits of the key.
#[derive(Clone, Debug, Default)]
pub struct Template {
    pub bytes: Vec<u8>,
    /// The start of each run of digits; every run is `width` long.
    pub holes: Vec<usize>,
    pub width: usize,
}

impl Template {
    /// Encodes a `RateLimitRequest`. Each descriptor is written `key=value,key2=value2`.
    pub fn new(domain: &str, descriptors: &[String], hits_addend: u64, keys: u64) -> Result<Self> {
        let width = digits(keys);
        let mut request = Self { width, ..Self::default() };
        request.bytes_field(1, domain.as_bytes());
        for descriptor in descriptors {
            let mut encoded = Self { width, ..Self::default() };
            for (key, value) in parse_descriptor(descriptor)? {
                let mut entry = Self { width, ..Self::default() };
                entry.bytes_field(1, key.as_bytes());
                entry.text_field(2, value);
                encoded.message_field(1, entry);
            }
            request.message_field(2, encoded);
        }
        if hits_addend > 0 {
            request.varint_field(3, hits_addend);
        }
        Ok(request)
    }

    fn tag(&mut self, field: u64, wire_type: u64) {
        encode_varint((field << 3) | wire_type, &mut self.bytes);
    }

    fn varint_field(&mut self, field: u64, value: u64) {
        self.tag(field, 0);
        encode_varint(value, &mut self.bytes);
    }

    fn bytes_field(&mut self, field: u64, value: &[u8]) {
        self.tag(field, 2);
        encode_varint(value.len() as u64, &mut self.bytes);
        self.bytes.extend_from_slice(value);
    }

    /// Appends a string field in which every `{N}` becomes a run of `width` digits.
    fn text_field(&mut self, field: u64, text: &str) {
        let parts: Vec<&str> = text.split(HOLE).collect();
        let mut filled = Self { width: self.width, ..Self::default() };
        for (i, part) in parts.iter().enumerate() {
            if i > 0 {
                filled.holes.push(filled.bytes.len());
                filled.bytes.resize(filled.bytes.len() + filled.width, b'0');
            }
            filled.bytes.extend_from_slice(part.as_bytes());
        }
        self.message_field(field, filled);
    }

    fn message_field(&mut self, field: u64, inner: Self) {
        self.tag(field, 2);
        encode_varint(inner.bytes.len() as u64, &mut self.bytes);
        let base = self.bytes.len();
        self.holes.extend(inner.holes.iter().map(|hole| base + hole));
        self.bytes.extend_from_slice(&inner.bytes);
    }
}

fn parse_descriptor(text: &str) -> Result<Vec<(&str, &str)>> {
    let entries = text
        .split(',')
        .map(|entry| entry.split_once('=').with_context(|| format!("no '=' in {entry:?}")))
        .collect::<Result<Vec<_>>>()?;
    if entries.is_empty() {
        bail!("an empty descriptor");
    }
    Ok(entries)
}

/// Returns the number of digits of the largest of `keys` keys, counted from zero.
fn digits(keys: u64) -> usize {
    keys.saturating_sub(1).max(1).ilog10() as usize + 1
}

/// Writes `number` right-aligned into `hole`, with zeros before it.
pub fn fill(hole: &mut [u8], mut number: u64) {
    for digit in hole.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

fn read_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Returns the varint field `wanted` of a message: 0, the default of proto3, if it is absent, and
/// `None` if the message is malformed.
fn first_varint_field(mut message: &[u8], wanted: u64) -> Option<u64> {
    while !message.is_empty() {
        let tag = read_varint(&mut message)?;
        let skip = match tag & 7 {
            0 => {
                let value = read_varint(&mut message)?;
                if tag >> 3 == wanted {
                    return Some(value);
                }
                0
            }
            1 => 8,
            2 => usize::try_from(read_varint(&mut message)?).ok()?,
            5 => 4,
            _ => return None,
        };
        message = message.get(skip..)?;
    }
    Some(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_where_the_digits_go() {
        let descriptors = ["user=u{N},path=/p".to_owned(), "ip=1.2.3.{N}".to_owned()];
        let mut template = Template::new("d", &descriptors, 1, 1000).unwrap();
        assert_eq!(template.holes.len(), 2);
        for hole in template.holes.clone() {
            fill(&mut template.bytes[hole..hole + template.width], 42);
        }
        let text = String::from_utf8_lossy(&template.bytes).into_owned();
        assert!(text.contains("u042") && text.contains("1.2.3.042"), "{text}");
    }

    #[test]
    fn width_is_that_of_the_largest_key() {
        assert_eq!((digits(1), digits(10), digits(11), digits(1_000_000)), (1, 1, 2, 6));
    }

    #[test]
    fn decision_is_read_past_other_fields() {
        assert_eq!(Decision::read(&[0x08, 1]), Some(Decision::Ok));
        assert_eq!(Decision::read(&[0x12, 2, 0x08, 1, 0x08, 2]), Some(Decision::OverLimit));
        assert_eq!(Decision::read(&[]), None);
        assert_eq!(Decision::read(&[0x12, 200]), None);
    }
}
