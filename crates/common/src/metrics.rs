//! Counters, gauges and histograms, and the interface that exporters read them by.
//!
//! Whatever has metrics is a [`MetricSource`], which lists them for a [`MetricSink`]; Prometheus
//! and StatsD are sinks. Recording never waits, and nothing is copied until an exporter asks.

mod capped;
mod counter;
mod histogram;
mod merged;
mod series;
mod sink;

pub use capped::CappedSink;
pub use counter::{Counter, Gauge};
pub use histogram::{Exemplar, Histogram, HistogramSnapshot, quantile};
pub use merged::MergedFamilies;
pub use series::{SeriesLimit, SeriesMap};
pub use sink::{
    MetricFamily, MetricSink, MetricSource, MetricType, OTHER, OwnedValue, SampleValue,
};

/// The value of the label `method` for calls of methods that weir does not have.
pub const UNKNOWN_METHOD: &str = "unknown";

/// Declares families as constants: of each the type, the name, the labels and the help.
///
/// ```
/// weir_common::metric_families! {
///     OPEN: gauge("connections", &["listener"]) = "Open connections, by listener";
/// }
/// assert_eq!(OPEN.name, "connections");
/// ```
#[macro_export]
macro_rules! metric_families {
    ($($family:ident: $metric_type:ident($name:literal, $labels:expr) = $help:literal;)+) => {
        $(const $family: $crate::metrics::MetricFamily =
            $crate::metrics::MetricFamily::$metric_type($name, $help, $labels);)+
    };
}
