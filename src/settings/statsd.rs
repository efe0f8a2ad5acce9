//! StatsD, DogStatsD and the reference's statistics, from settings.

use super::{SettingError, Settings};
use weir_telemetry::reference;

/// The reference's variables that name a server.
const SERVER_VARIABLES: [&str; 2] = ["STATSD_HOST", "STATSD_PORT"];

impl Settings {
    /// Enables StatsD if the reference's variables name a server, unless it is DogStatsD's.
    pub(super) fn choose_statsd(&mut self) {
        let metrics = &mut self.metrics;
        let (enabled, address) = (&mut metrics.statsd.enabled, &metrics.statsd.address);
        let names_server = SERVER_VARIABLES.contains(&address.origin.as_str());
        if enabled.is_default() && names_server && !*metrics.dogstatsd.enabled {
            enabled.value = true;
            enabled.text = "true".to_owned();
            enabled.shown = "\"true\"".to_owned();
            enabled.origin.clone_from(&address.origin);
        }
    }

    /// Returns how the reference's statistics are named.
    pub fn statistic_options(&self) -> reference::Options {
        reference::Options {
            tags: reference::Tags::new(&self.metrics.tags),
            local_cache: *self.metrics.local_cache,
        }
    }
}

/// Checks the settings of StatsD and DogStatsD; returns the mogrifiers.
pub(super) fn check(
    settings: &Settings,
    env: &[(String, String)],
    errors: &mut Vec<SettingError>,
) -> Mogrifiers {
    let metrics = &settings.metrics;
    if metrics.flush_interval.is_zero() {
        errors.push(metrics.flush_interval.error("is zero", "write a duration such as 10s"));
    }
    let is_tag = |tag: &String| tag.split_once(':').is_some_and(|(name, _)| !name.is_empty());
    if !metrics.tags.iter().all(is_tag) {
        errors.push(metrics.tags.error("has a tag without a name", "write name:value"));
    }
    if !cfg!(feature = "statsd") && !*metrics.disable_push {
        for enabled in [&metrics.statsd.enabled, &metrics.dogstatsd.enabled] {
            if **enabled {
                let help = "set it to false, or build weir with the feature statsd";
                errors.push(enabled.error("is true, and this build of weir has no StatsD", help));
            }
        }
    }
    match *metrics.dogstatsd.enabled {
        true => read_mogrifiers(settings, env, errors),
        false => Mogrifiers::default(),
    }
}

#[cfg(not(feature = "statsd"))]
mod build {
    use super::{SettingError, Settings};

    pub type Mogrifiers = ();

    pub fn read_mogrifiers(_: &Settings, _: &[(String, String)], _: &mut Vec<SettingError>) {}
}

#[cfg(feature = "statsd")]
mod build {
    use super::{SettingError, Settings};
    use crate::settings::table::StatsdProtocol;
    use weir_telemetry::statsd::{Dialect, Mogrifier, MogrifierError, Options, Protocol};

    pub type Mogrifiers = Vec<Mogrifier>;

    /// Reads the mogrifiers that the settings name.
    pub fn read_mogrifiers(
        settings: &Settings,
        env: &[(String, String)],
        errors: &mut Vec<SettingError>,
    ) -> Mogrifiers {
        let names = settings.metrics.dogstatsd.mogrifiers.iter();
        names.filter_map(|name| read(name, env).map_err(|error| errors.push(error)).ok()).collect()
    }

    fn read(name: &str, env: &[(String, String)]) -> Result<Mogrifier, SettingError> {
        let variable = |part| format!("DOG_STATSD_MOGRIFIER_{name}_{part}");
        let text = |part| {
            let variable = env.iter().find(|(set, _)| *set == variable(part));
            variable.map_or("", |(_, text)| text.as_str())
        };
        let tags = text("TAGS");
        let tags = tags.split(',').filter(|_| !tags.trim().is_empty()).map(|tag| {
            let (name, value) = tag.split_once(':').unwrap_or((tag, ""));
            (name.to_owned(), value.to_owned())
        });
        let tags: Vec<_> = tags.collect();
        Mogrifier::new(text("PATTERN"), text("NAME"), &tags).map_err(
            |MogrifierError { part, message, help }| {
                SettingError::new(variable(part), message, help)
            },
        )
    }

    impl Settings {
        /// Returns where metrics are sent to by the names of the reference.
        pub fn statsd_options(&self) -> Vec<Options> {
            let metrics = &self.metrics;
            let options = |address: &str, protocol, dialect| Options {
                address: address.to_owned(),
                protocol,
                dialect,
                interval: *metrics.flush_interval,
                statistics: self.statistic_options(),
            };
            let mut all = Vec::new();
            if *metrics.disable_push {
                return all;
            }
            if *metrics.statsd.enabled {
                let protocol = match *metrics.statsd.protocol {
                    StatsdProtocol::Tcp => Protocol::Tcp,
                    StatsdProtocol::Udp => Protocol::Udp,
                };
                all.push(options(&metrics.statsd.address, protocol, Dialect::StatsD));
            }
            if *metrics.dogstatsd.enabled {
                let address = metrics.dogstatsd.address.as_ref();
                let address = address.unwrap_or(&metrics.statsd.address);
                let dialect = Dialect::DogStatsD(self.mogrifiers.clone());
                all.push(options(address, Protocol::Udp, dialect));
            }
            all
        }
    }
}

pub use build::Mogrifiers;
use build::read_mogrifiers;
