//! `weir check --envoy`: reports items of Envoy's `rate_limits` whose reservations are never settled.
//!
//! A rule with `reserve` needs two items. The start reserves estimated hits when the request arrives. The end has
//! `apply_on_stream_done`, and settles them (charges the real number) when the response ends. For the items of a route,
//! this file reports an end that Envoy sends at the start, and an end with other entries than its start. `id.rs` checks
//! the entry that identifies the reservation.

pub(super) mod id;

use std::collections::{BTreeMap, HashMap};

use self::id::ItemPlace;
use super::actions::{Values, descriptors, written_entry};
use super::charges::expects_match;
use super::ends::ends;
use super::filter::EnvoyConfig;
use super::findings::Findings;
use super::nodes::{get, is_true, list, text};
use weir_rules::tree::Node;
use weir_rules::{Domain, Position, Reserve, ReserveStep};

/// Checks the items of one route after another.
#[derive(Default)]
pub(super) struct Reservations<'n, 'a> {
    /// The items of the route that is checked next, by their domains.
    used: BTreeMap<&'n str, Vec<&'n Node<'a>>>,
    /// The items whose reservation ids are to be checked, by their domain and the places of all items of a route. Many
    /// routes use the same items.
    known: HashMap<(&'n str, Vec<Position>), Vec<Reserving<'n, 'a>>>,
}

/// An item, and the `reserve` of the rule whose hits it reserves or settles.
#[derive(Clone, Copy)]
struct Reserving<'n, 'a> {
    reserve: &'n Reserve,
    item: &'n Node<'a>,
}

impl<'n, 'a> Reservations<'n, 'a> {
    pub fn add(&mut self, domain: &'n str, item: &'n Node<'a>) {
        self.used.entry(domain).or_default().push(item);
    }

    /// Checks the items that were added, which are used at this place.
    pub fn check(
        &mut self,
        place: &ItemPlace<'_, 'n, 'a>,
        config: &EnvoyConfig<'n, 'a>,
        findings: &mut Findings,
    ) {
        for (name, items) in std::mem::take(&mut self.used) {
            let Some(domain) = config.rules.domain(name) else { continue };
            if !findings.spend(place.route.position, items.len()) {
                return;
            }
            let places = items.iter().map(|item| item.position).collect();
            let known = self.known.entry((name, places));
            for reserving in known.or_insert_with(|| check(domain, &items, findings)) {
                id::check(&reserving.reserve.id, reserving.item, place, config, findings);
            }
        }
    }
}

/// Reports items that settle nothing. Returns those whose ids are to be checked.
fn check<'n, 'a>(
    domain: &'n Domain,
    items: &[&'n Node<'a>],
    findings: &mut Findings,
) -> Vec<Reserving<'n, 'a>> {
    let (mut starts, mut others) = (Vec::<Reserving<'_, '_>>::new(), Vec::new());
    for &node in items {
        let item = Item::new(domain, node, findings);
        if item.settles && !item.is_end {
            report_start(node, findings);
        }
        let reserves = item.reached.iter().filter(|(_, step)| *step == ReserveStep::Reserve);
        let reserves: Vec<&Reserve> = reserves.map(|(reserve, _)| *reserve).collect();
        if item.is_end || item.settles || reserves.is_empty() {
            others.push(item);
            continue;
        }
        for reserve in reserves {
            let is_same = |start: &Reserving<'_, '_>| {
                start.reserve == reserve && start.differences(node) == 0
            };
            // Without `settle`, the second call with an id settles.
            if reserve.settle.is_none() && starts.iter().any(is_same) {
                report_start(node, findings);
            } else {
                starts.push(Reserving { reserve, item: node });
            }
        }
    }
    for item in &others {
        if !findings.spend(item.node.position, starts.len().saturating_mul(64)) {
            break;
        }
        let related = starts.iter().filter(|start| item.is_meant_for(start.reserve));
        let nearest = related.min_by_key(|start| start.differences(item.node));
        if let Some(start) = nearest.filter(|start| start.differences(item.node) > 0) {
            start.report_difference(item.node, findings);
        }
    }
    if starts.is_empty() {
        let first = |item: &Item<'n, 'a>| {
            item.reached.first().map(|(reserve, _)| Reserving { reserve, item: item.node })
        };
        return others.iter().filter_map(first).collect();
    }
    starts
}

/// An item, and what it asks of rules with `reserve`.
struct Item<'n, 'a> {
    node: &'n Node<'a>,
    /// Whether Envoy sends it when the response ends.
    is_end: bool,
    settles: bool,
    /// Of the rules with the same keys, one.
    reached: Vec<(&'n Reserve, ReserveStep)>,
}

impl<'n, 'a> Item<'n, 'a> {
    fn new(domain: &'n Domain, node: &'n Node<'a>, findings: &mut Findings) -> Item<'n, 'a> {
        let reached = reached(domain, node, findings);
        let is_end = is_true(node, "apply_on_stream_done");
        let settles = reached.iter().any(|(_, step)| *step == ReserveStep::Settle);
        Item { node, is_end, settles, reached }
    }

    /// Whether the item looks like an end of what a start reserves.
    fn is_meant_for(&self, reserve: &Reserve) -> bool {
        let marks = reserve.settle.as_ref().is_some_and(|key| sends(self.node, key));
        let is_near = || !self.reached.is_empty() || sends(self.node, &reserve.id);
        self.settles || marks || (self.is_end && is_near())
    }
}

/// Returns what an item asks of rules with `reserve`; of those with the same keys, one.
fn reached<'n>(
    domain: &'n Domain,
    item: &Node<'_>,
    findings: &mut Findings,
) -> Vec<(&'n Reserve, ReserveStep)> {
    let mut reached: Vec<(&Reserve, ReserveStep)> = Vec::new();
    for entries in descriptors(item, &Values::Any).unwrap_or_default() {
        let rules = ends(domain.level(), &entries, item.position, findings).unwrap_or_default();
        for rule in rules.into_iter().filter_map(|end| end.rule) {
            let step = rule.reserve_step(entries.len());
            let Some((reserve, step)) = rule.reserve.as_deref().zip(step) else { continue };
            let is_known = |(other, known): &(&Reserve, ReserveStep)| {
                *known == step && (&other.id, &other.settle) == (&reserve.id, &reserve.settle)
            };
            if !reached.iter().any(is_known) {
                reached.push((reserve, step));
            }
        }
    }
    reached
}

fn report_start(item: &Node<'_>, findings: &mut Findings) {
    let message = "this item settles, but Envoy sends it at the start of the request".to_owned();
    findings.add_error(item.position, message, "add `apply_on_stream_done: true`");
}

impl Reserving<'_, '_> {
    /// Returns how many entries of an end are not those of this start, followed by the mark of a settling call.
    fn differences(&self, end: &Node<'_>) -> usize {
        let (asked, mut sent) = (list(self.item, "actions"), list(end, "actions"));
        let mut count = 0;
        if let Some(key) = &self.reserve.settle {
            match sent.split_last() {
                Some((mark, others))
                    if written_entry(mark).is_none_or(|(sent, _)| sent == **key) =>
                {
                    sent = others;
                }
                _ => count += 1,
            }
        }
        let pairs = asked.iter().zip(sent);
        count
            + asked.len().abs_diff(sent.len())
            + pairs.filter(|(asked, sent)| !may_be_same(asked, sent)).count()
    }

    fn report_difference(&self, end: &Node<'_>, findings: &mut Findings) {
        let place = findings.origin(self.item.position);
        let message = format!(
            "the entries of start and end differ: '{}' here, '{}' at the start of the request ({place}): what is \
             reserved is not settled",
            shown(end),
            shown(self.item)
        );
        let mark = match &self.reserve.settle {
            Some(key) => format!(", and then one of '{key}'"),
            None => String::new(),
        };
        let help = format!(
            "write the actions of the start, in the same order{mark}; `weir explain RULES --envoy-actions RULE` prints \
             both items"
        );
        findings.add_error(end.position, message, &help);
    }
}

fn sends(item: &Node<'_>, key: &str) -> bool {
    list(item, "actions").iter().filter_map(written_entry).any(|(sent, _)| sent == key)
}

fn may_be_same(asked: &Node<'_>, sent: &Node<'_>) -> bool {
    let header =
        |action| get(action, "request_headers").map(|headers| text(headers, "header_name"));
    match (written_entry(asked), written_entry(sent)) {
        (Some((key, _)), Some((other, _))) if key != other => false,
        (Some((_, Some(before))), Some((_, Some(now)))) => {
            before == now && expects_match(asked) == expects_match(sent)
        }
        (Some((_, None)), Some((_, Some(_)))) => false,
        _ => match (header(asked), header(sent)) {
            (Some(before), Some(now)) => before.eq_ignore_ascii_case(now),
            _ => true,
        },
    }
}

/// The entries of an item: constants, names of headers, and `…` for what else a request decides.
fn shown(item: &Node<'_>) -> String {
    let entry = |action: &Node<'_>| {
        let Some((key, value)) = written_entry(action) else { return "…".to_owned() };
        let header = get(action, "request_headers").map(|headers| text(headers, "header_name"));
        let value = value.or(header.map(|name| format!("<{name}>"))).unwrap_or("…".to_owned());
        format!("{key}{}{value}", if expects_match(action) { "=" } else { "!=" })
    };
    list(item, "actions").iter().map(entry).collect::<Vec<_>>().join(",")
}
