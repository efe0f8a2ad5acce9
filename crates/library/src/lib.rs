//! Limits the requests of a program by weir's rule files, in its own process.
//!
//! Rules say how much is allowed, a store counts, and a [`Limiter`] decides:
//!
//! ```
//! use std::time::Duration;
//!
//! use weir_library::rules::{self, RuleFile, RuleSet};
//! use weir_library::store::MemoryStore;
//! use weir_library::{Descriptor, Holds, Limiter, Options, Request, SystemClock};
//!
//! const RULES: &str = "
//! domain: shop
//! descriptors:
//!   - key: user
//!     rate_limit: { algorithm: gcra, unit: hour, requests_per_unit: 20, burst: 1 }
//! ";
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), weir_library::RequestError> {
//! let file = RuleFile { name: "shop.yaml".to_owned(), text: RULES.to_owned() };
//! let (rules, problems) = RuleSet::compile(&[file], &rules::Options::default(), None);
//! assert!(problems.is_empty(), "{problems:?}");
//! // At most a million counters.
//! let limiter = Limiter::new(MemoryStore::new(SystemClock::new(), 1_000_000), Options::default());
//!
//! let descriptors = &[Descriptor { entries: &[("user", "ann")], ..Descriptor::default() }];
//! let request = Request { domain: "shop", descriptors, ..Request::default() };
//! // What the request takes of concurrency limits, until it is done.
//! let mut holds = Holds::default();
//! // How long the store may take.
//! let budget = Duration::from_millis(100);
//!
//! let decision = limiter.decide(Some(&rules), &request, budget, &mut holds).await?;
//! assert!(!decision.over_limit && decision.retry_after().is_none());
//! let decision = limiter.decide(Some(&rules), &request, budget, &mut holds).await?;
//! assert!(decision.over_limit);
//! // One each three minutes.
//! assert!(decision.retry_after().is_some_and(|wait| wait <= Duration::from_secs(180)));
//!
//! holds.release(limiter.store()).await;
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

pub use weir_common::clock::{Clock, Monotonic, SystemClock};
pub use weir_limiter::{
    Budget, BudgetStep, Descriptor, Holds, Limiter, Options, Override, Request,
};
pub use weir_limiter::{Burst, RequestDecision, RequestError, ShownLimit, Status};

pub mod rules {
    //! What is allowed: rule files, and the problems in them.

    pub use weir_rules::source::{RuleFile, Selection};
    pub use weir_rules::{Loaded, Options, Problem, RuleSet, Severity};
}

pub mod store {
    //! Where counters are.

    pub use weir_store::guard::{Guard, GuardOptions};
    pub use weir_store::memory::MemoryStore;
    pub use weir_store::{OnStoreFailure, Store, StoreError};

    pub mod disk {
        //! Counters that survive a restart.

        pub use weir_common::threads::Failures;
        pub use weir_store::disk::{DiskStore, Options};
    }

    #[cfg(feature = "redis")]
    pub mod redis {
        //! Counters that programs share.

        pub use weir_common::client_tls::{ClientCertificates, ClientFiles, PemFile};
        pub use weir_store::redis::{Access, Endpoint, Login, Options, PasswordFile};
        pub use weir_store::redis::{Clock, RedisStore, Tls, Topology};
    }
}

/// Runs the example of the page.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/library.md")]
struct LibraryPage;
