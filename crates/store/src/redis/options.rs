//! The options of the Redis store.

#![warn(missing_docs)]

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::access::{Access, Endpoint, Login};
use weir_common::clock;
use weir_common::error::SetupError;

/// Where the servers are.
#[derive(Clone, Debug)]
pub enum Topology {
    /// One server.
    Single(Endpoint),
    /// A master by its name, found by asking the sentinels.
    Sentinel {
        /// The name of the master.
        master: String,
        /// Some of the sentinels.
        sentinels: Vec<Endpoint>,
    },
    /// A cluster, given by some of its nodes.
    Cluster(Vec<Endpoint>),
    /// A proxy, which routes each command by its first key to one of several servers.
    Proxy(Endpoint),
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |endpoints: &[Endpoint]| {
            endpoints.iter().map(Endpoint::to_string).collect::<Vec<_>>().join(", ")
        };
        match self {
            Topology::Single(endpoint) | Topology::Proxy(endpoint) => endpoint.fmt(f),
            Topology::Sentinel { master, sentinels } => {
                write!(f, "the master {master:?} by the sentinels {}", list(sentinels))
            }
            Topology::Cluster(seeds) => write!(f, "the cluster of {}", list(seeds)),
        }
    }
}

/// The clock that limits go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Redis's own: one for all replicas.
    Server,
    /// Each replica's, for services that do not let scripts read the time.
    Caller,
}

/// How to count in Redis.
#[derive(Clone, Debug)]
pub struct Options {
    /// The servers.
    pub topology: Topology,
    /// Access to the servers.
    pub access: Access,
    /// Access to the sentinels themselves.
    pub sentinel_access: Access,
    /// The start of every key; without braces.
    pub prefix: String,
    /// Whose time limits go by.
    pub clock: Clock,
    /// The clock of this process.
    pub wall: Arc<dyn clock::Clock>,
    /// A round trip that takes longer marks its connection as down.
    pub slow_after: Duration,
    /// A request with a smaller budget that gets no answer failed by its caller's deadline.
    pub caller_deadline_below: Duration,
    /// The number of connections per server: one per serving thread.
    pub connections: usize,
}

impl Options {
    /// How weir counts without settings: on connections of the threads, each key by Redis's clock.
    pub fn new(topology: Topology) -> Options {
        let access =
            Access { login: Login::default(), tls: None, db: 0, timeout: Duration::from_secs(1) };
        Options {
            topology,
            sentinel_access: access.clone(),
            access,
            prefix: "weir:".to_owned(),
            clock: Clock::Server,
            wall: Arc::new(clock::SystemClock::new()),
            slow_after: Duration::from_millis(20),
            caller_deadline_below: Duration::ZERO,
            connections: 1,
        }
    }

    /// Checks the certificates, if connections are encrypted.
    ///
    /// # Errors
    ///
    /// A file is unusable. The message names the setting and the fix.
    pub fn check(&self) -> Result<(), SetupError> {
        match &self.access.tls {
            Some(tls) => tls.certificates.read().map(drop),
            None => Ok(()),
        }
    }
}
