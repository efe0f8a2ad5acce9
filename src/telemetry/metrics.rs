//! The registry of metrics, scraped at `/metrics`. Most counts live where events happen (rules,
//! limiter, store), and are read for each scrape.

mod store;

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::connections;
use crate::limiter::{Limiter, LimiterCounts};
use crate::metrics::{MetricFamily, MetricSink, SampleValue};
use crate::rules::RuleStats;
use crate::service::Rules;
use crate::store::Operations;

/// The registry, and the counts that live nowhere else.
#[derive(Debug)]
pub struct Metrics {
    registry: Mutex<Registry>,
    pub config_load_success: Counter,
    pub config_load_error: Counter,
    pub rules_watch_error: Counter,
}

impl Metrics {
    pub fn new<S: Operations + Debug + 'static>(limiter: Arc<Limiter<S>>, rules: Rules) -> Metrics {
        let mut registry = Registry::with_prefix("weir");
        let (success, error) = (Counter::default(), Counter::default());
        let watch_error = Counter::default();
        registry.register("config_load_success", "Rule sets loaded", success.clone());
        registry.register("config_load_error", "Rule sets rejected", error.clone());
        let help = "Failures to watch or read rule files";
        registry.register("rules_watch_errors", help, watch_error.clone());
        registry.register_collector(Box::new(RuleCounts(rules)));
        registry.register_collector(Box::new(ServiceCounts(limiter)));
        Metrics {
            registry: Mutex::new(registry),
            config_load_success: success,
            config_load_error: error,
            rules_watch_error: watch_error,
        }
    }

    /// Adds the metrics of a management server. Call it once.
    pub fn xds(&self) -> XdsMetrics {
        let xds = XdsMetrics::default();
        let mut registry = self.registry.lock();
        let help = "Open streams from the management server (0 or 1)";
        registry.register("xds_connected", help, xds.connected.clone());
        let help = "Streams from the management server that failed or ended";
        registry.register("xds_stream_failures", help, xds.stream_failures.clone());
        xds
    }

    /// Adds the metrics of the log. Call it once.
    pub fn log(&self, dropped: &Counter) {
        let help = "Log lines dropped because standard error was not read in time";
        self.registry.lock().register("log_lines_dropped", help, dropped.clone());
    }

    /// Adds the metrics of the connections of one listener. Call it once for each.
    pub fn connections(&self, listener: &str) -> connections::ConnectionCounts {
        let counts = connections::ConnectionCounts::default();
        let mut registry = self.registry.lock();
        let name = |end| format!("{listener}_connections{end}");
        registry.register(name(""), "Open connections", counts.open.clone());
        let help = "Connections closed to make room for others";
        registry.register(name("_evicted"), help, counts.evicted.clone());
        let help = "Connections refused because all others had requests in progress";
        registry.register(name("_refused"), help, counts.refused.clone());
        counts
    }

    /// Lists all metrics.
    pub fn collect(&self, sink: &mut dyn MetricSink) {
        let (success, error) = (&self.config_load_success, &self.config_load_error);
        for (name, help, counter) in [
            ("config_load_success", "Rule sets loaded", success),
            ("config_load_error", "Rule sets rejected", error),
        ] {
            let metric_type = crate::metrics::MetricType::Counter;
            sink.family(MetricFamily { name, help, metric_type });
            sink.sample(&[], SampleValue::Counter(counter.get()));
        }
    }

    /// Encodes all metrics as OpenMetrics text.
    pub fn encode(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode(&mut out, &self.registry.lock());
        out
    }
}

/// The metrics of a management server.
#[derive(Clone, Debug, Default)]
pub struct XdsMetrics {
    pub connected: Gauge,
    pub stream_failures: Counter,
}

/// The counts of the active rules.
#[derive(Debug)]
struct RuleCounts(Rules);

type Pick = fn(&RuleStats) -> &AtomicU64;

const RULE_COUNTS: [(&str, &str, Pick); 6] = [
    ("rule_hits", "Hits requested", |s| &s.total_hits),
    ("rule_over_limit", "Hits over the limit", |s| &s.over_limit),
    ("rule_near_limit", "Hits near the limit", |s| &s.near_limit),
    ("rule_within_limit", "Hits within the limit", |s| &s.within_limit),
    (
        "rule_over_limit_with_local_cache",
        "Hits over the limit that were denied without the store",
        |s| &s.over_limit_with_local_cache,
    ),
    ("rule_shadow_mode", "Hits over the limit passed by shadow mode", |s| &s.shadow_mode),
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

impl<S: Operations + Debug + 'static> Collector for ServiceCounts<S> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let LimiterCounts {
            requests,
            over_limit,
            domain_not_found,
            global_shadow_mode,
            service_error,
            store_error,
        } = self.0.counts();
        for (name, help, count) in [
            ("requests", "Requests for a decision, including invalid ones", requests),
            ("requests_over_limit", "Requests answered OVER_LIMIT", over_limit),
            ("domain_not_found", "Descriptors whose domain has no rules", domain_not_found),
            (
                "global_shadow_mode",
                "Requests over their limit passed by the global shadow mode",
                global_shadow_mode,
            ),
            ("service_error", "Invalid requests rejected", service_error),
            ("store_error", "Requests that failed because the store failed", store_error),
        ] {
            let count = ConstCounter::new(count.load(Ordering::Relaxed));
            count.encode(encoder.encode_descriptor(name, help, None, MetricType::Counter)?)?;
        }
        store::encode(self.0.store(), &mut encoder)
    }
}
