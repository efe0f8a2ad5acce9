//! What the schema of the chart `helm/weir` refuses: settings that the chart sets or that are secret, and the variables and
//! arguments that set them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::settings::reference::no_effect::NO_EFFECT;
use crate::settings::reference::read::read;
use crate::settings::reference::variables::VARIABLES;
use crate::settings::reference::{RedisEffect, Variable, VariableEffect};
use crate::settings::table::SETTINGS;

/// Settings, and groups of settings, that the chart sets or that are secret, with what to use instead.
#[rustfmt::skip]
const SET_BY_CHART: &[(&str, &str)] = &[
    ("rules.source", "use the value rules.source"),
    ("rules.paths", "use the value rules.files or rules.existingConfigMap"),
    ("rules.ignore_dot_files", "such files are ignored, since a ConfigMap has each file a second time below one"),
    ("rules.runtime", "use the value rules.files or rules.existingConfigMap"),
    ("rules.overlay", "use the value rules.overlay.files or rules.overlay.existingConfigMap"),
    ("rules.xds.url", "use the value rules.xds.url"),
    ("rules.xds.headers", "they may be secret; set WEIR__RULES__XDS__HEADERS in the value extraEnv, from a secret"),
    ("rules.xds.tls.enabled", "use the value rules.xds.tls.enabled"),
    ("rules.xds.tls.ca", "use the value rules.xds.tls.caSecret"),
    ("rules.xds.tls.cert", "use the value rules.xds.tls.clientSecret"),
    ("rules.xds.tls.key", "use the value rules.xds.tls.clientSecret"),
    ("grpc.address", "the container's port is fixed; use the value service.ports.grpc"),
    ("grpc.uds", "the Services need the port"),
    ("grpc.tls.enabled", "use the value tls.grpc.enabled"),
    ("grpc.tls.cert", "use the value tls.grpc.secret"),
    ("grpc.tls.key", "use the value tls.grpc.secret"),
    ("grpc.tls.client_ca", "use the value tls.grpc.clientCaSecret"),
    ("http.address", "the container's port is fixed; use the value service.ports.http"),
    ("http.tls.enabled", "use the value tls.http.enabled"),
    ("http.tls.cert", "use the value tls.http.secret"),
    ("http.tls.key", "use the value tls.http.secret"),
    ("http.tls.client_ca", "use the value tls.http.clientCaSecret"),
    ("resp.address", "the container's port is fixed; use the values resp.enabled and service.ports.resp"),
    ("resp.password_file", "use the values resp.existingSecret and resp.passwordKey"),
    ("resp.tls.enabled", "use the value tls.resp.enabled"),
    ("resp.tls.cert", "use the value tls.resp.secret"),
    ("resp.tls.key", "use the value tls.resp.secret"),
    ("resp.tls.client_ca", "use the value tls.resp.clientCaSecret"),
    ("debug.address", "it stays on loopback; use kubectl port-forward to reach it"),
    ("debug.read_token_file", "use the values debug.existingSecret and debug.readTokenKey"),
    ("debug.write_token_file", "use the values debug.existingSecret and debug.writeTokenKey"),
    ("debug.require_token", "use the value debug.existingSecret, with which clients need a token"),
    ("controls.file", "use the value controls.existingClaim"),
    ("metrics.prometheus.address", "the container's port is fixed"),
    ("metrics.prometheus.path", "the monitors read /metrics"),
    ("drain.delay", "use the value drain.delay"),
    ("drain.timeout", "use the value drain.timeout"),
    ("store.kind", "use the value store.kind"),
    ("store.on_failure", "use the value store.onFailure"),
    ("store.memory.max_keys", "use the value store.memory.maxKeys"),
    ("store.disk.path", "the volume is mounted there; use the values of store.disk"),
    ("store.redis.topology", "use the value store.redis.topology"),
    ("store.redis.url", "use the value store.redis.url"),
    ("store.redis.password", "use the value store.redis.existingSecret"),
    ("store.redis.tls.enabled", "use the value store.redis.tls.enabled"),
    ("store.redis.tls.ca", "use the value store.redis.tls.caSecret"),
    ("store.redis.tls.cert", "use the value store.redis.tls.clientSecret"),
    ("store.redis.tls.key", "use the value store.redis.tls.clientSecret"),
    ("store.redis.sentinel.master_name", "use the value store.redis.sentinel.masterName"),
    ("store.redis.sentinel.password", "use the value store.redis.sentinel.existingSecret"),
    ("store.redis.per_second.password", "it is secret; use settings.store.redis.per_second.password_file"),
    ("store.redis.per_second.sentinel.password", "it is secret; use settings.store.redis.per_second.sentinel.password_file"),
    ("otlp.headers", "they may be secret; set WEIR__OTLP__HEADERS in the value extraEnv, from a secret"),
];

/// Further settings that no variable and no argument may set, as they take precedence over what the chart sets or reads.
#[rustfmt::skip]
const READ_BY_CHART: &[(&str, &str)] = &[
    ("store.replicas", "use the value replicaCount or autoscaling.maxReplicas, or settings.store.replicas if replicaCount is null"),
    ("store.redis.password_file", "use the value store.redis.existingSecret or settings.store.redis.password_file"),
    ("store.redis.sentinel.password_file", "use the value store.redis.sentinel.existingSecret or settings.store.redis.sentinel.password_file"),
    ("store.redis.per_second.url", "use settings.store.redis.per_second.url"),
];

/// Settings that a variable may set whose value is from a secret.
const FROM_SECRETS: &[&str] = &["otlp.headers", "rules.xds.headers"];

/// Whether a setting is the named one, or in the named group.
fn is_in(setting: &str, name: &str) -> bool {
    setting.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn find(list: &[(&str, &'static str)], setting: &str) -> Option<&'static str> {
    list.iter().find(|(name, _)| is_in(setting, name)).map(|&(_, instead)| instead)
}

/// Returns a schema that no value satisfies, as it accepts its message alone: a schema has no other place for one.
fn refusing(message: &str) -> Value {
    json!({ "const": format!("unset: {message}") })
}

/// Returns the schema of a setting that the chart refuses; none if it does not.
pub fn refused_setting(setting: &str) -> Option<Value> {
    find(SET_BY_CHART, setting).map(refusing)
}

/// Returns the schemas of variables and arguments: `weirOverrides` refuses those that set what the chart sets, and
/// `weirSecrets` those whose value must be from a secret.
pub fn definitions() -> [(&'static str, Vec<Value>); 2] {
    // Variables and arguments, as patterns, by the message.
    let mut overrides: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut secrets = overrides.clone();
    let variables =
        VARIABLES.iter().map(|variable| (variable.name.to_owned(), settings_of(variable)));
    let all = NO_EFFECT.iter().flat_map(|entry| entry.names);
    let of_redis = all.filter(|name| name.starts_with("REDIS_") && !name.ends_with('*'));
    let of_redis = of_redis.map(|name| ((*name).to_owned(), vec!["store.kind"]));
    let own = SETTINGS.iter().map(|setting| {
        let name = setting.name.to_uppercase().replace('.', "__");
        (format!("WEIR__{name}"), vec![setting.name])
    });
    for (name, settings) in own.chain(variables).chain(of_redis) {
        let Some(message) = refusal(&name, &settings) else { continue };
        let is_from_secret = settings.iter().all(|setting| FROM_SECRETS.contains(setting));
        let list = if is_from_secret { &mut secrets } else { &mut overrides };
        list.entry(message).or_default().push(format!("{name}$"));
    }
    for setting in SETTINGS.iter() {
        if let Some(message) = refusal("", &[setting.name]) {
            let argument = format!("--set={}=", setting.name.replace('.', "[.]"));
            overrides.entry(message).or_default().push(argument);
        }
    }
    let schemas = |list: BTreeMap<String, Vec<String>>| {
        let schema = |(message, names): (String, Vec<String>)| {
            let pattern = format!("^({})", names.join("|"));
            json!({ "if": { "pattern": pattern }, "then": refusing(&message) })
        };
        list.into_iter().map(schema).collect::<Vec<_>>()
    };
    // weir takes such names in any letter case.
    let upper_case =
        json!({ "if": { "pattern": "^WEIR__" }, "then": { "pattern": "^[A-Z0-9_]+$" } });
    let overrides = std::iter::once(upper_case).chain(schemas(overrides)).collect();
    [("weirOverrides", overrides), ("weirSecrets", schemas(secrets))]
}

/// Returns why a variable, or an argument, with these settings is refused; none if it is not.
fn refusal(variable: &str, settings: &[&str]) -> Option<String> {
    let instead =
        |setting: &str| find(SET_BY_CHART, setting).or_else(|| find(READ_BY_CHART, setting));
    let (mut refused, others): (Vec<&str>, Vec<&str>) =
        settings.iter().partition(|setting| instead(setting).is_some());
    // The variables of Redis make it the store, too, which the others of their settings imply.
    let is_of_redis = variable.starts_with("REDIS_") && refused == ["store.kind"];
    if refused.len() > 1 {
        refused.retain(|setting| *setting != "store.kind");
    }
    let mut messages: Vec<&str> = refused.into_iter().filter_map(instead).collect();
    messages.dedup();
    if messages.is_empty() {
        return None;
    }
    let mut message = if is_of_redis { "it makes Redis the store; " } else { "" }.to_owned();
    message += &messages.join("; ");
    if !others.is_empty() {
        let others: Vec<String> = others.iter().map(|name| format!("settings.{name}")).collect();
        message += &format!("; for its other effect use {}", others.join(", "));
    }
    Some(message)
}

/// Returns the settings that a variable of the reference sets.
fn settings_of(variable: &Variable) -> Vec<&'static str> {
    let mut settings = match variable.effect {
        VariableEffect::Set(setting, _) | VariableEffect::SetText(setting) => vec![setting],
        VariableEffect::Defines(_) => vec![],
        VariableEffect::Backend => vec!["store.kind"],
        VariableEffect::Redis(RedisEffect::PerSecond) => {
            vec!["store.redis.per_second.url", "store.kind"]
        }
        VariableEffect::Redis(RedisEffect::Same(setting)) => vec![setting, "store.kind"],
        VariableEffect::Redis(RedisEffect::Url(one, other) | RedisEffect::Login(one, other)) => {
            vec![one, other, "store.kind"]
        }
    };
    if variable.name == "USE_PROMETHEUS" {
        settings.push("metrics.prometheus.reference_names");
    }
    settings
}

/// Texts of which each kind of variables accepts one.
const TEXTS: &[&str] = &[
    "1",
    "true",
    "TRUE",
    "0.5",
    "10s",
    "a",
    "a:1",
    "a,b:1",
    "a:b",
    "redis",
    "cluster",
    "FILE",
    "GRPC_XDS_SOTW",
    "tcp",
    "http",
    "info",
    "json",
    "gzip",
];

#[test]
fn variables_set_nothing_that_the_chart_does_not_know() {
    let per_second = ("REDIS_PERSECOND".to_owned(), "true".to_owned());
    let switch = VARIABLES.iter().find(|variable| variable.name == per_second.0).unwrap();
    for variable in VARIABLES {
        let known: Vec<_> = settings_of(variable).into_iter().chain(settings_of(switch)).collect();
        let mut is_accepted = false;
        for topology in ["single", "sentinel"] {
            for text in TEXTS.iter().filter(|text| variable.kind.accepts(text)) {
                is_accepted = true;
                let env = [(variable.name.to_owned(), (*text).to_owned()), per_second.clone()];
                let below = |name: &str| match name.ends_with("topology") {
                    true => topology.to_owned(),
                    false => "a:1".to_owned(),
                };
                for (setting, ..) in read(&env, below).set {
                    assert!(known.contains(&setting), "{} sets {setting}", variable.name);
                }
            }
        }
        assert!(is_accepted, "{} accepts none of these texts", variable.name);
    }
}

#[test]
fn the_chart_refuses_secret_settings() {
    for setting in SETTINGS.iter().filter(|setting| setting.is_secret) {
        let is_refused = refused_setting(setting.name).is_some();
        assert!(is_refused, "{} would be readable in a ConfigMap", setting.name);
    }
}

#[test]
fn the_chart_refuses_settings_that_exist() {
    let names = SET_BY_CHART.iter().chain(READ_BY_CHART).map(|(name, _)| *name);
    for name in names.chain(FROM_SECRETS.iter().copied()) {
        let exists = SETTINGS.iter().any(|setting| is_in(setting.name, name));
        assert!(exists, "{name} is no setting and no group");
    }
}
