//! The reference service's environment variables, in terms of weir's settings.

use super::table::{self, Setting};

/// What a variable of the reference stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The same as this setting, written the same way.
    Same(&'static str),
    /// The host, or the port, of this address.
    Host(&'static str),
    Port(&'static str),
    /// A log level by logrus' names.
    LogLevel,
}

/// The variables that work, and what each means.
#[rustfmt::skip]
pub const VARIABLES: &[(&str, Meaning)] = &[
    ("HOST", Meaning::Host("http.address")),
    ("PORT", Meaning::Port("http.address")),
    ("DEBUG_HOST", Meaning::Host("debug.address")),
    ("DEBUG_PORT", Meaning::Port("debug.address")),
    ("GRPC_HOST", Meaning::Host("grpc.address")),
    ("GRPC_PORT", Meaning::Port("grpc.address")),
    ("LOG_LEVEL", Meaning::LogLevel),
    ("RUNTIME_ROOT", Meaning::Same("rules.runtime.root")),
    ("RUNTIME_SUBDIRECTORY", Meaning::Same("rules.runtime.subdirectory")),
    ("RUNTIME_APPDIRECTORY", Meaning::Same("rules.runtime.app_directory")),
    ("RUNTIME_WATCH_ROOT", Meaning::Same("rules.runtime.watch_root")),
    ("RUNTIME_IGNOREDOTFILES", Meaning::Same("rules.ignore_dot_files")),
    ("FORCE_START_WITHOUT_INITIAL_CONFIG", Meaning::Same("health.force_start")),
    ("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", Meaning::Same("health.require_rules")),
    ("MERGE_DOMAIN_CONFIG", Meaning::Same("rules.merge_domains")),
    ("LIMIT_RESPONSE_HEADERS_ENABLED", Meaning::Same("response.headers")),
    ("LIMIT_LIMIT_HEADER", Meaning::Same("response.limit_header")),
    ("LIMIT_REMAINING_HEADER", Meaning::Same("response.remaining_header")),
    ("LIMIT_RESET_HEADER", Meaning::Same("response.reset_header")),
    ("RESPONSE_DYNAMIC_METADATA", Meaning::Same("response.dynamic_metadata")),
    ("SHADOW_MODE", Meaning::Same("response.shadow_mode")),
    ("QUOTA_MODE", Meaning::Same("response.quota_mode")),
    ("NEAR_LIMIT_RATIO", Meaning::Same("metrics.near_limit_ratio")),
];

/// Where the reference looks for rules when nothing says otherwise.
pub const DEFAULT_RUNTIME_ROOT: &str = "/srv/runtime_data/current";

impl Meaning {
    /// The setting it changes.
    pub fn setting(self) -> &'static Setting {
        let name = match self {
            Meaning::Same(name) | Meaning::Host(name) | Meaning::Port(name) => name,
            Meaning::LogLevel => "log.level",
        };
        table::find(name).expect("a test looks every variable's setting up")
    }

    /// The setting's text, from the variable's and from what the setting would be without it.
    /// Wrong text is passed on as it is, for the setting's kind to refuse.
    pub fn translate(self, text: &str, without: &str) -> String {
        match self {
            Meaning::Same(_) => text.to_owned(),
            Meaning::Host(_) => {
                let port = without.rsplit_once(':').map_or("", |(_, port)| port);
                match text.contains(':') && !text.starts_with('[') {
                    true => format!("[{text}]:{port}"),
                    false => format!("{text}:{port}"),
                }
            }
            Meaning::Port(_) => {
                let host = without.rsplit_once(':').map_or("", |(host, _)| host);
                format!("{host}:{text}")
            }
            Meaning::LogLevel => match text.to_ascii_lowercase().as_str() {
                "panic" | "fatal" => "error".to_owned(),
                "warning" => "warn".to_owned(),
                _ => text.to_owned(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_means_a_setting_that_there_is() {
        for (_, meaning) in VARIABLES {
            meaning.setting();
        }
    }

    #[test]
    fn hosts_and_ports_change_their_half_of_an_address() {
        let port = Meaning::Port("grpc.address");
        assert_eq!(port.translate("9000", "127.0.0.1:8081"), "127.0.0.1:9000");
        let host = Meaning::Host("grpc.address");
        assert_eq!(host.translate("::", "0.0.0.0:8081"), "[::]:8081");
    }
}
