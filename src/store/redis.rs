//! Counting in Redis, shared by all replicas.
//!
//! Every key is charged by a script, atomically; the scripts are in `lua/`, and each says at its top
//! what it takes and gives. A script tells the state as it was and the time; what that means is
//! computed by [`limit`](crate::limit), as for every store. Where a script would do no more than
//! `INCRBY`, that is sent instead; `known.rs` says when.

mod calls;
mod cluster;
mod connect;
mod key;
mod known;
mod lane;
mod log;
mod nodes;
mod operations;
mod reply;
mod script;
#[cfg(test)]
mod tests;
mod trip;

use std::cell::Cell;
use std::iter::zip;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::watch;
use tokio::time::Instant;

pub use self::connect::{Access, Endpoint, Login, Tls};
use self::{
    calls::{Ask, Item, Load, Times, Together},
    cluster::Cluster,
    key::{slot, write, write_reference},
    known::Known,
    lane::{Goal, Lane},
    log::Log,
    reply::{All, Reply},
};
use super::per_second::{self, Undo};
use super::{Answer, Answers, Batch, Charge, Role, Store, StoreError};
use crate::clock;
use crate::limit::{Micros, Op, concurrency};

/// Where the servers are.
#[derive(Clone, Debug)]
pub enum Topology {
    Single(Endpoint),
    /// The master of that name, as any of the sentinels tells.
    Sentinel {
        master: String,
        sentinels: Vec<Endpoint>,
    },
    /// A cluster, known by some of its nodes.
    Cluster(Vec<Endpoint>),
}

/// Whose clock counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Redis's own: one for all replicas.
    Server,
    /// Each replica's, for services that forbid scripts to ask for the time.
    Caller,
}

/// How keys are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    Weir,
    /// Lone fixed windows under the reference's keys, so that both count together.
    Reference,
}

/// How to count in Redis.
#[derive(Clone, Debug)]
pub struct Options {
    pub topology: Topology,
    pub access: Access,
    /// To the sentinels themselves.
    pub sentinel_access: Access,
    /// No braces may be in it.
    pub prefix: String,
    pub layout: Layout,
    pub clock: Clock,
    /// What the time is here.
    pub wall: Arc<dyn clock::Clock>,
    /// A round trip that takes longer marks its lane as down.
    pub slow_after: Duration,
    /// A request with a smaller budget is short of time by its caller's doing.
    pub caller_deadline_below: Duration,
    /// The longest wait before a server that fails is tried again.
    pub probe_max: Duration,
    /// How many lanes there are: as many as threads that serve.
    pub lanes: usize,
}

/// Counts of what went to Redis, since the start.
#[derive(Debug, Default)]
pub struct Counts {
    pub trips: AtomicU64,
    pub calls: AtomicU64,
    pub charges: AtomicU64,
    /// Keys charged: fewer than charges where several of one key travelled together.
    pub keys: AtomicU64,
    /// Of these, how many without a script.
    pub plain: AtomicU64,
    /// Round trips that took longer than [`Options::slow_after`].
    pub overdue: AtomicU64,
    /// Lanes that went down, and came up.
    pub down: AtomicU64,
    pub up: AtomicU64,
    /// Keys that failed, by kind: a wrong type, an unreadable state, no memory, read-only, other.
    pub failed: [AtomicU64; 5],
}

/// What all lanes share.
#[derive(Debug)]
struct Shared {
    options: Options,
    counts: Counts,
    /// Told when a lane has answered for the first time, and when nodes are others.
    changed: watch::Sender<()>,
    log: Log,
}

/// Keeps states in Redis.
#[derive(Debug)]
pub struct RedisStore {
    shared: Arc<Shared>,
    /// Started when first asked, on the runtime that asks.
    lanes: Box<[OnceLock<Lanes>]>,
    groups: AtomicU32,
}

/// One thread's way to the servers.
#[derive(Debug)]
enum Lanes {
    One(Arc<Lane>),
    Cluster(Arc<Cluster>),
}

/// Where the caller's clock counts, states are kept for longer than one caller would need them: for
/// others whose clock is behind.
const CALLERS_SLACK: u32 = 10_000;

impl RedisStore {
    pub fn new(options: Options) -> RedisStore {
        let lanes = (0..options.lanes.max(1)).map(|_| OnceLock::new()).collect();
        let shared = Shared {
            options,
            counts: Counts::default(),
            changed: watch::Sender::new(()),
            log: Log::default(),
        };
        RedisStore { shared: Arc::new(shared), lanes, groups: AtomicU32::new(1) }
    }

    pub fn counts(&self) -> &Counts {
        &self.shared.counts
    }

    /// How many lanes there are, and how many of them are down.
    pub fn lanes_down(&self) -> (usize, usize) {
        let lanes: Vec<Arc<Lane>> = self
            .lanes
            .iter()
            .filter_map(OnceLock::get)
            .flat_map(|lanes| match lanes {
                Lanes::One(lane) => vec![lane.clone()],
                Lanes::Cluster(cluster) => cluster.lanes(),
            })
            .collect();
        (lanes.len(), lanes.iter().filter(|lane| lane.down().is_some()).count())
    }

    /// Ready when Redis has answered for the first time: each node of a cluster that serves slots,
    /// and on the lanes of all threads that have asked. Connects the thread that asks, so that its
    /// first request need not wait for that.
    pub async fn answered(&self) {
        let mut changed = self.shared.changed.subscribe();
        self.lanes();
        let all = || self.lanes.iter().filter_map(OnceLock::get);
        // The sender is ours, so it does not go away.
        let _ = changed.wait_for(|()| all().all(Lanes::has_answered)).await;
    }

    fn lanes(&self) -> &Lanes {
        self.lane(thread_number() % self.lanes.len())
    }

    fn lane(&self, at: usize) -> &Lanes {
        self.lanes[at].get_or_init(|| {
            let shared = self.shared.clone();
            match &shared.options.topology {
                Topology::Single(endpoint) => {
                    Lanes::One(Lane::start(Goal::Server(endpoint.clone()), shared, None))
                }
                Topology::Sentinel { master, sentinels } => {
                    let (name, sentinels) = (master.clone(), sentinels.clone());
                    Lanes::One(Lane::start(Goal::Master { name, sentinels }, shared, None))
                }
                Topology::Cluster(seeds) => Lanes::Cluster(Cluster::start(seeds.clone(), shared)),
            }
        })
    }

    fn item(&self, charge: &Charge<'_>, reply: &Arc<Reply>, index: usize, wall: Micros) -> Item {
        let options = &self.shared.options;
        let mut in_key = false;
        let key = match (options.layout, charge.plan.counter()) {
            (Layout::Reference, Some((_, window))) => {
                in_key = true;
                write_reference(&options.prefix, &charge.key, window.period, wall)
            }
            _ => write(&options.prefix, &charge.key, charge.plan),
        };
        let slot = match options.topology {
            Topology::Cluster(_) => slot(&key),
            _ => 0,
        };
        Item {
            key,
            slot,
            plan: charge.plan.clone(),
            op: Ask::Op(charge.op),
            hold: charge.hold.map_or(0, concurrency::hash),
            role: charge.role,
            denial_where_failed: None,
            together: None,
            in_key,
            at: wall,
            hops: 0,
            asking: false,
            alone: false,
            reply: reply.clone(),
            index,
        }
    }

    fn group(&self, quota_passes: bool) -> Option<Together> {
        let number = NonZeroU32::new(self.groups.fetch_add(1, Ordering::Relaxed));
        let number = number.unwrap_or(NonZeroU32::MIN);
        Some(Together { number, quota_passes })
    }
}

impl Lanes {
    fn has_answered(&self) -> bool {
        match self {
            Lanes::One(lane) => lane.has_answered(),
            Lanes::Cluster(cluster) => cluster.has_answered(),
        }
    }

    /// Sends charges on their way, those of a node with the same trip.
    fn push(&self, items: impl IntoIterator<Item = Item>) {
        match self {
            Lanes::One(lane) => lane.push(items),
            Lanes::Cluster(cluster) => cluster.push(items),
        }
    }
}

impl Store for RedisStore {
    async fn charge(&self, batch: Batch<'_>, answers: &mut Answers) {
        self.charge_timed(batch, answers, &mut per_second::Times::new()).await;
    }
}

impl Undo for RedisStore {
    async fn charge_timed(
        &self,
        batch: Batch<'_>,
        answers: &mut Answers,
        times: &mut per_second::Times,
    ) {
        let lanes = self.lanes();
        let deadline = Instant::now().checked_add(batch.budget);
        let unanswered = match batch.budget < self.shared.options.caller_deadline_below {
            true => StoreError::CallerDeadline,
            false => StoreError::TimedOut,
        };
        let reply = Reply::new(batch.charges.len(), unanswered, deadline);
        let wall = match self.shared.options.layout {
            Layout::Reference => self.shared.options.wall.now(),
            Layout::Weir => 0,
        };
        let items = batch.charges.iter().enumerate();
        let items = items.map(|(index, charge)| self.item(charge, &reply, index, wall));
        // Of each charge, where they are of several.
        let mut slots: SmallVec<[u16; 8]> = SmallVec::new();
        if batch.together {
            let mut items: Vec<Item> = items.collect();
            let mut groups: SmallVec<[(u16, Option<Together>); 4]> = SmallVec::new();
            for (item, charge) in items.iter_mut().zip(batch.charges) {
                item.denial_where_failed = charge.denial_where_failed(batch.on_failure);
                let group = groups.iter().find(|(slot, _)| *slot == item.slot).map(|it| it.1);
                item.together = group.unwrap_or_else(|| {
                    let group = self.group(batch.quota_passes);
                    groups.push((item.slot, group));
                    group
                });
            }
            if groups.len() > 1 {
                // Whether all quotas deny is known only when all nodes have answered.
                for item in &mut items {
                    item.together = item.together.map(|it| Together { quota_passes: true, ..it });
                    slots.push(item.slot);
                }
            }
            lanes.push(items);
        } else {
            lanes.push(items);
        }
        let _cancels = CancelOnDrop { store: self, lanes, batch: &batch, reply: &reply };
        let _ = tokio::time::timeout(batch.budget, All(&reply)).await;
        let told = reply.take();
        let first = answers.len();
        answers.extend(told.iter().map(|(answer, _)| *answer));
        times.extend(told.iter().map(|(_, time)| *time));

        // What was reserved on several nodes; where an outcome is not known, nothing is given back.
        let known = |answer: &Answer| answer.err().is_none_or(StoreError::is_refusal);
        let answers = &answers[first..];
        if !slots.is_empty() && answers.iter().all(known) && batch.is_denied(answers) {
            self.undo(&made(&batch, &told, &slots));
        }
    }

    fn undo(&self, made: &[(Charge<'_>, Micros)]) {
        // It is sent however long that takes.
        let reply = Reply::new(made.len(), StoreError::TimedOut, None);
        let items = made.iter().enumerate().filter_map(|(index, (charge, taken))| {
            let Op::Take(hits) = charge.op else { return None };
            // Where the window is part of the key, it is the one that hits were taken in.
            let mut item = self.item(charge, &reply, index, *taken);
            item.op = Ask::Undo(u32::try_from(hits).unwrap_or(u32::MAX), *taken);
            Some(item)
        });
        self.lanes().push(items);
    }
}

/// Gives up a batch that is dropped before it has ended: its caller is gone. What was not sent yet is
/// not sent. Holds that have an id are given back: on the same way, so not before they are taken. Other
/// holds are not, as it may not be known whether they were taken.
struct CancelOnDrop<'a> {
    store: &'a RedisStore,
    lanes: &'a Lanes,
    batch: &'a Batch<'a>,
    reply: &'a Reply,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let Some(answers) = self.reply.cancel() else { return };
        let charges = self.batch.charges;
        if charges.iter().all(|charge| charge.hold.is_none()) {
            return;
        }
        let reply = Reply::new(charges.len(), StoreError::TimedOut, None);
        let held =
            zip(charges, answers).enumerate().filter_map(|(index, (charge, (answer, _)))| {
                let Op::Take(hits) = charge.op else { return None };
                let item = || Item {
                    op: Ask::Op(Op::GiveBack(hits)),
                    ..self.store.item(charge, &reply, index, 0)
                };
                (charge.hold.is_some() && charge.may_hold(&answer)).then(item)
            });
        self.lanes.push(held);
    }
}

/// Of charges on several nodes those that were made, and when.
fn made<'a>(
    batch: &Batch<'a>,
    told: &[(Answer, Micros)],
    slots: &[u16],
) -> Vec<(Charge<'a>, Micros)> {
    let all = || zip(zip(batch.charges, told), slots);
    // There nothing is charged at all.
    let refused: Vec<u16> = all()
        .filter(|((charge, (answer, _)), _)| batch.denial(charge, answer) == Some(Role::Enforced))
        .map(|(_, slot)| *slot)
        .collect();
    all()
        .filter(|((charge, (answer, _)), slot)| charge.took(answer) && !refused.contains(slot))
        .map(|((charge, (_, taken)), _)| (*charge, *taken))
        .collect()
}

impl Shared {
    /// Makes commands of what was gathered.
    fn load(&self, items: Vec<Item>, known: &Known) -> Load {
        let wall = self.options.wall.now();
        let (now, slack, about) = match self.options.clock {
            Clock::Server => (0, 0, known.now()),
            Clock::Caller => (wall, CALLERS_SLACK, Some(wall)),
        };
        let load = calls::load(items, Times { now, wall, slack }, known, about);
        let (charges, keys, plain) = load.len();
        let add = |to: &AtomicU64, more: usize| to.fetch_add(more as u64, Ordering::Relaxed);
        add(&self.counts.calls, load.calls.len());
        add(&self.counts.charges, charges);
        add(&self.counts.keys, keys);
        add(&self.counts.plain, plain);
        load
    }

    fn count(&self, failed: StoreError) {
        let kind = match failed {
            StoreError::WrongType => 0,
            StoreError::Corrupt => 1,
            StoreError::OutOfMemory => 2,
            StoreError::ReadOnly => 3,
            StoreError::Unavailable | StoreError::TimedOut | StoreError::CallerDeadline => 4,
        };
        self.counts.failed[kind].fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        for lanes in self.lanes.iter().filter_map(OnceLock::get) {
            match lanes {
                Lanes::One(lane) => lane.close(),
                Lanes::Cluster(cluster) => cluster.close(),
            }
        }
    }
}

/// A number of the thread that asks: threads that serve have different ones.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
    }
    NUMBER.with(|number| {
        number.get().unwrap_or_else(|| {
            let next = NEXT.fetch_add(1, Ordering::Relaxed);
            number.set(Some(next));
            next
        })
    })
}
