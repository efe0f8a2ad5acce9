//! Variables, arguments and settings that would set what the chart sets.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::{Map, Value, json};

use crate::helm::{Helm, for_each_file};
use crate::manifests::{Manifests, Read};
use crate::start::every_secret;
use crate::support::{read, root, yaml};

/// Returns the paths and values of the leaves of a tree.
fn leaves(prefix: &str, tree: &Value, found: &mut BTreeMap<String, Value>) {
    match tree.as_object() {
        Some(members) => {
            for (name, value) in members {
                let path =
                    if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                leaves(&path, value, found);
            }
        }
        None => drop(found.insert(prefix.to_owned(), tree.clone())),
    }
}

/// Returns the settings that the chart sets with a value file: those of weir.yaml without those of the value `settings`.
fn set_by_the_chart(release: &Manifests, file: &str) -> BTreeMap<String, Value> {
    let settings = &release.find("ConfigMap/weir-settings")["data"]["weir.yaml"];
    let mut set = BTreeMap::new();
    leaves("", &yaml::document(settings.text()), &mut set);
    let values = yaml::document(&read(format!("tests/chart/values/{file}.yaml")));
    let mut own = BTreeMap::new();
    leaves("", &values["settings"], &mut own);
    set.retain(|name, _| !own.contains_key(name));
    set
}

fn as_variable(setting: &str) -> String {
    format!("WEIR__{}", setting.to_uppercase().replace('.', "__"))
}

/// Renders values that must be refused. Returns the message.
fn refusal(helm: &Helm, file: &str, values: &Value) -> String {
    let rendered = helm.chart().file(file).values(&values.to_string()).try_render();
    rendered.expect_err(&format!("{file} accepts {values}"))
}

/// Asserts that a message has the path of a value, with what to use instead of it. Returns that.
fn instead<'a>(message: &'a str, path: &str) -> &'a str {
    let words = format!("at '{path}': value must be 'unset: ");
    let (_, rest) = message.split_once(&words).unwrap_or_else(|| panic!("{path} in {message}"));
    rest.lines().next().unwrap()
}

#[test]
fn no_variable_sets_what_the_chart_sets() {
    let Some(helm) = Helm::newest() else { return };
    for_each_file(|file| {
        let set = set_by_the_chart(&helm.render_file(file), file);
        let variable = |setting: &String| json!({ "name": as_variable(setting), "value": "1" });
        let entries: Vec<Value> = set.keys().map(variable).collect();
        let message = refusal(&helm, file, &json!({ "extraEnv": entries }));
        for i in 0..entries.len() {
            instead(&message, &format!("/extraEnv/{i}/name"));
        }
    });
}

#[test]
fn no_argument_sets_what_the_chart_sets() {
    let Some(helm) = Helm::newest() else { return };
    for_each_file(|file| {
        let set = set_by_the_chart(&helm.render_file(file), file);
        let arguments = set.keys().map(|setting| format!("--set={setting}=1"));
        let arguments: Vec<String> = arguments.collect();
        let message = refusal(&helm, file, &json!({ "extraArgs": arguments }));
        for i in 0..arguments.len() {
            instead(&message, &format!("/extraArgs/{i}"));
        }
    });
}

#[test]
fn no_setting_sets_what_the_chart_sets() {
    let Some(helm) = Helm::newest() else { return };
    for_each_file(|file| {
        let set = set_by_the_chart(&helm.render_file(file), file);
        let mut settings = json!({});
        for (name, value) in &set {
            let mut group = &mut settings;
            for part in name.split('.') {
                let members = group.as_object_mut().unwrap();
                group = members.entry(part).or_insert_with(|| Map::new().into());
            }
            *group = value.clone();
        }
        let message = refusal(&helm, file, &json!({ "settings": settings }));
        // A template refuses that one; see refusals.rs.
        for name in set.keys().filter(|name| *name != "store.replicas") {
            instead(&message, &format!("/settings/{}", name.replace('.', "/")));
        }
    });
}

#[test]
fn variables_of_a_migrating_user_are_refused_with_the_value_to_use() {
    let Some(helm) = Helm::newest() else { return };
    for (name, value) in [
        ("GRPC_PORT", "service.ports.grpc"),
        ("PORT", "service.ports.http"),
        ("HOST", "service.ports.http"),
        ("REDIS_URL", "store.redis.url"),
        ("REDIS_TYPE", "store.redis.topology"),
        ("REDIS_AUTH", "store.redis.existingSecret"),
        ("REDIS_TLS", "store.redis.tls.enabled"),
        ("REDIS_PERSECOND_URL", "settings.store.redis.per_second.url"),
        ("REDIS_POOL_SIZE", "it makes Redis the store; use the value store.kind"),
        ("REDIS_TIMEOUT", "settings.store.redis.connect_timeout"),
        ("BACKEND_TYPE", "use the value store.kind"),
        ("RUNTIME_ROOT", "rules.files"),
        ("CONFIG_TYPE", "rules.source"),
        ("CONFIG_GRPC_XDS_SERVER_URL", "rules.xds.url"),
        ("GRPC_SERVER_USE_TLS", "tls.grpc"),
        ("DEBUG_PORT", "kubectl port-forward"),
        ("USE_PROMETHEUS", "settings.metrics.prometheus.reference_names"),
    ] {
        let values = json!({ "extraEnv": [{ "name": name, "value": "1" }] });
        let message = refusal(&helm, "defaults", &values);
        assert!(instead(&message, "/extraEnv/0/name").contains(value), "{value} in {message}");
    }
    // weir takes names in any letter case, and the chart the usual one.
    let values = json!({ "extraEnv": [{ "name": "WEIR__Store__kind", "value": "1" }] });
    let message = refusal(&helm, "defaults", &values);
    assert!(message.contains("'WEIR__Store__kind' does not match pattern '^[A-Z0-9_]+$'"));
}

#[test]
fn what_has_only_a_default_can_be_set() {
    let Some(helm) = Helm::newest() else { return };
    let values = "extraEnv:
  - { name: LOG_LEVEL, value: debug }
  - { name: USE_STATSD, value: 'true' }
  - { name: NEAR_LIMIT_RATIO, value: '0.7' }
  - { name: LIMIT_RESPONSE_HEADERS_ENABLED, value: 'true' }
  - { name: WEIR__GRPC__MAX_STREAMS, value: '99' }
  - { name: OTEL_EXPORTER_OTLP_HEADERS, valueFrom: { secretKeyRef: { name: otlp, key: headers } } }
extraArgs: [--set=grpc.max_message=8KiB, --set=response.headers=false, --log-level=warn]";
    for helm in Helm::all() {
        let release = helm.render(values);
        let mut node = every_secret(&release).secret("otlp", &[("headers", "a=b")]);
        let settings = node.settings();
        for (name, value) in [
            ("metrics.statsd.enabled", "true"),
            ("metrics.near_limit_ratio", "0.7"),
            ("grpc.max_streams", "99"),
            ("grpc.max_message", "8KiB"),
            // Arguments take precedence.
            ("log.level", "warn"),
            ("response.headers", "false"),
        ] {
            assert_eq!(settings[name], value, "{name}");
        }
    }
    // A header in a manifest is readable.
    let plain = json!({ "extraEnv": [{ "name": "OTEL_EXPORTER_OTLP_HEADERS", "value": "a=b" }] });
    assert!(refusal(&helm, "defaults", &plain).contains("from a secret"));
}

#[test]
fn flags_of_weir_serve_are_allowed_or_refused_by_name() {
    let Some(helm) = Helm::newest() else { return };
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    let help = weir.args(["serve", "--help"]).current_dir(root()).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let words = help.split_whitespace().filter(|word| word.starts_with("--"));
    let letters = |word: &str| word.trim_end_matches(|c: char| !c.is_ascii_lowercase()).to_owned();
    let flags: BTreeSet<String> = words.map(letters).collect();
    assert!(flags.len() >= 8, "{flags:?}");
    for flag in &flags {
        if ["--set", "--log-level"].contains(&flag.as_str()) {
            continue;
        }
        let message = refusal(&helm, "defaults", &json!({ "extraArgs": [format!("{flag}=a")] }));
        assert!(message.contains("'--set=NAME=VALUE or --log-level=LEVEL'"), "{message}");
    }
    for argument in ["--set", "/rules", "--set=Store.Kind=memory", "--set=log.level"] {
        let message = refusal(&helm, "defaults", &json!({ "extraArgs": [argument] }));
        assert!(message.contains("'--set=NAME=VALUE or --log-level=LEVEL'"), "{message}");
    }
}
