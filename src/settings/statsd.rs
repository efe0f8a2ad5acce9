//! Converts settings to the options of StatsD and DogStatsD, which get metrics by the names of envoyproxy/ratelimit.

use super::setting::SettingError;
use super::table::Settings;
use weir_telemetry::reference;
use weir_telemetry::statsd::{Dialect, Mogrifier, MogrifierError, StatsdOptions, StatsdProtocol};

/// The environment variables of envoyproxy/ratelimit (the reference) that name a server.
const SERVER_VARIABLES: [&str; 2] = ["STATSD_HOST", "STATSD_PORT"];

impl Settings {
    /// Enables StatsD if the reference's variables name a server, unless it is DogStatsD's.
    pub(super) fn choose_statsd(&mut self) {
        let metrics = &mut self.metrics;
        let (enabled, address) = (&mut metrics.statsd.enabled, &metrics.statsd.address);
        let names_server = SERVER_VARIABLES.contains(&address.origin.as_str());
        if enabled.is_default() && names_server && !*metrics.dogstatsd.enabled {
            enabled.set(true, "true", &address.origin);
        }
    }

    pub fn statistic_options(&self) -> reference::ReferenceOptions {
        reference::ReferenceOptions {
            tags: reference::Tags::new(&self.metrics.tags),
            local_cache: *self.metrics.local_cache,
        }
    }

    /// Returns where metrics are sent to by the names of the reference.
    pub fn statsd_options(&self) -> Vec<StatsdOptions> {
        let metrics = &self.metrics;
        let options = |protocol, dialect| StatsdOptions {
            address: metrics.statsd.address.to_string(),
            protocol,
            dialect,
            interval: *metrics.flush_interval,
            statistics: self.statistic_options(),
            replaces_tag_characters: *metrics.statsd.replace_tag_characters,
        };
        let mut all = Vec::new();
        if *metrics.disable_push {
            return all;
        }
        if *metrics.statsd.enabled {
            all.push(options(*metrics.statsd.protocol, Dialect::StatsD));
        }
        if *metrics.dogstatsd.enabled {
            let dialect = Dialect::DogStatsD(self.mogrifiers.clone());
            all.push(options(StatsdProtocol::Udp, dialect));
        }
        all
    }
}

/// Checks the settings of StatsD and DogStatsD; returns the mogrifiers.
pub(super) fn check(
    settings: &Settings,
    env: &[(String, String)],
    errors: &mut Vec<SettingError>,
) -> Vec<Mogrifier> {
    let metrics = &settings.metrics;
    if metrics.flush_interval.is_zero() {
        errors.push(metrics.flush_interval.error("is zero", "write a duration such as 10s"));
    }
    let is_tag = |tag: &String| tag.split_once(':').is_some_and(|(name, _)| !name.is_empty());
    if !metrics.tags.iter().all(is_tag) {
        errors.push(metrics.tags.error("has a tag without a name", "write name:value"));
    }
    if !*metrics.dogstatsd.enabled {
        return Vec::new();
    }
    let names = metrics.dogstatsd.mogrifiers.iter();
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
        |MogrifierError { part, message, help }| SettingError::new(variable(part), message, help),
    )
}
