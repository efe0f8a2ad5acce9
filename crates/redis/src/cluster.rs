//! A Redis Cluster, for one thread: a connection to each node, and the map of slots that says where charges go.
//!
//! A node that redirects charges has not counted them, and they are sent on. A node that fails, fails only its own
//! keys. Redirects are followed only to nodes that the cluster lists, so that credentials go nowhere else; before one
//! is refused, the list is read again.

mod nodes;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use redis::{ServerError, ServerErrorKind};
use smallvec::{SmallVec, smallvec};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use self::nodes::{ClusterView, Nodes, RedirectTarget};
use super::connection::driver::{self, ClusterEvent, MAX_BACKOFF};
use super::connection::error::ConnectError;
use super::connection::target::Target;
use super::connection::{Connection, handshake};
use super::context::RedisContext;
use super::key::SLOTS;
use super::options::Endpoint;
use super::pending_charge::{PendingCharge, fail_all};
use super::round_trip::Redirect;
use weir_store::StoreError;

/// How often the slots are read without a sign of a change.
const REFRESH_INTERVAL: Duration = Duration::from_secs(30);

const MIN_REFRESH_INTERVAL: Duration = Duration::from_millis(50);

/// The most redirects that a charge or a command follows.
pub(super) const MAX_HOPS: u8 = 5;

/// A cluster, as one thread's connections see it.
#[derive(Debug)]
pub(super) struct Cluster {
    shared: Arc<RedisContext>,
    seeds: Vec<Endpoint>,
    connections: Mutex<HashMap<Endpoint, Arc<Connection>>>,
    slots: ArcSwap<Vec<Option<Arc<Connection>>>>,
    nodes: ArcSwap<Nodes>,
    /// Redirects to unknown nodes, until the nodes have been read again.
    unresolved: Mutex<Vec<Reroute>>,
    stale: Notify,
    /// Whether reading the slots has ended once, well or not.
    read_once: AtomicBool,
    closed: AtomicBool,
}

#[derive(Debug)]
struct Reroute {
    charges: Vec<PendingCharge>,
    from: Endpoint,
    to: RedirectTarget,
}

type ForConnection<'l> = (&'l Arc<Connection>, SmallVec<[PendingCharge; 1]>);

impl Cluster {
    pub fn start(seeds: Vec<Endpoint>, shared: Arc<RedisContext>) -> Arc<Cluster> {
        let slots = ArcSwap::from_pointee(vec![None; SLOTS.into()]);
        let (connections, nodes, unresolved, stale, read_once, closed) = Default::default();
        let cluster = Arc::new(Cluster {
            shared,
            seeds,
            connections,
            slots,
            nodes,
            unresolved,
            stale,
            read_once,
            closed,
        });
        tokio::spawn(refresh(Arc::downgrade(&cluster)));
        cluster
    }

    /// Sends charges to the nodes of their slots; those for one node share a round trip.
    pub fn push(&self, charges: impl IntoIterator<Item = PendingCharge>) {
        let slots = self.slots.load();
        let mut by_connection: SmallVec<[ForConnection<'_>; 4]> = SmallVec::new();
        for charge in charges {
            let Some(Some(connection)) = slots.get(usize::from(charge.slot)) else {
                charge.fail(StoreError::Unavailable);
                continue;
            };
            match by_connection.iter_mut().find(|(other, _)| Arc::ptr_eq(other, connection)) {
                Some((_, charges)) => charges.push(charge),
                None => by_connection.push((connection, smallvec![charge])),
            }
        }
        for (connection, charges) in by_connection {
            connection.push(charges);
        }
    }

    fn serving(&self, slot: u16) -> Option<Arc<Connection>> {
        self.slots.load().get(usize::from(slot))?.clone()
    }

    pub fn target(&self, slot: u16) -> Option<Target> {
        Some(self.serving(slot)?.target.clone())
    }

    pub fn refresh_soon(&self) {
        self.stale.notify_one();
    }

    /// Returns the node that a redirect by `node` leads to. If the cluster does not list it, its nodes are read again.
    pub fn redirected(&self, node: &Endpoint, redirect: &ServerError) -> Option<Target> {
        let to = RedirectTarget::parse(redirect.details().unwrap_or(""), node);
        let to = to.filter(|to| self.nodes.load().include(to));
        if to.is_none() || redirect.kind() == Some(ServerErrorKind::Moved) {
            self.refresh_soon();
        }
        to.map(|to| Target::Node(to.endpoint))
    }

    fn connection(self: &Arc<Self>, endpoint: &Endpoint) -> Arc<Connection> {
        let mut connections = self.connections.lock();
        let start = || {
            let (cluster, node) = (Arc::downgrade(self), endpoint.clone());
            let events = Box::new(move |event| on_event(&cluster, &node, event));
            driver::start(Target::Node(endpoint.clone()), self.shared.clone(), Some(events))
        };
        connections.entry(endpoint.clone()).or_insert_with(start).clone()
    }

    fn apply(self: &Arc<Self>, view: ClusterView) {
        let mut slots = vec![None; SLOTS.into()];
        for (first, last, endpoint) in &view.slots {
            let connection = self.connection(endpoint);
            for slot in *first..=(*last).min(SLOTS - 1) {
                slots[usize::from(slot)] = Some(connection.clone());
            }
        }
        self.slots.store(Arc::new(slots));
        self.connections.lock().retain(|endpoint, connection| {
            // A new master has no slots until the first one has been moved to it.
            let kept = view.slots.iter().any(|(_, _, node)| node == endpoint)
                || view.nodes.masters.contains(endpoint);
            if !kept {
                connection.close();
            }
            kept
        });
        if let Some(error) = &view.nodes_error {
            self.shared.log.nodes_unknown(error);
        }
        self.nodes.store(Arc::new(view.nodes));
        self.shared.changed.send_replace(());
    }

    /// Sends on what a node redirected; by the known slots where its error names no other node.
    fn follow(self: &Arc<Self>, node: &Endpoint, redirect: Redirect) {
        let Redirect { kind, error, charges } = redirect;
        let to = match kind {
            // The other keys are being moved: the same node is asked again.
            ServerErrorKind::TryAgain => {
                Some(RedirectTarget { endpoint: node.clone(), same_host: false })
            }
            _ => RedirectTarget::parse(error.details().unwrap_or(""), node),
        };
        if kind == ServerErrorKind::Moved {
            self.stale.notify_one();
        }
        let mut charges = charges.into_vec();
        for charge in &mut charges {
            charge.hops += 1;
            // A node to which a slot is being moved needs `ASKING` before each command.
            charge.asking =
                kind == ServerErrorKind::Ask || kind == ServerErrorKind::TryAgain && charge.asking;
            // Some keys of a call may have moved already; those of a group have to wait.
            charge.alone = kind != ServerErrorKind::Moved && charge.group.is_none();
        }
        if charges.iter().any(|charge| charge.hops > MAX_HOPS) {
            return fail_all(charges, StoreError::Unavailable);
        }
        match to {
            Some(to) => self.reroute(Reroute { charges, from: node.clone(), to }),
            None => self.push(charges),
        }
    }

    /// Sends charges on to a node that is listed; others wait until the nodes have been read.
    fn reroute(self: &Arc<Self>, reroute: Reroute) {
        if self.nodes.load().include(&reroute.to) {
            return self.connection(&reroute.to.endpoint).push(reroute.charges);
        }
        self.unresolved.lock().push(reroute);
        self.stale.notify_one();
    }

    /// Sends charges on, or fails them where the nodes just read do not include their target.
    fn resolve(self: &Arc<Self>, reroutes: Vec<Reroute>) {
        let nodes = self.nodes.load();
        for Reroute { charges, from, to } in reroutes {
            if nodes.include(&to) {
                self.connection(&to.endpoint).push(charges);
            } else {
                self.shared.log.redirect_refused(&from, &to.endpoint);
                fail_all(charges, StoreError::Unavailable);
            }
        }
    }

    pub fn has_answered(&self) -> bool {
        let slots = self.slots.load();
        let mut serve = slots.iter().flatten().peekable();
        serve.peek().is_some() && serve.all(|connection| connection.has_answered())
    }

    /// Returns whether the node of a slot has answered, or could not be reached.
    pub fn has_tried(&self, slot: u16) -> bool {
        match self.serving(slot) {
            Some(connection) => connection.has_tried(),
            None => self.read_once.load(Ordering::Relaxed),
        }
    }

    /// Reads the view of one of the nodes: of one in `first`, else one that is up, else a seed.
    async fn read_view(&self, first: Vec<Endpoint>) -> Result<ClusterView, ConnectError> {
        let access = &self.shared.options.access;
        let known: Vec<Endpoint> = {
            let connections = self.connections.lock();
            let up = connections.iter().filter(|(_, connection)| connection.down().is_none());
            up.map(|(endpoint, _)| endpoint.clone()).collect()
        };
        let mut last = ConnectError::NoSlots;
        for endpoint in first.iter().chain(&known).chain(&self.seeds) {
            let reading = async {
                let mut link = handshake::connect(access, endpoint).await?;
                nodes::read_view(&mut link, endpoint).await
            };
            match timeout(access.timeout, reading).await {
                Ok(Ok(view)) => return Ok(view),
                Ok(Err(error)) => last = error,
                Err(_) => last = ConnectError::TimedOut(access.timeout),
            }
        }
        Err(last)
    }

    pub fn connections(&self) -> Vec<Arc<Connection>> {
        self.connections.lock().values().cloned().collect()
    }

    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.connections.lock().drain().for_each(|(_, connection)| connection.close());
        self.stale.notify_one();
    }
}

/// Keeps the slots up to date as long as the cluster exists.
async fn refresh(cluster: Weak<Cluster>) {
    let mut failed = false;
    loop {
        let Some(strong) = cluster.upgrade() else { return };
        let earliest = Instant::now() + MIN_REFRESH_INTERVAL;
        let reroutes = std::mem::take(&mut *strong.unresolved.lock());
        // A node that redirects to another one lists it; the others may not list it yet.
        let from = reroutes.iter().map(|reroute| reroute.from.clone()).collect();
        match strong.read_view(from).await {
            Ok(_) if strong.closed.load(Ordering::Relaxed) => return,
            Ok(view) => {
                strong.apply(view);
                strong.resolve(reroutes);
                failed = false;
            }
            Err(error) => {
                let charges = reroutes.into_iter().flat_map(|reroute| reroute.charges);
                fail_all(charges, StoreError::Unavailable);
                if !failed {
                    strong.shared.log.slots_unknown(&error);
                }
                failed = true;
            }
        }
        if !strong.read_once.swap(true, Ordering::Relaxed) {
            strong.shared.changed.send_replace(());
        }
        let wait = if failed { MAX_BACKOFF } else { REFRESH_INTERVAL };
        let _ = timeout(wait, strong.stale.notified()).await;
        drop(strong);
        sleep_until(earliest).await;
    }
}

fn on_event(cluster: &Weak<Cluster>, node: &Endpoint, event: ClusterEvent) {
    match (cluster.upgrade(), event) {
        (Some(cluster), ClusterEvent::Disconnected) => cluster.stale.notify_one(),
        (Some(cluster), ClusterEvent::Redirected(redirect)) => cluster.follow(node, redirect),
        (None, ClusterEvent::Redirected(redirect)) => {
            fail_all(redirect.charges, StoreError::Unavailable);
        }
        (None, ClusterEvent::Disconnected) => {}
    }
}
