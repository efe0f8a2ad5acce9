//! Explanations with the controls and the state of a running service.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::super::Limiter;
use super::{MAX_DESCRIPTORS, MAX_NEAR_RULES, explain};
use crate::request::{Descriptor, Request};
use weir_common::clock::ManualClock;
use weir_common::entry::Entry;
use weir_controls::{ActiveRules, Control};
use weir_limit::SECOND;
use weir_rules::source::RuleFile;
use weir_rules::{RuleOptions, RuleSet};
use weir_store::memory::MemoryStore;

const TIMEOUT: Duration = Duration::from_secs(1);

fn active() -> ActiveRules {
    let text = "domain: d\ndescriptors:\n  - key: user\n    \
                rate_limit: { unit: day, requests_per_unit: 5 }\n";
    let file = RuleFile { name: "test.yaml".into(), text: text.into() };
    let (rules, problems) = RuleSet::compile(&[file], &RuleOptions::default(), None);
    assert_eq!(problems, []);
    let active = ActiveRules::of(rules);
    let control = |id: &str, action: &str, user: &str| {
        let json = format!(
            r#"{{"id":"{id}","domain":"d","entries":[{{"key":"user","value":"{user}"}}],
                "action":"{action}","until":null,"at":"2026-01-01T00:00:00Z","limit":{{"n":9}}}}"#
        );
        serde_json::from_str::<Control>(&json).unwrap().into()
    };
    active.set_controls(vec![control("b", "block", "m1"), control("l", "limit", "ann")]);
    active
}

async fn explained(domain: &str, descriptors: &[&[(&str, &str)]]) -> Result<Value, String> {
    let active = active();
    let snapshot = active.load();
    let descriptors: Vec<_> = descriptors.iter().map(|entries| entries.to_vec()).collect();
    let store = MemoryStore::new(Arc::new(ManualClock::new(1_700_049_600 * SECOND)), 1_000);
    let limiter = Limiter::new(store, crate::LimiterOptions::default());
    let view = &**snapshot.as_ref().unwrap();
    let explained = limiter.explain(view, (domain, &descriptors), false, TIMEOUT).await?;
    Ok(serde_json::to_value(explained).unwrap())
}

#[tokio::test]
async fn each_descriptor_has_its_control_and_its_state() {
    let json = explained("d", &[&[("user", "ann")], &[("x", "1"), ("user", "m1")]]).await.unwrap();
    let [limited, blocked] = [&json["descriptors"][0], &json["descriptors"][1]];
    assert_eq!(limited["control"]["id"], "l");
    // The rule has its own numbers, the state those that apply.
    assert_eq!(limited["limits"][0], "5 per day");
    assert_eq!(limited["state"]["limits"][0]["text"], "9 per day");
    assert_eq!(limited["state"]["limits"][0]["remaining"], 9);
    assert_eq!(limited["key"], "weir:{d|user=ann}f86400");
    assert_eq!(limited["state"]["key"], limited["key"]);
    assert_eq!(blocked["control"]["id"], "b");
    assert_eq!((&blocked["matched"], &blocked["state"]), (&Value::Bool(false), &Value::Null));
}

#[test]
fn up_to_20_rules_share_the_first_entry() {
    let paths: String = (0..25).map(|i| format!("  - {{ key: path, value: p{i}, L }}\n")).collect();
    let text = format!(
        "domain: d\ndescriptors:\n- key: user\n  descriptors:\n{paths}- {{ key: plan, L }}\n"
    )
    .replace('L', "rate_limit: { unit: day, requests_per_unit: 5 }");
    let file = RuleFile { name: "test.yaml".into(), text };
    let (rules, problems) = RuleSet::compile(&[file], &RuleOptions::default(), None);
    assert_eq!(problems, []);
    let first_entries = |entries: &[Entry<'_>], near: bool| {
        let descriptors = [Descriptor { entries, ..Descriptor::default() }];
        let request = Request { domain: "d", descriptors: &descriptors, ..Request::default() };
        let explained = explain(&rules, &request, near, "weir:").unwrap();
        let misses = explained.descriptors.into_iter().flat_map(|found| found.near_misses);
        let listed = misses.filter(|miss| miss.kind == "first_entry");
        listed.map(|miss| miss.message).collect::<Vec<_>>()
    };
    let listed = first_entries(&[("user", "1"), ("path", "q")], true);
    assert_eq!(listed.len(), MAX_NEAR_RULES);
    assert_eq!(listed[19], "the first entry leads to 'user.path_p19' (test.yaml:24:5): 5 per day");
    assert_eq!(first_entries(&[("user", "1"), ("path", "q")], false), [""; 0]);
    assert_eq!(first_entries(&[("user", "1"), ("path", "p1")], true), [""; 0], "it has a rule");
    assert_eq!(first_entries(&[("plan", "1"), ("x", "1")], true).len(), 1);
    assert_eq!(first_entries(&[("x", "1")], true), [""; 0]);
}

#[tokio::test]
async fn requests_without_a_domain_or_with_too_many_descriptors_are_invalid() {
    let user: &[(&str, &str)] = &[("user", "ann")];
    assert!(explained("d", &[user; MAX_DESCRIPTORS]).await.is_ok());
    for (domain, descriptors) in [("", 1), ("d", 0), ("d", MAX_DESCRIPTORS + 1)] {
        let answered = explained(domain, &vec![user; descriptors]).await;
        assert!(answered.is_err(), "{domain} {descriptors}");
    }
}
