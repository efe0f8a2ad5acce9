//! Paths that a query string escapes, filters of several domains, and configurations of agentgateway.

use super::*;
use crate::support::program::weir;

#[test]
fn exact_paths_are_escaped_by_a_query_string() {
    let rules = "domain: shop\ndescriptors:\n- { key: path, value: /login, rate_limit: { unit: day, requests_per_unit: 9 } }\n\
                 - { key: path, value: /a*, rate_limit: { unit: day, requests_per_unit: 9 } }\n";
    let path = "{ request_headers: { header_name: \":path\", descriptor_key: path } }";
    let found = |actions: &[&[&str]]| {
        warnings_with(rules, &envoy(FILTER, "", &route(&rate_limits(actions))))
    };
    let wanted = "rules.yaml:3: 'path_/login' is compared with the path and its query string, which any client can add";
    assert_eq!(found(&[&[path]]), [wanted]);
    let without_query = path.replace(":path", "x-path");
    assert_eq!(found(&[&[&without_query]]), none());
    for (matcher, is_exact) in [
        ("exact_match: /login", true),
        ("string_match: { exact: /login }", true),
        ("string_match: { prefix: /login }", false),
    ] {
        let fixed = format!(
            "{{ header_value_match: {{ descriptor_key: path, descriptor_value: /login, headers: [{{ name: \":path\", {matcher} }}] }} }}"
        );
        let both = found(&[&[&fixed], &[&without_query]]);
        let reported = ["this compares the path with its query string, which any client can add"];
        assert_eq!(both, reported[..usize::from(is_exact)], "{matcher}");
    }
}

#[test]
fn filters_of_two_domains_do_not_report_each_others_descriptors() {
    let rules = "domain: shop\ndescriptors: [{ key: user, rate_limit: { unit: day, requests_per_unit: 9 } }]\n";
    let second = "- name: envoy.filters.http.other\n  typed_config:\n    \"@type\": \
                  type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit\n    domain: api\n";
    let all = rate_limits(&[&[USER], &[METHOD]]);
    let config = envoy(FILTER, "", &route(&all));
    let before = "- name: envoy.filters.http.ratelimit\n";
    let indent = config.lines().find(|line| line.trim_start() == before.trim_end()).unwrap();
    let indent = &indent[..indent.len() - indent.trim_start().len()];
    let second: String = second.lines().map(|line| format!("{indent}{line}\n")).collect();
    let config =
        config.replacen(&format!("{indent}{before}"), &format!("{second}{indent}{before}"), 1);
    let rules = format!("{rules}---\n");
    let api = "domain: api\ndescriptors: [{ key: method, rate_limit: { unit: day, requests_per_unit: 9 } }]\n";
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("shop.yaml", rules.trim_end_matches("---\n")),
        ("api.yaml", api),
        ("envoy.yaml", &*config),
    ] {
        fs::write(directory.path().join(name), text).unwrap();
    }
    let check = ["check", "shop.yaml", "api.yaml", "--envoy", "envoy.yaml", "--deny-warnings"];
    let (code, out, err) = weir(directory.path(), &check);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    // What no domain has a rule for is still reported.
    fs::write(directory.path().join("api.yaml"), api.replace("method", "other")).unwrap();
    let (code, _, err) = weir(directory.path(), &check);
    assert!(code == Some(1) && err.contains("matches 'method=…'"), "{err}");
}

#[test]
fn a_configuration_of_agentgateway_is_named() {
    let text = "binds:\n- port: 3000\n  listeners:\n  - routes: [{ policies: { remoteRateLimit: { domain: shop } } }]\n";
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("rules.yaml"), RULES).unwrap();
    fs::write(directory.path().join("gateway.yaml"), text).unwrap();
    let (code, _, err) =
        weir(directory.path(), &["check", "rules.yaml", "--envoy", "gateway.yaml"]);
    assert_eq!(code, Some(1));
    assert!(
        err.contains("gateway.yaml:2:3: error: this is a configuration of agentgateway"),
        "{err}"
    );
    assert!(
        err.contains("help: try what the descriptors of `remoteRateLimit` send with `weir explain"),
        "{err}"
    );
}
