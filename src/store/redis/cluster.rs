//! A cluster: a lane for each node, and which slot is whose.
//!
//! What a node says belongs elsewhere was not counted there, and is sent on. A node that fails, fails
//! its own keys only. A redirection is followed only to nodes that the cluster lists: nobody else gets
//! credentials. Before one is refused, the list is read again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use redis::ServerErrorKind;
use smallvec::{SmallVec, smallvec};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use super::Shared;
use super::calls::Item;
use super::connect::{ConnectError, Endpoint};
use super::key::SLOTS;
use super::lane::{Goal, Lane};
use super::nodes::{self, Nodes, Target, View};
use crate::store::StoreError;

/// How often the slots are asked for, when nothing told of a change.
const REFRESH: Duration = Duration::from_secs(30);

/// How often at most.
const CALM: Duration = Duration::from_millis(50);

/// A charge is sent on so often at most.
const MAX_HOPS: u8 = 5;

/// A cluster as one thread's lanes see it.
#[derive(Debug)]
pub(super) struct Cluster {
    shared: Arc<Shared>,
    seeds: Vec<Endpoint>,
    lanes: Mutex<HashMap<Endpoint, Arc<Lane>>>,
    slots: ArcSwap<Vec<Option<Arc<Lane>>>>,
    nodes: ArcSwap<Nodes>,
    /// Redirected to nodes that are not known, until the nodes have been read again.
    unknown: Mutex<Vec<Redirected>>,
    stale: Notify,
    closed: AtomicBool,
}

/// Charges that a node redirected.
#[derive(Debug)]
struct Redirected {
    items: Vec<Item>,
    from: Endpoint,
    to: Target,
}

/// What goes to one node.
type OfLane<'l> = (&'l Arc<Lane>, SmallVec<[Item; 1]>);

/// Where a lane sends what belongs elsewhere.
#[derive(Clone, Debug)]
pub(super) struct Redirects {
    cluster: Weak<Cluster>,
    /// The lane's own node.
    node: Endpoint,
}

impl Cluster {
    pub fn start(seeds: Vec<Endpoint>, shared: Arc<Shared>) -> Arc<Cluster> {
        let cluster = Arc::new(Cluster {
            shared,
            seeds,
            lanes: Mutex::default(),
            slots: ArcSwap::from_pointee(vec![None; SLOTS.into()]),
            nodes: ArcSwap::default(),
            unknown: Mutex::default(),
            stale: Notify::new(),
            closed: AtomicBool::new(false),
        });
        tokio::spawn(refresh(Arc::downgrade(&cluster)));
        cluster
    }

    /// Sends charges to the nodes that their slots belong to, those of a node with the same trip.
    pub fn push(&self, items: impl IntoIterator<Item = Item>) {
        let slots = self.slots.load();
        let mut of_lanes: SmallVec<[OfLane<'_>; 4]> = SmallVec::new();
        for item in items {
            let Some(Some(lane)) = slots.get(usize::from(item.slot)) else {
                item.reply.set(item.index, Err(StoreError::Unavailable), 0);
                continue;
            };
            match of_lanes.iter_mut().find(|(other, _)| Arc::ptr_eq(other, lane)) {
                Some((_, items)) => items.push(item),
                None => of_lanes.push((lane, smallvec![item])),
            }
        }
        for (lane, items) in of_lanes {
            lane.push(items);
        }
    }

    fn lane(self: &Arc<Self>, endpoint: &Endpoint) -> Arc<Lane> {
        let mut lanes = self.lanes.lock();
        let start = || {
            let redirects = Redirects { cluster: Arc::downgrade(self), node: endpoint.clone() };
            Lane::start(Goal::Node(endpoint.clone()), self.shared.clone(), Some(redirects))
        };
        lanes.entry(endpoint.clone()).or_insert_with(start).clone()
    }

    /// Applies what a node says of the cluster.
    fn adopt(self: &Arc<Self>, view: View) {
        let mut slots = vec![None; SLOTS.into()];
        for (first, last, endpoint) in &view.slots {
            let lane = self.lane(endpoint);
            for slot in *first..=(*last).min(SLOTS - 1) {
                slots[usize::from(slot)] = Some(lane.clone());
            }
        }
        self.slots.store(Arc::new(slots));
        self.lanes.lock().retain(|endpoint, lane| {
            // A new master has no slots while the first one is on its way to it.
            let kept = view.slots.iter().any(|(_, _, node)| node == endpoint)
                || view.nodes.include_master(endpoint);
            if !kept {
                lane.close();
            }
            kept
        });
        if let Some(error) = &view.no_nodes {
            self.shared.log.no_nodes(error);
        }
        self.nodes.store(Arc::new(view.nodes));
        self.shared.changed.send_replace(());
    }

    /// Sends redirected charges to a node of the cluster, at once or when the nodes have been read.
    fn redirect(self: &Arc<Self>, redirected: Redirected) {
        if self.nodes.load().include(&redirected.to) {
            return self.lane(&redirected.to.endpoint).push(redirected.items);
        }
        self.unknown.lock().push(redirected);
        self.stale.notify_one();
    }

    /// Sends redirected charges on, or refuses them: the nodes have been read since.
    fn redirect_or_refuse(self: &Arc<Self>, redirected: Vec<Redirected>) {
        let nodes = self.nodes.load();
        for Redirected { items, from, to } in redirected {
            if nodes.include(&to) {
                self.lane(&to.endpoint).push(items);
            } else {
                self.shared.log.redirect_refused(&from, &to.endpoint);
                refuse(items);
            }
        }
    }

    /// Whether each node that serves slots has answered once.
    pub fn has_answered(&self) -> bool {
        let slots = self.slots.load();
        let mut serve = slots.iter().flatten().peekable();
        serve.peek().is_some() && serve.all(|lane| lane.has_answered())
    }

    /// Asks one of the nodes for its view: one of `first`, else one that is up, else a seed.
    async fn ask(&self, first: Vec<Endpoint>) -> Result<View, ConnectError> {
        let access = &self.shared.options.access;
        let known: Vec<Endpoint> = {
            let lanes = self.lanes.lock();
            let up = lanes.iter().filter(|(_, lane)| lane.down().is_none());
            up.map(|(endpoint, _)| endpoint.clone()).collect()
        };
        let mut last = ConnectError::NoSlots;
        for endpoint in first.iter().chain(&known).chain(&self.seeds) {
            let asked = async {
                let mut connection = access.connect(endpoint).await?;
                nodes::ask(&mut connection, endpoint).await
            };
            match timeout(access.timeout, asked).await {
                Ok(Ok(view)) => return Ok(view),
                Ok(Err(error)) => last = error,
                Err(_) => last = ConnectError::TimedOut(access.timeout),
            }
        }
        Err(last)
    }

    pub fn lanes(&self) -> Vec<Arc<Lane>> {
        self.lanes.lock().values().cloned().collect()
    }

    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.lanes.lock().drain().for_each(|(_, lane)| lane.close());
        self.stale.notify_one();
    }
}

/// Keeps the slots up to date as long as the cluster is there.
async fn refresh(cluster: Weak<Cluster>) {
    let mut failed = false;
    loop {
        let Some(strong) = cluster.upgrade() else { return };
        let calm = Instant::now() + CALM;
        let redirected = std::mem::take(&mut *strong.unknown.lock());
        // Who names a node knows it; others may not yet.
        let from = redirected.iter().map(|redirected| redirected.from.clone()).collect();
        match strong.ask(from).await {
            Ok(_) if strong.closed.load(Ordering::Relaxed) => return,
            Ok(view) => {
                strong.adopt(view);
                strong.redirect_or_refuse(redirected);
                failed = false;
            }
            Err(error) => {
                redirected.into_iter().for_each(|redirected| refuse(redirected.items));
                if !failed {
                    strong.shared.log.no_slots(&error);
                }
                failed = true;
            }
        }
        let retry = strong.shared.options.probe_max.min(REFRESH);
        let wait = if failed { retry } else { REFRESH };
        let _ = timeout(wait, strong.stale.notified()).await;
        drop(strong);
        sleep_until(calm).await;
    }
}

fn refuse(items: Vec<Item>) {
    for item in items {
        item.reply.set(item.index, Err(StoreError::Unavailable), 0);
    }
}

impl Redirects {
    /// The slots may have changed.
    pub fn refresh(&self) {
        if let Some(cluster) = self.cluster.upgrade() {
            cluster.stale.notify_one();
        }
    }

    /// Sends on what a node did not take: it was not counted.
    pub fn send(&self, items: impl IntoIterator<Item = Item>, kind: ServerErrorKind, told: &str) {
        let cluster = self.cluster.upgrade();
        let to = match kind {
            // Where half has moved, the other half is asked for in the same place again.
            ServerErrorKind::TryAgain => {
                Some(Target { endpoint: self.node.clone(), same_host: false })
            }
            _ => Target::read(told, &self.node),
        };
        if kind == ServerErrorKind::Moved {
            self.refresh();
        }
        let mut items: Vec<Item> = items.into_iter().collect();
        for item in &mut items {
            item.hops += 1;
            // A node that a slot is on its way to must be told each time that it is to answer.
            item.asking =
                kind == ServerErrorKind::Ask || kind == ServerErrorKind::TryAgain && item.asking;
            // Of several keys some may have moved already; those charged together must wait.
            item.alone = kind != ServerErrorKind::Moved && item.together.is_none();
        }
        let tired = items.iter().any(|item| item.hops > MAX_HOPS);
        match (cluster.filter(|_| !tired), to) {
            (Some(cluster), Some(to)) => {
                cluster.redirect(Redirected { items, from: self.node.clone(), to });
            }
            (Some(cluster), _) => cluster.push(items),
            (None, _) => refuse(items),
        }
    }
}
