//! What holds of rule files, good or bad.

use std::sync::Arc;

use prost::Message;
use weir::proto::envoy::extensions::common::ratelimit::v3::{
    RateLimitDescriptor, rate_limit_descriptor::Entry,
};
use weir::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use weir::rls::service::{Descriptors, RequestView};
use weir_limit::SECOND;
use weir_rules::source::RuleFile;
use weir_rules::{Document, Loaded, Overlay, Problem, Problems, Rule, RuleOptions, RuleSet};

use crate::bench::Bench;

/// How many rules of a set are asked for.
const ASKED: usize = 16;

/// Compiles files or resources and checks the result. `is_in` checks the position of a problem.
pub fn check<D: Document>(files: Vec<D>, merge_domains: bool, is_in: fn(&Problem, &D)) {
    let options = RuleOptions {
        merge_domains,
        max_log_bytes: 1 << 20,
        max_problems: 10,
        ..RuleOptions::default()
    };
    let loaded = Loaded::compile(files, Problems::new(10), &options, None);
    // Ten errors and ten warnings of a file, and ten times as many of all.
    let most = 20 * loaded.files.len().min(10);
    assert!(loaded.problems.len() <= most, "{} problems are listed", loaded.problems.len());
    for problem in &loaded.problems {
        let file = loaded.files.iter().find(|file| file.name() == problem.file);
        is_in(problem, file.expect("a problem names its file"));
    }
    let problems: Vec<&Problem> = loaded.problems.iter().collect();
    assert_eq!(D::locate(&loaded.files, &problems).len(), problems.len());
    if !loaded.is_good() {
        return;
    }
    let rules = Arc::new(loaded.rules);
    let (again, _) = RuleSet::compile(&loaded.files, &options, Some(&rules));
    assert_eq!(rules.dump(), again.dump(), "the same files make the same rules");
    let bench = Bench::new(rules.clone(), true);
    let is_plain = !rules.to_yaml().contains('*');
    for rule in rules.rules().take(ASKED) {
        finds(&rules, rule, is_plain);
        asks(&bench, rule);
    }
}

/// Checks an overlay on files: it makes no good rules bad, and each of its problems has its place.
pub fn check_overlay(files: &[RuleFile], merge_domains: bool, text: &str) {
    let options = RuleOptions {
        merge_domains,
        max_log_bytes: 1 << 20,
        max_problems: 10,
        ..RuleOptions::default()
    };
    let file = RuleFile { name: "overlay".to_owned(), text: text.to_owned() };
    let overlay = match Overlay::new(vec![file], Vec::new(), &options) {
        Ok(overlay) => overlay,
        Err(error) => {
            assert!(!error.problems.is_empty() && !error.render().is_empty());
            return error.problems.iter().for_each(|problem| is_in_text(problem, text));
        }
    };
    let compile = |overlay| {
        let options = RuleOptions { overlay, ..options.clone() };
        Loaded::compile(files.to_vec(), Problems::new(10), &options, None)
    };
    let (plain, patched) = (compile(None), compile(Some(overlay)));
    assert_eq!(plain.problems, patched.problems);
    patched.overlay.problems.iter().for_each(|problem| is_in_text(problem, text));
    if plain.is_good() {
        // A patch may only remove rules, by `rate_limit: null`.
        let (plain, patched) = (plain.rules.rules().count(), patched.rules.rules().count());
        assert!(patched <= plain, "{patched} of {plain} rules");
    }
}

/// A problem's position is in its file.
pub fn is_in_file(problem: &Problem, file: &RuleFile) {
    is_in_text(problem, &file.text);
}

/// A problem's position is in a text: on one of its lines, or right after its end.
pub fn is_in_text(problem: &Problem, text: &str) {
    assert!(!problem.message.is_empty() && !problem.help.is_empty(), "{problem:?}");
    let position = problem.position.unwrap_or_else(|| panic!("{problem} has no position"));
    let (line, column) = position.line().zip(position.column()).expect("a position in a text");
    // As YAML has it, a carriage return alone ends a line too.
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let lines: Vec<&str> = text.split('\n').collect();
    let line = lines.get((line as usize).wrapping_sub(1));
    let line = line.unwrap_or_else(|| panic!("{problem} is in no line"));
    let columns = 1..=line.chars().count() + 1;
    assert!(columns.contains(&(column as usize)), "{problem} is in no column of {line:?}");
}

/// A rule is found by its own entries.
fn finds(rules: &RuleSet, rule: &Rule, is_plain: bool) {
    let domain = rules.domain(rule.domain()).expect("a rule's domain");
    // A rule without a value is named by its key alone, and `a_b` is key `a` with value `b`.
    let named = |(key, value): (&'_ str, &'_ str)| match value.is_empty() {
        false => Some((key.to_owned(), value.to_owned())),
        true => key.split_once('_').map(|(key, value)| (key.to_owned(), value.to_owned())),
    };
    let mut is_sure = true;
    let entries: Vec<(String, String)> = rule
        .entries()
        .map(|entry| {
            named(entry).unwrap_or_else(|| {
                // Any value does, unless a wildcard or another rule has it.
                is_sure &= is_plain;
                (entry.0.to_owned(), "\u{1}no rule has this\u{2}".to_owned())
            })
        })
        .collect();
    // An entry after those of a rule that reserves may be its id.
    let own: Vec<_> = rule.entries().collect();
    let is_above = |other: &Rule| {
        let above: Vec<_> = other.entries().collect();
        other.domain() == rule.domain() && own.len() > above.len() && own.starts_with(&above)
    };
    is_sure &= !rules.rules().any(|other| other.reserve.is_some() && is_above(other));
    let entries: Vec<(&str, &str)> = entries.iter().map(|(k, v)| (&**k, &**v)).collect();
    let found = domain.find(&entries);
    if is_sure {
        let found = found.unwrap_or_else(|| panic!("{} is not found by {entries:?}", rule.name));
        assert!(std::ptr::eq(found.rule, rule), "{} is found for {}", found.rule.name, rule.name);
    }
    assert!(domain.key_values(&entries).iter().all(|(i, _)| *i < entries.len()));
}

/// Asks for a rule in all ways, at several times.
fn asks(bench: &Bench, rule: &Rule) {
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
        let (bytes, mut texts) = (request.encode_to_vec(), Vec::new());
        let (mut view, mut descriptors) = (RequestView::default(), Descriptors::new());
        let sent = view.decode(&bytes, 1, &mut texts, &mut descriptors).expect("a request");
        let response = bench.answer(sent.request).expect("an answer");
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
