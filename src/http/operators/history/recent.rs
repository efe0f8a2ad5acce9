//! The last events, as JSON of a bounded size.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::Value;

use weir_limit::{Micros, SECOND};
use weir_rules::truncate;

/// The events that are kept.
pub(super) const MAX_EVENTS: usize = 200;

/// The longest event, in bytes of JSON.
pub(super) const MAX_EVENT_BYTES: usize = 2 << 10;

/// The members that are never cut: they are short.
const KEPT: [&str; 2] = ["event", "at"];

/// How old an event of a sample may become.
const MAX_AGE: Micros = 3_600 * SECOND;

/// Events in the order of their times.
#[derive(Debug)]
pub(super) struct Recent(VecDeque<Event>);

#[derive(Debug)]
struct Event {
    at: Micros,
    /// The id of the rule that it is about; none if it is not that of one rule.
    rule: Option<u64>,
    json: Arc<str>,
}

impl Recent {
    /// The texts have two counters each, as parts of [`Arc`].
    pub const BYTES: usize =
        MAX_EVENTS * (size_of::<Event>() + 2 * size_of::<usize>() + MAX_EVENT_BYTES);

    pub fn new() -> Recent {
        Recent(VecDeque::with_capacity(MAX_EVENTS))
    }

    /// Adds an event. The oldest one makes room.
    pub fn add(&mut self, at: Micros, event: Value) {
        if self.0.len() >= MAX_EVENTS {
            self.0.pop_front();
        }
        self.0.push_back(Event { at, rule: None, json: bounded(event) });
    }

    /// Adds an event in place of the newest.
    pub fn replace_newest(&mut self, at: Micros, event: Value) {
        self.0.pop_back();
        self.add(at, event);
    }

    /// Adds an event of a rule to a sample of the last hour. The one whose neighbours are nearest makes room, so that
    /// many events do not leave only the last minutes.
    pub fn add_to_sample(&mut self, at: Micros, rule: Option<u64>, event: Value) {
        self.0.retain(|event| at.saturating_sub(event.at) < MAX_AGE);
        if self.0.len() >= MAX_EVENTS {
            let ats = self.0.iter().map(|event| event.at).chain([at]);
            let ats: Vec<Micros> = ats.collect();
            // The first has no neighbour before it, and stays.
            let gaps = ats.windows(3).map(|three| three[2].abs_diff(three[0]));
            let nearest = gaps.enumerate().min_by_key(|(_, gap)| *gap);
            self.0.remove(nearest.map_or(0, |(before, _)| before + 1));
        }
        self.0.push_back(Event { at, rule, json: bounded(event) });
    }

    /// Returns the events, oldest first; those of a rule if one is given.
    pub fn list(&self, rule: Option<u64>) -> Vec<Arc<str>> {
        let events = self.0.iter().filter(|event| rule.is_none() || event.rule == rule);
        events.map(|event| event.json.clone()).collect()
    }
}

/// Renders an event in up to [`MAX_EVENT_BYTES`]. Of a longer one texts and lists are cut, but not its name and
/// time.
fn bounded(mut event: Value) -> Arc<str> {
    let mut json = event.to_string();
    let mut longest = MAX_EVENT_BYTES / 4;
    while json.len() > MAX_EVENT_BYTES && longest > 0 {
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
    if json.len() > MAX_EVENT_BYTES {
        let kept = KEPT.map(|name| (name.to_owned(), event[name].clone()));
        json = Value::from_iter(kept).to_string();
    }
    json.into()
}

fn cut(value: &mut Value, longest: usize) {
    match value {
        Value::String(text) => truncate(text, longest),
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

    /// The seconds of events, which are their texts.
    fn seconds(recent: &Recent) -> Vec<u64> {
        recent.list(None).iter().map(|json| json.parse().unwrap()).collect()
    }

    #[test]
    fn the_last_events_are_kept() {
        let mut recent = Recent::new();
        (0..1_000).for_each(|second| recent.add(second * SECOND, json!(second)));
        assert_eq!(seconds(&recent), (800..1_000).collect::<Vec<_>>());
        recent.replace_newest(1_000 * SECOND, json!(1_000));
        assert_eq!(seconds(&recent), (800..999).chain([1_000]).collect::<Vec<_>>());
    }

    #[test]
    fn a_sample_covers_the_hour_however_many_there_are() {
        let mut recent = Recent::new();
        // Of two rules that take turns.
        let add = |recent: &mut Recent, second: u64| {
            recent.add_to_sample(second * SECOND, Some(second % 2), json!(second));
        };
        (0..10_000).for_each(|second| add(&mut recent, second));
        let kept = seconds(&recent);
        assert!(kept.len() > 150 && kept.len() <= MAX_EVENTS, "{kept:?}");
        assert_eq!(kept.last(), Some(&9_999));
        assert!(kept[0] > 10_000 - 3_601 && kept[0] < 10_000 - 3_500, "{kept:?}");
        let widest = kept.windows(2).map(|two| two[1] - two[0]).max();
        assert!(widest < Some(80), "{kept:?}");
        let of_one = recent.list(Some(1));
        let odd = kept.iter().filter(|second| *second % 2 == 1).map(u64::to_string);
        assert!(of_one.iter().map(|json| json.to_string()).eq(odd), "{of_one:?}");
        // Few of them are all kept.
        add(&mut recent, 20_000);
        assert_eq!(seconds(&recent), [20_000]);
    }

    #[test]
    fn long_events_are_cut() {
        let long = "\u{1}".repeat(5_000);
        let entries = vec![json!({ "key": long, "value": long }); 1_000];
        let event = bounded(json!({ "entries": entries, "cut": false, "rule": long, "hits": 3 }));
        assert!(event.len() <= MAX_EVENT_BYTES, "{}", event.len());
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
            prop_assert!(json.len() <= MAX_EVENT_BYTES, "{}", json.len());
            prop_assert!(serde_json::from_str::<Value>(&json).is_ok());
        }
    }
}
