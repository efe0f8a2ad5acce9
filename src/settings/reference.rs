//! The reference service's environment variables, in terms of weir's settings.

pub mod go;
mod read;
mod redis;
pub mod variables;

use super::table::{self, Setting};
pub use read::{Overrides, read};
pub use redis::About;

/// Where the reference looks for rules when nothing says otherwise.
pub const DEFAULT_RUNTIME_ROOT: &str = "/srv/runtime_data/current";

/// Where the reference listens for debug when only one half of the address is said.
pub const DEFAULT_DEBUG_ADDRESS: &str = "0.0.0.0:6070";

/// A variable the reference reads.
#[derive(Debug)]
pub struct Variable {
    pub name: &'static str,
    pub kind: go::Kind,
    /// The reference's default.
    pub default: &'static str,
    pub effect: Effect,
}

/// What becomes of a variable that is set.
#[derive(Clone, Copy, Debug)]
pub enum Effect {
    /// It works as in the reference.
    Set(Meaning),
    /// It is the same as this setting, unless it is empty.
    SetText(&'static str),
    /// It changes nothing, for this reason.
    Ignored(&'static str),
    /// It has no effect, as in the reference, for this reason; a warning says so.
    Warned(&'static str),
    /// It is checked, and said not to be effective yet; this is what it is for.
    Later(&'static str),
    /// Doing without what it asks for would be dangerous; what to do instead.
    Refused(&'static str),
    /// It asks for counting in Redis.
    NamesRedis,
    /// It asks for counting in Redis, and says how.
    Redis(About),
    /// It depends on the value.
    ByValue(&'static [(&'static str, Effect)]),
}

/// What a variable of the reference stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The same as this setting.
    Same(&'static str),
    /// The host, or the port, of this address.
    Host(&'static str),
    Port(&'static str),
    /// A log level by logrus' names.
    LogLevel,
    /// JSON, or whatever else for text.
    LogFormat,
    /// Where rules come from.
    Source,
    /// A number of bytes, in any of Go's bases.
    Bytes(&'static str),
}

impl Meaning {
    /// The setting it changes.
    pub fn setting(self) -> &'static Setting {
        let name = match self {
            Meaning::Same(name)
            | Meaning::Host(name)
            | Meaning::Port(name)
            | Meaning::Bytes(name) => name,
            Meaning::Source => "rules.source",
            Meaning::LogLevel => "log.level",
            Meaning::LogFormat => "log.format",
        };
        table::find(name).expect("a test looks every variable's setting up")
    }

    /// The setting's text, from the variable's and from what the setting would be without it.
    pub fn translate(self, text: &str, without: &str) -> String {
        match self {
            Meaning::Same(_) => text.to_owned(),
            Meaning::Host(_) => {
                let port = without.rsplit_once(':').map_or("", |(_, port)| port);
                // An empty host is all addresses, as in the reference.
                match text.contains(':') && !text.starts_with('[') {
                    true => format!("[{text}]:{port}"),
                    false => format!("{text}:{port}"),
                }
            }
            Meaning::Port(_) => {
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
            Meaning::Bytes(_) => {
                go::read_int(text).map_or_else(|| text.to_owned(), |bytes| bytes.to_string())
            }
            Meaning::LogLevel => match text.to_ascii_lowercase().as_str() {
                "panic" | "fatal" => "error".to_owned(),
                "warning" => "warn".to_owned(),
                _ => text.to_owned(),
            },
            Meaning::LogFormat => {
                if text.eq_ignore_ascii_case("json") { "json" } else { "text" }.to_owned()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_listed_once_and_mean_settings_that_there_are() {
        let mut names = std::collections::HashSet::new();
        for variable in variables::VARIABLES {
            assert!(names.insert(variable.name), "{} is listed twice", variable.name);
            if let Effect::Set(meaning) = variable.effect {
                meaning.setting();
            }
            let default = variable.default;
            assert!(default.is_empty() || variable.kind.takes(default), "{}", variable.name);
        }
    }

    #[test]
    fn hosts_and_ports_change_their_half_of_an_address() {
        let port = Meaning::Port("grpc.address");
        assert_eq!(port.translate("9000", "127.0.0.1:8081"), "127.0.0.1:9000");
        assert_eq!(port.translate("0x10", "127.0.0.1:8081"), "127.0.0.1:16");
        let host = Meaning::Host("grpc.address");
        assert_eq!(host.translate("::", "0.0.0.0:8081"), "[::]:8081");
        assert_eq!(host.translate("", "127.0.0.1:8081"), ":8081");
    }
}
