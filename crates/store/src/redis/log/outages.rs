//! Outages of servers. The connections of all threads to one server go down together: the log has one
//! line when the first goes down, and one when all are up again.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

/// How long all connections must stay up for an outage to be over. Longer than a thread without
/// requests takes to notice that its connection is lost.
const SETTLE_TIME: Duration = Duration::from_secs(2);

/// The shortest time between two lines of one outage: only a new cause is logged again.
const CAUSE_INTERVAL: Duration = Duration::from_secs(5);

/// The outages of the servers of a store.
#[derive(Clone, Debug, Default)]
pub(in crate::redis) struct Outages(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Outages so far.
    begun: u64,
    /// Outages that are not over, by the name of the server.
    current: HashMap<String, Outage>,
}

/// What is known of the connections to a server since the first went down.
#[derive(Debug)]
struct Outage {
    number: u64,
    began: Instant,
    /// When the last connection came up, if none is down.
    ended: Option<Instant>,
    /// Connections that are down.
    down: usize,
    /// Connections that went down.
    connections: usize,
    last_logged: Instant,
    logged_cause: String,
}

/// How a connection goes down; decides the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::redis) enum Failure {
    Lost,
    /// The connection stays open, but is not used until the server accepts commands again.
    Refusing,
    NotConnected,
}

/// A connection's part in outages of its server.
#[derive(Debug)]
pub(in crate::redis) struct OutageMember {
    outages: Outages,
    server: String,
    is_down: bool,
    /// The outage in which the connection was last counted.
    counted_in: Option<u64>,
}

impl Outages {
    pub fn member(&self, server: &dyn Display) -> OutageMember {
        let server = server.to_string();
        OutageMember { outages: self.clone(), server, is_down: false, counted_in: None }
    }

    /// How long the longest outage that is not over lasts.
    pub fn longest(&self) -> Option<Duration> {
        let state = self.0.lock();
        let began = state.current.values().filter(|outage| outage.down > 0).map(|it| it.began);
        began.min().map(|began| began.elapsed())
    }

    /// Logs the end of an outage, if it is over.
    fn log_end(&self, server: &str, now: Instant) {
        let Some(outage) = self.take_ended(server, now) else { return };
        let lasted = outage.ended.unwrap_or(now).saturating_duration_since(outage.began);
        let outage_ms = u64::try_from(lasted.as_millis()).unwrap_or(u64::MAX);
        let connections = outage.connections;
        tracing::info!(%server, connections, outage_ms, "redis connections up again");
    }

    /// Removes an outage whose connections have stayed up for long enough.
    fn take_ended(&self, server: &str, now: Instant) -> Option<Outage> {
        let current = &mut self.0.lock().current;
        let ended = current.get(server)?.ended?;
        let is_over = now.saturating_duration_since(ended) >= SETTLE_TIME;
        if is_over { current.remove(server) } else { None }
    }
}

impl OutageMember {
    /// Records that the connection is down. Logs it if it is the first one, or for a new cause.
    pub fn down(&mut self, failure: Failure, server: &dyn Display, error: &str) {
        if !self.fail(error, Instant::now()) {
            return;
        }
        match failure {
            Failure::Lost => tracing::warn!(%server, error, "redis connection lost, reconnecting"),
            Failure::Refusing => tracing::warn!(%server, error, "redis connection down, probing"),
            Failure::NotConnected => {
                tracing::warn!(%server, error, "cannot connect to redis, retrying");
            }
        }
    }

    /// Records that the connection is up. The end of the outage is logged once all have stayed up.
    pub fn up(&mut self) {
        if self.recover(Instant::now()) {
            let (outages, server) = (self.outages.clone(), self.server.clone());
            tokio::spawn(async move {
                sleep(SETTLE_TIME).await;
                outages.log_end(&server, Instant::now());
            });
        }
    }

    /// Returns whether to log the failure.
    fn fail(&mut self, error: &str, now: Instant) -> bool {
        let State { begun, current } = &mut *self.outages.0.lock();
        let is_first = !current.contains_key(&self.server);
        *begun += u64::from(is_first);
        let outage = current.entry(self.server.clone()).or_insert_with(|| Outage {
            number: *begun,
            began: now,
            ended: None,
            down: 0,
            connections: 0,
            last_logged: now,
            logged_cause: error.to_owned(),
        });
        outage.ended = None;
        outage.down += usize::from(!self.is_down);
        outage.connections += usize::from(self.counted_in != Some(outage.number));
        (self.is_down, self.counted_in) = (true, Some(outage.number));
        let is_new = outage.logged_cause != error
            && now.saturating_duration_since(outage.last_logged) >= CAUSE_INTERVAL;
        if is_new {
            outage.last_logged = now;
            error.clone_into(&mut outage.logged_cause);
        }
        is_first || is_new
    }

    /// Returns whether no connection is down any more.
    fn recover(&mut self, now: Instant) -> bool {
        let state = &mut self.outages.0.lock();
        take_recovery(&mut self.is_down, &self.server, state, now)
    }
}

/// Counts a connection as up if it is down. Returns whether no connection is down any more.
fn take_recovery(is_down: &mut bool, server: &str, state: &mut State, now: Instant) -> bool {
    if !std::mem::take(is_down) {
        return false;
    }
    let Some(outage) = state.current.get_mut(server) else { return false };
    outage.down = outage.down.saturating_sub(1);
    outage.ended = (outage.down == 0).then_some(now);
    outage.ended.is_some()
}

/// A connection that is closed is no longer waited for.
impl Drop for OutageMember {
    fn drop(&mut self) {
        let mut state = self.outages.0.lock();
        if take_recovery(&mut self.is_down, &self.server, &mut state, Instant::now()) {
            state.current.remove(&self.server);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members<const N: usize>(outages: &Outages) -> [OutageMember; N] {
        [(); N].map(|()| outages.member(&"redis:6379"))
    }

    #[test]
    fn connections_to_one_server_have_one_outage() {
        let (outages, start) = (Outages::default(), Instant::now());
        let [mut a, mut b, mut c] = members(&outages);
        let after = |ms| start + Duration::from_millis(ms);
        assert!(a.fail("broken pipe", start), "the first one is logged");
        assert!(!b.fail("broken pipe", after(1)) && !a.fail("refused", after(2)));
        assert!(!a.recover(after(10)), "another one is down");
        assert!(b.recover(after(20)));
        // A thread without requests notices later.
        assert!(!c.fail("broken pipe", after(900)));
        assert!(outages.take_ended("redis:6379", after(2_020)).is_none(), "one is down");
        assert!(c.recover(after(950)));
        assert!(outages.take_ended("redis:6379", after(2_020)).is_none(), "not for long enough");
        let ended = outages.take_ended("redis:6379", after(2_950)).unwrap();
        assert_eq!((ended.connections, ended.ended), (3, Some(after(950))));
        assert!(outages.take_ended("redis:6379", after(9_000)).is_none());
        assert!(a.fail("broken pipe", after(9_000)), "a new outage");
    }

    #[test]
    fn a_new_cause_is_logged_after_a_while() {
        let (outages, start) = (Outages::default(), Instant::now());
        let [mut a, mut b] = members(&outages);
        let after = |seconds| start + Duration::from_secs(seconds);
        assert!(a.fail("refused", start) && !a.fail("refused", after(60)));
        assert!(b.fail("wrong password", after(61)));
        assert!(!a.fail("refused", after(62)) && !b.fail("wrong password", after(70)));
    }

    #[test]
    fn servers_and_closed_connections_are_separate() {
        let (outages, now) = (Outages::default(), Instant::now());
        let [mut a, b] = members(&outages);
        let mut other = outages.member(&"redis:6380");
        assert!(a.fail("refused", now) && other.fail("refused", now));
        drop(b);
        assert_eq!(outages.0.lock().current.len(), 2);
        drop(a);
        assert_eq!(outages.0.lock().current.len(), 1, "nothing is left to come up");
        assert!(outages.longest().is_some());
        assert!(!OutageMember::recover(&mut outages.member(&"redis:6380"), now));
        assert!(other.recover(now) && outages.longest().is_none());
    }
}
