//! Every setting, declared once: its type, default, documentation and reference variables.
//!
//! A group of settings is a struct, and a setting is one of its fields. Reading it is reading the
//! field, so that a setting read as another type does not compile. The doc comment of a field is its
//! entry in `docs/settings.md` and in `weir settings`. To add a setting, add a field.

mod controls;
mod listeners;
mod log;
mod metrics;
mod otlp;
mod process;
mod redis;
mod resp;
mod response;
mod rules;
mod store;
mod tls;
mod top;
mod tracing;

use std::sync::LazyLock;

use super::error::SettingError;
use super::reader::SettingReader;
use super::setting::{Setting, SettingEntry};
pub use controls::ControlsSettings;
pub use listeners::{ClientsSettings, DebugSettings, GrpcSettings, HttpSettings};
pub use log::LogSettings;
pub use metrics::{
    DogStatsdSettings, MetricsSettings, PrometheusSettings, StatsdProtocol, StatsdSettings,
};
pub use otlp::{OtlpProtocol, OtlpSettings};
pub use process::{DrainSettings, HealthSettings, RuntimeSettings};
pub use redis::{RedisSettings, RedisTlsSettings, TopologyKind};
pub use resp::RespSettings;
pub use response::ResponseSettings;
pub use rules::{RulesSettings, RulesSource};
pub use store::{StoreKind, StoreSettings};
pub use tls::{GrpcTlsSettings, HttpTlsSettings, RespTlsSettings};
pub use top::TopSettings;
pub use tracing::TracingSettings;
use weir_common::suggest::nearest;

/// A group of settings.
pub(super) trait SettingGroup: Sized {
    /// Adds the declared settings, in the order of the documentation.
    fn declare(settings: &mut Vec<&'static Setting>);

    /// Reads the values; none only if a default is not of its type, which a test rules out.
    fn read(reader: &mut SettingReader) -> Option<Self>;

    /// Adds the values, in the order of the documentation.
    fn list<'a>(&'a self, entries: &mut Vec<SettingEntry<'a>>);
}

/// Declares a group:
///
/// ```text
/// group! {
///     /// What the group is about.
///     Name "prefix.of.names" {
///         /// What the setting means.
///         field: Format = "default", reference ["VARIABLE"];
///     }
///     groups { field: Group; }
/// }
/// ```
macro_rules! group {
    (
        $(#[doc = $about:literal])+
        $group:ident $prefix:literal {
            $(
                $(#[doc = $doc:literal])+
                $field:ident: $format:ty = $default:literal $(, reference [$($variable:literal),+])?;
            )+
        }
        $(groups { $($subgroup:ident: $type:ty;)+ })?
    ) => {
        $(#[doc = $about])+
        #[derive(Debug)]
        pub struct $group {
            $(
                $(#[doc = $doc])+
                pub $field: $crate::settings::setting::Resolved<
                    <$format as $crate::settings::format::Format>::Value
                >,
            )+
            $($(pub $subgroup: $type,)+)?
        }

        /// The declarations.
        #[allow(non_upper_case_globals)]
        impl $group {
            $(
                const $field: &'static $crate::settings::setting::Setting =
                    &$crate::settings::setting::Setting::new::<$format>(
                        concat!($prefix, ".", stringify!($field)),
                        $default,
                        concat!($($doc),+),
                        &[$($($variable),+)?],
                    );
            )+
        }

        impl $crate::settings::table::SettingGroup for $group {
            fn declare(settings: &mut Vec<&'static $crate::settings::setting::Setting>) {
                settings.extend([$($group::$field),+]);
                $($(<$type>::declare(settings);)+)?
            }

            fn read(reader: &mut $crate::settings::reader::SettingReader) -> Option<$group> {
                Some($group {
                    $($field: reader.read::<$format>($group::$field)?,)+
                    $($($subgroup: <$type>::read(reader)?,)+)?
                })
            }

            fn list<'a>(&'a self, entries: &mut Vec<$crate::settings::setting::SettingEntry<'a>>) {
                entries.extend([$(self.$field.entry()),+]);
                $($(self.$subgroup.list(entries);)+)?
            }
        }
    };
}
use group;

/// All declared settings, in the order of the documentation.
pub static SETTINGS: LazyLock<Vec<&'static Setting>> = LazyLock::new(|| {
    let mut settings = Vec::new();
    RulesSettings::declare(&mut settings);
    ClientsSettings::declare(&mut settings);
    GrpcSettings::declare(&mut settings);
    HttpSettings::declare(&mut settings);
    RespSettings::declare(&mut settings);
    DebugSettings::declare(&mut settings);
    ResponseSettings::declare(&mut settings);
    StoreSettings::declare(&mut settings);
    TopSettings::declare(&mut settings);
    ControlsSettings::declare(&mut settings);
    HealthSettings::declare(&mut settings);
    DrainSettings::declare(&mut settings);
    RuntimeSettings::declare(&mut settings);
    MetricsSettings::declare(&mut settings);
    TracingSettings::declare(&mut settings);
    OtlpSettings::declare(&mut settings);
    LogSettings::declare(&mut settings);
    settings
});

/// Returns the setting of that name.
pub fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().copied().find(|setting| setting.name == name)
}

/// Returns the settings that this variable of the reference sets, in the order of declaration.
pub fn set_by(variable: &str) -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().copied().filter(move |setting| setting.reference.contains(&variable))
}

/// Returns the error for a name that no setting has.
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
