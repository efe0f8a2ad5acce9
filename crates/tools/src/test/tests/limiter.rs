//! `weir test` agrees with the limiter, driven directly.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use proptest::prelude::*;

use super::{RULES, run_steps};
use weir_common::clock::ManualClock;
use weir_limit::{Micros, SECOND};
use weir_limiter::{Descriptor, Holds, Limiter, LimiterOptions, Request, RequestDecision};
use weir_rules::RuleSet;
use weir_rules::source::RuleFile;
use weir_store::memory::MemoryStore;

const KEYS: [&str; 10] =
    ["window", "gcra", "sliding", "log", "held", "shadow", "several", "free", "blocked", "unknown"];

/// When the tests start by default.
const START: Micros = 1_767_225_600 * SECOND;

#[derive(Clone, Debug)]
struct Sent {
    wait_ms: u64,
    repeat: u32,
    every_ms: u64,
    hits: u32,
    /// A key, a value, and whether the hits are refunded.
    descriptors: Vec<(usize, bool, bool)>,
}

fn sent() -> impl Strategy<Value = Sent> {
    let wait_ms = prop_oneof![Just(0), 0..300_u64, 500..4_000_u64, 50_000..70_000_u64];
    let descriptor = (0..KEYS.len(), any::<bool>(), prop::bool::weighted(0.15));
    let descriptors = prop::collection::vec(descriptor, 1..4);
    (wait_ms, 1..5_u32, 0..400_u64, 1..4_u32, descriptors).prop_map(
        |(wait_ms, repeat, every_ms, hits, descriptors)| Sent {
            wait_ms,
            repeat,
            every_ms,
            hits,
            descriptors,
        },
    )
}

fn code(over_limit: bool) -> &'static str {
    if over_limit { "OVER_LIMIT" } else { "OK" }
}

/// Writes the statuses of a decision as a step expects them.
fn statuses(decision: &RequestDecision<'_>) -> String {
    let mut text = String::new();
    for status in &decision.statuses {
        let limit =
            status.limit.map_or_else(|| "null".to_owned(), |limit| format!("'{}'", limit.name));
        let reset = match status.limit {
            Some(_) => format!("{}s", status.reset_seconds()),
            None => "none".to_owned(),
        };
        let (code, remaining) = (code(status.over_limit), status.remaining);
        let _ = write!(
            text,
            "{{code: {code}, remaining: {remaining}, reset: {reset}, limit: {limit}}},"
        );
    }
    text
}

/// Sends the requests to a limiter, and writes them as steps that expect its responses.
fn steps(all: &[Sent]) -> Vec<String> {
    let file = RuleFile { name: "d.yaml".into(), text: RULES.into() };
    let (rules, problems) = RuleSet::compile(&[file], &weir_rules::RuleOptions::default(), None);
    assert_eq!(problems, []);
    let clock = Arc::new(ManualClock::new(START));
    let limiter = Limiter::new(MemoryStore::new(clock.clone(), 10_000), LimiterOptions::default());
    let mut steps = Vec::new();
    for sent in all {
        clock.advance(sent.wait_ms * 1_000);
        let at = (weir_common::clock::Clock::now(&clock) - START) / 1_000;
        let entries: Vec<[(&str, &str); 1]> = sent
            .descriptors
            .iter()
            .map(|&(key, value, _)| [(KEYS[key], if value { "a" } else { "b" })])
            .collect();
        let descriptors: Vec<Descriptor<'_>> = std::iter::zip(&entries, &sent.descriptors)
            .map(|(entries, &(_, _, is_negative_hits))| Descriptor {
                entries,
                is_negative_hits,
                ..Descriptor::default()
            })
            .collect();
        let request = Request {
            domain: "d",
            descriptors: &descriptors,
            hits_addend: sent.hits,
            ..Request::default()
        };
        let (mut ok, mut last) = (0, String::new());
        for i in 0..sent.repeat {
            if i > 0 {
                clock.advance(sent.every_ms * 1_000);
            }
            let (timeout, holds) = (Duration::from_millis(8), &mut Holds::default());
            let decided = limiter.decide(Some(&rules), &request, timeout, holds).now_or_never();
            let decision = decided.unwrap().unwrap();
            ok += u32::from(!decision.over_limit);
            last = statuses(&decision);
        }
        let shown: Vec<String> = std::iter::zip(&entries, &sent.descriptors)
            .map(|([(key, value)], (_, _, refund))| match refund {
                true => format!("{{entries: {key}={value}, refund: true}}"),
                false => format!("{key}={value}"),
            })
            .collect();
        let Sent { repeat, every_ms, hits, .. } = sent;
        steps.push(format!(
            "{{at: {at}ms, repeat: {repeat}, every: {every_ms}ms, hits: {hits}, \
             descriptors: [{}], expect: {{ok: {ok}, over: {}, statuses: [{last}]}}}},",
            shown.join(", "),
            repeat - ok,
        ));
    }
    steps
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn steps_get_the_responses_of_the_limiter(all in prop::collection::vec(sent(), 1..30)) {
        prop_assert_eq!(run_steps(&steps(&all).join("\n")), [""; 0]);
    }

    #[test]
    fn a_step_that_expects_something_else_fails_alone(
        all in prop::collection::vec(sent(), 1..30),
        which in any::<prop::sample::Index>(),
    ) {
        let mut steps = steps(&all);
        let which = which.index(steps.len());
        let step = &steps[which];
        // The codes of the last response, swapped.
        let (head, statuses) = step.split_once("statuses: [{code: ").unwrap();
        let statuses = match statuses.strip_prefix("OK") {
            Some(rest) => format!("OVER_LIMIT{rest}"),
            None => format!("OK{}", statuses.strip_prefix("OVER_LIMIT").unwrap()),
        };
        steps[which] = format!("{head}statuses: [{{code: {statuses}");
        let shown = run_steps(&steps.join("\n"));
        prop_assert_eq!(shown.len(), 1);
        let start = format!("{}: status 1 code: expected ", which + 1);
        prop_assert!(shown[0].starts_with(&start), "{}", shown[0]);
    }
}
