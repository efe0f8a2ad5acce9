//! What the Redis store does besides charging: readiness, status, maintenance and metrics ([`Operations`]).

use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join, join_all};

use super::store::RedisStore;
use weir_common::metric_families;
use weir_common::metrics::{MergedFamilies, MetricFamily, MetricSink};
use weir_store::shared::ReplicaTexts;
use weir_store::{BackendStatus, Late, Operations, SharedTable, StoreStatus};

const LABELS: &[&str] = &["redis"];

metric_families! {
    ROUND_TRIP: histogram("store_round_trip_seconds", LABELS) = "Time of a round trip to the store, answered or not";
    BATCH_KEYS: histogram("redis_batch_keys", LABELS) = "Keys charged in a batch";
    CONNECTIONS: gauge("redis_connections", LABELS) = "Connections that are up now";
    CONNECTIONS_DOWN: gauge("redis_connections_down", LABELS)
        = "Connections that are lost, or whose server refuses all commands, now";
    CONNECTIONS_SLOW: gauge("redis_connections_slow", LABELS)
        = "Connections that are probed after a slow round trip, now";
}

impl Operations for RedisStore {
    fn connect(&self) -> BoxFuture<'_, ()> {
        join_all(self.instances().map(|(_, redis)| redis.answered())).map(drop).boxed()
    }

    fn is_ready(&self) -> bool {
        false
    }

    /// Whether any connection is up, to each Redis.
    fn is_connected(&self) -> bool {
        self.instances().all(|(_, redis)| redis.connections_up() > 0)
    }

    fn status(&self, status: &mut StoreStatus) {
        let backends = self.instances().map(|(instance, redis)| redis.backend(instance));
        status.backends.extend(backends);
    }

    fn maintain(&self) -> BoxFuture<'_, ()> {
        join_all(self.instances().map(|(_, redis)| redis.follow_changes())).map(drop).boxed()
    }

    /// None behind a proxy, which does not pass on what reads it.
    fn shared_table(&self) -> Option<&dyn SharedTable> {
        (!self.shared.is_proxy).then_some(self as _)
    }

    fn replica_texts(&self) -> Option<&dyn ReplicaTexts> {
        (!self.shared.is_proxy).then_some(self as _)
    }

    fn collect(&self, sink: &mut dyn MetricSink) {
        let mut merged = MergedFamilies::default();
        for (instance, redis) in self.instances() {
            merged.set_label("redis", instance);
            redis.collect_own(&mut merged);
        }
        merged.write(sink);
    }
}

impl RedisStore {
    fn backend(&self, instance: &'static str) -> BackendStatus {
        let (connections, connections_down) = self.connections_down();
        let connections_slow = self.connections_slow();
        let (after, slow_after) = (*self.shared.late.lock(), self.shared.options.slow_after);
        let is_late = connections_slow > 0 && connections_down == 0;
        BackendStatus {
            instance,
            kind: "redis",
            address: Some(self.shared.options.topology.to_string()),
            connections,
            connections_down,
            connections_slow,
            late: is_late.then_some(Late { after, slow_after }),
            down_because: self.all_connections().find_map(|connection| connection.down()),
            up_for: self.shared.recovered.lock().map(|at| at.elapsed()),
            ..BackendStatus::default()
        }
    }

    /// Follows the files of certificates, and the master that sentinels name. Never ends.
    async fn follow_changes(&self) {
        let certificates = async {
            match &self.shared.options.access.tls {
                Some(tls) => tls.certificates.follow().await,
                None => pending().await,
            }
        };
        join(certificates, self.follow_master()).await;
    }

    fn collect_own(&self, sink: &mut dyn MetricSink) {
        let counts = self.counts();
        let mut add = |name, help, count: &AtomicU64| {
            sink.counter(MetricFamily::counter(name, help, LABELS), count.load(Ordering::Relaxed));
        };
        add("redis_round_trips", "Round trips started", &counts.trips);
        add("redis_script_calls", "Script calls", &counts.calls);
        add("redis_charges", "Charges sent", &counts.charges);
        add("redis_keys", "Keys charged, equal ones of a round trip counted once", &counts.keys);
        add("redis_incrby_keys", "Keys charged by INCRBY instead of a script", &counts.plain);
        let slow = "Round trips slower than store.redis.slow_after";
        add("redis_slow_round_trips", slow, &counts.overdue);
        add("redis_connection_failures", "Connections that went down", &counts.down);
        add("redis_connection_recoveries", "Connections that came up", &counts.up);
        sink.histogram(ROUND_TRIP, &self.shared.trip_times.snapshot());
        sink.histogram(BATCH_KEYS, &self.shared.batch_keys.snapshot());
        sink.gauge(CONNECTIONS, self.connections_up() as f64);
        sink.gauge(CONNECTIONS_DOWN, self.connections_down().1 as f64);
        sink.gauge(CONNECTIONS_SLOW, self.connections_slow() as f64);
    }
}
