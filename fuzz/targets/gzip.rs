//! A request that is compressed: never a panic; inflated in slices it is what flate2 inflates at once, within the limit.

#![no_main]

use std::io::Read;

use bytes::Bytes;
use flate2::bufread::GzDecoder;
use libfuzzer_sys::fuzz_target;
use weir::rls::grpc::Inflater;
use weir::rls::service::PREFIX_BYTES;

const MAX_MESSAGE: usize = 100_000;

fuzz_target!(|compressed: &[u8]| {
    let prefix = [&[1], &(compressed.len() as u32).to_be_bytes()[..]].concat();
    let message = Bytes::from([&prefix[..], compressed].concat());
    let mut inflater = Inflater::new(message, MAX_MESSAGE).expect("one message");
    // 16 KiB of output, or one KiB of input, each.
    let most = MAX_MESSAGE / (12 << 10) + compressed.len() / (1 << 10) + 3;
    let inflated = (0..most).find_map(|_| inflater.next_slice().transpose());
    match (inflated.expect("an end"), at_once(compressed)) {
        (Ok(inflated), Some(expected)) => {
            assert_eq!(&inflated[PREFIX_BYTES..], expected);
            assert_eq!(inflated[..PREFIX_BYTES], prefix_of(&expected));
        }
        (Err(_), None) => {}
        (inflated, expected) => panic!("{inflated:?} instead of {expected:?}"),
    }
});

/// Returns what flate2 makes of it; none if it is invalid, too large, or not all is used.
fn at_once(mut compressed: &[u8]) -> Option<Vec<u8>> {
    let mut inflated = Vec::new();
    let decoder = GzDecoder::new(&mut compressed);
    decoder.take(MAX_MESSAGE as u64 + 1).read_to_end(&mut inflated).ok()?;
    (inflated.len() <= MAX_MESSAGE && compressed.is_empty()).then_some(inflated)
}

fn prefix_of(message: &[u8]) -> [u8; PREFIX_BYTES] {
    let [a, b, c, d] = (message.len() as u32).to_be_bytes();
    [0, a, b, c, d]
}
