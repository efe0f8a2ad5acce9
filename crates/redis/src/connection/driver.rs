//! The driver of a connection to Redis: a task that connects and makes the round trips. The redis crate has the socket.
//!
//! ```text
//!              connected              slow, or refuses commands
//! Connecting ─────────────▶ Ready ──────────────────────────────▶ Probing
//!  ▲      │                 │   ▲                                 │    │
//!  │      │ failed          │   └─────────── answers in time ─────┘    │
//!  │      ▼                 │ lost                                lost │
//!  ├─── Backoff ◀───────────┴─── within STALL_TIMEOUT ◀────────────────┤
//!  └──────────────────────────── later ◀───────────────────────────────┘
//! ```
//!
//! From Ready, a connection also goes to Connecting when it is to move to another server.
//!
//! | State      | Charges                                                              | Left |
//! | ---------- | -------------------------------------------------------------------- | ---- |
//! | Connecting | the first time and after a move wait, for up to `slow_after`; later fail | when the handshake ends |
//! | Ready      | share the next round trip                                            | when a reply takes longer than `slow_after` or refuses every command, the server becomes read-only, or the connection is lost |
//! | Probing    | fail; the connection is slow, or down where the server refuses commands | when a probe is answered within `slow_after`, or the connection is lost or needs a login |
//! | Backoff    | fail                                                                 | after a wait that doubles |
//! | Closed     | fail                                                                 | never |
//!
//! A connection without a reply for [`STALL_TIMEOUT`] after `slow_after` counts as lost. One that is lost within that
//! time of connecting goes to Backoff, so that a server that keeps disconnecting is not asked continuously. Closing a
//! connection leads to Closed from every state; a wait in Backoff ends first.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::Connection;
use super::error::ConnectError;
use super::handshake::ends_session;
use super::target::Target;
use crate::batch::CommandBatch;
use crate::context::RedisContext;
use crate::counter::Increment;
use crate::log::server::ConnectionLog;
use crate::options::Endpoint;
use crate::pending_charge::{PendingCharge, fail_all};
use crate::refusal::store_error;
use crate::round_trip::{Link, Redirect, STALL_TIMEOUT, Session, Timed, probe, timed_probe, watch};
use weir_common::backoff::Backoff;
use weir_store::StoreError;

const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

const MIN_BACKOFF: Duration = Duration::from_millis(20);

pub(crate) const MAX_BACKOFF: Duration = Duration::from_millis(500);

/// What a connection to a node reports to the cluster.
pub(crate) enum ClusterEvent {
    /// The node does not serve these charges, and has not counted them.
    Redirected(Redirect),
    /// The node is lost or cannot be reached: its slots may have moved.
    Disconnected,
}

pub(crate) type ClusterEvents = Box<dyn Fn(ClusterEvent) + Send + Sync>;

enum DriverState {
    Connecting,
    Ready(Session),
    Probing(Session, ProbeCause),
    Backoff,
    Closed,
}

enum NotReady {
    Degraded(ProbeCause),
    Disconnected(Disconnect),
}

enum ProbeCause {
    /// The server answered later than `slow_after`: after this time.
    Slow(Duration),
    /// The server refuses commands, with this error.
    Refuses(String),
}

enum Disconnect {
    Closed,
    Stalled,
    ReadOnly,
    Error(redis::RedisError),
}

struct Driver {
    connection: Arc<Connection>,
    events: Option<ClusterEvents>,
    backoff: Backoff,
    log: ConnectionLog,
    /// Charges that repair keys after increments without a reply, for the next connection.
    repairs: Vec<PendingCharge>,
}

/// Starts a connection on the current runtime; it ends when it is closed. One to a node of a cluster has `events`.
pub(crate) fn start(
    target: Target,
    shared: Arc<RedisContext>,
    events: Option<ClusterEvents>,
) -> Arc<Connection> {
    let connection = Arc::new(Connection::new(target, shared));
    tokio::spawn(run(connection.clone(), events));
    connection
}

async fn run(connection: Arc<Connection>, events: Option<ClusterEvents>) {
    let (backoff, repairs) = (Backoff::new(MIN_BACKOFF, MAX_BACKOFF, false), Vec::new());
    let log = connection.shared.log.connection(&connection.target);
    let mut driver = Driver { connection, events, backoff, log, repairs };
    let mut state = DriverState::Connecting;
    loop {
        state = match state {
            DriverState::Connecting => driver.connect().await,
            DriverState::Ready(session) => driver.serve(session).await,
            DriverState::Probing(session, cause) => driver.probe(session, cause).await,
            DriverState::Backoff => {
                sleep(driver.backoff.wait()).await;
                DriverState::Connecting
            }
            DriverState::Closed => break,
        };
    }
    *driver.connection.endpoint.lock() = None;
    driver.connection.set_down(StoreError::Unavailable);
}

impl Driver {
    fn shared(&self) -> &RedisContext {
        &self.connection.shared
    }

    fn slow_after(&self) -> Duration {
        self.shared().options.slow_after
    }

    async fn connect(&mut self) -> DriverState {
        if self.connection.closed.load(Ordering::Relaxed) {
            return DriverState::Closed;
        }
        let connected = {
            let mut connecting = pin!(self.connect_to_next());
            match timeout(self.slow_after(), &mut connecting).await {
                Ok(connected) => connected,
                Err(_) => {
                    self.set_down_or_keep(StoreError::TimedOut);
                    connecting.await
                }
            }
        };
        match connected {
            Ok((link, endpoint)) => self.connected(link, endpoint),
            Err(error) => self.not_connected(&error),
        }
    }

    /// Connects to the server to move to; without one, or if that fails, to the target.
    async fn connect_to_next(&self) -> Result<(Link, Endpoint), ConnectError> {
        let next = self.connection.next.lock().take();
        if let Some(next) = next
            && let Ok(connected) = Target::Server(next).connect(self.shared()).await
        {
            return Ok(connected);
        }
        self.connection.target.connect(self.shared()).await
    }

    fn connected(&mut self, link: Link, endpoint: Endpoint) -> DriverState {
        self.log.up();
        *self.connection.endpoint.lock() = Some(endpoint.clone());
        self.connection.set_up();
        self.connection.push(self.repairs.drain(..));
        DriverState::Ready(Session::new(link, endpoint))
    }

    fn not_connected(&mut self, error: &ConnectError) -> DriverState {
        self.connection.set_down(error.store_error());
        self.connection.set_tried();
        self.log.not_connected(&error.to_string());
        self.report(ClusterEvent::Disconnected);
        DriverState::Backoff
    }

    async fn serve(&mut self, mut session: Session) -> DriverState {
        loop {
            let step = match timeout(IDLE_CHECK_INTERVAL, self.connection.wake.notified()).await {
                Ok(()) if self.connection.next.lock().is_some() => {
                    *self.connection.endpoint.lock() = None;
                    // Also for charges, which wait.
                    self.connection.wake.notify_one();
                    return DriverState::Connecting;
                }
                Ok(()) => self.send_pending(&mut session).await,
                Err(_) => self.check_idle(&mut session).await,
            };
            match step {
                Ok(()) => {}
                Err(NotReady::Degraded(cause)) => return DriverState::Probing(session, cause),
                Err(NotReady::Disconnected(why)) => return self.disconnected(&session, why),
            }
        }
    }

    async fn check_idle(&self, session: &mut Session) -> Result<(), NotReady> {
        let (sent, set_slow) = (Instant::now(), || self.connection.set_slow());
        let answer = probe(&mut session.link, self.shared());
        match watch(answer, self.slow_after(), set_slow).await {
            Timed::Stalled => Err(NotReady::Disconnected(Disconnect::Stalled)),
            Timed::InTime(Err(error)) | Timed::Late(Err(error)) if ends_session(&error) => {
                Err(NotReady::Disconnected(Disconnect::Error(error)))
            }
            Timed::InTime(_) => Ok(()),
            Timed::Late(_) => Err(NotReady::Degraded(ProbeCause::Slow(sent.elapsed()))),
        }
    }

    async fn send_pending(&mut self, session: &mut Session) -> Result<(), NotReady> {
        if self.connection.closed.load(Ordering::Relaxed) {
            return Err(NotReady::Disconnected(Disconnect::Closed));
        }
        // Tasks that are ready to charge now share the round trip.
        tokio::task::yield_now().await;
        let charges = std::mem::take(&mut *self.connection.pending.lock());
        let mut batch = session.build_batch(self.shared(), charges);
        if batch.is_empty() {
            return Ok(());
        }
        let outcome = self.exchange(session, &mut batch).await;
        self.repairs.extend(batch.increments.drain(..).filter_map(Increment::into_repair));
        outcome
    }

    /// Sends a batch and answers its charges. What it still holds afterwards got no reply.
    async fn exchange(
        &self,
        session: &mut Session,
        batch: &mut CommandBatch,
    ) -> Result<(), NotReady> {
        let sent = Instant::now();
        let on_slow = || {
            self.shared().counts.overdue.fetch_add(1, Ordering::Relaxed);
            self.connection.set_slow();
        };
        let trips = self.make_round_trips(session, batch);
        match watch(trips, self.slow_after(), on_slow).await {
            Timed::InTime(outcome) | Timed::Late(outcome @ Err(_)) => outcome,
            Timed::Late(Ok(())) => Err(NotReady::Degraded(ProbeCause::Slow(sent.elapsed()))),
            Timed::Stalled => Err(NotReady::Disconnected(Disconnect::Stalled)),
        }
    }

    /// Makes a round trip, and more of them while commands have to be sent again.
    async fn make_round_trips(
        &self,
        session: &mut Session,
        batch: &mut CommandBatch,
    ) -> Result<(), NotReady> {
        let (mut read_only, mut refusal) = (false, None);
        while !batch.is_empty() {
            match session.send(self.shared(), batch).await {
                Ok(trip) => {
                    trip.redirects.into_iter().for_each(|redirect| self.redirect(redirect));
                    read_only |= trip.read_only;
                    refusal = trip.refusal.or(refusal);
                }
                Err(error) if error.is_unrecoverable_error() => {
                    return Err(NotReady::Disconnected(Disconnect::Error(error)));
                }
                Err(error) => {
                    refusal = Some(error.to_string());
                    break;
                }
            }
        }
        match refusal {
            // Behind a proxy, other servers may not be.
            _ if read_only && !self.shared().is_proxy => {
                Err(NotReady::Disconnected(Disconnect::ReadOnly))
            }
            Some(error) => Err(NotReady::Degraded(ProbeCause::Refuses(error))),
            None => Ok(()),
        }
    }

    /// Hands redirected charges to the cluster; a server outside a cluster has nowhere to redirect to.
    fn redirect(&self, redirect: Redirect) {
        if self.events.is_some() {
            return self.report(ClusterEvent::Redirected(redirect));
        }
        let topology =
            "the server is a node of a Redis Cluster: set store.redis.topology to cluster";
        self.shared().log.command_failed(&format_args!("{}: {topology}", redirect.error));
        fail_all(redirect.charges, StoreError::Unavailable);
    }

    async fn probe(&mut self, mut session: Session, cause: ProbeCause) -> DriverState {
        match cause {
            ProbeCause::Slow(elapsed) => {
                // It is slow since it missed the threshold; fails what was pushed at that moment.
                self.connection.set_slow();
                *self.shared().late.lock() = Some(elapsed);
                self.log.slow(elapsed, self.slow_after());
            }
            ProbeCause::Refuses(error) => {
                self.set_down_or_keep(store_error(&error));
                self.log.refused(&error);
            }
        }
        let mut backoff = Backoff::new(MIN_BACKOFF, MAX_BACKOFF, false);
        loop {
            let sent = Instant::now();
            match timed_probe(&mut session.link, self.shared()).await {
                Timed::InTime(_) => break,
                Timed::Late(Err(error)) if ends_session(&error) => {
                    return self.disconnected(&session, Disconnect::Error(error));
                }
                Timed::Late(_) => *self.shared().late.lock() = Some(sent.elapsed()),
                Timed::Stalled => return self.disconnected(&session, Disconnect::Stalled),
            }
            sleep(backoff.wait()).await;
            if self.connection.closed.load(Ordering::Relaxed) {
                return DriverState::Closed;
            }
        }
        self.log.up();
        self.connection.set_up();
        DriverState::Ready(session)
    }

    /// Leaves Ready or Probing.
    fn disconnected(&mut self, session: &Session, why: Disconnect) -> DriverState {
        *self.connection.endpoint.lock() = None;
        let (error, why) = match why {
            Disconnect::Closed => return DriverState::Closed,
            Disconnect::Stalled => {
                (StoreError::TimedOut, format!("no answer for {STALL_TIMEOUT:?}"))
            }
            Disconnect::ReadOnly => (StoreError::ReadOnly, "the server is read-only".to_owned()),
            Disconnect::Error(error) => (StoreError::Unavailable, error.to_string()),
        };
        self.connection.set_down(error);
        self.log.lost(&session.endpoint, &why);
        self.report(ClusterEvent::Disconnected);
        if session.connected_at.elapsed() > STALL_TIMEOUT {
            self.backoff.reset();
            return DriverState::Connecting;
        }
        DriverState::Backoff
    }

    /// Marks the connection as down. Keeps the first reason if it is already down.
    fn set_down_or_keep(&self, error: StoreError) {
        self.connection.set_down(self.connection.down().unwrap_or(error));
    }

    fn report(&self, event: ClusterEvent) {
        if let Some(events) = &self.events {
            events(event);
        }
    }
}
