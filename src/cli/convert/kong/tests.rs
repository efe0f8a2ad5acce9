//! Tests of the conversion of Kong's plugins.

use super::*;
use crate::cli::convert::domain::tests::errors;

const CONFIG: &str = "\
_format_version: '3.0'
services:
- name: shop
  url: http://shop
  plugins:
  - { name: rate-limiting, config: { minute: 60, month: 10000, limit_by: ip, policy: local } }
  routes:
  - { name: all, paths: [/], hosts: [shop.example] }
  - name: search
    paths: [/search, '~/find/\\d+$']
    methods: [GET, POST]
    plugins:
    - { name: rate-limiting-advanced, config: { limit: [5], window_size: [30], identifier: header, header_name: X-Key } }
    - { name: rate-limiting, enabled: false, config: { second: 1 } }
plugins:
- { name: rate-limiting, config: { second: 9, limit_by: service } }
- { name: rate-limiting, route: search, config: { hour: 7 } }
- { name: cors }
consumers:
- { username: ann, plugins: [{ name: rate-limiting, config: { second: 9 } }] }
";

#[test]
fn plugins_become_rules() {
    let converted = convert("k.yaml", CONFIG, "d").unwrap();
    assert_eq!(
        converted.left_out,
        [
            "k.yaml:17: `limit_by: consumer`: Envoy does not know Kong's consumers; the rule counts the header \
             x-consumer-username, which your authentication must set, and no request without it",
            "k.yaml:20: a limit of one consumer or group: write a rule with its name as value",
            "k.yaml:16: no route uses this plugin: more specific ones replace it",
        ]
    );
    assert_eq!(errors(&converted.rules[0]), "");
    let rules = &converted.rules[0].text;
    for text in [
        "value: service/shop",
        "align: calendar",
        "value: route/search/advanced",
        "algorithm: sliding_window",
        "key: x-key",
    ] {
        assert!(rules.contains(text), "{text}: {rules}");
    }
    let resource = "kind: KongPlugin\nmetadata: { name: five }\nplugin: rate-limiting\nconfig: { second: 5, \
                    limit_by: path, path: /a }\n";
    let converted = convert("k", resource, "d").unwrap();
    assert!(
        converted.left_out.is_empty() && converted.envoy.unwrap().contains("header_value_match")
    );
    assert!(
        convert("k", "_format_version: '3.0'", "d").unwrap_err().contains("there is no plugin")
    );
}

#[test]
fn a_plugin_of_a_consumer_group_replaces_nobodys_limit() {
    let text = "\
_format_version: '3.0'
services: [{ name: s, routes: [{ name: r, paths: [/] }] }]
plugins:
- { name: rate-limiting, config: { minute: 1000, limit_by: ip } }
- { name: rate-limiting, consumer_group: gold, config: { minute: 5, limit_by: ip } }
- { name: rate-limiting, consumer_group: null, config: { minute: 7, limit_by: ip } }
";
    let converted = convert("k", text, "d").unwrap();
    assert_eq!(
        converted.left_out,
        [
            "k:5: a limit of one consumer or group: write a rule with its name as value",
            "k:6: an earlier plugin has the same name and scope: remove one of them",
        ]
    );
    let rules = &converted.rules[0].text;
    assert!(rules.contains("requests_per_unit: 1000\n"), "{rules}");
    assert_eq!(rules.matches("requests_per_unit").count(), 1, "{rules}");
}

#[test]
fn services_and_routes_without_names_have_plugins_of_their_own() {
    let text = "\
_format_version: '3.0'
services:
- plugins: [{ name: rate-limiting, config: { minute: 1, limit_by: ip } }]
  routes: [{ paths: [/a] }]
- plugins: [{ name: rate-limiting, config: { minute: 2, limit_by: ip } }]
  routes: [{ paths: [/b] }]
";
    let converted = convert("k", text, "d").unwrap();
    assert_eq!(converted.left_out, [""; 0]);
    let rules = &converted.rules[0].text;
    for text in ["service/unnamed-3", "service/unnamed-5"] {
        assert!(rules.contains(text), "{text}: {rules}");
    }
}

#[test]
fn what_else_a_route_matches_is_listed() {
    let text = "\
_format_version: '3.0'
services:
- name: s
  plugins: [{ name: rate-limiting, config: { minute: 60, limit_by: ip } }]
  routes:
  - { name: r1, paths: [/], headers: { x-v: [a] }, protocols: [http, https] }
  - { name: r2, paths: [/b], snis: [x.example], protocols: [grpc] }
  - { name: r3, destinations: [{ port: 5432 }], protocols: [tcp] }
";
    let converted = convert("k", text, "d").unwrap();
    let listed = |line: &str, field: &str| {
        let start = format!("k:{line}: `{field}`: the route for Envoy matches");
        converted.left_out.iter().any(|it| it.starts_with(&start))
    };
    assert!(
        listed("6", "headers") && listed("7", "snis") && listed("7", "protocols"),
        "{:?}",
        converted.left_out
    );
    assert_eq!(
        converted.left_out.last().unwrap(),
        "k:8: its `protocols` have no requests, which weir counts"
    );
    assert_eq!(converted.left_out.len(), 4, "{:?}", converted.left_out);
    assert_eq!(converted.envoy.unwrap().matches("- match:").count(), 2);
}

#[test]
fn resources_share_a_route_and_disabled_ones_are_ignored() {
    let plugin = |name: &str| {
        format!(
            "kind: KongPlugin\nmetadata: {{ name: {name} }}\nplugin: rate-limiting\nconfig: {{ minute: 5, \
             limit_by: ip }}\n"
        )
    };
    let both = format!("{}---\n{}", plugin("a"), plugin("b"));
    let envoy = convert("k", &both, "d").unwrap().envoy.unwrap();
    assert_eq!((envoy.matches("- match:").count(), envoy.matches("- actions:").count()), (1, 2));
    let disabled = format!("disabled: true\n{}", plugin("a"));
    assert!(convert("k", &disabled, "d").unwrap_err().contains("that is enabled"));
    let one = convert("k", &format!("{disabled}---\n{}", plugin("b")), "d").unwrap();
    assert_eq!(one.envoy.unwrap().matches("- actions:").count(), 1);
}
