//! Matching, plans, and the handle.

mod drafts;
mod keeping;
mod matching;
mod model;
mod networks;
mod plans;
mod redis;
#[path = "../../../tests/support/redis.rs"]
mod servers;
mod set;
mod sharing;

use std::iter::empty;
use std::sync::Arc;

use super::control::{MAX_COMPARED, MAX_CONTROLS};
use super::set::{ControlRecord, MAX_TOMBSTONES};
use super::*;
use weir_common::clock::ManualClock;
use weir_common::entry::OwnedEntry;
use weir_limit::{Micros, SECOND};
use weir_rules::RuleSet;
use weir_rules::source::RuleFile;

/// Noon of a day.
const NOW: Micros = 1_700_049_600 * SECOND;

fn rule_set(text: &str) -> RuleSet {
    let file = RuleFile { name: "test.yaml".into(), text: text.into() };
    let (rules, problems) = RuleSet::compile(&[file], &weir_rules::RuleOptions::default(), None);
    assert_eq!(problems, []);
    rules
}

fn entry(key: &str, value: &str) -> OwnedEntry {
    (key, value).into()
}

/// Returns a control of the domain `d`.
fn control(action: Action, entries: &[(&str, &str)]) -> Control {
    let entries: Vec<_> = entries.iter().map(|(key, value)| entry(key, value)).collect();
    let draft = Draft {
        domain: "d".into(),
        entries,
        exact: false,
        text: false,
        action,
        except: Vec::new(),
        duration: None,
        until: None,
        reason: String::new(),
        by: String::new(),
    };
    draft.clone().into_control(draft.default_id(), NOW)
}

fn draft(text: &str) -> Draft {
    Draft::read(text.as_bytes(), None).unwrap()
}

/// A block of one user in the domain `d`.
fn block(user: &str) -> Draft {
    let entries = format!(r#"[{{"key":"user","value":"{user}"}}]"#);
    draft(&format!(r#"{{"domain":"d","entries":{entries},"action":"block","for":"1h"}}"#))
}

/// A process with controls, on a clock that the test sets.
struct Process {
    clock: Arc<ManualClock>,
    active: Arc<ActiveRules>,
    controls: Arc<Controls>,
}

impl Process {
    fn new(options: ControlsOptions) -> Process {
        let clock = Arc::new(ManualClock::new(NOW));
        let active = Arc::new(ActiveRules::new(ControlClock::new(clock.clone()), 16 << 20));
        let rules = "domain: d
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 5}
  - key: path
    rate_limits: [{name: s, unit: second, requests_per_unit: 5}, {unit: hour, requests_per_unit: 5}]
";
        active.set_rules(Arc::new(rule_set(rules)));
        let controls = Arc::new(Controls::new(active.clone(), options, || {}));
        Process { clock, active, controls }
    }

    async fn put(&self, draft: Draft) -> Written {
        self.controls.put(None, draft, PutOptions::default()).await.unwrap()
    }

    /// Returns the users that are blocked.
    fn blocked<'u>(&self, users: &[&'u str]) -> Vec<&'u str> {
        let snapshot = self.active.load();
        let view = ActiveView::from(&**snapshot.as_ref().unwrap());
        let is_blocked = |user: &&&str| {
            let entries = [("user", **user)];
            let found = view.controls.map(|it| it.find("d", &entries, empty(), None, false).0);
            matches!(found, Some(Some(Effect::Block { .. })))
        };
        users.iter().filter(is_blocked).copied().collect()
    }
}
