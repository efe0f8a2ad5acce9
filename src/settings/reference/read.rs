//! Reads the reference's variables from the environment.

use std::collections::BTreeMap;

use super::variables::{FAMILIES, VARIABLES};
use super::{Effect, OTHERS, Variable, go};
use crate::settings::{SettingError, Settings, secret, table};

/// The settings that the reference's variables override.
#[derive(Debug, Default)]
pub struct Overrides {
    /// Settings by name, each with the variables that set it and its text.
    pub set: Vec<(&'static str, String, String)>,
    pub errors: Vec<SettingError>,
    /// Variables without effect, for the log.
    pub warnings: Vec<String>,
    /// The variables that ask for Redis.
    pub redis_variables: Vec<&'static str>,
    pub(super) not_yet: Vec<String>,
    /// Variables without effect, by the reason.
    unused: BTreeMap<&'static str, Vec<String>>,
    pub(super) per_second: bool,
}

/// Reads the variables; `below` returns a setting's text without them.
pub fn read(env: &[(String, String)], below: impl Fn(&str) -> String) -> Overrides {
    let mut overrides = Overrides::default();
    let mut so_far = BTreeMap::new();
    let disables_stats = env.iter().any(|(name, text)| name == "DISABLE_STATS" && is_on(text));
    for variable in VARIABLES {
        let Some((_, text)) = env.iter().find(|(name, _)| name == variable.name) else { continue };
        if disables_stats && variable.name == "USE_PROMETHEUS" && variable.kind.accepts(text) {
            continue;
        }
        if is_from_kubernetes(variable.name, text) {
            overrides.warnings.push(format!(
                "{}={text} is ignored: Kubernetes sets it for a Service",
                variable.name
            ));
        } else if variable.kind.accepts(text) {
            overrides.apply(variable, variable.effect, text, &below, &mut so_far);
        } else {
            overrides.errors.push(SettingError {
                origin: variable.name.to_owned(),
                message: format!("it is {:?}", secret::shown_variable(variable.name, text)),
                help: format!("write {}", variable.kind.expected()),
            });
        }
    }
    for (name, text) in env {
        let is_known = VARIABLES.iter().any(|variable| variable.name == name);
        if text.is_empty() || is_known || is_of_service(name) {
            continue;
        }
        let family = FAMILIES.iter().find(|family| name.starts_with(family.name));
        match family.map(|family| family.effect) {
            Some(Effect::NotYet(_)) => overrides.not_yet.push(name.clone()),
            Some(Effect::Unused(reason)) => overrides.note_unused(reason, name),
            _ => {}
        }
    }
    if !disables_stats {
        overrides.choose_names(env);
    }
    overrides.choose_redis(&below);
    for (reason, names) in &overrides.unused {
        overrides.warnings.push(no_effect(names, reason));
    }
    if !overrides.not_yet.is_empty() {
        let (names, verb) =
            (overrides.not_yet.join(", "), if overrides.not_yet.len() == 1 { "is" } else { "are" });
        overrides.warnings.push(format!("{names} {verb} set but not effective yet"));
    }
    overrides
}

impl Overrides {
    fn apply(
        &mut self,
        variable: &'static Variable,
        effect: Effect,
        text: &str,
        below: &impl Fn(&str) -> String,
        so_far: &mut BTreeMap<&'static str, String>,
    ) {
        let setting = table::set_by(variable.name).next().map(|setting| setting.name);
        // Empty or off is the same as unset.
        let asks = !text.is_empty() && (variable.kind != go::VariableKind::Bool || is_on(text));
        match effect {
            Effect::Set(meaning) => {
                let Some(name) = setting else { return };
                let without = so_far.get(name).cloned().unwrap_or_else(|| below(name));
                let text = meaning.translate(text, &without);
                so_far.insert(name, text.clone());
                self.set.push((name, variable.name.to_owned(), text));
            }
            Effect::SetText if asks => {
                self.set
                    .extend(setting.map(|name| (name, variable.name.to_owned(), text.to_owned())));
            }
            Effect::NotYet(_) if asks => self.not_yet.push(variable.name.to_owned()),
            Effect::Unused(reason) if asks => self.note_unused(reason, variable.name),
            Effect::Rejected(help) if asks => self.errors.push(SettingError {
                origin: variable.name.to_owned(),
                message: format!("it is {:?}", secret::shown_variable(variable.name, text)),
                help: help.to_owned(),
            }),
            Effect::NamesRedis if !text.is_empty() => self.redis_variables.push(variable.name),
            Effect::Redis(about) if !text.is_empty() => {
                self.redis_variables.push(variable.name);
                self.apply_redis(variable, about, text, below);
            }
            Effect::ByValue(effects) => {
                let listed = effects.iter().find(|(value, _)| value.eq_ignore_ascii_case(text));
                let others = || effects.iter().find(|(value, _)| *value == OTHERS && asks);
                if let Some(&(_, effect)) = listed.or_else(others) {
                    self.apply(variable, effect, text, below, so_far);
                }
            }
            // The reference's default is empty, so that empty text is the same as unset.
            Effect::SetText
            | Effect::Defines(_)
            | Effect::Ignored(_)
            | Effect::Unused(_)
            | Effect::UnusedIf(..)
            | Effect::NotYet(_) => {}
            Effect::Rejected(_) | Effect::NamesRedis | Effect::Redis(_) => {}
        }
    }

    fn note_unused(&mut self, reason: &'static str, name: &str) {
        self.unused.entry(reason).or_default().push(name.to_owned());
    }

    /// Gives metrics the reference's names if its own listener for Prometheus is asked for.
    fn choose_names(&mut self, env: &[(String, String)]) {
        const VARIABLE: &str = "USE_PROMETHEUS";
        if env.iter().any(|(name, text)| name == VARIABLE && is_on(text)) {
            let name = "metrics.prometheus.reference_names";
            self.set.push((name, VARIABLE.to_owned(), "true".to_owned()));
        }
    }
}

/// Returns a warning for each variable without effect that asks for something else than the settings.
pub fn contradicted(env: &[(String, String)], settings: &Settings) -> Vec<String> {
    let of = |variable: &Variable| match variable.effect {
        Effect::UnusedIf(asks, reason) => env
            .iter()
            .any(|(name, text)| {
                name == variable.name && !text.is_empty() && asks(text.trim(), settings)
            })
            .then(|| no_effect(&[variable.name.to_owned()], reason)),
        _ => None,
    };
    VARIABLES.iter().filter_map(of).collect()
}

fn no_effect(names: &[String], reason: &str) -> String {
    let verb = if names.len() == 1 { "has" } else { "have" };
    format!("{} {verb} no effect: {reason}", names.join(", "))
}

fn is_on(text: &str) -> bool {
    go::read_bool(text) == Some(true)
}

/// Whether Kubernetes and Docker set a variable of this name for a Service: `REDIS_SERVICE_HOST`, `REDIS_PORT_6379_TCP_ADDR`.
fn is_of_service(name: &str) -> bool {
    let after_port = name.split_once("_PORT").map(|(_, rest)| rest);
    name.contains("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || after_port.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

/// Whether Kubernetes sets the variable for a Service: `GRPC_PORT=tcp://10.0.0.1:8081` for one named
/// grpc.
fn is_from_kubernetes(name: &str, text: &str) -> bool {
    name.ends_with("PORT")
        && ["tcp://", "udp://", "sctp://"].iter().any(|protocol| text.starts_with(protocol))
}
