//! The subcommand `weir explain`.

use std::fs;
use std::process::{Command, Output};

use crate::support::program::{Ended, weir};

const RULES: &str = "\
domain: shop
descriptors:
  - key: path
    rate_limit: { unit: minute, requests_per_unit: 100 }
  - key: path
    value: /api/*
    value_to_metric: true
    rate_limits:
      - { unit: second, requests_per_unit: 5 }
      - { unit: day, requests_per_unit: 50, name: daily }
  - key: path
    value: /static/*
    share_threshold: true
    shadow_mode: true
    rate_limit: { unit: minute, requests_per_unit: 600 }
  - key: path
    value: /api/health
  - key: user
    descriptors:
      - key: path
        rate_limit: { name: user, unit: second, requests_per_unit: 1 }
  - key: plan
    value: gold
    rate_limit: { name: gold, unit: minute, requests_per_unit: 200, replaces: [{ name: user }] }
  - key: budget
    rate_limit: { unit: day, requests_per_unit: 9 }
    reserve: { id: id, settle: end }
    lease: false
  - key: method
    values: [GET, HEAD]
    share_threshold: true
    rate_limit: { unit: day, requests_per_unit: 9 }
  - key: method
    rate_limit: { unit: day, requests_per_unit: 5 }
  - key: login
    rate_limit: { unit: minute, requests_per_unit: 5 }
    ban: { after: 10, within: 10m, for: 1h }
";

fn explain(args: &[&str]) -> (Option<i32>, String, String) {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("shop.yaml"), RULES).unwrap();
    let overlay = "patches:\n- match: { domain: shop, entries: [{ key: plan }] }\n  \
                   set: { algorithm: gcra, burst: 20 }\n";
    fs::write(directory.path().join("shop.overlay.yaml"), overlay).unwrap();
    fs::write(directory.path().join("bad.yaml"), "domain: shop\nuint: day\n").unwrap();
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_weir"))
        .arg("explain")
        .args(args)
        .current_dir(directory.path())
        .output()
        .unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn text(descriptors: &[&str]) -> (Option<i32>, String) {
    let (code, out, err) = explain(&[&["shop.yaml", "-d", "shop"], descriptors].concat());
    assert_eq!(err, "");
    (code, out)
}

#[test]
fn the_name_of_a_list_is_explained() {
    let (code, out) = text(&["method=@values"]);
    assert_eq!(
        (code, out.lines().take(3).collect::<Vec<_>>().join("\n").as_str()),
        (
            Some(0),
            "shop: method=@values\n  method=@values matches 'method' (shop.yaml:33:10) by its key alone\n    \
             its value is the name of 'method_@values', but not in that list"
        )
    );
    assert!(out.contains("key:    weir:{shop|method=@values/}f86400"), "{out}");
    let (_, out) = text(&["method=GET"]);
    assert!(!out.contains("is the name of") && out.contains("method=@values}f86400"), "{out}");
}

#[test]
fn a_match_is_explained_step_by_step() {
    let (code, out) = text(&["path=/api/v1", "path=/static/a.png"]);
    let wanted = "\
shop: path=/api/v1
  path=/api/v1 matches 'path_/api/*' (shop.yaml:5:10) by a wildcard
    before 'path' (shop.yaml:3:10), which matches too
  rule:   path_/api/* (shop.yaml:5:5)
  limit:  5 per second; denied hits do not count
  limit:  50 per day, named daily; denied hits do not count
  key:    weir:{shop|path=/api/v1}f1+f86400
  metric: shop.path_/api/v1

shop: path=/static/a.png
  path=/static/a.png matches 'path_/static/*' (shop.yaml:11:10) by a wildcard
    before 'path' (shop.yaml:3:10), which matches too
  rule:   path_/static/* (shop.yaml:11:5)
  limit:  600 per minute; denied hits count too
  shadow mode: it counts, but never denies
  key:    weir:{shop|path=/static/*}f60, which all values of the wildcard share
  metric: shop.path_/static/*
";
    assert_eq!((code, out.as_str()), (Some(0), wanted));
}

#[test]
fn a_ban_is_explained() {
    let (_, out) = text(&["login=ann"]);
    let wanted =
        "; denied hits count too\n  ban:    banned for 1h after 10 denials in 10m\n  key: ";
    assert!(out.contains(wanted), "{out}");
}

#[test]
fn a_reservation_is_explained() {
    let (code, out) = text(&["budget=ann,id=7", "budget=ann,id=7,end=1", "budget=ann,ids=7"]);
    let part = |from: &str, to: &str| {
        let start = out.find(from).unwrap_or_else(|| panic!("no {from:?} in {out}"));
        let length = out[start..].find(to).unwrap_or_else(|| panic!("no {to:?} in {out}"));
        out[start..start + length].to_owned()
    };
    let wanted = "\
shop: budget=ann,id=7,end=1
  budget=ann matches 'budget' (shop.yaml:25:10) by its key alone
  id=7 names the reservation
  end=1 marks a settling call
  rule:   budget (shop.yaml:25:5)
  limit:  9 per day; denied hits do not count
  reserve: id: id, settle: end, at_least: 1, at_most: 4, timeout: 3600s
  lease:  false: no hits are charged before they are asked for
";
    assert_eq!(part("shop: budget=ann,id=7,end=1", "  key: "), wanted);
    assert_eq!(out.matches("  metric: shop.budget\n").count(), 2);
    assert!(
        out.contains(
            "  note: after the entries of 'budget' (shop.yaml:25:5), which reserves hits, comes one with the key \
             'id', not 'ids'\n"
        ),
        "{out}"
    );
    assert_eq!(code, Some(3));
}

#[test]
fn replaced_rules_are_explained() {
    let (code, out) = text(&["user=ann,path=/a", "plan=gold"]);
    let wanted = "\
shop: user=ann,path=/a
  user=ann matches 'user' (shop.yaml:18:10) by its key alone
  path=/a matches 'path' (shop.yaml:20:14) by its key alone
  rule:   user.path (shop.yaml:20:9)
  limit:  1 per second, named user; denied hits count too
  replaced by 'plan_gold' (shop.yaml:22:5), the rule of descriptor 2: not limited

shop: plan=gold
  plan=gold matches 'plan_gold' (shop.yaml:22:10) by its value
  rule:   plan_gold (shop.yaml:22:5)
  limit:  200 per minute, named gold; denied hits count too
  replaces rules with the name user in the same request
  key:    weir:{shop|plan=gold}f60
  metric: shop.plan_gold
";
    assert_eq!((code, out.as_str()), (Some(0), wanted));
}

#[test]
fn patches_of_an_overlay_are_named() {
    let args = ["shop.yaml", "--overlay", "shop.overlay.yaml", "-d", "shop", "plan=gold"];
    let (code, out, err) = explain(&args);
    let wanted = "\
shop: plan=gold
  plan=gold matches 'plan_gold' (shop.yaml:22:10) by its value
  rule:   plan_gold (shop.yaml:22:5)
  patch:  shop.overlay.yaml:2:3
  limit:  200 per minute, gcra with a burst of 20, named gold; denied hits do not count
";
    assert!(out.starts_with(wanted), "{out}{err}");
    assert_eq!(code, Some(0));
}

#[test]
fn near_misses_are_named() {
    let (code, out) = text(&["path=/a,user=ann", "plan=golb", "path=/api/health", "user=ann"]);
    let wanted = "\
shop: path=/a,user=ann
  path=/a matches 'path' (shop.yaml:3:10) by its key alone
  user=ann matches nothing
  no rule: not limited
  note: 'path' (shop.yaml:3:10) has no rules below it: the descriptor has 1 entry too many
  note: in another order it matches 'user.path': user=ann,path=/a

shop: plan=golb
  plan=golb matches nothing
  no rule: not limited
  note: rules have the key 'plan', but not the value 'golb': did you mean 'gold'?

shop: path=/api/health
  path=/api/health matches 'path_/api/health' (shop.yaml:16:10) by its value
    before 'path_/api/*' (shop.yaml:5:10), 'path' (shop.yaml:3:10), which match too
  no rule: not limited
  note: 'path_/api/health' (shop.yaml:16:10) has no limit: this descriptor is exempt
  note: 'path_/api/*' (shop.yaml:5:10) matches path=/api/health too, but only the first match counts

shop: user=ann
  user=ann matches 'user' (shop.yaml:18:10) by its key alone
  no rule: not limited
  note: the rules below 'user' (shop.yaml:18:10) need one more entry: 'path'
";
    assert_eq!((code, out.as_str()), (Some(3), wanted));
    let (code, out, _) = explain(&["shop.yaml", "-d", "shpo", "plan=gold"]);
    let wanted = "\
shpo: plan=gold
  no rule: not limited
  note: there are no rules for the domain 'shpo': did you mean 'shop'?
  note: in the domain 'shop' it matches 'plan_gold' (shop.yaml:22:5)
";
    assert_eq!((code, out.as_str()), (Some(3), wanted));
}

#[test]
fn rules_that_share_the_first_entry_are_listed() {
    let descriptors = ["user=ann,pth=/", "path=/api/v1,x=1", "x=1", "plan=gold"];
    let args = [&["shop.yaml", "--near", "-d", "shop"][..], &descriptors].concat();
    let (code, out, err) = explain(&args);
    assert_eq!((code, err.as_str()), (Some(3), ""));
    let start = "  note: the first entry leads to ";
    let listed: Vec<_> = out.lines().filter_map(|line| line.strip_prefix(start)).collect();
    let wanted = [
        "'user.path' (shop.yaml:20:9): 1 per second",
        "'path_/api/*' (shop.yaml:5:5): 5 per second + 50 per day",
        "'path' (shop.yaml:3:5): 100 per minute",
    ];
    assert_eq!(listed, wanted, "{out}");
    let (_, out) = text(&descriptors);
    assert!(!out.contains(start), "{out}");
    let args = [&["shop.yaml", "--near", "--output", "json", "-d", "shop"][..], &descriptors];
    let (_, out, _) = explain(&args.concat());
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let misses = json["descriptors"][0]["near_misses"].as_array().unwrap();
    let last = misses.last().unwrap();
    assert_eq!(last["kind"], "first_entry");
    assert_eq!(last["message"], format!("the first entry leads to {}", wanted[0]));
}

#[test]
fn json_has_what_text_has() {
    let args = ["shop.yaml", "--output", "json", "--key-prefix", "p:", "-d", "shop", "plan=gold"];
    let (code, out, err) = explain(&args);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let rule = &json["descriptors"][0];
    assert_eq!(rule["key"], "p:{shop|plan=gold}f60");
    assert_eq!(rule["rule"]["line"], 22);
    assert_eq!(rule["limits"], serde_json::json!(["200 per minute"]));
    assert_eq!(rule["steps"][0]["matched"]["by"], "value");
}

/// The items that are printed for the rule `budget`, whose `reserve` is changed, and what `weir check` finds in them.
fn envoy_actions(reserve: &str) -> (String, Ended) {
    let directory = tempfile::tempdir().unwrap();
    let rules = format!(
        "domain: shop\ndescriptors:\n- key: team\n  value: a\n  descriptors:\n  - {{ key: remote_address, \
         rate_limit: {{ unit: day, requests_per_unit: 9 }}, reserve: {{ {reserve} }} }}\n"
    );
    fs::write(directory.path().join("rules.yaml"), rules).unwrap();
    let args = ["explain", "rules.yaml", "--envoy-actions", "team_a.remote_address"];
    let (code, items, err) = weir(directory.path(), &args);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let mutation = items.lines().find_map(|line| line.strip_prefix("#   append: ")).unwrap();
    let block: String = items.lines().map(|line| format!("      {line}\n")).collect();
    let types = "type.googleapis.com/envoy.extensions.filters";
    let envoy = format!(
        "http_filters:\n\
         - name: m\n  typed_config: {{ '@type': {types}.http.header_mutation.v3.HeaderMutation, mutations: \
         {{ request_mutations: [{{ append: {mutation} }}] }} }}\n\
         - name: r\n  typed_config:\n      '@type': {types}.http.ratelimit.v3.RateLimit\n      domain: shop\n{block}\
         route_config: {{ virtual_hosts: [{{ routes: [{{ route: {{ cluster: c }} }}] }}] }}\n"
    );
    fs::write(directory.path().join("envoy.yaml"), envoy).unwrap();
    let check = ["check", "rules.yaml", "--deny-warnings", "--envoy", "envoy.yaml"];
    (items, weir(directory.path(), &check))
}

#[test]
fn the_items_of_envoy_are_printed() {
    let (items, (code, _, err)) = envoy_actions("id: call, settle: end, estimate: 3");
    assert_eq!((code, err.as_str()), (Some(0), ""), "{items}");
    let (_, items) = items.split_once("rate_limits:\n").unwrap();
    let wanted = r#"  # At the start of a request: reserves 3.
  - actions:
      - generic_key: { descriptor_key: "team", descriptor_value: "a" }
      - remote_address: {}
      - request_headers: { header_name: "x-reservation-id", descriptor_key: "call" }
  # At its end: nothing for a request that weir has denied, 0 for an error, the number `tokens` in the metadata
  # `llm` of an answer, or 3 without it.
  - actions:
      - generic_key: { descriptor_key: "team", descriptor_value: "a" }
      - remote_address: {}
      - request_headers: { header_name: "x-reservation-id", descriptor_key: "call" }
      - generic_key: { descriptor_key: "end", descriptor_value: "1" }
    apply_on_stream_done: true
    hits_addend:
"#;
    assert_eq!(&items[..wanted.len()], wanted);
    let (items, (code, _, err)) = envoy_actions("id: call, estimate: 3");
    assert_eq!((code, err.as_str()), (Some(0), ""), "{items}");
    assert_eq!(items.matches("hits_addend: { number: 0 }").count(), 1, "{items}");
    for (rule, error) in [
        ("budgte", "no rule 'budgte' has `reserve`: did you mean 'budget'?"),
        ("user.path", "no rule 'user.path' has `reserve`: name one as `weir check` lists it"),
    ] {
        let (code, out, err) = explain(&["shop.yaml", "--envoy-actions", rule]);
        assert_eq!((code, out, err), (Some(2), String::new(), format!("error: {error}\n")));
    }
}

#[test]
fn the_entries_of_a_quota_bucket_have_no_order() {
    let (code, out) = text(&["path=/,user=ann"]);
    assert_eq!((code, out.contains("  rule:   ")), (Some(3), false), "{out}");
    let (code, out) = text(&["path=/,user=ann", "path=/", "plan=silver", "--quota"]);
    assert_eq!(code, Some(3));
    for wanted in
        ["shop: user=ann,path=/\n", "  rule:   user.path (", "  rule:   path (", "  no rule: "]
    {
        assert!(out.contains(wanted), "{wanted} {out}");
    }
    let rules = "domain: d\ndescriptors:\n- key: a\n  descriptors: [{ key: b, rate: 1/m }]\n\
                 - key: b\n  descriptors: [{ key: a, rate: 1/m }]\n";
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("d.yaml"), rules).unwrap();
    let (code, out, err) =
        weir(directory.path(), &["explain", "d.yaml", "--quota", "-d", "d", "a=1,b=2"]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    let start =
        "error: not supported: a quota bucket needs one rule, but it matches 'a.b' (d.yaml:4:";
    assert!(err.starts_with(start), "{err}");
    assert!(
        err.contains(") as a=1,b=2 and 'b.a' (d.yaml:6:") && err.ends_with(") as b=2,a=1\n"),
        "{err}"
    );
}

#[test]
fn errors_of_files_and_arguments_have_their_own_codes() {
    for (args, code, message) in [
        (
            &["bad.yaml", "-d", "shop", "a=b"][..],
            1,
            "bad.yaml:2:1: error: config error, unknown key",
        ),
        (&["shop.yaml", "-d", "shop", "=b"], 2, "error: invalid descriptor '=b': "),
        (&["shop.yaml", "-d", "shop"], 2, "error: "),
        (&["shop.yaml"], 2, "error: "),
        (&["-d", "shop", "a=b"], 2, "error: "),
    ] {
        let (found, out, err) = explain(args);
        assert_eq!((found, out.as_str()), (Some(code), ""), "{args:?} {err}");
        assert!(err.contains(message), "{args:?} {err}");
    }
}

#[test]
fn an_invalid_command_line_has_a_fix() {
    let (code, _, err) = explain(&["shop.yaml", "-d", "", "path=/"]);
    assert_eq!(
        (code, err.as_str()),
        (Some(2), "error: the domain is empty: write -d DOMAIN key=value\n")
    );
    let (code, _, err) = explain(&["-d", "shop", "path=/", "shop.yaml"]);
    assert_eq!(code, Some(2));
    assert!(err.contains("tip: write RULES before -d\n"), "{err}");
    let (_, _, err) = explain(&[]);
    assert!(!err.contains("tip:"), "{err}");
}
