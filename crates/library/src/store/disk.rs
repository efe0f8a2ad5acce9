//! Counters that survive a restart: re-exports of the store on disk, with examples.

/// Panics of background threads, of which a [`DiskStore`] has one.
///
/// ```
/// use weir_library::store::disk::Failures;
///
/// let failures = Failures::default();
/// assert_eq!(failures.restart("sum", || 3 + 4), 7);
/// // It did not panic. Another thread has not started.
/// assert_eq!((failures.of("sum"), failures.of("weir-disk")), (Some(0), None));
/// ```
#[doc(inline)]
pub use weir_common::threads::Failures;

/// Counters of this process alone, which outlive it.
///
/// ```
#[doc = include_str!("../scene.txt")]
/// use weir_library::store::disk::{self, DiskStore, Failures};
///
/// let path = std::env::temp_dir().join(format!("weir-library-{}", std::process::id()));
/// let options = disk::DiskOptions { path, sync: Duration::from_secs(1), max_keys: 1_000_000 };
/// // The first decision waits until everything is loaded.
/// let timeout = Duration::from_secs(60);
/// for remaining in [1, 0] {
///     let store = DiskStore::open(clock.clone(), options.clone(), &Failures::default())?;
///     let limiter = Limiter::new(store, LimiterOptions::default());
///     let decision = limiter.decide(Some(&rules), &request, timeout, &mut holds).await?;
///     assert_eq!(decision.statuses[0].remaining, remaining);
///     limiter.store().finish().await;
/// }
/// std::fs::remove_dir_all(&options.path)?;
/// # Ok(()) }
/// ```
#[doc(inline)]
pub use weir_store::disk::DiskStore;

/// Where a [`DiskStore`] keeps its files, and how often it writes.
///
/// ```
/// use std::time::Duration;
///
/// use weir_library::SystemClock;
/// use weir_library::store::disk::{DiskOptions, DiskStore, Failures};
///
/// // A file is no directory.
/// let path = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml").into();
/// let options = DiskOptions { path, sync: Duration::from_secs(1), max_keys: 1_000_000 };
/// let error = DiskStore::open(SystemClock::new(), options, &Failures::default()).unwrap_err();
/// assert!(error.to_string().starts_with("store.disk.path is "), "{error}");
/// ```
#[doc(inline)]
pub use weir_store::disk::DiskOptions;
