//! `weir check --envoy`: reports items of Envoy's `rate_limits` that charge a request wrongly: twice, not at all, or at
//! the end of the response (`apply_on_stream_done`) another key than the one that was checked at the start.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};

use super::actions::written_entry;
use super::findings::Findings;
use super::nodes::{get, is_true, list, path, text};
use weir_rules::tree::Node;

/// The constant that an action sends as a value, and its `expect_match`; none if the value depends on the request.
type Value = Option<(String, bool)>;

/// How an entry that Envoy sends at the end of a response differs from the one at the start of the request.
#[derive(Clone, Copy)]
enum Mismatch {
    /// The entry is a constant at the end, and depends on the request at the start.
    Constant,
    /// `expect_match` differs: the entry is sent at the end where it is not sent at the start.
    Inverted,
}

/// Reports items at the end whose entries have the keys of an item at the start, but never the same values.
pub(super) fn check(items: &[Node<'_>], findings: &mut Findings) {
    let (ends, starts): (Vec<_>, Vec<_>) =
        items.iter().partition(|item| is_true(item, "apply_on_stream_done"));
    if ends.is_empty() {
        return;
    }
    let mut asked: HashMap<Vec<String>, Vec<(&Node<'_>, Vec<Value>)>> = HashMap::new();
    for start in starts {
        if let Some((keys, values)) = entries(start) {
            asked.entry(keys).or_default().push((start, values));
        }
    }
    for end in ends {
        let Some((keys, charged)) = entries(end) else { continue };
        let starts = asked.get(&keys).map_or(&[][..], Vec::as_slice);
        if !findings.spend(end.position, starts.len().saturating_mul(keys.len())) {
            return;
        }
        let related = starts.iter().filter(|(_, asked)| may_be_one_rule(asked, &charged));
        let differences: Option<Vec<_>> = related
            .map(|(start, asked)| Some((*start, first_difference(asked, &charged)?)))
            .collect();
        // No start has the same values.
        if let Some(&(start, (index, difference))) = differences.iter().flatten().next() {
            // An item that settles another reservation is an error already.
            if findings.has_error(&findings.origin(end.position)) {
                continue;
            }
            let actions = (list(end, "actions").get(index), list(start, "actions").get(index));
            if let (Some(action), Some(asked)) = actions {
                report(action, asked, difference, findings);
            }
        }
    }
}

/// Reports an item that charges what another one of a request charges at the same time.
pub(super) fn check_twice(
    domain: &str,
    item: &Node<'_>,
    charged: &mut HashSet<u64>,
    findings: &mut Findings,
) {
    let is_look = path(item, &["hits_addend", "number"]).and_then(Node::text) == Some("0");
    let varies = ["limit", "disable_key"].iter().any(|field| get(item, field).is_some());
    // The TCP filter has entries.
    let sent = get(item, "actions").or_else(|| get(item, "entries"));
    let charge = (domain, is_true(item, "apply_on_stream_done"), sent);
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(charge);
    if !is_look && !varies && !charged.insert(hash) {
        let message = "this descriptor is sent twice, so each request is charged twice";
        let help = "remove one of the two items, or of two filters with the same domain and stage";
        findings.add_once(item.position, message, "", help);
    }
}

/// Reports an item at the start of requests whose `hits_addend` may have no number.
pub(super) fn check_hits(item: &Node<'_>, findings: &mut Findings) {
    let Some(hits) = path(item, &["hits_addend", "format"]) else { return };
    // An expression can have a default. What takes another argument may be absent.
    let may_be_absent = |format: &str| format.contains('(') && !format.starts_with("%CEL(");
    if hits.text().is_some_and(may_be_absent) && !is_true(item, "apply_on_stream_done") {
        let message = "Envoy ignores this item where `hits_addend` has no number, and does not ask weir if no \
                       other item is left";
        let help = "write an expression with a default: `%CEL('x-cost' in request.headers ? \
                    request.headers['x-cost'] : '1')%`";
        findings.add_once(hits.position, message, "", help);
    }
}

/// The keys and values of an item; none if an action of it is not known.
fn entries(item: &Node<'_>) -> Option<(Vec<String>, Vec<Value>)> {
    let entry = |action: &Node<'_>| {
        let (key, value) = written_entry(action)?;
        Some((key, value.map(|value| (value, expects_match(action)))))
    };
    list(item, "actions").iter().map(entry).collect()
}

pub(super) fn expects_match(action: &Node<'_>) -> bool {
    let matches = ["header_value_match", "query_parameter_value_match"];
    let matches = matches.into_iter().find_map(|name| get(action, name));
    matches.is_none_or(|matches| text(matches, "expect_match") != "false")
}

fn may_be_one_rule(asked: &[Value], charged: &[Value]) -> bool {
    asked.iter().zip(charged).all(|values| match values {
        (Some((asked, _)), Some((charged, _))) => asked == charged,
        _ => true,
    })
}

fn first_difference(asked: &[Value], charged: &[Value]) -> Option<(usize, Mismatch)> {
    let difference = |values: (&Value, &Value)| match values {
        (None, Some(_)) => Some(Mismatch::Constant),
        (Some((_, asked)), Some((_, charged))) if asked != charged => Some(Mismatch::Inverted),
        _ => None,
    };
    let mut differences = asked.iter().zip(charged).map(difference).enumerate();
    differences.find_map(|(index, difference)| Some((index, difference?)))
}

/// Reports an action that differs from the one at the start of requests.
fn report(action: &Node<'_>, asked: &Node<'_>, difference: Mismatch, findings: &mut Findings) {
    let key = written_entry(action).map(|(key, _)| key).unwrap_or_default();
    let place = findings.origin(asked.position);
    let message = match difference {
        Mismatch::Constant => format!(
            "this charges another key than requests ask about: '{key}' is a constant here, but at their start \
             a value of the request ({place})"
        ),
        Mismatch::Inverted => format!(
            "this charges other requests than those that ask: `expect_match` of '{key}' is the opposite at their \
             start ({place})"
        ),
    };
    let help = "write the action of the start here too. Envoy AI Gateway generates this for bucket rules of \
                a QuotaPolicy (envoyproxy/ai-gateway#2551): examples/envoy-ai-gateway/quota.md shows other ways";
    findings.add(action.position, message, "", help);
}
