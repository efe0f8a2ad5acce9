//! What a client sends: never a panic; weir's own reader takes what prost takes, and its own writer
//! writes what prost reads.

#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use prost::Message;
use weir::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use weir::rls::service::{Descriptors, RequestView};
use weir_common::value;
use weir_fuzz::bench::Bench;
use weir_fuzz::{made, wire};
use weir_limit::SECOND;
use weir_limiter::Request;
use weir_rules::source::RuleFile;
use weir_rules::{RuleOptions, RuleSet};

/// Every algorithm, by itself and together with others.
static RULES: LazyLock<Arc<RuleSet>> = LazyLock::new(|| {
    let files = [include_str!("request/each.yaml"), include_str!("request/together.yaml")];
    let files = files.map(|text| RuleFile { name: "rules".into(), text: text.into() });
    let (rules, problems) = RuleSet::compile(&files, &RuleOptions::default(), None);
    assert_eq!(problems, []);
    Arc::new(rules)
});

fuzz_target!(|bytes: &[u8]| {
    let (mut texts, mut view) = (Vec::new(), RequestView::default());
    let mut descriptors = Descriptors::new();
    let read = view.decode(bytes, usize::MAX, &mut texts, &mut descriptors);
    let request = RateLimitRequest::decode(bytes);
    let (sent, request) = match (read, request) {
        (Ok(read), Ok(request)) => (read.request, request),
        (Err(_), Err(_)) => return,
        (Ok(read), Err(error)) => {
            return assert!(has_bytes(read.request), "prost refuses it: {error}");
        }
        (Err(error), Ok(request)) => panic!("prost takes it, {error}: {request:?}"),
    };
    assert_same(sent, &request);
    answers(sent, &request);
    // What prost writes of it is the same request.
    let (written, mut texts) = (request.encode_to_vec(), Vec::new());
    let (mut view, mut descriptors) = (RequestView::default(), Descriptors::new());
    let read = view.decode(&written, usize::MAX, &mut texts, &mut descriptors);
    assert_same(read.expect("what prost writes").request, &request);
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    wire::mutate(data, size, max_size, seed, made::request)
});

/// Returns whether a value is not UTF-8, which prost does not read.
fn has_bytes(sent: Request<'_>) -> bool {
    let entries = sent.descriptors.iter().flat_map(|it| it.entries);
    entries.into_iter().any(|(_, value)| value::is_encoded(value))
}

/// Checks that both readers read the same.
fn assert_same(read: Request<'_>, request: &RateLimitRequest) {
    assert_eq!((read.domain, read.hits_addend), (&*request.domain, request.hits_addend));
    assert_eq!(read.descriptors.len(), request.descriptors.len());
    for (read, wanted) in read.descriptors.iter().zip(&request.descriptors) {
        assert_eq!(read.entries.len(), wanted.entries.len());
        for ((key, text), wanted) in read.entries.iter().zip(&wanted.entries) {
            assert_eq!((*key, &**text), (&*wanted.key, &*value::encode(wanted.value.as_bytes())));
        }
        assert_eq!(read.hits_addend, wanted.hits_addend);
        assert_eq!(read.is_negative_hits, wanted.is_negative_hits);
        assert_eq!(
            read.limit.map(|it| (it.requests_per_unit, it.unit, it.unit_multiplier)),
            wanted.limit.map(|it| (it.requests_per_unit, it.unit, it.unit_multiplier)),
        );
    }
}

/// Two services that were asked the same answer the same, one with a message and one with its
/// bytes.
fn answers(sent: Request<'_>, request: &RateLimitRequest) {
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
