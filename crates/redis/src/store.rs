//! The Redis store: charges the batch of a request (one charge for each of its keys) over the connections of the
//! current thread, and cancels batches that nobody waits for.
//!
//! **Limits of one second** may have a Redis of their own. Charges whose plan (the limits of a rule) is
//! [per second](weir_limit::Plan::per_second) go to it and all others to the main one, at the same time. All keys of a
//! domain with `charge: together` (all or none) are in the main one, as they are charged in one call.

use std::future::Future;
use std::iter::{once, zip};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use futures_util::FutureExt;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::admin::connections::AdminConnections;
use super::cluster::Cluster;
use super::connection::target::Target;
use super::connection::{Connection, driver};
use super::context::{RedisContext, RedisCounts};
use super::deadlines::Deadlines;
use super::key;
use super::options::{RedisOptions, Topology};
use super::pending_charge::{AllAnswers, Group, PendingCharge, RedisKey, Reply, Taker};
use weir_common::threads;
use weir_limit::{Op, Plan};
use weir_store::local::LeaseCharge;
use weir_store::{Answers, Batch, Charge, Grant, Store, StoreError};

/// Keeps states in Redis, where all programs with the same keys share them.
///
/// **Connections.** One for each of [`RedisOptions::connections`] threads, and for each master of a cluster. It is
/// opened with the first charge of its thread, on the runtime of that, and again whenever it is lost. What concurrent
/// requests of a thread charge is sent together.
///
/// **Errors.** A charge ends within the timeout of its batch. It fails at once while its connection is down, or is
/// slow. If it failed with an error that is no [refusal](StoreError::is_refusal), it may have been made.
#[derive(Debug)]
pub struct RedisStore {
    pub(super) shared: Arc<RedisContext>,
    /// One for each serving thread, started at its first use, on the current runtime.
    pub(super) connections: Box<[OnceLock<ThreadConnections>]>,
    deadlines: Box<[OnceLock<Arc<Deadlines>>]>,
    next_group: AtomicU32,
    pub(super) admin: AdminConnections,
    /// Names this process's text among those of replicas: new at each start, as the old text lives until it expires.
    pub(super) replica_id: String,
    /// The Redis of limits of one second, if it is another one.
    pub(super) per_second: Option<Box<RedisStore>>,
}

impl RedisStore {
    /// Returns a store that does not connect yet.
    pub fn new(options: RedisOptions) -> RedisStore {
        let threads = 0..options.connections.max(1);
        let connections = threads.clone().map(|_| OnceLock::new()).collect();
        let deadlines = threads.map(|_| OnceLock::new()).collect();
        let shared = Arc::new(RedisContext::new(options));
        let (next_group, admin) = (AtomicU32::new(1), AdminConnections::new(shared.clone()));
        let replica_id = key::random_hex();
        let per_second = None;
        RedisStore { shared, connections, deadlines, next_group, admin, replica_id, per_second }
    }

    /// Keeps limits of one second in a second Redis, if there is one.
    pub fn with_per_second(mut self, second: Option<RedisOptions>) -> RedisStore {
        self.per_second = second.map(|options| Box::new(RedisStore::new(options)));
        self
    }

    /// Returns this store and the one of limits of one second, each with its name.
    pub(super) fn instances(&self) -> impl Iterator<Item = (&'static str, &RedisStore)> {
        let second = self.per_second.as_deref().map(|second| ("per_second", second));
        once(("main", self)).chain(second)
    }

    /// Returns the store that keeps the states of a plan, in a domain with `charge: together` or not.
    pub(super) fn store_of(&self, plan: &Plan, together: bool) -> &RedisStore {
        let second = self.per_second.as_deref().filter(|_| plan.per_second() && !together);
        second.unwrap_or(self)
    }

    /// Returns the counts for metrics.
    pub fn counts(&self) -> &RedisCounts {
        &self.shared.counts
    }

    /// Returns how many connections there are, and how many of them are down. Slow ones are not down.
    pub fn connections_down(&self) -> (usize, usize) {
        let connections: Vec<Arc<Connection>> = self.all_connections().collect();
        let unused = connections.iter().filter(|connection| connection.down().is_some());
        (connections.len(), unused.filter(|connection| !connection.is_slow()).count())
    }

    /// Returns how many connections are open, and probed after a slow round trip.
    pub fn connections_slow(&self) -> usize {
        self.all_connections().filter(|connection| connection.is_slow()).count()
    }

    pub(super) fn connections_up(&self) -> usize {
        self.all_connections().filter(|connection| connection.is_up()).count()
    }

    pub(super) fn all_connections(&self) -> impl Iterator<Item = Arc<Connection>> + '_ {
        self.connections.iter().filter_map(OnceLock::get).flat_map(ThreadConnections::all)
    }

    /// Waits until Redis has answered for the first time on each thread that has used the store: each node of a cluster
    /// that serves slots. Connects the current thread, so that its first request need not wait for that.
    pub async fn answered(&self) {
        let mut changed = self.shared.changed.subscribe();
        self.connections();
        let all = || self.connections.iter().filter_map(OnceLock::get);
        // It cannot fail: this store holds the sender.
        let _ = changed.wait_for(|()| all().all(ThreadConnections::has_answered)).await;
    }

    pub(super) fn connections(&self) -> &ThreadConnections {
        let of_thread = &self.connections[threads::number() % self.connections.len()];
        of_thread.get_or_init(|| ThreadConnections::start(self.shared.clone()))
    }

    fn deadlines(&self) -> &Deadlines {
        let of_thread = &self.deadlines[threads::number() % self.deadlines.len()];
        of_thread.get_or_init(Deadlines::start)
    }

    async fn charge_both(&self, second: &RedisStore, batch: Batch<'_>) -> Answers {
        let is_second = |charge: &Charge<'_>| charge.plan.per_second();
        let seconds = batch.charges.iter().filter(|charge| is_second(charge)).count();
        if seconds == 0 {
            return self.start_here(batch).await;
        } else if seconds == batch.charges.len() {
            return second.start_here(batch).await;
        }
        type Part<'a> = SmallVec<[Charge<'a>; 4]>;
        let (second_part, main_part): (Part<'_>, Part<'_>) =
            batch.charges.iter().copied().partition(is_second);
        let [main_part, second_part] =
            [&main_part, &second_part].map(|charges| Batch { charges, ..batch });
        let (of_main, of_second) =
            tokio::join!(self.start_here(main_part), second.start_here(second_part));
        batch.merge(is_second, of_second, of_main)
    }

    /// Starts to charge a batch, whatever its plans.
    fn start_here<'a>(
        &'a self,
        batch: Batch<'a>,
    ) -> impl Future<Output = Answers> + Send + use<'a> {
        let waiting = self.send(batch, None);
        async move {
            AllAnswers(&waiting.reply).await;
            waiting.reply.take()
        }
    }

    /// Charges a batch of one charge, whatever its plan, and returns what undoes it.
    pub(super) async fn grant_here(&self, batch: Batch<'_>) -> Result<Grant, StoreError> {
        let granted = Arc::new(OnceLock::new());
        let waiting = self.send(batch, Some(Box::new(Taker::Grant(granted.clone()))));
        AllAnswers(&waiting.reply).await;
        waiting.reply.take().pop().unwrap_or(Err(StoreError::Unavailable))?;
        granted.get().cloned().ok_or(StoreError::Unavailable)
    }

    // The rare grants must not turn it into a call where requests have it inlined.
    #[inline(always)]
    fn send<'a>(&'a self, batch: Batch<'a>, taker: Option<Box<Taker>>) -> CancelOnDrop<'a> {
        let connections = self.connections();
        let deadline = Instant::now().checked_add(batch.timeout);
        let whole = batch.timeout.saturating_add(batch.waited);
        let unanswered = match whole < self.shared.options.caller_deadline_below {
            true => StoreError::CallerDeadline,
            false => StoreError::TimedOut,
        };
        let (charges, span) = (batch.charges.len(), batch.span);
        let reply = Arc::new(Reply::new(charges, unanswered, deadline, span).with_taker(taker));
        let options = &self.shared.options;
        let pending = batch.charges.iter().enumerate().map(|(index, charge)| {
            let key = RedisKey::new(options, &charge.key, charge.plan, batch.together);
            PendingCharge::new(key, charge, &reply, index)
        });
        if batch.together {
            let id = NonZeroU32::new(self.next_group.fetch_add(1, Ordering::Relaxed));
            let id = id.unwrap_or(NonZeroU32::MIN);
            let group = Group { id, quota_passes: batch.quota_passes };
            connections.push(zip(pending, batch.charges).map(|(pending, charge)| PendingCharge {
                group: Some(group),
                denial_where_failed: charge.denial_where_failed(batch.on_failure),
                ..pending
            }));
        } else {
            connections.push(pending);
        }
        if let Some(deadline) = deadline {
            self.deadlines().add(deadline, &reply);
        }
        CancelOnDrop { options, connections, batch, reply }
    }
}

impl Store for RedisStore {
    fn start<'a>(
        &'a self,
        batch: Batch<'a>,
        _: &mut Answers,
    ) -> Option<impl Future<Output = Answers> + Send + use<'a>> {
        Some(match &self.per_second {
            // In a box, so that the futures of others stay small.
            Some(second) if !batch.together => {
                Box::pin(self.charge_both(second, batch)).left_future()
            }
            _ => self.start_here(batch).right_future(),
        })
    }

    fn charge_lease(&self, lease: Arc<LeaseCharge>) {
        let store = self.store_of(&lease.plan, false);
        let (options, reply) = (&store.shared.options, Reply::to_lease(lease.clone()));
        let pending = lease.with_charge(|charge| {
            let key = RedisKey::new(options, &charge.key, charge.plan, false);
            PendingCharge::new(key, charge, &reply, 0)
        });
        store.connections().push([pending]);
    }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        self.connections.iter().filter_map(OnceLock::get).for_each(ThreadConnections::close);
    }
}

/// Cancels a batch that is dropped before it was answered, because its caller is gone.
///
/// Charges that were not sent yet are not sent. Holds with an id are released, over the same connection and so after
/// they are taken. Whether others were taken may be unknown. Reservations are cancelled: here if their answers have
/// come, else by the round trip that answers them, because only an answer says how many hits are reserved.
struct CancelOnDrop<'a> {
    options: &'a RedisOptions,
    connections: &'a ThreadConnections,
    batch: Batch<'a>,
    reply: Arc<Reply>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let Some(answers) = self.reply.cancel() else { return };
        let Batch { charges, together, .. } = self.batch;
        if charges.iter().all(|charge| charge.hold.is_none()) {
            return;
        }
        let reply = Reply::unawaited(charges.len());
        // One call answers a batch charged together. If that was denied, nothing is reserved.
        let known = answers.iter().all(Result::is_ok);
        let keeps = !together || known && !self.batch.is_denied(&answers);
        let refunds = zip(charges, answers).enumerate().filter_map(|(index, (charge, answer))| {
            let pending = |charge: &Charge<'_>| {
                let key = RedisKey::new(self.options, &charge.key, charge.plan, together);
                PendingCharge::new(key, charge, &reply, index)
            };
            if let Some(cancelling) = charge.cancelling(&answer) {
                return keeps.then(|| pending(&cancelling));
            }
            let hits = charge.held(&answer).filter(|_| charge.hold.is_some())?;
            Some(PendingCharge { op: Op::Refund(hits), ..pending(charge) })
        });
        self.connections.push(refunds);
    }
}

#[derive(Debug)]
pub(super) enum ThreadConnections {
    Single(Arc<Connection>),
    Cluster(Arc<Cluster>),
}

impl ThreadConnections {
    /// Starts to connect, on the current runtime.
    fn start(shared: Arc<RedisContext>) -> ThreadConnections {
        let target = match &shared.options.topology {
            Topology::Single(endpoint) | Topology::Proxy(endpoint) => {
                Target::Server(endpoint.clone())
            }
            Topology::Sentinel { master, sentinels } => {
                Target::Master { name: master.clone(), sentinels: sentinels.clone() }
            }
            Topology::Cluster(seeds) => {
                return ThreadConnections::Cluster(Cluster::start(seeds.clone(), shared));
            }
        };
        ThreadConnections::Single(driver::start(target, shared, None))
    }

    fn has_answered(&self) -> bool {
        match self {
            ThreadConnections::Single(connection) => connection.has_answered(),
            ThreadConnections::Cluster(cluster) => cluster.has_answered(),
        }
    }

    /// Returns whether the server of a slot has answered, or could not be reached.
    pub(super) fn has_tried(&self, slot: u16) -> bool {
        match self {
            ThreadConnections::Single(connection) => connection.has_tried(),
            ThreadConnections::Cluster(cluster) => cluster.has_tried(slot),
        }
    }

    fn push(&self, charges: impl IntoIterator<Item = PendingCharge>) {
        match self {
            ThreadConnections::Single(connection) => connection.push(charges),
            ThreadConnections::Cluster(cluster) => cluster.push(charges),
        }
    }

    /// Returns the server to which charges of a slot go, if that is known.
    pub(super) fn target(&self, slot: u16) -> Option<Target> {
        match self {
            ThreadConnections::Single(connection) => Some(match connection.endpoint() {
                Some(endpoint) => Target::Server(endpoint),
                None => connection.target.clone(),
            }),
            ThreadConnections::Cluster(cluster) => cluster.target(slot),
        }
    }

    fn all(&self) -> Vec<Arc<Connection>> {
        match self {
            ThreadConnections::Single(connection) => vec![connection.clone()],
            ThreadConnections::Cluster(cluster) => cluster.connections(),
        }
    }

    fn close(&self) {
        match self {
            ThreadConnections::Single(connection) => connection.close(),
            ThreadConnections::Cluster(cluster) => cluster.close(),
        }
    }
}
