//! All YAML of examples/, docs/ and README.md, and what checks it. A file or block of an unknown kind
//! fails, so that each gets a check.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::files::{read, root};
use crate::support::weir::Setup;
use crate::support::{envoy, schemas, yaml};

/// What another test checks: the start of a path, and the test, which must name the file.
const CHECKED_ELSEWHERE: [(&str, &str); 4] = [
    ("docs/envoy.md", "tests/e2e/envoy_docs.rs"),
    ("docs/install.md", "tests/install.rs"),
    ("docs/managed-redis.md", "tests/install.rs"),
    ("examples/compose/", "tests/e2e/compose.rs"),
];

/// Returns the paths of all files below a directory, from the root of the project.
fn files_below(directory: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(root().join(directory)).expect("a directory") {
        let entry = entry.expect("an entry");
        let path = Path::new(directory).join(entry.file_name());
        match entry.file_type().expect("a type").is_dir() {
            true => files.extend(files_below(path.to_str().expect("text"))),
            false => files.push(path),
        }
    }
    files.sort();
    files
}

/// Returns the YAML of files and of fenced blocks, each with its place.
fn texts() -> Vec<(String, String)> {
    let mut texts = Vec::new();
    let files = ["docs", "examples"].map(files_below).concat();
    for path in files.into_iter().chain(["README.md".into()]) {
        let name = path.to_str().expect("text").to_owned();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("yaml" | "yml") => texts.push((name, read(&path))),
            Some("md") => {
                let document = read(&path);
                let mut line = 1;
                for (number, part) in document.split("```").enumerate() {
                    let block = part.strip_prefix("yaml\n").or_else(|| part.strip_prefix("yml\n"));
                    if let Some(block) = block.filter(|_| number % 2 == 1) {
                        texts.push((format!("{name}:{line}"), block.to_owned()));
                    }
                    line += part.matches('\n').count();
                }
            }
            _ => {}
        }
    }
    texts
}

/// Checks a text by what is in it. Returns the kinds of its documents.
fn check(place: &str, text: &str) -> Result<Vec<&'static str>, String> {
    let documents = yaml::documents(text);
    let has = |key: &str| documents.iter().all(|document| !document[key].is_null());
    if has("domain") {
        return check_rules(text).map(|()| vec!["rules"]);
    }
    if has("config") && !documents[0]["config"]["envoyGateway"].is_null() {
        return check_envoy_gateway(&documents[0]).map(|()| vec!["values of Envoy Gateway"]);
    }
    if place.ends_with("values.yaml") || place.contains("-values") {
        return check_values(&documents[0]).map(|()| vec!["values of the chart"]);
    }
    if has("static_resources") {
        return envoy::validate(text).map(|()| vec!["Envoy"]);
    }
    if has("health_checks") {
        return envoy::validate(&in_cluster(&documents[0])).map(|()| vec!["part of a cluster"]);
    }
    if has("mappings") {
        return check_mapper(text).map(|()| vec!["names of metrics"]);
    }
    if has("terminationGracePeriodSeconds") {
        return schemas::check_kubernetes(&pod(&documents[0])).map(|()| vec!["part of a pod"]);
    }
    if has("livenessProbe") {
        let mut container = documents[0].clone();
        container["name"] = "weir".into();
        let part = json!({ "containers": [container] });
        return schemas::check_kubernetes(&pod(&part)).map(|()| vec!["part of a container"]);
    }
    if has("kind") && has("apiVersion") {
        return documents.iter().map(check_resource).collect();
    }
    let name = place.rsplit('/').next().unwrap_or(place).split(':').next().unwrap_or(place);
    for (start, test) in CHECKED_ELSEWHERE {
        if place.starts_with(start) && read(test).contains(name) {
            return Ok(vec!["checked elsewhere"]);
        }
    }
    Err("no test checks this: add its kind to tests/e2e/documents.rs".to_owned())
}

/// Runs `weir check`, which must have nothing to say.
fn check_rules(text: &str) -> Result<(), String> {
    let setup = Setup::new().file("rules.yaml", text).arg("check").arg("rules.yaml");
    let (status, output) = setup.run();
    match status.success() && output.contains(", 0 warnings") {
        true => Ok(()),
        false => Err(output),
    }
}

/// Checks that weir starts with this mapper.
fn check_mapper(text: &str) -> Result<(), String> {
    let setup = Setup::new().file("mapper.yaml", text).file("rules.yaml", "domain: shop\n");
    let mapper = setup.path("mapper.yaml");
    let setup = setup.env("USE_PROMETHEUS", "true").env("PROMETHEUS_ADDR", "127.0.0.1:0");
    let setup = setup.env("PROMETHEUS_MAPPER_YAML", mapper).env("GRPC_PORT", "0").env("PORT", "0");
    let setup = setup.env("DEBUG_PORT", "0").arg("serve").arg("--rules").arg("rules.yaml");
    setup.try_start().map(drop)
}

/// Checks that values of the chart exist in helm/weir/values.yaml with the same type, and their rules.
fn check_values(values: &Value) -> Result<(), String> {
    check_keys("", values, &yaml::document(&read("helm/weir/values.yaml")))?;
    for rules in values["rules"]["files"].as_object().into_iter().flat_map(|files| files.values()) {
        check_rules(rules.as_str().unwrap_or_default())?;
    }
    Ok(())
}

/// Checks values of Envoy Gateway's chart: the deployment of the rate-limit service, and other names.
fn check_envoy_gateway(values: &Value) -> Result<(), String> {
    let configuration = &values["config"]["envoyGateway"];
    let redis = json!({ "type": "", "redis": { "url": "" } });
    let rate_limit = json!({ "timeout": "", "failClosed": false, "backend": redis });
    // The deployment has a schema.
    let kubernetes = json!({ "rateLimitDeployment": {} });
    let provider = json!({ "type": "", "kubernetes": kubernetes });
    let known = json!({ "provider": provider, "rateLimit": rate_limit });
    check_keys("", values, &json!({ "config": { "envoyGateway": known } }))?;
    let deployment = &configuration["provider"]["kubernetes"]["rateLimitDeployment"];
    schemas::check("KubernetesDeploymentSpec", deployment)
}

fn check_keys(path: &str, values: &Value, defaults: &Value) -> Result<(), String> {
    let (Value::Object(values), Value::Object(defaults)) = (values, defaults) else {
        let same = std::mem::discriminant(values) == std::mem::discriminant(defaults);
        return match same || defaults.is_null() {
            true => Ok(()),
            false => Err(format!("{path}: not of the type of {defaults}")),
        };
    };
    // The keys of these are free.
    if defaults.is_empty() || path == ".rules.files" {
        return Ok(());
    }
    for (key, value) in values {
        let path = format!("{path}.{key}");
        let default = defaults.get(key).ok_or_else(|| format!("{path}: no value of the chart"))?;
        check_keys(&path, value, default)?;
    }
    Ok(())
}

/// Checks a resource of Kubernetes or of something that extends it.
fn check_resource(resource: &Value) -> Result<&'static str, String> {
    let group = resource["apiVersion"].as_str().unwrap_or_default();
    let group = group.split_once('/').map_or("", |(group, _)| group);
    match resource["kind"].as_str() {
        Some(
            kind @ ("EnvoyFilter"
            | "DestinationRule"
            | "PeerAuthentication"
            | "Gateway"
            | "VirtualService"
            | "BackendTrafficPolicy"),
        ) => {
            schemas::check(kind, resource)?;
            Ok("custom resource")
        }
        _ if !group.contains('.') || group.ends_with(".k8s.io") => {
            schemas::check_kubernetes(resource)?;
            if resource["kind"] == "ConfigMap" {
                check_config_map(resource)?;
            }
            Ok("resource of Kubernetes")
        }
        kind => Err(format!("no schema for {kind:?}: add one to tests/schemas")),
    }
}

/// Checks the files in a ConfigMap.
fn check_config_map(map: &Value) -> Result<(), String> {
    for (name, text) in map["data"].as_object().into_iter().flatten() {
        let text = text.as_str().unwrap_or_default();
        match name.rsplit('.').next() {
            Some("yaml" | "yml") if name != "weir.yaml" => drop(check(name, text)?),
            // The chart names its settings weir.yaml.
            Some("yaml" | "toml") => {
                let setup = Setup::new().file(name, text).file("rules.yaml", "domain: shop\n");
                let setup = setup.arg("serve").arg("--rules").arg("rules.yaml");
                let setup = setup.arg("--settings").arg(name).arg("--print-settings");
                let (status, output) = setup.run();
                if !status.success() {
                    return Err(output);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Makes a configuration of Envoy of a part of a cluster.
fn in_cluster(part: &Value) -> String {
    let mut cluster = json!({
        "name": "weir",
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": { "http2_protocol_options": {} },
            },
        },
    });
    cluster.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
    json!({ "static_resources": { "clusters": [cluster] } }).to_string()
}

/// Makes a pod of a part of its specification.
fn pod(part: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "weir" }, "spec": part })
}

#[test]
fn all_yaml_of_the_documents_and_examples_is_valid() {
    let mut errors = String::new();
    let mut kinds = Vec::new();
    for (place, text) in texts() {
        match check(&place, &text) {
            Ok(found) => kinds.extend(found),
            Err(error) => errors += &format!("{place}: {error}\n"),
        }
    }
    assert_eq!(errors, "");
    for kind in ["rules", "Envoy", "values of the chart", "custom resource"] {
        assert!(kinds.contains(&kind), "{kind}");
    }
}

#[test]
fn what_has_no_check_is_an_error() {
    for text in ["services: {}\n", "apiVersion: example.com/v1\nkind: Thing\n"] {
        check("examples/new.yaml", text).unwrap_err();
    }
    for text in
        ["domain: shop\ndescriptors: [{ kee: a }]\n", "static_resources: { listener: [] }\n"]
    {
        check("examples/new.yaml", text).unwrap_err();
    }
    check("examples/new-values.yaml", "rules: { file: {} }\n").unwrap_err();
    let rules = "rules: { files: { a.yaml: 'domain: a, descriptors: 1' } }\n";
    check("examples/new-values.yaml", rules).unwrap_err();
    check("examples/new-values.yaml", "replicaCount: two\n").unwrap_err();
    let gateway = "config: { envoyGateway: { rateLimits: {} } }\n";
    check("examples/new-values.yaml", gateway).unwrap_err();
}
