//! Other numbers for the limits of rules.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::super::changes::{Changes, changed_limit};
use super::super::error::PlanError;
use super::super::index::{Index, Row};
use super::super::limits::LimitControls;
use super::super::plans::RulesByKey;
use super::*;
use weir_limit::Plan;
use weir_rules::rate::Rate;

const RULES: &str = "domain: d
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 5}
    descriptors:
      - key: path
        value: /a*
        rate_limit: {unit: hour, requests_per_unit: 5}
  - key: tenant
    value: big_one
    rate_limits:
      - {name: fast, unit: second, requests_per_unit: 5}
      - {name: slow, unit: day, requests_per_unit: 5}
  - key: free
    rate_limit: {unlimited: true}
  - key: bytes
    rate_limit: {unit: day, requests_per_unit: 10, algorithm: sliding_log}
  - key: remote_address
    network: 10.1.2.3
    rate_limit: {unit: day, requests_per_unit: 5}
  - key: remote_address
    network: 10.1.0.0/16
    rate_limit: {unit: day, requests_per_unit: 5}
  - key: partner
    values: [acme, 'a*']
    rate_limit: {unit: day, requests_per_unit: 5}
";

fn limit(n: u32, burst: Option<u32>, name: &str) -> Action {
    Action::Limit { limit: LimitChange { n, burst, name: name.into(), rate: None } }
}

/// Returns the names of the rules that a control may match.
fn matched(rules: &RulesByKey, control: &Control) -> Vec<String> {
    rules.matched_by(control).map(|rule| rule.name.to_string()).collect()
}

fn rules_by_key() -> RulesByKey {
    RulesByKey::new(Arc::new(rule_set(RULES)), u64::MAX)
}

const SPECIFIC: &str = "domain: d
descriptors:
  - key: user
    rate_limits: [{name: fast, rate: 5/m}, {name: slow, rate: 50/d}]
    descriptors: [{key: path, rate: 5/s}]
  - {key: user, value: ann, rate: 10/m}
  - {key: user, value: 'b*', rate: 10/m}
  - {key: user, values: [bob, eve], rate: 10/m}
  - {key: ip, rate: 5/m}
  - {key: ip, network: 10.0.0.0/8, rate: 10/m}
  - {key: a, descriptors: [{key: a, rate: 1/m}, {key: a, value: x, rate: 1/m}]}
";

#[test]
fn rules_that_the_entries_lead_past_are_not_found() {
    let rules = RulesByKey::new(Arc::new(rule_set(SPECIFIC)), u64::MAX);
    let rules_of =
        |entries: &[(&str, &str)]| matched(&rules, &control(limit(9, None, ""), entries));
    assert_eq!(rules_of(&[("user", "ann")]), ["d.user_ann"]);
    assert_eq!(rules_of(&[("user", "bill")]), ["d.user_b*"]);
    assert_eq!(rules_of(&[("user", "bob")]), ["d.user_@values"]);
    assert_eq!(rules_of(&[("user", "zoe")]), ["d.user", "d.user.path"]);
    assert_eq!(rules_of(&[("user", "zoe"), ("path", "/")]), ["d.user.path"]);
    assert_eq!(rules_of(&[("user", "ann"), ("path", "/")]), [""; 0]);
    // A value with a `*` has many values, of which some lead to each.
    assert_eq!(rules_of(&[("user", "*")]).len(), 5);
    assert_eq!(rules_of(&[("ip", "10.1.2.3")]), ["d.ip_10.0.0.0/8"]);
    assert_eq!(rules_of(&[("ip", "11.1.2.3")]), ["d.ip"]);
    // It may be the value of either entry.
    assert_eq!(rules_of(&[("a", "x")]), ["d.a.a", "d.a.a_x"]);
}

#[tokio::test]
async fn a_limit_says_nothing_of_rules_that_it_cannot_change() {
    let process = Process::new(ControlsOptions::default());
    process.active.set_rules(Arc::new(rule_set(SPECIFIC)));
    let draft_of = |user: &str, name: &str| {
        let entries = format!(r#"[{{"key":"user","value":"{user}"}}]"#);
        let change = format!(r#"{{"n":9,"name":"{name}"}}"#);
        draft(&format!(r#"{{"domain":"d","entries":{entries},"action":"limit","limit":{change}}}"#))
    };
    let ann = process.put(draft_of("ann", "")).await;
    assert_eq!((&*ann.rules, &*ann.warnings), (&["d.user_ann".to_owned()][..], &[][..]));
    // The rule that it is meant for has no such limit, but another one has.
    let named = process.controls.put(None, draft_of("ann", "fast"), PutOptions::default());
    let error = named.await.unwrap_err().error;
    assert!(error.starts_with("the limit does not fit the rule d.user_ann: "), "{error}");
    let zoe = process.put(draft_of("zoe", "")).await.warnings;
    assert!(zoe.len() == 1 && zoe[0].starts_with("d.user stays as it is: "), "{zoe:?}");
}

#[test]
fn the_rules_that_may_match_too_are_found() {
    let rules = rules_by_key();
    let rules_of = |entries: &[(&str, &str)]| matched(&rules, &control(Action::Block, entries));
    assert_eq!(rules_of(&[("user", "ann")]), ["d.user", "d.user.path_/a*"]);
    assert_eq!(rules_of(&[("path", "/abc"), ("user", "ann")]), ["d.user.path_/a*"]);
    assert_eq!(rules_of(&[("tenant", "big_one")]), ["d.tenant_big_one"]);
    assert_eq!(rules_of(&[("tenant", "*")]), ["d.tenant_big_one"]);
    assert_eq!(rules_of(&[("tenant", "small")]), [""; 0]);
    // The matcher reads key and value as one text.
    assert_eq!(rules_of(&[("tenant_big", "one")]), ["d.tenant_big_one"]);
    assert_eq!(rules_of(&[("unknown", "x")]), [""; 0]);
    // A list has this value, too, and may contain any text.
    assert_eq!(rules_of(&[("partner", "acme")]), ["d.partner_@values"]);
    assert_eq!(rules_of(&[]).len(), 8);
    let network = control(Action::Block, &[("remote_address", "10.0.0.0/8")]);
    let address = ["d.remote_address_10.1.2.3", "d.remote_address_10.1.0.0/16"];
    assert_eq!(matched(&rules, &network), address);
    // A network in a rule may stand for the addresses in it.
    let text = matched(&rules, &Control { text: true, ..network });
    assert_eq!(text, [""; 0]);
    assert_eq!(rules_of(&[("remote_address", "10.1.2.4")]), address[1..]);
    assert_eq!(rules_of(&[("remote_address", "10.1.128.0/17")]), address[1..]);
    assert_eq!(rules_of(&[("remote_address", "[10.1.2.3]:80")]), [""; 0]);
    assert_eq!(rules_of(&[("remote_address", "10.1.2.3:80")]), address[..1]);
    assert_eq!(rules_of(&[("remote_address", "11.1.2.4")]), [""; 0]);
    let elsewhere = Control { domain: "e".into(), ..control(Action::Block, &[("user", "ann")]) };
    assert_eq!(matched(&rules, &elsewhere), [""; 0]);
    let exact = Control { exact: true, ..control(Action::Block, &[("user", "ann")]) };
    assert_eq!(matched(&rules, &exact), ["d.user"]);
}

#[test]
fn plans_are_built_for_the_rules_that_match() {
    let by_key = rules_by_key();
    let rules = &by_key.rules;
    let control = Arc::new(control(limit(9, None, "slow"), &[("tenant", "big_one")]));
    let mut limits = LimitControls::default();
    assert_eq!(limits.change("a", Some(control), &by_key), None);
    let plan = |name: &str| rules.rules().find(|rule| &*rule.name == name).unwrap().plan.clone();
    let tenant = plan("d.tenant_big_one").unwrap();
    let row = find(&limits.index, &[("tenant", "big_one")]).unwrap();
    let changed = row.plans.get(&tenant).unwrap();
    let n: Vec<_> = changed.limits().iter().map(|limit| limit.requests_per_unit).collect();
    assert_eq!(n, [5, 9]);
    assert_eq!(changed.shape(), tenant.shape(), "counts continue");
    assert!(row.plans.get(&plan("d.user").unwrap()).is_none());
}

#[test]
fn plans_are_leased_as_those_of_the_rules() {
    let rules = format!(
        "{RULES}  - {{key: each, lease: false, rate_limit: {{unit: day, requests_per_unit: 5}}}}\n"
    );
    let rules = rule_set(&rules);
    let change = LimitChange { n: 9, burst: None, name: String::new(), rate: None };
    let changes = Changes { own: change.clone(), all: [change].into() };
    for (name, leases) in [("d.user", true), ("d.bytes", false), ("d.each", false)] {
        let rule = rules.rules().find(|rule| &*rule.name == name).unwrap();
        let changed = changes.apply(rule.plan.as_ref().unwrap(), u64::MAX).unwrap().unwrap();
        assert_eq!(changed.can_lease(), leases, "{name}");
    }
}

fn find<'i>(index: &'i Index, entries: &[(&str, &str)]) -> Option<&'i Row> {
    index.find("d", entries, || NOW, |_| true)
}

#[test]
fn a_rule_keeps_limits_that_a_change_does_not_fit() {
    let mut rules = rules_by_key();
    rules.max_log_bytes = 1_000;
    let error = |action, entries: &[(&str, &str)]| {
        let control = Some(Arc::new(control(action, entries)));
        LimitControls::default().change("a", control, &rules).unwrap().to_string()
    };
    for (action, entries, text) in [
        (limit(9, None, ""), ("tenant", "*"), "name the one to change, of fast, slow"),
        (limit(9, None, "fats"), ("tenant", "*"), "no limit of that name, only fast, slow"),
        (limit(9, Some(9), ""), ("user", "*"), "takes no burst"),
        (limit(1_000, None, ""), ("bytes", "*"), "may take 8000 bytes per key"),
    ] {
        let error = error(action, &[entries]);
        assert!(error.contains(text), "{error}");
    }
}

/// Returns the numbers of the limits that a descriptor has at a time; none if no control changes them.
fn numbers(active: &ActiveRules, entries: &[(&str, &str)], plan: &Arc<Plan>) -> Option<Vec<u32>> {
    let snapshot = active.load();
    let controls = ActiveView::from(&**snapshot.as_ref().unwrap()).controls?;
    match controls.find("d", entries, empty(), Some(plan), false).0? {
        Effect::Limit { plan, .. } => {
            Some(plan.limits().iter().map(|limit| limit.requests_per_unit).collect())
        }
        other => panic!("{other:?}"),
    }
}

/// Returns the numbers as [`numbers`] does, by looking for the newest control of each limit.
fn naive_numbers(controls: &[Arc<Control>], plan: &Plan, now: Micros) -> Option<Vec<u32>> {
    let only = plan.limits().len() == 1;
    let newest = |name: &str| {
        let alive = controls.iter().filter(|control| !control.is_expired(now));
        let changes = alive.filter_map(|control| match &control.action {
            Action::Limit { limit: change } => {
                Some((control.at, std::cmp::Reverse(&control.id), change))
            }
            _ => None,
        });
        // A fixed window has no burst.
        let fits = |change: &LimitChange| {
            (change.name == name || only && change.name.is_empty()) && change.burst.is_none()
        };
        let newest = changes.filter(|(_, _, change)| fits(change));
        newest.max_by_key(|&(at, id, _)| (at, id)).map(|(_, _, change)| change.n)
    };
    let new: Vec<_> = plan.limits().iter().map(|limit| newest(&limit.name)).collect();
    new.iter().any(Option::is_some).then(|| {
        let limits = new.iter().zip(plan.limits());
        limits.map(|(new, limit)| new.unwrap_or(limit.requests_per_unit)).collect()
    })
}

proptest! {
    #[test]
    fn of_controls_that_match_the_same_the_newest_of_each_limit_applies(
        changes in vec(
            (
                prop_oneof![Just(""), Just("fast"), Just("slow"), Just("none")],
                1..9u32,
                option::weighted(0.2, 1..9u32),
                option::of(NOW + 1..NOW + 4),
                0..5u64,
            ),
            0..6,
        ),
        key in prop_oneof![Just("user"), Just("tenant")],
    ) {
        let entries = [(key, "big_one")];
        let new = |(id, (name, n, burst, until, at)): (usize, (&str, u32, _, _, _))| {
            let control = control(limit(n, burst, name), &entries);
            Arc::new(Control { id: id.to_string(), until, at, ..control })
        };
        let controls: Vec<_> = changes.into_iter().enumerate().map(new).collect();
        let clock = Arc::new(ManualClock::new(NOW));
        let active = ActiveRules::new(ControlClock::new(clock.clone()), u64::MAX);
        active.set_rules(Arc::new(rule_set(RULES)));
        active.set_controls(controls.clone());
        let rules = active.load_full().unwrap();
        let plan = rules.rules().find(|rule| rule.name.ends_with(&*entries[0].0));
        let plan = plan.or_else(|| rules.rules().find(|rule| rule.name.contains("tenant")));
        let plan = plan.unwrap().plan.clone().unwrap();
        // Without being compiled again.
        for now in NOW..NOW + 5 {
            clock.set(now);
            let expected = naive_numbers(&controls, &plan, now);
            prop_assert_eq!(numbers(&active, &entries, &plan), expected, "after {} µs", now - NOW);
        }
    }
}

#[tokio::test]
async fn two_limits_of_a_rule_are_changed_by_two_controls() {
    let process = Process::new(ControlsOptions::default());
    process.active.set_rules(Arc::new(rule_set(RULES)));
    let put = async |name: &str, n: u32| {
        let entries = r#"[{"key":"tenant","value":"big_one"}]"#;
        let body = format!(
            r#"{{"domain":"d","entries":{entries},"action":"limit","limit":{{"n":{n},"name":"{name}"}}}}"#
        );
        process.put(draft(&body)).await
    };
    let rules = process.active.load_full().unwrap();
    let plan = rules.rules().find(|rule| &*rule.name == "d.tenant_big_one").unwrap();
    let plan = plan.plan.clone().unwrap();
    let now = || numbers(&process.active, &[("tenant", "big_one")], &plan);
    let (fast, slow) = (put("fast", 7).await, put("slow", 8).await);
    assert_eq!((now(), fast.warnings.len() + slow.warnings.len()), (Some(vec![7, 8]), 0));
    // The same limit again replaces its control.
    let again = put("slow", 9).await;
    assert_eq!(again.control.id, slow.control.id);
    let replaced = format!("it replaces {}: limit 8 (slow) d tenant=big_one", slow.control.id);
    assert_eq!((now(), again.warnings), (Some(vec![7, 9]), vec![replaced]));
    assert_eq!(put("slow", 9).await.warnings, [""; 0]);
    process.controls.delete(&fast.control.id).await.unwrap();
    assert_eq!(now(), Some(vec![5, 9]));
}

#[tokio::test]
async fn a_limit_that_hides_another_has_a_warning() {
    let process = Process::new(ControlsOptions::default());
    process.active.set_rules(Arc::new(rule_set(RULES)));
    let put = async |entries: &[(&str, &str)], name: &str| {
        let entries: Vec<_> = entries
            .iter()
            .map(|(key, value)| format!(r#"{{"key":"{key}","value":"{value}"}}"#))
            .collect();
        let body = format!(
            r#"{{"domain":"d","entries":[{}],"action":"limit","limit":{{"n":1,"name":"{name}"}}}}"#,
            entries.join(",")
        );
        process.put(draft(&body)).await
    };
    put(&[("user", "ann")], "").await;
    assert_eq!(put(&[("user", "bob")], "").await.warnings, [""; 0]);
    // As usual: what says more goes before what says less, and both change the same limit.
    let path = [("user", "ann"), ("path", "/a")];
    assert_eq!(put(&path, "").await.warnings, [""; 0]);
    assert_eq!(put(&[("user", "a*")], "").await.warnings, [""; 0]);
    let network = put(&[("user", "10.0.0.0/8")], "").await;
    assert_eq!(put(&[("user", "10.1.2.3")], "").await.warnings, [""; 0]);
    let same = put(&[("user", "::ffff:10.0.0.0/104")], "").await.warnings;
    assert_eq!(same.len(), 1, "{same:?}");
    let expected = format!("{} (d user=10.0.0.0/8) has no effect any more", network.control.id);
    assert!(same[0].starts_with(&expected), "{same:?}");
    let tenant = put(&[("tenant", "big_one")], "fast").await.control.id;
    let other = put(&[("tenant", "big_one"), ("x", "y")], "slow").await.warnings;
    let expected =
        format!("where {tenant} (d tenant=big_one) matches too, only this control changes limits");
    assert_eq!(other.last(), Some(&expected));
}

prop_compose! {
    fn any_limit()(
        key in prop_oneof![Just("user"), Just("tenant"), Just("bytes"), Just("path")],
        value in prop_oneof![Just("big_one"), Just("/abc"), Just("*")],
        name in prop_oneof![Just(""), Just("fast"), Just("slow")],
        n in 1..4u32,
        until in option::of(NOW + 1..NOW + 3),
        at in 0..3u64,
    ) -> Control {
        let control = control(limit(n, None, name), &[(key, value)]);
        Control { until, at, ..control }
    }
}

/// Returns a control that is around all others.
fn everything() -> Control {
    control(Action::Block, &[])
}

prop_compose! {
    fn any_limit_of_two()(
        entries in vec(("[kl]", select(&["a", "b", "a*", "*", "10.1.2.3", "10.1.0.0/16", "10.0.0.0/8"])), 0..3),
        exact in any::<bool>(),
        text in prop::bool::weighted(0.2),
    ) -> Control {
        let entries: Vec<_> = entries.iter().map(|(key, value)| (&**key, *value)).collect();
        Control { exact, text, ..control(limit(1, None, ""), &entries) }
    }
}

proptest! {
    #[test]
    fn controls_around_and_within_another_are_found(
        limits in vec(any_limit_of_two(), 0..12),
        one in any_limit_of_two(),
    ) {
        let mut all = LimitControls::default();
        let rules = RulesByKey::default();
        for (id, control) in limits.iter().enumerate() {
            let control = Control { id: id.to_string(), ..control.clone() };
            all.change(&id.to_string(), Some(Arc::new(control)), &rules);
        }
        let found = all.around_or_within(&one);
        for control in all.around_or_within(&everything()) {
            if control.is_within(&one) || one.is_within(control) {
                prop_assert!(found.contains(&control), "{control:?}");
            }
        }
    }
}

proptest! {
    #[test]
    fn limits_that_change_one_by_one_are_those_compiled_together(
        changes in vec((0..6usize, option::weighted(0.8, any_limit())), 1..20),
    ) {
        let by_key = rules_by_key();
        let mut limits = LimitControls::default();
        for (id, control) in changes {
            let id = id.to_string();
            let control = control.map(|control| Arc::new(Control { id: id.clone(), ..control }));
            limits.change(&id, control, &by_key);
        }
        let mut fresh = LimitControls::default();
        for control in limits.around_or_within(&everything()) {
            fresh.change(&control.id, Some(control.clone()), &RulesByKey::default());
        }
        prop_assert_eq!(fresh.plans.len, 0);
        fresh.compile(&by_key);
        prop_assert_eq!(limits.plans.len, fresh.plans.len);
        for key in ["user", "tenant", "bytes", "path"] {
            for value in ["big_one", "/abc", "other"] {
                for plan in by_key.rules.rules().filter_map(|rule| rule.plan.as_ref()) {
                    let plan_in = |limits: &LimitControls| {
                        let accepts = |row: &Row| row.plans.get(plan).is_some();
                        let row = limits.index.find("d", &[(key, value)], || NOW, accepts)?;
                        Some((row.control.id.clone(), row.plans.get(plan).cloned()))
                    };
                    prop_assert_eq!(plan_in(&limits), plan_in(&fresh));
                }
            }
        }
        let ids: Vec<String> = limits.around_or_within(&everything()).into_iter().map(|it| it.id.clone()).collect();
        for id in ids {
            limits.change(&id, None, &by_key);
        }
        prop_assert_eq!((limits.by_id.len(), limits.plans.len), (0, 0));
        prop_assert_eq!(limits.index.most_compared(), 0);
    }
}

#[test]
fn controls_beyond_the_most_plans_change_nothing_until_there_is_room() {
    let by_key = rules_by_key();
    let rules = &by_key.rules;
    let plan = rules.rules().find(|rule| &*rule.name == "d.user").unwrap().plan.clone().unwrap();
    let mut limits = LimitControls::default();
    let put = |limits: &mut LimitControls, id: usize| {
        let id = format!("{id:05}");
        let control = control(limit(id.parse().unwrap(), None, ""), &[("user", &id)]);
        // It matches one rule.
        let one = Control { exact: true, id: id.clone(), ..control };
        let error = limits.change(&id, Some(Arc::new(one)), &by_key);
        limits.settle(&by_key).or(error)
    };
    for id in 1..=10_000 {
        assert_eq!(put(&mut limits, id), None);
    }
    assert_eq!(put(&mut limits, 10_001), Some(PlanError::TooManyPlans));
    let changes = |limits: &LimitControls, id: &str| {
        find(&limits.index, &[("user", id)]).unwrap().plans.get(&plan).is_some()
    };
    assert!(changes(&limits, "00001") && !changes(&limits, "10001"));
    limits.change("00001", None, &by_key);
    limits.settle(&by_key);
    assert!(changes(&limits, "10001") && !limits.plans.is_full);
}

#[test]
fn a_rate_has_the_period_of_the_limit() {
    for (rule, rate, wanted) in [
        ("rate: 5/s", "9/second", ""),
        ("rate: 5/s, burst: 9", "9/1s", ""),
        ("rate: 5/15m", "9/900s", ""),
        ("rate: 5/month", "9/30d", ""),
        ("rate: 5/month, align: calendar", "9/month", ""),
        ("rate: 5/month, align: calendar", "9/30d", "month, not 30d: 9/month"),
        ("rate: 5/15m", "20/s", "15m, not s: 18000/15m"),
        ("rate: 5/s", "90/m", "s, not m: 2/s"),
        ("rate: 5/s", "9/month", "s, not month: 1/s"),
        ("rate: 5/year", "4294967295/s", "year, not s: 4294967295/year"),
        ("rate_limit: { algorithm: concurrency, requests_per_unit: 5 }", "9/s", "no period"),
    ] {
        let rules = rule_set(&format!("domain: d\ndescriptors: [{{ key: a, {rule} }}]\n"));
        let plan = rules.rules().next().unwrap().plan.as_ref().unwrap();
        let rate = rate.parse::<Rate>().unwrap();
        let change = LimitChange { n: rate.n, rate: Some(rate), ..LimitChange::default() };
        let shown = match changed_limit(plan, &change, u64::MAX) {
            Ok((_, limit)) => {
                assert_eq!(limit.requests_per_unit, 9);
                String::new()
            }
            Err(PlanError::OtherPeriod { own, asked, same }) => {
                format!("{own}, not {asked}: {same}")
            }
            Err(PlanError::NoPeriod) => "no period".to_owned(),
            Err(other) => panic!("{other}"),
        };
        assert_eq!(shown, wanted, "{rule} {rate}");
    }
}
