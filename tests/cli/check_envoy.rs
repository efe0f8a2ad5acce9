//! `weir check --envoy`: what it finds in configurations of Envoy.

mod charges_and_clusters;
mod paths_and_domains;
mod quotas;

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::program::problems_with_envoy;

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 20 }
  - key: route
    value: api
    descriptors:
      - key: method
        rate_limit: { unit: minute, requests_per_unit: 5 }
  - key: exempt
";

/// Returns a configuration with a filter, a virtual host and a route, which it indents.
fn envoy(filter: &str, host: &str, route: &str) -> String {
    let indent = |text: &str, by: usize| {
        text.lines().map(|line| format!("{}{line}\n", " ".repeat(by))).collect::<String>()
    };
    format!(
        "\
static_resources:
  listeners:
    - filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                http_filters:
                  - name: envoy.filters.http.ratelimit
                    typed_config:
                      \"@type\": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
{}                route_config:
                  virtual_hosts:
                    - name: all
                      domains: [\"*\"]
{}                      routes:
                        - match: {{ prefix: / }}
{}",
        indent(filter, 22),
        indent(host, 22),
        indent(route, 26),
    )
}

/// The warnings about a configuration and the rules, without the file of the configuration.
fn warnings(envoy: &str) -> Vec<String> {
    warnings_with(RULES, envoy)
}

fn warnings_with(rules: &str, envoy: &str) -> Vec<String> {
    problems_with_envoy(rules, envoy)
        .iter()
        .map(|problem| {
            let text = |key: &str| problem[key].as_str().unwrap();
            match text("file") {
                "envoy.yaml" => text("message").to_owned(),
                _ => format!("{}:{}: {}", text("file"), problem["line"], text("message")),
            }
        })
        .collect()
}

const FILTER: &str = "domain: shop";
const USER: &str = "{ request_headers: { header_name: x-user, descriptor_key: user } }";
const API: &str = "{ generic_key: { descriptor_key: route, descriptor_value: api } }";
const METHOD: &str = "{ request_headers: { header_name: \":method\", descriptor_key: method } }";

/// `rate_limits` with these items, each a list of actions.
fn rate_limits(items: &[&[&str]]) -> String {
    let item = |actions: &&[&str]| format!("{{ actions: [{}] }}", actions.join(", "));
    format!("rate_limits: [{}]", items.iter().map(item).collect::<Vec<_>>().join(", "))
}

/// A route action with these `rate_limits`.
fn route(rate_limits: &str) -> String {
    format!("route: {{ cluster: backend, {rate_limits} }}")
}

fn none() -> Vec<String> {
    Vec::new()
}

#[test]
fn a_configuration_that_fits_has_no_findings() {
    let all = rate_limits(&[&[USER], &[API, METHOD]]);
    assert_eq!(warnings(&envoy(FILTER, "", &route(&all))), none());
    assert_eq!(warnings(&envoy(FILTER, &all, "route: { cluster: backend }")), none());
    let of_filter = format!("{FILTER}\n{all}");
    assert_eq!(warnings(&envoy(&of_filter, "", "route: { cluster: backend }")), none());
}

#[test]
fn descriptors_without_a_rule_and_rules_without_an_action() {
    let reversed = rate_limits(&[&[METHOD, API], &["{ remote_address: {} }"]]);
    assert_eq!(
        warnings(&envoy(FILTER, "", &route(&reversed))),
        [
            "no rule of the domain 'shop' matches 'method=…,route=api'",
            "no rule of the domain 'shop' matches 'remote_address=…'",
            "rules.yaml:3: no action of Envoy sends what 'user' matches",
            "rules.yaml:8: no action of Envoy sends what 'route_api.method' matches",
        ]
    );
    let optional = USER.replace("user }", "user, skip_if_absent: true }");
    let either = rate_limits(&[&[&optional, API, METHOD], &[USER]]);
    assert_eq!(
        warnings(&envoy(FILTER, "", &route(&either))),
        ["no rule of the domain 'shop' matches 'user=…,route=api,method=…'"],
        "without the header the item is another descriptor"
    );
    let with_limit = "rate_limits: [{ actions: [{ remote_address: {} }], limit: { dynamic_metadata: \
                      { metadata_key: { key: k, path: [{ key: a }] } } } }]";
    let found = warnings(&envoy(FILTER, "", &route(with_limit)));
    assert!(found.iter().all(|found| found.starts_with("rules.yaml")), "{found:?}");
}

#[test]
fn the_entries_of_a_reservation_are_meant() {
    let rules = "domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: day, requests_per_unit: 9 }, \
                 reserve: { id: id, settle: end } }]\n";
    let id = "{ request_headers: { header_name: x-request-id, descriptor_key: id } }";
    let end = "{ generic_key: { descriptor_key: end, descriptor_value: '1' } }";
    let found =
        |items: &[&[&str]]| warnings_with(rules, &envoy(FILTER, "", &route(&rate_limits(items))));
    let has = |found: &[String], text: &str| found.iter().any(|found| found.contains(text));
    let whole = found(&[&[USER, id], &[USER, id, end]]);
    assert!(!has(&whole, "no rule") && !has(&whole, "differ"), "{whole:?}");
    let without_id = found(&[&[USER, id], &[USER, end]]);
    assert!(has(&without_id, "the entries of start and end differ"), "{without_id:?}");
}

#[test]
fn domains_without_rules() {
    let all = rate_limits(&[&[USER]]);
    assert_eq!(
        warnings(&envoy("domain: shpo", "", &route(&all))),
        [
            "there are no rules for the domain 'shpo'",
            "rules.yaml:3: Envoy never asks about the domain 'shop'",
        ]
    );
}

#[test]
fn filters_that_never_ask() {
    let all = rate_limits(&[&[USER], &[API, METHOD]]);
    let unasked = "rules.yaml:3: Envoy never asks about the domain 'shop'";
    let never = |why: &str| format!("this filter never asks weir: {why}");
    let staged = envoy(&format!("{FILTER}\nstage: 1"), "", &route(&rate_limits(&[&[USER]])));
    assert_eq!(
        warnings(&staged),
        [
            never("no `rate_limits` have its stage, 1").as_str(),
            "this item is never used: no filter has the stage 0",
            unasked,
        ]
    );
    let nothing = envoy(FILTER, "", "route: { cluster: backend }");
    assert_eq!(warnings(&nothing), [never("there are no `rate_limits`").as_str(), unasked]);
    let off = format!("{FILTER}\nfilter_enabled: {{ default_value: {{ numerator: 0 }} }}");
    assert_eq!(warnings(&envoy(&off, "", &route(&all)))[0], never("`filter_enabled` is 0"));
    let disabled = "typed_per_filter_config: { envoy.filters.http.ratelimit: { \"@type\": \
                    type.googleapis.com/envoy.config.route.v3.FilterConfig, disabled: true } }";
    let found = warnings(&envoy(FILTER, disabled, &route(&all)));
    assert_eq!(found[0], never("its `rate_limits` are never used"), "{found:?}");
    let runtime = "layered_runtime: { layers: [{ name: a, static_layer: { ratelimit.users: \
                   { http_filter_enabled: 0 } } }] }\n";
    let keyed = "rate_limits: [{ disable_key: users, actions: [{ remote_address: {} }] }]";
    let found = warnings(&(envoy(FILTER, "", &route(keyed)) + runtime));
    assert_eq!(found[0], never("its `rate_limits` are never used"), "{found:?}");
}

#[test]
fn more_specific_lists_replace_others() {
    let host = rate_limits(&[&[USER]]);
    let own = rate_limits(&[&[API, METHOD]]);
    assert_eq!(
        warnings(&envoy(FILTER, &host, &route(&own))),
        [
            "this item is never used: others replace it, or the filter is disabled",
            "rules.yaml:3: no action of Envoy sends what 'user' matches",
        ]
    );
    let included = route(&format!("{own}, include_vh_rate_limits: true"));
    assert_eq!(warnings(&envoy(FILTER, &host, &included)), none());
    let per_route = |config: &str| {
        format!(
            "{}\ntyped_per_filter_config: {{ envoy.filters.http.ratelimit: {{ \"@type\": \
             type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute, \
             {config} }} }}",
            route(&own)
        )
    };
    assert_eq!(warnings(&envoy(FILTER, &host, &per_route("vh_rate_limits: INCLUDE"))), none());
    let found = warnings(&envoy(FILTER, &host, &per_route(&rate_limits(&[&[USER]]))));
    assert_eq!(found.iter().filter(|found| found.contains("never used")).count(), 2, "{found:?}");
    let other = per_route("domain: other, vh_rate_limits: INCLUDE");
    let found = warnings(&envoy(FILTER, &host, &other));
    assert_eq!(found[0], "there are no rules for the domain 'other'", "{found:?}");
}

#[test]
fn routes_that_come_from_elsewhere_hide_nothing_and_accuse_nobody() {
    let rds = "rds: { route_config_name: routes, config_source: { ads: {} } }";
    let all = envoy(FILTER, "", &route(&rate_limits(&[&[USER], &[API, METHOD]])));
    let (before, routes) = all.split_once("                route_config:\n").unwrap();
    let dynamic = format!("{before}                {rds}\n");
    assert_eq!(warnings(&dynamic), none());
    // A route configuration of that name in the same files is used.
    let (_, hosts) = routes.split_once("virtual_hosts:\n").unwrap();
    let known = format!("{dynamic}dump:\n  - name: routes\n    virtual_hosts:\n{hosts}");
    assert_eq!(warnings(&known), none());
    let known = known.replace("descriptor_key: user", "descriptor_key: usr");
    assert_eq!(warnings(&known).len(), 2);
}

#[test]
fn actions_and_their_keys() {
    for (action, shown) in [
        ("{ remote_address: {} }", "remote_address=…"),
        ("{ masked_remote_address: {} }", "masked_remote_address=…"),
        ("{ source_cluster: {} }", "source_cluster=…"),
        ("{ destination_cluster: {} }", "destination_cluster=backend"),
        ("{ generic_key: { descriptor_value: a } }", "generic_key=a"),
        ("{ generic_key: { descriptor_value: '%REQ(a)%' } }", "generic_key=…"),
        ("{ header_value_match: { descriptor_value: a } }", "header_match=a"),
        ("{ query_parameter_value_match: { descriptor_value: a } }", "query_match=a"),
        ("{ remote_address_match: { descriptor_value: a } }", "remote_address_match=a"),
        ("{ query_parameters: { query_parameter_name: q, descriptor_key: a } }", "a=…"),
        ("{ metadata: { descriptor_key: a } }", "a=…"),
        ("{ dynamic_metadata: { descriptor_key: a } }", "a=…"),
        ("{ extension: { name: a, typed_config: { '@type': 'x/x.B' } } }", "a=…"),
    ] {
        let found = warnings(&envoy(FILTER, "", &route(&rate_limits(&[&[action]]))));
        assert_eq!(found[0], format!("no rule of the domain 'shop' matches '{shown}'"));
    }
}

#[test]
fn hits_that_envoy_ignores() {
    let hits = "rate_limits: [{ actions: [{ request_headers: { header_name: x-user, descriptor_key: user } }], \
                hits_addend: { number: 2 } }]";
    let ignored = "Envoy ignores `hits_addend` on routes and virtual hosts";
    assert!(warnings(&envoy(FILTER, "", &route(hits))).contains(&ignored.to_owned()));
    let of_filter = format!("{FILTER}\n{hits}");
    let found = warnings(&envoy(&of_filter, "", "route: { cluster: backend }"));
    assert!(!found.contains(&ignored.to_owned()), "{found:?}");
}

/// A filter that asks by one action and charges by another, after the same first one.
fn charging(asks: &str, charges: &str) -> String {
    envoy(
        &format!(
            "{FILTER}\nrate_limits:\n- actions: [{API}, {asks}]\n- actions: [{API}, {USER}]\n\
             - actions: [{API}, {charges}]\n  apply_on_stream_done: true\n  \
             hits_addend: {{ format: '%RESP(x-tokens)%' }}\n"
        ),
        "",
        "route: { cluster: backend }",
    )
}

/// The warnings that charges go elsewhere.
fn strays(envoy: &str) -> Vec<String> {
    warnings(envoy).into_iter().filter(|found| found.starts_with("this charges")).collect()
}

#[test]
fn costs_that_are_charged_to_another_key() {
    let constant = "{ generic_key: { descriptor_key: method, descriptor_value: method } }";
    assert_eq!(
        strays(&charging(METHOD, constant)),
        [
            "this charges another key than requests ask about: 'method' is a constant here, but at their start a \
          value of the request (envoy.yaml:14:102)"
        ]
    );
    // The same action, one whose value may be the same, and a key of which nothing asks.
    let metadata = "{ metadata: { descriptor_key: method } }";
    let other = constant.replace("descriptor_key: method", "descriptor_key: none");
    for (asks, charges) in [
        (METHOD, METHOD),
        (constant, constant),
        (constant, metadata),
        (METHOD, metadata),
        (METHOD, other.as_str()),
    ] {
        assert_eq!(strays(&charging(asks, charges)), none(), "{charges}");
    }
    // A constant that another item asks about.
    let both = charging(METHOD, constant).replace(USER, constant);
    assert_eq!(strays(&both), none());
    // Two keys, of which one is another constant: not the same limit.
    let route =
        charging(METHOD, constant).replacen("descriptor_value: api", "descriptor_value: all", 1);
    assert_eq!(strays(&route), none());
}

#[test]
fn costs_that_are_charged_for_other_requests() {
    let when = |expected: &str| {
        format!(
            "{{ header_value_match: {{ descriptor_key: method, descriptor_value: get, {expected} headers: [] }} }}"
        )
    };
    let (matches, other) = (when("expect_match: true,"), when("expect_match: false,"));
    assert_eq!(
        strays(&charging(&other, &matches)),
        [
            "this charges other requests than those that ask: `expect_match` of 'method' is the opposite at their \
          start (envoy.yaml:14:102)"
        ]
    );
    for same in [&matches, &other] {
        assert_eq!(strays(&charging(same, same)), none());
    }
    assert_eq!(strays(&charging(&when(""), &matches)), none());
}

#[test]
fn costs_of_a_list_for_all_routes_are_reported_once() {
    let constant = "{ generic_key: { descriptor_key: method, descriptor_value: method } }";
    let one = charging(METHOD, constant);
    let (_, route) = one.split_once("routes:\n").unwrap();
    assert_eq!(strays(&format!("{one}{route}")).len(), 1);
    // Envoy ignores `hits_addend` there, which has a warning of its own.
    let item = format!(
        "rate_limits: [{{ actions: [{METHOD}] }}, {{ actions: [{constant}], apply_on_stream_done: true }}]"
    );
    assert_eq!(
        strays(&envoy(FILTER, "", &format!("route: {{ cluster: backend, {item} }}"))),
        none()
    );
}

#[test]
fn json_is_read_too() {
    let json = r#"{"staticResources":{"listeners":[{"filterChains":[{"filters":[{"typedConfig":{
        "httpFilters":[{"name":"envoy.filters.http.ratelimit","typedConfig":{
            "@type":"type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit",
            "domain":"shop"}}],
        "routeConfig":{"virtualHosts":[{"routes":[{"route":{"cluster":"a","rateLimits":[
            {"actions":[{"requestHeaders":{"headerName":"x-user","descriptorKey":"user"}}]},
            {"actions":[{"genericKey":{"descriptorKey":"route","descriptorValue":"api"}},
                {"requestHeaders":{"headerName":":method","descriptorKey":"method"}}]}]}}]}]}}}]}]}]}}"#;
    assert_eq!(warnings(json), none());
    assert_eq!(
        warnings(
            &json.replace("x-user\",\"descriptorKey\":\"user", "x-user\",\"descriptorKey\":\"u")
        )
        .len(),
        2
    );
}

#[test]
fn broken_configurations_are_errors() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("rules.yaml"), RULES).unwrap();
    fs::write(directory.path().join("envoy.yaml"), "a: [\n").unwrap();
    for (file, message) in [
        ("rules.yaml", "rules.yaml:1:1: error: this is a rule file, not an Envoy configuration"),
        ("envoy.yaml", "envoy.yaml:2:1: error: the Envoy configuration is not YAML or JSON: "),
        ("none.yaml", "none.yaml: error: cannot be read: No such file"),
    ] {
        let ran = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["check", "rules.yaml", "--envoy", file])
            .current_dir(directory.path())
            .output()
            .unwrap();
        let err = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(1), "{err}");
        assert!(!err.contains("never asks"), "what is missing may ask: {err}");
        assert!(
            err.contains(message.split(':').next().unwrap()) && err.contains("error: "),
            "{err}"
        );
        assert!(err.contains(message.rsplit("error: ").next().unwrap()), "{err}");
    }
}

#[test]
fn descriptors_that_are_exempt_are_meant() {
    let exempt = "{ generic_key: { descriptor_key: exempt, descriptor_value: probe } }";
    let all = rate_limits(&[&[USER], &[API, METHOD], &[exempt]]);
    assert_eq!(warnings(&envoy(FILTER, "", &route(&all))), none());
}

#[test]
fn files_of_something_else_are_reported() {
    let none = "there is no listener, route or cluster in this file";
    let rules = "this is a rule file, not an Envoy configuration";
    for (text, wanted) in [
        ("", none),
        ("[]", none),
        ("resources: [{ name: cluster }]", none),
        ("admin: {}", none),
        (RULES, rules),
    ] {
        assert_eq!(warnings(text), [wanted], "{text}");
    }
    // Files of a configuration that has several.
    for text in [
        "static_resources: { clusters: [{ name: weir }] }",
        "resources: [{ \"@type\": type.googleapis.com/envoy.config.cluster.v3.Cluster, name: weir }]",
    ] {
        assert!(!warnings(text).iter().any(|warning| warning == none), "{text}");
    }
}

#[test]
fn actions_that_are_not_known_are_named() {
    for (action, why) in [
        ("{ remote_adress: {} }", "unknown action 'remote_adress'"),
        ("{ newer: { descriptor_key: user } }", "unknown action 'newer'"),
        ("{ extension: { name: x } }", "incomplete action 'extension'"),
        ("{}", "empty action"),
    ] {
        let all = rate_limits(&[&[USER], &[API, action]]);
        let wanted = format!("{why}: its item is not compared with the rules");
        assert_eq!(warnings(&envoy(FILTER, &all, "route: { cluster: backend }")), [wanted]);
    }
}

#[test]
fn the_examples_fit_together() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let ran = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["check", "examples/rules", "--deny-warnings"])
        .args(
            ["envoy", "postpaid", "budget", "quota-strict"]
                .map(|name| format!("--envoy=examples/envoy/{name}.yaml")),
        )
        .current_dir(root)
        .output()
        .unwrap();
    let err = String::from_utf8(ran.stderr).unwrap();
    assert_eq!((ran.status.code(), err.as_str()), (Some(0), ""));
}

#[test]
fn the_complete_example_of_the_docs_fits_its_rules() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/envoy.md");
    let docs = fs::read_to_string(path).unwrap();
    let mut blocks =
        docs.split("```yaml\n").skip(1).map(|rest| rest.split("```\n").next().unwrap());
    let (rules, envoy) = (blocks.next().unwrap(), blocks.next().unwrap());
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("rules.yaml"), rules).unwrap();
    fs::write(directory.path().join("envoy.yaml"), envoy).unwrap();
    let ran = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["check", "rules.yaml", "--envoy", "envoy.yaml", "--deny-warnings"])
        .current_dir(directory.path())
        .output()
        .unwrap();
    let err = String::from_utf8(ran.stderr).unwrap();
    assert_eq!((ran.status.code(), err.as_str()), (Some(0), ""));
}
