//! The last changes of one kind in the change log: all, a sample, or the newest of each key. Their JSON is bounded.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::Value;

use weir_common::truncate::truncated;
use weir_limit::SECOND;

const MAX_CHANGE_BYTES: usize = 2 << 10;

/// A unit: the bytes of JSON that most denials have at most. A longer change counts as several units.
pub(super) const UNIT_BYTES: usize = 256;

/// The JSON members that are never cut: they are short.
const KEPT: [&str; 3] = ["event", "number", "at"];

/// How old a change of a sample may become, in microseconds.
const MAX_AGE: u64 = 3_600 * SECOND;

/// The last changes, in the order of their numbers, which are times.
#[derive(Debug)]
pub(super) struct Recent {
    max: usize,
    changes: VecDeque<RecentChange>,
}

#[derive(Debug)]
struct RecentChange {
    number: u64,
    /// A hash of the key whose newest change it is; 0 in a list or a sample.
    key: u64,
    /// The id of the rule that it is about, if it is about one.
    rule: Option<u64>,
    json: Arc<str>,
}

impl Recent {
    pub fn new(max: usize) -> Recent {
        Recent { max, changes: VecDeque::new() }
    }

    /// Adds a change. The oldest one makes room.
    pub fn add(&mut self, number: u64, change: Value) {
        if self.changes.len() >= self.max {
            self.changes.pop_front();
        }
        self.changes.push_back(RecentChange { number, key: 0, rule: None, json: bounded(change) });
    }

    /// Adds a change of a rule to a sample of the last hour. The one whose neighbours are nearest makes room, so
    /// that many do not leave only the last minutes.
    pub fn add_to_sample(&mut self, number: u64, rule: Option<u64>, json: Arc<str>) {
        self.changes.retain(|change| number.saturating_sub(change.number) < MAX_AGE);
        if self.changes.len() >= self.max {
            let numbers: Vec<u64> =
                self.changes.iter().map(|change| change.number).chain([number]).collect();
            // The first has no neighbour before it, and stays.
            let gaps = numbers.windows(3).map(|three| three[2].abs_diff(three[0]));
            let nearest = gaps.enumerate().min_by_key(|(_, gap)| *gap);
            self.changes.remove(nearest.map_or(0, |(before, _)| before + 1));
        }
        self.changes.push_back(RecentChange { number, key: 0, rule, json });
    }

    /// Puts a change in place of that of the same key. The oldest make room: those of its rule, if it has half of it.
    pub fn replace(&mut self, number: u64, key: u64, rule: Option<u64>, json: Arc<str>) {
        let change = RecentChange { number, key, rule, json };
        self.changes.retain(|other| other.key != key);
        self.make_room(self.max / 2 - change.units(), |other| other.rule == rule);
        self.make_room(self.max - change.units(), |_| true);
        self.changes.push_back(change);
    }

    /// Removes the oldest of some changes until they have `max` units.
    fn make_room(&mut self, max: usize, is_one: impl Fn(&RecentChange) -> bool) {
        let units = self.changes.iter().filter(|change| is_one(change)).map(RecentChange::units);
        let mut excess = units.sum::<usize>().saturating_sub(max);
        self.changes.retain(|change| {
            let goes = excess > 0 && is_one(change);
            excess = excess.saturating_sub(if goes { change.units() } else { 0 });
            !goes
        });
    }

    /// Returns the changes with their numbers, the oldest first; those of a rule if one is given.
    pub fn list(&self, rule: Option<u64>) -> impl Iterator<Item = (u64, Arc<str>)> {
        let changes = self.changes.iter();
        let changes = changes.filter(move |change| rule.is_none() || change.rule == rule);
        changes.map(|change| (change.number, change.json.clone()))
    }

    /// Returns the changes after a number, with their numbers, the oldest first.
    pub fn after(&self, number: u64) -> impl Iterator<Item = (u64, Arc<str>)> {
        let first = self.changes.partition_point(|change| change.number <= number);
        self.changes.range(first..).map(|change| (change.number, change.json.clone()))
    }
}

impl RecentChange {
    fn units(&self) -> usize {
        self.json.len().div_ceil(UNIT_BYTES)
    }
}

/// Renders a change in up to [`MAX_CHANGE_BYTES`]: cuts the texts and lists of a longer one, except [`KEPT`].
pub(super) fn bounded(mut event: Value) -> Arc<str> {
    let mut json = event.to_string();
    let mut longest = MAX_CHANGE_BYTES / 4;
    while json.len() > MAX_CHANGE_BYTES && longest > 0 {
        match &mut event {
            Value::Object(members) => {
                let members = members.iter_mut().filter(|(name, _)| !KEPT.contains(&&***name));
                members.for_each(|(_, member)| cut(member, longest));
            }
            other => cut(other, longest),
        }
        if let Some(is_cut) = event.get_mut("cut") {
            *is_cut = true.into();
        }
        json = event.to_string();
        longest /= 2;
    }
    if json.len() > MAX_CHANGE_BYTES {
        let kept = KEPT.map(|name| (name.to_owned(), event[name].clone()));
        json = Value::from_iter(kept).to_string();
    }
    json.into()
}

fn cut(value: &mut Value, longest: usize) {
    match value {
        Value::String(text) => *text = truncated(std::mem::take(text), longest),
        Value::Array(items) => {
            items.truncate(longest.div_ceil(8));
            items.iter_mut().for_each(|item| cut(item, longest));
        }
        Value::Object(members) => members.values_mut().for_each(|member| cut(member, longest)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const MAX: usize = 200;

    /// The seconds of events, which are their texts.
    fn seconds(recent: &Recent) -> Vec<u64> {
        recent.list(None).map(|(_, json)| json.parse().unwrap()).collect()
    }

    #[test]
    fn the_last_events_are_kept() {
        let mut recent = Recent::new(MAX);
        (0..1_000).for_each(|second| recent.add(second * SECOND, json!(second)));
        assert_eq!(seconds(&recent), (800..1_000).collect::<Vec<_>>());
        let after = recent.after(990 * SECOND).map(|(number, _)| number / SECOND);
        assert!(after.eq(991..1_000));
    }

    #[test]
    fn a_sample_covers_the_hour_however_many_there_are() {
        let mut recent = Recent::new(MAX);
        // Of two rules that take turns.
        let add = |recent: &mut Recent, second: u64| {
            recent.add_to_sample(second * SECOND, Some(second % 2), second.to_string().into());
        };
        (0..10_000).for_each(|second| add(&mut recent, second));
        let kept = seconds(&recent);
        assert!(kept.len() > 150 && kept.len() <= MAX, "{kept:?}");
        assert_eq!(kept.last(), Some(&9_999));
        assert!(kept[0] > 10_000 - 3_601 && kept[0] < 10_000 - 3_500, "{kept:?}");
        let widest = kept.windows(2).map(|two| two[1] - two[0]).max();
        assert!(widest < Some(80), "{kept:?}");
        let of_one: Vec<_> = recent.list(Some(1)).map(|(_, json)| json).collect();
        let odd = kept.iter().filter(|second| *second % 2 == 1).map(u64::to_string);
        assert!(of_one.iter().map(|json| json.to_string()).eq(odd), "{of_one:?}");
        // Few of them are all kept.
        add(&mut recent, 20_000);
        assert_eq!(seconds(&recent), [20_000]);
    }

    #[test]
    fn the_newest_of_each_key_is_kept_and_one_rule_has_half() {
        const MAX: usize = 4_096;
        let mut recent = Recent::new(MAX);
        let json = |text: &str| Arc::<str>::from(text);
        for (number, key) in [(1, 7), (2, 8), (3, 7)] {
            recent.replace(number, key, Some(2), json(&number.to_string()));
        }
        assert_eq!(seconds(&recent), [2, 3]);
        // A flood of another rule.
        (10..20_000).for_each(|i| recent.replace(i, i, Some(1), json("0")));
        let of_rule = |recent: &Recent, rule| recent.list(Some(rule)).count();
        assert_eq!((of_rule(&recent, 1), of_rule(&recent, 2)), (MAX / 2, 2));
        // Long ones are fewer.
        let long = "x".repeat(MAX_CHANGE_BYTES);
        (20_000..40_000).for_each(|i| recent.replace(i, i, Some(i % 3), json(&long)));
        let bytes: usize = recent.list(None).map(|(_, json)| json.len()).sum();
        assert_eq!(bytes, MAX * UNIT_BYTES);
    }

    #[test]
    fn long_events_are_cut() {
        let long = "\u{1}".repeat(5_000);
        let entries = vec![json!({ "key": long, "value": long }); 1_000];
        let event = bounded(json!({ "entries": entries, "cut": false, "rule": long, "hits": 3 }));
        assert!(event.len() <= MAX_CHANGE_BYTES, "{}", event.len());
        let event: Value = serde_json::from_str(&event).unwrap();
        assert_eq!((&event["cut"], &event["hits"]), (&json!(true), &json!(3)));
        assert!(!event["entries"].as_array().unwrap().is_empty());
        let short = json!({ "rule": "user", "cut": false });
        assert_eq!(*bounded(short.clone()), short.to_string());
    }

    fn any_event() -> impl Strategy<Value = Value> {
        let leaf =
            prop_oneof![any::<u64>().prop_map(Value::from), ".{0,3000}".prop_map(Value::from)];
        leaf.prop_recursive(3, 100, 30, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..30).prop_map(Value::from),
                prop::collection::vec(inner, 0..8).prop_map(|members| {
                    let names = members.into_iter().enumerate();
                    names.map(|(at, member)| (format!("m{at}"), member)).collect()
                }),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Whatever an event has, it is JSON of a bounded size.
        #[test]
        fn every_event_is_bounded(event in any_event()) {
            let json = bounded(event);
            prop_assert!(json.len() <= MAX_CHANGE_BYTES, "{}", json.len());
            prop_assert!(serde_json::from_str::<Value>(&json).is_ok());
        }
    }
}
