//! Checks of rule files, valid or not.

use std::sync::Arc;

use prost::Message;
use weir::limit::SECOND;
use weir::proto::envoy::extensions::common::ratelimit::v3::{
    RateLimitDescriptor, rate_limit_descriptor::Entry,
};
use weir::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use weir::rules::source::RuleFile;
use weir::rules::{Loaded, Options, Problem, Problems, Rule, RuleSet};
use weir::service::Sent;

use crate::bench::Bench;

/// The maximum number of rules of a set that get requests.
const MAX_RULES: usize = 16;

/// Compiles files and checks the result. Returns the problems for further checks.
pub fn check(files: Vec<RuleFile>, merge_domains: bool) -> Vec<Problem> {
    let options = Options { merge_domains, max_log_bytes: 1 << 20, max_problems: 10 };
    let loaded = Loaded::compile(files, Problems::new(10), &options, None);
    // Ten errors and ten warnings per file, and ten times that in total.
    let max = 20 * loaded.files.len().min(10);
    assert!(loaded.problems.len() <= max, "{} problems are listed", loaded.problems.len());
    for problem in &loaded.problems {
        let file = loaded.files.iter().find(|file| file.name == problem.file);
        check_position(problem, &file.expect("a problem names its file").text);
    }
    let text = loaded.render(loaded.problems.iter());
    assert_eq!(text.is_empty(), loaded.problems.is_empty());
    if !loaded.is_good() {
        return loaded.problems;
    }
    let rules = Arc::new(loaded.rules);
    let (again, _) = RuleSet::compile(&loaded.files, &options, Some(&rules));
    assert_eq!(rules.dump(), again.dump(), "the same files make the same rules");
    let bench = Bench::new(rules.clone(), true);
    let is_plain = rules.wildcards(1).is_empty();
    for rule in rules.rules().take(MAX_RULES) {
        check_found(&rules, rule, is_plain);
        send_requests(&bench, rule);
    }
    loaded.problems
}

/// Checks that the position of a problem is in its file: on one of its lines, or directly after its end.
pub fn check_position(problem: &Problem, text: &str) {
    assert!(!problem.message.is_empty() && !problem.help.is_empty(), "{problem:?}");
    let place = problem.place.unwrap_or_else(|| panic!("{problem} has no position"));
    // In YAML, a lone carriage return ends a line too.
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let lines: Vec<&str> = text.split('\n').collect();
    let line = lines.get((place.line as usize).wrapping_sub(1));
    let line = line.unwrap_or_else(|| panic!("{problem} is outside of the lines"));
    let columns = 1..=line.chars().count() + 1;
    assert!(columns.contains(&(place.column as usize)), "{problem} is outside of {line:?}");
}

/// Checks that a rule is found by its own entries.
fn check_found(rules: &RuleSet, rule: &Rule, is_plain: bool) {
    let domain = rules.domain(rule.domain()).expect("a rule's domain");
    // A rule without a value is named by its key alone; `a_b` can also be key `a` with value `b`.
    let named = |(key, value): (&'_ str, &'_ str)| match value.is_empty() {
        false => Some((key.to_owned(), value.to_owned())),
        true => key.split_once('_').map(|(key, value)| (key.to_owned(), value.to_owned())),
    };
    let mut is_sure = true;
    let entries: Vec<(String, String)> = rule
        .entries()
        .map(|entry| {
            named(entry).unwrap_or_else(|| {
                // Any value matches, unless it matches a wildcard or another rule.
                is_sure &= is_plain;
                (entry.0.to_owned(), "\u{1}no rule has this\u{2}".to_owned())
            })
        })
        .collect();
    let entries: Vec<(&str, &str)> = entries.iter().map(|(k, v)| (&**k, &**v)).collect();
    let found = domain.find(&entries);
    if is_sure {
        let found = found.unwrap_or_else(|| panic!("{} is not found by {entries:?}", rule.name));
        assert!(std::ptr::eq(found.rule, rule), "{} is found for {}", found.rule.name, rule.name);
    }
    assert_eq!(domain.shared_entries(&entries).len(), entries.len());
}

/// Sends all kinds of requests for a rule, at several times.
fn send_requests(bench: &Bench, rule: &Rule) {
    let entries = rule.entries().map(|(key, value)| Entry { key: key.into(), value: value.into() });
    let descriptor = RateLimitDescriptor { entries: entries.collect(), ..Default::default() };
    let with = |hits: Option<u64>, is_negative_hits| RateLimitDescriptor {
        hits_addend: hits,
        is_negative_hits,
        ..descriptor.clone()
    };
    let ask = |descriptor: RateLimitDescriptor| {
        let request = RateLimitRequest {
            domain: rule.domain().to_owned(),
            descriptors: vec![descriptor],
            hits_addend: 0,
        };
        let bytes = request.encode_to_vec();
        let sent = Sent::read(&bytes, 1).expect("a request");
        let response = bench.answer(&sent).expect("an answer");
        assert_eq!(response.statuses.len(), 1);
    };
    for ahead in [0, SECOND, 86_400 * SECOND, 200 * 365 * 86_400 * SECOND] {
        bench.clock.advance(ahead);
        for (hits, negative) in [(None, false), (Some(0), false), (Some(3), true)] {
            ask(with(hits, negative));
        }
        ask(with(Some(u64::MAX), false));
        ask(with(Some(u64::MAX), true));
        ask(with(Some(1), false));
    }
}
