//! Writes the statistics of envoyproxy/ratelimit (the reference) into the page that Prometheus scrapes. Each is mapped
//! to a series once, when it first appears.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::histogram::{scaled, with_bounds};
use super::{ReferenceOptions, ReferenceSink, StatisticSink};
use crate::mapper::builtin::builtin;
use crate::mapper::mapping::{Mapper, Observer, Series, StatisticType};
use crate::name_cache::NameCache;
use crate::prometheus::PrometheusWriter;
use weir_common::metrics::{HistogramSnapshot, MetricSink, SampleValue, quantile};

/// The help of series whose mapping has none.
const HELP: &str = "A statistic of envoyproxy/ratelimit";

/// The names of weir's own families start with these.
const OWN_PREFIXES: [&str; 2] = ["weir_", "process_"];

/// The names of counters of the service start with this, and those of its rules with the longer one.
const SERVICE: &str = "ratelimit.service.";
const RULES: &str = "ratelimit.service.rate_limit.";

const MILLISECONDS_PER_SECOND: f64 = 1_000.0;

/// The part of a page that has the reference's names.
#[derive(Debug)]
pub struct ReferencePage {
    options: ReferenceOptions,
    mapper: Mapper,
    /// The series of each statistic; none for statistics that are dropped.
    series: Mutex<NameCache<Option<Arc<Series>>>>,
}

impl ReferencePage {
    /// A page with the names that `mapper` gives to the statistics and their tags.
    pub fn new(options: ReferenceOptions, mapper: Mapper) -> ReferencePage {
        ReferencePage { options, mapper, series: Mutex::default() }
    }

    /// A page with the reference's default names. Tags become labels: the mapping does not expect them in names.
    pub fn with_builtin(
        options: ReferenceOptions,
        response_time_as_milliseconds: bool,
    ) -> ReferencePage {
        let mapper = builtin(response_time_as_milliseconds).with_labels(options.tags.iter());
        ReferencePage::new(ReferenceOptions { tags: Default::default(), ..options }, mapper)
    }

    pub fn write(&self, collect: impl FnOnce(&mut dyn MetricSink), writer: &mut PrometheusWriter) {
        let mut cache = self.series.lock();
        let mut page =
            PageBuilder { mapper: &self.mapper, cache: &mut cache, families: BTreeMap::new() };
        collect(&mut ReferenceSink::new(&self.options, &mut page));
        for (name, family) in page.families {
            family.write(&name, writer);
        }
        cache.sweep();
    }
}

struct PageBuilder<'a> {
    mapper: &'a Mapper,
    cache: &'a mut NameCache<Option<Arc<Series>>>,
    families: BTreeMap<String, PageFamily>,
}

struct PageFamily {
    text_type: &'static str,
    help: Arc<str>,
    series: BTreeMap<Vec<(String, String)>, Value>,
}

enum Value {
    Number(f64),
    Timer(Observer, HistogramSnapshot),
}

impl StatisticSink for PageBuilder<'_> {
    fn statistic(&mut self, name: &str, value: SampleValue<'_>) {
        let statistic_type = match value {
            // A series appears with its first event, as in the reference, but for those that each service has:
            // the rate of a counter that starts at 1 is 0.
            SampleValue::Counter(0) if !name.starts_with(SERVICE) || name.starts_with(RULES) => {
                return;
            }
            SampleValue::Histogram(histogram) if histogram.count() == 0 => return,
            SampleValue::Counter(_) => StatisticType::Counter,
            SampleValue::FloatCounter(_) | SampleValue::Gauge(_) => StatisticType::Gauge,
            SampleValue::Histogram(_) => StatisticType::Timer,
        };
        let mapper = self.mapper;
        let map = |name: &str| mapper.map(name, statistic_type).map(Arc::new);
        if let Some(series) = self.cache.get(name, map) {
            self.add(&series, value);
        }
    }
}

impl PageBuilder<'_> {
    fn add(&mut self, series: &Series, value: SampleValue<'_>) {
        // Prometheus refuses a page that has a family twice.
        if OWN_PREFIXES.iter().any(|prefix| series.name.starts_with(prefix)) {
            return;
        }
        let (text_type, value) = match value {
            SampleValue::Counter(count) => ("counter", Value::Number(count as f64 * series.scale)),
            SampleValue::FloatCounter(gauge) | SampleValue::Gauge(gauge) => {
                ("gauge", Value::Number(gauge * series.scale))
            }
            SampleValue::Histogram(histogram) => {
                let text_type = match series.observer {
                    Observer::Histogram(_) => "histogram",
                    Observer::Summary(_) => "summary",
                };
                let histogram = scaled(histogram, MILLISECONDS_PER_SECOND * series.scale);
                (text_type, Value::Timer(series.observer.clone(), histogram))
            }
        };
        let family = self.families.entry(series.name.clone()).or_insert_with(|| PageFamily {
            text_type,
            help: series.help.clone(),
            series: BTreeMap::new(),
        });
        // The first type of a name decides, as in the reference.
        if family.text_type != text_type {
            return;
        }
        match family.series.get_mut(&series.labels) {
            Some(sum) => sum.add(value),
            None => drop(family.series.insert(series.labels.clone(), value)),
        }
    }
}

impl Value {
    fn add(&mut self, more: Value) {
        match (self, more) {
            (Value::Number(sum), Value::Number(more)) => *sum += more,
            (Value::Timer(_, sum), Value::Timer(_, more)) if sum.bounds == more.bounds => {
                sum.add(&more);
            }
            _ => {}
        }
    }
}

impl PageFamily {
    fn write(&self, name: &str, writer: &mut PrometheusWriter) {
        let help = if self.help.is_empty() { HELP } else { &self.help };
        writer.named_family(name, help, self.text_type);
        for (labels, value) in &self.series {
            let labels: Vec<(&str, &str)> =
                labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            match value {
                Value::Number(number) => writer.line("", &labels, *number),
                Value::Timer(Observer::Histogram(bounds), histogram) => {
                    let histogram = with_bounds(histogram, bounds);
                    writer.sample(&labels, SampleValue::Histogram(&histogram));
                }
                Value::Timer(Observer::Summary(quantiles), histogram) => {
                    for share in quantiles.iter() {
                        let text = share.to_string();
                        let labels = [&labels[..], &[("quantile", &text)]].concat();
                        let value = quantile(&histogram.bounds, &histogram.counts, *share);
                        writer.line("", &labels, value.unwrap_or(f64::NAN));
                    }
                    writer.line("_sum", &labels, histogram.sum);
                    writer.line("_count", &labels, histogram.count() as f64);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
