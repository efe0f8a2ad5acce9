//! Tests against real servers.

mod cancel;
mod conformance;
mod deadlines;
mod increments;
mod keys;
mod leases;
mod logins;
#[path = "../../store/src/conformance/model.rs"]
mod model;
mod nodes;
mod per_second;
mod permissions;
mod redirects;
mod reduce;
#[path = "../../store/src/conformance/reduce.rs"]
mod reduce_model;
mod refusals;
mod reservations;
mod sentinels;
#[path = "../../../tests/support/redis.rs"]
mod servers;
mod sharding;
mod states;
mod table;
mod texts;
mod tls;
mod together;
mod topologies;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use self::servers::{Server, until};
use super::connection::target::Target;
use super::connection::{examine, handshake};
use super::context::RedisContext;
use super::{
    ClockSource, Endpoint, Login, PasswordFile, RedisOptions, RedisStore, Tls, Topology, key,
};
use weir_common::clock::{ManualClock, SystemClock};
use weir_limit::{Decision, Limit, Micros, Op, Plan, SECOND, Unit};
use weir_store::conformance::{DAWN, charge, plan, take, try_read};
use weir_store::{Answer, Answers, Batch, Charge, Entry, Key, Role, States, Store, StoreError};

/// Returns a store on a clock that the test sets.
fn manual(topology: Topology, clock: &Arc<ManualClock>) -> RedisStore {
    RedisStore::new(RedisOptions {
        clock: ClockSource::Caller,
        wall: clock.clone(),
        ..options(topology)
    })
}

/// Returns options with long timeouts: test machines may be busy.
fn options(topology: Topology) -> RedisOptions {
    let timeout = Duration::from_secs(10);
    let mut options = RedisOptions::new(topology);
    options.access.timeout = timeout;
    options.sentinel_access.timeout = timeout;
    RedisOptions { slow_after: timeout, ..options }
}

fn single(server: &Server) -> Topology {
    local(server.port())
}

/// Returns the topology of a single server, or of a proxy before it, on a port of this machine.
fn local(port: u16) -> Topology {
    Topology::Single(Endpoint::Tcp("127.0.0.1".into(), port))
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

/// Returns a store that has connected.
async fn connected(options: RedisOptions) -> RedisStore {
    let store = RedisStore::new(options);
    store.answered().await;
    store
}

/// Makes one charge within a timeout.
async fn charge_within(store: &RedisStore, charge: Charge<'_>, timeout: Duration) -> Answer {
    let mut answers = Answers::new();
    store.charge(&Batch::new(&[charge], timeout), &mut answers).await;
    answers.swap_remove(0)
}

/// Returns a charge of a key in the domain `test`.
fn charge_of<'a>(entries: &'a [Entry<'a>], plan: &'a Arc<Plan>, op: Op) -> Charge<'a> {
    let key = Key { domain: "test", entries };
    Charge { key, plan, op, hold: None, role: Role::Enforced }
}

/// Makes an operation about an id of a key.
async fn make(store: &RedisStore, plan: &Arc<Plan>, id: &str, op: Op) -> Answer {
    let charge = Charge { hold: Some(id), ..charge_of(&[("key", "a")], plan, op) };
    charge_within(store, charge, Duration::from_secs(10)).await
}

/// Takes one hit of a key within a timeout.
async fn take_within(
    store: &RedisStore,
    value: &str,
    plan: &Arc<Plan>,
    timeout: Duration,
) -> Answer {
    charge_within(store, charge_of(&[("key", value)], plan, Op::Take(1)), timeout).await
}

/// Takes one hit of a key.
async fn try_take(store: &RedisStore, value: &str, plan: &Arc<Plan>) -> Answer {
    take_within(store, value, plan, Duration::from_secs(10)).await
}
