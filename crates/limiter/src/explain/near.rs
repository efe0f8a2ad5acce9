//! Near misses in words: what a descriptor was probably meant to match.

use super::Near;
use weir_common::descriptor::descriptor_text;
use weir_common::entry::Entry;
use weir_rules::NearMiss;

/// Returns a near miss in words.
pub(super) fn describe(near: NearMiss<'_>, domain: &str, entries: &[Entry<'_>]) -> Near {
    let entry = |at: usize| descriptor_text(&[entries[at]]);
    let list = |order: &[usize]| order.iter().map(|&at| entry(at)).collect::<Vec<_>>().join(",");
    let (kind, message) = match near {
        NearMiss::Domain(near) => {
            let near = near.map(|near| format!(": did you mean '{near}'?")).unwrap_or_default();
            ("domain", format!("there are no rules for the domain '{domain}'{near}"))
        }
        NearMiss::Exempt(end) => (
            "exempt",
            format!("'{}' ({}) has no limit: this descriptor is exempt", end.text, end.origin),
        ),
        NearMiss::MoreEntries(end) => {
            let next: Vec<String> =
                end.below.texts().take(3).map(|(text, _)| format!("'{text}'")).collect();
            let (text, origin, next) = (end.text, end.origin, next.join(", "));
            ("depth", format!("the rules below '{text}' ({origin}) need one more entry: {next}"))
        }
        NearMiss::FewerEntries(at, end) => (
            "depth",
            format!(
                "'{}' ({}) has no rules below it: the descriptor has {} too many",
                end.text,
                end.origin,
                counted(entries.len() - at - 1, "entry", "entries")
            ),
        ),
        NearMiss::Reserve(at, rule, key) => (
            "key",
            format!(
                "after the entries of '{}' ({}), which reserves hits, comes one with the key '{key}', not \
                 '{}'",
                rule.path(),
                rule.origin,
                entries[at].0
            ),
        ),
        NearMiss::Key(at, near) => {
            let near = near.map(|near| format!(": did you mean '{near}'?")).unwrap_or_default();
            let place = if at == 0 { "the first level" } else { "this level" };
            ("key", format!("no rule on {place} has the key '{}'{near}", entries[at].0))
        }
        NearMiss::Value(at, near) => {
            let near = near.map(|near| format!(": did you mean '{near}'?")).unwrap_or_default();
            let (key, value) = entries[at];
            ("value", format!("rules have the key '{key}', but not the value '{value}'{near}"))
        }
        NearMiss::Order(order, rule) => {
            ("order", format!("in another order it matches '{}': {}", rule.path(), list(&order)))
        }
        NearMiss::Subset(order, rule) => {
            ("depth", format!("with fewer entries it matches '{}': {}", rule.path(), list(&order)))
        }
        NearMiss::NotTried(at, candidate, rule) => {
            let (text, origin, entry) = (candidate.text, candidate.origin, entry(at));
            let leads = match rule.path() == text {
                true => String::new(),
                false => format!(" and leads to '{}'", rule.path()),
            };
            let message = format!(
                "'{text}' ({origin}) matches {entry} too{leads}, but only the first match counts"
            );
            ("first_match", message)
        }
        NearMiss::OtherDomain(rule) => (
            "domain",
            format!(
                "in the domain '{}' it matches '{}' ({})",
                rule.domain(),
                rule.path(),
                rule.origin
            ),
        ),
    };
    Near { kind: kind.to_owned(), message }
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
