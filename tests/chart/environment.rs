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

/// Returns the settings that the chart sets with a value file: those of weir.yaml without those of the value
/// `settings`, and those of variables.
fn set_by_the_chart(release: &Manifests, file: &str) -> BTreeMap<String, Value> {
    let settings = &release.find("ConfigMap/weir-settings")["data"]["weir.yaml"];
    let mut set = BTreeMap::new();
    leaves("", &yaml::document(settings.text()), &mut set);
    let values = yaml::document(&read(format!("tests/chart/values/{file}.yaml")));
    let mut own = BTreeMap::new();
    leaves("", &values["settings"], &mut own);
    // It has a default, which the value `settings` overrides.
    own.insert("store.count_replicas".to_owned(), Value::Null);
    set.retain(|name, _| !own.contains_key(name));
    let own_variables: Vec<&str> = match values.get("extraEnv") {
        Some(variables) => variables.list().iter().map(|it| it["name"].text()).collect(),
        None => Vec::new(),
    };
    for variable in release.container().get("env").into_iter().flat_map(Value::list) {
        let name = variable["name"].text();
        if !own_variables.contains(&name) {
            let name = name.strip_prefix("WEIR__").unwrap().to_lowercase().replace("__", ".");
            set.insert(name, "a".into());
        }
    }
    set
}

/// Returns the settings that each variable of the reference sets.
fn variables() -> BTreeMap<String, Vec<String>> {
    let file = yaml::document(&read("helm/weir/files/variables.yaml"));
    let names = |list: &Value| list.list().iter().map(|it| it.text().to_owned()).collect();
    file.map().iter().map(|(name, settings)| (name.clone(), names(settings))).collect()
}

fn as_variable(setting: &str) -> String {
    format!("WEIR__{}", setting.to_uppercase().replace('.', "__"))
}

/// Renders values that must be refused. Returns the message.
fn refusal(helm: &Helm, file: &str, values: &Value) -> String {
    let rendered = helm.chart().file(file).values(&values.to_string()).try_render();
    rendered.expect_err(&format!("{file} accepts {values}"))
}

#[test]
fn no_variable_sets_what_the_chart_sets() {
    let Some(helm) = Helm::newest() else { return };
    let reference = variables();
    for_each_file(|file| {
        let set = set_by_the_chart(&helm.render_file(file), file);
        let own = set.keys().map(|setting| as_variable(setting));
        let theirs = reference.iter().filter(|(_, of)| of.iter().any(|it| set.contains_key(it)));
        let names: BTreeSet<String> = own.chain(theirs.map(|(name, _)| name.clone())).collect();
        let variable = |name: &String| json!({ "name": name, "value": "1" });
        let entries: Vec<Value> = names.iter().map(variable).collect();
        let message = refusal(&helm, file, &json!({ "extraEnv": entries }));
        for name in &names {
            let words = format!("extraEnv must not set {name}: ");
            assert!(message.contains(&words), "{file}: {name} in {message}");
        }
    });
}

#[test]
fn no_argument_sets_what_the_chart_sets() {
    let Some(helm) = Helm::newest() else { return };
    for_each_file(|file| {
        let set = set_by_the_chart(&helm.render_file(file), file);
        // Both ways to write it.
        let arguments = set.keys().enumerate().flat_map(|(i, setting)| match i % 2 {
            0 => vec![format!("--set={setting}=1")],
            _ => vec!["--set".to_owned(), format!("{setting}=1")],
        });
        let arguments: Vec<String> = arguments.collect();
        let message = refusal(&helm, file, &json!({ "extraArgs": arguments }));
        for name in set.keys() {
            let words = format!("extraArgs must not set {name}: ");
            assert!(message.contains(&words), "{file}: {name} in {message}");
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
        for name in set.keys() {
            // Some are refused as a group.
            let groups = name.match_indices('.').map(|(at, _)| &name[..at]);
            let mut words =
                groups.chain([name.as_str()]).map(|it| format!("settings.{it} is refused"));
            assert!(words.any(|words| message.contains(&words)), "{file}: {name} in {message}");
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
        ("REDIS_PERSECOND_URL", "store.redis.perSecond.url"),
        ("REDIS_POOL_SIZE", "it makes Redis the store; use the value store.kind"),
        ("REDIS_TIMEOUT", "settings.store.redis.connect_timeout"),
        ("BACKEND_TYPE", "use the value store.kind"),
        ("RUNTIME_ROOT", "rules.files"),
        ("CONFIG_TYPE", "rules.source"),
        ("CONFIG_GRPC_XDS_SERVER_URL", "rules.xds.url"),
        ("GRPC_SERVER_USE_TLS", "tls.grpc"),
        ("DEBUG_PORT", "kubectl port-forward"),
        ("USE_PROMETHEUS", "settings.metrics.prometheus.reference_names"),
        // weir takes names in any letter case.
        ("WEIR__Store__kind", "store.kind"),
    ] {
        let values = json!({ "extraEnv": [{ "name": name, "value": "1" }] });
        let message = refusal(&helm, "defaults", &values);
        let words = format!("extraEnv must not set {name}: ");
        let rest = message.split_once(&words).unwrap_or_else(|| panic!("{name} in {message}")).1;
        assert!(rest.lines().next().unwrap().contains(value), "{value} in {message}");
    }
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
extraArgs: [--set=grpc.max_headers=8KiB, --set, response.headers=false, --log-level=warn]";
    for helm in Helm::all() {
        let release = helm.render(values);
        let mut node = every_secret(&release).secret("otlp", &[("headers", "a=b")]);
        let settings = node.settings();
        for (name, value) in [
            ("metrics.statsd.enabled", "true"),
            ("metrics.near_limit_ratio", "0.7"),
            ("grpc.max_streams", "99"),
            ("grpc.max_headers", "8KiB"),
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
        assert!(message.contains(flag), "{message}");
    }
    let ends = refusal(&helm, "defaults", &json!({ "extraArgs": ["--set"] }));
    assert!(ends.contains("extraArgs ends with --set"), "{ends}");
    let other = refusal(&helm, "defaults", &json!({ "extraArgs": ["/rules"] }));
    assert!(other.contains("write --set=NAME=VALUE"), "{other}");
}
