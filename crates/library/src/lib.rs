//! Limits the requests of a program by weir's rule files, in its own process.
//!
//! Rules say how much is allowed, a store counts, and a [`Limiter`] decides. The other examples have the `rules`,
//! `clock`, `limiter`, `request`, `timeout` and `holds` of this one:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use weir_library::rules::{self, RuleFile, RuleSet};
//! use weir_library::store::MemoryStore;
//! use weir_library::{Descriptor, Holds, Limiter, ManualClock, LimiterOptions, Request};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), weir_library::RequestError> {
//! // Two requests of each user a minute.
//! let text = "domain: shop\ndescriptors: [{ key: user, rate: 2/m }]".to_owned();
//! let file = RuleFile { name: "shop.yaml".to_owned(), text };
//! let (rules, problems) = RuleSet::compile(&[file], &rules::RuleOptions::default(), None);
//! assert!(problems.is_empty(), "{problems:?}");
//!
//! // A clock that stands still until it is set; a service has a `SystemClock`.
//! let clock = Arc::new(ManualClock::new(1_800_000_000_000_000));
//! // At most a million counters.
//! let store = MemoryStore::new(clock.clone(), 1_000_000);
//! let limiter = Limiter::new(store, LimiterOptions::default());
//!
//! let descriptors = &[Descriptor { entries: &[("user", "ann")], ..Descriptor::default() }];
//! let request = Request { domain: "shop", descriptors, ..Request::default() };
//! // How long the store may take, and what the request takes until it is done.
//! let (timeout, mut holds) = (Duration::from_millis(100), Holds::default());
//!
//! let decision = limiter.decide(Some(&rules), &request, timeout, &mut holds).await?;
//! assert!(!decision.over_limit && decision.retry_after().is_none());
//!
//! if let Some(taken) = holds {
//!     taken.release(limiter.store()).await;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! - [`rules`] reads files and directories, and reports what is wrong in them.
//! - [`store`] counts in memory, on disk, or in Redis, where all programs and every weir with the same rules share
//!   counters.
//!
//! These are the names for programs; the packages behind them have more, for the server, and change more often.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::expect_used, clippy::panic, clippy::unwrap_used))]
#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod rules;
pub mod store;

/// A store takes the time from any type that has this trait.
///
/// ```
/// use weir_library::{Clock, store::MemoryStore};
///
/// /// The time of a simulation.
/// #[derive(Debug)]
/// struct Simulated;
///
/// impl Clock for Simulated {
///     fn now(&self) -> u64 {
///         1_800_000_000_000_000
///     }
/// }
///
/// let store = MemoryStore::new(Simulated, 1_000_000);
/// ```
#[doc(inline)]
pub use weir_common::clock::Clock;

/// The clock of tests: it needs no waiting.
///
/// ```
/// use weir_library::{Clock, ManualClock};
///
/// let clock = ManualClock::new(1_800_000_000_000_000);
/// clock.advance(60_000_000);
/// assert_eq!(clock.now(), 1_800_000_060_000_000);
/// ```
#[doc(inline)]
pub use weir_common::clock::ManualClock;

/// Durations are measured by this, whatever the time of day does.
///
/// ```
/// use weir_library::{Monotonic, SystemClock};
///
/// let clock = SystemClock::new();
/// let started = clock.monotonic();
/// assert!(clock.monotonic() >= started);
/// ```
#[doc(inline)]
pub use weir_common::clock::Monotonic;

/// The clock of services.
///
/// ```
/// use weir_library::{Clock, SystemClock};
///
/// let year_2020 = 1_577_836_800_000_000;
/// assert!(SystemClock::new().now() > year_2020);
/// ```
#[doc(inline)]
pub use weir_common::clock::SystemClock;

/// Hits that a job takes before they are known, by the id of the job.
///
/// ```
#[doc = include_str!("scene.txt")]
/// use weir_library::{Budget, ReservationStep};
///
/// let mut remaining = Vec::new();
/// for step in [ReservationStep::Reserve(1), ReservationStep::Settle(2)] {
///     let reservation = Budget { id: "job-7", step };
///     let descriptors = &[Descriptor { budget: Some(&reservation), ..request.descriptors[0] }];
///     let request = Request { descriptors, ..request };
///     let decision = limiter.decide(Some(&rules), &request, timeout, &mut holds).await?;
///     remaining.push(decision.statuses[0].remaining);
/// }
/// assert_eq!(remaining, [1, 0]);
/// # Ok(()) }
/// ```
#[doc(inline)]
pub use weir_limiter::Budget;

/// What a job does about its hits: it takes them, reports what it used, or returns them.
///
/// ```
#[doc = include_str!("scene.txt")]
/// use weir_library::{Budget, ReservationStep};
///
/// let mut remaining = Vec::new();
/// for step in [ReservationStep::Reserve(1), ReservationStep::Cancel] {
///     let reservation = Budget { id: "job-7", step };
///     let descriptors = &[Descriptor { budget: Some(&reservation), ..request.descriptors[0] }];
///     let request = Request { descriptors, ..request };
///     let decision = limiter.decide(Some(&rules), &request, timeout, &mut holds).await?;
///     remaining.push(decision.statuses[0].remaining);
/// }
/// assert_eq!(remaining, [1, 2]);
/// # Ok(()) }
/// ```
#[doc(inline)]
pub use weir_limiter::ReservationStep;

/// What a limit with `burst` allows a user who has rested.
///
/// ```
#[doc = include_str!("scene.txt")]
/// let text = "domain: shop\ndescriptors: [{ key: user, rate: 2/m, burst: 4 }]".to_owned();
/// let file = RuleFile { name: "shop.yaml".to_owned(), text };
/// let (rules, _) = RuleSet::compile(&[file], &rules::RuleOptions::default(), None);
///
/// let decision = limiter.decide(Some(&rules), &request, timeout, &mut holds).await?;
/// let burst = decision.statuses[0].limit.and_then(|limit| limit.burst);
/// assert_eq!(burst.map(|burst| (burst.hits, burst.seconds.get())), Some((4, 120)));
/// # Ok(()) }
/// ```
#[doc(inline)]
pub use weir_limiter::Burst;

/// What a request is about: a user, a path, a user on a path.
///
/// ```
#[doc = include_str!("scene.txt")]
/// // Zero hits only look.
/// let look = &[Descriptor { hits_addend: Some(0), ..request.descriptors[0] }];
/// let request = Request { descriptors: look, ..request };
/// let decision = limiter.decide(Some(&rules), &request, timeout, &mut holds).await?;
/// assert_eq!(decision.statuses[0].remaining, 2);
/// # Ok(()) }
/// ```
#[doc(inline)]
pub use weir_limiter::Descriptor;

/// The hits of concurrency limits, which a request has until it is done. Most requests have none.
///
/// ```
#[doc = include_str!("scene.txt")]
/// let text = "
/// domain: shop
/// descriptors:
///   - { key: user, rate_limit: { algorithm: concurrency, requests_per_unit: 2 } }
/// ";
/// let file = RuleFile { name: "shop.yaml".to_owned(), text: text.to_owned() };
/// let (rules, _) = RuleSet::compile(&[file], &rules::RuleOptions::default(), None);
///
/// for over_limit in [false, false, true] {
///     let decision = limiter.decide(Some(&rules), &request, timeout, &mut holds).await?;
///     assert_eq!(decision.over_limit, over_limit);
/// }
/// // All three are done.
/// if let Some(taken) = holds.take() {
///     taken.release(limiter.store()).await;
/// }
/// let decision = limiter.decide(Some(&rules), &request, timeout, &mut holds).await?;
/// assert!(!decision.over_limit && holds.is_some());
/// # Ok(()) }
/// ```
#[doc(inline)]
pub use weir_limiter::Holds;

/// What a request has taken, to release it.
///
/// ```
#[doc = include_str!("scene.txt")]
/// use weir_library::TakenHolds;
///
/// limiter.decide(Some(&rules), &request, timeout, &mut holds).await?;
/// // Hits that are counted by windows are not released.
/// let taken: Option<TakenHolds> = holds;
/// assert!(taken.is_none());
/// # Ok(()) }
/// ```
#[doc(inline)]
pub use weir_limiter::TakenHolds;

/// The limiter of a program.
///
/// ```
#[doc = include_str!("scene.txt")]
/// for over_limit in [false, false, true] {
///     let decision = limiter.decide(Some(&rules), &request, timeout, &mut holds).await?;
///     assert_eq!(decision.over_limit, over_limit);
/// }
/// clock.advance(60_000_000);
/// let decision = limiter.decide(Some(&rules), &request, timeout, &mut holds).await?;
/// assert!(!decision.over_limit);
/// # Ok(()) }
/// ```
#[doc(inline)]
pub use weir_limiter::Limiter;

/// What the program sets, for all rules.
///
/// ```
#[doc = include_str!("scene.txt")]
/// let options = LimiterOptions { shadow_mode: true, ..LimiterOptions::default() };
/// let limiter = Limiter::new(MemoryStore::new(clock, 1_000_000), options);
///
/// let request = Request { hits_addend: 3, ..request };
/// let decision = limiter.decide(Some(&rules), &request, timeout, &mut holds).await?;
/// assert!(!decision.over_limit && decision.statuses[0].over_limit);
/// # Ok(()) }
/// ```
#[doc(inline)]
pub use weir_limiter::LimiterOptions;

/// A limit that the program knows and the rules do not.
///
/// ```
#[doc = include_str!("scene.txt")]
/// use weir_library::Override;
///
/// // One hit in three seconds.
/// let limit = Override { requests_per_unit: 1, unit: 1, unit_multiplier: Some(3) };
/// let descriptors = &[Descriptor { limit: Some(limit), ..request.descriptors[0] }];
/// let request = Request { descriptors, ..request };
/// limiter.decide(Some(&rules), &request, timeout, &mut holds).await?;
/// let decision = limiter.decide(Some(&rules), &request, timeout, &mut holds).await?;
/// assert_eq!(decision.retry_after(), Some(Duration::from_secs(3)));
/// # Ok(()) }
/// ```
#[doc(inline)]
pub use weir_limiter::Override;

/// What the program asks about.
///
/// ```
#[doc = include_str!("scene.txt")]
/// let request = Request { hits_addend: 2, ..request };
/// for over_limit in [false, true] {
///     let decision = limiter.decide(Some(&rules), &request, timeout, &mut holds).await?;
///     assert_eq!(decision.over_limit, over_limit);
/// }
/// # Ok(()) }
/// ```
#[doc(inline)]
pub use weir_limiter::Request;

/// Whether a request may pass, or how long to wait.
///
/// ```
#[doc = include_str!("scene.txt")]
/// let request = Request { hits_addend: 2, ..request };
/// let decision = limiter.decide(Some(&rules), &request, timeout, &mut holds).await?;
/// assert!(!decision.over_limit && decision.retry_after().is_none());
///
/// clock.advance(15_000_000);
/// let decision = limiter.decide(Some(&rules), &request, timeout, &mut holds).await?;
/// assert!(decision.over_limit);
/// assert_eq!(decision.retry_after(), Some(Duration::from_secs(45)));
/// assert_eq!(decision.statuses.len(), request.descriptors.len());
/// # Ok(()) }
/// ```
#[doc(inline)]
pub use weir_limiter::RequestDecision;

/// What the program has to handle: most of these are errors in the program, one is an outage of the store.
///
/// ```
#[doc = include_str!("scene.txt")]
/// use weir_library::RequestError;
///
/// let request = Request { domain: "", ..request };
/// let error = limiter.decide(Some(&rules), &request, timeout, &mut holds).await.unwrap_err();
/// assert_eq!(error, RequestError::EmptyDomain);
/// assert_eq!(error.to_string(), "rate limit domain must not be empty");
/// # Ok(()) }
/// ```
#[doc(inline)]
pub use weir_limiter::RequestError;

/// The limit that a program shows its clients, for instance in headers.
///
/// ```
#[doc = include_str!("scene.txt")]
/// let decision = limiter.decide(Some(&rules), &request, timeout, &mut holds).await?;
/// let (status, limit) = decision.shown().ok_or("no limit applies")?;
/// // `RateLimit-Limit: 2, 2;w=60`
/// assert_eq!(limit.quota(), (2, Some(60)));
/// assert_eq!(status.remaining, 1);
/// # Ok(()) }
/// ```
#[doc(inline)]
pub use weir_limiter::ShownLimit;

/// How a limit stands after the request.
///
/// ```
#[doc = include_str!("scene.txt")]
/// let decision = limiter.decide(Some(&rules), &request, timeout, &mut holds).await?;
/// let status = &decision.statuses[0];
/// assert_eq!((status.over_limit, status.remaining), (false, 1));
/// assert_eq!((status.reset_after, status.reset_seconds()), (60_000_000, 60));
/// # Ok(()) }
/// ```
#[doc(inline)]
pub use weir_limiter::Status;

/// Runs the example of the page.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/library.md")]
struct LibraryPage;
