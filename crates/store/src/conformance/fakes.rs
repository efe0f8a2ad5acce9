//! Stores that fail, hang, count and are shared, to test wrappers with.

use std::future::{Future, pending};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::charge::{Answers, Batch, Charge};
use crate::error::StoreError;
use crate::local::Local;
use crate::local::table::LeaseCharge;
use crate::states::{Grant, StateKey, States};
use crate::store::Store;
use weir_limit::{KeyState, Micros, Plan};

/// Fails chosen charges and forwards the others; counts both.
pub struct Fake<S> {
    inner: S,
    fails: Mutex<Fails>,
    /// The number of batches.
    pub calls: AtomicUsize,
    /// The number of charges.
    pub charges: AtomicUsize,
}

type Fails = Box<dyn Fn(&Charge<'_>) -> Option<StoreError> + Send>;

impl<S: Store> Fake<S> {
    /// Returns a fake around a store.
    pub fn new(inner: S) -> Arc<Fake<S>> {
        Arc::new(Fake {
            inner,
            fails: Mutex::new(Box::new(|_| None)),
            calls: AtomicUsize::new(0),
            charges: AtomicUsize::new(0),
        })
    }

    /// Sets which charges fail from now on.
    pub fn fail(&self, which: impl Fn(&Charge<'_>) -> Option<StoreError> + Send + 'static) {
        *self.fails.lock() = Box::new(which);
    }

    /// Returns the number of charges since the last call.
    pub fn asked(&self) -> usize {
        self.charges.swap(0, Ordering::Relaxed)
    }
}

impl<S: Store> Store for Fake<S> {
    fn start<'a>(
        &'a self,
        batch: Batch<'a>,
        _: &mut Answers,
    ) -> Option<impl Future<Output = Answers> + Send + use<'a, S>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.charges.fetch_add(batch.charges.len(), Ordering::Relaxed);
        let failed: Vec<Option<StoreError>> = {
            let fails = self.fails.lock();
            batch.charges.iter().map(&*fails).collect()
        };
        Some(async move {
            let charges: Vec<Charge<'_>> = std::iter::zip(batch.charges, &failed)
                .filter_map(|(charge, failed)| failed.is_none().then_some(*charge))
                .collect();
            let mut inner = Answers::new();
            self.inner.charge(&Batch { charges: &charges, ..batch }, &mut inner).await;
            let mut inner = inner.into_iter();
            let answers = failed.into_iter().map(|failed| match failed {
                Some(failed) => Err(failed),
                None => inner.next().unwrap(),
            });
            answers.collect()
        })
    }
}

impl<S: States> States for Fake<S> {
    async fn read(
        &self,
        key: StateKey<'_>,
        spans: &[Micros],
        timeout: Duration,
    ) -> Result<KeyState, StoreError> {
        let failed = (self.fails.lock())(&key.charge());
        match failed {
            Some(failed) => Err(failed),
            None => self.inner.read(key, spans, timeout).await,
        }
    }

    async fn reset(&self, key: StateKey<'_>, timeout: Duration) -> Result<(), StoreError> {
        let failed = (self.fails.lock())(&key.charge());
        match failed {
            Some(failed) => Err(failed),
            None => self.inner.reset(key, timeout).await,
        }
    }

    async fn grant(&self, batch: &Batch<'_>) -> Result<Grant, StoreError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.charges.fetch_add(batch.charges.len(), Ordering::Relaxed);
        let failed = (self.fails.lock())(&batch.charges[0]);
        match failed {
            Some(failed) => Err(failed),
            None => self.inner.grant(batch).await,
        }
    }
}

/// A store that never answers.
pub struct Never;

impl Store for Never {
    fn start<'a>(
        &'a self,
        _: Batch<'a>,
        _: &mut Answers,
    ) -> Option<impl Future<Output = Answers> + Send + use<'a>> {
        Some(pending())
    }
}

/// Charges at once, but answers only after a permit is added.
pub struct Gated<S> {
    /// The store that charges.
    pub inner: S,
    /// A permit for each answer.
    pub release: tokio::sync::Semaphore,
}

impl<S: Store> Store for Gated<S> {
    fn start<'a>(
        &'a self,
        batch: Batch<'a>,
        _: &mut Answers,
    ) -> Option<impl Future<Output = Answers> + Send + use<'a, S>> {
        Some(async move {
            let mut answers = Answers::new();
            self.inner.charge(&batch, &mut answers).await;
            self.release.acquire().await.unwrap().forget();
            answers
        })
    }
}

impl<S: States> States for Gated<S> {
    async fn read(
        &self,
        key: StateKey<'_>,
        spans: &[Micros],
        timeout: Duration,
    ) -> Result<KeyState, StoreError> {
        self.inner.read(key, spans, timeout).await
    }

    async fn reset(&self, key: StateKey<'_>, timeout: Duration) -> Result<(), StoreError> {
        self.inner.reset(key, timeout).await
    }

    async fn grant(&self, batch: &Batch<'_>) -> Result<Grant, StoreError> {
        let granted = self.inner.grant(batch).await;
        self.release.acquire().await.unwrap().forget();
        granted
    }
}

impl<S> Local<S> {
    /// Returns the store inside.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

/// One store of several wrappers.
impl<S: Store> Store for Arc<S> {
    fn start<'a>(
        &'a self,
        batch: Batch<'a>,
        answers: &mut Answers,
    ) -> Option<impl Future<Output = Answers> + Send + use<'a, S>> {
        (**self).start(batch, answers)
    }

    fn charge_lease(&self, charge: Arc<LeaseCharge>) {
        (**self).charge_lease(charge);
    }
}

impl<S: States> States for Arc<S> {
    async fn read(
        &self,
        key: StateKey<'_>,
        spans: &[Micros],
        timeout: Duration,
    ) -> Result<KeyState, StoreError> {
        (**self).read(key, spans, timeout).await
    }

    fn read_local(&self, key: StateKey<'_>) -> Option<(Arc<Plan>, KeyState)> {
        (**self).read_local(key)
    }

    async fn reset(&self, key: StateKey<'_>, timeout: Duration) -> Result<(), StoreError> {
        (**self).reset(key, timeout).await
    }

    async fn grant(&self, batch: &Batch<'_>) -> Result<Grant, StoreError> {
        (**self).grant(batch).await
    }
}
