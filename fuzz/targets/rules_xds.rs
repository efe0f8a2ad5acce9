//! Rules from a management server: never a panic, and the compiled rules are those of the message.

#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use prost::Message;
use weir_fuzz::{made, ruled, wire};
use weir_rules::proto::RateLimitConfig;
use weir_rules::{Loaded, Problems, RuleOptions, RuleSet, xds};

fuzz_target!(|bytes: &[u8]| {
    let Ok(config) = RateLimitConfig::decode(bytes) else { return };
    let Ok(resource) = xds::Resource::decode(bytes.to_vec().into(), "") else { return };
    assert_eq!(resource.name, config.name);
    let files = vec![resource.clone()];
    let loaded = Loaded::compile(files, Problems::new(100), &RuleOptions::default(), None);
    assert_eq!(loaded.render_errors().is_empty(), loaded.is_good());
    ruled::check(vec![resource], false, |problem, _| {
        let position = problem.position.unwrap_or_else(|| panic!("{problem} has no position"));
        assert_eq!(position.line(), None, "{problem} is in no field");
    });
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
