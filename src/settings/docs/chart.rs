//! What the chart `helm/weir` knows of settings and variables, besides their schema: the file
//! `helm/weir/files/variables.yaml`, which `UPDATE_DOCS=1 cargo test --lib docs` writes, and the settings that it refuses.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::settings::reference::variables::VARIABLES;
use crate::settings::reference::{Effect, RedisEffect, Variable, read};
use crate::settings::table::{SETTINGS, set_by};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/helm/weir/files/variables.yaml");

const HEAD: &str = "\
# The settings that each variable of envoyproxy/ratelimit sets. The chart refuses those in the value extraEnv that set what it sets.
# From the code: UPDATE_DOCS=1 cargo test --lib docs
";

/// Returns the settings that a variable of the reference sets.
fn settings_of(variable: &Variable) -> Vec<&'static str> {
    let named = set_by(variable.name).map(|setting| setting.name);
    let mut settings: Vec<&str> = named.collect();
    settings.extend(further(variable.effect));
    if variable.name == "USE_PROMETHEUS" {
        settings.push("metrics.prometheus.reference_names");
    }
    let mut seen = BTreeSet::new();
    settings.retain(|setting| seen.insert(*setting));
    settings
}

/// Returns the settings of an effect that do not name the variable.
fn further(effect: Effect) -> Vec<&'static str> {
    match effect {
        Effect::Redis(RedisEffect::PerSecond) => vec!["store.redis.per_second.url", "store.kind"],
        Effect::Redis(_) | Effect::NamesRedis => vec!["store.kind"],
        Effect::ByValue(effects) => effects.iter().flat_map(|&(_, of)| further(of)).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn the_chart_knows_what_variables_set() {
    let mut wanted = HEAD.to_owned();
    for variable in VARIABLES {
        let settings = settings_of(variable);
        if !settings.is_empty() {
            let _ = writeln!(wanted, "{}: [{}]", variable.name, settings.join(", "));
        }
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(FILE, wanted).unwrap();
    } else {
        let written = std::fs::read_to_string(FILE).unwrap();
        assert!(written == wanted, "run UPDATE_DOCS=1 cargo test --lib docs");
    }
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

/// Returns the settings, and groups of settings, that the chart refuses whatever its values are.
fn refused() -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/helm/weir/templates/_refused.tpl");
    let template = std::fs::read_to_string(path).unwrap();
    let (_, list) = template.split_once("{{- define \"weir.refusedSettings\" -}}\n").unwrap();
    let (list, _) = list.split_once("{{- end -}}").unwrap();
    list.lines().map(|line| line.split_once(": ").unwrap().0.to_owned()).collect()
}

/// Whether a setting is the named one, or in the named group.
fn is_in(setting: &str, name: &str) -> bool {
    setting.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[test]
fn the_chart_refuses_secret_settings() {
    let refused = refused();
    for setting in SETTINGS.iter().filter(|setting| setting.is_secret) {
        let is_refused = refused.iter().any(|name| is_in(setting.name, name));
        assert!(is_refused, "{} would be readable in a ConfigMap", setting.name);
    }
}

#[test]
fn the_chart_refuses_settings_that_exist() {
    for name in refused() {
        let exists = SETTINGS.iter().any(|setting| is_in(setting.name, &name));
        assert!(exists, "{name} is no setting and no group");
    }
}
