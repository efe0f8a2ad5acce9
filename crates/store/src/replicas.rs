//! The number of replicas among which limits are divided while they cannot count together.

use std::fmt::Debug;
use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::Mutex;
use tokio::time::{MissedTickBehavior, interval};

use super::StoreError;

/// The shortest time between two announcements of a replica.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(1);

/// How long a replica that no longer announces itself is counted.
pub(crate) const ANNOUNCED_FOR: Duration = Duration::from_secs(10);

/// Why a replica could not announce itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnnounceError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store does not permit it, and will not.
    #[error("{0}")]
    Refused(String),
}

/// The replicas that are announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced {
    pub replicas: u32,
    /// How long the register has existed. One younger than 10 seconds may lack replicas.
    pub register_age: Duration,
}

/// A register in which the replicas that share a store announce themselves. Futures resolve within a second
/// or so.
pub trait ReplicaRegister: Debug + Send + Sync {
    /// Resolves when the server of the register has answered, or could not be reached.
    fn tried(&self) -> BoxFuture<'_, ()>;

    /// Announces this replica for 10 seconds, and returns the replicas that are announced.
    fn announce(&self) -> BoxFuture<'_, Result<Announced, AnnounceError>>;

    /// Removes this replica from the register.
    fn withdraw(&self) -> BoxFuture<'_, ()>;
}

/// The number of replicas: as configured, until some have been counted.
///
/// A register that was lost, as when Redis restarts without its data, lacks replicas until all have announced
/// themselves again. Until it is 10 seconds old, the number only rises.
#[derive(Debug)]
pub(crate) struct ReplicaCount {
    configured: u32,
    /// 0 if none have been counted.
    counted: AtomicU32,
    follows: bool,
    /// Whether this replica has withdrawn; locked while it announces itself.
    withdrawn: Mutex<bool>,
}

impl ReplicaCount {
    /// Returns the number `configured`, where 0 is 1.
    pub fn new(configured: u32) -> ReplicaCount {
        ReplicaCount {
            configured: configured.max(1),
            counted: AtomicU32::new(0),
            follows: false,
            withdrawn: Mutex::default(),
        }
    }

    /// Lets [`follow`](Self::follow) count the replicas.
    pub fn following(self) -> ReplicaCount {
        ReplicaCount { follows: true, ..self }
    }

    /// Whether replicas are counted.
    pub fn follows(&self) -> bool {
        self.follows
    }

    #[cfg(test)]
    pub fn set(&self, counted: u32) {
        self.counted.store(counted, Relaxed);
    }

    pub fn get(&self) -> u32 {
        match self.counted.load(Relaxed) {
            0 => self.configured,
            counted => counted,
        }
    }

    /// Announces this replica and counts all of them, once a second. Never ends.
    pub async fn follow(&self, register: &dyn ReplicaRegister) {
        // Else the first announcement would fail only because nothing is connected yet.
        register.tried().await;
        let mut ticks = interval(ANNOUNCE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Err(AnnounceError::Refused(error)) = self.announce(register).await {
                let replicas = self.get();
                tracing::warn!(
                    error,
                    replicas,
                    "replicas are not counted any more: redis refuses the commands"
                );
                return pending().await;
            }
        }
    }

    /// Announces this replica, unless it has withdrawn, and counts all of them.
    ///
    /// # Errors
    ///
    /// The register cannot be reached, or refuses it. The number stays.
    pub async fn announce(&self, register: &dyn ReplicaRegister) -> Result<(), AnnounceError> {
        let withdrawn = self.withdrawn.lock().await;
        if *withdrawn {
            return Ok(());
        }
        let Announced { replicas, register_age } = register.announce().await?;
        let least = if register_age < ANNOUNCED_FOR { self.counted.load(Relaxed) } else { 1 };
        self.counted.store(replicas.max(least).max(1), Relaxed);
        Ok(())
    }

    /// Removes this replica from the register for good, if it announces itself there.
    pub async fn withdraw(&self, register: &dyn ReplicaRegister) {
        if self.follows {
            *self.withdrawn.lock().await = true;
            register.withdraw().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use futures_util::FutureExt;

    use super::*;

    /// Returns what a test sets.
    #[derive(Debug)]
    struct FakeRegister {
        announced: parking_lot::Mutex<Result<Announced, AnnounceError>>,
        calls: AtomicUsize,
        withdrawn: AtomicUsize,
    }

    impl FakeRegister {
        fn new(replicas: u32, age_seconds: u64) -> FakeRegister {
            let register = FakeRegister {
                announced: parking_lot::Mutex::new(Err(StoreError::TimedOut.into())),
                calls: AtomicUsize::new(0),
                withdrawn: AtomicUsize::new(0),
            };
            register.set(replicas, age_seconds);
            register
        }

        fn set(&self, replicas: u32, age_seconds: u64) {
            let register_age = Duration::from_secs(age_seconds);
            *self.announced.lock() = Ok(Announced { replicas, register_age });
        }

        fn fail(&self, error: AnnounceError) {
            *self.announced.lock() = Err(error);
        }
    }

    impl ReplicaRegister for FakeRegister {
        fn tried(&self) -> BoxFuture<'_, ()> {
            std::future::ready(()).boxed()
        }

        fn announce(&self) -> BoxFuture<'_, Result<Announced, AnnounceError>> {
            self.calls.fetch_add(1, Relaxed);
            std::future::ready(self.announced.lock().clone()).boxed()
        }

        fn withdraw(&self) -> BoxFuture<'_, ()> {
            self.withdrawn.fetch_add(1, Relaxed);
            std::future::ready(()).boxed()
        }
    }

    #[tokio::test]
    async fn the_number_is_configured_until_some_are_counted_and_outlasts_failures() {
        let (count, register) = (ReplicaCount::new(20).following(), FakeRegister::new(3, 0));
        assert_eq!((count.get(), ReplicaCount::new(0).get()), (20, 1));
        register.fail(StoreError::Unavailable.into());
        assert!(count.announce(&register).await.is_err());
        assert_eq!(count.get(), 20);
        register.set(3, 0);
        count.announce(&register).await.unwrap();
        assert_eq!(count.get(), 3);
        register.fail(StoreError::TimedOut.into());
        assert!(count.announce(&register).await.is_err());
        assert_eq!(count.get(), 3, "those seen last");
    }

    #[tokio::test]
    async fn a_register_that_was_lost_lowers_the_number_only_when_all_had_time_to_return() {
        let (count, register) = (ReplicaCount::new(1).following(), FakeRegister::new(10, 60));
        count.announce(&register).await.unwrap();
        for (replicas, age, wanted) in [(1, 0, 10), (4, 9, 10), (12, 9, 12), (2, 10, 2)] {
            register.set(replicas, age);
            count.announce(&register).await.unwrap();
            assert_eq!(count.get(), wanted, "{replicas} at {age} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_announces_itself_once_a_second_until_it_is_refused() {
        let (count, register) = (ReplicaCount::new(1).following(), FakeRegister::new(2, 60));
        let calls = || register.calls.load(Relaxed);
        let run = async |time| {
            assert!(tokio::time::timeout(time, count.follow(&register)).await.is_err());
        };
        run(Duration::from_millis(9_500)).await;
        assert_eq!((calls(), count.get()), (10, 2));
        register.fail(AnnounceError::Refused("NOPERM".into()));
        run(Duration::from_secs(60)).await;
        assert_eq!((calls(), count.get()), (11, 2), "it is off");
    }

    #[tokio::test]
    async fn a_replica_that_has_withdrawn_does_not_return() {
        let (count, register) = (ReplicaCount::new(1).following(), FakeRegister::new(2, 60));
        count.withdraw(&register).await;
        count.announce(&register).await.unwrap();
        assert_eq!((register.calls.load(Relaxed), register.withdrawn.load(Relaxed)), (0, 1));
        let fixed = ReplicaCount::new(1);
        fixed.withdraw(&register).await;
        assert_eq!(register.withdrawn.load(Relaxed), 1, "it is not in the register");
    }
}
