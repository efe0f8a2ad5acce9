//! Decisions under controls.

mod model;
mod reserving;

use super::*;
use weir_common::entry::OwnedEntry;
use weir_controls::{Action, ActiveRules, Control, ControlClock, Effect, LimitChange, Snapshot};
use weir_limit::Micros;
use weir_store::Operations;
use weir_store::local::{Local, LocalOptions};
use weir_top::{By, Top, TopQuery};

const RULES: &str = "domain: d
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: s, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: q, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - key: two
    rate_limits:
      - {name: fast, unit: minute, requests_per_unit: 5}
      - {name: slow, unit: hour, requests_per_unit: 2}
  - key: hold
    descriptors:
      - {key: id, rate_limit: {algorithm: concurrency, requests_per_unit: 1, hold_id: id}}
  - key: budget
    rate_limit: {unit: hour, requests_per_unit: 100}
    reserve: {id: id, settle: settle, estimate: 30, at_least: 20}
  - key: pair
    rate_limit: {unit: hour, requests_per_unit: 100}
    reserve: {id: id, estimate: 30}
";

const TOGETHER: &str = "domain: t
charge: together
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: s, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
";

/// Decides by rules and controls in memory.
struct Controlled {
    active: Arc<ActiveRules>,
    limiter: Limiter<MemoryStore<Arc<ManualClock>>>,
    clock: Arc<ManualClock>,
}

/// What a response shows: over, and for each descriptor over, n, remaining and reset.
type Response = (bool, Vec<Shown>);

impl Controlled {
    fn new(options: crate::LimiterOptions, controls: Vec<Control>) -> Controlled {
        let files = [("d.yaml", RULES), ("t.yaml", TOGETHER)];
        let files = files.map(|(name, text)| RuleFile { name: name.into(), text: text.into() });
        let rule_options = RuleOptions { near_limit_ratio: Some(0.8), ..RuleOptions::default() };
        let (rules, problems) = RuleSet::compile(&files, &rule_options, None);
        assert_eq!(problems, []);
        let clock = Arc::new(ManualClock::new(NOW));
        let active = Arc::new(ActiveRules::new(ControlClock::new(clock.clone()), u64::MAX));
        active.set_rules(Arc::new(rules));
        active.set_controls(controls.into_iter().map(Arc::new).collect());
        let store = MemoryStore::new(clock.clone(), 1_000);
        Controlled { active, limiter: Limiter::new(store, options), clock }
    }

    fn send(&self, domain: &str, descriptors: &[Descriptor<'_>]) -> Response {
        let snapshot = self.active.load();
        let request = Request { domain, descriptors, ..Request::default() };
        let (timeout, holds) = (Duration::from_millis(8), &mut Holds::default());
        let shown = |status: &Status<'_>| {
            let n = status.limit.map(|limit| limit.requests_per_unit);
            (status.over_limit, n, status.remaining, status.reset_seconds())
        };
        let decided = self.limiter.decide(snapshot.as_deref(), &request, timeout, holds);
        let decided = decided.now_or_never().expect("memory answers now");
        let decision = decided.expect("a decision");
        (decision.over_limit, decision.statuses.iter().map(shown).collect())
    }

    fn ask(&self, domain: &str, entries: &[Entry<'_>]) -> Response {
        let descriptors: Vec<_> = entries
            .iter()
            .map(|entry| Descriptor { entries: std::slice::from_ref(entry), ..Default::default() })
            .collect();
        self.send(domain, &descriptors)
    }
}

/// Returns a control of an hour.
fn control(domain: &str, entries: &[Entry<'_>], action: Action) -> Control {
    let entries = OwnedEntry::copied(entries.iter().copied());
    let (id, until) = (format!("{domain}{:?}", action.name()), Some(NOW + 3_600 * SECOND));
    let (reason, by, domain) = (String::new(), String::new(), domain.to_owned());
    let (exact, text, at) = (false, false, NOW);
    let except = Vec::new();
    Control { id, domain, entries, exact, text, action, except, until, reason, by, at }
}

fn limit(n: u32, name: &str) -> Action {
    Action::Limit { limit: LimitChange { n, burst: None, name: name.into(), rate: None } }
}

fn single(controls: Vec<Control>) -> Controlled {
    Controlled::new(crate::LimiterOptions::default(), controls)
}

const BLOCKED: Shown = (true, None, 0, 3_600);

#[test]
fn the_limits_of_a_status_have_the_numbers_of_a_control() {
    let bench = single(vec![control("d", &[("two", "x")], limit(3, "slow"))]);
    let snapshot = bench.active.load();
    let limits = |value: &str| {
        let entries = [("two", value)];
        let descriptors = [Descriptor { entries: &entries, ..Default::default() }];
        let request = Request { domain: "d", descriptors: &descriptors, ..Request::default() };
        let (timeout, holds) = (Duration::from_millis(8), &mut Holds::default());
        let decided = bench.limiter.decide(snapshot.as_deref(), &request, timeout, holds);
        let decision = decided.now_or_never().expect("memory answers now").expect("a decision");
        let limits = decision.statuses[0].limits();
        limits.map(|limit| limit.requests_per_unit).collect::<Vec<_>>()
    };
    assert_eq!((limits("x"), limits("y")), (vec![5, 3], vec![5, 2]));
}

#[test]
fn a_block_denies_without_a_limit_and_charges_nothing() {
    let bench = single(vec![control("d", &[("a", "x")], Action::Block)]);
    for _ in 0..3 {
        assert_eq!(bench.ask("d", &[("a", "x")]), (true, vec![BLOCKED]));
    }
    assert_eq!(bench.ask("d", &[("a", "y")]), (false, vec![(false, Some(2), 1, 40)]));
    bench.clock.advance(3_600 * SECOND - 1);
    assert_eq!(bench.ask("d", &[("a", "x")]), (true, vec![(true, None, 0, 1)]));
    bench.clock.advance(1);
    assert_eq!(bench.ask("d", &[("a", "x")]).1[0].2, 1, "it ends, and nothing was charged");
}

#[test]
fn a_block_applies_where_no_rule_and_no_domain_matches() {
    let bench = single(vec![control("*", &[("ip", "1")], Action::Block)]);
    assert_eq!(bench.ask("d", &[("ip", "1")]), (true, vec![BLOCKED]));
    assert_eq!(bench.ask("unknown", &[("ip", "1")]), (true, vec![BLOCKED]));
    assert!(!bench.ask("unknown", &[("ip", "2")]).0);
}

#[test]
fn a_block_spares_requests_with_an_entry_in_any_descriptor() {
    let spare = |entries: &[Entry<'_>], id: &str, except: &[Entry<'_>]| {
        let except = OwnedEntry::copied(except.iter().copied());
        Control { id: id.into(), except, ..control("d", entries, Action::Block) }
    };
    let partners = [("plan", "partner*"), ("ip", "10.0.0.0/8")];
    let bench = single(vec![spare(&[], "all", &partners)]);
    assert_eq!(bench.ask("d", &[("a", "x")]), (true, vec![BLOCKED]));
    assert!(bench.ask("d", &[("a", "x"), ("plan", "free")]).0);
    assert_eq!(bench.ask("d", &[("plan", "partner-1")]), (false, vec![(false, None, 0, 0)]));
    for other in [("plan", "partner"), ("ip", "10.1.2.3")] {
        assert_eq!(bench.ask("d", &[("a", other.1), other]).1[0], (false, Some(2), 1, 40));
    }
    let entries = [("a", "z"), ("plan", "partner")];
    let descriptor = Descriptor { entries: &entries, ..Default::default() };
    assert!(!bench.send("d", &[descriptor]).0, "beside others");
    assert_eq!(bench.limiter.counts().spared.load(Relaxed), 6);
    // It is no allowance: limits hold, and so do other blocks.
    (0..2).for_each(|_| drop(bench.ask("d", &[("a", "partner"), ("plan", "partner")])));
    assert!(bench.ask("d", &[("a", "partner"), ("plan", "partner")]).0);
    let others = vec![spare(&[], "all", &partners), control("d", &[("a", "x")], Action::Block)];
    let bench = single(others);
    assert_eq!(bench.ask("d", &[("a", "x"), ("plan", "partner")]).1[0], BLOCKED);
    assert!(!bench.ask("d", &[("a", "y"), ("plan", "partner")]).0);
}

#[test]
fn modes_of_a_rule_do_not_soften_a_block_and_the_global_shadow_mode_does() {
    let block =
        |key: &str| Control { id: key.to_owned(), ..control("d", &[(key, "x")], Action::Block) };
    let controls = || ["s", "q"].map(block).to_vec();
    let bench = single(controls());
    assert_eq!(bench.ask("d", &[("s", "x")]), (true, vec![BLOCKED]));
    // Another quota passes, which would let the request pass.
    assert!(bench.ask("d", &[("q", "x"), ("q", "y")]).0);
    let options = crate::LimiterOptions { shadow_mode: true, ..crate::LimiterOptions::default() };
    let shadow = Controlled::new(options, controls());
    assert_eq!(shadow.ask("d", &[("s", "x")]), (false, vec![BLOCKED]));
    let options = crate::LimiterOptions { quota_mode: true, ..crate::LimiterOptions::default() };
    assert!(Controlled::new(options, controls()).ask("d", &[("s", "x"), ("a", "y")]).0);
}

#[test]
fn a_block_forever_has_no_reset() {
    let forever = Control { until: None, ..control("d", &[("a", "x")], Action::Block) };
    assert_eq!(single(vec![forever]).ask("d", &[("a", "x")]), (true, vec![(true, None, 0, 0)]));
}

#[test]
fn with_charge_together_a_block_charges_nothing_anywhere() {
    let bench = single(vec![control("t", &[("ip", "1")], Action::Block)]);
    let both = [("a", "x"), ("ip", "1")];
    for _ in 0..3 {
        assert_eq!(bench.ask("t", &both), (true, vec![(false, Some(2), 2, 40), BLOCKED]));
    }
    assert_eq!(bench.ask("t", &[("a", "x")]).1[0].2, 1);
}

#[test]
fn refunds_are_never_blocked_and_looks_are() {
    let bench = single(vec![]);
    bench.ask("d", &[("a", "x")]);
    let block = Arc::new(control("d", &[("a", "x")], Action::Block));
    bench.active.set_controls(vec![block]);
    let entries = [("a", "x")];
    let descriptor = Descriptor { entries: &entries, ..Default::default() };
    let refund = Descriptor { hits_addend: Some(1), is_negative_hits: true, ..descriptor };
    assert_eq!(bench.send("d", &[refund]), (false, vec![(false, Some(2), 2, 40)]));
    let look = Descriptor { hits_addend: Some(0), ..descriptor };
    assert_eq!(bench.send("d", &[look]), (true, vec![BLOCKED]));
    // They go by the numbers that hits would go by.
    let both = [Action::Block, limit(10, "")].map(|action| control("d", &entries, action));
    bench.active.set_controls(both.map(Arc::new).to_vec());
    assert_eq!(bench.send("d", &[refund]), (false, vec![(false, Some(10), 10, 40)]));
}

#[test]
fn an_allowance_that_does_not_count_refunds_nothing() {
    let entries = [("a", "x")];
    let descriptor = Descriptor { entries: &entries, ..Default::default() };
    let refund = Descriptor { hits_addend: Some(1), is_negative_hits: true, ..descriptor };
    for (count, left) in [(true, 1), (false, 0)] {
        let bench = single(vec![]);
        bench.ask("d", &entries);
        let allow = control("d", &entries, Action::Allow { count });
        bench.active.set_controls(vec![Arc::new(allow)]);
        assert!(!bench.send("d", &[refund]).0);
        bench.active.set_controls(Vec::new());
        assert_eq!(bench.ask("d", &entries).1[0].2, left, "{count}");
    }
}

#[test]
fn an_allowance_that_does_not_count_ends_holds_by_their_ids() {
    let entries = [("hold", "x"), ("id", "1")];
    let descriptor = Descriptor { entries: &entries, ..Default::default() };
    let refund = Descriptor { hits_addend: Some(1), is_negative_hits: true, ..descriptor };
    let bench = single(vec![]);
    assert_eq!(bench.send("d", &[descriptor]).1[0].2, 0);
    let allow = control("d", &entries[..1], Action::Allow { count: false });
    bench.active.set_controls(vec![Arc::new(allow)]);
    bench.send("d", &[refund]);
    bench.active.set_controls(Vec::new());
    let other = [("hold", "x"), ("id", "2")];
    let other = Descriptor { entries: &other, ..Default::default() };
    assert!(!bench.send("d", &[other]).0, "the hold has ended");
}

#[test]
fn an_allowance_passes_counted_or_not() {
    for count in [true, false] {
        let bench = single(vec![control("d", &[("a", "x")], Action::Allow { count })]);
        for _ in 0..5 {
            let (over, statuses) = bench.ask("d", &[("a", "x")]);
            assert!(!over && !statuses[0].0);
            assert_eq!(statuses[0].1.is_some(), count);
        }
        bench.active.set_controls(Vec::new());
        assert_eq!(bench.ask("d", &[("a", "x")]).0, count, "counted: over the limit afterwards");
    }
}

#[test]
fn a_block_goes_before_an_allowance_and_that_before_a_limit() {
    let x = [("a", "x")];
    let (block, allow) = (Action::Block, Action::Allow { count: false });
    let mut controls = [limit(1, ""), allow, block].map(|action| control("d", &x, action)).to_vec();
    let first = |controls: &[Control]| single(controls.to_vec()).ask("d", &x).1[0];
    assert_eq!(first(&controls), BLOCKED);
    controls.pop();
    assert_eq!(first(&controls), (false, None, u32::MAX, 0));
    controls.pop();
    assert_eq!(first(&controls), (false, Some(1), 0, 40));
}

#[test]
fn a_limit_has_other_numbers_and_counts_continue() {
    let bench = single(vec![]);
    let x = [("a", "x")];
    bench.ask("d", &x);
    bench.ask("d", &x);
    assert!(bench.ask("d", &x).0);
    bench.active.set_controls(vec![Arc::new(control("d", &x, limit(10, "")))]);
    // Three are counted, with the denied one.
    assert_eq!(bench.ask("d", &x), (false, vec![(false, Some(10), 6, 40)]));
    assert_eq!(bench.ask("d", &[("a", "y")]).1[0].1, Some(2));
    bench.active.set_controls(Vec::new());
    assert!(bench.ask("d", &x).0);
}

#[test]
fn a_limit_names_one_of_several() {
    let x = [("two", "x")];
    let bench = single(vec![control("d", &x, limit(9, "slow"))]);
    assert_eq!(bench.ask("d", &x).1[0].1, Some(5), "the other one has less left now");
    let bench = single(vec![control("d", &x, limit(9, "unknown"))]);
    assert_eq!(bench.ask("d", &x).1[0].1, Some(2));
}

#[test]
fn limits_in_requests_obey_blocks_and_allowances_only() {
    let x = [("a", "x")];
    let sent = Override { requests_per_unit: 1, unit: 2, unit_multiplier: None };
    let descriptor = Descriptor { entries: &x, limit: Some(sent), ..Default::default() };
    let answers = |action| {
        let bench = single(vec![control("d", &x, action)]);
        [(); 2].map(|()| bench.send("d", &[descriptor]).0)
    };
    assert_eq!(answers(Action::Block), [true, true]);
    assert_eq!(answers(Action::Allow { count: true }), [false, false]);
    assert_eq!(answers(limit(9, "")), [false, true]);
}

#[tokio::test]
async fn controls_decide_when_the_store_fails() {
    let x = [("a", "x")];
    let request = |entries| Descriptor { entries, ..Default::default() };
    for (action, over) in [(Action::Block, true), (Action::Allow { count: true }, false)] {
        let bench = single(vec![control("d", &x, action)]);
        let store = Fake::new(bench.limiter.store);
        store.fail(|_| Some(StoreError::Unavailable));
        let limiter = Limiter::new(store, crate::LimiterOptions::default());
        let other: &[Entry<'_>] = if over { &[("a", "y")] } else { &x };
        let descriptors = [request(&x), request(other)];
        let request = Request { domain: "d", descriptors: &descriptors, ..Request::default() };
        let snapshot = bench.active.load();
        let (timeout, holds) = (Duration::from_millis(8), &mut Holds::default());
        let decided = limiter.decide(snapshot.as_deref(), &request, timeout, holds).await;
        assert_eq!(decided.unwrap().over_limit, over);
    }
}

/// A request that has loaded the controls before a change may be denied, and its denial cached, after it.
#[tokio::test]
async fn a_denial_by_former_numbers_is_not_repeated_under_a_new_control() {
    let x = [("a", "x")];
    let bench = single(vec![]);
    let deny_locally_for = Duration::from_secs(60);
    let options = LocalOptions { deny_locally_for, ..LocalOptions::default() };
    let store = Local::new(bench.limiter.store, bench.clock.clone(), options);
    let limiter = Limiter::new(store, crate::LimiterOptions::default());
    let descriptors = [Descriptor { entries: &x, ..Default::default() }];
    let request = Request { domain: "d", descriptors: &descriptors, ..Request::default() };
    let is_over = async |snapshot: Option<&Snapshot>| {
        let (timeout, holds) = (Duration::from_millis(8), &mut Holds::default());
        limiter.decide(snapshot, &request, timeout, holds).await.unwrap().over_limit
    };
    let put = |controls: Vec<Action>| {
        let controls = controls.into_iter().map(|action| Arc::new(control("d", &x, action)));
        bench.active.set_controls(controls.collect());
        limiter.store().forget_denials();
        bench.clock.advance(1);
    };
    let repeated = || {
        let rules = bench.active.load_full().unwrap();
        let rule = rules.rules().find(|rule| rule.path() == "a").unwrap();
        rule.stats.over_limit_with_local_cache.load(Relaxed)
    };
    let allow = |count| Action::Allow { count };
    for action in [limit(1_000, ""), allow(true), allow(false)] {
        put(vec![]);
        let former = bench.active.load();
        put(vec![action]);
        while !is_over(former.as_deref()).await {}
        let before = repeated();
        assert!(is_over(former.as_deref()).await);
        assert_eq!(repeated(), before + 1, "the denial is cached");
        assert!(!is_over(bench.active.load().as_deref()).await);
    }
}

#[tokio::test]
async fn operators_see_the_control_and_the_limits_of_a_key() {
    let x = [("a", "x")];
    let descriptor = Descriptor { entries: &x, ..Default::default() };
    let bench = single(vec![]);
    bench.ask("d", &x);
    let (limiter, timeout) = (&bench.limiter, Duration::from_secs(1));
    let seen = async || {
        let snapshot = bench.active.load();
        let snapshot = snapshot.as_deref().unwrap();
        let seen = limiter.inspect(snapshot, "d", &descriptor, &[], timeout).await.unwrap();
        let seen = seen.describe().state;
        let action = seen.control.unwrap().action;
        (action, seen.limits[0].n, seen.limits[0].used.unwrap())
    };
    let (block, allow) = (Action::Block, Action::Allow { count: false });
    for (action, n) in [(block, 2), (allow, 2), (limit(10, ""), 10)] {
        bench.active.set_controls(vec![Arc::new(control("d", &x, action.clone()))]);
        assert_eq!(seen().await, (action, n, 1));
    }
    bench.active.set_controls(vec![Arc::new(control("d", &x, Action::Block))]);
    let snapshot = bench.active.load();
    let applied = limiter.reset(snapshot.as_deref().unwrap(), "d", &descriptor, timeout).await;
    assert!(matches!(applied.unwrap().effect, Some(Effect::Block { .. })));
    assert_eq!(seen().await, (Action::Block, 2, 0));
}

#[test]
fn top_keys_count_blocked_hits_as_denied_and_allowed_ones_as_admitted() {
    let controls = vec![
        control("*", &[("ip", "1")], Action::Block),
        control("t", &[("ip", "2")], Action::Block),
        control("d", &[("a", "x")], Action::Allow { count: true }),
    ];
    let mut bench = single(controls);
    let options =
        weir_top::TopOptions { entries: 16, redact: Vec::new(), threads: 1, share: false };
    let top = Arc::new(Top::new(options, bench.clock.clone()));
    bench.limiter = bench.limiter.with_top(Some(top.clone()));
    bench.ask("unknown", &[("ip", "1")]);
    for _ in 0..3 {
        bench.ask("d", &[("a", "x"), ("ip", "1")]);
    }
    bench.ask("t", &[("a", "x"), ("ip", "2")]);
    let list = |by| {
        let rows = top.list(&TopQuery::new(by)).rows.into_iter();
        let row = |row: weir_top::TopRow| {
            format!("{} {}={} {}", row.domain, row.entries[0].key, row.entries[0].value, row.count)
        };
        let mut rows: Vec<String> = rows.map(row).collect();
        rows.sort();
        rows
    };
    assert_eq!(list(By::Denied), ["d ip=1 3", "t ip=2 1", "unknown ip=1 1"]);
    assert_eq!(list(By::Hits), ["d a=x 3", "d ip=1 3", "t ip=2 1", "unknown ip=1 1"]);
}

#[test]
fn keys_are_near_a_changed_limit_by_its_numbers() {
    let mut bench = single(vec![control("d", &[("two", "x")], limit(5, "slow"))]);
    let options =
        weir_top::TopOptions { entries: 16, redact: Vec::new(), threads: 1, share: false };
    let top = Arc::new(Top::new(options, bench.clock.clone()));
    bench.limiter = bench.limiter.with_top(Some(top.clone()));
    let near = || {
        let rows = top.list(&TopQuery::new(By::Near)).rows.into_iter();
        let near = rows.filter_map(|row| row.near).map(|near| (near.limit, near.used, near.n));
        near.collect::<Vec<_>>()
    };
    for _ in 0..3 {
        bench.ask("d", &[("two", "x")]);
    }
    assert_eq!(near(), []);
    bench.clock.advance(60 * SECOND);
    bench.ask("d", &[("two", "x")]);
    assert_eq!(near(), [("slow".to_owned(), 4, 5)]);
}

#[tokio::test]
async fn denials_name_the_control_that_blocks_or_changes_the_limit() {
    let controls = vec![
        control("*", &[("ip", "1")], Action::Block),
        control("d", &[("a", "x")], limit(0, "")),
    ];
    let bench = single(controls);
    let mut sample = bench.limiter.denials().sample();
    sample.ask();
    assert!(bench.ask("unknown", &[("ip", "1")]).0);
    let blocked = sample.next().await;
    sample.ask();
    assert_eq!((blocked.control.as_deref(), blocked.limit), (Some("*\"block\""), None));
    assert_eq!((blocked.rule, blocked.retry_ms), (None, Some(3_600_000)));
    assert!(bench.ask("d", &[("b", "y"), ("a", "x")]).0);
    let limited = sample.next().await;
    assert_eq!(limited.control.as_deref(), Some("d\"limit\""));
    let shown = (limited.rule.as_deref(), limited.limit.as_deref());
    assert_eq!(shown, (Some("a"), Some("0 per minute")));
}

/// The time of a control's end that is in range.
fn ends(seconds: Option<u64>) -> Option<Micros> {
    seconds.map(|seconds| NOW + seconds * SECOND)
}
