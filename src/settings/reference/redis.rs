//! The reference's variables about Redis, in terms of settings.

use super::read::Overrides;
use super::{Variable, go};
use crate::duration::read_duration;
use crate::settings::SettingError;

/// Where the reference looks for Redis when nothing says otherwise.
const DEFAULT_URL: &str = "/var/run/nutcracker/ratelimit.sock";
const DEFAULT_PER_SECOND_URL: &str = "/var/run/nutcracker/ratelimitpersecond.sock";

/// What a variable about Redis stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// The same as this setting.
    Same(&'static str),
    /// The URL of this group; with sentinels the master's name comes first.
    Url(&'static str),
    /// `user:password` or a password, for the login of this group.
    Login(&'static str),
    /// Switches the store for limits of one second on.
    PerSecond,
    /// It changes nothing, for this reason.
    Ignored(&'static str),
    /// It is checked, and said not to be effective yet.
    Later(&'static str),
}

impl Overrides {
    /// Takes a variable that is set to something.
    pub(super) fn take_redis(
        &mut self,
        variable: &Variable,
        about: About,
        text: &str,
        below: &impl Fn(&str) -> String,
    ) {
        // The reference reads the others, and uses them only where this is on.
        if variable.name.starts_with("REDIS_PERSECOND_") && !self.per_second {
            return;
        }
        let origin = || variable.name.to_owned();
        let mut set =
            |name: &'static str, text: &str| self.set.push((name, origin(), text.to_owned()));
        match about {
            // No time at all means no end of it there.
            About::Same(_)
                if variable.kind == go::Kind::Duration
                    && read_duration(text).is_some_and(|time| time.is_zero()) => {}
            About::Same(name) => set(name, text),
            About::Login(group) => {
                let [username, password] = match group {
                    "store.redis" => ["store.redis.username", "store.redis.password"],
                    "store.redis.sentinel" => {
                        ["store.redis.sentinel.username", "store.redis.sentinel.password"]
                    }
                    "store.redis.per_second" => {
                        ["store.redis.per_second.username", "store.redis.per_second.password"]
                    }
                    _ => [
                        "store.redis.per_second.sentinel.username",
                        "store.redis.per_second.sentinel.password",
                    ],
                };
                match text.split_once(':') {
                    Some((user, pass)) => {
                        set(username, user);
                        set(password, pass);
                    }
                    None => set(password, text),
                }
            }
            About::Url(group) => {
                let [url, topology, master] = match group {
                    "store.redis" => [
                        "store.redis.url",
                        "store.redis.topology",
                        "store.redis.sentinel.master_name",
                    ],
                    _ => [
                        "store.redis.per_second.url",
                        "store.redis.per_second.topology",
                        "store.redis.per_second.sentinel.master_name",
                    ],
                };
                let said = self.set.iter().rfind(|(name, ..)| *name == topology);
                let topology = said.map_or_else(|| below(topology), |(_, _, text)| text.clone());
                if !topology.eq_ignore_ascii_case("sentinel") {
                    self.set.push((url, origin(), text.to_owned()));
                } else if let Some((name, sentinels)) = text.split_once(',') {
                    self.set.push((master, origin(), name.trim().to_owned()));
                    self.set.push((url, origin(), sentinels.to_owned()));
                } else {
                    self.errors.push(SettingError {
                        origin: origin(),
                        message: "it names no sentinels".to_owned(),
                        help: "write the master's name and then the sentinels: \
                               mymaster,host:26379,host2:26379"
                            .to_owned(),
                    });
                }
            }
            About::PerSecond => self.per_second = go::read_bool(text) == Some(true),
            About::Later(_) if go::read_bool(text) == Some(true) => self.later.push(origin()),
            About::Ignored(_) | About::Later(_) => {}
        }
    }

    /// Makes Redis the store where variables name it, and looks where the reference would.
    pub(super) fn name_redis(&mut self, below: impl Fn(&str) -> String) {
        if self.naming_redis.is_empty() {
            return;
        }
        let origin = self.naming_redis.join(", ");
        self.set.push(("store.kind", origin.clone(), "redis".to_owned()));
        let mut look = |name: &'static str, origin: String, default: &str| {
            let is_said = self.set.iter().any(|(set, ..)| *set == name);
            if !is_said && below(name).is_empty() {
                self.set.push((name, origin, default.to_owned()));
            }
        };
        look("store.redis.url", origin, DEFAULT_URL);
        if self.per_second {
            let origin = "REDIS_PERSECOND".to_owned();
            look("store.redis.per_second.url", origin, DEFAULT_PER_SECOND_URL);
        }
    }
}
