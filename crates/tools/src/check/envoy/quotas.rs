//! Envoy's filter for quotas: which buckets it has, what it does without an assignment, and which rules its buckets match.

use std::collections::BTreeSet;
use std::time::Duration;

use super::actions::{SentEntry, Values};
use super::ends::orders;
use super::filter::Sent;
use super::findings::Findings;
use super::nodes::{get, has_type, path, text, walk};
use weir_common::duration::read_duration;
use weir_rules::tree::{Content, Node};
use weir_rules::{Candidate, Level, Origin, Problem, Rule};

pub(super) const FILTER_TYPE: &str = "filters.http.rate_limit_quota.v3.RateLimitQuotaFilterConfig";
pub(super) const OVERRIDE_TYPE: &str = "filters.http.rate_limit_quota.v3.RateLimitQuotaOverride";
const SETTINGS_TYPE: &str = "filters.http.rate_limit_quota.v3.RateLimitQuotaBucketSettings";

/// How often Envoy 1.40 reports what buckets have used.
const REPORTING_INTERVAL: Duration = Duration::from_secs(5);

/// Checks the buckets of a filter or of an override, and adds their ids. Returns whether their domain is known.
pub(super) fn read(
    config: &Node<'_>,
    filter_domains: &BTreeSet<&str>,
    findings: &mut Findings,
    sent: &mut Vec<Sent>,
) -> bool {
    let domain = match text(config, "domain") {
        // The filter of an override may be in another file.
        "" if filter_domains.len() != 1 => return false,
        "" => filter_domains.first().copied().unwrap_or_default(),
        domain => domain,
    };
    let Some(matchers) = get(config, "bucket_matchers") else { return true };
    walk(matchers, &mut |settings, _| {
        if !has_type(settings, SETTINGS_TYPE) {
            return;
        }
        check_settings(settings, findings);
        let entries = entries(settings);
        // Without an id, Envoy decides alone.
        if !entries.is_empty() {
            let origin = findings.origin(settings.position);
            sent.push(Sent { is_quota: true, ..Sent::new(domain, entries, origin) });
        }
    });
    true
}

fn entries(settings: &Node<'_>) -> Vec<SentEntry> {
    let builder = path(settings, &["bucket_id_builder", "bucket_id_builder"]);
    let Some(Content::Map(entries)) = builder.map(Node::content) else { return Vec::new() };
    let entry = |(key, value): &(Node<'_>, Node<'_>)| {
        let values = match get(value, "string_value").and_then(Node::text) {
            Some(value) => Values::OneOf(vec![value.to_owned()]),
            None => Values::Any,
        };
        (key.text().unwrap_or_default().to_owned(), values)
    };
    entries.iter().map(entry).collect()
}

/// Reports settings of a bucket that Envoy ignores, or with which hits pass uncounted.
fn check_settings(settings: &Node<'_>, findings: &mut Findings) {
    if let Some(interval) = get(settings, "reporting_interval")
        && interval.text().and_then(read_duration) != Some(REPORTING_INTERVAL)
    {
        let message = "Envoy 1.40 ignores `reporting_interval`: it reports every 5 s".to_owned();
        findings.add(interval.position, message, &interval.shown(), "write `5s`");
    }
    if let Some(fallback) = path(settings, &["no_assignment_behavior", "fallback_rate_limit"]) {
        if get(fallback, "blanket_rule").is_none() {
            let message = "Envoy ignores a fallback without `blanket_rule`".to_owned();
            findings.add_error(fallback.position, message, "write `blanket_rule: DENY_ALL`");
        }
        check_fallback(fallback, "until the first assignment", findings);
    } else if !entries(settings).is_empty() {
        let message = "without a fallback in `no_assignment_behavior`, all requests pass until the first assignment, \
                       and are charged only afterwards";
        let help = "write `no_assignment_behavior: { fallback_rate_limit: { blanket_rule: DENY_ALL } }`, if no limit \
                    may be exceeded";
        findings.add(settings.position, message.to_owned(), "", help);
    }
    let Some(expired) = get(settings, "expired_assignment_behavior") else { return };
    if get(expired, "expired_assignment_behavior_timeout").is_none() {
        let message = "`expired_assignment_behavior` without `expired_assignment_behavior_timeout`"
            .to_owned();
        let help = "write how long it applies, such as `expired_assignment_behavior_timeout: 60s`";
        findings.add(expired.position, message, "", help);
    }
    if let Some(reuse) = get(expired, "reuse_last_assignment") {
        let message = "Envoy 1.40 ignores `reuse_last_assignment`".to_owned();
        let help = "write `fallback_rate_limit: { blanket_rule: DENY_ALL }`";
        findings.add(reuse.position, message, "", help);
    }
    if let Some(fallback) = get(expired, "fallback_rate_limit") {
        if let Some(rate) = get(fallback, "requests_per_time_unit") {
            let message = "Envoy 1.40 ignores `requests_per_time_unit` here".to_owned();
            findings.add(rate.position, message, "", "write `blanket_rule: DENY_ALL`");
        }
        if let Some(bucket) = get(fallback, "token_bucket") {
            let message = "requests that `token_bucket` admits are charged only once weir is back, beside \
                           what others use";
            let help = "write `blanket_rule: DENY_ALL`, if no limit may be exceeded";
            findings.add(bucket.position, message.to_owned(), "", help);
        }
        check_fallback(fallback, "after an assignment has expired", findings);
    }
}

fn check_fallback(fallback: &Node<'_>, when: &str, findings: &mut Findings) {
    if let Some(rule) = get(fallback, "blanket_rule")
        && matches!(rule.text(), Some("ALLOW_ALL" | "0"))
    {
        let message = format!("all requests pass {when}, and are charged only afterwards");
        let help = "write `DENY_ALL`, if no limit may be exceeded";
        findings.add(rule.position, message, &rule.shown(), help);
    }
}

/// The descriptors with the rules that a bucket may match; none if that takes too long. Reports rules that cannot be
/// quotas, and buckets that two of them match.
pub(super) fn ends<'s>(
    level: Level<'s>,
    sent: &Sent,
    findings: &mut Findings,
) -> Option<Vec<Candidate<'s>>> {
    let (entries, position) = (sent.entries.iter().collect::<Vec<_>>(), sent.origin.position);
    let orders = orders(&[level], &entries, position, findings)?;
    let sizes = orders.iter().map(Vec::len).fold(0, usize::saturating_add);
    if orders.len() > 1 && !findings.spend(position, sizes.saturating_mul(sizes)) {
        return None;
    }
    if let Some((first, second)) = ambiguous(&orders) {
        let message = format!(
            "this quota bucket may match two rules, in two orders of its entries: '{}' ({}) and '{}' ({})",
            first.path(),
            first.origin,
            second.path(),
            second.origin
        );
        let help = "remove one of them, or rename a key of the bucket: its entries have no order";
        report(&sent.origin, message, help, findings);
    }
    let mut rules = orders.iter().flatten().filter_map(|end| end.rule);
    let cannot_grant = |rule: &&Rule| {
        // In shadow mode nothing is granted: all requests pass, and are charged afterwards.
        let is_shadow = rule.shadow_mode && rule.reserve.is_none();
        !is_shadow && rule.plan.as_ref().is_some_and(|plan| !plan.can_grant())
    };
    if let Some(rule) = rules.find(cannot_grant) {
        let (path, origin) = (rule.path(), &rule.origin);
        let message =
            format!("this quota bucket may match '{path}' ({origin}), which cannot be a quota");
        let help = "a quota needs fixed_window, sliding_window or bucketed_window with windows of at least 30 s, \
                    without `ban`, `reserve`, `lease: false`, `charge: together`, and `charge_denied` or \
                    `shadow_mode` in `rate_limits`";
        report(&sent.origin, message, help, findings);
    }
    Some(orders.into_iter().flatten().collect())
}

/// Returns two rules that the same values may match, each in another order of the entries.
fn ambiguous<'s>(orders: &[Vec<Candidate<'s>>]) -> Option<(&'s Rule, &'s Rule)> {
    let rules =
        |order: &[Candidate<'s>]| order.iter().filter_map(|end| end.rule).collect::<Vec<_>>();
    for (i, order) in orders.iter().enumerate() {
        for first in rules(order) {
            let mut others = orders[i + 1..].iter().flat_map(|other| rules(other));
            if let Some(second) = others.find(|other| may_share_values(first, other)) {
                return Some((first, second));
            }
        }
    }
    None
}

fn may_share_values(first: &Rule, second: &Rule) -> bool {
    let is_any =
        |value: &str| value.is_empty() || value.starts_with('@') || value.contains(['*', '/']);
    first.entries().all(|(key, value)| {
        let mut others = second.entries().filter(|(other, _)| *other == key);
        others.all(|(_, other)| other == value || is_any(value) || is_any(other))
    })
}

fn report(origin: &Origin, message: String, help: &str, findings: &mut Findings) {
    findings.problems.push(Problem::of_file(&origin.file, message, help).at(origin.position));
}
