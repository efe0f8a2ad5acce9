//! Every setting, declared once: its type, default and documentation.
//!
//! A group of settings is a struct, and a setting is one of its fields. Reading it is reading the
//! field, so that a setting read as another type does not compile. The doc comment of a field is its
//! entry in `docs/reference/settings.md` and in `weir settings`. To add a setting, add a field.

mod listeners;
mod process;
mod rules;
mod store;
mod telemetry;
mod tls;

use std::sync::LazyLock;

use super::format::FormatKind;
use super::group::{SettingGroup, group};
use super::setting::{Setting, SettingError};
use listeners::{ClientsSettings, GrpcSettings, HttpSettings, RespSettings, ResponseSettings};
pub use listeners::{DebugSettings, ResetFormat};
pub use process::DrainSettings;
use process::{ControlsSettings, HealthSettings, RlqsSettings, RuntimeSettings, TopSettings};
use rules::RulesSettings;
pub use rules::RulesSource;
use store::StoreSettings;
pub use store::{RedisTlsSettings, SentinelSettings, ServerSettings, StoreKind, TopologyKind};
pub use telemetry::TracingSettings;
use telemetry::{LogSettings, MetricsSettings, OtlpSettings};
pub use tls::{ClientFileSettings, TlsSettings};
use weir_common::suggest::nearest;
use weir_telemetry::statsd::Mogrifier;

group! {
    /// All settings.
    ///
    /// Each is a field of its own type:
    ///
    /// ```
    /// # use weir::settings::{Inputs, Settings};
    /// let settings = Settings::load(&Inputs::default()).unwrap();
    /// let max_connections: usize = *settings.grpc.max_connections;
    /// ```
    ///
    /// Reading it as another does not compile:
    ///
    /// ```compile_fail
    /// # use weir::settings::{Inputs, Settings};
    /// let settings = Settings::load(&Inputs::default()).unwrap();
    /// let max_connections: bool = *settings.grpc.max_connections;
    /// ```
    Settings {
        group rules: RulesSettings;
        group clients: ClientsSettings;
        group grpc: GrpcSettings;
        group http: HttpSettings;
        group resp: RespSettings;
        group rlqs: RlqsSettings;
        group debug: DebugSettings;
        group response: ResponseSettings;
        group store: StoreSettings;
        group top: TopSettings;
        group controls: ControlsSettings;
        group health: HealthSettings;
        group drain: DrainSettings;
        group runtime: RuntimeSettings;
        group metrics: MetricsSettings;
        group tracing: TracingSettings;
        group otlp: OtlpSettings;
        group log: LogSettings;
        // What replaces the names of metrics in DogStatsD.
        plain mogrifiers: Vec<Mogrifier>;
        // Settings and variables without effect, for the log.
        plain warnings: Vec<String>;
    }
}

/// All declared settings, in the order of the documentation.
pub static SETTINGS: LazyLock<Vec<Setting>> = LazyLock::new(|| {
    let mut settings = Vec::new();
    Settings::declare("", &mut settings);
    settings
});

pub fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

pub fn unknown(name: &str, origin: &str) -> SettingError {
    let names = || SETTINGS.iter().map(|setting| setting.name);
    let below = |group: &str| group.strip_prefix(name).is_some_and(|r| r.starts_with('.'));
    let group: Vec<_> = names().filter(|setting| below(setting)).collect();
    let help = match nearest(name, names()) {
        _ if !group.is_empty() => format!("it is a group: {}", group.join(", ")),
        Some(near) => format!("did you mean {near}?"),
        None => "remove it; `weir settings` lists all settings".to_owned(),
    };
    SettingError::new(origin, format!("there is no setting {name:?}"), help)
}

const EXAMPLE_HEAD: &str = "\
# Every setting of weir, at its default. Keep the settings that you change and delete the rest, so
# that you get the defaults of later versions. In the environment a.b is WEIR__A__B.
";

/// Returns a settings file with every setting at its default, as TOML.
pub fn example() -> String {
    let mut file = EXAMPLE_HEAD.to_owned();
    let mut group = "";
    for setting in SETTINGS.iter() {
        let (own_group, name) = setting.name.rsplit_once('.').unwrap_or(("", setting.name));
        if own_group != group {
            file.push_str(&format!("\n[{own_group}]\n"));
            group = own_group;
        }
        file.push_str(&format!("# {}\n", setting.doc));
        if let FormatKind::Choice(words) = setting.kind {
            file.push_str(&format!("# One of {}.\n", words().join(", ")));
        }
        file.push_str(&format!("{name} = {}\n", value(setting)));
    }
    file
}

/// Returns a setting's default as TOML.
fn value(setting: &Setting) -> String {
    match setting.kind {
        FormatKind::Bool | FormatKind::Int(..) | FormatKind::Ratio => setting.default.to_owned(),
        FormatKind::List if setting.default.is_empty() => "[]".to_owned(),
        _ => format!("{:?}", setting.default),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Inputs, Settings};

    #[test]
    fn the_example_loads_and_has_the_defaults() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("weir.toml");
        std::fs::write(&file, example()).unwrap();
        let inputs = Inputs { file: Some(file.clone()), ..Inputs::default() };
        let (example, defaults) =
            (Settings::load(&inputs).unwrap(), Settings::load(&Inputs::default()).unwrap());
        for (entry, default) in example.list().into_iter().zip(defaults.list()) {
            let name = entry.setting.name;
            let start = format!("{}:", file.display());
            assert!(entry.origin.starts_with(&start), "{name}: {}", entry.origin);
            assert_eq!(entry.shown.replace('_', ""), default.shown.replace('_', ""), "{name}");
        }
        assert!(example.rule_files().is_none());
    }

    #[test]
    fn a_group_has_one_table() {
        let toml = example();
        let mut tables: Vec<_> = toml.lines().filter(|line| line.starts_with('[')).collect();
        let all = tables.len();
        tables.sort_unstable();
        tables.dedup();
        assert_eq!(tables.len(), all);
    }
}
