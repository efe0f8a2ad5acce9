//! One registry of metrics, scraped at `/metrics`. Nothing is counted here: counts live where
//! they are made (rules, limiter, store), and are read when a scrape comes.

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::limiter::{Counts, Limiter};
use crate::rules::Stats;
use crate::service::Rules;
use crate::store::Store;

/// The registry, and the counts of what has no other home.
#[derive(Debug)]
pub struct Metrics {
    registry: Mutex<Registry>,
    pub config_load_success: Counter,
    pub config_load_error: Counter,
}

/// What a store tells of itself.
pub trait StoreStats {
    /// Gauges and counters as they are now: name, help, what a `kind` label says, value.
    fn keys(&self) -> u64;
    /// Keys dropped: why, and how many.
    fn evictions(&self) -> [(&'static str, u64); 3];
}

impl Metrics {
    pub fn new<S>(limiter: Arc<Limiter<S>>, rules: Rules) -> Metrics
    where
        S: Store + StoreStats + Debug + Send + Sync + 'static,
    {
        let mut registry = Registry::with_prefix("weir");
        let (success, error) = (Counter::default(), Counter::default());
        registry.register("config_load_success", "Rule sets taken into force", success.clone());
        registry.register("config_load_error", "Rule sets refused", error.clone());
        registry.register_collector(Box::new(RuleCounts(rules)));
        registry.register_collector(Box::new(ServiceCounts(limiter)));
        Metrics {
            registry: Mutex::new(registry),
            config_load_success: success,
            config_load_error: error,
        }
    }

    /// All metrics, as OpenMetrics text.
    pub fn encode(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode(&mut out, &self.registry.lock());
        out
    }
}

/// The counts of the rules in force.
#[derive(Debug)]
struct RuleCounts(Rules);

type Pick = fn(&Stats) -> &AtomicU64;

const RULE_COUNTS: [(&str, &str, Pick); 5] = [
    ("rule_hits", "Hits asked for", |s| &s.total_hits),
    ("rule_over_limit", "Hits over the limit", |s| &s.over_limit),
    ("rule_near_limit", "Hits near the limit", |s| &s.near_limit),
    ("rule_within_limit", "Hits within the limit", |s| &s.within_limit),
    ("rule_shadow_mode", "Hits over the limit that shadow mode let pass", |s| &s.shadow_mode),
];

impl Collector for RuleCounts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let rules = self.0.load();
        let Some(rules) = rules.as_ref() else { return Ok(()) };
        for (name, help, pick) in RULE_COUNTS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for rule in rules.rules() {
                let labels = [("domain", rule.domain()), ("rule", rule.path())];
                let count = ConstCounter::new(pick(&rule.stats).load(Ordering::Relaxed));
                count.encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// The counts of the limiter and its store.
#[derive(Debug)]
struct ServiceCounts<S>(Arc<Limiter<S>>);

impl<S: Store + StoreStats + Debug + Send + Sync + 'static> Collector for ServiceCounts<S> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Counts {
            requests,
            over_limit,
            domain_not_found,
            global_shadow_mode,
            service_error,
            store_error,
        } = self.0.counts();
        for (name, help, count) in [
            ("requests", "Requests for a decision", requests),
            ("requests_over_limit", "Requests answered OVER_LIMIT", over_limit),
            ("domain_not_found", "Descriptors whose domain has no rules", domain_not_found),
            (
                "global_shadow_mode",
                "Requests let pass by the global shadow mode",
                global_shadow_mode,
            ),
            ("service_error", "Requests refused for what they are", service_error),
            ("store_error", "Requests refused because the store failed", store_error),
        ] {
            let count = ConstCounter::new(count.load(Ordering::Relaxed));
            count.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        let store = self.0.store();
        let keys = ConstGauge::new(i64::try_from(store.keys()).unwrap_or(i64::MAX));
        keys.encode(encoder.encode_descriptor(
            "store_keys",
            "Keys kept",
            None,
            MetricType::Gauge,
        )?)?;
        let help = "Keys dropped to make room, by what they were";
        let mut family =
            encoder.encode_descriptor("store_evictions", help, None, MetricType::Counter)?;
        for (kind, count) in store.evictions() {
            ConstCounter::new(count).encode(family.encode_family(&[("kind", kind)])?)?;
        }
        Ok(())
    }
}
