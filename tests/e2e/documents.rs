//! All YAML of examples/, docs/ and README.md, and what checks it. A file or block of an unknown kind
//! fails, so that each gets a check.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use serde_json::{Value, json};

use crate::support::files::{read, root};
use crate::support::markdown;
use crate::support::tools::promtool;
use crate::support::weir::Setup;
use crate::support::{console, envoy, schemas, yaml};

/// What another test checks: the start of a path, and the test, which must name the file.
const CHECKED_ELSEWHERE: [(&str, &str); 5] = [
    ("docs/envoy.md", "tests/e2e/envoy_docs.rs"),
    ("docs/install.md", "tests/repository/install.rs"),
    ("docs/redis.md", "tests/repository/install.rs"),
    ("examples/agentgateway/", "tests/e2e/agentgateway.rs"),
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

/// What belongs to a text: the other files of its directory, document or ConfigMap, and the commands that
/// the document shows.
#[derive(Default)]
pub(super) struct Context {
    files: Vec<(String, String)>,
    commands: Vec<markdown::Block>,
}

impl Context {
    fn of_directory(files: &[PathBuf], directory: &Path) -> Context {
        let yaml = files.iter().filter(|path| path.parent() == Some(directory) && is_yaml(path));
        let named = |path: &PathBuf| (path.file_name()?.to_str()?.to_owned(), read(path)).into();
        Context { files: yaml.filter_map(named).collect(), commands: Vec::new() }
    }

    fn of_document(document: &str) -> Context {
        let commands = markdown::blocks_of(document, "console");
        Context { files: markdown::files(document), commands }
    }
}

/// A YAML text with its place.
pub(super) struct Text {
    pub place: String,
    pub text: String,
    context: Rc<Context>,
}

fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// Returns the YAML of files and of fenced blocks.
pub(super) fn texts() -> Vec<Text> {
    let mut texts = Vec::new();
    let files = ["docs", "examples"].map(files_below).concat();
    for path in files.iter().chain([&"README.md".into()]) {
        let place = path.to_str().expect("text").to_owned();
        if is_yaml(path) {
            let directory = path.parent().expect("a directory");
            let context = Context::of_directory(&files, directory).into();
            texts.push(Text { place, text: read(path), context });
        } else if path.extension().is_some_and(|extension| extension == "md") {
            let document = read(path);
            let context = Rc::new(Context::of_document(&document));
            let mut line = 1;
            for (number, part) in document.split("```").enumerate() {
                let block = part.strip_prefix("yaml\n").or_else(|| part.strip_prefix("yml\n"));
                if let Some(block) = block.filter(|_| number % 2 == 1) {
                    let (place, context) = (format!("{place}:{line}"), context.clone());
                    texts.push(Text { place, text: block.to_owned(), context });
                }
                line += part.matches('\n').count();
            }
        }
    }
    texts
}

/// Checks a text by its name and by what is in it. Returns the kinds of its documents.
fn check(place: &str, text: &str, context: &Context) -> Result<Vec<&'static str>, String> {
    let documents = yaml::documents(text);
    let has = |key: &str| documents.iter().all(|document| !document[key].is_null());
    let file = place.rsplit('/').next().unwrap_or(place).split(':').next().unwrap_or(place);
    let name = match is_yaml(Path::new(file)) {
        true => file,
        false => markdown::file_name(text).unwrap_or("shown.yaml"),
    };
    if has("patches") || name.ends_with(".overlay.yaml") {
        return check_overlay(text).map(|()| vec!["overlay"]);
    }
    if has("tests") || name.ends_with(".test.yaml") {
        return check_test(name, text, context).map(|()| vec!["test of rules"]);
    }
    if has("access_log") {
        return envoy::validate(&in_listener(&documents[0])).map(|()| vec!["part of a listener"]);
    }
    if has("rate_limits") {
        return envoy::validate(&in_filter(&documents[0])).map(|()| vec!["part of a filter"]);
    }
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
    if has("receivers") {
        return check_collector(&documents[0]).map(|()| vec!["OpenTelemetry collector"]);
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
    for (start, test) in CHECKED_ELSEWHERE {
        if place.starts_with(start) && read(test).contains(file) {
            return Ok(vec!["checked elsewhere"]);
        }
    }
    Err("no test checks this: add its kind to tests/e2e/documents.rs".to_owned())
}

/// Runs `weir check` beside empty lists, which must have nothing to say.
fn check_rules(text: &str) -> Result<(), String> {
    let lists = text.lines().filter_map(|line| line.trim().strip_prefix("values_file: "));
    let setup = lists.fold(Setup::new(), |setup, list| setup.file(list, ""));
    let setup = setup.file("rules.yaml", text).arg("check").arg("rules.yaml");
    let (status, output) = setup.run();
    match status.success() && output.contains(", 0 warnings") {
        true => Ok(()),
        false => Err(output),
    }
}

/// Runs `weir check --overlay` with rules that no patch matches.
fn check_overlay(text: &str) -> Result<(), String> {
    let setup = Setup::new().file("rules.yaml", "domain: none\n").file("shown.overlay.yaml", text);
    let setup = setup.arg("check").arg("rules.yaml").arg("--overlay").arg("shown.overlay.yaml");
    let (status, output) = setup.run();
    if status.success() { Ok(()) } else { Err(output) }
}

/// Runs `weir test` beside the other files and the example rules. A test may only fail as the document shows.
fn check_test(name: &str, text: &str, context: &Context) -> Result<(), String> {
    let examples = "examples/rules";
    let examples = Context::of_directory(&files_below(examples), Path::new(examples));
    let files = examples.files.iter().chain(&context.files);
    let setup = files.fold(Setup::new(), |setup, (name, text)| setup.file(name, text));
    let setup = setup.file(name, text);
    let command = format!("$ weir test {name}\n");
    if let Some(shown) = context.commands.iter().find(|block| block.text.starts_with(&command)) {
        return console::run(&shown.text, &setup.path(""));
    }
    let (status, output) = setup.arg("test").arg(name).run();
    if status.success() { Ok(()) } else { Err(output) }
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

/// Checks what a collector's Prometheus receiver scrapes, if there is promtool, and that a pipeline has it.
fn check_collector(config: &Value) -> Result<(), String> {
    let receivers = &config["service"]["pipelines"]["metrics"]["receivers"];
    if *receivers != json!(["prometheus"]) {
        return Err(format!("the receivers of metrics are {receivers}"));
    }
    let Some(promtool) = promtool() else { return Ok(()) };
    let scrapes = config["receivers"]["prometheus"]["config"].to_string();
    let setup = Setup::new().file("prometheus.yaml", &scrapes);
    let file = setup.path("prometheus.yaml");
    let output = Command::new(promtool).args(["check", "config"]).arg(file).output();
    let output = output.map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
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
            | "BackendTrafficPolicy"
            | "EnvoyPatchPolicy"
            | "AIGatewayRoute"
            | "QuotaPolicy"),
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
    let files = map["data"].as_object().into_iter().flatten();
    let files = files.map(|(name, text)| (name.clone(), text.as_str().unwrap_or_default().into()));
    let context = Context { files: files.collect(), commands: Vec::new() };
    for (name, text) in &context.files {
        match name.rsplit('.').next() {
            Some("yaml" | "yml") if name != "weir.yaml" => drop(check(name, text, &context)?),
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

/// Makes a configuration of Envoy of a part of an HTTP connection manager.
fn in_listener(part: &Value) -> String {
    let mut manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3\
                  .HttpConnectionManager",
        "stat_prefix": "http",
        "route_config": {},
        "http_filters": [{
            "name": "envoy.filters.http.router",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
            },
        }],
    });
    manager.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
    let filter = json!({
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": manager,
    });
    let listener = json!({
        "name": "http",
        "address": { "socket_address": { "address": "127.0.0.1", "port_value": 8080 } },
        "filter_chains": [{ "filters": [filter] }],
    });
    json!({ "static_resources": { "listeners": [listener] } }).to_string()
}

/// Makes a configuration of Envoy of a part of the rate-limit filter.
fn in_filter(part: &Value) -> String {
    let mut filter = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit",
        "domain": "shop",
        "rate_limit_service": {
            "transport_api_version": "V3",
            "grpc_service": { "google_grpc": { "target_uri": "127.0.0.1:8081", "stat_prefix": "weir" } },
        },
    });
    filter.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
    let filter = json!({ "name": "envoy.filters.http.ratelimit", "typed_config": filter });
    let router = json!({ "name": "envoy.filters.http.router", "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
    } });
    in_listener(&json!({ "http_filters": [filter, router] }))
}

/// Makes a pod of a part of its specification.
fn pod(part: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "weir" }, "spec": part })
}

#[test]
fn all_yaml_of_the_documents_and_examples_is_valid() {
    let mut errors = String::new();
    let mut kinds = Vec::new();
    for Text { place, text, context } in texts() {
        match check(&place, &text, &context) {
            Ok(found) => kinds.extend(found),
            Err(error) => errors += &format!("{place}: {error}\n"),
        }
    }
    assert_eq!(errors, "");
    for kind in
        ["rules", "overlay", "test of rules", "Envoy", "values of the chart", "custom resource"]
    {
        assert!(kinds.contains(&kind), "{kind}");
    }
}

#[test]
fn what_has_no_check_is_an_error() {
    let check = |place, text| check(place, text, &Context::default());
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
    for text in [
        "domain: a\ndescriptors: ['a={b']\n",
        "access_log: [{ nam: a }]\n",
        "rate_limits: [{ action: [] }]\n",
    ] {
        check("examples/new.yaml", text).unwrap_err();
    }
    let gateway = "config: { envoyGateway: { rateLimits: {} } }\n";
    check("examples/new-values.yaml", gateway).unwrap_err();
}

#[test]
fn invalid_overlays_and_tests_that_fail_are_errors() {
    const OVERLAY: &str = "patches: [{ match: {}, set: { shadow_mode: true } }]\n";
    const RULES: &str =
        "domain: a\ndescriptors: [{ key: k, rate_limit: { unit: day, requests_per_unit: 0 } }]\n";
    let test = |code: &str| {
        let steps = format!("[{{ descriptors: [k=1], expect: {{ {code} }} }}]");
        format!("rules: [a.yaml]\ndomain: a\ntests: [{{ name: n, steps: {steps} }}]\n")
    };
    let (passes, fails) = (test("code: OVER_LIMIT"), test("code: OK"));
    let unknown_key = test("cod: OK");
    let files = vec![("a.yaml".to_owned(), RULES.to_owned())];
    let beside = Context { files, commands: Vec::new() };
    let alone = Context::default();
    assert_eq!(check("docs/a.md:1", OVERLAY, &alone), Ok(vec!["overlay"]));
    assert_eq!(check("examples/a.test.yaml", &passes, &beside), Ok(vec!["test of rules"]));
    check("docs/a.md:1", &OVERLAY.replace("set:", "sets:"), &alone).unwrap_err();
    check("docs/a.md:1", &OVERLAY.replace("shadow_mode", "shadow"), &alone).unwrap_err();
    check("examples/a.overlay.yaml", "domain: a\n", &alone).unwrap_err();
    check("examples/a.test.yaml", "domain: a\n", &beside).unwrap_err();
    check("examples/a.test.yaml", &passes, &alone).unwrap_err();
    for test in [&fails, &unknown_key] {
        check("examples/a.test.yaml", test, &beside).unwrap_err();
        check("docs/a.md:1", test, &beside).unwrap_err();
    }
    // In a ConfigMap, and in a document that shows another output.
    for (test, is_valid) in [(&passes, true), (&fails, false)] {
        let map = json!({ "data": { "a.yaml": RULES, "a.test.yaml": test } });
        assert_eq!(check_config_map(&map).is_ok(), is_valid, "{test}");
    }
    let document = format!(
        "```yaml\n# a.yaml\n{RULES}```\n```console\n$ weir test a.test.yaml\nFAILED\n```\n"
    );
    let shown = Context::of_document(&document);
    for test in [&passes, &fails] {
        check("docs/a.md:1", &format!("# a.test.yaml\n{test}"), &shown).unwrap_err();
    }
}
