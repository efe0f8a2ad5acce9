//! Readiness and metrics.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::connections::ThreadConnections;
use super::{RedisCounts, RedisStore};
use crate::store::{BackendStatus, MetricFamilies, Operations, StoreStatus};

type Pick = fn(&RedisCounts) -> &AtomicU64;

const COUNTERS: [(&str, &str, Pick); 8] = [
    ("redis_round_trips", "Round trips started", |c| &c.trips),
    ("redis_script_calls", "Script calls", |c| &c.calls),
    ("redis_charges", "Charges sent", |c| &c.charges),
    ("redis_keys", "Keys charged, equal ones of a round trip counted once", |c| &c.keys),
    ("redis_incrby_keys", "Keys charged by INCRBY instead of a script", |c| &c.plain),
    ("redis_slow_round_trips", "Round trips slower than store.redis.slow_after", |c| &c.overdue),
    ("redis_connection_failures", "Connections that went down", |c| &c.down),
    ("redis_connection_recoveries", "Connections that came up", |c| &c.up),
];

impl Operations for RedisStore {
    async fn connect(&self) {
        self.answered().await;
    }

    fn is_ready(&self) -> bool {
        false
    }

    /// Whether any connection is up.
    fn is_connected(&self) -> bool {
        self.any_connection_up()
    }

    fn status(&self, status: &mut StoreStatus) {
        let (connections, connections_down) = self.connections_down();
        let all =
            self.connections.iter().filter_map(OnceLock::get).flat_map(ThreadConnections::all);
        status.backends.push(BackendStatus {
            instance: "main",
            kind: "redis",
            address: Some(self.shared.options.topology.to_string()),
            keys: None,
            connections,
            connections_down,
            down_because: all.into_iter().find_map(|connection| connection.down()),
        });
    }

    fn collect(&self, families: &mut MetricFamilies) {
        for (name, help, pick) in COUNTERS {
            families.counter(name, help, &[], pick(self.counts()).load(Ordering::Relaxed));
        }
        let help = "Connections that are down now";
        families.gauge("redis_connections_down", help, &[], self.connections_down().1);
    }
}
