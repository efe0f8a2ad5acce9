//! The metrics of a store, independent of the registry that exports them.

/// Label names and their values.
pub type Labels = Vec<(&'static str, &'static str)>;

/// Metrics grouped by name, in the order in which they were added.
///
/// ```
/// # use weir::store::MetricFamilies;
/// let mut families = MetricFamilies::default();
/// for instance in ["main", "per_second"] {
///     families.with_label("instance", instance, |families| {
///         families.counter("redis_round_trips", "Round trips started", &[], 7);
///     });
/// }
/// let [family] = families.families() else { panic!("one name, one family") };
/// assert_eq!(family.samples[1].labels, [("instance", "per_second")]);
/// ```
#[derive(Debug, Default)]
pub struct MetricFamilies {
    families: Vec<MetricFamily>,
    /// The labels of every metric that is added now.
    labels: Labels,
}

/// The metrics of one name.
#[derive(Debug)]
pub struct MetricFamily {
    /// Without the program's prefix and a counter's `_total`.
    pub name: &'static str,
    pub help: &'static str,
    pub metric_type: MetricType,
    pub samples: Vec<Sample>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricType {
    Counter,
    Gauge,
}

/// The value of a metric.
#[derive(Debug)]
pub struct Sample {
    pub labels: Labels,
    pub value: u64,
}

impl MetricFamilies {
    pub fn families(&self) -> &[MetricFamily] {
        &self.families
    }

    /// Adds a number that only grows.
    pub fn counter(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &[(&'static str, &'static str)],
        value: u64,
    ) {
        self.add(MetricType::Counter, name, help, labels, value);
    }

    /// Adds a number that may fall.
    pub fn gauge(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &[(&'static str, &'static str)],
        value: usize,
    ) {
        self.add(MetricType::Gauge, name, help, labels, value as u64);
    }

    /// Gives all metrics that `add` adds one more label.
    pub fn with_label(
        &mut self,
        name: &'static str,
        value: &'static str,
        add: impl FnOnce(&mut MetricFamilies),
    ) {
        self.labels.push((name, value));
        add(self);
        self.labels.pop();
    }

    fn add(
        &mut self,
        metric_type: MetricType,
        name: &'static str,
        help: &'static str,
        labels: &[(&'static str, &'static str)],
        value: u64,
    ) {
        let labels = self.labels.iter().chain(labels).copied().collect();
        let sample = Sample { labels, value };
        match self.families.iter_mut().find(|family| family.name == name) {
            Some(family) => family.samples.push(sample),
            None => {
                self.families.push(MetricFamily { name, help, metric_type, samples: vec![sample] });
            }
        }
    }
}
