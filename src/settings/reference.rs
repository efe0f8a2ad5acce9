//! The environment variables of envoyproxy/ratelimit (the reference), which weir accepts: what each does to settings.

pub mod go;
pub mod no_effect;
pub(super) mod read;
pub mod variables;

pub const DEFAULT_RUNTIME_ROOT: &str = "/srv/runtime_data/current";

/// The reference's default debug address. If only host or port is set, it gives the other half.
pub const DEFAULT_DEBUG_ADDRESS: &str = ":6070";

/// The host by which the reference listens on all addresses, over IPv6 and IPv4.
const ALL_ADDRESSES: &str = "0.0.0.0";

/// A variable of the reference that has an effect.
#[derive(Debug)]
pub struct Variable {
    pub name: &'static str,
    pub kind: go::VariableKind,
    pub default: &'static str,
    pub effect: VariableEffect,
}

#[derive(Clone, Copy, Debug)]
pub enum VariableEffect {
    /// Sets a setting, as in the reference.
    Set(&'static str, Meaning),
    /// Sets a setting to the text of the variable, unless that is empty.
    SetText(&'static str),
    /// Has this effect, for which there is no setting.
    Defines(&'static str),
    /// Makes Redis the store, or stops the start: it would be dangerous to ignore that Memcached is asked for.
    Backend,
    /// Makes Redis the store, and more.
    Redis(RedisEffect),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedisEffect {
    Same(&'static str),
    /// Sets the URL; with sentinels, the name of the master comes before it.
    Url(&'static str, &'static str),
    /// Sets user name and password: `user:password`, or a password.
    Login(&'static str, &'static str),
    /// Enables the store for limits per second.
    PerSecond,
}

/// How the text of a variable becomes that of its setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    Same,
    /// The host, or the port, of an address.
    Host,
    Port,
    /// The host of an address to listen on.
    ListenHost,
    /// Log levels, by the names of logrus.
    LogLevel,
    /// `json` is that of the reference; anything else is text.
    LogFormat,
    Source,
    /// A number of bytes, in any base of Go's.
    Bytes,
    /// Whether a number is greater than 0.
    IsPositive,
    /// A number that is moved to the nearest from 0 to 1.
    Clamped,
    /// Whether to listen: the default address if no other is set.
    ListenOn(&'static str),
    /// An address, if it is listened on at all.
    AddressIfSet,
}

impl Meaning {
    /// Returns the setting's text, from the variable's and from the setting's text without it.
    pub fn translate(self, text: &str, without: &str) -> String {
        match self {
            Meaning::Same => text.to_owned(),
            Meaning::Host => {
                let port = without.rsplit_once(':').map_or("", |(_, port)| port);
                // An empty host is all addresses, as in the reference.
                match text.contains(':') && !text.starts_with('[') {
                    true => format!("[{text}]:{port}"),
                    false => format!("{text}:{port}"),
                }
            }
            // In weir's settings this host is all addresses of IPv4 alone.
            Meaning::ListenHost if text == ALL_ADDRESSES => Meaning::Host.translate("", without),
            Meaning::ListenHost => Meaning::Host.translate(text, without),
            Meaning::Port => {
                let host = without.rsplit_once(':').map_or("", |(host, _)| host);
                // It may be written in another base than ten.
                match go::read_int(text) {
                    Some(port) => format!("{host}:{port}"),
                    None => format!("{host}:{text}"),
                }
            }
            Meaning::Source => match text {
                "FILE" => "files".to_owned(),
                _ => "xds".to_owned(),
            },
            Meaning::Bytes => {
                go::read_int(text).map_or_else(|| text.to_owned(), |bytes| bytes.to_string())
            }
            Meaning::Clamped => text
                .parse()
                .map_or_else(|_| text.to_owned(), |n: f64| n.clamp(0.0, 1.0).to_string()),
            Meaning::LogLevel => text.split(',').map(log_level).collect::<Vec<_>>().join(","),
            Meaning::IsPositive => go::read_int(text).is_some_and(|n| n > 0).to_string(),
            Meaning::ListenOn(default) => {
                let listens = without.is_empty() && go::read_bool(text) == Some(true);
                if listens { default } else { without }.to_owned()
            }
            Meaning::AddressIfSet if without.is_empty() => String::new(),
            Meaning::AddressIfSet => match text.strip_prefix(ALL_ADDRESSES) {
                Some(port) if port.starts_with(':') => port.to_owned(),
                _ => text.to_owned(),
            },
            Meaning::LogFormat => {
                if text.eq_ignore_ascii_case("json") { "reference-json" } else { "text" }.to_owned()
            }
        }
    }
}

/// Translates `level` or `library=level`.
fn log_level(text: &str) -> String {
    let (library, level) = text.rsplit_once('=').map_or(("", text), |(name, level)| (name, level));
    let level = match level.trim().to_ascii_lowercase().as_str() {
        "panic" | "fatal" => "error".to_owned(),
        "warning" => "warn".to_owned(),
        level => level.to_owned(),
    };
    if library.is_empty() { level } else { format!("{library}={level}") }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::no_effect::NO_EFFECT;
    use super::variables::VARIABLES;
    use super::*;
    use crate::settings::table::find;

    #[test]
    fn variables_are_listed_once_with_good_defaults() {
        let mut names = HashSet::new();
        for variable in VARIABLES {
            assert!(names.insert(variable.name), "{} is listed twice", variable.name);
            let default = variable.default;
            assert!(default.is_empty() || variable.kind.accepts(default), "{}", variable.name);
        }
        let mut names = HashSet::new();
        for name in NO_EFFECT.iter().flat_map(|entry| entry.names) {
            assert!(names.insert(name), "{name} is listed twice");
        }
    }

    #[test]
    fn variables_set_settings_that_exist() {
        for variable in VARIABLES {
            let settings = match variable.effect {
                VariableEffect::Set(setting, _) | VariableEffect::SetText(setting) => vec![setting],
                VariableEffect::Redis(RedisEffect::Same(setting)) => vec![setting],
                VariableEffect::Redis(
                    RedisEffect::Url(one, other) | RedisEffect::Login(one, other),
                ) => {
                    vec![one, other]
                }
                VariableEffect::Redis(RedisEffect::PerSecond)
                | VariableEffect::Defines(_)
                | VariableEffect::Backend => {
                    continue;
                }
            };
            assert!(settings.iter().all(|name| find(name).is_some()), "{settings:?}");
        }
    }

    #[test]
    fn hosts_and_ports_change_their_half_of_an_address() {
        assert_eq!(Meaning::Port.translate("9000", "127.0.0.1:8081"), "127.0.0.1:9000");
        assert_eq!(Meaning::Port.translate("0x10", "127.0.0.1:8081"), "127.0.0.1:16");
        assert_eq!(Meaning::Host.translate("::", "127.0.0.1:8081"), "[::]:8081");
        assert_eq!(Meaning::Host.translate("0.0.0.0", "localhost:8125"), "0.0.0.0:8125");
        assert_eq!(Meaning::Host.translate("", "127.0.0.1:8081"), ":8081");
        for (host, address) in [
            ("", ":8081"),
            ("0.0.0.0", ":8081"),
            ("::", "[::]:8081"),
            ("10.0.0.1", "10.0.0.1:8081"),
        ] {
            assert_eq!(Meaning::ListenHost.translate(host, "127.0.0.1:8081"), address, "{host}");
        }
        for (text, address) in [("0.0.0.0:9091", ":9091"), ("10.0.0.1:9091", "10.0.0.1:9091")] {
            assert_eq!(Meaning::AddressIfSet.translate(text, ":9090"), address, "{text}");
            assert_eq!(Meaning::AddressIfSet.translate(text, ""), "", "{text}");
        }
    }

    #[test]
    fn log_levels_have_the_names_of_logrus() {
        for (theirs, ours) in [
            ("WARN", "warn"),
            ("Warning", "warn"),
            ("panic", "error"),
            ("info,h2=warning", "info,h2=warn"),
            ("debug, hyper = fatal", "debug, hyper =error"),
        ] {
            assert_eq!(Meaning::LogLevel.translate(theirs, ""), ours);
            ours.parse::<weir_telemetry::log::LogLevels>().unwrap();
        }
        assert_eq!(Meaning::LogFormat.translate("JSON", "text"), "reference-json");
        assert_eq!(Meaning::LogFormat.translate("logfmt", "text"), "text");
    }
}
