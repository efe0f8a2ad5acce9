//! `weir check --envoy`: the kinds of files that it reads. Their findings are tested in `check_envoy.rs`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::program::{Ended, weir_with};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// Runs `weir check` in a directory, with a text as standard input.
fn check(directory: &Path, args: &[&str], input: &str) -> Ended {
    weir_with(directory, &[&["check"], args].concat(), input)
}

/// The findings about these files: warnings and errors with their places.
fn findings(rules: &str, files: &[(&str, &str)]) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("rules.yaml"), rules).unwrap();
    let mut args = vec!["rules.yaml", "--output", "json"];
    for (name, text) in files {
        fs::write(directory.path().join(name), text).unwrap();
        args.extend(["--envoy", name]);
    }
    let (_, out, err) = check(directory.path(), &args, "");
    assert_eq!(err, "");
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let problem = |problem: &serde_json::Value| {
        let text = |key: &str| problem[key].as_str().unwrap();
        format!("{}:{}: {}", text("file"), problem["line"], text("message"))
    };
    json["problems"].as_array().unwrap().iter().map(problem).collect()
}

/// The rules of a domain in the values of Istio's example.
fn istio_rules(domain: &str) -> String {
    let values = fs::read_to_string(root().join("examples/istio/weir-values.yaml")).unwrap();
    let (_, file) = values.split_once(&format!("    {domain}.yaml: |\n")).unwrap();
    let lines = file.lines().take_while(|line| line.starts_with("      "));
    lines.map(|line| format!("{}\n", &line[6..])).collect()
}

#[test]
fn a_filter_may_be_written_as_a_struct() {
    let rules = "domain: d\ndescriptors:\n- { key: user, rate_limit: { unit: day, requests_per_unit: 1 } }\n";
    for kind in ["udpa.type.v1.TypedStruct", "xds.type.v3.TypedStruct"] {
        let text = |domain: &str| {
            format!(
                "http_filters: [{{ name: r, typed_config: {{ '@type': type.googleapis.com/{kind}, type_url: \
                 type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit, value: {{ domain: \
                 {domain} }} }} }}]\nroute_config: {{ virtual_hosts: [{{ routes: [{{ route: {{ cluster: c, \
                 rate_limits: [{{ actions: [{{ request_headers: {{ header_name: x, descriptor_key: user }} }}] \
                 }}] }} }}] }}] }}\n"
            )
        };
        assert_eq!(findings(rules, &[("envoy.yaml", &text("d"))]), [""; 0], "{kind}");
        let found = findings(rules, &[("envoy.yaml", &text("e"))]);
        assert!(found[0].ends_with("there are no rules for the domain 'e'"), "{kind}: {found:?}");
    }
}

#[test]
fn an_envoy_filter_is_an_error() {
    let root = root();
    let filter = fs::read_to_string(root.join("examples/istio/gateway.yaml")).unwrap();
    let (_, patches) = filter.split_once("  configPatches:").unwrap();
    let list =
        format!("apiVersion: v1\nkind: List\nitems:\n- {}\n", filter.trim().replace('\n', "\n  "));
    let envoy = fs::read_to_string(root.join("examples/envoy/envoy.yaml")).unwrap();
    let spec = format!("configPatches:{patches}");
    let (before, after) = (format!("{filter}---\n{envoy}"), format!("{envoy}---\n{filter}"));
    let cut = format!("{filter}---\na: [\n");
    for text in [&filter, &list, &spec, &before, &after, &cut] {
        let ran = check(
            &root,
            &["examples/rules", "--envoy", "examples/envoy/envoy.yaml", "--envoy", "-"],
            text,
        );
        let (code, _, err) = ran;
        assert_eq!(code, Some(1), "{err}");
        let message =
            "error: this is an EnvoyFilter, which changes a configuration that is not here";
        assert!(err.contains(message), "{err}");
        assert!(err.contains(
            "`istioctl proxy-config all POD -n NAMESPACE -o json | weir check RULES --envoy -`"
        ));
        assert!(!err.contains("never asks"), "{err}");
    }
}

#[test]
fn dumps_are_read() {
    let gateway = istio_rules("gateway");
    let generated =
        fs::read_to_string(root().join("examples/envoy-gateway/generated.yaml")).unwrap();
    let static_rules = "domain: shop\ndescriptors:\n- { key: user, rate_limit: { unit: day, requests_per_unit: 9 } }\n";
    let second = "domain: second\ndescriptors:\n- { key: remote_address, rate_limit: { unit: day, requests_per_unit: 9 } }\n";
    for (file, rules, key) in [
        ("istioctl-proxy-config-all.json", gateway.as_str(), "\"remote_address\""),
        ("config_dump.json", static_rules, "\"user\""),
        ("egctl-config-envoy-proxy.json", &generated, "\"rule-1-match--1\""),
        ("egctl-translate-xds.json", &generated, "\"rule-1-match--1\""),
    ] {
        let dump = fs::read_to_string(root().join("tests/envoy_dumps").join(file)).unwrap();
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("a.yaml"), rules).unwrap();
        if file == "config_dump.json" {
            fs::write(directory.path().join("b.yaml"), second).unwrap();
        }
        fs::write(directory.path().join("dump.json"), &dump).unwrap();
        for input in ["dump.json", "-"] {
            let mut args = vec!["a.yaml", "--deny-warnings", "--envoy", input];
            if file == "config_dump.json" {
                args.push("b.yaml");
            }
            let (code, out, err) = check(directory.path(), &args, &dump);
            assert_eq!((code, err.as_str()), (Some(0), ""), "{file}: {out}");
            assert!(!out.contains("note: "), "{file}: {out}");
        }
        let other = dump.replace(key, "\"source_cluster\"");
        assert_ne!(dump, other);
        let (code, _, err) = check(directory.path(), &["a.yaml", "--envoy", "-"], &other);
        assert_eq!(code, Some(0));
        assert!(err.contains("<stdin>:") && err.contains("no rule of the domain"), "{file}: {err}");
    }
}

#[test]
fn what_gateways_generate_fits_but_for_costs_of_distinct_and_inverted_headers() {
    const DISTINCT: &str = "this charges another key than requests ask about: 'RULE' is a constant here, but at \
                            their start a value of the request";
    let envoy = fs::read_to_string(root().join("tests/e2e/gateway_costs/envoy.yaml")).unwrap();
    let mut checked = 0;
    for entry in fs::read_dir(root().join("tests/gateway_policies")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let documents: Vec<&str> = text.split("\n---\n").collect();
        let [_, rules, route] = documents[..] else { continue };
        let domain = rules.lines().find_map(|line| line.strip_prefix("domain: ")).unwrap();
        // As block style, below the name of the filter.
        let route: String = route.lines().map(|line| format!("\n{:30}{line}", "")).collect();
        let envoy = envoy
            .replace("{ {filter}: {route} }", &format!("\n{:28}{{filter}}:{route}", ""))
            .replace("{filter}", "envoy.filters.http.ratelimit/costs")
            .replace("{domain}", domain)
            .replace("{weir}", "8081")
            .replace("{backend}", "8080");
        let found = findings(rules, &[("envoy.yaml", &envoy)]);
        let (rule, message) = match path.file_stem().unwrap().to_str().unwrap() {
            "quota-distinct" => ("rule-0-x-tenant-id-match-0", DISTINCT),
            "quota-exact-distinct" => ("rule-0-x-tenant-id-match-1", DISTINCT),
            "quota-inverted" => (
                "rule-0-x-tenant-id|acme-match-0",
                "this charges other requests than those that ask: `expect_match` of 'RULE' is the opposite at \
                 their start",
            ),
            name => {
                assert_eq!(found, [""; 0], "{name}");
                continue;
            }
        };
        let line = |at: usize| envoy[..at].lines().count();
        let (asks, charges) = (line(envoy.find(rule).unwrap()), line(envoy.rfind(rule).unwrap()));
        let message = message.replace("RULE", rule);
        let wanted = format!("envoy.yaml:{charges}: {message} (envoy.yaml:{asks}:");
        assert!(found.len() == 1 && found[0].starts_with(&wanted), "{found:?}");
        checked += 1;
    }
    assert_eq!(checked, 3);
}

#[test]
fn what_a_proxy_does_not_use_any_more_is_ignored() {
    let dump = fs::read_to_string(root().join("tests/envoy_dumps/istioctl-proxy-config-all.json"))
        .unwrap();
    assert!(dump.contains("gateway-before"));
    let found = findings(&istio_rules("gateway"), &[("dump.json", &dump)]);
    assert_eq!(found, [""; 0]);
}

#[test]
fn resources_that_are_no_configuration_are_named_with_the_command_that_gives_one() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("rules.yaml"), istio_rules("gateway")).unwrap();
    for (resource, message, command) in [
        (
            "apiVersion: gateway.envoyproxy.io/v1alpha1\nkind: BackendTrafficPolicy\nspec: { rateLimit: { type: Global } }\n",
            "resource.yaml:1:1: error: this is a BackendTrafficPolicy, not an Envoy configuration",
            "egctl x translate --from gateway-api --to xds -o json -f resource.yaml | weir check RULES --envoy -",
        ),
        (
            "# A route.\napiVersion: v1\nkind: List\nitems:\n- apiVersion: gateway.networking.k8s.io/v1\n  kind: HTTPRoute\n",
            "resource.yaml:5:3: error: this is an HTTPRoute, not an Envoy configuration",
            "egctl config envoy-proxy all -A -o json",
        ),
        (
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\n",
            "error: this is a VirtualService, not an Envoy configuration",
            "istioctl proxy-config all POD -n NAMESPACE -o json | weir check RULES --envoy -",
        ),
        (
            "apiVersion: v1\nkind: ConfigMap\ndata: { envoy.yaml: '' }\n",
            "error: this is a ConfigMap, not an Envoy configuration",
            "kubectl get configmap NAME -o",
        ),
        (
            "apiVersion: projectcontour.io/v1\nkind: HTTPProxy\n",
            "error: this is an HTTPProxy, not an Envoy configuration",
            "config_dump",
        ),
    ] {
        fs::write(directory.path().join("resource.yaml"), resource).unwrap();
        let args = ["rules.yaml", "--envoy", "resource.yaml"];
        let (code, _, err) = check(directory.path(), &args, "");
        assert_eq!(code, Some(1), "{err}");
        assert!(err.contains(message) && err.contains(command), "{err}");
        assert!(!err.contains("never asks"), "{err}");
    }
}

#[test]
fn standard_input_is_read_once() {
    let (code, _, err) = check(&root(), &["-", "--envoy", "-"], "");
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("only one of rules and --envoy can be standard input"), "{err}");
    let (code, _, err) = check(&root(), &["examples/rules", "--envoy", "-"], "a: [\n");
    assert_eq!(code, Some(1));
    assert!(
        err.contains("<stdin>:1:4: error: the Envoy configuration is not YAML or JSON"),
        "{err}"
    );
}
