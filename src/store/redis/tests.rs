//! Against real servers.

mod cancel;
mod conformance;
mod deadlines;
mod keys;
mod migration;
mod nodes;
mod plain;
mod redirects;
#[path = "../../../tests/support/redis.rs"]
mod servers;
mod together;
mod topologies;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use self::servers::Server;
use super::connection::handshake;
use super::*;
use crate::clock::{ManualClock, SystemClock};
use crate::limit::{Decision, Limit, Plan, SECOND, Unit};
use crate::store::conformance::{DAWN, charge, plan, take};
use crate::store::{Key, Role};

/// A store on a clock of the tests' own.
fn manual(topology: Topology, clock: &Arc<ManualClock>) -> RedisStore {
    RedisStore::new(Options { clock: Clock::Caller, wall: clock.clone(), ..options(topology) })
}

/// How tests ask; patient, for machines may be busy.
fn options(topology: Topology) -> Options {
    let access =
        Access { login: Login::default(), tls: None, db: 0, timeout: Duration::from_secs(10) };
    Options {
        topology,
        sentinel_access: access.clone(),
        access,
        prefix: "weir:".into(),
        layout: Layout::Weir,
        clock: Clock::Server,
        wall: Arc::new(SystemClock::new()),
        slow_after: Duration::from_secs(10),
        caller_deadline_below: Duration::ZERO,
        probe_max: Duration::from_millis(100),
        connections: 1,
    }
}

fn single(server: &Server) -> Topology {
    Topology::Single(Endpoint::Tcp("127.0.0.1".into(), server.port()))
}

fn endpoints(addresses: &[String]) -> Vec<Endpoint> {
    let endpoint = |address: &String| {
        let (host, port) = address.rsplit_once(':').unwrap();
        Endpoint::Tcp(host.to_owned(), port.parse().unwrap())
    };
    addresses.iter().map(endpoint).collect()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Until something is so; the store's tasks go on meanwhile.
async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let give_up = std::time::Instant::now() + servers::PATIENCE;
    while !so().await {
        assert!(std::time::Instant::now() < give_up, "{what}: not within {:?}", servers::PATIENCE);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Takes one hit of a key, whatever comes of it.
async fn try_take(store: &RedisStore, value: &str, plan: &Arc<Plan>) -> Answer {
    let entries = [("key", value)];
    let key = Key { domain: "test", entries: &entries };
    let one = Charge { key, plan, op: Op::Take(1), hold: None, role: Role::Enforced };
    let mut answers = Answers::new();
    let batch = Batch {
        charges: &[one],
        together: false,
        quota_passes: false,
        budget: Duration::from_secs(10),
        on_failure: None,
    };
    store.charge(batch, &mut answers).await;
    answers[0]
}
