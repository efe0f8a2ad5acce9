//! Pairs the items that reserve with those that settle.

use std::collections::{HashMap, HashSet};

use super::super::Findings;
use super::super::actions::{Values, descriptors, written_entry};
use super::super::charges::expects_match;
use super::super::compare::{address, ends};
use super::super::nodes::{get, is_true, list, text};
use super::{Used, hits};
use weir_rules::tree::Node;
use weir_rules::{Domain, Reserve, ReserveStep, Rule};

/// The items that reserve and settle hits of a rule.
pub(super) struct Reserving<'n, 'a> {
    pub rule: &'n Rule,
    pub starts: Vec<Used<'n, 'a>>,
    pub ends: Vec<Used<'n, 'a>>,
}

/// The most that an item asks of a rule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Reach {
    Nothing,
    /// Without an id.
    NoId,
    Reserve,
    Settle,
}

/// The effort of a rule that an item reaches: see [`Findings::spend`].
const RULE_EFFORT: usize = 16;

/// A rule, and the indices of its items.
struct Pair<'n> {
    rule: &'n Rule,
    reserve: &'n Reserve,
    reach: Vec<Reach>,
    starts: Vec<usize>,
    ends: Vec<usize>,
}

/// Reports errors in the items of a domain. Returns those that reserve and settle.
pub(super) fn check<'n, 'a>(
    domain: &'n Domain,
    used: &[Used<'n, 'a>],
    clusters: &Values,
    findings: &mut Findings,
) -> Vec<Reserving<'n, 'a>> {
    let Some(pairs) = pairs(domain, used, clusters, findings) else { return Vec::new() };
    check_halves(&pairs, used, findings);
    for pair in &pairs {
        check_flags(pair, used, findings);
        check_values(pair, used, findings);
        for i in &pair.starts {
            hits::check_start(pair.reserve, &used[*i], findings);
        }
        for i in &pair.ends {
            hits::check_end(pair.reserve, &used[*i], findings);
        }
    }
    let of = |items: &[usize]| items.iter().map(|i| used[*i]).collect();
    let reserving = |pair: &Pair<'n>| Reserving {
        rule: pair.rule,
        starts: of(&pair.starts),
        ends: of(&pair.ends),
    };
    pairs.iter().map(reserving).collect()
}

/// Returns the rules that the items reserve or settle; of those that the same items reach in the same way, one.
fn pairs<'n>(
    domain: &'n Domain,
    used: &[Used<'n, '_>],
    clusters: &Values,
    findings: &mut Findings,
) -> Option<Vec<Pair<'n>>> {
    let (mut rules, mut known) = (Vec::new(), HashSet::new());
    let mut reached: Vec<HashMap<usize, Reach>> = Vec::new();
    for Used { item, .. } in used {
        let mut of_item = HashMap::new();
        for entries in descriptors(item, clusters).unwrap_or_default() {
            for end in ends(domain.level(), &entries, item.position, findings)? {
                let Some(rule) = end.rule else { continue };
                let reach = match rule.reserve_step(entries.len()) {
                    Some(ReserveStep::NoId) => Reach::NoId,
                    Some(ReserveStep::Reserve) => Reach::Reserve,
                    Some(ReserveStep::Settle) => Reach::Settle,
                    None => continue,
                };
                if known.insert(address(rule)) {
                    rules.push(rule);
                }
                let most = of_item.entry(address(rule)).or_insert(reach);
                *most = reach.max(*most);
            }
        }
        reached.push(of_item);
    }
    let effort = rules.len().saturating_mul(used.len()).saturating_mul(RULE_EFFORT + used.len());
    if !findings.spend(used.first()?.item.position, effort) {
        return None;
    }
    let mut seen = HashSet::new();
    let pairs = rules.into_iter().filter_map(|rule| {
        let reserve = rule.reserve.as_deref()?;
        let of = |of: &HashMap<_, _>| of.get(&address(rule)).copied().unwrap_or(Reach::Nothing);
        let reach: Vec<Reach> = reached.iter().map(of).collect();
        let is_new = seen.insert((&reserve.id, &reserve.settle, reserve.timeout, reach.clone()));
        is_new.then(|| Pair::new(rule, reserve, reach, used))
    });
    Some(pairs.filter(|pair| !pair.starts.is_empty() || !pair.ends.is_empty()).collect())
}

impl<'n> Pair<'n> {
    fn new(
        rule: &'n Rule,
        reserve: &'n Reserve,
        reach: Vec<Reach>,
        used: &[Used<'n, '_>],
    ) -> Pair<'n> {
        let reached = &reach;
        let of = |wanted| (0..used.len()).filter(move |i| reached[*i] == wanted);
        let (mut starts, mut ends): (Vec<_>, Vec<_>) = match reserve.settle {
            Some(_) => (of(Reach::Reserve).collect(), of(Reach::Settle).collect()),
            None => of(Reach::Reserve).partition(|i| !is_end(used[*i].item)),
        };
        // Without `settle`, two items with the same descriptor are a start and an end, whatever they are marked as.
        if reserve.settle.is_none() && (starts.is_empty() || ends.is_empty()) {
            let mut all = [starts, ends].concat().into_iter();
            let first = all.next();
            let is_same = |i: &usize| {
                first.is_some_and(|first| difference(used[first].item, used[*i].item).is_none())
            };
            let (same, others): (Vec<_>, Vec<_>) = all.partition(is_same);
            let is_one = same.is_empty() && first.is_some_and(|first| is_end(used[first].item));
            (starts, ends) = match is_one {
                true => (Vec::new(), first.into_iter().chain(others).collect()),
                false => (first.into_iter().chain(others).collect(), same),
            };
        }
        Pair { rule, reserve, reach, starts, ends }
    }

    fn is_whole(&self) -> bool {
        !self.starts.is_empty() && !self.ends.is_empty()
    }

    fn has(&self, item: usize) -> bool {
        self.starts.contains(&item) || self.ends.contains(&item)
    }

    /// Whether an item looks like the missing end of this rule.
    fn may_end(&self, i: usize, item: &Node<'_>) -> bool {
        let settles = self.reserve.settle.as_deref().is_some_and(|settle| sends(item, settle));
        let is_near = sends(item, &self.reserve.id) || self.reach[i] == Reach::NoId;
        settles || (is_end(item) && is_near)
    }

    /// Whether an item looks like the missing start of this rule.
    fn may_start(&self, item: &Node<'_>) -> bool {
        !is_end(item) && sends(item, &self.reserve.id)
    }
}

/// Reports rules that items reserve and do not settle, or settle and do not reserve.
fn check_halves(pairs: &[Pair<'_>], used: &[Used<'_, '_>], findings: &mut Findings) {
    let mut is_paired: Vec<bool> =
        (0..used.len()).map(|i| pairs.iter().any(|pair| pair.is_whole() && pair.has(i))).collect();
    let halves = pairs.iter().filter(|pair| !pair.is_whole());
    // Starts first: an end that reaches another rule is reported once.
    let (starts, ends): (Vec<_>, Vec<_>) = halves.partition(|pair| pair.ends.is_empty());
    for pair in starts.into_iter().chain(ends) {
        let (half, is_start) = match pair.starts.first().or(pair.ends.first()) {
            Some(half) if !is_paired[*half] => (*half, pair.ends.is_empty()),
            _ => continue,
        };
        let may_match = |i: &usize| match is_start {
            true => pair.may_end(*i, used[*i].item),
            false => pair.may_start(used[*i].item),
        };
        let item = used[half].item;
        let other = (0..used.len()).filter(|i| !is_paired[*i] && !pair.has(*i)).find(may_match);
        match other {
            Some(i) => {
                (is_paired[i], is_paired[half]) = (true, true);
                report_keys(item, used[i].item, is_start, &pair.reserve.settle, findings);
            }
            None if is_start => report_no_end(item, &pair.reserve.settle, findings),
            None => report_no_start(item, &pair.reserve.settle, findings),
        }
    }
}

/// Reports items that Envoy sends at the wrong end of a stream.
fn check_flags(pair: &Pair<'_>, used: &[Used<'_, '_>], findings: &mut Findings) {
    for item in pair.starts.iter().map(|i| used[*i].item).filter(|item| is_end(item)) {
        let message = "this item reserves, but Envoy sends it when the response ends".to_owned();
        let help = "remove `apply_on_stream_done`: the item that settles has it";
        let flag = get(item, "apply_on_stream_done").unwrap_or(item);
        findings.add_error(flag.position, message, help);
    }
    for item in pair.ends.iter().map(|i| used[*i].item).filter(|item| !is_end(item)) {
        let message =
            "this item settles, but Envoy sends it at the start of the request".to_owned();
        findings.add_error(item.position, message, "add `apply_on_stream_done: true`");
    }
}

/// Reports ends that no start has the values of, and starts that no end has the values of.
fn check_values(pair: &Pair<'_>, used: &[Used<'_, '_>], findings: &mut Findings) {
    if !pair.is_whole() {
        return;
    }
    let effort = pair.starts.len().saturating_mul(pair.ends.len()).saturating_mul(64);
    if !findings.spend(used[pair.starts[0]].item.position, effort) {
        return;
    }
    let mut has_end = vec![false; pair.starts.len()];
    for end in pair.ends.iter().map(|i| used[*i].item) {
        let mut fits = false;
        for (start, has_end) in pair.starts.iter().zip(&mut has_end) {
            if difference(used[*start].item, end).is_none() {
                (fits, *has_end) = (true, true);
            }
        }
        if fits {
            continue;
        }
        has_end[0] = true;
        let start = used[pair.starts[0]].item;
        if let Some((action, difference)) = difference(start, end) {
            let place = findings.origin(start.position);
            let message = format!("{difference} ({place}): what is reserved is not settled");
            let help = "write the action of the start here too";
            findings.add_error(action.position, message, help);
        }
    }
    for (start, _) in pair.starts.iter().zip(has_end).filter(|(_, has_end)| !has_end) {
        report_no_end(used[*start].item, &pair.reserve.settle, findings);
    }
}

/// Returns the first action of an end that sends another value than that of the start, and how.
fn difference<'n, 'a>(start: &Node<'_>, end: &'n Node<'a>) -> Option<(&'n Node<'a>, String)> {
    let mut actions = list(start, "actions").iter().zip(list(end, "actions"));
    actions.find_map(|(asked, action)| {
        let (key, before) = written_entry(asked)?;
        let (_, now) = written_entry(action)?;
        let header = |action| get(action, "request_headers").map(|it| text(it, "header_name"));
        let difference = match (before, now) {
            (Some(before), Some(now)) if before != now => {
                format!("'{key}' is '{now}' here, but '{before}' at the start of the request")
            }
            (None, Some(now)) => {
                format!("'{key}' is always '{now}' here, but a value of the request at its start")
            }
            (Some(_), Some(_)) if expects_match(asked) != expects_match(action) => {
                format!("`expect_match` of '{key}' is the opposite at the start of the request")
            }
            (None, None) => match (header(asked)?, header(action)?) {
                (before, now) if before.eq_ignore_ascii_case(now) => return None,
                (before, now) => {
                    format!("'{key}' is the header '{now}' here, but '{before}' at the start of the request")
                }
            },
            _ => return None,
        };
        Some((action, difference))
    })
}

fn report_keys(
    half: &Node<'_>,
    other: &Node<'_>,
    is_start: bool,
    settle: &Option<Box<str>>,
    findings: &mut Findings,
) {
    let place = findings.origin(half.position);
    let (sent, wanted) = (keys(other).join(","), keys(half).join(","));
    let (when, mark) = match (is_start, settle) {
        (true, Some(settle)) => ("start", format!(", and then '{settle}'")),
        (true, None) => ("start", String::new()),
        (false, Some(settle)) => ("end", format!(", without '{settle}'")),
        (false, None) => ("end", String::new()),
    };
    let message = format!(
        "the keys of start and end differ: '{sent}' here, '{wanted}' at the {when} of the request ({place}): what \
         is reserved is not settled"
    );
    let help = format!("write the actions of the {when}, in the same order{mark}");
    findings.add_error(other.position, message, &help);
}

fn report_no_end(start: &Node<'_>, settle: &Option<Box<str>>, findings: &mut Findings) {
    let message = "Envoy does not settle what this item reserves: it stays charged".to_owned();
    let mark = settle.as_ref().map(|key| format!(", and then one of '{key}',")).unwrap_or_default();
    let help = format!(
        "add an item with the same actions{mark} with `apply_on_stream_done: true`, and with `hits_addend` from the \
         response, unless another program settles it"
    );
    findings.add(start.position, message, "", &help);
}

fn report_no_start(end: &Node<'_>, settle: &Option<Box<str>>, findings: &mut Findings) {
    let message =
        "nothing reserves what this item settles: its hits are charged when the request has run";
    let mark = settle.as_ref().map(|key| format!(", without '{key}',")).unwrap_or_default();
    let help =
        format!("add an item with the same actions{mark} and without `apply_on_stream_done`");
    findings.add(end.position, message.to_owned(), "", &help);
}

fn is_end(item: &Node<'_>) -> bool {
    is_true(item, "apply_on_stream_done")
}

/// The keys of the entries that an item sends.
fn keys(item: &Node<'_>) -> Vec<String> {
    let key = |action| written_entry(action).map_or_else(|| "…".to_owned(), |(key, _)| key);
    list(item, "actions").iter().map(key).collect()
}

fn sends(item: &Node<'_>, key: &str) -> bool {
    let is_key = |action| written_entry(action).is_some_and(|(sent, _)| sent == key);
    list(item, "actions").iter().any(is_key)
}
