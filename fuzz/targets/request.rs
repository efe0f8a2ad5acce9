//! What a client sends: never a panic, and one status for each descriptor.

#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use prost::Message;
use weir::limit::SECOND;
use weir::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use weir::rules::source::RuleFile;
use weir::rules::{Options, RuleSet};
use weir_fuzz::bench::Bench;
use weir_fuzz::{made, wire};

/// Every algorithm, by itself and together with others.
static RULES: LazyLock<Arc<RuleSet>> = LazyLock::new(|| {
    let files = [include_str!("request/each.yaml"), include_str!("request/together.yaml")];
    let files = files.map(|text| RuleFile { name: "rules".into(), text: text.into() });
    let (rules, problems) = RuleSet::compile(&files, &Options::default(), None);
    assert_eq!(problems, []);
    Arc::new(rules)
});

fuzz_target!(|bytes: &[u8]| {
    let Ok(request) = RateLimitRequest::decode(bytes) else { return };
    let bench = Bench::new(RULES.clone());
    for ahead in [0, 0, SECOND, 3_600 * SECOND, 40 * 365 * 86_400 * SECOND] {
        bench.clock.advance(ahead);
        let Ok(response) = bench.answer(&request) else { continue };
        assert_eq!(response.statuses.len(), request.descriptors.len());
        let encoded = response.encode_to_vec();
        assert_eq!(RateLimitResponse::decode(&*encoded).as_ref(), Ok(&response));
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    wire::mutate(data, size, max_size, seed, made::request)
});
