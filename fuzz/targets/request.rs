//! Requests: no panics; weir's decoder accepts what prost accepts, and prost decodes what weir encodes.

#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use prost::Message;
use weir::limit::SECOND;
use weir::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use weir::rules::source::RuleFile;
use weir::rules::{Options, RuleSet};
use weir::service::Sent;
use weir_fuzz::bench::Bench;
use weir_fuzz::{made, wire};

/// All algorithms, alone and combined.
static RULES: LazyLock<Arc<RuleSet>> = LazyLock::new(|| {
    let files = [include_str!("request/each.yaml"), include_str!("request/together.yaml")];
    let files = files.map(|text| RuleFile { name: "rules".into(), text: text.into() });
    let (rules, problems) = RuleSet::compile(&files, &Options::default(), None);
    assert_eq!(problems, []);
    Arc::new(rules)
});

fuzz_target!(|bytes: &[u8]| {
    let read = Sent::read(bytes, usize::MAX);
    let request = RateLimitRequest::decode(bytes);
    let (sent, request) = match (&read, request) {
        (Ok(sent), Ok(request)) => (sent, request),
        (Err(_), Err(_)) => return,
        (Ok(_), Err(error)) => panic!("prost refuses it: {error}"),
        (Err(error), Ok(request)) => panic!("prost accepts it, but: {error}: {request:?}"),
    };
    check_same(sent, &request);
    check_responses(sent, &request);
    // The same request, encoded by prost.
    let written = request.encode_to_vec();
    check_same(&Sent::read(&written, usize::MAX).expect("an encoding of prost"), &request);
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    wire::mutate(data, size, max_size, seed, made::request)
});

/// Compares the results of the two decoders.
fn check_same(sent: &Sent<'_>, request: &RateLimitRequest) {
    let descriptors = sent.descriptors();
    let read = sent.request(&descriptors);
    assert_eq!((read.domain, read.hits_addend), (&*request.domain, request.hits_addend));
    assert_eq!(read.descriptors.len(), request.descriptors.len());
    for (read, wanted) in read.descriptors.iter().zip(&request.descriptors) {
        let entries: Vec<_> = wanted.entries.iter().map(|it| (&*it.key, &*it.value)).collect();
        assert_eq!(read.entries, entries);
        assert_eq!(read.hits_addend, wanted.hits_addend);
        assert_eq!(read.is_negative_hits, wanted.is_negative_hits);
        assert_eq!(
            read.limit.map(|it| (it.requests_per_unit, it.unit, it.unit_multiplier)),
            wanted.limit.map(|it| (it.requests_per_unit, it.unit, it.unit_multiplier)),
        );
    }
}

/// Compares the responses of two services to the same requests, one as a message and one as bytes.
fn check_responses(sent: &Sent<'_>, request: &RateLimitRequest) {
    for more in [false, true] {
        let [one, other] = [(); 2].map(|()| Bench::new(RULES.clone(), more));
        for ahead in [0, 0, SECOND, 3_600 * SECOND, 40 * 365 * 86_400 * SECOND] {
            one.clock.advance(ahead);
            other.clock.advance(ahead);
            let (response, framed) = match (one.answer(sent), other.answer_framed(sent)) {
                (Ok(response), Ok(framed)) => (response, framed),
                (response, framed) => {
                    assert_eq!(response.err(), framed.err());
                    continue;
                }
            };
            assert_eq!(response.statuses.len(), request.descriptors.len());
            let (prefix, message) = framed.split_at(5);
            let length = (message.len() as u32).to_be_bytes();
            assert_eq!(prefix, [&[0], &length[..]].concat());
            assert_eq!(RateLimitResponse::decode(message), Ok(response));
        }
    }
}
