//! The key `reserve`: what it may be, and which descriptors reserve and settle.

use proptest::prelude::*;

use super::{find, good, reported};
use crate::{Reserve, ReserveStep, Rule, RuleSet};

const DAY: &str = "rate_limit: { unit: day, requests_per_unit: 1000 }";

/// The rule `user` with these limits and this `reserve`.
fn text(limits: &str, reserve: &str) -> String {
    format!("domain: d\ndescriptors:\n- key: user\n  {limits}\n  reserve: {reserve}\n")
}

fn only(set: &RuleSet) -> &Rule {
    let mut rules = set.rules();
    let rule = rules.next().unwrap();
    assert!(rules.next().is_none());
    rule
}

fn reserve(limits: &str, reserve: &str) -> Reserve {
    only(&good(&text(limits, reserve))).reserve.as_deref().unwrap().clone()
}

/// The rule of a descriptor, its step, and its entries that are counted.
fn step(set: &RuleSet, keys: &str) -> Option<(String, Option<ReserveStep>, usize)> {
    let entries: Vec<_> = keys.split_whitespace().map(|key| (key, "7")).collect();
    let rule = set.domain("d")?.find(&entries)?.rule;
    let count = entries.len();
    Some((rule.path().to_owned(), rule.reserve_step(count), rule.counted_entries(count)))
}

#[test]
fn what_is_absent_has_a_default() {
    assert_eq!(
        reserve(DAY, "{ id: request_id, settle: end }"),
        Reserve {
            id: "request_id".into(),
            settle: Some("end".into()),
            estimate: None,
            at_least: 1,
            at_most: 500,
            timeout: 3_600,
            has_own_id: false,
        }
    );
    let all = "{ id: user, estimate: 20, at_least: 10, at_most: 1000, timeout: 24h }";
    assert_eq!(
        reserve(DAY, all),
        Reserve {
            id: "user".into(),
            settle: None,
            estimate: Some(20),
            at_least: 10,
            at_most: 1_000,
            timeout: 86_400,
            has_own_id: true,
        }
    );
    assert_eq!(only(&good(&text(DAY, "null"))).reserve, None);
}

#[test]
fn by_default_at_most_half_of_the_smallest_capacity_is_reserved() {
    for (limits, keys, wanted) in [
        ("rate_limit: { unit: day, requests_per_unit: 1 }", "settle: s", 1),
        ("rate_limit: { unit: day, requests_per_unit: 0 }", "settle: s", 1),
        ("rate_limit: { unit: day, requests_per_unit: 0 }", "estimate: 9, at_least: 7", 9),
        (DAY, "estimate: 600", 600),
        (DAY, "settle: s, at_least: 700", 700),
        (
            "rate_limits: [{ unit: day, requests_per_unit: 900 }, { unit: hour, requests_per_unit: 90 }, \
             { unit: minute, requests_per_unit: 9, shadow_mode: true }]",
            "settle: s",
            45,
        ),
        (
            "rate_limits: [{ unit: day, requests_per_unit: 900, shadow_mode: true }]",
            "settle: s",
            450,
        ),
    ] {
        let read = reserve(limits, &format!("{{ id: i, {keys} }}"));
        assert_eq!(read.at_most, wanted, "{limits} {keys}");
    }
}

#[test]
fn numbers_are_in_order_and_within_the_smallest_capacity() {
    for (keys, wanted) in [
        ("settle: s, at_least: 0", "5:44: error: config error, `at_least` is 0 «0»"),
        (
            "settle: s, at_least: 1001",
            "5:44: error: config error, `at_least` is 1001, but a limit allows 1000 «1001»",
        ),
        (
            "settle: s, at_most: 1001",
            "5:43: error: config error, `at_most` is 1001, but a limit allows 1000 «1001»",
        ),
        (
            "estimate: 1001, at_most: 1000",
            "5:33: error: config error, `estimate` is 1001, but a limit allows 1000 «1001»\n\
             5:48: error: config error, `at_most` is 1000, `estimate` is 1001 «1000»",
        ),
        (
            "estimate: 9, at_least: 10",
            "5:33: error: config error, `estimate` is 9, `at_least` is 10 «9»",
        ),
        (
            "settle: s, at_least: 10, at_most: 9",
            "5:57: error: config error, `at_most` is 9, `at_least` is 10 «9»",
        ),
        (
            "settle: s, at_most: x",
            "5:43: error: error loading config file: cannot use x as a number for `at_most` «x»",
        ),
        ("settle: s, timeout: 25h", "5:43: error: config error, `timeout` is '25h' «25h»"),
        (
            "settle: s, timeout: 1s500ms",
            "5:43: error: config error, `timeout` is '1s500ms' «1s500ms»",
        ),
        ("settle: s, timeout: 0", "5:43: error: config error, `timeout` is '0' «0»"),
    ] {
        let wanted: Vec<&str> = wanted.split('\n').collect();
        assert_eq!(reported(&text(DAY, &format!("{{ id: req, {keys} }}"))), wanted, "{keys}");
    }
    // A rule that denies all has no capacity that could be too small.
    let none = "rate_limit: { unit: day, requests_per_unit: 0 }";
    assert_eq!(reserve(none, "{ id: i, estimate: 5, at_most: 70 }").at_most, 70);
}

#[test]
fn the_entries_have_keys_of_their_own() {
    for (reserve, wanted) in [
        ("{ settle: s }", "5:12: error: config error, `reserve` without `id` «»"),
        ("{ id: i }", "5:12: error: config error, `reserve` without `estimate` and `settle` «»"),
        ("{ id: '', settle: s }", "5:18: error: config error, `id` is empty «»"),
        ("{ id: i, settle: '' }", "5:29: error: config error, `settle` is empty «»"),
        ("{ id: i, settle: i }", "5:29: error: config error, `settle` is 'i', as `id` «i»"),
        (
            "{ id: i, settle: s, atleast: 1 }",
            "5:32: error: config error, unknown key 'atleast' «atleast»",
        ),
        ("5", "5:12: error: error loading config file: cannot use `5` as a map «5»"),
    ] {
        assert_eq!(reported(&text(DAY, reserve))[0], wanted, "{reserve}");
    }
    let problems = super::compile(&text(DAY, "{ id: i, settle: s, atleast: 1 }")).1;
    assert_eq!(problems[0].help, "did you mean `at_least`?");
    assert_eq!(
        reported("domain: d\ndescriptors:\n- { key: a, id: x }\n"),
        ["3:13: error: config error, 'id' does not belong here «id»"]
    );
}

#[test]
fn limits_whose_hits_cannot_be_settled_are_errors() {
    for (limit, wanted) in [
        (
            "algorithm: sliding_log, unit: day, requests_per_unit: 9",
            "4:28: error: config error, sliding_log beside `reserve`: it keeps admitted hits alone \
             «sliding_log»",
        ),
        (
            "algorithm: concurrency, requests_per_unit: 9",
            "4:28: error: config error, concurrency beside `reserve`: its hits end with their request \
             «concurrency»",
        ),
        (
            "algorithm: gcra, unit: day, requests_per_unit: 9",
            "4:28: error: config error, gcra beside `reserve`: it does not know which of its hits have \
             drained «gcra»",
        ),
        (
            "algorithm: leaky_bucket, unit: day, requests_per_unit: 9",
            "4:28: error: config error, leaky_bucket beside `reserve`: it does not know which of its hits \
             have drained «leaky_bucket»",
        ),
        (
            "algorithm: token_bucket, strict: true, unit: day, requests_per_unit: 9",
            "4:28: error: config error, token_bucket beside `reserve`: it does not know which of its hits \
             have drained «token_bucket»",
        ),
        ("unlimited: true", "4:28: error: config error, `unlimited` beside `reserve` «true»"),
        (
            "charge_denied: true, unit: day, requests_per_unit: 9",
            "4:32: error: config error, `charge_denied` beside `reserve` «true»",
        ),
    ] {
        let limit = format!("rate_limit: {{ {limit} }}");
        assert_eq!(reported(&text(&limit, "{ id: i, settle: s }")), [wanted], "{limit}");
    }
    let gcra = text(
        "rate_limits: [{ unit: day, requests_per_unit: 9 }, { algorithm: gcra, unit: hour, requests_per_unit: 9 }]",
        "{ id: i, settle: s }",
    );
    let (_, problems) = super::compile(&gcra);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(
        problems[0].help,
        "use sliding_window for minutes, fixed_window for days and months"
    );
    // A rule beside it may drain.
    good(&format!(
        "{}- key: ip\n  rate_limit: {{ algorithm: gcra, unit: hour, requests_per_unit: 9 }}\n",
        text(DAY, "{ id: i, settle: s }")
    ));
    assert_eq!(
        reported("domain: d\ndescriptors:\n- key: user\n  reserve: { id: i, settle: s }\n"),
        ["4:12: error: config error, `reserve` without a limit «»"]
    );
    // All at once, with those of the limit.
    let limit =
        "rate_limit: { algorithm: token_bucket, unit: dya, strict: true, charge_denied: true }";
    let all = reported(&text(limit, "{ id: '', settle: s, timeout: x }"));
    assert_eq!(all.len(), 5, "{all:?}");
}

#[test]
fn denied_hits_are_not_charged() {
    for limit in [
        "unit: day, requests_per_unit: 9",
        "unit: day, requests_per_unit: 9, charge_denied: false",
        "algorithm: sliding_window, unit: day, requests_per_unit: 9",
    ] {
        let limits = format!("rate_limit: {{ {limit} }}");
        let set = good(&text(&limits, "{ id: i, settle: s }"));
        let plan = only(&set).plan.as_ref().unwrap();
        let read = &plan.limits()[0];
        assert!(!read.charge_denied, "{limit}");
        // The counts go on where those of the rule without `reserve` are.
        let without = good(&text(&limits, "null"));
        assert_eq!(only(&without).plan.as_ref().unwrap().shape(), plan.shape(), "{limit}");
    }
}

#[test]
fn a_descriptor_below_may_not_have_a_key_of_the_reservation() {
    let below = |reserve: &str, keys: &str| {
        let children: Vec<String> =
            keys.split_whitespace().map(|key| format!("{{ key: {key}, {DAY} }}")).collect();
        let children = children.join(", ");
        reported(&format!("{}  descriptors: [{children}]\n", text(DAY, reserve)))
    };
    let id = "5:18: error: config error, `id` is 'i', the key of a descriptor below «i»";
    let settle = "5:29: error: config error, `settle` is 's', the key of a descriptor below «s»";
    assert_eq!(below("{ id: i, settle: s }", "i j s"), [id, settle]);
    assert_eq!(below("{ id: i, settle: s }", "i_2 j"), [""; 0]);
    let settle = "5:32: error: config error, `settle` is 's', the key of a descriptor below «s»";
    assert_eq!(below("{ id: user, settle: s }", "s"), [settle]);
}

#[test]
fn an_id_reserves_and_a_mark_settles() {
    use ReserveStep::{NoId, Reserve, Settle};
    let set = good(&format!(
        "{}  descriptors: [{{ key: path, {DAY} }}]\n",
        text(DAY, "{ id: i, settle: s }")
    ));
    let user = |step, counted| Some(("user".to_owned(), Some(step), counted));
    assert_eq!(step(&set, "user"), user(NoId, 1));
    assert_eq!(step(&set, "user i"), user(Reserve, 1));
    assert_eq!(step(&set, "user i s"), user(Settle, 1));
    assert_eq!(step(&set, "user path"), Some(("user.path".to_owned(), None, 2)));
    for none in ["i", "user s", "user s i", "user i i", "user i s s", "user i path", "user path i"]
    {
        assert_eq!(step(&set, none), None, "{none}");
    }
    // Without a mark, the descriptor of the id both reserves and settles.
    let set = good(&text(DAY, "{ id: i, estimate: 5 }"));
    assert_eq!(step(&set, "user i"), user(Reserve, 1));
    assert_eq!(step(&set, "user i s"), None);
}

#[test]
fn the_last_key_of_a_rule_may_be_the_id() {
    use ReserveStep::{Reserve, Settle};
    let set = good(&format!(
        "domain: d\ndescriptors:\n- key: user\n  descriptors:\n  - {{ key: i, {DAY}, reserve: {{ id: i, settle: s }} }}\n"
    ));
    let rule = |step| Some(("user.i".to_owned(), Some(step), 1));
    assert_eq!(step(&set, "user"), None);
    assert_eq!(step(&set, "user i"), rule(Reserve));
    assert_eq!(step(&set, "user i s"), rule(Settle));
    assert_eq!(step(&set, "user i i"), None);
    assert_eq!(step(&set, "user i s s"), None);
}

#[test]
fn any_value_names_a_reservation() {
    let set = good(&text(DAY, "{ id: i, settle: s }"));
    for value in ["", "0", "*", "a b"] {
        assert_eq!(find(&set, &[("user", "u"), ("i", value)]), Some("user"));
        assert_eq!(find(&set, &[("user", "u"), ("i", value), ("s", value)]), Some("user"));
    }
}

#[test]
fn an_id_is_neither_in_metrics_nor_replaced_in_keys() {
    let path = |keys: &str, entries: &[(&str, &str)]| {
        let set = good(&format!("domain: d\ndescriptors:\n- key: user\n  {keys}\n"));
        let domain = set.domain("d").unwrap();
        let found = domain.find(entries).unwrap();
        let values = domain.key_values(entries).into_iter();
        let values: Vec<String> = values.map(|(i, value)| format!("{i}={value}")).collect();
        assert_eq!(found.replaces_values, !values.is_empty());
        (domain.metric_path(found.rule, entries), values)
    };
    let reserves = format!("{DAY}\n  reserve: {{ id: i, settle: s }}");
    let settle = [("user", "ann"), ("i", "7"), ("s", "1")];
    let none = Vec::<String>::new();
    for entries in [&settle[..1], &settle[..2], &settle] {
        assert_eq!(path(&reserves, entries), ("user".to_owned(), none.clone()));
        for flag in ["detailed_metric", "value_to_metric"] {
            let keys = format!("{reserves}\n  {flag}: true");
            assert_eq!(path(&keys, entries), ("user_ann".to_owned(), none.clone()));
        }
        let keys = format!("{reserves}\n  value: a*\n  share_threshold: true");
        assert_eq!(path(&keys, entries), ("user_a*".to_owned(), vec!["0=a*".to_owned()]));
    }
    let own = |flags: &str| {
        format!("descriptors:\n  - {{ key: i, {DAY}, reserve: {{ id: i, settle: s }}{flags} }}")
    };
    for entries in [&settle[..2], &settle] {
        assert_eq!(path(&own(""), entries), ("user.i".to_owned(), none.clone()));
        assert_eq!(path(&own(", value_to_metric: true"), entries).0, "user.i");
        assert_eq!(path(&own(", detailed_metric: true"), entries).0, "user_ann.i");
        let shared = own(", value: '*', share_threshold: true, detailed_metric: true");
        assert_eq!(path(&shared, entries), ("user_ann.i_*".to_owned(), none.clone()));
    }
}

/// The rule, the step and the counted entries of a descriptor of keys, the plain way.
fn model(
    rules: &[(Vec<u8>, bool, bool)],
    keys: &[u8],
) -> Option<(usize, Option<ReserveStep>, usize)> {
    let mut forms = Vec::new();
    for (i, (path, reserves, settles)) in rules.iter().enumerate() {
        let own = path.last() == Some(&b'i');
        let id: &[u8] = if own { b"" } else { b"i" };
        let counted = path.len() - usize::from(*reserves && own);
        if !reserves {
            forms.push((path.clone(), (i, None, counted)));
            continue;
        }
        if !own {
            forms.push((path.clone(), (i, Some(ReserveStep::NoId), counted)));
        }
        forms.push(([path, id].concat(), (i, Some(ReserveStep::Reserve), counted)));
        if *settles {
            forms.push(([path, id, b"s"].concat(), (i, Some(ReserveStep::Settle), counted)));
        }
    }
    let mut matching = forms.into_iter().filter(|(form, _)| form == keys);
    let found = matching.next();
    assert!(matching.next().is_none(), "two rules have the descriptor {keys:?}");
    found.map(|(_, found)| found)
}

/// A tree of the keys a, b, i and s, in which no descriptor below a rule that reserves has its keys.
fn rules() -> impl Strategy<Value = Vec<(Vec<u8>, bool, bool)>> {
    let key = prop::sample::select(b"abis".to_vec());
    let rule = (prop::collection::vec(key, 1..4), any::<bool>(), any::<bool>());
    prop::collection::vec(rule, 0..8).prop_map(|rules| {
        let mut kept: Vec<(Vec<u8>, bool, bool)> = Vec::new();
        for (path, reserves, settles) in rules {
            let conflicts = |(other, other_reserves, other_settles): &(Vec<u8>, bool, bool)| {
                let below = |above: &[u8], below: &[u8], settles: bool| {
                    below.strip_prefix(above).is_some_and(|rest| {
                        rest.first() == Some(&b'i') || settles && rest.first() == Some(&b's')
                    })
                };
                *other == path
                    || *other_reserves && below(other, &path, *other_settles)
                    || reserves && below(&path, other, settles)
            };
            if !kept.iter().any(conflicts) {
                kept.push((path, reserves, settles));
            }
        }
        kept
    })
}

/// Writes the rules below a path.
fn yaml(rules: &[(Vec<u8>, bool, bool)], above: &[u8], indent: &str, out: &mut String) {
    let below = rules.iter().filter_map(|(path, _, _)| path.strip_prefix(above)?.first());
    let keys: std::collections::BTreeSet<u8> = below.copied().collect();
    if keys.is_empty() {
        return;
    }
    *out += &format!("{indent}descriptors:\n");
    for key in keys {
        let path = [above, &[key]].concat();
        *out += &format!("{indent}- key: {}\n", key as char);
        if let Some((index, (_, reserves, settles))) =
            rules.iter().enumerate().find(|(_, rule)| rule.0 == path)
        {
            let n = index + 1;
            *out += &format!("{indent}  rate_limit: {{ unit: day, requests_per_unit: {n} }}\n");
            if *reserves {
                let settle = if *settles { ", settle: s" } else { "" };
                *out += &format!("{indent}  reserve: {{ id: i, estimate: 1{settle} }}\n");
            }
        }
        yaml(rules, &path, &format!("{indent}  "), out);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn finds_what_the_model_finds(
        rules in rules(),
        requests in prop::collection::vec("[abisx]{1,5}", 1..40),
    ) {
        let mut text = "domain: d\n".to_owned();
        yaml(&rules, b"", "", &mut text);
        let set = good(&text);
        let domain = set.domain("d").unwrap();
        let forms = rules.iter().flat_map(|(path, _, _)| {
            let path = String::from_utf8(path.clone()).unwrap();
            ["", "i", "s", "is", "iss"].map(|more| path.clone() + more)
        });
        for keys in requests.into_iter().chain(forms) {
            let entries: Vec<_> =
                keys.char_indices().map(|(i, _)| (&keys[i..=i], "v")).collect();
            let found = domain.find(&entries).map(|found| {
                let n = found.rule.plan.as_ref().unwrap().limits()[0].requests_per_unit as usize;
                let count = entries.len();
                (n - 1, found.rule.reserve_step(count), found.rule.counted_entries(count))
            });
            prop_assert_eq!(found, model(&rules, keys.as_bytes()), "{} in\n{}", keys, text);
            // A trace ends where the matcher does, with a step for each entry.
            let trace = domain.trace(&entries);
            let end = trace.end.and_then(|end| end.rule).map(|rule| rule.path());
            prop_assert_eq!(end, domain.find(&entries).map(|found| found.rule.path()));
            if end.is_some() {
                prop_assert_eq!(trace.steps.len(), entries.len());
                prop_assert!(trace.steps.iter().all(|it| it.matched.is_some() != it.reserve.is_some()));
            }
        }
    }
}
