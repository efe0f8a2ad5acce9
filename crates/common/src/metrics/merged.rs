//! Merges metrics that several sources report by the same name, such as the connections to two Redis servers.

use super::sink::{MetricFamily, MetricSink, OwnedValue, SampleValue};

/// Keeps samples grouped by family (metric), in the order in which they were added: a sink for several sources
/// with the same families. Another sink then receives each family once.
#[derive(Debug, Default)]
pub struct MergedFamilies {
    families: Vec<(MetricFamily, Vec<Sample>)>,
    /// The index of the family that samples are added to.
    open: usize,
    /// The first label of every sample that is added.
    label: Option<(&'static str, &'static str)>,
}

#[derive(Debug)]
struct Sample {
    labels: Vec<(String, String)>,
    value: OwnedValue,
}

impl MergedFamilies {
    /// Sets a label that all samples added from now on get.
    pub fn set_label(&mut self, name: &'static str, value: &'static str) {
        self.label = Some((name, value));
    }

    pub fn write(&self, sink: &mut dyn MetricSink) {
        for (family, samples) in &self.families {
            sink.family(*family);
            for sample in samples {
                let labels = sample.labels.iter();
                let labels: Vec<(&str, &str)> =
                    labels.map(|(name, value)| (name.as_str(), value.as_str())).collect();
                sink.sample(&labels, sample.value.as_value());
            }
        }
    }

    pub fn families(&self) -> impl Iterator<Item = MetricFamily> {
        self.families.iter().map(|(family, _)| *family)
    }

    /// Each sample as a line of text, for tests.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (family, samples) in &self.families {
            for Sample { labels, value } in samples {
                let value = match value {
                    OwnedValue::Counter(value) => value.to_string(),
                    OwnedValue::FloatCounter(value) | OwnedValue::Gauge(value) => value.to_string(),
                    OwnedValue::Histogram(value) => format!("{:?} {}", value.counts, value.sum),
                };
                lines.push(format!("{} {labels:?} {value}", family.name));
            }
        }
        lines
    }
}

impl MetricSink for MergedFamilies {
    fn family(&mut self, family: MetricFamily) {
        let known = self.families.iter().position(|(other, _)| other.name == family.name);
        self.open = known.unwrap_or(self.families.len());
        if known.is_none() {
            self.families.push((family, Vec::new()));
        }
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: SampleValue<'_>) {
        let Some((_, samples)) = self.families.get_mut(self.open) else { return };
        let labels = self.label.iter().chain(labels);
        let labels = labels.map(|(name, value)| ((*name).into(), (*value).into())).collect();
        samples.push(Sample { labels, value: value.into() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_of_two_sources_is_passed_on_once() {
        const TRIPS: MetricFamily =
            MetricFamily::counter("redis_round_trips", "Round trips", &["redis"]);
        let mut merged = MergedFamilies::default();
        for redis in ["main", "per_second"] {
            merged.set_label("redis", redis);
            let sink: &mut dyn MetricSink = &mut merged;
            sink.counter(TRIPS, 7);
        }
        let mut out = MergedFamilies::default();
        merged.write(&mut out);
        assert_eq!(
            out.lines(),
            [
                r#"redis_round_trips [("redis", "main")] 7"#,
                r#"redis_round_trips [("redis", "per_second")] 7"#,
            ]
        );
        assert_eq!(out.families().count(), 1);
    }
}
