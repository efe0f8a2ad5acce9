//! The settings of the disk store.

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
