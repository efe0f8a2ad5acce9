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

/// The findings about these files: warnings and errors with their places, and then notes.
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
    let notes = json["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap().into());
    json["problems"].as_array().unwrap().iter().map(problem).chain(notes).collect()
}

/// The rules of the values of Istio's example: of one domain, or of both.
fn istio_rules(domain: &str) -> String {
    let values = fs::read_to_string(root().join("examples/istio/weir-values.yaml")).unwrap();
    let (_, file) = values.split_once(&format!("    {domain}.yaml: |\n")).unwrap();
    let lines = file.lines().take_while(|line| line.starts_with("      "));
    lines.map(|line| format!("{}\n", &line[6..])).collect()
}

fn example(name: &str) -> String {
    fs::read_to_string(root().join("examples/istio").join(name)).unwrap()
}

const UNKNOWN: &str = "only domain and descriptors are compared, not whether the patch applies";

#[test]
fn the_examples_for_istio_fit_their_rules() {
    for (domain, file, patches) in
        [("gateway", "gateway.yaml", "2 patches"), ("cart", "sidecar.yaml", "a patch")]
    {
        let text = example(file);
        let line = text.lines().position(|line| line.contains("VIRTUAL_HOST")).unwrap() + 1;
        let note =
            format!("{file}:{line}:7: the routes of {patches} are not in these files: {UNKNOWN}");
        assert_eq!(findings(&istio_rules(domain), &[(file, &text)]), [note]);
    }
    let directory = tempfile::tempdir().unwrap();
    for domain in ["gateway", "cart"] {
        fs::write(directory.path().join(format!("{domain}.yaml")), istio_rules(domain)).unwrap();
    }
    let files =
        ["gateway.yaml", "sidecar.yaml"].map(|file| root().join("examples/istio").join(file));
    let [gateway, sidecar] = files.each_ref().map(|file| file.to_str().unwrap());
    let args = [".", "--deny-warnings", "--envoy", gateway, "--envoy", sidecar];
    let (code, out, err) = check(directory.path(), &args, "");
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert_eq!(out.matches("note: ").count(), 2, "{out}");
    assert!(out.ends_with("ok: 5 rules in 2 domains of 2 files, 0 warnings\n"), "{out}");
}

#[test]
fn patches_are_compared_with_the_rules() {
    let rules = istio_rules("gateway");
    let gateway = example("gateway.yaml");
    let line = |text: &str| gateway.lines().position(|line| line.contains(text)).unwrap() + 1;
    let without_note = |text: &str| {
        let mut found = findings(&rules, &[("gateway.yaml", text)]);
        assert!(found.pop().unwrap().contains(UNKNOWN), "{found:?}");
        found
    };
    let reversed = gateway.replace("descriptor_value: search", "descriptor_value: serach");
    assert_eq!(
        without_note(&reversed),
        [
            format!(
                "gateway.yaml:{}: no rule of the domain 'gateway' matches 'route=serach,remote_address=…'",
                line("descriptor_value: search") - 1
            ),
            "rules.yaml:10: no action of Envoy sends what 'route_search.remote_address' matches"
                .into(),
        ]
    );
    let other = gateway.replace("domain: gateway", "domain: gatway");
    assert!(without_note(&other)[0].ends_with("there are no rules for the domain 'gatway'"));
    // Without `vh_rate_limits`, those of the host do not count on the route, but on others.
    assert_eq!(
        without_note(&gateway.replace("vh_rate_limits: INCLUDE", "domain: gateway")),
        [""; 0]
    );
    // Another stage, and a filter that is removed.
    let staged = gateway.replace("domain: gateway", "domain: gateway\n            stage: 3");
    let never = "this filter never asks weir: no `rate_limits` have its stage, 3";
    assert!(without_note(&staged)[0].contains(never));
    let removed = gateway.replace("INSERT_BEFORE", "REMOVE");
    let unused = "this item is never used: there is no rate-limit filter";
    assert!(without_note(&removed)[0].contains(unused));
}

#[test]
fn a_filter_may_be_written_as_a_struct() {
    let rules = "domain: d\ndescriptors:\n- { key: user, rate_limit: { unit: day, requests_per_unit: 1 } }\n";
    let typed =
        "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit, domain: DOMAIN";
    for kind in ["udpa.type.v1.TypedStruct", "xds.type.v3.TypedStruct"] {
        let as_struct = format!(
            "type.googleapis.com/{kind}, type_url: \
             type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit, value: {{ domain: d }}"
        );
        let filter = inline(&FILTER.replace(typed, &as_struct));
        let actions = inline(&ACTIONS.replace("KEY", "user"));
        let text = resource("shop", "a", "GATEWAY", &filter)
            + &format!("  - match: {{ context: GATEWAY }}\n    {actions}\n");
        let found = findings(rules, &[("patches.yaml", &text)]);
        assert!(found.len() == 1 && found[0].contains(UNKNOWN), "{kind}: {found:?}");
    }
}

#[test]
fn a_patch_with_an_unknown_target_is_named() {
    let gateway = example("gateway.yaml");
    let misspelled = gateway.replacen("applyTo: VIRTUAL_HOST", "applyTo: VIRTUALHOST", 1);
    let line = misspelled.lines().position(|line| line.contains("VIRTUALHOST")).unwrap() + 1;
    let found = findings(&istio_rules("gateway"), &[("gateway.yaml", &misspelled)]);
    let wanted =
        format!("gateway.yaml:{line}: unknown applyTo 'VIRTUALHOST': the patch is ignored");
    assert!(found.contains(&wanted), "{found:?}");
}

/// A filter, or actions, for these proxies.
fn resource(namespace: &str, app: &str, context: &str, patch: &str) -> String {
    format!(
        "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\n\
         metadata: {{ name: a, namespace: {namespace} }}\n\
         spec:\n  workloadSelector: {{ labels: {{ app: {app} }} }}\n  configPatches:\n\
         \x20 - match: {{ context: {context} }}\n    {patch}\n"
    )
}

const FILTER: &str = "{ applyTo: HTTP_FILTER, patch: { operation: INSERT_FIRST, value: { name: r, typed_config: \
                      { '@type': type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit, \
                      domain: DOMAIN } } } }";
const ACTIONS: &str = "{ applyTo: VIRTUAL_HOST, patch: { operation: MERGE, value: { rate_limits: \
                       [{ actions: [{ request_headers: { header_name: x, descriptor_key: KEY } }] }] } } }";

/// A patch in flow style as a part of a resource.
fn inline(patch: &str) -> String {
    let patch = patch.strip_prefix("{ ").unwrap().strip_suffix(" }").unwrap();
    let (apply, rest) = patch.split_once(", patch: ").unwrap();
    format!("{apply}\n    patch: {rest}")
}

#[test]
fn patches_of_several_files_belong_together_by_their_proxies() {
    let filter = |domain: &str| inline(&FILTER.replace("DOMAIN", domain));
    let actions = |key: &str| inline(&ACTIONS.replace("KEY", key));
    let rules = "domain: d\ndescriptors:\n- { key: user, rate_limit: { unit: day, requests_per_unit: 1 } }\n";
    let of = |actions: &str, filter: &str| {
        let mut found = findings(rules, &[("actions.yaml", actions), ("filter.yaml", filter)]);
        found.retain(|found| !found.contains(UNKNOWN));
        found
    };
    let at = |namespace, app, context, patch: &str| resource(namespace, app, context, patch);
    let gateway = at("shop", "a", "GATEWAY", &filter("d"));
    assert_eq!(of(&at("shop", "a", "GATEWAY", &actions("user")), &gateway), [""; 0]);
    assert_eq!(of(&at("shop", "a", "ANY", &actions("user")), &gateway), [""; 0]);
    assert_eq!(of(&at("istio-system", "a", "GATEWAY", &actions("user")), &gateway), [""; 0]);
    let list = format!(
        "apiVersion: v1\nkind: List\nitems:\n- {}\n- {}\n",
        at("shop", "a", "GATEWAY", &actions("user")).trim().replace('\n', "\n  "),
        gateway.trim().replace('\n', "\n  ")
    );
    assert_eq!(of(&list, "static_resources: { clusters: [] }"), [""; 0]);
    let both = format!("{gateway}---\n{}", at("shop", "a", "GATEWAY", &actions("user")));
    assert_eq!(of(&both, "static_resources: { clusters: [] }"), [""; 0]);
    for other in [
        at("shop", "b", "GATEWAY", &actions("user")),
        at("cart", "a", "GATEWAY", &actions("user")),
        at("shop", "a", "SIDECAR_INBOUND", &actions("user")),
    ] {
        let found = of(&other, &gateway);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("actions.yaml:9: this item is never used: "), "{found:?}");
        assert!(found[1].starts_with("filter.yaml:9: this filter never asks weir"), "{found:?}");
        assert_eq!(found[2], "rules.yaml:3: Envoy never asks about the domain 'd'");
    }
}

#[test]
fn patches_of_routes_in_the_files_are_applied_to_them() {
    let dump = fs::read_to_string(root().join("tests/envoy_dumps/istioctl-proxy-config-all.json"))
        .unwrap();
    let patch = "applyTo: HTTP_ROUTE\n    patch: { operation: MERGE, value: { route: { rate_limits: \
                 [{ actions: [{ destination_cluster: {} }] }] } } }";
    let resource = resource("istio-system", "a", "GATEWAY", patch).replace(
        "GATEWAY }",
        "GATEWAY, routeConfiguration: { vhost: { route: { name: search } } } }",
    );
    let rules = istio_rules("gateway");
    assert_eq!(
        findings(&rules, &[("dump.json", &dump), ("filter.yaml", &resource)]),
        ["filter.yaml:9: no rule of the domain 'gateway' matches \
          'destination_cluster=outbound|80||cart.shop.svc.cluster.local'"]
    );
    let unknown = resource.replace("name: search", "name: serach");
    let found = findings(&rules, &[("dump.json", &dump), ("filter.yaml", &unknown)]);
    assert_eq!(
        found,
        [
            "filter.yaml:9: no rule of the domain 'gateway' matches 'destination_cluster=…'"
                .to_owned(),
            format!("filter.yaml:7:5: the routes of a patch are not in these files: {UNKNOWN}"),
        ]
    );
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
