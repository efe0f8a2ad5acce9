//! Replicas that count together by other numbers: during a rollout of rules, by an overlay, by a control.

use super::*;
use weir_common::clock::Clock;
use weir_controls::{Action, ActiveRules, Control, ControlClock, LimitChange};
use weir_rules::{Loaded, Overlay, Problems};
use weir_store::local::{Local, LocalOptions};

const RULES: &str = "domain: d
descriptors:
  - {key: gcra, rate_limit: {algorithm: gcra, unit: day, requests_per_unit: 10, burst: 5}}
  - {key: leaky, rate_limit: {algorithm: leaky_bucket, unit: day, requests_per_unit: 10, burst: 5}}
  - {key: token, rate_limit: {algorithm: token_bucket, unit: day, requests_per_unit: 10, burst: 5}}
";

const KEYS: [&str; 3] = ["gcra", "leaky", "token"];

/// How a replica got other numbers.
#[derive(Clone, Copy, Debug)]
enum Change {
    Rules,
    Overlay,
    Control,
}

const CHANGES: [Change; 3] = [Change::Rules, Change::Overlay, Change::Control];

type Store = Local<Arc<MemoryStore<Arc<ManualClock>>>>;

struct Replica {
    active: ActiveRules,
    limiter: Limiter<Store>,
}

/// Two replicas that share a store, and their clock.
fn replicas(deny_locally_for: Duration) -> ([Replica; 2], Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(NOW));
    let store = Arc::new(MemoryStore::new(clock.clone(), 1_000));
    let replica = || {
        let options = LocalOptions { deny_locally_for, ..LocalOptions::default() };
        let store = Local::new(store.clone(), clock.clone(), options);
        let active = ActiveRules::new(ControlClock::new(clock.clone()), u64::MAX);
        let replica = Replica { active, limiter: Limiter::new(store, Default::default()) };
        replica.load(RULES, &[]);
        replica
    };
    ([replica(), replica()], clock)
}

impl Replica {
    fn load(&self, rules: &str, overlay: &[&str]) {
        let file = |text: &str| RuleFile { name: "test.yaml".into(), text: text.into() };
        let options = RuleOptions::default();
        let overlay = overlay.iter().map(|text| file(text)).collect();
        let overlay = Overlay::new(overlay, Vec::new(), &options).unwrap();
        let options = RuleOptions { overlay: Some(overlay), ..options };
        let loaded = Loaded::compile(vec![file(rules)], Problems::new(100), &options, None);
        assert!(loaded.problems.is_empty() && loaded.overlay.problems.is_empty(), "{loaded:?}");
        self.active.set_rules(Arc::new(loaded.rules));
    }

    /// Raises the numbers of all limits from 10 to 1 000 a day.
    fn raise(&self, change: Change) {
        match change {
            Change::Rules => self.load(&RULES.replace(": 10,", ": 1000,"), &[]),
            Change::Overlay => {
                self.load(RULES, &["patches: [{ match: {}, set: { requests_per_unit: 1000 } }]"]);
            }
            Change::Control => {
                let control = |key: &str| {
                    let limit =
                        LimitChange { n: 1_000, burst: None, name: String::new(), rate: None };
                    Arc::new(Control {
                        id: key.into(),
                        domain: "d".into(),
                        entries: vec![(key, "x").into()],
                        exact: false,
                        text: false,
                        action: Action::Limit { limit },
                        except: Vec::new(),
                        until: None,
                        reason: String::new(),
                        by: String::new(),
                        at: NOW,
                    })
                };
                self.active.set_controls(KEYS.map(control).to_vec());
            }
        }
    }

    fn lower(&self) {
        self.active.set_controls(Vec::new());
        self.load(RULES, &[]);
    }

    /// Returns whether hits are admitted.
    async fn admits(&self, key: &str, hits: u64) -> bool {
        let entries = [(key, "x")];
        let hits_addend = Some(hits);
        let descriptors = [Descriptor { entries: &entries, hits_addend, ..Default::default() }];
        let request = Request { domain: "d", descriptors: &descriptors, ..Request::default() };
        let (snapshot, holds) = (self.active.load(), &mut Holds::default());
        let timeout = Duration::from_millis(8);
        !self
            .limiter
            .decide(snapshot.as_deref(), &request, timeout, holds)
            .await
            .unwrap()
            .over_limit
    }
}

#[tokio::test]
async fn one_caller_of_two_replicas_gets_at_most_both_bursts() {
    for change in CHANGES {
        for deny_locally_for in [Duration::ZERO, Duration::from_millis(250)] {
            for key in KEYS {
                let ([one, two], clock) = replicas(deny_locally_for);
                two.raise(change);
                let mut admitted = 0;
                for _ in 0..100 {
                    for replica in [&one, &two] {
                        admitted += u32::from(replica.admits(key, 1).await);
                        clock.advance(25_000);
                    }
                }
                // In five seconds nothing comes back at the faster rate.
                assert!(
                    (5..=10).contains(&admitted),
                    "{admitted} by {key}, {change:?}, {deny_locally_for:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn numbers_that_were_raised_for_a_while_free_nothing() {
    for change in CHANGES {
        for key in KEYS {
            for hits in [0, 1, 9] {
                let ([one, _], clock) = replicas(Duration::ZERO);
                assert!(one.admits(key, 5).await);
                one.raise(change);
                clock.set(clock.now() + SECOND);
                // A look, or denied hits.
                one.admits(key, hits).await;
                one.lower();
                assert!(!one.admits(key, 1).await, "{key}, {change:?}, {hits}");
            }
        }
    }
}
