//! Files of the disk store: never a panic. The frames of damaged bytes are read in one pass, what was
//! written is read back, and a damaged byte costs one frame.
//!
//! The input is a byte that says where to damage, and then the payloads, which are cut by `0xff 0xfe`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_store::conformance::records::are_kept;
use weir_store::disk::{Frame, FrameBuilder, FrameKind, FrameReader, MAX_FRAME_BYTES, Seal};

fuzz_target!(|input: &[u8]| {
    let Some((place, bytes)) = input.split_first() else { return };
    let seal = Seal::new(1, 2, 3);
    read_frames(bytes, seal);
    assert!(are_kept(bytes), "a record that is written is read back");

    let mut payloads: Vec<Vec<u8>> = vec![Vec::new()];
    for byte in bytes {
        match payloads.last_mut() {
            Some(last) if last.last() == Some(&0xff) && *byte == 0xfe => payloads.push(Vec::new()),
            Some(last) => last.push(*byte),
            None => {}
        }
    }
    let mut builder = FrameBuilder::new(seal, 5);
    let mut file = Vec::new();
    for payload in &payloads {
        builder.append(&payload[..payload.len().min(builder.room())]);
        file.extend_from_slice(builder.seal(FrameKind::Records));
        builder.clear();
    }
    assert_eq!(read_frames(&file, seal), payloads);
    assert!(read_frames(&file, Seal::new(1, 2, 4)).is_empty(), "frames of another file");

    let place = usize::from(*place) * file.len() / 256;
    file[place] ^= 1 << (place % 8);
    let read = read_frames(&file, seal);
    assert!(read.len() + 1 >= payloads.len(), "{} of {}", read.len(), payloads.len());
    assert!(read.iter().all(|payload| payloads.contains(payload)));
});

/// Reads the payloads of a file.
fn read_frames(file: &[u8], seal: Seal) -> Vec<Vec<u8>> {
    let mut reader = FrameReader::new(file, seal);
    let mut payloads = Vec::new();
    while let Ok(Some(Frame { payload, .. })) = reader.read() {
        assert!(payload.len() < MAX_FRAME_BYTES);
        payloads.push(payload.to_vec());
    }
    payloads
}
