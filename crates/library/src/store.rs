//! Where counters are: stores in memory, on disk or in Redis, and a guard around one that may fail. Re-exports.

pub mod disk;
#[cfg(feature = "redis")]
pub mod redis;

/// Wraps a store, and decides by a policy while that fails, for instance without Redis.
///
/// ```
#[doc = include_str!("scene.txt")]
/// use weir_library::store::{Guard, GuardOptions, OnStoreFailure};
/// use weir_library::store::redis::{self, Endpoint, RedisStore, Topology};
///
/// // No Redis listens there.
/// let server = Topology::Single(Endpoint::Unix("no.sock".into()));
/// let store = RedisStore::new(redis::RedisOptions::new(server));
/// let on_failure = OnStoreFailure::Allow;
/// let options = GuardOptions { on_failure, replicas: 1, max_keys: 1_000_000 };
/// let limiter = Limiter::new(Guard::new(store, clock, options), LimiterOptions::default());
///
/// let request = Request { hits_addend: 3, ..request };
/// let decision = limiter.decide(Some(&rules), &request, timeout, &mut holds).await?;
/// assert!(!decision.over_limit);
/// assert_eq!(limiter.store().counts().degraded(on_failure), 1);
/// # Ok(()) }
/// ```
#[doc(inline)]
pub use weir_store::guard::Guard;

/// What happens to requests while a store fails.
///
/// ```
#[doc = include_str!("scene.txt")]
/// use weir_library::store::{Guard, GuardOptions, OnStoreFailure};
/// use weir_library::store::redis::{self, Endpoint, RedisStore, Topology};
///
/// // Without Redis, each of two replicas allows one of the two hits.
/// let on_failure = OnStoreFailure::Local;
/// let options = GuardOptions { on_failure, replicas: 2, max_keys: 1_000_000 };
/// let server = Topology::Single(Endpoint::Unix("no.sock".into()));
/// let store = RedisStore::new(redis::RedisOptions::new(server));
/// let limiter = Limiter::new(Guard::new(store, clock, options), LimiterOptions::default());
///
/// for over_limit in [false, true] {
///     let decision = limiter.decide(Some(&rules), &request, timeout, &mut holds).await?;
///     assert_eq!(decision.over_limit, over_limit);
/// }
/// # Ok(()) }
/// ```
#[doc(inline)]
pub use weir_store::guard::GuardOptions;

/// Counters of this process alone.
///
/// ```
#[doc = include_str!("scene.txt")]
/// limiter.decide(Some(&rules), &request, timeout, &mut holds).await?;
/// assert_eq!(limiter.store().stats().keys, 1);
///
/// // From time to time, so that memory is freed without traffic too.
/// clock.advance(3_600_000_000);
/// limiter.store().sweep(limiter.store().shards());
/// assert_eq!(limiter.store().stats().keys, 0);
/// # Ok(()) }
/// ```
#[doc(inline)]
pub use weir_store::memory::MemoryStore;

/// The policies of a [`Guard`], which rule files name too.
///
/// ```
/// use weir_library::store::OnStoreFailure;
///
/// // As rule files and settings name them.
/// let names = OnStoreFailure::ALL.map(OnStoreFailure::name);
/// assert_eq!(names, ["error", "allow", "deny", "local"]);
/// ```
#[doc(inline)]
pub use weir_store::OnStoreFailure;

/// What a [`Limiter`](crate::Limiter) counts in.
///
/// ```
/// use weir_library::store::{MemoryStore, Store};
/// use weir_library::{Limiter, LimiterOptions, SystemClock};
///
/// fn limiter_in<S: Store>(store: S) -> Limiter<S> {
///     Limiter::new(store, LimiterOptions::default())
/// }
///
/// let limiter = limiter_in(MemoryStore::new(SystemClock::new(), 1_000_000));
/// ```
#[doc(inline)]
pub use weir_store::Store;

/// How a store fails.
///
/// ```
/// use weir_library::store::StoreError;
///
/// // It may have charged the request before it was late.
/// assert!(!StoreError::TimedOut.is_refusal());
/// assert!(StoreError::Loading.is_refusal());
/// assert_eq!(StoreError::Loading.to_string(), "the store is loading its data");
/// ```
#[doc(inline)]
pub use weir_store::StoreError;
