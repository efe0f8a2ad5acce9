//! Reads the environment variables of envoyproxy/ratelimit (the reference): returns the settings that they override.

use std::collections::BTreeMap;

use super::variables::VARIABLES;
use super::{RedisEffect, Variable, VariableEffect, go, no_effect};
use crate::settings::secret;
use crate::settings::setting::SettingError;
use weir_common::duration::read_duration;

const USE_PROMETHEUS: &str = "USE_PROMETHEUS";

/// The default addresses of Redis in envoyproxy/ratelimit.
const DEFAULT_URL: &str = "/var/run/nutcracker/ratelimit.sock";
const DEFAULT_PER_SECOND_URL: &str = "/var/run/nutcracker/ratelimitpersecond.sock";

/// The settings that the reference's variables override.
#[derive(Debug, Default)]
pub struct Overrides {
    /// Settings by name, each with the variables that set it and its text.
    pub set: Vec<(&'static str, String, String)>,
    pub errors: Vec<SettingError>,
    /// Variables that Kubernetes sets, for the log.
    pub warnings: Vec<String>,
    /// The variables that ask for Redis.
    pub redis_variables: Vec<&'static str>,
    per_second: bool,
}

/// Reads the variables; `below` returns a setting's text in the layers below, without them.
pub fn read(env: &[(String, String)], below: impl Fn(&str) -> String) -> Overrides {
    let mut overrides = Overrides::default();
    let mut so_far = BTreeMap::new();
    let is_on =
        |name: &str| env.iter().any(|(set, text)| set == name && go::read_bool(text) == Some(true));
    let disables_stats = is_on("DISABLE_STATS");
    for variable in VARIABLES {
        let Some((_, text)) = env.iter().find(|(name, _)| name == variable.name) else { continue };
        if disables_stats && variable.name == USE_PROMETHEUS && variable.kind.accepts(text) {
            continue;
        }
        if is_from_kubernetes(variable.name, text) {
            overrides.warnings.push(format!(
                "{}={text} is ignored: Kubernetes sets it for a Service",
                variable.name
            ));
        } else if variable.kind.accepts(text) {
            overrides.apply(variable, text, &below, &mut so_far);
        } else {
            overrides.errors.push(SettingError {
                origin: variable.name.to_owned(),
                message: format!("it is {:?}", secret::shown_variable(variable.name, text)),
                help: format!("write {}", variable.kind.expected()),
            });
        }
    }
    overrides.redis_variables.extend(no_effect::naming_redis(env));
    if !disables_stats && is_on(USE_PROMETHEUS) {
        // The reference's own listener for Prometheus has the reference's names.
        let name = "metrics.prometheus.reference_names";
        overrides.set.push((name, USE_PROMETHEUS.to_owned(), "true".to_owned()));
    }
    overrides.choose_redis(&below);
    overrides
}

impl Overrides {
    fn apply(
        &mut self,
        variable: &'static Variable,
        text: &str,
        below: &impl Fn(&str) -> String,
        so_far: &mut BTreeMap<&'static str, String>,
    ) {
        match variable.effect {
            VariableEffect::Set(name, meaning) => {
                let without = so_far.get(name).cloned().unwrap_or_else(|| below(name));
                let text = meaning.translate(text, &without);
                so_far.insert(name, text.clone());
                self.set(name, variable, &text);
            }
            // The reference's default is empty, so that empty text is the same as unset.
            _ if text.is_empty() => {}
            VariableEffect::SetText(name) => self.set(name, variable, text),
            VariableEffect::Defines(_) => {}
            VariableEffect::Backend if text == "redis" => self.redis_variables.push(variable.name),
            VariableEffect::Backend => self.errors.push(SettingError::new(
                variable.name,
                format!("it is {text:?}"),
                "weir does not support Memcached: remove it to count in memory",
            )),
            VariableEffect::Redis(about) => {
                self.redis_variables.push(variable.name);
                self.apply_redis(variable, about, text, below);
            }
        }
    }

    fn set(&mut self, name: &'static str, variable: &Variable, text: &str) {
        self.set.push((name, variable.name.to_owned(), text.to_owned()));
    }

    /// Applies a variable that is not empty.
    fn apply_redis(
        &mut self,
        variable: &Variable,
        effect: RedisEffect,
        text: &str,
        below: &impl Fn(&str) -> String,
    ) {
        // The reference reads the others, and uses them only if this is on.
        if variable.name.starts_with("REDIS_PERSECOND_") && !self.per_second {
            return;
        }
        let origin = || variable.name.to_owned();
        match effect {
            // No timeout there means that none applies.
            RedisEffect::Same(_)
                if variable.kind == go::VariableKind::Duration
                    && read_duration(text).is_some_and(|time| time.is_zero()) => {}
            RedisEffect::Same(name) => self.set(name, variable, text),
            RedisEffect::Login(username, password) => match text.split_once(':') {
                Some((user, pass)) => {
                    self.set(username, variable, user);
                    self.set(password, variable, pass);
                }
                None => self.set(password, variable, text),
            },
            RedisEffect::Url(url, _) if !self.has_sentinels(url, below) => {
                self.set(url, variable, text);
            }
            RedisEffect::Url(url, master) => match text.split_once(',') {
                Some((name, sentinels)) => {
                    self.set(master, variable, name.trim());
                    self.set(url, variable, sentinels);
                }
                None => {
                    let help = "write the master's name and then the sentinels: \
                                mymaster,host:26379,host2:26379";
                    self.errors.push(SettingError::new(origin(), "it names no sentinels", help));
                }
            },
            RedisEffect::PerSecond => self.per_second = go::read_bool(text) == Some(true),
        }
    }

    /// Whether the servers of the group that `url` belongs to are sentinels.
    fn has_sentinels(&self, url: &str, below: &impl Fn(&str) -> String) -> bool {
        let group = url.strip_suffix(".url").unwrap_or_default();
        let name = format!("{group}.topology");
        let set = self.set.iter().rfind(|(set, ..)| *set == name);
        let topology = set.map_or_else(|| below(&name), |(_, _, text)| text.clone());
        topology.eq_ignore_ascii_case("sentinel")
    }

    /// Makes Redis the store if variables ask for it, at the reference's address by default.
    fn choose_redis(&mut self, below: impl Fn(&str) -> String) {
        if self.redis_variables.is_empty() {
            return;
        }
        let origin = self.redis_variables.join(", ");
        self.set.push(("store.kind", origin.clone(), "redis".to_owned()));
        let mut set_default = |name: &'static str, origin: String, default: &str| {
            let is_set = self.set.iter().any(|(set, ..)| *set == name);
            if !is_set && below(name).is_empty() {
                self.set.push((name, origin, default.to_owned()));
            }
        };
        set_default("store.redis.url", origin, DEFAULT_URL);
        if self.per_second {
            let origin = "REDIS_PERSECOND".to_owned();
            set_default("store.redis.per_second.url", origin, DEFAULT_PER_SECOND_URL);
        }
    }
}

/// Whether Kubernetes sets the variable for a Service: `GRPC_PORT=tcp://10.0.0.1:8081` for one named grpc.
fn is_from_kubernetes(name: &str, text: &str) -> bool {
    name.ends_with("PORT")
        && ["tcp://", "udp://", "sctp://"].iter().any(|protocol| text.starts_with(protocol))
}
