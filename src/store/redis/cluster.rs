//! A cluster: a lane for each node, and which slot is whose.
//!
//! What a node says belongs elsewhere was not counted there, and is sent on. A node that fails, fails
//! its own keys only.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use redis::ServerErrorKind;
use smallvec::{SmallVec, smallvec};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::Shared;
use super::calls::Item;
use super::connect::{ConnectError, Endpoint, Slots, ask_slots};
use super::key::SLOTS;
use super::lane::{Goal, Lane};
use crate::store::Failed;

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
    stale: Notify,
    closed: AtomicBool,
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
                item.reply.set(item.index, Err(Failed::Unavailable), 0);
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

    /// Takes over what a node told of the slots.
    fn adopt(self: &Arc<Self>, told: &Slots) {
        let mut slots = vec![None; SLOTS.into()];
        for (first, last, endpoint) in told {
            let lane = self.lane(endpoint);
            for slot in *first..=(*last).min(SLOTS - 1) {
                slots[usize::from(slot)] = Some(lane.clone());
            }
        }
        self.slots.store(Arc::new(slots));
        self.lanes.lock().retain(|endpoint, lane| {
            let kept = told.iter().any(|(_, _, node)| node == endpoint);
            if !kept {
                lane.close();
            }
            kept
        });
        self.shared.changed.send_replace(());
    }

    /// Whether each node that serves slots has answered once.
    pub fn has_answered(&self) -> bool {
        let slots = self.slots.load();
        let mut serve = slots.iter().flatten().peekable();
        serve.peek().is_some() && serve.all(|lane| lane.has_answered())
    }

    async fn ask(&self) -> Result<Slots, ConnectError> {
        let access = &self.shared.options.access;
        let known: Vec<Endpoint> = {
            let lanes = self.lanes.lock();
            let up = lanes.iter().filter(|(_, lane)| lane.down().is_none());
            up.map(|(endpoint, _)| endpoint.clone()).collect()
        };
        let mut last = ConnectError::NoSlots;
        for endpoint in known.iter().chain(&self.seeds) {
            let asked = async {
                let mut connection = access.connect(endpoint).await?;
                ask_slots(&mut connection, endpoint).await
            };
            match timeout(access.timeout, asked).await {
                Ok(Ok(slots)) => return Ok(slots),
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
    let mut told = false;
    loop {
        let Some(strong) = cluster.upgrade() else { return };
        match strong.ask().await {
            Ok(_) if strong.closed.load(Ordering::Relaxed) => return,
            Ok(slots) => {
                strong.adopt(&slots);
                told = false;
            }
            Err(error) if !told => {
                strong.shared.log.no_slots(&error);
                told = true;
            }
            Err(_) => {}
        }
        let calm = strong.shared.options.probe_max.min(REFRESH);
        let wait = if told { calm } else { REFRESH };
        let _ = timeout(wait, strong.stale.notified()).await;
        drop(strong);
        tokio::time::sleep(CALM).await;
    }
}

impl Redirects {
    /// The slots may have changed.
    pub fn refresh(&self) {
        if let Some(cluster) = self.cluster.upgrade() {
            cluster.stale.notify_one();
        }
    }

    /// The node that a redirection names, by `slot host:port`.
    fn read(&self, told: &str) -> Option<Endpoint> {
        let (host, port) = told.split(' ').nth(1)?.rsplit_once(':')?;
        let host = match (host, &self.node) {
            // It does not know its name, and is where the one is that was asked.
            ("", Endpoint::Tcp(host, _)) => host,
            _ => host,
        };
        Some(Endpoint::Tcp(host.to_owned(), port.parse().ok()?))
    }

    /// Sends on what a node did not take: it was not counted.
    pub fn send(&self, items: impl IntoIterator<Item = Item>, kind: ServerErrorKind, told: &str) {
        let cluster = self.cluster.upgrade();
        let to = match kind {
            // Where half has moved, the other half is asked for in the same place again.
            ServerErrorKind::TryAgain => Some(self.node.clone()),
            _ => self.read(told),
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
            (Some(cluster), Some(endpoint)) => cluster.lane(&endpoint).push(items),
            (Some(cluster), _) => cluster.push(items),
            (None, _) => {
                for item in items {
                    item.reply.set(item.index, Err(Failed::Unavailable), 0);
                }
            }
        }
    }
}
