use proptest::prelude::*;

use super::*;
use super::{Damage, Frame};

const SEAL: Seal = Seal(0x1234_5678);

/// A file of frames with these payloads, and where each starts.
fn file(payloads: &[Vec<u8>]) -> (Vec<u8>, Vec<usize>) {
    let mut builder = FrameBuilder::new(SEAL, 13);
    let (mut bytes, mut starts) = (Vec::new(), Vec::new());
    for payload in payloads {
        assert!(payload.len() <= builder.room());
        builder.append(payload);
        starts.push(bytes.len());
        bytes.extend_from_slice(builder.seal(FrameKind::Records));
        builder.clear();
    }
    (bytes, starts)
}

/// Reads all frames of a file.
fn read(bytes: &[u8]) -> (Vec<Vec<u8>>, Damage) {
    let mut reader = FrameReader::new(bytes, SEAL);
    let mut payloads = Vec::new();
    while let Some(Frame { kind, shard_bits, payload, .. }) = reader.read().unwrap() {
        assert_eq!((kind, shard_bits), (FrameKind::Records, 13));
        payloads.push(payload.to_vec());
    }
    (payloads, reader.damage())
}

/// Payloads that differ, some of which start with the magic.
fn payloads() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let payload = (any::<bool>(), prop::collection::vec(any::<u8>(), 0..400));
    let payload = payload.prop_map(|(magic, mut bytes)| {
        if magic {
            bytes.splice(..0, MAGIC);
        }
        bytes
    });
    prop::collection::vec(payload, 1..12).prop_map(|mut payloads| {
        for (i, payload) in payloads.iter_mut().enumerate() {
            payload.push(i as u8);
        }
        payloads
    })
}

#[test]
fn frames_of_any_size_are_read_back() {
    let sizes = [0, 1, 100_000, MAX_PAYLOAD_BYTES, 7, MAX_PAYLOAD_BYTES - 1, MAX_PAYLOAD_BYTES];
    let payloads: Vec<_> = sizes.iter().map(|&size| vec![0xb1; size]).collect();
    let (bytes, _) = file(&payloads);
    assert_eq!(read(&bytes), (payloads, Damage::default()));
    assert_eq!(read(&[]), (Vec::new(), Damage::default()));
}

#[test]
fn frames_of_another_file_are_none() {
    let (bytes, _) = file(&[vec![1, 2, 3]]);
    let other = Seal::new(1, 0, 2);
    assert_ne!(other, Seal::new(1, 1, 2));
    let mut reader = FrameReader::new(&*bytes, other);
    assert_eq!(reader.read().unwrap(), None);
    assert_eq!(reader.damage(), Damage { frames: 1, torn: false });
}

#[test]
fn a_file_full_of_magics_is_read_in_proportion_to_its_size() {
    // A payload for each magic would take a thousand times as long.
    let bytes = MAGIC.repeat(8 << 20);
    assert_eq!(read(&bytes), (Vec::new(), Damage { frames: 1, torn: false }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// A flipped bit costs the frame that it is in, and no other.
    #[test]
    fn a_flip_costs_one_frame(payloads in payloads(), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let (mut bytes, starts) = file(&payloads);
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        let hit = starts.partition_point(|&start| start <= at) - 1;
        let mut left = payloads;
        left.remove(hit);
        prop_assert_eq!(read(&bytes), (left, Damage { frames: 1, torn: false }));
    }

    /// A file that ends early has all frames before the end.
    #[test]
    fn a_cut_costs_what_comes_after(payloads in payloads(), at in any::<prop::sample::Index>()) {
        let (mut bytes, starts) = file(&payloads);
        let at = at.index(bytes.len());
        bytes.truncate(at);
        // A frame is whole if the next one starts at the cut or before.
        let whole = starts[1..].partition_point(|&end| end <= at);
        let torn = starts[whole] < at;
        prop_assert_eq!(read(&bytes), (payloads[..whole].to_vec(), Damage { frames: 0, torn }));
    }

    /// Bytes between frames, and frames that are missing or repeated, cost no other frame.
    #[test]
    fn garbage_costs_nothing(
        payloads in payloads(),
        garbage in prop::collection::vec(any::<u8>(), 1..600),
        between in any::<prop::sample::Index>(),
        removed in any::<prop::sample::Index>(),
    ) {
        let (bytes, starts) = file(&payloads);
        let part = |i: usize| &bytes[starts[i]..*starts.get(i + 1).unwrap_or(&bytes.len())];
        let (between, removed) = (between.index(payloads.len()), removed.index(payloads.len()));
        let mut damaged = Vec::new();
        for i in 0..payloads.len() {
            if i == between {
                damaged.extend_from_slice(&garbage);
                damaged.extend_from_slice(if i > 0 { part(i - 1) } else { &[] });
                damaged.extend_from_slice(&garbage);
            }
            damaged.extend_from_slice(part(i));
        }
        let (read_back, damage) = read(&damaged);
        prop_assert_eq!(&read_back, &payloads);
        prop_assert!(damage.frames == 1 && !damage.torn);

        let mut without = bytes.clone();
        let end = *starts.get(removed + 1).unwrap_or(&bytes.len());
        without.drain(starts[removed]..end);
        let mut left = payloads;
        left.remove(removed);
        let frames = u64::from(removed < left.len());
        prop_assert_eq!(read(&without), (left, Damage { frames, torn: false }));
    }

    #[test]
    fn any_bytes_are_harmless(bytes in prop::collection::vec(any::<u8>(), 0..5_000)) {
        read(&bytes);
    }
}
