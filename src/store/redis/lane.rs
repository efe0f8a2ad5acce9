//! A lane: one connection to one server, and what travels on it.
//!
//! One trip at a time: what is asked for while it is on its way travels together in the next. So
//! the cost of a decision falls as load rises, and no queue grows towards a server that does not
//! answer: a trip that takes longer than the threshold (`slow_after`) marks the lane as down, and until
//! the server has answered a probe within the threshold, charges fail at once. Each request waits for
//! its own budget, whatever the threshold. Nothing is sent twice that may still
//! count.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::calls::{Item, Load, Plain};
use super::cluster::Redirects;
use super::connect::{ConnectError, Endpoint, ask_sentinel, examine, time};
use super::trip::{self, Met, Trip};
use super::{Clock, Layout, Shared};
use crate::store::StoreError;

/// How often an idle connection is tried.
const IDLE: Duration = Duration::from_secs(1);

/// A server that has not answered for so long is given up: the connection is made anew.
const STALLED: Duration = Duration::from_secs(1);

/// The first wait before another try; doubled each time, up to what the settings say.
const FIRST_WAIT: Duration = Duration::from_millis(20);

/// Why a lane is down whose server answered too late.
const SLOW: &str = "slower than store.redis.slow_after";

/// Which server a lane goes to.
#[derive(Clone, Debug)]
pub(super) enum Goal {
    Server(Endpoint),
    /// The master of that name, wherever it is.
    Master {
        name: String,
        sentinels: Vec<Endpoint>,
    },
    /// A node of a cluster, master or not: it says itself where a slot is.
    Node(Endpoint),
}

/// A lane, shared by those who ask and its driver.
#[derive(Debug)]
pub(super) struct Lane {
    pub goal: Goal,
    shared: Arc<Shared>,
    gathered: Mutex<Vec<Item>>,
    wake: Notify,
    /// 0: up; else why not.
    down: AtomicU8,
    closed: AtomicBool,
    answered: AtomicBool,
}

/// Why a connection is given up.
pub(super) enum Lost {
    Closed,
    Stalled,
    ReadOnly,
    Error(redis::RedisError),
}

impl Lane {
    /// Starts a lane; it ends when it is closed.
    pub fn start(goal: Goal, shared: Arc<Shared>, redirects: Option<Redirects>) -> Arc<Lane> {
        let lane = Arc::new(Lane {
            goal,
            shared,
            gathered: Mutex::default(),
            wake: Notify::new(),
            // Who asks while it connects for the first time waits for that.
            down: AtomicU8::new(0),
            closed: AtomicBool::new(false),
            answered: AtomicBool::new(false),
        });
        tokio::spawn(lane.clone().drive(redirects));
        lane
    }

    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Whether the server has answered once.
    pub fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    /// Why the lane is down; none where it is up.
    pub fn down(&self) -> Option<StoreError> {
        match self.down.load(Ordering::Relaxed) {
            0 => None,
            1 => Some(StoreError::TimedOut),
            2 => Some(StoreError::ReadOnly),
            _ => Some(StoreError::Unavailable),
        }
    }

    /// Sends `items` with the next trip, all with the same; or answers at once where the lane is
    /// down.
    pub fn push(&self, items: impl IntoIterator<Item = Item>) {
        if let Some(failed) = self.down() {
            let refuse = |item: Item| item.reply.set(item.index, Err(failed), 0);
            return items.into_iter().for_each(refuse);
        }
        let mut gathered = self.gathered.lock();
        let first = gathered.is_empty();
        gathered.extend(items);
        drop(gathered);
        if first {
            self.wake.notify_one();
        }
    }

    fn set_down(&self, failed: StoreError) {
        if self.down.swap(code(failed), Ordering::Relaxed) == 0 {
            self.shared.counts.down.fetch_add(1, Ordering::Relaxed);
        }
        for item in self.gathered.lock().drain(..) {
            item.reply.set(item.index, Err(failed), 0);
        }
    }

    fn set_up(&self) {
        if self.down.swap(0, Ordering::Relaxed) != 0 {
            self.shared.counts.up.fetch_add(1, Ordering::Relaxed);
        }
        if !self.answered.swap(true, Ordering::Relaxed) {
            self.shared.changed.send_replace(());
        }
    }

    async fn drive(self: Arc<Lane>, redirects: Option<Redirects>) {
        let mut wait = FIRST_WAIT;
        let mut told = None;
        let mut was_up = false;
        // What puts keys right whose fate was not told.
        let mut unsure = Vec::new();
        while !self.is_closed() {
            let mut connecting = std::pin::pin!(self.connect());
            let connected = match timeout(self.shared.options.slow_after, &mut connecting).await {
                Ok(connected) => connected,
                Err(_) => {
                    self.set_down(self.down().unwrap_or(StoreError::TimedOut));
                    connecting.await
                }
            };
            match connected {
                Ok((connection, endpoint)) => {
                    if was_up || told.is_some() {
                        self.shared.log.connected_again(&endpoint);
                    }
                    (told, was_up) = (None, true);
                    let since = Instant::now();
                    self.set_up();
                    let lost = self.serve(connection, redirects.as_ref(), &mut unsure).await;
                    let (failed, why) = match lost {
                        Lost::Closed => break,
                        Lost::Stalled => {
                            (StoreError::TimedOut, format!("no answer for {STALLED:?}"))
                        }
                        Lost::ReadOnly => {
                            (StoreError::ReadOnly, "the server is read-only".to_owned())
                        }
                        Lost::Error(error) => (StoreError::Unavailable, error.to_string()),
                    };
                    self.set_down(failed);
                    self.shared.log.connection_lost(&endpoint, &why);
                    if since.elapsed() > STALLED {
                        // At once; but one that is lost again and again is not asked in a circle.
                        wait = FIRST_WAIT;
                        refresh(&redirects);
                        continue;
                    }
                }
                Err(error) => {
                    let replica = matches!(error, ConnectError::Replica);
                    self.set_down(if replica {
                        StoreError::ReadOnly
                    } else {
                        StoreError::Unavailable
                    });
                    let error = error.to_string();
                    if told.as_ref() != Some(&error) {
                        self.shared.log.cannot_connect(&self.goal, &error);
                        told = Some(error);
                    }
                }
            }
            refresh(&redirects);
            sleep(wait).await;
            wait = (wait * 2).min(self.shared.options.probe_max);
        }
        self.set_down(StoreError::Unavailable);
    }

    async fn connect(&self) -> Result<(MultiplexedConnection, Endpoint), ConnectError> {
        let (name, sentinels) = match &self.goal {
            Goal::Server(endpoint) => return self.connect_to(endpoint.clone(), false).await,
            Goal::Node(endpoint) => return self.connect_to(endpoint.clone(), true).await,
            Goal::Master { name, sentinels } => (name, sentinels),
        };
        let access = &self.shared.options.sentinel_access;
        let mut last = ConnectError::NoMaster(name.clone());
        let mut tried = Vec::new();
        for sentinel in sentinels {
            match ask_sentinel(access, sentinel, name).await {
                // One whose news is old may name a replica, or a server that is gone.
                Ok(Some(endpoint)) if !tried.contains(&endpoint) => {
                    tried.push(endpoint.clone());
                    match self.connect_to(endpoint, false).await {
                        Err(error) => last = error,
                        connected => return connected,
                    }
                }
                Ok(_) => {}
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn connect_to(
        &self,
        endpoint: Endpoint,
        may_be_replica: bool,
    ) -> Result<(MultiplexedConnection, Endpoint), ConnectError> {
        let options = &self.shared.options;
        let patience = options.access.timeout;
        let examined = async {
            let mut connection = options.access.connect(&endpoint).await?;
            let about = examine(&mut connection, may_be_replica).await?;
            if options.clock == Clock::Caller || options.layout == Layout::Reference {
                let theirs = time(&mut connection).await?;
                let ours = options.wall.now();
                self.shared.log.clock_skew(&endpoint, theirs, ours);
            }
            self.shared.log.eviction_policy(&endpoint, &about);
            Ok::<_, ConnectError>(connection)
        };
        match timeout(patience, examined).await {
            Ok(connection) => Ok((connection?, endpoint)),
            Err(_) => Err(ConnectError::TimedOut(patience)),
        }
    }

    /// Goes to and fro until the connection is lost.
    async fn serve(
        &self,
        mut connection: MultiplexedConnection,
        redirects: Option<&Redirects>,
        unsure: &mut Vec<Item>,
    ) -> Lost {
        let mut met = Met::default();
        self.push(unsure.drain(..));
        let slow_after = self.shared.options.slow_after;
        loop {
            if timeout(IDLE, self.wake.notified()).await.is_err() {
                let mut late = connection.clone();
                let mut pinged = std::pin::pin!(ping(&mut late));
                let answer = match timeout(slow_after, &mut pinged).await {
                    Ok(answer) => answer,
                    Err(_) => {
                        self.set_down(StoreError::TimedOut);
                        match timeout(STALLED, pinged).await {
                            Ok(answer) => answer,
                            Err(_) => return Lost::Stalled,
                        }
                    }
                };
                if let Err(error) = answer
                    && error.is_unrecoverable_error()
                {
                    return Lost::Error(error);
                }
                if self.down().is_some()
                    && let Err(lost) = self.probe(&mut connection, SLOW).await
                {
                    return lost;
                }
                continue;
            }
            if self.is_closed() {
                return Lost::Closed;
            }
            // Whoever is ready to ask now shall travel, too.
            tokio::task::yield_now().await;
            let items = std::mem::take(&mut *self.gathered.lock());
            let mut load = self.shared.load(items, &met.known);
            if load.is_empty() {
                continue;
            }
            let outcome = self.travel(&connection, &mut met, &mut load, redirects).await;
            unsure.extend(load.plain.drain(..).filter_map(Plain::unsure));
            if let Some(lost) = outcome.failed {
                return lost;
            }
            if let Some(why) = outcome.refused {
                self.set_down(self.down().unwrap_or(StoreError::Unavailable));
                if let Err(lost) = self.probe(&mut connection, &why).await {
                    return lost;
                }
            }
        }
    }

    /// Makes one trip. What is still in `load` afterwards got no reply.
    async fn travel(
        &self,
        connection: &MultiplexedConnection,
        met: &mut Met,
        load: &mut Load,
        redirects: Option<&Redirects>,
    ) -> Trip {
        let trip = trip::run(&self.shared, met, connection.clone(), load, redirects);
        let mut trip = std::pin::pin!(trip);
        if let Ok(outcome) = timeout(self.shared.options.slow_after, &mut trip).await {
            return outcome;
        }
        self.shared.counts.overdue.fetch_add(1, Ordering::Relaxed);
        self.set_down(StoreError::TimedOut);
        match timeout(STALLED, trip).await {
            Ok(Trip { failed: None, refused }) => {
                Trip { failed: None, refused: refused.or(Some(SLOW.into())) }
            }
            Ok(outcome) => outcome,
            Err(_) => Trip { failed: Some(Lost::Stalled), refused: None },
        }
    }

    /// Waits until the server answers within the threshold.
    async fn probe(&self, connection: &mut MultiplexedConnection, why: &str) -> Result<(), Lost> {
        let mut wait = FIRST_WAIT;
        let slow_after = self.shared.options.slow_after;
        self.shared.log.connection_down(&self.goal, why);
        loop {
            let asked = Instant::now();
            match timeout(STALLED.max(slow_after), ping(connection)).await {
                Ok(Ok(())) if asked.elapsed() <= slow_after => break,
                Ok(Err(error)) if error.is_unrecoverable_error() => return Err(Lost::Error(error)),
                Ok(_) => {}
                Err(_) => return Err(Lost::Stalled),
            }
            sleep(wait).await;
            wait = (wait * 2).min(self.shared.options.probe_max);
            if self.is_closed() {
                return Err(Lost::Closed);
            }
        }
        self.shared.log.connection_up(&self.goal);
        self.set_up();
        Ok(())
    }
}

/// The slots of a cluster may be somebody else's now.
fn refresh(redirects: &Option<Redirects>) {
    if let Some(redirects) = redirects {
        redirects.refresh();
    }
}

fn code(failed: StoreError) -> u8 {
    match failed {
        StoreError::TimedOut => 1,
        StoreError::ReadOnly => 2,
        _ => 3,
    }
}

async fn ping(connection: &mut MultiplexedConnection) -> redis::RedisResult<()> {
    redis::cmd("PING").query_async(connection).await
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Goal::Server(endpoint) | Goal::Node(endpoint) => endpoint.fmt(f),
            Goal::Master { name, .. } => write!(f, "the master {name:?}"),
        }
    }
}
