//! Readiness, maintenance and metrics.

use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{RedisCounts, RedisStore};
use crate::metrics::{MetricFamily, MetricSink};
use crate::store::Operations;

type Pick = fn(&RedisCounts) -> &AtomicU64;

/// [`PerSecond`](crate::store::per_second::PerSecond) adds the label `instance`.
const LABELS: &[&str] = &["instance"];

const fn counter(name: &'static str, help: &'static str) -> MetricFamily {
    MetricFamily::counter(name, help, LABELS)
}

const COUNTERS: [(MetricFamily, Pick); 8] = [
    (counter("redis_round_trips", "Round trips started"), |c| &c.trips),
    (counter("redis_script_calls", "Script calls"), |c| &c.calls),
    (counter("redis_charges", "Charges sent"), |c| &c.charges),
    (counter("redis_keys", "Keys charged, equal ones of a round trip counted once"), |c| &c.keys),
    (counter("redis_incrby_keys", "Keys charged by INCRBY instead of a script"), |c| &c.plain),
    (counter("redis_slow_round_trips", "Round trips slower than store.redis.slow_after"), |c| {
        &c.overdue
    }),
    (counter("redis_connection_failures", "Connections that went down"), |c| &c.down),
    (counter("redis_connection_recoveries", "Connections that came up"), |c| &c.up),
];

const CONNECTIONS_DOWN: MetricFamily =
    MetricFamily::gauge("redis_connections_down", "Connections that are down now", LABELS);

impl Operations for RedisStore {
    async fn connect(&self) {
        self.answered().await;
    }

    fn is_ready(&self) -> bool {
        false
    }

    async fn maintain(&self) {
        match &self.shared.options.access.tls {
            Some(tls) => tls.certificates.follow().await,
            None => pending().await,
        }
    }

    fn collect(&self, sink: &mut dyn MetricSink) {
        for (family, pick) in COUNTERS {
            sink.counter(family, pick(self.counts()).load(Ordering::Relaxed));
        }
        sink.gauge(CONNECTIONS_DOWN, self.connections_down().1 as f64);
    }
}
