//! Decisions against a model that compares all controls and counts in a map.

use std::collections::HashMap;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;

/// A descriptor of one entry, and what it asks for.
#[derive(Clone, Debug)]
struct Ask {
    key: &'static str,
    value: &'static str,
    hits: u64,
    refund: bool,
}

/// Counts of fixed windows that never end, because the clock stands still.
#[derive(Default)]
struct Model {
    counts: HashMap<(&'static str, &'static str, &'static str), u64>,
}

/// What the model expects of a descriptor: over, n, remaining.
type Expected = (bool, Option<u32>, u32);

impl Model {
    fn send(
        &mut self,
        controls: &[Control],
        domain: &'static str,
        asks: &[Ask],
    ) -> (bool, Vec<Expected>) {
        let together = domain == "t";
        let effects: Vec<Option<&Control>> =
            asks.iter().map(|ask| effect(controls, domain, ask)).collect();
        let is_block = |it: &Option<&Control>| it.is_some_and(|it| it.action == Action::Block);
        let blocked = effects.iter().any(is_block);
        let before = self.counts.clone();
        let (mut over, mut expected) = (false, Vec::new());
        for (ask, effect) in asks.iter().zip(&effects) {
            let action = effect.map(|control| &control.action);
            let (n, shadow) = match (domain, ask.key) {
                ("d" | "t", "a") => (Some(2), false),
                ("d" | "t", "s") => (Some(1), true),
                _ => (None, false),
            };
            let n = match (n, action) {
                (Some(_), Some(Action::Limit { limit: change })) => Some(change.n),
                (n, _) => n,
            };
            let status = match (n, action) {
                (_, Some(Action::Block)) => (true, None, 0),
                (_, Some(Action::Allow { count: false })) | (None, Some(Action::Allow { .. })) => {
                    (false, None, u32::MAX)
                }
                (None, _) => (false, None, 0),
                (Some(n), action) => {
                    let count = self.counts.entry((domain, ask.key, ask.value)).or_default();
                    let hits = if together && blocked { 0 } else { ask.hits };
                    let allowed = if ask.refund {
                        *count = count.saturating_sub(ask.hits);
                        true
                    } else {
                        // Without charges of denied hits a look is denied where the limit is full.
                        let checked = if together && hits == 0 { 1 } else { hits };
                        let allowed = *count + checked <= u64::from(n);
                        *count += if allowed || !together { hits } else { 0 };
                        allowed
                    };
                    let passes = allowed || shadow || matches!(action, Some(Action::Allow { .. }));
                    let left = u64::from(n).saturating_sub(*count) as u32;
                    (!passes, Some(n), if allowed { left } else { 0 })
                }
            };
            over |= status.0;
            expected.push(status);
        }
        if together && over {
            self.counts = before;
        }
        (over, expected)
    }
}

/// Returns the first control that applies.
fn effect<'c>(controls: &'c [Control], domain: &str, ask: &Ask) -> Option<&'c Control> {
    let entries = [(ask.key, ask.value)];
    let applies =
        |control: &&Control| control.matches(domain, &entries) && !control.is_expired(NOW);
    let find = |is: fn(&Action) -> bool| {
        let found = controls.iter().filter(applies).filter(|control| is(&control.action));
        found.max_by_key(|control| {
            let has_text = control.entries.iter().all(|entry| entry.value != "*");
            (control.entries.len(), control.domain != "*", has_text, control.at)
        })
    };
    let block = find(|action| *action == Action::Block).filter(|_| !ask.refund);
    let allow = || find(|action| matches!(action, Action::Allow { .. }));
    let limit = || find(|action| matches!(action, Action::Limit { .. }));
    block.or_else(allow).or_else(limit)
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        Just(Action::Block),
        any::<bool>().prop_map(|count| Action::Allow { count }),
        (1..5u32).prop_map(|n| limit(n, "")),
    ]
}

prop_compose! {
    fn any_control()(
        domain in prop_oneof![Just("d"), Just("t"), Just("*")],
        entries in vec(
            (prop_oneof![Just("a"), Just("s"), Just("z")], prop_oneof![Just("x"), Just("y"), Just("*")]),
            0..2,
        ),
        action in action(),
        until in option::of(0..3u64),
    ) -> Control {
        Control { until: ends(until), ..control(domain, &entries, action) }
    }
}

prop_compose! {
    fn ask()(
        key in prop_oneof![Just("a"), Just("s"), Just("z")],
        value in prop_oneof![Just("x"), Just("y")],
        hits in 0..3u64,
        refund in prop::bool::weighted(0.1),
    ) -> Ask {
        Ask { key, value, hits, refund }
    }
}

proptest! {
    #[test]
    fn decisions_are_those_of_the_model(
        controls in vec(any_control(), 0..4),
        requests in vec(
            (prop_oneof![Just("d"), Just("t"), Just("none")], vec(ask(), 1..4)),
            1..30,
        ),
    ) {
        let number = |(at, control): (usize, Control)| {
            Control { id: at.to_string(), at: at as u64, ..control }
        };
        let controls: Vec<Control> = controls.into_iter().enumerate().map(number).collect();
        let bench = single(controls.clone());
        let mut model = Model::default();
        for (domain, mut asks) in requests {
            if domain == "t" {
                // Equal keys and refunds in a request that is charged together are the store's.
                asks.retain(|ask| !ask.refund);
                asks.sort_by_key(|ask| (ask.key, ask.value));
                asks.dedup_by_key(|ask| (ask.key, ask.value));
                if asks.is_empty() {
                    continue;
                }
            }
            let entries: Vec<_> = asks.iter().map(|ask| [(ask.key, ask.value)]).collect();
            let descriptors: Vec<_> = asks
                .iter()
                .zip(&entries)
                .map(|(ask, entries)| Descriptor {
                    entries,
                    hits_addend: Some(ask.hits),
                    is_negative_hits: ask.refund,
                    ..Default::default()
                })
                .collect();
            let (over, statuses) = bench.send(domain, &descriptors);
            let statuses: Vec<_> = statuses.iter().map(|it| (it.0, it.1, it.2)).collect();
            let (expected_over, expected) = model.send(&controls, domain, &asks);
            // Statuses of a request that was denied together are computed without its charges.
            if domain != "t" || !expected_over {
                prop_assert_eq!((over, statuses), (expected_over, expected), "{} {:?}", domain, asks);
            } else {
                prop_assert_eq!(over, expected_over, "{} {:?}", domain, asks);
            }
        }
    }
}
