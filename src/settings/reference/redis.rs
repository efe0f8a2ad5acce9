//! The reference's variables about Redis, in terms of settings.

use super::read::Overrides;
use super::{RedisEffect, Variable, go};
use crate::settings::setting::SettingError;
use weir_common::duration::read_duration;

/// The reference's addresses of Redis by default.
const DEFAULT_URL: &str = "/var/run/nutcracker/ratelimit.sock";
const DEFAULT_PER_SECOND_URL: &str = "/var/run/nutcracker/ratelimitpersecond.sock";

impl Overrides {
    /// Applies a variable that is not empty.
    pub(super) fn apply_redis(
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
    pub(super) fn choose_redis(&mut self, below: impl Fn(&str) -> String) {
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
