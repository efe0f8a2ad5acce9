//! Reads the reference's variables from the environment.

use std::collections::BTreeMap;

use super::variables::{FAMILIES, VARIABLES};
use super::{Effect, Variable, go};
use crate::settings::{SettingError, secret};

/// What the reference's variables say.
#[derive(Debug, Default)]
pub struct Overrides {
    /// Settings by name, each with the variables that say it and its text.
    pub set: Vec<(&'static str, String, String)>,
    pub errors: Vec<SettingError>,
    /// What to tell those who start the service.
    pub warnings: Vec<String>,
    /// The variables that name Redis.
    pub naming_redis: Vec<&'static str>,
    pub(super) later: Vec<String>,
    /// Variables that are set and have no effect, by the reason.
    without_effect: BTreeMap<&'static str, Vec<&'static str>>,
    pub(super) per_second: bool,
}

/// Reads the variables; `below` gives a setting's text without them.
pub fn read(env: &[(String, String)], below: impl Fn(&str) -> String) -> Overrides {
    let mut overrides = Overrides::default();
    let mut so_far = BTreeMap::new();
    for variable in VARIABLES {
        let Some((_, text)) = env.iter().find(|(name, _)| name == variable.name) else { continue };
        if from_kubernetes(variable.name, text) {
            overrides.warnings.push(format!(
                "{}={text} is passed over: Kubernetes sets it so for a Service",
                variable.name
            ));
        } else if variable.kind.takes(text) {
            overrides.take(variable, variable.effect, text, &below, &mut so_far);
        } else {
            overrides.errors.push(SettingError {
                origin: variable.name.to_owned(),
                message: format!("it is {:?}", secret::shown(variable.name, text)),
                help: format!("write {}", variable.kind.wanted()),
            });
        }
    }
    for (name, text) in env {
        let of_a_family = FAMILIES.iter().any(|(prefix, _)| name.starts_with(prefix));
        if of_a_family && !text.is_empty() {
            overrides.later.push(name.clone());
        }
    }
    overrides.refuse_several_sinks(env);
    overrides.name_redis(&below);
    for (reason, names) in &overrides.without_effect {
        let verb = if names.len() == 1 { "has" } else { "have" };
        overrides.warnings.push(format!("{} {verb} no effect: {reason}", names.join(", ")));
    }
    if !overrides.later.is_empty() {
        let (names, verb) =
            (overrides.later.join(", "), if overrides.later.len() == 1 { "is" } else { "are" });
        overrides.warnings.push(format!("{names} {verb} set but not effective yet"));
    }
    overrides
}

impl Overrides {
    fn take(
        &mut self,
        variable: &'static Variable,
        effect: Effect,
        text: &str,
        below: &impl Fn(&str) -> String,
        so_far: &mut BTreeMap<&'static str, String>,
    ) {
        // Set to nothing, or to off, it asks for nothing.
        let asks = !text.is_empty() && (variable.kind != go::Kind::Bool || is_on(text));
        match effect {
            Effect::Set(meaning) => {
                let name = meaning.setting().name;
                let without = so_far.get(name).cloned().unwrap_or_else(|| below(name));
                let text = meaning.translate(text, &without);
                so_far.insert(name, text.clone());
                self.set.push((name, variable.name.to_owned(), text));
            }
            Effect::SetText(name) if asks => {
                self.set.push((name, variable.name.to_owned(), text.to_owned()));
            }
            Effect::Later(_) if asks => self.later.push(variable.name.to_owned()),
            Effect::Warned(reason) if asks => {
                self.without_effect.entry(reason).or_default().push(variable.name);
            }
            Effect::Refused(help) if asks => self.errors.push(SettingError {
                origin: variable.name.to_owned(),
                message: format!("it is {:?}", secret::shown(variable.name, text)),
                help: help.to_owned(),
            }),
            Effect::NamesRedis if !text.is_empty() => self.naming_redis.push(variable.name),
            Effect::Redis(about) if !text.is_empty() => {
                self.naming_redis.push(variable.name);
                self.take_redis(variable, about, text, below);
            }
            Effect::ByValue(effects) => {
                if let Some(&(_, effect)) = effects.iter().find(|(value, _)| *value == text) {
                    self.take(variable, effect, text, below, so_far);
                }
            }
            // Keys of the reference begin with nothing unless told; an empty text tells nothing.
            Effect::SetText(_) | Effect::Ignored(_) | Effect::Warned(_) | Effect::Later(_) => {}
            Effect::Refused(_) | Effect::NamesRedis | Effect::Redis(_) => {}
        }
    }

    /// The reference takes one way to send metrics, unless it is to send none.
    fn refuse_several_sinks(&mut self, env: &[(String, String)]) {
        let on = |name: &str| env.iter().any(|(n, text)| n == name && is_on(text));
        let sinks = ["USE_STATSD", "USE_DOG_STATSD", "USE_PROMETHEUS"];
        let sinks: Vec<_> = sinks.into_iter().filter(|name| on(name)).collect();
        if sinks.len() > 1 && !on("DISABLE_STATS") {
            self.errors.push(SettingError {
                origin: sinks.join(", "),
                message: "more than one is true".to_owned(),
                help: "leave one, and set the others to false".to_owned(),
            });
        }
    }
}

fn is_on(text: &str) -> bool {
    go::read_bool(text) == Some(true)
}

/// Whether a variable is one that Kubernetes sets for a Service: `GRPC_PORT=tcp://10.0.0.1:8081`
/// for one named grpc.
fn from_kubernetes(name: &str, text: &str) -> bool {
    name.ends_with("PORT")
        && ["tcp://", "udp://", "sctp://"].iter().any(|protocol| text.starts_with(protocol))
}
