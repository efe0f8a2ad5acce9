//! Makes the store that the settings name.

mod configured;

use std::sync::Arc;

pub(super) use self::configured::ConfiguredStore;
use crate::net::tls::Identities;
use crate::settings::Settings;
use weir_common::clock::{BootClock, SystemClock};
use weir_common::error::SetupError;
use weir_common::threads::Failures;
use weir_redis::{RedisStore, Topology};
use weir_store::disk::{DiskStore, OpenError};
use weir_store::guard::{Guard, GuardOptions};
use weir_store::local::{Local, LocalOptions};
use weir_store::memory::MemoryStore;

/// Denials kept at a time, about 100 bytes each.
const MAX_DENIALS: usize = 64 * 1024;

/// Makes the store of `settings`, by `clock`. It connects when it is first used; a store on disk is
/// loaded by a thread of its own. Adds the certificates that it presents to `identities`.
pub(super) fn make(
    settings: &Settings,
    clock: Arc<SystemClock>,
    failures: &Failures,
    identities: &mut Identities,
) -> Result<ConfiguredStore, SetupError> {
    let (store, max_keys) = (&settings.store, *settings.store.memory.max_keys);
    let (on_failure, replicas) = (*store.on_failure, *store.replicas);
    let guard_options = GuardOptions { on_failure, replicas, max_keys };
    if let Some(options) = settings.disk_options() {
        let directory = options.path.display().to_string();
        let disk = DiskStore::open(clock.clone(), options, failures).map_err(setup_error)?;
        tracing::info!(directory, "weir counts on disk, each replica by itself");
        let guard = Guard::new(disk, clock, guard_options);
        return Ok(ConfiguredStore::Disk(Box::new(guard)));
    }
    let Some((redis, per_second)) = settings.redis_options() else {
        tracing::info!("weir counts in memory, each replica by itself");
        return Ok(ConfiguredStore::Memory(MemoryStore::new(clock, max_keys)));
    };
    redis.check()?;
    per_second.as_ref().map_or(Ok(()), |redis| redis.check())?;
    tracing::info!(
        servers = %redis.topology,
        per_second = per_second.as_ref().map(|redis| redis.topology.to_string()),
        "weir counts in redis, with all replicas that use it"
    );
    // Both have the same files.
    let tls =
        std::iter::once(&redis).chain(&per_second).find_map(|redis| redis.access.tls.as_ref());
    if let Some(tls) = tls {
        identities.present("redis", tls.certificates.clone());
    }
    if matches!(redis.topology, Topology::Proxy(_)) {
        tracing::warn!(
            "replicas share no controls and no lists of top keys: store.redis.topology is proxy"
        );
    }
    let redis = RedisStore::new(redis).with_per_second(per_second);
    let options = LocalOptions {
        deny_locally_for: *store.deny_locally_for,
        max_denials: MAX_DENIALS,
        leases_for: *store.leases_for,
    };
    let local = Local::new(redis, BootClock, options);
    let guard = Guard::new(local, clock, guard_options);
    Ok(ConfiguredStore::Redis(Box::new(guard)))
}

fn setup_error(error: OpenError) -> SetupError {
    match error {
        OpenError::Io(..) | OpenError::InUse(_) | OpenError::Unreadable { .. } => {
            SetupError::Unavailable(error.to_string())
        }
        OpenError::Version { .. } | OpenError::TooManyKeys { .. } => {
            SetupError::Invalid(error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_directory_of_another_format_or_size_needs_another_setting() {
        let path = PathBuf::from("/counters");
        for error in [
            OpenError::Version { path: path.clone(), version: 9, known: 1 },
            OpenError::TooManyKeys { path: path.clone(), max_keys: 5 },
        ] {
            assert!(matches!(setup_error(error), SetupError::Invalid(_)));
        }
        assert!(matches!(setup_error(OpenError::InUse(path)), SetupError::Unavailable(_)));
    }
}
