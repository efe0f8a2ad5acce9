//! Rules from a management server: never a panic, and the YAML that is made of a message says what
//! the message says.

#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use prost::Message;
use weir::proto::ratelimit::config::ratelimit::v3::RateLimitConfig;
use weir::rules::{Loaded, Options, Problems, RuleSet, xds};
use weir_fuzz::{made, ruled, wire};

fuzz_target!(|bytes: &[u8]| {
    let Ok(config) = RateLimitConfig::decode(bytes) else { return };
    let Ok(file) = xds::rule_file(bytes.to_vec().into(), "") else { return };
    assert_eq!(file.name, config.name);
    let files = vec![file.clone()];
    let loaded = Loaded::compile(files, Problems::default(), &Options::default(), None);
    assert_eq!(xds::render_errors(&loaded).is_empty(), loaded.is_good());
    for problem in ruled::check(vec![file], false) {
        assert!(!problem.message.contains("yaml"), "no YAML was made of it: {problem}");
    }
    if loaded.is_good() {
        check_same(&config, &loaded.rules);
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    wire::mutate(data, size, max_size, seed, made::config)
});

/// Checks that the set has exactly the rules of the message.
fn check_same(config: &RateLimitConfig, rules: &RuleSet) {
    let mut wanted = Vec::new();
    let mut open: Vec<_> =
        config.descriptors.iter().rev().map(|descriptor| (vec![], descriptor)).collect();
    while let Some((mut path, descriptor)) = open.pop() {
        path.push((descriptor.key.as_str(), descriptor.value.as_str()));
        if descriptor.rate_limit.is_some() || !descriptor.rate_limits.is_empty() {
            wanted.push(path.clone());
        }
        open.extend(descriptor.descriptors.iter().rev().map(|below| (path.clone(), below)));
    }
    let compiled: Vec<Vec<_>> = rules.rules().map(|rule| rule.entries().collect()).collect();
    assert_eq!(compiled, wanted);
    assert!(rules.rules().all(|rule| rule.domain() == config.domain));
}
