//! The arguments of `weir serve`, and the settings that they set.

use std::path::PathBuf;

use clap::Args;
use config::ValueKind;

use crate::settings::Inputs;
use crate::settings::table::SETTINGS;
use weir_tools::environment;

const EXAMPLES: &str = "\
Examples:
  weir serve --rules rules/
  weir serve --rules shop.yaml --grpc-address 127.0.0.1:8081 --set drain.delay=2s
  weir serve --settings weir.toml --print-settings";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    /// Rule files, or directories of them. They are watched: changes need no signal.
    #[arg(long, value_name = "PATH", num_args = 1..)]
    rules: Vec<String>,
    /// A settings file, TOML or YAML.
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Address of the gRPC listener. Default: :8081, on all addresses.
    #[arg(long, value_name = "HOST:PORT")]
    grpc_address: Option<String>,
    /// Address of the HTTP listener: /json, /healthcheck and /metrics. Default: :8080, on all addresses.
    #[arg(long, value_name = "HOST:PORT")]
    http_address: Option<String>,
    /// Address of the debug listener: the page, rules, status and log level. Default: 127.0.0.1:6070.
    #[arg(long, value_name = "HOST:PORT")]
    debug_address: Option<String>,
    /// Log levels: off, error, warn, info, debug or trace; or info,h2=debug for a library.
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Any setting, as `a.b=value`; can be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Print the value and the origin of every setting, and exit.
    #[arg(long)]
    pub(super) print_settings: bool,
}

impl ServeArgs {
    pub(super) fn inputs(&self) -> Result<Inputs, String> {
        let mut flags = Vec::new();
        let mut flag = |flag: &str, name: &str, value: ValueKind| {
            flags.push((flag.to_owned(), name.to_owned(), value));
        };
        for set in &self.set {
            let (name, text) = set.split_once('=').ok_or_else(|| without_value(set))?;
            flag(&format!("--set {name}"), name, text.into());
        }
        if !self.rules.is_empty() {
            // A list, since a path may contain a comma.
            flag("--rules", "rules.paths", self.rules.clone().into());
        }
        for (name, setting, value) in [
            ("--grpc-address", "grpc.address", &self.grpc_address),
            ("--http-address", "http.address", &self.http_address),
            ("--debug-address", "debug.address", &self.debug_address),
            ("--log-level", "log.level", &self.log_level),
        ] {
            if let Some(text) = value {
                flag(name, setting, text.as_str().into());
            }
        }
        Ok(Inputs { file: self.settings.clone(), env: environment(), flags })
    }
}

/// Returns the error of a `--set` without `=`. It shows the setting's name only: the rest may be a
/// password.
fn without_value(set: &str) -> String {
    let names = SETTINGS.iter().map(|setting| setting.name);
    match names.filter(|name| set.starts_with(name)).max_by_key(|name| name.len()) {
        Some(name) => format!("--set {name}: there is no `=`; write --set {name}=VALUE"),
        None => "--set: there is no `=`; write --set NAME=VALUE".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_shows_the_default_addresses() {
        let command = ServeArgs::augment_args(clap::Command::new("serve"));
        for (argument, name) in [
            ("grpc_address", "grpc.address"),
            ("http_address", "http.address"),
            ("debug_address", "debug.address"),
        ] {
            let setting = SETTINGS.iter().find(|setting| setting.name == name).unwrap();
            let argument = command.get_arguments().find(|arg| arg.get_id() == argument).unwrap();
            let help = argument.get_help().unwrap().to_string();
            assert!(help.contains(&format!("Default: {}", setting.default)), "{help}");
        }
    }

    #[test]
    fn a_set_without_an_equals_sign_shows_no_value() {
        let shown = without_value("store.redis.password:hunter2");
        let wanted = "--set store.redis.password: there is no `=`; \
                      write --set store.redis.password=VALUE";
        assert_eq!(shown, wanted);
        assert!(without_value("store.redis.password_file").contains("password_file=VALUE"));
        assert!(!without_value("hunter2").contains("hunter2"));
    }
}
