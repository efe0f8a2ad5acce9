//! The store's counts.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::clock::Clock;
use crate::store::configured::{ConfiguredStore, GuardedRedis};
use crate::store::guard::kind_name;
use crate::store::memory::MemoryStore;
use crate::store::redis::Counts;
use crate::store::{OnStoreFailure, StoreError};

pub(super) fn encode(store: &ConfiguredStore, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    match store {
        ConfiguredStore::Memory(memory) => of_memory(memory, encoder),
        ConfiguredStore::Redis(guarded) => of_redis(guarded, encoder),
    }
}

fn of_memory<C: Clock>(store: &MemoryStore<C>, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let store = store.stats();
    for (name, help, value) in [
        ("store_keys", "Keys held", store.keys),
        ("store_table_bytes", "Bytes allocated for keys", store.table_bytes),
    ] {
        let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
        gauge.encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
    }
    let evicted = store.evicted;
    let help = "Keys evicted to make room that had expired or were below their limit";
    let mut family =
        encoder.encode_descriptor("store_evictions", help, None, MetricType::Counter)?;
    for (kind, count) in [("expired", evicted.expired), ("live", evicted.live)] {
        ConstCounter::new(count).encode(family.encode_family(&[("kind", kind)])?)?;
    }
    let help = "Keys evicted to make room that were at or over their limit";
    let family =
        encoder.encode_descriptor("store_evictions_at_limit", help, None, MetricType::Counter)?;
    ConstCounter::new(evicted.full).encode(family)?;
    let help = "Expired keys removed by sweeping";
    let family = encoder.encode_descriptor("store_swept", help, None, MetricType::Counter)?;
    ConstCounter::new(store.swept).encode(family)
}

type Pick = fn(&Counts) -> &AtomicU64;

const REDIS_COUNTS: [(&str, &str, Pick); 8] = [
    ("redis_trips", "Round trips begun", |c| &c.trips),
    ("redis_calls", "Script calls", |c| &c.calls),
    ("redis_charges", "Charges that travelled", |c| &c.charges),
    ("redis_keys", "Keys charged: equal ones that travelled together count once", |c| &c.keys),
    ("redis_plain", "Keys charged without a script", |c| &c.plain),
    ("redis_overdue", "Round trips slower than store.redis.slow_after", |c| &c.overdue),
    ("redis_down", "Connections that went down", |c| &c.down),
    ("redis_up", "Connections that came up", |c| &c.up),
];

fn of_redis(guarded: &GuardedRedis, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Charges the store could not answer, by what was done";
    let mut family =
        encoder.encode_descriptor("store_degraded", help, None, MetricType::Counter)?;
    for policy in OnStoreFailure::ALL {
        let count = ConstCounter::new(guarded.counts().degraded(policy));
        count.encode(family.encode_family(&[("policy", policy.name())])?)?;
    }
    let help = "Charges the store could not answer, by the reason";
    let mut family = encoder.encode_descriptor("store_failed", help, None, MetricType::Counter)?;
    for kind in StoreError::ALL {
        let count = ConstCounter::new(guarded.counts().failed(kind));
        count.encode(family.encode_family(&[("reason", kind_name(kind))])?)?;
    }
    let instances = guarded.inner().inner().each();
    for (name, help, pick) in REDIS_COUNTS {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (instance, redis) in &instances {
            let count = ConstCounter::new(pick(redis.counts()).load(Ordering::Relaxed));
            count.encode(family.encode_family(&[("instance", *instance)])?)?;
        }
    }
    let help = "Connections that are down now";
    let mut family =
        encoder.encode_descriptor("redis_connections_down", help, None, MetricType::Gauge)?;
    for (instance, redis) in &instances {
        let down = i64::try_from(redis.connections_down().1).unwrap_or(i64::MAX);
        ConstGauge::new(down).encode(family.encode_family(&[("instance", *instance)])?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::clock::SystemClock;
    use crate::limit::Unit;
    use crate::limiter::{self, Limiter};
    use crate::service::Rules;
    use crate::store::configured::ConfiguredStore;
    use crate::store::conformance::{plan, take};
    use crate::store::memory::MemoryStore;
    use crate::telemetry::metrics::Metrics;

    #[tokio::test]
    async fn evictions_of_keys_at_their_limit_are_a_metric_of_their_own() {
        let store = ConfiguredStore::Memory(MemoryStore::new(Arc::new(SystemClock::new()), 8));
        let (one, more) = (plan(1, Unit::Year), plan(9, Unit::Year));
        for i in 0..10 {
            take(&store, "d", &i.to_string(), &more, 1).await;
        }
        for i in 0..20 {
            take(&store, "full", &i.to_string(), &one, 1).await;
        }
        let limiter = Arc::new(Limiter::new(store, limiter::Options::default()));
        let metrics = Metrics::new(limiter, Rules::default()).encode();
        for line in [
            "weir_store_evictions_total{kind=\"live\"} 10",
            "weir_store_evictions_total{kind=\"expired\"} 0",
            "weir_store_evictions_at_limit_total 12",
        ] {
            assert!(metrics.lines().any(|it| it == line), "{line}: {metrics}");
        }
    }
}
