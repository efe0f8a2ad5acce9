//! The xDS form is equivalent to the rule file.

use std::hash::{DefaultHasher, Hash, Hasher};

use proptest::prelude::*;
use prost::Message;
use prost::encoding::WireType;
use prost_types::{Struct, Value, value::Kind};

use super::{compile, describe};
use crate::proto as pb;
use crate::xds::Resource;
use crate::{Loaded, Problem, Problems, RuleOptions, RuleSet, compare};

fn policy(unit: i32, requests_per_unit: u32) -> pb::RateLimitPolicy {
    pb::RateLimitPolicy { unit, requests_per_unit, ..Default::default() }
}

fn config(descriptors: Vec<pb::RateLimitDescriptor>) -> pb::RateLimitConfig {
    pb::RateLimitConfig {
        name: "shop-rules".into(),
        domain: "d".into(),
        descriptors,
        ..Default::default()
    }
}

fn descriptor(key: &str, rate_limit: pb::RateLimitPolicy) -> pb::RateLimitDescriptor {
    let rate_limit = Some(rate_limit);
    pb::RateLimitDescriptor { key: key.into(), rate_limit, ..Default::default() }
}

fn resource(config: &pb::RateLimitConfig) -> Resource {
    Resource::decode(config.encode_to_vec().into(), "resource").unwrap()
}

fn load(config: &pb::RateLimitConfig) -> (RuleSet, Vec<String>) {
    let resource = resource(config);
    let (set, problems) = RuleSet::compile(&[resource], &RuleOptions::default(), None);
    (set, problems.iter().map(describe).collect())
}

/// Describes all rules of a set.
fn summary(set: &RuleSet) -> String {
    let mut out = set.dump();
    for rule in set.rules() {
        let plan = rule.plan.as_ref().map(|plan| plan.limits());
        let (metadata, replaces) = (&rule.metadata, &rule.replaces);
        let flags = (rule.detailed_metric, rule.value_to_metric, rule.limit_name(0));
        out += &format!("{} {plan:?} {metadata:?} {replaces:?} {flags:?}\n", rule.name);
    }
    out
}

#[test]
fn every_key_has_a_field() {
    let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
    let limits = vec![
        pb::RateLimitPolicy { unit_multiplier: Some(15), name: "a".into(), ..policy(2, 300) },
        pb::RateLimitPolicy {
            period: seconds(36 * 3_600),
            algorithm: "token_bucket".into(),
            burst: Some(20),
            refill_amount: Some(2),
            refill_interval: Some(prost_types::Duration { seconds: 0, nanos: 1_500_000 }),
            strict: true,
            charge_denied: Some(true),
            max_debt: Some(5),
            shadow_mode: true,
            ..policy(0, 10)
        },
        pb::RateLimitPolicy {
            algorithm: "bucketed_window".into(),
            buckets: Some(12),
            replaces: vec![pb::RateLimitReplace { name: "b".into() }],
            ..policy(3, 7)
        },
        pb::RateLimitPolicy {
            align: "calendar".into(),
            time_zone: "Europe/Berlin".into(),
            starts: "15".into(),
            ..policy(5, 9)
        },
    ];
    let held = pb::RateLimitPolicy {
        algorithm: "concurrency".into(),
        hold_id: "id".into(),
        hold_timeout: seconds(30),
        ..policy(0, 4)
    };
    let nested = pb::RateLimitDescriptor {
        key: "user".into(),
        value: "a*".into(),
        share_threshold: true,
        value_to_metric: true,
        rate_limits: limits,
        ..Default::default()
    };
    let mut top = descriptor("id", held);
    top.value = "x".into();
    top.shadow_mode = true;
    top.quota_mode = true;
    top.detailed_metric = true;
    top.descriptors = vec![nested];
    let value = Value { kind: Some(Kind::NumberValue(5.0)) };
    top.metadata = Some(Struct { fields: [("team".to_owned(), value)].into() });
    let sent = pb::RateLimitConfig {
        on_store_failure: "local".into(),
        charge: "each".into(),
        ..config(vec![top])
    };
    let (by_xds, problems) = load(&sent);
    assert_eq!(problems, Vec::<String>::new());
    let (by_file, problems) = compile(
        "domain: d
on_store_failure: local
descriptors:
  - key: id
    value: x
    shadow_mode: true
    quota_mode: true
    detailed_metric: true
    metadata: { team: 5 }
    rate_limit: { algorithm: concurrency, requests_per_unit: 4, hold_id: id, hold_timeout: 30s }
    descriptors:
      - key: user
        value: a*
        share_threshold: true
        value_to_metric: true
        rate_limits:
          - { unit: minute, unit_multiplier: 15, name: a, requests_per_unit: 300 }
          - { period: 36h, algorithm: token_bucket, burst: 20, refill_amount: 2, strict: true,
              refill_interval: 1500us, charge_denied: true, max_debt: 5, shadow_mode: true,
              requests_per_unit: 10 }
          - { algorithm: bucketed_window, buckets: 12, unit: hour, requests_per_unit: 7,
              replaces: [{ name: b }] }
          - { align: calendar, time_zone: Europe/Berlin, starts: 15, unit: month, requests_per_unit: 9 }
",
    );
    assert_eq!(problems.iter().map(describe).collect::<Vec<_>>(), Vec::<String>::new());
    assert_eq!(summary(&by_xds), summary(&by_file));
}

#[test]
fn rate_has_a_field() {
    let rate = |rate: &str| pb::RateLimitPolicy { rate: rate.into(), ..Default::default() };
    let limit = pb::RateLimitPolicy { burst: Some(20), ..rate("10/s") };
    let several = vec![rate("10/s"), rate("800 / day")];
    let sent = pb::RateLimitDescriptor { rate_limits: several, ..Default::default() };
    let sent = pb::RateLimitDescriptor { key: "b".into(), ..sent };
    let (by_xds, problems) = load(&config(vec![descriptor("a", limit), sent]));
    assert_eq!(problems, Vec::<String>::new());
    let (by_file, _) = compile(
        "domain: d\ndescriptors:\n- { key: a, rate: 10/s, burst: 20 }\n- { key: b, rates: [10/s, 800/d] }\n",
    );
    assert_eq!(summary(&by_xds), summary(&by_file));
    for (limit, wanted) in [
        (
            rate("10 per second"),
            "`rate` is `10 per second`\n  at: descriptors[0].rate_limit.rate (a)",
        ),
        (pb::RateLimitPolicy { unit: 1, ..rate("10/s") }, "both `rate` and `unit`"),
        (
            pb::RateLimitPolicy { requests_per_unit: 1, ..rate("1/s") },
            "both `rate` and `requests_per_unit`",
        ),
    ] {
        let files = vec![resource(&config(vec![descriptor("a", limit)]))];
        let loaded = Loaded::compile(files, Problems::new(100), &RuleOptions::default(), None);
        let reported = loaded.render_errors();
        assert!(reported.contains(wanted), "{reported}");
        assert_eq!(loaded.problems.len(), 1, "{reported}");
    }
}

#[test]
fn a_burst_of_0_is_a_warning() {
    let limit = |burst| pb::RateLimitPolicy {
        burst: Some(burst),
        rate: "10/s".into(),
        ..Default::default()
    };
    assert_eq!(load(&config(vec![descriptor("a", limit(1))])).1, [""; 0]);
    let (set, problems) = load(&config(vec![descriptor("a", limit(0))]));
    let [problem] = &problems[..] else { panic!("{problems:?}") };
    assert!(set.rules().count() == 1 && problem.contains("denies everything"), "{problem}");
}

#[test]
fn problems_have_the_references_words_and_the_resources_name() {
    for (sent, reported) in [
        (config(vec![descriptor("k", policy(0, 1))]), "invalid rate limit unit 'UNKNOWN'"),
        (config(vec![descriptor("k", policy(42, 1))]), "invalid rate limit unit '42'"),
        (config(vec![descriptor("", policy(1, 1))]), "descriptor has empty key"),
        (
            pb::RateLimitConfig { domain: String::new(), ..config(Vec::new()) },
            "config file cannot have empty domain",
        ),
        (
            config(vec![descriptor("k", pb::RateLimitPolicy { unlimited: true, ..policy(1, 0) })]),
            "should not specify rate limit unit when unlimited",
        ),
        (
            config(vec![descriptor(
                "k",
                pb::RateLimitPolicy {
                    algorithm: "gcra".into(),
                    burst: Some(5_000),
                    ..policy(pb::RateLimitUnit::Year.into(), 1)
                },
            )]),
            "a burst of 5000 takes more than 1000 years to come back",
        ),
    ] {
        let (_, problems) = load(&sent);
        let [problem] = &problems[..] else { panic!("{problems:?}") };
        assert!(problem.starts_with("shop-rules:"), "{problem}");
        assert!(problem.contains(reported), "{problem}");
    }
}

#[test]
fn problems_are_located_by_field_paths() {
    let nested = pb::RateLimitDescriptor {
        value: "a: \"b\"".into(),
        descriptors: vec![descriptor("x", policy(4, 1)), descriptor("y", policy(0, 1))],
        ..descriptor("user", policy(4, 1))
    };
    let several = pb::RateLimitDescriptor {
        rate_limits: vec![
            policy(4, 1),
            pb::RateLimitPolicy { algorithm: "guess".into(), ..policy(4, 2) },
        ],
        rate_limit: None,
        ..descriptor("ip", policy(4, 1))
    };
    let sent = pb::RateLimitConfig {
        charge: "never".into(),
        ..config(vec![descriptor("k", policy(4, 1)), nested, several])
    };
    let files = vec![resource(&sent)];
    let missing = Problem::of_file("other", "it is not there", "send it");
    let mut problems = Problems::new(100);
    problems.of_files([missing]);
    let loaded = Loaded::compile(files, problems, &RuleOptions::default(), None);
    let reported = loaded.render_errors();
    let first = "other: error: it is not there\n  help: send it\nshop-rules: error: ";
    assert!(reported.starts_with(first), "{reported}");
    for place in [
        "charge",
        "descriptors[1].descriptors[1].rate_limit.unit (user=a: \\\"b\\\" > y)",
        "descriptors[2].rate_limits[1].algorithm (ip)",
    ] {
        assert!(reported.contains(&format!("\n  at: {place}\n  help: ")), "{place}: {reported}");
    }
}

#[test]
fn both_positions_of_a_duplicate_are_field_paths() {
    let two = || vec![descriptor("k", policy(4, 1)), descriptor("k", policy(4, 2))];
    let first = resource(&config(two()));
    let second = pb::RateLimitConfig { name: "more".into(), ..config(Vec::new()) };
    let files = vec![first, resource(&second)];
    let loaded = Loaded::compile(files, Problems::new(100), &RuleOptions::default(), None);
    assert_eq!(
        loaded.render_errors(),
        "shop-rules: error: duplicate descriptor composite key 'd.k'
  at: descriptors[1].key (k)
  note: the first is at shop-rules: descriptors[0].key (k)
  help: a descriptor must be unique on its level: merge the two, and list several limits in \
         `rate_limits`
more: error: duplicate domain 'd' in config file
  at: domain
  note: the first is at shop-rules: domain
  help: another file has this domain: rename one, or merge domains \
         (setting rules.merge_domains, MERGE_DOMAIN_CONFIG; in commands --merge-domains)
"
    );
}

/// Encodes a field of a message.
fn field(number: u32, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    prost::encoding::encode_key(number, WireType::LengthDelimited, &mut out);
    prost::encoding::encode_varint(value.len() as u64, &mut out);
    [&out[..], value].concat()
}

fn hash(resource: &Resource) -> u64 {
    let mut hasher = DefaultHasher::new();
    resource.hash(&mut hasher);
    hasher.finish()
}

#[test]
fn the_order_and_parts_of_metadata_do_not_matter() {
    let long = "k".repeat(2_000);
    let number = |n: f64| Value { kind: Some(Kind::NumberValue(n)) }.encode_to_vec();
    let entry = |key: &str, n| field(1, &[field(1, key.as_bytes()), field(2, &number(n))].concat());
    let sent = |parts: &[Vec<u8>]| {
        let metadata: Vec<u8> = parts.iter().flat_map(|part| field(8, part)).collect();
        let limit = field(3, &policy(4, 1).encode_to_vec());
        let descriptor = [field(1, b"k"), metadata, limit].concat();
        let message = [field(2, b"d"), field(3, &descriptor)].concat();
        Resource::decode(message.into(), "resource").unwrap()
    };
    let one = sent(&[[entry("a", 1.0), entry(&long, 2.5), entry("c", 3.0)].concat()]);
    let parts =
        sent(&[[entry("c", 3.0), entry("a", 7.0)].concat(), entry(&long, 2.5), entry("a", 1.0)]);
    assert_eq!(hash(&one), hash(&parts));
    let (set, problems) = RuleSet::compile(&[one], &RuleOptions::default(), None);
    assert_eq!(problems, []);
    let metadata = set.rules().next().and_then(|rule| rule.metadata.clone()).unwrap();
    let wanted = serde_json::json!({ "a": 1, "c": 3, (long): 2.5 });
    assert_eq!(serde_json::Value::Object(metadata), wanted);
}

#[test]
fn messages_may_nest_a_hundred_levels() {
    let nested = |levels| {
        let inner = (1..levels)
            .fold(field(1, b"k"), |below, _| [field(1, b"k"), field(4, &below)].concat());
        let message = [field(2, b"d"), field(3, &inner)].concat();
        let resource = Resource::decode(message.into(), "resource").unwrap();
        RuleSet::compile(&[resource], &RuleOptions::default(), None).1
    };
    let is_too_deep = |problem: &Problem| {
        problem.message.contains("messages are nested more than 100 levels deep")
    };
    assert!(!nested(100).iter().any(is_too_deep));
    assert!(matches!(&nested(101)[..], [problem] if is_too_deep(problem)));
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,5}",
        any::<String>(),
        "[\"'\\\\:#{}\\[\\]\n\t\u{7f}\u{85}\u{2028} ~*&!|>%@`-]{1,8}"
    ]
}

proptest! {
    #[test]
    fn any_text_is_preserved(key in text(), value in text(), name in text(), field in text()) {
        prop_assume!(!key.is_empty());
        let mut sent = descriptor(&key, pb::RateLimitPolicy { name: name.clone(), ..policy(4, 3) });
        sent.value = value.clone();
        let string = Value { kind: Some(Kind::StringValue(value.clone())) };
        sent.metadata = Some(Struct { fields: [(field.clone(), string)].into() });
        let (set, problems) = load(&config(vec![sent]));
        prop_assert_eq!(problems, Vec::<String>::new());
        let rule = set.rules().next().expect("one rule");
        prop_assert_eq!(rule.entries().collect::<Vec<_>>(), [(&*key, &*value)]);
        prop_assert_eq!(rule.limit_name(0), &*name);
        let metadata = rule.metadata.as_ref().expect("metadata");
        prop_assert_eq!(metadata.get(&field).and_then(|v| v.as_str()), Some(&*value));
    }
}

#[test]
fn reserve_has_a_field() {
    let minute = Some(prost_types::Duration { seconds: 60, nanos: 0 });
    let full = pb::RateLimitReserve {
        id: "i".into(),
        settle: "s".into(),
        estimate: Some(3),
        at_least: Some(2),
        at_most: Some(4),
        timeout: minute,
    };
    let with = |reserve| {
        let reserve = Some(reserve);
        config(vec![pb::RateLimitDescriptor { reserve, ..descriptor("k", policy(4, 9)) }])
    };
    let some = pb::RateLimitReserve { id: "i".into(), settle: "s".into(), ..Default::default() };
    for (sent, wanted) in [
        (full.clone(), "{ id: i, settle: s, estimate: 3, at_least: 2, at_most: 4, timeout: 60s }"),
        (some, "{ id: i, settle: s }"),
    ] {
        let (by_xds, problems) = load(&with(sent));
        assert_eq!(problems, Vec::<String>::new());
        let limit = "rate_limit: { unit: day, requests_per_unit: 9 }";
        let (by_file, _) = compile(&format!(
            "domain: d\ndescriptors: [{{ key: k, {limit}, reserve: {wanted} }}]\n"
        ));
        assert!(by_xds.rules().all(|rule| rule.reserve.is_some()));
        assert!(compare(&by_xds, &by_file).is_empty(), "{wanted}");
    }
    let nanos = Some(prost_types::Duration { seconds: 1, nanos: 1_000 });
    let wrong = pb::RateLimitReserve { at_most: Some(0), timeout: nanos, ..full };
    let files = vec![resource(&with(wrong))];
    let loaded = Loaded::compile(files, Problems::new(100), &RuleOptions::default(), None);
    let reported = loaded.render_errors();
    for field in ["at_most", "timeout"] {
        let place = format!("\n  at: descriptors[0].reserve.{field} (k)\n");
        assert!(reported.contains(&place), "{place}: {reported}");
    }
    let drains = pb::RateLimitPolicy { algorithm: "gcra".into(), ..policy(4, 9) };
    let some =
        Some(pb::RateLimitReserve { id: "i".into(), settle: "s".into(), ..Default::default() });
    let drains = pb::RateLimitDescriptor { reserve: some, ..descriptor("k", drains) };
    let files = vec![resource(&config(vec![drains]))];
    let loaded = Loaded::compile(files, Problems::new(100), &RuleOptions::default(), None);
    let reported = loaded.render_errors();
    assert!(reported.contains("gcra beside `reserve`"), "{reported}");
    assert!(reported.contains("at: descriptors[0].rate_limit.algorithm (k)"), "{reported}");
}

#[test]
fn ban_has_a_field() {
    let time = |seconds| prost_types::Duration { seconds, nanos: 0 };
    let full = pb::RateLimitBan {
        after: 5,
        within: Some(time(600)),
        r#for: vec![time(60), time(3_600)],
        forget: Some(time(7_200)),
    };
    let one =
        pb::RateLimitBan { after: 5, within: full.within, r#for: vec![time(60)], forget: None };
    let with = |ban| {
        let ban = Some(ban);
        config(vec![pb::RateLimitDescriptor { ban, ..descriptor("k", policy(4, 9)) }])
    };
    for (sent, wanted) in [
        (full.clone(), "{ after: 5, within: 10m, for: [1m, 1h], forget: 2h }"),
        (one, "{ after: 5, within: 10m, for: 1m }"),
    ] {
        let (by_xds, problems) = load(&with(sent));
        assert_eq!(problems, Vec::<String>::new());
        let limit = "rate_limit: { unit: day, requests_per_unit: 9 }";
        let (by_file, _) =
            compile(&format!("domain: d\ndescriptors: [{{ key: k, {limit}, ban: {wanted} }}]\n"));
        assert!(by_xds.rules().all(|rule| rule.ban().is_some()));
        assert!(compare(&by_xds, &by_file).is_empty(), "{wanted}");
    }
    let wrong = pb::RateLimitBan { after: 300, within: Some(time(-1)), ..full };
    let files = vec![resource(&with(wrong))];
    let loaded = Loaded::compile(files, Problems::new(100), &RuleOptions::default(), None);
    let reported = loaded.render_errors();
    for field in ["after", "within"] {
        let place = format!("\n  at: descriptors[0].ban.{field} (k)\n");
        assert!(reported.contains(&place), "{place}: {reported}");
    }
}

#[test]
fn lease_has_a_field() {
    for (sent, wanted) in [(None, true), (Some(true), true), (Some(false), false)] {
        let descriptor = pb::RateLimitDescriptor { lease: sent, ..descriptor("k", policy(4, 9)) };
        let (set, problems) = load(&config(vec![descriptor]));
        assert_eq!(problems, Vec::<String>::new());
        let rule = set.rules().next().unwrap();
        assert_eq!((rule.lease, rule.plan.as_ref().unwrap().can_lease()), (wanted, wanted));
    }
    let log = pb::RateLimitPolicy { algorithm: "sliding_log".into(), ..policy(4, 9) };
    let wrong = pb::RateLimitDescriptor { lease: Some(true), ..descriptor("k", log) };
    let files = vec![resource(&config(vec![wrong]))];
    let loaded = Loaded::compile(files, Problems::new(100), &RuleOptions::default(), None);
    let reported = loaded.render_errors();
    assert!(reported.contains("\n  at: descriptors[0].lease (k)\n"), "{reported}");
}

#[test]
fn networks_have_fields() {
    let length = |v4, v6| Some(pb::RateLimitGroup { v4, v6 });
    let with = |networks: &[&str], group| pb::RateLimitDescriptor {
        network: networks.iter().map(|network| (*network).into()).collect(),
        group,
        ..descriptor("ip", policy(4, 1))
    };
    let (set, problems) =
        load(&config(vec![with(&["10.0.0.0/8", "::/0"], length(None, Some(64)))]));
    assert_eq!(problems, Vec::<String>::new());
    let key = |value| set.domain("d").unwrap().key_values(&[("ip", value)]);
    assert_eq!(key("10.1.2.3"), []);
    assert_eq!(key("2001:db8::1"), [(0, "2001:db8::/64".into())]);
    assert_eq!(set.rules().count(), 2);
    let files =
        vec![resource(&config(vec![with(&["::/0", "10.0.0.1/8"], length(Some(33), None))]))];
    let loaded = Loaded::compile(files, Problems::new(100), &RuleOptions::default(), None);
    let reported = loaded.render_errors();
    for place in ["descriptors[0].network[1] (ip)", "descriptors[0].group.v4 (ip)"] {
        assert!(reported.contains(&format!("\n  at: {place}\n")), "{place}: {reported}");
    }
    let values = vec!["ann".to_owned(), "b*".into(), "10.0.0.0/8".into()];
    let several = pb::RateLimitDescriptor { values, ..with(&[], None) };
    let (set, problems) = load(&config(vec![several.clone()]));
    assert_eq!(problems, Vec::<String>::new());
    for (value, is_found) in [("ann", true), ("bob", true), ("10.1.2.3", true), ("carol", false)] {
        assert_eq!(set.domain("d").unwrap().find(&[("ip", value)]).is_some(), is_found, "{value}");
    }
    let files = vec![resource(&config(vec![several.clone(), several]))];
    let loaded = Loaded::compile(files, Problems::new(100), &RuleOptions::default(), None);
    let reported = loaded.render_errors();
    assert!(reported.contains("\n  at: descriptors[1].values[1] (ip)\n"), "{reported}");
    let list = pb::RateLimitDescriptor { values_file: "a.txt".into(), ..with(&[], None) };
    let (_, problems) = load(&config(vec![list]));
    assert!(problems[0].contains("`values_file` in rules that are in no file"), "{problems:?}");
}
