//! The values of all statistics, added by name.

use std::collections::BTreeMap;

use crate::reference::{StatisticSink, StatisticValue};
use weir_common::metrics::HistogramSnapshot;

/// The values since the start, by name.
#[derive(Debug, Default)]
pub struct Totals(pub BTreeMap<String, Total>);

#[derive(Debug, PartialEq)]
pub enum Total {
    Counter(u64),
    Gauge(f64),
    /// A timer, in seconds.
    Timer(HistogramSnapshot),
}

impl StatisticSink for Totals {
    fn statistic(&mut self, name: &str, value: StatisticValue<'_>) {
        let value = match value {
            StatisticValue::Counter(count) => Total::Counter(count),
            StatisticValue::Gauge(gauge) => Total::Gauge(gauge),
            StatisticValue::Timer(histogram) => Total::Timer(histogram.clone()),
        };
        match (self.0.get_mut(name), value) {
            (None, value) => drop(self.0.insert(name.to_owned(), value)),
            (Some(Total::Counter(sum)), Total::Counter(more)) => *sum += more,
            (Some(Total::Gauge(sum)), Total::Gauge(more)) => *sum += more,
            (Some(Total::Timer(sum)), Total::Timer(more)) if sum.bounds == more.bounds => {
                sum.add(&more);
            }
            // A name has one type.
            (Some(_), _) => {}
        }
    }
}
