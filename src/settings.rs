//! Typed settings, which the command line reads from layers: a later layer overrides an earlier one.
//!
//! [`table`] declares the settings by `group`, `layers` reads them from defaults, a file, the environment and
//! flags, and `options` converts them to the options of the other modules.

pub mod format;
mod group;
mod layers;
mod listeners;
mod options;
mod otlp;
mod redis;
pub mod reference;
mod secret;
pub mod setting;
mod statsd;
pub mod table;
#[cfg(test)]
mod tests;

use std::time::Duration;

use group::SettingGroup;
pub use layers::Inputs;
pub use setting::SettingError;
use setting::{SettingEntry, SettingReader};
pub use table::Settings;
use table::{DebugSettings, DrainSettings, StoreKind};

/// The bounds of `store.disk.sync`.
const MIN_SYNC: Duration = Duration::from_millis(10);
const MAX_SYNC: Duration = Duration::from_secs(3600);
const MAX_SOCKET_PATH_BYTES: usize = 107;

impl Settings {
    /// Reads all settings, and returns every error in them, not only the first.
    pub fn load(inputs: &Inputs) -> Result<Settings, Vec<SettingError>> {
        let mut reader = layers::read(inputs);
        let Some(mut settings) = Settings::read("", &mut reader) else { return Err(reader.errors) };
        let SettingReader { mut errors, warnings, redis_variables, .. } = reader;
        settings.warnings = warnings;
        settings.warnings.extend(reference::no_effect::warnings(&inputs.env, &settings));
        settings.choose_store(&redis_variables);
        settings.check_disk(&mut errors);
        redis::check_top_share(&mut settings);
        redis::check_leases(&settings, &mut errors);
        settings.choose_statsd();
        settings.mogrifiers = statsd::check(&settings, &inputs.env, &mut errors);
        if *settings.store.kind == StoreKind::Redis {
            redis::read(&settings, &mut errors);
        }
        settings.check_socket(&mut errors);
        settings.check_drain(&mut errors);
        settings.check_debug(&mut errors);
        if *settings.tracing.enabled {
            errors.extend(otlp::read(&settings).err());
        }
        settings.check_tls(&mut errors);
        if errors.is_empty() { Ok(settings) } else { Err(errors) }
    }

    /// Reads the address of the debug listener alone. Errors of other settings do not matter.
    pub fn debug_address(inputs: &Inputs) -> Result<String, Vec<SettingError>> {
        let mut reader = layers::read(inputs);
        reader.errors.clear();
        match DebugSettings::read("debug", &mut reader) {
            Some(debug) if reader.errors.is_empty() => Ok(debug.address.value),
            _ => Err(reader.errors),
        }
    }

    /// The system limits the path of a Unix socket.
    fn check_socket(&self, errors: &mut Vec<SettingError>) {
        let bytes = self.grpc.uds.as_ref().map_or(0, |path| path.as_os_str().len());
        if bytes > MAX_SOCKET_PATH_BYTES {
            let message = format!("is a path of {bytes} bytes");
            let help = format!("write one of up to {MAX_SOCKET_PATH_BYTES}");
            errors.push(self.grpc.uds.error(&message, help));
        }
    }

    /// The delay is part of the timeout: it must leave time for requests in flight.
    fn check_drain(&self, errors: &mut Vec<SettingError>) {
        let DrainSettings { delay, timeout } = &self.drain;
        if **delay < **timeout {
            return;
        }
        // The one that is set is at fault; of two, the timeout.
        errors.push(match timeout.is_default() && !delay.is_default() {
            true => delay.error(
                &format!(
                    "is {}, but drain.timeout, which includes it, is {}",
                    delay.text, timeout.text
                ),
                "write a shorter delay, or set drain.timeout above it, and Kubernetes' \
                 terminationGracePeriodSeconds above both",
            ),
            false => timeout.error(
                &format!("is {}, but includes drain.delay, which is {}", timeout.text, delay.text),
                "write more than the delay, or set a shorter drain.delay",
            ),
        });
    }

    fn check_disk(&mut self, errors: &mut Vec<SettingError>) {
        let (kind, disk) = (&self.store.kind, &self.store.disk);
        if **kind != StoreKind::Disk {
            let because = format!("store.kind is {}", kind.text);
            let path = (!disk.path.is_default()).then(|| disk.path.no_effect(&because));
            let sync = (!disk.sync.is_default()).then(|| disk.sync.no_effect(&because));
            self.warnings.extend(path.into_iter().chain(sync));
            return;
        }
        if disk.path.is_none() {
            let help = "name a directory that stays over restarts in store.disk.path";
            errors.push(kind.error("is disk, but store.disk.path is not set", help));
        }
        if !(MIN_SYNC..=MAX_SYNC).contains(&*disk.sync) {
            let message = format!("is {}", disk.sync.text);
            errors.push(disk.sync.error(&message, "write a duration from 10ms to 1h"));
        }
    }

    /// Makes Redis the store if its URL is set and the kind of store is not: in memory, each replica
    /// would count separately and allow the whole limit. Warns if Redis is named and not used.
    fn choose_store(&mut self, redis_variables: &[&str]) {
        let (kind, url) = (&mut self.store.kind, &self.store.redis.server.url);
        if kind.is_default() && url.is_some() {
            kind.set(StoreKind::Redis, "redis", &url.origin);
        }
        let named_by = match redis_variables {
            [] if url.is_some() => format!("{} ({})", url.setting.name, url.origin),
            variables => variables.join(", "),
        };
        let place = match kind.value {
            StoreKind::Memory => "in this process's memory",
            StoreKind::Disk => "on this process's disk",
            StoreKind::Redis => return,
        };
        if !named_by.is_empty() {
            let verb = if redis_variables.len() > 1 { "have" } else { "has" };
            self.warnings.push(format!(
                "counters are {place}, as {} sets store.kind: {named_by} {verb} no effect",
                kind.origin
            ));
        }
    }

    /// Returns every setting with its value and origin, in the order of the documentation.
    pub fn list(&self) -> Vec<SettingEntry<'_>> {
        let mut entries = Vec::new();
        SettingGroup::list(self, &mut entries);
        entries
    }
}
