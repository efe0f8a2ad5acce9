//! Applies mappings: makes a Prometheus series (a name and labels) of a statistic's dotted name.

use std::sync::Arc;

use regex::{Captures, Regex};

/// The upper bounds of histograms without `buckets`.
pub(crate) const DEFAULT_BUCKETS: [f64; 11] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The quantiles of summaries without `quantiles`.
pub(crate) const DEFAULT_QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];

#[derive(Debug)]
pub struct Mapper {
    /// The mappings, those with globs before those with regular expressions.
    pub(super) mappings: Vec<Mapping>,
    /// The kind of metric of timers without a mapping.
    observer: Observer,
    /// Labels of all series; a label of a mapping takes precedence.
    labels: Vec<(String, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatisticType {
    Counter,
    Gauge,
    Timer,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Observer {
    /// A histogram with these upper bounds, in ascending order.
    Histogram(Arc<[f64]>),
    /// A summary with these quantiles.
    Summary(Arc<[f64]>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Series {
    pub name: String,
    /// The labels, sorted by name.
    pub labels: Vec<(String, String)>,
    /// The help text; empty if the mapping has none.
    pub help: Arc<str>,
    pub scale: f64,
    pub observer: Observer,
}

#[derive(Debug)]
pub(super) struct Mapping {
    pub regex: Regex,
    pub is_glob: bool,
    /// The type of the statistics that match; none for all types.
    pub statistic_type: Option<StatisticType>,
    pub drop: bool,
    pub name: String,
    pub labels: Vec<(String, String)>,
    pub help: Arc<str>,
    pub scale: f64,
    pub observer: Observer,
}

impl Mapper {
    pub(super) fn new(mut mappings: Vec<Mapping>, observer: Observer) -> Mapper {
        mappings.sort_by_key(|mapping| !mapping.is_glob);
        Mapper { mappings, observer, labels: Vec::new() }
    }

    pub(crate) fn with_labels<'l>(
        mut self,
        labels: impl Iterator<Item = (&'l str, &'l str)>,
    ) -> Mapper {
        self.labels = labels.map(|(name, value)| (escape_name(name), value.to_owned())).collect();
        self
    }

    /// Returns the series of a dotted name; none if it is dropped.
    pub(crate) fn map(&self, name: &str, statistic_type: StatisticType) -> Option<Series> {
        let mut series = self.map_name(name, statistic_type)?;
        for (name, value) in &self.labels {
            if series.labels.iter().all(|(label, _)| label != name) {
                series.labels.push((name.clone(), value.clone()));
            }
        }
        series.labels.sort();
        Some(series)
    }

    fn map_name(&self, name: &str, statistic_type: StatisticType) -> Option<Series> {
        for mapping in &self.mappings {
            if mapping.statistic_type.is_none_or(|wanted| wanted == statistic_type)
                && let Some(captures) = mapping.regex.captures(name)
            {
                return mapping.series(&captures);
            }
        }
        Some(Series {
            name: escape_name(name),
            labels: Vec::new(),
            help: "".into(),
            scale: 1.0,
            observer: self.observer.clone(),
        })
    }
}

impl Mapping {
    fn series(&self, captures: &Captures<'_>) -> Option<Series> {
        let expand = |template: &str| {
            let mut text = String::new();
            captures.expand(template, &mut text);
            text
        };
        let name = escape_name(&expand(&self.name));
        let labels = self.labels.iter().map(|(name, value)| (name.clone(), expand(value)));
        (!self.drop && !name.is_empty()).then(|| Series {
            name,
            labels: labels.collect(),
            help: self.help.clone(),
            scale: self.scale,
            observer: self.observer.clone(),
        })
    }
}

/// Replaces what a Prometheus name cannot have by underscores.
pub(super) fn escape_name(name: &str) -> String {
    let escaped = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
    let start = name.starts_with(|c: char| c.is_ascii_digit()).then_some('_');
    start.into_iter().chain(escaped).collect()
}
