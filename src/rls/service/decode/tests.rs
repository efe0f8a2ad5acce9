//! Compares the decoder with prost.

use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message as _;

use super::*;
use crate::proto::envoy::extensions::common::ratelimit::v3 as common;

/// A `RateLimitRequest` whose values are bytes.
#[derive(Clone, PartialEq, prost::Message)]
struct RateLimitRequest {
    #[prost(string, tag = "1")]
    domain: String,
    #[prost(message, repeated, tag = "2")]
    descriptors: Vec<RateLimitDescriptor>,
    #[prost(uint32, tag = "3")]
    hits_addend: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RateLimitDescriptor {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<BytesEntry>,
    #[prost(message, optional, tag = "2")]
    limit: Option<common::rate_limit_descriptor::RateLimitOverride>,
    #[prost(message, optional, tag = "3")]
    hits_addend: Option<u64>,
    #[prost(bool, tag = "4")]
    is_negative_hits: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
struct BytesEntry {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// Decodes a request into prost's message.
fn as_message(bytes: &[u8]) -> Result<RateLimitRequest, DecodeError> {
    let (mut texts, mut view) = (Vec::new(), RequestView::default());
    let mut descriptors = Descriptors::new();
    let request = view.decode(bytes, usize::MAX, &mut texts, &mut descriptors)?.request;
    let entry = |(key, value): &Entry<'_>| BytesEntry {
        key: (*key).to_owned(),
        value: value::decode(value).into_owned(),
    };
    let descriptor = |descriptor: &Descriptor<'_>| RateLimitDescriptor {
        entries: descriptor.entries.iter().map(entry).collect(),
        limit: descriptor.limit.map(|limit| common::rate_limit_descriptor::RateLimitOverride {
            requests_per_unit: limit.requests_per_unit,
            unit: limit.unit,
            unit_multiplier: limit.unit_multiplier,
        }),
        hits_addend: descriptor.hits_addend,
        is_negative_hits: descriptor.is_negative_hits,
    };
    Ok(RateLimitRequest {
        domain: request.domain.to_owned(),
        descriptors: request.descriptors.iter().map(descriptor).collect(),
        hits_addend: request.hits_addend,
    })
}

fn agrees(bytes: &[u8]) -> Result<(), TestCaseError> {
    let (ours, theirs) = (as_message(bytes), RateLimitRequest::decode(bytes));
    match (&ours, &theirs) {
        (Ok(ours), Ok(theirs)) => prop_assert_eq!(ours, theirs),
        (Err(_), Err(_)) => {}
        _ => prop_assert!(false, "{:?} but {:?}", ours, theirs),
    }
    Ok(())
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-z]{1,9}", "\\PC{0,200}"]
}

fn request() -> impl Strategy<Value = RateLimitRequest> {
    let bytes = prop_oneof![
        text().prop_map(String::into_bytes),
        vec(any::<u8>(), 0..9),
        Just("\u{10ff7f}".as_bytes().to_vec()),
        Just("\u{10ffff}\u{10ff7f}".as_bytes().to_vec()),
    ];
    let entry = (text(), bytes).prop_map(|(key, value)| BytesEntry { key, value });
    let limit = (any::<u32>(), any::<i32>(), any::<Option<u32>>()).prop_map(
        |(requests_per_unit, unit, unit_multiplier)| {
            common::rate_limit_descriptor::RateLimitOverride {
                requests_per_unit,
                unit,
                unit_multiplier,
            }
        },
    );
    let descriptor =
        (vec(entry, 0..4), proptest::option::of(limit), any::<Option<u64>>(), any::<bool>());
    let descriptor = descriptor.prop_map(|(entries, limit, hits_addend, is_negative_hits)| {
        RateLimitDescriptor { entries, limit, hits_addend, is_negative_hits }
    });
    (text(), vec(descriptor, 0..6), any::<u32>()).prop_map(|(domain, descriptors, hits_addend)| {
        RateLimitRequest { domain, descriptors, hits_addend }
    })
}

/// Fields of any number and type, with correct and incorrect lengths.
fn fields() -> impl Strategy<Value = Vec<u8>> {
    let leaf = vec(any::<u8>(), 0..12);
    leaf.prop_recursive(4, 64, 6, |inner| {
        vec((1_u32..7, 0_u8..6, inner, any::<u64>(), 0_u8..9), 0..6).prop_map(|fields| {
            let mut out = Vec::new();
            for (number, wire, inner, varint, off) in fields {
                prost::encoding::encode_varint(u64::from(number << 3 | u32::from(wire)), &mut out);
                match wire {
                    0 => prost::encoding::encode_varint(varint, &mut out),
                    1 => out.extend(varint.to_le_bytes()),
                    2 => {
                        // Sometimes off by one.
                        let length = inner.len() as u64 + u64::from(off == 8);
                        prost::encoding::encode_varint(length, &mut out);
                        out.extend(inner);
                    }
                    3 => {
                        out.extend(inner);
                        let end = if off == 8 { number + 1 } else { number };
                        prost::encoding::encode_varint(u64::from(end << 3 | 4), &mut out);
                    }
                    5 => out.extend((varint as u32).to_le_bytes()),
                    _ => {}
                }
            }
            out
        })
    })
}

proptest! {
    #[test]
    fn encoded_requests_are_decoded(request in request()) {
        prop_assert_eq!(as_message(&request.encode_to_vec()), Ok(request));
    }

    #[test]
    fn a_damaged_request_is_decoded_as_by_prost(
        request in request(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>(),
    ) {
        let mut bytes = request.encode_to_vec();
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            if cut { bytes.truncate(at) } else { bytes[at] = byte }
        }
        agrees(&bytes)?;
    }

    #[test]
    fn two_concatenated_requests_are_merged_as_by_prost(a in request(), b in request()) {
        agrees(&[a.encode_to_vec(), b.encode_to_vec()].concat())?;
    }

    #[test]
    fn arbitrary_fields_are_decoded_as_by_prost(bytes in fields()) {
        agrees(&bytes)?;
    }
}

#[test]
fn repeated_messages_are_merged_as_by_prost() {
    for bytes in [
        // A descriptor with its limit in two parts; the same for its hits.
        &[0x12, 15, 0x12, 2, 8, 5, 0x12, 2, 16, 3, 0x12, 4, 0x1a, 2, 8, 9, 8][..],
        &[0x12, 10, 0x1a, 2, 8, 7, 0x1a, 0, 0x12, 2, 0x1a, 0],
        &[0x12, 12, 0x12, 4, 0x1a, 2, 8, 9, 0x12, 4, 0x1a, 2, 16, 1],
        // A multiplier and a number of hits beyond 32 bits.
        &[0x12, 10, 0x12, 8, 0x1a, 6, 8, 0xff, 0xff, 0xff, 0xff, 0x7f],
        &[0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
        &[0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
        &[0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x80, 0],
        &[0x18, 0xff],
    ] {
        agrees(bytes).unwrap();
    }
    // Groups around the maximum depth, at every level.
    for depth in 95..105 {
        let groups = [vec![0x2b; depth], vec![0x2c; depth]].concat();
        agrees(&groups).unwrap();
        let in_message = |number: u8, inner: Vec<u8>| {
            let mut out = vec![number << 3 | 2];
            prost::encoding::encode_varint(inner.len() as u64, &mut out);
            [out, inner].concat()
        };
        let in_descriptor = in_message(2, groups.clone());
        agrees(&in_descriptor).unwrap();
        agrees(&in_message(2, in_message(1, groups.clone()))).unwrap();
        agrees(&in_message(2, in_message(2, in_message(3, groups)))).unwrap();
    }
}

#[test]
fn descriptors_beyond_the_maximum_are_only_counted() {
    let entry = [0x12, 5, 0x0a, 3, 0x0a, 1, b'k'];
    for (field, entries) in [(&[0x12, 0][..], 0), (&entry, 1)] {
        let message = field.repeat(100_000);
        for (max, kept) in [(0, 0), (3, 3), (256, 256), (100_000, 100_000)] {
            let (mut texts, mut view) = (Vec::new(), RequestView::default());
            let mut descriptors = Descriptors::new();
            let decoded = view.decode(&message, max, &mut texts, &mut descriptors).unwrap();
            let Request { descriptors: read, beyond, .. } = decoded.request;
            assert_eq!((read.len(), beyond), (kept, 100_000 - kept));
            assert!(descriptors.capacity() <= (2 * max).max(4));
            drop(descriptors);
            assert_eq!(view.entries.len(), entries * kept);
            assert!(view.entries.capacity() <= (2 * max).max(8));
        }
        // Errors in them are reported all the same.
        let wrong = [message.as_slice(), &[0x12]].concat();
        let (mut texts, mut view) = (Vec::new(), RequestView::default());
        let mut descriptors = Descriptors::new();
        let decoded = view.decode(&wrong, 3, &mut texts, &mut descriptors);
        assert_eq!(decoded.unwrap_err(), TRUNCATED);
    }
}

/// An entry takes at least two bytes of a message.
#[test]
fn entries_take_at_most_sixteen_times_the_memory_of_their_message() {
    let mut message = vec![0x12];
    let entries = [0x0a, 0].repeat(1 << 18);
    prost::encoding::encode_varint(entries.len() as u64, &mut message);
    message.extend(entries);
    let (mut texts, mut view) = (Vec::new(), RequestView::default());
    let mut descriptors = Descriptors::new();
    let decoded = view.decode(&message, 256, &mut texts, &mut descriptors).unwrap();
    assert!(decoded.heap_bytes <= 16 * message.len());
    drop(descriptors);
    assert_eq!(view.entries.len(), 1 << 18);
    drop(view);
    assert_eq!(texts.capacity(), 0);
}

/// The text of a byte takes four bytes, and so does its end.
#[test]
fn texts_of_bytes_take_a_bounded_multiple_of_their_message() {
    let domain_and_key = RateLimitRequest { domain: "d".to_owned(), ..Default::default() };
    let entry = BytesEntry { key: String::new(), value: vec![0xff] };
    let descriptor = RateLimitDescriptor { entries: vec![entry; 1 << 16], ..Default::default() };
    let many = RateLimitRequest { descriptors: vec![descriptor], ..domain_and_key.clone() };
    let entry = BytesEntry { key: String::new(), value: vec![0xff; 1 << 18] };
    let descriptor = RateLimitDescriptor { entries: vec![entry], ..Default::default() };
    let long = RateLimitRequest { descriptors: vec![descriptor], ..domain_and_key };
    for message in [many, long] {
        let (message, mut texts) = (message.encode_to_vec(), Vec::new());
        let mut view = RequestView::default();
        let mut descriptors = Descriptors::new();
        let decoded = view.decode(&message, 256, &mut texts, &mut descriptors).unwrap();
        let bytes = decoded.heap_bytes;
        assert!(bytes <= 24 * message.len());
        drop(descriptors);
        let entries = if view.entries.spilled() { view.entries.capacity() } else { 0 };
        drop(view);
        assert_eq!(texts.capacity() + entries * size_of::<Entry<'_>>(), bytes);
    }
}
