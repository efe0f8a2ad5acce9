//! The options of the disk store, from the group `store.disk`.

use std::time::Duration;

use super::table::StoreKind;
use super::{SettingError, Settings};
use weir_store::disk::Options;

const MIN_SYNC: Duration = Duration::from_millis(10);
const MAX_SYNC: Duration = Duration::from_secs(3600);

impl Settings {
    /// Returns how counters are kept on disk; none if they are not.
    pub fn disk_options(&self) -> Option<Options> {
        let (disk, max_keys) = (&self.store.disk, *self.store.memory.max_keys);
        let path = disk.path.clone().filter(|_| *self.store.kind == StoreKind::Disk)?;
        Some(Options { path, sync: *disk.sync, max_keys })
    }

    pub(super) fn check_disk(&mut self, errors: &mut Vec<SettingError>) {
        let (kind, disk) = (&self.store.kind, &self.store.disk);
        if **kind != StoreKind::Disk {
            let set = [
                (disk.path.is_default(), disk.path.setting.name, &disk.path.origin),
                (disk.sync.is_default(), disk.sync.setting.name, &disk.sync.origin),
            ];
            let set = set.into_iter().filter(|(is_default, ..)| !is_default);
            let text = &kind.text;
            self.warnings.extend(set.map(|(_, name, origin)| {
                format!("{name} ({origin}) has no effect: store.kind is {text}")
            }));
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
}

#[cfg(test)]
mod tests {
    use crate::settings::{Inputs, Settings};

    fn load(env: &[(&str, &str)]) -> Result<Settings, Vec<String>> {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let inputs = Inputs { env: env.collect(), ..Inputs::default() };
        let texts = |errors: Vec<_>| errors.iter().map(ToString::to_string).collect();
        Settings::load(&inputs).map_err(texts)
    }

    const DISK: (&str, &str) = ("WEIR__STORE__KIND", "disk");

    #[test]
    fn a_disk_needs_a_directory() {
        let errors = load(&[DISK, ("WEIR__STORE__DISK__SYNC", "1ms")]).unwrap_err();
        assert_eq!(
            errors,
            [
                "WEIR__STORE__KIND: store.kind is disk, but store.disk.path is not set; name a \
                 directory that stays over restarts in store.disk.path",
                "WEIR__STORE__DISK__SYNC: store.disk.sync is 1ms; write a duration from 10ms to 1h",
            ]
        );
        let path = ("WEIR__STORE__DISK__PATH", "/var/lib/weir");
        let options = load(&[DISK, path]).unwrap().disk_options().unwrap();
        assert_eq!(options.path.to_str(), Some("/var/lib/weir"));
        assert_eq!((options.sync.as_secs(), options.max_keys), (1, 10_000_000));
    }

    #[test]
    fn a_directory_without_the_disk_store_has_no_effect() {
        let settings = load(&[("WEIR__STORE__DISK__PATH", "/var/lib/weir")]).unwrap();
        assert_eq!(settings.disk_options(), None);
        assert_eq!(
            settings.warnings,
            ["store.disk.path (WEIR__STORE__DISK__PATH) has no effect: store.kind is memory"]
        );
    }

    #[test]
    fn redis_beside_a_disk_has_no_effect() {
        let path = ("WEIR__STORE__DISK__PATH", "/var/lib/weir");
        let settings = load(&[DISK, path, ("REDIS_URL", "localhost:6379")]).unwrap();
        assert!(settings.disk_options().is_some());
        assert_eq!(
            settings.warnings,
            ["counters are on this process's disk, as WEIR__STORE__KIND sets store.kind: \
              REDIS_URL has no effect"]
        );
    }
}
