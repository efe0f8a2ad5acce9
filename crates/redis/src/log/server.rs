//! Log lines about the connections of all threads to one Redis server, which go down and are slow together: one line
//! when the first goes down, one when all are up again, and one in ten seconds while they are slow.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use weir_common::throttle::Throttle;

/// How long all connections must stay up to end an outage: longer than an idle thread takes to notice a lost one.
const SETTLE_TIME: Duration = Duration::from_secs(2);

/// The shortest time between two lines of one outage: only a new cause is logged again.
const CAUSE_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct ServerLog {
    server: String,
    slow: Throttle,
    outage: Mutex<Option<Outage>>,
}

/// What is known of the connections since the first went down.
#[derive(Debug)]
struct Outage {
    began: Instant,
    /// When the last connection came up, if none is down.
    ended: Option<Instant>,
    down: usize,
    /// Connections that went down.
    connections: usize,
    cause: String,
    causes: Throttle,
}

/// A connection's part in the lines about its server.
#[derive(Debug)]
pub(crate) struct ConnectionLog {
    server: Arc<ServerLog>,
    is_down: bool,
    /// The start of the outage in which the connection was last counted.
    counted_in: Option<Instant>,
}

impl ServerLog {
    pub fn new(server: String) -> ServerLog {
        ServerLog { server, slow: Throttle::default(), outage: Mutex::default() }
    }

    /// Removes the outage if its connections have stayed up for long enough.
    fn take_ended(&self, now: Instant) -> Option<Outage> {
        let is_over = |ended: Instant| now.saturating_duration_since(ended) >= SETTLE_TIME;
        self.outage.lock().take_if(|outage| outage.ended.is_some_and(is_over))
    }

    fn log_end(&self, now: Instant) {
        let Some(Outage { began, ended, connections, .. }) = self.take_ended(now) else { return };
        let outage_ms = ended.unwrap_or(now).saturating_duration_since(began).as_millis() as u64;
        tracing::info!(server = %self.server, connections, outage_ms, "redis connections up again");
    }
}

impl ConnectionLog {
    pub(super) fn new(server: Arc<ServerLog>) -> ConnectionLog {
        ConnectionLog { server, is_down: false, counted_in: None }
    }

    pub fn lost(&mut self, server: &dyn Display, error: &str) {
        if self.fail(error, Instant::now()) {
            tracing::warn!(%server, error, "redis connection lost, reconnecting");
        }
    }

    /// Records that the connection stays open, but is not used until the server accepts commands again.
    pub fn refused(&mut self, error: &str) {
        if self.fail(error, Instant::now()) {
            tracing::warn!(server = %self.server.server, error, "redis connection down, probing");
        }
    }

    pub fn not_connected(&mut self, error: &str) {
        if self.fail(error, Instant::now()) {
            let server = &self.server.server;
            tracing::warn!(%server, error, "cannot connect to redis, retrying");
        }
    }

    /// Logs that the server answered only after `elapsed`, longer than `slow_after`.
    pub fn slow(&self, elapsed: Duration, slow_after: Duration) {
        if let Some(suppressed) = self.server.slow.pass() {
            let [elapsed_ms, slow_after_ms] =
                [elapsed, slow_after].map(|time| time.as_millis() as u64);
            tracing::warn!(
                server = %self.server.server, elapsed_ms, slow_after_ms, suppressed,
                "redis connection slow, probing"
            );
        }
    }

    /// Records that the connection is up. The end of the outage is logged once all have stayed up.
    pub fn up(&mut self) {
        if self.recover(Instant::now()) {
            let server = self.server.clone();
            tokio::spawn(async move {
                sleep(SETTLE_TIME).await;
                server.log_end(Instant::now());
            });
        }
    }

    /// Counts the connection as down. Returns whether to log that: it is the first one, or the cause is new.
    fn fail(&mut self, error: &str, now: Instant) -> bool {
        let mut outage = self.server.outage.lock();
        let is_first = outage.is_none();
        let outage = outage.get_or_insert_with(|| Outage {
            began: now,
            ended: None,
            down: 0,
            connections: 0,
            cause: String::new(),
            causes: Throttle::new(CAUSE_INTERVAL),
        });
        outage.ended = None;
        outage.down += usize::from(!self.is_down);
        outage.connections += usize::from(self.counted_in != Some(outage.began));
        (self.is_down, self.counted_in) = (true, Some(outage.began));
        let is_new = outage.cause != error && outage.causes.pass_at(now.into_std()).is_some();
        if is_new {
            error.clone_into(&mut outage.cause);
        }
        is_first || is_new
    }

    /// Counts the connection as up if it is down. Returns whether no connection is down any more.
    fn recover(&mut self, now: Instant) -> bool {
        if !std::mem::take(&mut self.is_down) {
            return false;
        }
        let mut outage = self.server.outage.lock();
        let Some(outage) = outage.as_mut() else { return false };
        outage.down = outage.down.saturating_sub(1);
        outage.ended = (outage.down == 0).then_some(now);
        outage.ended.is_some()
    }
}

/// A connection that is closed is no longer waited for.
impl Drop for ConnectionLog {
    fn drop(&mut self) {
        if self.recover(Instant::now()) {
            self.server.outage.lock().take_if(|outage| outage.down == 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl ConnectionLog {
        pub fn slow_throttle(&self) -> &Throttle {
            &self.server.slow
        }
    }

    fn connections<const N: usize>(server: &Arc<ServerLog>) -> [ConnectionLog; N] {
        [(); N].map(|()| ConnectionLog::new(server.clone()))
    }

    fn server() -> Arc<ServerLog> {
        Arc::new(ServerLog::new("redis:6379".into()))
    }

    #[test]
    fn connections_to_one_server_have_one_outage() {
        let (server, start) = (server(), Instant::now());
        let [mut a, mut b, mut c] = connections(&server);
        let after = |ms| start + Duration::from_millis(ms);
        assert!(a.fail("broken pipe", start), "the first one is logged");
        assert!(!b.fail("broken pipe", after(1)) && !a.fail("refused", after(2)));
        assert!(!a.recover(after(10)), "another one is down");
        assert!(b.recover(after(20)));
        // A thread without requests notices later.
        assert!(!c.fail("broken pipe", after(900)));
        assert!(server.take_ended(after(2_020)).is_none(), "one is down");
        assert!(c.recover(after(950)));
        assert!(server.take_ended(after(2_020)).is_none(), "not for long enough");
        let ended = server.take_ended(after(2_950)).unwrap();
        assert_eq!((ended.connections, ended.ended), (3, Some(after(950))));
        assert!(server.take_ended(after(9_000)).is_none());
        assert!(a.fail("broken pipe", after(9_000)), "a new outage");
    }

    #[test]
    fn a_new_cause_is_logged_after_a_while() {
        let (server, start) = (server(), Instant::now());
        let [mut a, mut b] = connections(&server);
        let after = |seconds| start + Duration::from_secs(seconds);
        assert!(a.fail("refused", start) && !a.fail("refused", after(60)));
        assert!(b.fail("wrong password", after(61)));
        assert!(!a.fail("refused", after(62)) && !b.fail("wrong password", after(70)));
    }

    #[test]
    fn closed_connections_are_not_waited_for() {
        let (server, now) = (server(), Instant::now());
        let [mut a, b] = connections(&server);
        assert!(a.fail("refused", now));
        drop(b);
        assert_eq!(server.outage.lock().as_ref().map(|outage| outage.down), Some(1));
        drop(a);
        assert!(server.outage.lock().is_none(), "nothing is left to come up");
        let [mut c] = connections(&server);
        assert!(!c.recover(now), "it was not down");
        assert!(c.fail("refused", now) && c.recover(now));
    }
}
