//! Encoded `RateLimitConfig` messages that take as much memory and time as possible.

use prost::encoding::{WireType, encode_key, encode_varint};

/// Encodes a length-delimited field.
pub fn field(number: u32, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len() + 8);
    encode_key(number, WireType::LengthDelimited, &mut out);
    encode_varint(value.len() as u64, &mut out);
    out.extend(value);
    out
}

/// Repeats an item up to `size` bytes.
fn many(size: usize, one: impl Fn(usize) -> Vec<u8>) -> Vec<u8> {
    let mut out = Vec::with_capacity(size);
    for i in 0.. {
        out.extend(one(i));
        if out.len() >= size {
            break;
        }
    }
    out
}

/// Returns messages of about `size` bytes, each with a description.
pub fn messages(size: usize) -> Vec<(&'static str, Vec<u8>)> {
    let config = |descriptors: Vec<u8>| [field(2, b"d"), descriptors].concat();
    let descriptor = |value: &[u8]| field(3, value);
    let key = |i: usize| field(1, format!("k{i:x}").as_bytes());
    let day = || field(3, &[0x08, 4]);
    let rule = |i: usize| [key(i), day()].concat();
    let long = |bytes: usize| {
        let below = many(size.saturating_sub(bytes), |i| field(4, &rule(i)));
        descriptor(&[field(1, &vec![b'k'; bytes]), below].concat())
    };
    let deep = || {
        let inmost = many(size - size / 4, |_| field(4, b""));
        (0..98).fold(inmost, |below, _| field(4, &below))
    };
    let metadata = |fields: Vec<u8>| descriptor(&[key(0), field(8, &fields), day()].concat());
    let list = |items: Vec<u8>| metadata(field(1, &field(2, &field(6, &items))));
    let map = field(1, &field(5, &field(1, &field(1, b"k"))));
    [
        ("empty descriptors", many(size, |_| descriptor(b""))),
        ("empty limits", many(size, |_| descriptor(&field(3, b"")))),
        ("bad limits", many(size, |i| descriptor(&[key(i), field(3, b"")].concat()))),
        ("limits of one rule", descriptor(&many(size, |_| field(1001, b"")))),
        ("replaced names", descriptor(&field(3, &many(size, |_| field(5, b""))))),
        ("rules", many(size, |i| descriptor(&rule(i)))),
        ("deep", descriptor(&deep())),
        ("long names", long(size / 200)),
        ("longer names", long(size / 2)),
        ("control characters", field(2, &vec![1; size])),
        ("metadata", metadata(many(size, |i| field(1, &[key(i), field(2, b"")].concat())))),
        ("metadata lists", list(many(size, |_| field(1, b"")))),
        ("metadata maps in lists", list(many(size, |_| map.clone()))),
    ]
    .map(|(name, descriptors)| (name, config(descriptors)))
    .into()
}
