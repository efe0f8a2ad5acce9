//! The store's metrics.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType as Encoded;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::store::{MetricFamilies, MetricFamily, MetricType, Operations, Sample};

pub(super) fn encode(store: &impl Operations, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut families = MetricFamilies::default();
    store.collect(&mut families);
    for family in families.families() {
        let encoded = match family.metric_type {
            MetricType::Counter => Encoded::Counter,
            MetricType::Gauge => Encoded::Gauge,
        };
        let mut encoder = encoder.encode_descriptor(family.name, family.help, None, encoded)?;
        for sample in &family.samples {
            // An empty set of labels would be written as `{}`.
            if sample.labels.is_empty() {
                write(family, sample, encoder)?;
                break;
            }
            write(family, sample, encoder.encode_family(&sample.labels)?)?;
        }
    }
    Ok(())
}

fn write(family: &MetricFamily, sample: &Sample, encoder: MetricEncoder<'_>) -> fmt::Result {
    match family.metric_type {
        MetricType::Counter => ConstCounter::new(sample.value).encode(encoder),
        MetricType::Gauge => {
            ConstGauge::new(i64::try_from(sample.value).unwrap_or(i64::MAX)).encode(encoder)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::clock::SystemClock;
    use crate::limit::Unit;
    use crate::limiter::{self, Limiter};
    use crate::service::Rules;
    use crate::store::conformance::{plan, take};
    use crate::store::memory::MemoryStore;
    use crate::telemetry::metrics::Metrics;

    #[tokio::test]
    async fn evictions_of_keys_at_their_limit_are_a_metric_of_their_own() {
        let store = MemoryStore::new(Arc::new(SystemClock::new()), 8);
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
            "weir_store_evictions_total{state=\"below_limit\"} 10",
            "weir_store_evictions_total{state=\"expired\"} 0",
            "weir_store_evictions_at_limit_total 12",
        ] {
            assert!(metrics.lines().any(|it| it == line), "{line}: {metrics}");
        }
    }
}
